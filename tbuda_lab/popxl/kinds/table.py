"""The table of kinds: what every op of PopXL calculates, on the host, on the grid, and backwards.

A kind has a reference on torch tensors (floats, differentiable) or on NumPy arrays (anything), and, where the grid can
do it, a form in core ops. Ops whose names end in Inplace calculate as another kind (`INPLACE`) and write over an input,
or are views of it (`VIEWS`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.graph import Op as CoreOp
from tbuda_lab.core.graph import Payload
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.reduce import ReduceSum
from tbuda_lab.core.ops.tm import Concatenate, GatherRows, Index, Pad, Transpose
from tbuda_lab.dialects.slots import Slices
from tbuda_lab.popxl.utils import product

Attrs = dict[str, Any]


class NotOnGrid(Exception):
    """Why the grid has no form of an op with these attributes and shapes."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """torch: on float tensors; numpy: on arrays, of integers too; grid: writes it with a `Ground`; host_reason: why it
    has no such form. Gradients are in `gradients`."""

    name: str
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    grid: Callable[..., Any] | None = None
    host_reason: str = ""

    def run(self, attrs: Attrs, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The op on the host. Results may have wider types than the op says."""
        floats = all(a.dtype.kind == "f" for a in arrays)
        with np.errstate(all="ignore"):
            if self.torch is not None and (floats or self.numpy is None):
                tensors = [torch.from_numpy(np.asarray(a, order="C")) for a in arrays]
                with torch.no_grad():
                    value = self.torch(attrs, *tensors)
                parts = value if isinstance(value, tuple) else (value,)
                return tuple(p.detach().numpy() for p in parts)
            assert self.numpy is not None, f"{self.name} has no host form"
            made = self.numpy(attrs, *arrays)
        return tuple(np.asarray(p) for p in (made if isinstance(made, tuple) else (made,)))


KINDS: dict[str, Kind] = {}
INPLACE: dict[str, str] = {}
"""By kind that writes over its first input (or says which) the kind that it calculates as."""
VIEWS: dict[str, str] = {}
"""By kind whose output is a view of its inputs the kind that it calculates as."""


_LOSSES = ("Nll", "NlllWithSoftmaxGradDirect")
_NORMS = ("Softmax", "GroupNormalization", "BatchNormalization")
_MEANS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean")
_CURVES = ("Cos", "Sin", "Tanh", "Exp", "Log", "Log2", "Sqrt", "Gelu", "GeluErf", "Swish")
_OPTIMIZERS = ("AdamUpdater", "AdamVarUpdateValue")
FLOATS_ONLY = frozenset((*_LOSSES, *_NORMS, *_MEANS, *_CURVES, *_OPTIMIZERS))
"""Kinds whose first operand is of floats: of whole numbers the results would be none."""
UPDATES = frozenset(("AccumulateUpdate", "AccumulatorScaleUpdate", "SparseAccumulateUpdate"))
"""Kinds that add to their first operand: to whole numbers whole ones."""
WITH_LABELS = _LOSSES
"""Kinds whose second operand is of whole numbers."""


def add(name: str, **fields: Any) -> Kind:
    """A row of the table."""
    assert name not in KINDS, name
    KINDS[name] = kind = Kind(name, **fields)
    return kind


def calculates_as(kind: str) -> str:
    """The kind in the table of an op's kind."""
    return INPLACE.get(kind) or VIEWS.get(kind) or kind


