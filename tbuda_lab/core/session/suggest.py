"""Single edits worth making: candidates from tables, schedule and simulated stalls, each proven by what-if."""

from __future__ import annotations

import dataclasses
import heapq
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import Cancelled, PlacementError, TbudaError
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import ClearOp, EpochBreak, InsertNop, ResizeOp, SetUkt, StreamOp
from tbuda_lab.core.session.compiles import Compiles
from tbuda_lab.core.session.legal import inner_steps, legal_of, streams_of
from tbuda_lab.core.session.temporal import epochs_of, into_epoch
from tbuda_lab.core.session.whatif import WhatIf, epoch_cycles_of, time_of

if TYPE_CHECKING:
    from tbuda_lab.core.compiler import Request


EPOCHS = 4
"""Kinds of epochs that are looked at, the slowest ones."""

CUTS = 2
"""Cuts of an epoch that are tried beside the plain ones, the most promising."""

STALLS = 2
"""Stalls for which a nop is tried: each takes a placement and a simulation."""

BATCH = 8
"""Inputs that are simulated to see what a nop gives where the session is compiled for one; those of a timeline."""

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

    def for_epoch(self, placed: PlacedOps, epoch: int, to: int) -> Hint:
        """The same resizes in an epoch that is alike."""
        order, number = placed.problem.order, placed.problem.number
        by = placed.segments[to].first - placed.segments[epoch].first
        sizes = [(c.op, c.size) for c in self.commands if isinstance(c, ResizeOp)]
        return Hint(self.kind, to, tuple(ResizeOp(order[number[op] + by], size) for op, size in sizes), self.bound)


def alike(placed: PlacedOps) -> list[list[int]]:
    """Epochs (indices) of which nothing but the names of the ops differs, in lists; slowest first. What earlier epochs
    look like is left out, so what holds for one of them is only expected of the others."""
    by_structure: dict[object, list[int]] = {}
    for index, segment in enumerate(placed.segments):
        key = placed.problem.structure(segment.first, segment.last), segment.rows, segment.spots
        by_structure.setdefault(key, []).append(index)
    return sorted(by_structure.values(), key=lambda same: (-placed.segments[same[0]].limiter_cycles, same[0]))


def hints(
    compiles: Compiles, placed: PlacedOps, kinds: Sequence[Sequence[int]], cancel: threading.Event | None = None
) -> Iterator[Hint]:
    """What could be tried, with bounds. kinds: of `alike`. What the schedule does not allow is left out."""
    order = placed.problem.order
    for override in compiles.request.overrides:
        if override.kind == "epoch_break" and isinstance(override.target, str):
            index = _starts(placed).get(override.target)
            if index:
                yield Hint("merge", index - 1, (EpochBreak(override.target, on=False),))
    times = time_of(placed).epochs
    for index in [same[0] for same in kinds[:EPOCHS]]:
        took, segment = placed.epoch(index).now(), placed.segments[index]
        worst = segment.first + int(took.argmax())
        name = order[worst]
        marked = segment.first + times[index].longest if times[index].longest >= 0 else worst
        for op in dict.fromkeys((name, order[marked])):
            for override in compiles.request.overrides:
                if override.target == op and override.kind in _GOES:
                    yield Hint("free", index, (ClearOp(op, (override.kind,)),))
            yield from _settings(compiles, placed, op, index)
        yield from _splits(placed, index, worst)
        # without it the epoch takes what its next op takes; an epoch that makes room for it gets no faster
        rest_cycles = float(np.delete(took, worst - segment.first).max(initial=0.0))
        if segment.limiter_cycles > rest_cycles:
            yield from _in_time(compiles, placed, name, index, segment.limiter_cycles - rest_cycles, cancel)


def _starts(placed: PlacedOps) -> dict[str, int]:
    return {placed.problem.order[s.first]: i for i, s in enumerate(placed.segments)}


def _in_time(
    compiles: Compiles, placed: PlacedOps, op: str, index: int, bound: float, cancel: threading.Event | None
) -> Iterator[Hint]:
    """The op into another epoch, the one with the most cores left first."""
    used = [float(placed.epoch(i).cores.sum()) for i in range(len(placed.segments))]
    others = sorted((e for e in epochs_of(placed, op) if e != index), key=lambda e: (used[e], e))
    for epoch in others[:2]:
        if cancel is not None and cancel.is_set():
            raise Cancelled("the search for edits was cancelled")
        try:
            yield Hint("move", index, into_epoch(compiles, op, epoch), bound)
        except TbudaError:
            continue


