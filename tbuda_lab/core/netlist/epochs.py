"""Temporal epochs: graphs that run at the same time because they hand data to each other without a queue."""

from __future__ import annotations

from tbuda_lab.core.netlist.schema import Netlist


def linked_graphs(n: Netlist) -> list[tuple[str, ...]]:
    """The groups of graphs connected by op-to-op links, in file order; a graph without such links is a group of one."""
    graph_of = {op.name: graph.name for graph, op in n.ops()}
    parent = {name: name for name in n.graphs}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for graph, op in n.ops():
        for i in op.inputs:
            if i.source not in n.queues and i.source in graph_of:
                parent[find(graph_of[i.source])] = find(graph.name)
    groups: dict[str, list[str]] = {}
    for name in n.graphs:
        groups.setdefault(find(name), []).append(name)
    return [tuple(members) for members in groups.values()]
