"""TFLite models built here as flatbuffers, through our importer against the LiteRT interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.errors import Cancelled, ModelError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.tflite_model import from_tflite
from tbuda_lab.core.frontend.tflite_model.operators import EMPTY, option_fields
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

flatbuffers = pytest.importorskip("flatbuffers")
tflite = pytest.importorskip("tflite")
RNG = np.random.default_rng(0)
TYPES = {"float32": 0, "int32": 2, "int8": 9}
Step = tuple[str, list[str], str, str, dict[str, Any]]


def r(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever tests ran before."""
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(0))


class Writer:
    """A model of one subgraph: named tensors (stored or computed) and operators in order."""

    def __init__(self) -> None:
        self.b = flatbuffers.Builder(1024)
        self.tensors: dict[str, tuple[tuple[int, ...], str, bytes | None, tuple[float, int] | None]] = {}

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "float32",
        data: np.ndarray | None = None,
        scale: tuple[float, int] | None = None,
    ) -> str:
        self.tensors[name] = (shape, dtype, None if data is None else data.tobytes(), scale)
        return name

    def stored(self, name: str, data: np.ndarray, scale: tuple[float, int] | None = None) -> str:
        return self.tensor(name, data.shape, data.dtype.name, data, scale)

    def _ints(self, values: Any) -> int:
        return int(self.b.CreateNumpyVector(np.array(values, np.int32)))

    def _list(self, items: list[int]) -> int:
        self.b.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.b.PrependUOffsetTRelative(item)
        return int(self.b.EndVector())

    def write(self, steps: list[Step], outputs: list[str]) -> bytes:
        b, names = self.b, list(self.tensors)
        buffers, tensors, codes, operators = [], [], [], []
        for data in (b"", *(t[2] or b"" for t in self.tensors.values())):
            buffer = b.CreateByteVector(data) if data else None
            tflite.BufferStart(b)
            if buffer is not None:
                tflite.BufferAddData(b, buffer)
            buffers.append(tflite.BufferEnd(b))
        for k, (name, (shape, dtype, data, scale)) in enumerate(self.tensors.items()):
            label, dims, facts = b.CreateString(name), self._ints(shape), None
            if scale is not None:
                scales = b.CreateNumpyVector(np.array([scale[0]], np.float32))
                zeros = b.CreateNumpyVector(np.array([scale[1]], np.int64))
                tflite.QuantizationParametersStart(b)
                tflite.QuantizationParametersAddScale(b, scales)
                tflite.QuantizationParametersAddZeroPoint(b, zeros)
                facts = tflite.QuantizationParametersEnd(b)
            tflite.TensorStart(b)
            tflite.TensorAddShape(b, dims)
            tflite.TensorAddType(b, TYPES[dtype])
            tflite.TensorAddBuffer(b, k + 1 if data is not None else 0)
            tflite.TensorAddName(b, label)
            if facts is not None:
                tflite.TensorAddQuantization(b, facts)
            tensors.append(tflite.TensorEnd(b))
        for kind, ins, out, options, fields in steps:
            number = getattr(tflite.BuiltinOperator, kind)
            tflite.OperatorCodeStart(b)
            tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
            tflite.OperatorCodeAddVersion(b, 1)
            tflite.OperatorCodeAddBuiltinCode(b, number)
            codes.append(tflite.OperatorCodeEnd(b))
            input_ids, result, table = self._ints([names.index(i) for i in ins]), self._ints([names.index(out)]), None
            if options:
                held_fields = {f: self._ints(v) if isinstance(v, list) else v for f, v in fields.items()}
                getattr(tflite, f"{options}Start")(b)
                for field, value in held_fields.items():
                    getattr(tflite, f"{options}Add{field}")(b, value)
                table = getattr(tflite, f"{options}End")(b)
            tflite.OperatorStart(b)
            tflite.OperatorAddOpcodeIndex(b, len(codes) - 1)
            tflite.OperatorAddInputs(b, input_ids)
            tflite.OperatorAddOutputs(b, result)
            if table is not None:
                tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, options))
                tflite.OperatorAddBuiltinOptions(b, table)
            operators.append(tflite.OperatorEnd(b))
        listed = [self._list(tensors), self._list(operators)]
        inputs, outs = self._ints([0]), self._ints([names.index(o) for o in outputs])
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, listed[0])
        tflite.SubGraphAddInputs(b, inputs)
        tflite.SubGraphAddOutputs(b, outs)
        tflite.SubGraphAddOperators(b, listed[1])
        graph = self._list([tflite.SubGraphEnd(b)])
        all_codes, all_buffers = self._list(codes), self._list(buffers)
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, all_codes)
        tflite.ModelAddSubgraphs(b, graph)
        tflite.ModelAddBuffers(b, all_buffers)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())


