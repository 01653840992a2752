"""ONNX ops that work element by element, comparisons, logic and casts."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx import read
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates
from tbuda_lab.core.ops import Add, HostCall, RoundFloat, Softmax
from tbuda_lab.core.ops.rounding import FORMATS, Bitcast

UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Erfc": "erfc",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hardswish",
    "Log": "log",
    "Mish": "mish",
    "Neg": "neg",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
    "IsNaN": "isnan",
}
BINARY = {
    "Add": "add",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Mul": "mul",
    "Or": "logical_or",
    "And": "logical_and",
    "Pow": "pow",
    "Sub": "sub",
    "Xor": "logical_xor",
}


def _one(op_type: str, name: str) -> None:
    @translates(op_type)
    def translate(n: OnnxNode) -> Any:
        return getattr(n.aten, name)(n.x())


def _two(op_type: str, name: str) -> None:
    @translates(op_type)
    def translate(n: OnnxNode) -> Any:
        y = getattr(n.aten, name)(n.x(0), n.x(1))
        return as_dtype(n, y, n.dtype(0)) if op_type == "Pow" else y


for _op_type, _name in UNARY.items():
    _one(_op_type, _name)
for _op_type, _name in BINARY.items():
    _two(_op_type, _name)


def as_dtype(n: OnnxNode, x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if n.calls.dtype(x) == dtype else n.aten._to_copy(x, dtype=dtype)


@translates("Sign")
def sign(n: OnnxNode) -> Any:
    return n.calls.sign(n.x())


@translates("Div")
def div(n: OnnxNode) -> Any:
    if n.dtype().is_floating_point:
        return n.aten.div(n.x(0), n.x(1))
    return n.aten.div(n.x(0), n.x(1), rounding_mode="trunc")


@translates("Mod")
def mod(n: OnnxNode) -> Any:
    return (n.aten.fmod if n.attr("fmod", 0) else n.aten.remainder)(n.x(0), n.x(1))


@translates("BitwiseNot")
def bitwise_not(n: OnnxNode) -> Any:
    y, kind = n.aten.bitwise_not(n.x()), read.onnx.TensorProto.DataType.Name(n.scope.kind_of(n.proto.input[0]) or 1)
    bits = {"UINT16": 16, "UINT32": 32}.get(kind)  # numbers in a wider type with a sign
    return y if bits is None else n.aten.bitwise_and(y, (1 << bits) - 1)


@translates("BitShift")
def bit_shift(n: OnnxNode) -> Any:
    left = n.attr("direction") == "LEFT"
    return (n.aten.bitwise_left_shift if left else n.aten.bitwise_right_shift)(n.x(0), n.x(1))


@translates("Sum", "Mean", "Max", "Min")
def of_many(n: OnnxNode) -> Any:
    combine = {"Sum": n.aten.add, "Mean": n.aten.add, "Max": n.aten.maximum, "Min": n.aten.minimum}[n.op_type]
    total, *rest = n.xs()
    for x in rest:
        total = combine(total, x)
    return n.aten.mul(total, 1.0 / len(n.operands)) if n.op_type == "Mean" and rest else total


@translates("Where")
def where(n: OnnxNode) -> Any:
    weights = _guarded_softmax(n)
    return weights if weights is not None else n.aten.where(n.x(0), n.x(1), n.x(2))


_HIDDEN = -(2.0**14)
"""A row of scores without a larger one is hidden: the passes make -2^15 of the mask's -inf (`passes/canonical.py`)."""


