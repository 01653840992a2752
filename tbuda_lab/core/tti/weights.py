"""Graphs of an image: without their weights (what an image keeps where weights are left out, and what weights may not
change), and sample inputs for a model of which only the graph is known."""

from __future__ import annotations

import dataclasses
import hashlib

import torch

from tbuda_lab.core.files import Budget
from tbuda_lab.core.graph import Graph, Node, NodeKind, print_graph
from tbuda_lab.core.graph.text import DIGEST, array_digest

ABSENT = "#0"


def without_weights(graph: Graph, *, digests: bool = True) -> Graph:
    """A copy whose parameters, those of recipes too, have no values; `digests`: that tells them apart by digest."""
    bare = Graph(graph.name)
    bare.nodes = {node.name: _bare(node, digests) for node in graph}
    return bare


def _bare(node: Node, digests: bool) -> Node:
    recipe = None if node.recipe is None else without_weights(node.recipe, digests=digests)
    if node.kind is not NodeKind.PARAMETER or (node.value is None and DIGEST not in node.attrs):
        return dataclasses.replace(node, attrs=dict(node.attrs), recipe=recipe)
    mark = ABSENT
    if digests:
        mark = f"#{array_digest(node.value)}" if node.value is not None else str(node.attrs[DIGEST]).split()[-1]
    return dataclasses.replace(node, value=None, attrs={**node.attrs, DIGEST: f"float32 {mark}"}, recipe=recipe)


def signature(passed: Graph) -> str:
    """What of a graph after the passes does not depend on weights: placed once, it holds for all weights."""
    text = print_graph(without_weights(passed, digests=False), origins=False)
    return hashlib.sha256(text.encode()).hexdigest()


def absent(graph: Graph) -> list[str]:
    """Parameters without values."""
    return [node.name for node in graph.of_kind(NodeKind.PARAMETER) if node.value is None]


MAX_SAMPLE = 1 << 30


def sample_of(graph: Graph, microbatch: int = 1, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """One tensor per input of a traced graph, the same for the same seed: standard normal, integers 0 and 1 (which
    index any table), booleans. Dim 0 is the microbatch where the graph has 1 there. Raises `InputError` where they
    would take more than `MAX_SAMPLE` bytes."""
    budget = Budget(f"graph {graph.name!r}", MAX_SAMPLE)
    generator = torch.Generator().manual_seed(seed)
    result = []
    for node in graph.inputs:
        shape = (microbatch, *node.shape[1:]) if node.shape and node.shape[0] == 1 else tuple(node.shape)
        budget.take_array(shape, 4, f"an input {node.name!r}")
        dtype: torch.dtype = getattr(torch, str(node.attrs.get("dtype", "float32")))
        if dtype.is_floating_point:
            result.append(torch.randn(shape, generator=generator).to(dtype))
        else:
            result.append(torch.randint(0, 2, shape, generator=generator).to(dtype))
    return tuple(result)
