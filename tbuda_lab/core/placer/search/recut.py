"""Cuts between epochs drawn again, by what is known of every run of ops: what it came to as an epoch, however often it
was worked at since, or what its bound says, times what bounds have turned out to be short by so far."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.placer.model.chip_stages import overhead
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.layers import cheapest_path
from tbuda_lab.core.placer.policies.op_runs import CostBound
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.search.first_input import WaitCache, cycles_without_stalls

STALL_SHARES = (0.1, 0.4)
"""Of what a run that is not placed yet is thought to wait for full buffers, how much is believed: repairs often take
nearly all of it away."""
_UNSEEN = 1.08
"""What such a run turns out to cost, in its bound, as long as nothing is known."""
_TRIES = 4
"""How often an epoch is worked at before it is taken for what it has come to."""
_BEGUN = 0.98
"""The same of one that is begun, in what it is thought to cost."""

Span = tuple[int, int]
"""First op of an epoch, and the one behind its last."""


class Recut:
    """Epochs that were made of runs of ops, the best of each, for all runs of equal structure."""

    def __init__(self, problem: Problem, cache: WaitCache) -> None:
        self.problem, self.cache = problem, cache
        self._bold = {share: Optimal(problem, lambda fraction: None, 0.0, share) for share in STALL_SHARES}
        self._ends: dict[tuple[int, float], dict[int, CostBound]] = {}
        self._structures: dict[Span, tuple[int, ...]] = {}
        self._best: dict[tuple[int, ...], Segment] = {}
        self._finished: set[tuple[tuple[int, ...], float]] = set()
        self._tries: dict[tuple[int, ...], int] = {}
        self._begun: dict[tuple[tuple[int, ...], float], Segment | None] = {}  # None: no epoch
        # what epochs cost when they were made, over their bounds and over what they are thought to cost once begun
        self._over = ([_UNSEEN], [_BEGUN])

    def on(self, problem: Problem) -> None:
        """Goes on with the problem in another order."""
        self.problem, self._ends, self._structures = problem, {}, {}
        self._bold = {share: policy.on(problem) for share, policy in self._bold.items()}
        for policy in self._bold.values():
            policy.bounds = {}

    def _structure(self, first: int, last: int) -> tuple[int, ...]:
        entry = self._structures.get((first, last))
        if entry is None:
            entry = self._structures[first, last] = self.problem.structure(first, last)
        return entry

    def note(self, segment: Segment) -> None:
        """Takes in a priced epoch."""
        key = self._structure(segment.first, segment.last)
        best = self._best.get(key)
        if best is None or _interval(segment) < _interval(best):
            self._best[key] = segment

    def best(self, first: int, last: int) -> Segment | None:
        """The best epoch of the run that is known."""
        result = self._best.get(self._structure(first, last))
        return None if result is None else dataclasses.replace(result, first=first, last=last)

    def worked_at(self, segment: Segment) -> None:
        """Takes in what became of an epoch that was worked at."""
        key = self._structure(segment.first, segment.last)
        self._tries[key] = self._tries.get(key, 0) + 1
        self.note(segment)

    def thought(self, first: int, last: int, share: float, worked: float) -> float:
        """Cycles per input of a run, with the switch to it: of one that is begun its slowest op, and what it takes to
        fill it if no buffer is ever full; the oftener it was worked at, the more those of its best epoch. Infinite
        where it is no epoch. worked: see `path`."""
        return self._price(first, last, self._begin(first, last, share), worked * statistics.median(self._over[1]))

    def _price(self, first: int, last: int, begun: Segment | None, over: float) -> float:
        best, problem = self.best(first, last), self.problem
        cycles = np.inf if begun is None else over * _interval(begun)
        if best is not None:
            sure = min(1.0, self._tries.get(self._structure(first, last), 0) / _TRIES) if begun is not None else 1.0
            cycles = min(_interval(best), sure * _interval(best) + (1 - sure) * cycles if sure < 1 else np.inf)
        return problem.share(first) * cycles + overhead(problem, first, last)

    def _begin(self, first: int, last: int, share: float) -> Segment | None:
        """The run as an epoch at the first target that does; its stall cycles are those of filling."""
        key = self._structure(first, last), share
        if key not in self._begun:
            segment = self._bold[share].realise(first, last)
            if segment is not None:
                inputs = self.problem.inputs(first)
                filling = max(
                    0.0, cycles_without_stalls(self.problem, segment, self.cache) / inputs - segment.limiter_cycles
                )
                segment = dataclasses.replace(segment, stall_cycles=filling)
            self._begun[key] = segment
        begun = self._begun[key]
        return None if begun is None else dataclasses.replace(begun, first=first, last=last)

    def epoch(self, first: int, last: int, share: float) -> Segment | None:
        """The best epoch of the run that is known, those that are begun finished; None where it is none."""
        key, begun = (self._structure(first, last), share), self._begin(first, last, share)
        if begun is None or key in self._finished:
            return self.best(first, last)
        self._finished.add(key)
        policy, bound = self._bold[share], self._bold[share].bounds[first][last].cost
        plain = dataclasses.replace(begun, stall_cycles=0.0)
        segment = policy.flowing(policy.pipeline_epoch(policy.ready(plain, {}), {}), {})
        for over, of in zip(self._over, (bound, _interval(begun)), strict=True):
            over.append(_interval(segment) / max(1.0, of))
        self.note(segment)
        return self.best(first, last)

    def path(
        self,
        first: int,
        last: int,
        segments: Sequence[Segment],
        drawn: random.Random,
        noise: float,
        share: float,
        worked: float = 1.0,
    ) -> list[Span]:
        """The cheapest cuts of [first, last), what each run costs being disturbed; empty where there are none.
        segments: the epochs that the runs are now. noise: the standard deviation of the logarithm. worked: part of its
        cost that an epoch that is not made yet is thought to keep when it has been worked at."""
        problem, over = self.problem, [worked * statistics.median(some) for some in self._over]
        now = {(s.first, s.last): s for s in segments}
        costs: list[tuple[np.ndarray, np.ndarray]] = []
        begins = {first}
        for at in range(first, last):
            ends = self._bounds(at, last, share)
            self._bold[share].bounds[at] = {**self._bold[share].bounds.get(at, {}), **ends}
            prices: dict[int, float] = {}
            for end, bound in ends.items() if at in begins else ():
                segment, key = now.get((at, end)), (self._structure(at, end), share)
                if segment is not None:
                    price = problem.share(at) * _interval(segment) + overhead(problem, at, end)
                elif key in self._begun or key[0] in self._best:
                    price = self._price(at, end, self._begun.get(key), over[1])
                else:
                    price = problem.share(at) * over[0] * bound.cost + overhead(problem, at, end)
                prices[end] = price * drawn.lognormvariate(0.0, noise)
            begins.update(end for end, price in prices.items() if np.isfinite(price))
            costs.append((np.array(list(prices), dtype=np.int64) - first, np.array(list(prices.values()))))
        return [(a + first, b + first) for a, b in cheapest_path(costs)[0]]

    def _bounds(self, first: int, last: int, share: float) -> dict[int, CostBound]:
        """By its end, the bound of every run from `first` that ends by `last`."""
        entry = self._ends.get((first, share))
        if entry is None:
            entry = self._ends[first, share] = self._bold[share].runs.ends(first)
        return {first + length: bound for length, bound in entry.items() if first + length <= last}


def _interval(segment: Segment) -> float:
    """Cycles from one input to the next, of a priced epoch."""
    return segment.limiter_cycles + segment.stall_cycles
