"""What values become in data formats, from the bit widths of the formats alone: float32 words, in integers.

Nothing of the library is used here but the names of the formats.
"""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.formats import DataFormat as D

BLOCK = 16
INTEGERS = {D.Int8: (-127, 127), D.UInt8: (0, 255), D.UInt16: (0, 65535), D.Int32: (-(2**31) + 1, 2**31 - 1)}
MINI = {D.Float16: (5, 10), D.Lf8: (5, 2), D.Fp8_e4m3: (4, 3)}
"""Bits of exponent and fraction; the bias is half of the exponent's range, and no exponent stands for infinity."""
MAGNITUDE = {D.Bfp8: 7, D.Bfp8_b: 7, D.Bfp4: 3, D.Bfp4_b: 3, D.Bfp2: 1, D.Bfp2_b: 1}
SHORT_EXPONENT = {D.Bfp8, D.Bfp4, D.Bfp2}
RAW = {D.RawUInt8, D.RawUInt16, D.RawUInt32}
SMALL = {D.Bfp4, D.Bfp4_b, D.Bfp2, D.Bfp2_b}
"""Formats that the golden model rounds op results and operands to."""


def words(x):
    return np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)


def floats(x):
    return x.astype(np.uint32).view(np.float32).astype(np.float64)


def cut_fraction(x, bits):
    """float32 without the last bits of its fraction, as float64: Tf32 lacks 13, Float16_b 16."""
    return floats(words(x) >> bits << bits)


def whole(x, df):
    """Integers: the nearest, of two the one farther from zero; NaN is 0."""
    low, high = INTEGERS[df]
    x = np.where(np.isnan(x), 0, np.asarray(x, np.float64))
    return np.clip(np.sign(x) * np.floor(np.abs(x) + 0.5), low, high) + 0.0


def mini(x, df):
    """A float of few bits: its fraction cut, too small is a zero, too large is the largest."""
    exponent_bits, fraction_bits = MINI[df]
    bias = (1 << (exponent_bits - 1)) - 1
    word, drop = words(x), 23 - fraction_bits
    sign, exponent = word >> 31 << 31, (word >> 23 & 255) - 127
    top = (1 << exponent_bits) - 1 - bias
    largest = (top + 127) << 23 | ((1 << fraction_bits) - 1) << drop
    value = np.where(exponent > top, largest, (word & 0x7FFFFFFF) >> drop << drop)
    return floats(sign | np.where(exponent < 1 - bias, 0, value))


def blocks(x, df, half_up):
    """16 values of a row with one exponent: each a sign and some bits of magnitude in units of the largest."""
    bits = MAGNITUDE[df]
    word = words(x).reshape(-1, BLOCK)
    exponent = word >> 23 & 255
    shared = exponent.max(axis=1, keepdims=True)
    bias = 127
    significand = word & 0x7FFFFF | 1 << 23
    if df in SHORT_EXPONENT:
        exponent, shared, bias = exponent - 112, np.clip(shared - 112, 0, 31), 15
        significand = np.where(exponent > 31, 0xFFFFFF, significand)
        exponent = np.minimum(exponent, 31)
    significand = significand >> np.minimum(shared - exponent, 40)
    drop = 24 - bits
    magnitude = np.minimum((significand + (1 << (drop - 1) if half_up else 0)) >> drop, (1 << bits) - 1)
    magnitude = np.where(word & 0x7FFFFFFF == 0, 0, magnitude)
    value = magnitude * 2.0 ** (shared - bias - (bits - 1))
    return np.where(word >> 31 == 1, -value, value).reshape(np.shape(x)) + 0.0


def cut(x, df):
    """What the golden model keeps of float32 values in a block format: the further bits are dropped."""
    return blocks(x, df, half_up=False)


def stored(x, df):
    """What a queue of a format holds of float32 values that the host writes; raw words are left alone."""
    if df in RAW or df is D.Float32:
        return cut_fraction(x, 0)
    if df is D.Float16_b:
        return cut_fraction(x, 16)
    if df in INTEGERS:
        return whole(np.asarray(x, np.float32), df)
    return mini(x, df) if df in MINI else blocks(x, df, half_up=True)
