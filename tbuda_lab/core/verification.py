"""How close two tensors are: correlation and absolute error, each by its plain definition."""

from __future__ import annotations

import dataclasses

import numpy as np

MIN_PCC = 0.99
"""Correlation that a verified tensor must reach to be called good."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """name: which tensor; pcc: Pearson's correlation; max_abs: largest difference; scale: largest wanted magnitude."""

    name: str
    pcc: float
    max_abs: float
    scale: float

    def passes(self, pcc: float) -> bool:
        return self.pcc >= pcc


def compare(name: str, expected: np.ndarray, got: np.ndarray) -> Comparison:
    """Compare in float64. Two equal constant tensors correlate by definition; a constant and another do not."""
    a = np.asarray(expected, np.float64).reshape(-1)
    b = np.asarray(got, np.float64).reshape(-1)
    if a.shape != b.shape:
        raise ValueError(f"{name}: {np.shape(expected)} against {np.shape(got)}")
    difference = float(np.abs(a - b).max(initial=0.0))
    scale = float(np.abs(a).max(initial=0.0))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Comparison(name, 1.0 if np.array_equal(a, b, equal_nan=True) else 0.0, difference, scale)
    da, db = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((da @ da) * (db @ db)))
    if norm == 0.0:
        pcc = 1.0 if np.allclose(a, b, rtol=1e-2, atol=1e-6) else 0.0
    else:
        pcc = float(np.clip(da @ db / norm, -1.0, 1.0))
    return Comparison(name, pcc, difference, scale)
