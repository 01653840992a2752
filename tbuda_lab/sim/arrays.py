"""Shapes that every part of the executor speaks of.

A tensor in flight is an array (n, z, R, C): n inputs of the same kind side by side (1 for what does not change from
input to input), z slices, R rows and C columns in elements, whole tiles. Values are float32; tensors of the integer
formats are int32 in queues and float64 in arithmetic, which is exact for every sum and product the machine can hold;
raw words are int32, bit for bit.

Sizes that this machine cannot hold are refused by name, before the system ends the process.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import Diagnostic, NetlistError
from tbuda_lab.core.netlist.schema import Blocking, NetOp, Queue

Array = npt.NDArray[Any]
TileDim = tuple[int, int]
FULL_TILE: TileDim = (32, 32)
LONG_ROW = 128
"""Columns from which arithmetic with one row for all is as quick as with rows that follow one another."""


def element_shape(blocking: Blocking, grid: tuple[int, int], tile_dim: TileDim | None) -> tuple[int, int, int]:
    """(z, R, C) in elements of a tensor of this blocking on a grid of (rows, columns)."""
    h, w = tile_dim or FULL_TILE
    z, rt, ct = blocking.tiles(grid)
    return z, rt * h, ct * w


def op_shape(op: NetOp) -> tuple[int, int, int]:
    """(z, R, C) of an op's output."""
    return element_shape(op.blocking, op.grid_size, op.tile_dim)


def queue_shape(queue: Queue) -> tuple[int, int, int]:
    """(z, R, C) of one entry."""
    return element_shape(queue.blocking, queue.grid_size, queue.tile_dim)


def as_number(x: Array) -> Array:
    """Integer tensors as float64 for arithmetic, anything else as it is."""
    return x.astype(np.float64) if x.dtype.kind in "iu" else x


def shape_text(x: Array | tuple[int, ...]) -> str:
    """ "(z, R, C)" of a tensor in flight or of a shape, for messages."""
    shape = x if isinstance(x, tuple) else x.shape[-3:]
    return f"({', '.join(str(d) for d in shape)})"


def repeat_to(x: Array, shape: tuple[int, ...]) -> Array:
    """`np.broadcast_to` for a shape of as many dims, in half the time."""
    view: Array = np.nditer(
        (x,), ("multi_index", "refs_ok", "zerosize_ok"), (("readonly",),), itershape=shape, order="C"
    ).itviews[0]
    return view


def repeated_column(x: Array) -> bool:
    """Whether memory holds one column, which stands for all."""
    return x.strides[-1] == 0 and x.shape[-1] > 1


def repeated_row(x: Array) -> bool:
    """Whether memory holds one row, which stands for all, as where a model's tensor has a single row."""
    return x.strides[-2] == 0 and x.shape[-2] > 1


def once(x: Array, long_row: int) -> Array:
    """x, (n, z, R, C), with equal columns, or equal rows of `long_row` columns and more, once in memory; read-only
    then. For what is read often: looking costs as much as a copy."""
    if x.shape[1] > 1 and x.strides[1] == 0:  # so are slices already
        return np.broadcast_to(once(x[:, :1], long_row), x.shape)
    for part, other, enough in ((x[..., :1], x[..., 1:2], 2), (x[..., :1, :], x[..., 1:2, :], long_row)):
        if x.shape[-1] >= enough and other.size and np.array_equal(part, other) and (part == x).all():
            return np.broadcast_to(part.copy(), x.shape)
    return x


def misfit(where: str, rule: str, message: str, fix: str = "") -> NetlistError:
    """A netlist that cannot run: what is wrong, where, and what would fit."""
    return NetlistError(f"{where}: {message}", [Diagnostic("error", where, rule, message, fix)])


def words_to_rows(x: Array, tile_dim: TileDim) -> Array:
    """(..., R, C) whose words run tile after tile, as the host hands raw formats over, to plain rows and columns."""
    h, w = tile_dim
    *lead, rows, columns = x.shape
    tiles = x.reshape(*lead, rows // h, columns // w, h, w)
    return np.ascontiguousarray(np.swapaxes(tiles, -3, -2)).reshape(x.shape)


def rows_to_words(x: Array, tile_dim: TileDim) -> Array:
    """Inverse of `words_to_rows`."""
    h, w = tile_dim
    *lead, rows, columns = x.shape
    tiles = x.reshape(*lead, rows // h, h, columns // w, w)
    return np.ascontiguousarray(np.swapaxes(tiles, -3, -2)).reshape(x.shape)


_FALLBACK = 16 << 30


@functools.cache
def physical() -> int:
    """Bytes of main memory of this machine; 16 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _FALLBACK


def too_large(size: int) -> str:
    """Why an array of `size` bytes is not made, or "". One array may take half of the memory."""
    if size <= physical() // 2:
        return ""
    return f"{size / 1e9:.3g} GB are needed, this machine has {physical() / 1e9:.3g} GB"


def held_too_large(size: int) -> str:
    """Why arrays of `size` bytes together are not held at a time, or "". They may take three quarters of the memory."""
    if size <= physical() * 3 // 4:
        return ""
    return f"{size / 1e9:.3g} GB are needed, this machine has {physical() / 1e9:.3g} GB"