def one(
    kind: str,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    stored: list[np.ndarray],
    options: str = "",
    out_type: str = "float32",
    **fields: Any,
) -> Callable[[], bytes]:
    """A model of one operator on `x`."""

    def make() -> bytes:
        w = Writer()
        w.tensor("x", shape)
        names = [w.stored(f"block/w{k}", value) for k, value in enumerate(stored)]
        w.tensor("block/y", out, out_type)
        return w.write([(kind, ["x", *names], "block/y", options, fields)], ["block/y"])

    return make


def i(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


IMAGE = (1, 9, 8, 4)
MODELS: dict[str, Callable[[], bytes]] = {
    "conv same": one(
        "CONV_2D",
        IMAGE,
        (1, 5, 4, 6),
        [r(6, 3, 3, 4), r(6)],
        "Conv2DOptions",
        Padding=0,
        StrideH=2,
        StrideW=2,
        DilationHFactor=1,
        DilationWFactor=1,
        FusedActivationFunction=1,
    ),
    "conv valid": one(
        "CONV_2D",
        IMAGE,
        (1, 7, 6, 6),
        [r(6, 3, 3, 4), r(6)],
        "Conv2DOptions",
        Padding=1,
        StrideH=1,
        StrideW=1,
        DilationHFactor=1,
        DilationWFactor=1,
    ),
    "depthwise": one(
        "DEPTHWISE_CONV_2D",
        IMAGE,
        (1, 9, 8, 4),
        [r(1, 3, 3, 4), r(4)],
        "DepthwiseConv2DOptions",
        Padding=0,
        StrideH=1,
        StrideW=1,
        DepthMultiplier=1,
        DilationHFactor=1,
        DilationWFactor=1,
        FusedActivationFunction=3,
    ),
    "max pool": one(
        "MAX_POOL_2D",
        IMAGE,
        (1, 5, 4, 4),
        [],
        "Pool2DOptions",
        Padding=0,
        StrideH=2,
        StrideW=2,
        FilterHeight=2,
        FilterWidth=2,
    ),
    "average pool": one(
        "AVERAGE_POOL_2D",
        IMAGE,
        (1, 5, 4, 4),
        [],
        "Pool2DOptions",
        Padding=0,
        StrideH=2,
        StrideW=2,
        FilterHeight=3,
        FilterWidth=3,
    ),
    "fully connected": one("FULLY_CONNECTED", (3, 8), (3, 5), [r(5, 8), r(5)], "FullyConnectedOptions"),
    "mean": one("MEAN", IMAGE, (1, 4), [i(1, 2)], "ReducerOptions", KeepDims=False),
    "reshape": one("RESHAPE", IMAGE, (1, 288), [i(1, 288)], "ReshapeOptions", NewShape=[1, 288]),
    "softmax": one("SOFTMAX", (2, 7), (2, 7), [], "SoftmaxOptions", Beta=1.0),
    "tanh": one("TANH", (2, 7), (2, 7), []),
    "hard swish": one("HARD_SWISH", (2, 7), (2, 7), [], "HardSwishOptions"),
    "add": one("ADD", (2, 7), (2, 7), [r(7)], "AddOptions", FusedActivationFunction=1),
    "pad": one("PAD", IMAGE, (1, 12, 8, 4), [i([0, 0], [1, 2], [0, 0], [0, 0])], "PadOptions"),
    "transpose": one("TRANSPOSE", IMAGE, (1, 4, 9, 8), [i(0, 3, 1, 2)], "TransposeOptions"),
    "strided slice": one(
        "STRIDED_SLICE", IMAGE, (1, 4, 8, 4), [i(0, 1, 0, 0), i(1, 9, 8, 4), i(1, 2, 1, 1)], "StridedSliceOptions"
    ),
    "bilinear": one(
        "RESIZE_BILINEAR",
        IMAGE,
        (1, 18, 16, 4),
        [i(18, 16)],
        "ResizeBilinearOptions",
        AlignCorners=False,
        HalfPixelCenters=True,
    ),
    "nearest": one("RESIZE_NEAREST_NEIGHBOR", IMAGE, (1, 18, 16, 4), [i(18, 16)], "ResizeNearestNeighborOptions"),
    "depth to space": one("DEPTH_TO_SPACE", IMAGE, (1, 18, 16, 1), [], "DepthToSpaceOptions", BlockSize=2),
    "concatenation": one("CONCATENATION", IMAGE, (1, 9, 8, 6), [r(1, 9, 8, 2)], "ConcatenationOptions", Axis=3),
}


def feeds(data: bytes) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {n.name: torch.randn(n.shape, generator=generator) for n in from_tflite(data).inputs}


@pytest.mark.parametrize("name", MODELS)
def test_the_same_as_the_interpreter(name: str) -> None:
    pytest.importorskip("ai_edge_litert")
    data = MODELS[name]()
    inputs = feeds(data)
    (got,) = evaluate(from_tflite(data), inputs).values()
    (want,) = frontend.reference(TFLite(data), tuple(inputs.values()))
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def TFLite(data: bytes) -> Any:
    from tbuda_lab.pybuda.module import TFLiteModule

    return TFLiteModule("m", data)


def classifier() -> bytes:
    w = Writer()
    w.tensor("x", IMAGE)
    w.stored("net/conv/w", r(6, 3, 3, 4))
    w.stored("net/conv/b", r(6))
    w.tensor("net/conv/y", (1, 9, 8, 6))
    w.stored("axes", i(1, 2))
    w.tensor("net/mean/y", (1, 6))
    w.stored("net/head/w", np.arange(-12, 12, dtype=np.int8).reshape(4, 6), scale=(0.05, 0))
    w.tensor("net/head/wd", (4, 6))
    w.tensor("net/head/y", (1, 4))
    conv = dict(Padding=0, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=1)
    return w.write(
        [
            ("CONV_2D", ["x", "net/conv/w", "net/conv/b"], "net/conv/y", "Conv2DOptions", conv),
            ("MEAN", ["net/conv/y", "axes"], "net/mean/y", "ReducerOptions", {"KeepDims": False}),
            ("DEQUANTIZE", ["net/head/w"], "net/head/wd", "", {}),
            ("FULLY_CONNECTED", ["net/mean/y", "net/head/wd"], "net/head/y", "FullyConnectedOptions", {}),
        ],
        ["net/head/y"],
    )


@pytest.mark.e2e
def test_a_model_file_on_the_grid(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "net.tflite").write_bytes(classifier())
    session = Session(str(tmp_path / "net.tflite"), options=CompileOptions(default_df_override=DataFormat.Float32))
    (got,), (want,) = session.run()[0], frontend.reference(session.model, session.sample_inputs)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    graph = session.trace()
    assert {"net/conv/w", "net/head/w"} <= set(graph.nodes)
    assert {n.origin.module for n in graph.ops} == {"net.conv", "net.mean", "net.head"}


UNREAD = {
    "BatchDims": one("GATHER", (2, 5), (2, 3), [i([0, 1, 0], [0, 1, 1])], "GatherOptions", BatchDims=1),
    "Offset": one(
        "STRIDED_SLICE",
        IMAGE,
        (1, 4, 8, 4),
        [i(0, 1, 0, 0), i(1, 8, 8, 4), i(1, 2, 1, 1)],
        "StridedSliceOptions",
        Offset=True,
    ),
    "WeightsFormat": one("FULLY_CONNECTED", (3, 8), (3, 5), [r(5, 8), r(5)], "FullyConnectedOptions", WeightsFormat=1),
}
"""By option a model that has another value of it than the format's default, which nothing here reads."""


@pytest.mark.parametrize("name", UNREAD)
def test_an_option_that_nothing_reads_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedOp, match=name):
        from_tflite(UNREAD[name]())


