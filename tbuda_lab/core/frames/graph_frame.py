"""The frames of graphs: groups, nodes, nets through the hierarchy and their layered order; the list of passes, and the
graph before or after one with what it changed."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy as np

from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.hierarchy import Group, Hierarchy, hierarchy
from tbuda_lab.core.frames.layout import Net, Order, arrange
from tbuda_lab.core.graph import Graph, Node, NodeKind, Payload
from tbuda_lab.core.graph.phases import PLACE
from tbuda_lab.core.passes.pipeline import PassTrace

KINDS = (*(k.value for k in NodeKind), "host")
"""Kinds of nodes, and ops that the host runs."""
FIRST_OPEN = 30  # items that a first view may show
FEW_ITEMS = 8  # a first view with fewer says too little: it opens on until it has more, if need be beyond FIRST_OPEN
MOST_OPEN = 120


def graph_frame(graph: Graph, stage: str, every_group: bool = False) -> Frame:
    """Columns of a graph for the page.

    Groups (`group_*`, 0 is the root), nodes (`node_*`, topological order, parameters and constants left out: they are
    counted and listed with their readers), items of each container with rank and order (`item_*`; kinds 0 node,
    1 group, 2 lane, 3 entry, 4 exit; ref is the node, the group, or the node whose value the lane carries), segments
    between items (`seg_*`). `edge_*`: the edges with TMs: nodes at both ends, and the TMs as words, one line for each
    time the consumer reads. `meta["open"]` are the groups a first view opens. every_group: as `hierarchy` has it.
    """
    tree = hierarchy(graph, every_group)
    strings = Strings()
    columns = _group_columns(tree, strings)
    columns |= _node_columns(graph, tree, strings)
    columns |= _layout_columns(tree)
    columns |= _edge_columns(tree, strings)
    meta: dict[str, Any] = {
        "stage": stage,
        "name": graph.name,
        "kinds": KINDS,
        "nodes": len(graph),
        "drawn": len(tree.nodes),
        "parameters": sum(n.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT) for n in graph),
        "open": first_open(tree),
    }
    return Frame(f"graph:{stage}", meta, columns, strings.table)


def first_open(tree: Hierarchy) -> list[int]:
    """Groups to open at first: from the outside in, the first of its kind only, while the picture stays small. Layers
    that repeat stay folded."""
    children: list[list[int]] = [[] for _ in tree.groups]
    inside = [0] * len(tree.groups)
    for home in tree.home:
        inside[home] += 1
    for g, group in enumerate(tree.groups):
        if group.parent >= 0:
            children[group.parent].append(g)
            inside[group.parent] += 1
    opened = [0]
    shown = inside[0]
    seen: set[tuple[str, int]] = set()
    queue = list(children[0])
    while queue:
        g = queue.pop(0)
        group = tree.groups[g]
        kind = (group.module_class or re.sub(r"\d+", "#", group.label), inside[g])
        few = shown < FEW_ITEMS and inside[g] <= MOST_OPEN
        if kind in seen or group.repeats or (shown + inside[g] > FIRST_OPEN and not few):
            continue
        seen.add(kind)
        opened.append(g)
        shown += inside[g]
        queue.extend(children[g])
    return opened


def _group_columns(tree: Hierarchy, strings: Strings) -> dict[str, np.ndarray]:
    return {
        "group_path": strings.column(g.path for g in tree.groups),
        "group_label": strings.column(g.label for g in tree.groups),
        "group_class": strings.column(g.module_class for g in tree.groups),
        "group_chars": np.array([_closed_chars(g) for g in tree.groups], dtype="<u2"),
        "group_parent": np.array([g.parent for g in tree.groups], dtype="<i4"),
        "group_leaves": np.array([g.leaves for g in tree.groups], dtype="<u4"),
        "group_repeats": np.array([g.repeats for g in tree.groups], dtype="<u4"),
    }


def _node_columns(graph: Graph, tree: Hierarchy, strings: Strings) -> dict[str, np.ndarray]:
    nodes = tree.nodes
    labels = [_label(n, tree.groups[home]) for n, home in zip(nodes, tree.home, strict=True)]
    return {
        "node_name": strings.column(n.name for n in nodes),
        "node_label": strings.column(labels),
        "node_type": strings.column(node_type(n) for n in nodes),
        "node_chars": np.array([_chars(t, _shape(n)) for t, n in zip(labels, nodes, strict=True)], dtype="<u2"),
        "node_kind": np.array([KINDS.index(n.attrs.get(PLACE, n.kind.value)) for n in nodes], dtype="u1"),
        "node_group": np.array(tree.home, dtype="<u4"),
        "node_shape": strings.column(_shape(n) for n in nodes),
        "node_df": strings.column(n.df.name if n.df is not None else "" for n in nodes),
        "node_source_op": strings.column(n.origin.source_op for n in nodes),
        "node_location": strings.column(n.origin.location for n in nodes),
        "node_module": strings.column(n.origin.module for n in nodes),
        "node_operands": strings.column(_operands(graph, n) for n in nodes),
        "node_attributes": strings.column(_attributes(n) for n in nodes),
    }


def _chars(label: str, line: str) -> int:
    """Length of a label, or of the smaller line below it in units of the label's letters."""
    return max(len(label), math.ceil(0.82 * len(line)))


