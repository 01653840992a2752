"""Convolutions cut by kernel positions or output channels, pairs of matmuls by columns: the same numbers, and no op
that is needlessly slow or large."""

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
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import TRAINABLE
from tbuda_lab.core.lowering import lower, split
from tbuda_lab.core.lowering.hw_ops import HwDepthwise, HwMatmul, HwSparseMatmul
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
    cut = lower(graph, WH, CompileOptions(op_parts=((name, parts),)))
    kind = HwDepthwise if groups == channels else HwSparseMatmul
    count = parts
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
    graph = passed(Two(768, 512, (3, 3), 1, 1, True), torch.randn(1, 3, 5, 5))  # one row of tiles: nothing is shared

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


@pytest.mark.parametrize(("stride", "bias", "parts"), [(2, True, 2), (2, False, 3), (1, True, 3)])
def test_output_channels_side_by_side(stride: int, bias: bool, parts: int) -> None:
    torch.manual_seed(0)
    module, x = torch.nn.Conv2d(40, 192, 1, stride=stride, bias=bias), torch.randn(1, 40, 9, 11)
    graph = passed(module, x)
    (name,) = [n.name for n in graph.ops if n.op is not None and n.op.type == "conv2d_rows"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tbuda_lab.core.lowering.split_parts", lambda *_: {name: parts})
        cut = lower(graph, WH, CompileOptions())
    matmuls = [n for n in cut.ops if isinstance(n.op, HwMatmul) and n.shape[-1] == 192 // parts]
    assert len(matmuls) == parts
    whole = lower(graph, WH, CompileOptions(enable_conv_splitting=False))
    stored = [sum(n.kind is NodeKind.PARAMETER for n in lowered) for lowered in (cut, whole)]
    assert stored[0] == parts * stored[1]
    feeds = {n.name: np.random.default_rng(1).standard_normal(n.shape).astype(np.float32) for n in whole.inputs}
    want, got = run(whole, feeds), run(cut, feeds)
    for key, values in want.items():
        np.testing.assert_array_equal(got[key], values)  # every output has the same sum


def test_a_shortcut_with_weights_that_no_core_could_hold_is_cut_for_a_batch() -> None:
    grayskull, batch = load_device("grayskull"), CompileOptions(microbatch=64)
    graph = passed(torch.nn.Conv2d(1664, 2048, 1, stride=2), torch.randn(1, 1664, 4, 4))
    (name,) = [n.name for n in graph.ops if n.op is not None and n.op.type == "conv2d_rows"]
    assert split.split_parts(graph, grayskull, batch) == {name: 2}
    assert split.split_parts(graph, grayskull, CompileOptions()) == split.split_parts(graph, WH, batch) == {}
    models = op_models(lower(graph, grayskull, batch), grayskull, batch)
    deep = [m for m in models.values() if m.profile is not None and m.profile.kind == "matmul" and m.profile.inner > 16]
    in_l1 = [m.rows[(m.rows["prologue"] >> 1 & 1 == 1) & (m.rows["buf_size_mb"] > 1)] for m in deep]
    assert len(deep) == 2 and all(len(rows) for rows in in_l1)


class Pair(torch.nn.Module):
    """Two linear layers with element-wise ops between, and something that reads the result."""

    def __init__(self, between: torch.nn.Module, sizes: tuple[int, int, int], bias: bool) -> None:
        super().__init__()
        first, hidden, last = sizes
        self.up, self.between = torch.nn.Linear(first, hidden, bias), between
        self.down = torch.nn.Linear(hidden, last, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.down(self.between(self.up(x))))


BATCH = CompileOptions(microbatch=2)


@pytest.mark.parametrize(
    ("between", "sizes", "bias", "parts"),
    [
        (torch.nn.GELU(), (40, 128, 72), True, 2),
        (torch.nn.ReLU(), (64, 96, 33), True, 3),
        (torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU()), (50, 128, 1), False, 4),
        (torch.nn.Sequential(), (32, 64, 64), True, 2),
        (torch.nn.Softplus(), (32, 64, 64), True, 0),  # not of element-wise ops of one operand alone
        (torch.nn.GELU(), (32, 48, 64), True, 0),  # no whole tiles
    ],
)
@pytest.mark.parametrize("host_fills", [True, False])
def test_parts_of_a_pair_of_matmuls_add_up(
    between: torch.nn.Module,
    sizes: tuple[int, int, int],
    bias: bool,
    parts: int,
    host_fills: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    module, x = Pair(between, sizes, bias).eval(), torch.randn(1, 3, 37, sizes[0])
    graph = passed(module, x)
    options = dataclasses.replace(BATCH, fill_tiles_on_host=host_fills)
    monkeypatch.setattr(split, "parts_of_pair", lambda _, first, *__: parts if first.shape[-1] % 32 == 0 else 1)
    cut = lower(graph, WH, options)
    whole = lower(graph, WH, dataclasses.replace(options, enable_matmul_splitting=False))

    def weights(lowered: Graph) -> int:
        return sum(n.name.split(".")[1:2] == ["weight"] for n in lowered.nodes.values())

    assert (weights(cut), weights(whole)) == (2 * parts or 2, 2)
    (name,) = (n.name for n in cut.inputs)
    (got,) = run(cut, {name: x.numpy()}).values()
    want = module.double()(x.double()).detach().numpy()
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-6, atol=1e-6)


def test_matmuls_whose_weights_no_core_could_hold_are_cut_for_a_batch() -> None:
    grayskull = load_device("grayskull")
    with torch.device("meta"):
        module = Pair(torch.nn.GELU(), (1024, 4096, 1024), True)
    graph = passed(module.to_empty(device="cpu"), torch.zeros(1, 32, 1024))

    def preloaded(options: CompileOptions) -> list[bool]:
        models = op_models(lower(graph, grayskull, options), grayskull, options)
        matmuls = [m for m in models.values() if m.profile is not None and m.profile.kind == "matmul"]
        return [bool((m.rows["prologue"][m.legal()] >> 1 & 1).any()) for m in matmuls]

    batch = CompileOptions(microbatch=64)
    assert preloaded(dataclasses.replace(batch, enable_matmul_splitting=False)) == [False, False]
    assert preloaded(batch) == [True] * 4
    assert split.split_pairs(graph, grayskull, CompileOptions()) == {}  # one input: nothing is fetched twice


def test_a_pair_is_left_whole_where_others_read_what_is_between_or_training_changes_it() -> None:
    class Read(Pair):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.between(self.up(x))
            return self.down(y), y

    grayskull, batch = load_device("grayskull"), CompileOptions(microbatch=64)
    sizes, x = (1024, 4096, 1024), torch.zeros(1, 32, 1024)
    assert split.split_pairs(passed(Pair(torch.nn.GELU(), sizes, False), x), grayskull, batch)
    assert split.split_pairs(passed(Read(torch.nn.GELU(), sizes, False), x), grayskull, batch) == {}
    graph = passed(Pair(torch.nn.GELU(), sizes, False), x)
    weights = next(n for n in graph if n.shape[-2:] == (4096, 1024))
    weights.attrs[TRAINABLE] = True
    assert split.split_pairs(graph, grayskull, batch) == {}


def test_parts_that_are_asked_for_are_made_and_an_input_of_the_model_is_read_once() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(Pair(torch.nn.GELU(), (40, 128, 72), True), torch.nn.Linear(72, 5)).eval()
    x = torch.randn(1, 3, 37, 40)
    graph = passed(module, x)
    first, second, last = (n.name for n in graph.ops if n.op is not None and n.op.type == "matmul")
    options = CompileOptions(op_parts=((second, 4),))
    cut = lower(graph, WH, options)
    assert sum(isinstance(n.op, HwMatmul) for n in cut.ops) == 9
    (name,) = (n.name for n in cut.inputs)
    assert [user for user, _ in cut.users()[name]] == [f"{first}_input_nop_0"]
    (got,) = run(cut, {name: x.numpy()}).values()
    want = module.double()(x.double()).detach().numpy()
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-6, atol=1e-6)
    for wrong, text in (
        ((second, 3), "parts: 1, 2, 4"),
        ((last, 2), f"go into parts: .*{second}"),
        (("nothing", 2), "there is no such op"),
    ):
        with pytest.raises(OverrideError, match=text):
            lower(graph, WH, CompileOptions(op_parts=(wrong,)))


def test_a_matmul_is_not_cut_in_rows_and_columns() -> None:
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 128), torch.nn.ReLU()]
    graph = passed(torch.nn.Sequential(*layers, torch.nn.Linear(128, 64)), torch.zeros(1, 32, 64))
    _, second, third = (n.name for n in graph.ops if n.op is not None and n.op.type == "matmul")
    assert split.parts_allowed(graph) == {second: (1, 2), third: (1, 2, 4)}
    with pytest.raises(OverrideError, match="is cut as the second of another one"):
        lower(graph, WH, CompileOptions(op_parts=((second, 2), (third, 2))))
