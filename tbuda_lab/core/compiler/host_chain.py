"""A model of which the host runs a part: sections of host and device by turns, those of the device in one netlist.

The device's sections are parts of one graph (see `graph.phases`), each with a program of its own. What one section
gives to a later one goes through the host: an OUTPUT of the one part, an INPUT of the other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import torch

from tbuda_lab.core.bindings import as_type
from tbuda_lab.core.compiler.integer_outputs import is_float, value_dtypes
from tbuda_lab.core.compiler.sections import SENT, CutGraph, Place, Section, places_report
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import PHASE, PLACE, WRITES, direction_of, forward_part, netlist_part
from tbuda_lab.core.ops.evaluate import Evaluation, evaluate_nodes, to_tensor

Values = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Stage:
    """One section of a chain. graph: of the host's what it evaluates. program: of the device's.

    reads: by INPUT the value of the model that it takes; gives: by OUTPUT the value, or the output, that it delivers;
    keeps: of the host's, by OUTPUT what it is kept as until the next run.
    """

    place: Place
    graph: Graph
    program: str
    reads: Mapping[str, str]
    gives: Mapping[str, str]
    keeps: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def evaluation(self) -> Evaluation:
        """The graph made ready for all runs."""
        return Evaluation(self.graph)


@dataclasses.dataclass(frozen=True)
class HostWork:
    """What the host does between two parts of the device, for one input: how many ops, their names, and the bytes that
    come from the device before and go to it after (4 for each number, as the host holds them)."""

    stage: int
    ops: tuple[str, ...]
    received: int
    sent: int


@dataclasses.dataclass(frozen=True)
class HostChain:
    """graph: the model, with the mark `PLACE` on the ops of the host. stages: in the order in which they run. device:
    the graph that is compiled, all parts of the device. reasons: a note for each op that the host runs. dtypes: of the
    values that go from stage to stage."""

    graph: Graph
    stages: tuple[Stage, ...]
    device: Graph
    reasons: tuple[Diagnostic, ...]
    dtypes: Mapping[str, torch.dtype]

    def reference_feeds(self, feeds: Mapping[str, torch.Tensor]) -> Values:
        """By INPUT of the device's graph what it is given for inputs of the model, everything evaluated in torch."""
        values = evaluate_nodes(self.graph, feeds)
        return {
            name: values[value]
            for stage in self.stages
            if stage.place == "device"
            for name, value in stage.reads.items()
        }

    def take(self, stage: Stage, values: Values, given: Mapping[str, torch.Tensor]) -> None:
        """Add what a stage has given, by its OUTPUT nodes, to the values of the model, in the model's types."""
        for output, value in stage.gives.items():
            values[value] = given[output].to(self.dtypes[value])

    def run_host(self, stage: Stage, values: Values, held: Mapping[str, torch.Tensor] | None = None) -> Values:
        """Evaluate a stage of the host. values: of the model; what it gives is added. held: what is kept from the run
        before, by name. Returns what the stage leaves to be kept."""
        given = stage.evaluation.run({n: values[v] for n, v in stage.reads.items()} | dict(held or {}))
        self.take(stage, values, given)
        return {name: given[output] for output, name in stage.keeps.items()}

    @property
    def held_names(self) -> set[str]:
        """The rams that the host keeps."""
        return {name for stage in self.stages for name in stage.keeps.values()}

    def held(self) -> Values:
        """What the host keeps from run to run, as it is before the first."""
        names = self.held_names
        return {
            node.name: to_tensor(node.value).clone()
            for node in self.graph.of_kind(NodeKind.PARAMETER)
            if node.name in names and node.value is not None
        }

    def feeds(self, stage: Stage, values: Values) -> Values:
        """What a stage of the device is given, by its INPUT nodes."""
        return {name: values[value] for name, value in stage.reads.items()}

    @property
    def output_names(self) -> list[str]:
        """Of the model's outputs, in its order."""
        return [n.name for n in self.graph.outputs if WRITES not in n.attrs]

    def outputs(self, values: Values) -> list[torch.Tensor]:
        """The model's outputs, in its order."""
        return [as_type(values[n], str(self.graph[n].attrs.get("dtype", "float32"))) for n in self.output_names]

    def work(self) -> tuple[HostWork, ...]:
        """What the host does for one input, section by section."""
        model_inputs = {n.name for n in self.graph.inputs}
        result = []
        for number, stage in enumerate(self.stages):
            if stage.place == "host":
                received = sum(_bytes(n) for n in stage.graph.inputs if n.name not in model_inputs)
                sent = sum(_bytes(n) for n in stage.graph.outputs if n.name.endswith(SENT))
                result.append(HostWork(number, tuple(n.name for n in stage.graph.ops), received, sent))
        return tuple(result)

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """A note for each op that the host runs, and one for each section of them with what it costs per input."""
        costs = [
            Diagnostic(
                "note",
                f"section {w.stage}",
                "host-work",
                f"the host runs {', '.join(w.ops) or 'no op'}; "
                f"each input takes {w.received} bytes from the device and {w.sent} bytes to it",
            )
            for w in self.work()
        ]
        return (*self.reasons, *costs)

    def report(self) -> str:
        """Which part of the model runs where, and why: a line per section and per op that the host runs."""
        lines = places_report([(stage.place, stage.graph) for stage in self.stages])
        return "\n".join((*lines, *map(str, self.notes)))


