"""`CNN`: tall grids, no target."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import candidates, one_per_shape
from tbuda_lab.core.placer.policies.epoch import fill

_MAX_SPARSE_CORES = 40


def cnn(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """Grids as tall as the op allows; of each category the slowest candidate (placement.md#policies).

    Categories in order: weights preloaded on the tallest grid, weights preloaded, the tallest grid without, the rest.
    Sparse matmuls on more than 40 cores come last of all.
    """
    table = candidates(problem)

    def preference(op: int) -> Iterable[int]:
        rows = table.rows(op)
        data = table.data(op, rows)
        bad_rows = data["grid_r"] != data["grid_r"].max()
        category = bad_rows + 2 * ~table.prologue_ok(op, rows)
        if problem.profiles[op].kind == "sparse_matmul":
            category = category + 4 * (data["cores"] > _MAX_SPARSE_CORES)
        by = np.lexsort((rows, -data["cycles"], category))
        return one_per_shape(problem.shapes(op), rows[by])

    return fill(problem, preference, check)
