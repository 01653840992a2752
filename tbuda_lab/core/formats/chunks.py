"""Walking large arrays in pieces that stay in the cache, with scratch memory that is allocated once per thread.

Fresh temporaries above a megabyte cost more in page faults than the arithmetic on them, so every format conversion
runs on pieces of `CHUNK` elements and keeps its intermediate values in the same few buffers.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import InputError

CHUNK = 1 << 15
"""Elements per piece; a multiple of 16. The working set (about 400 KiB) fits a core's second level cache."""

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]

_local = threading.local()


def scratch(name: str, dtype: npt.DTypeLike, size: int = CHUNK) -> npt.NDArray[Any]:
    """This thread's buffer of that name: `size` elements of `dtype`, with whatever the last user left in it."""
    buffers: dict[str, npt.NDArray[Any]] | None = getattr(_local, "buffers", None)
    if buffers is None:
        buffers = _local.buffers = {}
    entry = buffers.get(name)
    if entry is None or entry.size < size:
        entry = buffers[name] = np.empty(size, dtype)
    return entry[:size]


def flat_pair(x: npt.ArrayLike, out: F32 | None) -> tuple[F32, F32, F32]:
    """(flat input, flat output, the array to return), both flat ones float32 and contiguous.

    `out` may be `x` itself. When `out` is given but not contiguous, the flat output is a copy that `finish` writes
    back. Raises `InputError` when `out` has another shape or dtype.
    """
    source = np.asarray(x, dtype=np.float32)
    if out is None:
        result = np.empty(source.shape, np.float32)
    else:
        if out.shape != source.shape or out.dtype != np.float32:
            raise InputError(f"out must be float32 of shape {source.shape}, not {out.dtype} of shape {out.shape}")
        result = out
    flat_out = result.reshape(-1) if result.flags.c_contiguous else np.empty(result.size, np.float32)
    return np.ascontiguousarray(source).reshape(-1), flat_out, result


def finish(flat_out: F32, result: F32) -> F32:
    """Hands back `result`, filled from `flat_out` where that is a separate copy."""
    if not result.flags.c_contiguous:
        result[...] = flat_out.reshape(result.shape)
    return result


def within(array: npt.NDArray[Any], bound: float) -> bool:
    """Whether no element of a float32 array is larger in magnitude than a bound, as far as its norm tells: in one pass
    over memory. False for some arrays that are, and for every array that is not."""
    if array.dtype != np.float32:
        return False
    flat = array.ravel(order="K")  # of a transposed array too it is a view
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(flat, flat)) <= (0.999 * bound) ** 2
