"""Padded tile rows: the same numbers, whatever the rows in the padding hold; and grids that were not there before."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core import frontend, passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul, tile_shape
from tbuda_lab.core.options import CompileOptions
from tests.lowering.reference import run

grow_module = importlib.import_module("tbuda_lab.core.lowering.grow")  # the package has a function of that name


class Residual(nn.Module):
    """Everything that rows of an image meet: strides, pools, a residual, a depthwise convolution, two averages."""

    def __init__(self, channels: int = 40) -> None:
        super().__init__()
        self.stem = nn.Conv2d(40, channels, 3, 2, 1)
        self.a, self.b = nn.Conv2d(channels, channels, 3, 1, 1), nn.Conv2d(channels, channels, 1)
        self.depthwise = nn.Conv2d(channels, channels, 3, 2, 1, groups=channels)
        self.last, self.head = nn.Conv2d(channels, 64, 3), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(self.stem(x))
        x = x + torch.relu(self.b(self.a(x)))
        gate = x.mean((2, 3), keepdim=True)
        x = torch.max_pool2d(x * gate, 3, 1, 1)
        x = nn.functional.gelu(self.last(self.depthwise(x)))
        return self.head(x.mean((2, 3)))


class Rows(nn.Module):
    """Rows that a softmax, a transposition and the output read: they may not change."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.max_pool2d(x, 3, 1, 1)
        z = y.flatten(2)
        return torch.softmax(z @ z.transpose(1, 2), -1) @ z


def lowered(model: nn.Module, x: torch.Tensor, arch: str) -> tuple[Graph, Graph]:
    torch.manual_seed(0)
    passed = passes.run(frontend.from_torch(model.eval(), (x,))).graph
    plain, grown = (
        lower(passed, load_device(arch), CompileOptions(enable_row_padding=on, enable_auto_fusing=False))
        for on in (False, True)
    )
    return plain, grown


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {n.name: rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs}


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
@pytest.mark.parametrize("side", [56, 40, 23])
def test_padding_rows_changes_no_number(arch: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow_module, "best_height", lambda height, *_: height + 2 if height > 1 else height)
    plain, grown = lowered(Residual(), torch.randn(1, 40, side, side), arch)
    changed = [n for n in grown.ops if "rows" in n.attrs]
    assert len(changed) >= 12
    assert all(tile_shape(n.shape)[1] == tile_shape(plain[n.name].shape)[1] + 2 for n in changed)
    inputs = feeds(plain)
    want, got = run(plain, inputs), run(grown, inputs)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-12)


def test_rows_that_something_else_reads_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow_module, "best_height", lambda height, *_: height + 1)
    plain, grown = lowered(Rows(), torch.randn(1, 32, 14, 14), "wormhole_b0")
    inputs = feeds(plain)
    want, got = run(plain, inputs), run(grown, inputs)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-12)
    last = grown[next(iter(grown.outputs)).inputs[0].source]
    assert "rows" not in last.attrs and grown.outputs[0].shape == plain.outputs[0].shape


def test_awkward_rows_get_grids_that_they_did_not_have() -> None:
    """98 tile rows: grids of 1, 2 and 7 rows."""
    spec = load_device("wormhole_b0")
    plain, grown = lowered(Residual(64), torch.randn(1, 40, 112, 112), "wormhole_b0")
    pickers = [n.name for n in plain.ops if isinstance(n.op, HwSparseMatmul) and tile_shape(n.shape)[1] == 98]
    assert pickers
    fastest: list[dict[str, int]] = []
    for graph in (plain, grown):
        models = op_models(graph, spec, CompileOptions())
        legal = {name: models[name].rows[models[name].legal()] for name in pickers}
        fastest.append({name: int(rows["cycles"].min()) for name, rows in legal.items()})
        heights = {height for rows in legal.values() for height in rows["grid_r"].tolist()}
        assert (heights <= {1, 2, 7}) == (graph is plain)
    assert sum(fastest[1].values()) < 0.85 * sum(fastest[0].values())


