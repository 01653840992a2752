"""A compile as a device image holds it: what runs it, and what gives it new weights. Nothing is traced or placed.

An image made for some chips, run on others of the same number: only the numbers of the chips change.

Which nodes of a traced graph hold the parameters of which module.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.balancer.types import copied_from
from tbuda_lab.core.bindings import InputBinding, OutputBinding, WeightBinding, input_binding
from tbuda_lab.core.compiler import CompileResult, host_parameters
from tbuda_lab.core.compiler.host_chain import HostChain
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import cycles_csv
from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import subgraphs
from tbuda_lab.core.graph.text import DIGEST
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.tti.weights import absent, signature


@dataclasses.dataclass(frozen=True)
class ModuleFacts:
    """A module of the device: its class in words, and its parameters: own name -> name in the graph."""

    name: str
    kind: str
    parameters: dict[str, str]


@dataclasses.dataclass(frozen=True)
class LoadedImage:
    """What `Runner` needs of a compile, and what new weights need.

    graph: the traced model; its parameters have values unless the image was written without weights. parameters: queue
    name -> (t, R, C), as in `CompileResult`. weight_queues: the queues among them that hold weights, folded and
    arranged or as they are. signature: of the graph after the passes, weights aside. cycles: the table of
    `epochsim.cycles_csv`. manifest: of the archive it was read from. weights: those that it trains, where it was
    compiled for that. chain: of a model of which the host runs a part (see `compiler.host_chain`): `graph` is that of
    the whole model, `netlist` and what belongs to it are the device's part.
    """

    name: str
    graph: Graph
    netlist: Netlist
    inputs: tuple[InputBinding, ...]
    outputs: tuple[OutputBinding, ...]
    parameters: dict[str, np.ndarray]
    device: DeviceSpec
    options: CompileOptions
    overrides: tuple[Override, ...]
    modules: tuple[ModuleFacts, ...]
    weight_queues: tuple[str, ...]
    signature: str
    cycles: str
    manifest: dict[str, Any]
    weights: tuple[WeightBinding, ...] = ()
    chain: HostChain | None = None

    @property
    def output_names(self) -> list[str]:
        """Of what a run gives, in its order."""
        return [b.name for b in self.outputs] if self.chain is None else self.chain.output_names

    def unrounded_parameters(self) -> dict[str, np.ndarray]:
        """The parameters: an image holds them in their formats."""
        return self.parameters

    @property
    def missing(self) -> list[str]:
        """Parameters whose values are not there: written without weights, and not given since."""
        return absent(self.graph)

    def weight_values(self) -> dict[str, np.ndarray]:
        """Values of the model's own parameters by their names in the graph, those that are there."""
        return {n.name: n.value for n in self.graph.of_kind(NodeKind.PARAMETER) if n.value is not None}

    def for_training(self) -> LoadedImage:
        """Itself, as a `Trainer` takes it. Raises `InputError` for an image that was compiled for inference."""
        if self.options.training is None:
            raise InputError(
                f"{self.name} was compiled for inference; compile_to_image(training=True) makes an image that trains"
            )
        return self

    def with_weights(self, values: Mapping[str, np.ndarray]) -> LoadedImage:
        """The same compile with other weights, by their names in the graph; those not named keep their values.

        The passes and the lowering are done again, so that folded weights are folded again; every op and queue stays
        where it is. Raises `InputError` for an unknown name, a wrong shape, weights that are still missing, or weights
        for which the model would be another one.
        """
        if self.chain is not None:
            raise InputError(
                f"{self.name} is an image in sections of host and device, whose weights stay as they were compiled; "
                "compile the model with the new ones, compile_to_image"
            )
        graph = with_parameters(self.graph, values)
        still = absent(graph)
        if still:
            raise InputError(
                f"{self.name}: no values for {_name_list(still)}: the image was written without weights; set "
                "them (modules[-1].set_parameter, or parameters= of Session.open)"
            )
        passed = passes.run(graph, self.options).graph
        if signature(passed) != self.signature:
            raise InputError(
                f"{self.name}: with these weights, or by this version, the model is simplified in another "
                "way than when the image was written; compile it again (Session.open, then compile)"
            )
        lowered = lower(passed, self.device, self.options)  # what overrides change of ops changes no weight
        for queue in self.weight_queues:
            if queue in lowered:
                lowered[queue].df = self.netlist.queues[queue].df  # ... but for the format it is kept in
        contents = host_parameters(lowered).beside({}, {queue: copied_from(queue) for queue in self.weight_queues})
        recipes = {node.name: node.recipe for node in lowered.outputs}
        wrong = [
            q
            for q in self.weight_queues
            if q not in contents or (q in self.parameters and contents[q].shape != self.parameters[q].shape)
        ]
        wrong += [o.queue for o in self.outputs if o.name not in recipes]
        if wrong:
            raise InputError(
                f"{self.name}: queue {wrong[0]!r} of the image is filled differently by this version; "
                "compile the model again (Session.open, then compile)"
            )
        parameters = {**self.parameters, **{q: contents[q] for q in self.weight_queues}}
        return dataclasses.replace(
            self,
            graph=graph,
            parameters=in_order(self.netlist, parameters),
            inputs=tuple(input_binding(n) for n in lowered.inputs if n.name in self.netlist.queues),
            outputs=tuple(dataclasses.replace(o, recipe=recipes[o.name]) for o in self.outputs),
        )


