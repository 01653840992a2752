"""The cut of a model in sections that run in turn: some on the host (in torch), the others on the device.

An op runs on the host when `cpu_fallback_ops` names its type, when only the host has it (`HostCall`), or when a stage
of the compiler refuses it. What follows such an op and needs integers, or only moves its data, goes with it. Rules:
frontend.md 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import torch

from tbuda_lab.core.compiler.integer_outputs import (
    WHOLE,
    beyond_format,
    counting_ops,
    fallback_note,
    is_float,
    value_dtypes,
)
from tbuda_lab.core.compiler.quotients import ROUNDED_QUOTIENT, rounded_quotients
from tbuda_lab.core.compiler.rams import with_ram_ends
from tbuda_lab.core.errors import HOST_FIX, Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import TRAINABLE, WRITES, keeps_state, writes_by_parameter
from tbuda_lab.core.lowering.values import tiles_of
from tbuda_lab.core.ops import Cast, Concatenate, CumSum, GatherRows, Pad, ScatterRows, SumRows
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import GRID_WHOLE
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Buffer
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.host import host_values

Place = Literal["host", "device"]
EMPTY = "it has no elements, which the device has no form for"
_BY_PLACE = (*MOVES, Concatenate, CumSum, GatherRows, Pad, ScatterRows, SumRows)
"""Ops that take elements by their place, for which the host needs no arithmetic of the device's formats."""
SENT = ".sent"
"""What the name of an OUTPUT ends with that a later section reads."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a model that runs in one place.

    graph: its INPUT nodes are named after values of the model: inputs, or values of earlier sections. Its OUTPUT nodes
    are the model's own, and `<value>.sent` for each value that a later section reads.
    """

    place: Place
    graph: Graph

    @property
    def gives(self) -> dict[str, str]:
        """By OUTPUT node the value that it delivers."""
        return {node.name: node.sources[0] for node in self.graph.outputs}


def places_report(sections: Iterable[tuple[str, Graph]]) -> list[str]:
    """Which part of a model runs where: a line for each section, given by its place and graph."""
    lines = []
    for number, (place, graph) in enumerate(sections):
        ops = ", ".join(n.name for n in graph.ops if place == "host")
        lines.append(f"section {number}, {place}: {ops or f'{len(graph.ops)} ops'}")
    return lines


