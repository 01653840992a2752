"""Frames of a netlist from a file, valid or not: its ops and queues as a graph (groups are the netlist's graphs, edges
carry the TMs), its queues, programs, findings and text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import networkx as nx
import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.graph_frame import graph_frame
from tbuda_lab.core.frames.netlist_grid import ops_frame
from tbuda_lab.core.frames.snapshot import SEVERITIES, device_text
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind, Op, Origin
from tbuda_lab.core.netlist.check.registry import NetlistFacts, facts_of, leading_arch
from tbuda_lab.core.netlist.dump import program_lines
from tbuda_lab.core.netlist.schema import Finding, Netlist, NetOp, OpInput, Queue
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes
from tbuda_lab.core.netlist.tables import FULL_TILE, Tables, queue_groups

_MANY = 12  # parameters and constants beyond are listed with their readers instead of being drawn


@dataclasses.dataclass(frozen=True)
class FileOp(Op):
    """An op as the file has it."""

    netlist_type: str = ""
    fields: tuple[tuple[str, Any], ...] = ()

    def attributes(self) -> dict[str, Any]:
        return dict(self.fields)


def op_graph(n: Netlist) -> Graph:
    """Every op and queue of a netlist, producers before consumers.

    Any netlist gives a graph: a name that is used but not defined becomes an input of type "missing"; a queue that an
    op reads and another one behind it writes (an accumulator, a cache) stands twice, as what is read and as
    "<name> (written)"; of ops that feed each other in a circle without a queue, the later ones in the file lose the
    edges that close it. `node.shape` is (t, rows, columns) in elements.
    """
    ops = {op.name: (graph.name, op) for graph, op in n.ops()}
    queues = {name: q for name, q in n.queues.items() if name not in ops}
    read = {i.source for _, op in ops.values() for i in op.inputs}
    reads: dict[str, list[str]] = {name: [i.source for i in op.inputs] for name, (_, op) in ops.items()}
    for name, q in queues.items():
        reads[name] = [q.input] if q.input in ops else []
    for source in read - set(reads):
        reads[source] = []
    split = _untangle(reads, queues)
    rank = {name: k for k, name in enumerate((*queues, *ops, *(s for s in reads if s not in queues and s not in ops)))}
    digraph = nx.DiGraph()
    digraph.add_nodes_from(reads)
    digraph.add_edges_from((s, name) for name, sources in reads.items() for s in sources)
    order = nx.lexicographical_topological_sort(digraph, key=lambda name: rank.get(name, len(rank)))
    groups = queue_groups(n)
    hide = sum(g in ("parameter", "constant") for g in groups.values()) > _MANY
    out = Graph("netlist")
    for name in order:
        sources = set(reads[name])
        if name in ops:
            graph, op = ops[name]
            edges = tuple(Edge(i.source, _tms(i)) for i in op.inputs if i.source in sources)
            origin = Origin(graph if len(n.graphs) > 1 else "", "", op.type, _location(n, ("graphs", graph, name)))
            out.add(Node(name, NodeKind.OP, _shape(op), FileOp(op.type, _fact_texts(op)), edges, op.out_df, origin))
        else:
            queue = queues.get(split.get(name, name))
            if queue is None:
                out.add(Node(name, NodeKind.INPUT, (), FileOp("missing")))
                continue
            kind = _kind(queue, name in read, groups[queue.name], hide)
            origin = Origin("", "", f"{queue.type}, {groups[queue.name]}", _location(n, ("queues", queue.name)))
            out.add(Node(name, kind, _shape(queue), None, tuple(map(Edge, reads[name])), queue.df, origin))
    return out


def _untangle(reads: dict[str, list[str]], queues: dict[str, Queue]) -> dict[str, str]:
    """Makes `reads` free of circles, in place; returns the written halves of split queues -> their queue."""
    split: dict[str, str] = {}
    while True:
        digraph = nx.DiGraph((s, name) for name, sources in reads.items() for s in sources)
        circles = [
            c for c in nx.strongly_connected_components(digraph) if len(c) > 1 or any(digraph.has_edge(m, m) for m in c)
        ]
        if not circles:
            return split
        for circle in circles:
            queues_on_circle = [m for m in circle if m in queues]
            for name in [m for m in queues_on_circle if queues[m].type == "ram"] or queues_on_circle:
                half = f"{name} (written)"
                split[half] = name
                reads[half], reads[name] = reads[name], []
            if not queues_on_circle:
                first = next(name for name in reads if name in circle)
                reads[first] = [s for s in reads[first] if s not in circle]


def _kind(queue: Queue, is_read: bool, group: str, hide: bool) -> NodeKind:
    if queue.input != "HOST":
        return NodeKind.QUEUE if is_read else NodeKind.OUTPUT
    if hide and group in ("parameter", "constant"):
        return NodeKind.PARAMETER if group == "parameter" else NodeKind.CONSTANT
    return NodeKind.INPUT


def _shape(item: NetOp | Queue) -> tuple[int, ...]:
    z, rt, ct = item.blocking.tiles(item.grid_size)
    high, wide = item.tile_dim or FULL_TILE
    return z, rt * high, ct * wide


def _tms(i: OpInput) -> tuple[TM, ...]:
    def flat(args: Iterable[Any]) -> tuple[int | float | str, ...]:
        return tuple(a if isinstance(a, int | float | str) else str(a) for a in args)

    tms = [TM("unpad", flat(i.unpad.values()))] if i.unpad else []
    for tm in i.tms or ():
        if tm.name == "broadcast":
            tms += [TM("broadcast", flat(pair)) for pair in tm.args]
        else:
            tms.append(TM(tm.name, flat(tm.args)))
    return (*tms, TM("pad", flat(i.pad.values()))) if i.pad else tuple(tms)


def _fact_texts(op: NetOp) -> tuple[tuple[str, Any], ...]:
    flags = {"untilize_output": op.untilize_output, "gradient_op": op.gradient_op, "grid_transpose": op.grid_transpose}
    shown = {**op.attributes, **{k: v for k, v in flags.items() if v}}
    return tuple((k, v if isinstance(v, bool | int | float | str) else str(v)) for k, v in shown.items())


def _location(n: Netlist, where: tuple[str, ...]) -> str:
    span = n.span(where)
    return f"line {span.line}" if span else ""


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
        "queue_df": strings.column(
            q.df.name + (f", {q.layout}" if q.layout not in (None, "tilized") else "") for q in queues
        ),
        "queue_shape": strings.column("×".join(map(str, q.blocking.tiles(q.grid_size))) for q in queues),
        "queue_grid": strings.column(f"{q.grid_size[0]}×{q.grid_size[1]}" for q in queues),
        "queue_place": strings.column(map(_place, queues)),
        "queue_chip": strings.column(str(q.target_device) for q in queues),
        "queue_entries": np.array([min(max(q.entries, 0), _U4) for q in queues], dtype="<u4"),
        "queue_bytes": np.array(
            [float(queue_buffer_bytes(tables, q, align)) * len(q.buffers) for q in queues], dtype="<f8"
        ),
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
    starts = sorted(
        sections | {span.line - 1 for where, span in n.source.items() if len(where) <= 3 and where[0] != "programs"}
    )
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


def netlist_frames(n: Netlist, text: str, *, arch: str | None = None, profile: str = "backend") -> list[Frame]:
    """What a view of the file shows: summary, findings of `check`, op graph, grids, queues, programs, text.

    A netlist without ops has no graph and no grids.

    n: as `netlist.load(..., lenient=True)` gives it; it need not be valid. text: of the file. arch: as for `check`.
    Raises UnknownDevice for an arch that is none; no netlist makes it raise.
    """
    findings = netlists.check(n, arch, profile)
    facts = _facts(n, arch)
    shown = netlists.expand(n, facts.align)
    names = [*shown.queues, *(op.name for _, op in shown.ops())]
    drawn = [] if not any(shown.ops()) else [graph_frame(op_graph(shown), "netlist"), ops_frame(shown, facts.device)]
    return [
        _summary(shown, facts),
        findings_frame(shown, findings),
        *drawn,
        queues_frame(shown, facts.align),
        programs_frame(n),
        text_frame(n, text, names),
    ]


def _facts(n: Netlist, arch: str | None) -> NetlistFacts:
    if arch is not None:
        return facts_of(arch)
    return facts_of(leading_arch(n))


def _summary(n: Netlist, facts: NetlistFacts) -> Frame:
    chips = {c for g in n.graphs.values() for c in _as_list(g.target_device)}
    counts: list[list[Any]] = [
        [sum(len(g.ops) for g in n.graphs.values()), "ops"],
        [len(n.graphs), "graphs"],
        [len(n.queues), "queues"],
        [len(n.programs), "programs"],
        [len(n.fused_ops), "fused ops"],
        [len(chips), "chips"],
    ]
    return Frame(
        "summary",
        {
            "name": PurePath(n.path).name if n.path else "netlist",
            "device": f"arch {', '.join(n.arch) or 'not written'}, drawn on {device_text(facts.device)}",
            "counts": [[c, what[:-1] if c == 1 else what] for c, what in counts if c or what != "fused ops"],
        },
    )


def _as_list(device: int | list[int]) -> list[int]:
    return device if isinstance(device, list) else [device]
