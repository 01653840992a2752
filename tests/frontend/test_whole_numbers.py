"""Whole numbers beyond what float32 counts to, and beyond what 16 bits do, through every front: those of JAX, ONNX
Runtime, LiteRT and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.tflite_model import from_tflite
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.pybuda.module import JaxModule
from tests.e2e.test_whole_numbers import words
from tests.frontend.ops_zoo import Fn
from tests.frontend.test_tflite_models import Writer, i

FLOATS = CompileOptions(default_df_override=DataFormat.Float32)
SHAPE = (1, 6, 12)
X, Z = words(*SHAPE), torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
BIG = 16777219


def runs_as(model: Any, inputs: tuple[torch.Tensor, ...], wanted: Any, options: CompileOptions = FLOATS) -> None:
    """The first output of a session is `wanted`, to the last digit and in its type."""
    want = wanted if isinstance(wanted, torch.Tensor) else torch.from_numpy(np.array(wanted))
    got = Session(model, inputs, options=options, cache=False).run([inputs])[0][0]
    assert got.dtype == want.dtype and torch.equal(got.reshape(want.shape), want)


def jax() -> Any:
    return pytest.importorskip("jax")


JAX: dict[str, Callable[[Any, Any], Any]] = {
    "running sum": lambda n, x: n.cumsum(x, -1),
    "product": lambda n, x: x[..., :3].prod(-1),
    "square": lambda n, x: x**2,
    "sum": lambda n, x: x.sum(-1),
    "difference": lambda n, x: x - BIG,
    "quotient": lambda n, x: x // 7,
    "comparison": lambda n, x: x >= BIG,
    "place": lambda n, x: n.argmax(x, -1),
    "byte": lambda n, x: x.astype(n.uint8),
    "shift": lambda n, x: x >> 3,
    "shift without a sign": lambda n, x: jax().lax.shift_right_logical(x, 3),
    "the largest": lambda n, x: jax().lax.top_k(x, 3)[0],
    "places of the largest": lambda n, x: jax().lax.top_k(x, 3)[1],
}


@pytest.mark.parametrize("name", JAX)
def test_numbers_of_inputs_are_jaxs(name: str) -> None:
    """The device has something to do beside."""
    numpy = jax().numpy
    want = JAX[name](numpy, numpy.asarray(X.numpy()))
    runs_as(JaxModule("m", lambda x, z: (JAX[name](numpy, x), z * 2)), (X, Z), want)


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "a multiple": lambda n, c: c * BIG,
    "a sum": lambda n, c: c + BIG,
    "a difference": lambda n, c: BIG - c,
    "a sum of multiples": lambda n, c: (c * BIG).sum(-1),
    "a running sum": lambda n, c: n.cumsum(c * BIG, -1),
    "a square": lambda n, c: (c + 70001) ** 2,
    "a choice": lambda n, c: n.where(c > 0, BIG, BIG - 2),
    "the larger": lambda n, c: n.maximum(c, n.asarray(BIG, dtype=n.int32)),
    "side by side": lambda n, c: n.concatenate([c, n.full(SHAPE, BIG, dtype=n.int32)], -1),
}
"""Of counts that the device makes."""


@pytest.mark.parametrize("name", MADE)
def test_numbers_of_what_the_device_counts_are_jaxs(name: str) -> None:
    numpy = jax().numpy

    def function(z: Any) -> Any:
        return MADE[name](numpy, (z > 0).astype(numpy.int32))

    runs_as(JaxModule("m", function), (Z,), function(numpy.asarray(Z.numpy())))


@pytest.mark.parametrize("number", [1001, BIG])
@pytest.mark.parametrize("name", MADE)
def test_numbers_of_what_the_device_counts_are_torchs(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of four digits in a format that counts to 256, which is the default one."""
    monkeypatch.setattr(f"{__name__}.BIG", number)
    options = FLOATS if number == BIG and number > 2**24 else CompileOptions()

    def function(z: torch.Tensor) -> Any:
        return MADE[name](torch, (z > 0).int())

    runs_as(Fn(function), (Z,), function(Z), options)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_wide_numbers_without_sign_are_refused_of_jax(dtype: Any) -> None:
    jax()
    with pytest.raises(InputError, match="has no arithmetic here; give int32"):
        Session(JaxModule("m", lambda x, z: (x + 1, z * 2)), (np.ones(SHAPE, dtype), Z), options=FLOATS).compile()


