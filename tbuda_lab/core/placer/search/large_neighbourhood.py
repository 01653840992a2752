"""Search that goes on from a placement: a window of epochs is cut and shaped anew, and kept where that is cheaper.

A step takes up to four neighbouring epochs. Either the cuts between them are drawn again (the dynamic programme of
`Optimal` over the window, with its guesses disturbed, so that each step looks at other cuts; two epochs may become
one), or one epoch is shaped for another load of DRAM or another target, or so that it is filled sooner (a higher limit
may pay for that in a small batch), or all of its ops choose their streaming together, or a few of them change their
candidates: grid, streaming, blocks, buffers, preloads. Or ops move over a cut. What a step makes is priced by the
simulator of epochs as it will be repaired. The steps depend on the placement and their number alone, never on time: a
search that is cut off after n steps has found what one of n steps finds, and no step makes the placement worse.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Collection, Sequence

import numpy as np

from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.policies.op_runs import Bound
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.policies.pipelining import proposal
from tbuda_lab.core.placer.policies.preloading import settle_preloads
from tbuda_lab.core.placer.policies.spare_cores import Filling
from tbuda_lab.core.placer.policies.swaps import Pairs, SwapSearch
from tbuda_lab.core.placer.search.chip_stages import epoch_cost, overhead, slowest_stage
from tbuda_lab.core.placer.stalls.epoch_throughput import flow
from tbuda_lab.core.placer.stalls.stall_repair import priced

_WIDTHS = (1, 2, 2, 3, 3, 4)
"""Epochs in a window, drawn from these."""
_NOISE = (0.02, 0.05, 0.1, 0.2)
"""By how much guesses are disturbed: the standard deviation of their logarithm."""
_STALL_SHARES = (0.1, 0.4)
"""Of what a run that is not placed yet is thought to wait for full buffers, how much is believed: repairs often take
nearly all of it away."""
_UNSEEN = 1.08
"""What such a run turns out to cost, in its bound."""
_LESS = 1e-9
_KINDS = ("stream", "rows", "fill", "cut", "stream", "rows", "shape", "stream", "rows", "move")
"""What a step changes, in turn."""
_LIMITS = (1.0, 1.0, 1.0, 1.05, 1.15, 1.3)
"""Of its slowest op, what an epoch that is to be filled sooner may take."""
_STREAM_LIMITS = (1.0, 1.0, 0.97, 0.93, 1.04, 1.1)
_CORE_PRICES = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 3.0)
_DRAWN = 24

Curve = tuple[tuple[int, float], ...]
"""(steps done, cycles per input then), at the start, at every gain and at the end."""


@dataclasses.dataclass(frozen=True)
class Found:
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
) -> Found:
    """The best of `steps` steps from a placement of priced epochs, or of as many as `seconds` allow (0 steps: no other
    limit). pairs, still: as for swaps. check: called with the part of the steps, or of the time, that is over; it may
    raise to cancel. moves: whether ops may move over a cut."""
    return _Search(problem, segments, pairs, still, moves).run(steps, seconds, check)


class _Search:
    def __init__(
        self,
        problem: Problem,
        segments: Sequence[Segment],
        pairs: Pairs,
        still: Collection[str],
        moves: bool,
    ) -> None:
        self.problem, self.segments = problem, list(segments)
        self.policy = Optimal(problem, lambda fraction: None)
        self.value = self._value(self.segments)
        self.curve: list[tuple[int, float]] = [(0, self.value)]
        self._pairs, self._still = pairs, still
        self._bold = self._bold_policies()
        self._ends: dict[tuple[int, float], dict[int, Bound]] = {}
        self._shaped: dict[tuple[object, ...], Segment | None] = {}
        self._moves: SwapSearch | None = None
        self._moving = moves and len(problem.device.chips) == 1

    def run(self, steps: int, seconds: float | None, check: Callable[[float], None]) -> Found:
        begun = time.monotonic()
        done = 0
        while not steps or done < steps:
            over = 0.0 if seconds is None else (time.monotonic() - begun) / max(seconds, 1e-9)
            if over >= 1.0:
                break
            check(max(over, done / steps if steps else 0.0))
            if self._step(done):
                self.curve.append((done + 1, self.value))
            done += 1
        if self.curve[-1][0] != done:
            self.curve.append((done, self.value))
        return Found(self.problem, tuple(self.segments), done, tuple(self.curve))

    def _value(self, segments: Sequence[Segment]) -> float:
        if len(self.problem.device.chips) > 1:
            return slowest_stage(self.problem, segments)
        return float(sum(epoch_cost(self.problem, s) for s in segments))

    def _step(self, number: int) -> bool:
        """One step; whether it made the placement cheaper."""
        drawn = random.Random(f"{self.problem.options.seed}/{number}")
        kind = _KINDS[number % len(_KINDS)]
        if kind == "move" and (len(self.segments) < 2 or not self._moving):
            kind = "rows"
        kinds = {
            "cut": self._cut, "shape": self._shape, "fill": self._fill, "rows": self._rows, "stream": self._stream,
            "move": self._move,
        }  # fmt: skip
        step: bool = kinds[kind](drawn)
        return step

    def _drawn(self, drawn: random.Random, count: int) -> int:
        """The first epoch of a window of `count`: the more it costs, the sooner."""
        cost = [epoch_cost(self.problem, s) for s in self.segments]
        weights = [sum(cost[i : i + count]) for i in range(len(cost) - count + 1)]
        return drawn.choices(range(len(weights)), weights)[0]

    # -- cuts drawn again ------------------------------------------------------------------------------------
    def _cut(self, drawn: random.Random) -> bool:
        count = min(drawn.choice(_WIDTHS), len(self.segments))
        at = self._drawn(drawn, count)
        window = self.segments[at : at + count]
        first, last = window[0].first, window[-1].last
        noise = drawn.choice(_NOISE)
        share = drawn.choice(_STALL_SHARES)
        path = self._path(first, last, drawn, noise, share)
        now = {(s.first, s.last): s for s in window}
        if not path or path == list(now):
            return False
        parts = []
        for span in path:
            entry = now.get(span) or self._made(*span, share)
            if entry is None:
                return False
            parts.append(entry)
        return self._take(at, count, parts)

    def _bold_policies(self) -> dict[float, Optimal]:
        """By what is believed of waiting, the policy that guesses so."""
        return {share: Optimal(self.problem, lambda fraction: None, 0.0, share) for share in _STALL_SHARES}

    def _bounds(self, first: int, last: int, share: float) -> dict[int, Bound]:
        """By its end, the bound of every run from `first` that ends by `last`."""
        entry = self._ends.get((first, share))
        if entry is None:
            entry = self._ends[first, share] = self._bold[share].ends(first)
        return {first + length: bound for length, bound in entry.items() if first + length <= last}

    def _path(
        self, first: int, last: int, drawn: random.Random, noise: float, share: float
    ) -> list[tuple[int, int]]:
        """The cheapest cuts of [first, last) by bounds, or by what is known of a run, each disturbed."""
        cost, back = np.full(last - first + 1, np.inf), np.full(last - first + 1, -1)
        cost[0] = 0.0
        known = {(s.first, s.last): s for s in self.segments}
        for at in range(first, last):
            ends = self._bounds(at, last, share)
            self._bold[share].bounds[at] = {**self._bold[share].bounds.get(at, {}), **ends}
            if not np.isfinite(cost[at - first]):
                continue
            for end, bound in ends.items():
                made = known.get((at, end))
                if made is None:
                    key = self.problem.structure(at, end), share
                    made = self._shaped.get(key)
                    if made is None and key in self._shaped:
                        continue
                price = _UNSEEN * bound.cost if made is None else made.limiter_cycles + made.stall_cycles
                price = (price + overhead(self.problem, at, end)) * drawn.lognormvariate(0.0, noise)
                if cost[at - first] + price < cost[end - first]:
                    cost[end - first], back[end - first] = cost[at - first] + price, at
        path: list[tuple[int, int]] = []
        end = last
        while end > first:
            if back[end - first] < 0:
                return []
            path.append((int(back[end - first]), end))
            end = int(back[end - first])
        return path[::-1]

    def _made(self, first: int, last: int, share: float) -> Segment | None:
        """A run as a finished epoch, once for all of equal structure."""
        key = self.problem.structure(first, last), share
        if key not in self._shaped:
            policy = self._bold[share]
            made = policy.realise(first, last)
            if made is not None:
                made = policy.flowing(policy.pipelined(policy.ready(made, {}), {}), {})
            self._shaped[key] = made
        result = self._shaped[key]
        return None if result is None else dataclasses.replace(result, first=first, last=last)

    # -- other shapes ----------------------------------------------------------------------------------------
    def _shape(self, drawn: random.Random) -> bool:
        """One epoch for another load of DRAM, another share of kernels, or another target."""
        at = self._drawn(drawn, 1)
        first, last = self.segments[at].first, self.segments[at].last
        policy = self.policy
        level = drawn.randrange(len(policy.levels))
        near = int(np.searchsorted(policy.targets, self.segments[at].limiter_cycles))
        target = min(max(0, near + drawn.randint(-12, 6)), len(policy.targets) - 1)
        price = drawn.choice((0, 0, 4, 8))
        key = (self.problem.structure(first, last), level, target, price)
        if key not in self._shaped:
            output = policy._attempt(first, last, level, target, {}, price).segment
            self._shaped[key] = None if output is None else policy.ready(output, {})
        result = self._shaped[key]
        if result is None:
            return False
        return self._take(at, 1, [dataclasses.replace(result, first=first, last=last)])

    def _fill(self, drawn: random.Random) -> bool:
        """One epoch so that its first input is through sooner, for another limit; then what it preloads is settled."""
        at = self._drawn(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        limit, kernel = segment.limiter_cycles * drawn.choice(_LIMITS), segment.kernel_cycles * drawn.choice(_LIMITS)
        part = drawn.choice((1.0, 0.97, 0.94, 0.9))
        result = Filling(self.problem, segment).proposal(upstream_rows, limit, max(limit, kernel), part, drawn)
        if result is None:
            return False
        if drawn.random() < 0.5:
            result = settle_preloads(self.problem, result, upstream_rows)
        return self._take(at, 1, [priced(self.problem, result, upstream_rows)])

    def _stream(self, drawn: random.Random) -> bool:
        """Rows of one epoch chosen together so that they stream, for another limit and price of a core."""
        at = self._drawn(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        limit, price = segment.limiter_cycles * drawn.choice(_STREAM_LIMITS), drawn.choice(_CORE_PRICES)
        made = proposal(self.problem, segment, upstream_rows, limit, limit, price, drawn)
        if made is None or self._cheapest(made) >= epoch_cost(self.problem, segment):
            return False
        return self._take(at, 1, [priced(self.problem, made, upstream_rows)])

    # -- candidates of single ops ----------------------------------------------------------------------------
    def _rows(self, drawn: random.Random) -> bool:
        """Other candidates for one to three ops of an epoch, those of edges that hold it up the sooner."""
        problem, at = self.problem, self._drawn(drawn, 1)
        segment, upstream_rows = self.segments[at], self._outside(at)
        first, last = segment.first, segment.last
        rows = dict(zip(range(first, last), segment.rows, strict=True))
        held = flow(problem, segment, problem.overrides).full
        near = [first + op for edge in held[:6] for op in edge[:2]]
        load = measure(problem, first, last, rows)[2]
        limit = segment.limiter_cycles * drawn.choice(_LIMITS)
        trial = dict(rows)
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
        if trial == rows:
            return False
        result = place_rows(problem, first, last, trial)
        if result is None or self._cheapest(result) >= epoch_cost(problem, segment):
            return False
        return self._take(at, 1, [priced(problem, result, upstream_rows)])

    def _cheapest(self, segment: Segment) -> float:
        """What an epoch costs at least: its slowest op, the switch to it, and filling as far as nothing waits."""
        return segment.limiter_cycles + overhead(self.problem, segment.first, segment.last)

    def _outside(self, at: int) -> dict[int, int]:
        """Rows of the ops of the epochs before one."""
        return {
            op: row
            for s in self.segments[:at]
            for op, row in zip(range(s.first, s.last), s.rows, strict=True)
        }

    # -- ops over a cut --------------------------------------------------------------------------------------
    def _move(self, drawn: random.Random) -> bool:
        """The next move of ops between two neighbouring epochs that pays."""
        if self._moves is None:
            self._moves = SwapSearch(self.problem, self.segments, 1, self._pairs, lambda fraction: None, self._still)
        moves = self._moves
        moves.problem, moves.segments, moves.policy = self.problem, list(self.segments), self.policy
        moves.allow(1)
        if not moves.better(self._drawn(drawn, 2)) or self._value(moves.segments) >= self.value - _LESS:
            return False
        self.problem, self.segments = moves.problem, list(moves.segments)
        self.policy = self.policy.on(self.problem)
        self.policy.bounds, self._ends = {}, {}
        self._bold = {share: policy.on(self.problem) for share, policy in self._bold.items()}
        for policy in self._bold.values():
            policy.bounds = {}
        self.value = self._value(self.segments)
        return True

    # -- taking what is cheaper ------------------------------------------------------------------------------
    def _take(self, at: int, count: int, parts: list[Segment]) -> bool:
        """Puts `parts` in the place of epochs where that is cheaper, and all edges between epochs stay legal."""
        trial = [*self.segments[:at], *parts, *self.segments[at + count :]]
        value = self._value(trial)
        if value >= self.value - _LESS:
            return False
        upstream_rows: dict[int, int] = {}
        load = int(self.policy.caps[-1])
        for index, segment in enumerate(trial):
            rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
            if index >= at:
                legal = choose_rows(self.problem, segment.first, segment.last, rows, load, float("inf"),
                    upstream_rows)[0]
                if legal != rows:
                    return False
            upstream_rows.update(rows)
        self.segments, self.value = trial, value
        return True
