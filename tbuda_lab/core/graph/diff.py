"""What changed between two graphs, by node name."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph.graph import Graph, Node
from tbuda_lab.core.graph.text import array_digest, literal


@dataclasses.dataclass(frozen=True)
class Change:
    """One node that both graphs have: which of its facets differ, as (facet, before, after) in text."""

    name: str
    facets: tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True)
class GraphDiff:
    """Names added and removed, and changed nodes, each in graph order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        lines = [f"+ {name}" for name in self.added] + [f"- {name}" for name in self.removed]
        for change in self.changed:
            lines.append(f"~ {change.name}")
            lines.extend(f"    {facet}: {before} -> {after}" for facet, before, after in change.facets)
        return "\n".join(lines)


def diff(before: Graph, after: Graph) -> GraphDiff:
    """Compare kinds, ops, operands with their TMs, shapes, formats, attributes and values; order does not count."""
    added = tuple(name for name in after.nodes if name not in before)
    removed = tuple(name for name in before.nodes if name not in after)
    changed = []
    for node in after:
        old = before.nodes.get(node.name)
        facets = _facets(old, node) if old is not None else ()
        if facets:
            changed.append(Change(node.name, facets))
    return GraphDiff(added, removed, tuple(changed))


def _facets(old: Node, new: Node) -> tuple[tuple[str, str, str], ...]:
    facets = []
    for facet in ("kind", "op", "operands", "shape", "df", "attrs", "value"):
        if facet == "value" and old.value is new.value:  # no need to digest what is the same array
            continue
        a, b = _facet(old, facet), _facet(new, facet)
        if a != b:
            facets.append((facet, a, b))
    return tuple(facets)


def _facet(node: Node, facet: str) -> str:
    if facet == "kind":
        return node.kind.value
    if facet == "op":
        if node.op is None:
            return "none"
        return f"{node.op.type}[{', '.join(f'{k}={literal(v)}' for k, v in node.op.attributes().items())}]"
    if facet == "operands":
        return ", ".join("|".join([e.source, *map(str, e.tms)]) for e in node.inputs)
    if facet == "shape":
        return str(node.shape)
    if facet == "df":
        return node.df.name if node.df is not None else "none"
    if facet == "attrs":
        return literal(node.attrs)
    return array_digest(node.value) if node.value is not None else "none"
