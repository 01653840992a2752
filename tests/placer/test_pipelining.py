"""Rows of an epoch that stream together: legal, within the limits, and faster by the simulator of epochs."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, place_rows
from tbuda_lab.core.placer.policies.pipelining import (
    LIMITS_AND_PRICES,
    pipeline_epoch,
    proposal,
    proposals,
    streamed_anew,
)
from tbuda_lab.core.placer.stalls.epoch_throughput import throughput
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles
from tests.placer.graphs import convolutions
from tests.placer.test_place import DEVICES

BATCH = 32


def _epoch(device: str) -> tuple[Problem, Segment]:
    """Three convolutions as one epoch in which no op streams: every op waits for all of the one before."""
    options, spec = CompileOptions(microbatch=BATCH), load_device(device)
    graph = convolutions(32, 64, 3)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
    rows = {}
    for op, table in enumerate(problem.tables):
        legal = problem.legal[table.signature]
        whole = legal[(table.rows["stream_r"][legal] == 1) & (table.rows["stream_c"][legal] == 1)]
        whole = whole[table.rows["cores"][whole] <= problem.cores // (2 * len(problem.tables))]
        rows[op] = int(whole[table.rows["cycles"][whole].argmin()])
    chosen, _ = choose_rows(problem, 0, len(problem.order), rows, 0, float("inf"), {})
    assert chosen is not None
    segment = place_rows(problem, 0, len(problem.order), {op: chosen[op] for op in rows})
    assert segment is not None
    return problem, segment


@pytest.mark.parametrize("device", DEVICES)
def test_convolutions_that_stream_together_are_filled_sooner(device: str) -> None:
    problem, whole = _epoch(device)
    result = pipeline_epoch(problem, whole, {})
    was, now = throughput(problem, whole), throughput(problem, result)
    assert not now.deadlocked and result.limiter_cycles <= whole.limiter_cycles
    fills = [f.cycles - BATCH * s.limiter_cycles for f, s in ((was, whole), (now, result))]
    assert now.cycles < was.cycles and fills[1] < 0.8 * fills[0]
    streams = [int(problem.tables[op].rows["t"][row]) for op, row in enumerate(result.rows)]
    before = [int(problem.tables[op].rows["t"][row]) for op, row in enumerate(whole.rows)]
    assert sum(a > b for a, b in zip(streams, before, strict=True)) >= 2


@pytest.mark.parametrize("device", DEVICES)
def test_proposals_are_legal_within_their_limits_and_the_same_for_the_same_draws(device: str) -> None:
    problem, whole = _epoch(device)
    count = 0
    for seed in range(6):
        limit = whole.limiter_cycles * (1.0, 1.1)[seed % 2]
        proposed, again = (proposal(problem, whole, {}, limit, limit, 0.3, random.Random(seed)) for _ in range(2))
        assert proposed == again
        if proposed is None:
            continue
        count += 1
        assert proposed.limiter_cycles <= limit and proposed.kernel_cycles <= limit
        book = EdgeCompatibility(problem, whole.first, whole.last, {})
        for op, row in enumerate(proposed.rows):
            assert book.check(op, row)
            book.rows[op] = row
        assert sum(int(problem.tables[op].rows["cores"][row]) for op, row in enumerate(proposed.rows)) <= problem.cores
    assert count


@pytest.mark.parametrize("device", DEVICES)
def test_of_a_few_ops_the_others_stay_as_they_are(device: str) -> None:
    problem, segment = _epoch(device)
    limit, kernel = segment.limiter_cycles, segment.kernel_cycles
    changed = 0
    for start in range(segment.first, segment.last - 2):
        ops = range(start, start + 3)
        variants = proposals(problem, segment, {}, ops, limit, kernel, 0.3, 4)
        changed += len(variants)
        assert len(variants) <= 4 and len({v.rows for v in variants}) == len(variants)
        for other in variants:
            rows = dict(zip(range(other.first, other.last), other.rows, strict=True))
            assert all(rows[op] == segment.rows[op - segment.first] for op in rows if op not in ops)
            assert rows == choose_rows(problem, other.first, other.last, rows, 0, 0.0, {})[0]  # its edges are legal
            assert other.limiter_cycles <= limit and other.kernel_cycles <= kernel
    assert changed
    assert proposals(problem, segment, {}, range(segment.first, segment.first), limit, kernel, 0.3, 4) == []
    assert proposals(problem, segment, {}, ops, 0.5 * limit, kernel, 0.3, 4) == []  # those that stay are too slow


@pytest.mark.parametrize("device", DEVICES)
def test_of_limits_and_prices_the_best_is_taken_as_repairs_leave_it(device: str) -> None:
    problem, whole = _epoch(device)
    whole = with_stall_cycles(problem, whole)
    result = streamed_anew(problem, whole, {})
    pace = result.limiter_cycles + result.stall_cycles
    assert pace < 0.9 * (whole.limiter_cycles + whole.stall_cycles)
    assert result == with_stall_cycles(problem, result)
    for part, price in LIMITS_AND_PRICES:
        limit = part * whole.limiter_cycles
        single = streamed_anew(problem, whole, {}, [(part, price)])
        assert single.limiter_cycles <= limit
        assert pace <= (single.limiter_cycles + single.stall_cycles) / 0.99
    full = dataclasses.replace(whole, stall_cycles=0.0)
    assert streamed_anew(problem, full, {}) is full  # nothing waits
