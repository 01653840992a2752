"""A value on its way to hardware: a lowered node, the TMs still to be applied, and what its padding holds."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import TILE, TM, Shape


def collapse(shape: Shape) -> tuple[int, int, int]:
    """(z, R, C) of an nD shape: leading dims are slices, the last two are rows and columns."""
    if len(shape) >= 2:
        return math.prod(shape[:-2]), shape[-2], shape[-1]
    return 1, 1, (shape[0] if shape else 1)


def tiles_of(size: int) -> int:
    return -(-size // TILE)


@dataclasses.dataclass(frozen=True)
class TileValue:
    """`node` through `tms` is a tensor of logical nD `shape`, stored as collapse(shape) padded to tiles.

    fill_r, fill_c: a logical size of 1 is replicated through the whole tile along that dim.
    zero_r, zero_c: the padding rows or columns hold zeros (vacuously true where nothing is padded).
    """

    node: str
    shape: Shape
    tms: tuple[TM, ...] = ()
    fill_r: bool = False
    fill_c: bool = False
    zero_r: bool = False
    zero_c: bool = False

    def __post_init__(self) -> None:
        _, rows, cols = self.zrc
        if rows % TILE == 0:
            object.__setattr__(self, "zero_r", True)
        if cols % TILE == 0:
            object.__setattr__(self, "zero_c", True)

    @property
    def zrc(self) -> tuple[int, int, int]:
        return collapse(self.shape)

    @property
    def tiles(self) -> tuple[int, int, int]:
        z, r, c = self.zrc
        return z, tiles_of(r), tiles_of(c)

    def through(self, *tms: TM, shape: Shape, **facts: bool) -> TileValue:
        """The same tensor after more TMs; facts default to False unless given."""
        return TileValue(self.node, shape, (*self.tms, *tms), **facts)

    def relabel(self, shape: Shape) -> TileValue:
        """Another nD shape over the same (z, R, C)."""
        if collapse(shape) != self.zrc:
            raise ValueError(f"{self.shape} and {shape} are not the same (z, R, C)")
        return dataclasses.replace(self, shape=shape)