def with_parameters(graph: Graph, values: Mapping[str, np.ndarray]) -> Graph:
    """A copy of a traced graph with these values of parameters. Raises `InputError` listing all that do not fit."""
    copy = graph.clone()
    problems = []
    for name, value in values.items():
        node = copy.nodes.get(name)
        if node is None or node.kind is not NodeKind.PARAMETER:
            listed = _name_list([n.name for n in graph.of_kind(NodeKind.PARAMETER)])
            problems.append(Diagnostic("error", name, "weights", f"no such parameter; there are {listed}"))
        elif tuple(value.shape) != tuple(node.shape):
            problems.append(
                Diagnostic(
                    "error", name, "weights", f"has shape {tuple(value.shape)}, the parameter {tuple(node.shape)}"
                )
            )
        elif value.dtype.kind not in "fiub":
            problems.append(Diagnostic("error", name, "weights", f"holds {value.dtype}, not numbers"))
        else:
            node.value = np.array(value, np.float32, order="C")  # ascontiguousarray makes vectors of scalars
            node.attrs.pop(DIGEST, None)
    if problems:
        raise InputError("the weights do not fit the model", problems)
    return copy


def loaded_of(result: CompileResult, name: str, modules: tuple[ModuleFacts, ...] = ()) -> LoadedImage:
    """A finished compile in the shape of an image that was loaded."""
    selected = {n.name for n in result.lowered.of_kind(NodeKind.PARAMETER)}
    parameters = in_order(result.netlist, result.parameters)
    return LoadedImage(
        name,
        result.graph,
        result.netlist,
        result.inputs,
        result.outputs,
        parameters,
        result.device,
        result.options,
        result.overrides,
        modules,
        tuple(q for q in parameters if q in selected or copied_from(q) in selected),
        signature(result.passed),
        cycles_csv(result),
        {},
        result.weights,
        result.chain,
    )


def as_trained(
    loaded: LoadedImage, values: Mapping[str, np.ndarray], contents: Mapping[str, np.ndarray]
) -> LoadedImage:
    """An image with weights and the optimizer's state as they are after training. values: weights by name; contents:
    what the rams hold, by queue."""
    parameters = in_order(loaded.netlist, {**loaded.parameters, **contents})
    return dataclasses.replace(loaded, graph=with_parameters(loaded.graph, values), parameters=parameters)


