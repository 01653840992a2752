"""From a model and its sample inputs to a placed netlist with a host program."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.torch_model.state import fingerprint
from tbuda_lab.core.frontend.torch_model.training import train_tables, use_batch_statistics
from tbuda_lab.core.graph import Graph, NodeKind, print_graph
from tbuda_lab.core.graph.phases import TRAINABLE
from tbuda_lab.core.graph.text import array_digest
from tbuda_lab.core.ops import BatchnormTraining
from tbuda_lab.core.options import CompileOptions, OptimizerOptions, TrainingOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.tti.loaded_image import with_parameters
from tbuda_lab.core.tti.weights import without_weights
from tbuda_lab.dialects.host_program import (
    Collective,
    HostLoop,
    HostProgram,
    Load,
    Pop,
    Push,
    Run,
    SetScalar,
    Step,
    Store,
    join_elements,
    slice_of,
)
from tbuda_lab.dialects.program import GraphProgram, netlist_digest, run_cycles, sections_of
from tbuda_lab.dialects.realisation import Realisation, realisations
from tbuda_lab.samba.inputs import argument_of, by_keyword, name_of, sample_of, warn_of_memory
from tbuda_lab.samba.models import OnnxModel, WithMasks, drops, drops_by_function
from tbuda_lab.samba.optim import Optimizer
from tbuda_lab.samba.spatial import map_spatially
from tbuda_lab.samba.tensor import SambaTensor, plain

MAPPINGS = ("section", "spatial")
SECTIONS = ("fwd", "bckwd", "gradnorm", "opt")
Feeds = list[list[list[dict[str, torch.Tensor]]]]
ONE_TURN = (("p_loop_count", 1),)
DEVICE = "wormhole_b0"
"""The device that stands for an RDU."""


@dataclasses.dataclass
class TracedGraph:
    """One graph of a program: its model, its placed netlist, and the tensors that cross to the host.

    input_names: of the graph's inputs, in order; inputs: what they were traced with; outputs: the last results.
    losses: positions of the outputs at which the backward pass begins. other_result: the same graph placed in the other
    mapping, None where that was not asked for or does not fit; misfit: why it does not. masks: draws the masks of
    active dropouts. replicas, reduce_on_rdu: of the last run. early_gradients: see `trace`.
    digests: digests of the parameters that no run changes, as the device has them. waiting: replicas with a forward
    pass that no backward pass has gone back through yet. steps: updates so far. norms: batch norms that take the
    statistics of their input. written: the optimizer's numbers by weight and name, as `param_groups` had them when they
    went to the device. on_host: the parameters as they were on the host then, see `parameters_on_host`. unused: whether
    the last backward pass left gradients that no update has taken.
    """

    name: str
    model: torch.nn.Module
    inputs: tuple[SambaTensor, ...]
    input_names: tuple[str, ...]
    outputs: tuple[SambaTensor, ...]
    output_names: tuple[str, ...]
    losses: tuple[int, ...]
    optimizers: list[Optimizer]
    mapping: str
    result: CompileResult
    fingerprint: tuple[str, ...]
    spatial_batches: int = 1
    data_parallel_mode: str = "normal"
    initial_gradients: bool = True
    other_result: CompileResult | None = None
    misfit: str = ""
    masks: WithMasks | None = None
    replicas: int = 1
    reduce_on_rdu: bool = False
    op_by_op: bool = False
    early_gradients: bool = False
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    waiting: int = 0
    steps: int = 0
    norms: tuple[str, ...] = ()
    written: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    on_host: dict[str, tuple[Any, ...]] = dataclasses.field(init=False)
    unused: bool = False

    def __post_init__(self) -> None:
        self.on_host = self.parameters_on_host()

    def parameters_on_host(self) -> dict[str, tuple[Any, ...]]:
        """By parameter what tells its values on the host from others, and whether it is trained."""
        return {name: (fingerprint(p), p.requires_grad) for name, p in self.model.named_parameters()}

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return self.result.options.training is not None

    def digest(self) -> str:
        """A hash of the fingerprint."""
        return hashlib.sha256("\n".join(self.fingerprint).encode()).hexdigest()

    def netlist_digest(self) -> str:
        """A hash of the netlist's text."""
        return netlist_digest(self.result)

    def scalars(self) -> list[str]:
        """Names of the optimizer's numbers that a run may change."""
        return sorted(
            {s.suffix for w in self.result.weights for s in w.states if s.suffix == "lr" or s.suffix.startswith("run_")}
        )

    def owners(self) -> dict[str, tuple[Optimizer, torch.nn.Parameter]]:
        """By name every weight on the device that an optimizer updates, that optimizer, and the parameter."""
        optimizer_of = {id(p): o for o in self.optimizers for group in o.param_groups for p in group["params"]}
        own = {w.name for w in self.result.weights if w.states}
        return {path: (optimizer_of[id(p)], p) for path, p in self.model.named_parameters() if path in own}

    def numbers(self) -> dict[str, dict[str, float]]:
        """By weight the numbers of its optimizer that a run may change, as `param_groups` has them now."""
        suffixes = {w.name: {s.suffix for s in w.states} for w in self.result.weights}
        groups = {id(p): group for o in self.optimizers for group in o.param_groups for p in group["params"]}
        result = {}
        for path, (_, parameter) in self.owners().items():
            group = groups[id(parameter)]
            own = {"lr": "lr", "run_momentum": "momentum", "run_weight_decay": "weight_decay"}
            result[path] = {k: float(group[v]) for k, v in own.items() if k in suffixes[path]}
        return result

    @property
    def other_mapping(self) -> str:
        """The mapping that this graph has not."""
        return "section" if self.mapping == "spatial" else "spatial"

    def place_other(self) -> None:
        """Place the graph in the other mapping too, so that the two can be compared: `other_result`, or `misfit`."""
        if self.other_result is not None or self.misfit:
            return
        if self.op_by_op:
            self.misfit = "-o0 makes every op a section of its own"
            return
        try:
            self.other_result = map_spatially(self.result.graph, self.result, self.result.options)
        except TbudaError as error:
            self.misfit = str(error).splitlines()[0]

    def take_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        """Parameters and buffers by name as the model has them now, where the graph holds others that no run changes:
        those of an inference graph, and those without an optimizer. Folded ones are folded again; the netlist stays.

        Raises `InputError` where with these values the model would be another netlist: trace it again.
        """
        changed = {}
        for name, digest in self.digests.items():
            if name in values:
                value = np.asarray(values[name].detach().to(torch.float32).numpy(), order="C")
                if array_digest(value) != digest:
                    changed[name] = value.copy()
        if not changed:
            return
        result = compile_graph(
            with_parameters(self.result.graph, changed), self.result.device, self.result.options, self.result.overrides
        )
        if netlist_digest(result) != self.netlist_digest():
            raise InputError(f"with these parameters {self.name!r} simplifies differently: trace it again")
        self.result, self.other_result = result, None
        self.digests |= {name: array_digest(value) for name, value in changed.items()}

    def mapping_cycles(self) -> dict[str, float]:
        """Simulated cycles of one run in this mapping, and in the other where the graph was placed in it."""
        cycles = {self.mapping: run_cycles(self.result)}
        if self.other_result is not None:
            cycles[self.other_mapping] = run_cycles(self.other_result)
        return cycles

    def comparison(self) -> str:
        """Which of the two mappings is faster, in words; "" where only one was placed."""
        cycles = self.mapping_cycles()
        if len(cycles) < 2:
            return f"a spatial mapping does not fit: {self.misfit}" if self.misfit else ""
        spatial, section = cycles["spatial"], cycles["section"]
        faster = "both take equally long" if spatial == section else f"{min(cycles, key=cycles.__getitem__)} is faster"
        return f"spatial takes {spatial:,.0f} cycles per run, by sections {section:,.0f}: {faster}"

    def program(self, mapping: str | None = None) -> GraphProgram:
        """What the workbench opens. mapping: the other one, where it was placed."""
        other = mapping not in (None, self.mapping) and self.other_result is not None
        result = self.other_result if other and self.other_result is not None else self.result
        pairs = zip(self.result.graph.inputs, self.inputs, strict=False)
        sample = {node.name: plain(tensor).detach().clone() for node, tensor in pairs}
        if self.masks is not None:
            names = self.input_names[len(self.inputs) :]
            sample |= dict(zip(names, self.masks.draw(None), strict=True))
        return GraphProgram(
            self.name,
            self.other_mapping if other else self.mapping,
            result.graph,
            DEVICE,
            result.options,
            tuple(result.overrides),
            self.host_program(scalars=self.scalars()),
            netlist_digest(result),
            sample,
            self.replicas,
            self.data_parallel_mode,
            self.reduce_on_rdu,
            tuple(filter(None, [self.comparison()])),
            self.losses if self.trains else (),
        )

    def programs(self) -> tuple[GraphProgram, ...]:
        """This placement, and that in the other mapping beside it where the graph fits."""
        self.place_other()
        other = (self.program(self.other_mapping),) if self.other_result is not None else ()
        return (self.program(), *other)

    def realisations(self) -> tuple[Realisation, ...]:
        """What became of every traced op, and the steps of the host program that calculate."""
        return realisations(self.result, self.host_program(scalars=self.scalars()))

    def split(
        self,
        tensors: Sequence[Any] | Mapping[str, Any],
        replicas: int,
        p: float | None = None,
        regions: Collection[str] = (),
        backward: bool = True,
    ) -> Feeds:
        """Inputs by graph name, per replica, turn and element, with the gradients that the backward pass begins with:
        those that `_seeds` says, or zeros without `backward`.

        p: probability of dropouts, None for their own. regions: names of those that hold a tensor; an input that lies
        in one may be left out. Raises `ValueError` naming the tensor where a name or shape differs from what was
        traced.
        """
        turns = self.spatial_batches
        parts = replicas * turns
        batches = self._batches(tensors, parts, regions)
        feeds: Feeds = []
        for replica in range(replicas):
            rows = []
            for number in range(replica * turns, (replica + 1) * turns):
                part = {
                    inner: value if parts == 1 else value.narrow(axis, number * size, size)
                    for inner, (value, axis, size) in batches.items()
                }
                if self.masks is not None:
                    part |= dict(zip(self.input_names[len(self.inputs) :], self.masks.draw(p), strict=True))
                count = self.result.options.microbatch
                cut = (
                    list(elements(self.result.graph, part))
                    if len(part) == len(self.input_names)
                    else [{name: slice_of(value, k, count) for name, value in part.items()} for k in range(count)]
                )
                rows.append([{**one, **self._seeds(k, len(cut), number, parts, backward)} for k, one in enumerate(cut)])
            feeds.append(rows)
        return feeds

    def _batches(
        self, tensors: Sequence[Any] | Mapping[str, Any], parts: int, regions: Collection[str]
    ) -> dict[str, tuple[torch.Tensor, int, int]]:
        """By name in the graph (the tensor of all parts, its batch dim, the size of one part along that). Raises as
        `split` says."""
        traced_names = {sample.sn_name for sample in self.inputs}
        by_name = (
            {key if key in traced_names else name_of(t, k): t for k, (key, t) in enumerate(tensors.items())}
            if isinstance(tensors, Mapping)
            else {name_of(t, k): t for k, t in enumerate(tensors)}
        )
        batches: dict[str, tuple[torch.Tensor, int, int]] = {}
        for sample, inner in zip(self.inputs, self.input_names, strict=False):
            if sample.sn_name not in by_name and sample.region_name in regions:
                continue
            if sample.sn_name is None or sample.sn_name not in by_name:
                missing = f"run needs the input {sample.sn_name!r}"
                if sample.region_name is not None:
                    missing += f": its region {sample.region_name!r} holds nothing yet"
                raise ValueError(f"{missing}; it was given {', '.join(map(str, by_name)) or 'nothing'}")
            value = plain(by_name[sample.sn_name])
            value = value if isinstance(self.model, OnnxModel) else argument_of(value)
            shape = list(sample.shape)
            axis = sample.batch_dim or 0
            if parts > 1 and shape:
                shape[axis] *= parts
            if list(value.shape) != shape:
                raise ValueError(
                    f"input {sample.sn_name!r} has shape {tuple(value.shape)}, the graph was traced with "
                    f"{tuple(shape)}: give whole batches (drop_last=True)"
                )
            batches[inner] = (value, axis, sample.shape[axis] if sample.dim() else 1)
        extra = [n for n in by_name if n not in traced_names]
        if extra:
            raise ValueError(
                f"the graph has no input {', '.join(map(str, extra))}; "
                f"it has {', '.join(str(s.sn_name) for s in self.inputs)}"
            )
        return batches

    def _seeds(self, element: int, count: int, part: int, parts: int, backward: bool) -> dict[str, torch.Tensor]:
        """Of one element of `count` of one of the `parts` of a run's batch, by graph input the gradient by an output:
        the program's sn_grad, else zeros where the program set that of another output, else ones of a loss. An sn_grad
        is of one part, which all of them use, or of the whole batch. Raises `ValueError` for one of another shape, and
        for one that is missing."""
        position = {name: k for k, name in enumerate(self.output_names)}
        chosen = any(output.sn_grad is not None for output in self.outputs)
        seeds = {}
        for binding in self.result.inputs:
            if not binding.gradient_of:
                continue
            k = position[binding.gradient_of]
            own, shape = self.outputs[k].sn_grad, self.result.graph[binding.gradient_of].shape
            if not backward:
                seeds[binding.sources[0]] = torch.zeros(shape)
            elif own is not None:
                value = plain(own).to(torch.float32)
                whole = (count * shape[0], *shape[1:]) if shape else (count,) if count > 1 else ()
                rows = whole[0] if whole else 1
                if parts > 1 and value.shape == ((parts * rows, *whole[1:]) if whole else (parts,)):
                    value = value[part * rows : (part + 1) * rows] if whole else value[part]
                if value.shape != whole:
                    raise ValueError(
                        f"the gradient by {self.outputs[k].sn_name!r} has shape {tuple(value.shape)}, the "
                        f"output of a run {whole}" + (f" in each of {parts} parts" if parts > 1 else "")
                    )
                if count > 1:
                    step = shape[0] if shape else 1
                    value = value[element * step : (element + 1) * step] if shape else value[element]
                seeds[binding.sources[0]] = value.reshape(shape)
            elif not self.initial_gradients and k in self.losses and not chosen:
                raise ValueError(f"init_output_grads=False: set sn_grad of output {self.outputs[k].sn_name!r}")
            else:
                seeds[binding.sources[0]] = torch.full(shape, float(k in self.losses and not chosen))
        return seeds

    def host_program(
        self, sections: Sequence[str] = SECTIONS, scalars: Sequence[str] = (), resumes: bool = False
    ) -> HostProgram:
        """What the host does for some sections. resumes: `bckwd` without `fwd` goes back through the forward pass of
        an earlier run. A forward pass whose backward pass is left out waits for it (`waiting`); in a loop over spatial
        batches it is worked off at once, with gradients of zero."""
        inputs = [b for b in self.result.inputs if not b.gradient_of]
        programs = {p.name for p in self.result.netlist.programs}
        name = "run_fwd_0" if "run_fwd_0" in programs else next(iter(programs))
        body: list[tuple[str, Step]] = []
        if "fwd" in sections:
            for sample, inner in zip(self.inputs, self.input_names, strict=False):
                if sample.region_name is not None:
                    body.append(("fwd", Load(inner, str(sample.region_name))))
            body += [("fwd", Push(b.name)) for b in inputs] + [("fwd", Run(name, ONE_TURN))]
            body += [("fwd", Pop(n)) for n in self.output_names]
            for output, inner in zip(self.outputs, self.output_names, strict=True):
                if output.region_name is not None:
                    body.append(("fwd", Store(inner, str(output.region_name))))
        if "run_bwd_0" in programs:
            if "bckwd" in sections and ("fwd" in sections or resumes):
                body += self._backward(zero_grad=True)
            elif "fwd" in sections and self.spatial_batches > 1:
                body += self._backward(zero_grad=False)
        if "run_opt_0" in programs and "opt" in sections:
            body += [("gradnorm", Collective(gradients)) for gradients in self._synchronised_weights()]
            body += [("opt", SetScalar(k)) for k in scalars]
            body.append(("opt", Run("run_opt_0")))
        if self.spatial_batches > 1:
            return HostProgram(((SECTIONS[0], HostLoop(self.spatial_batches, tuple(step for _, step in body))),))
        return HostProgram(tuple(body))

    def _backward(self, zero_grad: bool) -> list[tuple[str, Step]]:
        """One backward pass. zero_grad: the sums of gradients begin at zero."""
        steps: list[tuple[str, Step]] = [("bckwd", Push(b.name)) for b in self.result.inputs if b.gradient_of]
        steps.append(("bckwd", Run("run_bwd_0", (*ONE_TURN, ("p_zero_grad", int(zero_grad))))))
        return steps + [("bckwd", Pop(b.name)) for b in self.result.outputs if b.phase == "backward"]

    def worked_off(self) -> tuple[HostProgram, Feeds]:
        """A backward pass with gradients of zero for a forward pass that waits: it adds nothing to the gradients."""
        zeros = {
            b.sources[0]: torch.zeros(self.result.graph[b.gradient_of].shape)
            for b in self.result.inputs
            if b.gradient_of
        }
        part = [zeros] * self.result.options.microbatch
        return HostProgram(tuple(self._backward(zero_grad=False))), [[part] for _ in range(self.waiting)]

    def _synchronised_weights(self) -> list[tuple[str, ...]]:
        """Weights whose gradients become the mean together: all of them after the backward sections in mode normal,
        else those that a section completes, in the order of the sections."""
        every = tuple(w.name for w in self.result.weights if w.gradient)
        if self.data_parallel_mode == "normal":
            return [every]
        groups = [s.weights for s in sections_of(self.result) if s.kind == "bckwd" and s.weights]
        rest = tuple(name for name in every if not any(name in group for group in groups))
        return [*groups, rest] if rest else groups


