"""Element-wise ops of one operand."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Node, NodeKind, Shape, op
from tbuda_lab.core.ops.base import Names, NdOp, not_on_device, truth
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.tm import MOVES

Tensor = torch.Tensor
TINY = 2.0**-126
SFPU = (
    "exp",
    "log",
    "sqrt",
    "reciprocal",
    "sigmoid",
    "tanh",
    "gelu",
    "gelu_derivative",
    "leaky_relu",
    "abs",
    "pow",
    "sine",
    "cosine",
    "buffer",
)
"""Types of the ops with one operand that the device computes element by element, each as one op."""
"""The smallest normal float32: stands in for zero under a logarithm."""


class Unary(NdOp):
    """Element-wise: the result has the operand's shape."""

    def infer(self, x: Shape) -> Shape:
        return x


@op("nop")
class Nop(Unary):
    """y = x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return x

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return g


@op("buffer")
class Buffer(Unary):
    """y = x, as a copy the user asked for: no pass removes it."""

    def evaluate(self, x: Tensor) -> Tensor:
        return x

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return g


@op("abs")
class Abs(Unary):
    """y = |x|."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.abs(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """g * sign(x), which is 0 at 0."""
        return b.multiply(g, b.subtract(b.above(x[0], 0.0), b.below(x[0], 0.0)))


@op("exp")
class Exp(Unary):
    """y = e^x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, y)


@op("log")
class Log(Unary):
    """y = ln x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.log(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.op(Reciprocal(), x[0]))


@op("reciprocal")
class Reciprocal(Unary):
    """y = 1 / x."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.reciprocal(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.negate(b.multiply(g, b.multiply(y, y)))


@op("sqrt")
class Sqrt(Unary):
    """y = sqrt(x)."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sqrt(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.multiply(b.op(Reciprocal(), y), 0.5))


@op("relu")
class Relu(Unary):
    """mode "min": x where x >= threshold, else 0; mode "max": x clamped to [0, threshold]."""

    threshold: float = 0.0
    mode: str = "min"

    def evaluate(self, x: Tensor) -> Tensor:
        if self.mode == "max":
            return torch.clamp(x, 0.0, self.threshold)
        if self.threshold == 0:
            return torch.relu(x)
        return torch.where(x < self.threshold, torch.zeros_like(x), x)  # a NaN stays one

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """0 at a threshold of 0, as torch has it; both bounds of mode "max" let it pass, as torch's clamp does."""
        if self.mode == "max":
            return b.multiply(g, b.multiply(b.from_on(x[0], 0.0), b.up_to(x[0], self.threshold)))
        return b.multiply(g, b.above(x[0], 0.0) if self.threshold == 0 else b.from_on(x[0], self.threshold))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """The device's relu has thresholds from 0 on: a lower one picks by a comparison."""
        if self.threshold >= 0:
            return None
        if self.mode == "max":
            return b.constant(np.full(node.shape, self.threshold, np.float32))
        return b.multiply(x, b.from_on(x, self.threshold))


@op("leaky_relu")
class LeakyRelu(Unary):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01

    def evaluate(self, x: Tensor) -> Tensor:
        return functional.leaky_relu(x, self.alpha)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.add(b.multiply(b.above(x[0], 0.0), 1.0 - self.alpha), self.alpha))


@op("gelu")
class Gelu(Unary):
    """x * Phi(x); approximate="tanh": 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""

    approximate: str = "none"

    def evaluate(self, x: Tensor) -> Tensor:
        return functional.gelu(x, approximate=self.approximate)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.op(GeluDerivative(self.approximate), x[0]))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """The device's is the one by tanh; the other is off that by up to 5e-4, which only Float32 shows."""
        if self.approximate == "tanh" or b.options.data_format is not DataFormat.Float32:
            return None
        return b.multiply(x, _normal_share(b, x))


