"""What a compile leaves behind, and the stages that make it of a placement: emission, check, the host's side.

Whether the number that was minimised is the time that passes: the objective beside the simulator of epochs.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.bindings import (
    InputBinding,
    OutputBinding,
    WeightBinding,
    host_tensor,
    input_binding,
    output_binding,
    weight_bindings,
)
from tbuda_lab.core.compiler.host_chain import HostChain
from tbuda_lab.core.compiler.integer_outputs import rounded_outputs
from tbuda_lab.core.compiler.request import Clock
from tbuda_lab.core.constraints import Constraints
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.emit import EmitMemory, emit
from tbuda_lab.core.epochsim import simulate, simulated_cycles
from tbuda_lab.core.errors import Diagnostic, NetlistError
from tbuda_lab.core.formats import DataFormat, round_to
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.context import SHARES
from tbuda_lab.core.netlist.check import CheckCache
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import Fusion, Pattern
from tbuda_lab.core.placer.stalls.epoch_throughput import Trial


@dataclasses.dataclass(frozen=True)
class CompileResult:
    """Everything a compile leaves: the graph of each stage, the placement, the netlist, and the host's side of it.

    parameters: queue name -> (t, R, C) as the host writes it once before the first run.
    timings: stage -> seconds of wall time. fused: which element-wise ops run as one, and what decided it. weights:
    the parameters that a compile for training trains. chain: of a model of which the host runs a part (`graph` is the
    whole of it, `passed` and later ones are what the device runs).
    """

    graph: Graph
    passed: Graph
    lowered: Graph
    placement: Placement
    netlist: Netlist
    inputs: tuple[InputBinding, ...]
    outputs: tuple[OutputBinding, ...]
    parameters: Mapping[str, np.ndarray]
    device: DeviceSpec
    options: CompileOptions
    constraints: Constraints
    diagnostics: tuple[Diagnostic, ...]
    timings: dict[str, float]
    fused: tuple[Pattern, ...] = ()
    weights: tuple[WeightBinding, ...] = ()
    chain: HostChain | None = None

    @property
    def overrides(self) -> tuple[Override, ...]:
        """What was asked of single ops and queues, as it was asked."""
        return self.constraints.records

    @property
    def input_factors(self) -> Mapping[str, Mapping[int, int]]:
        """See `Constraints.input_factors`."""
        return self.constraints.input_factors

    @property
    def model_shapes(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Shapes of the model's own "parameters" and "inputs", each by name."""
        return {
            word: {node.name: tuple(node.shape) for node in self.graph.of_kind(kind)}
            for word, kind in (("parameters", NodeKind.PARAMETER), ("inputs", NodeKind.INPUT))
        }

    @property
    def loaded_once(self) -> bool:
        """Whether a run takes no time to load epochs, see `CompileOptions.loaded_once`."""
        return self.options.loaded_once

    @property
    def output_names(self) -> list[str]:
        """Of what a run gives, in its order."""
        return [b.name for b in self.outputs] if self.chain is None else self.chain.output_names

    def device_feeds(self, feeds: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """What the device is given for inputs of the model, by the INPUT nodes of its traced graph; what the host runs
        before, and the device before that, is evaluated in torch."""
        return feeds if self.chain is None else self.chain.reference_feeds(feeds)

    def unrounded_parameters(self) -> dict[str, np.ndarray]:
        """`parameters` before they were rounded to their formats, for runs in which nothing rounds."""
        plain = host_parameters(self.lowered, rounded=False)
        return {queue: plain[queue] if queue in plain else self.parameters[queue] for queue in self.parameters}


def finish(
    graph: Graph,
    passed: Graph,
    lowered: Graph,
    placement: Placement,
    spec: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints,
    clock: Clock,
    notes: Sequence[Diagnostic] = (),
    parameters: HostParameters | None = None,
    check: Callable[[Netlist], list[Diagnostic]] | None = None,
    emitted: EmitMemory | None = None,
    fusion: Fusion | None = None,
    chain: HostChain | None = None,
) -> CompileResult:
    """The stages after placing: emission, the check of the netlist, and the bindings of the host. notes: of stages
    before; parameters: `host_parameters(lowered)` where it is known; check: what stands in for `check_netlist` and
    `objective_notes`, for those who remember something of them; emitted: of other placements of this lowered graph;
    fusion: what decided what is fused; chain: of a model of which the host runs a part."""
    with clock.stage("emit"):
        emission = emit(lowered, placement, spec, options.microbatch, emitted)
    with clock.stage("check"):
        if check is not None:
            findings = check(emission.netlist)
        else:
            notes_of_time = objective_notes(lowered, placement, spec, options, constraints)
            findings = [*check_netlist(emission.netlist, spec), *notes_of_time]
        findings = [*findings, *rounded_outputs(graph if chain is None else chain.device, options.data_format)]
    copies = {
        q.name: q.source
        for q in placement.queues.values()
        if q.kind in ("parameter", "constant") and q.name != q.source and q.source in lowered
    }
    written = host_parameters(lowered) if parameters is None else parameters
    contents = written.beside(emission.contents, copies)
    outputs = [
        output_binding(_output_node(lowered, q.source), q.name, q.tms)
        for q in placement.queues.values()
        if q.kind == "output"
    ]
    in_order = {node.name: i for i, node in enumerate(lowered.outputs)}
    return CompileResult(
        graph=graph if chain is None else chain.graph,
        passed=passed,
        lowered=lowered,
        placement=placement,
        netlist=emission.netlist,
        inputs=tuple(input_binding(n) for n in lowered.inputs if n.name in emission.netlist.queues),
        outputs=tuple(sorted(outputs, key=lambda o: in_order[o.name])),
        parameters=contents,
        device=spec,
        options=options,
        constraints=constraints,
        diagnostics=(*(chain.notes if chain is not None else ()), *notes, *placement.diagnostics, *findings),
        timings=clock.timings,
        fused=fusion.patterns if fusion is not None else (),
        weights=weight_bindings(passed, emission.netlist.queues) if options.training is not None else (),
        chain=chain,
    )


def _output_node(lowered: Graph, source: str) -> Node:
    """The OUTPUT node of an output queue, which is named by that node or by the op that feeds it."""
    node = lowered[source]
    return node if node.kind is NodeKind.OUTPUT else next(n for n in lowered.outputs if n.inputs[0].source == source)


def check_netlist(netlist: Netlist, device: DeviceSpec, cache: CheckCache | None = None) -> list[Diagnostic]:
    """Warnings and notes of the strict netlist check. An error would be a defect of ours, so it stops the compile.
    `cache`: of netlists that share elements with this one."""
    findings = [
        Diagnostic(f.severity, ".".join(map(str, f.where)), f.rule, f.message, f.fix or "")
        for f in netlists.check(netlist, arch=device, profile="strict", cache=cache)
    ]
    errors = [d for d in findings if d.severity == "error"]
    if errors:
        raise NetlistError("the emitted netlist breaks the backend's rules", errors)
    return findings


class HostParameters(Mapping[str, np.ndarray]):
    """What the host writes into the queues of parameters and constants, by queue (= node) name: (t, R, C), made when it
    is asked for and then kept.

    Numbers in plain float formats are rounded to nearest here, while they are float32. The machine's own conversion
    cuts bits off, which would make every weight smaller by half a unit on average; it finds nothing left to cut.
    """

    def __init__(self, lowered: Graph, rounded: bool = True) -> None:
        """rounded: False leaves numbers as they are, for a run that ignores formats."""
        self._rounded = rounded
        stored = lowered.of_kind(NodeKind.PARAMETER, NodeKind.CONSTANT)
        self._nodes = {node.name: node for node in stored if node.value is not None}
        self._arrays: dict[str, np.ndarray] = {}
        self._more: Mapping[str, np.ndarray] = {}
        self._copies: Mapping[str, str] = {}

    def beside(self, more: Mapping[str, np.ndarray], copies: Mapping[str, str]) -> HostParameters:
        """These and what else is written; copies: further queues, with the node whose values they hold. What is made
        for one of the two serves the other."""
        both = copy.copy(self)
        both._more = dict(more)
        both._copies = {queue: name for queue, name in copies.items() if name in self._nodes}
        return both

    def __getitem__(self, queue: str) -> np.ndarray:
        queue = self._copies.get(queue, queue)
        array = self._more.get(queue)
        if array is None:
            array = self._arrays.get(queue)
        if array is None:
            array = self._arrays[queue] = _written_value(self._nodes[queue], self._rounded)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._nodes, *self._copies, *self._more)))

    def __len__(self) -> int:
        return len(self._nodes.keys() | self._copies.keys() | self._more.keys())

    def __contains__(self, queue: object) -> bool:
        return queue in self._nodes or queue in self._copies or queue in self._more


