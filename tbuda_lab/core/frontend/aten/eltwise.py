"""Element-wise aten ops."""

from __future__ import annotations

import math
from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import Call, CannotMap, FoldedValue, Result, maps
from tbuda_lab.core.frontend.aten.host import host_call
from tbuda_lab.core.graph import NodeKind, Op
from tbuda_lab.core.graph.phases import DROPOUT
from tbuda_lab.core.ops import (
    Abs,
    Add,
    Cast,
    Clip,
    Cosine,
    Divide,
    Equal,
    Erf,
    Exp,
    FloorDivide,
    Gelu,
    GradientSeed,
    Greater,
    GreaterEqual,
    LeakyRelu,
    Less,
    LessEqual,
    Log,
    LogicalAnd,
    LogicalNot,
    Maximum,
    Minimum,
    Multiply,
    NotEqual,
    OwnGradient,
    Reciprocal,
    ReduceAvg,
    ReduceSum,
    Relu,
    Remainder,
    RoundTo,
    RoundWhole,
    Sigmoid,
    Sine,
    Sqrt,
    StopGradient,
    Subtract,
    Tanh,
    Where,
)

UNARY: dict[str, Op] = {
    "aten.relu": Relu(),
    "aten.sigmoid": Sigmoid(),
    "aten.tanh": Tanh(),
    "aten.exp": Exp(),
    "aten.log": Log(),
    "aten.abs": Abs(),
    "aten.sqrt": Sqrt(),
    "aten.reciprocal": Reciprocal(),
    "aten.sin": Sine(),
    "aten.cos": Cosine(),
    "aten.erf": Erf(),
    "aten.logical_not": LogicalNot(),
    "aten.relu6": Clip(0.0, 6.0, True),
}
BINARY: dict[str, Op] = {
    "aten.mul": Multiply(),
    "aten.maximum": Maximum(),
    "aten.max.other": Maximum(),
    "aten.minimum": Minimum(),
    "aten.min.other": Minimum(),
    "aten.eq": Equal(),
    "aten.ne": NotEqual(),
    "aten.lt": Less(),
    "aten.le": LessEqual(),
    "aten.gt": Greater(),
    "aten.ge": GreaterEqual(),
    "aten.logical_and": LogicalAnd(),
}


def _unary(name: str, op: Op) -> None:
    @maps(name)
    def mapping(c: Call) -> str:
        return c.op(op, c.x())


def _binary(name: str, op: Op) -> None:
    @maps(name)
    def mapping(c: Call) -> str:
        return c.op(op, c.x(), c.x("other"))


for _name, _op in UNARY.items():
    _unary(_name, _op)
for _name, _op in BINARY.items():
    _binary(_name, _op)


def times(c: Call, x: str, factor: float) -> str:
    """x * factor, or x itself for factor 1. Whole numbers are multiplied by whole ones."""
    if factor == 1:
        return x
    whole = c.counts() and float(factor).is_integer()
    return c.op(Multiply(), x, c.constant(torch.tensor([int(factor)]) if whole else float(factor)))


def sigmoid_of_three(c: Call, x: str) -> str:
    """clip(x + 3, 0, 6) / 6, the "hard" sigmoid."""
    return times(c, c.op(Clip(0.0, 6.0, True), c.op(Add(), x, c.constant(3.0))), 1 / 6)


@maps("aten.add", "aten.sub", "aten.rsub")
def add_or_subtract(c: Call) -> str:
    a, b = c.arguments["self"], c.arguments["other"]
    name = c.target._schema.name
    if name == "aten::add" and c.out.dtype == torch.bool:  # torch's sum of truth values is one
        return either(c, c.node_of(a), c.node_of(b))
    if name == "aten::rsub":
        return c.op(Subtract(), c.node_of(b), times(c, c.node_of(a), c.get("alpha", 1)))
    second = times(c, c.node_of(b), c.get("alpha", 1))
    return c.op(Add() if name == "aten::add" else Subtract(), c.node_of(a), second)


@maps("aten.div", "aten.true_divide")
def divide(c: Call) -> str:
    rounding = c.get("rounding_mode")
    if rounding == "floor" and not c.out.dtype.is_floating_point:
        return c.op(FloorDivide(), c.x(), _integer(c, "other"))
    if rounding is not None:
        return one(host_call(c))
    constant = c.folded_value("other")
    number = constant.item() if constant is not None and constant.numel() == 1 else c.arguments["other"]
    if isinstance(number, int | float) and number == 1 and not c.counts():
        return c.x()
    divisor = c.constant(float(number)) if isinstance(number, int | float) else c.x("other")
    return c.op(Divide(), c.x(), divisor)