@dataclasses.dataclass(frozen=True)
class CutGraph:
    """A graph and its sections in the order in which they run; of a graph that is the device's as a whole, the one.

    graph: the one that was cut, with copies before its outputs where the device does nothing else, and ops at its rams
    (`rams.with_ram_ends`). why: the reason for each op that the host runs. apart: ops that write rams in a section
    behind the one that reads them.
    """

    graph: Graph
    why: Mapping[str, str]
    sections: tuple[Section, ...]
    apart: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether the device runs all of it."""
        return len(self.sections) == 1 and self.sections[0].place == "device"

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """A note for each op that the host runs."""
        return tuple(fallback_note(self.graph[name], reason) for name, reason in self.why.items())

    def refuse_host_alone(self) -> None:
        """Raises `UnsupportedOp` where the device has no part in it."""
        if all_on_host(self.sections):
            raise UnsupportedOp(
                "no op of the model runs on the device; run it in torch, or place the module on a CPUDevice", self.notes
            )

    def refuse_lost_writes(self) -> None:
        """Raises `UnsupportedOp` where programs of several parts write rams and the host runs some of their ops:
        sections are parts of their own, so a ram that one of them writes would keep its old contents for the others."""
        writes = writes_by_parameter(self.graph)
        if self.whole or not writes or keeps_state(self.graph):
            return
        rams = ", ".join(map(repr, writes))
        findings = [
            Diagnostic("error", self.graph[name].where, "rams", f"the host would have to run it: {reason}", HOST_FIX)
            for name, reason in self.why.items()
        ]
        raise UnsupportedOp(
            f"programs of {self.graph.name!r} write {rams}, so the device has to run all of its ops",
            findings,
            tuple(self.why),
        )

    def host_reasons(self, error: UnsupportedOp) -> dict[str, str]:
        """By op of the model that a stage refuses, and that the host does not run yet, the reason."""
        given = {o.name: o.sources[0] for o in self.graph.outputs}  # an op made for an output alone goes by its name
        ops = [given.get(name, name) for name in error.ops]
        refused = originals(self.graph, ops) - set(self.why)
        reasons = {name: finding.message for name, finding in zip(ops, error.diagnostics, strict=False)}
        return {name: reasons.get(name, "no device op implements it") for name in sorted(refused)}


def refuse_unwritten(graph: Graph, held: Collection[str], lowered: Graph) -> None:
    """Raises `UnsupportedOp` where a ram that programs of a graph write is not written by the ops made of it. held:
    those that the host keeps."""
    kept = {*writes_by_parameter(lowered), *held}
    lost = [graph[node.sources[0]] for name, node in writes_by_parameter(graph).items() if name not in kept]
    if lost:
        findings = [
            Diagnostic("error", node.where, "rams", "no program would write its result", HOST_FIX) for node in lost
        ]
        raise UnsupportedOp(f"rams of {graph.name!r} would not be written", findings, [n.name for n in lost])


def cut_graph(
    graph: Graph,
    options: CompileOptions,
    automatic: bool = True,
    refused: Mapping[str, str] | None = None,
    apart: Collection[str] = (),
) -> CutGraph:
    """The sections of a graph. automatic: whether ops that the device cannot run are the host's, not only those that
    `cpu_fallback_ops` names. refused: by op that a stage has refused, the reason. apart: rams whose writes nothing
    orders behind what reads them, so that sections have to."""
    graph, kept, written = with_ram_ends(graph)
    late = frozenset(written[name] for name in apart if name in written)
    why = host_ops(graph, options, automatic)
    if all_on_host(partition(graph, why, late)):
        counting = counting_ops(graph, options.data_format)
        why = {name: reason for name, reason in why.items() if name not in counting}
    read = _read(graph)
    why = {name: reason for name, reason in {**why, **(refused or {}), **kept}.items() if name in read}
    parts = partition(graph, why, late)
    if all_on_host(parts) and any(is_float(o) and o.sources[0] in why for o in graph.outputs):
        graph = with_output_copies(graph)
        parts = partition(graph, why, late)
    return CutGraph(graph, why, parts or (Section("device", graph),), late)


def host_ops(graph: Graph, options: CompileOptions, automatic: bool = True) -> dict[str, str]:
    """By op that the host has to run behind or before the device, the reason. What host recipes of inputs hold is not
    among them, unless it is trained."""
    light, stored, _ = host_values(graph)
    trained = _trained_values(graph) if options.training is not None else set()
    named = {name.lower() for name in options.cpu_fallback_ops}
    whole = {o.sources[0] for o in graph.outputs if not is_float(o)}
    why: dict[str, str] = counting_ops(graph, options.data_format) if automatic else {}
    empty = {n.name for n in graph if 0 in n.shape and n.kind in (NodeKind.OP, NodeKind.OUTPUT)}
    if automatic:
        why |= {name: ROUNDED_QUOTIENT for name in rounded_quotients(graph) if name not in light | stored}
        beyond = beyond_format(graph, options.data_format)
        why |= {name: reason for name, reason in beyond.items() if name not in light | stored}
        why |= {name: WHOLE for name in whole if name in stored or graph[name].kind is not NodeKind.OP}
        why |= {n.name: EMPTY for n in graph if n.name in empty and n.kind is NodeKind.OP and n.name not in stored}
        why |= {graph[name].sources[0]: EMPTY for name in empty if graph[name].kind is NodeKind.OUTPUT}
    for node in graph.topological():
        if node.kind is not NodeKind.OP or node.name in stored:
            continue
        source = node.origin.source_op.lower()
        kinds = {"" if node.op is None else node.op.type, source, *source.split(".")[1:2]}
        if node.name in light:
            if node.name in trained and automatic:
                why[node.name] = "its weight is trained, and the host computes it before the device runs"
            elif node.name in whole and automatic:
                why[node.name] = WHOLE
        elif named & kinds:
            why[node.name] = "cpu_fallback_ops names it"
        elif automatic and isinstance(node.op, NdOp) and node.op.host:
            why[node.name] = "only the host implements it"
    return why


def _trained_values(graph: Graph) -> set[str]:
    """Values that depend on a parameter that is trained."""
    return _dependent(graph, (n.name for n in graph.of_kind(NodeKind.PARAMETER) if n.attrs.get(TRAINABLE)))


def _dependent(graph: Graph, names: Iterable[str]) -> set[str]:
    """These values, and all that depend on them."""
    dependent = set(names)
    for node in graph.topological():
        if any(s in dependent for s in node.sources):
            dependent.add(node.name)
    return dependent


def gradients_into(graph: Graph, part: Section, names: Collection[str]) -> tuple[str, ...]:
    """The inputs of a section by which the sections before need gradients: floats that depend on a trained parameter
    or on an input whose gradient is asked for."""
    carrying = _trained_values(graph) | _dependent(graph, names)
    return tuple(n.name for n in part.graph.inputs if is_float(n) and n.name in carrying)


# -- the cut -----------------------------------------------------------------------------------------------------------
def partition(graph: Graph, host: Collection[str], apart: Collection[str] = ()) -> tuple[Section, ...] | None:
    """The graph in sections, alternately of the host and the device, with these ops on the host; None for none of them.
    apart: ops that write rams behind the section which reads them.

    What depends on no input, and what the host computes from inputs before the device runs, is in each section that
    reads it.
    """
    if not host and not apart:
        return None
    light, stored, _ = host_values(graph)
    shared = (light | stored) - set(host) - {o.sources[0] for o in graph.outputs if WRITES in o.attrs}
    for node in graph.topological():  # what stands behind an op on the host is computed where that is
        if node.name in shared and any(s not in shared and graph[s].kind is NodeKind.OP for s in node.sources):
            shared.discard(node.name)
    dtypes = value_dtypes(graph, named=True)
    read = _read(graph)
    places = {n: place for n, place in _places(graph, set(host), shared, dtypes).items() if n in read}
    level: dict[str, int] = {}
    for node in graph.topological():
        if node.name in places:
            least = max((level[s] for s in node.sources if s in level), default=0)
            least = max(least, 2) if node.name in apart else least  # rams are read by the device's first section
            level[node.name] = least + (least % 2 != (places[node.name] == "device"))
    leaves = {o.name for o in graph.outputs if o.sources[0] in host and o.sources[0] not in level}
    numbers = sorted({*level.values(), *([0] if leaves else [])})
    users = graph.users()
    sections = []
    for number in numbers:
        own = [n for n in graph.topological() if level.get(n.name) == number]
        place: Place = "device" if number % 2 else "host"
        sent = [n.name for n in own if any(level.get(u, number) != number for u, _ in users[n.name])]
        outputs = [o for o in graph.outputs if level.get(o.sources[0], numbers[0]) == number]  # leaves: 0, the host's
        sections.append(Section(place, _cut(graph, f"{graph.name}.{number}", own, shared, sent, outputs, dtypes)))
    return tuple(section for section in sections if section.graph.outputs)  # nothing reads the others


def _read(graph: Graph) -> set[str]:
    """What an output depends on: sections have nothing else, for what they sent to it would be outputs of theirs."""
    read: set[str] = set()
    for node in reversed(graph.topological()):
        if node.kind is NodeKind.OUTPUT or node.name in read:
            read.update((node.name, *node.sources))
    return read


def _places(graph: Graph, host: set[str], shared: set[str], dtypes: Mapping[str, torch.dtype]) -> dict[str, Place]:
    """Where every op runs that is not shared. dtypes: of all values."""
    places: dict[str, Place] = {}
    for node in graph.topological():
        if node.kind is not NodeKind.OP or node.name in shared:
            continue
        live = [s for s in node.sources if s in places]
        integers = any(not dtypes[s].is_floating_point for s in live) or not dtypes[node.name].is_floating_point
        integers = integers and GRID_WHOLE not in node.attrs
        moves = isinstance(node.op, (*MOVES, Cast)) and bool(live) and all(places[s] == "host" for s in live)
        places[node.name] = "host" if node.name in host or integers or moves else "device"
    return places


def _cut(
    graph: Graph,
    name: str,
    own: list[Node],
    shared: set[str],
    sent: list[str],
    outputs: list[Node],
    dtypes: Mapping[str, torch.dtype],
) -> Graph:
    """The section of these ops. shared: values that each section computes itself; dtypes: of all values of the
    model."""
    part = Graph(name)
    inside = {n.name for n in own}

    def bring(name: str) -> None:
        """Add a value that an op of this section reads: itself, or an input for what an earlier section gives."""
        stack = [name]
        while stack:
            at = stack[-1]
            node = graph[at]
            if at in part:
                stack.pop()
            elif node.kind is NodeKind.OP and at not in shared and at not in inside:
                attrs = {"dtype": str(dtypes[at]).removeprefix("torch."), "argument": at}
                part.add(Node(at, NodeKind.INPUT, node.shape, origin=node.origin, attrs=attrs))
            elif missing := [s for s in node.sources if s not in part]:
                stack += missing
            else:
                part.add(dataclasses.replace(node, attrs=dict(node.attrs)))

    for node in own:
        bring(node.name)
    for node in outputs:
        bring(node.sources[0])
        part.add(dataclasses.replace(node, attrs=dict(node.attrs)))
    for value in sent:
        attrs = {"dtype": str(dtypes[value]).removeprefix("torch.")}
        part.add(
            Node(
                f"{value}{SENT}",
                NodeKind.OUTPUT,
                graph[value].shape,
                inputs=(Edge(value),),
                origin=graph[value].origin,
                attrs=attrs,
            )
        )
    return part


def all_on_host(parts: tuple[Section, ...] | None) -> bool:
    return parts is not None and all(part.place == "host" for part in parts)


def with_output_copies(graph: Graph) -> Graph:
    """The graph with a copy before each output of floats: all that a device does for a model of which the host computes
    the rest."""
    copied = graph.clone()
    outputs = copied.outputs
    for output in outputs:  # all of them, for they are given in the order of the table
        del copied.nodes[output.name]
    for output in outputs:
        if not is_float(output) or 0 in output.shape:
            copied.add(output)
        else:
            source = copied[output.sources[0]]
            copy = Node(
                copied.unique(f"{source.name}.copy"),
                NodeKind.OP,
                source.shape,
                Buffer(),
                (Edge(source.name),),
                origin=source.origin,
            )
            copied.add(copy)
            copied.add(dataclasses.replace(output, inputs=(Edge(copy.name),)))
    return copied


def refuse_moves_without_place(graph: Graph, lowered: Graph, stuck: Iterable[str]) -> None:
    """Raises `UnsupportedOp` for ops of a model that take elements by their place where lowered ops made of them, or of
    what stands beside them, have no legal candidate. stuck: those lowered ops; arithmetic is left to the placer."""
    users, why = graph.users(), dict[str, str]()
    for name in stuck:
        at = lowered[name]
        while "source" not in at.attrs and at.sources and lowered[at.sources[0]].kind is NodeKind.OP:
            at = lowered[at.sources[0]]  # a nop that was put behind an op
        for source in originals(graph, [str(at.attrs.get("source", at.name))]):
            near = (*graph[source].sources, *(user for user, _ in users[source]))
            own = isinstance(graph[source].op, _BY_PLACE)
            moves = [source] if own else [n for n in near if isinstance(graph[n].op, _BY_PLACE)]
            _, rows, cols = lowered[name].shape[-3:]
            reason = f"no core holds what it makes of {tiles_of(rows)} x {tiles_of(cols)} tiles, and it does not stream"
            why |= dict.fromkeys(moves, reason)
    if why:
        findings = [Diagnostic("error", graph[name].where, "size", text, HOST_FIX) for name, text in why.items()]
        raise UnsupportedOp("moves of long rows have no form for the device", findings, tuple(why))


def originals(graph: Graph, refused: Collection[str]) -> set[str]:
    """The ops of a model from which ops that a stage refuses were made: of their name, or the longest beginning."""
    originals = set()
    ops = {node.name for node in graph.ops}
    for name in refused:
        at = name
        while at and at not in ops:
            at = at.rpartition(".")[0]
        if at:
            originals.add(at)
    return originals


__all__ = [
    "SENT",
    "CutGraph",
    "Place",
    "Section",
    "cut_graph",
    "gradients_into",
    "host_ops",
    "partition",
    "places_report",
    "refuse_moves_without_place",
    "refuse_unwritten",
]
