"""Data moves at the edge of the graph are the host's."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES
from tbuda_lab.core.ops import GatherRows, HSlice, HStack, Index, Pad, PatchesRows, Reshape, Transpose, VSlice, VStack
from tbuda_lab.core.passes import recipe
from tbuda_lab.core.passes.base import Pass, Report

MOVES = (Transpose, Reshape, HSlice, HStack, VSlice, VStack, GatherRows, Pad, Index, PatchesRows)
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
            if node.kind is not NodeKind.OP or not isinstance(node.op, MOVES):
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
        result = recipe.compose(node.name, node.op, node.shape, [recipe.of_leaf(source)])
        attrs = {**source.attrs, "dtype": "float32"}
        name = source.name if alone else node.name
        readers = users.pop(node.name)
        if alone:
            del graph.nodes[node.name]
        users[source.name] = [u for u in users[source.name] if u[0] != node.name]
        graph.nodes[name] = Node(name, NodeKind.INPUT, node.shape, origin=source.origin, attrs=attrs, recipe=result)
        users[name] = readers
        for reader, port in readers:
            target = graph[reader]
            inputs = list(target.inputs)
            inputs[port] = Edge(name)
            target.inputs = tuple(inputs)


def enlarges(node: Node, source: Node) -> bool:
    """Whether a move would make the host send far more than it has."""
    return isinstance(node.op, (GatherRows, Pad)) and _size(node) > MAX_GROWTH * _size(source)


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
        if not isinstance(node.op, MOVES) or shrinks or isinstance(node.op, (GatherRows, Pad, PatchesRows)):
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
