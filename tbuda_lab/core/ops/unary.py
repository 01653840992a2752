"""Element-wise ops of one operand."""

from __future__ import annotations

import torch
from torch.nn import functional

from tbuda_lab.core.graph import Shape, op
from tbuda_lab.core.ops.base import NdOp

Tensor = torch.Tensor


class Unary(NdOp):
    """Element-wise: the result has the operand's shape."""

    def infer(self, x: Shape) -> Shape:
        return x


@op("nop")
class Nop(Unary):
    """y = x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return x


@op("buffer")
class Buffer(Unary):
    """y = x, as a copy the user asked for: no pass removes it."""

    def evaluate(self, x: Tensor) -> Tensor:
        return x


@op("abs")
class Abs(Unary):
    """y = |x|."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.abs(x)


@op("exp")
class Exp(Unary):
    """y = e^x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.exp(x)


@op("log")
class Log(Unary):
    """y = ln x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.log(x)


@op("reciprocal")
class Reciprocal(Unary):
    """y = 1 / x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.reciprocal(x)


@op("sqrt")
class Sqrt(Unary):
    """y = sqrt(x)."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sqrt(x)


@op("relu")
class Relu(Unary):
    """mode "min": x where x >= threshold, else 0; mode "max": x clamped to [0, threshold]."""

    threshold: float = 0.0
    mode: str = "min"

    def evaluate(self, x: Tensor) -> Tensor:
        if self.mode == "max":
            return torch.clamp(x, 0.0, self.threshold)
        return torch.where(x >= self.threshold, x, torch.zeros_like(x))


@op("leaky_relu")
class LeakyRelu(Unary):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01

    def evaluate(self, x: Tensor) -> Tensor:
        return functional.leaky_relu(x, self.alpha)


@op("gelu")
class Gelu(Unary):
    """x * Phi(x); approximate="tanh": 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""

    approximate: str = "none"

    def evaluate(self, x: Tensor) -> Tensor:
        return functional.gelu(x, approximate=self.approximate)


@op("sigmoid")
class Sigmoid(Unary):
    """1 / (1 + e^-x)."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)


@op("tanh")
class Tanh(Unary):
    """Hyperbolic tangent."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


@op("sine")
class Sine(Unary):
    """sin x, x in radians."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sin(x)


@op("cosine")
class Cosine(Unary):
    """cos x, x in radians."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.cos(x)


@op("clip")
class Clip(Unary):
    """x clamped to [min, max]; None leaves that side open."""

    min: float | None = None
    max: float | None = None

    def evaluate(self, x: Tensor) -> Tensor:
        return x if self.min is None and self.max is None else torch.clamp(x, self.min, self.max)


@op("pow")
class Pow(Unary):
    """x ** exponent."""

    exponent: float

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.pow(x, self.exponent)


@op("logical_not")
class LogicalNot(Unary):
    """1 where x is 0, else 0."""

    def evaluate(self, x: Tensor) -> Tensor:
        return (x == 0).to(torch.float32)


@op("erf")
class Erf(Unary):
    """The error function; the device has no such op."""

    host = True

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.erf(x)


@op("cast")
class Cast(Unary):
    """Change of element type: a torch dtype's name ("float32", "int64", "bool")."""

    dtype: str

    def evaluate(self, x: Tensor) -> Tensor:
        if self.dtype == "bool":
            return (x != 0).to(torch.float32)
        return x.to(getattr(torch, self.dtype))
