"""`Optimal`: where to cut the schedule into epochs and how large each op is, chosen together.

Dynamic programming over the schedule (placement.md#search). For a run of ops and a target T every op takes its
smallest candidate with limiter cycles <= T; the run is feasible at T if the areas add up to no more than the device and
the cores that use DRAM stay within the load the cycles were computed for (`RunBounds`: one comparison per run).
Runs on the best path are then made real (edges, packing, exact load), and those that still are on it finished: cores
that are left go to the op that limits them, and they are priced as they will be repaired, by the simulator of epochs
(see `repair_stalls`): what a fork that has to wait costs, a larger buffer, nop or queue for it, or the pace that it
leaves. A run that turns out slower than it was thought gets its real cost and the path is computed again, until every
epoch of the best path is finished.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.graph.phases import first_of_each
from tbuda_lab.core.placer.memory.host_link import share_link
from tbuda_lab.core.placer.model.chip_stages import divide, epoch_cost, rules
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, cores_of, place_rows, polish
from tbuda_lab.core.placer.policies.layers import (
    LayerEpochs,
    cheapest_path,
    equal_layers,
    repeated_path,
    whole_layers,
)
from tbuda_lab.core.placer.policies.op_runs import (
    KERNEL_WEIGHT,
    MANY,
    Attempt,
    CheapestCuts,
    CostBound,
    RunBounds,
    RunCosts,
    RunEstimate,
    RunRefusal,
    policy_cost,
)
from tbuda_lab.core.placer.policies.pipelining import pipeline_epoch, without_full_buffers
from tbuda_lab.core.placer.policies.portfolio import CutoffReached
from tbuda_lab.core.placer.policies.preloading import settle_preloads
from tbuda_lab.core.placer.policies.spare_cores import use_spare_cores
from tbuda_lab.core.placer.stalls.fork_join import nop_cores
from tbuda_lab.core.placer.stalls.stall_repair import (
    hangs,
    is_held_up,
    with_least_stall_cycles,
    with_stall_cycles,
)

_DRAM_PRICES = (4, 8)
"""Cores that one on DRAM counts for, when an epoch that is settled is looked at again: larger grids may keep parameters
in L1 that smaller ones stream, and fewer cores on DRAM leave more bandwidth to each."""
_MORE, _MORE_OF_MANY = 10, 4
"""Runs made real after the path is settled, in case another one is better than it was thought; fewer for a batch of at
least `MANY` inputs. Of 20 placements of ten models at 64 all are the same with 4 as with 10, and ResNet-50 on grayskull
is compiled in a tenth less time; at 8 its epochs would take 7 % more."""
_STEPS = (1, 1, 1, 2, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
_REPEATED = 1.02
"""Times the cost of the cheapest cuts that cuts which repeat from layer to layer may cost."""
_LONG = 1700
"""Ops of a training schedule from which on its parts are cut alike from layer to layer, and the search ends when little
is left to gain. On one wormhole_b0, 12 layers of BERT-base with AdamW (1,813 ops): that takes a tenth less time, the
step is 0.6 % slower; with 3,153 ops it took a fifth less and the step was 2.5 % faster."""
_NEAR_ENOUGH = 0.005
"""Part of what all epochs cost by which those of a long schedule may be dearer than they are thought to be at best.
Half of AdamW's search for BERT-base went into the last 0.1 %."""
_LAYER_ROUNDS = 40
"""How often a path is chosen until the epochs of its layers are finished."""
_CLEARLY = 1.05
"""Of what all epochs may cost, what they are thought to cost for the search to end: bounds of runs are 4 % off."""
_NEAR = (0, 1, 2, 4, 7, 11)  # targets above the bound that are tried for a settled epoch


