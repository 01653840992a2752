"""Softmax and the normalisations."""

from __future__ import annotations

import torch
from torch.nn import functional

from tbuda_lab.core.graph import Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.ops.base import NdOp, axis_of

Tensor = torch.Tensor


@op("softmax")
class Softmax(NdOp):
    """e^x / sum(e^x) along dim; stable: the maximum along dim is subtracted first."""

    dim: int = -1
    stable: bool = True

    def infer(self, x: Shape) -> Shape:
        axis_of(self.dim, len(x), "softmax")
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.softmax(x, self.dim)


@op("log_softmax")
class LogSoftmax(NdOp):
    """log(softmax(x)) along dim."""

    dim: int = -1

    def infer(self, x: Shape) -> Shape:
        axis_of(self.dim, len(x), "log_softmax")
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.log_softmax(x, self.dim)


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


@op("group_norm")
class GroupNorm(NdOp):
    """Mean and variance over each group of channels (dim 1) and all later dims; weight and bias per channel."""

    groups: int
    eps: float = 1e-5

    def infer(self, x: Shape, weight: Shape, bias: Shape) -> Shape:
        if len(x) < 2 or weight != (x[1],) or bias != (x[1],) or x[1] % self.groups:
            raise ShapeError(f"group_norm of {x}: {self.groups} groups must divide the channels, weight and bias have one each")
        return x

    def evaluate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.group_norm(x, self.groups, weight, bias, self.eps)
