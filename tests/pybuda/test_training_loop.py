"""Training through the PyBuda API: the run loop, losses, queues, the host's optimizers, several devices."""

from __future__ import annotations

import copy
import json
import queue
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as f
import yaml

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import ModelError, UnsupportedOp
from tbuda_lab.core.frontend import from_pybuda
from tbuda_lab.core.frontend.pybuda import with_loss
from tbuda_lab.core.frontend.torch_model.audit import audit

RATE = 0.1


class Two(pybuda.PyBudaModule):
    """Two products and one gelu; one result."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        generator = torch.Generator().manual_seed(1)
        self.w1 = pybuda.Parameter(torch.randn(32, 32, generator=generator) / 6)
        self.w2 = pybuda.Parameter(torch.randn(32, 32, generator=generator) / 6)

    def forward(self, a: Any, b: Any) -> Any:
        m1 = pybuda.op.Gelu("g", pybuda.op.Matmul("m1", a, self.w1))
        return pybuda.op.Add("s", m1, pybuda.op.Matmul("m2", b, self.w2))


def plain(w1: torch.Tensor, w2: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(a @ w1) + b @ w2


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    torch.manual_seed(0)
    yield
    pybuda.pybuda_reset()


def near(have: Any, want: torch.Tensor) -> None:
    torch.testing.assert_close(have.value().reshape(want.shape), want.detach(), rtol=1e-3, atol=3e-4)


def device(name: str = "tt0", **more: Any) -> pybuda.TTDevice:
    return pybuda.TTDevice(name, arch=pybuda.BackendDevice.Wormhole_B0, **more)


def test_manual_loop_over_a_device_and_the_host() -> None:
    """Two accumulated inputs of two elements, two steps; the host has a layer, the loss and an optimizer."""
    module, head = Two("s0"), torch.nn.Linear(32, 8)
    twin = copy.deepcopy(head)
    w = {n: torch.nn.Parameter(p.value().clone()) for n, p in (("s0.w1", module.w1), ("s0.w2", module.w2))}
    tt = device(module=module, optimizer=pybuda.optimizers.SGD(learning_rate=RATE, device_params=True))
    cpu = pybuda.CPUDevice(
        "cpu1", module=pybuda.PyTorchModule("s1", head), optimizer_f=lambda m: torch.optim.SGD(m.parameters(), lr=0.5)
    )
    cpu.place_loss_module(pybuda.PyTorchModule("l1", torch.nn.L1Loss()))
    theirs = torch.optim.SGD([{"params": w.values(), "lr": RATE}, {"params": twin.parameters(), "lr": 0.5}], lr=RATE)
    back: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.initialize_pipeline(
        training=True,
        sample_inputs=(torch.rand(2, 32, 32), torch.rand(2, 32, 32)),
        sample_targets=(torch.rand(2, 32, 8),),
        d2d_bwd_queues=[back],
    )
    for _ in range(2):
        theirs.zero_grad()
        for turn in range(2):
            a, b, target = torch.randn(2, 32, 32), torch.randn(2, 32, 32), torch.randn(2, 32, 8)
            tt.push_to_inputs((a, b))
            cpu.push_to_target_inputs(target)
            pybuda.run_forward(input_count=1)
            pybuda.run_backward(input_count=1, zero_grad=turn == 0)
            loss = torch.nn.functional.l1_loss(twin(plain(*w.values(), a, b)), target)
            loss.backward()
            assert float(pybuda.get_loss_queue().get()[0]) == pytest.approx(loss.item(), rel=1e-3)
            assert back.get()[0].value().shape == (2, 32, 32)
        (result,) = pybuda.get_parameter_gradients(tt)
        for name, p in w.items():
            near(result[name], p.grad)
        pybuda.run_optimizer(checkpoint=True)
        theirs.step()
        ours, host = checkpoints.get()
        for name, p in w.items():
            near(ours[name], p)
        near(host["weight"], twin.weight)


def test_run_training_with_the_loss_on_the_device_and_a_scheduler() -> None:
    class Halved(pybuda.schedulers.LearningRateScheduler):
        def get_lr(self) -> float:
            return self.optimizer.learning_rate / 2

    module = Two("s0")
    w1, w2 = (torch.nn.Parameter(p.value().clone()) for p in (module.w1, module.w2))
    optimizer = pybuda.optimizers.SGD(learning_rate=8.0, device_params=True)
    tt = device(module=module, optimizer=optimizer, scheduler=Halved(optimizer))
    tt.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    data = [tuple(torch.randn(1, 32, 32) for _ in range(3)) for _ in range(4)]
    for a, b, target in data:
        tt.push_to_inputs(a, b)
        tt.push_to_target_inputs(target)
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.run_training(epochs=2, steps=1, microbatch_count=2, loss_queue=losses)
    for epoch in range(2):
        for a, b, target in data[2 * epoch : 2 * epoch + 2]:
            loss = torch.nn.functional.l1_loss(plain(w1, w2, a, b), target)
            loss.backward()
            near(losses.get()[0], loss.reshape(1))
        with torch.no_grad():
            for p in (w1, w2):
                p -= 8.0 / 2**epoch * p.grad
                p.grad = None
    assert losses.empty()
    (final,) = checkpoints.get()
    near(final["s0.w1"], w1)
    near(final["s0.w2"], w2)
    assert optimizer.learning_rate == 2.0


def test_gradients_pass_from_device_to_device_and_weights_come_from_the_host() -> None:
    """A device behind another one; the host reads gradients, steps, and writes weights back."""
    first, second = Two("s0"), torch.nn.Linear(32, 16)
    w1, w2 = (torch.nn.Parameter(p.value().clone()) for p in (first.w1, first.w2))
    tt0 = device("tt0", module=first)
    tt1 = device("tt1", module=pybuda.PyTorchModule("head", second))
    tt1.place_loss_module(pybuda.op.loss.CrossEntropyLoss("ce"))
    a, b = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
    target = torch.nn.functional.one_hot(torch.arange(32) % 16, 16)[None].float()
    pybuda.initialize_pipeline(training=True, sample_inputs=(a, b), sample_targets=(target,))
    for _ in range(2):
        tt0.push_to_inputs(a, b)
        tt1.push_to_target_inputs(target)
        pybuda.run_forward()
        pybuda.run_backward(zero_grad=True)
        out = second(plain(w1, w2, a, b))
        w1.grad = w2.grad = second.weight.grad = None
        torch.nn.functional.cross_entropy(out[0], target[0]).backward()
        (grads,) = pybuda.get_parameter_gradients(tt0)
        near(grads["s0.w1"], w1.grad)
        near(pybuda.get_parameter_gradients(tt1)[0]["weight"], second.weight.grad)
        (params,) = pybuda.get_parameter_checkpoint(tt0)
        with torch.no_grad():
            for p in (w1, w2):
                p -= 3.0 * p.grad
        params["s0.w1"].value().copy_(w1.detach())
        params["s0.w2"].value().copy_(w2.detach())
        pybuda.update_device_parameters(tt0, [params])
        near(pybuda.get_parameter_checkpoint(tt0)[0]["s0.w1"], w1)


def test_more_inputs_than_there_is_room_for_and_what_is_not_set_up() -> None:
    module = Two("s0")
    tt = device(module=module, optimizer=pybuda.optimizers.SGD(learning_rate=RATE, device_params=True))
    with pytest.raises(RuntimeError, match="not set up for training"):
        pybuda.run_backward()
    sample = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
    with pytest.raises(RuntimeError, match="has no loss"):
        pybuda.initialize_pipeline(training=True, sample_inputs=sample, sample_targets=sample[:1])
    tt.place_loss_module(pybuda.op.loss.L1Loss("l1", reduction="sum"))
    with pytest.raises(RuntimeError, match="takes 3 inputs"):
        pybuda.run_training(steps=3)
    pybuda.initialize_pipeline(training=True, sample_inputs=sample, sample_targets=sample[:1])
    for _ in range(6):
        tt.push_to_inputs(*sample)
        tt.push_to_target_inputs(sample[0])
    pybuda.run_forward(input_count=6)
    pybuda.run_backward(input_count=6, zero_grad=True)
    w1, w2 = (torch.nn.Parameter(p.value().clone()) for p in (module.w1, module.w2))
    (6 * (plain(w1, w2, *sample) - sample[0]).abs().sum()).backward()
    have = pybuda.get_parameter_gradients(tt)[0]["s0.w2"].value()
    torch.testing.assert_close(have, w2.grad, rtol=1e-3, atol=1e-2)


def test_what_a_training_does_not_run_is_named() -> None:
    sample = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
    optimizer = pybuda.optimizers.SGD(learning_rate=RATE, device_params=True)
    tt = device(module=Two("s0"), optimizer=optimizer)
    tt.place_loss_module(pybuda.op.loss.L1Loss("l1", reduction="sum"))
    pybuda.initialize_pipeline(
        training=True,
        sample_inputs=sample,
        sample_targets=sample[:1],
        _verify_cfg=pybuda.verify.VerifyConfig(),
        _device_mode=pybuda.DeviceMode.CompileOnly,
    )
    tt.push_to_inputs(*sample)
    tt.push_to_target_inputs(sample[0])
    with pytest.raises(RuntimeError, match="only compiles"):
        pybuda.run_training(_perf_trace=True)


def test_a_training_leaves_its_netlist_and_the_trace_of_a_step(tmp_path: Path) -> None:
    """Files as those of an inference; the trace has ops of all three phases."""
    pybuda.set_configuration_options(backend_output_dir=str(tmp_path))
    tt, _ = judged_training(pybuda.optimizers.SGD(learning_rate=RATE, device_params=True), 1)
    pybuda.run_training(_perf_trace=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "s0_netlist.cycles.csv",
        "s0_netlist.yaml",
        "s0_perf.trace.json",
    ]
    programs = [next(iter(p)) for p in yaml.safe_load((tmp_path / "s0_netlist.yaml").read_text())["programs"]]
    assert [name[:7] for name in programs] == ["run_fwd", "run_bwd", "run_opt"]
    events = json.loads((tmp_path / "s0_perf.trace.json").read_text())["traceEvents"]
    worked = {event["name"] for event in events if event["ph"] == "X"}
    assert worked >= set(tt.result.placement.ops)


def judged_training(optimizer: Any, turns: int, **config: Any) -> tuple[Any, Any]:
    """A device with inputs for so many turns, and the configuration that judges them."""
    tt = device(module=Two("s0"), optimizer=optimizer)
    tt.place_loss_module(pybuda.op.loss.L1Loss("l1", reduction="sum"))
    for _ in range(turns):
        sample = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
        tt.push_to_inputs(*sample)
        tt.push_to_target_inputs(sample[0])
    return tt, pybuda.verify.VerifyConfig(**config)


@pytest.mark.parametrize("kind, settings", [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {})])
def test_a_training_is_judged_step_by_step(kind: str, settings: dict[str, float]) -> None:
    optimizer = getattr(pybuda.optimizers, kind)(learning_rate=RATE, device_params=True, **settings)
    _, verify = judged_training(optimizer, 12)
    losses: queue.Queue[Any] = queue.Queue()
    pybuda.run_training(steps=2, accumulation_steps=2, microbatch_count=2, loss_queue=losses, _verify_cfg=verify)
    pybuda.run_training(steps=1, accumulation_steps=2, microbatch_count=2)  # judged as before
    assert losses.qsize() == 12


@pytest.mark.parametrize("asked", ["initialize_pipeline", "run_training"])
def test_a_training_that_no_result_can_meet_fails(asked: str) -> None:
    optimizer = pybuda.optimizers.SGD(learning_rate=RATE, device_params=True)
    _, verify = judged_training(optimizer, 1, pcc=2.0)
    if asked == "initialize_pipeline":
        sample = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
        pybuda.initialize_pipeline(training=True, sample_inputs=sample, sample_targets=sample[:1], _verify_cfg=verify)
        pybuda.run_forward()
        with pytest.raises(AssertionError, match=r"gradient by s0\.w1.*correlation below 2"):
            pybuda.run_backward(zero_grad=True)
        return
    with pytest.raises(AssertionError, match=r"gradient by s0\.w1.*correlation below 2"):
        pybuda.run_training(_verify_cfg=verify)


def test_a_wrong_update_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device steps with another learning rate than the optimizer says."""
    optimizer = pybuda.optimizers.SGD(learning_rate=RATE, device_params=True)
    tt, verify = judged_training(optimizer, 2)
    pybuda.run_training(_verify_cfg=verify)
    step = tt.trainer.optimize

    def wrong() -> None:
        tt.optimizer.learning_rate *= -100
        step()
        tt.optimizer.learning_rate /= -100

    monkeypatch.setattr(tt.trainer, "optimize", wrong)
    with pytest.raises(AssertionError, match="after the step"):
        pybuda.run_training(_verify_cfg=verify)


