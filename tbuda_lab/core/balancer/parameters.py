"""Which parameters a candidate keeps in L1 (prologue) and which it streams from DRAM for every input."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.balancer.profile import OpProfile

SMALL_TILES = 24
"""A parameter that leaves at most this many tiles on a core (bias, scale, constant) is preloaded whatever the batch:
it costs less L1 than it would cost DRAM accesses for every input."""


def resident_tiles(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Tiles per core of a parameter kept as it lies in its queue (before its TMs): its rows and columns are divided
    among the cores as far as the grid divides them."""
    operand = profile.operands[port]
    z, rt, ct = operand.source_tiles
    grid_r, grid_c = rows["grid_r"].astype(np.int64), rows["grid_c"].astype(np.int64)
    if any(tm.name == "transpose" for tm in operand.tms):
        grid_r, grid_c = grid_c, grid_r
        reads_r, reads_c = operand.role in ("elt", "in1", "bias"), operand.role in ("elt", "in0")
    else:
        reads_r, reads_c = operand.role in ("elt", "in0"), operand.role in ("elt", "in1", "bias")
    share_r = np.gcd(grid_r, rt) if reads_r else np.ones_like(grid_r)
    share_c = np.gcd(grid_c, ct) if reads_c else np.ones_like(grid_c)
    tiles: np.ndarray = z * rt * ct // (share_r * share_c)
    return tiles


def is_small(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Rows for which a parameter is small enough to be always preloaded."""
    if profile.operands[port].feed != "parameter" or profile.stream_parameters:
        return np.zeros(len(rows), dtype=bool)
    small: np.ndarray = resident_tiles(profile, port, rows) <= SMALL_TILES
    return small


def preloads(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Rows that preload a parameter: all of them when the row says prologue, else the small ones."""
    if profile.operands[port].feed != "parameter":
        return np.zeros(len(rows), dtype=bool)
    kept: np.ndarray = is_small(profile, port, rows) | rows["prologue"]
    return kept
