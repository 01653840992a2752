"""Small integer helpers: divisors, ublock shapes."""

from __future__ import annotations

import functools

import numpy as np


@functools.cache
def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d != n])


@functools.cache
def ublock_shapes(rows: int, cols: int, dst_tiles: int) -> tuple[tuple[int, int], ...]:
    """(u_r, u_c) that divide a block of rows x cols tiles and fit DST, largest first.

    For each budget dst, dst/2, ..., 1: the shapes to which neither side can be enlarged within the budget. The smaller
    budgets serve L1 and the legality of edges.
    """
    shapes = [(r, c) for r in divisors(rows) if r <= dst_tiles for c in divisors(cols) if r * c <= dst_tiles]
    chosen: list[tuple[int, int]] = []
    budget = dst_tiles
    while budget >= 1:
        inside = [s for s in shapes if s[0] * s[1] <= budget]
        for s in inside:
            larger = any(o != s and o[0] >= s[0] and o[1] >= s[1] for o in inside)
            if not larger and s not in chosen:
                chosen.append(s)
        budget //= 2
    return tuple(sorted(chosen, key=lambda s: (-s[0] * s[1], -s[1])))


def expand(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For a ragged product: indices of the owner and of the position within the owner, `counts[i]` of each i."""
    counts = np.asarray(counts, np.int64)  # an empty list would be one of floats
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - starts[owner]