def test_updates_of_a_training_that_has_begun_are_not_judged_where_state_is_unknown() -> None:
    _, verify = judged_training(pybuda.optimizers.Adam(learning_rate=RATE, device_params=True), 4)
    pybuda.run_training()
    with pytest.warns(UserWarning, match="Adam.*updates are not"):
        pybuda.run_training(_verify_cfg=verify)
    pybuda.run_forward()
    with pytest.raises(RuntimeError, match=r"1 inputs ran forward.*run_backward"):
        pybuda.run_training(_verify_cfg=verify)


def test_inputs_of_another_batch_than_the_sample() -> None:
    module = Two("s0")
    tt = device(module=module, optimizer=pybuda.optimizers.SGD(learning_rate=RATE, device_params=True))
    tt.place_loss_module(pybuda.op.loss.L1Loss("l1", reduction="sum"))
    a, b, target = (torch.randn(6, 32, 32) for _ in range(3))
    pybuda.initialize_pipeline(training=True, sample_inputs=(a[:1], b[:1]), sample_targets=(target[:1],))
    tt.push_to_inputs(a, b)
    tt.push_to_target_inputs(target)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    w1, w2 = (torch.nn.Parameter(p.value().clone()) for p in (module.w1, module.w2))
    (plain(w1, w2, a, b) - target).abs().sum().backward()
    have = pybuda.get_parameter_gradients(tt)[0]["s0.w1"].value()
    torch.testing.assert_close(have, w1.grad, rtol=1e-3, atol=2e-2)