def check_mapping(mapping: str) -> None:
    """Raises `ValueError` for an unknown one; an empty one is the default."""
    if mapping not in ("", *MAPPINGS):
        raise ValueError(f"mapping is one of {', '.join(MAPPINGS)}, not {mapping!r}")


def trace(
    model: torch.nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    optimizers: Sequence[Optimizer] = (),
    mapping: str = "section",
    loss_indices: Sequence[Any] | None = None,
    name: str = "model",
    prefix: str | None = None,
    spatial_batches: int = 1,
    op_by_op: bool = False,
    early_gradients: bool = False,
) -> TracedGraph:
    """Trace and place a model; with optimizers, for training.

    early_gradients: ops run in order of their depth, so that backward sections complete gradients one after the other
    and replicas synchronise them early; the usual order leaves weight gradients to the last sections.

    Without `loss_indices` the losses are the outputs from which no other output is calculated: the gradients of
    (loss, logits) begin at the loss alone, as the tutorials need it. Raises `ValueError` for an unknown mapping,
    `IndexError` for a loss that is not an output, `SpatialMappingError`.
    """
    _check_settings(mapping, spatial_batches, op_by_op)
    samples, arguments = _arguments(model, inputs)
    title = f"{prefix or ''}{type(model).__name__.lower()}"
    graph, samples, arguments, masks = _graph(model, samples, arguments, title, bool(optimizers))
    losses = _losses(graph, loss_indices)
    if optimizers and loss_indices is None:
        _warn_of_losses(graph, losses)
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    count = sum(1 for _ in elements(graph, dict(zip((n.name for n in graph.inputs), tensors, strict=True))))
    training = _training(graph, model, optimizers, count) if optimizers else None
    fingerprint = tuple(print_graph(without_weights(graph, digests=False), origins=False).splitlines()[1:])
    result, by_section = _compile(graph, training, count, mapping, op_by_op, early_gradients)
    return TracedGraph(
        name,
        model,
        samples,
        tuple(n.name for n in graph.inputs),
        _blank_outputs(graph, name, count),
        tuple(n.name for n in graph.outputs),
        losses,
        list(optimizers),
        mapping or "section",
        result,
        fingerprint,
        spatial_batches,
        other_result=by_section,
        masks=masks,
        op_by_op=op_by_op,
        early_gradients=early_gradients,
        digests={
            node.name: array_digest(node.value)
            for node in graph.of_kind(NodeKind.PARAMETER)
            if node.value is not None and node.name not in {weight.name for weight in result.weights}
        },
        norms=tuple(
            node.sources[3].removesuffix("running_mean") for node in graph.ops if isinstance(node.op, BatchnormTraining)
        ),
    )


