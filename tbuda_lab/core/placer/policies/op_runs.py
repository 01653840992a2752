"""What `Optimal` knows of a run of ops, from its bound to what became of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.placer.model.edge_compatibility import refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.objective import weighed
from tbuda_lab.core.placer.search.chip_stages import longest_chains

FAR_BEHIND = 1.25
"""What a run may cost by its bound, over the cheapest cut of the same ops into shorter ones. Of the runs that a search
made real none was above 1.04: where a run is dear, its cut has room to turn out dearer than its bounds."""
_PATIENCE = 12
"""Runs in a row, each an op longer, that are far behind before no longer one is looked at. Of nine models at batches 1
and 64 no more than ten were that came near again."""


@dataclasses.dataclass
class CostBound:
    """stall_cycles: the part of the cost that filling and forks make; nops: cores that are left for nops, so that forks
    do not wait."""

    cost: float
    level: int
    target: int
    stall_cycles: float = 0.0
    nops: int = 0


@dataclasses.dataclass(frozen=True)
class RunEstimate:
    """By how much runs turn out to cost more than their bound says, and than they did when they were placed."""

    bound: float
    placed: float


@dataclasses.dataclass(frozen=True)
class RunRefusal:
    """Why a run is no epoch; `producer` and `consumer` are counted from the first op of the run."""

    reason: str
    producer: int | None = None
    consumer: int = 0

    def text(self, problem: Problem, first: int) -> str:
        if self.producer is None:
            return self.reason
        return refusal_text(problem, first + self.producer, first + self.consumer, EdgeReason(self.reason))


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What came of a run at one target: it holds for every run of the same structure."""

    segment: Segment | None
    refusal: RunRefusal | None

    def at(self, first: int, last: int) -> Segment | None:
        return None if self.segment is None else dataclasses.replace(self.segment, first=first, last=last)


class RunCosts:
    """What every run of ops costs per input of the batch, as far as is known: by its bound, as placed, as priced. Flat
    arrays of all runs, by first op and then length."""

    def __init__(self, problem: Problem, bounds: Mapping[int, Mapping[int, CostBound]]) -> None:
        """bounds: of every op all runs from there, by their ends."""
        options, count = problem.options, len(problem.order)
        self._begin = np.cumsum([0, *(len(bounds[first]) for first in range(count))])
        self._last = np.array([last for first in range(count) for last in bounds[first]], dtype=np.int64)
        each = [bound for first in range(count) for bound in bounds[first].values()]
        self._share = np.repeat([problem.share(first) for first in range(count)], np.diff(self._begin))
        self._bound = self._share * np.array([bound.cost for bound in each])
        self._stalls = np.array([bound.stall_cycles for bound in each])
        self._switch = np.full(len(each), float(options.epoch_switch_cycles))
        if options.epoch_fill_cycles:
            for first in range(count):
                at = slice(self._begin[first], self._begin[first + 1])
                if len(lasts := self._last[at]):
                    chains = np.array(longest_chains(problem, first, int(lasts[-1])))
                    self._switch[at] += options.epoch_fill_cycles * chains[lasts - first - 1]
        self._switch /= options.inputs_counted
        self._placed, self._priced = np.full(len(each), np.nan), np.full(len(each), np.nan)  # nan: not looked at yet
        self._ends = self._by_first(self._last)

    def keep(self, first: int, last: int, segment: Segment | None, priced: bool) -> None:
        """Notes what became of a run: None where it is no epoch. priced: its stall cycles are known."""
        at = int(self._begin[first]) + int(np.searchsorted(self._ends[first], last))
        if segment is None:
            self._placed[at] = self._priced[at] = np.inf
        elif priced:
            self._priced[at] = self._share[at] * weighed(segment)
        else:
            self._placed[at] = self._share[at] * (weighed(segment) + self._stalls[at])

    def costs(self, guess: RunEstimate | None) -> list[tuple[np.ndarray, np.ndarray]]:
        """By first op: where epochs from there may end, and what each costs with the switch to it: as priced, else as
        guessed from what is known of it, infinite for a run that is no epoch. Without a guess only what is priced
        counts."""
        cycles = np.where(np.isnan(self._priced), np.inf, self._priced)
        if guess is not None:
            guessed = np.where(np.isnan(self._placed), self._bound * guess.bound, self._placed * guess.placed)
            cycles = np.where(np.isnan(self._priced), guessed, self._priced)
        return list(zip(self._ends, self._by_first(cycles + self._switch), strict=True))

    def _by_first(self, flat: np.ndarray) -> list[np.ndarray]:
        return [flat[a:b] for a, b in itertools.pairwise(self._begin.tolist())]


class CheapestCuts:
    """What every run of ops costs by the bounds of its cheapest cut into epochs, switches included. Filled from the
    last op of the schedule on."""

    def __init__(self, problem: Problem) -> None:
        count = len(problem.order)
        switch = problem.options.epoch_switch_cycles
        self._switch = [switch / problem.inputs(op) for op in range(count)]  # by first op
        self._most = min(problem.cores, count)  # ops of a run
        self._costs = np.full((count + 1, self._most + 1), np.inf)  # by first op and length
        self._costs[:, 0] = 0.0
        self._first, self._behind = -1, 0
        # lengths of the runs that start at the op that is swept, with their costs: as many as were taken in
        self._lengths, self._of_runs = np.zeros(count + 1, np.int64), np.zeros(count + 1)
        self._taken = 0

    def cost(self, first: int, last: int) -> float:
        """Of ops [first, last), all runs from there taken in."""
        return float(self._costs[first, last - first])

    def far_behind(self, first: int, last: int, cost: float) -> bool:
        """Takes in the bound of a run, one longer than the one before; whether it and the last few cost so much more
        than their cheapest cuts that longer ones are not worth a look."""
        if first != self._first:
            self._first, self._behind, self._taken = first, 0, 0
        length, cost = last - first, cost + self._switch[first]
        taken = self._taken
        if taken:
            ends = self._lengths[:taken]
            cuts = self._costs[first + ends, np.minimum(length - ends, self._most)]
            self._behind = self._behind + 1 if cost > FAR_BEHIND * float((cuts + self._of_runs[:taken]).min()) else 0
        self._lengths[taken], self._of_runs[taken] = length, cost
        self._taken = taken + 1
        return self._behind >= _PATIENCE

    def add(self, first: int, ends: Mapping[int, CostBound]) -> None:
        """Takes in all runs that start at an op, by their lengths. Those of all later ops are in."""
        if not ends:
            return
        lengths = np.array(list(ends))
        costs = np.array([bound.cost for bound in ends.values()]) + self._switch[first]
        left = np.arange(self._most + 1) - lengths[:, None]  # of a run of each length, behind the first epoch
        whole = costs[:, None] + self._costs[first + lengths[:, None], np.maximum(left, 0)]
        whole[left < 0] = np.inf
        np.minimum(self._costs[first], whole.min(axis=0), out=self._costs[first])