def test_layers_that_torch_would_train_in_another_way_are_named() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Dropout(0.1))
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("net", model), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    x, y = torch.randn(1, 3, 8, 8), torch.randn(1, 8, 6, 6)
    with pytest.warns(UserWarning) as told:
        pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    messages = [str(w.message) for w in told]
    assert len(messages) == 1
    assert any("trains 2 as in eval()" in m and "drop nothing" in m for m in messages)


def test_a_functional_dropout_is_named_by_its_line() -> None:
    class Drops(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(self.layer(x), 0.5, training=self.training)

    sample = {"sample_inputs": (torch.randn(1, 32),), "sample_targets": (torch.randn(1, 32),)}
    for mode, told in ((True, 1), (False, 0)):
        pybuda.pybuda_reset()
        device = pybuda.TTDevice(
            "tt0",
            module=pybuda.PyTorchModule("net", Drops().train(mode)),
            optimizer=pybuda.SGD(0.1, device_params=True),
        )
        device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            pybuda.initialize_pipeline(training=True, **sample)
        messages = [str(w.message) for w in seen if "functional dropout" in str(w.message)]
        assert len(messages) == told
        assert all("test_training_loop.py:" in m and "drops nothing" in m for m in messages)


def test_a_transposed_convolution_trains_on_the_device() -> None:
    """Its weight has kernels of 2 x 2, turned: its gradient must not take a tile per kernel."""
    torch.manual_seed(3)
    model = torch.nn.ConvTranspose2d(32, 16, 2, stride=2)
    weight = torch.nn.Parameter(model.weight.detach().clone())
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("up", model), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    x, y = torch.randn(1, 32, 8, 8), torch.randn(1, 16, 16, 16)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    device.push_to_inputs(x)
    device.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    answer = torch.nn.functional.conv_transpose2d(x, weight, model.bias.detach(), stride=2)
    torch.nn.functional.mse_loss(answer, y).backward()
    have = pybuda.get_parameter_gradients(device)[0]["weight"].value()
    torch.testing.assert_close(have, weight.grad, rtol=0.05, atol=2e-4)


BENDS = (
    f.relu,
    f.relu6,
    f.hardtanh,
    f.hardsigmoid,
    f.hardswish,
    f.leaky_relu,
    f.elu,
    f.selu,
    f.celu,
    f.softplus,
    f.mish,
    f.logsigmoid,
    lambda x: f.prelu(x, torch.tensor([0.2])),
    torch.abs,
    torch.erf,
    lambda x: x.clamp(-1, 1),
    lambda x: f.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.3), reduction="none"),
)


