"""Slices and stacks: pieces of rows or columns that become slices, and back; operands dealt in turn."""

from __future__ import annotations

import numpy as np
import torch

from tbuda_lab.core.graph import TILE, Node, Shape, ShapeError, op
from tbuda_lab.core.ops.base import Names, NdOp, axis_of, negative, with_size
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.tm import Concatenate, Index, pick

Tensor = torch.Tensor


def _zrc(x: Shape, what: str) -> tuple[Shape, int, int, int]:
    """(leading dims, z, r, c); a matrix counts as one slice."""
    if len(x) < 2:
        raise ShapeError(f"{what} takes a tensor of rank 2 or more, not {x}")
    return (x[:-3], x[-3], x[-2], x[-1]) if len(x) > 2 else ((), 1, x[0], x[1])


def _divide(size: int, n: int, what: str, unit: str, x: Shape) -> int:
    if n < 1 or size % n:
        raise ShapeError(f"{what}({n}) of {x}: {n} does not divide the {size} {unit}")
    return size // n


def _count(b: Builder, n: int, x: str) -> int:
    """The slices that a stack by n puts together."""
    return _zrc(b.shape(x), "stack")[1] if n == -1 else n


@op("hslice")
class HSlice(NdOp):
    """(..., Z, R, C) -> (..., Z*n, R, C/n): slice z*n + i holds columns i*C/n .. of slice z."""

    n: int

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "hslice")
        return (*lead, z * self.n, r, _divide(c, self.n, "hslice", "columns", x))

    def evaluate(self, x: Tensor) -> Tensor:
        lead, z, r, c = _zrc(tuple(x.shape), "hslice")
        split = x.reshape(*lead, z, r, self.n, c // self.n).transpose(-3, -2)
        return split.reshape(*lead, z * self.n, r, c // self.n)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(HStack(self.n), g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        lead, z, r, c = _zrc(b.shape(x), "hslice")
        if self.n == 1 or (c // self.n) % TILE == 0:
            return b.reshape(x, node.shape) if self.n == 1 else None
        return b.reshape(b.transpose(b.reshape(x, (*lead, z, r, self.n, c // self.n)), -3, -2), node.shape)


@op("hstack")
class HStack(NdOp):
    """(..., Z, R, C) -> (..., Z/n, R, C*n): the inverse of hslice; n = -1 takes all slices."""

    n: int = -1

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "hstack")
        n = z if self.n == -1 else self.n
        return (*lead, _divide(z, n, "hstack", "slices", x), r, c * n)

    def evaluate(self, x: Tensor) -> Tensor:
        lead, z, r, c = _zrc(tuple(x.shape), "hstack")
        n = z if self.n == -1 else self.n
        return x.reshape(*lead, z // n, n, r, c).transpose(-3, -2).reshape(*lead, z // n, r, c * n)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(HSlice(_count(b, self.n, x[0])), g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        lead, z, r, c = _zrc(b.shape(x), "hstack")
        n = z if self.n == -1 else self.n
        if n == 1 or c % TILE:
            return b.reshape(b.transpose(b.reshape(x, (*lead, z // n, n, r, c)), -3, -2), node.shape)
        return None if n == self.n else b.op(HStack(n), x)


@op("vslice")
class VSlice(NdOp):
    """(..., Z, R, C) -> (..., Z*n, R/n, C): rows cut into n pieces that become slices."""

    n: int

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "vslice")
        return (*lead, z * self.n, _divide(r, self.n, "vslice", "rows", x), c)

    def evaluate(self, x: Tensor) -> Tensor:
        return x.reshape(self.infer(tuple(x.shape)))

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(VStack(self.n), g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        _, _, r, _ = _zrc(b.shape(x), "vslice")
        return b.reshape(x, node.shape) if self.n == 1 or (r // self.n) % TILE else None


@op("vstack")
class VStack(NdOp):
    """(..., Z, R, C) -> (..., Z/n, R*n, C): the inverse of vslice; n = -1 takes all slices."""

    n: int = -1

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "vstack")
        n = z if self.n == -1 else self.n
        return (*lead, _divide(z, n, "vstack", "slices", x), r * n, c)

    def evaluate(self, x: Tensor) -> Tensor:
        return x.reshape(self.infer(tuple(x.shape)))

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(VSlice(_count(b, self.n, x[0])), g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        _, z, r, _ = _zrc(b.shape(x), "vstack")
        n = z if self.n == -1 else self.n
        if n == 1 or r % TILE:
            return b.reshape(x, node.shape)
        return None if n == self.n else b.op(VStack(n), x)


@op("stack")
class Stack(NdOp):
    """Operands side by side along a new dim at axis (counted in the result)."""

    axis: int

    def infer(self, *operands: Shape) -> Shape:
        first = operands[0]
        if any(s != first for s in operands):
            raise ShapeError(f"stack takes operands of one shape, not {operands}")
        axis = axis_of(self.axis, len(first) + 1, "stack")
        return (*first[:axis], len(operands), *first[axis:])

    def evaluate(self, *operands: Tensor) -> Tensor:
        return torch.stack(operands, self.axis)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        axis = self.axis % len(b.shape(y))
        return b.reshape(b.op(Index(axis, port, port + 1), g), b.shape(x[port]))

    def canonicalise(self, b: Builder, node: Node, *operands: str) -> str:
        axis = self.axis % len(node.shape)
        thin = with_size(node.shape, axis, 1)
        return b.op(Concatenate(axis - len(thin)), *(b.reshape(x, thin) for x in operands))


@op("interleave")
class Interleave(NdOp):
    """Operands of one shape dealt in turn along axis, `stride` elements each time."""

    axis: int = -3
    stride: int = 1

    def infer(self, *operands: Shape) -> Shape:
        first = operands[0]
        axis = axis_of(self.axis, len(first), "interleave")
        if any(s != first for s in operands) or self.stride < 1 or first[axis] % self.stride:
            raise ShapeError(
                f"interleave by {self.stride} along {self.axis} takes operands of one shape whose size there is a "
                f"multiple of {self.stride}, not {operands}"
            )
        return with_size(first, axis, first[axis] * len(operands))

    def evaluate(self, *operands: Tensor) -> Tensor:
        shape = operands[0].shape
        axis = self.axis % len(shape)
        split = (*shape[:axis], shape[axis] // self.stride, self.stride, *shape[axis + 1 :])
        dealt = torch.stack([x.reshape(split) for x in operands], axis + 1)
        return dealt.reshape(*shape[:axis], shape[axis] * len(operands), *shape[axis + 1 :])

    def canonicalise(self, b: Builder, node: Node, *operands: str) -> str:
        shape, n = b.shape(operands[0]), len(operands)
        axis = negative(self.axis, len(shape))
        if axis == -3 and self.stride == 1:
            # Side by side in columns (or rows), the slices of that are in turn.
            if shape[-1] % TILE == 0 or shape[-2] % TILE:
                return b.op(HSlice(n), b.op(Concatenate(-1), *operands))
            return b.op(VSlice(n), b.op(Concatenate(-2), *operands))
        size = shape[axis]
        order = np.arange(n * size).reshape(n, size // self.stride, self.stride).transpose(1, 0, 2).reshape(-1)
        return pick(b, b.op(Concatenate(axis), *operands), axis, order)
