"""Quantised ONNX ops: numbers of few bits are computed as the floats that they stand for."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import AtenValue, FoldedValue
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx import read
from tbuda_lab.core.frontend.onnx.elementwise import SMALL_INTEGERS, as_dtype, as_kind
from tbuda_lab.core.frontend.onnx.networks import convolve
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates
from tbuda_lab.core.frontend.onnx.shapes import axis_of
from tbuda_lab.core.ops import RoundWhole


def _spread(n: OnnxNode, x: Tensor, value: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point as it broadcasts over x: one number, one for each index of an axis, or one for a block."""
    shape, own = n.calls.shape(x), n.calls.shape(value)
    if block:
        lead = n.reshape(value, (*own[: axis + 1], 1, *own[axis + 1 :]))
        wide = n.aten.expand(lead, [*own[: axis + 1], block, *own[axis + 1 :]])
        grown = n.reshape(wide, (*own[:axis], own[axis] * block, *own[axis + 1 :]))
        return n.aten.slice(grown, axis, 0, shape[axis])  # type: ignore[no-any-return]
    if len(own) == 1 and own[0] > 1:
        places = [1] * len(shape)
        places[axis] = own[0]
        return n.reshape(value, places)
    return value if own == () else n.reshape(value, ())


MOST_BITS = 10
"""Of numbers that the device rounds: those of eight bits, whatever their zero point is."""
WHOLE_FLOATS = "whole_floats"
"""Attribute of whole numbers that were made of floats which are whole: the name of these."""


def whole_floats(n: OnnxNode, x: Tensor) -> Tensor | None:
    """The floats that whole numbers were made of, which are the same numbers; None where they were not."""
    if not isinstance(x, AtenValue):
        return None
    name = n.calls.graph[x.name].attrs.get(WHOLE_FLOATS)
    return None if name is None else AtenValue(name, torch.float32)


def dequantise(n: OnnxNode, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block: int = 0) -> Tensor:
    """(x - zero) * scale, in float."""
    y = whole_floats(n, x) if n.calls.dtype(scale) == torch.float32 else None
    y = as_dtype(n, x, n.calls.dtype(scale)) if y is None else y
    if zero is not None:
        y = n.aten.sub(y, as_dtype(n, _spread(n, x, zero, axis, block), n.calls.dtype(scale)))
    return n.aten.mul(y, _spread(n, x, scale, axis, block))  # type: ignore[no-any-return]


def quantise(
    n: OnnxNode,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    axis: int,
    dtype: torch.dtype,
    block: int = 0,
    limits: tuple[float, float] | None = None,
) -> Tensor:
    """round(x / scale) + zero, cut to what the type holds, or to limits of its own."""
    least, most = limits or (float(torch.iinfo(dtype).min), float(torch.iinfo(dtype).max))
    found = _on_grid(n, x, _spread(n, x, scale, axis, block), zero, axis, block, dtype, (least, most))
    if found is not None:
        return found
    y = n.aten.round(n.aten.div(x, _spread(n, x, scale, axis, block)))
    if zero is not None:
        y = n.aten.add(y, as_dtype(n, _spread(n, x, zero, axis, block), n.calls.dtype(y)))
    return as_dtype(n, n.aten.clamp(y, least, most), dtype)


def _on_grid(
    n: OnnxNode,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    axis: int,
    block: int,
    dtype: torch.dtype,
    limits: tuple[float, float],
) -> Tensor | None:
    """Whole numbers that the device rounds: of a stored scale, one stored zero point, and few bits; None for others."""
    offset = 0.0
    if zero is not None:
        stored = as_dtype(n, _spread(n, x, zero, axis, block), torch.float32)
        if not isinstance(stored, FoldedValue) or bool((stored.tensor != stored.tensor.reshape(-1)[0]).any()):
            return None
        offset = float(stored.tensor.reshape(-1)[0])
    least, most = (limit - offset for limit in limits)
    largest = int(max(abs(least), abs(most)))
    small = largest.bit_length() <= MOST_BITS and n.calls.dtype(x) == torch.float32
    if not (small and isinstance(x, AtenValue) and isinstance(scale, FoldedValue)):
        return None
    steps = n.aten.clamp(n.aten.mul(x, n.constant(1.0 / scale.tensor)), least, most)
    y = AtenValue(n.calls.emit.op(RoundWhole(largest.bit_length()), steps.name), torch.float32)
    y = n.aten.add(y, offset) if offset else y
    whole: AtenValue = n.aten._to_copy(y, dtype=dtype)
    n.calls.graph[str(whole.name)].attrs[WHOLE_FLOATS] = y.name
    return whole