@maps("aten.fake_quantize_per_tensor_affine", "aten.fake_quantize_per_tensor_affine_cachemask")
def fake_quantised(c: Call) -> Any:
    """((round(x / scale) + zero) cut to its limits, less zero) * scale; the mask of what is not cut beside it."""
    known = [c.arguments[name] for name in ("scale", "zero_point")]
    known = [v.tensor.item() if isinstance(v, FoldedValue) and v.tensor.numel() == 1 else v for v in known]
    low, high = (c.arguments[name] for name in ("quant_min", "quant_max"))
    if c.emit.keeps_stops or not all(isinstance(v, int | float) for v in known):
        return host_call(c)
    scale, zero = known
    least, most = float(low - zero), float(high - zero)
    bits = int(max(abs(least), abs(most))).bit_length()
    if bits > LARGEST_ROUNDED:
        return host_call(c)
    inverse = float(torch.tensor(1.0) / torch.tensor(scale))
    steps = c.op(RoundWhole(bits), c.op(Clip(least, most), times(c, c.x(), inverse)))
    result = times(c, steps, float(scale))
    return (result, None) if isinstance(c.out, tuple | list) else result


LARGEST_ROUNDED = 10
"""Bits of the whole numbers that the device rounds to."""


@maps("aten.remainder", "aten.floor_divide")
def of_integers(c: Call) -> str:
    """What the host does; numbers of the device are never rounded to whole ones."""
    op = Remainder() if c.target._schema.name == "aten::remainder" else FloorDivide()
    return c.op(op, c.x(), _integer(c, "other"))


def _integer(c: Call, name: str) -> str:
    """An integer operand; a number becomes a constant that stays one."""
    value = c.arguments[name]
    return c.constant(torch.tensor(value)) if isinstance(value, int) else c.x(name)


@maps("aten.neg")
def negate(c: Call) -> str:
    return times(c, c.x(), -1.0)


@maps("aten.square")
def square(c: Call) -> str:
    return c.op(Multiply(), c.x(), c.x())


@maps("aten.rsqrt")
def rsqrt(c: Call) -> str:
    return c.op(Reciprocal(), c.op(Sqrt(), c.x()))


@maps("aten.log2", "aten.log10", "aten.log1p", "aten.expm1", "aten.exp2")
def log_or_exp(c: Call) -> str:
    name, x = c.target._schema.name, c.x()
    if name == "aten::log1p":
        return c.op(Log(), c.op(Add(), x, c.constant(1.0)))
    if name == "aten::expm1":
        return c.op(Add(), c.op(Exp(), x), c.constant(-1.0))
    if name == "aten::exp2":
        return c.op(Exp(), times(c, x, math.log(2.0)))
    return times(c, c.op(Log(), x), 1.0 / math.log(2.0 if name == "aten::log2" else 10.0))


@maps("aten.clamp", "aten.clip", "aten.clamp_min", "aten.clamp_max", "aten.hardtanh")
def clamp(c: Call) -> str:
    if c.target._schema.name == "aten::hardtanh":
        return c.op(Clip(float(c.get("min_val")), float(c.get("max_val")), True), c.x())
    low, high = c.arguments.get("min"), c.arguments.get("max")
    if any(v is not None and not isinstance(v, int | float) for v in (low, high)):
        x = c.x() if low is None else c.op(Maximum(), c.x(), c.x("min"))
        return x if high is None else c.op(Minimum(), x, c.x("max"))
    if c.counts():
        x = c.x() if low is None else c.op(Maximum(), c.x(), c.node_of(low))
        return x if high is None else c.op(Minimum(), x, c.node_of(high))
    return c.op(Clip(None if low is None else float(low), None if high is None else float(high)), c.x())


@maps("aten.leaky_relu")
def leaky_relu(c: Call) -> str:
    return c.op(LeakyRelu(float(c.get("negative_slope"))), c.x())


