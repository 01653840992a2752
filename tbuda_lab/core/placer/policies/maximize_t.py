"""`MaximizeTMinimizeGrid`: stream over time as much as possible, on as few cores as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import candidates, one_per_shape
from tbuda_lab.core.placer.policies.epoch import fill


def maximize_t(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """For every op the largest t, then the smallest grid rows + columns, then the fewest rows."""
    existing = candidates(problem)

    def preference(op: int) -> Iterable[int]:
        rows = existing.rows(op)
        data = existing.data(op, rows)
        half = data["grid_r"].astype(np.int64) + data["grid_c"]
        by = np.lexsort((rows, data["grid_r"], half, -data["t"].astype(np.int64)))
        return one_per_shape(problem.shapes(op), rows[by])

    return fill(problem, preference, check)