def _closed_chars(group: Group) -> int:
    below = f"{group.leaves} nodes" + (f" · {group.module_class}" if group.module_class else "")
    return _chars(group.label, below)


def node_type(node: Node) -> str:
    """What a node is called in a picture: its netlist type, its op type, or its kind."""
    if node.op is None:
        return node.kind.value
    return str(getattr(node.op, "netlist_type", node.op.type))


def _label(node: Node, group: Group) -> str:
    """What the boxes around a node don't say already: its name without the path of its group."""
    name = node.name
    if ".dc." in name:
        stem, step = name.split(".dc.", 1)[0], name.rsplit(".dc.", 1)[1]
        words = [part for part in step.split(".") if not part.isdigit()]
        return ".".join(words if stem == group.path else [stem.rsplit(".", 1)[-1], *words])
    suffix = name.removeprefix(f"{group.path}.") if group.path else name
    return suffix if suffix != name or not group.path else ".".join(name.split(".")[-2:])


def _shape(node: Node) -> str:
    return "×".join(map(str, node.shape))


def _operands(graph: Graph, node: Node) -> str:
    """One operand per line: name, shape, TMs on the edge; parameters are marked."""
    lines = []
    for edge in node.inputs:
        source = graph[edge.source]
        mark = {NodeKind.PARAMETER: " parameter", NodeKind.CONSTANT: " constant"}.get(source.kind, "")
        tms = "".join(f" → {tm}" for tm in edge.tms)
        lines.append(f"{edge.source} [{_shape(source)}]{mark}{tms}")
    return "\n".join(lines)


def _attributes(node: Node) -> str:
    if node.op is None:
        return ""
    shown = {k: v for k, v in node.op.attributes().items() if v is not None and not isinstance(v, Payload)}
    if PLACE in node.attrs:
        shown |= {"runs on": node.attrs[PLACE], "bytes per input": 4 * math.prod(node.shape)}
    return "\n".join(f"{k}: {v}" for k, v in shown.items())


def _edge_columns(tree: Hierarchy, strings: Strings) -> dict[str, np.ndarray]:
    position = {n.name: i for i, n in enumerate(tree.nodes)}
    words: dict[tuple[int, int], list[str]] = {}
    for target, node in enumerate(tree.nodes):
        for edge in node.inputs:
            source = position.get(edge.source)
            if source is not None and edge.tms:
                words.setdefault((source, target), []).append(" → ".join(map(str, edge.tms)))
    return {
        "edge_source": np.array([s for s, _ in words], dtype="<u4"),
        "edge_target": np.array([t for _, t in words], dtype="<u4"),
        "edge_tms": strings.column("\n".join(dict.fromkeys(lines)) for lines in words.values()),
    }


