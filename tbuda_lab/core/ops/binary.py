"""Element-wise ops of two or three operands, with numpy broadcasting. Truth values are 0.0 and 1.0."""

from __future__ import annotations

import torch

from tbuda_lab.core.graph import Shape, broadcast_shapes, op
from tbuda_lab.core.ops.base import NdOp

Tensor = torch.Tensor


class Binary(NdOp):
    """Element-wise on two operands that broadcast."""

    def infer(self, a: Shape, b: Shape) -> Shape:
        return broadcast_shapes(a, b)


@op("add")
class Add(Binary):
    """a + b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.add(a, b)


@op("subtract")
class Subtract(Binary):
    """a - b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.sub(a, b)


@op("multiply")
class Multiply(Binary):
    """a * b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.mul(a, b)


@op("divide")
class Divide(Binary):
    """a / b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, b)


@op("maximum")
class Maximum(Binary):
    """The larger of a and b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b)


@op("minimum")
class Minimum(Binary):
    """The smaller of a and b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.minimum(a, b)


@op("power")
class Power(Binary):
    """a ** b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.pow(a, b)


@op("heaviside")
class Heaviside(Binary):
    """0 where x < 0, y where x = 0, 1 where x > 0."""

    def evaluate(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.heaviside(x, y)


@op("greater")
class Greater(Binary):
    """1 where a > b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (a > b).to(torch.float32)


@op("greater_equal")
class GreaterEqual(Binary):
    """1 where a >= b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (a >= b).to(torch.float32)


@op("less")
class Less(Binary):
    """1 where a < b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (a < b).to(torch.float32)


@op("less_equal")
class LessEqual(Binary):
    """1 where a <= b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (a <= b).to(torch.float32)


@op("equal")
class Equal(Binary):
    """1 where a = b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (a == b).to(torch.float32)


@op("not_equal")
class NotEqual(Binary):
    """1 where a differs from b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return (a != b).to(torch.float32)


@op("logical_and")
class LogicalAnd(Binary):
    """1 where neither operand is 0."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return ((a != 0) & (b != 0)).to(torch.float32)


@op("where")
class Where(NdOp):
    """x where condition is not 0, else y."""

    def infer(self, condition: Shape, x: Shape, y: Shape) -> Shape:
        return broadcast_shapes(condition, x, y)

    def evaluate(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.where(condition != 0, x, y)
