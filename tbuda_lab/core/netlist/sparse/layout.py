"""Constants of the word stream, and how a picker's entries fall into tiles."""

from __future__ import annotations

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
