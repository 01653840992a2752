"""Lowering of ops that only move data: as TMs where tiles stay whole, else as pickers and splices."""

from __future__ import annotations

import math

import numpy as np

from tbuda_lab.core import ops
from tbuda_lab.core.graph import TILE, Shape
from tbuda_lab.core.graph.tm import hslice, hstack, transpose, vslice, vstack
from tbuda_lab.core.lowering.context import MAX_SPLICE_INPUTS, LoweringContext, lowers
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwSplice
from tbuda_lab.core.lowering.values import TileValue, collapse, tiles_of


# -- slices and stacks whose pieces are whole tiles ---------------------------------------------------------------
@lowers("hslice", "vslice", "hstack", "vstack")
def slice_or_stack(
    ctx: LoweringContext, op: ops.HSlice | ops.VSlice | ops.HStack | ops.VStack, operands: list[TileValue], shape: Shape
) -> TileValue:
    """A TM where the pieces are whole tiles. Columns in other pieces are selected; rows are refused, for a reshape and
    a transpose do the same."""
    (x,) = operands
    n = int(op.n)
    _, rows, cols = x.zrc
    piece = {"hslice": cols // n, "vslice": rows // n, "hstack": cols, "vstack": rows}[op.type]
    if piece % TILE and op.type.startswith("h"):
        return (_cut_columns if op.type == "hslice" else _glue_columns)(ctx, x, n).relabel(shape)
    if piece % TILE:
        raise ctx.fail(
            f"{op.type}({n}) of {x.shape} cuts tiles: the piece is {piece} wide",
            f"pieces must be multiples of {TILE}; a reshape and a transpose do the same for any size",
        )
    tm = {"hslice": hslice, "vslice": vslice, "hstack": hstack, "vstack": vstack}[op.type](n)
    horizontal = op.type.startswith("h")
    return x.through(
        tm,
        shape=shape,
        zero_r=x.zero_r and horizontal,
        zero_c=x.zero_c and not horizontal,
        fill_r=x.fill_r and horizontal,
        fill_c=x.fill_c and not horizontal,
    )


def _cut_columns(ctx: LoweringContext, x: TileValue, n: int) -> TileValue:
    """n slices for each, of its columns in pieces of any width: a selection spreads those that are no whole tiles."""
    z, rows, cols = x.zrc
    piece = cols // n
    if piece % TILE:
        ctx.refuse_long_list(n * tiles_of(piece) * TILE)
        spread = np.full((n, tiles_of(piece) * TILE), -1)
        spread[:, :piece] = np.arange(cols).reshape(n, piece)
        x = ctx.pick_columns(x, (z, rows, spread.size), spread.reshape(-1))
    return x.through(hslice(n), shape=(z * n, rows, piece), zero_r=x.zero_r, zero_c=True)


def _glue_columns(ctx: LoweringContext, x: TileValue, n: int) -> TileValue:
    """The inverse: n slices of any width side by side; a selection closes up those that are no whole tiles."""
    z, rows, cols = x.zrc
    wide = tiles_of(cols) * TILE
    x = x.through(hstack(n), shape=(z // n, rows, n * wide), zero_r=x.zero_r)
    if wide == cols:
        return x
    ctx.refuse_long_list(n * cols)
    closed = np.arange(n)[:, None] * wide + np.arange(cols)
    return ctx.pick_columns(x, (z // n, rows, n * cols), closed.reshape(-1))


@lowers("broadcast_to")
def broadcast_to(ctx: LoweringContext, op: ops.BroadcastTo, operands: list[TileValue], shape: Shape) -> TileValue:
    return ctx.expand(operands[0], shape)


# -- permutations -------------------------------------------------------------------------------------------------
@lowers("transpose")
def transpose_dims(ctx: LoweringContext, op: ops.Transpose, operands: list[TileValue], shape: Shape) -> TileValue:
    """The last two dims turn by a TM. Other dims swap as whole rows; where one of the two is the last, it is turned to
    the rows before and back behind."""
    (x,) = operands
    rank = len(x.shape)
    i, j = sorted(d % rank for d in (op.dim0, op.dim1))
    if i == j:
        return x
    if (i, j) == (rank - 2, rank - 1):
        return transpose_value(x)
    if j == rank - 1:  # swap(i, last) = turn . swap(i, row) . turn
        return transpose_value(_swap_above_columns(ctx, transpose_value(x), i, rank - 2))
    return _swap_above_columns(ctx, x, i, j)


def transpose_value(x: TileValue) -> TileValue:
    """The value with rows and columns exchanged, by a TM."""
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return x.through(transpose(), shape=shape, fill_r=x.fill_c, fill_c=x.fill_r, zero_r=x.zero_c, zero_c=x.zero_r)


def _swap_above_columns(ctx: LoweringContext, x: TileValue, i: int, j: int) -> TileValue:
    """Swap two dims that both lie above the columns: whole rows move."""
    order = list(range(len(x.shape) - 1))
    order[i], order[j] = order[j], order[i]
    shape = (*(x.shape[k] for k in order), x.shape[-1])
    moving = [k for k in order if x.shape[k] > 1]
    if moving == sorted(moving):  # the dims themselves, not their sizes: those of a square swap and look the same
        return _regroup_rows(ctx, x, shape)
    ctx.refuse_long_list(math.prod(x.shape[:-1]))
    source = np.arange(math.prod(x.shape[:-1])).reshape(x.shape[:-1]).transpose(order).reshape(-1)
    return rows_from(ctx, x, shape, source)


def rows_from(ctx: LoweringContext, x: TileValue, shape: Shape, source: np.ndarray) -> TileValue:
    """Result row k (counted through the slices) is source row source[k] (counted likewise), or zero where -1."""
    _, rows, _ = collapse(shape)
    keep = np.flatnonzero(source >= 0)
    return ctx.pick_rows(x, shape, np.stack([keep // rows, keep % rows, source[keep]], axis=1))


# -- reshape ------------------------------------------------------------------------------------------------------
@lowers("reshape")
def reshape(ctx: LoweringContext, op: ops.Reshape, operands: list[TileValue], shape: Shape) -> TileValue:
    """The same elements in row-major order: a relabel where slices, rows and columns stay, TMs where tiles stay whole,
    else rows and columns are selected (`_rewidth`)."""
    (x,) = operands
    if collapse(shape) == x.zrc:
        return x.relabel(shape)
    cols, new_cols = x.zrc[2], collapse(shape)[2]
    if cols == new_cols:
        return _regroup_rows(ctx, x, shape)
    return _rewidth(ctx, x, shape)


def _regroup_rows(ctx: LoweringContext, x: TileValue, shape: Shape) -> TileValue:
    """Same columns, other split of the rows into slices."""
    z, rows, _ = x.zrc
    new_z, new_rows, _ = collapse(shape)
    if (z, rows) == (new_z, new_rows):
        return x.relabel(shape)
    if rows % TILE == 0 and new_rows % TILE == 0:
        tms = (
            [vslice(new_z // z)]
            if new_z % z == 0
            else [vstack(z // new_z)]
            if z % new_z == 0
            else [vstack(z), vslice(new_z)]
        )
        return x.through(*tms, shape=shape, zero_c=x.zero_c, fill_c=x.fill_c)
    ctx.refuse_long_list(z * rows)
    return rows_from(ctx, x, shape, np.arange(z * rows))


def _rewidth(ctx: LoweringContext, x: TileValue, shape: Shape) -> TileValue:
    """Any reshape: cut the rows into chunks of gcd(old, new) columns, regroup the chunks, glue them together.

    Chunks that are whole tiles are cut and glued by hslice and hstack; others are spread to tiles (and closed up
    again) by a column selection.
    """
    z, rows, cols = x.zrc
    new_z, new_rows, new_cols = collapse(shape)
    chunk = math.gcd(cols, new_cols)
    cut, glue = cols // chunk, new_cols // chunk
    if cut > 1:
        x = _cut_columns(ctx, x, cut)
    # Slices are now (z, cut), rows as before; wanted slices are (new_z, glue) with new_rows rows.
    ctx.refuse_long_list(z * cut * rows)
    source = np.arange(z * cut * rows).reshape(z, cut, rows).transpose(0, 2, 1).reshape(new_z, new_rows, glue)
    indices = source.transpose(0, 2, 1).reshape(-1)
    in_order = np.array_equal(indices, np.arange(indices.size))
    grouped = (new_z * glue, new_rows, chunk)
    if x.zrc == grouped and in_order:
        x = x.relabel(grouped)
    elif rows % TILE == 0 and new_rows % TILE == 0 and in_order:
        x = _regroup_rows(ctx, x, grouped)
    else:
        x = rows_from(ctx, x, grouped, indices)
    if glue > 1:
        x = _glue_columns(ctx, x, glue)
    return x.relabel(shape)


# -- selection ----------------------------------------------------------------------------------------------------
@lowers("index")
def index(ctx: LoweringContext, op: ops.Index, operands: list[TileValue], shape: Shape) -> TileValue:
    """One dim's elements from start to stop by stride: a splice where they are whole tiles or slices, else a
    selection."""
    (x,) = operands
    rank = len(x.shape)
    dim = int(op.dim) % rank
    size = x.shape[dim]
    start, stop, step = slice(op.start, op.stop, op.stride).indices(size)
    ctx.refuse_long_list(len(range(start, stop, step)))
    taken = np.arange(start, stop, step)
    if len(taken) == size:
        return x
    if dim < rank - 2:
        return _index_lead(ctx, x, shape, dim, taken)
    aligned = step == 1 and start % TILE == 0 and (stop == size or stop % TILE == 0)
    if aligned:
        axis, begin, length = ("c" if dim == rank - 1 else "r"), start // TILE, tiles_of(stop - start)
        whole = tiles_of(size)
        splice = HwSplice(axis, ((begin, length, whole - begin),))
        return ctx.emit(splice, [x], shape, zero_r=x.zero_r, zero_c=x.zero_c)
    if dim == rank - 1:
        return ctx.pick_columns(x, shape, taken)
    z, rows, _ = x.zrc
    return rows_from(ctx, x, shape, (np.arange(z)[:, None] * rows + taken[None, :]).reshape(-1))


def _index_lead(ctx: LoweringContext, x: TileValue, shape: Shape, dim: int, taken: np.ndarray) -> TileValue:
    """Of a dim above the rows: a splice of slices where they follow each other, else their rows one by one."""
    inner = math.prod(x.shape[dim + 1 : -2])
    step = int(taken[1] - taken[0]) if len(taken) > 1 else 1
    facts = {"zero_r": x.zero_r, "zero_c": x.zero_c, "fill_r": x.fill_r, "fill_c": x.fill_c}
    if step == 1:
        begin, length, period = int(taken[0]) * inner, len(taken) * inner, x.shape[dim] * inner
        return ctx.emit(HwSplice("z", ((begin, length, period - begin),)), [x], shape, **facts)
    rows = x.zrc[1]
    slices = np.arange(x.zrc[0]).reshape(-1, x.shape[dim], inner)[:, taken].reshape(-1)
    return rows_from(ctx, x, shape, (slices[:, None] * rows + np.arange(rows)).reshape(-1))


@lowers("gather_rows")
def gather_rows(ctx: LoweringContext, op: ops.GatherRows, operands: list[TileValue], shape: Shape) -> TileValue:
    """Rows by number, the same in every slice; -1 gives a row of zeros."""
    (x,) = operands
    z, rows, _ = x.zrc
    indices = np.asarray(op.index.array).reshape(-1).astype(np.int64)
    source = np.where(indices[None, :] < 0, -1, np.arange(z)[:, None] * rows + indices[None, :])
    return rows_from(ctx, x, shape, source.reshape(-1))


@lowers("scatter_rows")
def scatter_rows(ctx: LoweringContext, op: ops.ScatterRows, operands: list[TileValue], shape: Shape) -> TileValue:
    """A picker with as many ones in a row as rows go there."""
    (x,) = operands
    z, rows, _ = x.zrc
    goal = np.asarray(op.index.array).reshape(-1).astype(np.int64)
    keep = np.flatnonzero(goal >= 0)
    slices = np.repeat(np.arange(z), len(keep))
    source = (np.arange(z)[:, None] * rows + keep[None, :]).reshape(-1)
    return ctx.pick_rows(x, shape, np.stack([slices, np.tile(goal[keep], z), source], axis=1))


@lowers("sum_rows")
def sum_rows(ctx: LoweringContext, op: ops.SumRows, operands: list[TileValue], shape: Shape) -> TileValue:
    """A picker with a one for every row that is summed."""
    (x,) = operands
    z, rows, _ = x.zrc
    target, source = np.asarray(op.pairs.array).astype(np.int64).T
    slices = np.repeat(np.arange(z), len(target))
    entries = np.stack([slices, np.tile(target, z), slices * rows + np.tile(source, z)], axis=1)
    return ctx.pick_rows(x, shape, entries)


# -- joining ------------------------------------------------------------------------------------------------------
@lowers("concatenate")
def concatenate(ctx: LoweringContext, op: ops.Concatenate, operands: list[TileValue], shape: Shape) -> TileValue:
    """Splices of at most `MAX_SPLICE_INPUTS` operands, joined in groups of six where there are more."""
    if len(operands) == 1:
        return operands[0]
    rank = len(shape)
    dim = int(op.axis) % rank
    while len(operands) > MAX_SPLICE_INPUTS:
        groups = [operands[i : i + 6] for i in range(0, len(operands), 6)]
        operands = [_join(ctx, g, _joined_shape(g, dim), dim) if len(g) > 1 else g[0] for g in groups]
    return _join(ctx, operands, shape, dim)


def _joined_shape(parts: list[TileValue], dim: int) -> Shape:
    shape = list(parts[0].shape)
    shape[dim] = sum(p.shape[dim] for p in parts)
    return tuple(shape)


def _join(ctx: LoweringContext, parts: list[TileValue], shape: Shape, dim: int) -> TileValue:
    """One splice where the seams fall between tiles; else every part is placed among zeros, and all are added."""
    rank = len(shape)
    sizes = [p.shape[dim] for p in parts]
    zero_r, zero_c = all(p.zero_r for p in parts), all(p.zero_c for p in parts)
    if dim < rank - 2:
        inner = math.prod(shape[dim + 1 : -2])
        ranges = tuple((0, n * inner, n * inner) for n in sizes)
        return ctx.emit(
            HwSplice("z", ranges),
            parts,
            shape,
            zero_r=zero_r,
            zero_c=zero_c,
            fill_r=all(p.fill_r for p in parts),
            fill_c=all(p.fill_c for p in parts),
        )
    axis = "c" if dim == rank - 1 else "r"
    if all(n % TILE == 0 for n in sizes[:-1]):
        ranges = tuple((0, tiles_of(n), tiles_of(n)) for n in sizes)
        last = parts[-1]
        return ctx.emit(
            HwSplice(axis, ranges),
            parts,
            shape,
            zero_r=zero_r if axis == "c" else last.zero_r,
            zero_c=zero_c if axis == "r" else last.zero_c,
        )
    # A seam inside a tile: place every part by a picker (zeros elsewhere) and add.
    total: TileValue | None = None
    offset = 0
    for part, size in zip(parts, sizes, strict=True):
        placed = _place_part(ctx, part, shape, axis, offset, size)
        offset += size
        total = (
            placed
            if total is None
            else ctx.emit(
                HwBinary("add"),
                [total, placed],
                shape,
                zero_r=total.zero_r and placed.zero_r,
                zero_c=total.zero_c and placed.zero_c,
            )
        )
    assert total is not None
    return total


def _place_part(ctx: LoweringContext, part: TileValue, shape: Shape, axis: str, offset: int, size: int) -> TileValue:
    """The part at `offset` along the axis of an otherwise zero tensor."""
    z, rows, cols = collapse(shape)
    ctx.refuse_long_list(cols if axis == "c" else z * rows)
    if axis == "c":
        source = np.full(cols, -1)
        source[offset : offset + size] = np.arange(size)
        return ctx.pick_columns(part, shape, source)
    source = np.full((z, rows), -1)
    source[:, offset : offset + size] = np.arange(z * size).reshape(z, size)
    return rows_from(ctx, part, shape, source.reshape(-1))


@lowers("pad")
def pad(ctx: LoweringContext, op: ops.Pad, operands: list[TileValue], shape: Shape) -> TileValue:
    """Constant padding: place the tensor among zeros, then add the value where it is not zero."""
    (x,) = operands
    if op.mode != "constant":
        raise ctx.fail(f"pad mode {op.mode!r}", "only constant padding reaches lowering")
    pads = [tuple(p) for p in op.pads]
    value = float(op.value)
    inner = [i for i, p in enumerate(pads) if p != (0, 0)]
    y = x
    for dim in inner:
        before, after = pads[dim]
        grown = list(y.shape)
        grown[dim] += before + after
        y = _pad_dim(ctx, y, tuple(grown), dim, before)
    if value != 0.0:
        frame = np.full(shape, value, np.float32)
        frame[tuple(slice(b, b + n) for (b, _), n in zip(pads, x.shape, strict=True))] = 0.0
        y = ctx.emit(HwBinary("add"), [y, ctx.constant(frame, shape)], shape)
    return y


def _pad_dim(ctx: LoweringContext, x: TileValue, shape: Shape, dim: int, before: int) -> TileValue:
    """Zeros on both sides of one dim, `before` of them in front. Raises for negative padding."""
    rank = len(shape)
    if before < 0 or shape[dim] - before - x.shape[dim] < 0:
        raise ctx.fail("negative padding", "cut with a slice instead")
    if dim == rank - 1:
        return _place_part(ctx, x, shape, "c", before, x.shape[dim])
    if dim == rank - 2:
        return _place_part(ctx, x, shape, "r", before, x.shape[dim])
    # Rows keep their place inside the slices; absent slices are zero.
    ctx.refuse_long_list(math.prod(shape[:-1]))
    source = np.full(shape[:-1], -1)
    where = [slice(None)] * (rank - 1)
    where[dim] = slice(before, before + x.shape[dim])
    source[tuple(where)] = np.arange(math.prod(x.shape[:-1])).reshape(x.shape[:-1])
    return rows_from(ctx, x, shape, source.reshape(-1))
