"""Ops moved over the cuts of a schedule: against all schedules there are, in small cases; time and steps."""

from __future__ import annotations

import itertools

import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.constraints import Break, Constraints
from tbuda_lab.core.device import load_device
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows
from tbuda_lab.core.placer.policies.op_runs import policy_cost
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.policies.swaps import improve, reorder
from tests.placer.graphs import Sketch, encoder, placed_as_chosen
from tests.placer.test_place import check

DEVICE = load_device("wormhole_b0")


def lopsided() -> Graph:
    """Three heavy matmuls that nothing holds back come first, and go to the second epoch (from `late` on) through DRAM,
    where small ones read them."""
    s = Sketch()
    x, wide, small = s.input("x", 1, 1, 128, 512), (1, 1, 128, 2048), (1, 1, 128, 32)
    names = ("heavy0", "heavy1", "heavy2", "early")
    heavy = [s.op(n, HwMatmul(), wide, x, s.parameter(f"w.{n}", 1, 1, 512, 2048)) for n in names]
    total = s.op("late", HwMatmul(), small, heavy[3], s.parameter("v", 1, 1, 2048, 32))
    for i, one in enumerate(heavy[:3]):
        narrow = s.op(f"narrow{i}", HwMatmul(), small, one, s.parameter(f"v{i}", 1, 1, 2048, 32))
        total = s.op(f"sum{i}", HwBinary("add"), small, total, narrow)
    return s.output(total)


def problem_of(graph: Graph, order: tuple[str, ...], breaks: frozenset[str], batch: int = 64) -> Problem:
    options = CompileOptions(microbatch=batch)
    constraints = Constraints(breaks=(Break(breaks, False, False),))
    return Problem.of(graph, op_models(graph, DEVICE, options), DEVICE, options, order, constraints)


def cost(segments: tuple[Segment, ...] | list[Segment]) -> float:
    return sum(policy_cost(s) for s in segments)


def orders(graph: Graph, order: tuple[str, ...], first: str) -> list[tuple[str, ...]]:
    """One schedule for every set of ops that may run before the epoch of `first` (within it, the given order)."""
    orders = []
    sources = {n: {s for s in graph[n].sources if s in order} for n in order}
    for size in range(len(order)):
        for before in itertools.combinations(order, size):
            chosen = set(before)
            if first in chosen or not all(sources[n] <= chosen for n in before) or not sources[first] <= chosen:
                continue
            orders.append((*before, first, *(n for n in order if n not in chosen and n != first)))
    return orders


@pytest.mark.slow
def test_the_best_of_all_schedules_is_found_where_one_cut_is_given() -> None:
    graph = lopsided()
    start = schedule(graph)
    begins = frozenset({"late"})
    best = float("inf")
    retained = problem_of(graph, start, begins)
    for order in orders(graph, start, "late"):
        problem = reorder(retained, order)
        best = min(best, cost(Optimal(problem, lambda _: None).run()))
    before = Optimal(retained, lambda _: None).run()
    result = improve(retained, before, 64)
    assert cost(result.segments) < 0.95 * cost(before)
    assert cost(result.segments) <= 1.02 * best
    assert result.moved_ops


def test_moves_keep_producers_first_and_every_edge_legal() -> None:
    for graph, begins in ((lopsided(), frozenset({"late"})), (encoder(2), frozenset({"l0.exp", "l1.up"}))):
        problem = problem_of(graph, schedule(graph), begins)
        before = Optimal(problem, lambda _: None).run()
        result = improve(problem, before, 32)
        assert cost(result.segments) <= cost(before)
        assert sum(s.limiter_cycles for s in result.segments) <= sum(s.limiter_cycles for s in before)
        at = {n: i for i, n in enumerate(result.problem.order)}
        assert sorted(at) == sorted(problem.order)
        assert all(at[s] < at[n.name] for n in graph.ops for s in n.sources if s in at)
        upstream_rows: dict[int, int] = {}
        for segment in result.segments:
            rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
            assert choose_rows(result.problem, segment.first, segment.last, rows, 0, 0.0, upstream_rows)[0] == rows
            upstream_rows.update(rows)
        assert begins <= {result.problem.order[s.first] for s in result.segments}
        again = improve(problem, before, 32)
        assert (again.problem.order, again.segments) == (result.problem.order, result.segments)


def test_a_reordered_problem_is_the_one_made_from_that_order() -> None:
    graph = lopsided()
    one = schedule(graph)
    other = orders(graph, one, "late")[2]
    assert one != other
    result = reorder(problem_of(graph, one, frozenset()), other)
    plain = problem_of(graph, other, frozenset())
    assert result.order == plain.order and result.facts == plain.facts and result.number == plain.number
    assert [t.signature for t in result.tables] == [t.signature for t in plain.tables]


def test_constraints_and_steps_are_kept() -> None:
    graph = lopsided()
    problem = problem_of(graph, schedule(graph), frozenset({"late"}))
    before = Optimal(problem, lambda _: None).run()
    pairs = [(f"heavy{i}", "late") for i in range(3)]
    improved = improve(problem, before, 64, pairs)
    at = {n: i for i, n in enumerate(improved.problem.order)}
    assert all(at[a] < at[b] for a, b in pairs)
    assert improve(problem, before, 1).steps <= 1
    assert improve(problem, before, 0).segments == tuple(before)


def test_a_placement_takes_them_over_and_a_budget_of_no_time_still_gives_one() -> None:
    graph = lopsided()
    record = Override("epoch_break", "late")
    reached = []
    for options in (
        CompileOptions(microbatch=64),
        CompileOptions(microbatch=64, schedule_swaps=0),
        CompileOptions(microbatch=64, time_budget=0.0),
    ):
        p = placed_as_chosen(graph, DEVICE, options, (record,))
        check(graph, DEVICE, p)
        assert p.report is not None
        assert p.report.objective is not None
        reached.append(p.report.objective.total)
    assert reached[0] < reached[1] <= reached[2]
