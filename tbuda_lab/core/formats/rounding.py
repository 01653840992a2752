"""The packer's rounding, for the executor's device mode.

An approximation, since the machine's own rule is not published: nearest, ties to even, for the floating formats
(block formats included); stochastic rounding adds a uniform remainder before truncation. Range limits, flushing and
integers are those of the host's conversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.formats.bfp import round_blocks
from tbuda_lab.core.formats.chunks import CHUNK, F32, U32, finish, flat_pair, scratch
from tbuda_lab.core.formats.convert import MINIFLOAT, check_blocks, quantise, truncate_minifloat
from tbuda_lab.core.formats.dataformat import DataFormat


def round_to(x: npt.ArrayLike, df: DataFormat, *, out: F32 | None = None,
             rng: np.random.Generator | None = None) -> npt.NDArray[Any]:
    """`x` rounded to `df` as the packer does, stochastically when `rng` is given; shape, `out` and errors as
    `quantise`. NaN stays NaN in Float16_b and saturates in the formats that have none."""
    array = np.asarray(x)
    if df in (DataFormat.Float32, DataFormat.Invalid) or df.is_raw or df.is_integer:
        return quantise(array, df, out=out)
    if df.is_bfp:
        check_blocks(array, df)
    flat, flat_out, result = flat_pair(array, out)
    if df.is_bfp:
        round_blocks(flat, flat_out, df, mode="even" if rng is None else "stochastic", rng=rng)
    elif df is DataFormat.Float16_b:
        _round_bits(flat, flat_out, 16, rng)
    else:
        _round_bits(flat, flat_out, 23 - MINIFLOAT[df][0], rng)
        truncate_minifloat(flat_out, flat_out, df)
    return finish(flat_out, result)


def _round_bits(x: F32, out: F32, drop: int, rng: np.random.Generator | None) -> None:
    """Rounds a flat array to float32 values whose lowest `drop` bits are zero; NaN stays NaN."""
    shift, one = np.uint32(drop), np.uint32(1)
    below_half = np.uint32((1 << (drop - 1)) - 1)
    keep = np.uint32(0xFFFFFFFF & ~((1 << drop) - 1))
    raw, target = x.view(np.uint32), out.view(np.uint32)
    for start in range(0, raw.size, CHUNK):
        piece = raw[start:start + CHUNK]
        floats = x[start:start + CHUNK]
        nan = np.flatnonzero(np.isnan(floats)) if np.isnan(floats.max()) else None
        add: U32
        if rng is None:  # half a unit, less one where the kept part is even
            add = np.right_shift(piece, shift, out=scratch("round.add", np.uint32, piece.size))
            add &= one
            add += below_half
        else:
            add = rng.integers(0, 1 << drop, piece.size, dtype=np.uint32)
        add += piece
        np.bitwise_and(add, keep, out=target[start:start + CHUNK])
        if nan is not None:
            target[start:start + CHUNK][nan] = np.uint32(0x7FC00000)
