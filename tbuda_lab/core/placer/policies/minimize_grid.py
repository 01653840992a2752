"""`MinimizeGrid`: the fewest cores for every op."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import candidates, one_per_shape
from tbuda_lab.core.placer.policies.epoch import fill


def minimize_grid(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """The smallest grid volume of every op, the first of equal ones (placement.md#policies)."""
    existing = candidates(problem)

    def preference(op: int) -> Iterable[int]:
        rows = existing.rows(op)
        by = np.lexsort((rows, existing.data(op, rows)["cores"]))
        return one_per_shape(problem.shapes(op), rows[by])

    return fill(problem, preference, check)