ONNX: dict[str, tuple[list[tuple[str, list[str], str]], int]] = {
    "square": ([("Pow", ["x", "two"], "y")], 6),
    "powers": ([("Pow", ["x", "some"], "y")], 6),
    "product": ([("Mul", ["x", "big"], "y")], 6),
    "a multiple of a count": ([("Mul", ["c", "big"], "y")], 6),
    "a sum of a count": ([("Add", ["c", "big"], "y")], 6),
    "a running sum of a count": ([("Mul", ["c", "big"], "m"), ("CumSum", ["m", "axis"], "y")], 6),
    "a choice": ([("Where", ["b", "big", "two"], "y")], 6),
    "float16 and back": ([("Cast 10", ["z"], "h"), ("Cast 1", ["h"], "y")], 1),
}


@pytest.mark.parametrize("name", ONNX)
def test_numbers_are_onnxruntimes(name: str) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    made, kind = ONNX[name]
    stored = {
        "two": np.array([2], np.int32),
        "some": np.array([2, 3] * 6, np.int32),
        "big": np.array([BIG], np.int32),
        "zero": np.array([0], np.float32),
        "axis": np.array(2),
    }
    steps = [("Greater", ["z", "zero"], "b"), ("Cast 6", ["b"], "c"), *made, ("Add", ["z", "z"], "r")]
    nodes = [
        onnx.helper.make_node(op.split()[0], ins, [out], **({"to": int(op.split()[1])} if " " in op else {}))
        for op, ins, out in steps
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "numbers",
        [onnx.helper.make_tensor_value_info("x", 6, SHAPE), onnx.helper.make_tensor_value_info("z", 1, SHAPE)],
        [onnx.helper.make_tensor_value_info("y", kind, None), onnx.helper.make_tensor_value_info("r", 1, None)],
        [onnx.numpy_helper.from_array(v, k) for k, v in stored.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    judge = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = X % 1290  # whose cubes an int32 holds
    runs_as(model, (x, Z), judge.run(["y"], {"x": x.numpy(), "z": Z.numpy()})[0])


TFLITE: dict[str, tuple[str, list[np.ndarray], str, dict[str, Any], tuple[int, ...], str]] = {
    "sum": ("ADD", [i(BIG)], "AddOptions", {}, SHAPE, "int32"),
    "product": ("MUL", [i(7)], "MulOptions", {}, SHAPE, "int32"),
    "quotient": ("DIV", [i(7)], "DivOptions", {}, SHAPE, "int32"),
    "floor of a quotient": ("FLOOR_DIV", [i(7)], "FloorDivOptions", {}, SHAPE, "int32"),
    "remainder": ("FLOOR_MOD", [i(7)], "FloorModOptions", {}, SHAPE, "int32"),
    "square": ("POW", [i(2)], "PowOptions", {}, SHAPE, "int32"),
    "sum of rows": ("SUM", [i(2)], "ReducerOptions", {}, (1, 6), "int32"),
    "product of rows": ("REDUCE_PROD", [i(2)], "ReducerOptions", {}, (1, 6), "int32"),
    "running sum": ("CUMSUM", [i(2)], "CumsumOptions", {}, SHAPE, "int32"),
    "place": ("ARG_MAX", [i(2)], "ArgMaxOptions", {"OutputType": 2}, (1, 6), "int32"),
    "bits": ("BITWISE_XOR", [i(BIG)], "BitwiseXorOptions", {}, SHAPE, "int32"),
    "shift": ("RIGHT_SHIFT", [i(3)], "RightShiftOptions", {}, SHAPE, "int32"),
    "floats": ("CAST", [], "CastOptions", {"InDataType": 2, "OutDataType": 0}, SHAPE, "float32"),
    "bytes": ("CAST", [], "CastOptions", {"InDataType": 2, "OutDataType": 9}, SHAPE, "int8"),
}


@pytest.mark.parametrize("name", TFLITE)
def test_numbers_are_litert_s(name: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    kind, stored, options, fields, shape, out = TFLITE[name]
    w = Writer()
    w.tensor("x", SHAPE, "int32")
    names = [w.stored(f"w{k}", value) for k, value in enumerate(stored)]
    w.tensor("y", shape, out)
    data = w.write([(kind, ["x", *names], "y", options, fields)], ["y"])
    judge = litert.Interpreter(model_content=data)
    judge.allocate_tensors()
    judge.set_tensor(judge.get_input_details()[0]["index"], X.numpy())
    judge.invoke()
    want = torch.from_numpy(judge.get_tensor(judge.get_output_details()[0]["index"]))
    graph = from_tflite(data)
    (have,) = evaluate(graph, {graph.inputs[0].name: X}).values()
    assert torch.equal(have.double().reshape(want.shape), want.double())
    assert graph.outputs[0].attrs["dtype"] == out