@op("gelu_derivative")
class GeluDerivative(Unary):
    """The slope of gelu: Phi(x) + x phi(x); approximate="tanh": that of the tanh form."""

    approximate: str = "none"

    def evaluate(self, x: Tensor) -> Tensor:
        if self.approximate == "tanh":
            inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
            slope = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * x**2)
            t = torch.tanh(inner)
            return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope
        return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + x * torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """The device mixes the two: its share of x is the one by tanh, its density the normal one."""
        if b.options.data_format is not DataFormat.Float32:
            return None
        square = b.multiply(x, x)
        if self.approximate == "none":
            density = b.multiply(b.op(Exp(), b.multiply(square, -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
            return b.add(_normal_share(b, x), b.multiply(x, density))
        slope = math.sqrt(2.0 / math.pi)
        inner = b.multiply(x, b.add(b.multiply(square, 0.044715 * slope), slope))
        t = b.op(Tanh(), inner)
        rise = b.multiply(b.subtract(1.0, b.multiply(t, t)), b.add(b.multiply(square, 3 * 0.044715 * slope), slope))
        return b.multiply(b.add(b.add(t, 1.0), b.multiply(x, rise)), 0.5)


def _normal_share(b: Builder, x: str) -> str:
    """The share of a normal distribution below x: (1 + erf(x / sqrt 2)) / 2."""
    return b.multiply(b.add(b.op(Erf(), b.multiply(x, math.sqrt(0.5))), 1.0), 0.5)


@op("sigmoid")
class Sigmoid(Unary):
    """1 / (1 + e^-x)."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.multiply(y, b.subtract(1.0, y)))


@op("tanh")
class Tanh(Unary):
    """Hyperbolic tangent."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.subtract(1.0, b.multiply(y, y)))


@op("sine")
class Sine(Unary):
    """sin x, x in radians."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.sin(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(g, b.op(Cosine(), x[0]))


@op("cosine")
class Cosine(Unary):
    """cos x, x in radians."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.cos(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.negate(b.multiply(g, b.op(Sine(), x[0])))


@op("clip")
class Clip(Unary):
    """x clamped to [min, max]; None leaves that side open. The gradient passes at the bounds, as that of torch's clamp;
    not where `flat_bounds` says so, as with its hardtanh and relu6."""

    min: float | None = None
    max: float | None = None
    flat_bounds: bool = False

    def evaluate(self, x: Tensor) -> Tensor:
        return x if self.min is None and self.max is None else torch.clamp(x, self.min, self.max)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        if self.min is not None and self.max is not None and self.min > self.max:
            return None
        lower, upper = (b.above, b.below) if self.flat_bounds else (b.from_on, b.up_to)
        inside = [lower(x[0], self.min)] if self.min is not None else []
        inside += [upper(x[0], self.max)] if self.max is not None else []
        for mask in inside:
            g = b.multiply(g, mask)
        return g

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Exact in every format: each form only picks one of x and the bounds."""
        low, high = self.min, self.max
        if low is not None and high is not None and low >= high:
            return b.constant(np.full(node.shape, high, np.float32))
        if low == 0:
            return b.op(Relu() if high is None else Relu(high, "max"), x)
        if low is None and high == 0:
            return b.negate(b.op(Relu(), b.negate(x)))
        if high is not None and low is not None and low < 0 < high:
            return b.subtract(b.op(Relu(high, "max"), x), b.op(Relu(-low, "max"), b.negate(x)))
        if low is not None:
            x = b.maximum(x, low)
            if low > 0 and high is not None:
                return b.op(Relu(high, "max"), x)
        return x if high is None else b.negate(b.maximum(b.negate(x), -high))


@op("pow")
class Pow(Unary):
    """x ** exponent."""

    exponent: float

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.pow(x, self.exponent)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        if self.exponent == 0:
            return None
        if self.exponent == 1:
            return g
        return b.multiply(g, b.multiply(b.op(Pow(self.exponent - 1), x[0]), self.exponent))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """Whole and half exponents exactly; any other as e^(n ln x), which like torch's needs x >= 0."""
        n = self.exponent
        if n == 0:
            return b.constant(np.ones(node.shape, np.float32))
        if n == 1:
            return x
        if n < 0:
            return b.op(Reciprocal(), x if n == -1 else b.op(Pow(-n), x))
        whole = math.floor(n)
        if n == whole:
            return None
        if n - whole == 0.5:
            root = b.op(Sqrt(), x)
            return root if whole == 0 else b.multiply(b.op(Pow(float(whole)), x), root)
        return b.op(Exp(), b.multiply(b.op(Log(), b.maximum(x, TINY)), n))


@op("logical_not")
class LogicalNot(Unary):
    """1 where x is 0, else 0."""

    gives_truth = True

    def evaluate(self, x: Tensor) -> Tensor:
        return truth(x == 0, x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """It is constant between its steps."""
        return None

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        if is_truth(b, x):
            return b.mark_truth(b.subtract(1.0, x))
        return b.mark_truth(b.op(Relu(0.5), b.subtract(1.0, step(b, b.op(Abs(), x)))))


@op("erf")
class Erf(Unary):
    """The error function."""

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.erf(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """2 / sqrt(pi) * e^(-x^2)."""
        return b.multiply(g, b.multiply(b.op(Exp(), b.negate(b.multiply(x[0], x[0]))), 2.0 / math.sqrt(math.pi)))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """2 Phi(z) - 1 with z = sqrt(2) x, by Abramowitz and Stegun 7.1.26: off by at most 1.5e-7."""
        size = b.op(Abs(), x)
        t = b.op(Reciprocal(), b.add(b.multiply(size, 0.3275911), 1.0))
        total = b.multiply(t, 1.061405429)
        for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            total = b.multiply(b.add(total, coefficient), t)
        tail = b.multiply(total, b.op(Exp(), b.negate(b.multiply(x, x))))
        sign = b.subtract(step(b, x), step(b, b.negate(x)))
        return b.multiply(sign, b.subtract(1.0, tail))


@op("cast")
class Cast(Unary):
    """Change of element type: a torch dtype's name ("float32", "int64", "bool"). whole: the operand holds whole
    numbers, which wrap in a narrower type."""

    dtype: str
    whole: bool = False

    def evaluate(self, x: Tensor) -> Tensor:
        if self.dtype == "bool":
            return truth(x != 0, x)
        return x.to(getattr(torch, self.dtype))

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return g if self.dtype != "bool" and getattr(torch, self.dtype).is_floating_point else None

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Between floats a cast is the data formats' business; to an integer it would have to round. No device counts
        beyond 32 bits."""
        if self.dtype == "bool":
            return as_truth(b, x)
        wide = self.whole and self.dtype in ("int32", "int64")
        if getattr(torch, self.dtype).is_floating_point or is_truth(b, x) or wide:
            return x
        raise not_on_device(node, f"a cast to {self.dtype} rounds, which no device op does; keep the tensor in float")


@op("round_to")
class RoundTo(Unary):
    """x as a narrower float type ("float16", "bfloat16") holds it."""

    dtype: str

    def evaluate(self, x: Tensor) -> Tensor:
        return x.to(getattr(torch, self.dtype)).to(x.dtype)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(RoundTo(self.dtype), g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Nothing to do where the data format has no more bits, and no wider range."""
        df = b.options.data_format
        if df.mantissa_bits <= 8 and (self.dtype == "bfloat16" or df.family == "a"):
            return x
        raise not_on_device(node, f"it rounds to {self.dtype}, which no device op does in a wider format")


def step(b: Builder, d: str) -> str:
    """1 where d > 0, else 0: d amplified beyond 1, clamped to [0, 1]. A d below 2^-45 in formats with five bits of
    exponent, below 2^-126 in others, counts in part; NaN stays NaN."""
    # 2^15 is the largest power of two that Float16 holds; three of them keep every intermediate in range.
    if b.options.data_format.family == "a":
        for _ in range(2):
            d = b.op(Relu(2.0**15, "max"), b.multiply(d, 2.0**15))
        return b.mark_truth(b.op(Relu(1.0, "max"), b.multiply(d, 2.0**15)))
    return b.mark_truth(b.op(Relu(1.0, "max"), b.multiply(d, 1.0 / TINY)))


def smallest_difference(b: Builder) -> float:
    """The least number that `step` tells from 0: a relu with this threshold writes 0 for less, and for NaN."""
    return 2.0**-45 if b.options.data_format.family == "a" else TINY


def is_truth(b: Builder, x: str) -> bool:
    """Whether every element is known to be 0 or 1: results of comparisons, masks, and what only moves them."""
    while True:
        node = b.graph[x]
        if node.kind is NodeKind.CONSTANT and node.value is not None:
            return bool(((node.value == 0) | (node.value == 1)).all())
        if node.attrs.get("truth") or node.attrs.get("dtype") == "bool":
            return True
        if isinstance(node.op, NdOp) and node.op.gives_truth:
            return True
        if not isinstance(node.op, MOVES):
            return False
        x = node.sources[0]


def as_truth(b: Builder, x: str) -> str:
    """1 where x is not 0, as NaN is not; x itself where it is known to hold only 0 and 1."""
    if is_truth(b, x):
        return x
    zero = b.op(Relu(0.5), b.subtract(1.0, step(b, b.op(Abs(), x))))
    return b.mark_truth(b.subtract(1.0, zero))
