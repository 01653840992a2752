"""Tensor manipulations on whole tensors (n, z, R, C): views wherever the memory layout allows.

Every TM moves whole tiles, except `transpose`, which also turns the inside of each tile: the netlist's TM swaps tile
coordinates and the op that consumes the tensor turns the tiles, so both together are a full transpose at any place
of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.netlist.schema import OpInput, Tm
from tbuda_lab.sim.arrays import Array, TileDim, misfit, repeat_to, shape_text, too_large

Move = Callable[[Array], Array]

OF_ROWS = frozenset(("hstack", "vstack", "vslice"))
"""TMs after which every row of a slice is still in one piece."""


def is_of_columns(tm: Tm) -> bool:
    """Whether a TM does the same in each row of a slice."""
    return tm.name in ("hslice", "hstack") or (tm.name == "broadcast" and all(dim != "r" for dim, _ in tm.args))


def hslice(x: Array, k: int) -> Array:
    """Columns in k parts that become slices: z -> z * k, part innermost."""
    n, z, rows, columns = x.shape
    return x.reshape(n, z, rows, k, columns // k).swapaxes(2, 3).reshape(n, z * k, rows, columns // k)


def hstack(x: Array, k: int) -> Array:
    """Every k consecutive slices side by side; k = 0 means all."""
    n, z, rows, columns = x.shape
    k = k or z
    return x.reshape(n, z // k, k, rows, columns).swapaxes(2, 3).reshape(n, z // k, rows, k * columns)


def vslice(x: Array, k: int) -> Array:
    """Rows in k parts that become slices."""
    n, z, rows, columns = x.shape
    return x.reshape(n, z * k, rows // k, columns)


def vstack(x: Array, k: int) -> Array:
    """Every k consecutive slices on top of one another; k = 0 means all."""
    n, z, rows, columns = x.shape
    k = k or z
    return x.reshape(n, z // k, k * rows, columns)


def broadcast(x: Array, dim: str, k: int) -> Array:
    """The whole tensor k times along "r", "c" or "z". Raises ValueError if no memory could hold it."""
    n, z, rows, columns = x.shape
    if k == 1:
        return x
    _require(k * x.size * x.itemsize)
    axis = {"z": 1, "r": 2, "c": 3}[dim]
    if x.shape[axis] == 1 or x.strides[axis] == 0:  # all along the axis is one
        one = x[(slice(None),) * axis + (slice(1),)]
        return repeat_to(one, (*x.shape[:axis], k * x.shape[axis], *x.shape[axis + 1 :]))
    if dim == "z":
        return repeat_to(x[:, None], (n, k, z, rows, columns)).reshape(n, k * z, rows, columns)
    if dim == "r":
        return repeat_to(x[:, :, None], (n, z, k, rows, columns)).reshape(n, z, k * rows, columns)
    return repeat_to(x[:, :, :, None], (n, z, rows, k, columns)).reshape(n, z, rows, k * columns)


def pad(x: Array, rows: int, columns: int, value: float) -> Array:
    """`rows` and `columns` elements of `value` at the bottom and at the right. Raises ValueError if no memory could
    hold it."""
    _require(x.shape[0] * x.shape[1] * (x.shape[2] + rows) * (x.shape[3] + columns) * x.itemsize)
    return np.pad(x, ((0, 0), (0, 0), (0, rows), (0, columns)), constant_values=value)


def _require(size: int) -> None:
    problem = too_large(size)
    if problem:
        raise ValueError(problem)


def tile_broadcast(x: Array, dim: str, tile_dim: TileDim) -> Array:
    """Row 0 of each tile in all its rows ("r"), column 0 in all its columns ("c"), or element 0 everywhere ("rc")."""
    h, w = tile_dim
    n, z, rows, columns = x.shape
    if ("r" not in dim or x.strides[2] == 0) and ("c" not in dim or x.strides[3] == 0):
        return x  # all of them are one already
    tiles = x.reshape(n, z, rows // h, h, columns // w, w)
    if "r" in dim:
        tiles = tiles[:, :, :, :1]
    if "c" in dim:
        tiles = tiles[..., :1]
    return repeat_to(tiles, (n, z, rows // h, h, columns // w, w)).reshape(x.shape)


def retile(x: Array, old: TileDim, new: TileDim) -> Array:
    """Tiles of another size, each with what it had at the top left: rows and columns beyond `new` are cut off, missing
    ones are 0."""
    n, z, rows, columns = x.shape
    tiles = x.reshape(n, z, rows // old[0], old[0], columns // old[1], old[1])[:, :, :, : new[0], :, : new[1]]
    below, right = max(new[0] - old[0], 0), max(new[1] - old[1], 0)
    if below or right:
        tiles = np.pad(tiles, ((0, 0), (0, 0), (0, 0), (0, below), (0, 0), (0, right)))
    return tiles.reshape(n, z, rows // old[0] * new[0], columns // old[1] * new[1])


def compile_input(
    op_name: str, index: int, port: OpInput, tile_dim: TileDim, goal: TileDim | None = None
) -> Move | None:
    """What stands between a source and an op's port: unpad, the TM list in order, pad; None if nothing does.

    tile_dim: (height, width) of the source's tiles, the unit of pads. goal: of the tiles that the op computes in, after
    the TMs. The result raises `NetlistError` naming op, input and TM when a tensor does not fit.
    """
    where = f"op {op_name!r}, input {index} ({port.source!r})"
    moves: list[tuple[str, Move]] = []
    h, w = tile_dim
    if port.unpad:
        rows, columns = int(port.unpad.get("rt", 0)) * h, int(port.unpad.get("ct", 0)) * w
        moves.append(("unpad", _unpad(rows, columns)))
    listed, (h, w) = compile_list(port.tms or (), (h, w), where)
    moves.extend(listed)
    if port.pad:
        rows, columns = int(port.pad.get("rt", 0)) * h, int(port.pad.get("ct", 0)) * w
        moves.append(("pad", _pad(rows, columns, float(port.pad.get("pad_value", 0)))))
    if goal is not None and goal != (h, w):
        moves.append((f"tiles of {h}x{w} as {goal[0]}x{goal[1]}", _retile((h, w), goal)))
    return _chain(moves, where)


def compile_tms(tms: Sequence[Tm], tile_dim: TileDim, where: str) -> Move | None:
    """The TM list of a queue or of a sub-op; None if it is empty."""
    return _chain(compile_list(tms, tile_dim, where)[0], where)


def compile_list(tms: Sequence[Tm], tile_dim: TileDim, where: str) -> tuple[list[tuple[str, Move]], TileDim]:
    """(text, function) of each TM, and the tile's (height, width) after all of them."""
    moves: list[tuple[str, Move]] = []
    h, w = tile_dim
    for tm in tms:
        text = tm_text(tm)
        if tm.name == "transpose":
            moves.append((text, _transpose))
            h, w = w, h
        elif tm.name == "broadcast":
            moves.extend((text, _broadcast(str(dim), int(k))) for dim, k in tm.args)
        elif tm.name == "pad":
            moves.append((text, _pad(int(tm.args[0]) * h, int(tm.args[1]) * w, float(tm.args[2]))))
        elif tm.name == "unpad":
            moves.append((text, _unpad(int(tm.args[0]) * h, int(tm.args[1]) * w)))
        elif tm.name == "tile_broadcast":
            moves.append((text, _tile_broadcast(str(tm.args[0]), (h, w))))
        elif tm.name in _BY_COUNT:
            moves.append((text, _by_count(tm.name, int(tm.args[0]), h, w)))
        else:
            raise misfit(
                where,
                "O9",
                f"unknown TM {tm.name!r}",
                "one of transpose, broadcast, hslice, hstack, vslice, vstack, pad, tile_broadcast",
            )
    return moves, (h, w)


