"""Edits worth trying besides resizes: epochs split and joined, ops moved in time, other streams and inner steps,
overrides let go, nops where the simulator sees an epoch wait."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import Cancelled, PlacementError, TbudaError
from tbuda_lab.core.placer.interactive.placed import Placed
from tbuda_lab.core.session.batch_times import paces_of
from tbuda_lab.core.session.choices import inner_steps, streams_of
from tbuda_lab.core.session.commands import ClearOp, Command, EpochBreak, InsertNop, ResizeOp, SetUkt, StreamOp
from tbuda_lab.core.session.temporal import epochs_of, into_epoch, state_after

if TYPE_CHECKING:
    from tbuda_lab.core.compiler import Request
    from tbuda_lab.core.session.session import Session

EPOCHS = 4
"""Kinds of epochs that are looked at, the slowest ones."""

CUTS = 2
"""Cuts of an epoch that are tried beside the plain ones, the most promising."""

STALLS = 2
"""Stalls for which a nop is tried: each takes a placement and a simulation."""

BATCH = 8
"""Most inputs that are simulated to see what a nop gives."""

_TARGETS = 96
_GOES = ("op_size", "u_kt", "t_stream_dir", "t_stream_shape")


@dataclasses.dataclass(frozen=True)
class Hint:
    """An edit that might gain. epoch: where it is about. bound: cycles per input that it gains at most, by the tables
    alone (infinite where they do not tell)."""

    kind: str
    epoch: int
    commands: tuple[Command, ...]
    bound: float = math.inf

    def shifted(self, placed: Placed, epoch: int, to: int) -> Hint:
        """The same resizes in an epoch that is alike."""
        order, number = placed.problem.order, placed.problem.number
        by = placed.segments[to].first - placed.segments[epoch].first
        sizes = [(c.op, c.size) for c in self.commands if isinstance(c, ResizeOp)]
        return Hint(self.kind, to, tuple(ResizeOp(order[number[op] + by], size) for op, size in sizes), self.bound)


def alike(placed: Placed) -> list[list[int]]:
    """Epochs (indices) of which nothing but the names of the ops differs, in lists; slowest first. What earlier epochs
    look like is left out, so what holds for one of them is only expected of the others."""
    matches: dict[object, list[int]] = {}
    for index, segment in enumerate(placed.segments):
        key = placed.problem.structure(segment.first, segment.last), segment.rows, segment.spots
        matches.setdefault(key, []).append(index)
    return sorted(matches.values(), key=lambda same: (-placed.segments[same[0]].limiter_cycles, same[0]))


def hints(
    session: Session, placed: Placed, kinds: Sequence[Sequence[int]], cancel: threading.Event | None = None
) -> Iterator[Hint]:
    """What could be tried, with bounds. kinds: of `alike`. What the schedule does not allow is left out."""
    order = placed.problem.order
    for override in session.overrides:
        if override.kind == "epoch_break" and isinstance(override.target, str):
            index = _starts(placed).get(override.target)
            if index:
                yield Hint("merge", index - 1, (EpochBreak(override.target, on=False),))
    for index in [same[0] for same in kinds[:EPOCHS]]:
        took, segment = placed.epoch(index).now(), placed.segments[index]
        worst = segment.first + int(took.argmax())
        name = order[worst]
        for override in session.overrides:
            if override.target == name and override.kind in _GOES:
                yield Hint("free", index, (ClearOp(name, (override.kind,)),))
        yield from _splits(placed, index, worst)
        yield from _settings(session, placed, name, index)
        # without it the epoch takes what its next op takes; an epoch that makes room for it gets no faster
        rest = float(np.delete(took, worst - segment.first).max(initial=0.0))
        if segment.limiter_cycles > rest:
            yield from _in_time(session, placed, name, index, segment.limiter_cycles - rest, cancel)


def _starts(placed: Placed) -> dict[str, int]:
    return {placed.problem.order[s.first]: i for i, s in enumerate(placed.segments)}


def _in_time(
    session: Session, placed: Placed, op: str, index: int, bound: float, cancel: threading.Event | None
) -> Iterator[Hint]:
    """The op into another epoch, the one with the most cores left first."""
    used = [float(placed.epoch(i).cores.sum()) for i in range(len(placed.segments))]
    others = sorted((e for e in epochs_of(placed, op) if e != index), key=lambda e: (used[e], e))
    for epoch in others[:2]:
        if cancel is not None and cancel.is_set():
            raise Cancelled("looking for edits was cancelled")
        try:
            yield Hint("move", index, into_epoch(session, op, epoch), bound)
        except TbudaError:
            continue


def _splits(placed: Placed, index: int, worst: int) -> Iterator[Hint]:
    """A break where it could gain most, in the middle of the epoch's work, before its slowest op, and behind it."""
    segment, problem, facts = placed.segments[index], placed.problem, placed.epoch(index)
    if segment.last - segment.first < 2:
        return
    options = problem.options
    work = (facts.kernel * facts.cores).cumsum()
    middle = segment.first + int(np.searchsorted(work, work[-1] / 2))
    least = split_bounds(placed, index)
    gains = segment.limiter_cycles - least - options.epoch_switch_cycles / options.inputs_counted
    best = segment.first + 1 + np.argsort(-gains, kind="stable")[:CUTS]
    for cut in dict.fromkeys((*best.tolist(), middle, worst, worst + 1)):
        if segment.first < cut < segment.last and gains[cut - segment.first - 1] > 0:
            bound = float(gains[cut - segment.first - 1])
            yield Hint("split", index, (EpochBreak(problem.order[cut]),), bound)


