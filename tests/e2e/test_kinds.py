"""Models of the kinds that users bring, on both archs, in the default format and policy, against torch."""

from __future__ import annotations

import functools

import pytest
import torch

from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.session import Session
from tests.e2e.kinds import KINDS
from tests.e2e.references import pcc

Traced = tuple[Graph, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]


@functools.lru_cache(maxsize=1)
def traced(name: str) -> Traced:
    """The graph, inputs, and what torch makes of them; the two archs of a model follow each other."""
    torch.manual_seed(0)
    module, inputs = KINDS[name]()
    module.eval()
    with torch.no_grad():
        expected = module(*inputs)
    return from_torch(module, inputs, name=name), inputs, expected if isinstance(expected, tuple) else (expected,)


@pytest.mark.e2e
@pytest.mark.parametrize("arch", ["wormhole_b0", "grayskull"])
@pytest.mark.parametrize("name", KINDS)
def test_agrees_with_torch(name: str, arch: str) -> None:
    graph, inputs, expected = traced(name)
    (got,) = Session(graph, inputs, device=arch).run([inputs])
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) <= 0.05 * float(theirs.abs().max())
        assert theirs.numel() < 3 or pcc(ours, theirs) >= 0.995
