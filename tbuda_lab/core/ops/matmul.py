"""Matrix multiplication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tbuda_lab.core.graph import Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.ops.base import Names, NdOp

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Node
    from tbuda_lab.core.ops.builder import Builder

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
        product = torch.matmul(a, b)
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
