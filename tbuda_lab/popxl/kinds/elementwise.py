"""Element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.ops import binary, unary
from tbuda_lab.popxl.kinds.table import INPLACE, Attrs, Ground, NotOnGrid, add


def _unary(name: str, core: Any, torch_fn: Any, numpy: Any = None, **more: Any) -> None:
    add(
        name,
        torch=lambda a, x: torch_fn(x),
        numpy=None if numpy is None else (lambda a, x: numpy(x)),
        grid=lambda g, a, x: g.op(core, x),
        **more,
    )


def _binary(name: str, core: Any, torch_fn: Any, numpy: Any, **more: Any) -> None:
    add(
        name,
        torch=lambda a, x, y: torch_fn(x, y),
        numpy=lambda a, x, y: numpy(x, y),
        grid=lambda g, a, x, y: g.op(core, x, y),
        **more,
    )


def _whole_division(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Towards zero, as C divides; by 0 it is 0."""
    if x.dtype.kind not in "iu":
        return np.asarray(x / y)
    safe = np.where(y == 0, 1, y)
    quotient = np.abs(x.astype(np.int64)) // np.abs(safe.astype(np.int64))
    return np.where(y == 0, 0, np.where((x < 0) != (y < 0), -quotient, quotient)).astype(x.dtype)


def _power(g: Ground, a: Attrs, x: str, y: str) -> str:
    exponent = g.scalar(y)
    if exponent is None:
        raise NotOnGrid("a power of a negative number by a tensor of exponents has no form on the grid")
    if g.shape(x) != np.broadcast_shapes(g.shape(x), g.shape(y)):
        raise NotOnGrid("the exponent has more dims than the base")
    return g.op(unary.Pow(exponent), x)


def _sum_of(g: Ground, a: Attrs, *xs: str) -> str:
    total = xs[0]
    for x in xs[1:]:
        total = g.add(total, x)
    return total


def _many(fn: Any) -> Any:
    def run(a: Attrs, *xs: Any) -> Any:
        result = xs[0]
        for x in xs[1:]:
            result = fn(result, x)
        return result

    return run


def _max_of(g: Ground, a: Attrs, *xs: str) -> str:
    top = xs[0]
    for x in xs[1:]:
        top = g.op(binary.Maximum(), top, x)
    return top


def _sign(g: Ground, a: Attrs, x: str) -> str:
    zero = g.full((1,), 0.0)
    return g.sub(g.op(binary.Greater(), x, zero), g.op(binary.Less(), x, zero))


def _clip(g: Ground, a: Attrs, x: str) -> str:
    low, high = (None if math.isinf(v) else float(v) for v in (a["min"], a["max"]))
    return g.op(unary.Nop(), x) if low is None and high is None else g.op(unary.Clip(low, high), x)


def _scaled(a: Attrs, *xs: Any) -> tuple[Any, Any]:
    """The factors of a scaled add: numbers, or operands behind x and y."""
    rest = list(xs[2:])
    first = rest.pop(0) if a["a"] is None else a["a"]
    second = rest.pop(0) if a["b"] is None else a["b"]
    return first, second


def _scaled_add(a: Attrs, *xs: Any) -> Any:
    p, q = _scaled(a, *xs)
    if (
        isinstance(xs[0], np.ndarray) and xs[0].dtype.kind in "iu"
    ):  # whole factors wrap around; as floats they would not
        p, q = (np.int64(f).astype(xs[0].dtype) if np.ndim(f) == 0 and float(f).is_integer() else f for f in (p, q))
    result = xs[0] * p + xs[1] * q
    return result.astype(xs[0].dtype) if isinstance(result, np.ndarray | np.generic) else result


def _scaled_add_grid(g: Ground, a: Attrs, *xs: str) -> str:
    def times(x: str, factor: Any) -> str:
        return x if not isinstance(factor, str) and factor == 1.0 else g.mul(x, factor)

    p, q = _scaled(a, *xs)
    return g.add(times(xs[0], p), times(xs[1], q))


def _or(g: Ground, a: Attrs, x: str, y: str) -> str:
    return g.op(binary.Maximum(), x, y)


def _increment_mod(a: Attrs, x: np.ndarray) -> np.ndarray:
    increment, modulus = (np.asarray(a[name]).astype(x.dtype) for name in ("increment", "modulus"))
    return np.asarray(np.fmod(x + increment, modulus))


