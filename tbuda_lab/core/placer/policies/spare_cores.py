"""Cores that an epoch leaves go to all of its ops, so that it is filled sooner: the op that limits it gains nothing by
them, but the first input has to pass every op."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.stalls.epoch_throughput import flow

_PARTS = np.geomspace(0.9, 0.05, 14)
"""Of the cycles of the slowest op, what all others are asked to stay within."""
_TRIES = 3
_WORTH = 0.99


def quicken(problem: Problem, segment: Segment, outside: Mapping[int, int]) -> Segment:
    """The epoch with larger grids where that makes a batch of it shorter, and no op slower than the slowest was."""
    first, last = segment.first, segment.last
    ops = range(first, last)
    rows = dict(zip(ops, segment.rows, strict=True))
    load = measure(problem, first, last, rows)[2]
    free = problem.cores - sum(int(problem.tables[op].rows["cores"][row]) for op, row in rows.items())
    if free <= 0 or len(rows) < 2:
        return segment
    targets = np.unique(np.floor(segment.limiter_cycles * _PARTS))[::-1]
    retained = np.array(list(rows.values()))
    picked = np.tile(retained, (len(targets), 1))
    total = np.zeros(len(targets), dtype=np.int64)
    for i, op in enumerate(ops):
        front = problem.frontier(op, *problem.places(op, first, last), load.dram_cores, host=load.host_cores)
        now = float(problem.row_limits(op, *problem.places(op, first, last), load)[rows[op]])
        at = np.searchsorted(-front.cycles, -targets, side="left")
        better = (targets < now) & (front.cycles[-1] < now)
        picked[better, i] = front.row[np.minimum(at, len(front.row) - 1)][better]  # the fastest where none will do
        total += problem.tables[op].rows["cores"][picked[:, i]].astype(np.int64)
    fits = np.flatnonzero((total <= problem.cores) & (picked != retained).any(axis=1))
    for step in fits[::-1][:_TRIES]:
        wanted = dict(zip(ops, picked[step].tolist(), strict=True))
        limit = float(segment.limiter_cycles)
        chosen, _ = choose_rows(problem, first, last, wanted, load.dram_cores, limit, outside, limit)
        if chosen is None:
            continue
        faster = place_rows(problem, first, last, {op: chosen[op] for op in ops})
        if faster is None or faster.limiter_cycles > segment.limiter_cycles:
            continue
        if faster.kernel_cycles > segment.kernel_cycles:
            continue
        was, now_ = flow(problem, segment, problem.overrides), flow(problem, faster, problem.overrides)
        if (now_.deadlocks, now_.roomy) < (was.deadlocks, _WORTH * was.roomy):
            return faster
    return segment
