"""What filling an epoch and its forks cost, for all targets of the dynamic programme at once and before it is placed.

Filling: the first result of an op comes when what it needs of its operands has come and the first part of its own work
is done; along the longest way these add up (pipeline depth x time to the first result). What preloads waits for its
load, and loads share DRAM. `epochsim` follows the blocks and agrees on chains.

A fork whose short branch holds `h` inputs while the join waits `d` cycles for the long one hands on an input every
d / h cycles at best (the mean of the cycle of waits through both); if the branch holds less than the long one has to
have before its first result, never. A DRAM queue on the short branch does away with both, for the bandwidth it takes;
so do nops on it, for their cores, in whose L1 the rest waits.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import dram_divider, dram_rate
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.placer.model.costs import Needs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.stalls.first_results import L1_SHARE, FirstResults, first_results_of
from tbuda_lab.core.placer.stalls.fork_join import NOP_CORES, Reconvergence, reconvergences, reconvergences_of

_HOP = EpochConstants().noc_latency
_READY = EpochConstants().dram_latency


@dataclasses.dataclass(frozen=True)
class OpAt:
    """What the cheapest row of an op does at every level and target: (levels, targets) each. cycles: of one input;
    first_tiles: of them until its first tiles leave; the rest as in `FirstResults`."""

    cycles: np.ndarray
    first_tiles: np.ndarray
    needs: tuple[np.ndarray, ...]
    out: np.ndarray
    spare: tuple[np.ndarray, ...]
    read: tuple[np.ndarray, ...]
    written: np.ndarray
    load: np.ndarray  # cycles in which all of DRAM brings what the op preloads
    load_size: np.ndarray  # bytes of it that the core fetches which fetches most
    loads: bool  # whether it preloads anything
    alone: np.ndarray  # cycles until its first tiles leave, where it waits for nothing but the start of the epoch
    rest: np.ndarray  # cycles from then on
    arrivals: dict[tuple[int, int], tuple[OpAt, np.ndarray]] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )  # of `arrival`, by port and producer, which is kept so that its id stays its own

    def arrival(self, port: int, producer: OpAt) -> np.ndarray:
        """From the first tiles of the producer of an operand to the op's own, with the way between them."""
        key = port, id(producer)
        entry = self.arrivals.get(key)
        if entry is None:
            cycles = np.maximum(self.needs[port] * producer.cycles, self.first_tiles) + np.float32(_HOP)
            entry = self.arrivals[key] = producer, cycles
        return entry[1]


@dataclasses.dataclass
class StallCaches:
    """What `StallModel` works out once, for all problems that share costs and have the same targets. results: by the
    signature of a table and the order of ublocks; at: by the id of `Needs`, which it keeps, and that order;
    stall_cycles: by the ids of what `at` holds."""

    results: dict[tuple[object, ...], FirstResults] = dataclasses.field(default_factory=dict)
    at: dict[tuple[int, str], tuple[Needs, OpAt]] = dataclasses.field(default_factory=dict)
    stall_cycles: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)


