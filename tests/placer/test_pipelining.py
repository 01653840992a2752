"""Rows of an epoch that stream together: legal, within the limits, and faster by the simulator of epochs."""

from __future__ import annotations

import random

import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, place_rows
from tbuda_lab.core.placer.policies.pipelining import pipelined, proposal
from tbuda_lab.core.placer.stalls.epoch_throughput import flow
from tests.placer.graphs import convolutions
from tests.placer.test_place import DEVICES

BATCH = 32


def _epoch(device: str) -> tuple[Problem, Segment]:
    """Three convolutions as one epoch in which no op streams: every op waits for all of the one before."""
    options, spec = CompileOptions(microbatch=BATCH), load_device(device)
    graph = convolutions(32, 64, 3)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph), {}, frozenset())
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
    made = pipelined(problem, whole, {})
    was, now = flow(problem, whole), flow(problem, made)
    assert not now.deadlocked and made.limiter_cycles <= whole.limiter_cycles
    fills = [f.cycles - BATCH * s.limiter_cycles for f, s in ((was, whole), (now, made))]
    assert now.cycles < was.cycles and fills[1] < 0.8 * fills[0]
    streams = [int(problem.tables[op].rows["t"][row]) for op, row in enumerate(made.rows)]
    before = [int(problem.tables[op].rows["t"][row]) for op, row in enumerate(whole.rows)]
    assert sum(a > b for a, b in zip(streams, before, strict=True)) >= 2


@pytest.mark.parametrize("device", DEVICES)
def test_proposals_are_legal_within_their_limits_and_the_same_for_the_same_draws(device: str) -> None:
    problem, whole = _epoch(device)
    found = 0
    for seed in range(6):
        limit = whole.limiter_cycles * (1.0, 1.1)[seed % 2]
        made, again = (proposal(problem, whole, {}, limit, limit, 0.3, random.Random(seed)) for _ in range(2))
        assert made == again
        if made is None:
            continue
        found += 1
        assert made.limiter_cycles <= limit and made.kernel_cycles <= limit
        book = EdgeCompatibility(problem, whole.first, whole.last, {})
        for op, row in enumerate(made.rows):
            assert book.check(op, row)
            book.rows[op] = row
        assert sum(int(problem.tables[op].rows["cores"][row]) for op, row in enumerate(made.rows)) <= problem.cores
    assert found
