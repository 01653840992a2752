"""Reductions, running sums, and the largest elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.ops import binary, unary
from tbuda_lab.core.ops.reduce import Argmax, CumSum, ReduceMax
from tbuda_lab.popxl.kinds.table import Attrs, Ground, NotOnGrid, add, axes_of
from tbuda_lab.popxl.utils import product

PRODUCT_MOST = 32
"""Elements along an axis whose product the grid makes, one multiplication each."""


def _over(fn: Any) -> Any:
    """A NumPy reduction along the op's axes."""
    return lambda a, x: fn(x, axis=tuple(axes_of(a, x.ndim)), keepdims=a["keepdims"])


def _torch(fn: Any) -> Any:
    """A torch reduction along the op's axes."""

    def run(a: Attrs, x: torch.Tensor) -> torch.Tensor:
        axes = axes_of(a, x.dim())
        y: torch.Tensor = fn(x, axes) if axes else fn(x.reshape(1), [0])
        if a["keepdims"]:
            return y
        return y.reshape([n for k, n in enumerate(x.shape) if k not in axes])

    return run


def _grid(fn: Any) -> Any:
    def run(g: Ground, a: Attrs, x: str) -> str:
        shape = g.shape(x)
        axes = axes_of(a, len(shape))
        if not axes:  # a number
            return g.reshape(fn(g, g.reshape(x, (1,)), [0]), ())
        y: str = fn(g, x, axes)
        return y if a["keepdims"] else g.reshape(y, [n for k, n in enumerate(shape) if k not in axes])

    return run


def _max(g: Ground, x: str, axes: list[int]) -> str:
    return g.reduce(ReduceMax, x, axes, True)


def _mean(g: Ground, x: str, axes: list[int]) -> str:
    return g.mul(g.sum(x, axes), 1.0 / product(g.shape(x)[k] for k in axes))


def _logsumexp(g: Ground, x: str, axes: list[int]) -> str:
    """A row with an infinity is shifted by 0, for infinity less infinity is no number; its largest is what is added."""
    top = _max(g, x, axes)
    endless = g.op(binary.Equal(), g.op(unary.Abs(), top), g.full((1,), math.inf))
    shift = g.spread(g.op(binary.Where(), endless, g.full((1,), 0.0), top), g.shape(x)[:-2])
    return g.add(g.op(unary.Log(), g.sum(g.op(unary.Exp(), g.sub(x, shift)), axes)), top)


def _prod(g: Ground, x: str, axes: list[int]) -> str:
    if any(g.shape(x)[axis] > PRODUCT_MOST for axis in axes):
        raise NotOnGrid(f"a product of more than {PRODUCT_MOST} elements")
    for axis in axes:
        total = g.index(x, axis, 0, 1)
        for k in range(1, g.shape(x)[axis]):
            total = g.mul(total, g.index(x, axis, k, k + 1))
        x = total
    return x