def split_bounds(placed: Placed, index: int) -> np.ndarray:
    """(ops - 1,) cycles per input that the two parts of an epoch take at least, by where it is cut: each part is given
    the whole device, rectangles are liquid, DRAM is idle, and what is read from the other part costs nothing more."""
    problem, segment, places = placed.problem, placed.segments[index], placed.epoch(index).places
    fronts = [problem.frontier(op, *places[op], 0) for op in range(segment.first, segment.last)]
    low = min(float(f.cycles[-1]) for f in fronts)
    high = max(float(f.cycles[0]) for f in fronts)
    targets = np.geomspace(max(1.0, low), max(high, low + 1.0), _TARGETS)
    needed = np.empty((len(fronts), _TARGETS))
    for at, front in enumerate(fronts):
        row = np.searchsorted(-front.cycles, -targets, side="left")
        needed[at] = np.append(front.cores, problem.cores + 1)[row]
    sums = needed.cumsum(axis=0)
    parts = sums[:-1], sums[-1] - sums[:-1]
    # between two targets the lower one counts
    steps = [(part > problem.cores).sum(axis=1) - 1 for part in parts]
    least: np.ndarray = sum((np.where(s >= 0, targets[s], low) for s in steps), np.zeros(len(fronts) - 1))
    return least


def _settings(session: Session, placed: Placed, op: str, index: int) -> Iterator[Hint]:
    """The fastest inner step and stream at the op's shape, where the kernel is faster with them than it is."""
    number = placed.problem.number[op]
    row = placed.problem.tables[number].rows[placed.epoch(index).rows[number]]
    now, stream = int(row["cycles"]), (str(row["stream"]) or "n", int(row["stream_r"]), int(row["stream_c"]))
    took = placed.segments[index].limiter_cycles
    try:
        steps = [(cycles, value) for value, cycles in inner_steps(session, op) if cycles < now]
        streams = [(cycles, way) for way, cycles in streams_of(session, op) if cycles < now and way != stream]
    except TbudaError:
        return
    if steps:
        yield Hint("u_kt", index, (SetUkt(op, min(steps)[1]),), took)
    if streams:
        way, rows, cols = min(streams)[1]
        yield Hint("stream", index, (StreamOp(op, way, None if way == "n" else (rows, cols)),), took)


def nops(
    session: Session, placed: Placed, kinds: Sequence[Sequence[int]], cancel: threading.Event | None = None
) -> Iterator[tuple[Hint, int, int]]:
    """(a nop on the short side of a stall that slows an epoch down, simulated cycles per input before and after).

    Simulated are the inputs of a microbatch, `BATCH` at most. With one input at a time nothing flows that could wait.
    """
    batch = min(BATCH, placed.problem.options.microbatch)
    if batch < 2:
        return
    try:
        before, stalls = simulated(session, placed, None, batch)
    except PlacementError:
        return
    turn = {index: at for same in kinds for at, index in enumerate(same)}  # of epochs that are alike one comes first
    for stall in sorted(stalls, key=lambda s: (turn[s.epoch], -s.cycles, s.fork))[:STALLS]:
        command = InsertNop(stall.fork, (stall.reader,))
        try:
            state = state_after(session, command)
            after, _ = simulated(session, session.placed(state, cancel), state, batch)
        except Cancelled:
            raise
        except TbudaError:
            continue
        yield Hint("nop", stall.epoch, (command,)), before // batch, after // batch


def simulated(session: Session, placed: Placed, state: Request | None, batch: int) -> tuple[int, list[SpaceWait]]:
    """(cycles of a batch that each epoch takes in one go, as `epochsim.simulate` has them; the stalls that slow an
    epoch down) of a placement. state: what it is of, None for the current one."""
    if len(placed.problem.device.chips) == 1:
        paces, order = paces_of(placed, batch), placed.problem.order
        stalls = [
            SpaceWait(index, stall.cycles, order[s.first + stall.fork], order[s.first + stall.reader])
            for index, (s, pace) in enumerate(zip(placed.segments, paces, strict=True))
            for stall in pace.stalls
        ]
        return sum(pace.cycles for pace in paces), stalls
    result = session.compile() if state is None else session.preview(state)
    trace = simulate(result, batch)
    return trace.cycles, [
        SpaceWait(s.epoch, s.cycles, s.fork, s.short[0] if s.short else s.join) for s in trace.stalls if s.critical
    ]


class SpaceWait(NamedTuple):
    """An op that waits for room towards one of its readers, `cycles` in a batch."""

    epoch: int
    cycles: int
    fork: str
    reader: str
