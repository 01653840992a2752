"""Bytes of L1 that one core keeps for each operand (placement.md#l1-of-a-candidate)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.parameters import is_small, preloads, resident_tiles
from tbuda_lab.core.balancer.pickers import ENCODING_DF, SPARSE_TILE_DF, encoding_tiles, picker_profile
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.hwops import HwReduce, HwSparseMatmul


def operand_bytes(
    profile: OpProfile, port: int, rows: np.ndarray, multiplier: Mapping[int, int], align: int
) -> tuple[np.ndarray, np.ndarray]:
    """(input buffer, resident parameter) of one operand for every row. multiplier: blocks in an operand's buffer, where
    it isn't the usual two."""
    operand = profile.operands[port]
    ur, uc = rows["ublock_r"].astype(np.int64), rows["ublock_c"].astype(np.int64)
    m, n = rows["mblock_m"].astype(np.int64), rows["mblock_n"].astype(np.int64)
    u_kt = np.maximum(rows["u_kt"].astype(np.int64), 1)
    tile = tile_bytes(operand.df, align=align)
    factor = max(multiplier.get(port, 2), 2)
    z = operand.tiles[0]
    # a preloaded parameter stays for all t: what t-streaming cuts into parts is there with all its parts
    parts_r, parts_c = rows["stream_r"].astype(np.int64), rows["stream_c"].astype(np.int64)
    if operand.role == "in0":
        # one row of ublocks: the first operand has the minimal buffer (`min_buffer_input: 0`)
        streamed = factor * ur * (uc if profile.kind == "depthwise" else u_kt)
        whole = z * parts_r * m * ur * profile.inner * (n * uc if profile.kind == "depthwise" else 1)
    elif operand.role == "in1":
        streamed = factor * uc * (1 if profile.kind == "depthwise" else u_kt * n)
        whole = z * operand.tiles[1] * parts_c * n * uc
    elif operand.role == "bias":
        streamed = np.maximum(2 // u_kt, factor) * ur * uc
        whole = z * parts_c * n * uc
    else:
        streamed = factor * _elt_ublock(profile, ur, uc, u_kt)
        whole = operand.tiles[0] * operand.tiles[1] * operand.tiles[2] // rows["cores"].astype(np.int64)
    if operand.feed != "parameter":
        return streamed * tile, np.zeros(len(rows), dtype=np.int64)
    # a small one is kept as it lies in its queue and fed through the ordinary input buffer
    prologue, small = preloads(profile, port, rows), is_small(profile, port, rows)
    resident = np.where(small, resident_tiles(profile, port, rows), np.where(prologue, whole, 0))
    beside = np.maximum(streamed - resident, 0) if operand.may_stream else 0
    return np.where(prologue & ~small, beside, streamed) * tile, resident * tile


def picker_bytes(profile: OpProfile, rows: np.ndarray, align: int) -> tuple[int, np.ndarray]:
    """(sparse tiles, encoding) of a sparse matmul's picker, both as a whole."""
    assert isinstance(profile.op, HwSparseMatmul)
    distinct = picker_profile(profile.op.picker).distinct(max(1, profile.out[1]))
    tiles = distinct * tile_bytes(SPARSE_TILE_DF, align=align)
    return tiles, encoding_tiles(rows) * tile_bytes(ENCODING_DF, align=align)


def streamed_encoding_bytes(resident: np.ndarray, align: int) -> np.ndarray:
    """The buffer of an encoding that L1 has no room for: two of its tiles at most."""
    streamed: np.ndarray = np.minimum(resident, 2 * tile_bytes(ENCODING_DF, align=align))
    return streamed


def _elt_ublock(profile: OpProfile, ur: np.ndarray, uc: np.ndarray, u_kt: np.ndarray) -> np.ndarray:
    """Tiles of one input ublock of an eltwise op, splice or reduce."""
    op = profile.op
    tiles: np.ndarray = ur * uc
    if isinstance(op, HwReduce) and op.dim == "r":
        tiles = u_kt * uc
    elif isinstance(op, HwReduce) and op.dim == "c":
        tiles = u_kt * ur
    return tiles
