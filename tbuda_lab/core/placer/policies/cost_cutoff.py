"""Follows what a policy has spent, so that one which can no longer win is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tbuda_lab.core.placer.model.bounds import least_rest, least_times_from
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.search.chip_stages import epoch_cost
from tbuda_lab.core.placer.stalls.stall_repair import priced

_BEHIND = 0.05
"""Part of all cycles of the best placement that the one in the making may cost more, op for op."""


class Surpassed(Exception):
    """The placement in the making costs more than one that is already known, or will."""


class CostCutoff:
    """A progress check that raises `Surpassed` once the epochs so far, and what the rest must cost at least, reach
    `limit` (cycles per input of the slowest chip); or once they cost far more than those that take the `best` placement
    as far: a policy that is behind by then does not catch up.

    Where filling counts, which is then most of what an epoch takes, every epoch is priced as soon as it is final, if it
    does not cost too much without. The rest costs at least what the best cut of it into epochs would by area, DRAM and
    the way of the first input (`bounds.time_bound`); and the slowest of n chips has at least an n-th of everything.
    """

    def __init__(
        self, problem: Problem, check: Callable[[float], None], limit: float, best: Sequence[Segment] | None = None
    ) -> None:
        self._problem, self._check, self._spent = problem, check, 0.0
        self._limit = limit * len(problem.device.chips)
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

    def closed(self, segment: Segment) -> None:
        """Counts an epoch that is final."""
        most = min(self._limit - float(self._rest[segment.last]), float(self._most[segment.last]))
        if self._spent + epoch_cost(self._problem, segment) >= most:
            raise Surpassed
        self._spent += self._cost(segment)
        if self._spent >= most:
            raise Surpassed

    def reopened(self, segment: Segment) -> None:
        """Takes back an epoch that was not final after all."""
        self._spent -= self._cost(segment)

    def _cost(self, segment: Segment) -> float:
        if self._fills:
            segment = priced(self._problem, segment)
        return epoch_cost(self._problem, segment)


def closed(check: Callable[[float], None], segment: Segment) -> None:
    """Tells `check` about a final epoch, if it is a `CostCutoff`."""
    if isinstance(check, CostCutoff):
        check.closed(segment)


def reopened(check: Callable[[float], None], segment: Segment) -> None:
    """Tells `check` about an epoch that is to be filled again, if it is a `CostCutoff`."""
    if isinstance(check, CostCutoff):
        check.reopened(segment)
