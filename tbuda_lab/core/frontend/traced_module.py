"""A model of another framework as a torch module: traced for the sizes that it is given, its graph evaluated by torch.

So what is known of torch modules by looking at their calls, whether they mix a batch, is known of it, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import torch

from tbuda_lab.core.frontend.inputs import BoundInputs, bind, cut_inputs, feeds
from tbuda_lab.core.frontend.torch_model.microbatch import elementwise_in_batch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.ops.evaluate import evaluate

FEW = 3
"""Elements that tell whether a model takes them one by one."""


class TracedModule(torch.nn.Module):
    """trace: the graph for tensors of the given sizes, all of them in it."""

    def __init__(self, trace: Callable[[tuple[torch.Tensor, ...]], Graph]) -> None:
        super().__init__()
        self.trace = trace
        self.graphs: dict[tuple[torch.Size, ...], Graph] = {}

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sizes = tuple(t.shape for t in tensors)
        if sizes not in self.graphs:
            self.graphs[sizes] = self.trace(tensors)
        graph = self.graphs[sizes]
        return tuple(evaluate(graph, dict(zip((n.name for n in graph.inputs), tensors, strict=True))).values())

    def __deepcopy__(self, _: dict[int, object]) -> TracedModule:
        return self  # it keeps graphs alone, which a call does not write to

    def bind(self, graph: Graph, feed: Mapping[str, torch.Tensor], batched: Sequence[str]) -> BoundInputs:
        """What is fed to a graph of the model as its own call takes it. batched: inputs that hold a microbatch."""
        paths = frozenset(f"tensors[{k}]" for k, node in enumerate(graph.inputs) if node.name in batched)
        return bind(self.forward, tuple(feed[node.name] for node in graph.inputs)).of(paths)


def takes_elements(graph: Graph, samples: object, trace: Callable[[tuple[torch.Tensor, ...]], Graph]) -> bool:
    """Whether a graph that was traced on one element of the samples stands for each of them. trace: as of
    `TracedModule`."""
    feed = feeds(graph, samples)
    names = cut_inputs(graph, feed)
    if not names:
        return True
    module = TracedModule(trace)
    bound = module.bind(graph, feed, names)
    few = bound.elements(range(min(FEW, bound.microbatch)))
    return elementwise_in_batch(module, few, lambda _: contextlib.nullcontext())
