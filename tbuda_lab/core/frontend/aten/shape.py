"""aten ops that move data: views, permutations, slices, concatenation, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import Call, CannotMap, Result, maps
from tbuda_lab.core.graph import Payload
from tbuda_lab.core.ops import (
    BroadcastTo,
    Concatenate,
    GatherRows,
    Index,
    Pad,
    PixelShuffle,
    Repeat,
    Stack,
    Transpose,
    Where,
)


@maps(
    "aten.view.default",
    "aten._unsafe_view",
    "aten.reshape",
    "aten.flatten",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.unflatten",
    "aten.view_as",
    "aten.reshape_as",
    "aten.atleast_1d.default",
    "aten.ravel",
)
def reshape(c: Call) -> str:
    return c.reshape(c.x(), c.out_shape)


def swap_dims(c: Call, x: str, dim0: int, dim1: int) -> str:
    """Transpose with dims counted from the back; `x` itself when both are the same dim."""
    rank = len(c.shape(x))
    i, j = sorted((dim0 % rank - rank, dim1 % rank - rank))
    return x if i == j else c.op(Transpose(i, j), x)


def permute_dims(c: Call, x: str, order: Sequence[int]) -> str:
    """A permutation as the fewest swaps of two dims: dim i of the result is dim order[i] of x."""
    rank = len(order)
    at = [d % rank for d in range(rank)]
    for i, target in enumerate(d % rank for d in order):
        j = at.index(target)
        if j != i:
            x = swap_dims(c, x, i, j)
            at[i], at[j] = at[j], at[i]
    return x


@maps("aten.permute")
def permute(c: Call) -> str:
    return permute_dims(c, c.x(), c.get("dims"))


@maps("aten.transpose.int", "aten.swapaxes", "aten.swapdims")
def transpose(c: Call) -> str:
    first = c.get("dim0", c.arguments.get("axis0"))
    second = c.get("dim1", c.arguments.get("axis1"))
    return swap_dims(c, c.vector(), first, second)


@maps("aten.movedim", "aten.moveaxis")
def movedim(c: Call) -> str:
    x = c.vector()
    rank = len(c.shape(x))
    as_list = [[d] if isinstance(d, int) else list(d) for d in (c.get("source"), c.get("destination"))]
    source, target = ([d % rank for d in dims] for dims in as_list)
    order = [d for d in range(rank) if d not in source]
    for position, dim in sorted(zip(target, source, strict=True)):
        order.insert(position, dim)
    return permute_dims(c, x, order)


@maps("aten.t", "aten.numpy_T", "aten.mT", "aten.adjoint")
def turn(c: Call) -> str:
    return c.x() if len(c.shape(c.x())) < 2 else swap_dims(c, c.x(), -2, -1)


@maps("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(c: Call) -> str:
    x = c.x()
    return x if c.shape(x) == c.out_shape else c.op(BroadcastTo(c.out_shape), x)


@maps("aten.repeat", "aten.tile")
def repeat(c: Call) -> str:
    factors = tuple(c.get("repeats", c.arguments.get("dims")))
    x, rank = c.x(), len(c.out_shape)
    factors = (1,) * (rank - len(factors)) + factors
    return x if set(factors) == {1} and rank == len(c.shape(x)) else c.op(Repeat(factors), x)


@maps("aten.repeat_interleave.self_int")
def repeat_interleave(c: Call) -> str:
    x, n = c.x(), c.get("repeats")
    shape = c.shape(x)
    if c.arguments.get("dim") is None:
        shape, dim = (math.prod(shape),), 0
        x = c.reshape(x, shape)
    else:
        dim = c.get("dim") % len(shape)
    split = c.reshape(x, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
    wide = c.op(BroadcastTo((*shape[: dim + 1], n, *shape[dim + 1 :])), split)
    return c.reshape(wide, c.out_shape)


def slice_dim(c: Call, x: str, dim: int, start: int, stop: int, step: int = 1) -> str:
    """x[start:stop:step] along dim with Python's rules for negative and too large bounds; x itself if all is kept."""
    shape = c.shape(x)
    dim %= len(shape)
    first, last, _ = slice(start, stop, step).indices(shape[dim])
    if last <= first:
        raise CannotMap(
            f"the slice {start}:{stop} of a dim of size {shape[dim]} is empty; empty tensors are not supported"
        )
    if (first, last, step) == (0, shape[dim], 1):
        return x
    return c.op(Index(dim - len(shape), first, last, step), x)


