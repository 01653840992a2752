"""Arithmetic of 32-bit whole numbers on the device: what the Int32 format has, sums and maxima, and what they make.

Which ops that is, the cut of a graph says (`compiler.integer_outputs.with_grid_integers`), by a mark on each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import Add, Maximum, Subtract, Where
from tbuda_lab.core.ops.evaluate import GRID_WHOLE
from tbuda_lab.core.ops.reduce import Reduce, ReduceMax, ReduceSum
from tbuda_lab.core.ops.tm import BroadcastTo, Index
from tbuda_lab.core.ops.unary import Clip, Relu
from tbuda_lab.core.passes.base import Pass, Report

T = TypeVar("T")
LOWEST, HIGHEST = -(2**31), 2**31 - 1
MASKS = ((LOWEST, HIGHEST), (HIGHEST, LOWEST))
"""By branch of a selection the mask that it is compared with: its number where the condition holds, and where not."""
BACK = -HIGHEST
"""What is added to the sum of a selection's branches: one of them is the highest number (see `WholeNumbers`)."""


def sum_of_branches(apply: Callable[..., T], branches: Sequence[T], masks: Sequence[T]) -> T:
    """The sum of the maxima of a selection's branches and their masks, of which `BACK` makes what is chosen. apply: a
    core op on operands."""
    return apply(Add(), *(apply(Maximum(), x, mask) for x, mask in zip(branches, masks, strict=True)))


MOST_SLICES = 32
"""Slices of a tensor that are put together one by one."""


def sums_slices(op: Reduce, shape: tuple[int, ...]) -> bool:
    """Whether a sum or a maximum is one of a few slices of whole tiles: not along the last two dims."""
    dim = op.dim if op.dim < 0 else op.dim - len(shape)
    return dim < -2 and shape[dim] <= MOST_SLICES


def as_words(value: np.ndarray) -> np.ndarray:
    """Whole numbers in 32 bits, those beyond left out."""
    words: np.ndarray = value.astype(np.int64).astype(np.int32)
    return words


@dataclasses.dataclass(frozen=True)
class WholeNumbers(Pass):
    """Marked ops become sums and maxima of 32-bit numbers, which wrap.

    x - c is x + (-c); relu and a lower bound are maxima; sums and maxima along a dim before the last two those of its
    slices, which are whole tiles. A selection is max(x, a) + max(y, b) - 2^31 + 1 with a the
    lowest number where x is chosen, else the highest, and b the other way round: of the two maxima one is what is
    chosen and the other the highest number. The host makes a and b of the condition.
    """

    name = "whole_numbers"
    doc = "Write arithmetic of 32-bit whole numbers in sums and maxima, which the device has"

    def apply(self, graph: Graph) -> Report:
        marked = [node for node in graph.ops if GRID_WHOLE in node.attrs]
        for node in marked:
            self._rewrite(graph, node)
        if marked:
            graph.resort()
        return Report(self.name, len(marked), tuple(node.name for node in marked))

    def _rewrite(self, graph: Graph, node: Node) -> None:
        if isinstance(node.op, Subtract):
            value = graph[node.sources[1]].value
            assert value is not None
            words = np.broadcast_to(np.negative(as_words(value)), node.shape)
            node.op, node.inputs = Add(), (node.inputs[0], Edge(_constant(graph, node, words)))
        elif isinstance(node.op, Relu | Clip):
            low = 0 if isinstance(node.op, Relu) else int(node.op.min or 0)
            words = np.full(node.shape, low, np.int32)
            node.op, node.inputs = Maximum(), (node.inputs[0], Edge(_constant(graph, node, words)))
        elif isinstance(node.op, ReduceSum | ReduceMax):
            self._reduce(graph, node)
        elif isinstance(node.op, Where):
            self._select(graph, node)
        edges = list(node.inputs)
        for port, edge in enumerate(edges):
            source = graph[edge.source]
            if source.kind is NodeKind.CONSTANT and source.value is not None and GRID_WHOLE not in source.attrs:
                words = as_words(source.value)
                if isinstance(node.op, Add | Maximum):  # of the result's shape: then its padding holds zeros
                    words = np.broadcast_to(words, node.shape)
                edges[port] = Edge(_constant(graph, node, words))
        node.inputs = tuple(edges)

    @staticmethod
    def _reduce(graph: Graph, node: Node) -> None:
        assert isinstance(node.op, Reduce)
        source, dim = node.sources[0], node.op.dim
        kind = Add if isinstance(node.op, ReduceSum) else Maximum
        size = graph[source].shape[dim]
        parts = [_op(graph, node, "slice", Index(dim, k, k + 1, 1), source, marked=True) for k in range(size)]
        while len(parts) > 2:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            joined = [_op(graph, node, "pair", kind(), *pair, marked=True) for pair in pairs]
            parts = joined + parts[2 * len(joined) :]
        if len(parts) == 2:
            node.op, node.inputs = kind(), tuple(map(Edge, parts))

    @staticmethod
    def _select(graph: Graph, node: Node) -> None:
        condition, *branches = node.sources
        one = (1,)[: len(node.shape)]  # a selection without dims has ends without
        ends = {n: _plain(graph, node, np.full(one, n, np.int32)) for n in (LOWEST, HIGHEST)}
        masks, values = [], []
        for k, (branch, pair) in enumerate(zip(branches, MASKS, strict=True)):
            mask = _op(graph, node, f"mask{k}", Where(), condition, *(ends[n] for n in pair))
            if graph[mask].shape != node.shape:
                mask = _op(graph, node, f"wide{k}", BroadcastTo(node.shape), mask)
            value = graph[branch].value
            if graph[branch].kind is NodeKind.CONSTANT and value is not None:
                branch = _constant(graph, node, np.broadcast_to(as_words(value), node.shape))
            masks.append(mask)
            values.append(branch)
        both = sum_of_branches(functools.partial(_op, graph, node, "branch", marked=True), values, masks)
        back = _constant(graph, node, np.full(node.shape, BACK, np.int32))
        node.op, node.inputs = Add(), (Edge(both), Edge(back))


def _op(graph: Graph, node: Node, stem: str, op: NdOp, *operands: str, marked: bool = False) -> str:
    shape = op.infer(*(graph[name].shape for name in operands))
    made = Node(
        graph.unique(f"{node.name}.{stem}"),
        NodeKind.OP,
        shape,
        op,
        tuple(map(Edge, operands)),
        origin=node.origin,
        attrs={GRID_WHOLE: True} if marked else {},
    )
    return graph.add(made).name


def _constant(graph: Graph, node: Node, words: np.ndarray) -> str:
    made = Node(
        graph.unique(f"{node.name}.words"),
        NodeKind.CONSTANT,
        words.shape,
        origin=node.origin,
        value=words,
        attrs={GRID_WHOLE: True},
    )
    return graph.add(made).name


def _plain(graph: Graph, node: Node, words: np.ndarray) -> str:
    return graph.add(Node(graph.unique(f"{node.name}.end"), NodeKind.CONSTANT, words.shape, value=words)).name
