"""What `Optimal` knows of a run of ops as one epoch: what it costs at least by area, DRAM and forks alone, with nothing
placed, and what became of it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import cores_at_divider
from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.balancer.types import Objective
from tbuda_lab.core.placer.memory.host_link import link_cycles, uses_host
from tbuda_lab.core.placer.model.batch_bound import time_bound
from tbuda_lab.core.placer.model.bounds import EqualRuns
from tbuda_lab.core.placer.model.chip_stages import longest_chains, overhead, slowest_stage
from tbuda_lab.core.placer.model.costs import CostCache, Needs
from tbuda_lab.core.placer.model.edge_compatibility import refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, divider_levels
from tbuda_lab.core.placer.stalls.stall_model import RunStalls, StallCaches, StallModel

KERNEL_WEIGHT = 1.0
"""What a cycle of the slowest kernel costs beside one of the limiter. While DRAM sets the pace of an epoch its kernels
are free to be slow; but the limits are estimates, a larger batch lifts them, and then the kernels are what is left."""


def policy_cost(segment: Segment) -> float:
    """What an epoch costs the policy beside the switch to it: cycles of its limiter, those lost to full buffers
    once it is priced, and a part of the cycles of its slowest kernel."""
    return segment.limiter_cycles + segment.stall_cycles + KERNEL_WEIGHT * segment.kernel_cycles


def objective(problem: Problem, segments: Sequence[Segment], plain: Problem | None = None) -> Objective:
    """What the policy minimises, of priced epochs (those that are not count as if nothing ever waited). plain: the
    problem before nops and queues were inserted, of which the bound is."""
    return Objective(
        limiter=float(sum(problem.share(s.first) * s.limiter_cycles for s in segments)),
        waiting=float(sum(problem.share(s.first) * s.stall_cycles for s in segments)),
        switch=float(sum(overhead(problem, s.first, s.last) for s in segments)),
        kernel=float(KERNEL_WEIGHT * sum(problem.share(s.first) * s.kernel_cycles for s in segments)),
        slowest_chip=slowest_stage(problem, segments),
        inputs=problem.options.inputs_counted,
        least=functools.partial(time_bound, problem if plain is None else plain),
    )


MANY = 64
"""Inputs of a batch of which filling is a small part: what matters for it alone is looked at less."""
_KERNEL_PARTS, _KERNEL_PARTS_OF_MANY = (1.0, 0.5, 0.25), (1.0, 0.5)
"""Parts of the target that kernels may take. Of 20 placements of ten models at 64 one differs without the last, by
0.1 %; of 20 at 1 eleven do, by up to 5 %."""
_TARGETS = 160


@dataclasses.dataclass
class SearchMemory:
    """What a search works out of runs and ops, by their structure and signatures: it holds for other graphs with the
    same targets. ends: by whether runs far behind their cuts are left out."""

    tables: dict[tuple[object, ...], Needs] = dataclasses.field(default_factory=dict)
    links: dict[object, np.ndarray] = dataclasses.field(default_factory=dict)
    waiting: StallCaches = dataclasses.field(default_factory=StallCaches)
    attempts: dict[tuple[tuple[object, ...], int, int], Attempt] = dataclasses.field(default_factory=dict)
    ends: dict[bool, EqualRuns[dict[int, CostBound]]] = dataclasses.field(
        default_factory=lambda: {near: EqualRuns() for near in (False, True)}
    )
    finished_epochs: dict[tuple[object, ...], Segment] = dataclasses.field(default_factory=dict)
    streaming_epochs: dict[tuple[object, ...], Segment] = dataclasses.field(default_factory=dict)
    flowing: dict[tuple[object, ...], Segment] = dataclasses.field(default_factory=dict)


_MEMORY = "memory of a search"


def _memory(problem: Problem, targets: np.ndarray, kernel_weight: float, stall_share: float) -> SearchMemory:
    """That of the last search with the same targets, until `forget_searches`; a new one where overrides may address
    ops by their names."""
    if problem.constraints:
        return SearchMemory()
    key = (_MEMORY, targets.tobytes(), kernel_weight, stall_share)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, SearchMemory):
        entry = problem.costs.answers[key] = SearchMemory()
    return entry


def forget_searches(costs: CostCache) -> None:
    """Gives back what searches keep for the next one: some ten megabytes."""
    costs.recent_runs.clear()
    for key in [key for key in costs.answers if key[0] == _MEMORY]:
        del costs.answers[key]


class RunBounds:
    """Bounds of all runs of a problem. kernel_weight: of a cycle of the slowest kernel; stall_share: of what a run is
    thought to wait for full buffers, which repairs may take away. levels: how many cores may use DRAM, by the divider
    of its bandwidth, and the part of the target that kernels may take; caps: those cores, by level."""

    def __init__(self, problem: Problem, kernel_weight: float, stall_share: float) -> None:
        self.problem, self.kernel_weight, self.stall_share = problem, kernel_weight, stall_share
        dividers = divider_levels(problem)
        parts = _KERNEL_PARTS_OF_MANY if problem.options.inputs_counted >= MANY else _KERNEL_PARTS
        self.levels = [(d, part) for d in dividers for part in parts]
        self.caps = np.array([cores_at_divider(problem.device, d) for d, _ in self.levels])
        self._most = np.array([np.full_like(self.caps, problem.cores), self.caps], np.int32)[:, :, None]
        self.targets = self._targets()
        self._level_starts = np.arange(len(self.levels)) * len(self.targets)  # in flat arrays of levels and targets
        self.memory = _memory(problem, self.targets, kernel_weight, stall_share)
        self.waiting = StallModel(problem, self.caps.tolist(), self.targets, self.memory.waiting)

    def on(self, problem: Problem, ops: range | None = None) -> RunBounds:
        """The same for the problem in another order, or for runs of some of its ops."""
        result = copy.copy(self)
        result.problem, result.waiting = problem, self.waiting.on(problem, ops)
        return result

    def _targets(self) -> np.ndarray:
        problem = self.problem
        low, high = 1 << 62, 1
        for op in range(len(problem.order)):
            where, output = problem.places(op, op, op + 1)
            best = problem.costs.frontier(problem.tables[op], where, output, 0)
            worst = problem.costs.frontier(problem.tables[op], where, output, int(self.caps[-1]))
            inner = problem.costs.frontier(problem.tables[op], tuple("noc" for _ in where), "", 0)
            low = min(low, int(inner.cycles[-1]))
            high = max(high, int(best.cycles[0]), int(worst.cycles[-1]) + 1)
        high = max(high, low + 1)
        return np.unique(np.ceil(np.geomspace(max(1, low), high, _TARGETS))).astype(np.int64)

    def _needs(self, op: int, first: int, last: int, price: int = 0) -> Needs:
        """What the cheapest row of an op takes, for every level and target."""
        where, output = self.problem.places(op, first, last)
        key = (self.problem.tables[op].signature, where, output, price)
        entry = self.memory.tables.get(key)
        if entry is None:
            caps, parts = self.caps.tolist(), [part for _, part in self.levels]
            entry = self.problem.choices(op, where, output).needs(caps, parts, self.targets, price)
            self.memory.tables[key] = entry
        return entry

    def ends(self, first: int, cuts: CheapestCuts | None = None) -> dict[int, CostBound]:
        """By their lengths, bounds of all runs that start at `first`: equal layers are swept once. cuts: of all runs
        that start behind `first`; runs that cost far more than their cheapest cut are left out."""
        equal = self.memory.ends[cuts is not None]
        entry = equal.find(self.problem, first)
        if entry is None:
            ends, count = self._sweep(first, cuts)
            by_length = {last - first: bound for last, bound in ends.items()}
            entry = equal.add(self.problem, first, count, by_length)
        return entry

    def _sweep(self, first: int, cuts: CheapestCuts | None) -> tuple[dict[int, CostBound], int]:
        """Bounds of all runs that start at `first`, by their ends, and how many ops were looked at. cuts: see
        `ends`."""
        problem = self.problem
        shape = (2, len(self.levels), len(self.targets))
        use, cycles = np.zeros(shape, np.int32), np.zeros(shape, np.int32)  # cycles: of ops that are settled
        flat_cycles = cycles.reshape(2, -1)
        waiting: dict[int, int] = {}  # by op whose output may still come to stay inside: readers that are not yet
        current: dict[int, Needs] = {}
        sweep: dict[int, CostBound] = {}
        chip: int | None = None
        last = first
        hosted: list[int] = []
        needs_by_op: dict[int, Needs] = {}  # by op, what `_needs` says of the run so far
        gathered = RunStalls(self.waiting, first, needs_by_op.__getitem__)
        inputs = problem.inputs(first)
        for last in range(first + 1, len(problem.order) + 1):
            op = last - 1
            name = problem.order[op]
            op_chip = self._chip(op)
            if op > first and (name in problem.breaks or (chip is not None and op_chip not in (None, chip))):
                break
            chip = chip if op_chip is None else op_chip
            needs = current[op] = needs_by_op[op] = self._needs(op, first, last)
            use += needs.use
            waiting[op] = len({r for r, _ in problem.facts[op].readers})
            settled = [op] if waiting[op] == 0 else []
            for producer in {p for p in problem.facts[op].producers if p >= first}:
                waiting[producer] -= 1
                if waiting[producer] == 0:
                    old, new = current[producer], self._needs(producer, first, last)
                    if new is not old:
                        use += new.use - old.use
                        current[producer] = needs_by_op[producer] = new
                    settled.append(producer)
            for member in settled:
                np.maximum(cycles, current.pop(member).cycles, out=cycles)
            gathered.add(op)
            hosted += [op] if uses_host(problem, op) else []
            slow = [flat_cycles, *(needs.flat_cycles for needs in current.values())]
            link = link_cycles(problem, hosted, first, last, self._needs, self.memory.links)
            bound = self._bound_of_use(use, slow, gathered, link, inputs)
            if bound is not None:
                sweep[last] = bound
                if cuts is not None and cuts.far_behind(first, last, bound.cost):
                    break
            elif not (use[0] <= problem.cores).any():
                break
        return sweep, last - first

    def _bound_of_use(
        self, use: np.ndarray, cycles: Sequence[np.ndarray], waits: RunStalls, link: np.ndarray | None, inputs: int
    ) -> CostBound | None:
        """The cheapest level and target of ops that together use so much, None if the device has it at no target: with
        the waits of forks, or with cores of nops in which they wait. cycles: (2, levels x targets) each; inputs: of one
        run of the epoch."""
        within = use <= self._most
        fits: np.ndarray = within[0] & within[1]
        bound = self._cheapest(fits, cycles, waits.stall_cycles, waits.whole, link, inputs)
        if bound is not None and waits.nops is not None and waits.nops[bound.level, bound.target]:
            fits &= use[0] + waits.nops <= self._most[0]
            other = self._cheapest(fits, cycles, None, waits.whole, link, inputs)
            if other is not None and other.cost < bound.cost:
                return dataclasses.replace(other, nops=int(waits.nops[other.level, other.target]))
        return bound

    def _cheapest(
        self,
        fits: np.ndarray,
        cycles: Sequence[np.ndarray],
        held: np.ndarray | None,
        whole: np.ndarray | None,
        link: np.ndarray | None,
        inputs: int,
    ) -> CostBound | None:
        """The cheapest of the lowest targets of every level that fit, for a run of so many inputs."""
        at = fits.argmax(axis=1)  # the lowest target of each level that fits
        chosen = self._level_starts + at
        ok = fits.reshape(-1).take(chosen)
        if not ok.any():
            return None
        both = cycles[0].take(chosen, axis=1)
        for more in cycles[1:]:
            np.maximum(both, more.take(chosen, axis=1), out=both)
        slowest, longest = both
        if link is not None:
            slowest = np.maximum(slowest, link.take(chosen))
        stall_cycles = np.zeros(len(at))
        if held is not None:
            stall_cycles += np.maximum(0.0, held.take(chosen) - slowest)
        if whole is not None:
            stall_cycles += np.maximum(0.0, whole.take(chosen) - slowest) / inputs
        cost = np.where(ok, slowest + self.stall_share * stall_cycles + self.kernel_weight * longest, np.inf)
        level = int(cost.argmin())
        return CostBound(float(cost[level]), level, int(at[level]), float(stall_cycles[level]))

    def bound(self, first: int, last: int, price: int = 0) -> CostBound | None:
        """The bound of one run alone."""
        needs = [self._needs(op, first, last, price) for op in range(first, last)]
        use = needs[0].use.copy()
        for other in needs[1:]:
            use += other.use
        gathered = RunStalls(self.waiting, first, lambda op: needs[op - first])
        for op in range(first, last):
            gathered.add(op)
        hosted = [op for op in range(first, last) if uses_host(self.problem, op)]
        link = link_cycles(self.problem, hosted, first, last, lambda op, first, last: needs[op - first])
        inputs = self.problem.inputs(first)
        return self._bound_of_use(use, [n.flat_cycles for n in needs], gathered, link, inputs)

    def _chip(self, op: int) -> int | None:
        """The chip an op is pinned to."""
        pin = self.problem.pins.get(self.problem.order[op])
        return None if pin is None else pin.chip


FAR_BEHIND, FAR_BEHIND_OF_MANY = 1.25, 1.15
"""What a run may cost by its bound, over the cheapest cut of the same ops into shorter ones. Of the runs that a search
made real none was above 1.04: where a run is dear, its cut has room to turn out dearer than its bounds."""
_PATIENCE, _PATIENCE_OF_MANY = 8, 6
"""Runs in a row, each an op longer, that are far behind before no longer one is looked at. The placements of ten models
on both architectures at batches 1 and 64 are the same as with 12; those at 64 with 6 and 1.15, but for one that takes
0.9 % less."""


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
    placement: float


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
            self._priced[at] = self._share[at] * policy_cost(segment)
        else:
            self._placed[at] = self._share[at] * (policy_cost(segment) + self._stalls[at])

    def costs(self, guess: RunEstimate | None) -> list[tuple[np.ndarray, np.ndarray]]:
        """By first op: where epochs from there may end, and what each costs with the switch to it: as priced, else as
        guessed from what is known of it, infinite for a run that is no epoch. Without a guess only what is priced
        counts."""
        cycles = np.where(np.isnan(self._priced), np.inf, self._priced)
        if guess is not None:
            guessed = np.where(np.isnan(self._placed), self._bound * guess.bound, self._placed * guess.placement)
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
        many = problem.options.inputs_counted >= MANY
        self._far = FAR_BEHIND_OF_MANY if many else FAR_BEHIND
        self._patience = _PATIENCE_OF_MANY if many else _PATIENCE
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
            self._behind = self._behind + 1 if cost > self._far * float((cuts + self._of_runs[:taken]).min()) else 0
        self._lengths[taken], self._of_runs[taken] = length, cost
        self._taken = taken + 1
        return self._behind >= self._patience

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
