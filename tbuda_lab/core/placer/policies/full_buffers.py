"""Other candidates for the ops at an edge that holds its epoch up.

Where a buffer is full, an op and its reader take turns, or one branch of a fork waits for the other. Repairs
(`stalls/stall_repair.py`) put room on the edge; often another shape of one of its two ops makes it flow at once: one
that streams, so that its buffer holds two parts of an input, or one that lets go of its operand sooner. The simulator
of epochs decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.policies.pipelining import promising_rows, streamed_anew
from tbuda_lab.core.placer.stalls.epoch_throughput import Throughput, throughput, throughputs
from tbuda_lab.core.placer.stalls.stall_repair import priced

_FLOWS = 1.02
"""Part of its slowest op that an input may take in an epoch that flows."""
_WORTH = 0.995
_ROUNDS = 6
_EDGES = 3
_TRIES = 10
"""Candidates of one op that are simulated in a round."""


def without_full_buffers(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int]) -> Segment:
    """The epoch with other candidates at the edges that hold it up, one op after the other, as long as a batch gets
    shorter; the epoch as it is where it flows or none helps. No op becomes slower than the slowest was. A single input
    has no pace that a buffer could hold up."""
    if problem.inputs(segment.first) < 2:
        return segment
    now = throughput(problem, segment, problem.overrides)
    for _ in range(_ROUNDS):
        if not now.deadlocked and now.period <= _FLOWS * segment.limiter_cycles:
            break
        better = _better(problem, segment, upstream_rows, now)
        if better is None:
            break
        segment, now = better
    return segment


def _better(
    problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], now: Throughput
) -> tuple[Segment, Throughput] | None:
    """The best other candidate of the first op for which one helps."""
    nearby = dict.fromkeys(segment.first + end for edge in now.full[:_EDGES] for end in edge[:2])
    for op in nearby:
        best, least = None, (now.deadlocks, _WORTH * now.roomy)
        options = list(_others(problem, segment, upstream_rows, op))
        ends = throughputs([(problem, option) for option in options], problem.overrides)
        for option, then in zip(options, ends, strict=True):
            if (then.deadlocks, then.roomy) < least:
                best, least = (option, then), (then.deadlocks, then.roomy)
        if best is not None:
            return best
    return None


def _others(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], op: int) -> Iterator[Segment]:
    """The epoch with each of the first few other candidates of an op that edges and packing allow."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    load = measure(problem, first, last, rows)[2]
    limit, kernel = segment.limiter_cycles, max(segment.limiter_cycles, segment.kernel_cycles)
    tried = promising_rows(problem, op, first, last, rows[op], load, limit, kernel, limit / problem.cores)
    if tried is None:
        return
    free = problem.cores - sum(int(problem.tables[other].rows["cores"][row]) for other, row in rows.items())
    most = free + int(problem.tables[op].rows["cores"][rows[op]])
    book = EdgeCompatibility(problem, first, last, upstream_rows)
    book.rows = {other: row for other, row in rows.items() if other != op}
    count = 0
    for row, cores in zip(tried.row.tolist(), tried.cores.tolist(), strict=True):
        if row == rows[op] or cores > most or not book.check(op, row):
            continue
        placed = place_rows(problem, first, last, {**rows, op: row})
        if placed is None or placed.limiter_cycles > limit:
            continue
        yield placed
        count += 1
        if count == _TRIES:
            return


def flowing_epochs(problem: Problem, segments: Sequence[Segment], streams: bool = True) -> tuple[Segment, ...]:
    """Repaired epochs, those that are held up all the same with other candidates at their full buffers, or with rows
    that stream together beside the ops that repairs inserted, where every later epoch can still read what they write.
    Their stall cycles are those of a batch without further repairs. streams: whether the latter is tried."""
    streams = streams and problem.options.inputs_counted > 1
    result = list(segments)
    upstream_rows: dict[int, int] = {}
    done: dict[tuple[object, ...], Segment] = {}
    for index, segment in enumerate(segments):
        first, last = segment.first, segment.last
        key = problem.structure(first, last), segment.rows
        if key not in done:
            freed = without_full_buffers(problem, segment, upstream_rows)
            if streams:
                freed = streamed_anew(problem, priced(problem, freed, upstream_rows), upstream_rows)
            done[key] = freed
        other = dataclasses.replace(done[key], first=first, last=last)
        if other.rows != segment.rows:
            trial = [*result[:index], other, *result[index + 1 :]]
            if all(_legal(problem, trial, at) for at in range(index, len(trial))):
                result = trial
        upstream_rows.update(zip(range(first, last), result[index].rows, strict=True))
    return tuple(result)


def _legal(problem: Problem, segments: Sequence[Segment], index: int) -> bool:
    """Whether an epoch's candidates go together, and with what it reads of the epochs before."""
    segment = segments[index]
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    before = {op: row for s in segments[:index] for op, row in zip(range(s.first, s.last), s.rows, strict=True)}
    return choose_rows(problem, segment.first, segment.last, rows, 0, 0.0, before)[0] == rows
