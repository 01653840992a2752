"""Greedy policies: ops in order, each with the candidate its rule prefers, into the current epoch while it holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.placer.problem import Problem
from tbuda_lab.core.placer.segment import EdgeBook, Segment, place_rows

Rule = Callable[[Problem, int], np.ndarray]
"""Legal rows of an op, preferred first."""

_TRIES = 64


def _fill(
    problem: Problem, rule: Rule, check: Callable[[float], None], *, one_op: bool = False, shared: bool = True
) -> list[Segment]:
    n = len(problem.order)
    result: list[Segment] = []
    outside: dict[int, int] = {}
    preferred: dict[str, np.ndarray] = {}
    first = 0
    while first < n:
        book = EdgeBook(problem, first, first + 1, outside)
        segment: Segment | None = None
        for op in range(first, n):
            if op > first and (one_op or problem.order[op] in problem.breaks or not _same_chip(problem, first, op)):
                break
            book.last = op + 1
            signature = problem.tables[op].signature if shared else problem.order[op]
            if signature not in preferred:
                preferred[signature] = rule(problem, op)
            grown = _join(problem, book, op, preferred[signature])
            if grown is None:
                break
            segment = grown
        if segment is None:
            name = problem.order[first]
            raise PlacementError(
                f"op {name!r} fits no epoch, not even alone",
                [
                    Diagnostic(
                        "error",
                        name,
                        "no-epoch",
                        "none of its legal candidates can be placed",
                        "remove the pin or size override of this op, or choose a larger device",
                    )
                ],
            )
        result.append(segment)
        outside.update(zip(range(segment.first, segment.last), segment.rows, strict=True))
        check(segment.last / n)
        first = segment.last
    return result


def _same_chip(problem: Problem, first: int, op: int) -> bool:
    pins = [problem.pins.get(problem.order[i]) for i in (first, op)]
    a, b = (p.chip if p is not None and p.chip is not None else problem.device.chips[0] for p in pins)
    return a == b


def _join(problem: Problem, book: EdgeBook, op: int, rows: np.ndarray) -> Segment | None:
    """The epoch with `op` added, with the first preferred row that is legal and fits."""
    crowded = book.users_ok()
    if crowded is not None and book.last - book.first > 1:
        book.refusal = (crowded, crowded, EdgeReason.USERS)
        return None
    data = problem.tables[op].rows[rows]
    free = problem.cores - sum(int(problem.tables[o].rows[r]["cores"]) for o, r in book.rows.items())
    for row in rows[data["cores"] <= free][:_TRIES]:
        if not book.check(op, int(row)):
            continue
        book.rows[op] = int(row)
        segment = place_rows(problem, book.first, book.last, book.rows)
        if segment is not None:
            return segment
        del book.rows[op]
    return None


def _by(problem: Problem, op: int, *keys: np.ndarray) -> np.ndarray:
    legal = problem.legal[problem.tables[op].signature]
    order: np.ndarray = legal[np.lexsort((legal, *reversed(keys)))]
    return order


def minimize_grid(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """`MinimizeGrid`: the smallest grid of every op, the fastest among equals."""

    def rule(problem: Problem, op: int) -> np.ndarray:
        rows = problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
        return _by(problem, op, rows["cores"], rows["cycles"])

    return _fill(problem, rule, check)


def single_op(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """`SingleOpPerEpoch`: the fastest candidate of every op, each in an epoch of its own."""

    def rule(problem: Problem, op: int) -> np.ndarray:
        rows = problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
        return _by(problem, op, -rows["cores"].astype(np.int64), rows["cycles"])

    return _fill(problem, rule, check, one_op=True)


def random(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """`Random`: any legal candidate with equal chance, from `options.seed`; the same seed gives the same placement."""

    def rule(problem: Problem, op: int) -> np.ndarray:
        legal = problem.legal[problem.tables[op].signature]
        shuffled: np.ndarray = np.random.default_rng([problem.options.seed, op]).permutation(legal)
        return shuffled

    return _fill(problem, rule, check, shared=False)


def nlp_target(problem: Problem) -> int:
    """Target cycles of the NLP policy (place-and-route section 5): 1.2 times what the matmuls on their smallest grids
    take, leaving out the small ones, within 45 000 to 125 000."""
    if problem.options.target_cycles is not None:
        return problem.options.target_cycles
    fast: list[int] = []
    small: list[int] = []
    for op, profile in enumerate(problem.profiles):
        if profile.kind != "matmul":
            continue
        rows = problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
        wanted = max(1, profile.out[1] // 6)
        same = rows[rows["grid_r"] == wanted]
        shaped = same[(profile.out[2] // same["grid_c"] >= 3) & (profile.out[1] // same["grid_r"] >= 4)]
        if len(shaped):
            fast.append(int(shaped["cycles"].min()))
        group = same if len(same) else rows
        least = group[group["cores"] == group["cores"].min()]
        small.append(int(least["cycles"].min()))
    least_cycles = 0.85 * max(fast, default=0)
    above = [c for c in small if c >= least_cycles]
    return int(min(max(1.2 * min(above, default=45_000), 45_000), 125_000))


def nlp(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """`NLP`: for every op the slowest candidate within a target that fits its rows, larger macro blocks preferred among
    those close to the target; where none is fast enough the fastest."""
    target = nlp_target(problem)

    def rule(problem: Problem, op: int) -> np.ndarray:
        rows = problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
        profile = problem.profiles[op]
        wanted = max(1, profile.out[1] // 6)
        r, c = rows["grid_r"], rows["grid_c"]
        matching = (r == wanted) | ((c == wanted) & (c < r) & (not profile.matmul_like))
        slow = rows["cycles"] > target
        cycles = rows["cycles"].astype(np.int64)
        close = cycles > 0.8 * target
        volume = rows["mblock_m"].astype(np.int64) * rows["mblock_n"]
        return _by(
            problem, op, slow, ~matching, np.where(slow, cycles, 0), np.where(close, 0, -cycles), -volume, rows["cores"]
        )

    return _fill(problem, rule, check)
