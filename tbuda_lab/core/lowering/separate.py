"""What the parts of a lowered graph (see `graph.phases`) cannot share."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import PHASE, ROLE, phases
from tbuda_lab.core.lowering.hwops import HwUnary


def separate(graph: Graph) -> None:
    """What two parts of the graph cannot share, in place.

    An input of the forward part is popped with it, so what later parts read of it goes through a nop of the forward
    part and the queue behind that. A constant is a queue, which graphs of different input counts cannot share: the
    optimizer has its own.
    """
    phase = phases(graph)
    if not phase:
        return
    users = graph.users()
    for node in [*graph.inputs, *graph.of_kind(NodeKind.CONSTANT)]:
        if node.kind is NodeKind.INPUT and node.attrs.get(ROLE) == "gradient":
            continue
        if all(phase.get(name) == "decode" for name, _ in users[node.name]):
            continue  # an input or constant of its own: the decode part is run by itself
        first = ("forward",) if node.kind is NodeKind.INPUT else ("forward", "decode", "backward")
        late = [(name, port) for name, port in users[node.name] if name in phase and phase[name] not in first]
        if not late or (node.kind is NodeKind.CONSTANT and len(late) == len(users[node.name])):
            continue
        copy = _kept_input(graph, node) if node.kind is NodeKind.INPUT else _own_constant(graph, node)
        for name, port in late:
            edges = list(graph[name].inputs)
            edges[port] = dataclasses.replace(edges[port], source=copy)
            graph[name].inputs = tuple(edges)
    graph.resort()


def _kept_input(graph: Graph, node: Node) -> str:
    attrs = {"inserted": True, PHASE: "forward"}
    name = graph.unique(f"{node.name}_kept_nop")
    edges = (Edge(node.name),)
    return graph.add(Node(name, NodeKind.OP, node.shape, HwUnary("nop"), edges, node.df, node.origin, None, attrs)).name


def _own_constant(graph: Graph, node: Node) -> str:
    name = graph.unique(f"{node.name}_opt")
    return graph.add(dataclasses.replace(node, name=name, attrs=dict(node.attrs))).name
