"""`Optimal` is never worse than any other policy on the same input: the others run too, as far as they can win.

Follows what a policy has spent, so that one which can no longer win is stopped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.placer.model.batch_bound import least_times_from
from tbuda_lab.core.placer.model.bounds import least_rest
from tbuda_lab.core.placer.model.chip_stages import epoch_cost, slowest_stage
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles

_BEHIND = 0.05
"""Part of all cycles of the best placement that the one in the making may cost more, op for op."""


class CutoffReached(Exception):
    """The placement in the making costs more than one that is already known, or will."""


class CostCutoff:
    """A progress check that raises `CutoffReached` once the epochs so far, and what the rest must cost at least, reach
    `limit` (cycles per input of the slowest chip); or once they cost far more than those that take the `best` placement
    as far: a policy that is behind by then does not catch up.

    Where filling counts, which is then most of what an epoch takes, every epoch is priced as soon as it is final, if it
    does not cost too much without. The rest costs at least what the best cut of it into epochs would by area, DRAM and
    the way of the first input (`least_times_from`); and the slowest of n chips has at least an n-th of everything.
    """

    def __init__(
        self, problem: Problem, check: Callable[[float], None], limit: float, best: Sequence[Segment] | None = None
    ) -> None:
        self._problem, self._check, self._spent = problem, check, 0.0
        self._limit = limit * (len(problem.device.chips) if problem.has_stages else 1)
        options = problem.options
        self._fills = options.counts_fill and options.enable_fork_join_buffering  # else nothing is charged for filling
        switch = options.epoch_switch_cycles / options.inputs_counted
        self._rest = least_times_from(problem) if self._fills else least_rest(problem, switch)
        self._most = np.full(len(problem.order) + 1, np.inf)  # that the epochs up to each op may cost
        if best is not None:
            costs = np.cumsum([epoch_cost(problem, segment) for segment in best])
            for segment, cost in zip(best, costs, strict=True):
                self._most[segment.first + 1 : segment.last + 1] = cost + _BEHIND * costs[-1]

    def __call__(self, fraction: float) -> None:
        self._check(fraction)

    def count_epoch(self, segment: Segment) -> None:
        """Counts an epoch that is final."""
        most = min(self._limit - float(self._rest[segment.last]), float(self._most[segment.last]))
        if self._spent + epoch_cost(self._problem, segment) >= most:
            raise CutoffReached
        self._spent += self._cost(segment)
        if self._spent >= most:
            raise CutoffReached

    def uncount_epoch(self, segment: Segment) -> None:
        """Takes back an epoch that was not final after all."""
        self._spent -= self._cost(segment)

    def _cost(self, segment: Segment) -> float:
        if self._fills:
            segment = with_stall_cycles(self._problem, segment)
        return epoch_cost(self._problem, segment)


def count_epoch(check: Callable[[float], None], segment: Segment) -> None:
    """Tells `check` about a final epoch, if it is a `CostCutoff`."""
    if isinstance(check, CostCutoff):
        check.count_epoch(segment)


def uncount_epoch(check: Callable[[float], None], segment: Segment) -> None:
    """Tells `check` about an epoch that is to be filled again, if it is a `CostCutoff`."""
    if isinstance(check, CostCutoff):
        check.uncount_epoch(segment)


Policy = Callable[[Problem, Callable[[float], None]], list[Segment]]

_SHARE = 0.9
"""Part of the progress that the best_of policy takes."""


def never_worse(main: Policy, others: Mapping[str, Policy]) -> Policy:
    """A policy that gives the cheapest of `main` and `others` (limiter cycles, waiting for buffers and epoch switches
    per input, summed over the epochs of a chip; on several chips the slowest one counts).

    Which of the others run to their end depends on costs alone, so results are reproducible: one is stopped as soon as
    its epochs so far and a lower bound for the rest cost more than the best known, or its epochs so far much more than
    those of the best known for the same ops (`CostCutoff`). The others run however little time the user gave: only the
    search ends early.
    """

    def best_of(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
        best: list[Segment] | None = None
        failure: PlacementError | None = None
        try:
            best = main(problem, lambda fraction: check(_SHARE * fraction))
        except PlacementError as error:
            failure = error
        refusals = dict(problem.refusals)
        for done, run in enumerate(others.values()):
            limit = float("inf") if best is None else slowest_stage(problem, best)
            ahead = None if problem.has_stages else best  # of stages the sum tells nothing
            start = _SHARE + (1 - _SHARE) * done / len(others)
            check(start)
            problem.refusals.clear()
            progress = functools.partial(_within, check, start, (1 - _SHARE) / len(others))
            cutoff = CostCutoff(problem, progress, limit, ahead)
            try:
                segments = run(problem, cutoff)
            except (PlacementError, CutoffReached):
                continue
            if slowest_stage(problem, segments) >= limit:
                continue
            segments = [with_stall_cycles(problem, segment) for segment in segments]  # as it will be repaired
            if slowest_stage(problem, segments) < limit:
                best, refusals = segments, dict(problem.refusals)
        if best is None:
            assert failure is not None
            raise failure
        problem.refusals.clear()
        problem.refusals.update(refusals)  # of the policy that is taken
        return best

    return best_of


def _within(check: Callable[[float], None], start: float, share: float, fraction: float) -> None:
    check(start + share * fraction)
