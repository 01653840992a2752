"""What filling an epoch and its forks cost, for all targets of the dynamic programme at once and before it is placed.

Filling: the first result of an op comes when what it needs of its operands has come and the first part of its own work
is done; along the longest way these add up (pipeline depth x time to the first result). `epochsim` follows the blocks
and agrees on chains.

A fork whose short branch holds `h` inputs while the join waits `d` cycles for the long one hands on an input every
d / h cycles at best (the mean of the cycle of waits through both); if the branch holds less than the long one has to
have before its first result, never. A DRAM queue on the short branch does away with both, for the bandwidth it takes.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import dram_divider, dram_rate
from tbuda_lab.core.epochsim.constants import EpochConstants
from tbuda_lab.core.placer.model.choices import Needs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.stalls.first_results import FirstResults, pace
from tbuda_lab.core.placer.stalls.reconvergence import Meeting, meetings

_HOP = EpochConstants().noc_latency
_READY = EpochConstants().dram_latency


@dataclasses.dataclass(frozen=True)
class OpAt:
    """What the cheapest row of an op does at every level and target: (levels, targets) each. cycles: of one input;
    begun: of them until its first tiles leave; the rest as in `FirstResults`."""

    cycles: np.ndarray
    begun: np.ndarray
    needs: tuple[np.ndarray, ...]
    out: np.ndarray
    spare: tuple[np.ndarray, ...]
    read: tuple[np.ndarray, ...]
    written: np.ndarray
    load: np.ndarray  # cycles in which all of DRAM brings what the op preloads


class StallModel:
    """Of one problem, for levels that put so many cores on DRAM."""

    def __init__(self, problem: Problem, caps: Sequence[int]) -> None:
        self.problem = problem
        rates = [problem.device.dram_bytes_per_cycle / dram_divider(problem.device, int(cap)) for cap in caps]
        self.rates = np.array(rates, dtype=np.float32)[:, None]
        options = problem.options
        self.enabled = options.enable_fork_join_buffering  # else epochs are not charged for anything (see `priced`)
        self.counts_fill = self.enabled and options.counts_fill
        self.flows = options.inputs_counted > 1  # a single input is never held up, though it may be stuck for ever
        self.meetings = meetings(problem) if self.enabled else {}
        self._paces: dict[tuple[object, ...], FirstResults] = {}
        self._at: dict[int, tuple[Needs, OpAt]] = {}
        self._held: dict[tuple[object, ...], np.ndarray] = {}

    def on(self, problem: Problem) -> StallModel:
        """The same for the problem in another order."""
        result = copy.copy(self)
        result.problem, result.meetings = problem, meetings(problem) if self.enabled else {}
        return result

    def at(self, op: int, needs: Needs) -> OpAt:
        """Of an op that takes what `needs` says."""
        entry = self._at.get(id(needs))
        if entry is not None:
            return entry[1]
        facts, row = self._pace(op), needs.at

        def pick(column: np.ndarray) -> np.ndarray:
            taken: np.ndarray = column.astype(np.float32)[row]
            return taken

        cycles = needs.cycles.max(axis=0).astype(np.float32)
        result = OpAt(
            cycles,
            cycles * pick(facts.first),
            tuple(map(pick, facts.needs)),
            pick(facts.out),
            tuple(map(pick, facts.spare)),
            tuple(map(pick, facts.read)),
            pick(facts.written),
            pick(self._load(op)),
        )
        self._at[id(needs)] = needs, result  # the needs are kept, so that their id stays theirs
        return result

    def _load(self, op: int) -> np.ndarray:
        problem = self.problem
        total = problem.loads(op)[1][problem.legal[problem.tables[op].signature]]
        cycles: np.ndarray = total / dram_rate(problem.device)
        return cycles

    def _pace(self, op: int) -> FirstResults:
        problem = self.problem
        table, order = problem.tables[op], problem.orders[problem.order[op]]
        entry = self._paces.get((table.signature, order))
        if entry is None:
            rows = table.rows[problem.legal[table.signature]]
            entry = self._paces[table.signature, order] = pace(problem.profiles[op], rows, order, problem.device)
        return entry

    def held(self, meeting: Meeting, needs: Callable[[int], Needs]) -> np.ndarray:
        """(levels, targets) cycles per input at which the fork hands on at best, a DRAM queue included."""
        ops = (meeting.fork, *(op for op, _ in (*meeting.short, *meeting.long)))
        taken = {op: needs(op) for op in ops}
        ports = tuple(port for _, port in (*meeting.short, *meeting.long))
        key = (*(id(taken[op]) for op in ops), ports, len(meeting.short))
        entry = self._held.get(key)
        if entry is None:
            entry = self._held[key] = self._of(meeting, {op: self.at(op, n) for op, n in taken.items()})
        return entry

    def _of(self, meeting: Meeting, at: dict[int, OpAt]) -> np.ndarray:
        fork, join = at[meeting.fork], at[meeting.join]
        late = np.zeros_like(fork.cycles)  # from the fork's first tiles to the first that the join takes of `long`
        free = np.ones_like(late)  # part of the fork's output that the long branch can do without until then
        before = fork
        for op, port in meeting.long:
            here = at[op]
            late = late + np.maximum(here.needs[port] * before.cycles, here.begun) + _HOP
            free = free * (1 - here.needs[port])
            before = here
        room = fork.out.copy()
        for op, port in meeting.short:
            room += at[op].spare[port] + (at[op].out if op != meeting.join else 0)
        stuck = 1 - free > room + 1e-6
        queue = np.maximum(fork.written, join.read[meeting.short[-1][1]]) / self.rates
        pace_ = late / room if self.flows else np.zeros_like(late)
        held: np.ndarray = np.where(stuck, queue, np.minimum(pace_, queue))
        return held


class Gathered:
    """The waits of a run of ops that grows by one op after the other. needs: of an op of the run. held: (levels,
    targets) cycles per input that forks allow at best; whole: cycles of one input through the run, from when its
    parameters begin to come."""

    def __init__(self, waiting: StallModel, first: int, needs: Callable[[int], Needs]) -> None:
        self.waiting, self.first, self.needs = waiting, first, needs
        self.held: np.ndarray | None = None
        self.whole: np.ndarray | None = None
        self._depth: dict[int, np.ndarray] = {}
        self._load: np.ndarray = np.zeros(1, dtype=np.float32)

    def add(self, op: int) -> None:
        """Takes in the next op."""
        for meeting in self.waiting.meetings.get(op, ()):
            if meeting.fork >= self.first:
                held = self.waiting.held(meeting, self.needs)
                self.held = held if self.held is None else np.maximum(self.held, held)
        if self.waiting.counts_fill:
            self._fill(op)

    def _fill(self, op: int) -> None:
        here = self.waiting.at(op, self.needs(op))
        self._load = self._load + here.load
        ready = np.where(here.load > 0, np.maximum(self._load, np.float32(_READY)), np.float32(_READY))
        depth = here.begun + ready
        for port, producer in enumerate(self.waiting.problem.facts[op].producers):
            before = self._depth.get(producer)
            if before is not None:
                result = self.waiting.at(producer, self.needs(producer))
                depth = np.maximum(depth, before + np.maximum(here.needs[port] * result.cycles, here.begun) + _HOP)
        self._depth[op] = depth
        end = depth + here.cycles - here.begun
        self.whole = end if self.whole is None else np.maximum(self.whole, end)