class Ground:
    """Writes core ops. Names are those of nodes of `graph`."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def op(self, op: CoreOp, *names: str) -> str:
        return self.b.op(op, *names)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.b.shape(name))

    def value(self, name: str) -> np.ndarray | None:
        """The array of a constant, else None."""
        return self.b.value(name)

    def scalar(self, name: str) -> float | None:
        return self.b.scalar(name)

    def full(self, shape: Sequence[int], number: float) -> str:
        return self.b.constant(np.full(tuple(shape), number, np.float32))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.b.reshape(x, tuple(shape))

    def permute(self, x: str, order: Sequence[int]) -> str:
        """Dim k of the result is dim order[k] of x."""
        now = list(range(len(order)))
        for k, wanted in enumerate(order):
            at = now.index(wanted)
            if at != k:
                x = self.op(Transpose(k, at), x)
                now[k], now[at] = now[at], now[k]
        return x

    def index(self, x: str, axis: int, start: int, stop: int, stride: int = 1) -> str:
        if (start, stop, stride) == (0, self.shape(x)[axis], 1):
            return x
        return self.op(Index(axis, start, stop, stride), x)

    def pick(self, x: str, axis: int, order: Sequence[int]) -> str:
        """Elements along an axis in any order; -1 makes zeros."""
        rank = len(self.shape(x))
        if rank == 1:
            return self.reshape(self.pick(self.reshape(x, (*self.shape(x), 1)), 0, order), (len(order),))
        if axis != rank - 2:
            y = self.pick(self.op(Transpose(axis, rank - 2), x), rank - 2, order)
            return self.op(Transpose(axis, rank - 2), y)
        return self.op(GatherRows(Payload(np.asarray(order, np.int64))), x)

    def spread(self, x: str, lead: Sequence[int]) -> str:
        """x with copies along its dims of 1 that stand between larger ones before the last two, where a result has
        `lead` there: the device repeats slices, or all of them, and no stacks of them."""
        own = (*(1,) * (len(lead) + 2 - len(self.shape(x))), *self.shape(x))
        for axis, size in enumerate(lead):
            if own[axis] == 1 < size and product(own[:axis]) > 1 and product(lead[axis + 1 :]) > 1:
                x = self.op(Concatenate(axis), *[self.reshape(x, own)] * size)
                own = self.shape(x)
        return x

    def along(self, axis: int, x: str, write: Callable[[str, int], str]) -> str:
        """What `write` makes of x along an axis. One before the last two of five dims and more becomes a dim of rows
        meanwhile: the device has no stacks of stacks."""
        rank = len(self.shape(x))
        if axis >= rank - 2 or rank < 5:
            return write(x, axis)
        there = [*(k for k in range(rank - 1) if k != axis), axis, rank - 1]
        return self.permute(write(self.permute(x, there), rank - 2), [there.index(k) for k in range(rank)])

    def cut(self, x: str, slices: Slices) -> str:
        """A tensor as its ram holds it."""
        s, (below, right) = slices, slices.padding
        y = self.pad(self.reshape(x, (s.matrices, s.rows, s.cols)), below=0, right=right)
        if s.across > 1 and s.rows > 1:
            y = self.op(Transpose(1, 2), self.reshape(y, (s.matrices, s.rows, s.across, s.width)))
        y = self.pad(self.reshape(y, (s.matrices * s.across, s.rows, s.width)), below=below, right=0)
        return self.reshape(y, s.shape)

    def join(self, x: str, slices: Slices, shape: Sequence[int]) -> str:
        """The tensor of `shape` that a ram holds in slices."""
        s = slices
        y = self.index(self.reshape(x, (s.matrices * s.across, s.down * s.height, s.width)), 1, 0, s.rows)
        if s.across > 1 and s.rows > 1:
            y = self.op(Transpose(1, 2), self.reshape(y, (s.matrices, s.across, s.rows, s.width)))
        y = self.reshape(y, (s.matrices, s.rows, s.across * s.width))
        return self.reshape(self.index(y, 2, 0, s.cols), shape)

    def pad(self, x: str, below: int, right: int) -> str:
        """Zeros behind the last two dims of a tensor of rank three."""
        return self.op(Pad(((0, 0), (0, below), (0, right))), x) if below or right else x

    def reduce(self, kind: Any, x: str, axes: Sequence[int], keepdims: bool) -> str:
        """Along several axes, one after the other."""
        shape = self.shape(x)
        for axis in axes:
            x = self.op(kind(axis - len(shape)), x)
        if keepdims:
            return x
        return self.reshape(x, [n for k, n in enumerate(shape) if k not in axes])

    def sum(self, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
        return self.reduce(ReduceSum, x, axes, keepdims)

    def mul(self, x: str | float, y: str | float) -> str:
        return self.b.multiply(x, y)

    def add(self, x: str | float, y: str | float) -> str:
        return self.b.add(x, y)

    def sub(self, x: str | float, y: str | float) -> str:
        return self.b.subtract(x, y)


def axes_of(attrs: Attrs, rank: int) -> list[int]:
    """The axes of a reduction in rising order; all of them where none is given."""
    axes = attrs.get("axis")
    if axes is None:
        return list(range(rank))
    return sorted({int(a) % max(rank, 1) for a in ([axes] if isinstance(axes, int) else axes)})