def _written_value(node: Node, rounded: bool) -> np.ndarray:
    assert node.value is not None
    value = host_tensor(node.value.reshape(node.shape[1:]))
    rounds = rounded and node.df is not None and node.df.is_float and not node.df.is_bfp
    if not rounds or node.df is None:
        return value
    if SHARES in node.attrs and node.df in (DataFormat.Float16_b, DataFormat.Float16):
        value = _weights_of_mean(node, node.df)
    return round_to(value, node.df)


def _weights_of_mean(node: Node, df: DataFormat) -> np.ndarray:
    """The weights 1 / n of a mean as the two neighbours of 1 / n that the format has, as many of each as make their sum
    1: n times the nearer one is up to 0.4 % off in Float16_b, and so would be every mean."""
    assert node.value is not None
    shares = node.value.reshape(node.shape[1:])
    at = np.flatnonzero(shares)
    exact = 1.0 / at.size
    step = math.ldexp(1.0, math.frexp(exact)[1] - (8 if df is DataFormat.Float16_b else 11))  # bits of a significand
    low = math.floor(exact / step) * step
    higher = round((1.0 - at.size * low) / step)
    spread = np.zeros(shares.size, np.float32)
    spread[at] = low + step * np.diff(np.arange(at.size + 1) * higher // at.size)
    return host_tensor(spread.reshape(shares.shape))


def host_parameters(lowered: Graph, rounded: bool = True) -> HostParameters:
    """What the host writes for the parameters and constants of a graph. rounded: see `HostParameters`."""
    return HostParameters(lowered, rounded)


OFF = 0.05
"""By what part objective and simulator may differ before it is said."""


def objective_notes(
    lowered: Graph, placement: Placement, device: DeviceSpec, options: CompileOptions, constraints: Constraints
) -> list[Diagnostic]:
    """A note where the cycles that were minimised are not those that the epoch simulator finds for the whole
    placement: which term is off, and by how much. Of one chip, for a batch as the objective estimates it."""
    value = placement.report.objective if placement.report is not None else None
    if value is None or len(device.chips) > 1 or not options.counts_fill or not options.enable_fork_join_buffering:
        return []
    trial = Trial(lowered, placement, device, constraints.input_factors)
    took = simulated_cycles(trial, value.inputs) / value.inputs
    if abs(value.time - took) <= OFF * took:
        return []
    result = simulate(trial, value.inputs)
    slowest = float(sum(epoch.slowest for epoch in result.epochs))
    switch = sum(epoch.switch for epoch in result.epochs) / value.inputs
    terms = {
        "slowest ops": (value.limiter, slowest),
        "filling and waiting": (value.waiting, took - slowest - switch),
        "switches": (value.switch, switch),
    }
    name = max(terms, key=lambda term: abs(terms[term][0] - terms[term][1]))
    ours, theirs = terms[name]
    text = (
        f"the objective estimates {value.time:,.0f} cycles per input, the epoch simulator finds {took:,.0f}; most of "
        f"that is in {name}: {ours:,.0f} against {theirs:,.0f}"
    )
    fix = "epoch_switch_cycles that the simulator does not have, or buffers that other epochs change, make a difference"
    return [Diagnostic("note", "placement", "objective", text, fix)]
