"""Queues that share DRAM: the program allocates and frees them, and the numbers stay those of torch."""

from __future__ import annotations

import dataclasses

import torch

from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.pybuda import PyTorchModule, from_pybuda
from tbuda_lab.core.netlist.schema import Allocate, Deallocate, Execute
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options
from tbuda_lab.core.session import Session
from tbuda_lab.core.trainer import Trainer


class Chain(torch.nn.Module):
    """Every op in an epoch of its own makes queues whose lives are short."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return x


def test_a_full_device_reuses_addresses_and_computes_the_same():
    torch.manual_seed(0)
    device = load_device("grayskull")
    start = device.dram_start(0)
    small = dataclasses.replace(device, dram_channel_bytes=start + 1_000_000)
    session = Session(
        Chain().eval(),
        torch.randn(1, 2048, 256),
        device=small,
        options=CompileOptions(balancer_policy="SingleOpPerEpoch"),
    )
    result = session.compile()
    dynamic = {q.name: q.lifetime for q in result.placement.queues.values() if q.lifetime is not None}
    assert dynamic
    live: set[str] = set()
    for step in result.netlist.programs[0].instructions:
        if isinstance(step, Allocate):
            assert not live & set(step.queues)
            live |= set(step.queues)
        elif isinstance(step, Deallocate):
            assert set(step.queues) <= live
            live -= set(step.queues)
        elif isinstance(step, Execute):
            ops = result.netlist.graphs[step.graph].ops.values()
            read = {i.source for op in ops for i in op.inputs} & dynamic.keys()
            assert read <= live
    assert not live
    first = session.verify()[0]
    again = session.verify()[0]  # a second pass of the loop finds the queues empty
    assert first.pcc > 0.9999
    assert again.pcc > 0.9999


def test_a_full_device_trains_the_same() -> None:
    """Queues of the backward part take addresses that those of the forward part have left; what the backward part reads
    of the forward part stays. Queues of the optimizer hold one entry, its program runs once for a microbatch."""
    torch.manual_seed(0)
    module = Chain()
    x, seed = torch.randn(4, 256, 256), torch.randn(4, 256, 256)
    device = load_device("grayskull")
    small = dataclasses.replace(device, dram_channel_bytes=device.dram_start(0) + 6_000_000)
    graph = from_pybuda(PyTorchModule("model", module), (x[:1],), training=True)
    training = TrainingOptions(optimizer_options("adam", learning_rate=0.01))
    options = CompileOptions(
        balancer_policy="SingleOpPerEpoch", default_df_override=DataFormat.Float32, training=training, microbatch=4
    )
    result = compile_graph(graph, small, options)
    shared = [q for q in result.placement.queues.values() if q.lifetime is not None]
    direction = {q.name: result.placement.epochs[q.lifetime[0]].direction for q in shared if q.lifetime}
    assert set(direction.values()) == {"fwd", "bwd", "opt"}
    assert all(q.entries == (1 if direction[q.name] == "opt" else 4) for q in shared)
    trainer = Trainer(result)
    source, out = result.graph.inputs[0].name, result.graph.outputs[0].name
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        expected = module(x)
        expected.backward(seed)
        torch.testing.assert_close(trainer.forward({source: x})[0], expected.detach(), rtol=1e-4, atol=1e-3)
        trainer.backward({out: seed}, zero_grad=True)
        gradients = trainer.gradients()
        for name, parameter in module.named_parameters():
            scale = float(parameter.grad.abs().max())
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=3e-4 * scale, msg=name)
        trainer.optimize()
        optimizer.step()