@maps("aten.rrelu")
def rrelu(c: Call) -> str:
    """In eval mode, where the slope is the mean of its bounds."""
    if c.get("training"):
        raise CannotMap("slopes are random numbers in training mode; call .eval() on the layer")
    return c.op(LeakyRelu((float(c.get("lower")) + float(c.get("upper"))) / 2), c.x())


@maps("aten.gelu")
def gelu(c: Call) -> str:
    return c.op(Gelu(c.get("approximate", "none")), c.x())


@maps("aten.silu")
def silu(c: Call) -> str:
    return c.op(Multiply(), c.x(), c.op(Sigmoid(), c.x()))


@maps("aten.hardsigmoid")
def hardsigmoid(c: Call) -> str:
    return sigmoid_of_three(c, c.x())


@maps("aten.hardswish")
def hardswish(c: Call) -> str:
    return c.op(Multiply(), c.x(), sigmoid_of_three(c, c.x()))


def halves(c: Call, x: str) -> tuple[str, str]:
    """(max(x, 0), min(x, 0)). At 0 the gradient goes through the second alone, as torch has it for what is made of the
    two: relu's is 0 there, and that of a clip passes at its bound."""
    return c.op(Relu(), x), c.op(Clip(None, 0.0), x)


def exponential_tail(c: Call, x: str, alpha: float, inner: float = 1.0) -> str:
    """x above 0, alpha * (e^(inner x) - 1) below, without an exponential of a large number."""
    above, below = halves(c, x)
    tail = times(c, c.op(Add(), c.op(Exp(), times(c, below, inner)), c.constant(-1.0)), alpha)
    return c.op(Add(), above, tail)


@maps("aten.elu", "aten.celu")
def elu(c: Call) -> str:
    alpha, scale, inner = float(c.get("alpha", 1.0)), float(c.get("scale", 1.0)), float(c.get("input_scale", 1.0))
    if c.target._schema.name == "aten::celu":
        inner = 1.0 / alpha
    return times(c, exponential_tail(c, c.x(), alpha, inner), scale)


