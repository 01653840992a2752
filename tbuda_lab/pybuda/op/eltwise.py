"""Element-wise ops. Every function takes the op's name first; "" lets it be chosen."""

from __future__ import annotations

import torch

from tbuda_lab.core import ops
from tbuda_lab.core.errors import PipelineError
from tbuda_lab.pybuda.op.common import Operand, Tensor, apply, binary, operation, shape_of, unary

Add = binary(ops.Add(), "Add", "operandA + operandB.")
Subtract = binary(ops.Subtract(), "Subtract", "operandA - operandB.")
Multiply = binary(ops.Multiply(), "Multiply", "operandA * operandB.")
Divide = binary(ops.Divide(), "Divide", "operandA / operandB.")
Max = binary(ops.Maximum(), "Max", "The larger of both.")
Min = binary(ops.Minimum(), "Min", "The smaller of both.")
Power = binary(ops.Power(), "Power", "operandA ** operandB.")
Heaviside = binary(ops.Heaviside(), "Heaviside", "0 where operandA < 0, operandB where it is 0, 1 above.")
Greater = binary(ops.Greater(), "Greater", "1 where operandA > operandB.")
GreaterEqual = binary(ops.GreaterEqual(), "GreaterEqual", "1 where operandA >= operandB.")
Less = binary(ops.Less(), "Less", "1 where operandA < operandB.")
LessEqual = binary(ops.LessEqual(), "LessEqual", "1 where operandA <= operandB.")
Equal = binary(ops.Equal(), "Equal", "1 where both are equal.")
NotEqual = binary(ops.NotEqual(), "NotEqual", "1 where both differ.")
LogicalAnd = binary(ops.LogicalAnd(), "LogicalAnd", "1 where neither is 0.")

Abs = unary(ops.Abs(), "Abs", "|operandA|.")
Buffer = unary(ops.Buffer(), "Buffer", "operandA, as a copy that stays in the graph.")
Exp = unary(ops.Exp(), "Exp", "e ** operandA.")
Log = unary(ops.Log(), "Log", "Natural logarithm.")
LogicalNot = unary(ops.LogicalNot(), "LogicalNot", "1 where operandA is 0, else 0.")
Reciprocal = unary(ops.Reciprocal(), "Reciprocal", "1 / operandA.")
Sqrt = unary(ops.Sqrt(), "Sqrt", "Square root.")
Sigmoid = unary(ops.Sigmoid(), "Sigmoid", "1 / (1 + e ** -operandA).")
Tanh = unary(ops.Tanh(), "Tanh", "Hyperbolic tangent.")
Sine = unary(ops.Sine(), "Sine", "sin operandA.")
Cosine = unary(ops.Cosine(), "Cosine", "cos operandA.")
Tilize = unary(ops.Nop(), "Tilize", "operandA: inputs are tilized by the host.")


@operation
def Identity(name: str, operandA: Operand, unsqueeze: str | None = None, unsqueeze_dim: int | None = None) -> Tensor:
    """operandA; with unsqueeze="unsqueeze", a dim of size 1 is inserted at unsqueeze_dim; "squeeze" removes one."""
    if unsqueeze is None or unsqueeze_dim is None:
        return apply(name, ops.Nop(), operandA)
    op = ops.Squeeze(unsqueeze_dim) if unsqueeze == "squeeze" else ops.Unsqueeze(unsqueeze_dim)
    return apply(name, op, operandA)


@operation
def Relu(name: str, operandA: Operand, threshold: float = 0.0, mode: str = "min") -> Tensor:
    """mode "min": operandA where it is at least threshold, else 0; "max": clamped to [0, threshold]."""
    return apply(name, ops.Relu(float(threshold), mode), operandA)


@operation
def LeakyRelu(name: str, operandA: Operand, alpha: float = 0.01) -> Tensor:
    """operandA where it is positive, else alpha * operandA."""
    return apply(name, ops.LeakyRelu(float(alpha)), operandA)


@operation
def Gelu(name: str, operandA: Operand, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit; approximate "none" or "tanh"."""
    return apply(name, ops.Gelu(approximate), operandA)


@operation
def Clip(name: str, operandA: Operand, min: float, max: float) -> Tensor:
    """operandA clamped to [min, max]."""
    return apply(name, ops.Clip(float(min), float(max)), operandA)


@operation
def Pow(name: str, operandA: Operand, exponent: int | float) -> Tensor:
    """operandA ** exponent."""
    return apply(name, ops.Pow(float(exponent)), operandA)


@operation
def Argmax(name: str, operandA: Operand, dim: int | None = None) -> Tensor:
    """Index of the largest element along dim, which keeps size 1; of all elements when dim is None."""
    if dim is not None:
        return apply(name, ops.Argmax(dim), operandA)
    flat = apply(f"{name}.flatten" if name else "", ops.Reshape((1, 1, 1, -1)), operandA)
    return apply(name, ops.Argmax(-1), flat)


@operation
def CumSum(name: str, operandA: Operand, axis: int, exclusive: bool = False) -> Tensor:
    """Running sum along axis, the element itself included unless exclusive."""
    total = apply(name, ops.CumSum(axis), operandA)
    return apply(f"{name}.exclusive" if name else "", ops.Subtract(), total, operandA) if exclusive else total


@operation
def Dropout(name: str, operandA: Operand, p: float = 0.5, training: bool = True, seed: int = 0) -> Tensor:
    """While training, each element is 0 with probability p, else divided by 1 - p; operandA when not training.

    `seed` alone decides which elements: they are the same for every input and step, and the backward pass drops the
    same ones. For others each time, multiply by a mask that is an input. Raises `PipelineError` unless 0 <= p < 1.
    """
    if not 0 <= p < 1:
        raise PipelineError(f"Dropout: p is a probability from 0 to below 1, not {p!r}")
    if training and p > 0:
        mask = torch.rand(shape_of(operandA), generator=torch.Generator().manual_seed(int(seed))) >= p
        return apply(name, ops.Multiply(), operandA, Tensor.create_from_torch(mask / (1 - p), constant=True))
    return apply(name, ops.Nop(), operandA)


@operation
def Where(name: str, condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where condition is not 0, else y."""
    return apply(name, ops.Where(), condition, x, y)


@operation
def BinaryStack(name: str, operandA: Operand, operandB: Operand, dim: int) -> Tensor:
    """Elements of both alternating along dim, which becomes twice as long."""
    rank = len(shape_of(operandA))
    return apply(name, ops.Interleave(dim if dim < 0 else dim - rank, 1), operandA, operandB)


@operation
def Interleave(name: str, *operands: Operand, axis: int = -3, stride: int = 1) -> Tensor:
    """Slices of the operands in turn along axis, stride at a time."""
    return apply(name, ops.Interleave(axis, stride), *operands)
