"""Multiplications by stored numbers move into stored weights."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.ops import (
    Add,
    ConvRows,
    GatherRows,
    HSlice,
    HStack,
    Index,
    Matmul,
    Multiply,
    Pad,
    ReduceAvg,
    ReduceSum,
    Relu,
    Reshape,
    Subtract,
    Transpose,
    VSlice,
    VStack,
)
from tbuda_lab.core.passes.base import Pass, Report, Rewriter, is_stored

LINEAR = (Transpose, Reshape, HSlice, HStack, VSlice, VStack, Index, GatherRows, Pad, ReduceSum, ReduceAvg)
Users = dict[str, list[tuple[str, int]]]
Spot = tuple[str, int]
"""An operand: the reading node and the operand's number."""


@dataclasses.dataclass(frozen=True)
class FoldScale(Pass):
    """x * s, s a constant number or one stored number per column, is folded into the weights that x comes from.

    A number passes through data moves, matmuls, convolutions, additions and (if positive) relu; a vector only through
    additions to the matmul or convolution before it. Values that somebody else reads stop the walk.
    """

    name = "fold_scale"
    doc = "Fold scalar and per-channel multiplications into weights and biases"

    def apply(self, graph: Graph) -> Report:
        users = graph.users()
        folded: list[str] = []
        for node in graph.topological():
            if not isinstance(node.op, Multiply):
                continue
            for value, factor in ((0, 1), (1, 0)):
                x, s = node.sources[value], node.sources[factor]
                spots = _spots(graph, users, x, s, node)
                if spots is not None:
                    for spot in spots:
                        _scale(graph, users, spot, s)
                    _bypass(graph, users, node.name, x)
                    folded.append(node.name)
                    break
        graph.prune()
        graph.resort()
        return Report(self.name, len(folded), tuple(folded))


def _spots(graph: Graph, users: Users, x: str, s: str, node: Node) -> list[Spot] | None:
    """The stored operands to scale so that `x` comes out multiplied by `s`; None if that is not possible."""
    scale = graph[s]
    if not is_stored(scale) or graph[x].kind is not NodeKind.OP or graph[x].shape != node.shape:
        return None
    if scale.kind is NodeKind.CONSTANT and scale.value is not None and scale.value.size == 1:
        return _number(graph, users, x, (node.name, node.sources.index(x)), float(scale.value.reshape(-1)[0]))
    if len(scale.shape) >= 1 and _is_row(scale) and scale.shape[-1] == node.shape[-1]:
        return _vector(graph, users, x, node.name)
    return None


def _is_row(node: Node) -> bool:
    return all(n == 1 for n in node.shape[:-1])


def _number(graph: Graph, users: Users, name: str, reader: Spot, s: float) -> list[Spot] | None:
    node = graph[name]
    if is_stored(node):
        return [reader]
    if node.kind is not NodeKind.OP or len(users[name]) != 1:
        return None

    def go(port: int) -> list[Spot] | None:
        return _number(graph, users, node.sources[port], (name, port), s)

    op = node.op
    if isinstance(op, LINEAR):
        return go(0)
    if isinstance(op, Relu):
        return go(0) if s > 0 and op.threshold == 0 and op.mode == "min" else None
    if isinstance(op, (Add, Subtract)):
        return _all(go(0), go(1))
    if isinstance(op, (Matmul, ConvRows)):
        ports = (1,) if isinstance(op, ConvRows) else (1, 0) if is_stored(graph[node.sources[1]]) else (0, 1)
        spots_up = next((spots for spots in map(go, ports) if spots is not None), None)
        return spots_up if len(node.sources) == 2 else _all(spots_up, go(2))
    if isinstance(op, Multiply):
        return go(0) if is_stored(graph[node.sources[0]]) else go(1) or go(0)
    return None


def _all(*parts: list[Spot] | None) -> list[Spot] | None:
    spots: list[Spot] = []
    for part in parts:
        if part is None:
            return None
        spots.extend(part)
    return spots