def tm_text(tm: Tm) -> str:
    """A TM as the netlist writes it."""
    if not tm.args:
        return tm.name
    if tm.name == "broadcast":
        return f"broadcast: {{{', '.join(f'{d}: {k}' for d, k in tm.args)}}}"
    return f"{tm.name}: {tm.args[0] if len(tm.args) == 1 else list(tm.args)}"


def _chain(moves: list[tuple[str, Move]], where: str) -> Move | None:
    if not moves:
        return None

    def run(x: Array) -> Array:
        for text, move in moves:
            try:
                x = move(x)
            except ValueError as error:
                message = f"{text} does not fit a tensor (z, R, C) = {shape_text(x)}: {error}"
                raise misfit(where, "O9", message) from None
            except MemoryError:
                message = f"{text} of a tensor (z, R, C) = {shape_text(x)} does not fit the host's memory"
                raise misfit(where, "memory", message) from None
        return x

    return run


def _transpose(x: Array) -> Array:
    return x.swapaxes(2, 3)


def _retile(old: TileDim, new: TileDim) -> Move:
    return lambda x: retile(x, old, new)


def _broadcast(dim: str, k: int) -> Move:
    def run(x: Array) -> Array:
        if dim not in ("r", "c", "z") or k < 1:
            raise ValueError("a broadcast repeats r, c or z at least once")
        return broadcast(x, dim, k)

    return run


def _pad(rows: int, columns: int, value: float) -> Move:
    return lambda x: pad(x, rows, columns, value)


def _unpad(rows: int, columns: int) -> Move:
    def run(x: Array) -> Array:
        if rows >= x.shape[2] or columns >= x.shape[3]:
            raise ValueError("nothing would be left")
        return x[:, :, : x.shape[2] - rows, : x.shape[3] - columns]

    return run


def _tile_broadcast(dim: str, tile_dim: TileDim) -> Move:
    return lambda x: tile_broadcast(x, dim, tile_dim)


_BY_COUNT: dict[str, Any] = {"hslice": hslice, "hstack": hstack, "vslice": vslice, "vstack": vstack}


def _by_count(name: str, k: int, h: int, w: int) -> Move:
    function = _BY_COUNT[name]

    def run(x: Array) -> Array:
        z, rows, columns = x.shape[1:]
        units, what = {
            "hslice": (columns // w, "tile columns"),
            "vslice": (rows // h, "tile rows"),
            "hstack": (z, "slices"),
            "vstack": (z, "slices"),
        }[name]
        if k < 0 or (k == 0 and "slice" in name) or (k and units % k):
            raise ValueError(f"{k} does not divide the {units} {what}")
        result: Array = function(x, k)
        return result

    return run
