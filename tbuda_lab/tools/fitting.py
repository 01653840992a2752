"""Fits the largest of a few non-negative sums of features to measured cycles.

Minimises the mean absolute relative error: runs are assigned to the piece that is largest for them, each piece is a
non-negative least squares fit of its runs (reweighted towards absolute errors), and both steps repeat from several
starts. Everything is deterministic.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from tbuda_lab.core.cost.blocks import F64

FOLDS = 5
_STARTS = 16
_SHARES = (1 / 2, 1 / 4, 3 / 4)
_FEW = 20  # so few runs are left out one at a time
_ROUNDS = 30
_REWEIGHTS = 12


@dataclasses.dataclass(frozen=True)
class Errors:
    """Relative errors of estimates: median, mean and 95th percentile."""

    median: float
    mean: float
    p95: float


def relative_errors(estimate: npt.NDArray[np.floating | np.integer], measured: F64) -> Errors:
    """|estimate - measured| / measured over runs."""
    error = np.abs(estimate - measured) / measured
    return Errors(float(np.median(error)), float(error.mean()), float(np.quantile(error, 0.95)))


def fit_pieces(x: F64, y: F64, pieces: int) -> F64:
    """Weights (pieces, features) for features x (runs, features) and cycles y (runs)."""
    if pieces == 1:
        return _fit_one(x, y)[None]
    best: tuple[float, F64] | None = None
    for start in range(_STARTS):
        weights = _alternate(x, y, pieces, _start(x, pieces, start))
        error = relative_errors((x @ weights.T).max(axis=1), y).mean
        if best is None or error < best[0] - 1e-12:
            best = (error, weights)
    assert best is not None
    return best[1]


def cross_validate(x: F64, y: F64, pieces: int, folds: int = FOLDS) -> F64:
    """Estimates of every run by a fit that has not seen it."""
    order = np.random.default_rng(1).permutation(len(y))
    cross_validate = np.zeros(len(y))
    count = len(y) if len(y) <= _FEW else folds
    for fold in range(count):
        validation = order[fold::count]
        seen = np.setdiff1d(order, validation)
        cross_validate[validation] = (x[validation] @ fit_pieces(x[seen], y[seen], pieces).T).max(axis=1)
    return cross_validate


def _fit_one(x: F64, y: F64) -> F64:
    """Non-negative weights of one sum; columns are scaled so that the solver meets numbers of one size."""
    scale = np.maximum(np.abs(x / y[:, None]).max(axis=0), 1e-30)
    relative = x / y[:, None] / scale
    importance = np.ones(len(y))
    weights = np.zeros(x.shape[1])
    for _ in range(_REWEIGHTS):
        weights, _ = nnls(relative * importance[:, None], importance)
        importance = 1 / np.sqrt(np.maximum(np.abs(relative @ weights - 1), 0.01))
    result: F64 = weights / scale
    return result


def _alternate(x: F64, y: F64, pieces: int, owner: npt.NDArray[np.intp]) -> F64:
    weights = np.zeros((pieces, x.shape[1]))
    for _ in range(_ROUNDS):
        for piece in range(pieces):
            mine = owner == piece
            if mine.sum() >= 2:
                weights[piece] = _fit_one(x[mine], y[mine])
        largest = (x @ weights.T).argmax(axis=1)
        if (largest == owner).all():
            break
        owner = largest
    return weights


def _start(x: F64, pieces: int, start: int) -> npt.NDArray[np.intp]:
    """An assignment of runs to pieces: by the ratio of two features cut at some share, or at random."""
    columns = x.shape[1]
    pairs = [(a, b) for a in range(columns) for b in range(a)]
    if start % 4 == 3 or not pairs:
        return np.random.default_rng(start).integers(0, pieces, len(x))
    a, b = pairs[(start // 4 * 3 + start % 4) * 7 % len(pairs)]
    ratio = x[:, a] / np.maximum(x[:, b], 1e-30)
    rank = np.argsort(np.argsort(ratio, kind="stable"), kind="stable")
    share = _SHARES[start % len(_SHARES)]
    return np.where(rank < share * len(rank), 0, 1 + rank % (pieces - 1))
