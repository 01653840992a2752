"""The placer counts streams and L1 of every placed op as the check of the netlist does, so that it never hands on what
the check refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tbuda_lab.core.device import load_device
from tbuda_lab.core.netlist.cores.epochs import epoch_cores
from tbuda_lab.core.netlist.schema import Execute, Netlist
from tbuda_lab.core.netlist.tables import Tables
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import plan_queues
from tbuda_lab.core.session import Session
from tests.session.models import encoder, perceptron


def _convolutions() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3)
    return nn.Sequential(*layers).eval(), (torch.randn(1, 3, 32, 32),)


def _heads() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.MultiheadAttention(128, 4, batch_first=True).eval(), (torch.randn(1, 96, 128),) * 3


def _training(normed: bool) -> Callable[[str, int], Session]:
    def make(device: str, microbatch: int) -> Session:
        torch.manual_seed(0)
        middle = [nn.LayerNorm(64), nn.GELU()] if normed else [nn.Tanh()]
        model = nn.Sequential(nn.Linear(64, 64), *middle, nn.Linear(64, 32))
        x, y = torch.randn(microbatch, 32, 64), torch.randn(microbatch, 32, 32)
        options = CompileOptions(microbatch=microbatch)
        return Session.for_training(model, x, nn.MSELoss(), y, "adam", 0.01, options=options, device=device)

    return make


def _inference(of: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]) -> Callable[[str, int], Session]:
    return lambda device, microbatch: Session(*of(), load_device(device), CompileOptions(microbatch=microbatch))


KINDS = {
    "perceptron": _inference(perceptron),
    "encoder": _inference(encoder),
    "convolutions": _inference(_convolutions),
    "heads": _inference(_heads),
    "training": _training(False),
    "training with norms": _training(True),
}


def _of_the_check(netlist: Netlist, align: int, arch: str) -> dict[str, tuple[int, int]]:
    """(streams, bytes without headers) of every op's fullest core."""
    tables, counts = Tables(netlist), {}
    for program in netlist.programs:
        for run in program.instructions:
            if not isinstance(run, Execute):
                continue
            ahead = {q for q, setting in (run.settings or {}).items() if setting.fields.get("prologue") is True}
            ops = netlist.graphs[run.graph].ops.values()
            preloads = {op.name: frozenset(i.source for i in op.inputs if i.source in ahead) for op in ops}
            cores = epoch_cores(tables, (run.graph,), align, preloads, arch)
            for op, of in cores.of_op.items():
                counts[op] = max(cores.router[op], int(of.streams.max())), int(of.total.max())
    return counts


@pytest.mark.parametrize(("arch", "microbatch"), [("grayskull", 1), ("wormhole_b0", 16)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_placer_counts_every_op_as_the_check_does(kind: str, arch: str, microbatch: int) -> None:
    session = KINDS[kind](arch, microbatch)
    placement = session.compile().placement
    planner = plan_queues(session.placed().problem, placement.ops, None, placement.input_buffers)
    planner.plan()
    counts = {op: (load.streams, load.bytes) for op, load in planner.core_loads().items()}
    assert counts == _of_the_check(session.compile().netlist, session.device.tile_align, arch)
    assert max(streams for streams, _ in counts.values()) <= 24
    assert max(size for _, size in counts.values()) <= session.device.l1_usable