class Bends(torch.nn.Module):
    """Each function of the weights, which stand on its bends."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([[-6.0, -3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0, 6.0, 0.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([bend(x + self.w) for bend in BENDS])[None]


class Weighted(torch.nn.Module):
    def forward(self, y: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return (y * by).sum()


@pytest.mark.parametrize("row", range(len(BENDS)))
def test_gradients_on_a_bend_are_those_of_torch(row: int, bends: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(bends["have"][row], bends["want"][row], rtol=0.02, atol=1e-3)


@pytest.fixture(scope="module")
def bends() -> dict[str, torch.Tensor]:
    """By function and weight the gradient, one function at a time: on the device and in torch."""
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    model, x = Bends(), torch.zeros(1, 10)
    one = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("net", model))
    one.place_loss_module(pybuda.PyTorchModule("loss", Weighted()))
    weights = torch.zeros(1, len(BENDS), 10)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(weights,))
    have, want = [], []
    for row in range(len(BENDS)):
        weights = torch.zeros(1, len(BENDS), 10)
        weights[0, row] = 1.0
        one.push_to_inputs(x)
        one.push_to_target_inputs(weights)
        pybuda.run_forward()
        pybuda.run_backward(zero_grad=True)
        have.append(pybuda.get_parameter_gradients(one)[0]["w"].value().reshape(-1).clone())
        model.zero_grad()
        (model(x) * weights).sum().backward()
        assert model.w.grad is not None
        want.append(model.w.grad.reshape(-1).clone())
    pybuda.pybuda_reset()
    return {"have": torch.stack(have), "want": torch.stack(want)}


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)


@pytest.mark.parametrize("device_type", [pybuda.TTDevice, pybuda.CPUDevice])
def test_modules_of_a_device_whose_weights_have_the_same_names(device_type: type) -> None:
    """The second module's have its name in front: nothing of it is lost, and updates reach the right one."""
    torch.manual_seed(0)
    modules = {"one": Layer(), "two": Layer()}
    one = device_type("d", module=[pybuda.PyTorchModule(name, m) for name, m in modules.items()])
    one.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    x, y = torch.rand(1, 64, 32), torch.rand(1, 64, 32)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    start = {n: v.value().detach().clone() for n, v in pybuda.get_parameter_checkpoint(one)[0].items()}
    assert set(start) == {"lin.weight", "lin.bias", "two.lin.weight", "two.lin.bias"}
    torch.testing.assert_close(start["two.lin.weight"], modules["two"].lin.weight.detach(), rtol=0.01, atol=1e-3)
    pybuda.update_device_parameters(one, [{"two.lin.weight": start["lin.weight"]}])
    assert torch.equal(modules["two"].lin.weight.detach(), start["lin.weight"])
    one.push_to_inputs(x)
    one.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    have = {n: v.value().clone() for n, v in pybuda.get_parameter_gradients(one)[0].items()}
    for module in modules.values():
        module.zero_grad()
    torch.nn.functional.mse_loss(modules["two"](modules["one"](x)), y).backward()
    for prefix, module in zip(("", "two."), modules.values(), strict=True):
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            got = have[prefix + name].reshape(parameter.shape)
            assert float((got - parameter.grad).norm()) < 0.02 * float(parameter.grad.norm())


