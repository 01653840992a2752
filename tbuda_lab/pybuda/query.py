"""Predicates over op nodes, as PyBuda's overrides take them: by name, by layer (module path), by op type."""

from __future__ import annotations

import dataclasses
from typing import Any

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.name_patterns import name_pattern
from tbuda_lab.core.options import pattern_fault


@dataclasses.dataclass(frozen=True)
class NodePredicateBuilder:
    """A predicate; combine with `&`, `|` and `negate()`. Regular expressions match the whole text.

    kind: "name", "layer", "type" (text is the pattern or type), "not" (one part), "and", "or" (two parts).
    """

    kind: str
    text: str = ""
    parts: tuple[NodePredicateBuilder, ...] = ()

    def __and__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder("and", parts=(self, other))

    def __or__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder("or", parts=(self, other))

    def negate(self) -> NodePredicateBuilder:
        return NodePredicateBuilder("not", parts=(self,))

    def matches(self, node: Node) -> bool:
        """Whether an op node fulfils the predicate."""
        if self.kind == "name":
            return name_pattern(self.text).fullmatch(node.name)
        if self.kind == "layer":
            return name_pattern(self.text).fullmatch(node.origin.module)
        if self.kind == "type":
            return node.op is not None and node.op.type == self.text
        results = [part.matches(node) for part in self.parts]
        return not results[0] if self.kind == "not" else all(results) if self.kind == "and" else any(results)

    def names(self, graph: Graph) -> tuple[str, ...]:
        """Names of the ops of a graph that match, in graph order."""
        return tuple(node.name for node in graph.ops if self.matches(node))

    def __str__(self) -> str:
        if self.kind == "not":
            return f"not ({self.parts[0]})"
        if self.parts:
            return f" {self.kind} ".join(f"({part})" for part in self.parts)
        return f"{self.kind} {self.text}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> NodePredicateBuilder:
        return cls(str(data["kind"]), str(data["text"]), tuple(cls.from_json(part) for part in data["parts"]))


def name_regex(pattern: str) -> NodePredicateBuilder:
    """Ops whose name matches."""
    return NodePredicateBuilder("name", _check_pattern(pattern))


def layer_regex(pattern: str) -> NodePredicateBuilder:
    """Ops whose module path matches."""
    return NodePredicateBuilder("layer", _check_pattern(pattern))


def op_type(type_name: str) -> NodePredicateBuilder:
    """Ops of one type ("matmul")."""
    return NodePredicateBuilder("type", type_name)


def _check_pattern(pattern: str) -> str:
    """The pattern. Raises `PipelineError` at the call that gives one that cannot be compiled."""
    if fault := pattern_fault(pattern):
        raise PipelineError(fault)
    return pattern
