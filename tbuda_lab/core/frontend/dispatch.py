"""One entry for whatever a session is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.frontend.eager import answers, same
from tbuda_lab.core.frontend.inputs import SINGLE, BoundInputs, bind, elements, fed_inputs, feeds
from tbuda_lab.core.frontend.pybuda import ForeignModule, Module, PyBudaModule, PyTorchModule, from_pybuda, open_model
from tbuda_lab.core.frontend.pybuda.importer import tracer_of_sizes
from tbuda_lab.core.frontend.torch_model import from_torch
from tbuda_lab.core.frontend.torch_model.export import traced_mode
from tbuda_lab.core.frontend.torch_model.microbatch import elementwise_in_batch
from tbuda_lab.core.frontend.torch_model.state import contents
from tbuda_lab.core.frontend.traced_module import FEW, TracedModule
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import WRITES, has_phases, keeps_state
from tbuda_lab.core.ops.evaluate import evaluate


def from_any(
    model: Any, sample_inputs: Any = None, *, name: str | None = None, progress: Callable[[str], None] | None = None
) -> Graph:
    """A graph from a torch.nn.Module, a PyBuda module (or a list of them), an ONNX model or its file, a TFLite file, a
    Keras model, or a Graph, which is cloned.

    sample_inputs and progress as in `from_torch`. Raises `ModelError` for anything else.
    """
    model = open_model(model, name or "model")
    if isinstance(model, Graph):
        return model.clone()
    if isinstance(model, torch.nn.Module):
        return from_torch(model, sample_inputs, name=name or "model", progress=progress)
    if isinstance(model, Module) or (isinstance(model, list | tuple) and model and isinstance(model[0], Module)):
        return from_pybuda(model, sample_inputs, name=name, progress=progress)
    raise ModelError(
        f"a {type(model).__name__} is not a model; give a torch.nn.Module, a PyBudaModule or "
        "PyTorchModule, an ONNX model or its file, a TFLite file, a Keras model, or a Graph (a JAX function: in a "
        "JaxModule)"
    )


def contents_of(model: Any) -> Any:
    """What a model answers by beside its inputs, as a value that can be compared; () for what does not change."""
    if isinstance(model, list | tuple):
        return tuple(map(contents_of, model))
    if isinstance(model, torch.nn.Module):
        return contents(model)
    return model.contents if isinstance(model, Module) else ()


def reference(model: Any, inputs: Any) -> list[torch.Tensor]:
    """What the model itself answers: the first of `references`."""
    return references(model, inputs, 1)[0]


def references(model: Any, inputs: Any, count: int = 2) -> list[list[torch.Tensor]]:
    """What the model itself answers when it is called one time after the other on the same inputs: tensors in order
    of the graph's outputs. A torch module runs eagerly, as a copy, in the mode that it is in, with the same seeds each
    time: answers that differ come from what it keeps. What keeps nothing answers once.

    A PyBuda module has no code of its own in torch; its graph, evaluated op by op, stands for it. What a graph writes
    into rams is no answer.
    """
    model = open_model(model)
    if isinstance(model, ForeignModule):
        return [foreign_answer(model, inputs)]
    if isinstance(model, PyTorchModule):
        return references(model.module, inputs, count)
    if isinstance(model, torch.nn.Module):
        return answers(model, bind(model.forward, inputs), count)
    graph = from_any(model, inputs)
    names = [node.name for node in graph.outputs if WRITES not in node.attrs]
    every = [evaluate(graph, feed) for feed in elements(graph, feeds(graph, inputs))]
    parts = [[values[name] for name in names] for values in every]
    return [[_joined(column) for column in zip(*parts, strict=True)]]


def runs_by_elements(model: Any, inputs: Any, graph: Graph, batched: Sequence[str]) -> tuple[bool, bool]:
    """Whether a model that was traced on one element may run a batch element by element: (of any inputs, of these).
    graph: its trace; batched: the INPUT nodes that are given several.

    Of any where no call of the model mixes dim 0 (`torch_model.microbatch`), of these where the model run eagerly
    answers the same for the batch and its elements. What says itself what its sizes are: both. What keeps something
    from call to call would be called several times in place of once: neither.
    """
    if keeps_state(graph):
        return False, False
    called = _called(model, inputs, graph, batched)
    if called is None:
        return True, True
    module, bound = called
    few = bound.elements(range(min(FEW, bound.microbatch)))
    if bound.microbatch > 1 and elementwise_in_batch(module, few, traced_mode):
        return True, True
    try:
        whole = answers(module, bound, 1)[0]
    except Exception:  # its own code takes no batch
        return False, False
    parts = [answers(module, bound.cut(k), 1)[0] for k in range(bound.microbatch)]
    return False, same(whole, [_joined(column) for column in zip(*parts, strict=True)])


def _called(
    model: Any, inputs: Any, graph: Graph, batched: Sequence[str]
) -> tuple[torch.nn.Module, BoundInputs] | None:
    """A model as a torch module, with inputs of which those of some INPUT nodes hold a microbatch; None for one that
    says itself what its sizes are."""
    model = open_model(model)
    if isinstance(model, ForeignModule):
        traced = TracedModule(model.trace_whole)
        return (traced, traced.bind(graph, feeds(graph, inputs), batched)) if model.takes_any_batch else None
    if isinstance(model, PyBudaModule):
        traced = TracedModule(tracer_of_sizes(model, bind(model.forward, inputs)))
        return traced, traced.bind(graph, feeds(graph, inputs), batched)
    module = model.module if isinstance(model, PyTorchModule) else model
    if not isinstance(module, torch.nn.Module):
        return None
    paths = frozenset(str(graph[name].attrs.get("argument", name)) for name in batched)
    return module, bind(module.forward, inputs).of(paths)


def as_read_alone(graph: Graph, model: Any, sample: Any) -> Graph:
    """The graph for a file that is read without the model: where a model that was traced on one element mixes those of
    a batch, its inputs take one (`inputs.SINGLE`)."""
    single = [node.name for node in fed_inputs(graph) if node.shape[:1] == (1,)]
    called = _called(model, sample, graph, single) if single and not has_phases(graph) else None
    if called is None:
        return graph
    module, bound = called
    of_elements = bound.microbatch > 1 or elementwise_in_batch(module, bound.elements([0] * FEW), traced_mode)
    if of_elements and not keeps_state(graph):
        return graph  # of a batch that was cut the trace has told it
    marked = graph.clone()
    for name in single:
        marked[name].attrs[SINGLE] = True
    return marked


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Outputs of elements along dim 0; numbers become a vector."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat(list(parts)) if parts[0].dim() else torch.stack(list(parts))


def foreign_answer(model: ForeignModule, inputs: Any) -> list[torch.Tensor]:
    """What the model's own framework answers; one that says itself that it takes one element, element by element."""
    graph = model.trace(inputs, model.get_name())
    names, feed = [node.name for node in graph.inputs], feeds(graph, inputs)
    if model.takes_any_batch:
        return model.answer([feed[name] for name in names])
    parts = [model.answer([one[n] for n in names]) for one in elements(graph, feed)]
    return [torch.cat(column) if len(parts) > 1 else column[0] for column in zip(*parts, strict=True)]
