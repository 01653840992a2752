"""When an op gives its first result, and how much waits in the buffers around it: for every candidate at once.

An op that passes blocks on has its first one after a part of its cycles; one that adds up over all of an operand only
at the end of a block of t (placement.md#firings). All is counted in parts of one input, so what follows each other
along a branch can be added up (placement.md#forks-and-joins).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.hw_ops import HwReduce, HwSparseMatmul, HwSplice

L1_SHARE = 0.95
"""Part of L1 that enlarged buffers may fill (placement.md#forks-and-joins)."""


@dataclasses.dataclass(frozen=True)
class FirstResults:
    """(rows,) each, by port where it is a tuple, in parts of one input. first: of the op's cycles until its first tiles
    leave; needs: of an operand that has to be there by then; out: of the output that its buffers hold; holds: of an
    operand that its input buffers hold, and `spare` what they could hold with the L1 that is left. read, written: bytes
    that one core takes of an operand, and gives."""

    first: np.ndarray
    needs: tuple[np.ndarray, ...]
    out: np.ndarray
    holds: tuple[np.ndarray, ...]
    spare: tuple[np.ndarray, ...]
    read: tuple[np.ndarray, ...]
    written: np.ndarray


def first_results_of(profile: OpProfile, rows: np.ndarray, order: str, device: DeviceSpec) -> FirstResults:
    """Of every row. order: in which the op packs its ublocks, "r" or "c"."""
    data = {f: rows[f].astype(np.int64) for f in _FIELDS}
    t, m, n = data["t"], data["mblock_m"], data["mblock_n"]
    k = np.maximum(1, data["m_k"])
    block = m * n * data["ublock_r"] * data["ublock_c"]
    op = profile.op
    parts = np.ones(len(rows), dtype=np.int64)  # of a block, of which the first leaves on its own
    if isinstance(op, HwSparseMatmul) or profile.kind == "depthwise" or (isinstance(op, HwSplice) and op.axis == "z"):
        pass
    elif profile.fused_sums:
        pass  # one schedule after another, each for the whole block
    elif profile.matmul_like:
        gradual = (profile.z_group * k == 1) & (order == "r")
        parts = np.where(gradual, m, 1)
    elif isinstance(op, HwReduce):
        parts = {"r": n, "c": m}.get(op.dim, parts)
    elif isinstance(op, HwSplice):
        parts = m if op.axis == "r" else n
    else:
        parts = m * n
    first = 1.0 / (t * parts)
    cores = data["cores"]
    room = np.maximum(0, int(L1_SHARE * device.l1_usable) - data["l1_total"])
    needs, holds, spare, read = [], [], [], []
    for port, operand in enumerate(profile.operands):
        if profile.fused_sums:
            read_rows = as_read(profile, port, rows)
            data |= {f: read_rows[f].astype(np.int64) for f in ("mblock_n", "ublock_r", "ublock_c")}
            n = data["mblock_n"]
        z, rt, ct = operand.tiles
        whole = max(1, z * rt * ct)
        step = np.maximum(1, data["u_kt"])
        in_grid, slices = cores, t
        tiles = 2 * data["ublock_r"] * data["ublock_c"]
        if operand.role == "in0":
            in_grid = data["grid_r"]
            tiles = 2 * data["ublock_r"] * (data["ublock_c"] if profile.kind == "depthwise" else step)
            slices = data["stream_r"] * (1 if profile.z_group > 1 else min(z, profile.out[0]))
        elif operand.role == "in1":
            in_grid = data["grid_c"]
            tiles = 2 * data["ublock_c"] * (1 if profile.kind == "depthwise" else step * n)
            along = "stream_r" if isinstance(op, HwSparseMatmul) else "stream_c"
            slices = data[along] * (1 if profile.z_group > 1 else min(z, profile.out[0]))
        elif operand.role == "bias":
            in_grid = data["grid_c"]
        if isinstance(op, HwSparseMatmul):
            slices = data["stream_r"]  # every kernel position picks from nearly all rows of a slice
        tile = tile_bytes(operand.df, align=device.tile_align)
        once = np.maximum(1, whole // in_grid)
        if isinstance(op, HwSparseMatmul):  # whole strips, and those that its rows reach into
            needs.append(np.minimum(1.0, (k // slices + 1) / k))
        else:
            needs.append(np.minimum(1.0, 1.0 / (slices * parts)))
        holds.append(np.minimum(1.0, tiles / once))
        spare.append(np.minimum(1.0, (tiles + room // tile) / once))
        read.append((once * tile).astype(np.float64))
    size = (t * block * tile_bytes(profile.df, align=device.tile_align)).astype(np.float64)
    return FirstResults(first, tuple(needs), data["buf_size_mb"] / t, tuple(holds), tuple(spare), tuple(read), size)


_FIELDS = (
    "t",
    "mblock_m",
    "mblock_n",
    "m_k",
    "ublock_r",
    "ublock_c",
    "u_kt",
    "grid_r",
    "grid_c",
    "stream_r",
    "stream_c",
    "cores",
    "buf_size_mb",
    "l1_total",
)