def in_order(netlist: Netlist, parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Contents of queues in the order of the netlist."""
    return {queue: parameters[queue] for queue in netlist.queues if queue in parameters}


def _name_list(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def on_chips(loaded: LoadedImage, chips: Sequence[int]) -> LoadedImage:
    """The image with its chips renamed, in order. Raises `InputError` unless as many different numbers are given."""
    new = tuple(chips)
    old = loaded.device.chips
    if len(new) != len(old) or len(set(new)) != len(new) or any(type(c) is not int or c < 0 for c in new):
        raise InputError(f"{loaded.name} runs on {len(old)} chip(s): give as many different numbers, not {list(new)}")
    if new == old:
        return loaded
    to = dict(zip(old, new, strict=True))
    device = dataclasses.replace(
        loaded.device,
        chips=new,
        mmio_chips=tuple(to[c] for c in loaded.device.mmio_chips),
        links=tuple((to[a], to[b], n) for a, b, n in loaded.device.links),
    )
    overrides = tuple(_override(o, to) for o in loaded.overrides)
    netlist = _rename(loaded.netlist, to)
    return dataclasses.replace(loaded, device=device, netlist=netlist, overrides=overrides)


def _rename(netlist: Netlist, to: dict[int, int]) -> Netlist:
    result = copy.copy(netlist)
    result.queues = {
        n: dataclasses.replace(q, target_device=_target(q.target_device, to)) for n, q in netlist.queues.items()
    }
    result.graphs = {}
    for name, graph in netlist.graphs.items():
        result.graphs[name] = copy.copy(graph)
        result.graphs[name].target_device = _target(graph.target_device, to)
    return result


def _target(chip: int | list[int], to: dict[int, int]) -> int | list[int]:
    return [to.get(c, c) for c in chip] if isinstance(chip, list) else to.get(chip, chip)


def _override(override: Override, to: dict[int, int]) -> Override:
    value = override.value
    if isinstance(value, dict) and type(value.get("chip")) is int:
        return dataclasses.replace(override, value={**value, "chip": to.get(value["chip"], value["chip"])})
    return override


def module_facts(modules: Sequence[Module], graph: Graph) -> tuple[ModuleFacts, ...]:
    """The modules of a device, in order: each with its parameters and buffers that the graph reads."""
    parameter_names = {node.name for node in graph.of_kind(NodeKind.PARAMETER)}
    shares, taken = subgraphs(graph) > 1, set[str]()  # subgraphs have weights in common
    module_facts = []
    for module in modules:
        names: dict[str, str] = {}
        for own in _own_names(module):
            # a name that an earlier module has is written with the module before it (see frontend.pybuda.chain_graphs)
            prefixed = f"{module.get_name()}.{own}"
            if shares:
                node = next((n for n in (prefixed, own) if n in parameter_names), None)
            else:
                node = next((n for n in (own, prefixed) if n in parameter_names and n not in taken), None)
            if node is not None:
                names[own] = node
        taken |= set(names.values())
        kind = type(module.module) if isinstance(module, PyTorchModule) else type(module)
        module_facts.append(ModuleFacts(module.get_name(), kind.__name__, names))
    return tuple(module_facts)


def model_facts(model: Any, name: str, graph: Graph) -> tuple[ModuleFacts, ...]:
    """The same for whatever a session is given: a torch module or a graph is one module of the session's name."""
    if isinstance(model, Module):
        return module_facts([model], graph)
    if isinstance(model, list | tuple):
        return module_facts(model, graph)
    kind = type(model).__name__ if isinstance(model, torch.nn.Module) else "Graph"
    return (ModuleFacts(name, kind, {n.name: n.name for n in graph.of_kind(NodeKind.PARAMETER)}),)


def _own_names(module: Module) -> list[str]:
    names = [p.get_name() for p in module.get_parameters()]
    if isinstance(module, PyTorchModule):
        names += [name for name, _ in module.module.named_buffers()]
    return names