def normed(channels: int = 8) -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Conv2d(4, channels, 3, bias=False), torch.nn.BatchNorm2d(channels))


def test_batch_norm_trains_with_the_statistics_of_its_input() -> None:
    """And changes its running statistics on the device as torch does, also where a layer is used twice."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(4, 8, 3, bias=False), torch.nn.BatchNorm2d(8, momentum=0.3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(2 * torch.relu(self.norm(self.conv(x))))

    torch.manual_seed(5)
    model = Net().train()
    model.norm.running_mean.fill_(3.0)
    twin = copy.deepcopy(model)
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    device = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        module=pybuda.PyTorchModule("net", model),
        optimizer=pybuda.SGD(0.1, device_params=True),
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    x, y = torch.randn(1, 4, 10, 10), torch.randn(1, 8, 8, 8)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    for factor in (1.0, 2.0):
        device.push_to_inputs(factor * x)
        device.push_to_target_inputs(y)
        pybuda.run_forward()
        pybuda.run_backward(zero_grad=True)
        twin.zero_grad()
        torch.nn.functional.mse_loss(twin(factor * x), y).backward()
    have = pybuda.get_parameter_gradients(device)[0]
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(have[name].value(), parameter.grad, rtol=1e-4, atol=1e-5)
    left = pybuda.get_parameter_checkpoint(device)[0]
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        torch.testing.assert_close(left[name].value(), twin.state_dict()[name], rtol=1e-5, atol=1e-6)
    pybuda.update_device_parameters(device, [{"norm.num_batches_tracked": torch.tensor(40)}])
    assert pybuda.get_parameter_checkpoint(device)[0]["norm.num_batches_tracked"].value() == 40


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradients_of_a_loss_over_a_microbatch_are_torchs(reduction: str) -> None:
    torch.manual_seed(5)
    model = torch.nn.Linear(16, 8)
    loss = torch.nn.CrossEntropyLoss(reduction=reduction)
    device = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        module=pybuda.PyTorchModule("net", model),
        optimizer=pybuda.SGD(0.1, device_params=True),
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", loss))
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    x, y = torch.randn(4, 16), torch.tensor([1, 3, 7, 0])
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    device.push_to_inputs(x)
    device.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    expected = torch.autograd.grad(loss(model(x), y), list(model.parameters()))
    have = pybuda.get_parameter_gradients(device)[0]
    for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(have[name].value(), gradient, rtol=1e-4, atol=1e-6)


def test_a_loss_that_weighs_the_elements_of_a_microbatch_is_refused() -> None:
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0, 1.0]))
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("net", torch.nn.Linear(16, 4)), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", loss))
    with pytest.raises(ModelError, match=r"neither the sum nor the mean .* place the loss on a CPUDevice"):
        pybuda.initialize_pipeline(
            training=True, sample_inputs=(torch.randn(3, 16),), sample_targets=(torch.tensor([0, 1, 2]),)
        )


def test_statistics_that_weigh_by_the_count_of_inputs_are_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8, momentum=None)).train()
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("net", model), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    with pytest.raises(UnsupportedOp, match="momentum=None"):
        pybuda.initialize_pipeline(
            training=True, sample_inputs=(torch.randn(1, 4, 10, 10),), sample_targets=(torch.randn(1, 8, 8, 8),)
        )


def test_batch_norm_over_several_elements_is_refused_by_name() -> None:
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("net", normed().train()), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    x, y = torch.randn(4, 4, 10, 10), torch.randn(4, 8, 8, 8)
    with pytest.raises(UnsupportedOp, match="statistics are those of 4 elements"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))


def test_targets_as_long_as_one_output_are_no_microbatch() -> None:
    """An output of three rows per element is compared with all three rows of its target."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Flatten(0, 1), torch.nn.Linear(16, 8))
    weight = torch.nn.Parameter(model[1].weight.detach().clone())
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("rows", model), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    x, y = torch.randn(1, 3, 16), torch.randn(3, 8)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    device.push_to_inputs(x)
    device.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    torch.nn.functional.mse_loss(torch.nn.functional.linear(x[0], weight, model[1].bias.detach()), y).backward()
    have = pybuda.get_parameter_gradients(device)[0]["1.weight"].value()
    torch.testing.assert_close(have, weight.grad, rtol=0.02, atol=0.01)


