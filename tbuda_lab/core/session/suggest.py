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
    from tbuda_lab.core.session.session import Session

_PER_OP = 6


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """An edit, what the table of its op promises, and what it does. Cycles per input."""

    command: ResizeOp
    epoch: int
    estimated_gain: int
    gain: float
    effect: WhatIf

    @property
    def text(self) -> str:
        before, after = self.effect.total_cycles
        return f"{self.command.label}: {before} -> {after} cycles"


def suggestions(session: Session, n: int) -> list[Suggestion]:
    """The best `n` of at most `4 n + 8` edits that are tried; only an op that limits its epoch is worth resizing."""
    placed = session.placed()
    promising: list[tuple[float, int, ResizeOp]] = []
    for index, segment in enumerate(placed.segments):
        problem = placed.problem
        slowest = problem.order[_slowest(placed, segment)]
        table = session.legal(slowest)
        shapes = table.shapes
        good = (shapes["verdict"] == 0) & (shapes["epoch_cycles"] < segment.limiter_cycles)
        where = np.argwhere(good)
        gains = segment.limiter_cycles - shapes["epoch_cycles"][good]
        # equal gains: fewer cores first, they displace less
        order = np.lexsort((shapes["cores"][good], -gains))[:_PER_OP]
        for i in order.tolist():
            size = (int(where[i, 0]) + 1, int(where[i, 1]) + 1)
            promising.append((float(gains[i]), index, ResizeOp(slowest, size)))
    promising.sort(key=lambda p: (-p[0], p[1], p[2].size))
    found: list[Suggestion] = []
    for gain, index, command in promising[: 4 * n + 8]:
        try:
            effect = session.whatif(command)
        except TbudaError:
            continue
        if effect.gain > 0:
            found.append(Suggestion(command, index, int(gain), effect.gain, effect))
    found.sort(key=lambda s: (-s.gain, s.epoch, s.command.op, s.command.size))
    return found[:n]


def _slowest(placed: Placed, segment: Segment) -> int:
    """The op that limits an epoch."""
    problem = placed.problem
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    load = measure(problem, segment.first, segment.last, rows)[2]

    def cycles(op: int) -> float:
        return float(problem.row_limits(op, *problem.places(op, segment.first, segment.last), load)[rows[op]])

    return max(rows, key=lambda op: (cycles(op), -op))