def _compile(
    graph: Graph, training: TrainingOptions | None, count: int, mapping: str, op_by_op: bool, early_gradients: bool
) -> tuple[CompileResult, CompileResult | None]:
    """(the compile, of a spatial mapping that by sections too). count: inputs of a batch; the others as of `trace`."""
    options = CompileOptions(
        default_df_override=DataFormat.Float32,
        default_accumulate_df=DataFormat.Float32,
        microbatch=count,
        training=training,
    )
    if training is not None and early_gradients:
        options = dataclasses.replace(options, scheduler_policy="LongestPath")
    result = compile_graph(graph, load_device(DEVICE), options, ())
    if op_by_op:
        breaks = tuple(Override("epoch_break", op, True) for op in result.placement.ops)
        result = compile_graph(graph, result.device, dataclasses.replace(options, enable_auto_fusing=False), breaks)
    if training is not None:
        _warn_of_idle_weights(result, training)
    return (map_spatially(graph, result, options), result) if mapping == "spatial" else (result, None)


def _check_settings(mapping: str, spatial_batches: int, op_by_op: bool) -> None:
    """Raises `ValueError` for settings that are none, or exclude one another."""
    check_mapping(mapping)
    if spatial_batches < 1:
        raise ValueError(f"num_spatial_batches is at least 1, not {spatial_batches}")
    if spatial_batches > 1 and mapping != "spatial":
        raise ValueError("num_spatial_batches needs mapping='spatial'")
    if op_by_op and mapping == "spatial":
        raise ValueError("-o0 makes every op a section of its own; it needs mapping='section'")


