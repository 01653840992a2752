"""The hierarchy of a graph: nested groups by module path, and by original op where a node was decomposed."""

from __future__ import annotations

import dataclasses
import re

from tbuda_lab.core.graph import Graph, Node, NodeKind

HIDDEN = (NodeKind.PARAMETER, NodeKind.CONSTANT)
"""Kinds that are listed with their readers instead of being drawn."""

_DECOMPOSED = re.compile(r"^(?P<orig>.+?)\.dc\.")


@dataclasses.dataclass
class Group:
    """One container. `path` is unique and stable; `label` is what is written on it."""

    path: str
    label: str
    parent: int               # index of the enclosing group, -1 for the root
    module_class: str = ""
    depth: int = 0
    leaves: int = 0           # drawn nodes inside, at any depth


@dataclasses.dataclass
class Hierarchy:
    """Groups (index 0 is the root) and, for each drawn node, the group it stands in."""

    groups: list[Group]
    nodes: list[Node]         # drawn nodes, in topological order
    home: list[int]           # group of each drawn node

    def ancestors(self, group: int) -> list[int]:
        """The group itself and its enclosing ones, innermost first, root last."""
        chain = [group]
        while self.groups[chain[-1]].parent >= 0:
            chain.append(self.groups[chain[-1]].parent)
        return chain


def hierarchy(graph: Graph) -> Hierarchy:
    """Nest the drawn nodes of a graph.

    A chain of groups that hold nothing but one group is written as one ("encoder.layer"), and so is a list index
    with the name of its list ("layer.3"). A group of one node is dropped, and so is a group that values leave and come
    back to (a list of modules called in turns with others): its members stand in the group around it, in the order in
    which they run.
    """
    drawn = [n for n in graph.topological() if n.kind not in HIDDEN]
    paths = [_path(n) for n in drawn]
    position = {n.name: i for i, n in enumerate(drawn)}
    edges = [(position[s], v) for v, n in enumerate(drawn) for s in n.sources if s in position]
    retained = _worth_keeping(paths)
    while True:
        tree, prefixes = _nest(drawn, paths, retained)
        torn = {prefixes[g] for g in _reentered(tree, edges)}
        if not torn:
            return tree
        retained -= torn


def _nest(
    drawn: list[Node], paths: list[tuple[str, ...]], kept: set[tuple[str, ...]]
) -> tuple[Hierarchy, list[tuple[str, ...]]]:
    groups = [Group("", "", -1)]
    prefixes: list[tuple[str, ...]] = [()]
    index: dict[tuple[str, ...], int] = {(): 0}
    home: list[int] = []
    for node, path in zip(drawn, paths, strict=True):
        parent = 0
        for depth in range(1, len(path) + 1):
            prefix = path[:depth]
            if prefix not in kept:
                continue
            if prefix not in index:
                above = groups[parent]
                tail = path[len(_kept_prefix(prefix, kept)) : depth]
                index[prefix] = len(groups)
                groups.append(Group(".".join(prefix), _label(prefix, tail), parent, depth=above.depth + 1))
                prefixes.append(prefix)
            parent = index[prefix]
        home.append(parent)
        if node.origin.module_class and groups[parent].path == node.origin.module:
            groups[parent].module_class = node.origin.module_class
    tree = Hierarchy(groups, drawn, home)
    for inner in home:
        for outer in tree.ancestors(inner):
            groups[outer].leaves += 1
    return tree, prefixes


def _reentered(tree: Hierarchy, edges: list[tuple[int, int]]) -> list[int]:
    """Groups that a value leaves and comes back to through nodes outside."""
    after: list[list[int]] = [[] for _ in tree.nodes]
    for source, target in edges:
        after[source].append(target)
    inside: list[set[int]] = [set() for _ in tree.groups]
    for node, home in enumerate(tree.home):
        for group in tree.ancestors(home):
            inside[group].add(node)
    reentered = []
    for group in range(1, len(tree.groups)):
        members = inside[group]
        last = max(members)  # nodes are in topological order: whatever lies behind the last member cannot come back
        stack = [t for n in members for t in after[n] if t not in members and t < last]
        seen = set(stack)
        while stack:
            for target in after[stack.pop()]:
                if target in members:
                    reentered.append(group)
                    stack.clear()
                    break
                if target < last and target not in seen:
                    seen.add(target)
                    stack.append(target)
    return reentered


def _path(node: Node) -> tuple[str, ...]:
    if node.kind is not NodeKind.OP:
        return ()
    parts = tuple(p for p in node.origin.module.split(".") if p)
    match = _DECOMPOSED.match(node.name)
    return (*parts, match["orig"].rsplit(".", 1)[-1]) if match else parts


def _worth_keeping(paths: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Prefixes that hold at least two nodes and differ in content from the next prefix below."""
    count: dict[tuple[str, ...], int] = {}
    for path in paths:
        for depth in range(1, len(path) + 1):
            count[path[:depth]] = count.get(path[:depth], 0) + 1
    only_child = {prefix[:-1] for prefix, n in count.items() if len(prefix) > 1 and count[prefix[:-1]] == n}
    return {prefix for prefix, n in count.items() if n >= 2 and prefix not in only_child}


def _kept_prefix(prefix: tuple[str, ...], kept: set[tuple[str, ...]]) -> tuple[str, ...]:
    for depth in range(len(prefix) - 1, 0, -1):
        if prefix[:depth] in kept:
            return prefix[:depth]
    return ()


def _label(prefix: tuple[str, ...], tail: tuple[str, ...]) -> str:
    if tail and tail[0].isdigit() and len(prefix) > len(tail):
        return ".".join((prefix[-len(tail) - 1], *tail))
    return ".".join(tail)