def test_a_queue_that_nothing_can_fill_says_what_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with another thread, or a timeout, it waits as every queue does."""
    device = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        module=pybuda.PyTorchModule("net", normed()),
        optimizer=pybuda.SGD(0.1, device_params=True),
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.L1Loss()))
    x, y = torch.randn(1, 4, 10, 10), torch.randn(1, 8, 8, 8)
    checkpoints = pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    with monkeypatch.context() as alone:
        alone.setattr(threading, "enumerate", lambda: [threading.current_thread()])
        with pytest.raises(RuntimeError, match=r"run_optimizer\(checkpoint=True\) or run_training"):
            checkpoints.get()
        with pytest.raises(RuntimeError, match="run_forward"):
            pybuda.get_loss_queue().get()
    with pytest.raises(queue.Empty):
        checkpoints.get(timeout=0.01)
    other = threading.Thread(target=lambda: checkpoints.put("weights"))
    other.start()
    assert checkpoints.get() == "weights"
    other.join()


class Gated(torch.nn.Module):
    """A gate that no gradient passes, and layers with a hook that changes their gradients or does not."""

    def __init__(self, hook: bool) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(32, 32), torch.nn.Linear(32, 16)
        if hook:
            self.b.register_full_backward_hook(lambda _, given, __: tuple(g * 0.1 for g in given))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        return self.b(h * torch.sigmoid(h).detach())


@pytest.mark.parametrize("loss_on_host", [False, True])
@pytest.mark.parametrize("hook", [False, True])
def test_a_device_trains_as_torch_or_says_so(hook: bool, loss_on_host: bool) -> None:
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    torch.manual_seed(0)
    model, x, y = Gated(hook), torch.randn(1, 32), torch.randn(1, 16)
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("net", model))
    host = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("same", torch.nn.Identity())) if loss_on_host else None
    last = host or device
    last.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    if hook:
        with pytest.raises(UnsupportedOp) as error:
            pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
        assert any("a backward hook of module 'b'" in d.message for d in error.value.diagnostics)
        return
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    device.push_to_inputs(x)
    last.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    have = pybuda.get_parameter_gradients(device)[0]["a.weight"].value()
    torch.nn.functional.mse_loss(model(x), y).backward()
    torch.testing.assert_close(have.reshape(32, 32), model.a.weight.grad, rtol=1e-3, atol=1e-6)
    pybuda.pybuda_reset()


class Halves(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(1, 1, 9, 3, dtype=dtype))

    def forward(self, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, self.w) + b


class Scaled(torch.nn.Module):
    def forward(self, value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (value - target).abs().sum() * 50


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_16_bits_trains_and_what_is_changed_in_it_is_found(dtype: torch.dtype) -> None:
    """Its own roundings, 0.4 % an op, are no difference of the trace; a weight that is 1 % more is."""
    torch.manual_seed(3)
    model, loss = pybuda.PyTorchModule("halves", Halves(dtype)), pybuda.PyTorchModule("loss", Scaled())
    x, b, target = torch.rand(1, 1, 3, 9, dtype=dtype), torch.rand(1, 1, 1, 3, dtype=dtype), torch.rand(1, 1, 3, 3)
    want = Scaled()(x.double() @ model.module.w.detach().double() + b.double(), target.double())
    graph, names = with_loss(from_pybuda([model], (x, b), training=True), loss, (target,))
    feed = {"x": x, "b": b, names[0]: target}
    audit(model.module, loss.module, graph, feed, (x, b), (target,))
    graph["w"].value = graph["w"].value * 1.01
    with pytest.raises(UnsupportedOp, match="does not train on the device"):
        audit(model.module, loss.module, graph, feed, (x, b), (target,))

    tt = device(module=model, optimizer=pybuda.optimizers.SGD(learning_rate=0.001, device_params=True))
    tt.place_loss_module(loss)
    losses: queue.Queue[Any] = queue.Queue()
    tt.push_to_inputs(x, b)
    tt.push_to_target_inputs(target)
    pybuda.run_training(loss_queue=losses)
    assert float(losses.get()[0].value()) == pytest.approx(float(want), rel=0.02)
