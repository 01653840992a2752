"""A part of the sweep of `python -m tests.values`; the rules that it names are those of docs/numbers.md."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.frontend.machine_rules import RULES, explained
from tbuda_lab.core.frontend.tflite_model import from_tflite
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.session import Session
from tbuda_lab.core.verification import compare_tensors
from tbuda_lab.pybuda.module import JaxModule
from tests.frontend.ops_zoo import Fn
from tests.frontend.test_tflite_models import Writer
from tests.values.sweep import EXACT, INF, NAMED, OPTIONS, VALUES, differences, tensor_with

DOCUMENT = Path(__file__).parents[2] / "docs" / "numbers.md"
MODULES = [*list(EXACT)[::5], "pad -inf then max pool", "cumsum", "average pool", "ge other", "or of truths", "kl_div"]


@pytest.mark.parametrize("name", sorted(set(MODULES)))
def test_special_values_are_torchs(name: str) -> None:
    assert differences(name, EXACT[name]) == []


OWN_RULES = {("hardswish", 3e38), ("argmax", "nan"), ("argmin", "nan")}
"""Where the graph itself has the machine's rule: no product overflows between, a row with NaN has place 0."""


@pytest.mark.parametrize("name", sorted(set([*MODULES, "tril", "relu", *NAMED])))
def test_a_traced_graph_makes_of_special_values_what_torch_does(name: str) -> None:
    """In the evaluator that audits and host recipes use, which follows IEEE."""
    function = EXACT.get(name) or NAMED[name][1]
    module = (function if isinstance(function, torch.nn.Module) else Fn(function)).eval()
    graph = from_torch(module, (tensor_with(0.5),))
    wrong = []
    for value in VALUES:
        x = tensor_with(value)
        with torch.no_grad():
            want = module(x)
        (have,) = evaluate(graph, {graph.inputs[0].name: x}).values()
        if not torch.allclose(have.double(), want.double(), rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append((name, "nan" if math.isnan(value) else value))
    assert set(wrong) - OWN_RULES == set()


ONNX = {
    "Relu": (),
    "Sign": (),
    "Resize": (np.array([], np.float32), np.array([1, 1.5, 2], np.float32)),
    "CumSum exclusive": (np.array(2),),
    "Neg": (),
    "Softmax": (),
    "Clip": (np.float32(-1), np.float32(1)),
    "Add": (np.linspace(-2, 2, 12, dtype=np.float32),),
    "Max": (np.linspace(-2, 2, 12, dtype=np.float32),),
    "LessOrEqual": (np.linspace(-2, 2, 12, dtype=np.float32),),
    "ReduceSum": (np.array([2]),),
    "ReduceMean": (np.array([1]),),
    "CumSum": (np.array(2),),
}
"""By op of ONNX what it takes beside the values."""


@pytest.mark.parametrize("name", ONNX)
def test_special_values_are_onnxruntimes(name: str) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    stored = [onnx.numpy_helper.from_array(v, f"c{k}") for k, v in enumerate(ONNX[name])]
    kind = onnx.TensorProto.BOOL if name == "LessOrEqual" else onnx.TensorProto.FLOAT
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 6, 12])
    made = onnx.helper.make_tensor_value_info("y", kind, None)
    attributes = {"exclusive": 1} if "exclusive" in name else {}
    node = onnx.helper.make_node(name.split()[0], ["x", *(s.name for s in stored)], ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "values", [given], [made], stored)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    judge = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = [tensor_with(v) for v in VALUES]
    for x, (have, *_) in zip(
        inputs, Session(model, (inputs[6],), options=OPTIONS).run([(x,) for x in inputs]), strict=True
    ):
        want = torch.from_numpy(judge.run(None, {"x": x.numpy()})[0])
        torch.testing.assert_close(have.to(want.dtype), want, rtol=1e-4, atol=1e-5, equal_nan=True)


