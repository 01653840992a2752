"""Graphcore's 8-bit floats on the host: bias 8 (1.4.3) and 16 (1.5.2), denormals, no infinities, NaN is code 0x80."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.dtypes import as_array
from tbuda_lab.popxl.dtypes import dtype as DataType  # `dtype` is an argument's name here

NAN_CODE = 0x80
_FORMATS = {"float8_143": (3, 8), "float8_152": (2, 16)}


@functools.lru_cache(maxsize=2)
def values_of(name: str) -> np.ndarray:
    """(256,) float64: the value of each code of a format ("float8_143" or "float8_152")."""
    mantissa_bits, bias = _FORMATS[name]
    code = np.arange(256)
    exponent = (code & 0x7F) >> mantissa_bits
    fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    value = np.where(code & 0x80, -value, value)
    value[NAN_CODE] = np.nan
    return value


def decode8(codes: np.ndarray, form: DataType) -> np.ndarray:
    """float64 values of an array of codes (uint8 or the structured type)."""
    raw = codes.view(np.uint8).reshape(codes.shape) if codes.dtype.names else codes
    return values_of(form.name)[raw]


def encode8(values: np.ndarray, form: DataType, nan_on_overflow: bool = True) -> np.ndarray:
    """The nearest codes (ties to even) in the structured type. What is too large becomes NaN, or the largest number."""
    table = values_of(form.name)[:128]
    wide = np.asarray(values, np.float64)
    size = np.abs(wide)
    upper = np.clip(np.searchsorted(table, size), 1, 127)
    low, high = table[upper - 1], table[upper]
    middle = (low + high) / 2
    code = np.where((size > middle) | ((size == middle) & (upper % 2 == 0)), upper, upper - 1)
    code = np.where(size <= 0, 0, code)
    step = table[127] - table[126]
    over = size > table[127] + (0 if nan_on_overflow else step / 2)
    code = np.where(over, 127, code)
    negative = np.signbit(wide) & (code > 0)
    code = np.where(negative, code | 0x80, code)
    lost = np.isnan(wide) | (over if nan_on_overflow else np.isinf(wide))
    code = np.where(lost, NAN_CODE, code)
    return np.asarray(code, np.uint8).view(form.as_numpy()).reshape(wide.shape)


def _form(form: Any) -> DataType:
    chosen: DataType = DataType.as_dtype(form) if form is not None else dtypes.float8_143
    if not chosen.is_float8:
        raise TypeError(f"{chosen!r} is no 8-bit float; there are float8_143 and float8_152")
    return chosen


def host_pow2scale_cast_to_fp8(
    src: Any, dtype: Any = None, log2_scale: int = 0, nan_on_overflow: bool = True
) -> np.ndarray:
    """src * 2^log2_scale as 8-bit floats. Raises `TypeError` for integers and for a dtype that is none of them."""
    form, array = _form(dtype), as_array(src)
    if array.dtype == form.as_numpy():
        return array
    if array.dtype.kind != "f":
        raise TypeError(f"{array.dtype} cannot become {form!r}; give floating-point data")
    if array.dtype == np.float16:  # what float16 cannot hold has no limit that could be told apart: NaN
        clip = np.isinf(array)
        return encode8(np.where(clip, np.nan, array.astype(np.float64)) * 2.0**log2_scale, form, nan_on_overflow)
    return encode8(array.astype(np.float64) * 2.0**log2_scale, form, nan_on_overflow)


def host_pow2scale_cast_from_fp8(src: np.ndarray, dtype: Any = None, log2_scale: int = 0) -> np.ndarray:
    """8-bit floats * 2^log2_scale in another floating-point type."""
    target = DataType.as_dtype(dtype) if dtype is not None else dtypes.float32
    forms = {dtypes.np_dtype_float8_143: dtypes.float8_143, dtypes.np_dtype_float8_152: dtypes.float8_152}
    form = forms.get(np.asarray(src).dtype)
    if form is None:
        raise TypeError(f"{np.asarray(src).dtype} is no 8-bit float")
    return (decode8(np.asarray(src), form) * 2.0**log2_scale).astype(target.as_numpy())


host_cast_then_pow2scale = host_pow2scale_cast_from_fp8
host_pow2scale_then_cast = host_pow2scale_cast_to_fp8


def host_fp8_mse_scale(src: Any, dtype: Any = None) -> tuple[float, int]:
    """The error (mean of squares) and the log2 of the power of two that makes it least; of equally good ones that which
    brings the data to the middle of the format's range."""
    form, array = _form(dtype), as_array(src).astype(np.float64)
    best = (np.inf, 0)
    positive = np.abs(array[(array != 0) & np.isfinite(array)])
    centre = float(np.mean(np.log2(positive))) if positive.size else 0.0
    table = np.log2(values_of(form.name)[1:128])
    middle = float(table[0] + table[-1]) / 2
    for scale in sorted(range(-31, 32), key=lambda s: abs(centre + s - middle)):
        coded = encode8(array * 2.0**scale, form, nan_on_overflow=False)
        with np.errstate(invalid="ignore"):
            error = np.nanmean((decode8(coded, form) * 2.0**-scale - array) ** 2)
        if error < best[0] * (1 - 1e-12):
            best = (float(error), scale)
    return best


def host_fp8_mse_scale_pb(src: Any, dtype: Any = None) -> int:
    """As `host_fp8_mse_scale`, the exponent alone."""
    return host_fp8_mse_scale(src, dtype)[1]