def take_positions(c: Call, x: str, dim: int, index: np.ndarray) -> str:
    """x[..., index, ...] along dim for a known one-dimensional index: a slice where the index is one, else a gather."""
    shape = c.shape(x)
    dim %= len(shape)
    at = np.where(index < 0, index + shape[dim], index).astype(np.int64)
    if at.size == 0 or at.min() < 0 or at.max() >= shape[dim]:
        raise CannotMap(f"an index outside 0..{shape[dim] - 1}")
    step = int(at[1] - at[0]) if at.size > 1 else 1
    if step > 0 and np.array_equal(at, at[0] + step * np.arange(at.size)):
        return slice_dim(c, x, dim, int(at[0]), int(at[-1]) + 1, step)
    after = math.prod(shape[dim + 1 :])
    rows = c.reshape(x, (*shape[: dim + 1], after))
    picked = c.op(GatherRows(Payload(at)), rows)
    return c.reshape(picked, (*shape[:dim], at.size, *shape[dim + 1 :]))


@maps("aten.slice")
def slice_(c: Call) -> str:
    x = c.x()
    dim = c.get("dim", 0)
    return slice_dim(c, x, dim, c.get("start", 0), c.get("end", c.shape(x)[dim]), c.get("step", 1))


@maps("aten.narrow", "aten.narrow_copy")
def narrow(c: Call) -> str:
    x, start = c.x(), int(c.get("start"))
    start += c.shape(x)[c.get("dim")] if start < 0 else 0
    return slice_dim(c, x, c.get("dim"), start, start + c.get("length"))


@maps("aten.select.int")
def select(c: Call) -> str:
    x, dim = c.x(), c.get("dim")
    at = c.get("index") % c.shape(x)[dim]
    return c.reshape(slice_dim(c, x, dim, at, at + 1), c.out_shape)


@maps(
    "aten.split",
    "aten.split_copy",
    "aten.split_with_sizes",
    "aten.split_with_sizes_copy",
    "aten.chunk",
    "aten.unsafe_chunk",
    "aten.unsafe_split",
    "aten.tensor_split",
)
def split(c: Call) -> Result:
    x, dim = c.x(), c.get("dim", 0)
    pieces, at = [], 0
    for piece in c.out:
        size = int(piece.shape[dim])
        pieces.append(slice_dim(c, x, dim, at, at + size) if size else None)  # nothing computes an empty one
        at += size
    return tuple(pieces)


@maps("aten.unbind", "aten.unbind_copy")
def unbind(c: Call) -> Result:
    x, dim = c.x(), c.get("dim", 0)
    return tuple(c.reshape(slice_dim(c, x, dim, i, i + 1), tuple(piece.shape)) for i, piece in enumerate(c.out))


