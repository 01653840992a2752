"""Single edits worth making: found in the tables and the schedule, proven by what-if (nops: by simulation)."""

from __future__ import annotations

import dataclasses
import heapq
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.errors import Cancelled, TbudaError
from tbuda_lab.core.placer.interactive.placed import Placed
from tbuda_lab.core.session.commands import Command, ResizeOp
from tbuda_lab.core.session.hints import Hint, alike, hints, nops
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
        return f"{self.label}: {before:,} -> {after:,} cycles"


Told = Callable[[list[Suggestion], float], None]
"""Is told the best suggestions so far and the fraction of the search that is done."""


class Search:
    """One search for the best `n` edits of the current placement.

    Epochs that are alike (equal layers) are looked at once: what the first of them gains, the others are expected to,
    and are tried only if they come into the list with that. An edit is tried if its bound, from the tables alone, is
    more than the n-th best gain known.
    """

    def __init__(
        self, session: Session, n: int, progress: Told | None, cancel: threading.Event | None, seconds: float | None
    ) -> None:
        self.session, self.n, self.progress, self.cancel = session, n, progress, cancel
        self.end = None if seconds is None else time.monotonic() + seconds
        self.suggestions: list[Suggestion] = []
        self.placed = session.placed()

    def run(self) -> list[Suggestion]:
        """The best edits; those known when the time is over. Raises `Cancelled`."""
        kinds = alike(self.placed)
        for fraction, step in ((0.05, self._resizes), (0.5, self._others), (0.85, self._nops)):
            if self._late(fraction):
                break
            step(kinds)
        return self.best()

    def best(self) -> list[Suggestion]:
        """The best `n` so far, at first a few of each kind and epoch."""
        first: list[Suggestion] = []
        rest: list[Suggestion] = []
        for one in sorted(self.suggestions, key=_order):
            same = sum(s.kind == one.kind and s.epoch == one.epoch for s in first)
            (first if same < _OF_A_KIND else rest).append(one)
        return sorted((first + rest)[: self.n], key=_order)

    def _late(self, fraction: float) -> bool:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled("looking for edits was cancelled")
        if self.progress is not None:
            self.progress(self.best(), fraction)
        return self.end is not None and time.monotonic() >= self.end

    def _worth(self, bound: float, found: Sequence[Suggestion]) -> bool:
        return len(found) < self.n or sorted(s.gain for s in found)[-self.n] < bound

    def _tried(self, hint: Hint) -> Suggestion | None:
        """What an edit does, None if it gains nothing or is not legal."""
        try:
            effect = self.session.whatif(*hint.commands, queues=False, cancel=self.cancel)
        except Cancelled:
            raise
        except TbudaError:
            return None
        if effect.gain <= 0:
            return None
        promised = effect.gain if hint.bound == np.inf else hint.bound
        return Suggestion(hint.commands, hint.epoch, int(promised), effect.gain, effect, hint.kind)

    def _resizes(self, kinds: Sequence[Sequence[int]]) -> None:
        """Resizes of what limits its epoch, most promising first; at most `2 n + 8` are tried."""
        queue: list[tuple[float, int, int, int]] = []  # -bound, epoch, of its resizes, kind
        result: dict[int, list[Hint]] = {}
        for kind, epochs in enumerate(kinds):
            result[kind] = resizes(self.session, self.placed, epochs[0])
            queue += [(-hint.bound, epochs[0], at, kind) for at, hint in enumerate(result[kind])]
        heapq.heapify(queue)
        matches: list[Suggestion] = []
        tried, most = 0, 2 * self.n + 8
        while queue and tried < most:
            bound, epoch, at, kind = heapq.heappop(queue)
            if not self._worth(-bound, matches) or self._late(0.1 + 0.4 * tried / most):
                break
            first = kinds[kind][0]
            hint = result[kind][at]
            one = self._tried(hint if epoch == first else hint.shifted(self.placed, first, epoch))
            tried += 1
            if one is not None:
                matches.append(one)
                self.suggestions.append(one)
                if epoch == first:
                    for other in kinds[kind][1:]:
                        heapq.heappush(queue, (-one.gain, other, at, kind))

    def _others(self, kinds: Sequence[Sequence[int]]) -> None:
        every = list(hints(self.session, self.placed, kinds, self.cancel))
        every.sort(key=lambda hint: -hint.bound)
        for count, hint in enumerate(every):
            if not self._worth(hint.bound, self.suggestions) and hint.bound < np.inf:
                continue
            if self._late(0.5 + 0.35 * count / len(every)):
                return
            one = self._tried(hint)
            if one is not None:
                self.suggestions.append(one)

    def _nops(self, kinds: Sequence[Sequence[int]]) -> None:
        for hint, before, after in nops(self.session, self.placed, kinds, self.cancel):
            effect = self.session.whatif(*hint.commands, queues=False, cancel=self.cancel)
            gain = before - after
            if gain > 0:
                simulated = before, after
                self.suggestions.append(Suggestion(hint.commands, hint.epoch, gain, float(gain), effect, "nop",
                    simulated))
            if self._late(0.9):
                return


def _order(one: Suggestion) -> tuple[float, int, str]:
    return -one.gain, one.epoch, one.label


def suggestions(
    session: Session,
    n: int,
    progress: Told | None = None,
    cancel: threading.Event | None = None,
    seconds: float | None = None,
) -> list[Suggestion]:
    """The best `n` edits: see `Search`, `Session.suggest`."""
    return Search(session, n, progress, cancel, seconds).run() if n > 0 else []


def resizes(session: Session, placed: Placed, index: int) -> list[Hint]:
    """Resizes of the op that limits an epoch, and of those that take as long; the best few by what the tables say."""
    segment, facts = placed.segments[index], placed.epoch(index)
    took = facts.now()
    order, tables = placed.problem.order, placed.problem.tables
    worst = int(took.argmax())
    slowest = segment.first + worst
    same = np.array([tables[op].signature == tables[slowest].signature for op in facts.rows])
    tied = same & (took >= _TIED * took[worst])
    others = took[~tied].max(initial=0.0)
    shapes = session.legal(order[slowest]).shapes
    after = np.maximum(shapes["limiter_cycles"], others)
    good = (shapes["verdict"] == 0) & (after < segment.limiter_cycles)
    where, gains = np.argwhere(good), segment.limiter_cycles - after[good]
    resizes = []
    # equal gains: fewer cores first, they displace less
    for i in np.lexsort((shapes["cores"][good], -gains))[:_PER_EPOCH].tolist():
        size = (int(where[i, 0]) + 1, int(where[i, 1]) + 1)
        commands = tuple(ResizeOp(order[segment.first + at], size) for at in np.flatnonzero(tied).tolist())
        resizes.append(Hint("resize", index, commands, float(gains[i])))
    return resizes
