"""Single edits worth making: found in the tables, proven by what-if."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.placer.segment import Segment, measure
from tbuda_lab.core.session.commands import ResizeOp
from tbuda_lab.core.session.placing import Placed
from tbuda_lab.core.session.whatif import WhatIf

if TYPE_CHECKING:
    from tbuda_lab.core.session.questions import Questions

_PER_EPOCH = 6
_TIED = 0.95  # ops with the same candidates that take nearly as long as the slowest are resized together


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """An edit (`apply(*commands)`), what the tables promise, and what it does. Cycles per input.

    It is one resize, or the same resize of equal ops that limit their epoch together: fewer of them would gain nothing.
    """

    commands: tuple[ResizeOp, ...]
    epoch: int
    estimated_gain: int
    gain: float
    effect: WhatIf

    @property
    def text(self) -> str:
        first, rest = self.commands[0], len(self.commands) - 1
        before, after = self.effect.total_cycles
        more = f" and {rest} like it" if rest else ""
        return f"resize {first.op}{more} to {first.size[0]}x{first.size[1]}: {before} -> {after} cycles"


def suggestions(session: Questions, n: int) -> list[Suggestion]:
    """The best `n` of at most `2 n + 8` edits that are tried, most promising first; only what limits its epoch is worth
    resizing. No more are tried once `n` are known that save what the next one promises."""
    placed = session.placed()
    promising: list[tuple[float, int, tuple[ResizeOp, ...]]] = []
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
    found: list[Suggestion] = []
    for gain, index, commands in promising[: 2 * n + 8]:
        if len(found) >= n and sorted(s.gain for s in found)[-n] >= gain:
            break
        try:
            effect = session.whatif(*commands, queues=False)
        except TbudaError:
            continue
        if effect.gain > 0:
            found.append(Suggestion(commands, index, int(gain), effect.gain, effect))
    found.sort(key=lambda s: (-s.gain, s.epoch, s.commands[0].op, s.commands[0].size))
    return found[:n]


def _op_cycles(placed: Placed, segment: Segment) -> dict[int, float]:
    """Limiter cycles of every op of an epoch."""
    problem = placed.problem
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    load = measure(problem, segment.first, segment.last, rows)[2]
    return {
        op: float(problem.row_limits(op, *problem.places(op, segment.first, segment.last), load)[row])
        for op, row in rows.items()
    }