def _guarded_softmax(n: OnnxNode) -> Any:
    """`Where(IsNaN(s), 0, s)` of a softmax s, as torch exports attention: rows that a mask hides whole are 0. None for
    any other `Where`. The test is on the scores, for the device's softmax gives such rows equal weights and not NaN."""
    condition, zero, weights = n.x(0), n.x(1), n.x(2)
    if not isinstance(condition, AtenValue) or not isinstance(weights, AtenValue) or not isinstance(zero, FoldedValue):
        return None
    graph = n.calls.graph
    test, softmax = graph[condition.name], graph[weights.name]
    if not isinstance(test.op, HostCall) or test.op.call != "isnan" or test.sources != (weights.name,):
        return None
    if not isinstance(softmax.op, Softmax) or bool((zero.tensor != 0).any()):
        return None
    scores = graph[softmax.sources[0]]
    if not isinstance(scores.op, Add):
        return weights  # without a mask no row is hidden
    given = [graph[s].value for s in scores.sources]
    if any(value is not None and bool((value > _HIDDEN).any(-1).all()) for value in given):
        return weights
    largest = n.aten.amax(AtenValue(scores.name, weights.dtype), [softmax.op.dim], True)
    return n.aten.where(n.aten.gt(largest, _HIDDEN), weights, zero)


@translates("Clip")
def clip(n: OnnxNode) -> Any:
    low, high = n.opt(1), n.opt(2)
    if any(v is not None and not isinstance(v, FoldedValue) for v in (low, high)):
        x = n.x() if low is None else n.aten.maximum(n.x(), low)
        return x if high is None else n.aten.minimum(x, high)
    least, most = n.scalar(1, "minimum", n.attr("min")), n.scalar(2, "maximum", n.attr("max"))
    return n.x() if least is None and most is None else n.aten.clamp(n.x(), least, most)


@translates("LeakyRelu")
def leaky_relu(n: OnnxNode) -> Any:
    return n.aten.leaky_relu(n.x(), n.attr("alpha", 0.01))


@translates("ThresholdedRelu")
def thresholded_relu(n: OnnxNode) -> Any:
    return n.aten.where(n.aten.gt(n.x(), n.attr("alpha", 1.0)), n.x(), n.constant(torch.tensor(0.0, dtype=n.dtype())))


@translates("Elu", "Celu", "Selu")
def elu(n: OnnxNode) -> Any:
    if n.op_type == "Selu":
        return n.aten.elu(n.x(), n.attr("alpha", 1.6732632), n.attr("gamma", 1.0507009))
    return (n.aten.elu if n.op_type == "Elu" else n.aten.celu)(n.x(), n.attr("alpha", 1.0))


@translates("PRelu")
def prelu(n: OnnxNode) -> Any:
    """x above zero, slope * x below; the slope broadcasts as NumPy does."""
    return n.aten.add(n.aten.relu(n.x()), n.aten.mul(n.aten.clamp_max(n.x(), 0.0), n.x(1)))


@translates("Gelu")
def gelu(n: OnnxNode) -> Any:
    return n.aten.gelu(n.x(), approximate=n.attr("approximate", "none"))


@translates("Swish")
def swish(n: OnnxNode) -> Any:
    return n.aten.mul(n.x(), n.aten.sigmoid(n.aten.mul(n.x(), n.attr("alpha", 1.0))))


@translates("HardSigmoid")
def hard_sigmoid(n: OnnxNode) -> Any:
    scaled = n.aten.add(n.aten.mul(n.x(), n.attr("alpha", 0.2)), n.attr("beta", 0.5))
    return n.aten.clamp(scaled, 0.0, 1.0)


@translates("Softsign")
def softsign(n: OnnxNode) -> Any:
    return n.aten.div(n.x(), n.aten.add(n.aten.abs(n.x()), 1.0))


@translates("Shrink")
def shrink(n: OnnxNode) -> Any:
    bias, limit, x = n.attr("bias", 0.0), n.attr("lambd", 0.5), n.x()
    zero = n.constant(torch.zeros((), dtype=n.dtype()))
    above = n.aten.where(n.aten.gt(x, limit), n.aten.sub(x, bias), zero)
    return n.aten.where(n.aten.lt(x, -limit), n.aten.add(x, bias), above)


@translates("IsInf")
def is_inf(n: OnnxNode) -> Any:
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if up and down:
        return n.aten.isinf(n.x())
    side = n.aten.gt if up else n.aten.lt
    return n.aten.logical_and(n.aten.isinf(n.x()), side(n.x(), 0.0))


