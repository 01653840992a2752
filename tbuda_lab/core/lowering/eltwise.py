"""Lowering of element-wise ops, and of relu, which the packer of the producing op applies."""

from __future__ import annotations

import dataclasses
from typing import Any

from tbuda_lab.core import ops
from tbuda_lab.core.graph import NodeKind, Shape
from tbuda_lab.core.lowering.context import LoweringContext, lowers
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwOp, HwUnary, PackerRelu
from tbuda_lab.core.lowering.values import TileValue
from tbuda_lab.core.ops.unary import SFPU

_KEEPS_ZERO = {"nop", "sqrt", "tanh", "gelu", "lrelu", "abs", "power", "sine"}
HARDWARE_NAME = {"leaky_relu": "lrelu", "pow": "power", "buffer": "nop"}
"""By the type of an op what the hardware's op is called, where that is another name."""


@lowers("add", "subtract", "multiply", "maximum")
def binary(ctx: LoweringContext, op: ops.NdOp, operands: list[TileValue], shape: Shape) -> TileValue:
    """Both operands expanded to the result's shape."""
    a, b = (ctx.expand(v, shape) for v in operands)
    if op.type == "multiply":
        zero_r, zero_c = a.zero_r or b.zero_r, a.zero_c or b.zero_c
    else:
        zero_r, zero_c = a.zero_r and b.zero_r, a.zero_c and b.zero_c
    return ctx.emit(
        HwBinary(op.type),
        [a, b],
        shape,
        zero_r=zero_r,
        zero_c=zero_c,
        fill_r=a.fill_r and b.fill_r,
        fill_c=a.fill_c and b.fill_c,
    )


@lowers(*SFPU)
def unary(ctx: LoweringContext, op: ops.NdOp, operands: list[TileValue], shape: Shape) -> TileValue:
    """One op of the SFPU. Padding of zeros stays zero where f(0) = 0."""
    (x,) = operands
    fn = HARDWARE_NAME.get(op.type, op.type)
    attributes: dict[str, Any] = {}
    if isinstance(op, (ops.Gelu, ops.GeluDerivative)):
        attributes["approximate"] = op.approximate == "tanh"
    elif isinstance(op, ops.LeakyRelu):
        attributes["slope"] = float(op.alpha)
    elif isinstance(op, ops.Pow):
        attributes["exp"] = int(op.exponent)
    keeps = fn in _KEEPS_ZERO
    return ctx.emit(
        HwUnary(fn, **attributes),
        [x],
        shape,
        fill_r=x.fill_r,
        fill_c=x.fill_c,
        zero_r=x.zero_r and keeps,
        zero_c=x.zero_c and keeps,
    )


@lowers("nop")
def nop(ctx: LoweringContext, op: ops.Nop, operands: list[TileValue], shape: Shape) -> TileValue:
    return operands[0]


@lowers("relu")
def relu(ctx: LoweringContext, op: ops.Relu, operands: list[TileValue], shape: Shape) -> TileValue:
    """Fold into the producer when nothing else reads it and it applies no relu yet; else a nop that applies it."""
    (x,) = operands
    packer = PackerRelu(float(op.threshold), op.mode)
    producer = ctx.out[x.node]
    read_once = len(ctx.users[ctx.node.inputs[0].source]) == 1
    # The node must be that nD value's own: behind a reshape stands a node that other values may read as well.
    own = producer.kind is NodeKind.OP and producer.attrs.get("source") == ctx.node.inputs[0].source
    if read_once and own and isinstance(producer.op, HwOp) and producer.op.relu is None:
        producer.op = dataclasses.replace(producer.op, relu=packer)
        return dataclasses.replace(x, shape=shape)
    return ctx.emit(
        HwUnary("nop", relu=packer), [x], shape, fill_r=x.fill_r, fill_c=x.fill_c, zero_r=x.zero_r, zero_c=x.zero_c
    )
