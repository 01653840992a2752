"""How a picker's entries fall into tiles, the constants of the word stream, and how many tiles, ublocks and strips of a
picker are not empty, for all candidates of an op at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import InputError

TILE = 32
PAGE_WORDS = 2048  # 16-bit words of a 4096-byte tile of encodings
STRIP_WORDS = 3
LAST_IN_SLICE = 1 << 30
LAST_IN_PAGE = 1 << 31
STRIP_INDEX = LAST_IN_SLICE - 1

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]

# Odd random numbers: a tile's 32 row masks times these, summed modulo 2**64, tell tiles apart.
_MIX = np.random.default_rng(0x7E45).integers(1, 1 << 63, TILE, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def bits_for(count: int) -> int:
    """Bits that tell `count` things apart."""
    return max(count - 1, 0).bit_length()


def inner_bits(u_kt: int) -> int:
    """Bits of the tile row in a strip: one even where there is only one row, as the kernel reads it."""
    return max(1, bits_for(u_kt))


def as_entries(coo: npt.ArrayLike) -> I64:
    """The picker as (n, 3) int64; raises `InputError` for another shape or a negative coordinate."""
    entries = np.asarray(coo, dtype=np.int64)
    if entries.ndim != 2 or entries.shape[1] != 3:
        raise InputError(f"a picker is (n, 3): t, out_row, in_row; not {entries.shape}")
    if entries.size and int(entries.min()) < 0:
        raise InputError("a picker has no negative coordinates; leave out rows that pick nothing")
    return entries


def starts(*keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """True where any of the equally long sorted keys differs from its predecessor; True at the first element."""
    first = np.zeros(keys[0].size, np.bool_)
    if first.size:
        first[0] = True
        for key in keys:
            first[1:] |= key[1:] != key[:-1]
    return first


def in_order(keys: I64) -> I64:
    """The keys in ascending order, each once. Those of a picker mostly are already, and sorting takes half of the time
    that NumPy's `unique` does, which hashes them."""
    if keys.size < 2 or bool((keys[1:] > keys[:-1]).all()):
        return keys
    keys = np.sort(keys)
    return keys[starts(keys)]


def tile_masks(tile_of_element: I64, row: I64, column: I64, tiles: int) -> U32:
    """(tiles, 32) words: bit c of word r is set where the tile has a one. Elements are sorted by (tile, row)."""
    masks = np.zeros(tiles * TILE, np.uint32)
    if row.size:
        place = tile_of_element * TILE + row
        first = np.flatnonzero(starts(place))
        bits = np.left_shift(np.uint32(1), column.astype(np.uint32))
        masks[place[first]] = np.bitwise_or.reduceat(bits, first)
    return masks.reshape(tiles, TILE)


def mask_hashes(masks: U32) -> npt.NDArray[np.uint64]:
    """One 64-bit number per tile; equal tiles have equal numbers."""
    mixed: npt.NDArray[np.uint64] = (masks.astype(np.uint64) * _MIX).sum(axis=1, dtype=np.uint64)
    return mixed


def masks_to_tiles(masks: U32) -> npt.NDArray[np.float32]:
    """(..., 32) row masks to (..., 32, 32) values 0 and 1."""
    shifts = np.arange(TILE, dtype=np.uint32)
    return ((masks[..., None] >> shifts) & np.uint32(1)).astype(np.float32)


BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class SparseStatistics:
    """Totals over all grid rows and slices, int64 arrays of the candidates' shape; `distinct` is the number of
    different sparse tiles on the grid row that has most, `strip_tiles` the tiles of the fullest strip, `fits`
    whether the 16-bit words suffice (a strip's ublocks are taken at their largest possible number)."""

    nz_tiles: I64
    nz_ublocks: I64
    nz_strips: I64
    distinct: I64
    strip_tiles: I64
    fits: BoolArray


_DENSE = 4
"""Blocks for each tile up to which they are counted in place; of more most are empty, and sorting is quicker."""


