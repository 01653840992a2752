"""Modules of the PyBuda API, one or a chain of them, as one graph."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import InputError, ModelError, TbudaError
from tbuda_lab.core.frontend.inputs import BoundInputs, bind, dtype_name
from tbuda_lab.core.frontend.provenance import raised_at
from tbuda_lab.core.frontend.pybuda import tracer
from tbuda_lab.core.frontend.pybuda.foreign import ForeignModule
from tbuda_lab.core.frontend.pybuda.module import Module, PyBudaModule, PyTorchModule, device_names
from tbuda_lab.core.frontend.pybuda.tensor import Tensor, node_of
from tbuda_lab.core.frontend.pybuda.words import mark_words
from tbuda_lab.core.frontend.torch_model import from_torch
from tbuda_lab.core.frontend.torch_model.export import evaluation
from tbuda_lab.core.frontend.torch_model.training import use_batch_statistics
from tbuda_lab.core.frontend.traced_module import takes_elements
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Origin
from tbuda_lab.core.graph.phases import DROPOUT, LOSS, TRAINABLE
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import Add, Maximum, Minimum, Multiply, Subtract
from tbuda_lab.core.ops.conv import Conv2d, Conv2dTranspose
from tbuda_lab.core.ops.evaluate import WHOLE_TYPE
from tbuda_lab.core.ops.norm import Batchnorm, Layernorm, LogSoftmax, Softmax
from tbuda_lab.core.ops.pool import AvgPool2d, MaxPool2d
from tbuda_lab.core.ops.reduce import Matmul, ReduceAvg
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Cast, Gelu

_ON_FLOATS = (
    Matmul,
    Conv2d,
    Conv2dTranspose,
    Softmax,
    LogSoftmax,
    Layernorm,
    Batchnorm,
    ReduceAvg,
    AvgPool2d,
    MaxPool2d,
    Gelu,
)
_KEEPS_INTEGERS: tuple[type[NdOp], ...] = (Add, Subtract, Multiply, Maximum, Minimum, *MOVES)


def from_pybuda(
    modules: Module | Sequence[Module],
    sample_inputs: Any,
    *,
    name: str | None = None,
    training: bool = False,
    progress: Callable[[str], None] | None = None,
    drops: bool = False,
    whole: bool = False,
) -> Graph:
    """The nD graph of one module, or of several that feed each other in order. training: in the mode that torch modules
    are in; parameters that require a gradient are marked. whole: the microbatch is one element. progress: hears how far
    tracing is, and may raise `Cancelled` to stop it. drops: dropouts of torch layers in training mode multiply by
    masks, which are further inputs (see `inputs.draw_masks`).

    sample_inputs: a tensor, a tuple, or a dict by argument name, as the first module takes them; dim 0 is the
    microbatch and is cut to 1. Nodes bear the names given to the ops; OUTPUT nodes are `<last module>.output_<k>`.
    Raises `ModelError`, `InputError`, `UnsupportedOp` as `from_torch` does.
    """
    chain = [modules] if isinstance(modules, Module) else list(modules or ())
    if not chain or not all(isinstance(m, Module) for m in chain):
        raise ModelError("from_pybuda takes a module, or a list of at least one")
    graph = _one(chain[0], sample_inputs, training, progress, drops, whole)
    for module, names in zip(chain[1:], device_names(chain)[1:], strict=True):
        between = tuple(_sample(node.shape, str(node.attrs.get("dtype", "float32"))) for node in graph.outputs)
        try:
            following = _one(module, between, training, progress, drops, whole)
        except InputError as error:
            shapes = ", ".join(str(tuple(t.shape)) for t in between)
            raise ModelError(
                f"module {module.get_name()!r} does not take what {graph.name!r} gives, {shapes}: {error}"
            ) from error
        graph = chain_graphs(graph, following, module.get_name(), names)
    if name is not None:
        graph.name = name
    return graph


def _sample(shape: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.zeros(tuple(shape), dtype=getattr(torch, dtype))


def _one(
    module: Module,
    sample_inputs: Any,
    training: bool = False,
    progress: Callable[[str], None] | None = None,
    drops: bool = False,
    whole: bool = False,
) -> Graph:
    if isinstance(module, PyTorchModule):
        dropouts: list[Origin] = []
        graph = from_torch(
            module.module,
            sample_inputs,
            name=module.get_name(),
            progress=progress,
            dropouts=dropouts,
            drops=(lambda _: True) if drops else None,
            trains=training,
            whole=whole,
        )
        if training:
            _warn_dropouts(module.module, dropouts)
            batch = 1 if whole else bind(module.module.forward, sample_inputs).microbatch
            use_batch_statistics(graph, module.module, batch)
    elif isinstance(module, ForeignModule):
        graph = module.trace(sample_inputs, module.get_name(), progress)
    elif isinstance(module, PyBudaModule):
        graph = _trace_one_element(module, bind(module.forward, sample_inputs))
    else:
        raise ModelError(f"module {module.get_name()!r} of type {type(module).__name__} cannot be traced")
    if training:
        trainable = {p.get_name() for p in module.get_parameters() if p.requires_grad}
        for node in graph.of_kind(NodeKind.PARAMETER):
            if node.name in trainable:
                node.attrs[TRAINABLE] = True
    return graph


def _warn_dropouts(module: torch.nn.Module, dropouts: list[Origin]) -> None:
    """Warn of `F.dropout` in layers in training mode; modules of dropout are named by the device (`warn_modes`)."""
    layers = dict(module.named_modules())
    places = sorted(
        {
            o.location
            for o in dropouts
            if not isinstance(layers.get(o.module), torch.nn.modules.dropout._DropoutNd)
            and (o.module not in layers or layers[o.module].training)
        }
    )
    if places:
        shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        warnings.warn(
            f"the functional dropout at {shown} trains as in eval(): the device drops nothing; set "
            "enable_tvm_dropout, place that part on a CPUDevice, where torch drops values, or set its probability to 0",
            UserWarning,
            stacklevel=2,
        )


def _trace_one_element(module: PyBudaModule, bound: BoundInputs) -> Graph:
    """The trace of the first element of the microbatch, where dim 0 is one: where the outputs have it too, are
    otherwise alike, and no op mixes the elements. A model that reshapes, cuts or mixes dim 0 is traced on all of it."""
    size = bound.microbatch
    if size == 1:
        return trace(module, bound)
    graphs = []
    for inputs in (bound.cut(), bound):
        try:
            graphs.append(trace(module, inputs))
        except ModelError as error:
            failed = error
    if not graphs:
        raise failed
    first, whole = graphs[0], graphs[-1]
    if len(graphs) == 1:
        return first
    shapes = [(a.shape, w.shape) for a, w in zip(first.outputs, whole.outputs, strict=True)]
    if not all(a[:1] == (1,) and w == (size, *a[1:]) for a, w in shapes):
        return whole
    try:
        apart = takes_elements(first, dict(bound.leaves), tracer_of_sizes(module, bound))
    except ModelError:
        return whole  # of another number of elements it makes no sense
    return first if apart else whole


def tracer_of_sizes(module: PyBudaModule, bound: BoundInputs) -> Callable[[tuple[torch.Tensor, ...]], Graph]:
    """What traces a module for other tensors in place of its inputs, in their order. Parameters without values get
    some: what mixes a batch does so whatever they are."""

    def trace_of(tensors: tuple[torch.Tensor, ...]) -> Graph:
        others, chance = iter(tensors), np.random.default_rng(0)
        graph = trace(module, bound.map(lambda _: next(others)))
        for node in graph.of_kind(NodeKind.PARAMETER):
            if node.value is None:
                node.value = chance.uniform(0.5, 1.5, node.shape).astype(np.float32)
        return graph

    return trace_of


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
            source = node_of(recorder, result, f"{graph.name}.output_{k}", 0)
            recorder.emit.output(
                source, f"{graph.name}.output_{k}", path=f"[{k}]" if len(results) > 1 else "", dtype="float32"
            )
    mark_words(graph)
    return _integers_as_floats(graph)


def _integers_as_floats(graph: Graph) -> Graph:
    """The graph with integers made floats before the ops that torch has for floats alone, such as the product of an
    int8 input with weights: PyBuda's ops take tensors of any format."""
    integers: set[str] = set()
    nodes: dict[str, Node] = {}
    for node in graph:
        fed = node.kind is NodeKind.INPUT and not str(node.attrs.get("dtype", "float32")).startswith(
            ("float", "bfloat")
        )
        kept = isinstance(node.op, _KEEPS_INTEGERS) and all(source in integers for source in node.sources)
        if fed or kept or WHOLE_TYPE in node.attrs:
            integers.add(node.name)
        elif isinstance(node.op, _ON_FLOATS):
            for port, source in enumerate(node.sources):
                if source in integers:
                    cast = Node(
                        graph.unique(f"{node.name}.float{port}"),
                        NodeKind.OP,
                        graph[source].shape,
                        Cast("float32"),
                        (Edge(source),),
                        origin=node.origin,
                    )
                    nodes[cast.name] = cast
                    edge = dataclasses.replace(node.inputs[port], source=cast.name)
                    node.inputs = (*node.inputs[:port], edge, *node.inputs[port + 1 :])
        nodes[node.name] = node
    graph.nodes = nodes
    return graph


