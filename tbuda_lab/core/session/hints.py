"""Edits worth trying besides resizes: epochs split and joined, ops moved in time, other streams and inner steps,
overrides let go, nops where the simulator sees an epoch wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.session.choices import choices_of
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import ClearOp, EpochBreak, SetUkt, StreamOp
from tbuda_lab.core.session.graphedits import InsertNop
from tbuda_lab.core.session.placing import Placed
from tbuda_lab.core.session.temporal import epochs_of, into_epoch, state_after

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session

EPOCHS = 4
"""Epochs that are looked at, the slowest ones."""

STALLS = 2
"""Stalls for which a nop is tried: each takes a compile and a simulation."""

BATCH = 8
"""Inputs that are simulated to see what a nop gives."""

_GOES = ("op_size", "u_kt", "t_stream_dir", "t_stream_shape")


@dataclasses.dataclass(frozen=True)
class Hint:
    """An edit that might gain. epoch: where it is about."""

    kind: str
    epoch: int
    commands: tuple[Command, ...]


def hints(session: Session, placed: Placed, cycles: Callable[[int], Mapping[int, float]]) -> Iterator[Hint]:
    """cycles: limiter cycles by op of an epoch. What the schedule does not allow is left out."""
    order = placed.problem.order
    for override in session.overrides:
        if override.kind == "epoch_break" and isinstance(override.target, str):
            index = _starts(placed).get(override.target)
            if index:
                yield Hint("merge", index - 1, (EpochBreak(override.target, on=False),))
    slowest = sorted(range(len(placed.segments)), key=lambda i: (-placed.segments[i].limiter_cycles, i))[:EPOCHS]
    for index in slowest:
        took = cycles(index)
        worst = max(took, key=lambda op: (took[op], -op))
        name = order[worst]
        for override in session.overrides:
            if override.target == name and override.kind in _GOES:
                yield Hint("free", index, (ClearOp(name, (override.kind,)),))
        yield from _in_time(session, placed, name, index)
        yield from _splits(placed, index, worst)
        yield from _settings(session, placed, name, index)


def _starts(placed: Placed) -> dict[str, int]:
    return {placed.problem.order[s.first]: i for i, s in enumerate(placed.segments)}


def _in_time(session: Session, placed: Placed, op: str, index: int) -> Iterator[Hint]:
    """The op into another epoch, the one with the most cores left first."""
    used = [sum(int(placed.problem.tables[o].rows["cores"][r]) for o, r in zip(range(s.first, s.last), s.rows,
            strict=True)) for s in placed.segments]  # fmt: skip
    others = sorted((e for e in epochs_of(placed, op) if e != index), key=lambda e: (used[e], e))
    for epoch in others[:2]:
        try:
            yield Hint("move", index, into_epoch(session, op, epoch))
        except TbudaError:
            continue


def _splits(placed: Placed, index: int, worst: int) -> Iterator[Hint]:
    """A break in the middle of the epoch's work, before its slowest op, and behind it."""
    segment, problem = placed.segments[index], placed.problem
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    work = {op: float(problem.tables[op].rows["cycles"][r]) * float(problem.tables[op].rows["cores"][r])
            for op, r in rows.items()}  # fmt: skip
    half, so_far, middle = sum(work.values()) / 2, 0.0, segment.first
    for op, own in work.items():
        so_far += own
        if so_far >= half:
            middle = op
            break
    for cut in dict.fromkeys((middle, worst, worst + 1)):
        if segment.first < cut < segment.last:
            yield Hint("split", index, (EpochBreak(problem.order[cut]),))


def _settings(session: Session, placed: Placed, op: str, index: int) -> Iterator[Hint]:
    """The fastest inner step and stream at the op's shape, where the kernel is faster with them than it is."""
    number = placed.problem.number[op]
    row = placed.segments[index].rows[number - placed.segments[index].first]
    now = int(placed.problem.tables[number].rows["cycles"][row])
    try:
        found = choices_of(session, op)
    except TbudaError:
        return
    steps = [(cycles, value) for value, cycles in found.u_kt if cycles < now]
    if steps:
        yield Hint("u_kt", index, (SetUkt(op, min(steps)[1]),))
    streams = [(cycles, stream) for stream, cycles in found.streams if cycles < now and stream != found.now["stream"]]
    if streams:
        way, rows, cols = min(streams)[1]
        yield Hint("stream", index, (StreamOp(op, way, None if way == "n" else (rows, cols)),))


def nops(session: Session) -> Iterator[tuple[Hint, int, int]]:
    """(a nop on the short side of a stall that slows an epoch down, simulated cycles per input before and after)."""
    if session.result is None or session.stale:
        return
    trace = session.timeline(BATCH)
    worst = sorted((s for s in trace.stalls if s.critical), key=lambda s: (-s.cycles, s.fork))
    for stall in worst[:STALLS]:
        command = InsertNop(stall.fork, (stall.short[0] if stall.short else stall.join,))
        try:
            after = session.preview(state_after(session, command))
        except TbudaError:
            continue
        yield Hint("nop", stall.epoch, (command,)), trace.cycles // BATCH, simulate(after, BATCH).cycles // BATCH
