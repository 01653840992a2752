"""Softmax and the normalisations."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.graph import Node, Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.ops.base import Names, NdOp, axis_of, negative
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.conv import FromRows, ToRows, per_image
from tbuda_lab.core.ops.reduce import Matmul, ReduceAvg, ReduceMax, ReduceSum
from tbuda_lab.core.ops.unary import Exp, Log, Reciprocal, Sqrt

Tensor = torch.Tensor


def _largest(b: Builder, dim: int, x: str, finite: bool, safe: bool = False) -> str:
    """The maximum along dim; NaN where it is infinite, unless x is known to hold no +inf. A row with an infinite
    maximum is NaN from the subtraction on, as torch has it: later a product could not make it so, for on the machine
    zero times anything is zero. A row of -inf alone needs no care: -inf - -inf is NaN everywhere in it. safe: its
    maximum is a number, so that its exponentials are 0."""
    largest = b.op(ReduceMax(dim), x)
    if safe:
        largest = b.maximum(largest, torch.finfo(torch.float32).min)
    return largest if finite else b.add(largest, b.subtract(largest, largest))


@op("softmax")
class Softmax(NdOp):
    """e^x / sum(e^x) along dim; stable: the maximum along dim is subtracted first; finite: x is known to hold no +inf
    (`passes.finite_rows`); safe: a row of -inf alone is 0, as in attention with a mask, not NaN."""

    dim: int = -1
    stable: bool = True
    finite: bool = False
    safe: bool = False

    def infer(self, x: Shape) -> Shape:
        axis_of(self.dim, len(x), "softmax")
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        y = torch.softmax(x, self.dim)
        return torch.where((x == -torch.inf).all(self.dim, keepdim=True), 0.0, y) if self.safe else y

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.multiply(y, b.subtract(g, b.op(ReduceSum(self.dim), b.multiply(g, y))))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """With the maximum subtracted the sum is at least 1; without it, it may underflow, hence the 1e-10."""
        dim = negative(self.dim, len(b.shape(x)))
        stable = self.stable and b.options.enable_stable_softmax
        if stable:
            x = b.subtract(x, _largest(b, dim, x, self.finite, self.safe))
        e = b.op(Exp(), x)
        total = b.op(ReduceSum(dim), e)
        return b.multiply(e, b.op(Reciprocal(), total if stable else b.add(total, 1e-10)))


@op("log_softmax")
class LogSoftmax(NdOp):
    """log(softmax(x)) along dim; finite: as in `Softmax`."""

    dim: int = -1
    finite: bool = False

    def infer(self, x: Shape) -> Shape:
        axis_of(self.dim, len(x), "log_softmax")
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.log_softmax(x, self.dim)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.subtract(g, b.multiply(b.op(Exp(), y), b.op(ReduceSum(self.dim), g)))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """x - max - ln(sum(e^(x - max))): never the logarithm of a probability that underflowed."""
        dim = negative(self.dim, len(b.shape(x)))
        centred = b.subtract(x, _largest(b, dim, x, self.finite))
        return b.subtract(centred, b.op(Log(), b.op(ReduceSum(dim), b.op(Exp(), centred))))


@op("layernorm")
class Layernorm(NdOp):
    """(x - mean) / sqrt(var + epsilon) * weight + bias, mean and var along dim."""

    dim: int = -1
    epsilon: float = 1e-5

    def infer(self, x: Shape, weight: Shape, bias: Shape) -> Shape:
        axis_of(self.dim, len(x), "layernorm")
        if broadcast_shapes(x, weight, bias) != x:
            raise ShapeError(f"layernorm: weight {weight} and bias {bias} must broadcast into {x}")
        return x

    def evaluate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        centred = x - x.mean(self.dim, keepdim=True)
        variance = (centred * centred).mean(self.dim, keepdim=True)
        return centred / torch.sqrt(variance + self.epsilon) * weight + bias

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """With n = (x - mean) / d, d = sqrt(var + epsilon) and s = g * weight: (s - mean(s) - n mean(s n)) / d."""
        if port == 2:
            return g
        dim = negative(self.dim, len(b.shape(x[0])))
        centred = b.subtract(x[0], b.op(ReduceAvg(dim), x[0]))
        root = inverse_root(b, b.op(ReduceAvg(dim), b.multiply(centred, centred)), self.epsilon)
        normal = b.multiply(centred, root)
        if port == 1:
            return b.multiply(g, normal)
        slope = b.multiply(g, x[1])
        along = b.multiply(normal, b.op(ReduceAvg(dim), b.multiply(slope, normal)))
        return b.multiply(root, b.subtract(b.subtract(slope, b.op(ReduceAvg(dim), slope)), along))

    def canonicalise(self, b: Builder, node: Node, x: str, weight: str, bias: str) -> str:
        dim = negative(self.dim, len(b.shape(x)))
        centred = b.subtract(x, b.op(ReduceAvg(dim), x))
        variance = b.op(ReduceAvg(dim), b.multiply(centred, centred))
        normal = b.multiply(centred, inverse_root(b, variance, self.epsilon))
        return b.add(b.multiply(normal, weight), bias)


@op("batchnorm")
class Batchnorm(NdOp):
    """(x - mean) / sqrt(var + epsilon) * weight + bias with stored mean and var; channels are dim 1."""

    epsilon: float = 1e-5

    def infer(self, x: Shape, weight: Shape, bias: Shape, mean: Shape, var: Shape) -> Shape:
        if len(x) < 2 or any(s != (x[1],) for s in (weight, bias, mean, var)):
            raise ShapeError(f"batchnorm of {x}: weight, bias, mean and var are vectors of the channels, dim 1")
        return x

    def evaluate(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, self.epsilon)

    def canonicalise(self, b: Builder, node: Node, x: str, weight: str, bias: str, mean: str, var: str) -> str:
        """x * scale + shift per channel; scale and shift depend on stored values only and fold away."""
        scale = b.multiply(weight, inverse_root(b, var, self.epsilon))
        shift = b.subtract(bias, b.multiply(mean, scale))
        column = (b.shape(x)[1],) + (1,) * (len(b.shape(x)) - 2)
        return b.add(b.multiply(x, b.reshape(scale, column)), b.reshape(shift, column))


@op("batchnorm_training")
class BatchnormTraining(NdOp):
    """Batch norm by mean and variance of x itself, one element of a batch. The stored mean and var are not read: from
    each x they take `momentum` of its mean and unbiased variance, which the pass `running_statistics` writes down."""

    epsilon: float = 1e-5
    momentum: float = 0.1

    def infer(self, x: Shape, weight: Shape, bias: Shape, mean: Shape, var: Shape) -> Shape:
        if len(x) < 3 or x[0] != 1 or any(s != (x[1],) for s in (weight, bias, mean, var)):
            raise ShapeError(f"batchnorm_training of {x}: one element, and vectors of the channels, dim 1")
        return x

    def evaluate(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return functional.batch_norm(x, None, None, weight, bias, True, 0.0, self.epsilon)

    def canonicalise(self, b: Builder, node: Node, x: str, weight: str, bias: str, mean: str, var: str) -> str:
        return b.op(GroupNorm(b.shape(x)[1], self.epsilon), x, weight, bias)

    def statistics(self, b: Builder, x: str, mean: str, var: str) -> tuple[str, str]:
        """The stored mean and var after x: (1 - momentum) of theirs and `momentum` of x's, whose variance is by one
        less than the values of a channel. x as `GroupNorm` has it, so that both share the means."""
        shape, part = b.shape(x), self.momentum
        hw = (int(np.prod(shape[2:-1])), shape[-1])
        count = hw[0] * hw[1]
        rows = b.op(ToRows(), b.reshape(x, (1, shape[1], *hw)))
        own_mean = b.op(ReduceAvg(-2), rows)
        centred = b.subtract(rows, own_mean)
        own_var = b.op(ReduceAvg(-2), b.multiply(centred, centred))

        def blend(stored: str, own: str, share: float) -> str:
            flat = b.reshape(own, (shape[1],))
            return b.add(b.multiply(stored, 1.0 - part), b.multiply(flat, share))

        return blend(mean, own_mean, part), blend(var, own_var, part * count / (count - 1))


@op("group_norm")
class GroupNorm(NdOp):
    """Mean and variance over each group of channels (dim 1) and all later dims; weight and bias per channel."""

    groups: int
    eps: float = 1e-5

    def infer(self, x: Shape, weight: Shape, bias: Shape) -> Shape:
        if len(x) < 2 or weight != (x[1],) or bias != (x[1],) or x[1] % self.groups:
            raise ShapeError(f"group_norm of {x}: {self.groups} groups divide the channels, weight and bias fit them")
        return x

    def evaluate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.group_norm(x, self.groups, weight, bias, self.eps)

    def canonicalise(self, b: Builder, node: Node, x: str, weight: str, bias: str) -> str:
        """Rows layout: means over the pixels, then within each group by a small averaging matrix of the channels."""
        shape = b.shape(x)
        n, c = shape[0], shape[1]
        if n != 1:
            return per_image(b, x, lambda one: b.op(self, one, weight, bias))
        hw = (int(np.prod(shape[2:-1])), shape[-1]) if len(shape) > 2 else (1, 1)
        rows = b.op(ToRows(), b.reshape(x, (1, c, *hw)))
        each = c // self.groups
        mixer = np.kron(np.eye(self.groups), np.full((each, each), 1.0 / each)).astype(np.float32)

        def group_mean(values: str) -> str:
            of_channels = b.op(ReduceAvg(-2), values)
            return of_channels if each == 1 else b.op(Matmul(), of_channels, b.constant(mixer))

        centred = b.subtract(rows, group_mean(rows))
        variance = group_mean(b.multiply(centred, centred))
        normal = b.multiply(centred, inverse_root(b, variance, self.eps))
        return b.reshape(b.op(FromRows(hw), b.add(b.multiply(normal, weight), bias)), shape)


def inverse_root(b: Builder, variance: str, epsilon: float) -> str:
    """1 / sqrt(variance + epsilon)."""
    return b.op(Reciprocal(), b.op(Sqrt(), b.add(variance, epsilon)))
