"""Inputs for a model of which only the graph is known."""

from __future__ import annotations

import torch

from tbuda_lab.core.files import Budget
from tbuda_lab.core.graph import Graph

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
