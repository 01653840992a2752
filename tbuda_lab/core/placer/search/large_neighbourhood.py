"""Search that goes on from a placement: a window of epochs is cut and shaped anew, and kept where that is cheaper.

A step takes up to four neighbouring epochs. Either the cuts between them are drawn again (`recut`: the cheapest by all
that is known of runs of ops, disturbed, so that each step looks at other cuts; two epochs may become one; what nearly
does is worked at before it is given up), or the first input is let through one epoch sooner, row by row (`sooner`), or
rows of many of its ops are changed together by what each change alone does (`joint_rows`), or it is shaped for another
load of DRAM or another target, or all of its ops, or a few that follow each other, choose their streaming together, or
some change their candidates: grid, streaming, blocks, buffers, preloads. Or ops move over a cut. Which of these a
step does is drawn, the sooner the more it has gained for its work so far. What a step makes is priced by the
simulator of epochs as it will be repaired, and taken at all places where equal ops stand. The steps depend on the
placement and their number alone, never on time: a search that is cut off after n steps has found what one of n steps
finds, and no step makes the placement worse.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.placer.model.chip_stages import epoch_cost, overhead, slowest_stage
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.policies.pipelining import proposal, proposals, streamed_anew
from tbuda_lab.core.placer.policies.preloading import preload_variants, settle_preloads
from tbuda_lab.core.placer.policies.spare_cores import SpareCoreFill
from tbuda_lab.core.placer.policies.swaps import Pairs, SwapSearch
from tbuda_lab.core.placer.search.filling_search import Sooner
from tbuda_lab.core.placer.search.first_input import WaitCache
from tbuda_lab.core.placer.search.joint_rows import JointRows
from tbuda_lab.core.placer.search.recut import STALL_SHARES, Recut
from tbuda_lab.core.placer.stalls.epoch_throughput import full_edges, throughputs
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles

_WIDTHS = (1, 2, 2, 3, 3, 4)
"""Epochs in a window, drawn from these."""
_NOISE = (0.01, 0.03, 0.06, 0.1)
"""By how much guesses are disturbed: the standard deviation of their logarithm."""
_NEARLY, _FAR = 1.06, 1.5
"""Of what a window costs, what new epochs may be thought to cost, and what they may when they are finished, so that
they are worked at: full buffers are told to the simulator alone, and may go."""
_LESS = 1e-9
_KINDS = {
    "window": (1.0, 1.0),
    "rows": (1.0, 1.0),
    "stream": (4.0, 2.0),
    "fill": (1.0, 0.3),
    "cut": (40.0, 10.0),
    "shape": (0.3, 0.1),
    "move": (0.3, 0.3),
    "joint": (3.0, 5.0),
    "sooner": (4.0, 7.0),
    "preload": (2.0, 4.0),
}
"""What a step changes: about how much work one takes, and what it is thought to gain before there is anything to go by.
Steps that have gained more for their work lately are drawn more often."""
_BELIEF = 6.0
"""Steps of a kind that count as much as what it is thought to gain."""
_MEMORY = 0.9
"""Of what a kind of step has gained so far, what counts when it has been taken once more."""
_LEAST_HOPE = 0.1
"""Of what all kinds have gained for their work on average, what every kind is thought to gain."""
_WINDOW_SIZES = (2, 3, 4, 6, 8, 12)
_WINDOW_LIMITS = (1.0, 1.0, 1.0, 1.02)
_TOGETHER = 6
"""Variants of an epoch that a step simulates side by side."""
_LIMITS = (1.0, 1.0, 1.0, 1.05, 1.15, 1.3)
"""Of its slowest op, what an epoch that is to be filled sooner may take."""
_STREAM_LIMITS = (1.0, 1.0, 0.97, 0.93, 1.04, 1.1)
_SOONER_LIMITS = (1.0, 1.0, 1.0, 0.97, 0.94, 0.9)
_ONE_INPUT_LIMITS = (1.0, 1.2, 1.5, 2.0, 3.0)
"""The same where no second input waits for the slowest op of the first: it may be slower where others gain by that."""
_VISITS = 2
"""Of every op of an epoch, how often one is looked at in a step that fills it sooner."""
_CORE_PRICES = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 3.0)
_ALL_STREAMS = tuple((limit, price) for limit in (1.0, 0.97, 0.93, 1.04) for price in (0.1, 0.4, 0.7, 1.5, 3.0))
_DRAWN = 24

Curve = tuple[tuple[int, float], ...]
"""(steps done, cycles per input then), at the start, at every gain and at the end."""

Found = Callable[[int, float, Problem, Sequence[Segment]], None]
"""Hears of a gain: steps done, cycles per input, and the epochs with their problem."""


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """problem: with the order as changed. steps: how many were done; curve: what they came to."""

    problem: Problem
    segments: tuple[Segment, ...]
    steps: int
    curve: Curve


def search_on(
    problem: Problem,
    segments: Sequence[Segment],
    steps: int,
    seconds: float | None = None,
    pairs: Pairs = (),
    still: Collection[str] = (),
    check: Callable[[float], None] = lambda fraction: None,
    moves: bool = True,
    found: Found = lambda done, cycles, problem, segments: None,
    enough: Callable[[], bool] = lambda: False,
    name: str = "",
    kinds: Collection[str] = (),
) -> SearchResult:
    """The best of `steps` steps from a placement of priced epochs, or of as many as `seconds` allow (0 steps: no other
    limit). pairs, still: as for swaps. check: called with the part of the steps, or of the time, that is over; it may
    raise to cancel. moves: whether ops may move over a cut. found: called after every gain with the steps done, what it
    came to and the epochs. enough: asked before every step whether to end with what there is. name: searches of
    other names draw other steps. kinds: of the steps, all of `_KINDS` where none are named. Raises `ValueError` without
    any limit."""
    if not steps and seconds is None:
        raise ValueError("a search without an end: give steps or seconds")
    search = _Search(problem, segments, pairs, still, moves, name, kinds)
    return search.run(steps, seconds, check, found, enough)


class _Search:
    def __init__(
        self,
        problem: Problem,
        segments: Sequence[Segment],
        pairs: Pairs,
        still: Collection[str],
        moves: bool,
        name: str,
        kinds: Collection[str] = (),
    ) -> None:
        self.problem, self.segments = problem, list(segments)
        self._kinds = {kind: entry for kind, entry in _KINDS.items() if not kinds or kind in kinds}
        if problem.inputs(0) > 1:  # the policy has settled what a batch preloads
            self._kinds.pop("preload", None)
        self._seed = f"{problem.options.seed}/{name}/" if name else f"{problem.options.seed}/"
        self.policy = Optimal(problem, lambda fraction: None)
        self.value = self._value(self.segments)
        self.curve: list[tuple[int, float]] = [(0, self.value)]
        self._pairs, self._still = pairs, still
        self._shaped: dict[tuple[object, ...], Segment | None] = {}
        self._seen: set[tuple[object, ...]] = set()  # epochs that were streamed anew
        # by kind of step: parts of a thousand gained and steps taken lately, and all steps taken
        self._gained: dict[str, tuple[float, float, int]] = {}
        self._joint_rows, self._waits = JointRows(), WaitCache()
        self._recut = Recut(problem, self._waits)
        self._moves: SwapSearch | None = None
        self._moving = moves and not problem.has_stages

    def run(
        self,
        steps: int,
        seconds: float | None,
        check: Callable[[float], None],
        found: Found,
        enough: Callable[[], bool],
    ) -> SearchResult:
        begun = time.monotonic()
        done = 0
        while not steps or done < steps:
            over = 0.0 if seconds is None else (time.monotonic() - begun) / max(seconds, 1e-9)
            if over >= 1.0 or enough():
                break
            check(max(over, done / steps if steps else 0.0))
            if self._step(done):
                self.curve.append((done + 1, self.value))
                found(done + 1, self.value, self.problem, self.segments)
            done += 1
        if self.curve[-1][0] != done:
            self.curve.append((done, self.value))
        return SearchResult(self.problem, tuple(self.segments), done, tuple(self.curve))

    def _value(self, segments: Sequence[Segment]) -> float:
        if self.problem.has_stages:
            return slowest_stage(self.problem, segments)
        return float(sum(epoch_cost(self.problem, s) for s in segments))

    def _step(self, number: int) -> bool:
        """One step; whether it made the placement cheaper."""
        drawn = random.Random(f"{self._seed}{number}")
        kind = self._kind(drawn)
        kinds = {
            "cut": self._cut,
            "shape": self._shape,
            "fill": self._fill,
            "rows": self._rows,
            "stream": self._stream,
            "move": self._move,
            "window": self._window,
            "joint": self._joint,
            "sooner": self._sooner,
            "preload": self._preload,
        }
        before = self.value
        step: bool = kinds[kind](drawn)
        gain, count, taken = self._gained.get(kind, (0.0, 0.0, 0))
        self._gained[kind] = _MEMORY * gain + 1e3 * (1.0 - self.value / before), _MEMORY * count + 1.0, taken + 1
        return step

    def _kind(self, drawn: random.Random) -> str:
        """What the next step changes."""
        hopes: dict[str, float] = {}
        for kind, (work, hope) in self._kinds.items():
            if kind != "move" or (len(self.segments) > 1 and self._moving):
                gain, count, taken = self._gained.get(kind, (0.0, 1.0, 0))
                hopes[kind] = (taken * gain / count + _BELIEF * hope) / (taken + _BELIEF) / work
        least = _LEAST_HOPE * sum(hopes.values()) / len(hopes)
        return drawn.choices(list(hopes), [max(least, hope) for hope in hopes.values()])[0]

    def _draw_window(self, drawn: random.Random, count: int) -> int:
        """The first epoch of a window of `count`: the more it costs, the sooner."""
        cost = [epoch_cost(self.problem, s) for s in self.segments]
        weights = [sum(cost[i : i + count]) for i in range(len(cost) - count + 1)]
        return drawn.choices(range(len(weights)), weights)[0]

    # -- cuts drawn again ------------------------------------------------------------------------------------
    def _cut(self, drawn: random.Random) -> bool:
        """Other cuts of a window of epochs. New epochs that nearly do are worked at, as the present ones were: what
        they come to is known when they are drawn again."""
        count = min(drawn.choice(_WIDTHS), len(self.segments))
        at = self._draw_window(drawn, count)
        window = self.segments[at : at + count]
        share, worked = drawn.choice(STALL_SHARES), self.value / self.curve[0][1]
        now = {(s.first, s.last): s for s in window}
        for noise in _NOISE:  # the less the better, if only the cuts are others
            path = self._recut.path(window[0].first, window[-1].last, self.segments, drawn, noise, share, worked)
            if path != list(now):
                break
        if not path or path == list(now):
            return False
        parts: list[Segment] = []
        most = sum(epoch_cost(self.problem, s) for s in window)
        new = [span for span in path if span not in now]
        thought = sum(self._recut.thought(*span, share, worked) for span in new)
        if thought + sum(epoch_cost(self.problem, now[s]) for s in path if s in now) >= _NEARLY * most:
            return False
        for span in path:
            entry = now.get(span) or self._recut.epoch(*span, share)
            if entry is None:
                return False
            parts.append(entry)
        cost = sum(epoch_cost(self.problem, s) for s in parts)
        if most - _LESS <= cost < _FAR * most:
            upstream_rows = self._outside(at)
            for index, part in enumerate(parts):
                if part is not now.get((part.first, part.last)):
                    for improved in (self._joint_of, self._sooner_of, self._joint_of):
                        parts[index] = improved(parts[index], upstream_rows, drawn) or parts[index]
                    self._recut.worked_at(parts[index])
                upstream_rows.update(zip(range(part.first, part.last), parts[index].rows, strict=True))
        return self._take(at, count, parts)

    # -- other shapes ----------------------------------------------------------------------------------------
    def _shape(self, drawn: random.Random) -> bool:
        """One epoch for another load of DRAM, another share of kernels, or another target."""
        at = self._draw_window(drawn, 1)
        first, last = self.segments[at].first, self.segments[at].last
        policy = self.policy
        level = drawn.randrange(len(policy.runs.levels))
        near = int(np.searchsorted(policy.runs.targets, self.segments[at].limiter_cycles))
        target = min(max(0, near + drawn.randint(-12, 6)), len(policy.runs.targets) - 1)
        price = drawn.choice((0, 0, 4, 8))
        key = (self.problem.structure(first, last), level, target, price)
        if key not in self._shaped:
            shaped_epoch = policy.attempt(first, last, level, target, {}, price).segment
            self._shaped[key] = None if shaped_epoch is None else policy.ready(shaped_epoch, {})
        result = self._shaped[key]
        if result is None:
            return False
        return self._take(at, 1, [dataclasses.replace(result, first=first, last=last)])

    def _fill(self, drawn: random.Random) -> bool:
        """One epoch so that its first input is through sooner, for another limit; then what it preloads is settled."""
        at = self._draw_window(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        limit, kernel = segment.limiter_cycles * drawn.choice(_LIMITS), segment.kernel_cycles * drawn.choice(_LIMITS)
        part = drawn.choice((1.0, 0.97, 0.94, 0.9))
        result = SpareCoreFill(self.problem, segment).proposal(upstream_rows, limit, max(limit, kernel), part, drawn)
        if result is None:
            return False
        if drawn.random() < 0.5:
            result = settle_preloads(self.problem, result, upstream_rows)
        return self._take(at, 1, [with_stall_cycles(self.problem, result, upstream_rows)])

    def _stream(self, drawn: random.Random) -> bool:
        """Rows of one epoch chosen together so that they stream, for another limit and price of a core."""
        at = self._draw_window(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        key = self.problem.structure(segment.first, segment.last), segment.rows
        if key not in self._seen:  # at first each of a few limits and prices as they are
            self._seen.add(key)
            anew = streamed_anew(self.problem, segment, upstream_rows, _ALL_STREAMS)
            return anew is not segment and self._take(at, 1, [anew])
        limit, price = segment.limiter_cycles * drawn.choice(_STREAM_LIMITS), drawn.choice(_CORE_PRICES)
        other = proposal(self.problem, segment, upstream_rows, limit, limit, price, drawn)
        if other is None or self._cheapest(other) >= epoch_cost(self.problem, segment):
            return False
        return self._take(at, 1, [with_stall_cycles(self.problem, other, upstream_rows)])

    def _window(self, drawn: random.Random) -> bool:
        """Rows of a few neighbouring ops of an epoch chosen together so that they stream, the others as they are."""
        at = self._draw_window(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        size = drawn.choice(_WINDOW_SIZES)
        start = segment.first + drawn.randrange(max(1, segment.last - segment.first - size + 1))
        ops = range(start, min(segment.last, start + size))
        limit, price = segment.limiter_cycles * drawn.choice(_WINDOW_LIMITS), drawn.choice(_CORE_PRICES)
        disturbed = drawn if drawn.random() < 0.5 else None
        kernel = max(limit, segment.kernel_cycles)
        return self._take_best(
            at, proposals(self.problem, segment, upstream_rows, ops, limit, kernel, price, _TOGETHER, disturbed)
        )

    def _joint(self, drawn: random.Random) -> bool:
        """Rows of many ops of an epoch changed together, by what each change alone is known to do."""
        at = self._draw_window(drawn, 1)
        other = self._joint_of(self.segments[at], self._outside(at), drawn)
        return other is not None and self._take(at, 1, [other])

    def _joint_of(self, segment: Segment, upstream_rows: Mapping[int, int], drawn: random.Random) -> Segment | None:
        """A cheaper epoch made so."""
        for other in self._joint_rows.better(self.problem, segment, upstream_rows, drawn):
            other = with_stall_cycles(self.problem, other, upstream_rows)
            if epoch_cost(self.problem, other) < epoch_cost(self.problem, segment) - _LESS:
                return other
        return None

    def _sooner(self, drawn: random.Random) -> bool:
        """Rows of one op, or of an op and its reader, after the other, so that the first input is through sooner."""
        at = self._draw_window(drawn, 1)
        other = self._sooner_of(self.segments[at], self._outside(at), drawn)
        return other is not None and self._take(at, 1, [other])

    def _sooner_of(self, segment: Segment, upstream_rows: Mapping[int, int], drawn: random.Random) -> Segment | None:
        """A cheaper epoch made so."""
        alone = self.problem.inputs(segment.first) == 1
        limit = segment.limiter_cycles * drawn.choice(_ONE_INPUT_LIMITS if alone else _SOONER_LIMITS)
        way = Sooner(self.problem, segment, upstream_rows, limit, drawn, self._waits)
        other = way.run(_VISITS * (segment.last - segment.first))
        other = None if other is None else with_stall_cycles(self.problem, other, upstream_rows)
        if other is None or epoch_cost(self.problem, other) >= epoch_cost(self.problem, segment) - _LESS:
            return None
        return other

    def _preload(self, drawn: random.Random) -> bool:
        """One op of an epoch streams what it preloads, or the other way round: which is better for a single input only
        its way can tell."""
        at = self._draw_window(drawn, 1)
        return self._take_best(at, preload_variants(self.problem, self.segments[at]))

    def _take_best(self, at: int, variants: Sequence[Segment]) -> bool:
        """Of several variants of an epoch, simulated side by side, the one that is fastest before any repair, where it
        is cheaper with them."""
        segment, cheaper = self.segments[at], {}
        for variant in variants:
            if self._cheapest(variant) < epoch_cost(self.problem, segment):
                cheaper[variant.rows] = variant
        if not cheaper:
            return False
        trial = list(cheaper.values())
        flowing = throughputs([(self.problem, variant) for variant in trial])
        best = min(range(len(trial)), key=lambda i: flowing[i].roomy)
        return self._take(at, 1, [with_stall_cycles(self.problem, trial[best], self._outside(at))])

    # -- candidates of single ops ----------------------------------------------------------------------------
    def _rows(self, drawn: random.Random) -> bool:
        """Other candidates for one to three ops of an epoch, those of edges that hold it up the sooner."""
        problem, at = self.problem, self._draw_window(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        first, last = segment.first, segment.last
        rows = dict(zip(range(first, last), segment.rows, strict=True))
        full = full_edges(problem, segment)
        near = [first + op for edge in full[:6] for op in edge[:2]]
        load = measure(problem, first, last, rows)[2]
        variants: list[Segment] = []
        for _ in range(_TOGETHER):
            trial = self._other_rows(drawn, first, last, rows, near, load, segment.limiter_cycles, upstream_rows)
            variant = place_rows(problem, first, last, trial) if trial != rows else None
            variants += [] if variant is None else [variant]
        return self._take_best(at, variants)

    def _other_rows(
        self,
        drawn: random.Random,
        first: int,
        last: int,
        rows: Mapping[int, int],
        near: Sequence[int],
        load: EpochLoad,
        slowest: int,
        upstream_rows: Mapping[int, int],
    ) -> dict[int, int]:
        """By op, the rows of an epoch, those of a few ops changed. near: ops that are changed the sooner."""
        problem, trial = self.problem, dict(rows)
        limit = slowest * drawn.choice(_LIMITS)
        for _ in range(drawn.choice((1, 1, 2, 3))):
            op = drawn.choice(near) if near and drawn.random() < 0.6 else drawn.randrange(first, last)
            legal = problem.legal[problem.tables[op].signature]
            within = legal[problem.row_limits(op, *problem.places(op, first, last), load)[legal] <= limit]
            free = problem.cores - sum(
                int(problem.tables[other].rows["cores"][row]) for other, row in trial.items() if other != op
            )
            within = within[problem.tables[op].rows["cores"][within] <= free]
            if not len(within):
                continue
            book = EdgeCompatibility(problem, first, last, upstream_rows)
            book.rows = {other: row for other, row in trial.items() if other != op}
            for _ in range(_DRAWN):
                row = int(within[drawn.randrange(len(within))])
                if row != trial[op] and book.check(op, row):
                    trial[op] = row
                    break
        return trial

    def _cheapest(self, segment: Segment) -> float:
        """What an epoch costs at least: its slowest op, the switch to it, and filling as far as nothing waits."""
        cycles = self.problem.share(segment.first) * segment.limiter_cycles
        return cycles + overhead(self.problem, segment.first, segment.last)

    def _outside(self, at: int) -> dict[int, int]:
        """Rows of the ops of the epochs before one."""
        return {op: row for s in self.segments[:at] for op, row in zip(range(s.first, s.last), s.rows, strict=True)}

    # -- ops over a cut --------------------------------------------------------------------------------------
    def _move(self, drawn: random.Random) -> bool:
        """The next move of ops between two neighbouring epochs that pays."""
        if self._moves is None:
            self._moves = SwapSearch(self.problem, self.segments, 1, self._pairs, lambda fraction: None, self._still)
        moves = self._moves
        moves.problem, moves.segments, moves.policy = self.problem, list(self.segments), self.policy
        moves.allow(1)
        if not moves.better(self._draw_window(drawn, 2)) or self._value(moves.segments) >= self.value - _LESS:
            return False
        self.problem, self.segments = moves.problem, list(moves.segments)
        self.policy = self.policy.on(self.problem)
        self.policy.bounds = {}
        self._recut.on(self.problem)
        self.value = self._value(self.segments)
        return True

    # -- taking what is cheaper ------------------------------------------------------------------------------
    def _take(self, at: int, count: int, parts: list[Segment]) -> bool:
        """Puts `parts` in the place of epochs where that is cheaper, and all edges between epochs stay legal."""
        trial = [*self.segments[:at], *parts, *self.segments[at + count :]]
        if not self._accept(trial, at):
            return False
        self._take_elsewhere(parts)
        return True

    def _accept(self, trial: list[Segment], changed: int) -> bool:
        """Goes on from other epochs, where they are cheaper and legal. changed: the first that differs."""
        value = self._value(trial)
        if value >= self.value - _LESS:
            return False
        upstream_rows: dict[int, int] = {}
        load = int(self.policy.runs.caps[-1])
        for index, segment in enumerate(trial):
            rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
            if index >= changed:
                legal = choose_rows(self.problem, segment.first, segment.last, rows, load, float("inf"), upstream_rows)[
                    0
                ]
                if legal != rows:
                    return False
            upstream_rows.update(rows)
        for segment in trial[changed:]:
            if segment not in self.segments:
                self._recut.note(segment)
        self.segments, self.value = trial, value
        return True

    def _take_elsewhere(self, parts: Sequence[Segment]) -> None:
        """The same epochs for equal ops: what is found for one layer serves all that are like it. They are taken at
        all places together, or, where that does not do, at each where it does."""
        first, last = parts[0].first, parts[-1].last
        shifts = [s.first - first for s in self.segments if s.first >= last or s.first <= 2 * first - last]
        shifts = [shift for shift in shifts if self._alike(parts, shift)]
        together = self.segments
        for shift in shifts:
            together = _replace(together, parts, shift)
        if shifts and not self._accept(together, 0):
            for shift in shifts:
                self._accept(_replace(self.segments, parts, shift), 0)

    def _alike(self, parts: Sequence[Segment], shift: int) -> bool:
        """Whether epochs that end where these would stand `shift` ops later, are of equal ops and cost more."""
        problem, first, last = self.problem, parts[0].first + shift, parts[-1].last + shift
        there = [s for s in self.segments if first <= s.first and s.last <= last]
        if not there or (there[0].first, there[-1].last) != (first, last):
            return False
        if any(problem.structure(p.first, p.last) != problem.structure(p.first + shift, p.last + shift) for p in parts):
            return False
        return sum(epoch_cost(problem, p) for p in parts) < sum(epoch_cost(problem, s) for s in there) - _LESS


def _replace(segments: Sequence[Segment], parts: Sequence[Segment], shift: int) -> list[Segment]:
    """Epochs with `parts`, `shift` ops later, in the place of those that hold their ops; the same epochs where none of
    them begins or ends there, as after an overlapping stretch was replaced."""
    first, last = parts[0].first + shift, parts[-1].last + shift
    if not any(s.first == first for s in segments) or not any(s.last == last for s in segments):
        return list(segments)
    moved = [dataclasses.replace(p, first=p.first + shift, last=p.last + shift) for p in parts]
    before, after = ([s for s in segments if s.last <= first], [s for s in segments if s.first >= last])
    return [*before, *moved, *after]
