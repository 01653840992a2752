"""Ways on the two NoCs of a chip: tori of (columns, rows) nodes, one way round each (placement.md#noc-distances)."""

from __future__ import annotations

import numpy as np


def hops(noc: int, source: np.ndarray, target: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(...) links on the way between nodes (..., 2) given as (x, y); size: (columns, rows) of the NoC."""
    away = target - source if noc == 0 else source - target
    total: np.ndarray = (away % np.array(size)).sum(axis=-1)
    return total


def fewest_hops(source: np.ndarray, target: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(...) the same by whichever NoC is shorter."""
    fewest: np.ndarray = np.minimum(hops(0, source, target, size), hops(1, source, target, size))
    return fewest


X, Y = 0, 1
"""Axes of a link."""


def link_bytes(
    noc: int,
    source: np.ndarray,
    target: np.ndarray,
    size_bytes: np.ndarray,
    size: tuple[int, int],
    group: np.ndarray | None = None,
    groups: int = 1,
) -> np.ndarray:
    """(groups, 2, rows, columns) bytes over every link: axis, then y and x of the node that the link leaves.

    source, target: (n, 2) nodes as (x, y); size_bytes: (n,) of each transfer; group: (n,) which sum each counts to.
    """
    columns, rows = size
    group = np.zeros(len(source), dtype=np.int64) if group is None else group
    if noc == 0:
        row, column = source[:, 1], target[:, 0]  # x along the row it starts in, then y along the column it ends in
        begin_x, begin_y = source[:, 0], source[:, 1]
        length = (target - source) % np.array(size)
    else:
        row, column = target[:, 1], source[:, 0]
        begin_x, begin_y = columns - 1 - source[:, 0], rows - 1 - source[:, 1]
        length = (source - target) % np.array(size)
    along_x = _rings(group * rows + row, begin_x, length[:, 0], size_bytes, columns, groups * rows)
    along_y = _rings(group * columns + column, begin_y, length[:, 1], size_bytes, rows, groups * columns)
    if noc == 1:
        along_x, along_y = along_x[:, ::-1], along_y[:, ::-1]
    return np.stack(
        [along_x.reshape(groups, rows, columns), along_y.reshape(groups, columns, rows).transpose(0, 2, 1)], axis=1
    )


def _rings(
    ring: np.ndarray, begin: np.ndarray, length: np.ndarray, weight: np.ndarray, size: int, rings: int
) -> np.ndarray:
    """(rings, size): the weight of all arcs that cover each place of a ring; an arc covers `length` < size places from
    `begin` on. A sum of steps up and down, so that it takes no time per place; places under no arc are exactly 0."""
    steps = np.zeros((rings, 2 * size))
    count = np.zeros((rings, 2 * size), dtype=np.int64)
    for table, value in ((steps, weight), (count, np.ones(len(ring), dtype=np.int64))):
        np.add.at(table, (ring, begin), value)
        np.add.at(table, (ring, begin + length), -value)
    covered = steps.cumsum(axis=1)
    covered[count.cumsum(axis=1) == 0] = 0.0
    folded: np.ndarray = covered[:, :size] + covered[:, size:]
    return folded
