"""Ops that work element by element."""

from __future__ import annotations

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ops.utils import broadcast, cast_if_needed, check_numbers, need_tensor, one, same_type
from tbuda_lab.popxl.tensor import Tensor


def _unary(kind: str, t: Tensor, form: dtypes.dtype | None = None, **attrs: object) -> Tensor:
    need_tensor("t", t)
    return one(kind, {"t": t}, t.shape, form or t.dtype, attrs)


def _unary_(kind: str, t: Tensor) -> Tensor:
    need_tensor("t", t)
    return one(kind, {"t": t}, t.shape, t.dtype, modifies=(0,))


def _binary(kind: str, lhs: Tensor, rhs: Tensor, form: dtypes.dtype | None = None) -> Tensor:
    shape = broadcast(kind, lhs, rhs)
    own = same_type(kind, lhs, rhs)
    return one(kind, {"lhs": lhs, "rhs": rhs}, shape, form or own)


def abs(t: Tensor) -> Tensor:
    """|t|."""
    return _unary("Abs", t)


def add(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs + rhs."""
    return _binary("Add", lhs, rhs)


def add_(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs + rhs, written over lhs. Raises `popart_exception` where the sum is larger than lhs."""
    shape = broadcast("add_", lhs, rhs)
    if shape != lhs.shape:
        raise popart_exception(
            f"add_: the sum has shape {shape}, which lhs {lhs.id!r} of shape {lhs.shape} cannot hold"
        )
    return one("AddLhsInplace", {"lhs": lhs, "rhs": rhs}, shape, same_type("add_", lhs, rhs), modifies=(0,))


def sub(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs - rhs."""
    return _binary("Sub", lhs, rhs)


def mul(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs * rhs."""
    return _binary("Mul", lhs, rhs)


def div(lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs / rhs; of integers towards zero."""
    return _binary("Div", lhs, rhs)


def fmod(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The remainder of lhs / rhs with the sign of lhs."""
    return _binary("Fmod", lhs, rhs)


def pow(t: Tensor, e: Tensor | float) -> Tensor:
    """t to the power of e."""
    need_tensor("t", t)
    return _binary("Pow", t, t._ensure_tensor(e))


def equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Whether they are equal, as bools."""
    return _binary("Equal", lhs, rhs, dtypes.bool)


def greater(input: Tensor, other: Tensor) -> Tensor:
    """Whether input is larger, as bools."""
    return _binary("Greater", input, other, dtypes.bool)


def logical_and(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Whether neither is 0; operands become bools."""
    return _logical("And", lhs, rhs)


def logical_or(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Whether one of them is not 0; operands become bools."""
    return _logical("Or", lhs, rhs)


def _logical(kind: str, lhs: Tensor, rhs: Tensor) -> Tensor:
    need_tensor("lhs", lhs)
    need_tensor("rhs", rhs)
    return _binary(kind, cast_if_needed(lhs, dtypes.bool), cast_if_needed(rhs, dtypes.bool))


def logical_not(t: Tensor) -> Tensor:
    """Whether it is 0; the operand becomes bools."""
    need_tensor("t", t)
    return _unary("Not", cast_if_needed(t, dtypes.bool))


def ceil(t: Tensor) -> Tensor:
    """The smallest whole number that is not smaller."""
    return _unary("Ceil", t)


def floor(t: Tensor) -> Tensor:
    """The largest whole number that is not larger."""
    return _unary("Floor", t)


def clip(t: Tensor, min: float = float("-inf"), max: float = float("inf")) -> Tensor:
    """t, but not below min and not above max."""
    need_tensor("t", t)
    check_numbers("clip", t, min=min, max=max)
    return _unary("Clip", t, min=float(min), max=float(max))


clamp = clip


def cos(t: Tensor) -> Tensor:
    """The cosine, of radians."""
    return _unary("Cos", t)


def sin(t: Tensor) -> Tensor:
    """The sine, of radians."""
    return _unary("Sin", t)


def tanh(t: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _unary("Tanh", t)


def exp(t: Tensor) -> Tensor:
    """e^t."""
    return _unary("Exp", t)


def exp_(t: Tensor) -> Tensor:
    """e^t, written over t."""
    return _unary_("ExpInplace", t)


def log(t: Tensor) -> Tensor:
    """The natural logarithm."""
    return _unary("Log", t)


def log2(t: Tensor) -> Tensor:
    """The logarithm to base 2."""
    return _unary("Log2", t)


def sqrt(t: Tensor) -> Tensor:
    """The square root."""
    return _unary("Sqrt", t)


def sign(t: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return _unary("Sign", t)


def negate(t: Tensor) -> Tensor:
    """-t."""
    return _unary("Neg", t)


def relu(t: Tensor) -> Tensor:
    """max(t, 0)."""
    return _unary("Relu", t)


def relu_(t: Tensor) -> Tensor:
    """max(t, 0), written over t."""
    return _unary_("ReluInplace", t)


def gelu(t: Tensor) -> Tensor:
    """0.5 t (1 + tanh(sqrt(2 / pi) (t + 0.044715 t^3)))."""
    return _unary("Gelu", t)


def gelu_(t: Tensor) -> Tensor:
    """As `gelu`, written over t."""
    return _unary_("GeluInplace", t)


def geluerf(t: Tensor) -> Tensor:
    """t Phi(t), with the error function."""
    return _unary("GeluErf", t)


def geluerf_(t: Tensor) -> Tensor:
    """As `geluerf`, written over t."""
    return _unary_("GeluErfInplace", t)


def swish(t: Tensor) -> Tensor:
    """t / (1 + e^-t)."""
    return _unary("Swish", t)


def swish_(t: Tensor) -> Tensor:
    """As `swish`, written over t."""
    return _unary_("SwishInplace", t)


def isfinite(t: Tensor) -> Tensor:
    """Whether it is neither infinite nor NaN, as bools."""
    return _unary("IsFinite", t, dtypes.bool)


def isinf(t: Tensor) -> Tensor:
    """Whether it is infinite, as bools."""
    return _unary("IsInf", t, dtypes.bool)


def isnan(t: Tensor) -> Tensor:
    """Whether it is NaN, as bools."""
    return _unary("IsNaN", t, dtypes.bool)


def maximum(*ts: Tensor) -> Tensor:
    """The largest of several tensors, element by element. Raises `ValueError` for none."""
    if not ts:
        raise ValueError("maximum takes one tensor or more")
    shape, form = broadcast("maximum", *ts), same_type("maximum", *ts)
    return one("Max", {f"t{k}": t for k, t in enumerate(ts)}, shape, form)


def where(condition: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs where the condition is not 0, else rhs; the condition becomes bools."""
    need_tensor("condition", condition)
    mask = cast_if_needed(condition, dtypes.bool)
    shape, form = broadcast("where", mask, lhs, rhs), same_type("where", lhs, rhs)
    return one("Where", {"condition": mask, "lhs": lhs, "rhs": rhs}, shape, form)


def scaled_add(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """a X + b Y."""
    return _scaled_add("ScaledAdd", X, Y, a, b)


def scaled_add_(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """a X + b Y, written over X."""
    return _scaled_add("ScaledAddLhsInplace", X, Y, a, b, modifies=(0,))


def _scaled_add(kind: str, x: Tensor, y: Tensor, a: float | Tensor, b: float | Tensor, **more: object) -> Tensor:
    need_tensor("X", x)
    need_tensor("Y", y)
    if x.shape != y.shape:
        raise popart_exception(f"scaled_add: X {x.shape} and Y {y.shape} have the same shape")
    check_numbers("scaled_add", x, Y=y, a=a, b=b)
    inputs = {"X": x, "Y": y} | {n: t for n, t in (("a", a), ("b", b)) if isinstance(t, Tensor)}
    numbers = {n: None if isinstance(v, Tensor) else float(v) for n, v in (("a", a), ("b", b))}
    return one(kind, inputs, x.shape, x.dtype, numbers, **more)


def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """(t + increment) % modulus."""
    _check_modulus(t, increment, modulus)
    return _unary("IncrementMod", t, increment=increment, modulus=modulus)


def increment_mod_(t: Tensor, increment: float, modulus: float) -> Tensor:
    """As `increment_mod`, written over t."""
    _check_modulus(t, increment, modulus)
    return one(
        "IncrementModInplace", {"t": t}, t.shape, t.dtype, {"increment": increment, "modulus": modulus}, modifies=(0,)
    )


def _check_modulus(t: Tensor, increment: float, modulus: float) -> None:
    need_tensor("t", t)
    check_numbers("increment_mod", t, increment=increment, modulus=modulus)
    if modulus == 0:
        raise ValueError("increment_mod: nothing is left of a division by 0: give another modulus")
