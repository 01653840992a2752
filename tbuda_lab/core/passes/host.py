"""What the host computes before and after the device runs: what depends on integer inputs alone, and data moves at the
edge of the graph."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES, is_cache
from tbuda_lab.core.ops import (
    Cast,
    Concatenate,
    GatherRows,
    HSlice,
    HStack,
    Index,
    Pad,
    PatchesRows,
    Reshape,
    Transpose,
    VSlice,
    VStack,
)
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import Add, Binary, ComparisonOp, Maximum, Minimum, Multiply, Subtract, Where
from tbuda_lab.core.ops.evaluate import GRID_WHOLE, WHOLE_TYPE
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Clip, LogicalNot, Unary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes import recipe
from tbuda_lab.core.passes.base import FILLS_TILES, LEAVES, Pass, Report
from tbuda_lab.core.passes.canonical import finite_limit, only_softmax_reads

LIMIT = 2.0**15
WHOLE = (Add, Subtract, Multiply, Maximum, Minimum)
"""Ops that make whole numbers of whole numbers."""


@dataclasses.dataclass(frozen=True)
class HostPrologue(Pass):
    """Integer and boolean values, embeddings, and the masks made from them become INPUTs with a recipe.

    Float element-wise ops and data moves follow their operands to the host as long as that does not add tensors to
    send; everything else runs on the device.
    """

    name = "host_prologue"
    doc = "Move what depends only on integer inputs (embeddings, masks) to the host"

    def apply(self, graph: Graph) -> Report:
        order = graph.topological()
        users = graph.users()
        host, stored, integer = host_values(graph)
        from_inputs = {n.name for n in order} - stored
        cut = [
            n
            for n in order
            if n.name in host and n.name in from_inputs and any(u not in host for u, _ in users[n.name])
        ]
        notes = []
        inputs: dict[str, Node] = {}
        for node in cut:
            words = any(GRID_WHOLE in graph[user].attrs for user, _ in users[node.name])
            inputs[node.name] = _as_input(
                graph, node, node.name in integer, _bound(graph, users, node.name, self.options), words
            )
            notes.append(f"{node.name} {node.shape}")
        if not inputs:
            return Report(self.name, 0)
        nodes: dict[str, Node] = {}
        for node in order:
            if node.name in inputs:
                nodes[node.name] = inputs[node.name]
            elif node.name not in host or node.name in stored:
                nodes[node.name] = node
        graph.nodes = nodes
        graph.prune()
        return Report(self.name, len(cut), tuple(notes))


def host_values(graph: Graph) -> tuple[set[str], set[str], set[str]]:
    """Values that the host computes before the device runs, values that no input and no cache changes, and values of
    integers."""
    order = graph.topological()
    users = graph.users()
    integer = _integers(order)
    from_inputs = _depends_on_inputs(order)
    stored = {n.name for n in order if n.name not in from_inputs}
    host = {n.name for n in order if n.kind in LEAVES and (n.name in integer or n.name in stored) and not is_cache(n)}
    for node in order:
        if node.kind is not NodeKind.OP or not isinstance(node.op, NdOp) or GRID_WHOLE in node.attrs:
            continue
        live = [s for s in node.sources if s not in stored]
        if any(s not in host for s in live):
            continue
        must = node.name in integer or node.op.host or any(s in integer for s in live)
        if must or (_cheap(node) and all(all(u == node.name for u, _ in users[s]) for s in live)):
            host.add(node.name)
    return host, stored, integer


def _as_input(graph: Graph, node: Node, integer: bool, bound: float, words: bool = False) -> Node:
    """The INPUT that stands for a host value. bound: of a mask, whose constants go beyond what the format holds.
    words: of 32-bit whole numbers that the device works with as such."""
    value = recipe.extract(graph, node.name)
    dtype = "float32"
    if words:
        dtype = "int32"
    elif integer:
        value = recipe.compose(f"{node.name}.float", Cast("float32"), node.shape, [value])
    elif bound < math.inf and any(_exceeds(n, bound) for n in value):
        value = recipe.compose(f"{node.name}.bounded", Clip(-bound, bound), node.shape, [value])
    attrs = {"host": True, "dtype": dtype, **({GRID_WHOLE: True} if words else {})}
    return Node(node.name, NodeKind.INPUT, node.shape, origin=node.origin, attrs=attrs, recipe=value)


def _bound(graph: Graph, users: dict[str, list[tuple[str, int]]], name: str, options: CompileOptions) -> float:
    """What a host value is cut to before the device reads it, see `TameConstants`; infinity where it stays as it is."""
    limit = finite_limit(options)
    if limit is not None:
        return limit
    return LIMIT if only_softmax_reads(graph, users, name) else math.inf


def _exceeds(node: Node, bound: float) -> bool:
    """Whether a constant has numbers beyond a bound; infinities that the format holds are none."""
    value = node.value
    if node.kind is not NodeKind.CONSTANT or value is None or value.size == 0:
        return False
    return bool((np.abs(value[np.isfinite(value)] if bound > LIMIT else value) > bound).any())


def _depends_on_inputs(order: list[Node]) -> set[str]:
    reached: set[str] = set()
    for node in order:
        if node.kind is NodeKind.INPUT or is_cache(node) or any(s in reached for s in node.sources):
            reached.add(node.name)
    return reached


def _integers(order: list[Node]) -> set[str]:
    """Values of integer or boolean type, or truth values made of such."""
    integers: set[str] = set()
    values = {node.name: node for node in order}
    for node in order:
        if WHOLE_TYPE in node.attrs:
            integer = True
        elif node.kind is NodeKind.INPUT:
            integer = not node.attrs.get("dtype", "float32").startswith(("float", "bfloat"))
        elif node.kind in LEAVES:
            integer = node.value is not None and node.value.dtype.kind != "f"
        elif isinstance(node.op, Cast):
            integer = not node.op.dtype.startswith(("float", "bfloat"))
        elif isinstance(node.op, (Binary, *MOVES, Unary, Where, Concatenate)) and not isinstance(node.op, LogicalNot):
            own = [s for s in node.sources if s in integers]
            others = [values[s] for s in node.sources if s not in integers]
            whole = isinstance(node.op, WHOLE) and all(map(_is_whole_number, others))  # numbers are written as floats
            integer = bool(own) and (not others or whole) and not isinstance(node.op, ComparisonOp)
        else:
            integer = False
        if integer:
            integers.add(node.name)
    return integers


def _is_whole_number(node: Node) -> bool:
    if node.kind is not NodeKind.CONSTANT or node.value is None or node.value.size != 1:
        return False
    number = float(node.value.flat[0])
    return number.is_integer() and abs(number) < LIMIT


def _cheap(node: Node) -> bool:
    return isinstance(node.op, (Unary, Binary, Where, Concatenate, *MOVES))


HOST_MOVES = (Transpose, Reshape, HSlice, HStack, VSlice, VStack, GatherRows, Pad, Index, PatchesRows)
MAX_GROWTH = 1.25
"""A pad that makes an input larger by more than this is the device's: the host would send the zeros."""
FREE = (HSlice, HStack, VSlice, VStack, Transpose)


