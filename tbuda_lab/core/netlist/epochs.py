"""Temporal epochs: graphs that run at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tbuda_lab.core.netlist.schema import Allocate, Deallocate, EndLoop, Execute, Loop, Netlist, Program


class _Groups:
    """Union-find over graph names; a group is listed in file order."""

    def __init__(self, n: Netlist) -> None:
        self.n = n
        self.parent = {name: name for name in n.graphs}

    def find(self, name: str) -> str:
        while self.parent[name] != name:
            self.parent[name] = self.parent[self.parent[name]]
            name = self.parent[name]
        return name

    def join(self, one: str, other: str) -> None:
        self.parent[self.find(one)] = self.find(other)

    def listed(self) -> list[tuple[str, ...]]:
        groups: dict[str, list[str]] = {}
        for name in self.n.graphs:
            groups.setdefault(self.find(name), []).append(name)
        return [tuple(members) for members in groups.values()]


def _linked(n: Netlist) -> _Groups:
    graph_of = {op.name: graph.name for graph, op in n.ops()}
    groups = _Groups(n)
    for graph, op in n.ops():
        for i in op.inputs:
            other = graph_of.get(i.source)
            if other is not None and other != graph.name and i.source not in n.queues:
                groups.join(other, graph.name)
    return groups


def linked_graphs(n: Netlist) -> list[tuple[str, ...]]:
    """The groups of graphs connected by op-to-op links, in file order; a graph without such links is a group of one."""
    return _linked(n).listed()


def merged_graphs(n: Netlist) -> list[tuple[str, ...]]:
    """The groups that the backend makes on every arch but grayskull (netlist-format.md#groups-of-epochs): linked
    graphs, and those whose executes follow one another in a program and that share no chip."""
    groups = _linked(n)
    devices: dict[str, set[int]] = {}
    for name, graph in n.graphs.items():
        listed = graph.target_device if isinstance(graph.target_device, list) else [graph.target_device]
        devices.setdefault(groups.find(name), set()).update(listed)
    for program in n.programs:
        for first, second in _neighbours(program, n):
            a, b = groups.find(first), groups.find(second)
            if a != b and not devices[a] & devices[b]:
                groups.join(b, a)
                devices[groups.find(a)] = devices[a] | devices[b]
    return groups.listed()


def _neighbours(program: Program, n: Netlist) -> Iterator[tuple[str, str]]:
    """Graphs executed one after the other, with no loop and no allocation in between."""
    order: list[str | None] = []
    for item in program.instructions:
        if isinstance(item, Execute) and item.graph in n.graphs:
            order.append(item.graph)
        elif isinstance(item, (Loop, EndLoop, Allocate, Deallocate)):
            order.append(None)
    yield from ((a, b) for a, b in itertools.pairwise(order) if a and b)
