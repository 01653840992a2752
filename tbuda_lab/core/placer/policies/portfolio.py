"""`Optimal` is never worse than any other policy on the same input: the others run too, as far as they can win."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.cost_cutoff import CostCutoff, Surpassed
from tbuda_lab.core.placer.search.chip_stages import slowest_stage
from tbuda_lab.core.placer.stalls.stall_repair import priced

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
            ahead = best if len(problem.device.chips) == 1 else None  # of stages the sum tells nothing
            start = _SHARE + (1 - _SHARE) * done / len(others)
            check(start)
            problem.refusals.clear()
            told = functools.partial(_within, check, start, (1 - _SHARE) / len(others))
            cutoff = CostCutoff(problem, told, limit, ahead)
            try:
                result = run(problem, cutoff)
            except (PlacementError, Surpassed):
                continue
            if slowest_stage(problem, result) >= limit:
                continue
            result = [priced(problem, segment) for segment in result]  # as it will be repaired
            if slowest_stage(problem, result) < limit:
                best, refusals = result, dict(problem.refusals)
        if best is None:
            assert failure is not None
            raise failure
        problem.refusals.clear()
        problem.refusals.update(refusals)  # of the policy that is taken
        return best

    return best_of


def _within(check: Callable[[float], None], start: float, share: float, fraction: float) -> None:
    check(start + share * fraction)
