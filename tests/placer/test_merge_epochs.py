"""Two epochs that only a refused edge keeps apart become one with a DRAM queue on the edge, where that is cheaper."""

from __future__ import annotations

import functools
import re

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.netlist import dumps
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.runner import Runner
from tests.placer.router import uses

SWITCH = 20_000  # cycles of a new epoch (placement.md#search), shared by the inputs of a batch


class Turned(torch.nn.Module):
    """The sine's output is transposed on its way: no pipe can do that while the sine streams along its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sin(self.a(x)).transpose(1, 2))


STREAMED = (Override("t_stream_dir", "sine", "r"), Override("t_stream_shape", "sine", (2, 1)))


@functools.cache
def traced() -> tuple[Turned, torch.Tensor, Graph]:
    torch.manual_seed(0)
    model, x = Turned().eval(), torch.randn(1, 256, 256)
    return model, x, frontend.from_torch(model, (x,), name="turned")


def compiled(overrides: tuple[Override, ...] = STREAMED, **options: object) -> CompileResult:
    compile_options = CompileOptions(**{"objective": "throughput", **options})  # type: ignore[arg-type]
    return compile_graph(traced()[2], "wormhole_b0", compile_options, overrides)


def price(result: CompileResult, batch: int = 1) -> float:
    """Cycles an input: the slowest op of every epoch, and a share of its switch."""
    assert result.placement.report is not None
    return sum(e.limiter_cycles + SWITCH / batch for e in result.placement.report.epochs)


def notes(result: CompileResult) -> list[str]:
    return [d.message for d in result.diagnostics if d.rule == "repair"]


def test_a_queue_joins_epochs_when_it_is_cheaper_and_says_what_it_costs() -> None:
    apart, merged = compiled(enable_fork_join_buffering=False), compiled()
    assert [e.ops for e in apart.placement.epochs] == [("a.matmul", "sine"), ("exp",)]
    assert [e.ops for e in merged.placement.epochs] == [("a.matmul", "sine", "exp")]
    assert merged.placement.queues["e2e_sine_0"].source == "sine"
    assert price(merged) < price(apart)
    (note,) = notes(merged)
    now, before = map(int, re.search(r"(\d+) cycles an input with the switch instead of (\d+)", note).groups())
    assert (now, before) == (round(price(merged)), round(price(apart)))
    assert "no stack or pad after its first stack" in note  # a transpose may not follow
    for use in uses(dumps(merged.netlist)).values():
        assert not use.faults()
    model, x, _ = traced()
    result = Runner(merged, "golden").run([(x,)])[0][0].float()
    assert torch.nn.functional.mse_loss(result, model(x)) < 1e-4


def test_epochs_stay_apart_where_the_switch_is_shared_or_the_user_says_so() -> None:
    shared = compiled(microbatch=64)
    assert len(shared.placement.epochs) == 2 or price(shared, 64) < price(
        compiled(microbatch=64, enable_fork_join_buffering=False), 64
    )
    broken = compiled((*STREAMED, Override("epoch_break", "exp")))
    assert [e.ops for e in broken.placement.epochs] == [("a.matmul", "sine"), ("exp",)] and not notes(broken)
    alone = compiled(balancer_policy="SingleOpPerEpoch")
    assert len(alone.placement.epochs) == len(alone.placement.ops) == 3


def test_an_epoch_whose_edges_are_legal_is_left_alone() -> None:
    assert not notes(compiled(())) and len(compiled(()).placement.epochs) == 1
