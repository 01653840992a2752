"""Table look-up."""

from __future__ import annotations

import torch

from tbuda_lab.core.graph import Shape, op
from tbuda_lab.core.ops.base import NdOp, need_rank

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
