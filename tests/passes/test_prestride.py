"""Strided convolutions on inputs: the same numbers from phases of the image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbuda_lab.core import frontend, passes
from tbuda_lab.core.ops import ConvRows
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions


@pytest.mark.parametrize(
    ("size", "channels", "kernel", "stride", "padding"),
    [
        ((32, 32), 3, 7, 2, 3),
        ((33, 29), 3, 3, 2, 1),
        ((32, 32), 3, 8, 8, 0),
        ((30, 31), 3, 4, 3, 0),
        ((17, 16), 5, 5, 2, 0),
        ((24, 21), 3, 3, 1, 1),  # one patch holds the kernel
        ((20, 20), 1, 5, 1, 2),
        ((28, 30), 3, 6, 2, 2),
        ((25, 18), 3, 7, 3, 2),
        ((19, 23), 10, 5, 1, 1),  # two taps of a row in a patch
        ((258, 256), 3, 6, 2, 2),  # whole patches of four tiles
    ],
)
def test_the_image_sorted_by_phase_gives_the_same_convolution(size, channels, kernel, stride, padding):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(channels, 8, kernel, stride, padding), torch.nn.ReLU()).eval()
    x = torch.randn(1, channels, *size)
    graph = frontend.from_torch(model, (x,))
    results = {}
    plain = ConvRows(size, (kernel, kernel), (stride, stride), (padding,) * 4)
    for on in (True, False):
        passed = passes.run(graph, CompileOptions(enable_conv_prestride=on)).graph
        convs = [n.op for n in passed.ops if isinstance(n.op, ConvRows)]
        assert [c == plain for c in convs] == [not on]
        assert not on or convs[0].stride == (1, 1)
        results[on] = next(iter(evaluate(passed, {graph.inputs[0].name: x}).values()))
    want = model(x)
    for got in results.values():
        np.testing.assert_allclose(got.detach().reshape(want.shape), want.detach(), atol=1e-5)


def test_a_convolution_deeper_in_the_model_keeps_its_stride():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 1, 1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, 2, 1)).eval()
    passed = passes.run(frontend.from_torch(model, (torch.randn(1, 3, 16, 16),))).graph
    assert [n.op.stride for n in passed.ops if isinstance(n.op, ConvRows)] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "positions"),
    [(3, 7, 2, 8), (3, 3, 2, 1), (3, 3, 1, 1), (3, 6, 2, 6), (3, 16, 16, 1), (1, 5, 1, 1), (3, 5, 1, 3)],
)
def test_patches_fill_the_columns_of_a_tile(channels, kernel, stride, positions):
    model = torch.nn.Conv2d(channels, 8, kernel, stride).eval()
    passed = passes.run(frontend.from_torch(model, (torch.randn(1, channels, 64, 64),))).graph
    (conv,) = [n.op for n in passed.ops if isinstance(n.op, ConvRows)]
    assert conv.kernel[0] * conv.kernel[1] == positions


@pytest.mark.parametrize(("size", "columns"), [(254, 24), (260, 108)])
def test_a_large_image_comes_in_whole_patches(size, columns):
    """From 512 tile rows of output on: 126 x 126 pixels have 497, 129 x 129 have 521."""
    model = torch.nn.Conv2d(3, 8, 6, 2).eval()
    passed = passes.run(frontend.from_torch(model, (torch.zeros(1, 3, size, size),))).graph
    (conv,) = [n for n in passed.ops if isinstance(n.op, ConvRows)]
    assert passed[conv.sources[0]].shape[-1] == columns
    assert (conv.op.kernel == (1, 1)) == (columns == 108)


def test_a_convolution_that_patches_do_not_help_stays():
    model = torch.nn.Sequential(torch.nn.Conv2d(32, 8, 3, 1, 1)).eval()
    passed = passes.run(frontend.from_torch(model, (torch.randn(1, 32, 16, 16),))).graph
    assert [(n.op.kernel, n.op.padding) for n in passed.ops if isinstance(n.op, ConvRows)] == [((3, 3), (1, 1, 1, 1))]
