"""Follows what a policy has spent, so that one which can no longer win is stopped."""

from __future__ import annotations

from collections.abc import Callable

from tbuda_lab.core.placer.model.bounds import least_rest
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.search.chip_stages import epoch_cost
from tbuda_lab.core.placer.stalls.stall_repair import priced


class Surpassed(Exception):
    """The placement in the making costs at least as much as one that is already known."""


class CostCutoff:
    """A progress check that raises `Surpassed` once the epochs so far, and what the rest must cost at least, reach
    `limit` (cycles per input of the slowest chip).

    Where filling counts, which is then most of what an epoch takes, every epoch is priced as soon as it is final.
    The rest costs at least what the best cut of it into epochs would by area and DRAM alone (`bounds.least_rest`); and
    the slowest of n chips has at least an n-th of everything to do.
    """

    def __init__(self, problem: Problem, check: Callable[[float], None], limit: float) -> None:
        self._problem, self._check, self._spent = problem, check, 0.0
        self._limit = limit * len(problem.device.chips)
        self._rest = least_rest(problem, problem.options.epoch_switch_cycles / problem.options.inputs_counted)

    def __call__(self, fraction: float) -> None:
        self._check(fraction)

    def closed(self, segment: Segment) -> None:
        """Counts an epoch that is final."""
        self._spent += self._cost(segment)
        if self._spent + float(self._rest[segment.last]) >= self._limit:
            raise Surpassed

    def reopened(self, segment: Segment) -> None:
        """Takes back an epoch that was not final after all."""
        self._spent -= self._cost(segment)

    def _cost(self, segment: Segment) -> float:
        if self._problem.options.counts_fill:
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