def _layout_columns(tree: Hierarchy) -> dict[str, np.ndarray]:
    children: list[list[tuple[int, int]]] = [[] for _ in tree.groups]  # (0 node | 1 group, index), topological
    local: dict[tuple[int, int], int] = {}
    for n in range(len(tree.nodes)):
        child, home = (0, n), tree.home[n]
        while child not in local:
            local[child] = len(children[home])
            children[home].append(child)
            if tree.groups[home].parent < 0:
                break
            child, home = (1, home), tree.groups[home].parent
    nets = _nets(tree, local)
    memo: dict[tuple[int, tuple[Net, ...]], Order] = {}
    item_group: list[int] = []
    item_kind: list[int] = []
    item_ref: list[int] = []
    item_rank: list[int] = []
    item_order: list[int] = []
    seg: list[tuple[int, int, int, int]] = []
    for g, members in enumerate(children):
        sources = list(nets[g])
        table = tuple(nets[g].values())
        key = (len(members), table)
        order = memo.get(key)
        if order is None:
            order = memo[key] = arrange(*key)
        base = len(item_kind)
        item_group += [g] * len(order.kind)
        for i, (kind, net) in enumerate(zip(order.kind, order.net, strict=True)):
            what, ref = members[i] if net < 0 else (kind, sources[net])
            item_kind.append(what)
            item_ref.append(ref)
        item_rank += order.rank
        item_order += order.order
        seg += [(g, base + s, base + t, sources[n]) for s, t, n in order.segments]
    segments = np.array(seg, dtype="<u4").reshape(-1, 4)
    return {
        "item_group": np.array(item_group, dtype="<u4"),
        "item_kind": np.array(item_kind, dtype="u1"),
        "item_ref": np.array(item_ref, dtype="<u4"),
        "item_rank": np.array(item_rank, dtype="<u4"),
        "item_order": np.array(item_order, dtype="<u4"),
        "seg_group": np.ascontiguousarray(segments[:, 0]),
        "seg_source": np.ascontiguousarray(segments[:, 1]),
        "seg_target": np.ascontiguousarray(segments[:, 2]),
        "seg_net": np.ascontiguousarray(segments[:, 3]),
    }


def _nets(tree: Hierarchy, local: dict[tuple[int, int], int]) -> list[dict[int, Net]]:
    """For every container, its nets by source node: a value goes up to where it leaves and down to its readers."""
    position = {n.name: i for i, n in enumerate(tree.nodes)}
    draft: list[dict[int, tuple[int, list[int], bool]]] = [{} for _ in tree.groups]
    for v, node in enumerate(tree.nodes):
        down = tree.ancestors(tree.home[v])
        for name in node.sources:
            u = position.get(name)
            if u is None:
                continue
            up = tree.ancestors(tree.home[u])
            common = next(g for g in up if g in set(down))
            child = (0, u)
            for g in up[: up.index(common)]:
                _join(draft[g], u, local[child], None)
                child = (1, g)
            below = (0, v)
            for g in down[: down.index(common)]:
                _join(draft[g], u, -1, local[below])
                below = (1, g)
            _join(draft[common], u, local[child], local[below])
    return [{u: Net(s, tuple(t), leaves) for u, (s, t, leaves) in nets.items()} for nets in draft]


def _join(nets: dict[int, tuple[int, list[int], bool]], u: int, source: int, target: int | None) -> None:
    entry = nets.get(u)
    if entry is None:
        entry = nets[u] = (source, [], False)
    if target is None:
        nets[u] = (entry[0], entry[1], True)
    elif target not in entry[1]:
        entry[1].append(target)