class StallModel:
    """Of one problem, for levels that put so many cores on DRAM, and these targets. caches: of another problem."""

    def __init__(
        self, problem: Problem, caps: Sequence[int], targets: np.ndarray, caches: StallCaches | None = None
    ) -> None:
        self.problem, self.targets = problem, targets.astype(np.float32)
        rates = [problem.device.dram_bytes_per_cycle / dram_divider(problem.device, int(cap)) for cap in caps]
        self.rates = np.array(rates, dtype=np.float32)[:, None]
        options = problem.options
        self.enabled = options.enable_fork_join_buffering  # else epochs have no stall cycles (see `with_stall_cycles`)
        self.counts_fill = self.enabled and options.counts_fill
        # a single input is never held up, though it may be stuck for ever
        self.several_inputs = options.inputs_counted > 1
        self.reconvergences = reconvergences(problem) if self.enabled else {}
        caches = StallCaches() if caches is None else caches
        self._results, self._at, self._stall_cycles = caches.results, caches.at, caches.stall_cycles

    def on(self, problem: Problem, ops: range | None = None) -> StallModel:
        """The same for the problem in another order, or for runs of some of its ops."""
        result = copy.copy(self)
        result.problem, result.reconvergences = problem, {}
        if self.enabled:
            result.reconvergences = reconvergences(problem) if ops is None else reconvergences_of(problem, ops)
        return result

    def at(self, op: int, needs: Needs) -> OpAt:
        """Of an op that takes what `needs` says."""
        key = id(needs), self.problem.orders[self.problem.order[op]]
        entry = self._at.get(key)
        if entry is not None:
            return entry[1]
        facts, row = self._first_results(op), needs.at

        def pick(column: np.ndarray) -> np.ndarray:
            taken: np.ndarray = column.astype(np.float32)[row]
            return taken

        cycles = needs.cycles.max(axis=0).astype(np.float32)
        begun, (size, load) = cycles * pick(facts.first), map(pick, self._load(op))
        result = OpAt(
            cycles,
            begun,
            tuple(map(pick, facts.needs)),
            pick(facts.out),
            tuple(map(pick, facts.spare)),
            tuple(map(pick, facts.read)),
            pick(facts.written),
            load,
            size,
            bool((load > 0).any()),
            begun + np.float32(_READY),
            cycles - begun,
        )
        self._at[key] = needs, result  # the needs are kept, so that their id stays theirs
        return result

    def _load(self, op: int) -> tuple[np.ndarray, np.ndarray]:
        problem = self.problem
        legal = problem.legal[problem.tables[op].signature]
        most, total = problem.loads(op)
        return most[legal], total[legal] / dram_rate(problem.device)

    def _first_results(self, op: int) -> FirstResults:
        problem = self.problem
        table, order = problem.tables[op], problem.orders[problem.order[op]]
        entry = self._results.get((table.signature, order))
        if entry is None:
            rows = table.rows[problem.legal[table.signature]]
            entry = first_results_of(problem.profiles[op], rows, order, problem.device)
            self._results[table.signature, order] = entry
        return entry

    def stall_cycles(self, meeting: Reconvergence, needs: Callable[[int], Needs]) -> tuple[np.ndarray, np.ndarray]:
        """(levels, targets) each: cycles per input at which the fork hands on at best, a DRAM queue included; and cores
        of nops with which it keeps the target."""
        ops = (meeting.fork, *(op for op, _ in (*meeting.short, *meeting.long)))
        at = {op: self.at(op, needs(op)) for op in ops}
        ports = tuple(port for _, port in (*meeting.short, *meeting.long))
        key = (*(id(at[op]) for op in ops), ports, len(meeting.short))
        entry = self._stall_cycles.get(key)
        if entry is None:
            entry = self._stall_cycles[key] = self._of(meeting, at)
        return entry

    def _of(self, meeting: Reconvergence, at: dict[int, OpAt]) -> tuple[np.ndarray, np.ndarray]:
        fork, join = at[meeting.fork], at[meeting.join]
        late = np.zeros_like(fork.cycles)  # from the fork's first tiles to the first that the join takes of `long`
        free = np.ones_like(late)  # part of the fork's output that the long branch can do without until then
        before = fork
        for op, port in meeting.long:
            here = at[op]
            late = late + np.maximum(here.needs[port] * before.cycles, here.first_tiles) + _HOP
            free = free * (1 - here.needs[port])
            before = here
        room = fork.out.copy()
        for op, port in meeting.short:
            room += at[op].spare[port] + (at[op].out if op != meeting.join else 0)
        stuck = 1 - free > room + 1e-6
        queue = np.maximum(fork.written, join.read[meeting.short[-1][1]]) / self.rates
        pace_ = late / room if self.several_inputs else np.zeros_like(late)
        held: np.ndarray = np.where(stuck, queue, np.minimum(pace_, queue))
        missing = np.maximum(1 - free, late / self.targets if self.several_inputs else 0.0) - room
        cores: np.ndarray = np.ceil(np.maximum(missing - 1e-6, 0.0) * self._nop_cores(meeting.fork)).astype(np.int32)
        return held, cores

    def _nop_cores(self, op: int) -> float:
        """Cores whose L1 holds all that an op gives for one input."""
        profile, device = self.problem.profiles[op], self.problem.device
        z, rt, ct = profile.out
        size = z * rt * ct * tile_bytes(profile.df, align=device.tile_align)
        return NOP_CORES * size / (L1_SHARE * device.l1_usable)