def _arguments(
    model: torch.nn.Module, inputs: Sequence[Any] | Mapping[str, Any]
) -> tuple[tuple[SambaTensor, ...], list[Any]]:
    """The samples, without those that are None, and what the model is called with."""
    items = list(inputs.items()) if isinstance(inputs, Mapping) else [(name_of(t, k), t) for k, t in enumerate(inputs)]
    items = [(key, value) for key, value in items if value is not None or not isinstance(inputs, Mapping)]
    for key, value in items:
        warn_of_memory(key, value)
    every = [None if value is None else sample_of(key, value) for key, value in items]
    samples = tuple(s for s in every if s is not None)
    arguments: list[Any] = [None if s is None else argument_of(plain(s)) for s in every]
    if isinstance(inputs, Mapping) and not isinstance(model, OnnxModel):
        samples, arguments = by_keyword(model, {key: s for (key, _), s in zip(items, samples, strict=True)})
        arguments = [argument_of(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    return samples, arguments


def _graph(
    model: torch.nn.Module, samples: tuple[SambaTensor, ...], arguments: list[Any], title: str, trains: bool
) -> tuple[Graph, tuple[SambaTensor, ...], list[Any], WithMasks | None]:
    """The model traced; samples and arguments in the order of the graph's inputs, and what draws the masks of active
    dropouts."""
    if isinstance(model, OnnxModel):
        samples = model.in_order(samples)
        arguments = [plain(s) for s in samples]
        return model.graph(arguments, title), samples, arguments, None
    if trains and drops_by_function(model, arguments):
        warnings.warn(
            "dropout by a function (torch.nn.functional.dropout) is left out of the graph; use nn.Dropout", stacklevel=4
        )
    if not (trains and drops(model)):
        return frontend.from_torch(model, tuple(arguments), name=title, trains=trains), samples, arguments, None
    masks = WithMasks(model, arguments)
    arguments = [*arguments, *(torch.ones(shape) for _, shape in masks.calls)]
    return frontend.from_torch(masks, tuple(arguments), name=title, trains=True), samples, arguments, masks


def _warn_of_losses(graph: Graph, losses: Sequence[int]) -> None:
    """Say where the backward pass begins when outputs of several shapes are taken for losses."""
    if len({graph.outputs[k].shape for k in losses}) > 1:
        listed = ", ".join(f"{k} {tuple(graph.outputs[k].shape)}" for k in losses)
        warnings.warn(
            f"the backward pass begins with ones at each of the outputs {listed}; loss_indices= of "
            "trace_graph says which of them are losses",
            stacklevel=4,
        )


def _training(graph: Graph, model: torch.nn.Module, optimizers: Sequence[Optimizer], count: int) -> TrainingOptions:
    """What the optimizers train, marked in the graph. Raises `ValueError` for several norms of gradients."""
    norms = {o.max_grad_norm for o in optimizers if o.max_grad_norm is not None}
    if len(norms) > 1:
        raise ValueError(f"optimizers of one graph have one max_grad_norm, not {sorted(norms)}")
    trained = {id(p) for o in optimizers for group in o.param_groups for p in group["params"] if p.requires_grad}
    settings = {id(p): o.core_options(g) for o in optimizers for g in o.param_groups for p in g["params"]}
    own: list[tuple[str, OptimizerOptions]] = []
    for path, parameter in model.named_parameters():
        if id(parameter) in trained and path in graph.nodes:
            graph[path].attrs[TRAINABLE] = True
            own.append((path, settings[id(parameter)]))
    if not isinstance(model, OnnxModel):
        train_tables(graph, {path for path, _ in own}, count)
        use_batch_statistics(graph, model, count)
    return TrainingOptions(per_weight=tuple(own), max_grad_norm=next(iter(norms), None))


def _warn_of_idle_weights(result: CompileResult, training: TrainingOptions) -> None:
    """Name the weights of optimizers that no gradient reaches."""
    flows = {w.name for w in result.weights if w.gradient}
    idle = [path for path, _ in training.per_weight if path not in flows]
    if idle:
        warnings.warn(
            f"nothing flows back to {', '.join(idle)}: no run changes what an optimizer has of them", stacklevel=4
        )


def _blank_outputs(graph: Graph, name: str, count: int) -> tuple[SambaTensor, ...]:
    """Zeros in the shapes of what a run gives."""
    return tuple(
        SambaTensor(
            join_elements([torch.zeros(node.shape)] * count),
            name=f"{name}__output_{k}",
            batch_dim=0 if node.shape else None,
        )
        for k, node in enumerate(graph.outputs)
    )


def _losses(graph: Graph, indices: Sequence[Any] | None) -> tuple[int, ...]:
    outputs = graph.outputs
    if indices is not None:
        flat = tuple(int(i) for entry in indices for i in (entry if isinstance(entry, list | tuple) else (entry,)))
        wrong = [i for i in flat if not 0 <= i < len(outputs)]
        if wrong:
            raise IndexError(f"loss_indices {wrong} of {len(outputs)} outputs; they count from 0")
        return flat
    above: dict[str, set[str]] = {}
    for node in graph.topological():
        above[node.name] = set(node.sources).union(*(above[s] for s in node.sources)) if node.sources else set()
    source = [node.sources[0] for node in outputs]
    return tuple(k for k, s in enumerate(source) if not any(s in above[other] for other in source if other != s))