CHANGES = ("same", "added", "changed", "removed")
LISTED = 300
SIDES = ("before", "after")


def passes_frame(trace: PassTrace, rev: int = 0) -> Frame:
    """One row per pass: name, label (a name of its own), doc, nodes before and after, rewrites, seconds, nodes added,
    removed, changed."""
    strings = Strings()
    steps = trace.steps
    columns = {
        "step_name": strings.column(s.name for s in steps),
        "step_label": strings.column(trace.labels),
        "step_doc": strings.column(s.doc for s in steps),
        "step_before": np.array([s.before for s in steps], dtype="<u4"),
        "step_after": np.array([s.after for s in steps], dtype="<u4"),
        "step_rewrites": np.array([s.rewrites for s in steps], dtype="<u4"),
        "step_seconds": np.array([s.seconds for s in steps], dtype="<f4"),
        "step_added": np.array([len(s.changes.added) for s in steps], dtype="<u4"),
        "step_removed": np.array([len(s.changes.removed) for s in steps], dtype="<u4"),
        "step_changed": np.array([len(s.changes.changed) for s in steps], dtype="<u4"),
    }
    return Frame("passes", {"error": trace.error, "rev": rev, "name": trace.first.name}, columns, strings.table)


def pass_frame(trace: PassTrace, index: int, side: str = "after") -> Frame:
    """The graph before or after a pass, as `graph_frame` draws it, with `node_change` (an index of `CHANGES`).

    `change_*`: at most `LISTED` nodes that differ: name, what (an index of `CHANGES`), text (facets: before -> after).
    Groups that hold a change are open, as far as the picture stays small.
    """
    step = trace.steps[index]
    graph = step.graph if side == "after" else trace.before(index)
    plain = graph_frame(graph, "pass")
    kinds = {c.name: 2 for c in step.changes.changed}
    kinds |= {name: 1 for name in step.changes.added} if side == "after" else {n: 3 for n in step.changes.removed}
    change = np.array([kinds.get(n, 0) for n in plain.text("node_name")], dtype="u1")
    strings = Strings(plain.strings)
    rows = [(name, 3, "") for name in step.changes.removed] + [(name, 1, "") for name in step.changes.added]
    rows += [
        (c.name, 2, "; ".join(f"{facet}: {_cut(a)} → {_cut(b)}" for facet, a, b in c.facets))
        for c in step.changes.changed
    ]
    columns = {
        **plain.columns,
        "node_change": change,
        "change_name": strings.column(r[0] for r in rows[:LISTED]),
        "change_what": np.array([r[1] for r in rows[:LISTED]], dtype="u1"),
        "change_text": strings.column(r[2] for r in rows[:LISTED]),
    }
    meta = {
        **plain.meta,
        "open": _groups_to_open(plain, change),
        "index": index,
        "side": side,
        "pass": step.name,
        "doc": step.doc,
        "label": trace.labels[index],
        "changes": len(rows),
    }
    return dataclasses.replace(plain, key="passgraph", meta=meta, columns=columns, strings=strings.table)


def _cut(text: str, room: int = 90) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _groups_to_open(frame: Frame, change: np.ndarray, room: int = 90) -> list[int]:
    """Groups around changed nodes, the first ones first, while at most about `room` items show; else what a first view
    of the graph opens."""
    c = frame.columns
    parent, home = c["group_parent"].tolist(), c["node_group"].tolist()
    inside = np.bincount(c["item_group"], minlength=len(parent)).tolist()
    opened = {0}
    shown = inside[0]
    for node in np.flatnonzero(change).tolist():
        path = []
        group = home[node]
        while group > 0 and group not in opened:
            path.append(group)
            group = parent[group]
        more = sum(inside[g] for g in path)
        if shown + more > room:
            continue
        opened.update(path)
        shown += more
    return sorted(opened) if len(opened) > 1 else list(frame.meta["open"])
