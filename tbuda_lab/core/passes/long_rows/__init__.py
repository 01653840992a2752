"""Rows of a vocabulary's length as several shorter ones.

A row of 1571 tiles, a prime, lies on one core or on none, and a row of 8000 fits no row of cores. Where everything that
shares the row is element-wise, moves whole rows, reduces along it or multiplies by stored weights, the row is cut: into
the rows of a matrix of its own (1 x 50257 becomes 160 x 320, which is 50 tiles instead of 1571), or, where there are
many rows or a matrix product makes them, into slices of all rows side by side. The host does so on the way in and out.
A reduction then has two steps, along the pieces and over them. What is behind the last element is zero at first, and
kept from counting where a reduction would read it.
"""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES, is_cache
from tbuda_lab.core.ops import Index, Pad
from tbuda_lab.core.ops.unary import Buffer
from tbuda_lab.core.passes.base import LEAVES, Pass, Report
from tbuda_lab.core.passes.host import before_output
from tbuda_lab.core.passes.long_rows.behind import padding_is_harmless
from tbuda_lab.core.passes.long_rows.cut import Cut
from tbuda_lab.core.passes.long_rows.groups import groups_of, pieces_of
from tbuda_lab.core.passes.long_rows.pieces import Pieces, is_long, tiles

__all__ = ["LongRows", "Pieces", "tiles"]


@dataclasses.dataclass(frozen=True)
class LongRows(Pass):
    """Rows of more tiles than a row of cores can share out are cut into pieces, with all that shares them."""

    name = "long_rows"
    doc = "Cut rows that no grid divides (vocabularies) into the rows of a matrix, or into slices"

    def apply(self, graph: Graph) -> Report:
        _leave_ends_to_host(graph)
        _copy_leaves(graph)
        chosen: dict[str, Pieces] = {}
        for group in groups_of(graph):
            pieces = pieces_of(group)
            if pieces is not None and padding_is_harmless(graph, group, pieces):
                chosen |= {node.name: pieces for node in (*group.wide, *group.reductions)}
        if not chosen:
            return Report(self.name, 0)
        cut = Cut(graph, self.options, chosen)
        notes = dict.fromkeys(
            f"a row of {tiles(p.size)} tiles became {p.count} x {p.width} elements, {p.tiles} tiles"
            for p in chosen.values()
        )
        return Report(self.name, cut.run(), tuple(notes))


def _leave_ends_to_host(graph: Graph) -> None:
    """The host cuts off what an output has not of a long row, or adds zeros to it: on the device the row would have to
    stay whole for that. Not where more than half would be cut off, for all of it is sent."""
    users = graph.users()
    for output in graph.outputs:
        node = graph[output.sources[0]]
        cuts = isinstance(node.op, Index) and 2 * node.shape[-1] > graph[node.sources[0]].shape[-1]
        if WRITES in output.attrs or not (cuts or isinstance(node.op, Pad)) or len(users[node.name]) != 1:
            continue
        source = graph[node.sources[0]]
        if not is_long(source.shape) or math.prod(source.shape[:-1]) > 2 * math.prod(node.shape[:-1]):
            continue
        output.recipe = before_output(output, node, source)
        output.shape, output.inputs = source.shape, (Edge(source.name),)
        del graph.nodes[node.name]


def _copy_leaves(graph: Graph) -> None:
    """An output of a long row that no op makes, for the host did all there was to do, gets an op: a copy."""
    copies: dict[str, str] = {}
    for output in graph.outputs:
        source = graph[output.sources[0]]
        if source.kind not in LEAVES or is_cache(source) or WRITES in output.attrs or not is_long(source.shape):
            continue
        if source.name not in copies:
            name = graph.unique(f"{source.name}.copy")
            node = Node(name, NodeKind.OP, source.shape, Buffer(), (Edge(source.name),), origin=output.origin)
            copies[source.name] = graph.add(node).name
        output.inputs = (Edge(copies[source.name]),)
    if copies:
        graph.resort()
