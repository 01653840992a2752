"""The graph as a networkx graph, for its algorithms."""

from __future__ import annotations

import networkx

from tbuda_lab.core.graph.graph import Graph


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """A directed multigraph: nodes carry kind, op (type name or None), shape and module; edges are keyed by operand
    number and carry their TMs in text. Nodes and edges come in graph order."""
    view = networkx.MultiDiGraph(name=graph.name)
    for node in graph:
        kind = node.op.type if node.op is not None else None
        view.add_node(node.name, kind=node.kind.value, op=kind, shape=node.shape, module=node.origin.module)
    for node in graph:
        for port, edge in enumerate(node.inputs):
            view.add_edge(edge.source, node.name, key=port, tms=tuple(map(str, edge.tms)))
    return view
