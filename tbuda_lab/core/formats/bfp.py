"""Block floating point: 16 values, one exponent.

The rule of the host conversion: E is the largest exponent of the block (rebased by 112 and limited to 0..31 in the
"a" formats); a magnitude is the 24-bit significand shifted right by E - e, plus half a unit of the kept bits,
truncated to 7, 3 or 1 bits and limited to all ones without raising E. A zero magnitude loses its sign. The value is
magnitude * 2**(E - bias - (bits - 1)). Ties therefore go away from zero. In the "a" formats a value whose own exponent
lies above 31 gets all ones, and one whose exponent lies below 0 is shifted like any other, so that converting twice
changes nothing.

The quick path works on floats, where scaling by powers of two is exact: floor(|x| / unit + 0.49999997f) equals the
integer rule for every float32, since no float32 lies between 0.49999997 and 0.5. Two kinds of blocks of the 8-bit
exponent family leave the float range and take the integer path: those with infinities or NaN, and those whose
largest value is below 2**-100.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.formats.chunks import CHUNK, F32, scratch
from tbuda_lab.core.formats.data_format import DataFormat

BLOCK = 16
_NEAR_HALF = np.float32(0.49999997).view(np.uint32)
_SIGN = np.uint32(0x80000000)
_SAFE = 27  # smallest biased exponent whose blocks stay exact in float arithmetic


def _tables(bits: int, family_a: bool) -> tuple[F32, F32]:
    """Rows of 16 equal factors by biased float32 exponent: 1 / unit and unit, unit = 2**(E - bias - (bits - 1))."""
    exponent = np.arange(256, dtype=np.float64) - 127
    exponent = np.clip(exponent, -15, 16) if family_a else np.clip(exponent, _SAFE - 127, 127)
    unit = np.exp2(exponent - (bits - 1))
    return (
        np.repeat((1 / unit).astype(np.float32)[:, None], BLOCK, 1),
        np.repeat(unit.astype(np.float32)[:, None], BLOCK, 1),
    )


_TABLES = {(bits, a): _tables(bits, a) for bits in (7, 3, 1) for a in (False, True)}


def block_exponents(x: F32) -> npt.NDArray[np.intp]:
    """Largest biased float32 exponent of every 16 values; x is flat and contiguous, at most CHUNK long.

    A tree of maxima over ever wider words: exponents are bytes, a pair of bytes is compared as the halves of one
    16-bit word and so on, so every step runs over contiguous memory.
    """
    n = x.size
    wide = scratch("bfp.u32", np.uint32, n)
    np.right_shift(x.view(np.uint32), 23, out=wide)
    level: npt.NDArray[Any] = scratch("bfp.u8", np.uint8, n)
    np.copyto(level, wide, casting="unsafe")  # drops the sign, bit 8
    for size, shift in ((2, 8), (4, 16), (8, 32)):
        dtype = np.dtype(f"u{size}")
        words = level.view(dtype)
        low = scratch(f"bfp.low{size}", dtype, words.size)
        high = scratch(f"bfp.high{size}", dtype, words.size)
        np.bitwise_and(words, dtype.type((1 << shift) - 1), out=low)
        np.right_shift(words, dtype.type(shift), out=high)
        level = np.maximum(low, high, out=low)
    block_exponents: npt.NDArray[np.intp] = scratch("bfp.exp", np.intp, n // BLOCK)
    np.maximum(level[0::2], level[1::2], out=block_exponents, casting="unsafe")
    return block_exponents


def round_blocks(
    x: F32, out: F32, df: DataFormat, *, mode: str = "host", rng: np.random.Generator | None = None
) -> None:
    """Rounds a flat array of whole blocks to a block format; `out` may be `x`.

    mode "host": ties away from zero; "even": ties to even; "cut": towards zero; "stochastic": up with the probability
    of the remainder, drawn from `rng`.
    """
    bits, family_a = df.mantissa_bits, df.family == "a"
    inverse, unit = _TABLES[bits, family_a]
    limit = np.float32((1 << bits) - 1)
    for start in range(0, x.size, CHUNK):
        piece, target = x[start : start + CHUNK], out[start : start + CHUNK]
        n = piece.size
        exponent = block_exponents(piece)
        special = _special_blocks(piece, exponent, family_a)
        keep = piece.reshape(-1, BLOCK)[special].copy() if special.size else None
        factor = scratch("bfp.factor", np.float32, n)
        value = scratch("bfp.value", np.float32, n)
        np.take(inverse, exponent, axis=0, out=factor.reshape(-1, BLOCK), mode="clip")
        np.multiply(piece, factor, out=value)
        if mode == "host":
            half = factor.view(np.uint32)  # copysign(0.49999997, x) in two integer steps, half its time
            np.bitwise_and(piece.view(np.uint32), _SIGN, out=half)
            np.bitwise_or(half, _NEAR_HALF, out=half)
            value += factor
            np.trunc(value, out=value)
        elif mode == "cut":
            np.trunc(value, out=value)
        elif mode == "even":
            np.rint(value, out=value)
        else:
            assert rng is not None
            value += rng.random(n, dtype=np.float32)
            np.floor(value, out=value)
        np.clip(value, -limit, limit, out=value)
        np.take(unit, exponent, axis=0, out=factor.reshape(-1, BLOCK), mode="clip")
        value *= factor
        np.add(value, np.float32(0), out=target)  # a zero magnitude has no sign
        if keep is not None:
            target.reshape(-1, BLOCK)[special] = decode(*encode(keep, df, cut=mode == "cut"), df)


def _special_blocks(x: F32, exponent: npt.NDArray[np.intp], family_a: bool) -> npt.NDArray[np.intp]:
    """Indices of the blocks that need the integer path."""
    odd = exponent == 255
    if not family_a:
        odd |= exponent < _SAFE
    if not odd.any():
        return np.empty(0, np.intp)
    blocks = np.flatnonzero(odd)
    # blocks of zeros are the common case here, and the float path serves them
    nonzero: npt.NDArray[np.bool_] = (x.reshape(-1, BLOCK)[blocks] != 0).any(axis=1)
    return blocks[nonzero]


def encode(blocks: F32, df: DataFormat, *, cut: bool = False) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Integer form of the rule: blocks (..., 16) -> (codes (..., 16) with the sign above the magnitude, E (...)). cut:
    without the half unit."""
    bits = df.mantissa_bits
    raw = np.ascontiguousarray(blocks, dtype=np.float32).view(np.uint32)
    exponent = ((raw >> 23) & 0xFF).astype(np.int32)
    significand = np.where(raw & 0x7FFFFFFF, (raw & 0x7FFFFF) | 0x800000, 0).astype(np.int32)
    shared = exponent.max(axis=-1)
    if df.family == "a":
        shared = np.clip(shared - 112, 0, 31)
        exponent = exponent - 112
        significand = np.where((exponent > 31) & (significand != 0), 0xFFFFFF, significand)
    distance = np.clip(shared[..., None] - exponent, 0, 31)
    drop = 24 - bits
    magnitude = ((significand >> distance) + (0 if cut else 1 << (drop - 1))) >> drop
    magnitude = np.minimum(magnitude, (1 << bits) - 1)
    sign = np.where(magnitude != 0, raw >> 31, 0).astype(np.int32)
    return (magnitude | (sign << bits)).astype(np.uint8), shared.astype(np.uint8)


def decode(codes: npt.NDArray[np.uint8], shared: npt.NDArray[np.uint8], df: DataFormat) -> F32:
    """Inverse of `encode`; codes (..., 16), E (...). In the "b" formats E = 255 stays what it is in float32:
    a magnitude of one leading bit is infinity, one with more bits behind the leading one NaN."""
    bits = df.mantissa_bits
    magnitude = (codes & ((1 << bits) - 1)).astype(np.float64)
    bias = 15 if df.family == "a" else 127
    value = np.ldexp(magnitude, shared.astype(np.int32)[..., None] - bias - (bits - 1))
    if df.family == "b":
        top = float(1 << (bits - 1))
        beyond = (shared == 255)[..., None] & (magnitude >= top)
        value = np.where(beyond, np.where(magnitude > top, np.nan, np.inf), value)
    signed: F32 = np.where((codes >> bits) & 1, -value, value).astype(np.float32)
    return signed
