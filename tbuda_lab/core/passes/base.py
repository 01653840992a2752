"""What a pass is, and the forward rewrite that most passes are written as."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Op, Shape
from tbuda_lab.core.graph.phases import RECOMPUTE, is_cache
from tbuda_lab.core.ops.builder import DEFAULTS, Builder
from tbuda_lab.core.options import CompileOptions

LEAVES = (NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.CONSTANT)
STORED = (NodeKind.PARAMETER, NodeKind.CONSTANT)


def is_stored(node: Node) -> bool:
    """Whether a node's value is known when the model is compiled; what a cache holds is not."""
    return node.kind in STORED and not is_cache(node)


FILLS_TILES = "fills_tiles"
"""Attribute of a pad whose zeros are part of tiles that the host sends in any case."""

FOLDED_FROM = "folded_from"
"""Attribute of a folded constant: the name of the first constant that it comes from."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What a pass did: how many rewrites, and notes a person may want to read."""

    name: str
    rewrites: int
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Pass:
    """One step from graph to graph. `name` is stable, `doc` one line; fields of a subclass are its options."""

    name: ClassVar[str] = ""
    doc: ClassVar[str] = ""
    options: CompileOptions = dataclasses.field(default=DEFAULTS, repr=False)

    def apply(self, graph: Graph) -> Report:
        """Rewrite `graph` in place."""
        raise NotImplementedError


class Rewriter:
    """Builds the new graph of a forward rewrite, leaves first, then ops in topological order.

    `new` is the graph being built; `at` maps names of old values to names of new ones; `users` is the old graph's
    table of consumers. A pass gives `visit(rewriter, node, operands)`, where operands are names in `new`; it returns
    the name that stands for the node from now on, or None to keep the op.
    """

    def __init__(self, old: Graph, options: CompileOptions = DEFAULTS, same_shapes: bool = True) -> None:
        self.old = old
        self.new = Graph(old.name)
        self.at: dict[str, str] = {}
        self.options = options
        self.same_shapes = same_shapes
        self.rewrites = 0

    @functools.cached_property
    def users(self) -> dict[str, list[tuple[str, int]]]:
        """The consumers of the old graph's values, as `Graph.users` has them."""
        return self.old.users()

    def builder(self, node: Node) -> Builder:
        """A builder whose nodes descend from `node`: its origin, and the op it was in the user's model."""
        kind = node.op.type if node.op is not None else node.kind.value
        attrs: dict[str, Any] = {
            "original_op_name": node.attrs.get("original_op_name", node.name),
            "original_op_type": node.attrs.get("original_op_type", kind),
        }
        if RECOMPUTE in node.attrs:
            attrs[RECOMPUTE] = True
        return Builder(self.new, node.origin, node.name, attrs, self.options, self.old)

    def keep(self, node: Node, op: Op | None, operands: tuple[str, ...], name: str | None = None) -> str:
        """Copy `node` into the new graph with these operands, under another op or name if given."""
        op = op or node.op
        assert op is not None
        shape = op.infer(*(self.new[o].shape for o in operands))
        edges = tuple(Edge(o) for o in operands)
        self.new.add(dataclasses.replace(node, name=name or node.name, op=op, inputs=edges, shape=shape))
        return name or node.name

    def _stays(self, node: Node, operands: tuple[str, ...]) -> bool:
        """Takes an op over as it is, if it reads the same values in the same shapes."""
        old, new = self.old.nodes, self.new.nodes
        if not self.same_shapes or operands != node.sources or any([new[o].shape != old[o].shape for o in operands]):
            return False
        self.new.add(node)
        return True

    def single_user(self, name: str) -> str | None:
        """The one consumer (old name) of an old value, or None if it has several or feeds one node twice."""
        users = self.users[name]
        return users[0][0] if len(users) == 1 else None

    def fit(self, b: Builder, name: str, shape: Shape) -> str:
        """`name` in exactly this shape: rewrites may drop unit dims or leave a broadcast implicit."""
        from tbuda_lab.core.ops.tm import BroadcastTo

        have = b.shape(name)
        if have == shape:
            return name
        count = 1
        for n in shape:
            count *= n
        size = 1
        for n in have:
            size *= n
        return b.reshape(name, shape) if size == count else b.op(BroadcastTo(shape), name)

    def run(self, visit: Callable[[Rewriter, Node, tuple[str, ...]], str | None]) -> int:
        """Rewrite the old graph in place; returns the number of nodes replaced."""
        for node in self.old.of_kind(*LEAVES):
            self.new.add(node)
            self.at[node.name] = node.name
        for node in self.old.topological():
            if node.kind in LEAVES:
                continue
            operands = tuple(self.at[name] for name in node.sources)
            if node.kind is not NodeKind.OP:
                shape = self.new[operands[0]].shape if not self.same_shapes else node.shape
                edges = tuple(Edge(o) for o in operands)
                self.new.add(dataclasses.replace(node, inputs=edges, shape=shape))
                self.at[node.name] = node.name
                continue
            before = len(self.new)
            value = visit(self, node, operands)
            if value is None:
                value = node.name if self._stays(node, operands) else self.keep(node, None, operands)
            else:
                self.rewrites += 1
                if self.same_shapes:
                    value = self.fit(self.builder(node), value, node.shape)
                value = self._take_name(node, value, before)
            self.at[node.name] = value
        self.new.prune()
        self.new.resort()
        self.old.nodes = self.new.nodes
        return self.rewrites

    def _take_name(self, node: Node, result: str, before: int) -> str:
        """A single new op in the place of one old op goes by the old name."""
        output = self.new[result]
        alone = len(self.new) == before + 1 and next(reversed(self.new.nodes)) == result
        if result == node.name or not alone or output.kind is not NodeKind.OP or node.name in self.new:
            return result
        del self.new.nodes[result]
        attrs = {k: v for k, v in output.attrs.items() if k not in ("original_op_name", "original_op_type")}
        self.new.add(dataclasses.replace(output, name=node.name, attrs={**node.attrs, **attrs}))
        return node.name