def _vector(graph: Graph, users: Users, name: str, reader: str) -> list[Spot] | None:
    node = graph[name]
    if node.kind is not NodeKind.OP or len(users[name]) != 1:
        return None
    if isinstance(node.op, (Matmul, ConvRows)):
        ports = range(1, len(node.sources))
        return [(name, p) for p in ports] if all(is_stored(graph[node.sources[p]]) for p in ports) else None
    if isinstance(node.op, Add):
        for port, other in ((0, 1), (1, 0)):
            stored = graph[node.sources[other]]
            if is_stored(stored) and _is_row(stored) and graph[node.sources[port]].shape == node.shape:
                return _all(_vector(graph, users, node.sources[port], name), [(name, other)])
    return None


def _scale(graph: Graph, users: Users, spot: Spot, s: str) -> None:
    """Put a multiplication by the stored `s` before one stored operand."""
    reader, port = spot
    node, scale = graph[reader], graph[s]
    weight = node.sources[port]
    factor = s
    if isinstance(node.op, ConvRows) and math.prod(scale.shape) > 1:
        # Output channels are the first dim of the kernel, the only dim of the bias.
        shape = (graph[weight].shape[0],) + (1,) * (len(graph[weight].shape) - 1)
        factor = _insert(graph, users, f"{reader}.scale.{port}.reshape", Reshape(shape), (s,), node)
    elif math.prod(scale.shape) == 1 and len(scale.shape) > len(graph[weight].shape):
        factor = _insert(graph, users, f"{reader}.scale.{port}.reshape", Reshape((1,)), (s,), node)
    elif len(scale.shape) > len(graph[weight].shape):
        factor = _insert(graph, users, f"{reader}.scale.{port}.reshape", Reshape((scale.shape[-1],)), (s,), node)
    scaled = _insert(graph, users, f"{reader}.scale.{port}", Multiply(), (weight, factor), node)
    inputs = list(node.inputs)
    inputs[port] = Edge(scaled)
    node.inputs = tuple(inputs)
    users[weight].remove((reader, port))
    users[scaled].append((reader, port))


def _insert(
    graph: Graph, users: Users, stem: str, op: Multiply | Reshape, operands: tuple[str, ...], origin: Node
) -> str:
    name = graph.unique(stem)
    shape = op.infer(*(graph[o].shape for o in operands))
    graph.add(Node(name, NodeKind.OP, shape, op, tuple(Edge(o) for o in operands), origin=origin.origin))
    users[name] = []
    for port, operand in enumerate(operands):
        users[operand].append((name, port))
    return name


def _bypass(graph: Graph, users: Users, name: str, by: str) -> None:
    """Make the readers of `name` read `by`."""
    for reader, port in users[name]:
        node = graph[reader]
        inputs = list(node.inputs)
        inputs[port] = Edge(by)
        node.inputs = tuple(inputs)
    users[by] = [u for u in users[by] if u[0] != name] + users[name]
    users[name] = []


@dataclasses.dataclass(frozen=True)
class FuseBias(Pass):
    """matmul or convolution + stored row vector: the vector becomes the third operand, unless `fuse_biases` is off."""

    name = "fuse_bias"
    doc = "Make the addition of a stored row vector the bias of the matmul or convolution before it"

    def apply(self, graph: Graph) -> Report:
        fused: dict[str, str] = {}
        if not self.options.fuse_biases:
            return Report(self.name, 0)

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if node.name in fused:
                return fused[node.name]
            if not isinstance(node.op, (Matmul, ConvRows)) or len(operands) != 2:
                return None
            reader = r.single_user(node.name)
            add = r.old[reader] if reader is not None else None
            if add is None or not isinstance(add.op, Add) or add.shape != node.shape:
                return None
            other = next(name for name in add.sources if name != node.name)
            row = r.old[other]
            if not is_stored(row) or not row.shape or not _is_row(row) or row.shape[-1] != node.shape[-1]:
                return None
            b = r.builder(node)
            bias = b.reshape(other, (row.shape[-1],))
            fused[add.name] = r.keep(node, None, (*operands, bias))
            return fused[add.name]

        count = Rewriter(graph, self.options).run(visit)
        return Report(self.name, count - len(fused))
