"""A compile run in time: `simulate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.epochsim.build import BuiltNetwork, build
from tbuda_lab.core.epochsim.costs import OpCost
from tbuda_lab.core.epochsim.event_graph import event_graph
from tbuda_lab.core.epochsim.fills import Fill, Levels
from tbuda_lab.core.epochsim.fork_join_stalls import ForkJoinStall, stall_diagnostics
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.epochsim.pyramid import WaitKind
from tbuda_lab.core.epochsim.run import NetworkRun, ends, run_network
from tbuda_lab.core.epochsim.solve import solve
from tbuda_lab.core.epochsim.trace import Columns, Trace, TraceEpoch, TraceOp, span_columns
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.graph.phases import ONCE, inputs_of_run

if TYPE_CHECKING:
    from tbuda_lab.core.epochsim.costs import SimulatedCompile


_DEFAULTS = EpochConstants()


@dataclasses.dataclass(frozen=True)
class EpochTimes:
    """One epoch in the first round of the program's loop: cycles = switch + fill + inputs * slowest + stall; one of the
    optimizer, which takes one input, in its only round.

    slowest: cycles per input of its slowest op, `slowest_op`; fill: until the pipeline is full, and until it is empty
    again; stall: what buffers that are too small cost beyond that. period: cycles between inputs that leave, over the
    later half of them (those of the slowest op where there is one input). critical: the ops whose work and waits for
    each other decide that, last first.
    """

    index: int
    chip: int
    start: int
    end: int
    switch: int
    fill: int
    stall: int
    slowest: int
    slowest_op: str
    period: float
    critical: tuple[str, ...]

    @property
    def cycles(self) -> int:
        return self.end - self.start + self.switch


@dataclasses.dataclass(frozen=True)
class OpWaits:
    """What an op did in the batch, in cycles, the mean over its cores: computing, and waiting by kind. `input_from`,
    `space_to`: the op that it waited for longest, by data and by space ("" where it did not)."""

    op: str
    compute: int
    wait_input: int
    wait_space: int
    wait_dram: int
    wait_host: int
    input_from: str
    space_to: str


@dataclasses.dataclass(frozen=True)
class Stall:
    """A fork-join stall by name: see `ForkJoinStall`. cycles: of the whole batch; critical: it slows the epoch down."""

    epoch: int
    fork: str
    join: str
    short: tuple[str, ...]
    long: tuple[str, ...]
    cycles: int
    critical: bool


@dataclasses.dataclass(frozen=True)
class EpochTrace:
    """What `simulate` finds. cycles: of the whole batch, over all epochs and rounds of the loop.

    ops: by epoch and schedule. start, end: (ops, inputs) int64, when each op (the first and last of its cores) began
    and finished each input, in cycles from the start of the batch; waits: (ops, inputs, kinds) float64 cycles by
    `WaitKind`, the mean over its cores. costs: what each op costs, in the order of `ops`.
    """

    cycles: int
    batch: int
    per_run: int
    epochs: tuple[EpochTimes, ...]
    ops: tuple[OpWaits, ...]
    stalls: tuple[Stall, ...]
    start: np.ndarray
    end: np.ndarray
    waits: np.ndarray
    trace: Trace
    diagnostics: tuple[Diagnostic, ...]
    constants: EpochConstants
    levels: Levels
    costs: tuple[OpCost, ...] = ()

    def fills(self, op: str, start: int = 0, end: int | None = None, points: int = 512) -> list[Fill]:
        """How full the buffers and queues around an op are, from cycle `start` to `end` (default: the whole batch).
        Raises `KeyError` for an op that is not placed."""
        return self.levels.of(op, start, self.cycles if end is None else end, points)

    @property
    def deadlocked(self) -> bool:
        """Whether the placement would hang; times are then as `event_graph` says."""
        return any(d.severity == "error" for d in self.diagnostics)


def simulate(
    result: SimulatedCompile,
    batch: int = 1,
    constants: EpochConstants = _DEFAULTS,
    per_run: int | None = None,
) -> EpochTrace:
    """Times of a compiled model for `batch` inputs, from cycle counts, buffers and back pressure alone; no tensors.

    per_run: how many inputs each epoch takes before the next epoch follows; by default the whole batch (queues between
    epochs are taken to be deep enough). `result.options.microbatch` gives the program as emitted, which goes round its
    loop of epochs once for every microbatch.

    Epochs of one chip follow each other, epochs of the same temporal number run at the same time on their chips; a
    temporal epoch starts when all of the one before have ended. Epochs of the optimizer run once, after the last round:
    their only input has number 0, and for the others they take no time.
    """
    per_run = min(batch, batch if per_run is None else per_run)
    built, constants = _build_network(result, per_run, constants)
    owner = np.array([part.op for part in built.parts], dtype=np.int64)
    epoch_of = np.array([result.placement.ops[name].epoch for name in built.names], dtype=np.int64)[owner]
    epochs = result.placement.epochs
    groups = [np.flatnonzero(epoch_of == epoch.index).tolist() for epoch in epochs]
    inputs = [inputs_of_run(epoch.direction, per_run) for epoch in epochs]
    run = run_network(built.network, per_run, groups, inputs=inputs)
    # what holds later inputs up is nothing to an epoch that takes one
    stalls = [s for s in run.stalls if s.fork >= len(owner) or inputs[epoch_of[s.fork]] == per_run]
    clock = _Clock(result, built, run.end, constants, batch, per_run)
    kinds = np.array([_stall_kind(built.costs[op]) for op in owner], dtype=np.uint8)
    trace = clock.trace(span_columns(run, kinds, len(built.parts)))
    start, end = clock.inputs(run)
    waits = _waits(trace, built, batch)
    return EpochTrace(
        clock.cycles,
        batch,
        per_run,
        clock.times(run),
        _op_waits(trace, built, waits),
        _stalls(result, built, stalls, batch, per_run),
        start,
        end,
        waits,
        trace,
        (
            *built.diagnostics,
            *run.diagnostics,
            *stall_diagnostics(run.network, run.graph, run.waits, stalls, run.chains),
        ),
        constants,
        clock.levels(run, start, end),
        built.costs,
    )


def _build_network(
    result: SimulatedCompile, inputs: int, constants: EpochConstants
) -> tuple[BuiltNetwork, EpochConstants]:
    """The network of a placement, and the constants that hold for it. inputs: of a run."""
    if inputs < 1:
        raise ValueError("a batch has one input at least")
    if result.loaded_once:
        constants = dataclasses.replace(constants, switch=0)
    return build(result, constants), constants


def simulated_cycles(result: SimulatedCompile, batch: int = 1) -> int:
    """Cycles of a batch as `simulate` counts them, without what every op waits for: a quarter of the work."""
    return cycles_of_batches(result, (batch,))[0]


def cycles_of_batches(result: SimulatedCompile, batches: Sequence[int]) -> tuple[int, ...]:
    """As `simulated_cycles`, of several batches; most of the work is done once."""
    built, constants = _build_network(result, min(batches), _DEFAULTS)
    graph, _ = event_graph(built.network)
    return tuple(_Clock(result, built, ends(graph, solve(graph, n)), constants, n, n).cycles for n in batches)


def _stalls(
    result: SimulatedCompile, built: BuiltNetwork, stalls: Sequence[ForkJoinStall], batch: int, per_run: int
) -> tuple[Stall, ...]:
    def names(ops: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(built.network.ops[i].name for i in ops))

    return tuple(
        Stall(
            result.placement.ops[built.network.ops[s.fork].name].epoch,
            built.network.ops[s.fork].name,
            built.network.ops[s.join].name,
            names(s.short),
            names(s.long),
            s.cycles * batch // per_run,
            s.critical,
        )
        for s in stalls
        if s.fork < len(built.parts)
    )


def _stall_kind(cost: OpCost) -> WaitKind:
    """What an op waits for whose transfers take longer than its kernel."""
    if cost.limiter.endswith(HOST):
        return WaitKind.HOST
    if cost.limiter.endswith(DRAM):
        return WaitKind.DRAM
    return WaitKind.SPACE if cost.limiter.startswith("output") else WaitKind.INPUT


class _Clock:
    """When each epoch of each round of the loop starts. counts: (rounds, epochs) inputs that each takes there."""

    def __init__(
        self,
        result: SimulatedCompile,
        built: BuiltNetwork,
        ends: np.ndarray,
        constants: EpochConstants,
        batch: int,
        per_run: int,
    ) -> None:
        """ends: (ops, per_run) when each op of the network is done with each input, as if its epoch began at 0."""
        self.result, self.built, self.constants = result, built, constants
        self.batch, self.per_run = batch, per_run
        placement = result.placement
        self.owner = np.array([part.op for part in built.parts], dtype=np.int64)
        self.epoch = np.array([placement.ops[n].epoch for n in built.names], dtype=np.int64)[self.owner]
        count = len(placement.epochs)
        temporal = np.array([e.temporal for e in placement.epochs], dtype=np.int64)
        self.order, self.stage = np.unique(temporal, return_inverse=True)
        # after the last step the result still has to reach its place in DRAM or host memory
        late = np.array([constants.dram_latency if c.output in (DRAM, HOST) else 0 for c in built.costs])
        done = ends[: len(built.parts)] + late[self.owner][:, None]
        self.done = np.zeros((count, per_run), dtype=np.int64)
        np.maximum.at(self.done, self.epoch, done)
        sizes = [per_run] * (batch // per_run) + ([batch % per_run] if batch % per_run else [])
        self.once = np.array([e.direction == ONCE for e in placement.epochs], dtype=bool)
        self.counts = np.where(self.once, 0, np.array(sizes, dtype=np.int64)[:, None])
        self.counts[-1, self.once] = 1
        self.starts = np.zeros((len(sizes), count), dtype=np.int64)
        now = 0
        for index, taken in enumerate(self.counts):
            length = np.zeros(len(self.order), dtype=np.int64)
            switch = np.zeros(len(self.order), dtype=np.int64)
            np.maximum.at(length, self.stage, self.done[np.arange(count), taken - 1] * (taken > 0))
            np.maximum.at(switch, self.stage, constants.switch * (taken > 0))
            ends = now + np.cumsum(length + switch)
            self.starts[index] = (ends - length)[self.stage]
            now = int(ends[-1]) if len(ends) else now
        self.cycles = now

    def trace(self, columns: Columns) -> Trace:
        """The spans of every round, at their place in time."""
        placement = self.result.placement
        ops = tuple(
            TraceOp(self.built.names[p.op], placed.epoch, placed.chip, p.cores)
            for p, placed in ((p, placement.ops[self.built.names[p.op]]) for p in self.built.parts)
        )
        parts, runs = [], []
        for index, taken in enumerate(self.counts):
            counts = columns.input < taken[self.epoch[columns.op]]
            part = columns if counts.all() else columns.where(counts)
            shift = self.starts[index][self.epoch[part.op]]
            first = np.where(self.once, 0, index * self.per_run).astype(np.int32)[self.epoch[part.op]]
            parts.append((part.op, part.input + first, part.start + shift, part.end + shift, part.kind, part.cause))
            for at in np.flatnonzero(taken).tolist():
                epoch = placement.epochs[at]
                start = int(self.starts[index, at])
                end = start + int(self.done[at, taken[at] - 1])
                runs.append(TraceEpoch(epoch.index, epoch.chip, index, start, end))
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if len(parts) > 1:
            by = np.argsort(joined[0], kind="stable")
            joined = [column[by] for column in joined]
        op, input_, start_, end_, kind, cause = joined
        return Trace(op, input_, start_, end_, kind, cause, ops, tuple(runs), self.result.device.clock_hz)

    def inputs(self, run: NetworkRun) -> tuple[np.ndarray, np.ndarray]:
        """(ops, batch) start and end of every op and input."""
        count = len(self.built.parts)
        turn, within = np.divmod(np.arange(self.batch), self.per_run)
        first = np.flatnonzero(np.diff(self.owner, prepend=-1))
        epoch = self.epoch[first]
        once = self.once[epoch]
        within = np.where(once[:, None], 0, within)
        shift = np.where(once[:, None], self.starts[-1, epoch][:, None], self.starts[turn][:, epoch].T)
        start, end = (
            np.take_along_axis(each, within, axis=1) + shift
            for each in (
                np.minimum.reduceat(run.start[:count], first, axis=0),
                np.maximum.reduceat(run.end[:count], first, axis=0),
            )
        )
        start[once, 1:] = end[once, 1:]
        return start, end

    def levels(self, run: NetworkRun, start: np.ndarray, end: np.ndarray) -> Levels:
        """What fills of buffers are computed from, on demand."""
        names, temporal = self.built.names, {n: e.temporal for e in self.result.placement.epochs for n in e.ops}
        number = {name: i for i, name in enumerate(names)}
        feeds = tuple(
            (number[source], number[name], port)
            for name in names
            for port, source in enumerate(self.result.lowered[name].sources)
            if source in number and temporal[source] != temporal[name]
        )
        return Levels(run, names, self.owner, self.epoch, self.starts, self.counts, start, end, feeds)

    def times(self, run: NetworkRun) -> tuple[EpochTimes, ...]:
        times = []
        cycles = np.array([c.cycles for c in self.built.costs], dtype=np.int64)
        for at, epoch in enumerate(self.result.placement.epochs):
            mine = np.unique(self.owner[self.epoch == epoch.index])
            inputs = 1 if self.once[at] else self.per_run
            done, half = self.done[at, :inputs], (inputs - 1) // 2
            worst = int(mine[cycles[mine].argmax()]) if len(mine) else -1
            slowest = int(cycles[worst]) if len(mine) else 0
            total, rest = int(done[-1]), (inputs - 1) * slowest
            stall = max(0, total - int(done[0]) - rest)
            start = int(self.starts[-1 if self.once[at] else 0, at])
            times.append(
                EpochTimes(
                    epoch.index,
                    epoch.chip,
                    start,
                    start + total,
                    self.constants.switch,
                    total - rest - slowest - stall,
                    stall,
                    slowest,
                    self.built.names[worst] if len(mine) else "",
                    float(done[-1] - done[half]) / (inputs - 1 - half) if inputs > 1 else float(slowest),
                    tuple(dict.fromkeys(run.network.ops[i].name for i in run.chains[at].ops)),
                )
            )
        return tuple(times)


def _waits(trace: Trace, built: BuiltNetwork, batch: int) -> np.ndarray:
    count, kinds = len(built.parts), len(WaitKind)
    cell = (trace.op.astype(np.int64) * batch + trace.input) * kinds + trace.kind
    total = np.bincount(cell, trace.end - trace.start, count * batch * kinds).reshape(count, batch, kinds)
    owner = np.array([part.op for part in built.parts], dtype=np.int64)
    share = np.array([part.cores[2] * part.cores[3] for part in built.parts], dtype=np.float64)
    share /= np.bincount(owner, share)[owner]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    mean: np.ndarray = np.add.reduceat(total * share[:, None, None], first, axis=0)
    return mean


def _op_waits(trace: Trace, built: BuiltNetwork, waits: np.ndarray) -> tuple[OpWaits, ...]:
    count = len(built.names)
    owner = np.array([part.op for part in built.parts], dtype=np.int64)
    totals = np.rint(waits.sum(axis=1)).astype(np.int64)
    blamed = {}
    for kind in (WaitKind.INPUT, WaitKind.SPACE):
        chosen = (trace.kind == kind) & (trace.cause >= 0)
        pairs, where = np.unique(owner[trace.op[chosen]] * count + owner[trace.cause[chosen]], return_inverse=True)
        cycles = np.bincount(where, (trace.end - trace.start)[chosen], len(pairs))
        names = [""] * count
        for at in np.argsort(cycles, kind="stable").tolist():
            names[int(pairs[at]) // count] = built.names[int(pairs[at]) % count]
        blamed[kind] = names
    return tuple(
        OpWaits(name, compute, data, space, dram, host, blamed[WaitKind.INPUT][i], blamed[WaitKind.SPACE][i])
        for i, (name, (compute, data, space, dram, host)) in enumerate(zip(built.names, totals.tolist(), strict=True))
    )
