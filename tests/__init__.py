"""The tests, room by room as the product. Here: few cases in which every value of each axis meets every value of each
other axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows of the product of two or more axes: for every two axes each pair of their values stands in a row. Greedy,
    the same rows every time; two axes give their product. Of axes with n values each, about n^2 rows remain."""
    values = [tuple(axis) for axis in axes]
    rows = list(itertools.product(*(range(len(axis)) for axis in values)))
    covers = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    missing = set[tuple[tuple[int, int], ...]]().union(*covers.values())
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(covers[row] & missing))
        chosen.append(best)
        missing -= covers[best]
    return [tuple(axis[i] for axis, i in zip(values, row, strict=True)) for row in chosen]
