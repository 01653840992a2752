"""torch where this process has loaded it: it multiplies, convolves and works through repeated columns faster than
NumPy does. The executor needs NumPy alone."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from tbuda_lab.sim.arrays import Array

MANY = 1 << 13
"""Numbers from which torch has finished a sum with a repeated row, or a limit, before NumPy has."""


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
    """x as a tensor on the same memory. Nothing writes to operands here, so that a read-only array is shown to torch as
    one that may be written to: it would warn of it, and turning warnings off is for a whole process."""
    return torch.from_numpy(x if x.flags.writeable else np.asarray(_Unmarked(x)))


class _Unmarked:
    """The memory of an array without the mark that it is read-only."""

    def __init__(self, x: Array) -> None:
        self.array = x  # which keeps the memory
        interface = x.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