class Optimal:
    """One run of the policy over a problem. kernel_weight, stall_share: see `RunBounds`."""

    def __init__(
        self,
        problem: Problem,
        check: Callable[[float], None],
        kernel_weight: float = KERNEL_WEIGHT,
        stall_share: float = 1.0,
    ) -> None:
        self.problem, self.check = problem, check
        self.runs = RunBounds(problem, kernel_weight, stall_share)
        self.bounds: dict[int, dict[int, CostBound]] = {}  # by first op: last -> bound
        self.real: dict[tuple[int, int], Segment | None] = {}
        self.finished: set[tuple[int, int]] = set()  # runs whose segment is polished and priced
        self.slack: tuple[list[float], list[float]] = ([], [])  # of placed over bound, of finished over placed
        self._long = bool(problem.phase) and len(problem.order) >= _LONG
        begins = first_of_each(problem.order, problem.phase) if self._long else frozenset()
        self._layers = equal_layers(problem.kinds, [at for at, op in enumerate(problem.order) if op in begins] or (0,))

    def on(self, problem: Problem, ops: range | None = None) -> Optimal:
        """The same for the problem in another order, or for runs of some of its ops."""
        result = copy.copy(self)
        result.problem, result.runs = problem, self.runs.on(problem, ops)
        return result

    # -- real epochs -----------------------------------------------------------------------------------------
    def realise(self, first: int, last: int, upstream_rows: dict[int, int] | None = None) -> Segment | None:
        """The run as a placed epoch at the lowest target at which edges and packing work out, or None."""
        bound = self.bounds[first].get(last)
        if bound is None:
            return None
        level, target = bound.level, bound.target
        alike = None if upstream_rows else self.problem.structure(first, last)
        best: Segment | None = None
        for step in (0, *_STEPS):
            target += step
            if target >= len(self.runs.targets):
                break
            entry = self.runs.memory.attempts.get((alike, level, target)) if alike is not None else None
            if entry is None:
                entry = self.attempt(first, last, level, target, upstream_rows or {})
                if alike is not None:
                    self.runs.memory.attempts[alike, level, target] = entry
            segment = entry.at(first, last)
            if entry.refusal is not None:
                self.problem.refusals[first, last] = entry.refusal.text(self.problem, first)
            if segment is not None and (best is None or policy_cost(segment) < policy_cost(best)):
                best = segment
            if best is not None:
                break
        return best

    def attempt(
        self,
        first: int,
        last: int,
        level: int,
        target: int,
        upstream_rows: dict[int, int],
        price: int = 0,
        apart: bool = False,
    ) -> Attempt:
        """The run with the smallest candidates that keep a target, each with the cycles of the level's load, where
        edges and packing work out. price: cores that one on DRAM counts for; apart: with candidates that do not take
        turns with their readers."""
        problem = self.problem
        load, limit, part = int(self.runs.caps[level]), int(self.runs.targets[target]), self.runs.levels[level][1]
        picked: dict[int, int] = {}
        for op in range(first, last):
            where, output = problem.places(op, first, last)
            front = problem.costs.frontier(problem.tables[op], where, output, load, part, price, apart=apart)
            at = int(np.searchsorted(-front.cycles, -limit, side="left"))
            if at >= len(front.row):
                return Attempt(None, None)
            picked[op] = int(front.row[at])
        share_link(problem, first, last, picked, load, limit, part, price)
        rows, book = choose_rows(problem, first, last, picked, load, limit, upstream_rows, limit * part, apart=apart)
        if rows is None:
            if book.refusal is None:
                return Attempt(None, RunRefusal("no legal combination of candidates"))
            producer, consumer, reason = book.refusal
            return Attempt(None, RunRefusal(reason.value, producer - first, consumer - first))
        segment = place_rows(problem, first, last, rows)
        return Attempt(segment, None if segment else RunRefusal("the rectangles do not pack into the grid"))

    def lighter(self, segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        """The epoch with grids that take more cores and fewer of them on DRAM, where that makes it faster."""
        first, last = segment.first, segment.last
        for price in _DRAM_PRICES:
            bound = self.runs.bound(first, last, price)
            if bound is None or bound.cost >= policy_cost(segment):
                continue
            for step in _NEAR:
                if (target := bound.target + step) >= len(self.runs.targets):
                    break
                trial = self.attempt(first, last, bound.level, target, upstream_rows, price).segment
                if trial is None:
                    continue
                trial = polish(self.problem, trial, upstream_rows)
                if trial.limiter_cycles <= segment.limiter_cycles and policy_cost(trial) < policy_cost(segment):
                    segment = trial
                break
        return segment

    # -- the path --------------------------------------------------------------------------------------------
    def _keep(self, first: int, last: int, segment: Segment | None) -> None:
        """Notes what became of a run."""
        self.real[first, last] = segment
        self._costs.keep(first, last, segment, (first, last) in self.finished)

    def _path(self, guess: RunEstimate | None) -> tuple[list[tuple[int, int]], float]:
        """The cheapest way through all ops, see `RunCosts.costs`, or one that repeats and hardly costs more, and what
        it costs; empty if there is none. On several chips the cost is nan."""
        costs = self._costs.costs(guess)
        if self.problem.has_stages:
            possible = [np.isfinite(cycles) for _, cycles in costs]
            result = divide([(e[ok], c[ok]) for (e, c), ok in zip(costs, possible, strict=True)], rules(self.problem))
            if result is not None:
                return [(first, last) for first, last, _ in result], float("nan")
        path, cost = cheapest_path(costs)
        if self._layers:
            repeated, total = repeated_path(costs, self._layers, _REPEATED * cost)
            if repeated and total <= _REPEATED * cost:
                return repeated, total
        return path, cost

    def _near(self, cost: float) -> bool:
        """Whether a long schedule has a path of finished epochs that is hardly dearer than what the best one is thought
        to cost."""
        if not (self._long or self.problem.is_long) or not np.isfinite(cost):
            return False
        return cheapest_path(self._costs.costs(None))[1] <= (1 + _NEAR_ENOUGH) * cost

    def _stop_beyond(self, most: float) -> None:
        """Raises `CutoffReached` if the cheapest path, by what is known and the bounds of the rest, clearly costs
        more."""
        if most < np.inf and cheapest_path(self._costs.costs(RunEstimate(1.0, 1.0)))[1] > _CLEARLY * most:
            raise CutoffReached

    @functools.cached_property
    def _costs(self) -> RunCosts:
        """What all runs cost, by their bounds at first."""
        problem = self.problem
        n = len(problem.order)
        cuts = CheapestCuts(problem) if problem.options.epoch_fill_cycles is None else None
        for first in reversed(range(n)):
            ends = self.runs.ends(first, cuts)
            if cuts is not None:
                cuts.add(first, ends)
            self.bounds[first] = {first + length: bound for length, bound in ends.items()}
            self.check(0.5 * (n - first) / n)
        return RunCosts(problem, self.bounds)

    def layer(self, most: float = np.inf) -> LayerEpochs | None:
        """The epochs that stand for equal layers in the first path of which all such epochs are finished; None where
        there are no such layers, or cuts that repeat from one to the next cost more. Raises what `run` raises, which
        begins with this. Of a single input epochs are priced too quickly for that to pay."""
        options = self.problem.options
        if len(self._layers) != 1 or self.problem.has_stages or options.inputs_counted < 2:
            return None
        for _ in range(_LAYER_ROUNDS):
            costs = self._costs.costs(self._guess())
            path, cost = cheapest_path(costs)
            if not path:
                self._explain()
            self._stop_beyond(most)
            path, total = repeated_path(costs, self._layers, _REPEATED * cost)
            if not path or total > _REPEATED * cost:
                return None
            alike = [self.problem.structure(*span) for span in path]
            repeated = whole_layers(path, alike, self._layers[0])
            if not repeated:
                return None
            todo = [span for span in repeated if span not in self.finished]
            if not todo:
                count = collections.Counter(self.problem.structure(*span) for span in repeated)
                kinds = {self.problem.structure(*span): self.real[span] for span in repeated}
                segments = tuple(segment for segment in kinds.values() if segment is not None)
                covered = repeated[-1][1] - repeated[0][0]
                return LayerEpochs(segments, tuple(count[kind] for kind in kinds), covered / self._layers[0].period)
            for span in todo:
                self._advance(*span)
        return None

    def run(self, most: float = np.inf) -> list[Segment]:
        """Epochs in order. Raises `PlacementError` naming an op that not even an epoch of its own can hold, and
        `CutoffReached` once they are thought to cost more than `most` (`policy_cost`, and switches)."""
        problem = self.problem
        self.layer(most)  # what equal layers turn out to cost decides where to cut what is before and behind them
        n = len(problem.order)
        budget = 60 + 3 * n
        sceptical, more = False, _MORE_OF_MANY if problem.options.inputs_counted >= MANY else _MORE
        while True:
            guess = RunEstimate(1.0, 1.0) if sceptical else self._guess()
            path, cost = self._path(guess)
            if not path:
                self._explain()
            self._stop_beyond(most)
            todo = [span for span in path if span not in self.finished]
            if todo and not sceptical and self._near(cost):
                return self.settle(self._path(None)[0])
            if not todo:
                if sceptical or guess.bound <= 1.0:
                    break
                sceptical = True  # now as if every bound could be kept, for a few runs more
                continue
            if sceptical and len(todo) >= more and not any(span in self.real for span in todo):
                path, _ = self._path(None)  # none of them would be finished
                break
            for span in self._next(todo):
                self._advance(*span)
                budget -= 1
                more -= sceptical
            self.check(0.5 + 0.4 * (1 - max(0, budget) / (60 + 3 * n)))
            if more <= 0 or budget <= 0 or problem.late:
                path, _ = self._path(None)
                if path:
                    break
                budget, more = max(budget, n), max(more, n)
        return self.settle(path)

    def _next(self, todo: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Runs of a path to look at before it is chosen again. Where equal layers are finished, of what is before and
        behind them in a batch the costliest run alone: what it turns out to cost may lead elsewhere."""
        ends = self.problem.options.inputs_counted > 1 and len(self._layers) == 1
        if not ends or any(self.real.get(span) is None for span in todo):
            return todo
        if len({self.problem.structure(*span) for span in todo}) < len(todo):
            return todo
        return [max(todo, key=lambda span: self.bounds[span[0]][span[1]].cost)]

    def _guess(self) -> RunEstimate:
        """What bounds and placed epochs turn out to cost: of edges and packing half of the median so far, for other
        runs may do better; of filling and buffers all of it, for they have them too."""
        result, ready = (float(np.median(part)) if part else 0.0 for part in self.slack)
        placed = 1.0 + ready
        return RunEstimate((1.0 + 0.5 * result) * placed, placed)

    def _advance(self, first: int, last: int) -> None:
        """Makes a run real; finishes one that is."""
        segment = self.real.get((first, last))
        bound, stall_cycles = max(1.0, self.bounds[first][last].cost), self.bounds[first][last].stall_cycles
        if segment is None:
            segment = self.realise(first, last)
            if segment is not None:
                self.slack[0].append((policy_cost(segment) + stall_cycles) / bound - 1.0)
        else:
            ready = self._finish(segment)
            self.slack[1].append(policy_cost(ready) / max(1.0, policy_cost(segment) + stall_cycles) - 1.0)
            segment = ready
            self.finished.add((first, last))
        self._keep(first, last, segment)

    def _finish(self, segment: Segment) -> Segment:
        """The epoch with the cores that are left, and priced; once for equal ones."""
        first, last = segment.first, segment.last
        key = self.problem.structure(first, last), segment.rows
        ready = self.runs.memory.finished_epochs.get(key)
        if ready is None:
            ready = self.runs.memory.finished_epochs[key] = self.ready(segment, {})
        return dataclasses.replace(ready, first=first, last=last)

    def ready(self, segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        """An epoch with the cores that are left, and priced. Where full buffers hold it up all the same, it is also
        tried with ops that do not take turns with their readers: with cores left for nops, and if that does not help
        with all cores. Of a long model it is priced as if no buffer were full: MaxViT has more than 240 epochs to price
        so, which took 0.4 CPU s each."""
        if self.problem.is_long:
            return with_least_stall_cycles(self.problem, self._use_spare_cores(segment, upstream_rows))
        ready = with_stall_cycles(self.problem, self._use_spare_cores(segment, upstream_rows), upstream_rows)
        if not is_held_up(self.problem, ready, upstream_rows):
            return ready
        nops = nop_cores(self.problem, ready)
        best = ready
        for spare in (nops, 0) if nops else (0,):
            if nops and not spare and best is not ready:
                break
            other = self.apart(segment, spare, upstream_rows)
            if other is None:
                continue
            other = self._use_spare_cores(other, upstream_rows, spare)
            if policy_cost(with_least_stall_cycles(self.problem, other)) < policy_cost(best):
                best = min(best, with_stall_cycles(self.problem, other, upstream_rows), key=policy_cost)
        return best

    def _use_spare_cores(self, segment: Segment, upstream_rows: dict[int, int], nops: int = 0) -> Segment:
        """An epoch with the cores that are left, but for those of nops. Of a long schedule only the epochs that are
        taken in the end get those cores (`pipeline_epoch`), half of the epochs that are priced, or fewer."""
        polished = polish(self.problem, segment, upstream_rows, spare=nops)
        if not nops:
            polished = self.lighter(polished, upstream_rows)
        if self.runs.waiting.counts_fill:
            polished = settle_preloads(self.problem, polished, upstream_rows)
        if self.runs.waiting.counts_fill and not self._long and not self.problem.is_long:
            polished = use_spare_cores(self.problem, polished, upstream_rows, nops)
        return polished

    def apart(self, segment: Segment, nops: int, upstream_rows: dict[int, int]) -> Segment | None:
        """The same ops with rows that do not take turns with those of their readers, with so many cores left, at the
        lowest of the next targets; None where there are none at any."""
        most = self.problem.cores - nops
        bound = self.runs.bound(segment.first, segment.last)
        target = 0 if bound is None else bound.target
        for step in _STEPS if bound is not None else ():
            target += step
            if target >= len(self.runs.targets):
                break
            assert bound is not None
            found = self.attempt(segment.first, segment.last, bound.level, target, upstream_rows, apart=True).segment
            if found is not None and cores_of(self.problem, found) <= most:
                return found
        return None

    def settle(self, path: list[tuple[int, int]]) -> list[Segment]:
        """Reads of queues written by earlier epochs are checked now that all rows are known."""
        upstream_rows: dict[int, int] = {}
        result: list[Segment] = []
        for first, last in path:
            segment = self.real[first, last]
            assert segment is not None
            rows = dict(zip(range(first, last), segment.rows, strict=True))
            most = int(self.runs.caps[-1])
            checked, _ = choose_rows(self.problem, first, last, rows, most, float("inf"), upstream_rows)
            parts = [segment]
            if checked is None or any(checked[op] != rows[op] for op in rows):
                again = self.realise(first, last, upstream_rows)
                parts = (
                    [self.ready(again, upstream_rows)] if again is not None else self._split(first, last, upstream_rows)
                )
            for part in parts:
                part = self.flowing(self.pipeline_epoch(part, upstream_rows), upstream_rows)
                result.append(part)
                upstream_rows.update(zip(range(part.first, part.last), part.rows, strict=True))
        return result

    def pipeline_epoch(self, segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        """An epoch of the result with rows that stream together, where that is cheaper; once for equal ones."""
        problem, first, last = self.problem, segment.first, segment.last
        if not self.runs.waiting.counts_fill:
            return segment
        key = problem.structure(first, last), segment.rows
        if problem.is_long:
            return self._with_all_cores(segment, upstream_rows)
        result = self.runs.memory.streaming_epochs.get(key)
        if result is None:
            full = use_spare_cores(problem, segment, {}) if self._long else segment
            result = self.runs.memory.streaming_epochs[key] = with_stall_cycles(
                problem, pipeline_epoch(problem, full, {})
            )
        return self._cheaper(result, segment, upstream_rows)

    def _with_all_cores(self, segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        """An epoch of the result of a long model with the cores that are left, and what it costs as it is repaired. One
        that hangs all the same will be cut, so it is no reason to take what another policy chose."""
        problem = self.problem
        full = use_spare_cores(problem, segment, upstream_rows)
        priced = with_stall_cycles(problem, full, upstream_rows)
        return with_least_stall_cycles(problem, full) if hangs(priced) else priced

    def flowing(self, segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        """An epoch of the result with other candidates where a full buffer holds it up, where that is cheaper; once for
        equal ones. Not of a long model."""
        problem = self.problem
        if problem.is_long:
            return segment
        key = problem.structure(segment.first, segment.last), segment.rows
        result = self.runs.memory.flowing.get(key)
        if result is None:
            roomy = without_full_buffers(problem, segment, {})
            result = self.runs.memory.flowing[key] = with_stall_cycles(problem, roomy)
        return self._cheaper(result, segment, upstream_rows)

    def _cheaper(self, other: Segment, segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        """An epoch made of an equal one in the place of another, where it is cheaper and reads what was written."""
        problem, first, last = self.problem, segment.first, segment.last
        other = dataclasses.replace(other, first=first, last=last)
        if epoch_cost(problem, other) >= epoch_cost(problem, segment):
            return segment
        rows = dict(zip(range(first, last), other.rows, strict=True))
        checked, _ = choose_rows(problem, first, last, rows, 0, 0.0, upstream_rows)
        return other if checked == rows else segment

    def _split(self, first: int, last: int, upstream_rows: dict[int, int]) -> list[Segment]:
        """Finished epochs of as many ops as go together, when a run cannot be held as one. Each reads what the ones
        before it write with the rows that those have in the end."""
        parts: list[Segment] = []
        rows_so_far = dict(upstream_rows)
        at = first
        while at < last:
            part: Segment | None = None
            for end in range(last, at, -1):
                part = self.realise(at, end, rows_so_far)
                if part is not None:
                    break
            if part is None:
                self._explain(at)
            assert part is not None
            part = self.ready(part, rows_so_far)
            parts.append(part)
            rows_so_far.update(zip(range(part.first, part.last), part.rows, strict=True))
            at = part.last
        return parts

    def _explain(self, op: int | None = None) -> None:
        problem, real = self.problem, self.real
        alone = [(i, i + 1) for i in range(len(problem.order))] if op is None else [(op, op + 1)]
        if op is None:
            alone = [run for run in alone if run[1] not in self.bounds[run[0]] or (run in real and real[run] is None)]
        raise PlacementError(
            "ops fit no epoch, not even alone",
            [
                Diagnostic(
                    "error",
                    problem.order[run[0]],
                    "no-epoch",
                    problem.refusals.get(run, "no candidate fits the grid"),
                    "remove the pin or size override of this op, or choose a larger device",
                )
                for run in alone
            ],
        )


def optimal(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """Epochs by segment dynamic programming; `check(fraction)` reports progress and may raise to cancel."""
    return Optimal(problem, check).run()