def test_few_rows_and_rows_with_many_divisors_stay() -> None:
    plain, grown = lowered(Residual(), torch.randn(1, 40, 64, 64), "wormhole_b0")  # 32, 8 and fewer tile rows
    assert not any("rows" in n.attrs for n in grown.ops)
    assert [dataclasses.replace(n, value=None) for n in plain] == [dataclasses.replace(n, value=None) for n in grown]


def test_a_constant_that_two_groups_read_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow_module, "best_height", lambda height, *_: height + 2 if height > 4 else height)
    _, grown = lowered(Residual(), torch.randn(1, 40, 56, 56), "wormhole_b0")
    copies = [n for n in grown if n.kind is NodeKind.CONSTANT and ".rows" in n.name]
    assert copies and all(n.value is not None and n.value.shape == n.shape for n in copies)


def asked(options: CompileOptions, model: nn.Module | None = None) -> Graph:
    torch.manual_seed(0)
    module, x = (Residual(), torch.randn(1, 40, 40, 40)) if model is None else (model, torch.randn(1, 2, 64, 64))
    passed = passes.run(frontend.from_torch(module.eval(), (x,))).graph
    options = dataclasses.replace(options, enable_auto_fusing=False)
    return lower(passed, load_device("wormhole_b0"), options)


def test_rows_are_padded_and_left_as_asked() -> None:
    off = CompileOptions(enable_row_padding=False)
    plain = asked(off)
    chosen = next(n.name for n in plain.ops if n.name.startswith("a.") and not isinstance(n.op, HwSparseMatmul))
    grown = asked(dataclasses.replace(off, op_names_pad=(chosen,)))
    before, after = tile_shape(plain[chosen].shape)[1], tile_shape(grown[chosen].shape)[1]
    assert after > before and grown[chosen].attrs["rows"] == plain[chosen].shape[2]
    inputs = feeds(plain)
    want, got = run(plain, inputs), run(grown, inputs)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-12)

    def grids(graph: Graph) -> int:
        rows = op_models(graph, load_device("wormhole_b0"), off)[chosen].rows
        return len({(int(r["grid_r"]), int(r["grid_c"])) for r in rows if not r["reason"]})

    assert grids(grown) > grids(plain), "50 tile rows are cut into fewer grids than what they are padded to"
    unasked = [n.name for n in asked(CompileOptions()).ops if "rows" in n.attrs]
    assert unasked
    left = asked(CompileOptions(op_names_dont_pad=(unasked[0],)))
    assert left[unasked[0]].shape == plain[unasked[0]].shape


def test_rows_that_others_read_are_not_padded_on_request() -> None:
    off = CompileOptions(enable_row_padding=False)
    name = next(n.name for n in asked(off, Rows()).ops if "softmax" in n.name)
    with pytest.raises(OverrideError, match=f"{name}.*would find what stands in the padding.*pad the input"):
        asked(dataclasses.replace(off, op_names_pad=(name,)), Rows())
    with pytest.raises(OverrideError, match=r"has no such op.*name one that it has: head\.matmul"):
        asked(dataclasses.replace(off, op_names_pad=("head.matmu",)))


def test_rows_have_the_number_of_tiles_that_is_asked_for() -> None:
    plain = asked(CompileOptions(enable_row_padding=False))
    chosen = next(n.name for n in plain.ops if n.name.startswith("a.") and not isinstance(n.op, HwSparseMatmul))
    height = tile_shape(plain[chosen].shape)[1]
    want = run(plain, feeds(plain))
    for number in (height, height + 3, 2 * height):  # whatever the rule finds right
        grown = asked(CompileOptions(op_rows=((chosen, number),)))
        assert tile_shape(grown[chosen].shape)[1] == number
        for name, values in run(grown, feeds(plain)).items():
            np.testing.assert_allclose(values, want[name], rtol=1e-9, atol=1e-12)
    for number in (height - 1, 2 * height + 1):
        with pytest.raises(OverrideError, match=f"cannot be {number}.*{height} to {2 * height} tiles"):
            asked(CompileOptions(op_rows=((chosen, number),)))
    with pytest.raises(OverrideError, match="no such op"):
        asked(CompileOptions(op_rows=(("nothing", height),)))
