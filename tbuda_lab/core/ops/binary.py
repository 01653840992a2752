"""Element-wise ops of two or three operands, with numpy broadcasting. Truth values are 0.0 and 1.0."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Node, Shape, broadcast_shapes, op
from tbuda_lab.core.ops.base import Names, NdOp, truth
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.tm import BroadcastTo
from tbuda_lab.core.ops.unary import (
    TINY,
    Abs,
    Exp,
    Log,
    Pow,
    Reciprocal,
    Relu,
    as_truth,
    is_truth,
    smallest_difference,
    step,
)

Tensor = torch.Tensor


class Binary(NdOp):
    """Element-wise on two operands that broadcast."""

    def infer(self, a: Shape, b: Shape) -> Shape:
        return broadcast_shapes(a, b)


@dataclasses.dataclass(frozen=True)
class ComparisonOp(Binary):
    """A condition on two operands: 1.0 where it holds, else 0.0. finite: neither is NaN, nor are both the same
    infinity, which takes fewer ops."""

    gives_truth = True
    finite: bool = False

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """It is constant between its steps."""
        return None


@op("add")
class Add(Binary):
    """a + b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.add(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return g


@op("subtract")
class Subtract(Binary):
    """a - b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.sub(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return g if port == 0 else b.negate(g)


@op("multiply")
class Multiply(Binary):
    """a * b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.mul(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, x[1 - port])


@op("divide")
class Divide(Binary):
    """a / b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        over = b.op(Divide(), g, x[1])
        return over if port == 0 else b.negate(b.multiply(over, y))

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        value = b.value(y)
        if value is not None and (value != 0).all():
            return b.multiply(x, b.constant((1.0 / value.astype(np.float64)).astype(np.float32)))
        inverse = b.op(Reciprocal(), y)
        return inverse if b.scalar(x) == 1.0 and b.shape(y) == node.shape else b.multiply(x, inverse)


@op("maximum")
class Maximum(Binary):
    """The larger of a and b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """Equal operands share it."""
        a, c = x[port], x[1 - port]
        half = b.add(b.op(Greater(finite=True), a, c), b.op(GreaterEqual(finite=True), a, c))
        return b.multiply(g, b.multiply(half, 0.5))


@op("minimum")
class Minimum(Binary):
    """The smaller of a and b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.minimum(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """Equal operands share it."""
        a, c = x[port], x[1 - port]
        half = b.add(b.op(Less(finite=True), a, c), b.op(LessEqual(finite=True), a, c))
        return b.multiply(g, b.multiply(half, 0.5))

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return b.negate(b.maximum(b.negate(x), b.negate(y)))


@op("power")
class Power(Binary):
    """a ** b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.pow(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """b a^(b-1) and a^b ln a; of a = 0 the latter is taken as a^b ln 2^-126, which is 0 for b > 0."""
        if port == 0:
            exponent = b.scalar(x[1])
            if exponent is not None and b.shape(x[0]) == b.shape(y):
                return Pow(exponent).gradient(b, 0, x[:1], y, g)
            return b.multiply(g, b.multiply(x[1], b.op(Power(), x[0], b.subtract(x[1], 1.0))))
        return b.multiply(g, b.multiply(y, b.op(Log(), b.maximum(x[0], TINY))))

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        """A constant exponent is `pow`; any other is e^(y ln x), which needs x >= 0. Where all are stored it is
        e^(y ln |x|), and of x < 0 minus that for odd ones, no number for those between whole ones."""
        exponent = b.scalar(y)
        if exponent is not None and b.shape(x) == node.shape:
            return b.op(Pow(exponent), x)
        base = b.scalar(x)
        if base is not None and base > 0:
            return b.op(Exp(), b.multiply(y, float(np.log(base))))
        exponents = b.value(y)
        if exponents is None:
            return b.op(Exp(), b.multiply(y, b.op(Log(), b.maximum(x, TINY))))
        size = b.op(Exp(), b.multiply(y, b.op(Log(), b.maximum(b.op(Abs(), x), TINY))))
        odd = np.where(exponents % 2 == 1, np.float32(-2), np.float32(0))
        change = np.where(exponents == np.round(exponents), odd, np.float32(np.nan)).astype(np.float32)
        if not change.any():
            return size
        negative = step(b, b.multiply(x, -1.0))  # 0 times NaN is 0
        return b.multiply(size, b.add(b.multiply(negative, b.constant(change)), 1.0))


@op("heaviside")
class Heaviside(Binary):
    """0 where x < 0, y where x = 0, 1 where x > 0."""

    def evaluate(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.heaviside(x, y)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """It is constant between its steps."""
        return None

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return b.add(step(b, x), b.multiply(b.subtract(1.0, step(b, b.op(Abs(), x))), y))


@op("greater")
class Greater(ComparisonOp):
    """1 where a > b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a > b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return is_above(b, x, y, self.finite)


@op("greater_equal")
class GreaterEqual(ComparisonOp):
    """1 where a >= b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a >= b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return reaches(b, self, x, y)


@op("less")
class Less(ComparisonOp):
    """1 where a < b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a < b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return is_above(b, y, x, self.finite)


@op("less_equal")
class LessEqual(ComparisonOp):
    """1 where a <= b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a <= b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return reaches(b, self, y, x)


@op("equal")
class Equal(ComparisonOp):
    """1 where a = b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a == b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return is_same(b, self, x, y)


@op("not_equal")
class NotEqual(ComparisonOp):
    """1 where a differs from b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a != b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        if self.finite or (is_truth(b, x) and is_truth(b, y)):
            return step(b, b.op(Abs(), _difference(b, x, y)))
        return b.mark_truth(b.subtract(1.0, is_same(b, self, x, y)))


def largest_finite(b: Builder) -> float:
    """A number that the data format holds and that only infinities exceed."""
    df = b.options.data_format
    if df.family == "a":
        return 65504.0
    return float(np.finfo(np.float32).max) if df is DataFormat.Float32 else 2.0**127 * (2 - 2.0**-7)


def is_above(b: Builder, x: str, y: str, finite: bool = False) -> str:
    """1 where x > y. Infinity minus itself is no number, nor is a difference from NaN: a relu with a threshold writes 0
    for it, which is right for both."""
    if finite:
        return step(b, _difference(b, x, y))
    if b.scalar(y) == 0.0 and broadcast_shapes(b.shape(x), b.shape(y)) == b.shape(x):
        return number_or_zero(b, x) if not is_truth(b, x) else x
    return step(b, b.op(Relu(smallest_difference(b)), b.subtract(x, y)))


def number_or_zero(b: Builder, x: str) -> str:
    """1 where x > 0, and 0 for NaN."""
    if b.options.data_format.family == "a":
        return step(b, b.op(Relu(smallest_difference(b)), x))
    grown = b.op(Relu(1.0), b.multiply(x, 1.0 / TINY))
    return b.mark_truth(b.op(Relu(1.0, "max"), grown))


def reaches(b: Builder, op: ComparisonOp, x: str, y: str) -> str:
    """1 where x >= y: where y is not above x, unless one of them is NaN."""
    if op.finite or (is_truth(b, x) and is_truth(b, y)):
        return b.mark_truth(b.subtract(1.0, step(b, _difference(b, y, x))))
    low, high = b.scalar(x), b.scalar(y)
    if high == np.inf:
        return is_above(b, x, b.constant(largest_finite(b)))
    if low == -np.inf:
        return is_above(b, b.constant(-largest_finite(b)), y)
    if high == -np.inf or low == np.inf:
        return _spread(b, is_number(b, x if high == -np.inf else y), x, y)
    if _known_finite(b, x) or _known_finite(b, y):  # then only NaN makes their difference one
        return b.mark_truth(b.op(Relu(0.5), b.subtract(1.0, step(b, b.subtract(y, x)))))
    not_above = b.subtract(1.0, is_above(b, y, x))
    return b.mark_truth(b.multiply(not_above, is_number(b, b.maximum(x, y))))


def is_same(b: Builder, op: ComparisonOp, x: str, y: str) -> str:
    """1 where x = y, which NaN never is."""
    if op.finite or (is_truth(b, x) and is_truth(b, y)):
        return b.mark_truth(b.subtract(1.0, step(b, b.op(Abs(), _difference(b, x, y)))))
    if x == y:
        return is_number(b, x)
    for one, other in ((x, y), (y, x)):
        bound = b.scalar(other)
        if bound in (np.inf, -np.inf):
            limit = b.constant(float(np.copysign(largest_finite(b), bound)))
            return _spread(b, is_above(b, one, limit) if bound > 0 else is_above(b, limit, one), x, y)
    if _known_finite(b, x) or _known_finite(b, y):
        return b.mark_truth(b.op(Relu(0.5), b.subtract(1.0, step(b, b.op(Abs(), _difference(b, x, y))))))
    apart = b.op(Relu(smallest_difference(b)), b.op(Abs(), b.subtract(x, y)))
    return b.mark_truth(b.multiply(b.subtract(1.0, step(b, apart)), is_number(b, b.maximum(x, y))))


def is_number(b: Builder, x: str) -> str:
    """1 where x is not NaN: what is left of x between 0 and 2^-60 is lost beside 1."""
    small = 2.0**-20 if b.options.data_format.family == "a" else 2.0**-60
    return b.mark_truth(b.op(Relu(0.5), b.add(b.op(Relu(small, "max"), x), 1.0)))


def _known_finite(b: Builder, x: str) -> bool:
    value = b.value(x)
    return is_truth(b, x) or (value is not None and bool(np.isfinite(value).all()))


def _spread(b: Builder, truths: str, x: str, y: str) -> str:
    """Truths of one operand in the shape of both."""
    shape = broadcast_shapes(b.shape(x), b.shape(y))
    return truths if b.shape(truths) == shape else b.op(BroadcastTo(shape), truths)


@op("logical_and")
class LogicalAnd(ComparisonOp):
    """1 where neither operand is 0."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth((a != 0) & (b != 0), a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return b.mark_truth(b.multiply(as_truth(b, x), as_truth(b, y)))


@op("where")
class Where(NdOp):
    """x where condition is not 0, else y."""

    def infer(self, condition: Shape, x: Shape, y: Shape) -> Shape:
        return broadcast_shapes(condition, x, y)

    def evaluate(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(condition != 0, x, y)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        if port == 0:
            return None
        zero = b.constant(0.0)
        return b.op(Where(), x[0], g, zero) if port == 1 else b.op(Where(), x[0], zero, g)

    def canonicalise(self, b: Builder, node: Node, condition: str, x: str, y: str) -> str:
        """c * x + (1 - c) * y, exact because c is 0 or 1, and 0 times anything is 0 on the device."""
        c = as_truth(b, condition)
        value = b.value(c)
        other = b.subtract(1.0, c) if value is None else b.constant((1.0 - value).astype(np.float32))
        parts = [_part(b, mask, branch) for mask, branch in ((c, x), (other, y)) if b.scalar(branch) != 0.0]
        if not parts:
            return b.constant(np.zeros(node.shape, np.float32))
        return parts[0] if len(parts) == 1 else b.add(*parts)


def _part(b: Builder, mask: str, branch: str) -> str:
    """mask * branch. Of stored values it is made here: 0 times infinity is no number on the host."""
    known, value = b.value(mask), b.value(branch)
    if known is None or value is None:
        return b.multiply(mask, branch)
    return b.constant(np.where(known != 0, value, np.float32(0)).astype(np.float32))


def _difference(b: Builder, x: str, y: str) -> str:
    unchanged = b.scalar(y) == 0.0 and broadcast_shapes(b.shape(x), b.shape(y)) == b.shape(x)
    return x if unchanged else b.subtract(x, y)
