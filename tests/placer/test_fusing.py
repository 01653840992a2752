"""What is fused is decided by price: the better of both placements, the same for groups alike, said with numbers."""

from __future__ import annotations

import functools

import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hw_ops import HwFused
from tbuda_lab.core.netlist import dumps
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import StartedPlacement, begin, decide, fusing, place_and_repair
from tbuda_lab.core.session import ResizeOp, Session

OPTIONS = CompileOptions(objective="throughput")
INPUTS = (torch.zeros(1, 4, 128, 64),)


class Attention(torch.nn.Module):
    """Two layers whose softmax is most of the work."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.softmax(x @ x.mT * 0.1, -1) @ x
        return x


@functools.cache
def attention() -> Graph:
    return from_torch(Attention().eval(), INPUTS, name="attention")


@functools.cache
def passed() -> Graph:
    return passes.run(attention(), OPTIONS).graph


def begun(graph: Graph, device: str) -> StartedPlacement:
    spec = load_device(device)
    return begin(graph, op_models(graph, spec, OPTIONS), spec, OPTIONS)


def total(begun: StartedPlacement) -> int:
    return sum(s.limiter_cycles + OPTIONS.epoch_switch_cycles for s in begun.segments)


@pytest.mark.parametrize("device", ["wormhole_b0", "grayskull"])
def test_the_better_of_both_choices_of_epochs_is_kept(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "LEAST_SHARE", 0.0)
    spec = load_device(device)
    graph = lower(passed(), spec, OPTIONS)
    exps = [n for n in graph.ops if isinstance(n.op, HwFused) and n.op.steps[-1][0] == "exp"]
    apart = lower(passed(), spec, OPTIONS, ends=[n.attrs["steps"][0] for n in exps])
    assert {n.name for n in exps} <= {n.name for n in apart.ops} and len(list(apart.ops)) == len(list(graph.ops)) + 2
    fused, cut = total(begun(graph, device)), total(begun(apart, device))
    result = decide(passed(), graph, spec, OPTIONS, lambda g: begun(g, device))
    (pattern,) = [p for p in result.patterns if p.steps[-1] == "exp"]
    assert len(pattern.ops) == 2 and pattern.trial_cycles == (fused, cut) and pattern.cut == (cut < fused)
    assert result.start is not None and total(result.start) == min(fused, cut)
    assert f"{fused:,}" in pattern.text and f"{cut:,}" in pattern.text
    assert pattern.members and all(op in pattern.members for op in pattern.ops)


def test_nothing_is_placed_where_every_value_goes_on_in_dest_or_nothing_fits() -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * torch.sigmoid(x)) @ x.mT

    spec = load_device("wormhole_b0")
    graph = passes.run(from_torch(Gate(), (torch.zeros(1, 64, 64),)), OPTIONS).graph
    lowered = lower(graph, spec, OPTIONS)

    def never(graph: Graph) -> StartedPlacement:
        raise AssertionError("placed")

    result = decide(graph, lowered, spec, OPTIONS, never)
    assert [p.ends for p in result.patterns] == [()] and result.lowered is lowered
    assert result.patterns[0].as_one < result.patterns[0].apart

    def unplaceable(graph: Graph) -> StartedPlacement:
        raise PlacementError("no room", [])

    plain = lower(passed(), spec, OPTIONS)
    assert decide(passed(), plain, spec, OPTIONS, unplaceable).lowered is plain


def test_a_small_part_of_the_model_is_not_worth_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "LEAST_SHARE", 1.01)
    spec, calls = load_device("wormhole_b0"), []

    def counted(graph: Graph) -> StartedPlacement:
        calls.append(graph)
        return begun(graph, "wormhole_b0")

    result = decide(passed(), lower(passed(), spec, OPTIONS), spec, OPTIONS, counted)
    assert len(calls) == 1 and all(p.trial_cycles is None for p in result.patterns)
    assert any("too small to price both ways" in p.text for p in result.patterns)


def test_a_placement_goes_on_from_its_epochs_as_if_they_were_chosen_then() -> None:
    spec = load_device("wormhole_b0")
    graph = lower(passed(), spec, OPTIONS)
    models = op_models(graph, spec, OPTIONS)
    whole = place_and_repair(graph, models, spec, OPTIONS)
    ahead = place_and_repair(graph, models, spec, OPTIONS, begun=begin(graph, models, spec, OPTIONS))
    assert ahead.placement.ops == whole.placement.ops and ahead.placement.report == whole.placement.report


def test_a_session_decides_as_a_compile_does_and_an_edit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "LEAST_SHARE", 0.0)
    session = Session(attention(), INPUTS, device="wormhole_b0")
    first = session.compile()
    whole = compile_graph(attention(), "wormhole_b0")
    assert dumps(first.netlist) == dumps(whole.netlist) and first.fused == whole.fused
    op = next(p for p in first.fused if p.trial_cycles is not None).ops[0]
    assert "the model takes" in session.why(op).fused
    session.apply(ResizeOp(op, (2, 1)))
    edited = session.compile()
    assert edited.placement.ops[op].size == (2, 1)
    assert edited.fused == first.fused and set(edited.placement.ops) == set(first.placement.ops)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(torch.softmax(x @ x.mT, -1) @ x)))


def test_one_of_equal_layers_decides_as_the_whole_model_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "LEAST_SHARE", 0.0)
    options, spec = CompileOptions(microbatch=8), load_device("grayskull")
    layers = torch.nn.Sequential(*(Layer() for _ in range(8))).eval()
    graph = passes.run(from_torch(layers, (torch.zeros(1, 8, 384, 64),), name="layers"), options).graph
    lowered = lower(graph, spec, options)
    started: list[StartedPlacement] = []

    def begun(graph: Graph) -> StartedPlacement:
        started.append(begin(graph, op_models(graph, spec, options), spec, options))
        return started[-1]

    result = decide(graph, lowered, spec, options, begun)
    (pattern,) = [p for p in result.patterns if p.by_layer]
    fused, cut = started[0], next(s for s in started if len(s.problem.order) > len(started[0].problem.order))
    assert "a layer takes" in pattern.text and pattern.trial_cycles is not None
    assert pattern.cut == (fusing.cycles(cut) < fusing.cycles(fused))
    for whole, layer_cycles in zip((fused, cut), pattern.trial_cycles, strict=True):
        assert whole.layer is not None and whole.layer.layers >= 4
        assert layer_cycles * 8 == pytest.approx(fusing.cycles(whole), rel=0.05)
    assert fusing.from_record(fusing.to_record(result), graph, lowered, spec, options).patterns == result.patterns
