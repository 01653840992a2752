"""Sizes that this machine cannot hold are refused by name, before the system ends the process."""

from __future__ import annotations

import functools
import os

_FALLBACK = 16 << 30


@functools.cache
def physical() -> int:
    """Bytes of main memory of this machine; 16 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _FALLBACK


def too_large(size: int) -> str:
    """Why an array of `size` bytes is not made, or "". One array may take half of the memory."""
    if size <= physical() // 2:
        return ""
    return f"{size / 1e9:.3g} GB are needed, this machine has {physical() / 1e9:.3g} GB"