def _bytes(node: Node) -> int:
    return 4 * math.prod(node.shape)


def chain_of(cut: CutGraph) -> HostChain | None:
    """The chain of a graph that was cut; None for one that the device runs as a whole. Raises `UnsupportedOp` where
    the device has no part in it."""
    if cut.whole:
        return None
    cut.refuse_lost_writes()
    cut.refuse_host_alone()
    parts = sum(section.place == "device" for section in cut.sections)
    joint, stages, number = Graph(cut.graph.name), [], 0
    for section in cut.sections:
        reads = {node.name: node.name for node in section.graph.inputs}
        if section.place == "device":
            names = _join(joint, section, number, parts)
            program = f"run_{netlist_part(direction_of(forward_part(number)))}"
            reads = {names[name]: value for name, value in reads.items()}
            number += 1
        else:
            names, program = {}, ""
        gives = {
            names.get(n.name, n.name): n.sources[0] if n.name.endswith(SENT) else n.name
            for n in section.graph.outputs
            if WRITES not in n.attrs
        }
        keeps = {
            n.name: str(n.attrs[WRITES]) for n in section.graph.outputs if WRITES in n.attrs and section.place == "host"
        }
        stages.append(Stage(section.place, section.graph, program, reads, gives, keeps))
    marked = cut.graph.clone()
    for stage in stages:
        for node in stage.graph.ops if stage.place == "host" else ():
            marked[node.name].attrs[PLACE] = "host"
    return HostChain(marked, tuple(stages), joint, cut.notes, _crossing_dtypes(cut.graph))


def _crossing_dtypes(graph: Graph) -> dict[str, torch.dtype]:
    """The type of every value. Outputs of floats are float32, as the device's are, others as the model says it."""
    dtypes = dict(value_dtypes(graph, named=True))
    for node in graph.outputs:
        dtypes[node.name] = torch.float32 if is_float(node) else getattr(torch, str(node.attrs["dtype"]))
    return dtypes


def _join(joint: Graph, section: Section, number: int, parts: int) -> dict[str, str]:
    """Add a section of the device to the graph of all; its names there. Parameters, and what is calculated from them
    alone, are the same nodes for all sections."""
    names: dict[str, str] = {}
    shared: set[str] = set()
    for node in section.graph.topological():
        sources = [names[s] for s in node.sources]
        same = joint.nodes.get(node.name)
        stored = node.kind is NodeKind.PARAMETER or (
            node.kind is NodeKind.OP and bool(node.sources) and all(s in shared for s in node.sources)
        )
        if stored:
            shared.add(node.name)
            if same is not None and same.kind is node.kind and list(same.sources) == sources:
                names[node.name] = node.name
                continue
        name = node.name if same is None else joint.unique(f"{node.name}.{forward_part(number)}")
        names[node.name] = name
        attrs = dict(node.attrs)
        if node.kind is NodeKind.INPUT and name != node.name:
            attrs["argument"] = name
        if node.kind is NodeKind.OUTPUT and parts > 1:
            attrs[PHASE] = forward_part(number)
        edges = tuple(Edge(names[e.source], e.tms) for e in node.inputs)
        joint.add(dataclasses.replace(node, name=name, inputs=edges, attrs=attrs))
    return names


__all__ = ["HostChain", "HostWork", "Stage", "chain_of"]
