"""Modules of the PyBuda API, one or a chain of them, as one graph."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import Diagnostic, InputError, ModelError, TbudaError, UnsupportedOp
from tbuda_lab.core.frontend.inputs import BoundInputs, bind, dtype_name
from tbuda_lab.core.frontend.pybuda import tracer
from tbuda_lab.core.frontend.pybuda.foreign import ForeignModule
from tbuda_lab.core.frontend.pybuda.module import Module, PyBudaModule, PyTorchModule
from tbuda_lab.core.frontend.pybuda.tensor import Tensor
from tbuda_lab.core.frontend.torch_model import from_torch
from tbuda_lab.core.frontend.torch_model.provenance import raised_at
from tbuda_lab.core.graph import Edge, Graph, NodeKind
from tbuda_lab.core.graph.phases import LOSS, TRAINABLE
from tbuda_lab.core.ops.norm import Batchnorm, GroupNorm


def from_pybuda(
    modules: Module | Sequence[Module],
    sample_inputs: Any,
    *,
    name: str | None = None,
    training: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """The nD graph of one module, or of several that feed each other in order. training: parameters that require a
    gradient are marked. progress: hears how far tracing is, and may raise `Cancelled` to stop it.

    sample_inputs: a tensor, a tuple, or a dict by argument name, as the first module takes them; dim 0 is the
    microbatch and is cut to 1. Nodes bear the names given to the ops; OUTPUT nodes are `<last module>.output_<k>`.
    Raises `ModelError`, `InputError`, `UnsupportedOp` as `from_torch` does.
    """
    chain = [modules] if isinstance(modules, Module) else list(modules or ())
    if not chain or not all(isinstance(m, Module) for m in chain):
        raise ModelError("from_pybuda takes a module, or a list of at least one")
    graph = _one(chain[0], sample_inputs, training, progress)
    for module in chain[1:]:
        between = tuple(_sample(node.shape, str(node.attrs.get("dtype", "float32"))) for node in graph.outputs)
        try:
            following = _one(module, between, training, progress)
        except InputError as error:
            shapes = ", ".join(str(tuple(t.shape)) for t in between)
            raise ModelError(
                f"module {module.get_name()!r} does not take what {graph.name!r} gives, {shapes}: {error}"
            ) from error
        graph = joined(graph, following, module.get_name())
    if name is not None:
        graph.name = name
    return graph


def _sample(shape: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.zeros(tuple(shape), dtype=getattr(torch, dtype))


def _one(
    module: Module, sample_inputs: Any, training: bool = False, progress: Callable[[str], None] | None = None
) -> Graph:
    if isinstance(module, PyTorchModule):
        graph = from_torch(module.module, sample_inputs, name=module.get_name(), progress=progress)
        if training:
            _use_batch_statistics(graph, module.module, bind(module.module.forward, sample_inputs).microbatch)
    elif isinstance(module, ForeignModule):
        graph = module.trace(sample_inputs, module.get_name(), progress)
    elif isinstance(module, PyBudaModule):
        graph = _trace_one_element(module, bind(module.forward, sample_inputs))
    else:
        raise ModelError(f"module {module.get_name()!r} of type {type(module).__name__} cannot be traced")
    if training:
        wanted = {p.get_name() for p in module.get_parameters() if p.requires_grad}
        for node in graph.of_kind(NodeKind.PARAMETER):
            if node.name in wanted:
                node.attrs[TRAINABLE] = True
    return graph


def _use_batch_statistics(graph: Graph, module: torch.nn.Module, microbatch: int) -> None:
    """Batch norms of layers in training mode take mean and variance of the input itself, as torch does: of one element
    that is a group norm with a channel per group. Raises `UnsupportedOp` for what torch would take over several
    elements (the device takes them one by one) or over one value per channel.
    """
    learning = {
        f"{name}.running_mean" if name else "running_mean"
        for name, layer in module.named_modules()
        if layer.training and isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
    }
    faults = []
    for node in graph.ops:
        if not isinstance(node.op, Batchnorm) or node.sources[3] not in learning:
            continue
        elements = max(microbatch, node.shape[0])
        if elements > 1:
            message = f"its statistics are those of {elements} elements, which run one by one here"
            fix = "a microbatch of 1 with accumulation over several, or .eval() on the layer"
        elif math.prod(node.shape[2:]) < 2:
            message, fix = "one value per channel has no variance", ".eval() on the layer"
        else:
            node.op = GroupNorm(node.shape[1], node.op.epsilon)
            node.inputs = node.inputs[:3]
            continue
        where = node.origin.module or node.name
        faults.append(Diagnostic("error", where, "batch-statistics", f"batch norm in training: {message}", fix))
    if faults:
        raise UnsupportedOp("batch norm cannot be trained like this", faults)
    graph.prune()


def _trace_one_element(module: PyBudaModule, bound: BoundInputs) -> Graph:
    """The trace of the first element of the microbatch, where dim 0 is one: where the outputs have it too, and are
    otherwise alike. A model that reshapes or cuts dim 0 is traced on all of it."""
    size = bound.microbatch
    if size == 1:
        return trace(module, bound)
    parameters = []
    for inputs in (bound.cut(), bound):
        try:
            parameters.append(trace(module, inputs))
        except ModelError as error:
            failed = error
    if not parameters:
        raise failed
    first, whole = parameters[0], parameters[-1]
    shapes = [(a.shape, w.shape) for a, w in zip(first.outputs, whole.outputs, strict=True)]
    of_one = all(a[:1] == (1,) and w == (size, *a[1:]) for a, w in shapes)
    return first if len(parameters) == 1 or of_one else whole


def trace(module: PyBudaModule, inputs: BoundInputs) -> Graph:
    """Run the module's forward on tensors without values and keep what it does."""
    graph = Graph(module.get_name())
    recorder = tracer.Tracer(graph)
    with tracer.tracing(recorder):
        by_id = {
            id(tensor): Tensor(
                tensor.shape,
                node=recorder.emit.leaf(NodeKind.INPUT, path, tensor.shape, dtype=dtype_name(tensor), argument=path),
                pt_data_format=tensor.dtype,
            )
            for path, tensor in inputs.leaves
        }
        args = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: by_id[id(t)], inputs.args)
        kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: by_id[id(t)], inputs.kwargs)
        try:
            returned = module(*args, **kwargs)
        except TbudaError:
            raise
        except Exception as error:
            where, line = raised_at(error)
            code = f": `{line.strip()}`" if line else ""
            raise ModelError(
                f"module {module.get_name()!r} cannot be traced at {where or 'forward'}{code}: "
                f"{type(error).__name__}: {error}"
            ) from error
        results = list(returned) if isinstance(returned, tuple | list) else [returned]
        for k, result in enumerate(results):
            if not isinstance(result, Tensor):
                raise ModelError(
                    f"forward of {module.get_name()!r} returns a {type(result).__name__}; it returns tensors"
                )
            source = recorder.node_of(result, f"{graph.name}.output_{k}", 0)
            recorder.emit.output(
                source, f"{graph.name}.output_{k}", path=f"[{k}]" if len(results) > 1 else "", dtype="float32"
            )
    return graph