def _axis(n: OnnxNode) -> int:
    return axis_of(n.attr("axis", 1), n.rank()) if n.rank() > max(0, n.attr("axis", 1)) else 0


@translates("DequantizeLinear")
def dequantize_linear(n: OnnxNode) -> Any:
    x = n.x(0)
    y = dequantise(n, x, n.x(1), n.opt(2), _axis(n), n.attr("block_size", 0))
    if (
        isinstance(x, FoldedValue) and isinstance(y, FoldedValue) and y.tensor.numel() > 1
    ):  # a stored weight: the floats it means
        return n.calls.parameter(x.label, y.tensor)
    return y


@translates("QuantizeLinear")
def quantize_linear(n: OnnxNode) -> Any:
    zero = n.opt(2)
    to = int(n.attr("output_dtype", 0)) or (n.scope.kind_of(n.proto.input[2]) if zero is not None else 0)
    kind = read.onnx.TensorProto.DataType.Name(to or read.onnx.TensorProto.UINT8)
    axis, block = _axis(n), n.attr("block_size", 0)
    if kind.startswith("FLOAT"):
        y = n.aten.div(n.x(0), _spread(n, n.x(0), n.x(1), axis, block))
        if zero is not None:
            y = n.aten.add(y, as_dtype(n, _spread(n, n.x(0), zero, axis, block), n.calls.dtype(y)))
        return as_kind(n, y, to)
    bits, signed = SMALL_INTEGERS.get(kind) or (int(kind.lstrip("UINT")), not kind.startswith("U"))
    least = -(1 << (bits - 1)) if signed else 0
    limits = float(least), float(least + (1 << bits) - 1)
    return quantise(n, n.x(0), n.x(1), zero, axis, read.dtype_of(to or 2), block, limits)


@translates("QLinearMatMul")
def q_linear_matmul(n: OnnxNode) -> Any:
    a = dequantise(n, n.x(0), n.x(1), n.x(2), n.rank(0) - 2)
    b = dequantise(n, n.x(3), n.x(4), n.x(5), n.rank(3) - 1)
    return quantise(n, n.aten.matmul(a, b), n.x(6), n.x(7), n.rank(0) - 1, n.dtype(7))


@translates("QLinearConv")
def q_linear_conv(n: OnnxNode) -> Any:
    x = dequantise(n, n.x(0), n.x(1), n.x(2), 1)
    w = dequantise(n, n.x(3), n.x(4), n.x(5), 0)
    bias = n.opt(8)
    if bias is not None:
        bias = n.aten.mul(as_dtype(n, bias, torch.float32), n.aten.mul(n.x(1), n.x(4)))
    return quantise(n, convolve(n, x, w, bias), n.x(6), n.x(7), 1, n.dtype(7))


def _subtract_zero(n: OnnxNode, position: int, zero: int, by_row: int) -> Tensor:
    floats = whole_floats(n, n.x(position))
    x = as_dtype(n, n.x(position), torch.float32) if floats is None else floats
    if n.opt(zero) is None:
        return x
    return n.aten.sub(x, as_dtype(n, _spread(n, x, n.x(zero), by_row, 0), torch.float32))  # type: ignore[no-any-return]


@translates("MatMulInteger")
def matmul_integer(n: OnnxNode) -> Any:
    a, b = _subtract_zero(n, 0, 2, max(0, n.rank(0) - 2)), _subtract_zero(n, 1, 3, n.rank(1) - 1)
    return as_dtype(n, n.aten.matmul(a, b), torch.int32)


@translates("ConvInteger")
def conv_integer(n: OnnxNode) -> Any:
    return as_dtype(n, convolve(n, _subtract_zero(n, 0, 2, 1), _subtract_zero(n, 1, 3, 0), None), torch.int32)
