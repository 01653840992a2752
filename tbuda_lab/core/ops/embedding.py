"""Table look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import Shape, op
from tbuda_lab.core.ops.base import NdOp, need_rank, not_on_device

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Node
    from tbuda_lab.core.ops.builder import Builder

Tensor = torch.Tensor


@op("embedding")
class Embedding(NdOp):
    """Rows of table (entries, width) at integer indices of any shape: indices.shape + (width,).

    `evaluate` raises `InputError` for an index that the table does not have.
    """

    host = True

    def infer(self, table: Shape, indices: Shape) -> Shape:
        need_rank(table, 2, "embedding's table")
        return (*indices, table[1])

    def evaluate(self, table: Tensor, indices: Tensor) -> Tensor:
        try:
            return torch.nn.functional.embedding(indices.to(torch.int64), table)
        except IndexError as error:
            least, most = (int(found) for found in torch.aminmax(indices))
            raise InputError(f"indices from {least} to {most} into a table of {table.shape[0]} rows") from error

    def canonicalise(self, b: Builder, node: Node, table: str, indices: str) -> str:
        raise not_on_device(node, "its indices are computed on the device; only look-ups by model inputs are supported")


@op("embedding_bag")
class EmbeddingBag(NdOp):
    """Rows of table (entries, width), those of each bag made one: (bags, width).

    Operands: table, integer indices of any shape. `starts`: where each bag begins among the flattened indices; the last
    one ends with them. mode: "sum" | "mean" | "max". Indices equal to `padding` (-1: none) do not count. An empty bag
    is zero.
    """

    starts: tuple[int, ...]
    mode: str = "mean"
    padding: int = -1

    host = True

    def infer(self, table: Shape, indices: Shape) -> Shape:
        need_rank(table, 2, "embedding_bag's table")
        return (len(self.starts), table[1])

    def evaluate(self, table: Tensor, indices: Tensor) -> Tensor:
        return torch.nn.functional.embedding_bag(
            indices.to(torch.int64).flatten(),
            table,
            torch.tensor(self.starts),
            mode=self.mode,
            padding_idx=None if self.padding < 0 else self.padding,
        )

    def canonicalise(self, b: Builder, node: Node, table: str, indices: str) -> str:
        raise not_on_device(node, "its indices are computed on the device; only look-ups by model inputs are supported")