@maps("aten.selu")
def selu(c: Call) -> str:
    return times(c, exponential_tail(c, c.x(), 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


def soft_plus(c: Call, x: str) -> str:
    """ln(1 + e^x) = relu(x) + ln(1 + e^-|x|), with the gradient 1/2 at 0."""
    above, below = halves(c, x)
    tail = c.op(Exp(), c.op(Subtract(), below, above))
    return c.op(Add(), above, c.op(Log(), c.op(Add(), tail, c.constant(1.0))))


@maps("aten.softplus")
def softplus(c: Call) -> str:
    """Beyond the threshold x itself, which at the usual one, 20, is what float32 makes of it."""
    beta, threshold, x = float(c.get("beta", 1)), float(c.get("threshold", 20)), c.x()
    scaled = times(c, x, beta)
    y = times(c, soft_plus(c, scaled), 1.0 / beta)
    return y if threshold >= 20 else c.op(Where(), c.op(Greater(), scaled, c.constant(threshold)), x, y)


@maps("aten.mish")
def mish(c: Call) -> str:
    return c.op(Multiply(), c.x(), c.op(Tanh(), soft_plus(c, c.x())))


@maps("aten.log_sigmoid", "aten.log_sigmoid_forward")
def log_sigmoid(c: Call) -> str:
    return times(c, soft_plus(c, times(c, c.x(), -1.0)), -1.0)


@maps("aten.prelu", "aten._prelu_kernel")
def prelu(c: Call) -> str:
    x, weight = c.x(), c.x("weight")
    rank, channels = len(c.shape(x)), math.prod(c.shape(weight))
    if rank > 2 and len(c.shape(weight)) == 1:
        weight = c.reshape(weight, (channels, *([1] * (rank - 2))))
    above, below = halves(c, x)
    return c.op(Add(), above, c.op(Multiply(), weight, below))


@maps("aten.addcmul", "aten.addcdiv")
def add_product(c: Call) -> str:
    op: Op = Multiply() if c.target._schema.name == "aten::addcmul" else Divide()
    return c.op(Add(), c.x(), times(c, c.op(op, c.x("tensor1"), c.x("tensor2")), c.get("value", 1)))


@maps("aten.lerp")
def lerp(c: Call) -> str:
    step = c.op(Subtract(), c.x("end"), c.x())
    return c.op(Add(), c.x(), c.op(Multiply(), step, c.x("weight")))


@maps("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(c: Call) -> str:
    return c.op(Where(), c.x("condition"), c.x("self"), c.x("other"))


@maps("aten.masked_fill")
def masked_fill(c: Call) -> str:
    return c.op(Where(), c.x("mask"), c.x("value"), c.x("self"))


def of_truths(c: Call) -> bool:
    """Whether a bitwise op works on truth values; on integers the host does it."""
    return all(c.dtype_of(name) == torch.bool for name in ("self", "other") if name in c.arguments)


def one(result: Result) -> str:
    assert isinstance(result, str)
    return result


@maps("aten.bitwise_and", "aten.__and__")
def bitwise_and(c: Call) -> str:
    return c.op(LogicalAnd(), c.x(), c.x("other")) if of_truths(c) else one(host_call(c))


def either(c: Call, a: str, b: str) -> str:
    """a or b, by de Morgan's rule."""
    return c.op(LogicalNot(), c.op(LogicalAnd(), c.op(LogicalNot(), a), c.op(LogicalNot(), b)))


@maps("aten.bitwise_or", "aten.__or__")
def bitwise_or(c: Call) -> str:
    return either(c, c.x(), c.x("other")) if of_truths(c) else one(host_call(c))


@maps("aten.bitwise_xor", "aten.__xor__")
def bitwise_xor(c: Call) -> str:
    return c.op(NotEqual(), c.x(), c.x("other")) if of_truths(c) else one(host_call(c))


@maps("aten.logical_or")
def logical_or(c: Call) -> str:
    return either(c, c.x(), c.x("other"))


@maps("aten.bitwise_not")
def bitwise_not(c: Call) -> str:
    return c.op(LogicalNot(), c.x()) if of_truths(c) else one(host_call(c))


@maps("aten.logical_xor")
def logical_xor(c: Call) -> str:
    return c.op(NotEqual(), c.op(NotEqual(), c.x(), c.constant(0.0)), c.op(NotEqual(), c.x("other"), c.constant(0.0)))


@maps("aten.sign", "aten.sgn")
def sign(c: Call) -> str:
    """(x > 0) - (x < 0)."""
    x, zero = c.x(), c.constant(0.0)
    return c.op(Subtract(), c.op(Greater(), x, zero), c.op(Less(), x, zero))


@maps("aten.erfc")
def erfc(c: Call) -> str:
    return c.op(Subtract(), c.constant(1.0), c.op(Erf(), c.x()))


@maps("aten.sinh", "aten.cosh")
def hyperbolic(c: Call) -> str:
    """Half the sum (or difference) of e^x and e^-x."""
    x = c.x()
    up, down = c.op(Exp(), x), c.op(Exp(), times(c, x, -1.0))
    op = Add() if c.target._schema.name == "aten::cosh" else Subtract()
    return times(c, c.op(op, up, down), 0.5)


@maps("aten.tan")
def tan(c: Call) -> str:
    return c.op(Divide(), c.op(Sine(), c.x()), c.op(Cosine(), c.x()))


@maps("aten.asinh", "aten.acosh")
def area(c: Call) -> str:
    """ln(x + sqrt(x^2 +- 1)); asinh by |x| and its sign, which loses no digits below zero."""
    x = c.x()
    if c.target._schema.name == "aten::acosh":
        return c.op(Log(), c.op(Add(), x, c.op(Sqrt(), c.op(Add(), c.op(Multiply(), x, x), c.constant(-1.0)))))
    size = c.op(Abs(), x)
    grown = c.op(Log(), c.op(Add(), size, c.op(Sqrt(), c.op(Add(), c.op(Multiply(), x, x), c.constant(1.0)))))
    zero = c.constant(0.0)
    return c.op(Multiply(), grown, c.op(Subtract(), c.op(Greater(), x, zero), c.op(Less(), x, zero)))


@maps("aten.kl_div")
def kl_divergence(c: Call) -> str:
    """target * (ln target - x), 0 where the target is 0; of a target that is a logarithm e^target * (target - x).

    The logarithm of a target of 0 is taken of 1, which leaves that of a negative one NaN, as in torch.
    """
    x, target = c.x(), c.x("target")
    if c.get("log_target"):
        each = c.op(Multiply(), c.op(Exp(), target), c.op(Subtract(), target, x))
    else:
        logarithm = c.op(Log(), c.op(Add(), target, c.op(Equal(), target, c.constant(0.0))))
        each = c.op(Multiply(), target, c.op(Subtract(), logarithm, x))
    reduction = c.get("reduction", 1)
    if reduction == 0:
        return each
    flat = c.reshape(each, (math.prod(c.shape(each)),))
    return c.reshape(c.op((ReduceAvg if reduction == 1 else ReduceSum)(-1), flat), ())


@maps("aten.atanh")
def atanh(c: Call) -> str:
    """ln((1 + x) / (1 - x)) / 2."""
    one_plus = c.op(Add(), c.x(), c.constant(1.0))
    return times(c, c.op(Log(), c.op(Divide(), one_plus, c.op(Subtract(), c.constant(1.0), c.x()))), 0.5)


IDENTITY = (
    "aten.contiguous",
    "aten.clone",
    "aten.alias",
    "aten.detach",
    "aten.lift_fresh_copy",
    "aten.lift_fresh",
    "aten.detach_",
    "aten.positive",
)


@maps(*IDENTITY)
def identity(c: Call) -> str:
    x = c.x("input") if "input" in c.arguments else c.x()
    return c.op(StopGradient(), x) if c.emit.keeps_stops and "detach" in c.target._schema.name else x


@maps("tbuda_lab.gradient_seed")
def gradient_seed(c: Call) -> str:
    return c.op(GradientSeed(), c.x("value"))


@maps("tbuda_lab.own_gradient")
def own_gradient(c: Call) -> str:
    pairs = zip(c.arguments["operands"], c.arguments["gradients"], strict=True)
    return c.op(OwnGradient(), c.x("value"), c.x("seed"), *(c.node_of(v) for pair in pairs for v in pair))


@maps("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout", "aten.native_dropout")
def dropout(c: Call) -> Result:
    x, p = c.x("input"), float(c.get("p", 0.0))
    if c.get("train") and p > 0:
        raise CannotMap("dropout that is active needs training; pass training=False or use nn.Dropout in an eval model")
    if p > 0:
        c.emit.dropouts.append(c.emit.origin)
    return (x, None) if c.target._schema.name == "aten::native_dropout" else x


@maps("tbuda_lab.dropout")
def dropout_in_training(c: Call) -> str:
    """x times a mask that is an input of the graph, with the microbatch in dim 0: each element has its own. x itself
    where nothing is to drop."""
    x, p, whole_channels = c.x("value"), float(c.get("p")), c.get("whole_channels")
    if c.emit.drops is None or not c.emit.drops(c.emit.origin):
        c.emit.dropouts.append(c.emit.origin)
        return x
    shape = c.shape(x) or (1,)
    if whole_channels:
        shape = (*shape[:2], *(1 for _ in shape[2:]))
    batched = shape if shape[0] == 1 else (1, *shape)
    attrs: dict[str, Any] = {"dtype": "float32", DROPOUT: p}
    mask = c.emit.leaf(NodeKind.INPUT, c.emit.name_for("mask"), batched, **attrs)
    return c.op(Multiply(), x, mask if batched == shape else c.reshape(mask, shape))


@maps("aten.to", "aten._to_copy", "aten.type_as")
def cast(c: Call) -> str:
    """A change between floats is a matter of the device's data formats, unless it rounds what was made in a wider one
    and goes back at once; a change of kind is a Cast, and so is one between integers, which wraps."""
    x, before, after = c.x(), c.dtype_of(), c.out.dtype
    if before == after:
        return x
    if kind(after) == "float" and bits(after) < 16:
        raise CannotMap(f"it rounds to {after}, which no format of the device holds; leave it out, or round outside")
    if kind(after) == "float":
        if kind(before) != "float":
            return c.op(Cast("float32"), x)
        narrow = bits(after) > bits(before) and c.emit.made.get(x, before) not in (before, *NARROW)
        return c.op(RoundTo(str(before).removeprefix("torch.")), x) if narrow and before in NARROW else x
    name = str(after).removeprefix("torch.")
    return c.op(Cast(name, whole=kind(before) == "int"), x) if name != "bool" else c.op(Cast("bool"), x)


NARROW = (torch.float16, torch.bfloat16)


def bits(dtype: torch.dtype) -> int:
    return torch.finfo(dtype).bits


def kind(dtype: torch.dtype) -> str:
    return "bool" if dtype == torch.bool else "float" if dtype.is_floating_point else "int"
