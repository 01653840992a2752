"""How close two tensors are: correlation and absolute error, each by its plain definition."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

MIN_PCC = 0.99
"""Correlation that a verified tensor must reach to be called good."""

MAX_RELATIVE = 0.15
"""Largest error, over the largest wanted magnitude, of a verified tensor that is called good. Noise that leaves a
correlation of 0.99 is 0.14 of the signal; a wrong scale, or one wrong element among thousands, correlates and is more.
"""

_NEARLY_CONSTANT = 1e-3
FLAT = 0.1
"""Spread about the mean, over the length, below which a correlation says more of the rounding than of the values."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """name: which tensor; pcc: Pearson's correlation, of whole numbers and truth values the share of equal ones;
    max_abs: largest difference; scale: largest wanted magnitude; exact: nothing may differ, as in arithmetic of 32-bit
    whole numbers; rule: what explains a difference, by its name in docs/numbers.md, if one of those does."""

    name: str
    pcc: float
    max_abs: float
    scale: float
    exact: bool = False
    rule: str = ""

    @property
    def relative(self) -> float:
        """The largest error over the largest wanted magnitude; of a tensor of zeros the error itself."""
        return self.max_abs / self.scale if self.scale > 0 else self.max_abs

    def passes(self, pcc: float) -> bool:
        """Whether it is good by both measures."""
        if self.exact:
            return self.max_abs == 0.0
        return self.pcc >= pcc and self.relative <= MAX_RELATIVE


def compare(name: str, expected: np.ndarray, got: np.ndarray) -> Comparison:
    """Compare in float64. Infinities and NaN are good where both have the same. Whole numbers and truth values are good
    where they are equal.

    What is wanted and varies by less than 0.1 % has no correlation to speak of: it would be that of the rounding. It
    correlates with what differs from it by less than 1 %, and with nothing else.
    """
    a = np.asarray(expected, np.float64).reshape(-1)
    b = np.asarray(got, np.float64).reshape(-1)
    if a.shape != b.shape:
        raise ValueError(f"{name}: {np.shape(expected)} against {np.shape(got)}")
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        return Comparison(name, 0.0, float("inf"), scale)
    a, b = a[finite], b[finite]
    difference = float(np.abs(a - b).max(initial=0.0))
    scale = float(np.abs(a).max(initial=0.0))
    if np.asarray(expected).dtype.kind in "biu":
        return Comparison(name, float((a == b).mean()) if a.size else 1.0, difference, scale)
    return Comparison(name, _correlation(a, b, difference, scale), difference, scale)


def _correlation(a: np.ndarray, b: np.ndarray, difference: float, scale: float) -> float:
    if not a.size:
        return 1.0
    unit = max(scale, float(np.abs(b).max()), np.finfo(np.float64).tiny)  # so that no square overflows
    da, db = (a - a.mean()) / unit, (b - b.mean()) / unit
    norm = float(np.sqrt((da @ da) * (db @ db)))
    if da.std() * unit <= _NEARLY_CONSTANT * scale:
        return 1.0 if difference <= max(1e-2 * scale, 1e-6) else 0.0
    if norm == 0.0:
        return 0.0
    return float(np.clip(da @ db / norm, -1.0, 1.0))


@dataclasses.dataclass(frozen=True)
class TensorError(Comparison):
    """As `Comparison`, and relative_l2: the length of the difference over that of what is wanted, of zeros the
    difference itself; spread: the length of what is wanted about its mean over its whole length; constant: it hardly
    varies, so that its correlation says nothing."""

    relative_l2: float = dataclasses.field(default=0.0, kw_only=True)
    spread: float = dataclasses.field(default=1.0, kw_only=True)
    constant: bool = dataclasses.field(default=False, kw_only=True)

    def within(self, pcc: float) -> bool:
        """Whether no more is lost than noise that leaves a correlation of `pcc` (an error of sqrt(2 (1 - pcc)) of the
        spread), where a spread below `FLAT` counts as that: of an output that hardly varies, such as probabilities of
        an untrained model, the rounding that every format does would be too much."""
        if self.exact or not self.relative <= MAX_RELATIVE:
            return self.passes(pcc)
        return self.constant or self.noise_within(pcc)

    def noise_within(self, pcc: float) -> bool:
        """As `within`, however far a single number is off."""
        return self.pcc >= pcc or self.relative_l2 <= math.sqrt(2 * (1 - pcc)) * max(self.spread, FLAT)

    @property
    def ulps(self) -> float:
        """The largest difference in units of the last place of float32 at the largest wanted magnitude."""
        return self.max_abs / float(np.spacing(np.float32(max(self.scale, 1e-30))))


def measure_error(name: str, expected: np.ndarray, got: np.ndarray) -> TensorError:
    """`compare` of floats in one pass over them, with the measures that no correlation hides. Raises `ValueError` for
    other sizes."""
    a, b = np.asarray(expected).reshape(-1), np.asarray(got).reshape(-1)
    if a.shape != b.shape:
        raise ValueError(f"{name}: {np.shape(expected)} against {np.shape(got)}")
    if not a.size:
        return TensorError(name, 1.0, 0.0, 0.0)
    scale, other = _largest(a), _largest(b)
    if not (np.isfinite(scale) and np.isfinite(other)):
        base = compare(name, expected, got)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.isfinite(base.max_abs) or not finite.any():
            bad = np.inf if not np.isfinite(base.max_abs) else 0.0
            return TensorError(name, base.pcc, base.max_abs, base.scale, relative_l2=bad)
        return measure_error(name, a[finite], b[finite])
    unit = max(scale, other)
    if not 1e-12 < unit < 1e12:  # squares would leave float32
        unit = max(unit, float(np.finfo(np.float32).tiny))
        a, b = a / unit, b / unit
    else:
        unit = 1.0
    difference = a - b
    largest = _largest(difference) * unit
    whole, off = float(np.vdot(a, a)), float(np.vdot(difference, difference))
    mean, shift = float(a.mean()), float(difference.mean())
    spread = whole - a.size * mean**2
    if spread < 0.1 * whole:  # what is left of a difference of near numbers
        centred = a - np.asarray(mean, a.dtype)
        spread = float(np.vdot(centred, centred))
    flat = np.sqrt(max(spread, 0.0) / a.size) * unit <= _NEARLY_CONSTANT * scale
    if flat:
        pcc = 1.0 if largest <= max(1e-2 * scale, 1e-6) else 0.0
    else:
        pcc = _correlation_by_difference(a, difference, mean, shift, spread, off - a.size * shift**2)
    relative_l2 = float(np.sqrt(off / whole)) if whole else float(np.sqrt(off)) * unit
    varies = float(np.sqrt(max(spread, 0.0) / whole)) if whole else 0.0
    return TensorError(name, pcc, largest, scale, relative_l2=relative_l2, spread=varies, constant=bool(flat))


def _largest(values: np.ndarray) -> float:
    """The largest magnitude, without a copy; NaN where there is one."""
    return max(float(values.max()), -float(values.min()))


def _correlation_by_difference(
    a: np.ndarray, difference: np.ndarray, mean: float, shift: float, spread: float, apart: float
) -> float:
    """Pearson's correlation of a and a - difference. spread, apart: squared lengths of both about their means.

    With u and v about their means, |u - v|^2 = (|u| - |v|)^2 + 2 |u| |v| (1 - r): near 1 nothing is cancelled.
    """
    u = a - np.asarray(mean, a.dtype)
    w = difference - np.asarray(shift, a.dtype)
    other = spread - 2 * float(np.vdot(u, w)) + max(apart, 0.0)
    if other <= 0:
        return 0.0
    long, short = np.sqrt(spread), np.sqrt(other)
    return float(np.clip(1 - (max(apart, 0.0) - (long - short) ** 2) / (2 * long * short), -1.0, 1.0))


def compare_tensors(name: str, expected: Any, got: Any) -> Comparison:
    """`compare` of two torch tensors; one of another shape is wrong."""
    if tuple(expected.shape) != tuple(got.shape):
        return Comparison(name, 0.0, float("inf"), 0.0)
    return compare(name, _array(expected), _array(got))


def _array(tensor: Any) -> np.ndarray:
    plain = tensor.detach()
    if plain.is_complex():
        plain = plain.resolve_conj().cdouble()
        return np.stack([plain.real.numpy(), plain.imag.numpy()])
    result: np.ndarray = (plain.double() if plain.is_floating_point() else plain).cpu().numpy()
    return result
