"""Dense matmul, depthwise matmul and what follows them in the same op."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tbuda_lab.sim.arrays import Array, TileDim

Round = Callable[[Array], Array]
"""Rounds an array it may overwrite."""


def blas_ready(x: Array) -> Array:
    """x, copied only if its last two axes are laid out in a way that BLAS cannot walk."""
    item = x.itemsize
    row, column = x.strides[-2:]
    rows, columns = x.shape[-2:]
    by_rows = column == item and row % item == 0 and row // item >= columns
    by_columns = row == item and column % item == 0 and column // item >= rows
    return x if by_rows or by_columns or rows == 1 or columns == 1 else np.ascontiguousarray(x)


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """out[n, z] = a[n, z] @ b[n, z]; a (n, z, M, K), b (n or 1, z, K, N).

    Slices of b beyond those of a are not used. One b for all inputs and slices makes one large product of it.
    """
    n, z, rows, inner = a.shape
    b = blas_ready(b[:, :z])
    if b.shape[1] > 1 and b.strides[1] == 0:
        b = b[:, :1]
    if b.shape[0] == 1 and b.shape[1] == 1:
        flat = a.reshape(n * z * rows, inner) if a.flags.c_contiguous or n * z == 1 else None
        if flat is not None:
            target = out.reshape(n * z * rows, b.shape[3]) if out is not None else None
            result: Array = np.matmul(blas_ready(flat), b[0, 0], out=target)
            return result.reshape(n, z, rows, b.shape[3])
    product: Array = np.matmul(blas_ready(a), b, out=out)
    return product


def blocked_matmul(a: Array, b: Array, blocks: int, spill: Round) -> Array:
    """As `matmul`, with K in `blocks` equal parts whose running sum `spill` rounds after each but the last; spill
    works in place."""
    step = a.shape[3] // blocks
    if a.shape[0] > 1 and b.shape[0] == b.shape[1] == 1:  # one tall matrix, whose parts BLAS can walk
        shape = (*a.shape[:3], b.shape[3])
        a = np.ascontiguousarray(a).reshape(1, 1, -1, a.shape[3])
        return blocked_matmul(a, b, blocks, spill).reshape(shape)
    total = matmul(a[..., :step], b[:, :, :step])
    part = np.empty_like(total)
    for k in range(1, blocks):
        total = spill(total)
        total += matmul(a[..., k * step:(k + 1) * step], b[:, :, k * step:(k + 1) * step], part)
    return total


def accumulate(x: Array, groups: int) -> Array:
    """Sum of every `groups` consecutive slices."""
    n, z, rows, columns = x.shape
    total: Array = x.reshape(n, z // groups, groups, rows, columns).sum(axis=2)
    return total


def add_row(x: Array, bias: Array, tile_dim: TileDim, bias_tile: TileDim) -> Array:
    """Adds row 0 of each tile of `bias` to every row of the tile; overwrites x unless its shape is too small.

    x (n, z, R, C), bias (n or 1, z or 1, as many tile rows as x, C).
    """
    n, z, rows, columns = x.shape
    h, hb = tile_dim[0], bias_tile[0]
    row = bias.reshape(*bias.shape[:2], bias.shape[2] // hb, hb, columns)[:, :, :, :1]
    tiles = x.reshape(n, z, rows // h, h, columns)
    if row.shape[0] > n:
        return (tiles + row).reshape(-1, z, rows, columns)
    tiles += row
    return x


def depthwise(a: Array, b: Array, blocks: int, tile_dim: TileDim) -> Array:
    """out(r, c) = sum over k of a(r, c + ct * k) @ b(k, c), tile by tile.

    a (n, z, R, blocks * C), b (n, z, blocks * inner, C) with C = ct tiles; inner is the width of a's tiles.
    """
    n, z, rows, wide = a.shape
    columns = b.shape[3]
    w = tile_dim[1]
    ct = columns // w
    inner = b.shape[2] // blocks
    taps = a.reshape(n, z, rows, blocks, wide // (blocks * inner), inner)
    right = b.reshape(b.shape[0], b.shape[1], blocks * inner, ct, w)[:, :z]
    out = np.empty((max(n, right.shape[0]), z, rows, ct, w), np.result_type(a, b))
    left = np.empty((n, z, rows, blocks, inner), a.dtype)  # one column of tiles: it stays in the processor's cache
    for c in range(ct):
        left[:] = taps[..., c, :]
        np.matmul(left.reshape(n, z, rows, blocks * inner), right[..., c, :], out=out[..., c, :])
    return out.reshape(-1, z, rows, columns)


_CHUNK = 8192
"""Numbers of a tensor that are worked on together, so that sums stay in the processor's cache."""


def diagonals(b: Array, blocks: int, w: int) -> Array | None:
    """(n, z, blocks, C) the weight of every channel and block, of b (n, z, blocks * inner, C); None where tiles are not
    square or hold anything beside their diagonal."""
    n, z, height, columns = b.shape
    if height != blocks * w or b.dtype != np.float32:
        return None
    tiles = b.reshape(n, z, blocks, w, columns // w, w)
    weights = np.ascontiguousarray(np.einsum("nzkici->nzkci", tiles)).reshape(n, z, blocks, columns)
    return weights if np.count_nonzero(weights) == np.count_nonzero(b) else None


def depthwise_taps(a: Array, weights: Array) -> Array | None:
    """out(r, c) = sum over k of a(k, r, c) * weights(k, c), in ascending k; None if a result is not finite.

    a (n, z, blocks, R, C), weights (n or 1, z, blocks, C). With finite results this is what `depthwise` calculates of
    diagonal tiles, in which zeros add nothing; there each product and sum is rounded once, here both are.
    """
    n, z, blocks, rows, columns = a.shape
    count = max(n, weights.shape[0])
    out = np.empty((count, z, rows, columns), np.float32)
    step = min(rows, max(1, _CHUNK // columns))
    product = np.empty((step, columns), np.float32)
    for i in range(count):
        for s in range(z):
            own = weights[i if weights.shape[0] > 1 else 0, s]
            repeated = np.ascontiguousarray(np.broadcast_to(own[:, None], (blocks, step, columns)))
            taps = a[i if n > 1 else 0, s]
            for begin in range(0, rows, step):
                total = out[i, s, begin:begin + step]
                size = len(total)
                np.multiply(taps[0, begin:begin + step], repeated[0, :size], out=total)
                part = product[:size]
                for k in range(1, blocks):
                    np.multiply(taps[k, begin:begin + step], repeated[k, :size], out=part)
                    total += part
                total += np.float32(0)  # no negative zero, as where a sum begins with 0
    # a sum of finite numbers is finite, but for an overflow: then the tiles are multiplied as they are
    return out if np.isfinite(np.einsum("nzrc->", out)) else None
