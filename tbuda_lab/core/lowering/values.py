"""A value on its way to hardware: a lowered node, the TMs still to be applied, and what its padding holds; and the
normal form of a list of TMs: transposes in front, neighbours merged, identities gone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from tbuda_lab.core.graph import TILE, TM, Shape, TileShape, apply_shape

_FLIPPED = {"hslice": "vslice", "vslice": "hslice", "hstack": "vstack", "vstack": "hstack"}
_INVERSE = {"hslice": "hstack", "hstack": "hslice", "vslice": "vstack", "vstack": "vslice"}


def simplify(tms: Iterable[TM], shape: TileShape) -> tuple[TM, ...]:
    """An equivalent, usually shorter list for a producer of tile shape (z, rt, ct).

    Rules, to a fixed point: factor-1 moves vanish; transpose . transpose = identity; a transpose moves in front of
    slices, stacks and broadcasts (which swap rows and columns); slice a . slice b = slice a*b, the same for stacks;
    slice n . stack n = identity (and the larger absorbs the smaller where it divides); broadcasts of one dim multiply.
    """
    items = [tm for tm in tms if not _is_identity(tm)]
    changed = True
    while changed:
        changed = False
        for i in range(len(items) - 1):
            merged = _merge(items[i], items[i + 1])
            if merged is not None:
                items[i : i + 2] = [tm for tm in merged if not _is_identity(tm)]
                changed = True
                break
    check = shape
    for tm in items:
        check = apply_shape(tm, check)
    return tuple(items)


def _is_identity(tm: TM) -> bool:
    if tm.name == "broadcast":
        return tm.args[1] == 1
    return tm.name in _FLIPPED and tm.args[0] == 1


def _merge(first: TM, second: TM) -> tuple[TM, ...] | None:
    """What two neighbours become, or None where they stay as they are."""
    if second.name == "transpose":
        if first.name == "transpose":
            return ()
        if first.name in _FLIPPED:
            return TM("transpose"), TM(_FLIPPED[first.name], first.args)
        if first.name == "broadcast":
            dim = {"r": "c", "c": "r", "z": "z"}[str(first.args[0])]
            return TM("transpose"), TM("broadcast", (dim, first.args[1]))
        return None
    if first.name == second.name and first.name in _FLIPPED:
        return (TM(first.name, (int(first.args[0]) * int(second.args[0]),)),)
    if first.name == "broadcast" == second.name and first.args[0] == second.args[0]:
        return (TM("broadcast", (first.args[0], int(first.args[1]) * int(second.args[1]))),)
    if first.name in ("hslice", "vslice") and second.name == _INVERSE[first.name]:
        a, b = int(first.args[0]), int(second.args[0])
        if a % b == 0:
            return (TM(first.name, (a // b,)),)
        if b % a == 0:
            return (TM(second.name, (b // a,)),)
    if first.name in ("hstack", "vstack") and second.name == _INVERSE[first.name]:
        a, b = int(first.args[0]), int(second.args[0])
        if a == b:
            return ()
    return None


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