class PickerProfile:
    """A picker's tiles, worked out once; `statistics` then serves any number of candidates."""

    def __init__(self, coo: npt.ArrayLike) -> None:
        entries = as_entries(coo)
        self.t, out_rt, in_rt = (
            (int(v) + d - 1) // d
            for v, d in zip(
                entries.max(axis=0) + 1 if entries.size else np.ones(3, np.int64), (1, TILE, TILE), strict=True
            )
        )
        key = (entries[:, 0] * out_rt + entries[:, 1] // TILE) * in_rt + entries[:, 2] // TILE
        key = in_order((key * TILE + entries[:, 1] % TILE) * TILE + entries[:, 2] % TILE)
        tile = key // (TILE * TILE)
        first = starts(tile)
        self._hash = mask_hashes(tile_masks(np.cumsum(first) - 1, key // TILE % TILE, key % TILE, int(first.sum())))
        tile = tile[first]
        self.slice, self.out_tile, self.in_tile = tile // in_rt // out_rt, tile // in_rt % out_rt, tile % in_rt
        self._last = int(self.out_tile.max(initial=0)), int(self.in_tile.max(initial=0))
        self._blocks: dict[tuple[int, int], tuple[int, int]] = {}
        self._distinct: dict[int, int] = {}

    @property
    def tiles(self) -> int:
        """Number of tiles that hold a one."""
        return int(self.slice.size)

    def blocks(self, rows: int, u_kt: int) -> tuple[int, int]:
        """(blocks of `rows` x `u_kt` tiles that are not empty, tiles of the fullest) over all slices."""
        entry = self._blocks.get((rows, u_kt))
        if entry is None:
            entry = self._blocks[rows, u_kt] = self._count(rows, u_kt)
        return entry

    def distinct(self, rows: int) -> int:
        """Most different tiles among the tiles of one core row of `rows` tile rows."""
        entry = self._distinct.get(rows)
        if entry is None:
            core = self.out_tile // rows
            order = np.lexsort((self._hash, core))
            new = starts(core[order], self._hash[order])
            entry = int(np.bincount(core[order][new]).max()) if core.size else 1
            self._distinct[rows] = entry
        return entry

    def statistics(
        self, *, rt: int, grid_r: npt.ArrayLike, ublock_r: npt.ArrayLike, u_kt: npt.ArrayLike
    ) -> SparseStatistics:
        """Counts for candidates: `rt` tile rows of the output (before any streaming by rows, which changes no
        count), rows of the grid, ublock rows and u_kt as broadcastable arrays. When an op streams by rows, grid_r
        is the product of grid rows and streaming factor."""
        grid, ublock, inner = np.broadcast_arrays(
            np.asarray(grid_r, np.int64), np.asarray(ublock_r, np.int64), np.asarray(u_kt, np.int64)
        )
        rows = np.maximum(rt // np.maximum(grid, 1), 1)
        table = np.stack([rows.ravel(), ublock.ravel(), inner.ravel()], axis=1)
        cases, back = np.unique(table, axis=0, return_inverse=True)
        figures = np.empty((cases.shape[0], 6), np.int64)
        for i, (r, u, k) in enumerate(cases.tolist()):  # distinct candidates, each pair counted once
            strips, strip_tiles = self.blocks(r, k)
            ublocks, ublock_tiles = self.blocks(u, k)
            distinct = self.distinct(r)
            figures[i] = (
                self.tiles,
                ublocks,
                strips,
                distinct,
                strip_tiles,
                self._fits(r, u, k, distinct, strip_tiles, ublock_tiles),
            )
        spread = figures[back.reshape(-1)].reshape(*grid.shape, 6)
        return SparseStatistics(
            spread[..., 0],
            spread[..., 1],
            spread[..., 2],
            spread[..., 3],
            spread[..., 4],
            spread[..., 5].astype(np.bool_),
        )

    def _count(self, rows: int, u_kt: int) -> tuple[int, int]:
        if not self.tiles:
            return 0, 0
        row, column = self.out_tile // rows, self.in_tile // u_kt
        height, width = self._last[0] // rows + 1, self._last[1] // u_kt + 1
        key = (self.slice * height + row) * width + column
        size = self.t * height * width
        if size <= _DENSE * key.size:
            counts = np.bincount(key, minlength=size)
            return int(np.count_nonzero(counts)), int(counts.max())
        key = np.sort(key)
        first = np.flatnonzero(starts(key))
        return first.size, int(np.diff(np.append(first, key.size)).max())

    @staticmethod
    def _fits(rows: int, ublock_r: int, u_kt: int, distinct: int, strip_tiles: int, ublock_tiles: int) -> bool:
        """The widths that `encode_picker` needs, with as many ublocks in a strip as it can have."""
        mblock_m = max(rows // max(ublock_r, 1), 1)
        pointer_bits, index_bits = max(1, (distinct - 1).bit_length()), max(1, (mblock_m - 1).bit_length())
        low_bits = (ublock_r - 1).bit_length() + max(1, (u_kt - 1).bit_length())
        words = STRIP_WORDS + strip_tiles + min(strip_tiles, mblock_m)
        return (
            pointer_bits + low_bits <= 16
            and index_bits < 16
            and ublock_tiles <= 1 << (16 - index_bits)
            and words <= PAGE_WORDS
        )


def statistics(
    coo: npt.ArrayLike, *, rt: int, grid_r: npt.ArrayLike, ublock_r: npt.ArrayLike, u_kt: npt.ArrayLike
) -> SparseStatistics:
    """`PickerProfile(coo).statistics(...)` for a single call."""
    return PickerProfile(coo).statistics(rt=rt, grid_r=grid_r, ublock_r=ublock_r, u_kt=u_kt)


def fits(
    coo: npt.ArrayLike, *, rt: int, grid_r: npt.ArrayLike, ublock_r: npt.ArrayLike, u_kt: npt.ArrayLike
) -> BoolArray:
    """Which candidates' 16-bit encoding words suffice."""
    return statistics(coo, rt=rt, grid_r=grid_r, ublock_r=ublock_r, u_kt=u_kt).fits
