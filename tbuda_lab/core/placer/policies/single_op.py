"""`SingleOpPerEpoch`: every op alone, as large as it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import candidates, one_per_shape
from tbuda_lab.core.placer.policies.epoch import fill


def single_op(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """The largest grid volume of every op, the first of equal ones; the epoch ends after each op."""
    existing = candidates(problem)

    def preference(op: int) -> Iterable[int]:
        rows = existing.rows(op)
        by = np.lexsort((rows, -existing.data(op, rows)["cores"].astype(np.int64)))
        return one_per_shape(problem.shapes(op), rows[by])

    return fill(problem, preference, check, one_op=True)
