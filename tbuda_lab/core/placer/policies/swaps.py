"""After the schedule is cut into epochs: ops moved over the cuts, as far as producers and readers allow.

The dynamic programme takes the order of ops as given. An op that could as well run in the epoch before or after is
moved there, or changes places with one that comes the other way, when the two epochs together then cost less. Each
trial is first held against the bound of `Optimal`, which costs milliseconds; what passes is made real, edges and
packing included.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import sparse_pairs
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, polish
from tbuda_lab.core.placer.policies.op_runs import CostBound, policy_cost
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.stalls.epoch_throughput import throughputs
from tbuda_lab.core.placer.stalls.stall_repair import with_least_stall_cycles, with_stall_cycles

_BOUNDS, _BOUNDS_OF_BATCH = 4, 1
"""Bounds that may be looked at for each epoch made real. Of a batch no move paid in 20 placements of ten models at 64,
where up to 64 were looked at."""
_CONE = 6
"""Ops that may move together."""
_EXCHANGED = 6
"""Moves of either side that are tried in pairs."""

Pairs = Sequence[tuple[str, str]]
"""Ops of which the first has to run before the second."""


@dataclasses.dataclass(frozen=True)
class SwapResult:
    """problem: with the order as changed. moved_ops: names of ops that changed epochs. steps: trials made real."""

    problem: Problem
    segments: tuple[Segment, ...]
    moved_ops: tuple[str, ...] = ()
    steps: int = 0


def improve(
    problem: Problem,
    segments: Sequence[Segment],
    steps: int,
    pairs: Pairs = (),
    check: Callable[[float], None] = lambda fraction: None,
    still: Collection[str] = (),
) -> SwapResult:
    """Local search by moves over the cuts between neighbouring epochs; the first that pays is made.

    steps: how many trials may be made real; the same input and steps give the same result, unless the time of the
    problem is over before: then it is the best so far. still: ops that are not moved. Several chips are left alone:
    their cuts are the stages of a pipeline.
    """
    if steps < 1 or len(segments) < 2 or problem.has_stages:
        return SwapResult(problem, tuple(segments))
    return SwapSearch(problem, segments, steps, pairs, check, still, problem.options.inputs_counted > 1).run()


class SwapSearch:
    """The search of `improve`; `better` makes one move. promising: only moves are tried that lower the bounds of both
    epochs together. For a batch bounds are far from what filling comes to, and other moves hardly ever pay: of 40
    placements of ten models at batches 8 and 64 one cost 0.1 % less by them, one 0.9 % more."""

    def __init__(
        self,
        problem: Problem,
        segments: Sequence[Segment],
        steps: int,
        pairs: Pairs,
        check: Callable[[float], None],
        still: Collection[str],
        promising: bool = False,
    ) -> None:
        self.promising = promising
        self.problem, self.segments = problem, list(segments)
        self.steps = steps
        self.allow(steps)
        self.pairs, self.check = pairs, check
        self.policy = Optimal(problem, check)
        paired = sparse_pairs(problem.graph)
        self.fixed = problem.breaks | problem.chip_breaks | set(paired) | set(paired.values()) | set(still)
        self.tried: set[object] = set()
        self._refused: set[object] = set()  # moves that no bound allows, by the structure of both epochs

    def allow(self, steps: int) -> None:
        """So many trials more may be made real."""
        self.left, self.bounds = steps, (_BOUNDS_OF_BATCH if self.promising else _BOUNDS) * steps

    @property
    def over(self) -> bool:
        return self.left <= 0 or self.bounds <= 0 or self.problem.late

    def run(self) -> SwapResult:
        """Makes moves that pay, cut by cut, until none does or all steps are used."""
        moved: dict[str, None] = {}
        pays = True
        while pays and not self.over:
            pays = False
            for cut in self._cuts():
                while not self.over and (names := self.better(cut)):
                    moved |= dict.fromkeys(names)
                    pays = True
        return SwapResult(self.problem, tuple(self.segments), tuple(moved), self.steps - self.left)

    def _cuts(self) -> list[int]:
        """Numbers of the first of two neighbouring epochs, the costliest pairs first."""
        cost = [policy_cost(a) + policy_cost(b) for a, b in itertools.pairwise(self.segments)]
        return sorted(range(len(cost)), key=lambda i: (-cost[i], i))

    # -- moves -----------------------------------------------------------------------------------------------
    def better(self, cut: int) -> tuple[str, ...]:
        """Makes the first move over a cut that pays; the names of what was moved, none if no move pays."""
        first, second = self.segments[cut : cut + 2]
        cost = policy_cost(first) + policy_cost(second)
        most = min(cost, self._bound_cost(first, second)) if self.promising else cost
        alike = self.problem.structure(first.first, second.last), first.last - first.first, most
        for down, up in self._moves(first, second):
            if self.over:
                return ()
            order = self._order(first, second, down, up)
            key = order[first.first : second.last], len(down) - len(up)
            if key in self.tried or not self._allows(order, down, second.first):
                continue
            self.tried.add(key)
            self.check(1 - self.left / self.steps)
            move = alike, tuple(op - first.first for op in down), tuple(op - first.first for op in up)
            if move in self._refused:  # equal layers; it counts as the bound that it saves
                self.bounds -= 1
                continue
            bounds = self._bounds(cut, order, first.last - len(down) + len(up), most)
            if bounds is None:
                self._refused.add(move)
                continue
            trial = self._trial(cut, *bounds, cost)
            if trial is not None:
                names = tuple(self.problem.order[op] for op in (*down, *up))
                self.problem, self.segments = trial
                return names
        return ()

    def _moves(self, first: Segment, second: Segment) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(ops that go down into the second epoch, ops that come up into the first): an op with all that reads it in
        its epoch goes down, one with all that feeds it there comes up; the most work first, then exchanges."""
        down, up = self._cones(first, readers=True), self._cones(second, readers=False)
        for ops in down:
            yield ops, ()
        for ops in up:
            yield (), ops
        for a, b in itertools.product(down[:_EXCHANGED], up[:_EXCHANGED]):
            if not any(p in a for op in b for p in self.problem.facts[op].producers):
                yield a, b

    def _cones(self, segment: Segment, *, readers: bool) -> list[tuple[int, ...]]:
        """Every op of an epoch with all that reads it there (or feeds it), directly or not; small ones only."""
        facts, span = self.problem.facts, range(segment.first, segment.last)
        cone: dict[int, frozenset[int]] = {}
        for op in reversed(span) if readers else span:
            near = [r for r, _ in facts[op].readers] if readers else facts[op].producers
            cone[op] = frozenset([op]).union(*(cone[n] for n in near if n in span))
        groups = {tuple(sorted(c)) for c in cone.values() if len(c) <= min(_CONE, len(span) - 1)}
        cones = [c for c in groups if all(self._free(op) for op in c)]
        return sorted(cones, key=lambda c: (-sum(self._work(segment, op) for op in c), c))

    def _work(self, segment: Segment, op: int) -> int:
        """Core-cycles of an op."""
        row = self.problem.tables[op].rows[segment.rows[op - segment.first]]
        return int(row["cycles"]) * int(row["cores"])

    def _free(self, op: int) -> bool:
        pin = self.problem.pins.get(self.problem.order[op])
        return self.problem.order[op] not in self.fixed and (pin is None or pin.chip is None)

    def _order(self, first: Segment, second: Segment, down: Sequence[int], up: Sequence[int]) -> tuple[str, ...]:
        order = self.problem.order
        one = [op for op in range(first.first, first.last) if op not in down]
        two = [op for op in range(second.first, second.last) if op not in up]
        head = two[:1] if two and order[two[0]] in self.problem.breaks | self.problem.chip_breaks else []
        middle = [order[op] for op in (*one, *up, *head, *down, *two[len(head) :])]
        return (*order[: first.first], *middle, *order[second.last :])

    def _allows(self, order: tuple[str, ...], down: Sequence[int], head: int) -> bool:
        """Whether the order keeps what the user asked for, and an op that begins an epoch reads nothing that would come
        after it."""
        facts = self.problem.facts[head]
        if self.problem.order[head] in self.problem.breaks | self.problem.chip_breaks and set(down) & {
            *facts.producers
        }:
            return False
        at = {name: i for i, name in enumerate(order)}
        return all(at[a] < at[b] for a, b in self.pairs)

    # -- trials ----------------------------------------------------------------------------------------------
    def _bound_cost(self, first: Segment, second: Segment) -> float:
        """What two epochs cost by their bounds as they are."""
        bounds = [self.policy.runs.bound(s.first, s.last) for s in (first, second)]
        return sum(math.inf if bound is None else bound.cost for bound in bounds)

    def _bounds(
        self, cut: int, order: tuple[str, ...], middle: int, most: float
    ) -> tuple[Optimal, Mapping[tuple[int, int], CostBound]] | None:
        """The policy for another order, with the bounds of both epochs when the cut is at `middle`; None where they
        come to `most`."""
        first, last = self.segments[cut].first, self.segments[cut + 1].last
        policy = self.policy.on(reorder(self.problem, order), range(first, last))
        self.bounds -= 1
        bounds: dict[tuple[int, int], CostBound] = {}
        for a, b in ((first, middle), (middle, last)):
            if a < b:
                bound = policy.runs.bound(a, b)
                if bound is None:
                    return None
                bounds[a, b] = bound
        return None if sum(bound.cost for bound in bounds.values()) >= most else (policy, bounds)

    def _trial(
        self, cut: int, policy: Optimal, bounds: Mapping[tuple[int, int], CostBound], cost: float
    ) -> tuple[Problem, list[Segment]] | None:
        """The placement with the epochs of these bounds in the place of two, if that costs less and all edges stay
        legal."""
        problem = policy.problem
        policy.bounds = {a: {b: bound} for (a, b), bound in bounds.items()}
        self.left -= 1
        upstream_rows = self._rows(self.segments[:cut])
        parts: list[Segment] = []
        for a, b in bounds:
            epoch = policy.realise(a, b, upstream_rows)
            if epoch is None:
                return None
            epoch = polish(problem, epoch, upstream_rows, 4)
            parts.append(epoch)
            upstream_rows.update(zip(range(a, b), epoch.rows, strict=True))
        was = sum(s.limiter_cycles for s in self.segments[cut : cut + 2])
        guess = sum(bound.stall_cycles for bound in bounds.values())
        if sum(policy_cost(p) for p in parts) + guess >= cost or sum(p.limiter_cycles for p in parts) > was:
            return None
        throughputs([(problem, part) for part in parts])  # side by side
        least = [policy_cost(with_least_stall_cycles(problem, part)) for part in parts]
        rows_before = self._rows(self.segments[:cut])
        for i, part in enumerate(parts):
            if sum(least) >= cost:
                return None
            parts[i] = with_stall_cycles(problem, part, rows_before)
            least[i] = policy_cost(parts[i])
            rows_before.update(zip(range(part.first, part.last), part.rows, strict=True))
        if sum(least) >= cost:
            return None
        for later in self.segments[cut + 2 :]:
            rows = dict(zip(range(later.first, later.last), later.rows, strict=True))
            if choose_rows(problem, later.first, later.last, rows, 0, 0.0, upstream_rows)[0] != rows:
                return None
            upstream_rows.update(rows)
        return problem, [*self.segments[:cut], *parts, *self.segments[cut + 2 :]]

    def _rows(self, segments: Sequence[Segment]) -> dict[int, int]:
        return {op: row for s in segments for op, row in zip(range(s.first, s.last), s.rows, strict=True)}


def reorder(problem: Problem, order: tuple[str, ...]) -> Problem:
    """The same ops in another order."""
    number = {name: i for i, name in enumerate(order)}
    facts = tuple(problem.facts[problem.number[name]] for name in order)
    if order != problem.order:
        moves = [number[name] for name in problem.order]
        facts = tuple(
            dataclasses.replace(
                fact,
                producers=tuple(moves[p] if p >= 0 else p for p in fact.producers),
                readers=tuple(sorted((moves[r], port) for r, port in fact.readers)),
            )
            for fact in facts
        )
    schedule = dataclasses.replace(problem.schedule, order=order, number=number, facts=facts)
    return dataclasses.replace(problem, schedule=schedule, refusals={})
