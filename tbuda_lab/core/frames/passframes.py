"""The frames of the pass stepper: the list of passes, and the graph before or after one with what it changed."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.graphframe import graph_frame
from tbuda_lab.core.passes.steps import PassTrace

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
        **plain.meta, "open": _opened(plain, change), "index": index, "side": side, "pass": step.name, "doc": step.doc,
        "label": trace.labels[index], "changes": len(rows),
    }  # fmt: skip
    return dataclasses.replace(plain, key="passgraph", meta=meta, columns=columns, strings=strings.table)


def _cut(text: str, room: int = 90) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _opened(frame: Frame, change: np.ndarray, room: int = 90) -> list[int]:
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
