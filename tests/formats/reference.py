"""The host's conversion one value at a time, in Python integers and fractions: the oracle of the array code."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from tbuda_lab.core.formats import DataFormat

MINI = {DataFormat.Float16: (5, 10, 15), DataFormat.Lf8: (5, 2, 15), DataFormat.Fp8_e4m3: (4, 3, 7)}
BFP_BITS = {
    DataFormat.Bfp8: 7,
    DataFormat.Bfp8_b: 7,
    DataFormat.Bfp4: 3,
    DataFormat.Bfp4_b: 3,
    DataFormat.Bfp2: 1,
    DataFormat.Bfp2_b: 1,
}
INTEGERS = {
    DataFormat.Int8: (-127, 127),
    DataFormat.UInt8: (0, 255),
    DataFormat.UInt16: (0, 65535),
    DataFormat.Int32: (-(2**31 - 1), 2**31 - 1),
}


def bits_of(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def float_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def fields(x: float) -> tuple[int, int, int]:
    """(sign, biased exponent, fraction)."""
    bits = bits_of(x)
    return bits >> 31, (bits >> 23) & 0xFF, bits & 0x7FFFFF


def to_float32(sign: int, value: Fraction) -> float:
    if value == 0:
        return -0.0 if sign else 0.0
    magnitude = float(value)  # every value of these formats is a float64
    return -magnitude if sign else magnitude


def minifloat(x: float, df: DataFormat) -> float:
    exponent_bits, fraction_bits, bias = MINI[df]
    sign, e, fraction = fields(x)
    exponent = e - 127
    top = (1 << exponent_bits) - 1 - bias
    if exponent < 1 - bias:
        return -0.0 if sign else 0.0
    unit = Fraction(1, 1 << fraction_bits)
    if exponent > top:
        return to_float32(sign, (2 - unit) * Fraction(2) ** top)
    keep = fraction >> (23 - fraction_bits)
    return to_float32(sign, (1 + keep * unit) * Fraction(2) ** exponent)


def integer(x: float, df: DataFormat) -> float:
    if math.isnan(x):
        return 0.0
    low, high = INTEGERS[df]
    if math.isinf(x):
        whole = high if x > 0 else low
    else:
        magnitude = math.floor(abs(Fraction(x)) + Fraction(1, 2))
        whole = min(max(magnitude if x >= 0 else -magnitude, low), high)
    return float_of(bits_of(float(whole)))


def block_codes(values: list[float], df: DataFormat, cut: bool = False) -> tuple[int, list[int]]:
    """(shared exponent, sign and magnitude of each value). cut: bits are dropped, nothing is rounded up."""
    bits, is_a = BFP_BITS[df], df.family == "a"
    parts = [fields(v) for v in values]
    shared = max(e for _, e, _ in parts)
    if is_a:
        shared = min(max(shared - 112, 0), 31)
    codes = []
    for value, (sign, e, fraction) in zip(values, parts, strict=True):
        if bits_of(value) & 0x7FFFFFFF == 0:
            codes.append(0)
            continue
        own = e - 112 if is_a else e
        significand = (1 << 23) | fraction
        if is_a and own > 31:
            own, significand = 31, 0xFFFFFF
        significand >>= shared - own
        drop = 24 - bits
        magnitude = min((significand + (0 if cut else 1 << (drop - 1))) >> drop, (1 << bits) - 1)
        codes.append(magnitude | (sign << bits) if magnitude else 0)
    return shared, codes


def block_values(shared: int, codes: list[int], df: DataFormat) -> list[float]:
    bits, is_a = BFP_BITS[df], df.family == "a"
    decoded = []
    for code in codes:
        magnitude, sign = code & ((1 << bits) - 1), code >> bits
        top = 1 << (bits - 1)
        if not is_a and shared == 255 and magnitude >= top:
            value = math.nan if magnitude > top else -math.inf if sign else math.inf
        else:
            value = to_float32(sign, Fraction(magnitude) * Fraction(2) ** (shared - (15 if is_a else 127) - (bits - 1)))
        decoded.append(value)
    return decoded


def convert(values: list[float], df: DataFormat) -> list[float]:
    """Values after the conversion; whole blocks of 16 for block formats."""
    if df is DataFormat.Float16_b:
        return [float_of(bits_of(v) & 0xFFFF0000) for v in values]
    if df in MINI:
        return [minifloat(v, df) for v in values]
    if df in INTEGERS:
        return [integer(v, df) for v in values]
    if df in BFP_BITS:
        converted: list[float] = []
        for start in range(0, len(values), 16):
            converted += block_values(*block_codes(values[start : start + 16], df), df)
        return converted
    return list(values)
