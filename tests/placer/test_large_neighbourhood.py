"""Searching on from a placement: what is found for one layer is taken for all that are like it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.constraints import Break, Constraints
from tbuda_lab.core.device import load_device
from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.lowering.hw_ops import HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import Outcome, place_and_repair
from tbuda_lab.core.placer.model.chip_stages import epoch_cost
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, place_rows
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.search.large_neighbourhood import search_on
from tbuda_lab.core.placer.stalls.epoch_throughput import Trial
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles
from tbuda_lab.core.placer.steps import STEPS, Step, shorten_first_input
from tests.placer.graphs import Sketch, encoder, linear
from tests.placer.test_place import check

LAYERS = 4


def _layers() -> tuple[Problem, list[Segment]]:
    """Layers of a matmul and two element-wise ops, an epoch each."""
    sketch = Sketch()
    x = sketch.input("x", 1, 1, 128, 256)
    for layer in range(LAYERS):
        x = linear(sketch, f"l{layer}", x, 128, 256, 256)
        for name in ("gelu", "sqrt"):
            x = sketch.op(f"l{layer}.{name}", HwUnary(name), (1, 1, 128, 256), x)
    graph = sketch.output(x)
    device, options = load_device("grayskull"), CompileOptions(microbatch=64)
    order = tuple(schedule(graph))
    breaks = frozenset(f"l{layer}" for layer in range(1, LAYERS))
    constraints = Constraints(breaks=(Break(breaks, False, False),))
    problem = Problem.of(graph, op_models(graph, device, options), device, options, order, constraints)
    segments = list(Optimal(problem, lambda fraction: None).run())
    assert [order[s.first] for s in segments] == [f"l{layer}" for layer in range(LAYERS)]
    return problem, segments


def _slower(problem: Problem, segment: Segment) -> Segment:
    """The epoch with its slowest op on fewer cores."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    for op in range(first, last):
        table, legal = problem.tables[op], problem.legal[problem.tables[op].signature]
        for row in legal[np.argsort(-table.rows["cycles"][legal], kind="stable")][:200].tolist():
            book = EdgeCompatibility(problem, first, last, {})
            book.rows = {other: r for other, r in rows.items() if other != op}
            if table.rows["cycles"][row] <= 2 * segment.limiter_cycles or not book.check(op, row):
                continue
            placed = place_rows(problem, first, last, {**rows, op: row})
            if placed is not None:
                return placed
    raise AssertionError("no slower candidate")


def test_what_is_found_for_one_layer_is_taken_for_all_like_it() -> None:
    problem, segments = _layers()
    inner = range(1, LAYERS - 1)
    one = _slower(problem, segments[1])
    shifts = [s.first - one.first for s in segments]
    assert len({problem.structure(segments[i].first, segments[i].last) for i in inner}) == 1
    segments = [
        dataclasses.replace(one, first=one.first + shifts[i], last=one.last + shifts[i]) if i in inner else s
        for i, s in enumerate(segments)
    ]
    segments = [with_stall_cycles(problem, s, {}) for s in segments]
    before = sum(epoch_cost(problem, s) for s in segments)
    result = next(
        r
        for r in (search_on(problem, segments, steps) for steps in range(1, 60))
        if len(r.curve) > 2 or r.curve[-1][1] < r.curve[0][1]
    )
    assert result.curve[0][1] == pytest.approx(before)
    after = sum(epoch_cost(result.problem, s) for s in result.segments)
    assert result.curve[-1][1] == pytest.approx(after)
    found = {s.rows for s in result.segments if s.first in {segments[i].first for i in inner}}
    assert len(found) == 1 and found != {one.rows}
    upstream: dict[int, int] = {}
    for s in result.segments:
        rows = dict(zip(range(s.first, s.last), s.rows, strict=True))
        assert choose_rows(problem, s.first, s.last, rows, 0, float("inf"), upstream)[0] == rows
        upstream.update(rows)


def test_every_op_stays_in_an_epoch_while_epochs_are_put_together() -> None:
    """Of a chain of equal ops, an epoch each: what is found for a few of them fits at every place, over one another."""
    sketch = Sketch()
    x = sketch.input("x", 1, 1, 128, 256)
    for op in range(16):
        x = sketch.op(f"gelu{op}", HwUnary("gelu"), (1, 1, 128, 256), x)
    graph = sketch.output(x)
    device, options = load_device("grayskull"), CompileOptions(microbatch=64)
    order = tuple(schedule(graph))
    problem = Problem.of(graph, op_models(graph, device, options), device, options, order)
    each = Constraints(breaks=(Break(frozenset(order[1:]), False, False),))
    apart = Problem.of(graph, op_models(graph, device, options), device, options, order, each)
    segments = list(Optimal(apart, lambda fraction: None).run())
    assert len(segments) == len(order)
    for steps in range(1, 13):
        ends = [(s.first, s.last) for s in search_on(problem, segments, steps).segments]
        assert [first for first, _ in ends] == [0, *(last for _, last in ends[:-1])]
        assert ends[-1][1] == len(order)


# -- one input ---------------------------------------------------------------------------------------------------------
def _placed(microbatch: int, steps: Sequence[Step]) -> Outcome:
    graph, device, options = encoder(2), load_device("wormhole_b0"), CompileOptions(microbatch=microbatch)
    return place_and_repair(graph, op_models(graph, device, options), device, options, steps=steps)


def test_one_input_is_through_sooner_and_the_simulator_says_the_same() -> None:
    before = _placed(1, [step for step in STEPS if step is not shorten_first_input])
    after = _placed(1, STEPS)
    times = []
    for outcome in (before, after):
        trial = Trial(outcome.graph, outcome.placement, load_device("wormhole_b0"), {})
        assert outcome.placement.report is not None and outcome.placement.report.objective is not None
        times.append(simulate(trial, 1).cycles)
        assert outcome.placement.report.objective.time == pytest.approx(times[-1], rel=1e-6)
    assert times[1] < 0.99 * times[0]
    check(after.graph, load_device("wormhole_b0"), after.placement)


def test_a_batch_is_left_as_it_was() -> None:
    before = _placed(16, [step for step in STEPS if step is not shorten_first_input])
    assert _placed(16, STEPS).placement.ops == before.placement.ops