SMALL_INTEGERS = {"INT4": (4, True), "UINT4": (4, False), "INT2": (2, True), "UINT2": (2, False)}
"""By type of a few bits how many, and whether one is a sign; a byte holds one such number."""


@translates("Cast", "CastLike")
def cast(n: OnnxNode) -> Any:
    to = int(n.attr("to", 0)) if n.op_type == "Cast" else n.scope.kind_of(n.proto.input[1])
    return as_kind(n, n.x(), to) if to else as_dtype(n, n.x(), n.dtype(1))


def as_kind(n: OnnxNode, x: Tensor, to: int) -> Tensor:
    """x in an element type of ONNX. Floats of few bits are floats that hold no other numbers."""
    kind = read.onnx.TensorProto.DataType.Name(to)
    if kind in SMALL_INTEGERS:
        bits, signed = SMALL_INTEGERS[kind]
        whole = as_dtype(n, x, torch.int32)
        low = n.aten.bitwise_and(whole, (1 << bits) - 1)
        if signed:
            low = n.aten.sub(n.aten.bitwise_xor(low, 1 << (bits - 1)), 1 << (bits - 1))
        return as_dtype(n, low, torch.int8 if signed else torch.uint8)
    if kind in FORMATS and kind.startswith("FLOAT") and kind != "FLOAT16":
        wide = as_dtype(n, x, torch.float32)
        rounded = RoundFloat(kind, bool(n.attr("saturate", 1)), str(n.attr("round_mode", "up")))
        if isinstance(wide, FoldedValue):
            return n.constant(rounded.evaluate(wide.tensor))
        return AtenValue(n.calls.emit.op(rounded, wide.name), torch.float32)
    if kind.startswith(("FLOAT6", "STRING", "COMPLEX")):
        raise CannotMap(f"a cast to {kind} is not supported")
    if kind == "BFLOAT16":
        return as_dtype(n, x, torch.bfloat16)
    return as_dtype(n, x, read.dtype_of(to))


@translates("BitCast")
def bit_cast(n: OnnxNode) -> Any:
    """Both types by ONNX's names, for torch's says less."""
    names = [
        read.onnx.TensorProto.DataType.Name(kind or 1).lower()
        for kind in (n.scope.kind_of(n.proto.input[0]), int(n.attr("to")))
    ]
    plain = {"float": "float32", "double": "float64"}
    source, target = (plain.get(name, name) for name in names)
    if not all(hasattr(torch, name) for name in (source, target)):
        raise CannotMap(f"bits of {source} read as {target}")
    cast_bits = Bitcast(source, target)
    dtype = torch.bool if target == "bool" else cast_bits.result_dtype((), ())
    if isinstance(value := n.x(), FoldedValue):
        return n.constant(cast_bits.evaluate(value.tensor).to(dtype))
    return AtenValue(n.calls.emit.op(cast_bits, value.name), dtype)


@translates("Optional")
def optional(n: OnnxNode) -> Any:
    return (n.operands[0] if n.operands else None,)


@translates("OptionalHasElement")
def optional_has_element(n: OnnxNode) -> Any:
    return n.constant(torch.tensor(bool(n.operands) and n.operands[0] is not None))


@translates("OptionalGetElement")
def optional_get_element(n: OnnxNode) -> Any:
    if not n.operands or n.operands[0] is None:
        raise CannotMap("the option that it reads is empty")
    return (n.operands[0],)


@translates("Identity")
def identity(n: OnnxNode) -> Any:
    return (n.operands[0],)


@translates("Dropout")
def dropout(n: OnnxNode) -> Any:
    if n.opt(2) is not None and n.scalar(2, "training_mode") and n.scalar(1, "ratio", 0.5):
        raise CannotMap("dropout in training mode draws random numbers; export the model in eval mode")
    return n.x(), n.constant(torch.ones(n.shape(), dtype=torch.bool))
