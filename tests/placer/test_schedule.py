"""Schedule constraints against the standard library's topological sort; breaks of lists, patterns and predicates."""

from __future__ import annotations

import graphlib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.constraints import Constraints, resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import FIRST, Override
from tbuda_lab.core.placer.model.schedule import POLICIES, constrain_order, schedule
from tbuda_lab.pybuda.compiler_config import CompilerConfig
from tbuda_lab.pybuda.query import name_regex
from tests.placer.graphs import Sketch, encoder
from tests.placer.test_place import placed

DEVICE = load_device("wormhole_b0")


def after(*names: str) -> Override:
    return Override("schedule_constraint", names)


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    """Up to ten binary ops, each of two earlier nodes."""
    s = Sketch()
    names = [s.input("x", 1, 1, 32, 32)]
    for i in range(draw(st.integers(2, 10))):
        a, b = (draw(st.sampled_from(names)) for _ in range(2))
        names.append(s.op(f"op{i}", HwBinary("add"), (1, 1, 32, 32), a, b))
    return s.output(names[-1])


def asked(graph: Graph, *records: Override) -> Constraints:
    return resolve(records, graph, DEVICE, CompileOptions()).checked()


@given(dags(), st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=3, unique=True), min_size=1, max_size=3))
def test_an_order_is_kept_if_any_schedule_has_it(graph: Graph, expected: list[list[int]]) -> None:
    order = schedule(graph)
    names = [n for n in graph.nodes if n.startswith("op") and "output" not in n]
    records = [after(*dict.fromkeys(names[i % len(names)] for i in w)) for w in expected]
    records = [r for r in records if len(r.target) > 1]  # type: ignore[arg-type]
    before: dict[str, set[str]] = {n: {s for s in graph[n].sources if s in order} for n in order}
    for record in records:
        for a, b in itertools.pairwise(record.target):  # type: ignore[arg-type]
            before[b].add(a)
    try:
        graphlib.TopologicalSorter(before).prepare()
    except graphlib.CycleError:
        with pytest.raises(OverrideError, match="cannot be met"):
            constrain_order(graph, order, asked(graph, *records))
        return
    result = constrain_order(graph, order, asked(graph, *records))
    at = {n: i for i, n in enumerate(result)}
    assert sorted(result) == sorted(order)
    assert all(at[a] < at[b] for b, sources in before.items() for a in sources)
    positions = {n: i for i, n in enumerate(order)}
    if all(positions[a] < positions[b] for b, sources in before.items() for a in sources):
        assert result == order, "an order that the schedule has anyway changes nothing"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (after("l0.q", "l0.kk"), "did you mean 'l0.k'"),
        (after("l0.score", "l0.q"), "put l0.q before l0.score"),
        (after("l0.q", "l0.q"), "two ops or more"),
    ],
)
def test_an_order_that_cannot_be_had_is_an_error(record: Override, message: str) -> None:
    graph = encoder(1)
    with pytest.raises(OverrideError) as caught:
        constrain_order(graph, schedule(graph), asked(graph, record))
    (result,) = caught.value.diagnostics
    assert result.rule == "override-schedule_constraint" and message in f"{result.message}; {result.fix}"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_constraint_holds_in_the_placement(policy: str) -> None:
    graph = encoder(1)
    for names in (("l0.v", "l0.k", "l0.q"), ("l0.q", "l0.v", "l0.k")):
        order = placed(graph, DEVICE, (after(*names),), scheduler_policy=policy).schedule
        assert [n for n in order if n in names] == list(names)


def branches() -> Graph:
    s = Sketch()
    x = s.op("a", HwUnary("exp"), (1, 1, 32, 64), s.input("x", 1, 1, 32, 64))
    left = s.op("left", HwUnary("gelu"), (1, 1, 32, 64), x)
    right = s.op("right", HwUnary("sqrt"), (1, 1, 32, 64), x)
    return s.output(s.op("sum", HwBinary("add"), (1, 1, 32, 64), left, right))


@pytest.mark.parametrize(
    ("target", "value", "begins"),
    [
        (("sum", "right", "left"), True, {"left"}),  # a list: whichever is scheduled first
        (("right", "sum"), True, {"right"}),
        (re.compile("left|right"), True, {"left", "right"}),  # a pattern: each match
        (re.compile("left|right"), FIRST, {"left"}),
        (lambda name: name in ("right", "sum"), True, {"right", "sum"}),
        ("sum", True, {"sum"}),
        ("sum", False, set()),
    ],
)
def test_breaks_of_lists_patterns_and_predicates(target: object, value: object, begins: set[str]) -> None:
    graph = branches()
    record = Override("epoch_break", target, value)  # type: ignore[arg-type]
    p = placed(graph, DEVICE, (record,))
    assert p.schedule[:3] == ("a", "left", "right")
    assert asked(graph, record).epoch_starts(p.schedule) == begins
    assert {e.ops[0] for e in p.epochs} == {"a"} | begins


def test_a_list_of_predicates_breaks_at_its_first_match() -> None:
    config = CompilerConfig()
    config.place_on_new_epoch([name_regex("ri.*"), "sum"])
    config.place_on_new_epoch(name_regex("ri.*"))
    graph = branches()
    first, each = config.resolve_overrides(graph)
    order = schedule(graph)
    assert asked(graph, first).epoch_starts(order) == asked(graph, each).epoch_starts(order) == {"right"}
