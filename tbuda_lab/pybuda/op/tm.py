"""Tensor manipulations. Every function takes the op's name first; "" lets it be chosen."""

from __future__ import annotations

import math
from typing import Any

import torch

from tbuda_lab.core import ops
from tbuda_lab.core.errors import ModelError, not_supported
from tbuda_lab.pybuda.op.common import Operand, Tensor, apply, operation, shape_of

TILE = 32


@operation
def HSlice(name: str, operandA: Operand, slices: int) -> Tensor:
    """Columns cut into `slices` pieces that become slices of Z."""
    return apply(name, ops.HSlice(slices), operandA)


@operation
def HStack(name: str, operandA: Operand, slices: int = -1) -> Tensor:
    """Slices of Z side by side: the inverse of HSlice; -1 takes all."""
    return apply(name, ops.HStack(slices), operandA)


@operation
def VSlice(name: str, operandA: Operand, slices: int) -> Tensor:
    """Rows cut into `slices` pieces that become slices of Z."""
    return apply(name, ops.VSlice(slices), operandA)


@operation
def VStack(name: str, operandA: Operand, slices: int = -1) -> Tensor:
    """Slices of Z below each other: the inverse of VSlice; -1 takes all."""
    return apply(name, ops.VStack(slices), operandA)


@operation
def Transpose(
    name: str, operandA: Operand, dim0: int, dim1: int, z_dim_slice: int = -1, out_dtype: Any = None
) -> Tensor:
    """Two dims swapped. z_dim_slice: -1, or the size that dim -3 has afterwards; out_dtype: the
    operand's own type, or torch.float32, the type of floats before a format is chosen. Raises `NotSupported` for
    others."""
    shape = shape_of(operandA)
    rank = len(shape)
    first, second = sorted(d if d < 0 else d - rank for d in (dim0, dim1))
    depth = shape[second] if first == -3 else shape[first] if second == -3 else shape[-3] if rank > 2 else -1
    if z_dim_slice not in (-1, depth):
        raise not_supported(f"Transpose(z_dim_slice={z_dim_slice})", "swap whole dims: leave it at -1")
    if out_dtype not in (None, torch.float32, getattr(operandA, "pt_data_format", None)):
        raise not_supported(
            f"Transpose(out_dtype={out_dtype})",
            "leave it out, and set output_df of the op that reads the result by configure_mixed_precision",
        )
    return apply(name, ops.Transpose(first, second), operandA)


@operation
def Reshape(name: str, operandA: Operand, shape: tuple[int, ...]) -> Tensor:
    """The same elements under another shape; one size may be -1."""
    return apply(name, ops.Reshape(tuple(int(n) for n in shape)), operandA)


@operation
def Index(name: str, operandA: Operand, dim: int, start: int, stop: int | None = None, stride: int = 1) -> Tensor:
    """Elements start, start + stride, ... below stop along dim; without stop, the one at start."""
    size = shape_of(operandA)[dim]
    begin = start + size if start < 0 else start
    end = begin + 1 if stop is None else stop + size if stop < 0 else min(stop, size)
    return apply(name, ops.Index(dim, begin, end, stride), operandA)


@operation
def Select(name: str, operandA: Operand, dim: int, index: int | tuple[int, int], stride: int = 0) -> Tensor:
    """Of every `stride` elements along dim (0: of all), the one at index, or [start, start + length)."""
    begin, length = (index, 1) if isinstance(index, int) else index
    return apply(name, ops.Select(dim, begin, length, stride), operandA)


@operation
def Pad(
    name: str, operandA: Operand, pad: tuple[int, ...], mode: str = "constant", channel_last: bool = False
) -> Tensor:
    """pad: (left, right) or (left, right, top, bottom); mode "constant" (zeros), "reflect" or "replicate"."""
    rank = len(shape_of(operandA))
    last = rank - 2 if channel_last else rank - 1
    pads = [(0, 0)] * rank
    pads[last] = (int(pad[0]), int(pad[1]))
    if len(pad) == 4:
        pads[last - 1] = (int(pad[2]), int(pad[3]))
    return apply(name, ops.Pad(tuple(pads), mode), operandA)


@operation
def PadTile(name: str, operandA: Operand, dim: int, original_length: int) -> Tensor:
    """Zeros after dim, up to a multiple of 32."""
    shape = shape_of(operandA)
    after = -shape[dim] % TILE
    pads = tuple((0, after if i == dim % len(shape) else 0) for i in range(len(shape)))
    return apply(name, ops.Pad(pads), operandA)


@operation
def Narrow(name: str, operandA: Operand, dim: int, start: int, length: int, original_length: int = 0) -> Tensor:
    """`length` elements from `start` along dim."""
    return apply(name, ops.Index(dim, start, start + length), operandA)


@operation
def BudaPad(name: str, operandA: Operand, paddings: tuple[int, int], value: float = 0.0) -> Tensor:
    """paddings = (row tiles, column tiles) of `value` behind rows and columns; a dim that gets some is filled up to
    whole tiles with zeros first."""
    shape = shape_of(operandA)
    leading = ((0, 0),) * (len(shape) - 2)
    fill = tuple((0, -n % TILE if extra > 0 else 0) for n, extra in zip(shape[-2:], paddings, strict=True))
    more = tuple((0, TILE * extra) for extra in paddings)
    if any(after for _, after in fill) and any(after for _, after in more):
        whole = apply(f"{name}.tiles" if name else "", ops.Pad(leading + fill, "constant", 0.0), operandA)
        return apply(name, ops.Pad(leading + more, "constant", float(value)), whole)
    both = tuple((0, a + b) for (_, a), (_, b) in zip(fill, more, strict=True))
    return apply(name, ops.Pad(leading + both, "constant", float(value)), operandA)