JAX: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda n, nn, x: nn.relu(x),
    "softmax": lambda n, nn, x: nn.softmax(x),
    "softmax of columns": lambda n, nn, x: nn.softmax(x, -2),
    "softmax of some": lambda n, nn, x: nn.softmax(x, where=n.arange(12) < 7),
    "softmax of nothing": lambda n, nn, x: nn.softmax(n.where(n.arange(6)[:, None] == 2, -INF, x)),
    "log softmax": lambda n, nn, x: nn.log_softmax(x),
    "logsumexp": lambda n, nn, x: nn.logsumexp(x, -1),
    "logsumexp of all": lambda n, nn, x: nn.logsumexp(x, keepdims=True),
    "kept dims": lambda n, nn, x: nn.logsumexp(x, -1, keepdims=True),
    "kept dims of two": lambda n, nn, x: nn.logsumexp(x, (1, 2), keepdims=True),
    "less its logsumexp": lambda n, nn, x: x - nn.logsumexp(x, -1, keepdims=True),
    "weighted": lambda n, nn, x: nn.logsumexp(x, -1, b=n.abs(n.linspace(-1, 1, 12))),
    "logsumexp of some": lambda n, nn, x: nn.logsumexp(x, -1, where=n.arange(12) < 7),
    "logaddexp": lambda n, nn, x: n.logaddexp(x, x[..., ::-1]),
    "sign": lambda n, nn, x: n.sign(x),
    "max pool": lambda n, nn, x: pooled(x, -INF, "max", "SAME"),
    "max pool of nothing": lambda n, nn, x: pooled(n.where(x < 3e38, -INF, x), -INF, "max", "SAME"),
    "min pool": lambda n, nn, x: pooled(x, INF, "min", "SAME"),
    "min pool inside": lambda n, nn, x: pooled(x, INF, "min", "VALID"),
    "bfloat16 and back": lambda n, nn, x: x.astype(n.bfloat16).astype(n.float32),
    "float16 and back": lambda n, nn, x: x.astype(n.float16).astype(n.float32),
}


def pooled(x: Any, start: float, kind: str, padding: str) -> Any:
    lax = pytest.importorskip("jax").lax
    return lax.reduce_window(x[..., None], start, getattr(lax, kind), (1, 3, 2, 1), (1, 2, 2, 1), padding)


@pytest.mark.parametrize("name", JAX)
def test_special_values_are_jaxs(name: str) -> None:
    jax = pytest.importorskip("jax")
    function = functools.partial(JAX[name], jax.numpy, jax.nn)
    inputs = [tensor_with(v) for v in VALUES]
    session = Session(JaxModule("m", lambda x: function(x)), (inputs[6],), options=OPTIONS)
    for x, (have, *_) in zip(inputs, session.run([(x,) for x in inputs]), strict=True):
        want = torch.from_numpy(np.array(function(jax.numpy.asarray(x.numpy()))))
        torch.testing.assert_close(have.to(want.dtype), want, rtol=1e-4, atol=1e-5, equal_nan=True)


TFLITE: dict[str, tuple[str, tuple[int, ...], list[np.ndarray], dict[str, Any]]] = {
    "SIGN": ("SignOptions", (1, 6, 12), [], {}),
    "SOFTMAX": ("SoftmaxOptions", (1, 6, 12), [], {"Beta": 1.0}),
    "LOG_SOFTMAX": ("LogSoftmaxOptions", (1, 6, 12), [], {}),
    "ADD": ("AddOptions", (1, 6, 12), [np.linspace(-2, 2, 12, dtype=np.float32)], {"FusedActivationFunction": 3}),
    "FLOOR_DIV": ("FloorDivOptions", (1, 6, 12), [np.array([3], np.float32)], {}),
    "MEAN": ("ReducerOptions", (1, 6), [np.array([2], np.int32)], {}),
    "REDUCE_PROD": ("ReducerOptions", (1, 6), [np.array([2], np.int32)], {}),
    "CUMSUM": ("CumsumOptions", (1, 6, 12), [np.array([2], np.int32)], {}),
    "REVERSE_V2": ("ReverseV2Options", (1, 6, 12), [np.array([2], np.int32)], {}),
    "L2_NORMALIZATION": ("L2NormOptions", (1, 6, 12), [], {}),
    "PADV2": (
        "PadV2Options",
        (1, 6, 15),
        [np.array([[0, 0], [0, 0], [1, 2]], np.int32), np.array([-INF], np.float32)],
        {},
    ),
}


