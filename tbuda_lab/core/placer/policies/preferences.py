"""Policies that are one order of preference over an op's candidates, `fill` does the rest; and `NLP`, one target for
the whole model, taken from its matmuls (placement.md#policies)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.candidates import Candidates, candidates, one_per_shape
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
            -data["t"].astype(np.int64),
            data["grid_r"].astype(np.int64) + data["grid_c"],
            data["grid_r"],
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


_LEAST, _MOST = 45_000, 125_000


def target_rows(problem: Problem, op: int) -> int:
    """Grid rows the policy wants of an op: a sixth of its output's tile rows."""
    return max(1, problem.profiles[op].out[1] // 6)


def nlp_target(problem: Problem, candidates: Candidates) -> int:
    """Target cycles: 1.2 times the fastest of the smallest-grid matmuls that are not small, within 45 000 to 125 000.

    Small is what takes less than 0.85 of the slowest well-shaped matmul (its wanted rows, its weight preloaded where
    that can be, at least 3 tile columns and 4 tile rows per core), each in its fastest form.
    """
    if problem.options.target_cycles is not None:
        return problem.options.target_cycles
    shaped_cycles: list[int] = []
    small_cycles: list[int] = []
    for op, profile in enumerate(problem.profiles):
        if profile.kind != "matmul":
            continue
        rows = candidates.rows(op)
        data = candidates.data(op, rows)
        matching = data["grid_r"] == target_rows(problem, op)
        per_core = (profile.out[2] // data["grid_c"] >= 3) & (profile.out[1] // data["grid_r"] >= 4)
        preloaded = candidates.prologue_ok(op, rows)
        shaped = data["cycles"][matching & per_core & (preloaded | ~preloaded.any())]
        if len(shaped):
            shaped_cycles.append(int(shaped.min()))
        group = data[matching] if matching.any() else data
        small_cycles.append(int(group["cycles"][group["cores"] == group["cores"].min()].min()))
    least = 0.85 * max(shaped_cycles, default=0)
    slowest = min((c for c in small_cycles if c >= least), default=_LEAST)
    return int(min(max(1.2 * slowest, _LEAST), _MOST))


def nlp(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """For every op the slowest candidate within the target, larger macro blocks first among those close to it.

    Categories in order: preloaded on matching rows, preloaded on other rows, too slow (fastest first), then the same
    without the weight preloaded.
    """
    table = candidates(problem)
    target = nlp_target(problem, table)

    def preference(op: int) -> Iterable[int]:
        rows = table.rows(op)
        data = table.data(op, rows)
        wanted = target_rows(problem, op)
        r, c, cycles = data["grid_r"], data["grid_c"], data["cycles"].astype(np.int64)
        matching = r == wanted
        if problem.profiles[op].kind != "matmul":
            matching |= (c == wanted) & (c < r)
        slow = cycles > target
        category = np.where(slow, 2, ~matching) + 3 * ~table.prologue_ok(op, rows)
        close = ~slow & (cycles > 0.8 * target)
        volume = data["mblock_m"].astype(np.int64) * data["mblock_n"]
        first = np.where(close, -volume, 0)
        by = np.lexsort((rows, np.where(slow, cycles, -cycles), first, ~close & ~slow, category))
        return one_per_shape(problem.shapes(op), rows[by])

    return fill(problem, preference, check)
