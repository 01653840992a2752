"""torch where this process has loaded it: it multiplies, convolves and works through repeated columns faster than
NumPy does. The executor needs NumPy alone."""

from __future__ import annotations

import functools
import sys
import warnings
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
    """x as a tensor on the same memory."""
    if not x.flags.writeable:
        _accept_readonly(torch)
    return torch.from_numpy(x)


@functools.cache
def _accept_readonly(torch: Any) -> None:
    """torch warns of the first array that nobody may write to. Nothing writes to operands here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(np.broadcast_to(np.zeros(1, np.float32), (2,)))