def joined(first: Graph, second: Graph, prefix: str) -> Graph:
    """`second` reading the outputs of `first`; names already taken get the prefix "<module>."."""
    sources = [node.sources[0] for node in first.outputs]
    inputs = second.inputs
    if len(sources) != len(inputs):
        raise ModelError(f"module {prefix!r} takes {len(inputs)} inputs, the module before it gives {len(sources)}")
    for source, node in zip(sources, inputs, strict=True):
        if first[source].shape != node.shape:
            raise ModelError(
                f"module {prefix!r}: input {node.name!r} is {node.shape}, it is given {first[source].shape}"
            )
    whole = Graph(second.name)
    for node in first:
        if node.kind is not NodeKind.OUTPUT:
            whole.add(node)
    names = {node.name: source for source, node in zip(sources, inputs, strict=True)}
    for node in second:
        if node.kind is NodeKind.INPUT:
            continue
        new = node.name if node.name not in whole else whole.unique(f"{prefix}.{node.name}")
        names[node.name] = new
        edges = tuple(Edge(names[e.source], e.tms) for e in node.inputs)
        whole.add(dataclasses.replace(node, name=new, inputs=edges))
    return whole


def _cut(model: Graph) -> bool:
    """Whether the inputs of a model were cut to one element of a microbatch."""
    return all(node.shape[:1] in ((), (1,)) for node in model.inputs)


def with_loss(model: Graph, module: Module, targets: Sequence[torch.Tensor]) -> tuple[Graph, tuple[str, ...]]:
    """A model's graph with a loss behind it, and the names of the inputs that take the targets, in order.

    module: takes the model's outputs and then the targets; its own outputs are marked as losses. targets: samples, dim
    0 is the microbatch as in the model's inputs. Raises `ModelError` where model and loss do not fit.
    """
    outputs = tuple(_sample(node.shape, "float32") for node in model.outputs)
    size = max((int(t.shape[0]) for t in targets if t.dim()), default=1)
    cut = tuple(t[:1] if t.dim() and t.shape[0] == size and size > 1 and _cut(model) else t for t in targets)
    loss = _one(module, (*outputs, *cut), True)
    if len(loss.inputs) != len(outputs) + len(cut):
        raise ModelError(
            f"loss {module.get_name()!r} reads {len(loss.inputs)} tensors; the model gives {len(outputs)} outputs and "
            f"there are {len(cut)} targets"
        )
    whole = Graph(model.name)
    for node in model:
        if node.kind is not NodeKind.OUTPUT:
            whole.add(node)
    names: dict[str, str] = {}
    sources = [node.sources[0] for node in model.outputs]
    wanted = []
    for k, node in enumerate(loss.inputs):
        if k < len(sources):
            names[node.name] = sources[k]
            continue
        name = whole.unique(f"target_{k - len(sources)}")
        whole.add(dataclasses.replace(node, name=name, attrs={**node.attrs, "target": True}))
        names[node.name] = name
        wanted.append(name)
    for node in loss:
        if node.kind is NodeKind.INPUT:
            continue
        new = node.name if node.name not in whole else whole.unique(f"{module.get_name()}.{node.name}")
        names[node.name] = new
        edges = tuple(Edge(names[e.source], e.tms) for e in node.inputs)
        attrs = {**node.attrs, LOSS: True} if node.kind is NodeKind.OUTPUT else node.attrs
        whole.add(dataclasses.replace(node, name=new, inputs=edges, attrs=attrs))
    return whole, tuple(wanted)
