"""Reductions, running sums, and the largest elements."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ops.utils import check_memory_share, checked_axis, need_tensor, one, whole_numbers
from tbuda_lab.popxl.ops.utils import make as _make
from tbuda_lab.popxl.tensor import Tensor

Axes = int | Iterable[int] | None


def _reduce(kind: str, t: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    need_tensor("t", t)
    given = range(t.rank) if axis is None else whole_numbers(axis, f"{kind}: axis")
    axes = sorted(checked_axis(t, a, kind) for a in given)
    if len(set(axes)) < len(axes):
        raise ValueError(f"{kind}: an axis of {t.id!r} stands twice in {axis!r}")
    shape = tuple(1 if k in axes else n for k, n in enumerate(t.shape) if keepdims or k not in axes)
    return one(kind, {"t": t}, shape, t.dtype, {"axis": axes, "keepdims": bool(keepdims)})


def l1(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of absolute values."""
    return _reduce("ReduceL1", t, axis, keepdims)


def l2(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return _reduce("ReduceL2", t, axis, keepdims)


def logsum(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum."""
    return _reduce("ReduceLogSum", t, axis, keepdims)


def logsumexp(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of e^t."""
    return _reduce("ReduceLogSumExp", t, axis, keepdims)


def max(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element."""
    return _reduce("ReduceMax", t, axis, keepdims)


def mean(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean."""
    return _reduce("ReduceMean", t, axis, keepdims)


def median(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The median; the lower one of the two in the middle."""
    return _reduce("ReduceMedian", t, axis, keepdims)


def min(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element."""
    return _reduce("ReduceMin", t, axis, keepdims)


def prod(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The product."""
    return _reduce("ReduceProd", t, axis, keepdims)


def sum(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum."""
    return _reduce("ReduceSum", t, axis, keepdims)


def sumsquare(t: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum of squares."""
    return _reduce("ReduceSumSquare", t, axis, keepdims)


def lamb_square(t: Tensor) -> Tensor:
    """The sum of squares of all elements, in float32: what `adam_var_update` takes as a squared norm."""
    need_tensor("t", t)
    return one("LambSquare", {"t": t}, (), dtypes.float32)


def _arg(kind: str, t: Tensor, dim: int, keepdim: bool) -> Tensor:
    need_tensor("t", t)
    axis = checked_axis(t, dim, kind)
    shape = tuple(1 if k == axis else n for k, n in enumerate(t.shape) if keepdim or k != axis)
    return one(kind, {"t": t}, shape, dtypes.int32, {"axis": axis, "keepdims": bool(keepdim)})


def argmax(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """The index of the largest element along a dim, the first of equals."""
    return _arg("ArgMax", t, dim, keepdim)


def argmin(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """The index of the smallest element along a dim, the first of equals."""
    return _arg("ArgMin", t, dim, keepdim)


def cumsum(t: Tensor, dim: int = 0) -> Tensor:
    """The running sum along a dim, the element itself included."""
    need_tensor("t", t)
    return one("CumSum", {"t": t}, t.shape, t.dtype, {"axis": checked_axis(t, dim, "cumsum")})


def topk(
    t: Tensor, k: int, axis: int, largest: bool, sorted: bool, available_memory_proportion: float | None = None
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along an axis, in order, and their indices."""
    need_tensor("t", t)
    check_memory_share(available_memory_proportion)
    own = checked_axis(t, axis, "topk")
    if not 1 <= k <= t.shape[own]:
        raise popart_exception(f"topk: there are {t.shape[own]} elements along axis {axis}, and not {k}")
    shape = (*t.shape[:own], operator.index(k), *t.shape[own + 1 :])
    attrs: dict[str, Any] = {
        "k": operator.index(k),
        "axis": own,
        "largest": bool(largest),
        "sorted": bool(sorted),
        "available_memory_proportion": available_memory_proportion,
    }
    values, indices = _make("TopK", {"t": t}, [(shape, t.dtype), (shape, dtypes.int32)], attrs).outputs
    return values, indices


def check_increment(levels: Sequence[float]) -> None:
    """Raises `ValueError` where the levels of a histogram do not rise."""
    if any(b <= a for a, b in itertools.pairwise(levels)):
        raise ValueError(f"histogram: levels rise, not {list(levels)}")


def histogram(t: Tensor, levels: Sequence[float], absolute_of_input: bool) -> Tensor:
    """How many elements are between neighbouring levels, below the first and from the last one on."""
    need_tensor("t", t)
    steps = [float(v) for v in levels]
    if not steps:
        raise ValueError("histogram: there is one level or more")
    check_increment(steps)
    if absolute_of_input and steps[0] < 0:
        raise ValueError("histogram: levels of absolute values are not negative")
    attrs = {"levels": steps, "absolute": bool(absolute_of_input)}
    return one("Histogram", {"t": t}, (len(steps) + 1,), dtypes.uint32, attrs)
