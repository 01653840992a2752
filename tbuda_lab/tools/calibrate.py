"""Coefficients from measurement sheets: the largest of a few non-negative sums of features is fitted to measured
cycles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from tbuda_lab.core.cost.model import F64, FEATURES, Block
from tbuda_lab.core.cost.tables import Fit, Key
from tbuda_lab.core.errors import InputError
from tbuda_lab.tools.measurements import Sheet, read_sheet

FOLDS = 5
_STARTS = 40
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


def fit_pieces(x: F64, y: F64, pieces: int, power: float = 1.0) -> F64:
    """Weights (pieces, features) for features x (runs, features) and cycles y (runs): the sum over runs of the relative
    error to a power is made small. Below 1, most runs are met closely and the others let go."""
    if pieces == 1:
        return _fit_one(x, y, power)[None]
    best: tuple[float, F64] | None = None
    for start in range(_STARTS):
        weights = _alternate(x, y, pieces, _start(x, y, pieces, start), power)
        error = float((np.abs((x @ weights.T).max(axis=1) / y - 1) ** power).mean())
        if best is None or error < best[0] - 1e-12:
            best = (error, weights)
    assert best is not None
    return best[1]


def cross_validate(x: F64, y: F64, pieces: int, folds: int = FOLDS, power: float = 1.0) -> F64:
    """Estimates of every run by a fit that has not seen it."""
    order = np.random.default_rng(1).permutation(len(y))
    cross_validate = np.zeros(len(y))
    count = len(y) if len(y) <= _FEW else folds
    for fold in range(count):
        validation = order[fold::count]
        seen = np.setdiff1d(order, validation)
        cross_validate[validation] = (x[validation] @ fit_pieces(x[seen], y[seen], pieces, power).T).max(axis=1)
    return cross_validate


def _fit_one(x: F64, y: F64, power: float) -> F64:
    """Non-negative weights of one sum; columns are scaled so that the solver meets numbers of one size."""
    scale = np.maximum(np.abs(x / y[:, None]).max(axis=0), 1e-30)
    relative = x / y[:, None] / scale
    importance = np.ones(len(y))
    weights = np.zeros(x.shape[1])
    for _ in range(_REWEIGHTS):
        weights, _ = nnls(relative * importance[:, None], importance)
        importance = np.maximum(np.abs(relative @ weights - 1), 0.01) ** (power / 2 - 1)
    result: F64 = weights / scale
    return result


def _alternate(x: F64, y: F64, pieces: int, owner: npt.NDArray[np.intp], power: float) -> F64:
    weights = np.zeros((pieces, x.shape[1]))
    for _ in range(_ROUNDS):
        for piece in range(pieces):
            mine = owner == piece
            if mine.sum() >= 2:
                weights[piece] = _fit_one(x[mine], y[mine], power)
        largest = (x @ weights.T).argmax(axis=1)
        if (largest == owner).all():
            break
        owner = largest
    return weights


def _start(x: F64, y: F64, pieces: int, start: int) -> npt.NDArray[np.intp]:
    """An assignment of runs to pieces: by the ratio of two features cut at some share, or by pieces
    that a few runs drawn at random give."""
    columns = x.shape[1]
    pairs = [(a, b) for a in range(columns) for b in range(a)]
    if start % 4 == 3 or not pairs:
        return _random_start(x, y, pieces, start)
    tried = start // 4 * 3 + start % 4
    a, b = pairs[tried * 7 % len(pairs)]
    _, rank = np.unique(x[:, a] / np.maximum(x[:, b], 1e-30), return_inverse=True)  # equal ratios stay together
    share = _SHARES[(tried + tried // len(pairs)) % len(_SHARES)]
    first, most = share * (rank.max() + 1), rank.max() + 1
    rest = np.floor((rank - first) / max(most - first, 1) * (pieces - 1)).astype(np.intp)
    return np.where(rank < first, 0, 1 + np.clip(rest, 0, pieces - 2))


def _random_start(x: F64, y: F64, pieces: int, seed: int) -> npt.NDArray[np.intp]:
    """The piece that is largest for each run, of pieces that as many runs as there are features give exactly: runs of
    one kind are drawn together now and then, and what is unlike them does not bend the fit."""
    rng, some = np.random.default_rng(seed), min(x.shape[1], len(x) // 2)
    drawn = [rng.choice(len(x), max(some, 2), replace=False) for _ in range(pieces)]
    owner: npt.NDArray[np.intp] = (x @ np.stack([_fit_one(x[at], y[at], 1.0) for at in drawn]).T).argmax(axis=1)
    return owner


_ELEMENTWISE = ("blocks", "tiles", "one")
_MATMUL = ("math", "spill", "step", "operands", "inner", "tiles", "one", "spill_blocks", "blocks", "passes")
_SPARSE = (
    "nz",
    "nz_cols",
    "nz_math",
    "nzu_cols",
    "nzu_tiles",
    "strips",
    "strip_cols",
    "strip_blocks",
    "tiles",
)
_FIRST = {
    "matmul": _MATMUL,
    "depthwise": ("math", "spill", "step", "one"),
    "sparse_matmul": _SPARSE,
    "reduce": ("blocks", "tiles", "inner_tiles"),
    "reduce_z": ("one", "blocks", "tiles", "z_step_tiles", "z_step_blocks", "z_wait"),
}
"""Features that each form is fitted with at first; every other op uses those of an elementwise op."""

_WITHOUT_OPERANDS = tuple(name for name in _MATMUL if name != "operands")
_WIDER = {
    "power": (*_ELEMENTWISE, "ublock_tiles"),
    "matmul": (*_WITHOUT_OPERANDS, "in0", "in1", "reload", "reload_blocks", "inner_rows"),
    "sparse_matmul": (*_SPARSE, "again", "again_tiles", "restrip_blocks", "restrip_tiles", "blocks", "one", "nzu"),
    "reduce": ("blocks", "tiles", "inner_tiles", "one", "step"),
}
"""A form that is tried too, and kept where it predicts unseen runs better: of any op of elements with `looped`."""

_MOST_PIECES = {"matmul": 4, "sparse_matmul": 3}
_POWER = {"depthwise": 0.5}
"""Ops whose runs are of several series, a tenth or more apart, that no column tells apart: the largest is met."""

_SMALLER, _BY = 0.9, 0.002  # more features or pieces have to take off a tenth of the mean error, and 0.2 points
_FEWEST = 5
_RUNS_OF_A_PIECE = 30  # where there are more than two


@dataclasses.dataclass(frozen=True)
class KeyRuns:
    """All runs of one key. counts: what their blocks are made of, by name (t, mblock_m, ..., fidelity)."""

    key: Key
    counts: dict[str, F64]
    features: dict[str, F64]
    measured: F64


def read_folder(folder: Path) -> list[Sheet]:
    """The sheets of a folder (*.csv, in order of their names); raises `InputError` when there are none."""
    paths = sorted(folder.glob("*.csv")) if folder.is_dir() else []
    if not paths:
        raise InputError(f"{folder}: no measurement sheets (*.csv) in this folder")
    return [read_sheet(path) for path in paths]


def group(sheets: Iterable[Sheet]) -> list[KeyRuns]:
    """Runs by what they fit together; runs that stand in two sheets count once."""
    parts: dict[Key, list[tuple[Sheet, list[int]]]] = {}
    for sheet in sheets:
        if sheet.measured is None:
            raise InputError(f"{sheet.path}: no column runtime or total-runtime")
        mine: dict[Key, list[int]] = {}
        for row, key in enumerate(sheet.keys):
            if sheet.vectors[row] == "rc" and sheet.measured[row] > 0:
                mine.setdefault(key, []).append(row)
        for key, rows in mine.items():
            parts.setdefault(key, []).append((sheet, rows))
    return [_join(key, parts[key]) for key in sorted(parts, key=dataclasses.astuple)]


def _join(key: Key, parts: list[tuple[Sheet, list[int]]]) -> KeyRuns:
    blocks: list[Block] = [sheet.block(np.array(rows)) for sheet, rows in parts]
    each = [block.features() for block in blocks]
    features = {name: np.concatenate([f[name] for f in each]) for name in FEATURES}
    measured = np.concatenate([sheet.measured[np.array(rows)] for sheet, rows in parts if sheet.measured is not None])
    table = np.stack([*features.values(), measured], axis=1)
    _, first = np.unique(table, axis=0, return_index=True)
    keep = np.sort(first)
    counts = {
        name: np.concatenate([sheet.counts[name][rows] for sheet, rows in parts])[keep] for name in parts[0][0].counts
    }
    return KeyRuns(key, counts, {name: values[keep] for name, values in features.items()}, measured[keep])


def form(key: Key) -> tuple[str, ...]:
    """The features that a key is fitted with at first."""
    return _FIRST.get("reduce_z" if (key.kind, key.variant) == ("reduce", "z") else key.kind, _ELEMENTWISE)


def forms(key: Key) -> list[tuple[tuple[str, ...], int]]:
    """(features, number of pieces) that are tried for a key, the simplest first."""
    first = form(key)
    tried = [(first, pieces) for pieces in (1, 2)]
    wider = _WIDER.get(key.kind, (*_ELEMENTWISE, "looped"))
    if (key.kind, key.variant) != ("reduce", "z") and key.kind != "depthwise":
        tried += [(wider, pieces) for pieces in range(1, _MOST_PIECES.get(key.kind, 2) + 1)]
    return tried


def calibrate(runs: Iterable[KeyRuns], progress: Callable[[Fit], None] | None = None) -> dict[Key, Fit]:
    """A fit for every key with enough runs: one sum, or the larger of two where that helps on unseen runs, of the
    form's features, or wider ones where those help."""
    fits: dict[Key, Fit] = {}
    for group_ in runs:
        if len(group_.measured) < _FEWEST:
            continue
        fit = _fit(group_)
        fits[fit.key] = fit
        if progress:
            progress(fit)
    return fits


def _fit(runs: KeyRuns) -> Fit:
    y, power = runs.measured, _POWER.get(runs.key.kind, 1.0)
    chosen: tuple[tuple[str, ...], int, Errors, float] | None = None
    for names, pieces in forms(runs.key):
        if pieces > 2 and len(y) < _RUNS_OF_A_PIECE * pieces:
            continue
        estimate = cross_validate(_columns(runs, names), y, pieces, power=power)
        errors, loss = relative_errors(estimate, y), float((np.abs(estimate / y - 1) ** power).mean() ** (1 / power))
        if chosen is None or loss < min(_SMALLER * chosen[3], chosen[3] - _BY):
            chosen = names, pieces, errors, loss
    assert chosen is not None
    names, pieces, errors, _ = chosen
    weights = fit_pieces(_columns(runs, names), y, pieces, power)
    weights_of = tuple({name: float(w) for name, w in zip(names, row, strict=True) if w > 1e-9} for row in weights)
    return Fit(runs.key, tuple(piece for piece in weights_of if piece), len(y), errors.median, errors.mean)


def _columns(runs: KeyRuns, names: tuple[str, ...]) -> F64:
    return np.stack([runs.features[name] for name in names], axis=1)
