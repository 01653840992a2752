"""Matrix multiplication; reductions along one dim, which stays with size 1; running sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from tbuda_lab.core.graph import Node, Payload, Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.ops.base import Names, NdOp, axis_of, negative, not_on_device, with_size
from tbuda_lab.core.ops.binary import Divide, Equal
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.tm import BroadcastTo, GatherRows, SumRows
from tbuda_lab.core.ops.unary import Relu, is_truth, smallest_difference, step

Tensor = torch.Tensor


@op("matmul")
class Matmul(NdOp):
    """a (..., M, K) @ b (..., K, N), leading dims broadcast; an optional third operand is added and must broadcast."""

    def infer(self, a: Shape, b: Shape, bias: Shape | None = None) -> Shape:
        if len(a) < 2 or len(b) < 2:
            raise ShapeError(f"matmul takes operands of rank 2 or more, not {a} and {b}; unsqueeze the vector")
        if a[-1] != b[-2]:
            raise ShapeError(f"matmul of {a} and {b}: {a[-1]} columns of the first against {b[-2]} rows of the second")
        shape = (*broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
        if bias is not None and broadcast_shapes(shape, bias) != shape:
            raise ShapeError(f"a bias of shape {bias} does not broadcast into the matmul's {shape}")
        return shape

    def evaluate(self, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        wide = torch.promote_types(a.dtype, b.dtype)  # whole numbers that a matrix of 0 and 1 moves
        product = torch.matmul(a.to(wide), b.to(wide))
        return product if bias is None else product + bias

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """g b^T and a^T g; a bias gets g."""
        if port == 2:
            return g
        other = b.transpose(x[1 - port])
        return b.op(Matmul(), g, other) if port == 0 else b.op(Matmul(), other, g)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str, bias: str | None = None) -> str | None:
        """The device adds a bias that is one row; any other is an add of its own."""
        if bias is None or len(b.shape(bias)) < 2 or b.shape(bias)[-2] == 1:
            return None
        return b.add(b.op(Matmul(), x, y), bias)


@dataclasses.dataclass(frozen=True)
class Reduce(NdOp):
    """The result has size 1 along `dim`."""

    dim: int

    def infer(self, x: Shape) -> Shape:
        return with_size(x, axis_of(self.dim, len(x), self.type), 1)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """Reductions run along the last three dims; any other dim is brought there and back."""
        shape = b.shape(x)
        dim = negative(self.dim, len(shape))
        if shape[dim] == 1:
            return x
        if dim < -3:
            moved = b.op(dataclasses.replace(self, dim=-3), b.transpose(x, dim, -3))
            return b.transpose(moved, dim, -3)
        return None if dim == self.dim else b.op(dataclasses.replace(self, dim=dim), x)


@op("reduce_sum")
class ReduceSum(Reduce):
    """Sum along dim."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sum(x, self.dim, keepdim=True)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(BroadcastTo(b.shape(x[0])), g)


@op("reduce_avg")
class ReduceAvg(Reduce):
    """Mean along dim."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.mean(x, self.dim, keepdim=True)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(BroadcastTo(b.shape(x[0])), b.multiply(g, 1.0 / b.shape(x[0])[self.dim]))


@op("reduce_max")
class ReduceMax(Reduce):
    """Largest element along dim."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.amax(x, self.dim, keepdim=True)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """Equal maxima share it."""
        top = b.op(Equal(finite=True), x[0], y)
        return b.multiply(b.op(Divide(), g, b.op(ReduceSum(self.dim), top)), top)


@op("argmax")
class Argmax(Reduce):
    """Index of the largest element along dim, the first of equals, as a float."""

    def evaluate(self, x: Tensor) -> Tensor:
        # torch.argmax leaves ties open; the first maximum is where the running count of maxima is still one.
        top = (x == torch.amax(x, self.dim, keepdim=True)).to(torch.int64)
        return torch.argmax(top * (torch.cumsum(top, self.dim) == 1), self.dim, keepdim=True).to(torch.float32)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """It is constant between its steps."""
        return None

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """n - max(n - i where x is the maximum, else 0): the first of equal maxima, where the format holds n. Infinity
        minus itself, no number, counts as no difference; so does all of a row with NaN."""
        shape = b.shape(x)
        dim = negative(self.dim, len(shape))
        n = shape[dim]
        if n > 2**b.options.data_format.mantissa_bits:
            raise not_on_device(node, f"numbers up to {n} in {b.options.data_format.name}; Float32 holds them")
        countdown = np.arange(n, 0, -1, dtype=np.float32).reshape((n,) + (1,) * (-dim - 1))
        below = b.op(Relu(smallest_difference(b)), b.subtract(b.op(ReduceMax(dim), x), x))
        top = b.mark_truth(b.subtract(1.0, step(b, below)))
        return b.subtract(float(n), b.op(ReduceMax(dim), b.multiply(top, b.constant(countdown))))


@op("cumsum")
class CumSum(NdOp):
    """Running sum along axis, the element itself included."""

    axis: int

    def infer(self, x: Shape) -> Shape:
        axis_of(self.axis, len(x), "cumsum")
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, self.axis)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """The running sum from the other end."""
        return b.add(b.subtract(b.op(ReduceSum(self.axis), g), b.op(CumSum(self.axis), g)), g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Of truth values a product with a triangle of ones; else sums that double their reach, for a product would
        carry NaN and infinities to what stands before them."""
        shape = b.shape(x)
        axis, n = negative(self.axis, len(shape)), shape[self.axis]
        if len(shape) == 1:
            return b.reshape(b.op(CumSum(-2), b.reshape(x, (n, 1))), shape)
        turned = x if axis == -2 else b.transpose(x, axis, -2)
        if is_truth(b, x):
            total = b.op(Matmul(), b.constant(np.tril(np.ones((n, n), np.float32))), turned)
        elif n <= FEW:
            total = b.op(SumRows(Payload(np.argwhere(np.tril(np.ones((n, n)))).astype(np.int32)), n), turned)
        else:
            total, reach = turned, 1
            while reach < n:
                at = np.arange(n) - reach
                total = b.add(total, b.op(GatherRows(Payload(np.where(at < 0, -1, at))), total))
                reach *= 2
        return total if axis == -2 else b.transpose(total, axis, -2)


FEW = 128
"""Rows of a running sum that is one picker with a one for every pair; of more, half their square would be too many."""
