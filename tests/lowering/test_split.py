"""Convolutions cut by kernel positions: the same numbers, all positions once, and no op that is needlessly slow."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower, split
from tbuda_lab.core.lowering.hwops import HwDepthwise, HwSparseMatmul
from tbuda_lab.core.options import CompileOptions
from tests.lowering.reference import run

WH = load_device("wormhole_b0")


class Two(torch.nn.Module):
    """A pointwise convolution, and the one that is looked at."""

    def __init__(self, channels: int, out: int, kernel: tuple[int, int], stride: int, groups: int, bias: bool) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, channels, 1)
        self.second = torch.nn.Conv2d(
            channels, out, kernel, stride, padding=(kernel[0] // 2, kernel[1] // 2), groups=groups, bias=bias
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))


def passed(module: torch.nn.Module, *inputs: torch.Tensor) -> Graph:
    return passes.run(from_torch(module.eval(), inputs, name="m"), CompileOptions()).graph


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from([(3, 3), (1, 5), (5, 3), (2, 2)]),
    st.sampled_from([1, 2]),
    st.sampled_from([(24, 40, 1), (40, 40, 40), (8, 16, 4), (64, 64, 64)]),
    st.booleans(),
    st.integers(2, 4),
)
def test_parts_add_up(
    kernel: tuple[int, int], stride: int, widths: tuple[int, int, int], bias: bool, parts: int
) -> None:
    torch.manual_seed(0)
    channels, out, groups = widths
    module, x = Two(channels, out, kernel, stride, groups, bias), torch.randn(1, 3, 9, 11)
    graph = passed(module, x)
    whole = lower(graph, WH, CompileOptions(enable_conv_splitting=False))
    (name,) = [n.name for n in graph.ops if n.op is not None and n.op.type == "conv2d_rows" and n.op.kernel != (1, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tbuda_lab.core.lowering.split_parts", lambda *_: {name: parts})
        cut = lower(graph, WH, CompileOptions())
    kind = HwDepthwise if groups == channels else HwSparseMatmul
    count = min(parts, kernel[0] * kernel[1])
    assert sum(isinstance(n.op, kind) for n in cut.ops) == count * sum(isinstance(n.op, kind) for n in whole.ops)
    feeds = {n.name: np.random.default_rng(1).standard_normal(n.shape).astype(np.float32) for n in whole.inputs}
    want, got = run(whole, feeds), run(cut, feeds)
    for key, values in want.items():
        np.testing.assert_allclose(got[key], values, rtol=1e-9, atol=1e-9)


@given(st.integers(1, 121), st.integers(1, 8))
def test_every_kernel_position_has_its_part(positions: int, parts: int) -> None:
    parts = min(parts, positions)
    result = split.shares(positions, parts)
    assert [p for share in result for p in share] == list(range(positions))
    assert len(result) == parts and {len(s) for s in result} <= {positions // parts, -(-positions // parts)}


def slowest(graph: Graph) -> int:
    """Cycles of the op that is slowest on all the cores that it can take."""
    models = op_models(graph, WH, CompileOptions())
    return max(int(models[n.name].rows["cycles"][models[n.name].legal()].min()) for n in graph.ops)


def test_a_long_depthwise_convolution_is_cut_and_short_ones_are_not() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 96, 1)
            self.long = torch.nn.Conv2d(96, 96, 3, padding=1, groups=96)
            self.short = torch.nn.Conv2d(96, 96, 3, stride=4, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.short(self.long(self.first(x)))

    graph = passed(Net(), torch.randn(1, 3, 64, 64))
    result = split.split_parts(graph, WH, CompileOptions())
    convolutions = [n for n in graph.ops if n.op is not None and n.op.type == "conv2d_rows"]
    long, short = (next(n.name for n in convolutions if n.op.kernel == (3, 3) and n.op.groups == g) for g in (96, 1))
    assert result.get(long, 1) > 1 and short not in result
    cut, whole = (lower(graph, WH, CompileOptions(enable_conv_splitting=on)) for on in (True, False))
    assert slowest(cut) < 0.8 * slowest(whole)
    # what reads an input is never cut: each part would fetch all of it
    alone = passed(torch.nn.Conv2d(32, 32, 3, padding=1, groups=32), torch.randn(1, 32, 64, 64))
    assert split.split_parts(alone, WH, CompileOptions()) == {}


def test_weights_that_no_core_could_hold_are_cut_for_a_batch() -> None:
    grayskull = load_device("grayskull")
    graph = passed(Two(512, 512, (3, 3), 1, 1, True), torch.randn(1, 3, 7, 7))

    def preloaded(options: CompileOptions) -> list[bool]:
        """Of every matmul with such weights, whether a legal candidate keeps them in L1."""
        models = op_models(lower(graph, grayskull, options), grayskull, options)
        deep = [m for m in models.values() if m.profile is not None and m.profile.kind == "matmul"]
        wide = [m for m in deep if m.profile is not None and m.profile.inner > 16]
        return [bool((m.rows["prologue"][m.legal()] >> 1 & 1).any()) for m in wide]

    batch = CompileOptions(microbatch=64)
    assert preloaded(dataclasses.replace(batch, enable_conv_splitting=False)) == [False]
    assert preloaded(batch) == [True, True]
    assert split.split_parts(graph, grayskull, CompileOptions()) == {}  # one input: nothing is fetched twice
    assert split.split_parts(graph, WH, batch) == {}  # there is room