@operation
def BudaUnpad(name: str, operandA: Operand, original_length: tuple[int, int], paddings: tuple[int, int]) -> Tensor:
    """The inverse of BudaPad: the first original_length = (rows, columns)."""
    rows = apply(f"{name}.rows" if name else "", ops.Index(-2, 0, original_length[0]), operandA)
    return apply(name, ops.Index(-1, 0, original_length[1]), rows)


@operation
def Concatenate(name: str, *operands: Operand, axis: int) -> Tensor:
    """Operands one after the other along axis."""
    return apply(name, ops.Concatenate(axis), *operands)


@operation
def Stack(name: str, *operands: Operand, axis: int) -> Tensor:
    """Operands side by side along a new dim at axis."""
    return apply(name, ops.Stack(axis), *operands)


@operation
def Unsqueeze(name: str, operandA: Operand, dim: int) -> Tensor:
    """A dim of size 1 at dim."""
    return apply(name, ops.Unsqueeze(dim), operandA)


@operation
def Squeeze(name: str, operandA: Operand, dim: int) -> Tensor:
    """Without the dim of size 1 at dim."""
    return apply(name, ops.Squeeze(dim), operandA)


@operation
def Broadcast(name: str, operandA: Operand, dim: int, shape: int) -> Tensor:
    """dim of size 1 repeated to size `shape`."""
    sizes = list(shape_of(operandA))
    sizes[dim] = shape
    return apply(name, ops.BroadcastTo(tuple(sizes)), operandA)


@operation
def Repeat(name: str, operandA: Operand, factors: list[int] | tuple[int, ...]) -> Tensor:
    """The tensor laid out factors[i] times along dim i."""
    return apply(name, ops.Repeat(tuple(factors)), operandA)


@operation
def PixelShuffle(name: str, operandA: Operand, upscale_factor: int) -> Tensor:
    """(N, C r r, H, W) -> (N, C, H r, W r)."""
    return apply(name, ops.PixelShuffle(upscale_factor), operandA)


@operation
def AdvIndex(name: str, operandA: Operand, operandB: Operand, dim: int = 0) -> Tensor:
    """Slices of operandA along dim 0 at the integer indices of operandB, a vector."""
    shape = shape_of(operandA)
    if dim % len(shape) != 0:
        return apply(name, ops.Embedding(), operandA, operandB)
    table = apply(f"{name}.table" if name else "", ops.Reshape((shape[0], math.prod(shape[1:]))), operandA)
    rows = apply(f"{name}.rows" if name else "", ops.Embedding(), table, operandB)
    return apply(name, ops.Reshape((*shape_of(operandB), *shape[1:])), rows)


def _copied_by_product(name: str, operandA: Operand, index: Operand, value: Operand, dim: int) -> Tensor:
    """A matrix of ones where a slice goes picks the slices; a place that none goes to keeps its own."""
    shape, places = shape_of(operandA), math.prod(shape_of(index))
    dim %= len(shape)
    expected = (*shape[:dim], places, *shape[dim + 1 :])
    if shape_of(value) != expected:
        raise ModelError(
            f"IndexCopy {name!r}: value is {shape_of(value)}; {places} slices along dim {dim} of {shape} are {expected}"
        )
    lead, rest = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])

    def part(of: str, op: ops.NdOp, *operands: Any) -> Tensor:
        return apply(f"{name}.{of}" if name else "", op, *operands)

    numbers = Tensor.create_from_torch(torch.arange(float(shape[dim])).reshape(-1, 1), constant=True)
    written = part("written", ops.Equal(), numbers, part("places", ops.Reshape((1, places)), index))
    rows = part("rows", ops.Reshape((lead, shape[dim], rest)), operandA)
    change = part("change", ops.Matmul(), written, part("value", ops.Reshape((lead, places, rest)), value))
    kept = part(
        "unwritten",
        ops.Subtract(),
        Tensor.create_from_torch(torch.ones(1, 1), constant=True),
        part("any", ops.ReduceMax(-1), written),
    )
    return apply(name, ops.Reshape(shape), part("sum", ops.Add(), part("kept", ops.Multiply(), rows, kept), change))


@operation
def IndexCopy(name: str, operandA: Operand, index: Operand, value: Operand, dim: int) -> Tensor:
    """operandA with value's slices along dim in the places that `index`, a vector, names. Of equal places the last
    counts where index is constant; where it is an input or calculated, places from 0 on have to differ."""
    if not (isinstance(index, Tensor) and index.has_value()):
        return _copied_by_product(name, operandA, index, value, dim)
    size = shape_of(operandA)[dim]
    places = [int(i) + size if i < 0 else int(i) for i in index.value().reshape(-1).tolist()]
    if any(not 0 <= place < size for place in places) or len(places) != shape_of(value)[dim]:
        raise ModelError(
            f"IndexCopy {name!r}: {len(places)} places {places} for {shape_of(value)[dim]} slices of "
            f"value along dim {dim} of size {size}"
        )
    last = {place: k for k, place in enumerate(places)}
    pieces: list[Any] = []
    begin = 0

    def keep(end: int) -> None:
        if begin < end:
            pieces.append(apply(f"{name}.kept{begin}" if name else "", ops.Index(dim, begin, end), operandA))

    for place in sorted(last):
        keep(place)
        k = last[place]
        pieces.append(apply(f"{name}.value{place}" if name else "", ops.Index(dim, k, k + 1), value))
        begin = place + 1
    keep(size)
    return apply(name, ops.Concatenate(dim), *pieces) if len(pieces) > 1 else apply(name, ops.Nop(), pieces[0])
