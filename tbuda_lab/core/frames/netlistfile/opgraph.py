"""The ops and queues of a netlist as a graph: groups are the netlist's graphs, edges carry the TMs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import networkx as nx

from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind, Op, Origin
from tbuda_lab.core.netlist.groups import queue_groups
from tbuda_lab.core.netlist.schema import Netlist, NetOp, OpInput, Queue
from tbuda_lab.core.netlist.tables import FULL_TILE

_MANY = 12  # parameters and constants beyond are listed with their readers instead of being drawn


@dataclasses.dataclass(frozen=True)
class FileOp(Op):
    """An op as the file has it."""

    netlist_type: str = ""
    written: tuple[tuple[str, Any], ...] = ()

    def attributes(self) -> dict[str, Any]:
        return dict(self.written)


def op_graph(n: Netlist) -> Graph:
    """Every op and queue of a netlist, producers before consumers.

    Any netlist gives a graph: a name that is used but not defined becomes an input of type "missing"; a queue that an
    op reads and another one behind it writes (an accumulator, a cache) stands twice, as what is read and as
    "<name> (written)"; of ops that feed each other in a circle without a queue, the later ones in the file lose the
    edges that close it. `node.shape` is (t, rows, columns) in elements.
    """
    ops = {op.name: (graph.name, op) for graph, op in n.ops()}
    queues = {name: q for name, q in n.queues.items() if name not in ops}
    read = {i.source for _, op in ops.values() for i in op.inputs}
    reads: dict[str, list[str]] = {name: [i.source for i in op.inputs] for name, (_, op) in ops.items()}
    for name, q in queues.items():
        reads[name] = [q.input] if q.input in ops else []
    for source in read - set(reads):
        reads[source] = []
    split = _untangle(reads, queues)
    rank = {name: k for k, name in enumerate((*queues, *ops, *(s for s in reads if s not in queues and s not in ops)))}
    digraph = nx.DiGraph()
    digraph.add_nodes_from(reads)
    digraph.add_edges_from((s, name) for name, sources in reads.items() for s in sources)
    order = nx.lexicographical_topological_sort(digraph, key=lambda name: rank.get(name, len(rank)))
    groups = queue_groups(n)
    hide = sum(g in ("parameter", "constant") for g in groups.values()) > _MANY
    out = Graph("netlist")
    for name in order:
        sources = set(reads[name])
        if name in ops:
            graph, op = ops[name]
            edges = tuple(Edge(i.source, _tms(i)) for i in op.inputs if i.source in sources)
            origin = Origin(graph if len(n.graphs) > 1 else "", "", op.type, _location(n, ("graphs", graph, name)))
            out.add(Node(name, NodeKind.OP, _shape(op), FileOp(op.type, _facts(op)), edges, op.out_df, origin))
        else:
            queue = queues.get(split.get(name, name))
            if queue is None:
                out.add(Node(name, NodeKind.INPUT, (), FileOp("missing")))
                continue
            kind = _kind(queue, name in read, groups[queue.name], hide)
            origin = Origin("", "", f"{queue.type}, {groups[queue.name]}", _location(n, ("queues", queue.name)))
            out.add(Node(name, kind, _shape(queue), None, tuple(map(Edge, reads[name])), queue.df, origin))
    return out


def _untangle(reads: dict[str, list[str]], queues: dict[str, Queue]) -> dict[str, str]:
    """Makes `reads` free of circles, in place; returns the written halves of split queues -> their queue."""
    split: dict[str, str] = {}
    while True:
        digraph = nx.DiGraph((s, name) for name, sources in reads.items() for s in sources)
        circles = [c for c in nx.strongly_connected_components(digraph)
                   if len(c) > 1 or any(digraph.has_edge(m, m) for m in c)]
        if not circles:
            return split
        for circle in circles:
            queues_on_circle = [m for m in circle if m in queues]
            for name in [m for m in queues_on_circle if queues[m].type == "ram"] or queues_on_circle:
                half = f"{name} (written)"
                split[half] = name
                reads[half], reads[name] = reads[name], []
            if not queues_on_circle:
                first = next(name for name in reads if name in circle)
                reads[first] = [s for s in reads[first] if s not in circle]


def _kind(queue: Queue, is_read: bool, group: str, hide: bool) -> NodeKind:
    if queue.input != "HOST":
        return NodeKind.QUEUE if is_read else NodeKind.OUTPUT
    if hide and group in ("parameter", "constant"):
        return NodeKind.PARAMETER if group == "parameter" else NodeKind.CONSTANT
    return NodeKind.INPUT


def _shape(item: NetOp | Queue) -> tuple[int, ...]:
    z, rt, ct = item.blocking.tiles(item.grid_size)
    high, wide = item.tile_dim or FULL_TILE
    return z, rt * high, ct * wide


def _tms(i: OpInput) -> tuple[TM, ...]:
    def flat(args: Iterable[Any]) -> tuple[int | float | str, ...]:
        return tuple(a if isinstance(a, int | float | str) else str(a) for a in args)

    result = [TM("unpad", flat(i.unpad.values()))] if i.unpad else []
    for tm in i.tms or ():
        if tm.name == "broadcast":
            result += [TM("broadcast", flat(pair)) for pair in tm.args]
        else:
            result.append(TM(tm.name, flat(tm.args)))
    return (*result, TM("pad", flat(i.pad.values()))) if i.pad else tuple(result)


def _facts(op: NetOp) -> tuple[tuple[str, Any], ...]:
    flags = {"untilize_output": op.untilize_output, "gradient_op": op.gradient_op, "grid_transpose": op.grid_transpose}
    shown = {**op.attributes, **{k: v for k, v in flags.items() if v}}
    return tuple((k, v if isinstance(v, bool | int | float | str) else str(v)) for k, v in shown.items())


def _location(n: Netlist, where: tuple[str, ...]) -> str:
    span = n.span(where)
    return f"line {span.line}" if span else ""
