"""The recurrence itself: start times of every step of every input.

All constraints point from a lower to a higher level within an input, or to an earlier input. With a period P that is
long enough, the nodes whose level is s modulo P can be computed together at step s of a round, each for the input it
has come to: one gather and one segmented maximum per step, over the ops of all epochs and several inputs at once. Nodes
that wait for their op's step before and for nothing else are left out (`EventGraph.reduction`).

A max-plus recurrence becomes periodic: once all times of some rounds differ from those p rounds before by one constant
(per part of the graph), so do all later ones. They are then written down, not computed.

What each step waited for: the constraint that decided when it could start.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tbuda_lab.core.epochsim.event_graph import EventGraph, ReducedGraph, WaitReason, group_starts, sorted_order
from tbuda_lab.core.errors import Diagnostic, PlacementError, quantity
from tbuda_lab.sim.arrays import held_too_large

NEVER = -(1 << 61)
_MAX_PERIOD = 8


@dataclasses.dataclass(frozen=True)
class SolvedSchedule:
    """start: (nodes, batch) int64 cycles from the start of the epoch; solved_inputs: inputs that were not extended."""

    start: np.ndarray
    solved_inputs: int


def solve(graph: EventGraph, batch: int) -> SolvedSchedule:
    """Start times of all steps for `batch` inputs.

    A node of level l is due at step l mod P of a round, and lags l // P rounds (its turn) behind those of level 0. Row
    `reach` + r of `times` holds round r: of each node the start of input r - turn; nodes stand in the order in which
    they are due, last the epoch's start. What belongs to inputs that never were is far below zero.

    Raises `PlacementError` where the times do not fit this machine's memory.
    """
    nodes = graph.nodes
    if nodes == 0 or batch == 0:
        return SolvedSchedule(np.zeros((nodes, batch), dtype=np.int64), 0)
    reduced = graph.reduction
    count = len(reduced.node)
    keep = reduced.lag < batch  # a constraint that reaches back before the first input holds nothing up
    source, target, lag, weight = (a[keep] for a in (reduced.source, reduced.target, reduced.lag, reduced.weight))
    period = _period(reduced, source, target, lag)
    turn, due = np.divmod(reduced.level, period)
    deepest = int(turn.max())
    order = sorted_order(due * (deepest + 1) + turn, period * (deepest + 1))
    column = np.empty(count + 1, dtype=np.int64)
    column[order], column[count] = np.arange(count), count
    turn = np.append(turn, 0)
    back = lag + turn[target] - turn[source]  # rounds
    reach, rounds, width = int(back.max()), batch + deepest, count + 1
    _refuse_large(nodes, batch, (reach + rounds) * width)
    times = np.full((reach + rounds, width), NEVER, dtype=np.int64)
    times[reach:, count] = 0

    by, first = sorted_order(column[target], count), group_starts(column[target], count)
    read, weight = ((reach - back) * width + column[source])[by], weight[by]
    group = group_starts(due, period)
    steps = [  # reads, weights, first and end column, segments
        (read[a:b], weight[a:b], low, high, first[low:high] - a)
        for (low, high), (a, b) in zip(
            itertools.pairwise(group.tolist()), itertools.pairwise(first[group].tolist()), strict=True
        )
        if low < high
    ]
    between = source < count
    checker = _Checker(reduced, order, times, max(1, int(back[between].max(initial=0))), reach + deepest)
    flat, most = times.reshape(-1), np.maximum.reduceat
    computed = batch
    for row in range(reach, reach + rounds):
        now, take = times[row], flat[(row - reach) * width :].take
        for reads, weights, low, high, parts in steps:
            values = take(reads)
            values += weights
            now[low:high] = most(values, parts)
        complete = row - reach - deepest + 1  # inputs that every node has taken
        periodic_part = checker.period(row) if complete < batch else None
        if periodic_part is not None:
            _extend(times, row, *periodic_part)
            computed = complete
            break
    start = np.empty((nodes, batch), dtype=np.int64)
    turns = turn[reduced.follows]
    for late in range(deepest + 1):
        mine = np.flatnonzero(turns == late)
        start[mine] = times[reach + late : reach + late + batch].T[column[reduced.follows[mine]]]
    start += reduced.after[:, None]
    return SolvedSchedule(start, computed)


def _refuse_large(nodes: int, batch: int, times: int) -> None:
    """Raises `PlacementError` where start times take more memory than this machine has."""
    problem = held_too_large(8 * (nodes * batch + times))
    if problem:
        what = f"the steps of {quantity(batch, 'input')} through epochs of {nodes:,} steps are not simulated"
        fix = "compile for fewer inputs at a time, or with another balancer_policy"
        raise PlacementError(f"{what}: {problem}", [Diagnostic("error", "simulation", "memory", problem, fix)])


def _period(reduced: ReducedGraph, source: np.ndarray, target: np.ndarray, lag: np.ndarray) -> int:
    """The least number of steps of a round with which no node is due before what it waits for. source, target, lag: of
    the constraints that count; where none reaches back there is one round."""
    level = reduced.level
    across = (lag > 0) & (source < len(reduced.node))
    if not across.any():
        return int(level.max()) + 1
    span = level[source[across]] - level[target[across]] + 1
    return max(1, int((-(-span // lag[across])).max()))


class _Checker:
    """Looks for the periodic regime after every round. order: nodes by their column of `times`; window: rounds that the
    constraints reach back; full: the first row in which every node has come to a real input."""

    def __init__(self, reduced: ReducedGraph, order: np.ndarray, times: np.ndarray, window: int, full: int) -> None:
        self.times, self.window, self.full = times, window, full
        self.nodes = len(order)
        part = reduced.component[order]
        end = int(reduced.level.max()) + 1
        self.by = sorted_order(part * end + reduced.level[order], (int(part.max()) + 1) * end)
        self.starts = np.flatnonzero(np.diff(part[self.by], prepend=-1))
        # of every part a node of the lowest and one of the highest level: few rounds have them as far apart as before
        self.lowest, self.highest = self.by[self.starts], self.by[np.append(self.starts[1:], self.nodes) - 1]
        self.apart: list[bytes] = []

    def period(self, row: int) -> tuple[int, np.ndarray] | None:
        """(rounds per period, (nodes,) growth per period) if the rows up to `row` show that the rest is periodic."""
        times = self.times
        if row < self.full:
            return None
        now = times[row]
        apart = (now.take(self.highest) - now.take(self.lowest)).tobytes()
        self.apart.append(apart)
        # what the round to come is computed of, and the one a period before, must all be times of real inputs
        for gap in range(1, min(_MAX_PERIOD, row + 1 - self.window - self.full) + 1):
            if self.apart[-1 - gap] != apart:
                continue
            growth = now[: self.nodes] - times[row - gap, : self.nodes]
            ordered = growth[self.by]
            if (np.maximum.reduceat(ordered, self.starts) != np.minimum.reduceat(ordered, self.starts)).any():
                continue
            rows = np.arange(row - self.window + 1, row)
            if (times[rows, : self.nodes] - times[rows - gap, : self.nodes] == growth).all():
                return gap, growth
        return None


def _extend(times: np.ndarray, last: int, gap: int, growth: np.ndarray) -> None:
    """Writes all rows after `last`, by what nodes grow from row to row `gap` later."""
    nodes = len(growth)
    rest = np.arange(last + 1, len(times))
    turns = (rest - last + gap - 1) // gap
    times[rest, :nodes] = times[rest - turns * gap, :nodes] + turns[:, None] * growth


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
        value = (
            np.where(outside, 0, start[np.minimum(source, nodes - 1), np.maximum(from_, 0)])
            + graph.weight[other][:, None]
        )
        value = np.where(real, value, NEVER)
        met = (value == start[target][:, inputs]) * rank
        best = np.maximum.reduceat(met, bounds, axis=0)
        latest = np.where(best > 0, other[np.minimum(len(other) - best, len(other) - 1)], -1)
        cause[np.ix_(target[bounds], inputs)] = latest
    return Waits(cycles, np.where(cycles > 0, cause, -1).astype(np.int32))
