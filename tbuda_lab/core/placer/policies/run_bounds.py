"""What a run of ops costs at least as one epoch, by area, DRAM and forks alone. Nothing is placed.

A target is a number of limiter cycles that no op of the run exceeds. For every level (cores that may use DRAM, and the
part of the target that kernels may take) and target the cheapest candidate of each op is known (`Needs`); a run is
possible at the targets at which the sums of cores, and of those on DRAM, fit.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import cores_at_divider
from tbuda_lab.core.placer.memory.host_link import link_cycles, uses_host
from tbuda_lab.core.placer.model.bounds import EqualRuns
from tbuda_lab.core.placer.model.choices import Needs
from tbuda_lab.core.placer.model.cost_cache import CostCache
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, divider_levels
from tbuda_lab.core.placer.policies.op_runs import Attempt, CheapestCuts, CostBound
from tbuda_lab.core.placer.stalls.stall_model import RunStalls, StallCaches, StallModel

_KERNEL_PARTS = (1.0, 0.5, 0.25)
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
    finished: dict[tuple[object, ...], Segment] = dataclasses.field(default_factory=dict)
    streamed: dict[tuple[object, ...], Segment] = dataclasses.field(default_factory=dict)
    flowing: dict[tuple[object, ...], Segment] = dataclasses.field(default_factory=dict)


_MEMORY = "memory of a search"


def _memory(problem: Problem, targets: np.ndarray, kernel_weight: float, stall_share: float) -> SearchMemory:
    """That of the last search with the same targets, until `forget_searches`; a new one where overrides may address
    ops by their names."""
    if problem.overrides:
        return SearchMemory()
    key = (_MEMORY, targets.tobytes(), kernel_weight, stall_share)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, SearchMemory):
        entry = problem.costs.answers[key] = SearchMemory()
    return entry


def forget_searches(costs: CostCache) -> None:
    """Gives back what searches keep for the next one: some ten megabytes."""
    for key in [key for key in costs.answers if key[0] == _MEMORY]:
        del costs.answers[key]


class RunBounds:
    """Bounds of all runs of a problem. kernel_weight: of a cycle of the slowest kernel; stall_share: of what a run is
    thought to wait for full buffers, which repairs may take away. levels: how many cores may use DRAM, by the divider
    of its bandwidth, and the part of the target that kernels may take; caps: those cores, by level."""

    def __init__(self, problem: Problem, kernel_weight: float, stall_share: float) -> None:
        self.problem, self.kernel_weight, self.stall_share = problem, kernel_weight, stall_share
        dividers = divider_levels(problem)
        self.levels = [(d, part) for d in dividers for part in _KERNEL_PARTS]
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
        """Bounds of all runs that start at `first`, by their ends, and how many ops were looked at. cuts: see `ends`.
        """
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
            bound = self._bound(use, slow, gathered, link)
            if bound is not None:
                sweep[last] = bound
                if cuts is not None and cuts.far_behind(first, last, bound.cost):
                    break
            elif not (use[0] <= problem.cores).any():
                break
        return sweep, last - first

    def _bound(
        self, use: np.ndarray, cycles: Sequence[np.ndarray], waits: RunStalls, link: np.ndarray | None
    ) -> CostBound | None:
        """The cheapest level and target of ops that together use so much, None if the device has it at no target: with
        the waits of forks, or with cores of nops in which they wait. cycles: (2, levels x targets) each."""
        within = use <= self._most
        fits: np.ndarray = within[0] & within[1]
        inputs = self.problem.inputs(waits.first)
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
        return self._bound(use, [n.flat_cycles for n in needs], gathered, link)

    def _chip(self, op: int) -> int | None:
        """The chip an op is pinned to."""
        pin = self.problem.pins.get(self.problem.order[op])
        return None if pin is None else pin.chip
