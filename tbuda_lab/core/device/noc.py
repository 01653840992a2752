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
