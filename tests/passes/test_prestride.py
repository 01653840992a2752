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
    ],
)
def test_the_image_sorted_by_phase_gives_the_same_convolution(size, channels, kernel, stride, padding):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(channels, 8, kernel, stride, padding), torch.nn.ReLU()).eval()
    x = torch.randn(1, channels, *size)
    graph = frontend.from_torch(model, (x,))
    results = {}
    for on in (True, False):
        passed = passes.run(graph, CompileOptions(enable_conv_prestride=on)).graph
        convs = [n.op for n in passed.ops if isinstance(n.op, ConvRows)]
        assert [c.stride == (1, 1) for c in convs] == [on]
        results[on] = next(iter(evaluate(passed, {graph.inputs[0].name: x}).values()))
    want = model(x)
    for got in results.values():
        np.testing.assert_allclose(got.detach().reshape(want.shape), want.detach(), atol=1e-5)


def test_a_convolution_deeper_in_the_model_keeps_its_stride():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 1, 1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, 2, 1)).eval()
    passed = passes.run(frontend.from_torch(model, (torch.randn(1, 3, 16, 16),))).graph
    assert [n.op.stride for n in passed.ops if isinstance(n.op, ConvRows)] == [(1, 1), (2, 2)]
