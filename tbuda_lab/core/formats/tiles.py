"""Tiles as bytes: sizes, and packing arrays into the storage order of a device queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import bfp
from tbuda_lab.core.formats.convert import INTEGER_RANGE, MINIFLOAT, quantise
from tbuda_lab.core.formats.data_format import DataFormat

TileDim = tuple[int, int]
U8 = npt.NDArray[np.uint8]

TILE_DIMS: tuple[TileDim, ...] = ((32, 32), (16, 32), (8, 32), (4, 32), (2, 32), (1, 32), (32, 16))
"""(height, width) of every tile the machine knows; grayskull only has the first."""

HEADER_BYTES = 16
FACE = 16
_WORD = {32: "<u4", 16: "<u2", 8: "u1"}


def exponent_bytes(df: DataFormat, tile_dim: TileDim = (32, 32)) -> int:
    """Bytes of the exponent section: one per 16 values, at least 16; 0 for formats without shared exponents."""
    return max(16, tile_dim[0] * tile_dim[1] // bfp.BLOCK) if df.is_bfp else 0


def tile_bytes(df: DataFormat, tile_dim: TileDim = (32, 32), *, align: int = 32, header: bool = True) -> int:
    """Bytes of one tile: data, exponents, and with `header` the 16-byte header, rounded up to `align` (32 on
    grayskull and wormhole_b0, 64 on blackhole). Without a header (flat or untilized data) nothing is rounded."""
    _check_dim(tile_dim)
    size = tile_dim[0] * tile_dim[1] * df.datum_bits // 8 + exponent_bytes(df, tile_dim)
    return -(-(size + HEADER_BYTES) // align) * align if header else size


def pack_tiles(x: npt.ArrayLike, df: DataFormat, tile_dim: TileDim = (32, 32)) -> U8:
    """(t, R, C) -> (t, R/h, C/w, `tile_bytes(df, header=False)`): every tile's bytes, tiles in row-major order.

    A tile holds its exponent section first (block formats; padded with zeros to 16 bytes), then the data: faces of
    16 columns and up to 16 rows in row-major order, each row by row; raw words are stored in plain row order
    ("megarow"). Multi-byte words are little endian; Bfp4 and Bfp2 put the first value into the lowest bits. Signed
    integers are sign and magnitude. Values are converted as `quantise` does; raw words are taken modulo their
    width. Raises `InputError` when R or C is not whole tiles.
    """
    tiles = _split(np.asarray(x), df, tile_dim)
    if df.is_bfp:
        codes, shared = bfp.encode(quantise(tiles, DataFormat.Float32).reshape(*tiles.shape[:3], -1, 16), df)
        section = np.zeros((*tiles.shape[:3], exponent_bytes(df, tile_dim)), np.uint8)
        section[..., : shared.shape[-1]] = shared
        return np.concatenate([section, _squeeze(codes.reshape(tiles.shape), df.datum_bits)], axis=-1)
    return np.ascontiguousarray(_codes(tiles, df)).view(np.uint8)


def unpack_tiles(data: npt.ArrayLike, df: DataFormat, tile_dim: TileDim = (32, 32)) -> npt.NDArray[Any]:
    """Inverse of `pack_tiles`: (t, R/h, C/w, bytes) -> (t, R, C), float32; int32 for integer formats and, bit for
    bit, for raw words."""
    packed = np.ascontiguousarray(data, dtype=np.uint8)
    expected = tile_bytes(df, tile_dim, header=False)
    if packed.ndim != 4 or packed.shape[-1] != expected:
        raise InputError(
            f"tiles of {df} {tile_dim[0]}x{tile_dim[1]} are (t, rt, ct, {expected}) bytes, not {packed.shape}"
        )
    datums = tile_dim[0] * tile_dim[1]
    if df.is_bfp:
        section = exponent_bytes(df, tile_dim)
        codes = _spread(packed[..., section:], df.datum_bits)
        shared = packed[..., : datums // bfp.BLOCK]
        values = bfp.decode(codes.reshape(*shared.shape, bfp.BLOCK), shared, df).reshape(*packed.shape[:3], datums)
    else:
        values = _values(packed.view(_WORD[df.datum_bits]), df)
    return _join(values, df, tile_dim)


def _check_dim(tile_dim: TileDim) -> None:
    if tuple(tile_dim) not in TILE_DIMS:
        names = ", ".join(f"{h}x{w}" for h, w in TILE_DIMS)
        raise InputError(f"no tile is {tile_dim[0]}x{tile_dim[1]}; there are {names}")


def _split(x: npt.NDArray[Any], df: DataFormat, tile_dim: TileDim) -> npt.NDArray[Any]:
    """(t, R, C) -> (t, rt, ct, h*w) in storage order."""
    _check_dim(tile_dim)
    h, w = tile_dim
    if x.ndim != 3 or x.shape[1] % h or x.shape[2] % w:
        raise InputError(f"tiles of {h}x{w} need an array (t, R, C) with whole tiles, not {x.shape}")
    t, rt, ct = x.shape[0], x.shape[1] // h, x.shape[2] // w
    if df.is_raw:
        return x.reshape(t, rt, h, ct, w).transpose(0, 1, 3, 2, 4).reshape(t, rt, ct, h * w)
    fh = min(FACE, h)
    faces = x.reshape(t, rt, h // fh, fh, ct, w // FACE, FACE).transpose(0, 1, 4, 2, 5, 3, 6)
    return faces.reshape(t, rt, ct, h * w)


def _join(values: npt.NDArray[Any], df: DataFormat, tile_dim: TileDim) -> npt.NDArray[Any]:
    """(t, rt, ct, h*w) in storage order -> (t, R, C)."""
    h, w = tile_dim
    t, rt, ct = values.shape[:3]
    if df.is_raw:
        return values.reshape(t, rt, ct, h, w).transpose(0, 1, 3, 2, 4).reshape(t, rt * h, ct * w)
    fh = min(FACE, h)
    faces = values.reshape(t, rt, ct, h // fh, w // FACE, fh, FACE).transpose(0, 1, 3, 5, 2, 4, 6)
    return faces.reshape(t, rt * h, ct * w)


def _codes(x: npt.NDArray[Any], df: DataFormat) -> npt.NDArray[Any]:
    """Values -> words of the format."""
    word = np.dtype(_WORD[df.datum_bits])
    if df.is_raw:
        words: npt.NDArray[Any] = x.astype(np.int64).astype(word)
        return words
    if df.is_integer:
        whole = quantise(x, df).astype(np.int64)
        low, high = INTEGER_RANGE[df]
        whole = np.clip(whole, low, high)
        negative = np.where(whole < 0, 1 << (df.datum_bits - 1), 0)
        return (np.abs(whole) | negative).astype(word)
    raw = np.ascontiguousarray(quantise(x, df)).view(np.uint32)
    if df is DataFormat.Float32:
        return raw.astype(word)
    if df is DataFormat.Float16_b:
        return (raw >> 16).astype(word)
    fraction, lowest, _ = MINIFLOAT[df]
    magnitude = raw & 0x7FFFFFFF
    rebased = np.where(magnitude, (magnitude >> (23 - fraction)) - ((lowest + 126) << fraction), 0)
    code: npt.NDArray[Any] = (rebased | ((raw >> 31) << (df.datum_bits - 1))).astype(word)
    return code


def _values(words: npt.NDArray[Any], df: DataFormat) -> npt.NDArray[Any]:
    """Words of the format -> values."""
    if df.is_raw:
        return words.astype(np.uint32).view(np.int32)
    if df.is_integer:
        if INTEGER_RANGE[df][0] == 0:
            return words.astype(np.int32)
        top = 1 << (df.datum_bits - 1)
        magnitude = (words & (top - 1)).astype(np.int32)
        return np.where(words & top, -magnitude, magnitude)
    raw = words.astype(np.uint32)
    if df is DataFormat.Float32:
        return raw.view(np.float32)
    if df is DataFormat.Float16_b:
        return (raw << 16).view(np.float32)
    fraction, lowest, _ = MINIFLOAT[df]
    code = raw & ((1 << (df.datum_bits - 1)) - 1)
    bits = np.where(code >> fraction, (code + ((lowest + 126) << fraction)) << (23 - fraction), 0).astype(np.uint32)
    return (bits | ((raw >> (df.datum_bits - 1)) << 31)).view(np.float32)


def _squeeze(codes: U8, bits: int) -> U8:
    """Codes of 8, 4 or 2 bits, one per byte -> packed bytes, first code lowest."""
    per = 8 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, per)
    packed = parts[..., 0].copy()
    for index in range(1, per):
        packed |= parts[..., index] << np.uint8(index * bits)
    return packed


def _spread(packed: U8, bits: int) -> U8:
    """Inverse of `_squeeze`."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)
