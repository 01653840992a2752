"""The way of the first input through an epoch, step by step, as the simulator of epochs takes it where no buffer is
full: when each step of each op is over, and how long it takes from there until all is done.

An op begins a step when what the step reads has arrived: end[s] = D[s] + max over r <= s of (arrival[r] - D[r - 1]),
D[s] being the cycles of all steps up to s. Backwards, what is left after a step is the largest of what its readers'
steps need that wait for it. With both, another row of a few ops is judged by these ops and the edges around them alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.balancer.layout import BufferRead, BufferReads, Buffers, Walk, read_walk
from tbuda_lab.core.balancer.streaming import simplify, stored_shape, stream_tms, unstream_tms
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.epochsim.tile_order import Steps, op_steps, stretches
from tbuda_lab.core.graph import TM, TileShape
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.spare_cores import SpareCoreFill

_CONSTANTS = EpochConstants()
_MOST = 100_000

Feed = tuple[int, int, int]
"""(operand, producer, cycles of a message between the two)."""


@dataclasses.dataclass(frozen=True)
class RowSteps:
    """Rows of one op. row, cores, cycles: (rows,); after, before: (rows, steps) cycles of all steps up to each, and of
    those before it; a row of fewer steps repeats its last one."""

    row: np.ndarray
    cores: np.ndarray
    cycles: np.ndarray
    after: np.ndarray
    before: np.ndarray

    def only(self, at: Sequence[int]) -> RowSteps:
        """Some of the rows alone."""
        return RowSteps(self.row[at], self.cores[at], self.cycles[at], self.after[at], self.before[at])

    def ends(self, arrival: np.ndarray) -> np.ndarray:
        """(rows, steps) when each is over, if it cannot begin before its arrival."""
        ends: np.ndarray = self.after + np.maximum.accumulate(arrival - self.before, axis=1)
        return ends

    def left(self, behind: np.ndarray) -> np.ndarray:
        """(rows, steps) cycles from the end of each until all is done. behind: what is left behind the readers that
        wait for just this step."""
        left: np.ndarray = np.maximum.accumulate((behind + self.after)[:, ::-1], axis=1)[:, ::-1] - self.after
        return left


@dataclasses.dataclass(frozen=True, eq=False)
class _Made:
    """What rows of a producer have in common whose tiles lie alike and leave with the same steps. form: the stored
    shape, and the TMs that make the op's tensor of it; emit: (steps,) tiles that are out after each."""

    form: tuple[TileShape, tuple[TM, ...]]
    buffers: Buffers
    emit: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class _Taken:
    """What rows of a reader have in common that take an operand alike. tms: on the way from the producer's tensor;
    read: (steps,) tiles of the walk that are read up to the end of each; sources: of walks followed back, by the form
    of what the producer stored."""

    tms: tuple[TM, ...]
    walk: Walk
    read: np.ndarray
    sources: dict[tuple[TileShape, tuple[TM, ...]], BufferRead] = dataclasses.field(default_factory=dict)

    def source(self, form: tuple[TileShape, tuple[TM, ...]], reads: BufferReads) -> BufferRead:
        """Where its tiles lie in what was stored so."""
        entry = self.sources.get(form)
        if entry is None:
            shape, before = form
            entry = self.sources[form] = reads.of(simplify((*before, *self.tms)), shape, self.walk)
        return entry


@dataclasses.dataclass
class WaitCache:
    """What was found out of rows of producers and of readers, and of pairs of what they have in common. Beyond `_MOST`
    pairs all is forgotten."""

    waits: dict[tuple[_Made, _Taken], np.ndarray] = dataclasses.field(default_factory=dict)
    made: dict[tuple[object, ...], _Made] = dataclasses.field(default_factory=dict)
    taken: dict[tuple[object, ...], _Taken] = dataclasses.field(default_factory=dict)
    of_rows: dict[tuple[object, ...], _Taken] = dataclasses.field(default_factory=dict)

    def tidy(self) -> None:
        """Forgets what is too much."""
        if len(self.waits) > _MOST:
            self.waits.clear()
            self.made.clear()
            self.taken.clear()
            self.of_rows.clear()


