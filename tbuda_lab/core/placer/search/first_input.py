"""The way of the first input through an epoch, step by step, as the simulator of epochs takes it where no buffer is
full: when each step of each op is over, and how long it takes from there until all is done.

An op begins a step when what the step reads has arrived: end[s] = D[s] + max over r <= s of (arrival[r] - D[r - 1]),
D[s] being the cycles of all steps up to s. Backwards, what is left after a step is the largest of what its readers'
steps need that wait for it. With both, another row of a few ops is judged by these ops and the edges around them alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.balancer.layout import buffer_address, consumer_walk
from tbuda_lab.core.balancer.streaming import edge_tms, stored_shape, to_source
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.epochsim.tile_order import Steps, op_steps, stretches
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.spare_cores import SpareCoreFill

_CONSTANTS = EpochConstants()
_MOST = 100_000
_MOST_READS = 2_000

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


@dataclasses.dataclass
class WaitCache:
    """What was found out of pairs of rows, and of rows of a reader, by all that decides it. Beyond `_MOST` pairs all is
    forgotten."""

    waits: dict[tuple[object, ...], np.ndarray] = dataclasses.field(default_factory=dict)
    reads: dict[tuple[object, ...], _Reads] = dataclasses.field(default_factory=dict)

    def tidy(self) -> None:
        """Forgets what is too much."""
        if len(self.waits) > _MOST:
            self.waits.clear()
        if len(self.reads) > _MOST_READS:
            self.reads.clear()


@dataclasses.dataclass(frozen=True)
class _Reads:
    """What an op reads of an operand: (lines, length) coordinates in its order, and (steps,) the stretch of each
    step."""

    coordinates: tuple[np.ndarray, np.ndarray, np.ndarray]
    begin: np.ndarray
    end: np.ndarray


class FirstInput:
    """Ops [first, last) of a problem as one epoch."""

    def __init__(
        self, problem: Problem, first: int, last: int, ready: Mapping[int, float], cache: WaitCache | None = None
    ) -> None:
        """ready: by op, when its parameters are there. cache: of other epochs of problems that share their costs."""
        self.problem, self.first, self.last, self.ready = problem, first, last, ready
        self.cache = WaitCache() if cache is None else cache
        self.cache.tidy()
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
        """(steps of the op,) which step of the producer each waits for, -1 for none."""
        problem = self.problem
        a, b = problem.order[producer], problem.order[op]
        first, second = problem.tables[producer], problem.tables[op]
        key = (
            first.signature,
            p_row,
            problem.orders[a],
            second.signature,
            port,
            row,
            problem.orders[b],
            problem.read_orders[b],
        )
        entry = self.cache.waits.get(key)
        if entry is None:
            entry = self.cache.waits[key] = self._waits(producer, p_row, op, port, row)
        return entry

    def _waits(self, producer: int, p_row: int, op: int, port: int, row: int) -> np.ndarray:
        """By the furthest tile that any line of the op's cores reads up to the end of a step."""
        problem = self.problem
        p_profile, profile = problem.profiles[producer], problem.profiles[op]
        first, second = problem.tables[producer].rows[p_row], problem.tables[op].rows[row]
        shape, reads = stored_shape(p_profile, first), self._reads(op, port, row)
        z, r, c = to_source(edge_tms(p_profile, first, profile, port, second), shape, *reads.coordinates)
        address = buffer_address(first, problem.orders[problem.order[producer]], z, r, c)[1]
        address = np.where((z < shape[0]) & (r < shape[1]) & (c < shape[2]), address, -1)
        furthest = np.append(np.maximum.accumulate(address.max(axis=0)), -1)
        need = np.where(reads.begin < reads.end, furthest[reads.end - 1], -1) + 1
        need = np.maximum.accumulate(need)
        return np.where(need > 0, np.searchsorted(self.steps(producer, p_row).emit, need), -1).astype(np.int32)

    def _reads(self, op: int, port: int, row: int) -> _Reads:
        problem, name = self.problem, self.problem.order[op]
        table, profile = problem.tables[op], problem.profiles[op]
        key = (table.signature, port, row, problem.orders[name], problem.read_orders[name])
        entry = self.cache.reads.get(key)
        if entry is None:
            walk = consumer_walk(profile, port, table.rows[row], problem.read_orders[name])
            stretch = stretches(profile, port, table.rows[row], self.steps(op, row), walk[0].shape[1])
            entry = self.cache.reads[key] = _Reads(walk, *stretch)
        return entry

    # -- of an op between others -----------------------------------------------------------------------------
    def arrival(self, op: int, steps: RowSteps, rows: Mapping[int, int], ends: Mapping[int, np.ndarray]) -> np.ndarray:
        """(rows, steps) when all is there that each step of an op reads. rows: of its producers; ends: (steps,) when
        each of their steps is over."""
        arrival = np.full(steps.after.shape, float(self.ready[op]))
        for port, p, latency in self.feeds[op]:
            wait = self._stack_waits([self.waits(p, rows[p], op, port, row) for row in steps.row.tolist()], steps)
            np.maximum(arrival, np.where(wait >= 0, ends[p][wait] + latency, 0.0), out=arrival)
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
        most = steps.after.shape[1]
        return np.stack([w if len(w) == most else np.append(w, np.repeat(w[-1:], most - len(w))) for w in waits])

    # -- of all ops ------------------------------------------------------------------------------------------
    def ends(self, steps: Mapping[int, RowSteps]) -> dict[int, np.ndarray]:
        """By op, (steps,) when each is over. steps: the row of each."""
        rows = {op: int(one.row[0]) for op, one in steps.items()}
        ends: dict[int, np.ndarray] = {}
        for op in range(self.first, self.last):
            ends[op] = steps[op].ends(self.arrival(op, steps[op], rows, ends))[0]
        return ends

    def left(self, steps: Mapping[int, RowSteps]) -> dict[int, np.ndarray]:
        """By op, (steps,) cycles from the start of each until all is done."""
        rows = {op: int(one.row[0]) for op, one in steps.items()}
        left: dict[int, np.ndarray] = {}
        for op in reversed(range(self.first, self.last)):
            one = steps[op]
            left[op] = (one.left(self.behind(op, one, rows, left)) + one.after - one.before)[0]
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