def _norm(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    return torch.sqrt(torch.sum(x * x, axes, keepdim=True))


def _product(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    for axis in axes:
        x = torch.prod(x, axis, keepdim=True)
    return x


def _add_reduction(name: str, torch_fn: Any, numpy: Any, grid: Any) -> None:
    add(name, torch=_torch(torch_fn), numpy=_over(numpy), grid=_grid(grid))


_add_reduction(
    "ReduceSum",
    lambda x, d: torch.sum(x, d, keepdim=True),
    lambda x, **k: np.sum(x, **k).astype(x.dtype),
    lambda g, x, axes: g.sum(x, axes),
)
_add_reduction("ReduceMean", lambda x, d: torch.mean(x, d, keepdim=True), np.mean, _mean)
_add_reduction("ReduceMax", lambda x, d: torch.amax(x, d, keepdim=True), np.max, _max)
_add_reduction(
    "ReduceMin",
    lambda x, d: torch.amin(x, d, keepdim=True),
    np.min,
    lambda g, x, axes: g.mul(_max(g, g.mul(x, -1.0), axes), -1.0),
)
_add_reduction("ReduceProd", _product, lambda x, **k: np.prod(x, **k).astype(x.dtype), _prod)
_add_reduction(
    "ReduceL1",
    lambda x, d: torch.sum(x.abs(), d, keepdim=True),
    lambda x, **k: np.sum(np.abs(x), **k).astype(x.dtype),
    lambda g, x, axes: g.sum(g.op(unary.Abs(), x), axes),
)
_add_reduction(
    "ReduceL2",
    _norm,
    lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    lambda g, x, axes: g.op(unary.Sqrt(), g.sum(g.mul(x, x), axes)),
)
_add_reduction(
    "ReduceSumSquare",
    lambda x, d: torch.sum(x * x, d, keepdim=True),
    lambda x, **k: np.sum(x * x, **k).astype(x.dtype),
    lambda g, x, axes: g.sum(g.mul(x, x), axes),
)
_add_reduction(
    "ReduceLogSum",
    lambda x, d: torch.log(torch.sum(x, d, keepdim=True)),
    lambda x, **k: np.log(np.sum(x, **k)),
    lambda g, x, axes: g.op(unary.Log(), g.sum(x, axes)),
)
_add_reduction(
    "ReduceLogSumExp",
    lambda x, d: torch.logsumexp(x, d, keepdim=True),
    lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    _logsumexp,
)
add(
    "LambSquare",
    torch=lambda a, x: torch.sum(x.float() * x.float()),
    grid=lambda g, a, x: g.reshape(g.sum(g.mul(x, x), range(len(g.shape(x)))), ()),
)


def _median(a: Attrs, x: np.ndarray) -> np.ndarray:
    """The lower of the two in the middle where their number is even."""
    axes = axes_of(a, x.ndim)
    kept = [k for k in range(x.ndim) if k not in axes]
    flat = x.transpose([*kept, *axes]).reshape([x.shape[k] for k in kept] + [-1])
    y = np.sort(flat, -1)[..., (flat.shape[-1] - 1) // 2]
    return y.reshape([1 if k in axes else n for k, n in enumerate(x.shape)]) if a["keepdims"] else y


def _median_torch(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    kept = [k for k in range(x.dim()) if k not in axes]
    flat = x.permute([*kept, *axes]).reshape([x.shape[k] for k in kept] + [-1])
    return flat.median(-1).values.reshape([1 if k in axes else n for k, n in enumerate(x.shape)])


add("ReduceMedian", torch=_torch(_median_torch), numpy=_median, host_reason="order statistics")


def _arg(sign: float) -> Any:
    def run(g: Ground, a: Attrs, x: str) -> str:
        shape, axis = g.shape(x), a["axis"]
        signed = g.mul(x, sign) if sign < 0 else x
        y = g.along(axis, signed, lambda z, k: g.op(Argmax(k - len(shape)), z))
        return y if a["keepdims"] else g.reshape(y, [n for k, n in enumerate(shape) if k != axis])

    return run


def _arg_numpy(fn: Any) -> Any:
    return lambda a, x: fn(x, axis=a["axis"], keepdims=bool(a["keepdims"])).astype(np.int32)


add("ArgMax", numpy=_arg_numpy(np.argmax), grid=_arg(1.0))
add("ArgMin", numpy=_arg_numpy(np.argmin), grid=_arg(-1.0))
add(
    "CumSum",
    torch=lambda a, x: torch.cumsum(x, a["axis"]),
    numpy=lambda a, x: np.cumsum(x, a["axis"]).astype(x.dtype),
    grid=lambda g, a, x: g.op(CumSum(a["axis"]), x),
)


def _topk(a: Attrs, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and indices, the first of equals first."""
    keys = -x.astype(np.float64) if a["largest"] else x
    order = np.argsort(keys, axis=a["axis"], kind="stable")
    order = np.take(order, range(a["k"]), axis=a["axis"])
    return np.take_along_axis(x, order, a["axis"]), order.astype(np.int32)


def _topk_torch(a: Attrs, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(x, dim=a["axis"], descending=bool(a["largest"]), stable=True)
    return values.narrow(a["axis"], 0, a["k"]), indices.narrow(a["axis"], 0, a["k"])


add("TopK", torch=_topk_torch, numpy=_topk, host_reason="order statistics")


def _histogram(a: Attrs, x: np.ndarray) -> np.ndarray:
    """How many are below the first level, between each two, and from the last one on."""
    flat = np.abs(x).reshape(-1) if a["absolute"] else x.reshape(-1)
    at = np.searchsorted(np.asarray(a["levels"], x.dtype), flat, side="right")
    return np.bincount(at, minlength=len(a["levels"]) + 1).astype(np.uint32)


add("Histogram", numpy=_histogram, host_reason="order statistics")
