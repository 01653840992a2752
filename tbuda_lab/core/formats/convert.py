"""What a float32 value becomes when the host writes it in a data format and reads it back, and when the packer rounds
it (the executor's device mode)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats.bfp import BLOCK, round_blocks
from tbuda_lab.core.formats.chunks import CHUNK, F32, U32, finish, flat_pair, scratch
from tbuda_lab.core.formats.data_format import DataFormat

_SIGN = np.uint32(0x80000000)
_NEAR_HALF = np.float32(0.49999997)

INTEGER_RANGE = {
    DataFormat.Int8: (-127, 127),
    DataFormat.UInt8: (0, 255),
    DataFormat.UInt16: (0, 65535),
    DataFormat.Int32: (-(2**31) + 1, 2**31 - 1),
}
"""Smallest and largest value; the signed ones are stored as sign and magnitude."""

MINIFLOAT = {DataFormat.Float16: (10, -14, 16), DataFormat.Lf8: (2, -14, 16), DataFormat.Fp8_e4m3: (3, -6, 8)}
"""(fraction bits, smallest exponent, largest exponent): no denormals, no infinity, no NaN; the highest exponent
holds numbers like any other."""


def quantise(x: npt.ArrayLike, df: DataFormat, *, out: F32 | None = None) -> npt.NDArray[Any]:
    """The value after the host's conversion float32 -> `df` -> float32, of any shape.

    Float16_b truncates; Float16, Lf8 and Fp8_e4m3 truncate, flush what is below their smallest normal to a signed
    zero and saturate (infinity and NaN too); block formats follow `bfp`, with blocks of 16 along the last axis,
    which must be a multiple of 16; integers round half away from zero, clip, and take NaN as 0. Float32 and raw
    words are returned as they are (`x` itself unless `out` is given), and an integer array in an integer format is
    only clipped and keeps its dtype, so that Int32 stays exact above 2**24.

    `out` is float32 of the same shape and may be `x`. Raises `InputError` for a wrong last axis or `out`.
    """
    array = np.asarray(x)
    if df.is_integer and array.dtype.kind in "iu":
        return _clip_integers(array, df, out)
    if df is DataFormat.Float32 or df.is_raw:
        return _identity(array, df, out)
    if df is DataFormat.Invalid:
        raise InputError("the data format Invalid holds no values")
    if df.is_bfp:
        check_blocks(array, df)
    flat, flat_out, result = flat_pair(array, out)
    if df is DataFormat.Float16_b:
        np.bitwise_and(flat.view(np.uint32), np.uint32(0xFFFF0000), out=flat_out.view(np.uint32))
    elif df.is_bfp:
        round_blocks(flat, flat_out, df)
    elif df.is_integer:
        _round_integers(flat, flat_out, df)
    else:
        truncate_minifloat(flat, flat_out, df)
    return finish(flat_out, result)


def cut_blocks(x: npt.ArrayLike, df: DataFormat, *, out: F32 | None = None) -> F32:
    """`x` in a block format, the bits beyond its own cut off: what the golden model's packer and unpacker do, where the
    host rounds. Shape, `out` and errors as `quantise`."""
    array = np.asarray(x, dtype=np.float32)
    check_blocks(array, df)
    flat, flat_out, result = flat_pair(array, out)
    round_blocks(flat, flat_out, df, mode="cut")
    return finish(flat_out, result)


def tf32(x: npt.ArrayLike, *, out: F32 | None = None) -> F32:
    """Float32 truncated to the 10 fraction bits that the unpacker keeps; any shape, `out` may be `x`."""
    flat, flat_out, result = flat_pair(x, out)
    np.bitwise_and(flat.view(np.uint32), np.uint32(0xFFFFE000), out=flat_out.view(np.uint32))
    return finish(flat_out, result)


def check_blocks(x: npt.NDArray[Any], df: DataFormat) -> None:
    """Raises `InputError` unless the last axis holds whole blocks."""
    if x.ndim == 0 or x.shape[-1] % BLOCK:
        raise InputError(
            f"{df} shares an exponent among {BLOCK} values of a row: pad the last axis of shape "
            f"{x.shape} to a multiple of {BLOCK}"
        )


def truncate_minifloat(x: F32, out: F32, df: DataFormat) -> None:
    """Truncates a flat array to one of the formats of `MINIFLOAT`; `out` may be `x`."""
    fraction, lowest, highest = MINIFLOAT[df]
    drop = 23 - fraction
    keep = np.uint32(0x7FFFFFFF & ~((1 << drop) - 1))
    smallest = np.uint32((lowest + 127) << 23)
    largest = np.uint32(((highest + 127) << 23) | (0x7FFFFF & ~((1 << drop) - 1)))
    raw, target = x.view(np.uint32), out.view(np.uint32)
    for start in range(0, raw.size, CHUNK):
        piece = raw[start : start + CHUNK]
        n = piece.size
        magnitude = np.bitwise_and(piece, keep, out=scratch("mini.mag", np.uint32, n))
        flushed = np.less(magnitude, smallest, out=scratch("mini.flag", np.bool_, n))
        np.minimum(magnitude, largest, out=magnitude)
        sign = np.bitwise_and(piece, _SIGN, out=scratch("mini.sign", np.uint32, n))
        if flushed.any():
            magnitude[flushed] = 0
        np.bitwise_or(magnitude, sign, out=target[start : start + CHUNK])


def _identity(x: npt.NDArray[Any], df: DataFormat, out: F32 | None) -> npt.NDArray[Any]:
    if out is not None:
        np.copyto(out, x)
        return out
    return x if df.is_raw else np.asarray(x, dtype=np.float32)


def _clip_integers(x: npt.NDArray[Any], df: DataFormat, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """Limits an integer array to the range of the format as far as its dtype can hold that range."""
    info = np.iinfo(x.dtype)
    low, high = INTEGER_RANGE[df]
    clipped: npt.NDArray[Any] = np.clip(x, max(low, int(info.min)), min(high, int(info.max)), out=out)
    return clipped


def _round_integers(x: F32, out: F32, df: DataFormat) -> None:
    low, high = INTEGER_RANGE[df]
    limit = np.float32(high)
    for start in range(0, x.size, CHUNK):
        piece = x[start : start + CHUNK]
        n = piece.size
        value = scratch("int.value", np.float32, n)
        np.abs(piece, out=value) if low else np.maximum(piece, np.float32(0), out=value)
        value += _NEAR_HALF
        np.floor(value, out=value)
        np.minimum(value, limit, out=value)
        if low:
            sign = np.bitwise_and(piece.view(np.uint32), _SIGN, out=scratch("int.sign", np.uint32, n))
            np.bitwise_or(value.view(np.uint32), sign, out=value.view(np.uint32))
        if np.isnan(value.max()):
            value[np.isnan(value)] = 0
        np.add(value, np.float32(0), out=out[start : start + CHUNK])  # integers have no negative zero


def round_to(
    x: npt.ArrayLike, df: DataFormat, *, out: F32 | None = None, rng: np.random.Generator | None = None
) -> npt.NDArray[Any]:
    """`x` rounded to `df` as the packer does, stochastically when `rng` is given; shape, `out` and errors as
    `quantise`. NaN stays NaN in Float16_b and saturates in the formats that have none."""
    array = np.asarray(x)
    if df in (DataFormat.Float32, DataFormat.Invalid) or df.is_raw or df.is_integer:
        return quantise(array, df, out=out)
    if df.is_bfp:
        check_blocks(array, df)
    flat, flat_out, result = flat_pair(array, out)
    if df.is_bfp:
        round_blocks(flat, flat_out, df, mode="even" if rng is None else "stochastic", rng=rng)
    elif df is DataFormat.Float16_b:
        _round_bits(flat, flat_out, 16, rng)
    else:
        _round_bits(flat, flat_out, 23 - MINIFLOAT[df][0], rng)
        truncate_minifloat(flat_out, flat_out, df)
    return finish(flat_out, result)


def _round_bits(x: F32, out: F32, drop: int, rng: np.random.Generator | None) -> None:
    """Rounds a flat array to float32 values whose lowest `drop` bits are zero; NaN stays NaN."""
    shift, one = np.uint32(drop), np.uint32(1)
    below_half = np.uint32((1 << (drop - 1)) - 1)
    keep = np.uint32(0xFFFFFFFF & ~((1 << drop) - 1))
    raw, target = x.view(np.uint32), out.view(np.uint32)
    for start in range(0, raw.size, CHUNK):
        piece = raw[start : start + CHUNK]
        floats = x[start : start + CHUNK]
        nan = np.flatnonzero(np.isnan(floats)) if np.isnan(floats.max()) else None
        add: U32
        if rng is None:  # half a unit, less one where the kept part is even
            add = np.right_shift(piece, shift, out=scratch("round.add", np.uint32, piece.size))
            add &= one
            add += below_half
        else:
            add = rng.integers(0, 1 << drop, piece.size, dtype=np.uint32)
        add += piece
        np.bitwise_and(add, keep, out=target[start : start + CHUNK])
        if nan is not None:
            target[start : start + CHUNK][nan] = np.uint32(0x7FC00000)
