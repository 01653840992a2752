"""CPU fallback: a graph in sections that run in turn, some on the host (in torch), the others compiled for the device.

An op runs on the host when `cpu_fallback_ops` names its type, when only the host has it (`HostCall`), or when a stage
of the compiler refuses it. What follows such an op and needs integers, or only moves its data, goes with it. Rules:
frontend.md 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

import torch

from tbuda_lab.core.compiler.integer_outputs import WHOLE, counting_ops, fallback_note, is_float
from tbuda_lab.core.compiler.pipeline import compile_graph
from tbuda_lab.core.compiler.result import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import TRAINABLE
from tbuda_lab.core.ops import Cast
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Buffer
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.passes.host import host_values

Place = Literal["host", "device"]
SENT = ".sent"
"""What the name of an OUTPUT ends with that a later section reads."""

OverridesOf = Callable[[Graph], tuple[Override, ...]]
"""The overrides that are meant for a graph."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a model that runs in one place.

    graph: its INPUT nodes are named after values of the model: inputs, or values of earlier sections. Its OUTPUT nodes
    are the model's own, and `<value>.sent` for each value that a later section reads. result: of a device section.
    """

    place: Place
    graph: Graph
    result: CompileResult | None = None

    @property
    def gives(self) -> dict[str, str]:
        """By OUTPUT node the value that it delivers."""
        return {node.name: node.sources[0] for node in self.graph.outputs}


@dataclasses.dataclass(frozen=True)
class SplitResult:
    """A model compiled in sections, in the order in which they run. reasons: a note for each op on the host."""

    graph: Graph
    sections: tuple[Section, ...]
    device: DeviceSpec
    options: CompileOptions
    reasons: tuple[Diagnostic, ...] = ()

    @property
    def results(self) -> tuple[CompileResult, ...]:
        """The compiles of the device sections."""
        return tuple(s.result for s in self.sections if s.result is not None)

    def report(self) -> str:
        """Which part of the model runs where, and why: a line per section and per op that the host runs."""
        lines = places_report([(section.place, section.graph) for section in self.sections])
        return "\n".join((*lines, *map(str, self.reasons)))


def places_report(sections: Iterable[tuple[str, Graph]]) -> list[str]:
    """Which part of a model runs where: a line for each section, given by its place and graph."""
    lines = []
    for number, (place, graph) in enumerate(sections):
        ops = ", ".join(n.name for n in graph.ops if place == "host")
        lines.append(f"section {number}, {place}: {ops or f'{len(graph.ops)} ops'}")
    return lines


def compile_with_fallback(
    graph: Graph,
    spec: DeviceSpec,
    options: CompileOptions,
    overrides_of: OverridesOf = lambda graph: (),
    automatic: bool = True,
) -> CompileResult | SplitResult:
    """Compile for the device as `compile_graph` does; a model with ops that only the host can run becomes sections.

    automatic: whether ops that the compiler refuses go to the host; without it they raise `UnsupportedOp`. Raises the
    compiler's other errors.
    """
    why = host_ops(graph, options, automatic)
    if _all_on_host(partition(graph, why)):
        counting = counting_ops(graph, options.data_format)
        why = {name: reason for name, reason in why.items() if name not in counting}
    while True:
        parts = partition(graph, why)
        if _all_on_host(parts) and any(is_float(o) and o.sources[0] in why for o in graph.outputs):
            graph = _with_output_copies(graph)
            parts = partition(graph, why)
        if parts is None:
            parts = (Section("device", graph),)
        compiled: list[Section] = []
        try:
            for part in parts:
                if part.place == "host":
                    compiled.append(part)
                    continue
                own = _options_of(graph, part, options) if len(parts) > 1 else options
                result = compile_graph(part.graph, spec, own, overrides_of(part.graph))
                compiled.append(dataclasses.replace(part, result=result))
        except UnsupportedOp as error:
            refused = _originals(graph, error.ops) - set(why)
            if not automatic or not refused:
                raise
            reasons = {name: finding.message for name, finding in zip(error.ops, error.diagnostics, strict=False)}
            why |= {name: reasons.get(name, "no device op implements it") for name in sorted(refused)}
            continue
        if len(compiled) == 1 and compiled[0].result is not None:
            return compiled[0].result
        notes = tuple(fallback_note(graph[name], reason) for name, reason in why.items())
        if not any(s.place == "device" for s in compiled):
            raise UnsupportedOp("no op of the model runs on the device; place the module on a CPUDevice", notes)
        return SplitResult(graph, tuple(compiled), spec, options, notes)


def _all_on_host(parts: tuple[Section, ...] | None) -> bool:
    return parts is not None and all(part.place == "host" for part in parts)


def _with_output_copies(graph: Graph) -> Graph:
    """The graph with a copy before each output of floats: all that a device does for a model of which the host computes
    the rest."""
    copied = graph.clone()
    outputs = copied.outputs
    for output in outputs:  # all of them, for they are given in the order of the table
        del copied.nodes[output.name]
    for output in outputs:
        if not is_float(output):
            copied.add(output)
        else:
            source = copied[output.sources[0]]
            copy = Node(copied.unique(f"{source.name}.copy"), NodeKind.OP, source.shape, Buffer(), (Edge(source.name),),
                        origin=source.origin)  # fmt: skip
            copied.add(copy)
            copied.add(dataclasses.replace(output, inputs=(Edge(copy.name),)))
    return copied


def _options_of(graph: Graph, part: Section, options: CompileOptions) -> CompileOptions:
    """The options of a section: in training it sends gradients to the sections before it, and does not update weights
    that the host reads too."""
    plan = options.training
    if plan is None:
        return options
    back = gradients_into(graph, part, plan.input_gradients)
    return dataclasses.replace(options, training=dataclasses.replace(plan, input_gradients=back))


def host_ops(graph: Graph, options: CompileOptions, automatic: bool = True) -> dict[str, str]:
    """By op that the host has to run behind or before the device, the reason. What host recipes of inputs hold is not
    among them, unless it is trained."""
    light, stored, _ = host_values(graph)
    trained = _trained_values(graph) if options.training is not None else set()
    named = {name.lower() for name in options.cpu_fallback_ops}
    whole = {o.sources[0] for o in graph.outputs if not is_float(o)}
    why: dict[str, str] = counting_ops(graph, options.data_format) if automatic else {}
    if automatic:
        why |= {name: WHOLE for name in whole if name in stored or graph[name].kind is not NodeKind.OP}
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
def partition(graph: Graph, host: Collection[str]) -> tuple[Section, ...] | None:
    """The graph in sections, alternately of the host and the device, with these ops on the host; None for none of them.

    What depends on no input, and what the host computes from inputs before the device runs, is in each section that
    reads it.
    """
    if not host:
        return None
    light, stored, _ = host_values(graph)
    shared = (light | stored) - set(host)
    for node in graph.topological():  # what stands behind an op on the host is computed where that is
        if node.name in shared and any(s not in shared and graph[s].kind is NodeKind.OP for s in node.sources):
            shared.discard(node.name)
    dtypes = _dtypes(graph)
    places = _places(graph, set(host), shared, dtypes)
    level: dict[str, int] = {}
    for node in graph.topological():
        if node.name in places:
            least = max((level[s] for s in node.sources if s in level), default=0)
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


def _places(
    graph: Graph, host: set[str], shared: set[str], dtypes: Mapping[str, torch.dtype]
) -> dict[str, Place]:
    """Where every op runs that is not shared. dtypes: of all values."""
    places: dict[str, Place] = {}
    for node in graph.topological():
        if node.kind is not NodeKind.OP or node.name in shared:
            continue
        live = [s for s in node.sources if s in places]
        integers = any(not dtypes[s].is_floating_point for s in live) or not dtypes[node.name].is_floating_point
        moves = isinstance(node.op, (*MOVES, Cast)) and bool(live) and all(places[s] == "host" for s in live)
        places[node.name] = "host" if node.name in host or integers or moves else "device"
    return places


def _dtypes(graph: Graph) -> dict[str, torch.dtype]:
    """The type of every value, found by evaluating the graph on zeros; a type depends on no value."""
    feeds = {
        node.name: torch.zeros(node.shape, dtype=getattr(torch, str(node.attrs.get("dtype", "float32"))))
        for node in graph.inputs
    }
    return {name: value.dtype for name, value in evaluate_nodes(graph, feeds).items()}


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
        part.add(Node(f"{value}{SENT}", NodeKind.OUTPUT, graph[value].shape, inputs=(Edge(value),),
                      origin=graph[value].origin, attrs={"dtype": "float32"}))  # fmt: skip
    return part


def _originals(graph: Graph, refused: Collection[str]) -> set[str]:
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


__all__ = ["SENT", "Section", "SplitResult", "compile_with_fallback", "host_ops", "partition", "places_report"]
