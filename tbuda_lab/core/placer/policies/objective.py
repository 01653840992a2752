"""What `Optimal` minimises (docs/cost-model.md)."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.balancer.types import Objective
from tbuda_lab.core.placer.model.batch_bound import time_bound
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.search.chip_stages import overhead, slowest_stage

KERNEL_WEIGHT = 1.0
"""What a cycle of the slowest kernel costs beside one of the limiter. While DRAM sets the pace of an epoch its kernels
are free to be slow; but the limits are estimates, a larger batch lifts them, and then the kernels are what is left."""


def weighed(segment: Segment) -> float:
    """What an epoch costs the policy beside the switch to it: cycles of its limiter, its stall_cycles once it is
    priced, and a part of the cycles of its slowest kernel."""
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
        bound=time_bound(problem if plain is None else plain),
    )
