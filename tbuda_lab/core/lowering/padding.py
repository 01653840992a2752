"""What may lie in the padding of a lowered value: sums and products of matrices multiply it by 0, which an infinity
there makes no number."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.formats import within
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwOp, HwReduce, HwSparseMatmul, HwUnary
from tbuda_lab.core.lowering.values import TileValue

HUGE = 1e15
"""Squares, cubes and products of two numbers below it are finite."""

FINITE, SHIFTED, ANY = 0, 1, 2
"""Padding along a dim: finite, or no number where its row or column holds none; sums of finite numbers and of what is
broadcast along the dim, whose exponential is FINITE; anything."""

BOUNDED = ("sigmoid", "tanh", "sine", "cosine", "gelu_derivative")


class Padding:
    """Of each node of a lowered graph, as it is made: whether its data may hold an infinity, and what its padding
    rows and columns may. Inputs may hold anything, parameters are taken to be finite."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._infinite: dict[str, bool] = {}
        self._padding: dict[str, tuple[int, int]] = {}
        self._reduces: dict[str, str] = {}

    def infinite(self, name: str) -> bool:
        """Whether the data of a node may hold an infinity."""
        if name not in self._infinite:
            self._infinite[name] = _may_be_infinite(self.graph[name])
        return self._infinite[name]

    def along(self, value: TileValue, axis: int) -> int:
        """What the padding rows (axis 0) or columns (1) of a value may hold."""
        if (value.zero_r, value.zero_c)[axis]:
            return FINITE
        turned = sum(tm.name == "transpose" for tm in value.tms) % 2
        own = axis ^ turned
        repeated = self.graph[value.node].shape[2 + own] == 1 < value.zrc[1 + axis]
        if repeated or (value.fill_r, value.fill_c)[axis]:
            return SHIFTED if self.infinite(value.node) else FINITE
        return self._padding.get(value.node, (FINITE, FINITE))[own]

    def reduces(self, result: TileValue, operand: TileValue) -> None:
        """Notes that one is a mean, sum or maximum of the other."""
        self._reduces[result.node] = operand.node

    def spreads(self, result: TileValue, operand: TileValue) -> None:
        """Notes that one is the other, replicated through its tiles."""
        if operand.node in self._reduces:
            self._reduces[result.node] = self._reduces[operand.node]

    def emitted(self, node: Node, operands: Sequence[TileValue]) -> None:
        """Works out what a new node holds."""
        op = node.op
        assert isinstance(op, HwOp)
        self._infinite[node.name] = self._data(op, operands)
        self._padding[node.name] = (self._made(op, operands, 0), self._made(op, operands, 1))

    def _data(self, op: HwOp, operands: Sequence[TileValue]) -> bool:
        if isinstance(op, HwUnary) and (op.fn in BOUNDED or (op.relu is not None and op.relu.mode == "max")):
            return False
        if isinstance(op, HwUnary) and op.fn == "reciprocal":
            source = self.graph[operands[0].node].op
            if isinstance(source, HwUnary) and source.fn == "sqrt":  # 2^23 at most
                return False
        if isinstance(op, HwBinary) and op.fn == "multiply" and self._normalises(*operands):
            return False
        return any(self.infinite(v.node) for v in operands)

    def _normalises(self, value: TileValue, factor: TileValue) -> bool:
        """Whether the factor is 1 over the norm of the value, or the sum of the exponentials that it is: the product is
        bounded, whatever the value holds."""
        name = self._through(factor.node, "reciprocal", "sqrt")
        if name == factor.node:
            return False
        summed = self.graph[self._reduces.get(name, name)]
        if isinstance(summed.op, HwUnary) and summed.op.fn == "exp":
            return summed.name == value.node
        square = isinstance(summed.op, HwBinary) and summed.op.fn == "multiply"
        return square and summed.sources == (value.node, value.node)

    def _through(self, name: str, *functions: str) -> str:
        """The node before these functions, in this order, each of which may be missing, before spreading through tiles
        and added constants."""
        for fn in (*functions, "add"):
            node = self.graph[name]
            if isinstance(node.op, HwUnary | HwBinary) and node.op.fn == fn:
                name = node.sources[0]
        return name

    def _made(self, op: HwOp, operands: Sequence[TileValue], axis: int) -> int:
        if isinstance(op, HwSparseMatmul | HwReduce):
            return FINITE if isinstance(op, HwSparseMatmul) and axis == 0 else self.along(operands[0], axis)
        if isinstance(op, HwMatmul):
            own, other = operands[axis], operands[1 - axis]
            met = not (own.zero_r, own.zero_c)[axis] and self.infinite(other.node)
            return ANY if met or any(self.along(v, axis) for v in (own, *operands[2:])) else FINITE
        held = max((self.along(v, axis) for v in operands), default=FINITE)
        if isinstance(op, HwBinary) and op.fn == "subtract":
            a, b = operands
            if self._reduces.get(b.node) == a.node:  # an infinity in b is one in a, and x - max(x), x - mean(x) NaN
                return self.along(a, axis)
        if isinstance(op, HwBinary) and op.fn in ("add", "subtract"):
            return held
        if isinstance(op, HwUnary) and (op.fn in BOUNDED or op.fn == "exp"):
            return ANY if held == ANY else FINITE
        if isinstance(op, HwUnary) and op.fn in ("nop", "abs"):
            return held
        return ANY if held else FINITE


def _may_be_infinite(node: Node) -> bool:
    """Of what is no op: an input may hold anything, a constant what it holds."""
    if node.value is not None:
        return not within(node.value, HUGE)
    return node.kind not in (NodeKind.PARAMETER, NodeKind.CONSTANT)


__all__ = ["HUGE", "Padding"]
