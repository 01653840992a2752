"""The recurrence itself: start times of every step of every input.

All constraints point from a lower to a higher level within an input, or to an earlier input. With a period P that is
long enough, the nodes whose level is s modulo P can be computed together at step s, each for the input it has come to:
one gather and one segmented maximum per step, over the ops of all epochs and several inputs at once.

A max-plus recurrence becomes periodic: once all times of some inputs differ from those p inputs before by one constant
(per part of the graph), so do all later ones. They are then written down, not computed.

What each step waited for: the constraint that decided when it could start.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tbuda_lab.core.epochsim.eventgraph import EventGraph, WaitReason

NEVER = -(1 << 61)
_MAX_PERIOD = 8


@dataclasses.dataclass(frozen=True)
class SolvedSchedule:
    """start: (nodes, batch) int64 cycles from the start of the epoch; computed: inputs that were not extended."""

    start: np.ndarray
    computed: int


def solve(graph: EventGraph, batch: int) -> SolvedSchedule:
    """Start times of all steps for `batch` inputs."""
    nodes = graph.nodes
    if nodes == 0 or batch == 0:
        return SolvedSchedule(np.zeros((nodes, batch), dtype=np.int64), 0)
    keep = graph.lag < batch  # a constraint that reaches back before the first input holds nothing up
    source, target, lag, weight = (a[keep] for a in (graph.source, graph.target, graph.lag, graph.weight))
    level = graph.level
    across = (lag > 0) & (source < nodes)
    period = 1
    if across.any():
        span = level[source[across]] - level[target[across]] + 1
        period = max(1, int((-(-span // lag[across])).max()))
    reach = int(lag.max())
    width = nodes + 1
    # row reach + k holds input k; the rows before are inputs that never were; the last column is the epoch's start
    times = np.full((reach + batch, width), NEVER, dtype=np.int64)
    times[reach:, nodes] = 0
    flat = times.reshape(-1)

    # constraints grouped by the step at which their target is due
    due, turn = level % period, level // period
    order = np.lexsort((np.arange(nodes), turn, due))
    rank = np.empty(nodes, dtype=np.int64)
    rank[order] = np.arange(nodes)
    by = np.argsort(rank[target], kind="stable")
    source, target, lag, weight = source[by], target[by], lag[by], weight[by]
    first = np.searchsorted(rank[target], np.arange(nodes + 1))
    read = (reach - lag - turn[target]) * width + source
    write = (reach - turn[order]) * width + order
    group = np.searchsorted(due[order], np.arange(period + 1))
    deepest = int(turn.max())
    # of every step, while all of its nodes have an input to work on: reads, weights, writes, segments; reads and writes
    # are views of arrays that move on by an input after every round
    bounds = group.tolist()
    cuts = first[group].tolist()
    whole = [
        (read[a:b], weight[a:b], write[low:high], first[low:high] - a)
        for (low, high), (a, b) in zip(itertools.pairwise(bounds), itertools.pairwise(cuts), strict=True)
        if low < high
    ]
    # nodes of a group that are at work in the rounds in which not all of them are: turns rise within a group, nodes of
    # turn j are at input round - j; (period, turns) how many have one up to each
    begun = np.bincount(due * (deepest + 1) + turn, minlength=period * (deepest + 1)).reshape(period, -1).cumsum(axis=1)
    segments = first.tolist()

    checker = _Checker(graph, reach)
    take, most = flat.take, np.maximum.reduceat
    round_, computed = 0, batch
    while round_ < batch + deepest:
        if deepest <= round_ < batch:
            steps = whole
        else:
            ends = begun[:, min(round_, deepest)].tolist()
            starts = begun[:, round_ - batch].tolist() if round_ >= batch else [0] * period
            steps = []
            for at, start, end in zip(bounds, starts, ends, strict=False):
                if start < end:
                    low, high = at + start, at + end
                    a, b = segments[low], segments[high]
                    steps.append((read[a:b], weight[a:b], write[low:high], first[low:high] - a))
        for reads, weights, writes, parts in steps:
            values = take(reads)
            values += weights
            flat[writes] = most(values, parts)
        read += width
        write += width
        complete = round_ - deepest
        round_ += 1
        if complete >= 1 and complete < batch - 1:
            result = checker.period(times, complete)
            if result is not None:
                gap, growth = result
                _extend(times, reach, complete, batch, gap, growth)
                computed = complete + 1
                break
    return SolvedSchedule(np.ascontiguousarray(times[reach:, :nodes].T), computed)


class _Checker:
    """Looks for the periodic regime after every finished input."""

    def __init__(self, graph: EventGraph, reach: int) -> None:
        self.window = max(1, reach)
        self.by = np.argsort(graph.component, kind="stable")
        parts = graph.component[self.by]
        self.starts = np.flatnonzero(np.diff(parts, prepend=-1))
        self.part = graph.component
        self.nodes = graph.nodes
        self.reach = reach

    def period(self, times: np.ndarray, last: int) -> tuple[int, np.ndarray] | None:
        """(inputs per period, (nodes,) growth per period) if inputs up to `last` show that the rest is periodic."""
        for gap in range(1, _MAX_PERIOD + 1):
            # the constraints of the input to come, and of the one a period before, must all reach real inputs
            if last + 1 - gap - self.window < 0:
                return None
            new = times[self.reach + last, : self.nodes]
            growth = new - times[self.reach + last - gap, : self.nodes]
            ordered = growth[self.by]
            most = np.maximum.reduceat(ordered, self.starts)
            if (most != np.minimum.reduceat(ordered, self.starts)).any():
                continue
            rows = np.arange(last - self.window + 1, last)
            if len(rows):
                difference = (
                    times[self.reach + rows, : self.nodes] - times[self.reach + rows - gap, : self.nodes]
                )
                if (difference != growth).any():
                    continue
            return gap, growth
        return None


def _extend(times: np.ndarray, reach: int, last: int, batch: int, gap: int, growth: np.ndarray) -> None:
    nodes = len(growth)
    rest = np.arange(last + 1, batch)
    turns = (rest - last + gap - 1) // gap
    origin = rest - turns * gap
    times[reach + rest, :nodes] = times[reach + origin, :nodes] + turns[:, None] * growth


_CHUNK = 1 << 22


@dataclasses.dataclass(frozen=True)
class Waits:
    """(nodes, batch): cycles between an op's previous step (or the epoch's start) and this one, and the index of the
    constraint that decided, -1 where there was no wait. Of equal ones data goes before space."""

    cycles: np.ndarray
    cause: np.ndarray


def waits(graph: EventGraph, schedule: SolvedSchedule) -> Waits:
    """Which constraint each wait is due to."""
    start = schedule.start
    nodes, batch = start.shape
    done = start + graph.duration[:, None]
    before = np.zeros_like(start)
    before[1:] = done[:-1]
    first, last = graph.base[:-1], graph.base[1:] - 1
    before[first, 1:] = done[last, :-1]
    before[first, 0] = 0
    cycles = start - before
    cause = np.full((nodes, batch), -1, dtype=np.int32)
    other = np.flatnonzero(graph.reason != WaitReason.OWN)
    other = other[np.lexsort((graph.reason[other], graph.target[other]))]
    target = graph.target[other]
    bounds = np.flatnonzero(np.diff(target, prepend=-1))
    wide = max(1, _CHUNK // max(1, len(other)))
    rank = np.arange(len(other), 0, -1, dtype=np.int32)[:, None]
    for low in range(0, batch, wide):
        inputs = np.arange(low, min(batch, low + wide))
        from_ = inputs[None, :] - graph.lag[other][:, None]
        real = from_ >= 0
        source = graph.source[other][:, None]
        outside = source == nodes
        value = np.where(
            outside, 0, start[np.minimum(source, nodes - 1), np.maximum(from_, 0)]
        ) + graph.weight[other][:, None]
        value = np.where(real, value, NEVER)
        met = (value == start[target][:, inputs]) * rank
        best = np.maximum.reduceat(met, bounds, axis=0)
        result = np.where(best > 0, other[np.minimum(len(other) - best, len(other) - 1)], -1)
        cause[np.ix_(target[bounds], inputs)] = result
    return Waits(cycles, np.where(cycles > 0, cause, -1).astype(np.int32))
