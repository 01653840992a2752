"""What shares a long row: the ops and leaves that have it, and the reductions along it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from tbuda_lab.core.graph import Graph, Node, NodeKind, Shape
from tbuda_lab.core.graph.phases import ROLE, WRITES
from tbuda_lab.core.ops import Matmul
from tbuda_lab.core.ops.reduce import Reduce
from tbuda_lab.core.ops.unary import SFPU
from tbuda_lab.core.passes.base import is_stored
from tbuda_lab.core.passes.long_rows.pieces import (
    FEW_ROWS,
    ROW_MOVES,
    Pieces,
    is_long,
    matrix,
    moves_rows,
    slices,
    strip,
)

ELEMENTWISE = frozenset((*SFPU, "relu", "add", "subtract", "multiply", "maximum"))
REDUCTIONS = frozenset(("reduce_sum", "reduce_avg", "reduce_max"))


@dataclasses.dataclass
class Group:
    """All that shares a row: ops and leaves that have it, reductions along it, and the moves of whole rows among
    the ops, with the shape of what they move."""

    size: int
    wide: list[Node] = dataclasses.field(default_factory=list)
    reductions: list[Node] = dataclasses.field(default_factory=list)
    by_product: bool = False
    moves: list[tuple[Node, Shape]] = dataclasses.field(default_factory=list)


class _RowSharing:
    """Which nodes share a long row: sets that are joined op by op (union-find). fixed: nodes whose row must stay whole;
    reductions: (source, node) of those along the row; movers, products: the moves of whole rows and the products that
    belong to a set."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.long = {node.name for node in graph if is_long(node.shape)}
        self.fixed: set[str] = set()
        self.products: list[str] = []
        self.movers: list[Node] = []
        self.reductions: list[tuple[str, Node]] = []
        self._parent: dict[str, str] = {}
        for node in graph.topological():
            sources = [s for s in node.sources if s in self.long]
            if node.name not in self.long and not sources:
                continue
            if node.kind is NodeKind.OP:
                self._add_op(node, sources)
            elif node.kind is NodeKind.OUTPUT:
                self.fixed.update(sources if WRITES in node.attrs else ())
            elif not (is_stored(node) or node.kind is NodeKind.INPUT) or ROLE in node.attrs:
                self.fixed.add(node.name)  # what programs write lies in DRAM as the model has it

    def find(self, name: str) -> str:
        """The node that stands for the set of `name`."""
        parent = self._parent
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    def _join(self, sources: Iterable[str], name: str) -> None:
        for source in sources:
            self._parent[self.find(source)] = self.find(name)

    def _add_op(self, node: Node, sources: list[str]) -> None:
        op, wide = node.op, node.name in self.long
        if op is not None and op.type in ELEMENTWISE and wide:
            self._join(sources, node.name)
        elif isinstance(op, Reduce) and op.type in REDUCTIONS and op.dim == -1:
            self.reductions.append((sources[0], node))
        elif isinstance(op, Reduce) and op.type in REDUCTIONS and op.dim < -1:
            self._join(sources[:1], node.name)
        elif isinstance(op, ROW_MOVES) and wide and moves_rows(node, [self.graph[s].shape for s in node.sources]):
            self._join(sources, node.name)
            self.movers.append(node)
        elif isinstance(op, Matmul) and wide and _has_own_weights(self.graph, node):
            self._join(node.sources[1:], node.name)
            self.products.append(node.name)
        else:
            self.fixed.update((*sources, node.name))


def groups_of(graph: Graph) -> list[Group]:
    """All groups of a graph whose row may be cut."""
    sharing = _RowSharing(graph)
    find, long = sharing.find, sharing.long
    bad = {find(name) for name in sharing.fixed & long}
    groups: dict[str, Group] = {}
    for node in graph.topological():
        if node.name in long and node.kind is not NodeKind.OUTPUT and find(node.name) not in bad:
            groups.setdefault(find(node.name), Group(node.shape[-1])).wide.append(node)
    for source, node in sharing.reductions:
        if (group := groups.get(find(source))) is not None:
            group.reductions.append(node)
    for node in sharing.movers:
        if (group := groups.get(find(node.name))) is not None:
            group.moves.append((node, graph[node.sources[0]].shape))
    for name in sharing.products:
        if (group := groups.get(find(name))) is not None:
            group.by_product = True
    # one op alone that makes the row (a product that only an output reads) has a pass of its own
    return [
        g
        for g in groups.values()
        if any(n.kind is NodeKind.OP and not isinstance(n.op, Matmul) for n in g.wide) or g.reductions
    ]


def _has_own_weights(graph: Graph, node: Node) -> bool:
    """A product of one matrix with stored weights that nothing else reads, plus a stored row."""
    left, *stored = (graph[s] for s in node.sources)
    users = graph.users()
    return (
        math.prod(left.shape[:-2]) == 1
        and not is_long(left.shape)
        and all(is_stored(s) and len(users[s.name]) == 1 and math.prod(s.shape[:-2]) == 1 for s in stored)
        and all(s.shape[-1] == node.shape[-1] and (len(s.shape) < 2 or s.shape[-2] == 1) for s in stored[1:])
    )


def pieces_of(group: Group) -> Pieces | None:
    """How to cut the row; None where its tensors have too many dims, or a move has no form in pieces."""
    shapes = [node.shape for node in group.wide]
    lead = max(len(strip(shape)) for shape in shapes)
    rows = max((s[-2] if len(s) > 1 else 1) for s in shapes)
    if lead > 3:
        return None
    few = rows < FEW_ROWS and not group.by_product
    pieces = matrix(group.size) if few else slices(group.size)
    return pieces if all(pieces.move(node, source) is not None for node, source in group.moves) else None
