"""Rows of an epoch that a search changes: the way of the first input, changes one after the other and together."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.chip_stages import epoch_cost
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, place_rows
from tbuda_lab.core.placer.policies.spare_cores import SpareCoreFill
from tbuda_lab.core.placer.search.filling_search import Sooner
from tbuda_lab.core.placer.search.first_input import FirstInput, RowSteps, WaitCache, cycles_without_stalls
from tbuda_lab.core.placer.search.joint_rows import JointRows
from tbuda_lab.core.placer.search.recut import Recut
from tbuda_lab.core.placer.stalls.epoch_throughput import batch_times, throughput
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles
from tests.placer.graphs import convolutions, encoder
from tests.placer.test_place import DEVICES

BATCH = 64
GRAPHS = {"convolutions": lambda: convolutions(32, 64, 4), "encoder": lambda: encoder(1)}


def _epoch(device: str, graph: str) -> tuple[Problem, Segment]:
    """All ops as one epoch, each on the fewest cores."""
    options, spec, made = CompileOptions(microbatch=BATCH), load_device(device), GRAPHS[graph]()
    problem = Problem.of(made, op_models(made, spec, options), spec, options, schedule(made))
    count, rows = len(problem.order), {}
    for op, table in enumerate(problem.tables):
        legal = problem.legal[table.signature]
        rows[op] = int(legal[np.lexsort((table.rows["cycles"][legal], table.rows["cores"][legal]))[0]])
    chosen, _ = choose_rows(problem, 0, count, rows, 0, float("inf"), {})
    assert chosen is not None
    segment = place_rows(problem, 0, count, {op: chosen[op] for op in rows})
    assert segment is not None
    return problem, segment


def _legal(problem: Problem, segment: Segment) -> None:
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    assert choose_rows(problem, segment.first, segment.last, rows, 0, 0.0, {})[0] == rows
    assert sum(int(problem.tables[op].rows["cores"][row]) for op, row in rows.items()) <= problem.cores


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("device", DEVICES)
def test_times_without_reasons_are_those_with_them(device: str, graph: str) -> None:
    problem, segment = _epoch(device, graph)
    drawn = random.Random(1)
    others = JointRows().better(problem, segment, {}, drawn)
    epochs = [(problem, s) for s in (segment, *others)]
    assert batch_times(epochs).tolist() == [throughput(*epoch).cycles for epoch in epochs]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("device", DEVICES)
def test_the_way_of_the_first_input_is_the_longest_one_through_its_steps(device: str, graph: str) -> None:
    problem, segment = _epoch(device, graph)
    filling = SpareCoreFill(problem, segment)
    ops = range(segment.first, segment.last)
    way = FirstInput(problem, segment.first, segment.last, filling.ready(filling.now))
    steps: dict[int, RowSteps] = {}
    for op, row in filling.now.items():
        limits = problem.row_limits(op, *problem.places(op, segment.first, segment.last), filling.load)
        steps[op] = way.rows(op, np.array([row]), limits[[row]])
    ends, left = way.ends(steps), way.left(steps)
    longest: dict[int, list[float]] = {}
    for op in ops:  # step by step
        cycles = (steps[op].after - steps[op].before)[0]
        came: list[float] = []
        for step in range(len(cycles)):
            start = max(way.ready[op], came[-1] if came else 0.0)
            for port, p, latency in way.feeds[op]:
                wait = int(way.waits(p, filling.now[p], op, port, filling.now[op])[step])
                start = max(start, longest[p][wait] + latency if wait >= 0 else 0.0)
            came.append(start + float(cycles[step]))
        longest[op] = came
        assert ends[op] == pytest.approx(came)
    total = max(float(ends[op][-1]) + way.late[op] for op in ops)
    through = [float((ends[op] + left[op] - (steps[op].after - steps[op].before)[0]).max()) for op in ops]
    assert max(through) == pytest.approx(total) and through[-1] == pytest.approx(total)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_that_nothing_holds_up_takes_what_its_first_input_and_its_slowest_op_say(
    device: str, graph: str
) -> None:
    problem, segment = _epoch(device, graph)
    real = throughput(problem, segment)
    thought = cycles_without_stalls(problem, segment, WaitCache())
    assert thought <= 1.01 * real.roomy
    if real.period <= 1.001 * segment.limiter_cycles:
        assert thought == pytest.approx(real.cycles, rel=0.03)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_filled_sooner_is_faster_legal_and_the_same_for_the_same_draws(device: str, graph: str) -> None:
    problem, segment = _epoch(device, graph)
    now = float(batch_times([(problem, segment)])[0])
    for limit in (1.0, 0.6):
        first, again = (
            Sooner(problem, segment, {}, limit * segment.limiter_cycles, random.Random(3), WaitCache()).run(60)
            for _ in range(2)
        )
        assert first == again and first is not None
        _legal(problem, first)
        assert first.kernel_cycles <= limit * segment.limiter_cycles  # more cores may share the host's link
        assert float(batch_times([(problem, first)])[0]) < now
    assert Sooner(problem, segment, {}, 1.0, random.Random(3), WaitCache()).run(60) is None  # no op is so fast


def _with_other_dram_cores(problem: Problem, segment: Segment) -> list[Segment]:
    """The epoch with one row changed, for every op that has one which preloads the same with other cores on DRAM."""
    variants = []
    for i, (op, now) in enumerate(zip(range(segment.first, segment.last), segment.rows, strict=True)):
        table = problem.tables[op]
        dram = problem.dram_cores(op, *problem.places(op, segment.first, segment.last))
        legal, prologue = problem.legal[table.signature], table.rows["prologue"]
        others = legal[(prologue[legal] == prologue[now]) & (dram[legal] != dram[now])]
        if len(others):
            row = int(others[table.rows["cores"][others].argmin()])
            variants.append(dataclasses.replace(segment, rows=(*segment.rows[:i], row, *segment.rows[i + 1 :])))
    return variants


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_fills_an_epoch_does_not_depend_on_the_epochs_before(graph: str) -> None:
    problem, segment = _epoch("grayskull", graph)
    limit = segment.limiter_cycles

    def filled(problem: Problem, segment: Segment) -> Segment | None:
        return SpareCoreFill(problem, segment).proposal({}, limit, limit)

    variants = _with_other_dram_cores(problem, segment)
    alone = [filled(_with_new_costs(problem), variant) for variant in variants]
    assert any(alone)
    for variant, proposal in zip(variants, alone, strict=True):
        shared = _with_new_costs(problem)
        filled(shared, segment)
        assert filled(shared, variant) == proposal


def _with_new_costs(problem: Problem) -> Problem:
    return dataclasses.replace(problem, costs=CostCache(problem.device, problem.options))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_changed_together_are_legal_and_faster_step_after_step(device: str, graph: str) -> None:
    problem, segment = _epoch(device, graph)
    known, drawn = JointRows(), random.Random(5)
    times = [float(batch_times([(problem, segment)])[0])]
    changed = 0
    for _ in range(6):
        for other in known.better(problem, segment, {}, drawn)[:1]:
            _legal(problem, other)
            times.append(float(batch_times([(problem, other)])[0]))
            changed = max(changed, sum(a != b for a, b in zip(segment.rows, other.rows, strict=True)))
            segment = other
    assert all(later < before for before, later in itertools.pairwise(times))
    assert times[-1] < 0.9 * times[0] and changed > 1


def test_the_best_epoch_of_a_run_is_kept_and_decides_the_cuts() -> None:
    problem, segment = _epoch("wormhole_b0", "encoder")
    recut, drawn = Recut(problem, WaitCache()), random.Random(0)
    count = len(problem.order)
    path = recut.path(0, count, [], drawn, 0.0, 0.4)
    assert path[0][0] == 0 and path[-1][1] == count
    assert all(a[1] == b[0] for a, b in itertools.pairwise(path))
    whole = with_stall_cycles(problem, segment)
    recut.note(whole)
    assert recut.best(0, count) == whole
    first = recut.epoch(0, count, 0.4)
    assert first is not None and epoch_cost(problem, first) < epoch_cost(problem, whole)
    assert recut.epoch(0, count, 0.4) == first == recut.best(0, count)
    recut.note(whole)
    assert recut.best(0, count) == first
    better = Sooner(problem, first, {}, first.limiter_cycles, random.Random(3), WaitCache()).run(200)
    assert better is not None
    recut.worked_at(with_stall_cycles(problem, better))
    assert recut.best(0, count) == with_stall_cycles(problem, better)
    cheap = Segment(0, count, better.rows, better.spots, 1, 1, 0.0)
    recut.note(cheap)
    assert recut.path(0, count, [], drawn, 0.0, 0.4) == [(0, count)]
