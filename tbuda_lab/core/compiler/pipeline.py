"""The stages of a compile in order, and what they leave behind."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
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
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.emit import EmitMemory, emit
from tbuda_lab.core.errors import Cancelled, Diagnostic, NetlistError
from tbuda_lab.core.formats import round_to
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering import lower, lower_for
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.netlist.check import OpMemory
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.options import CompileOptions, front_end
from tbuda_lab.core.overrides import Override, refuse_malformed
from tbuda_lab.core.placer import Fusion, Outcome, Pattern, decide, place_and_mend, refuse_impossible, refuse_unknown

STAGES = ("passes", "lower", "balance", "place", "emit", "check")
"""What `compile_graph` runs, in order; tracing comes before (see `frontend`)."""

StageHook = Callable[[str, float], None]
"""Called as (stage, fraction of the stage done); 0.0 when it starts, 1.0 when it ends."""


@dataclasses.dataclass(frozen=True)
class CompileResult:
    """Everything a compile leaves: the graph of each stage, the placement, the netlist, and the host's side of it.

    parameters: queue name -> (t, R, C) as the host writes it once before the first run.
    timings: stage -> seconds of wall time. fused: which element-wise ops run as one, and what decided it. weights:
    the parameters that a compile for training trains.
    """

    graph: Graph
    passed: Graph
    lowered: Graph
    placement: Placement
    netlist: Netlist
    inputs: tuple[InputBinding, ...]
    outputs: tuple[OutputBinding, ...]
    parameters: dict[str, np.ndarray]
    device: DeviceSpec
    options: CompileOptions
    overrides: tuple[Override, ...]
    diagnostics: tuple[Diagnostic, ...]
    timings: dict[str, float]
    fused: tuple[Pattern, ...] = ()
    weights: tuple[WeightBinding, ...] = ()


class Clock:
    """Times stages, reports them, and stops between them when asked to."""

    def __init__(self, on_stage: StageHook | None, cancel: threading.Event | None) -> None:
        self.on_stage = on_stage
        self.cancel = cancel
        self.timings: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"cancelled before stage {name!r}")
        self.report(name, 0.0)
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start
        self.report(name, 1.0)

    def report(self, name: str, fraction: float) -> None:
        if self.on_stage is not None:
            self.on_stage(name, fraction)


def compile_graph(
    graph: Graph,
    device: DeviceSpec | str,
    options: CompileOptions | None = None,
    overrides: Sequence[Override] = (),
    on_stage: StageHook | None = None,
    cancel: threading.Event | None = None,
) -> CompileResult:
    """Compile an nD graph (a frontend's) for a device.

    Raises `UnsupportedOp`, `OverrideError`, `PlacementError`, `UnknownDevice`, or `Cancelled` once `cancel` is set.
    """
    spec = device if isinstance(device, DeviceSpec) else load_device(device)
    options = options or CompileOptions()
    clock = Clock(on_stage, cancel)
    refuse_unknown(options)
    refuse_malformed(overrides)

    with clock.stage("passes"):
        passed = passes.run(graph, options)
    plain = front_end(options)

    def place(lowered: Graph, options: CompileOptions = plain, overrides: Sequence[Override] = ()) -> Outcome:
        with clock.stage("balance"):
            models = op_models(lowered, spec, options, overrides)
        with clock.stage("place"):
            return place_and_mend(
                lowered,
                models,
                spec,
                options,
                overrides,
                cancel=cancel,
                on_progress=lambda fraction, *_: clock.report("place", fraction),
            )

    with clock.stage("lower"):
        lowered = lower(passed.graph, spec, options)
        if overrides:  # what nothing can honour is told before the model is placed to decide on fusing
            asked = edit(lower_for(lowered, passed.graph, spec, options, overrides), spec, options, overrides)
            refuse_impossible(asked.graph, spec, options, overrides)
    fusion = decide(passed.graph, lowered, spec, plain, place)
    with clock.stage("lower"):
        edited = edit(
            lower_for(fusion.lowered, passed.graph, spec, options, overrides, fusion.ends), spec, options, overrides
        )
        refuse_impossible(edited.graph, spec, options, overrides)
    placed = fusion.outcome
    if placed is None or overrides or options != plain:
        placed = place(edited.graph, options, overrides)
    return finish(
        graph,
        passed.graph,
        placed.graph,
        placed.placement,
        spec,
        options,
        overrides,
        clock,
        edited.notes,
        fusion=fusion,
    )


def finish(
    graph: Graph,
    passed: Graph,
    lowered: Graph,
    placement: Placement,
    spec: DeviceSpec,
    options: CompileOptions,
    overrides: Sequence[Override],
    clock: Clock,
    notes: Sequence[Diagnostic] = (),
    parameters: Mapping[str, np.ndarray] | None = None,
    check: Callable[[Netlist, DeviceSpec], list[Diagnostic]] | None = None,
    emitted: EmitMemory | None = None,
    fusion: Fusion | None = None,
) -> CompileResult:
    """The stages after placing: emission, the check of the netlist, and the bindings of the host. notes: of stages
    before; parameters: `host_parameters(lowered)` where it is known; check: what stands in for `checked`, for those who
    remember something of it; emitted: of other placements of this lowered graph; fusion: what decided what is fused."""
    with clock.stage("emit"):
        emission = emit(lowered, placement, spec, options.microbatch, emitted)
    with clock.stage("check"):
        findings = (check or checked)(emission.netlist, spec)
    contents = {**(host_parameters(lowered) if parameters is None else parameters), **emission.contents}
    outputs = [
        output_binding(_output_node(lowered, q.source), q.name, q.tms)
        for q in placement.queues.values()
        if q.kind == "output"
    ]
    in_order = {node.name: i for i, node in enumerate(lowered.outputs)}
    return CompileResult(
        graph=graph,
        passed=passed,
        lowered=lowered,
        placement=placement,
        netlist=emission.netlist,
        inputs=tuple(input_binding(n) for n in lowered.inputs if n.name in emission.netlist.queues),
        outputs=tuple(sorted(outputs, key=lambda o: in_order[o.name])),
        parameters=contents,
        device=spec,
        options=options,
        overrides=tuple(overrides),
        diagnostics=(*notes, *placement.diagnostics, *findings),
        timings=clock.timings,
        fused=fusion.patterns if fusion is not None else (),
        weights=weight_bindings(passed, emission.netlist.queues) if options.training is not None else (),
    )


def _output_node(lowered: Graph, source: str) -> Node:
    """The OUTPUT node of an output queue, which is named by that node or by the op that feeds it."""
    node = lowered[source]
    return node if node.kind is NodeKind.OUTPUT else next(n for n in lowered.outputs if n.inputs[0].source == source)


def checked(netlist: Netlist, device: DeviceSpec, memory: OpMemory | None = None) -> list[Diagnostic]:
    """Warnings and notes of the strict netlist check. An error would be a defect of ours, so it stops the compile.
    `memory`: of netlists that share elements with this one."""
    findings = [
        Diagnostic(f.severity, ".".join(map(str, f.where)), f.rule, f.message, f.fix or "")
        for f in netlists.check(netlist, arch=device.arch, profile="strict", memory=memory)
    ]
    errors = [d for d in findings if d.severity == "error"]
    if errors:
        raise NetlistError("the emitted netlist breaks the backend's rules", errors)
    return findings


def host_parameters(lowered: Graph) -> dict[str, np.ndarray]:
    """What the host writes into the queues of parameters and constants, by queue (= node) name.

    Numbers in plain float formats are rounded to nearest here, while they are float32. The machine's own conversion
    cuts bits off, which would make every weight smaller by half a unit on average; it finds nothing left to cut.
    """
    stored = {}
    for node in lowered.of_kind(NodeKind.PARAMETER, NodeKind.CONSTANT):
        if node.value is not None:
            value = host_tensor(node.value.reshape(node.shape[1:]))
            rounds = node.df is not None and node.df.is_float and not node.df.is_bfp
            stored[node.name] = round_to(value, node.df) if rounds and node.df is not None else value
    return stored
