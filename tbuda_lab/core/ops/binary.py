"""Element-wise ops of two or three operands, with numpy broadcasting. Truth values are 0.0 and 1.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from tbuda_lab.core.graph import NodeKind, Shape, broadcast_shapes, op
from tbuda_lab.core.ops.base import Names, NdOp, truth
from tbuda_lab.core.ops.unary import TINY, Abs, Exp, Log, Pow, Reciprocal, Relu, as_truth, step

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Node
    from tbuda_lab.core.ops.builder import Builder

Tensor = torch.Tensor


class Binary(NdOp):
    """Element-wise on two operands that broadcast."""

    def infer(self, a: Shape, b: Shape) -> Shape:
        return broadcast_shapes(a, b)


class ComparisonOp(Binary):
    """A condition on two operands: 1.0 where it holds, else 0.0."""

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
        half = b.add(b.op(Greater(), a, c), b.op(GreaterEqual(), a, c))
        return b.multiply(g, b.multiply(half, 0.5))


@op("minimum")
class Minimum(Binary):
    """The smaller of a and b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.minimum(a, b)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """Equal operands share it."""
        a, c = x[port], x[1 - port]
        half = b.add(b.op(Less(), a, c), b.op(LessEqual(), a, c))
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
        """A constant exponent is `pow`; any other is e^(y ln x), which needs x >= 0."""
        exponent = b.scalar(y)
        if exponent is not None and b.shape(x) == node.shape:
            return b.op(Pow(exponent), x)
        base = b.scalar(x)
        if base is not None and base > 0:
            return b.op(Exp(), b.multiply(y, float(np.log(base))))
        return b.op(Exp(), b.multiply(y, b.op(Log(), b.maximum(x, TINY))))


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
        return step(b, _difference(b, x, y))


@op("greater_equal")
class GreaterEqual(ComparisonOp):
    """1 where a >= b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a >= b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return b.mark_truth(b.subtract(1.0, step(b, _difference(b, y, x))))


@op("less")
class Less(ComparisonOp):
    """1 where a < b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a < b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return step(b, _difference(b, y, x))


@op("less_equal")
class LessEqual(ComparisonOp):
    """1 where a <= b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a <= b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return b.mark_truth(b.subtract(1.0, step(b, _difference(b, x, y))))


@op("equal")
class Equal(ComparisonOp):
    """1 where a = b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a == b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return b.mark_truth(b.subtract(1.0, step(b, b.op(Abs(), _difference(b, x, y)))))


@op("not_equal")
class NotEqual(ComparisonOp):
    """1 where a differs from b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return truth(a != b, a)

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        return step(b, b.op(Abs(), _difference(b, x, y)))


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
        """c * x + (1 - c) * y, exact because c is 0 or 1; branches that may overflow are bounded first (0 * inf)."""
        c = as_truth(b, condition)
        value = b.value(c)
        other = b.subtract(1.0, c) if value is None else b.constant((1.0 - value).astype(np.float32))
        parts = [
            b.multiply(mask, clip_infinities(b, branch))
            for mask, branch in ((c, x), (other, y))
            if b.scalar(branch) != 0.0
        ]
        if not parts:
            return b.constant(np.zeros(node.shape, np.float32))
        return parts[0] if len(parts) == 1 else b.add(*parts)


UNBOUNDED = ("log", "reciprocal", "exp", "divide", "power", "pow")


def clip_infinities(b: Builder, x: str) -> str:
    """x cut to what the data format holds if it comes, through element-wise ops, from an op that makes infinities."""
    limit = 2.0**15 if b.options.data_format.family == "a" else 2.0**126
    seen: set[str] = set()
    stack = [x]
    while stack:
        node = b.graph[stack.pop()]
        if node.name in seen or node.kind is not NodeKind.OP or node.op is None:
            continue
        seen.add(node.name)
        if node.op.type in UNBOUNDED:
            return b.subtract(b.op(Relu(limit, "max"), x), b.op(Relu(limit, "max"), b.negate(x)))
        if isinstance(node.op, (Binary, Where)) or node.op.type in ("multiply", "nop", "transpose", "reshape"):
            stack.extend(node.sources)
    return x


def _difference(b: Builder, x: str, y: str) -> str:
    unchanged = b.scalar(y) == 0.0 and broadcast_shapes(b.shape(x), b.shape(y)) == b.shape(x)
    return x if unchanged else b.subtract(x, y)
