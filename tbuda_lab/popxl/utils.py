"""Data of a program on their way to tensors."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.dtypes import as_array, dtype
from tbuda_lab.popxl.fp8_utils import host_pow2scale_cast_from_fp8 as host_pow2scale_cast_from_fp8
from tbuda_lab.popxl.fp8_utils import host_pow2scale_cast_to_fp8 as host_pow2scale_cast_to_fp8

downcast_np_dtypes = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.float32),
}
"""What 64-bit data become unless a program says otherwise."""


def to_numpy(
    x: Any,
    dtype: dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> np.ndarray:
    """Data in C order, in the given type, else in their own with 64-bit types made 32-bit (`downcast`).

    log2_scale, nan_on_overflow: of 8-bit floats alone, else `RuntimeError`. Raises `TypeError` for integers that are
    to be 8-bit floats, `ValueError` for what holds no numbers, and for numbers that an integer type does not have;
    fractions are cut off where `dtype` is one.
    """
    array = as_array(x)
    if array.dtype.kind in "OSUMm":
        raise ValueError(f"{x!r} holds no numbers: there is no dtype for {array.dtype!r}")
    dtype = None if dtype is None else dtypes.dtype.as_dtype(dtype)
    eight = dtype is not None and dtype.is_float8
    if not eight and (log2_scale is not None or nan_on_overflow is not None):
        raise RuntimeError("log2_scale and nan_on_overflow are for 8-bit floats; leave them out for other types")
    if eight:
        assert dtype is not None
        if array.dtype == dtype.as_numpy():
            return np.array(array, order="C", copy=True) if copy else np.ascontiguousarray(array)
        overflow = True if nan_on_overflow is None else nan_on_overflow
        if not -32 <= (log2_scale or 0) < 32:
            raise ValueError(f"log2_scale is a whole number from -32 to 31, not {log2_scale}")
        return host_pow2scale_cast_to_fp8(array, dtype, log2_scale or 0, overflow)
    target = array.dtype
    if dtype is not None:
        target = dtype.as_numpy()
    elif downcast:
        target = downcast_np_dtypes.get(array.dtype, array.dtype)
    check_range(array, target)
    if array.dtype == target and not copy:
        return array if array.flags["C_CONTIGUOUS"] else np.array(array, order="C")
    return np.array(array.astype(target), order="C", copy=True)


def check_range(array: np.ndarray, target: np.dtype[Any]) -> None:
    """Raises `ValueError` for numbers that an integer type does not have; `astype` would make others of them."""
    if target.kind not in "iu" or array.dtype.kind not in "iuf" or np.can_cast(array.dtype, target) or not array.size:
        return
    least, most = np.iinfo(target).min, np.iinfo(target).max
    for value in (array.min().item(), array.max().item()):
        if not least <= (value if array.dtype.kind != "f" or not np.isfinite(value) else int(value)) <= most:
            raise ValueError(f"{value} does not fit {target}, which is from {least} to {most}: give another dtype")


def check_whole(array: np.ndarray, target: np.dtype[Any], what: str) -> None:
    """Raises `ValueError` for fractions that are to be integers. what: of which tensor."""
    if target.kind in "iu" and array.dtype.kind == "f":
        parts = array[np.isfinite(array) & (array != np.trunc(array))]
        if parts.size:
            raise ValueError(f"{parts.flat[0]} is no whole number, and {what} is {target}: cast one of them")


@dataclasses.dataclass(frozen=True)
class DeviceDescription:
    """A device by its name and how many IPUs it has."""

    name: str
    ipus: int = 1


def _to_device_info(device: Any, ipus: int = 1) -> Any:
    """The description of a device: by its name, or what the caller has. Raises `ValueError` for another name."""
    if not isinstance(device, str):
        return device
    if device not in ("cpu", "ipu_model", "ipu_hw"):
        raise ValueError(f"there is no device {device!r}; there are cpu, ipu_model, ipu_hw")
    return DeviceDescription(device, ipus)


def to_device_count(ipus: int) -> int:
    """The number of IPUs that are taken for so many: the next power of two."""
    return 1 << max(0, (ipus - 1).bit_length())


def table_to_string(rows: Sequence[Sequence[Any]], delimiter: str = " | ", header: bool = True) -> str:
    """Rows of anything as a table of text, the first one set apart with `header`."""
    text = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*text, strict=False)]
    lines = [delimiter.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in text]
    if header and lines:
        lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def checked_shape(shape: Iterable[Any], what: str) -> tuple[int, ...]:
    """The sizes of a tensor. Raises `TypeError` for what is no whole number, `ValueError` for less than 0."""
    if not isinstance(shape, Iterable):
        raise TypeError(f"{what}: a shape is a tuple of sizes, not {shape!r}")
    sizes = tuple(map(operator.index, shape))
    if any(n < 0 for n in sizes):
        raise ValueError(f"{what}: a size is 0 at least, and the shape is {sizes}")
    return sizes


def product(sizes: Iterable[int]) -> int:
    """1 of nothing."""
    result = 1
    for size in sizes:
        result *= int(size)
    return result


__all__ = [
    "as_array",
    "check_range",
    "check_whole",
    "checked_shape",
    "downcast_np_dtypes",
    "dtypes",
    "product",
    "table_to_string",
    "to_device_count",
    "to_numpy",
]