def join_parts(c: Call, parts: list[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else c.op(Concatenate(axis), *parts)


@maps("aten.cat", "aten.concat", "aten.concatenate")
def cat(c: Call) -> str:
    parts = [x for x in c.xs() if math.prod(c.shape(x))]
    return join_parts(c, parts, c.get("dim", 0) % len(c.out_shape) - len(c.out_shape))


@maps("aten.stack")
def stack(c: Call) -> str:
    return c.op(Stack(c.get("dim", 0) % len(c.out_shape) - len(c.out_shape)), *c.xs())


@maps("aten.roll")
def roll(c: Call) -> str:
    x, shifts, dims = c.x(), c.get("shifts"), c.get("dims", [])
    flat = not dims
    if flat:
        x, dims = c.reshape(x, (math.prod(c.shape(x)),)), [0]
    for shift, dim in zip(shifts, dims, strict=True):
        size = c.shape(x)[dim]
        if shift % size:
            cut = size - shift % size
            x = join_parts(c, [slice_dim(c, x, dim, cut, size), slice_dim(c, x, dim, 0, cut)], dim)
    return c.reshape(x, c.out_shape)


@maps("aten.flip")
def flip(c: Call) -> str:
    x = c.vector()
    for dim in c.get("dims"):
        x = take_positions(c, x, dim, np.arange(c.shape(x)[dim] - 1, -1, -1))
    return x


@maps(
    "aten.constant_pad_nd",
    "aten.pad",
    "aten.reflection_pad1d",
    "aten.reflection_pad2d",
    "aten.replication_pad1d",
    "aten.replication_pad2d",
)
def pad(c: Call) -> str:
    name = c.target._schema.name
    default = "reflect" if "reflection" in name else "replicate" if "replication" in name else "constant"
    mode = c.get("mode", default)
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise CannotMap(f"padding mode {mode!r} is not supported; constant, reflect, replicate and circular are")
    flat, x, value = c.get("pad", c.arguments.get("padding")), c.x(), c.get("value", 0.0)
    rank = len(c.shape(x))
    pairs = [(0, 0)] * (rank - len(flat) // 2) + [(flat[i], flat[i + 1]) for i in range(len(flat) - 2, -1, -2)]
    for dim, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = slice_dim(c, x, dim, max(-before, 0), c.shape(x)[dim] - max(-after, 0))
    grown = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
    if all(pair == (0, 0) for pair in grown):
        return x
    if mode == "circular":
        for dim, (before, after) in enumerate(grown):
            size = c.shape(x)[dim]
            ends = [slice_dim(c, x, dim, size - before, size)] if before else []
            x = (
                join_parts(c, [*ends, x, *([slice_dim(c, x, dim, 0, after)] if after else [])], dim)
                if before or after
                else x
            )
        return x
    return c.op(Pad(grown, mode, float(value)), x)


@maps("aten.pixel_shuffle")
def pixel_shuffle(c: Call) -> str:
    return c.op(PixelShuffle(c.get("upscale_factor")), c.x())


@maps("aten.pixel_unshuffle")
def pixel_unshuffle(c: Call) -> str:
    x, r = c.x(), c.get("downscale_factor")
    n, channels, h, w = c.shape(x)
    split = c.reshape(x, (n, channels, h // r, r, w // r, r))
    return c.reshape(permute_dims(c, split, (0, 1, 3, 5, 2, 4)), c.out_shape)


@maps("aten.slice_scatter", "aten.select_scatter")
def slice_scatter(c: Call) -> str:
    """self with a slice replaced by src: the pieces around it, joined."""
    x, src, dim = c.x(), c.x("src"), c.get("dim", 0)
    shape = c.shape(x)
    dim %= len(shape)
    if c.target._schema.name == "aten::select_scatter":
        start = c.get("index") % shape[dim]
        stop, step = start + 1, 1
        src = c.reshape(src, (*shape[:dim], 1, *shape[dim + 1 :]))
    else:
        start, stop, step = slice(c.get("start", 0), c.get("end", shape[dim]), c.get("step", 1)).indices(shape[dim])
    if stop <= start:
        return x
    if step != 1:
        raise CannotMap("writing to a strided slice; write to a contiguous one")
    parts = [slice_dim(c, x, dim, 0, start)] if start else []
    parts.append(src)
    if stop < shape[dim]:
        parts.append(slice_dim(c, x, dim, stop, shape[dim]))
    return join_parts(c, parts, dim)


@maps("aten.copy")
def copy(c: Call) -> str:
    src = c.x("src")
    return src if c.shape(src) == c.out_shape else c.op(BroadcastTo(c.out_shape), src)


@maps("aten.tril", "aten.triu")
def triangle(c: Call) -> str:
    function = torch.tril if c.target._schema.name == "aten::tril" else torch.triu
    keep = function(torch.ones(c.out_shape[-2:]), c.get("diagonal", 0))
    return c.op(Where(), c.constant(keep), c.x(), c.constant(torch.zeros((), dtype=c.dtype_of("self"))))
