"""Row-wise ops run before a reshape that only regroups rows, so that the reshape can meet its inverse."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import Graph, Node, NodeKind, Shape
from tbuda_lab.core.ops import Concatenate, Index, Matmul, ReduceAvg, ReduceMax, ReduceSum, Reshape, Transpose
from tbuda_lab.core.ops.binary import Binary
from tbuda_lab.core.ops.unary import Unary
from tbuda_lab.core.passes.base import Pass, Report, Rewriter


@dataclasses.dataclass(frozen=True)
class FlatRows(Pass):
    """(1, 1, A*B, C) regrouped as (1, A, B, C), B no whole number of tiles, costs a row picker each way.

    Element-wise ops, sums and maxima along a row, and matmuls by one stored matrix do not care how rows are grouped:
    they move above the regrouping, which is kept only for readers that do. A sequence that comes with its batch of one
    second, as (1, A, 1, C), is regrouped too: each of its rows would fill a tile.
    """

    name = "flat_rows"
    doc = "Move row-wise ops above reshapes that regroup rows"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_Flat().visit))


def _is_row(shape: Shape) -> bool:
    return math.prod(shape[:-1]) == 1


def _only_ones_move(op: Transpose, shape: Shape) -> bool:
    """Whether a transpose leaves the dims that are not 1 in their order, and is a reshape."""
    order = list(range(len(shape)))
    i, j = op.dim0 % len(shape), op.dim1 % len(shape)
    order[i], order[j] = order[j], order[i]
    moved = [d for d in order if shape[d] > 1]
    return moved == sorted(moved)


class _Flat:
    def __init__(self) -> None:
        self.flat: dict[str, str] = {}

    def visit(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        op = node.op
        if isinstance(op, Reshape) or (isinstance(op, Transpose) and _only_ones_move(op, r.new[operands[0]].shape)):
            return self.reshape(r, node, operands[0])
        if isinstance(op, (Unary, Binary, Matmul, ReduceSum, ReduceAvg, ReduceMax, Index, Concatenate)):
            for name in operands:
                self.regroup(r, name)
        main = next((name for name in operands if name in self.flat), None)
        if main is None:
            return None
        grouped = r.new[main].shape
        if isinstance(op, (ReduceSum, ReduceAvg, ReduceMax, Index)):
            fits = op.dim == -1
        elif isinstance(op, Concatenate):
            fits = op.axis == -1 and all(o in self.flat for o in operands)
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
        entry = r.keep(node, None, tuple(self.flat.get(o, o) for o in operands))
        back = r.builder(node).reshape(entry, node.shape)
        if back != entry:
            self.flat[back] = entry
        return back

    def regroup(self, r: Rewriter, x: str) -> None:
        """An input whose rows lie one in a slice is read in one slice."""
        node = r.new[x]
        if node.kind is not NodeKind.INPUT or x in self.flat or len(node.shape) != 4:
            return
        one, slices, rows, columns = node.shape
        if one == rows == 1 and slices > 1:
            self.flat[x] = r.builder(node).op(Reshape((1, 1, slices, columns)), x)

    def reshape(self, r: Rewriter, node: Node, x: str) -> str | None:
        if x in self.flat:
            return r.builder(node).reshape(self.flat[x], node.shape)
        before = r.new[x].shape
        if len(before) == len(node.shape) == 4 and before[:2] == (1, 1) and before[3] == node.shape[3]:
            self.flat[node.name] = x
        return None
