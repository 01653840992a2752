"""Nodes, edges and the graph. One small set of types serves the nD graph and the lowered one."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph.op import Op, Shape
from tbuda_lab.core.graph.tm import TM


class NodeKind(Enum):
    """What a node of a graph is: a value from outside, an op, or a way out."""

    INPUT = "input"
    PARAMETER = "parameter"
    CONSTANT = "constant"
    OP = "op"
    QUEUE = "queue"
    OUTPUT = "output"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a node came from; survives every rewrite, so overrides, selection and traces can address it.

    module: dotted module path ("encoder.layer.0.attention"); module_class: class of the innermost module;
    source_op: the op in the user's program ("aten.softmax.int", "pybuda.op.Matmul"); location: "file.py:123".
    """

    module: str = ""
    module_class: str = ""
    source_op: str = ""
    location: str = ""


@dataclasses.dataclass(frozen=True)
class Edge:
    """One operand: the producer's name and the TMs applied on the way (lowered graphs only)."""

    source: str
    tms: tuple[TM, ...] = ()


@dataclasses.dataclass
class Node:
    """A vertex. `shape` is logical (unpadded); a lowered node's shape is 4-D (w, z, r, c).

    value: float32 or int array of a PARAMETER or CONSTANT; None elsewhere, or where the text had none.
    attrs: small per-node facts of later stages (data formats, fidelity, padding), plain values only.
    recipe: for a PARAMETER made at compile time, the nD graph that computes it from the model's own parameters
    (its INPUT nodes carry their names), so that updated weights can be folded again.
    """

    name: str
    kind: NodeKind
    shape: Shape
    op: Op | None = None
    inputs: tuple[Edge, ...] = ()
    df: DataFormat | None = None
    origin: Origin = Origin()
    value: np.ndarray | None = None
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    recipe: Graph | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple([edge.source for edge in self.inputs])

    @property
    def where(self) -> str:
        """Where it comes from, for a message: module or name, call and line of the model, as far as known."""
        origin = self.origin
        return ", ".join(p for p in (origin.module or self.name, origin.source_op, origin.location) if p)

    def clone(self) -> Node:
        """A copy that can be edited. Each field by itself: a third of the time of copy.copy."""
        return Node(
            self.name,
            self.kind,
            self.shape,
            self.op,
            self.inputs,
            self.df,
            self.origin,
            self.value,
            dict(self.attrs),
            self.recipe,
        )


class GraphError(TbudaError, ValueError):
    """A malformed graph or an edit that would make one."""