class RunStalls:
    """The waits of a run of ops that grows by one op. needs: of an op of the run. stall_cycles: (levels,
    targets) cycles per input that forks allow at best; nops: cores of nops with which they keep the target; whole:
    cycles of one input through the run, from when its parameters begin to come."""

    def __init__(self, waiting: StallModel, first: int, needs: Callable[[int], Needs]) -> None:
        self.waiting, self.first, self.needs = waiting, first, needs
        self.stall_cycles: np.ndarray | None = None
        self.nops: np.ndarray | None = None
        self.whole: np.ndarray | None = None
        self._depth: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}
        # (2, loads or more, levels, targets) cycles in which all of DRAM brings each load, and bytes of it a core
        self._loads: np.ndarray = np.empty(0, dtype=np.float32)
        self._count = 0  # of loads
        self._whole_size: np.ndarray = np.zeros(1, dtype=np.float32)

    def add(self, op: int) -> None:
        """Takes in the next op."""
        for meeting in self.waiting.reconvergences.get(op, ()):
            if meeting.fork >= self.first:
                held, nops = self.waiting.stall_cycles(meeting, self.needs)
                self.stall_cycles = held if self.stall_cycles is None else np.maximum(self.stall_cycles, held)
                self.nops = nops if self.nops is None else self.nops + nops
        if self.waiting.counts_fill:
            self._fill(op)

    def _fill(self, op: int) -> None:
        """Cores that load share DRAM evenly (`load_times`), so a load waits for as much of every other as a core has of
        it by then, also of those that come later: beside its depth an op keeps the size of the load that its longest
        way begins with, and how many loads are counted in."""
        here = self.waiting.at(op, self.needs(op))
        depth, size = here.alone, np.zeros_like(here.load)
        if here.loads:
            self._add_load(here)
            depth = here.first_tiles + np.where(
                here.load > 0, np.maximum(self._shared(here.load_size, 0), _READY), np.float32(_READY)
            )
            size = here.load_size
            if self.whole is not None:
                self.whole = self.whole + self._shared(self._whole_size, self._count - 1)
        for port, producer in enumerate(self.waiting.problem.facts[op].producers):
            before = self._depth.get(producer)
            if before is not None:
                way = here.arrival(port, self.waiting.at(producer, self.needs(producer)))
                reached = before[0] + self._shared(before[1], before[2]) + way
                later = reached > depth
                depth, size = np.where(later, reached, depth), np.where(later, before[1], size)
        self._depth[op] = depth, size, self._count
        end = depth + here.rest
        if self.whole is None:
            self.whole, self._whole_size = end, size
        else:
            self._whole_size = np.where(end > self.whole, size, self._whole_size)
            self.whole = np.maximum(self.whole, end)

    def _shared(self, size: np.ndarray, known: int) -> np.ndarray | np.float32:
        """Cycles that a load of so many bytes a core waits for those of the run, itself among them, from the `known`-th
        on."""
        if known == self._count or not size.any():
            return np.float32(0.0)
        load, other = self._loads[:, known : self._count]
        shared: np.ndarray = (load * np.minimum(size / other, 1.0)).sum(axis=0)
        return shared

    def _add_load(self, here: OpAt) -> None:
        if self._count == (self._loads.shape[1] if self._loads.ndim > 1 else 0):
            more = np.empty((2, max(8, 2 * self._count), *here.load.shape), here.load.dtype)
            more[:, : self._count] = self._loads if self._count else 0
            self._loads = more
        self._loads[0, self._count] = here.load
        np.maximum(here.load_size, 1.0, out=self._loads[1, self._count])
        self._count += 1