@dataclasses.dataclass(frozen=True)
class HostMoves(Pass):
    """A data move that reads an INPUT becomes part of its recipe; one that an OUTPUT reads becomes part of that.

    An input read by several ops is split: one INPUT for each different move that the device could not do on an edge.
    """

    name = "host_moves"
    doc = "Let the host do reshapes, transposes and slices of inputs and outputs"

    def apply(self, graph: Graph) -> Report:
        users = graph.users()
        read = {node.name for node in graph.inputs if users[node.name]}
        notes: list[str] = []
        for node in graph.topological():
            if node.kind is not NodeKind.OP or not isinstance(node.op, HOST_MOVES):
                continue
            source = graph[node.sources[0]]
            alone = len(users[source.name]) == 1
            if (
                source.kind is NodeKind.INPUT
                and (alone or (not isinstance(node.op, FREE) and self.options.training is None))
                and not enlarges(node, source)
            ):
                self._to_input(graph, users, node, source, alone)
                notes.append(node.name)
        for node in graph.outputs:
            if WRITES not in node.attrs:
                notes.extend(_from_output(graph, users, node))
        for name in read:
            if not users[name]:
                del graph.nodes[name]
        graph.resort()
        return Report(self.name, len(notes), tuple(notes))

    def _to_input(
        self, graph: Graph, users: dict[str, list[tuple[str, int]]], node: Node, source: Node, alone: bool
    ) -> None:
        assert node.op is not None
        steps = recipe.compose(node.name, node.op, node.shape, [recipe.of_leaf(source)])
        attrs = {**source.attrs, "dtype": "int32" if GRID_WHOLE in source.attrs else "float32"}
        name = source.name if alone else node.name
        readers = users.pop(node.name)
        if alone:
            del graph.nodes[node.name]
        users[source.name] = [u for u in users[source.name] if u[0] != node.name]
        graph.nodes[name] = Node(name, NodeKind.INPUT, node.shape, origin=source.origin, attrs=attrs, recipe=steps)
        users[name] = readers
        for reader, port in readers:
            target = graph[reader]
            inputs = list(target.inputs)
            inputs[port] = Edge(name)
            target.inputs = tuple(inputs)


def enlarges(node: Node, source: Node) -> bool:
    """Whether a move would make the host send far more than it has."""
    grows = isinstance(node.op, (GatherRows, Pad)) and FILLS_TILES not in node.attrs
    return grows and _size(node) > MAX_GROWTH * _size(source)


def _size(node: Node) -> int:
    count = 1
    for n in node.shape:
        count *= n
    return count


def _from_output(graph: Graph, users: dict[str, list[tuple[str, int]]], output: Node) -> list[str]:
    """Move the moves before `output` into its recipe; returns their names."""
    moved: list[str] = []
    while True:
        node = graph[output.sources[0]]
        shrinks = isinstance(node.op, Index)
        if not isinstance(node.op, HOST_MOVES) or shrinks or isinstance(node.op, (GatherRows, Pad, PatchesRows)):
            return moved
        if len(users[node.name]) != 1:
            return moved
        output.recipe = before_output(output, node, graph[node.sources[0]])
        output.shape = graph[node.sources[0]].shape
        output.inputs = (Edge(node.sources[0]),)
        users[node.sources[0]] = [u for u in users[node.sources[0]] if u[0] != node.name] + [(output.name, 0)]
        del graph.nodes[node.name]
        moved.append(node.name)


def before_output(output: Node, node: Node, source: Node) -> Graph:
    """The recipe of `output` with the move `node` put before what it already does."""
    before_output = Graph(output.name)
    before_output.add(Node(output.name, NodeKind.INPUT, source.shape, attrs={"dtype": "float32"}))
    before_output.add(Node(node.name, NodeKind.OP, node.shape, node.op, (Edge(output.name),), origin=node.origin))
    if output.recipe is None:
        before_output.add(Node(recipe.RESULT, NodeKind.OUTPUT, node.shape, inputs=(Edge(node.name),)))
        return before_output
    for later in output.recipe:
        if later.kind is not NodeKind.INPUT:
            inputs = tuple(Edge(node.name) if e.source == output.name else e for e in later.inputs)
            before_output.add(dataclasses.replace(later, inputs=inputs))
    return before_output
