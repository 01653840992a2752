"""What the cycle estimate of an op reads: formats by class, the block of one core, and the features made of them.

All features count work of one core for one input, so an estimate is a sum of features times cycles. With t slices,
m x n ublocks of r x c tiles per macro block, inner dimension k passes of kt tiles:

| feature | count | what takes the time |
|---|---|---|
| one | 1 | filling and draining the pipeline |
| blocks, tiles | U = t m n, T = U r c | per ublock and per tile of output |
| ublock_tiles | T r c | what every tile waits for the others of its ublock |
| z_blocks, z_tiles, z_slices | z U, z T, z t | the published form of a reduction over z |
| z_step_tiles, z_step_blocks | (z-1) T, (z-1) U | combining z slices |
| z_wait | (z-1) t, where m n = 1 | a single block has to wait for its own last result |
| math | k kt T x passes of the fidelity | multiplications |
| spill, spill_blocks, passes | (k-1) T, (k-1) U, (k-1) t | partial results out and back |
| step | k U | unpacking set up once per ublock and pass |
| inner, inner_tiles | k kt U, k kt T | per inner tile of a ublock; per tile read by a reduction |
| operands, unpack | inner x (r + c), inner x r (1 + c) | tiles unpacked |
| nz, nz_cols, nz_math | N, N n, N n c x passes | nonzero tiles of a sparse operand: decode, issue, multiply |
| nzu_cols, nzu_tiles | B n, B n r c | nonzero ublocks: reload of partial results |
| strips, strip_cols, strip_blocks | S, S n, S n m | strips: decode and walk |
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.formats import DataFormat, MathFidelity

F64 = npt.NDArray[np.float64]
Count = npt.ArrayLike

_CLASSES = {
    "fp16": (DataFormat.Float16, DataFormat.Float16_b, DataFormat.UInt16, DataFormat.RawUInt16),
    "fp32": (DataFormat.Float32, DataFormat.RawUInt32),
    "int8": (DataFormat.Int8, DataFormat.UInt8, DataFormat.RawUInt8),
    "int32": (DataFormat.Int32,),
}
_CLASS_OF = {df: name for name, members in _CLASSES.items() for df in members}


def format_class(df: DataFormat) -> str:
    """fp16, fp32, int8, int32, or bfp for block formats and 8-bit floats: formats that move and compute alike."""
    return _CLASS_OF.get(df, "bfp")


@dataclasses.dataclass(frozen=True)
class Block:
    """The work of one core; every field an array or number, broadcast against each other."""

    t: Count
    mblock_m: Count
    mblock_n: Count
    ublock_r: Count
    ublock_c: Count
    m_k: Count = 1
    u_kt: Count = 1
    z: Count = 1
    fidelity: MathFidelity | npt.NDArray[np.int64] = MathFidelity.LoFi
    nz_tiles: Count = 0
    nz_ublocks: Count = 0
    nz_strips: Count = 0

    def features(self) -> dict[str, F64]:
        """Every feature by name, broadcast to one shape."""
        t, m, n, r, c, k, kt, z, nz, nzu, strips = (np.asarray(v, dtype=np.float64) for v in (
            self.t, self.mblock_m, self.mblock_n, self.ublock_r, self.ublock_c, self.m_k, self.u_kt, self.z,
            self.nz_tiles, self.nz_ublocks, self.nz_strips))
        passes = np.asarray(self.fidelity.passes if isinstance(self.fidelity, MathFidelity) else self.fidelity, float)
        per_slice = m * n
        blocks = t * per_slice
        tiles = blocks * (r * c)
        inner = k * kt * blocks
        by_block = {
            "one": np.ones(()), "blocks": blocks, "tiles": tiles, "ublock_tiles": tiles * (r * c),
            "z_blocks": z * blocks, "z_tiles": z * tiles, "z_slices": z * t,
            "z_step_tiles": (z - 1) * tiles, "z_step_blocks": (z - 1) * blocks,
            "z_wait": (z - 1) * t * (per_slice == 1),
            "math": k * kt * tiles * passes, "spill": (k - 1) * tiles, "spill_blocks": (k - 1) * blocks,
            "passes": (k - 1) * t, "step": k * blocks, "inner": inner, "inner_tiles": k * kt * tiles,
            "operands": inner * (r + c),
            "unpack": inner * r * (1 + c),
            "nz": nz, "nz_cols": nz * n, "nz_math": nz * n * c * passes, "nzu_cols": nzu * n,
            "nzu_tiles": nzu * n * r * c, "strips": strips, "strip_cols": strips * n, "strip_blocks": strips * n * m,
        }
        shape = np.broadcast_shapes(*(v.shape for v in by_block.values()))
        return {name: np.broadcast_to(v, shape) for name, v in by_block.items()}


def evaluate(pieces: list[dict[str, float]], features: dict[str, F64]) -> F64:
    """The slowest of several units that work side by side: the maximum of the pieces, each a weighted sum."""
    first, *rest = (_weighted(piece, features) for piece in pieces)
    for other in rest:
        first = np.maximum(first, other)
    return first


def _weighted(piece: dict[str, float], features: dict[str, F64]) -> F64:
    total = np.zeros(features["one"].shape)
    for name, weight in piece.items():
        total = total + weight * features[name]
    return total
