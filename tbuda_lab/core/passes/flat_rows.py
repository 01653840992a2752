"""Row-wise ops run before a reshape that only regroups rows, so that the reshape can meet its inverse."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import Graph, Node, Shape
from tbuda_lab.core.ops import Matmul, ReduceAvg, ReduceMax, ReduceSum, Reshape
from tbuda_lab.core.ops.binary import Binary
from tbuda_lab.core.ops.unary import Unary
from tbuda_lab.core.passes.base import Pass, Report, Rewriter


@dataclasses.dataclass(frozen=True)
class FlatRows(Pass):
    """(1, 1, A*B, C) regrouped as (1, A, B, C), B no whole number of tiles, costs a row picker each way.

    Element-wise ops, sums and maxima along a row, and matmuls by one stored matrix do not care how rows are grouped:
    they move above the regrouping, which is kept only for readers that do.
    """

    name = "flat_rows"
    doc = "Move row-wise ops above reshapes that regroup rows"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_Flat().visit))


def _is_row(shape: Shape) -> bool:
    return math.prod(shape[:-1]) == 1


class _Flat:
    def __init__(self) -> None:
        self.flat: dict[str, str] = {}

    def visit(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        op = node.op
        if isinstance(op, Reshape):
            return self.reshape(r, node, operands[0])
        main = next((name for name in operands if name in self.flat), None)
        if main is None:
            return None
        grouped = r.new[main].shape
        if isinstance(op, (ReduceSum, ReduceAvg, ReduceMax)):
            fits = op.dim == -1
        elif isinstance(op, Matmul):
            fits = operands[0] == main and all(math.prod(r.new[o].shape[:-2]) == 1 for o in operands[1:])
            fits = fits and all(_is_row(r.new[o].shape) for o in operands[2:])
        elif isinstance(op, (Unary, Binary)):
            fits = all(
                (o in self.flat and r.new[o].shape[:-1] == grouped[:-1]) or _is_row(r.new[o].shape) for o in operands
            )
        else:
            fits = False
        if not fits:
            return None
        made = r.keep(node, None, tuple(self.flat.get(o, o) for o in operands))
        back = r.builder(node).reshape(made, node.shape)
        if back != made:
            self.flat[back] = made
        return back

    def reshape(self, r: Rewriter, node: Node, x: str) -> str | None:
        if x in self.flat:
            return r.builder(node).reshape(self.flat[x], node.shape)
        before = r.new[x].shape
        if len(before) == len(node.shape) == 4 and before[:2] == (1, 1) and before[3] == node.shape[3]:
            self.flat[node.name] = x
        return None