def _splits(placed: PlacedOps, index: int, worst: int) -> Iterator[Hint]:
    """A break where it could gain most, in the middle of the epoch's work, before its slowest op, and behind it."""
    segment, problem, facts = placed.segments[index], placed.problem, placed.epoch(index)
    if segment.last - segment.first < 2:
        return
    options = problem.options
    work = (facts.kernel * facts.cores).cumsum()
    middle = segment.first + int(np.searchsorted(work, work[-1] / 2))
    least = split_bounds(placed, index)
    gains = segment.limiter_cycles - least - options.epoch_switch_cycles / problem.inputs(segment.first)
    best = segment.first + 1 + np.argsort(-gains, kind="stable")[:CUTS]
    for cut in dict.fromkeys((*best.tolist(), middle, worst, worst + 1)):
        if segment.first < cut < segment.last and gains[cut - segment.first - 1] > 0:
            bound = float(gains[cut - segment.first - 1])
            yield Hint("split", index, (EpochBreak(problem.order[cut]),), bound)


def split_bounds(placed: PlacedOps, index: int) -> np.ndarray:
    """(ops - 1,) cycles per input that the two parts of an epoch take at least, by where it is cut: each part is given
    the whole device, rectangles are liquid, DRAM is idle, and what is read from the other part costs nothing more."""
    problem, segment, places = placed.problem, placed.segments[index], placed.epoch(index).places
    fronts = [problem.costs.frontier(problem.tables[op], *places[op], 0) for op in range(segment.first, segment.last)]
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


def _settings(compiles: Compiles, placed: PlacedOps, op: str, index: int) -> Iterator[Hint]:
    """The fastest inner step and stream at the op's shape, where the kernel is faster with them than it is."""
    number = placed.problem.number[op]
    row = placed.problem.tables[number].rows[placed.epoch(index).rows[number]]
    now, stream = int(row["cycles"]), (str(row["stream"]) or "n", int(row["stream_r"]), int(row["stream_c"]))
    took = placed.segments[index].limiter_cycles
    try:
        steps = [(cycles, value) for value, cycles in inner_steps(compiles, op) if cycles < now]
        streams = [(cycles, way) for way, cycles in streams_of(compiles, op) if cycles < now and way != stream]
    except TbudaError:
        return
    if steps:
        yield Hint("u_kt", index, (SetUkt(op, min(steps)[1]),), took)
    if streams:
        way, rows, cols = min(streams)[1]
        yield Hint("stream", index, (StreamOp(op, way, None if way == "n" else (rows, cols)),), took)


def nops(
    compiles: Compiles,
    placed: PlacedOps,
    kinds: Sequence[Sequence[int]],
    batch: int,
    cancel: threading.Event | None = None,
) -> Iterator[tuple[Hint, float, float]]:
    """(a nop on the short side of a stall that slows an epoch down, simulated cycles per input of such a batch before
    and after). With one input at a time nothing flows that could wait."""
    try:
        before, stalls = simulate_placement(compiles, placed, None, batch)
    except PlacementError:
        return
    turn = {index: at for same in kinds for at, index in enumerate(same)}  # of epochs that are alike one comes first
    for stall in sorted(stalls, key=lambda s: (turn[s.epoch], -s.cycles, s.fork))[:STALLS]:
        command = InsertNop(stall.fork, (stall.reader,))
        try:
            state = compiles.state_after(command)
            after, _ = simulate_placement(compiles, compiles.placed(state, cancel), state, batch)
        except Cancelled:
            raise
        except TbudaError:
            continue
        yield Hint("nop", stall.epoch, (command,)), before / batch, after / batch


def simulate_placement(
    compiles: Compiles, placed: PlacedOps, state: Request | None, batch: int
) -> tuple[int, list[SpaceWait]]:
    """(cycles of a batch that each epoch takes in one go, as `epochsim.simulate` has them; the stalls that slow an
    epoch down) of a placement. state: what it is of, None for the current one."""
    if len(placed.problem.device.chips) == 1:
        epochs, order = epoch_cycles_of(placed, batch), placed.problem.order
        stalls = [
            SpaceWait(index, stall.cycles, order[s.first + stall.fork], order[s.first + stall.reader])
            for index, (s, epoch) in enumerate(zip(placed.segments, epochs, strict=True))
            for stall in epoch.stalls
        ]
        return sum(epoch.cycles for epoch in epochs), stalls
    result = compiles.compile() if state is None else compiles.preview(state)
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