def chain_graphs(first: Graph, second: Graph, prefix: str, renamed: Mapping[str, str]) -> Graph:
    """`second` reading the outputs of `first`; names already taken get the prefix "<module>.". renamed: `device_names`
    of its weights."""
    sources = [node.sources[0] for node in first.outputs]
    inputs = [node for node in second.inputs if DROPOUT not in node.attrs]
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
        if node.name in names:
            continue
        new = renamed.get(node.name, node.name)
        if new in whole:
            new = whole.unique(f"{prefix}.{node.name}")
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
    0 is the microbatch as in the model's inputs, unless an output of one element is as long there. A torch loss that is
    the mean over the microbatch gives each element's loss its share of the gradient (see `_share`). Raises `ModelError`
    where model and loss do not fit.
    """
    outputs = tuple(_sample(node.shape, "float32") for node in model.outputs)
    size = max((int(t.shape[0]) for t in targets if t.dim()), default=1)
    one_by_one = size > 1 and _cut(model) and not any(o.shape[:1] == (size,) for o in outputs)
    cut = tuple(t[:1] if one_by_one and t.dim() and t.shape[0] == size else t for t in targets)
    loss = _one(module, (*outputs, *cut), True, whole=True)
    share = 1.0
    if one_by_one and isinstance(module, PyTorchModule):
        share = _share(module, outputs, targets, size)
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
    target_names = []
    for k, node in enumerate(loss.inputs):
        if k < len(sources):
            names[node.name] = sources[k]
            continue
        name = whole.unique(f"target_{k - len(sources)}")
        whole.add(dataclasses.replace(node, name=name, attrs={**node.attrs, "target": True}))
        names[node.name] = name
        target_names.append(name)
    for node in loss:
        if node.kind is NodeKind.INPUT:
            continue
        new = node.name if node.name not in whole else whole.unique(f"{module.get_name()}.{node.name}")
        names[node.name] = new
        edges = tuple(Edge(names[e.source], e.tms) for e in node.inputs)
        attrs = {**node.attrs, LOSS: share} if node.kind is NodeKind.OUTPUT else node.attrs
        whole.add(dataclasses.replace(node, name=new, inputs=edges, attrs=attrs))
    return whole, tuple(target_names)


def _share(module: PyTorchModule, outputs: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], size: int) -> float:
    """The gradient of a microbatch's loss by one element's: 1 / size for a loss that is their mean, 1 for their sum and
    for one that is not a number. Raises `ModelError` for a loss that is neither: elements run one by one.
    """
    generator = torch.Generator().manual_seed(3)
    guesses = [torch.rand((size, *o.shape[1:]), generator=generator) * 0.9 + 0.05 for o in outputs]

    def loss_of(part: slice) -> torch.Tensor:
        cut = [t[part] if t.dim() and t.shape[0] == size else t for t in targets]
        with evaluation(module.module), torch.no_grad():
            returned = module.module(*(g[part] for g in guesses), *cut)
        leaves = torch.utils._pytree.tree_leaves(returned)
        return torch.stack([v.double().sum() for v in leaves if isinstance(v, torch.Tensor)]).sum()

    try:
        whole, each = loss_of(slice(None)), torch.stack([loss_of(slice(k, k + 1)) for k in range(size)])
    except (RuntimeError, ValueError, TypeError, IndexError):
        return 1.0  # it takes no such values; its trace says what it takes
    for total, share in ((each.sum(), 1.0), (each.mean(), 1.0 / size)):
        if torch.allclose(whole, total, rtol=1e-4, atol=1e-6, equal_nan=True):
            return share
    raise ModelError(
        f"loss {module.get_name()!r} over {size} elements is neither the sum nor the mean of their losses; the device "
        "runs them one by one: place the loss on a CPUDevice, or train with a microbatch of 1 and accumulate"
    )
