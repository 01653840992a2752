"""Tensor manipulations (TMs): what happens to a tensor on an edge of a lowered graph.

A lowered tensor is (z, R, C) with R and C padded to whole tiles. A TM moves whole tiles, except `transpose`,
which also turns each tile. The names are the netlist's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

TILE = 32


@dataclasses.dataclass(frozen=True)
class TM:
    """`name` is one of transpose, broadcast, hslice, hstack, vslice, vstack, pad, unpad, tile_broadcast.

    broadcast: args = (dim, factor) with dim in "z", "r", "c" and the factor counted in whole tensors.
    hslice, hstack, vslice, vstack: args = (n,).  pad: (rt, ct, value) tiles at the bottom and right.
    unpad: (rt, ct) tiles dropped.  tile_broadcast: ("r" | "c" | "rc",), inside fused ops only.
    """

    name: str
    args: tuple[int | float | str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(a) for a in self.args)})" if self.args else self.name


def transpose() -> TM:
    """Rows become columns, of the tensor and within each tile."""
    return TM("transpose")


def broadcast(dim: str, factor: int) -> TM:
    """Repeat `factor` times along dim "r", "c" or "z"."""
    return TM("broadcast", (dim, factor))


def hslice(n: int) -> TM:
    """Cut the columns into n parts, which become slices of z."""
    return TM("hslice", (n,))


def hstack(n: int) -> TM:
    """Put n neighbouring slices of z side by side."""
    return TM("hstack", (n,))


def vslice(n: int) -> TM:
    """Cut the rows into n parts, which become slices of z."""
    return TM("vslice", (n,))


def vstack(n: int) -> TM:
    """Put n neighbouring slices of z below each other."""
    return TM("vstack", (n,))


TileShape = tuple[int, int, int]
"""(z, rt, ct): slices, and rows and columns counted in tiles."""


class TMError(ValueError):
    """A TM that does not fit the tensor on its edge."""


def apply_shape(tm: TM, shape: TileShape) -> TileShape:
    """Tile shape after one TM; raises `TMError` that says which sizes would divide."""
    z, rt, ct = shape
    if tm.name == "transpose":
        return z, ct, rt
    if tm.name == "broadcast":
        dim, factor = str(tm.args[0]), int(tm.args[1])
        return z * factor if dim == "z" else z, rt * factor if dim == "r" else rt, ct * factor if dim == "c" else ct
    if tm.name == "pad":
        return z, rt + int(tm.args[0]), ct + int(tm.args[1])
    if tm.name == "unpad":
        return z, rt - int(tm.args[0]), ct - int(tm.args[1])
    if tm.name == "tile_broadcast":
        return shape
    n = int(tm.args[0])
    cut = {"hslice": (ct, "columns"), "vslice": (rt, "rows"), "hstack": (z, "slices"), "vstack": (z, "slices")}
    divided, what = cut[tm.name]
    if n < 1 or divided % n:
        raise TMError(f"{tm} on (z={z}, rt={rt}, ct={ct}): {n} does not divide the {divided} {what}")
    if tm.name == "hslice":
        return z * n, rt, ct // n
    if tm.name == "vslice":
        return z * n, rt // n, ct
    if tm.name == "hstack":
        return z // n, rt, ct * n
    return z // n, rt * n, ct


def apply_shapes(tms: Iterable[TM], shape: TileShape) -> TileShape:
    """Tile shape after a list of TMs, first to last."""
    for tm in tms:
        shape = apply_shape(tm, shape)
    return shape