_unary("Abs", unary.Abs(), torch.abs, np.abs)
_unary("Cos", unary.Cosine(), torch.cos)
_unary("Sin", unary.Sine(), torch.sin)
_unary("Exp", unary.Exp(), torch.exp)
_unary("Log", unary.Log(), torch.log)
_unary("Sqrt", unary.Sqrt(), torch.sqrt)
_unary("Tanh", unary.Tanh(), torch.tanh)
_unary("Relu", unary.Relu(), torch.relu, lambda x: np.maximum(x, 0))
_unary("Gelu", unary.Gelu("tanh"), lambda x: functional.gelu(x, approximate="tanh"))
_unary("GeluErf", unary.Gelu("none"), functional.gelu)
_unary("Identity", unary.Nop(), lambda x: x.clone(), np.array)
_unary("Detach", unary.Nop(), lambda x: x.clone(), np.array)
_unary("Not", unary.LogicalNot(), torch.logical_not, np.logical_not)
add("Neg", torch=lambda a, x: -x, numpy=lambda a, x: np.negative(x), grid=lambda g, a, x: g.mul(x, -1.0))
add("Log2", torch=lambda a, x: torch.log2(x), grid=lambda g, a, x: g.mul(g.op(unary.Log(), x), 1 / math.log(2)))
add("Swish", torch=lambda a, x: x * torch.sigmoid(x), grid=lambda g, a, x: g.mul(x, g.op(unary.Sigmoid(), x)))
add("Sign", torch=lambda a, x: torch.sign(x), numpy=lambda a, x: np.sign(x), grid=_sign)


def _rounding(name: str, torch_fn: Any, numpy: Any) -> None:
    add(
        name,
        torch=lambda a, x: torch_fn(x),
        numpy=lambda a, x: x if x.dtype.kind in "iu" else numpy(x),
        host_reason="rounding",
    )


def _special(name: str, numpy: Any) -> None:
    add(name, numpy=lambda a, x: numpy(x), host_reason="special values")


_rounding("Floor", torch.floor, np.floor)
_rounding("Ceil", torch.ceil, np.ceil)
_special("IsFinite", np.isfinite)
_special("IsInf", np.isinf)
_special("IsNaN", np.isnan)
add(
    "Clip",
    torch=lambda a, x: torch.clip(x, a["min"], a["max"]),
    numpy=lambda a, x: np.clip(x, a["min"], a["max"]),
    grid=_clip,
)

_binary("Add", binary.Add(), torch.add, np.add)
_binary("Sub", binary.Subtract(), torch.sub, np.subtract)
_binary("Mul", binary.Multiply(), torch.mul, np.multiply)
_binary("Div", binary.Divide(), torch.div, _whole_division)
_binary("Equal", binary.Equal(), torch.eq, np.equal)
_binary("Greater", binary.Greater(), torch.gt, np.greater)
_binary("And", binary.LogicalAnd(), torch.logical_and, np.logical_and)
add("Or", torch=lambda a, x, y: torch.logical_or(x, y), numpy=lambda a, x, y: np.logical_or(x, y), grid=_or)
add("Fmod", torch=lambda a, x, y: torch.fmod(x, y), numpy=lambda a, x, y: np.fmod(x, y), host_reason="rounding")
add("Pow", torch=lambda a, x, y: torch.pow(x, y), numpy=lambda a, x, y: np.power(x, y), grid=_power)
add("Max", torch=_many(torch.maximum), numpy=_many(np.maximum), grid=_max_of)
add("Sum", torch=_many(torch.add), numpy=_many(np.add), grid=_sum_of)
add(
    "Where",
    torch=lambda a, c, x, y: torch.where(c.bool(), x, y),
    numpy=lambda a, c, x, y: np.where(c != 0, x, y),
    grid=lambda g, a, c, x, y: g.op(binary.Where(), c, x, y),
)
add("ScaledAdd", torch=_scaled_add, numpy=_scaled_add, grid=_scaled_add_grid)
add("IncrementMod", numpy=_increment_mod, host_reason="rounding")

INPLACE |= {
    "AddLhsInplace": "Add",
    "MulLhsInplace": "Mul",
    "ScaledAddLhsInplace": "ScaledAdd",
    "ReluInplace": "Relu",
    "GeluInplace": "Gelu",
    "GeluErfInplace": "GeluErf",
    "SwishInplace": "Swish",
    "ExpInplace": "Exp",
    "IncrementModInplace": "IncrementMod",
}
