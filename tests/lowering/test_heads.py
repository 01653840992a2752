"""Attention heads of any width are cut and merged by selections of columns, two for each, not row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.device import load_device
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
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
    pickers = [n for n in lowered.ops if isinstance(n.op, HwSparseMatmul)]
    assert len(pickers) <= (0 if width % 32 == 0 else 2) and all(n.shape[1] <= heads for n in pickers)
    (got,) = run(lowered, {n.name: x.numpy() for n in passed.inputs}).values()
    np.testing.assert_allclose(got.reshape(x.shape), model(x.double()).numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("first", [True, False], ids=["batch_first", "sequence_first"])
@pytest.mark.parametrize(("heads", "width", "length"), [(3, 96, 33), (4, 80, 20), (2, 64, 64)])
def test_attention_of_torch_moves_no_rows(heads: int, width: int, length: int, first: bool) -> None:
    """torch's own attention runs on (length, 1, width): a tile for each row of it, if that shape is kept."""
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(width, heads, batch_first=first)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attention = torch.nn.LayerNorm(width), attention

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            return x + self.attention(y, y, y, need_weights=False)[0]

    x = torch.randn(*((1, length) if first else (length, 1)), width)
    model = Model().eval()
    options = CompileOptions()
    passed = passes.run(from_torch(model, (x,), name="attention"), options).graph
    lowered = lower(passed, load_device("wormhole_b0"), options)
    assert not [n.name for n in lowered.ops if isinstance(n.op, HwSparseMatmul)]
    assert {n.shape[-2] for n in passed.ops if n.op.type == "matmul"} <= {length, width // heads}
    (got,) = run(lowered, {n.name: x.reshape(n.shape).numpy() for n in passed.inputs}).values()
    np.testing.assert_allclose(got.reshape(x.shape), model.double()(x.double()).detach(), rtol=1e-3, atol=1e-3)


class Columns(torch.nn.Module):
    """Columns of long images side by side, as the positions of a kernel are for the gradient by its weights."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.relu(x), y, x], -1)


@pytest.mark.parametrize("rows", [419 * 32 - 24, 1042 * 32])  # 419 is a prime, 1042 twice a prime
def test_columns_of_long_images(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, 1, generator=generator), torch.randn(rows, 2, generator=generator)
    options = CompileOptions(default_df_override=DataFormat.Float32)
    ((found,),) = Session(Columns(), [x, y], "wormhole_b0", options, name="columns").run()
    assert torch.equal(found, Columns()(x, y))