@pytest.mark.parametrize("name", TFLITE)
def test_special_values_are_litert_s(name: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    options, shape, stored, fields = TFLITE[name]
    w = Writer()
    w.tensor("x", (1, 6, 12))
    names = [w.stored(f"w{k}", value) for k, value in enumerate(stored)]
    w.tensor("y", shape)
    data = w.write([(name, ["x", *names], "y", options, fields)], ["y"])
    judge = litert.Interpreter(model_content=data)
    judge.allocate_tensors()
    graph = from_tflite(data)
    for x in map(tensor_with, VALUES):
        judge.set_tensor(judge.get_input_details()[0]["index"], x.numpy())
        judge.invoke()
        want = torch.from_numpy(judge.get_tensor(judge.get_output_details()[0]["index"]))
        (have,) = evaluate(graph, {graph.inputs[0].name: x}).values()
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_rule_is_written_down() -> None:
    text = DOCUMENT.read_text()
    assert [rule for rule, _ in NAMED.values() if f"| **{rule}** |" not in text] == []


VERIFIED = {
    "times a mask": -INF,
    "times 0": -INF,
    "silu": -INF,
    "gelu": -INF,
    "hardswish": -INF,
    "mish": -INF,
    "reciprocal": 0.0,
    "rsqrt": 0.0,
    "log": 0.0,
    "exp": 40000.0,
    "expm1": INF,
    "argmax": math.nan,
    "argmin": math.nan,
    "group norm": INF,
    "layer norm": 3e38,
    "instance norm": 3e38,
    "normalize": INF,
}
"""By module of `NAMED` a value for which verify has to say the rule."""


@pytest.mark.parametrize("name", VERIFIED)
def test_verify_says_which_rule_makes_a_difference(name: str) -> None:
    rule, function = NAMED[name]
    module = (function if isinstance(function, torch.nn.Module) else Fn(function)).eval()
    session = Session(module, (tensor_with(0.5),), options=OPTIONS)
    (verdict,) = session.verify((tensor_with(VERIFIED[name]),))
    assert (verdict.passes(0.99), verdict.rule) == (False, rule)
    (verdict,) = session.verify((tensor_with(0.25),))
    assert (verdict.passes(0.99), verdict.rule) == (True, "")


def test_a_fault_has_no_rule() -> None:
    """One that no arithmetic of the machine explains, beside a zero that it would."""
    x = tensor_with(0.0)
    (verdict,) = explained([compare_tensors("y", x + 1, x)], [x], Fn(lambda x: (x * 0).exp() + x), (x,), 0.99)
    assert verdict.rule == ""
    assert set(RULES) <= {line.split("**")[1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| **")}


def test_a_difference_is_seen() -> None:
    """The machine's own 1 / 0 is one."""
    assert {d.value for d in differences("reciprocal", NAMED["reciprocal"][1])} == {0.0}


def test_memory_that_is_written_in_parts_holds_what_was_written() -> None:
    def in_parts(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        y[..., :32] = x[..., :32]
        y[..., 32:] = 2.0
        return y * 1.0

    x = torch.randn(1, 4, 64)
    session = Session(Fn(in_parts), (x,), options=OPTIONS)
    assert torch.equal(session.run()[0][0], torch.cat([x[..., :32], torch.full((1, 4, 32), 2.0)], -1))
    stored = [n.value for n in session.graph("traced").nodes.values() if n.value is not None and n.value.size > 1]
    assert all(((v == 0) | (v == 2)).all() for v in stored)


def test_float64_is_a_rule() -> None:
    module, x = Fn(lambda x: (x * 1e-9 + 1) - 1), tensor_with(0.5).double()
    (verdict,) = Session(module, (x,), options=OPTIONS, cache=False).verify()
    assert (verdict.passes(0.99), verdict.rule) == (False, "float64")
