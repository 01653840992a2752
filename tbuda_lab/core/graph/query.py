"""Predicates on nodes: by name, by layer, by op; combined with `&`, `|` and `~`; to and from plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.graph.graph import Graph, GraphError, Node, NodeKind
from tbuda_lab.core.name_patterns import name_pattern
from tbuda_lab.core.options import pattern_fault


@dataclasses.dataclass(frozen=True)
class Query:
    """A predicate on op nodes. kind is "name", "layer" or "op" with a `pattern`, or "and", "or", "not" with `parts`.

    A regex must match in full. "layer" looks at the module path the node came from, "op" at the op's type, or at the
    type of the op in the user's model that it was decomposed from.
    """

    kind: str
    pattern: str = ""
    parts: tuple[Query, ...] = ()

    def __post_init__(self) -> None:
        if self.kind in ("name", "layer"):
            if fault := pattern_fault(self.pattern):
                raise GraphError(fault)
        elif self.kind not in ("op", "and", "or", "not"):
            raise GraphError(f"{self.kind!r} is not a kind of predicate; known are name, layer, op, and, or, not")

    def __call__(self, node: Node) -> bool:
        if node.kind is not NodeKind.OP or node.op is None:
            return False
        if self.kind == "name":
            return name_pattern(self.pattern).fullmatch(node.name)
        if self.kind == "layer":
            return name_pattern(self.pattern).fullmatch(node.origin.module)
        if self.kind == "op":
            return self.pattern in (node.op.type, node.attrs.get("original_op_type"))
        if self.kind == "and":
            return all(part(node) for part in self.parts)
        if self.kind == "or":
            return any(part(node) for part in self.parts)
        return not self.parts[0](node)

    def __and__(self, other: Query) -> Query:
        return Query("and", parts=(self, other))

    def __or__(self, other: Query) -> Query:
        return Query("or", parts=(self, other))

    def __invert__(self) -> Query:
        return Query("not", parts=(self,))

    def negate(self) -> Query:
        """PyBuda's spelling of `~`."""
        return ~self

    def to_json(self) -> dict[str, Any]:
        """Plain data: {"kind", "pattern"} or {"kind", "parts"}."""
        if self.parts:
            return {"kind": self.kind, "parts": [part.to_json() for part in self.parts]}
        return {"kind": self.kind, "pattern": self.pattern}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Query:
        """The inverse of `to_json`. Raises `GraphError` for what is none."""
        try:
            parts = tuple(Query.from_json(part) for part in data.get("parts", ()))
            return Query(str(data["kind"]), str(data.get("pattern", "")), parts)
        except (KeyError, TypeError, AttributeError) as e:
            raise GraphError(f"{data!r} is not a predicate") from e


def name_regex(pattern: str) -> Query:
    """Nodes whose whole name matches."""
    return Query("name", pattern)


def layer_regex(pattern: str) -> Query:
    """Nodes whose module path matches in full."""
    return Query("layer", pattern)


def op_type(name: str) -> Query:
    """Nodes of this op type, or decomposed from one."""
    return Query("op", name)


def select(graph: Graph, query: Query) -> list[Node]:
    """The op nodes that satisfy `query`, in graph order."""
    return [node for node in graph if query(node)]
