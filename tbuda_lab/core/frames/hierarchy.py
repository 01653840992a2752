"""The hierarchy of a graph: nested groups by module path, and by original op where a node was decomposed."""

from __future__ import annotations

import dataclasses
import re

from tbuda_lab.core.graph import Graph, Node, NodeKind

HIDDEN = (NodeKind.PARAMETER, NodeKind.CONSTANT)
"""Kinds that are listed with their readers instead of being drawn."""

_DECOMPOSED = re.compile(r"^(?P<orig>.+?)\.dc\.")
_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>\d+)$")
FOLDED = 3
"""The least number of layers alike, one behind the other, that fold."""


@dataclasses.dataclass
class Group:
    """One container. `path` is unique and stable; `label` is what is written on it."""

    path: str
    label: str
    parent: int  # index of the enclosing group, -1 for the root
    module_class: str = ""
    depth: int = 0
    leaves: int = 0  # drawn nodes inside, at any depth
    repeats: int = 0  # number of layers inside that are alike; 0 for a group that folds none


@dataclasses.dataclass
class Hierarchy:
    """Groups (index 0 is the root) and, for each drawn node, the group it stands in."""

    groups: list[Group]
    nodes: list[Node]  # drawn nodes, in topological order
    home: list[int]  # group of each drawn node

    def ancestors(self, group: int) -> list[int]:
        """The group itself and its enclosing ones, innermost first, root last."""
        chain = [group]
        while self.groups[chain[-1]].parent >= 0:
            chain.append(self.groups[chain[-1]].parent)
        return chain


def hierarchy(graph: Graph, every_group: bool = False) -> Hierarchy:
    """Nest the drawn nodes of a graph.

    A chain of groups that hold nothing but one group is written as one ("encoder.layer"), and so is a list index
    with the name of its list ("layer.3"). A group of one node is dropped, and so is a group that values leave and come
    back to (a list of modules called in turns with others): its members stand in the group around it, in the order in
    which they run. every_group: groups of one node and chains of groups stay what they are.

    Layers that repeat fold: of a run of at least `FOLDED` numbered siblings with the same ops, types and shapes, the
    first stands as it is, and the others are in a group of their own ("layer.1–47 × 47").
    """
    drawn = [n for n in graph.topological() if n.kind not in HIDDEN]
    paths = [_path(n) for n in drawn]
    position = {n.name: i for i, n in enumerate(drawn)}
    edges = [(position[s], v) for v, n in enumerate(drawn) for s in n.sources if s in position]
    prefixes_kept = (
        {path[:depth] for path in paths for depth in range(1, len(path) + 1)} if every_group else _worth_keeping(paths)
    )
    while True:
        tree, prefixes = _nest(drawn, paths, prefixes_kept)
        torn = {prefixes[g] for g in _reentrant_groups(tree, edges)}
        if not torn:
            break
        prefixes_kept -= torn
    folds = _folds(drawn, paths, prefixes_kept)
    while folds:
        inside = {prefix: _with_folds(prefix, folds) for prefix in prefixes_kept}
        groups = set(inside.values()) | {inside[prefix][:-1] for prefix in folds}
        folded, prefixes = _nest(drawn, [_with_folds(path, folds) for path in paths], groups)
        torn = {prefixes[g] for g in _reentrant_groups(folded, edges)}
        if not torn:
            _count_repeats(folded)
            return folded
        intact = {prefix: fold for prefix, fold in folds.items() if inside[prefix][:-1] not in torn}
        folds = intact if len(intact) < len(folds) else {}
    return tree


class _Fold(str):
    """A part of a path that no module has: the group around layers that repeat the one before them."""

    layers = 0  # layers inside
    first = ""  # path of the layer that they repeat


