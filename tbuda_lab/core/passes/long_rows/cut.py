"""The change of a graph whose long rows are cut."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tbuda_lab.core.graph import Graph, Node, NodeKind, Shape
from tbuda_lab.core.ops import (
    GatherRows,
    Index,
    Matmul,
    Pad,
    ReduceAvg,
    ReduceMax,
    ReduceSum,
    Reshape,
    Subtract,
    Transpose,
)
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.reduce import Reduce
from tbuda_lab.core.ops.tm import pick
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.base import FILLS_TILES, Rewriter
from tbuda_lab.core.passes.host import before_output
from tbuda_lab.core.passes.long_rows.behind import LOWEST, ZERO, after
from tbuda_lab.core.passes.long_rows.groups import ELEMENTWISE
from tbuda_lab.core.passes.long_rows.pieces import ROW_MOVES, Pieces, four_dims


class Cut:
    """One rewrite. `at`: by old name, the name of the value in pieces, and what stands behind its last element."""

    def __init__(self, graph: Graph, options: CompileOptions, chosen: dict[str, Pieces]) -> None:
        self.graph, self.options, self.chosen = graph, options, chosen
        self.at: dict[str, tuple[str, str]] = {}
        self.narrow: dict[str, tuple[str, Pieces]] = {}  # values without the row that are kept in its form
        self.lowest: dict[str, str] = {}
        self.masks: dict[tuple[Pieces, bool], str] = {}

    def run(self) -> int:
        wanted = {output.name: output.shape for output in self.graph.outputs}
        count = Rewriter(self.graph, self.options, same_shapes=False).run(self._visit)
        for output in self.graph.outputs:
            pieces = self.chosen.get(self.original(output))
            if pieces is not None:
                _put_together(self.graph, output, pieces, wanted[output.name])
        return count

    def original(self, output: Node) -> str:
        source = output.sources[0]
        return next((old for old, (new, _) in self.at.items() if new == source), "")

    def _visit(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        pieces = self.chosen.get(node.name)
        if pieces is None:
            return self._narrow(r, node, operands)
        if isinstance(node.op, Reduce) and node.op.dim == -1:
            return self._reduced(r, node, node.op, pieces)
        names, states = [], list[str | None]()
        for port, source in enumerate(node.sources):
            name, state = self._operand(r, node, port, source, pieces)
            names.append(name)
            states.append(state)
        op = node.op
        if isinstance(op, Reduce):  # over rows, or what is above them
            op = dataclasses.replace(op, dim=pieces.dim(op.dim))
        if isinstance(op, GatherRows) and pieces.kind == "matrix":
            name_of_pieces = pick(r.builder(node), names[0], -3, op.index.array)
        else:
            move = pieces.move(node, self.graph[node.sources[0]].shape) if isinstance(op, ROW_MOVES) else None
            name_of_pieces = r.keep(node, move or op, tuple(names))
        self.at[node.name] = name_of_pieces, after(node, states)
        return name_of_pieces

    def _operand(self, r: Rewriter, node: Node, port: int, source: str, pieces: Pieces) -> tuple[str, str | None]:
        if source in self.chosen and source not in self.narrow:
            lowest = self.lowest.get(source)
            if lowest and isinstance(node.op, Subtract) and port == 0 and node.sources[1] != source:
                return lowest, LOWEST
            return self._row(r, source, pieces)
        if source in self.narrow:
            return self.narrow[source][0], None
        b = r.builder(node)
        name = r.at[source]
        shape = b.shape(name)
        if isinstance(node.op, Matmul) or math.prod(shape) == 1:
            return name, None
        return b.reshape(name, pieces.shape(shape)), None

    def _row(self, r: Rewriter, source: str, pieces: Pieces) -> tuple[str, str]:
        """A row in pieces; leaves are cut when they are first read."""
        if source not in self.at:
            node = self.graph[source]
            b = r.builder(node)
            b.stem = source
            name = source
            if pieces.padded > pieces.size:
                pads = ((0, 0),) * (len(node.shape) - 1) + ((0, pieces.padded - pieces.size),)
                name = b.op(Pad(pads), name)
                r.new[name].attrs[FILLS_TILES] = True
            if pieces.kind == "slices":
                rows = node.shape[-2] if len(node.shape) > 1 else 1
                name = b.reshape(name, four_dims((*node.shape[:-2], rows, pieces.count, pieces.width)))
                name = b.transpose(name, -3, -2) if rows > 1 else b.reshape(name, pieces.shape(node.shape))
            else:
                name = b.reshape(name, pieces.shape(node.shape))
            self.at[source] = name, ZERO
        return self.at[source]

    def _mask(self, r: Rewriter, node: Node, pieces: Pieces, floor: bool) -> str:
        """Ones where elements are, zeros behind; or zeros, and behind the lowest value that the format has."""
        key = pieces, floor
        if key not in self.masks:
            inside = (np.arange(pieces.padded) < pieces.size).reshape(pieces.mask_shape)
            lowest = -65504.0 if self.options.data_format.family == "a" else -math.inf
            value = np.where(inside, 0.0, lowest) if floor else inside
            self.masks[key] = r.builder(node).constant(value.astype(np.float32))
        return self.masks[key]

    def _reduced(self, r: Rewriter, node: Node, op: Reduce, pieces: Pieces) -> str:
        """Along the pieces, then over them."""
        source = node.sources[0]
        name, state = self._row(r, source, pieces)
        b = r.builder(node)
        padded = pieces.padded > pieces.size
        if padded and state not in (ZERO, LOWEST):
            name = b.multiply(name, self._mask(r, node, pieces, False))
        if padded and isinstance(op, ReduceMax):
            name = self.lowest.setdefault(source, b.add(name, self._mask(r, node, pieces, True)))
        first, second = pieces.dims
        step: type[Reduce] = ReduceMax if isinstance(op, ReduceMax) else ReduceSum
        mean = isinstance(op, ReduceAvg)  # of each piece first: the sum of a row and 1 / size may lie outside a format
        name = b.op(step(second), b.op(ReduceAvg(first) if mean else step(first), name))
        if mean:
            name = b.multiply(name, pieces.width / pieces.size)
        self.narrow[node.name] = name, pieces
        return b.reshape(name, node.shape)

    def _narrow(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        """What is made of reductions alone stays in the form of the pieces; what else reads them has them reshaped."""
        forms = [self.narrow[s] for s in node.sources if s in self.narrow]
        if not forms or not isinstance(node.op, NdOp) or node.op.type not in ELEMENTWISE:
            return None
        pieces = forms[0][1]
        names = []
        for source, operand in zip(node.sources, operands, strict=True):
            if source in self.narrow and self.narrow[source][1] == pieces:
                names.append(self.narrow[source][0])
            elif math.prod(r.new[operand].shape) == 1:
                names.append(operand)
            else:
                return None
        name = r.keep(node, None, tuple(names))
        self.narrow[node.name] = name, pieces
        return r.builder(node).reshape(name, node.shape)


def _put_together(graph: Graph, output: Node, pieces: Pieces, wanted: Shape) -> None:
    """The host puts the pieces of an output together, and cuts off what is behind the last element."""
    source = graph[output.sources[0]]
    have = source.shape
    lead, rows = (have[:-2], 1) if pieces.kind == "matrix" else (have[:-3], have[-2])
    joined = (*lead, pieces.padded) if pieces.kind == "matrix" else (*lead, rows, pieces.padded)
    steps: list[NdOp] = [Reshape(joined), Index(-1, 0, pieces.size)]
    if pieces.kind == "slices":
        steps.insert(0, Transpose(-3, -2))
    steps.append(Reshape(wanted))
    shapes = [have]
    for step in steps:
        shapes.append(step.infer(shapes[-1]))
    for k in reversed(range(len(steps))):
        node = Node(f"{output.name}.join{k}", NodeKind.OP, shapes[k + 1], steps[k], origin=output.origin)
        output.recipe = before_output(output, node, dataclasses.replace(source, shape=shapes[k]))
    output.shape = have
