"""Frames of the queues, the programs, the findings and the text of a netlist file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.textframes import SEVERITIES
from tbuda_lab.core.netlist.dump import program_lines
from tbuda_lab.core.netlist.groups import queue_groups
from tbuda_lab.core.netlist.schema import Finding, Netlist, Queue
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables

_U4 = (1 << 32) - 1


def queues_frame(n: Netlist, align: int) -> Frame:
    """One row per queue. `queue_bytes`: of all its buffers with their headers."""
    tables = Tables(n)
    groups = queue_groups(n)
    strings = Strings()
    queues = list(n.queues.values())
    readers = {name: ", ".join(dict.fromkeys(r.op.name for r in reads)) for name, reads in tables.readers.items()}
    columns = {
        "queue_name": strings.column(q.name for q in queues),
        "queue_type": strings.column(q.type + (f" of {q.alias}" if q.alias else "") for q in queues),
        "queue_group": strings.column(groups[q.name].replace("_", " ") for q in queues),
        "queue_producer": strings.column(q.input for q in queues),
        "queue_readers": strings.column(readers.get(q.name, "host" if q.input != "HOST" else "") for q in queues),
        "queue_df": strings.column(q.df.name + (f", {q.layout}" if q.layout not in (None, "tilized") else "")
                                   for q in queues),
        "queue_shape": strings.column("×".join(map(str, q.blocking.tiles(q.grid_size))) for q in queues),
        "queue_grid": strings.column(f"{q.grid_size[0]}×{q.grid_size[1]}" for q in queues),
        "queue_place": strings.column(map(_place, queues)),
        "queue_chip": strings.column(str(q.target_device) for q in queues),
        "queue_entries": np.array([min(max(q.entries, 0), _U4) for q in queues], dtype="<u4"),
        "queue_bytes": np.array([float(queue_buffer_bytes(tables, q, align)) * len(q.buffers) for q in queues],
                                dtype="<f8"),
    }
    return Frame("queues", {"count": len(queues)}, columns, strings.table)


def _place(q: Queue) -> str:
    """Memory, channels, and the address of the first buffer."""
    if not q.buffers:
        return q.loc
    channels = sorted({b.channel for b in q.buffers})
    shown = ", ".join(map(str, channels)) if len(channels) < 5 else f"{channels[0]} to {channels[-1]}"
    return f"{q.loc} {shown}, {q.buffers[0].address:#x}"


def programs_frame(n: Netlist) -> Frame:
    """All programs as text, one after the other (`text`: UTF-8)."""
    text = "\n\n".join("\n".join([f"{p.name}:", *(line.strip("\n") for line in program_lines(p))]) for p in n.programs)
    columns = {"text": np.frombuffer(text.encode(), dtype="u1")}
    return Frame("programs", {"names": [p.name for p in n.programs]}, columns)


def findings_frame(n: Netlist, findings: Sequence[Finding]) -> Frame:
    """One row per finding, errors first. `line` is 0 where there is none; `target` is the op or queue it is about."""
    strings = Strings()
    rows = sorted(findings, key=lambda f: SEVERITIES.index(f.severity) if f.severity in SEVERITIES else 3)
    columns = {
        "severity": strings.column(f.severity for f in rows),
        "line": np.array([min(f.line or 0, _U4) for f in rows], dtype="<u4"),
        "where": strings.column("/".join(f.where) or "netlist" for f in rows),
        "target": strings.column(_target(n, f) for f in rows),
        "rule": strings.column(f.rule for f in rows),
        "message": strings.column(f.message for f in rows),
        "fix": strings.column(f.fix for f in rows),
    }
    errors = sum(f.severity == "error" for f in rows)
    return Frame("findings", {"errors": errors, "warnings": len(rows) - errors}, columns, strings.table)


def _target(n: Netlist, finding: Finding) -> str:
    match finding.where:
        case ("queues", name, *_):
            return name if name in n.queues else ""
        case ("graphs", graph, name, *_):
            return name if graph in n.graphs and name in n.graphs[graph].ops else ""
        case ("programs", _, _, "queue_settings", name, *_):
            return name if name in n.queues else ""
        case ("fused_ops", id, *_):
            return next((op.name for _, op in n.ops() if str(op.attributes.get("fused_op_id")) == id), "")
    return ""


def text_frame(n: Netlist, text: str, names: Sequence[str]) -> Frame:
    """The text as it stands in the file, and the lines of every op and queue, from the source map.

    names: of the ops and queues; an instance ("op.1") of what the text has once ("op") gets the lines of that.
    """
    lines = text.splitlines()
    sections = {k for k, line in enumerate(lines) if line[:1].strip() and line[0] not in "#-}]"}
    starts = sorted(sections | {
        span.line - 1 for where, span in n.source.items() if len(where) <= 3 and where[0] != "programs"})
    below = dict(zip(starts, [*starts[1:], len(lines)], strict=False))
    first: dict[str, int] = {}
    for where, span in n.source.items():
        if (len(where) == 2 and where[0] == "queues") or (len(where) == 3 and where[0] == "graphs"):
            first.setdefault(where[-1], span.line - 1)
    strings = Strings()
    rows: list[tuple[str, int, int]] = []
    for name in dict.fromkeys(names):
        at = first.get(name, first.get(name.rpartition(".")[0]))
        if at is None or at >= len(lines):
            continue
        end = max(at + 1, min(below.get(at, at + 1), len(lines)))
        while end > at + 1 and lines[end - 1].strip()[:1] in ("", "#"):
            end -= 1
        rows.append((name, at, end - at))
    columns = {
        "text": np.frombuffer(text.encode(), dtype="u1"),
        "entry_name": strings.column(r[0] for r in rows),
        "entry_line": np.array([r[1] for r in rows], dtype="<u4"),
        "entry_lines": np.array([r[2] for r in rows], dtype="<u4"),
    }
    return Frame("netlist", {"lines": len(lines), "path": n.path or ""}, columns, strings.table)
