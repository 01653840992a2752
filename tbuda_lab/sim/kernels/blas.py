"""Products of float32 matrices: by torch's BLAS where this process has torch and the processor is not AMD's, else by
NumPy's.

On x86 torch brings MKL. On an Intel Xeon its products take 6 to 35 % less time than those of NumPy's OpenBLAS, on an
AMD EPYC 6 to 23 % more. Both sum in an order of their own, so that the last bits of a product depend on which one ran;
for one of them, one number of threads and one shape they are always the same. A process that loads torch after its
first product stays with NumPy.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np

from tbuda_lab.sim.arrays import Array

_FEW = 1 << 15
"""Multiplications below which NumPy has finished before torch has begun."""

_CLASHING = 512
"""Rows this many elements apart, or a multiple of it, displace one another from the processor's cache."""
_GAP = 16


@functools.cache
def faster_torch() -> Any:
    """The torch of this process where its products are the faster ones, else None."""
    return None if _is_amd() else sys.modules.get("torch")


def _is_amd() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return "AuthenticAMD" in file.read(4096)
    except OSError:  # not Linux
        return False


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b as `np.matmul` has it: (rows, inner) and (inner, columns), or (n or 1, z, rows, inner) and (n or 1, z or 1,
    inner, columns). out: C-contiguous, of the result's shape."""
    torch = faster_torch()
    several = a.ndim == 4
    shape = (max(len(a), len(b)), *a.shape[1:-1], b.shape[-1]) if several else (len(a), b.shape[-1])
    if torch is None or a.dtype != np.float32 or b.dtype != np.float32 or a.shape[-1] != b.shape[-2] or (
            math.prod(shape) * a.shape[-1] < _FEW) or (several and b.shape[1] not in (1, a.shape[1])):
        plain: Array = np.matmul(a, b, out=out)
        return plain
    result = np.empty(shape, np.float32) if out is None else out
    if not several:
        torch.mm(_tensor(torch, a), _tensor(torch, b), out=torch.from_numpy(result))
        return result
    for i, target in enumerate(result):
        left, right = (_tensor(torch, x[i if len(x) > 1 else 0]) for x in (a, b))
        torch.bmm(left, right.expand(a.shape[1], -1, -1), out=torch.from_numpy(target))
    return result


def _tensor(torch: Any, x: Array) -> Any:
    """x as a tensor, on the same memory if that is possible. `from_numpy` warns of an array that nobody may write to;
    NumPy before 2.1 does not export one."""
    if x.flags.writeable:
        return torch.from_numpy(x)
    try:
        return torch.from_dlpack(x)
    except BufferError:
        return torch.from_numpy(x.copy())


def spread_rows(x: Array) -> Array:
    """x, copied with a gap after each row where rows would displace one another from the processor's cache."""
    columns = x.shape[-1]
    if columns % _CLASHING or x.shape[-2] == 1:
        return x
    apart = np.empty((*x.shape[:-1], columns + _GAP), x.dtype)
    apart[..., :columns] = x
    return apart[..., :columns]