def test_the_options_of_every_operator_are_known_with_their_defaults() -> None:
    kinds = [k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int) and v]
    fields = {kind: option_fields(getattr(tflite, kind)) for kind in kinds}
    assert len(kinds) > 100 and fields["Conv2DOptions"][:2] == ["Padding", "StrideW"]
    for kind, names in fields.items():
        empty = getattr(tflite, kind)()
        empty.Init(EMPTY, 4)
        assert all(getattr(empty, name)() is not Ellipsis for name in names), kind


def test_what_has_no_form_is_named_and_damage_is_refused() -> None:
    data = one("MATRIX_DIAG", (2, 3), (2, 3, 3), [], "MatrixDiagOptions")()
    with pytest.raises(UnsupportedOp, match=r"block.*tflite\.MATRIX_DIAG"):
        from_tflite(data)
    good = classifier()
    with pytest.raises(ModelError):
        from_tflite(b"no model at all")
    with pytest.raises(ModelError, match="cannot be read"):
        from_tflite("a\0b.tflite")
    for cut in (20, 100, len(good) // 2):
        with pytest.raises((ModelError, UnsupportedOp)):
            from_tflite(good[:cut])


def test_reading_is_heard_of_and_can_be_stopped() -> None:
    heard: list[str] = []
    frontend.from_any(TFLite(classifier()), progress=heard.append)
    assert heard == [f"op {k} of 4" for k in (1, 2, 3, 4)]

    def stop(_: str) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        frontend.from_any(TFLite(classifier()), progress=stop)
