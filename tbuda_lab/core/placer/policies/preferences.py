"""Policies that are one order of preference over an op's candidates; `fill` does the rest (placement.md#policies).

`CNN`: tall grids, no target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import candidates, one_per_shape
from tbuda_lab.core.placer.policies.epoch import fill

Check = Callable[[float], None]


def _by_keys(
    problem: Problem, check: Check, keys: Callable[[np.ndarray], tuple[np.ndarray, ...]], one_op: bool = False
) -> list[Segment]:
    """Candidates in ascending order of `keys` (of their records, the most important key first), then of their row."""
    table = candidates(problem)

    def preference(op: int) -> Iterable[int]:
        rows = table.rows(op)
        by = np.lexsort((rows, *reversed(keys(table.data(op, rows)))))
        return one_per_shape(problem.shapes(op), rows[by])

    return fill(problem, preference, check, one_op=one_op)


def single_op(problem: Problem, check: Check) -> list[Segment]:
    """`SingleOpPerEpoch`: the largest grid volume of every op, the first of equal ones; an epoch per op."""
    return _by_keys(problem, check, lambda data: (-data["cores"].astype(np.int64),), one_op=True)


def minimize_grid(problem: Problem, check: Check) -> list[Segment]:
    """`MinimizeGrid`: the smallest grid volume of every op, the first of equal ones."""
    return _by_keys(problem, check, lambda data: (data["cores"],))


def maximize_t(problem: Problem, check: Check) -> list[Segment]:
    """`MaximizeTMinimizeGrid`: for every op the largest t, then the smallest grid rows + columns, then the fewest
    rows."""
    return _by_keys(
        problem,
        check,
        lambda data: (
            -data["t"].astype(np.int64), data["grid_r"].astype(np.int64) + data["grid_c"], data["grid_r"],
        ),
    )


def random(problem: Problem, check: Check) -> list[Segment]:
    """`Random`: every legal candidate of an op with equal chance; `options.seed` and the op's number in the schedule
    decide, so the same seed gives the same placement. All rows of the table take part, not only those upstream would
    have. It is there to find what depends on a particular choice."""

    def preference(op: int) -> Iterable[int]:
        table = problem.tables[op]
        rows = np.random.default_rng([problem.options.seed, op]).permutation(problem.legal[table.signature])[:512]
        return one_per_shape(problem.shapes(op), rows)

    return fill(problem, preference, check)


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
