"""Reductions along one dim, which stays with size 1, and running sums."""

from __future__ import annotations

import torch

from tbuda_lab.core.graph import Shape, op
from tbuda_lab.core.ops.base import NdOp, axis_of, with_size

Tensor = torch.Tensor


class Reduce(NdOp):
    """The result has size 1 along `dim`."""

    dim: int

    def infer(self, x: Shape) -> Shape:
        return with_size(x, axis_of(self.dim, len(x), self.type), 1)


@op("reduce_sum")
class ReduceSum(Reduce):
    """Sum along dim."""

    dim: int

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sum(x, self.dim, keepdim=True)


@op("reduce_avg")
class ReduceAvg(Reduce):
    """Mean along dim."""

    dim: int

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.mean(x, self.dim, keepdim=True)


@op("reduce_max")
class ReduceMax(Reduce):
    """Largest element along dim."""

    dim: int

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.amax(x, self.dim, keepdim=True)


@op("argmax")
class Argmax(Reduce):
    """Index of the largest element along dim, the first of equals, as a float."""

    dim: int

    def evaluate(self, x: Tensor) -> Tensor:
        # torch.argmax leaves ties open; the first maximum is where the running count of maxima is still one.
        top = (x == torch.amax(x, self.dim, keepdim=True)).to(torch.int64)
        return torch.argmax(top * (torch.cumsum(top, self.dim) == 1), self.dim, keepdim=True).to(torch.float32)


@op("cumsum")
class CumSum(NdOp):
    """Running sum along axis, the element itself included."""

    axis: int

    def infer(self, x: Shape) -> Shape:
        axis_of(self.axis, len(x), "cumsum")
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, self.axis)
