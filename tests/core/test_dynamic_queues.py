"""Queues that share DRAM: the program allocates and frees them, and the numbers stay those of torch."""

from __future__ import annotations

import dataclasses

import torch

from tbuda_lab.core.device import load_device
from tbuda_lab.core.netlist.schema import Allocate, Deallocate, Execute
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session


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
