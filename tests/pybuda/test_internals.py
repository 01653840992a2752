"""The inner calls of devices: step by step what the run loop does, and evaluation on the host against torch."""

from __future__ import annotations

import queue

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.pybuda.run.commands import Command, CommandType


def pipeline() -> tuple[pybuda.TTDevice, pybuda.CPUDevice, nn.Module, nn.Module]:
    torch.manual_seed(0)
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    first, second = nn.Linear(32, 32), nn.Linear(32, 8)
    tt0 = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        module=pybuda.PyTorchModule("first", first),
        optimizer=pybuda.SGD(0.1, device_params=True),
    )
    cpu = pybuda.CPUDevice("cpu", module=pybuda.PyTorchModule("second", second))
    return tt0, cpu, first, second


def test_commands_and_transfers_are_an_inference() -> None:
    tt0, cpu, first, second = pipeline()
    x = torch.randn(1, 16, 32)
    (shape,) = tt0.compile_for((x,))
    assert tuple(shape.shape) == (1, 16, 32)
    inputs, fills, shapes = tt0.get_dram_io_queues("input")
    assert shapes[0][-2:] == (16, 32) and len(inputs) == 1 and fills == [[]]
    assert len(tt0.get_dram_io_queues("parameter")[0]) == 2
    tt0.push_to_inputs(x)
    tt0.push_to_command_queue(Command(CommandType.RUN_FORWARD, {"loop_count": 1}))
    assert tt0.get_command_queue_response() == {} and tt0.get_command_queue_response() is None
    tt0.dc_transfer("forward")
    cpu.forward(1)
    cpu.dc_transfer("forward")
    from tbuda_lab.pybuda.context import CONTEXT

    assert CONTEXT.output_queue is not None
    (have,) = CONTEXT.output_queue.get_nowait()
    torch.testing.assert_close(have.value(), second(first(x)).detach(), rtol=1e-4, atol=1e-4)
    waiting: queue.Queue[Command] = queue.Queue()
    assert tt0.get_next_command(waiting) is None
    waiting.put(Command(CommandType.QUIT))
    command = tt0.get_next_command(waiting)
    assert command is not None and tt0.run_next_command(command)
    checkpoint = tt0.pop_parameter_checkpoint()
    torch.testing.assert_close(checkpoint["weight"].value(), first.weight.detach())


def test_a_training_step_by_hand_and_its_gradient_trace() -> None:
    tt0, cpu, first, second = pipeline()
    x, y = torch.randn(1, 16, 32), torch.randn(1, 16, 8)
    cpu.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    trace: queue.Queue[object] = queue.Queue()
    cpu.set_debug_gradient_trace_queue(trace)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    tt0.push_to_inputs(x)
    cpu.push_to_target_inputs(y)
    tt0.forward(1)
    tt0.dc_transfer("forward")
    cpu.forward(1)
    cpu.backward(1, zero_grad=True)
    cpu.dc_transfer("backward")
    tt0.backward(1, zero_grad=True)
    nn.functional.mse_loss(second(first(x)), y).backward()
    assert first.weight.grad is not None
    have = tt0.get_parameter_gradients()["weight"].value()
    torch.testing.assert_close(have, first.weight.grad, rtol=1e-3, atol=1e-6)
    assert trace.qsize() == 2


def test_evaluation_on_the_host() -> None:
    tt0, *_ = pipeline()
    x = torch.randn(1, 16, 32)
    other = {"weight": torch.randn(32, 32), "bias": torch.zeros(32)}
    (have,) = tt0.cpueval_forward([x], other, save_for_backward=True)
    torch.testing.assert_close(have, x @ other["weight"].T)
    seed = torch.randn(1, 16, 32)
    (by_input,), by_weight = tt0.cpueval_backward([seed], other)
    torch.testing.assert_close(by_input, seed @ other["weight"])
    torch.testing.assert_close(by_weight["weight"], seed[0].T @ x[0])
    with pytest.raises(RuntimeError, match="save_for_backward"):
        tt0.cpueval_backward([seed])


def test_misuse_and_what_needs_other_processes() -> None:
    tt0, cpu, _, _ = pipeline()
    for call in (lambda: tt0.run("."), lambda: cpu.dc_transfer_thread("forward")):
        with pytest.raises(NotImplementedError, match="calling thread"):
            call()
    with pytest.raises(RuntimeError, match="no result"):
        tt0.dc_transfer("forward")
    with pytest.raises(RuntimeError, match="forward or backward"):
        tt0.dc_transfer("sideways")
    with pytest.raises(RuntimeError, match="knows input"):
        tt0.get_dram_io_queues("sideways")
    with pytest.raises(RuntimeError, match="a command is"):
        tt0.run_next_command("RUN_FORWARD")  # type: ignore[arg-type]
