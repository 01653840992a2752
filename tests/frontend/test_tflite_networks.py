"""Whole TFLite networks of several kinds, through our importer against the LiteRT interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.tflite_model import from_tflite
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.test_tflite_models import Step, TFLite, Writer, i, r

pytest.importorskip("ai_edge_litert")
CONV: dict[str, Any] = dict(Padding=0, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1)
HALVED: dict[str, Any] = {**CONV, "StrideH": 2, "StrideW": 2}


@pytest.fixture(autouse=True)
def the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever tests ran before."""
    monkeypatch.setattr("tests.frontend.test_tflite_models.RNG", np.random.default_rng(0))


class Net(Writer):
    """Operators are named after their kind and number, in the scope `net`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.count = 0

    def op(
        self,
        kind: str,
        ins: list[str],
        shape: tuple[int, ...],
        options: str = "",
        dtype: str = "float32",
        scale: tuple[float, int] | None = None,
        **fields: Any,
    ) -> str:
        self.count += 1
        name = self.tensor(f"net/{kind.lower()}_{self.count}", shape, dtype, scale=scale)
        self.steps.append((kind, ins, name, options, fields))
        return name

    def w(self, data: np.ndarray, scale: tuple[float, int] | None = None) -> str:
        self.count += 1
        return self.stored(f"net/w_{self.count}", data, scale)

    def conv(
        self, x: str, weights: np.ndarray, shape: tuple[int, ...], how: dict[str, Any] = CONV, act: int = 0
    ) -> str:
        ins = [x, self.w(weights * 0.3), self.w(r(weights.shape[0]))]
        return self.op("CONV_2D", ins, shape, "Conv2DOptions", **how, FusedActivationFunction=act)

    def dense(self, x: str, inner: int, shape: tuple[int, ...]) -> str:
        ins = [x, self.w(r(shape[-1], inner) * 0.3), self.w(r(shape[-1]))]
        return self.op("FULLY_CONNECTED", ins, shape, "FullyConnectedOptions", KeepNumDims=len(shape) > 2)

    def reshape(self, x: str, shape: tuple[int, ...], **kind: Any) -> str:
        return self.op("RESHAPE", [x, self.w(i(*shape))], shape, "ReshapeOptions", NewShape=list(shape), **kind)

    def reduce(self, kind: str, x: str, axes: tuple[int, ...], shape: tuple[int, ...], keep: bool = False) -> str:
        return self.op(kind, [x, self.w(i(*axes))], shape, "ReducerOptions", KeepDims=keep)

    def done(self, *outputs: str) -> bytes:
        return self.write(self.steps, list(outputs))


def mobilenet() -> bytes:
    """An inverted residual with squeeze and excitation."""
    n = Net()
    x = n.conv(n.tensor("x", (1, 16, 16, 3)), r(8, 3, 3, 3), (1, 8, 8, 8), HALVED, 3)
    y = n.conv(x, r(16, 1, 1, 8), (1, 8, 8, 16), act=3)
    y = n.op(
        "DEPTHWISE_CONV_2D",
        [y, n.w(r(1, 3, 3, 16) * 0.3), n.w(r(16))],
        (1, 8, 8, 16),
        "DepthwiseConv2DOptions",
        **CONV,
        DepthMultiplier=1,
        FusedActivationFunction=3,
    )
    squeezed = n.conv(n.reduce("MEAN", y, (1, 2), (1, 1, 1, 16), keep=True), r(16, 1, 1, 16), (1, 1, 1, 16))
    y = n.op("MUL", [y, n.op("LOGISTIC", [squeezed], (1, 1, 1, 16))], (1, 8, 8, 16), "MulOptions")
    x = n.op("ADD", [x, n.conv(y, r(8, 1, 1, 16), (1, 8, 8, 8))], (1, 8, 8, 8), "AddOptions")
    x = n.op(
        "AVERAGE_POOL_2D",
        [x],
        (1, 1, 1, 8),
        "Pool2DOptions",
        Padding=1,
        StrideH=8,
        StrideW=8,
        FilterHeight=8,
        FilterWidth=8,
    )
    return n.done(n.op("SOFTMAX", [n.dense(n.reshape(x, (1, 8)), 8, (1, 10))], (1, 10), "SoftmaxOptions", Beta=1.0))


def unet() -> bytes:
    """Down, up by a transposed convolution, and the skip."""
    n = Net()
    a = n.conv(n.tensor("x", (1, 12, 12, 4)), r(8, 3, 3, 4), (1, 12, 12, 8), act=1)
    b = n.op(
        "MAX_POOL_2D",
        [a],
        (1, 6, 6, 8),
        "Pool2DOptions",
        Padding=1,
        StrideH=2,
        StrideW=2,
        FilterHeight=2,
        FilterWidth=2,
    )
    b = n.conv(b, r(16, 3, 3, 8), (1, 6, 6, 16), act=1)
    c = n.op(
        "TRANSPOSE_CONV",
        [n.w(i(1, 12, 12, 8)), n.w(r(8, 2, 2, 16) * 0.2), b],
        (1, 12, 12, 8),
        "TransposeConvOptions",
        Padding=0,
        StrideH=2,
        StrideW=2,
    )
    d = n.op("CONCATENATION", [a, c], (1, 12, 12, 16), "ConcatenationOptions", Axis=3)
    return n.done(n.conv(n.op("PRELU", [d, n.w(np.abs(r(1, 1, 16)))], (1, 12, 12, 16)), r(2, 1, 1, 16), (1, 12, 12, 2)))


def transformer() -> bytes:
    """A layer norm in pieces, attention of two heads, and a GELU."""
    n = Net()
    x = n.tensor("x", (1, 8, 16))
    mean = n.reduce("MEAN", x, (2,), (1, 8, 1), keep=True)
    variance = n.reduce("MEAN", n.op("SQUARED_DIFFERENCE", [x, mean], (1, 8, 16)), (2,), (1, 8, 1), keep=True)
    variance = n.op("ADD", [variance, n.w(np.float32([1e-5]))], (1, 8, 1), "AddOptions")
    centred = n.op("SUB", [x, mean], (1, 8, 16), "SubOptions")
    h = n.op("MUL", [centred, n.op("RSQRT", [variance], (1, 8, 1))], (1, 8, 16), "MulOptions")

    def heads() -> str:
        split = n.reshape(n.dense(h, 16, (1, 8, 16)), (1, 8, 2, 8))
        return n.op("TRANSPOSE", [split, n.w(i(0, 2, 1, 3))], (1, 2, 8, 8), "TransposeOptions")

    scores = n.op("BATCH_MATMUL", [heads(), heads()], (1, 2, 8, 8), "BatchMatMulOptions", AdjY=True)
    scores = n.op("MUL", [scores, n.w(np.float32([0.35]))], (1, 2, 8, 8), "MulOptions")
    weights = n.op("SOFTMAX", [scores], (1, 2, 8, 8), "SoftmaxOptions", Beta=1.0)
    y = n.op("BATCH_MATMUL", [weights, heads()], (1, 2, 8, 8), "BatchMatMulOptions")
    y = n.reshape(n.op("TRANSPOSE", [y, n.w(i(0, 2, 1, 3))], (1, 8, 2, 8), "TransposeOptions"), (1, 8, 16))
    y = n.dense(n.op("ADD", [x, y], (1, 8, 16), "AddOptions"), 16, (1, 8, 32))
    return n.done(n.op("GELU", [y], (1, 8, 32), "GeluOptions", Approximate=False))


def detector() -> bytes:
    """Two scales, a grid of boxes in pieces, and the best score of each."""
    n = Net()
    a = n.conv(n.tensor("x", (1, 16, 16, 3)), r(8, 3, 3, 3), (1, 8, 8, 8), HALVED)
    a = n.op("LEAKY_RELU", [a], (1, 8, 8, 8), "LeakyReluOptions", Alpha=0.1)
    b = n.op("PAD", [a, n.w(i([0, 0], [1, 1], [1, 1], [0, 0]))], (1, 10, 10, 8), "PadOptions")
    b = n.op(
        "HARD_SWISH",
        [n.conv(b, r(8, 3, 3, 8), (1, 4, 4, 8), {**HALVED, "Padding": 1})],
        (1, 4, 4, 8),
        "HardSwishOptions",
    )
    b = n.op("RESIZE_NEAREST_NEIGHBOR", [b, n.w(i(8, 8))], (1, 8, 8, 8), "ResizeNearestNeighborOptions")
    both = n.op("CONCATENATION", [b, a], (1, 8, 8, 16), "ConcatenationOptions", Axis=-1)
    boxes = n.reshape(n.conv(both, r(6, 1, 1, 16), (1, 8, 8, 6)), (1, 64, 6))

    def part(start: int) -> str:
        return n.op("SLICE", [boxes, n.w(i(0, 0, start)), n.w(i(-1, -1, 2))], (1, 64, 2), "SliceOptions")

    middle = n.op(
        "STRIDED_SLICE",
        [boxes, n.w(i(0, 0, 0)), n.w(i(0, 0, 2)), n.w(i(1, 1, 1))],
        (1, 64, 2),
        "StridedSliceOptions",
        BeginMask=3,
        EndMask=3,
    )
    size, score = n.op("EXP", [part(2)], (1, 64, 2), "ExpOptions"), part(4)
    score = n.op("SOFTMAX", [score], (1, 64, 2), "SoftmaxOptions", Beta=1.0)
    ins = [n.op("LOGISTIC", [middle], (1, 64, 2)), size, score]
    return n.done(
        n.op("CONCATENATION", ins, (1, 64, 6), "ConcatenationOptions", Axis=2),
        n.reduce("REDUCE_MAX", score, (2,), (1, 64)),
    )


def recurrent() -> bytes:
    """Four turns of a cell, stacked; two of its states taken."""
    n = Net()
    x, h = n.tensor("x", (1, 4, 12)), n.w(np.zeros((1, 8), np.float32))
    weights, states, bias = n.w(r(8, 12) * 0.4), n.w(r(8, 8) * 0.4), n.w(r(8))
    turns = []
    for t in range(4):
        v = n.op(
            "STRIDED_SLICE",
            [x, n.w(i(0, t, 0)), n.w(i(1, t + 1, 12)), n.w(i(1, 1, 1))],
            (1, 12),
            "StridedSliceOptions",
            ShrinkAxisMask=2,
        )
        a = n.op("FULLY_CONNECTED", [v, weights, bias], (1, 8), "FullyConnectedOptions")
        b = n.op("FULLY_CONNECTED", [h, states], (1, 8), "FullyConnectedOptions")
        h = n.op("TANH", [n.op("ADD", [a, b], (1, 8), "AddOptions")], (1, 8))
        turns.append(h)
    y = n.op("PACK", turns, (1, 4, 8), "PackOptions", ValuesCount=4, Axis=1)
    y = n.op(
        "SQUEEZE",
        [n.op("EXPAND_DIMS", [y, n.w(i(1))], (1, 1, 4, 8), "ExpandDimsOptions")],
        (1, 4, 8),
        "SqueezeOptions",
        SqueezeDims=[1],
    )
    return n.done(n.op("GATHER", [y, n.w(i(3, 0))], (1, 2, 8), "GatherOptions", Axis=1))


def text() -> bytes:
    """Tokens looked up, a convolution along them, the largest of each feature."""
    n = Net()
    x = n.tensor("x", (1, 6), "int32")  # the first tensor is the input
    e = n.op("GATHER", [n.w(r(20, 16)), x], (1, 6, 16), "GatherOptions", Axis=0)
    e = n.op("EXPAND_DIMS", [e, n.w(i(1))], (1, 1, 6, 16), "ExpandDimsOptions")
    c = n.conv(e, r(8, 1, 3, 16), (1, 1, 6, 8), act=1)
    return n.done(n.dense(n.reduce("REDUCE_MAX", c, (1, 2), (1, 8)), 8, (1, 3)))


def super_resolution() -> bytes:
    """Mirrored edges, pixels from channels and back, a bilinear picture."""
    n = Net()
    x = n.tensor("x", (1, 8, 8, 3))
    a = n.op("MIRROR_PAD", [x, n.w(i([0, 0], [1, 1], [1, 1], [0, 0]))], (1, 10, 10, 3), "MirrorPadOptions", Mode=0)
    a = n.conv(a, r(12, 3, 3, 3), (1, 8, 8, 12), {**CONV, "Padding": 1}, act=2)
    a = n.op("DEPTH_TO_SPACE", [a], (1, 16, 16, 3), "DepthToSpaceOptions", BlockSize=2)
    b = n.op("RESIZE_BILINEAR", [x, n.w(i(16, 16))], (1, 16, 16, 3), "ResizeBilinearOptions", HalfPixelCenters=True)
    a = n.op("ABS", [n.op("SUB", [a, b], (1, 16, 16, 3), "SubOptions")], (1, 16, 16, 3))
    a = n.op("SPACE_TO_DEPTH", [n.op("SQRT", [a], (1, 16, 16, 3))], (1, 8, 8, 12), "SpaceToDepthOptions", BlockSize=2)
    a = n.op("NEG", [n.op("MINIMUM", [a, n.w(np.float32([1]))], (1, 8, 8, 12), "MaximumMinimumOptions")], (1, 8, 8, 12))
    return n.done(n.op("TILE", [n.reduce("SUM", a, (3,), (1, 8, 8)), n.w(i(1, 2, 1))], (1, 16, 8)))


def whole_numbers() -> bytes:
    """A classifier in integers of 8 bits."""
    n, random = Net(), np.random.default_rng(1)
    image, grid = {"dtype": "int8", "scale": (0.03, 0)}, {"dtype": "int8", "scale": (0.05, -3)}

    def weights(*shape: int, step: float, bias: float) -> list[str]:
        w = n.w(random.integers(-100, 100, shape).astype(np.int8), (step, 0))
        return [w, n.w(random.integers(-500, 500, shape[0]).astype(np.int32), (bias, 0))]

    q = n.op("QUANTIZE", [n.tensor("x", (1, 8, 8, 4))], (1, 8, 8, 4), **image)
    q = n.op(
        "CONV_2D",
        [q, *weights(6, 3, 3, 4, step=0.004, bias=0.03 * 0.004)],
        (1, 8, 8, 6),
        "Conv2DOptions",
        **grid,
        **CONV,
        FusedActivationFunction=1,
    )
    q = n.op(
        "MAX_POOL_2D",
        [q],
        (1, 4, 4, 6),
        "Pool2DOptions",
        **grid,
        Padding=1,
        StrideH=2,
        StrideW=2,
        FilterHeight=2,
        FilterWidth=2,
    )
    ins = [n.reshape(q, (1, 96), **grid), *weights(5, 96, step=0.003, bias=0.05 * 0.003)]
    q = n.op("FULLY_CONNECTED", ins, (1, 5), "FullyConnectedOptions", dtype="int8", scale=(0.1, 2))
    return n.done(n.op("DEQUANTIZE", [q], (1, 5)))


NETWORKS: dict[Callable[[], bytes], float] = {
    mobilenet: 1e-5,
    unet: 1e-4,
    transformer: 3e-4,
    detector: 1e-4,
    recurrent: 1e-5,
    text: 1e-4,
    super_resolution: 1e-4,
    whole_numbers: 0.101,  # one step of its output
}
"""By network the largest absolute error of a value near 1. Exponentials of the detector's boxes are far larger."""


def sample(data: bytes) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(
        torch.randint(0, 20, n.shape, generator=generator, dtype=torch.int32)
        if n.attrs["dtype"] == "int32"
        else torch.randn(n.shape, generator=generator)
        for n in from_tflite(data).inputs
    )


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_a_network_is_the_interpreters(make: Callable[[], bytes]) -> None:
    data = make()
    inputs = sample(data)
    graph = from_tflite(data)
    got = evaluate(graph, dict(zip((n.name for n in graph.inputs), inputs, strict=True))).values()
    for have, want in zip(got, frontend.reference(TFLite(data), inputs), strict=True):
        assert float(want.std()) > 0.005
        torch.testing.assert_close(have, want, rtol=1e-5, atol=NETWORKS[make])


@pytest.mark.e2e
def test_a_network_of_two_outputs_on_the_grid() -> None:
    data = detector()
    model, inputs = TFLite(data), sample(data)
    session = Session(model, inputs, options=CompileOptions(default_df_override=DataFormat.Float32))
    for have, want in zip(session.run()[0], frontend.reference(model, inputs), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3)