_PER_EPOCH = 6
_OF_A_KIND = 3  # edits of one kind and epoch in the list, as long as there are others
_TIED = 0.95  # ops with the same candidates that take nearly as long as the slowest are resized together


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """An edit (`apply(*commands)`), what the tables promise, and what it does. Cycles per input, simulated.

    kind: "resize" (one op, or equal ops that limit their epoch together: fewer of them would gain nothing), "move" (an
    op into another epoch), "split" and "merge" (an epoch break set or taken away), "stream", "u_kt", "free" (an
    override taken away) or "nop". cycles: of the whole model before and after. batch: inputs that this holds for, where
    it is not the batch that the session is compiled for: a nop gains nothing for one input, where nothing flows.
    """

    commands: tuple[Command, ...]
    epoch: int
    estimated_gain: int
    gain: float
    effect: WhatIf
    kind: str = "resize"
    batch: int | None = None
    simulated: tuple[float, float] | None = None  # for that batch

    @property
    def cycles(self) -> tuple[float, float]:
        return self.simulated or self.effect.time

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
        holds = "" if self.batch is None else f" (batch of {self.batch})"
        return f"{self.label}: {before:,.0f} -> {after:,.0f} cycles{holds}"


Told = Callable[[list[Suggestion], float], None]
"""Is told the best suggestions so far and the fraction of the search that is done."""


class Search:
    """One search for the best `n` edits of the current placement.

    Epochs that are alike (equal layers) are looked at once: what the first of them gains, the others are expected to,
    and are tried only if they come into the list with that. An edit is tried if its bound, from the tables alone, is
    more than the n-th best gain known.
    """

    def __init__(
        self, compiles: Compiles, n: int, progress: Told | None, cancel: threading.Event | None, seconds: float | None
    ) -> None:
        self.compiles, self.n, self.progress, self.cancel = compiles, n, progress, cancel
        self.end = None if seconds is None else time.monotonic() + seconds
        self.suggestions: list[Suggestion] = []
        self.placed = compiles.placed()

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
            raise Cancelled("the search for edits was cancelled")
        if self.progress is not None:
            self.progress(self.best(), fraction)
        return self.end is not None and time.monotonic() >= self.end

    def _worth(self, bound: float, best: Sequence[Suggestion]) -> bool:
        return len(best) < self.n or sorted(s.gain for s in best)[-self.n] < bound

    def _try_edit(self, hint: Hint) -> Suggestion | None:
        """What an edit does, None if it gains nothing or is not legal."""
        try:
            effect = self.compiles.whatif(*hint.commands, queues=False, cancel=self.cancel)
        except Cancelled:
            raise
        except TbudaError:
            return None
        if effect.gain <= 0:
            return None
        promised = effect.gain if hint.bound == np.inf else hint.bound
        return Suggestion(hint.commands, hint.epoch, int(promised), effect.gain, effect, hint.kind)

    def _resizes(self, kinds: Sequence[Sequence[int]]) -> None:
        """Resizes of what limits its epoch, most promising first; at most `2 n + 8` are tried. The slowest op of a kind
        of epoch has `_PER_EPOCH` of them, the op that the simulation marks as many, where it is another one; for each
        that gains nothing one more."""
        queue: list[tuple[float, int, int, int]] = []  # -bound, epoch, of its resizes, of `lists`
        times = time_of(self.placed).epochs
        lists: list[tuple[Sequence[int], list[Hint]]] = []
        for epochs in kinds:
            of_slowest = resizes(self.compiles, self.placed, epochs[0])
            listed = {hint.commands for hint in of_slowest}
            on_chain = chain_resizes(self.compiles, self.placed, epochs[0], times[epochs[0]].longest)
            lists += [(epochs, of_slowest), (epochs, [hint for hint in on_chain if hint.commands not in listed])]
        for one_list, (epochs, of_op) in enumerate(lists):
            queue += [(-hint.bound, epochs[0], at, one_list) for at, hint in enumerate(of_op[:_PER_EPOCH])]
        heapq.heapify(queue)
        proven: list[Suggestion] = []
        unqueued = [iter(range(_PER_EPOCH, len(of_op))) for _, of_op in lists]
        tried, most = 0, 2 * self.n + 8
        while queue and tried < most:
            bound, epoch, at, one_list = heapq.heappop(queue)
            if not self._worth(-bound, proven) or self._late(0.1 + 0.4 * tried / most):
                break
            epochs, of_op = lists[one_list]
            first, hint = epochs[0], of_op[at]
            one = self._try_edit(hint if epoch == first else hint.for_epoch(self.placed, first, epoch))
            tried += 1
            if one is not None:
                proven.append(one)
                self.suggestions.append(one)
                if epoch == first:
                    for other in epochs[1:]:
                        heapq.heappush(queue, (-one.gain, other, at, one_list))
            elif (following := next(unqueued[one_list], None)) is not None:
                heapq.heappush(queue, (-of_op[following].bound, first, following, one_list))

    def _others(self, kinds: Sequence[Sequence[int]]) -> None:
        every = list(hints(self.compiles, self.placed, kinds, self.cancel))
        every.sort(key=lambda hint: -hint.bound)
        for count, hint in enumerate(every):
            if not self._worth(hint.bound, self.suggestions) and hint.bound < np.inf:
                continue
            if self._late(0.5 + 0.35 * count / len(every)):
                return
            one = self._try_edit(hint)
            if one is not None:
                self.suggestions.append(one)

    def _nops(self, kinds: Sequence[Sequence[int]]) -> None:
        own = self.placed.problem.options.microbatch
        batch = own if own > 1 else BATCH
        for hint, before, after in nops(self.compiles, self.placed, kinds, batch, self.cancel):
            effect = self.compiles.whatif(*hint.commands, queues=False, cancel=self.cancel)
            gain = before - after
            if gain > 0:
                of, simulated = (None, None) if batch == own else (batch, (before, after))
                self.suggestions.append(
                    Suggestion(hint.commands, hint.epoch, int(gain), gain, effect, "nop", of, simulated)
                )
            if self._late(0.9):
                return