class FirstInput:
    """Ops [first, last) of a problem as one epoch."""

    def __init__(
        self, problem: Problem, first: int, last: int, ready: Mapping[int, float], cache: WaitCache | None = None
    ) -> None:
        """ready: by op, when its parameters are there. cache: of other epochs of problems that share their costs."""
        self.problem, self.first, self.last, self.ready = problem, first, last, ready
        self.cache = WaitCache() if cache is None else cache
        self.cache.tidy()
        self._made_by: dict[tuple[int, int], _Made] = {}
        self._taken_by: dict[tuple[int, int, int], _Taken] = {}
        self.feeds: dict[int, list[Feed]] = {}
        self.readers: dict[int, list[tuple[int, int, int]]] = {op: [] for op in range(first, last)}
        for op in range(first, last):
            fact = problem.facts[op]
            inside = [(port, p) for port, p in enumerate(fact.producers) if first <= p < last]
            queue, hop = 2 * _CONSTANTS.dram_latency, _CONSTANTS.noc_latency
            self.feeds[op] = [(port, p, queue if port in fact.queued_in else hop) for port, p in inside]
            for port, p, latency in self.feeds[op]:
                self.readers[p].append((op, port, latency))
        self.late = {
            op: _CONSTANTS.dram_latency if problem.places(op, first, last)[1] in (DRAM, HOST) else 0
            for op in range(first, last)
        }

    # -- of rows ---------------------------------------------------------------------------------------------
    def steps(self, op: int, row: int) -> Steps:
        """How the op's work is cut: as the simulator does before it looks at buffers."""
        problem, table, order = self.problem, self.problem.tables[op], self.problem.orders[self.problem.order[op]]
        key = (table.signature, row, order, _CONSTANTS.steps)
        steps = problem.costs.tile_orders.steps
        if key not in steps:
            steps[key] = op_steps(problem.profiles[op], table.rows[row], order, _CONSTANTS.steps, _CONSTANTS.max_steps)
        return steps[key]

    def rows(self, op: int, rows: np.ndarray, cycles: np.ndarray) -> RowSteps:
        """Of an op that takes so many cycles for an input with each."""
        counts = np.array([self.steps(op, row).count for row in rows.tolist()])
        number = np.arange(counts.max() + 1)
        done = cycles[:, None] * (np.minimum(number, counts[:, None]) / counts[:, None])
        cores = self.problem.tables[op].rows["cores"][rows].astype(np.int64)
        return RowSteps(rows, cores, cycles, done[:, 1:], done[:, :-1])

    def waits(self, producer: int, p_row: int, op: int, port: int, row: int) -> np.ndarray:
        """(steps of the op,) which step of the producer each waits for, -1 for none: by the furthest tile that any line
        of the op's cores reads up to the end of a step."""
        made, taken = self._made(producer, p_row), self._taken(op, port, row)
        key = made, taken
        entry = self.cache.waits.get(key)
        if entry is None:
            source = taken.source(made.form, self.problem.costs.tile_orders.reads)
            _, address = made.buffers.find(source)
            if source.real is not None:
                address = np.where(source.real, address, -1)
            furthest = np.zeros(address.shape[1] + 1, np.int64)
            np.maximum.accumulate(address.max(axis=0) + 1, out=furthest[1:])
            need = furthest[taken.read]
            entry = np.where(need > 0, made.emit.searchsorted(need), -1).astype(np.int32)
            self.cache.waits[key] = entry
        return entry

    def _made(self, op: int, row: int) -> _Made:
        entry = self._made_by.get((op, row))
        if entry is None:
            problem, table = self.problem, self.problem.tables[op]
            candidate, profile, order = table.rows[row], problem.profiles[op], problem.orders[problem.order[op]]
            form, emit = (stored_shape(profile, candidate), unstream_tms(profile, candidate)), self.steps(op, row).emit
            buffers = problem.costs.tile_orders.reads.buffers(candidate, order, form[0])
            key = form, id(buffers), emit.tobytes()
            entry = self.cache.made.get(key)
            if entry is None:
                entry = self.cache.made[key] = _Made(form, buffers, emit)
            self._made_by[op, row] = entry
        return entry

    def _taken(self, op: int, port: int, row: int) -> _Taken:
        entry = self._taken_by.get((op, port, row))
        if entry is None:
            name, signature = self.problem.order[op], self.problem.tables[op].signature
            key = signature, port, row, self.problem.orders[name], self.problem.read_orders[name]
            entry = self.cache.of_rows.get(key)
            if entry is None:
                entry = self.cache.of_rows[key] = self._find_taken(op, port, row)
            self._taken_by[op, port, row] = entry
        return entry

    def _find_taken(self, op: int, port: int, row: int) -> _Taken:
        problem, profile = self.problem, self.problem.profiles[op]
        candidate = problem.tables[op].rows[row]
        walk = read_walk(profile, port, candidate, problem.read_orders[problem.order[op]])
        tms = (*profile.operands[port].tms, *stream_tms(profile, port, candidate))
        length = math.prod(loop[0] for loop in walk.tiles)
        begin, end = stretches(profile, port, candidate, self.steps(op, row), length)
        read = np.maximum.accumulate(np.where(begin < end, end, 0))
        key = tms, walk, read.tobytes()
        entry = self.cache.taken.get(key)
        if entry is None:
            entry = self.cache.taken[key] = _Taken(tms, walk, read)
        return entry

    # -- of an op between others -----------------------------------------------------------------------------
    def arrival(
        self,
        op: int,
        steps: RowSteps,
        rows: Mapping[int, int],
        ends: Mapping[int, np.ndarray],
        but: Collection[int] = (),
    ) -> np.ndarray:
        """(rows, steps) when all is there that each step of an op reads. rows: of its producers; ends: (steps,) when
        each of their steps is over; but: producers that do not count."""
        arrival = np.full(steps.after.shape, float(self.ready[op]))
        for p in {p: None for _, p, _ in self.feeds[op] if p not in but}:
            self.after(p, op, steps, rows[p], ends[p], arrival)
        return arrival

    def after(
        self, producer: int, op: int, steps: RowSteps, p_row: int, ends: np.ndarray, arrival: np.ndarray
    ) -> np.ndarray:
        """`arrival`, put off to when what comes from a producer is there; ends: as of one of `arrival`."""
        for port, p, latency in self.feeds[op]:
            if p == producer:
                wait = self._stack_waits([self.waits(p, p_row, op, port, row) for row in steps.row.tolist()], steps)
                np.maximum(arrival, np.where(wait >= 0, ends[wait] + latency, 0.0), out=arrival)
        return arrival

    def behind(
        self,
        op: int,
        steps: RowSteps,
        rows: Mapping[int, int],
        left: Mapping[int, np.ndarray],
        but: Collection[int] = (),
    ) -> np.ndarray:
        """(rows, steps) what is left behind the readers' steps that wait for just this one. rows: of its readers; left:
        (steps,) from the start of each of their steps; but: readers that do not count."""
        behind = np.full(steps.after.shape, -np.inf)
        behind[:, -1] = self.late[op]
        for reader, port, latency in self.readers[op]:
            if reader not in but:
                wait = np.stack([self.waits(op, row, reader, port, rows[reader]) for row in steps.row.tolist()])
                at, step = np.nonzero(wait >= 0)
                np.maximum.at(behind, (at, wait[at, step]), latency + left[reader][step])
        return behind

    def _stack_waits(self, waits: Sequence[np.ndarray], steps: RowSteps) -> np.ndarray:
        """(rows, steps) of waits, those of a row of fewer steps filled up with its last one."""
        stacked = np.empty(steps.after.shape, np.int32)
        for row, wait in zip(stacked, waits, strict=True):
            row[: len(wait)] = wait
            row[len(wait) :] = wait[-1]
        return stacked

    # -- of all ops ------------------------------------------------------------------------------------------
    def ends(
        self,
        steps: Mapping[int, RowSteps],
        before: Mapping[int, np.ndarray] | None = None,
        changed: Collection[int] = (),
    ) -> dict[int, np.ndarray]:
        """By op, (steps,) when each is over. steps: the row of each; before: the answer with other rows of the ops in
        `changed`, so that only what comes of these is worked out."""
        rows = {op: int(one.row[0]) for op, one in steps.items()}
        ends: dict[int, np.ndarray] = {}
        others = set(changed)  # ops that are over at another time, or whose readers wait for other steps of theirs
        for op in range(self.first, self.last):
            if before is not None and op not in others and not any(p in others for _, p, _ in self.feeds[op]):
                ends[op] = before[op]
                continue
            ends[op] = steps[op].ends(self.arrival(op, steps[op], rows, ends))[0]
            if before is not None and not np.array_equal(ends[op], before[op]):
                others.add(op)
        return ends

    def left(
        self,
        steps: Mapping[int, RowSteps],
        before: Mapping[int, np.ndarray] | None = None,
        changed: Collection[int] = (),
    ) -> dict[int, np.ndarray]:
        """By op, (steps,) cycles from the start of each until all is done. before, changed: as of `ends`."""
        rows = {op: int(one.row[0]) for op, one in steps.items()}
        left: dict[int, np.ndarray] = {}
        others = set(changed)
        for op in reversed(range(self.first, self.last)):
            if before is not None and op not in others and not any(r in others for r, _, _ in self.readers[op]):
                left[op] = before[op]
                continue
            one = steps[op]
            left[op] = (one.left(self.behind(op, one, rows, left)) + one.after - one.before)[0]
            if before is not None and not np.array_equal(left[op], before[op]):
                others.add(op)
        return left


def cycles_without_stalls(problem: Problem, segment: Segment, cache: WaitCache) -> float:
    """Cycles of a batch of an epoch in which no buffer is ever full: its first input is through, and every other one
    comes its slowest op later."""
    filling = SpareCoreFill(problem, segment)
    way = FirstInput(problem, segment.first, segment.last, filling.ready(filling.now), cache)
    load, ops = filling.load, range(segment.first, segment.last)
    steps: dict[int, RowSteps] = {}
    for op, row in zip(ops, segment.rows, strict=True):
        limits = problem.row_limits(op, *problem.places(op, segment.first, segment.last), load)
        steps[op] = way.rows(op, np.array([row]), limits[[row]])
    through = max(float(ends[-1]) + way.late[op] for op, ends in way.ends(steps).items())
    return through + (problem.inputs(segment.first) - 1) * segment.limiter_cycles