class Graph:
    """Nodes by name, in insertion order; edges live on the consumer. Outputs are OUTPUT nodes of one operand."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: dict[str, Node] = {}

    # -- reading ---------------------------------------------------------------------------------------------
    def __getitem__(self, name: str) -> Node:
        try:
            return self.nodes[name]
        except KeyError:
            raise GraphError(f"graph {self.name!r} has no node {name!r}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def of_kind(self, *kinds: NodeKind) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind in kinds]

    @property
    def inputs(self) -> list[Node]:
        return self.of_kind(NodeKind.INPUT)

    @property
    def outputs(self) -> list[Node]:
        return self.of_kind(NodeKind.OUTPUT)

    @property
    def ops(self) -> list[Node]:
        return self.of_kind(NodeKind.OP)

    def get_fused_ops(self) -> list[tuple[int, list[list[str]]]]:
        """Of every fused op of a lowered graph, in graph order: the number of its operands, and its schedules, each a
        list of the names of the ops that it stands for."""
        fused = [node for node in self.topological() if "fused" in node.attrs]
        return [(len(node.inputs), [list(names) for names in node.attrs["schedules"]]) for node in fused]

    def users(self) -> dict[str, list[tuple[str, int]]]:
        """For every node, its consumers as (name, operand index), in graph order. One pass over the graph."""
        table: dict[str, list[tuple[str, int]]] = {name: [] for name in self.nodes}
        for node in self.nodes.values():
            for port, edge in enumerate(node.inputs):
                table[edge.source].append((node.name, port))
        return table

    def topological(self) -> list[Node]:
        """Producers before consumers; ties keep insertion order, outputs come last in theirs.

        Raises `GraphError` naming a node on a cycle.
        """
        behind = self._behind()
        if behind is not None:
            return behind
        waiting = {node.name: len(node.inputs) for node in self}
        users = self.users()
        order: list[Node] = []
        count = len(self.nodes)
        outputs = {node.name for node in self.outputs}
        position = {name: i + count * (name in outputs) for i, name in enumerate(self.nodes)}
        ready = [position[name] for name, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        names = list(self.nodes)
        while ready:
            name = names[heapq.heappop(ready) % count]
            order.append(self.nodes[name])
            for user, _ in users[name]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, position[user])
        if len(order) != len(self.nodes):
            stuck = next(name for name, count in waiting.items() if count > 0)
            raise GraphError(f"graph {self.name!r} has a cycle through {stuck!r}")
        return order

    def _behind(self) -> list[Node] | None:
        """The order of a table that is in order already, or that has one op too many at its end, as a rewrite leaves
        it: what reads that op, and what follows from those, comes behind it. None for all other tables."""
        nodes = self.nodes
        added = next((node for node in reversed(nodes.values()) if node.kind is not NodeKind.OUTPUT), None)
        late: set[str] = set() if added is None else {added.name}
        before: set[str] = set()
        front: list[Node] = []
        back: list[Node] = []
        outputs: list[Node] = []
        for name, node in nodes.items():
            if node is added:
                if any(edge.source not in before for edge in node.inputs):
                    return None
                continue
            if any(edge.source not in before and edge.source not in late for edge in node.inputs):
                return None
            if node.kind is NodeKind.OUTPUT:
                outputs.append(node)
            elif any(edge.source in late for edge in node.inputs):
                late.add(name)
                back.append(node)
            else:
                before.add(name)
                front.append(node)
        return [*front, *([] if added is None else [added]), *back, *outputs]

    # -- writing ---------------------------------------------------------------------------------------------
    def add(self, node: Node) -> Node:
        """Appends a node and gives it back. Raises `GraphError` for a name that is taken or a source that is not
        there."""
        if node.name in self.nodes:
            raise GraphError(f"graph {self.name!r} already has a node {node.name!r}")
        for edge in node.inputs:
            if edge.source not in self.nodes:
                raise GraphError(f"{node.name!r} reads {edge.source!r}, which graph {self.name!r} does not have")
        self.nodes[node.name] = node
        return node

    def unique(self, stem: str) -> str:
        """`stem`, or `stem.<k>` with the smallest k that is free."""
        if stem not in self.nodes:
            return stem
        k = 1
        while f"{stem}.{k}" in self.nodes:
            k += 1
        return f"{stem}.{k}"

    def remove(self, name: str) -> None:
        """Raises `GraphError` while the node is read."""
        for node in self:
            if name in node.sources:
                raise GraphError(f"{name!r} is still read by {node.name!r}")
        del self.nodes[name]

    def prune(self, keep_inputs: bool = True) -> int:
        """Drop nodes that no output needs; returns how many. INPUT nodes stay unless asked otherwise."""
        alive: set[str] = set()
        stack = [node.name for node in self.outputs]
        while stack:
            name = stack.pop()
            if name not in alive:
                alive.add(name)
                stack.extend([edge.source for edge in self.nodes[name].inputs])
        dead = [n for n in self if n.name not in alive and not (keep_inputs and n.kind is NodeKind.INPUT)]
        for node in dead:
            del self.nodes[node.name]
        return len(dead)

    def resort(self) -> None:
        """Put the node table into topological order (rewrites append at the end)."""
        self.nodes = {node.name: node for node in self.topological()}

    def clone(self) -> Graph:
        """A copy whose nodes can be edited; arrays and ops are shared (neither is ever written in place)."""
        result = Graph(self.name)
        result.nodes = {node.name: node.clone() for node in self}
        return result

    def share(self) -> Graph:
        """A copy of the table alone: its nodes are those of this graph, of which nobody may change one."""
        result = Graph(self.name)
        result.nodes = dict(self.nodes)
        return result
