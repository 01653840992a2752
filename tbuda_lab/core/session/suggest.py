"""Single edits worth making: found in the tables and the schedule, proven by what-if (nops: by simulation)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.placer.segment import Segment, measure
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import ResizeOp
from tbuda_lab.core.session.hints import hints, nops
from tbuda_lab.core.session.placing import Placed
from tbuda_lab.core.session.whatif import WhatIf

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session

_PER_EPOCH = 6
_OF_A_KIND = 3  # edits of one kind and epoch in the list, as long as there are others
_TIED = 0.95  # ops with the same candidates that take nearly as long as the slowest are resized together


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """An edit (`apply(*commands)`), what the tables promise, and what it does. Cycles per input.

    kind: "resize" (one op, or equal ops that limit their epoch together: fewer of them would gain nothing), "move" (an
    op into another epoch), "split" and "merge" (an epoch break set or taken away), "stream", "u_kt", "free" (an
    override taken away) or "nop". cycles: of all epochs before and after; for a nop, which only buffers, as simulated.
    """

    commands: tuple[Command, ...]
    epoch: int
    estimated_gain: int
    gain: float
    effect: WhatIf
    kind: str = "resize"
    simulated: tuple[int, int] | None = None

    @property
    def cycles(self) -> tuple[int, int]:
        return self.simulated or self.effect.total_cycles

    @property
    def label(self) -> str:
        """What it does, in words."""
        first, rest = self.commands[0], len(self.commands) - 1
        if isinstance(first, ResizeOp):
            more = f" and {rest} like it" if rest else ""
            return f"resize {first.op}{more} to {first.size[0]}x{first.size[1]}"
        return ", ".join(c.label for c in self.commands)

    @property
    def text(self) -> str:
        before, after = self.cycles
        return f"{self.label}: {before} -> {after} cycles"


def suggestions(session: Session, n: int) -> list[Suggestion]:
    """The best `n` of at most `2 n + 8` resizes, most promising first, and of the other kinds for the slowest epochs.
    No more resizes are tried once `n` are known that save what the next one promises."""
    placed = session.placed()
    tried = [*_resizes(session, placed, n), *_others(session, placed)]
    tried.sort(key=lambda s: (-s.gain, s.epoch, s.label))
    first: list[Suggestion] = []
    rest: list[Suggestion] = []
    for one in tried:
        alike = sum(s.kind == one.kind and s.epoch == one.epoch for s in first)
        (first if alike < _OF_A_KIND else rest).append(one)
    chosen = (first + rest)[:n]
    return sorted(chosen, key=lambda s: (-s.gain, s.epoch, s.label))


def _others(session: Session, placed: Placed) -> Iterator[Suggestion]:
    for hint in hints(session, placed, lambda index: _op_cycles(placed, placed.segments[index])):
        try:
            effect = session.whatif(*hint.commands, queues=False)
        except TbudaError:
            continue
        if effect.gain > 0:
            yield Suggestion(hint.commands, hint.epoch, int(effect.gain), effect.gain, effect, hint.kind)
    for hint, before, after in nops(session):
        if after < before:
            effect = session.whatif(*hint.commands, queues=False)
            gain = before - after
            yield Suggestion(hint.commands, hint.epoch, gain, float(gain), effect, hint.kind, (before, after))


def _resizes(session: Session, placed: Placed, n: int) -> list[Suggestion]:
    """Only what limits its epoch is worth resizing."""
    promising: list[tuple[float, int, tuple[ResizeOp, ...]]] = []
    found: list[Suggestion] = []
    for index, segment in enumerate(placed.segments):
        cycles = _op_cycles(placed, segment)
        slowest = max(cycles, key=lambda op: (cycles[op], -op))
        tables = placed.problem.tables
        tied = [
            op
            for op, took in cycles.items()
            if took >= _TIED * cycles[slowest] and tables[op].signature == tables[slowest].signature
        ]
        others = max((took for op, took in cycles.items() if op not in tied), default=0.0)
        shapes = session.legal(placed.problem.order[slowest]).shapes
        after = np.maximum(shapes["limiter_cycles"], others)
        good = (shapes["verdict"] == 0) & (after < segment.limiter_cycles)
        where, gains = np.argwhere(good), segment.limiter_cycles - after[good]
        # equal gains: fewer cores first, they displace less
        for i in np.lexsort((shapes["cores"][good], -gains))[:_PER_EPOCH].tolist():
            size = (int(where[i, 0]) + 1, int(where[i, 1]) + 1)
            commands = tuple(ResizeOp(placed.problem.order[op], size) for op in tied)
            promising.append((float(gains[i]), index, commands))
    promising.sort(key=lambda p: (-p[0], p[1], p[2][0].size))
    for gain, index, commands in promising[: 2 * n + 8]:
        if len(found) >= n and sorted(s.gain for s in found)[-n] >= gain:
            break
        try:
            effect = session.whatif(*commands, queues=False)
        except TbudaError:
            continue
        if effect.gain > 0:
            found.append(Suggestion(commands, index, int(gain), effect.gain, effect))
    return found


def _op_cycles(placed: Placed, segment: Segment) -> dict[int, float]:
    """Limiter cycles of every op of an epoch."""
    problem = placed.problem
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    load = measure(problem, segment.first, segment.last, rows)[2]
    return {
        op: float(problem.row_limits(op, *problem.places(op, segment.first, segment.last), load)[row])
        for op, row in rows.items()
    }
