"""Attention heads of any width are cut and merged by selections of columns, not row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.device import load_device
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hwops import HwSparseMatmul
from tbuda_lab.core.options import CompileOptions
from tests.lowering.reference import run


class Heads(torch.nn.Module):
    """Cuts columns into heads, does something in between, and merges them again, as attention does."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.shape
        cut = torch.relu(x).view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
        scores = cut @ cut.transpose(-1, -2)
        return torch.tanh((scores @ cut / rows).transpose(1, 2).reshape(batch, rows, width))


@pytest.mark.parametrize(("heads", "width"), [(16, 16), (4, 80), (3, 8), (2, 40), (4, 64)])
def test_heads_of_any_width(heads: int, width: int) -> None:
    x = torch.randn(1, 96, heads * width, generator=torch.Generator().manual_seed(0))
    model = Heads(heads).eval()
    options = CompileOptions()
    passed = passes.run(from_torch(model, (x,), name="heads"), options).graph
    lowered = lower(passed, load_device("wormhole_b0"), options)
    assert not [n.name for n in lowered.ops if isinstance(n.op, HwSparseMatmul)]
    (got,) = run(lowered, {n.name: x.numpy() for n in passed.inputs}).values()
    np.testing.assert_allclose(got.reshape(x.shape), model(x.double()).numpy(), rtol=1e-3, atol=1e-3)
