"""What each TFLite operator means, in calls of aten. Images lie (N, H, W, C)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import Aten, Calls, Tensor
from tbuda_lab.core.graph import NodeKind, Shape

EMPTY = bytearray((4, 0, 4, 0, 4, 0, 0, 0))
"""A table of FlatBuffers without fields: a vtable of two sizes, and behind it the way back to it."""


SHAPE_SAYS = frozenset({"DepthMultiplier", "KeepNumDims", "NewShape", "SqueezeDims", "ValuesCount", "Num"})
"""Options of which the shapes of weights and results, or the numbers of operands and results, tell all."""
SAYS_HOW = frozenset({"AsymmetricQuantizeInputs", "PotScaleInt16", "QuantizedBiasType"})
"""Options of arithmetic in few bits, which is made in floats here."""


def option_fields(kind: type) -> list[str]:
    """Names of the fields of a table of the schema: of a number the method that takes nothing but the table, of a list
    the one that gives it as an array, which is called after it."""
    takes = {k: v.__code__.co_argcount for k, v in vars(kind).items() if hasattr(v, "__code__") and k[0] != "_"}
    lists = {k.removesuffix("AsNumpy") for k in takes if k.endswith("AsNumpy")}
    plain = [k for k, count in takes.items() if count == 1 and not any(k.startswith(name) for name in lists)]
    return [*plain, *(f"{name}AsNumpy" for name in lists if name not in SHAPE_SAYS)]


class _Options:
    """Options that tell which of them is asked for."""

    def __init__(self, options: Any, read: set[str]) -> None:
        self._options, self._read = options, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._options, name)


@dataclasses.dataclass
class Operator:
    """One operator: operands, options read by the schema, shapes of its results."""

    calls: Calls
    schema: Any
    kind: str
    proto: Any
    operands: list[Tensor | None]
    shapes: list[list[int]]
    read: set[str] = dataclasses.field(default_factory=set)
    """Names of the options that a translator has asked for."""

    @property
    def aten(self) -> Aten:
        return self.calls.aten

    def x(self, position: int = 0) -> Tensor:
        value = self.operands[position] if position < len(self.operands) else None
        if value is None:
            raise CannotMap(f"operand {position} is missing")
        return value

    def opt(self, position: int) -> Tensor | None:
        return self.operands[position] if position < len(self.operands) else None

    def shape(self, position: int = 0) -> Shape:
        return self.calls.shape(self.x(position))

    def constant_operand(self, position: int, what: str) -> torch.Tensor:
        value = self.x(position)
        if isinstance(value, FoldedValue):
            return value.tensor
        stored = self.calls.graph[value.name]
        if stored.kind is not NodeKind.PARAMETER or stored.value is None:
            raise CannotMap(f"its {what} depend on an input of the model; they must be known")
        return torch.from_numpy(stored.value)

    def ints(self, position: int, what: str) -> list[int]:
        return [int(n) for n in self.constant_operand(position, what).reshape(-1).tolist()]

    def options(self, kind: str) -> Any:
        """The builtin options as an object of the schema."""
        table = self.proto.BuiltinOptions()
        result = getattr(self.schema, kind)()
        if table is None:
            raise CannotMap(f"it has no {kind}")
        result.Init(table.Bytes, table.Pos)
        return _Options(result, self.read)

    def refuse_unread(self) -> None:
        """Raises `CannotMap` for an option that no translator has asked for and that is not the format's default: it
        would be accepted and ignored."""
        table, kinds = self.proto.BuiltinOptions(), vars(self.schema.BuiltinOptions)
        kind = next((k for k, v in kinds.items() if v == self.proto.BuiltinOptionsType() and v), "")
        if table is None or not kind:
            return
        given, empty = getattr(self.schema, kind)(), getattr(self.schema, kind)()
        given.Init(table.Bytes, table.Pos)
        empty.Init(EMPTY, 4)
        for name in option_fields(type(given)):
            value, default = getattr(given, name)(), getattr(empty, name)()
            if name not in self.read | SHAPE_SAYS | SAYS_HOW and not np.array_equal(value, default):
                raise CannotMap(f"option {name}={value!r} of {kind} has no form here; {default!r} has")

    def has_options(self) -> bool:
        return self.proto.BuiltinOptions() is not None

    def activate(self, y: Tensor, number: int) -> Tensor:
        """The activation that is fused into an operator."""
        if number == 0:
            return y
        if number == 1:
            return self.aten.relu(y)  # type: ignore[no-any-return]
        if number in (2, 3):
            return self.aten.clamp(y, -1.0 if number == 2 else 0.0, 1.0 if number == 2 else 6.0)  # type: ignore[no-any-return]
        if number == 4:
            return self.aten.tanh(y)  # type: ignore[no-any-return]
        raise CannotMap(f"the fused activation {number}")


TABLE: dict[str, Callable[[Operator], Any]] = {}
KINDS = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    9: np.int8,
}
"""Element types of the schema by number."""


def dtype_of_kind(number: int) -> torch.dtype | None:
    kind = KINDS.get(number)
    return None if kind is None else torch.from_numpy(np.zeros(0, kind)).dtype


UNARY = {
    "ABS": "abs",
    "CEIL": "ceil",
    "COS": "cos",
    "EXP": "exp",
    "FLOOR": "floor",
    "HARD_SWISH": "hardswish",
    "LOG": "log",
    "LOGICAL_NOT": "logical_not",
    "LOGISTIC": "sigmoid",
    "NEG": "neg",
    "RELU": "relu",
    "ROUND": "round",
    "RSQRT": "rsqrt",
    "SIN": "sin",
    "SQRT": "sqrt",
    "SQUARE": "square",
    "TANH": "tanh",
    "ZEROS_LIKE": "zeros_like",
}
BINARY = {
    "ATAN2": "atan2",
    "BITWISE_XOR": "bitwise_xor",
    "EQUAL": "eq",
    "FLOOR_MOD": "remainder",
    "GREATER": "gt",
    "GREATER_EQUAL": "ge",
    "LESS": "lt",
    "LESS_EQUAL": "le",
    "LOGICAL_AND": "logical_and",
    "LOGICAL_OR": "logical_or",
    "MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "NOT_EQUAL": "ne",
    "POW": "pow",
    "RIGHT_SHIFT": "bitwise_right_shift",
}
WITH_ACTIVATION = {
    "ADD": ("add", "AddOptions"),
    "SUB": ("sub", "SubOptions"),
    "MUL": ("mul", "MulOptions"),
    "DIV": ("div", "DivOptions"),
}


def translates(*names: str) -> Callable[[Callable[[Operator], Any]], Callable[[Operator], Any]]:
    def register(function: Callable[[Operator], Any]) -> Callable[[Operator], Any]:
        for name in names:
            TABLE[name] = function
        return function

    return register


def _one(kind: str, name: str) -> None:
    TABLE[kind] = lambda o: getattr(o.aten, name)(o.x())


def _two(kind: str, name: str) -> None:
    TABLE[kind] = lambda o: getattr(o.aten, name)(o.x(0), o.x(1))


for _kind, _name in UNARY.items():
    _one(_kind, _name)
for _kind, _name in BINARY.items():
    _two(_kind, _name)


@translates(*WITH_ACTIVATION)
def arithmetic(o: Operator) -> Any:
    name, options = WITH_ACTIVATION[o.kind]
    if o.kind == "DIV" and not o.calls.dtype(o.x()).is_floating_point:
        y = o.aten.div(o.x(0), o.x(1), rounding_mode="trunc")
    else:
        y = getattr(o.aten, name)(o.x(0), o.x(1))
    return o.activate(y, o.options(options).FusedActivationFunction() if o.has_options() else 0)


@translates("QUANTIZE", "DEQUANTIZE", "RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def same_numbers(o: Operator) -> Any:
    """Quantised tensors are floats already, and the file says every shape."""
    return o.x() if list(o.shape()) == o.shapes[0] else o.aten.reshape(o.x(), o.shapes[0])


@translates("CAST")
def cast(o: Operator) -> Any:
    p = o.options("CastOptions")
    dtype = dtype_of_kind(p.OutDataType())
    if dtype is None or p.InDataType() not in KINDS:
        raise CannotMap(f"a cast from type {p.InDataType()} to {p.OutDataType()}")
    return o.aten._to_copy(o.x(), dtype=dtype)


@translates("FLOOR_DIV")
def floor_div(o: Operator) -> Any:
    if o.calls.dtype(o.x()).is_floating_point:  # torch's own takes the remainder off first, which infinities have not
        return o.aten.floor(o.aten.div(o.x(0), o.x(1)))
    return o.aten.div(o.x(0), o.x(1), rounding_mode="floor")


@translates("SIGN")
def sign(o: Operator) -> Any:
    return o.calls.sign(o.x())


@translates("ADD_N")
def add_n(o: Operator) -> Any:
    y = o.x(0)
    for k in range(1, len(o.operands)):
        y = o.aten.add(y, o.x(k))
    return y


@translates("SQUARED_DIFFERENCE")
def squared_difference(o: Operator) -> Any:
    return o.aten.square(o.aten.sub(o.x(0), o.x(1)))


@translates("RELU6", "RELU_N1_TO_1")
def relu6(o: Operator) -> Any:
    return o.activate(o.x(), 3 if o.kind == "RELU6" else 2)


@translates("LEAKY_RELU")
def leaky_relu(o: Operator) -> Any:
    return o.aten.leaky_relu(o.x(), float(o.options("LeakyReluOptions").Alpha()))


@translates("ELU")
def elu(o: Operator) -> Any:
    return o.aten.elu(o.x())


@translates("GELU")
def gelu(o: Operator) -> Any:
    return o.aten.gelu(o.x(), approximate="tanh" if o.options("GeluOptions").Approximate() else "none")


@translates("PRELU")
def prelu(o: Operator) -> Any:
    below = o.aten.neg(o.aten.relu(o.aten.neg(o.x())))
    return o.aten.add(o.aten.relu(o.x()), o.aten.mul(o.x(1), below))


@translates("SOFTMAX", "LOG_SOFTMAX")
def softmax(o: Operator) -> Any:
    if o.kind == "LOG_SOFTMAX":
        return o.aten.log_softmax(o.x(), -1)
    beta, x = float(o.options("SoftmaxOptions").Beta()), o.x()
    if beta != 1.0:  # less the largest, or the product could pass what a float holds
        x = o.aten.mul(o.aten.sub(x, o.aten.amax(x, [-1], True)), beta)
    return o.aten.softmax(x, -1)


@translates("SELECT", "SELECT_V2")
def select(o: Operator) -> Any:
    return o.aten.where(o.x(0), o.x(1), o.x(2))


# -- products, reductions, moves ---------------------------------------------------------------------------------
@translates("FULLY_CONNECTED")
def fully_connected(o: Operator) -> Any:
    p = o.options("FullyConnectedOptions")
    x = o.x()
    width = o.shape(1)[1]
    if o.shape()[-1] != width:
        x = o.aten.reshape(x, [-1, width])
    y = o.aten.linear(x, o.x(1), o.opt(2))
    y = y if list(o.calls.shape(y)) == o.shapes[0] else o.aten.reshape(y, o.shapes[0])
    return o.activate(y, p.FusedActivationFunction())


@translates("BATCH_MATMUL")
def batch_matmul(o: Operator) -> Any:
    p = o.options("BatchMatMulOptions")
    a = o.aten.transpose(o.x(0), -2, -1) if p.AdjX() else o.x(0)
    b = o.aten.transpose(o.x(1), -2, -1) if p.AdjY() else o.x(1)
    return o.aten.matmul(a, b)


@translates("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
def reduce(o: Operator) -> Any:
    name = {"MEAN": "mean", "SUM": "sum", "REDUCE_MAX": "amax", "REDUCE_MIN": "amin"}[o.kind]
    return getattr(o.aten, name)(o.x(), o.ints(1, "axes"), bool(o.options("ReducerOptions").KeepDims()))


@translates("REDUCE_ANY", "REDUCE_ALL", "REDUCE_PROD")
def reduce_one_by_one(o: Operator) -> Any:
    """What torch takes along one dim at a time."""
    name = {"REDUCE_ANY": "any", "REDUCE_ALL": "all", "REDUCE_PROD": "prod"}[o.kind]
    keep, y = bool(o.options("ReducerOptions").KeepDims()), o.x()
    for axis in sorted({a % len(o.shape()) for a in o.ints(1, "axes")}, reverse=True):
        y = getattr(o.aten, name)(y, axis, keep)
    return y


@translates("L2_NORMALIZATION")
def l2_normalisation(o: Operator) -> Any:
    x, p = o.x(), o.options("L2NormOptions")
    length = o.aten.sqrt(o.aten.sum(o.aten.square(x), [-1], True))
    return o.activate(o.aten.div(x, o.aten.clamp(length, 1e-6)), p.FusedActivationFunction())


@translates("REVERSE_V2")
def reverse(o: Operator) -> Any:
    return o.aten.flip(o.x(), o.ints(1, "axes"))


@translates("TOPK_V2")
def top_k(o: Operator) -> Any:
    return list(o.aten.topk(o.x(), o.ints(1, "number")[0], -1))


@translates("ARG_MAX", "ARG_MIN")
def arg_max(o: Operator) -> Any:
    if o.options("ArgMaxOptions" if o.kind == "ARG_MAX" else "ArgMinOptions").OutputType() not in (0, 2, 4):
        raise CannotMap("places of a type that is not int32 or int64")
    x = o.x() if o.kind == "ARG_MAX" else o.aten.neg(o.x())
    return o.aten.argmax(x, o.ints(1, "axis")[0])


@translates("CUMSUM")
def cumsum(o: Operator) -> Any:
    return o.aten.cumsum(o.x(), o.ints(1, "axis")[0])


@translates("CONCATENATION")
def concatenation(o: Operator) -> Any:
    p = o.options("ConcatenationOptions")
    return o.activate(o.aten.cat([o.x(k) for k in range(len(o.operands))], p.Axis()), p.FusedActivationFunction())


@translates("PACK")
def pack(o: Operator) -> Any:
    return o.aten.stack([o.x(k) for k in range(len(o.operands))], o.options("PackOptions").Axis())


@translates("UNPACK")
def unpack(o: Operator) -> Any:
    return list(o.aten.unbind(o.x(), o.options("UnpackOptions").Axis()))


@translates("SPLIT", "SPLIT_V")
def split(o: Operator) -> Any:
    if o.kind == "SPLIT":
        axis = o.ints(0, "axis")[0]
        return list(o.aten.split_with_sizes(o.x(1), [s[axis] for s in o.shapes], axis))
    return list(o.aten.split_with_sizes(o.x(0), o.ints(1, "sizes"), o.ints(2, "axis")[0]))


@translates("TRANSPOSE")
def transpose(o: Operator) -> Any:
    return o.aten.permute(o.x(), o.ints(1, "order"))


@translates("PAD", "PADV2", "MIRROR_PAD")
def pad(o: Operator) -> Any:
    pairs = o.constant_operand(1, "paddings").reshape(-1, 2).tolist()
    if o.kind == "MIRROR_PAD":
        edge = 1 if o.options("MirrorPadOptions").Mode() == 1 else 0  # 0 reflects without the edge, 1 with it
        x = o.x()
        for d, (before, after) in enumerate(pairs):
            size = o.calls.shape(x)[d]
            if before or after:
                ahead = [before - 1 - k if edge else before - k for k in range(before)]
                behind = [size - 1 - k if edge else size - 2 - k for k in range(after)]
                at = torch.tensor([*ahead, *range(size), *behind])
                x = o.aten.index_select(x, d, o.calls.constant(at))
        return x
    value = float(o.constant_operand(2, "value").reshape(-1)[0]) if o.kind == "PADV2" else 0.0
    return o.aten.constant_pad_nd(o.x(), [int(p) for pair in reversed(pairs) for p in pair], value)


@translates("SLICE")
def slice_(o: Operator) -> Any:
    x = o.x()
    for d, (start, size) in enumerate(zip(o.ints(1, "starts"), o.shapes[0], strict=True)):
        x = o.aten.slice(x, d, start, start + size)
    return x


@translates("STRIDED_SLICE")
def strided_slice(o: Operator) -> Any:
    p = o.options("StridedSliceOptions")
    if p.EllipsisMask() or p.NewAxisMask():
        raise CannotMap("a strided slice with an ellipsis or new axes")
    x = o.x()
    starts, stops, steps = o.ints(1, "starts"), o.ints(2, "ends"), o.ints(3, "steps")
    for d, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        size = o.shape()[d]
        if p.ShrinkAxisMask() >> d & 1:
            start = start + size if start < 0 else start
            x = o.aten.slice(x, d, start, start + 1)
            continue
        first = None if p.BeginMask() >> d & 1 else start
        last = None if p.EndMask() >> d & 1 else stop
        at = range(*slice(first, last, step).indices(size))
        if list(at) != list(range(size)):
            x = o.aten.index_select(x, d, o.calls.constant(torch.tensor(list(at), dtype=torch.int64)))
    return x if list(o.calls.shape(x)) == o.shapes[0] else o.aten.reshape(x, o.shapes[0])


@translates("GATHER", "EMBEDDING_LOOKUP")
def gather(o: Operator) -> Any:
    table, at = (o.x(1), o.x(0)) if o.kind == "EMBEDDING_LOOKUP" else (o.x(0), o.x(1))
    axis = 0 if o.kind == "EMBEDDING_LOOKUP" else o.options("GatherOptions").Axis()
    shape = list(o.calls.shape(table))
    axis %= len(shape)
    if isinstance(at, AtenValue) and axis == 0 and len(shape) == 2:
        return o.aten.embedding(table, at)
    rows = o.aten.index_select(table, axis, o.aten.reshape(at, [-1]))
    return o.aten.reshape(rows, [*shape[:axis], *o.calls.shape(at), *shape[axis + 1 :]])


@translates("TILE")
def tile(o: Operator) -> Any:
    return o.aten.repeat(o.x(), o.ints(1, "multiples"))


@translates("BROADCAST_TO")
def broadcast_to(o: Operator) -> Any:
    return o.aten.expand(o.x(), o.ints(1, "shape"))


@translates("SHAPE")
def shape(o: Operator) -> Any:
    return o.calls.constant(torch.tensor(o.shape(), dtype=torch.int32))
