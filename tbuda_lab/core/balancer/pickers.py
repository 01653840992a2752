"""What a picker costs under each blocking, and its encoding for the chosen one; both are worked out once."""

from __future__ import annotations

import functools

import numpy as np

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import TILE, Payload, TileShape
from tbuda_lab.core.netlist.sparse import PickerProfile, SparseEncoding, encode_picker

SPARSE_TILE_DF = DataFormat.Bfp2_b
ENCODING_DF = DataFormat.RawUInt32
PAGE_BYTES = 4096


@functools.lru_cache(maxsize=512)
def picker_profile(picker: Payload) -> PickerProfile:
    """Tiles of a picker; equal pickers share one."""
    return PickerProfile(picker.array)


def streamed_picker(picker: np.ndarray, out: TileShape, stream: str, factor: int) -> np.ndarray:
    """Picker entries (t, out_row, in_row) of an op that streams `factor` ways along rows: every slice becomes `factor`
    of them, next to each other ("r") or with all slices of one part together ("rz")."""
    z, rt, _ = out
    coords = picker.astype(np.int64, copy=True)
    if factor > 1:
        piece = rt // factor * TILE
        part, coords[:, 1] = coords[:, 1] // piece, coords[:, 1] % piece
        coords[:, 0] = part * z + coords[:, 0] if stream == "rz" else coords[:, 0] * factor + part
    return coords


@functools.lru_cache(maxsize=128)
def _encode(
    picker: Payload,
    out: TileShape,
    act: TileShape,
    stream: str,
    factor: int,
    grid_r: int,
    t: int,
    mblock_m: int,
    ublock_r: int,
    u_kt: int,
) -> SparseEncoding:
    coords = streamed_picker(picker.array, out, stream, factor)
    return encode_picker(
        coords, grid_r=grid_r, t=t, mblock_m=mblock_m, ublock_r=ublock_r, u_kt=u_kt, act_rt=act[1], act_z=act[0]
    )


def encoding_tiles(rows: np.ndarray) -> np.ndarray:
    """Estimate of the tiles of encodings that one core reads: words of strips, ublocks and tiles, and a quarter more,
    because a strip never crosses a page."""
    size = rows["nz_strips"] * 6 + rows["nz_ublocks"] * 2 + rows["nz_tiles"] * 2
    tiles: np.ndarray = np.maximum(1, -(-size * 5 // (4 * PAGE_BYTES)))
    return tiles


def encode_row(picker: Payload, out: TileShape, act: TileShape, row: np.void) -> SparseEncoding:
    """The encoding of a picker for one candidate; `act` is the operand's tile shape. Cached."""
    return _encode(
        picker,
        out,
        act,
        str(row["stream"]),
        int(row["stream_r"]),
        int(row["grid_r"]),
        int(row["t"]),
        int(row["mblock_m"]),
        int(row["ublock_r"]),
        int(row["u_kt"]),
    )
