"""Table look-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tbuda_lab.core.graph import Shape, op
from tbuda_lab.core.ops.base import NdOp, need_rank, not_on_device

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Node
    from tbuda_lab.core.ops.builder import Builder

Tensor = torch.Tensor


@op("embedding")
class Embedding(NdOp):
    """Rows of table (entries, width) at integer indices of any shape: indices.shape + (width,)."""

    host = True

    def infer(self, table: Shape, indices: Shape) -> Shape:
        need_rank(table, 2, "embedding's table")
        return (*indices, table[1])

    def evaluate(self, table: Tensor, indices: Tensor) -> Tensor:
        return torch.nn.functional.embedding(indices.to(torch.int64), table)

    def canonicalise(self, b: Builder, node: Node, table: str, indices: str) -> str:
        raise not_on_device(node, "its indices are computed on the device; only look-ups by model inputs are supported")
