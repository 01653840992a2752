"""`Random`: any legal candidate, from a seed. It is there to find what depends on a particular choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import one_per_shape
from tbuda_lab.core.placer.policies.epoch import fill


def random(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """Every legal candidate of an op with equal chance; `options.seed` and the op's number in the schedule decide, so
    the same seed gives the same placement. All rows of the table take part, not only those upstream would have."""

    def preference(op: int) -> Iterable[int]:
        table = problem.tables[op]
        rows = np.random.default_rng([problem.options.seed, op]).permutation(problem.legal[table.signature])[:512]
        return one_per_shape(problem.shapes(op), rows)

    return fill(problem, preference, check)
