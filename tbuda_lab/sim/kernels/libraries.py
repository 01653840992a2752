"""torch where this process has loaded it: it multiplies, convolves and works through repeated columns faster than
NumPy does. The executor needs NumPy alone."""

from __future__ import annotations

import functools
import sys
from typing import Any

from tbuda_lab.sim.arrays import Array

MANY = 1 << 13
"""Numbers from which torch has finished a sum or a product before NumPy has, where one operand is repeated."""


def loaded_torch() -> Any:
    """torch, or None if nobody has imported it."""
    return sys.modules.get("torch")


@functools.cache
def faster_torch() -> Any:
    """The torch of this process where its products are the faster ones, else None."""
    return None if _is_amd() else loaded_torch()


def _is_amd() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return "AuthenticAMD" in file.read(4096)
    except OSError:  # not Linux
        return False


def tensor(torch: Any, x: Array) -> Any:
    """x as a tensor, on the same memory if that is possible. `from_numpy` warns of an array that nobody may write to;
    NumPy before 2.1 does not export one."""
    if x.flags.writeable:
        return torch.from_numpy(x)
    try:
        return torch.from_dlpack(x)
    except BufferError:
        return torch.from_numpy(x.copy())
