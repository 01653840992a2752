"""Edits of a lowered graph that the user (or the placer) asks for: nops on edges, edges cut to DRAM queues, formats and
fidelity of single ops.

They come before the balancer, so that everything after it sees one graph: an inserted nop is an op like any other, and
an edge through a queue is marked on its reader. Formats first (those of inserted nops after the nops), then nops, then
queues, each in the order they were asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, quantity
from tbuda_lab.core.graph import TM, Graph, Node, NodeKind
from tbuda_lab.core.lowering.data_formats import FORMAT_KINDS, assign_op, mismatches, set_fidelity, set_format
from tbuda_lab.core.lowering.legalise import MAX_READERS, insert_nop
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import EDIT_KINDS, KINDS, Override, parts_of

QUEUED = "queued"
"""Attribute of an op: the operands that it reads from a DRAM queue although their producers are ops."""

BETWEEN = "between"
"""Attribute of an inserted nop: the op before the first nop of its chain, and then the ops behind the last."""

MAX_NOPS = 256
"""Nops in a row: more than any grid has cores."""


@dataclasses.dataclass(frozen=True)
class EditResult:
    """The graph after the edits (the very same one when there are none), and what was done otherwise than asked."""

    graph: Graph
    notes: tuple[Diagnostic, ...] = ()


def is_edit(override: Override) -> bool:
    """Whether an override changes the graph."""
    return override.kind in EDIT_KINDS


def edits_of(overrides: Sequence[Override]) -> tuple[Override, ...]:
    """Those that change the graph, in their order."""
    return tuple(o for o in overrides if is_edit(o))


def queued_ports(node: Node) -> tuple[int, ...]:
    """Operands that a cut edge brings to an op: read from a DRAM queue, whatever epoch their producer is in."""
    return tuple(node.attrs.get(QUEUED, ()))


def nops_between(graph: Graph, source: str, readers: Sequence[str] | None = None) -> tuple[str, ...]:
    """Inserted nops between an op and (some of) its readers, in graph order."""
    nops_between = []
    for node in graph.ops:
        ends = node.attrs.get(BETWEEN)
        if ends and ends[0] == source and (readers is None or set(ends[1:]) & set(readers)):
            nops_between.append(node.name)
    return tuple(nops_between)


def cut_edges(graph: Graph, source: str, readers: Sequence[str] | None = None) -> tuple[tuple[str, int], ...]:
    """(reader, operand) of the edges from an op (or the nops behind it) that go through a queue."""
    return tuple(
        (node.name, port)
        for node in graph.ops
        if readers is None or node.name in readers
        for port in queued_ports(node)
        if source in (node.inputs[port].source, _origin(graph, node.inputs[port].source))
    )


def edit(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> EditResult:
    """A copy of a lowered graph with the nops and queues that the overrides ask for.

    insert_nop on src -> dst: `buffer_<i>_<src>_<dst>` for the i-th of its nops; several readers of one override share
    them, named by the first reader, or follow each other in a daisy chain. With `hoist_tms` the TMs of the edge stand
    before the first nop, else behind the last.

    Raises `OverrideError` naming every request that cannot be met, before anything else is computed.
    """
    edits = _latest(edits_of(overrides))
    if not edits:
        return EditResult(graph)
    editor = _Editor(graph, device, options, formats=any(record.kind in FORMAT_KINDS for record in edits))
    for kind in EDIT_KINDS:
        for record in edits:
            if record.kind == kind and not editor.of_a_nop(record):
                editor.run(record)
    for record in edits:
        if editor.of_a_nop(record):
            editor.run(record)
    if any(record.kind == "data_format" for record in edits):
        for name, message, fix in mismatches(editor.graph):
            editor.errors.append(Diagnostic("error", name, "override-data_format", message, fix))
    if editor.errors:
        raise OverrideError(f"the graph does not allow {quantity(len(editor.errors), 'edit')}", editor.errors)
    editor.graph.resort()
    return EditResult(editor.graph, tuple(editor.notes))


def _latest(records: Sequence[Override]) -> list[Override]:
    """Of several requests for the same edge the last one counts."""
    latest: list[Override] = []
    for record in records:
        latest = [k for k in latest if edit_key(k) != edit_key(record)]
        latest.append(record)
    return latest


def edit_key(record: Override) -> tuple[Any, ...]:
    """What tells two edits apart: kind, source, reader and operand."""
    value = record.value if isinstance(record.value, Mapping) else {}
    return record.kind, record.target, _names(value.get("dest")), value.get("port")


def _names(dest: Any) -> tuple[str, ...] | None:
    if dest is None:
        return None
    return (dest,) if isinstance(dest, str) else tuple(dest)


def _origin(graph: Graph, name: str) -> str:
    """The op before a chain of inserted nops; the op itself where it is none of them."""
    ends = graph[name].attrs.get(BETWEEN)
    return str(ends[0]) if ends else name


class _Editor:
    """formats: whether edits may change any node. Without, the copy shares the nodes that no edit changes."""

    def __init__(self, graph: Graph, device: DeviceSpec, options: CompileOptions, formats: bool) -> None:
        self.before, self.graph = graph, graph.clone() if formats else graph.share()
        self.device, self.options = device, options
        self.errors: list[Diagnostic] = []
        self.notes: list[Diagnostic] = []
        self.existing = list(graph.nodes)

    def _own(self, name: str) -> Node:
        """A node of the copy that may be changed."""
        node = self.graph[name]
        if self.before.nodes.get(name) is node:
            node = self.graph.nodes[name] = node.clone()
        return node

    def run(self, record: Override) -> None:
        value = record.value if isinstance(record.value, Mapping) else {}
        # names may be those of nops inserted before; patterns and predicates mean the model's own ops
        named = isinstance(record.target, (str, tuple))
        if isinstance(record.target, str) and record.target not in self.graph:  # ops, not the constants beside them
            sources = record.matches([node.name for node in self.graph.ops])
        else:
            sources = record.matches(list(self.graph.nodes) if named else self.existing)
        if KINDS[record.kind].of_parts == "last" and isinstance(record.target, str):
            sources = sources[-1:]  # several are what passes made of one op
        for source in sources:
            if record.kind == "data_format":
                fault = set_format(self.graph, self.device, self.options, source, record.value)
            elif record.kind == "math_fidelity":
                fault = set_fidelity(self.graph, source, record.value)
            else:
                fault = self._nops(source, value) if record.kind == "insert_nop" else self._queues(source, value)
            # a pattern means the ops that can: "all matmuls in Bfp8_b" is no error where one writes to the host
            if fault and record.kind in FORMAT_KINDS and not named:
                self.notes.append(Diagnostic("note", source, f"override-{record.kind}", *fault))
            elif fault:
                self.errors.append(Diagnostic("error", source, f"override-{record.kind}", *fault))

    def of_a_nop(self, record: Override) -> bool:
        """Whether a format is asked for a nop that is to be inserted."""
        return record.kind in FORMAT_KINDS and isinstance(record.target, str) and not record.matches(self.existing)

    # -- nops ------------------------------------------------------------------------------------------------
    def _nops(self, source: str, value: Mapping[str, Any]) -> tuple[str, str] | None:
        """Inserts the nops behind one op; (what is wrong, what would work) if that is impossible."""
        count = value.get("nop_count", 1)
        if type(count) is not int or not 1 <= count <= MAX_NOPS:
            return f"nop_count is a whole number from 1 to {MAX_NOPS}, not {count!r}", "nop_count=1"
        edges = self._edges(source, value)
        if isinstance(edges, tuple):
            return edges
        readers = list(dict.fromkeys(name for name, _ in edges))
        if (
            len({self.graph[r].kind for r in readers}) > 1
            or sum(self.graph[r].kind is NodeKind.OUTPUT for r in readers) > 1
        ):
            return "a nop before a host output can feed nothing else", "one insert_nop for each reader"
        tms = [self.graph[name].inputs[port].tms for name, port in edges]
        hoist = bool(value.get("hoist_tms", True))
        if hoist and len(set(tms)) > 1:
            hoist = False
            text = f"the TMs on the way to {', '.join(readers)} differ, so they stay behind the nops"
            self.notes.append(Diagnostic("note", source, "insert-nop", text, "one insert_nop for each reader"))
        groups = [[r] for r in readers] if value.get("daisy_chain") else [readers]
        if max(len([e for e in edges if e[0] in group]) for group in groups) > MAX_READERS:
            return f"a nop feeds at most {MAX_READERS} operands", "name fewer readers in one insert_nop"
        at, before = source, tms[0] if hoist else ()
        for group in groups:
            for i in range(count):
                at = self._nop(f"buffer_{i}_{source}_{group[0]}", at, before, (source, *group))
                before = ()
            for name, port in edges:
                if name in group:
                    self._rewire(name, port, at, () if hoist else self.graph[name].inputs[port].tms)
        return None

    def _nop(self, name: str, source: str, tms: tuple[TM, ...], ends: tuple[str, ...]) -> str:
        result = self.graph[insert_nop(self.graph, name, source, tms)]
        result.attrs[BETWEEN] = ends
        assign_op(self.graph, result, self.device, self.options)
        return result.name

    def _rewire(self, name: str, port: int, source: str, tms: tuple[TM, ...]) -> None:
        node = self._own(name)
        edges = list(node.inputs)
        edges[port] = dataclasses.replace(edges[port], source=source, tms=tms)
        node.inputs = tuple(edges)

    # -- queues ----------------------------------------------------------------------------------------------
    def _queues(self, source: str, value: Mapping[str, Any]) -> tuple[str, str] | None:
        if self.graph[source].kind is not NodeKind.OP:
            return "this is a queue already", "cut an edge that starts at an op"
        edges = self._edges(source, value, through_nops=True)
        if isinstance(edges, tuple):
            return edges
        port = value.get("port")
        if port is not None:
            chosen = [e for e in edges if e[1] == port]
            if not chosen:
                ports = ", ".join(str(p) for _, p in edges)
                return f"operand {port!r} of {edges[0][0]} does not come from it", f"operands that do: {ports}"
            edges = chosen
        for name, operand in edges:
            if self.graph[name].kind is NodeKind.OUTPUT:
                if value.get("dest") is not None:
                    return f"{name} is a host output, a queue already", "cut an edge between two ops"
                continue
            node = self._own(name)
            node.attrs[QUEUED] = tuple(sorted({*queued_ports(node), operand}))
        return None

    # -- edges -----------------------------------------------------------------------------------------------
    def _edges(
        self, source: str, value: Mapping[str, Any], *, through_nops: bool = False
    ) -> list[tuple[str, int]] | tuple[str, str]:
        """(reader, operand) of the edges meant, in the order of the readers asked for; or what is wrong with them."""
        starts = {source}
        if through_nops:
            starts |= set(nops_between(self.graph, source))
        dest = self._readers_meant(starts, value)
        inner = starts - set(dest or ())  # nops of the chain itself, unless one of them is meant
        named = self.graph.nodes if dest is None else [n for n in dict.fromkeys(dest) if n in self.graph]
        edges = self._readers(starts, [name for name in named if name not in inner])
        readers = list(dict.fromkeys(name for name, _ in edges))
        if dest is None:
            return edges or ("nothing reads it", "choose an op that feeds another")
        for name in dest:
            if name in readers:
                continue
            if name not in self.graph:
                near = difflib.get_close_matches(name, list(self.graph.nodes), n=1, cutoff=0.5)
                return f"there is no {name!r} in the graph", f"did you mean {near[0]!r}?" if near else "check the name"
            nops = nops_between(self.graph, source, [name])
            if nops:
                return (
                    f"an earlier override put {', '.join(nops)} between it and {name}",
                    f"more of them with nop_count, or name {nops[-1]} as the source",
                )
            readers = list(dict.fromkeys(r for r, _ in self._readers(starts, self.graph.nodes) if r not in inner))
            return f"{name} does not read it", f"its readers: {', '.join(readers) or 'none'}"
        return [e for name in dest for e in edges if e[0] == name]

    def _readers_meant(self, sources: Collection[str], value: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The names of readers that are asked for; of an op that passes have made others of, those that read it."""
        dest = _names(value.get("dest"))
        if dest is None:
            return None
        meant: list[str] = []
        for name in dest:
            parts = [] if name in self.graph else parts_of(name, self.graph.nodes)
            reading = {reader for reader, _ in self._readers(sources, parts)}
            meant += [part for part in parts if part in reading] or [name]
        return tuple(meant)

    def _readers(self, sources: Collection[str], names: Iterable[str]) -> list[tuple[str, int]]:
        """Edges from any of these sources to nodes of these names, in graph order of the sources, then of `names`."""
        edges: dict[str, list[tuple[str, int]]] = {name: [] for name in self.graph.nodes if name in sources}
        for name in names:
            for port, edge in enumerate(self.graph[name].inputs):
                if edge.source in edges:
                    edges[edge.source].append((name, port))
        return [edge for some in edges.values() for edge in some]