def _folds(
    drawn: list[Node], paths: list[tuple[str, ...]], retained: set[tuple[str, ...]]
) -> dict[tuple[str, ...], _Fold]:
    """The fold of each prefix that repeats the numbered sibling before it."""
    content: dict[tuple[str, ...], list[tuple[object, ...]]] = {prefix: [] for prefix in retained}
    for node, path in zip(drawn, paths, strict=True):
        kind = node.op.type if node.op is not None else node.kind.value
        for depth in range(1, len(path) + 1):
            if path[:depth] in content:
                content[path[:depth]].append((path[depth:], kind, node.shape))
    siblings: dict[tuple[tuple[str, ...], str], list[tuple[int, tuple[str, ...]]]] = {}
    for prefix in content:
        match = _NUMBERED.match(prefix[-1])
        if match:
            siblings.setdefault((prefix[:-1], match["stem"]), []).append((int(match["number"]), prefix))
    folds: dict[tuple[str, ...], _Fold] = {}
    for (_, stem), numbered in siblings.items():
        numbered.sort()
        start = 0
        for at in range(1, len(numbered) + 1):
            goes_on = (
                at < len(numbered)
                and numbered[at][0] == numbered[at - 1][0] + 1
                and (content[numbered[at][1]] == content[numbered[start][1]])
            )
            if goes_on:
                continue
            if at - start >= FOLDED:
                fold = _Fold(f"{stem}{numbered[start + 1][0]}-{numbered[at - 1][0]}")
                fold.layers, fold.first = at - start - 1, ".".join(numbered[start][1])
                folds |= {prefix: fold for _, prefix in numbered[start + 1 : at]}
            start = at
    return folds


def _with_folds(path: tuple[str, ...], folds: dict[tuple[str, ...], _Fold]) -> tuple[str, ...]:
    parts: list[str] = []
    for depth in range(1, len(path) + 1):
        fold = folds.get(path[:depth])
        parts += [path[depth - 1]] if fold is None else [fold, path[depth - 1]]
    return tuple(parts)


def _count_repeats(tree: Hierarchy) -> None:
    """Say in the label of a group that holds nothing but layers, some of them folded, how many there are."""
    members: list[list[Group]] = [[] for _ in tree.groups]
    for group in tree.groups[1:]:
        members[group.parent].append(group)
    homes = set(tree.home)
    for index, group in enumerate(tree.groups):
        layers = all(inner.repeats or _NUMBERED.match(inner.path) for inner in members[index])
        if index and index not in homes and layers and any(inner.repeats for inner in members[index]):
            group.label += f" × {sum(inner.repeats or 1 for inner in members[index])}"


def _nest(
    drawn: list[Node], paths: list[tuple[str, ...]], drawn_groups: set[tuple[str, ...]]
) -> tuple[Hierarchy, list[tuple[str, ...]]]:
    groups = [Group("", "", -1)]
    prefixes: list[tuple[str, ...]] = [()]
    index: dict[tuple[str, ...], int] = {(): 0}
    home: list[int] = []
    for node, path in zip(drawn, paths, strict=True):
        parent = 0
        for depth in range(1, len(path) + 1):
            prefix = path[:depth]
            if prefix not in drawn_groups:
                continue
            if prefix not in index:
                above = groups[parent]
                tail = path[len(_drawn_prefix(prefix, drawn_groups)) : depth]
                index[prefix] = len(groups)
                groups.append(_group(prefix, tail, parent, above.depth + 1))
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


def _group(prefix: tuple[str, ...], tail: tuple[str, ...], parent: int, depth: int) -> Group:
    modules = tuple(part for part in prefix[:-1] if not isinstance(part, _Fold))
    path, last = ".".join((*modules, prefix[-1])), prefix[-1]
    if not isinstance(last, _Fold):
        plain = tuple(part for part in tail if not isinstance(part, _Fold))
        return Group(path, _label((*modules, last), plain), parent, depth=depth)
    run, first = last.replace("-", "–"), last.first.split(".")
    if last[0].isdigit() and modules:  # a list's index says nothing without the name of the list
        return Group(
            path,
            f"{modules[-1]}.{run} × {last.layers}",
            parent,
            f"each like {'.'.join(first[-2:])}",
            depth,
            repeats=last.layers,
        )
    return Group(path, f"{run} × {last.layers}", parent, f"each like {first[-1]}", depth, repeats=last.layers)


def _reentrant_groups(tree: Hierarchy, edges: list[tuple[int, int]]) -> list[int]:
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


def _drawn_prefix(prefix: tuple[str, ...], drawn_groups: set[tuple[str, ...]]) -> tuple[str, ...]:
    for depth in range(len(prefix) - 1, 0, -1):
        if prefix[:depth] in drawn_groups:
            return prefix[:depth]
    return ()


def _label(prefix: tuple[str, ...], tail: tuple[str, ...]) -> str:
    if tail and tail[0].isdigit() and len(prefix) > len(tail):
        return ".".join((prefix[-len(tail) - 1], *tail))
    return ".".join(tail)
