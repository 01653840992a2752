"""Seeds of random ops: two uint32, the more significant one first."""

from __future__ import annotations

import numpy as np

MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1


def create_seeds(
    seed: int, offset: int = 0, batches_per_step: int = 1, gradient_accumulation_factor: int = 1, replicas: int = 1
) -> np.ndarray:
    """uint32 of shape [batches, accumulations, replicas, 2] without dims of 1. Equal seeds give equal arrays."""
    shape = (batches_per_step, gradient_accumulation_factor, replicas)
    numbers = np.random.default_rng(seed + offset).integers(0, MAX_UINT64, shape, np.uint64, endpoint=True)
    words = np.stack([numbers >> np.uint64(32), numbers & np.uint64(MAX_UINT32)], -1).astype(np.uint32)
    return words.reshape([size for size in shape if size > 1] + [2])


def uint64_to_two_uint32(num: int) -> tuple[int, int]:
    """Raises `ValueError` for a number that is not in 0 .. 2^64 - 1."""
    if not 0 <= num <= MAX_UINT64:
        raise ValueError(f"{num} is not in the range of uint64, 0 to {MAX_UINT64}")
    return num >> 32, num & MAX_UINT32


def two_uint32_to_uint64(a: int, b: int) -> int:
    """Raises `ValueError` for a number that is not in 0 .. 2^32 - 1."""
    for number in (a, b):
        if not 0 <= number <= MAX_UINT32:
            raise ValueError(f"{number} is not in the range of uint32, 0 to {MAX_UINT32}")
    return (a << 32) | b
