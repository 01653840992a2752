"""Reductions within tiles' rows, columns or over slices, and top-k."""

from __future__ import annotations

import numpy as np

from tbuda_lab.sim.arrays import Array, TileDim


def reduce(x: Array, dim: str, func: str, tile_dim: TileDim, groups: tuple[int, int], z: int) -> Array:
    """Maximum or sum of (n, z, R, C) over rows ("r"), columns ("c"), both ("rc") or every `z` slices ("z").

    tile_dim: (height, width) of the output's tiles. groups: how many parts of rows and columns are reduced each for
    itself (the cores of the grid). The result of a part stands in row 0, column 0 or element 0 of one tile; the rest
    of the tile is 0.
    """
    pick = np.max if func == "max" else np.sum
    n, slices, rows, columns = x.shape
    if dim == "z":
        reduced: Array = pick(x.reshape(n, slices // z, z, rows, columns), axis=2)
        return reduced
    h, w = tile_dim
    over_r, over_c = "r" in dim, "c" in dim
    if over_r:
        x = pick(x.reshape(n, slices, groups[0], rows // groups[0], columns), axis=3)
    if over_c:
        x = pick(x.reshape(n, slices, x.shape[2], groups[1], columns // groups[1]), axis=4)
    out = np.zeros((n, slices, x.shape[2] * (h if over_r else 1), x.shape[3] * (w if over_c else 1)), x.dtype)
    out[:, :, ::h if over_r else 1, ::w if over_c else 1] = x
    return out


def topk(values: Array, indices: Array, k: int, columns_of_cores: int, out_columns: int, sort: str) -> Array:
    """The k largest of each row on each core column, descending, or (sort "argmax") what stands at their places in
    `indices`; equal values in order of their place. Columns beyond k are 0.

    The attribute `kreduce` chooses how the machine's sorting network is cut into passes; which values win does not
    depend on it, so it is no argument here.

    values, indices: (n, z, R, C), either with n = 1 when it serves all; the result (n, z, R, out_columns).
    """
    if sort == "argmax" and len(values) != len(indices):
        values, indices = np.broadcast_arrays(values, indices)
    n, z, rows, columns = values.shape
    parts = values.reshape(n, z, rows, columns_of_cores, columns // columns_of_cores)
    order = np.argsort(-parts, axis=-1, kind="stable")[..., :k]
    source = indices.reshape(parts.shape) if sort == "argmax" else parts
    ordered = np.take_along_axis(source, order, axis=-1)
    out = np.zeros((n, z, rows, columns_of_cores, out_columns // columns_of_cores), ordered.dtype)
    out[..., :ordered.shape[-1]] = ordered
    return out.reshape(n, z, rows, out_columns)