def _order(one: Suggestion) -> tuple[bool, float, int, str]:
    return one.batch is not None, -one.gain, one.epoch, one.label


def suggestions(
    compiles: Compiles,
    n: int,
    progress: Told | None = None,
    cancel: threading.Event | None = None,
    seconds: float | None = None,
) -> list[Suggestion]:
    """The best `n` edits: see `Search`, `Session.suggest`."""
    return Search(compiles, n, progress, cancel, seconds).run() if n > 0 else []


def resizes(compiles: Compiles, placed: PlacedOps, index: int) -> list[Hint]:
    """Resizes of the slowest op of an epoch by the tables, and of those that take as long; the best first."""
    took = placed.epoch(index).now()
    at = int(took.argmax())
    tied = _as_long(placed, index, at)
    limit = placed.segments[index].limiter_cycles
    return _faster_shapes(compiles, placed, index, at, tied, limit, float(took[~tied].max(initial=0.0)))


def chain_resizes(compiles: Compiles, placed: PlacedOps, index: int, longest: int) -> list[Hint]:
    """Resizes of the longest op on the critical chain of an epoch (`EpochTime.longest`): with few inputs an epoch takes
    what a chain of ops takes, one after the other, so an op gains what it takes less itself, whatever others take."""
    if longest < 0:
        return []
    took = placed.epoch(index).now()
    tied = _as_long(placed, index, longest)
    return _faster_shapes(compiles, placed, index, longest, tied, float(took[longest]), 0.0)


def _as_long(placed: PlacedOps, index: int, at: int) -> np.ndarray:
    """(ops,) which ops of the epoch have the same candidates as one and take nearly as long, itself among them."""
    facts, tables = placed.epoch(index), placed.problem.tables
    took, signature = facts.now(), tables[placed.segments[index].first + at].signature
    same = np.array([tables[op].signature == signature for op in facts.rows])
    tied: np.ndarray = same & (took >= _TIED * took[at])
    return tied


def _faster_shapes(
    compiles: Compiles, placed: PlacedOps, index: int, at: int, tied: np.ndarray, limit: float, others: float
) -> list[Hint]:
    """Shapes with which max(op, others) is less than `limit` cycles, the fastest first; all of `tied` get them."""
    order, first = placed.problem.order, placed.segments[index].first
    shapes = legal_of(compiles, order[first + at]).shapes
    after = np.maximum(shapes["limiter_cycles"], others)
    good = (shapes["verdict"] == 0) & (after < limit)
    where, gains = np.argwhere(good), limit - after[good]
    hints = []
    # equal gains: fewer cores first, they displace less
    for i in np.lexsort((shapes["cores"][good], -gains)).tolist():
        size = (int(where[i, 0]) + 1, int(where[i, 1]) + 1)
        commands = tuple(ResizeOp(order[first + op], size) for op in np.flatnonzero(tied).tolist())
        hints.append(Hint("resize", index, commands, float(gains[i])))
    return hints
