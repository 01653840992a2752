"""Where tiles lie: the buffer of a producer core and the order in which a consumer core reads an operand."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.lowering.hwops import HwReduce


def _ublock_walk(
    t: int, rows: int, cols: int, ur: int, uc: int, order: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(t, r, c) inside a block of rows x cols tiles, ublocks in `order`, tiles of a ublock by rows; t outermost."""
    m, n = rows // ur, cols // uc
    z, i, j, a, b = np.indices((t, m, n, ur, uc) if order == "r" else (t, n, m, ur, uc))
    if order != "r":
        i, j = j, i
    return z.reshape(-1), (i * ur + a).reshape(-1), (j * uc + b).reshape(-1)


def consumer_walk(
    profile: OpProfile, port: int, row: np.void, order: str, t: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tiles of an operand in the order each core reads them: three (cores, length) arrays of (z, r, c) after the TMs.

    Cores that receive the same data by multicast count once: a matmul's first operand has one reader per grid row, its
    others one per grid column. `t`: only that many leading t.
    """
    op = profile.op
    operand = profile.operands[port]
    gr, gc = int(row["grid_r"]), int(row["grid_c"])
    ur, uc = int(row["ublock_r"]), int(row["ublock_c"])
    m, n = int(row["mblock_m"]), int(row["mblock_n"])
    u_kt = max(1, int(row["u_kt"]))
    total = int(row["t"]) * profile.z_group
    total = total if t is None else min(t * profile.z_group, total)
    if operand.role == "in0" and profile.kind == "depthwise":
        # the output block once for every tap, side by side, in columns of ublocks (routing.md#views)
        z, r, c = _ublock_walk(total, m * ur, profile.inner * n * uc, ur, uc, "c")
        base_r, base_c = np.arange(gr) * m * ur, np.zeros(gr, dtype=np.int64)
    elif operand.role == "in0":
        k = profile.inner // u_kt
        z, i, mm, a, b = (x.reshape(-1) for x in np.indices((total, k, m, ur, u_kt)))
        r, c = mm * ur + a, i * u_kt + b
        base_r, base_c = np.arange(gr) * m * ur, np.zeros(gr, dtype=np.int64)
    elif operand.role == "in1":
        if profile.kind == "sparse_matmul":
            total = operand.tiles[0]
        k = operand.tiles[1] // u_kt
        z, i, nn, a, b = (x.reshape(-1) for x in np.indices((total, k, n, u_kt, uc)))
        r, c = i * u_kt + a, nn * uc + b
        base_r, base_c = np.zeros(gc, dtype=np.int64), np.arange(gc) * n * uc
    elif isinstance(op, HwReduce) and op.dim in "rc":
        k = profile.inner // u_kt
        if op.dim == "r":
            z, nn, i, a, b = (x.reshape(-1) for x in np.indices((total, n, k, u_kt, uc)))
            r, c = i * u_kt + a, nn * uc + b
            base_r, base_c = np.zeros(gc, dtype=np.int64), np.arange(gc) * n * uc
        else:
            z, mm, i, a, b = (x.reshape(-1) for x in np.indices((total, m, k, ur, u_kt)))
            r, c = mm * ur + a, i * u_kt + b
            base_r, base_c = np.arange(gr) * m * ur, np.zeros(gr, dtype=np.int64)
    else:
        zt, rt, ct = operand.tiles
        rows = rt // int(row["stream_r"]) // gr
        cols = ct // int(row["stream_c"]) // gc
        if profile.kind == "splice":
            total = zt * int(row["stream_r"]) * int(row["stream_c"])
            total = total if t is None else min(t, total)
        if operand.role == "bias" and rt == 1:
            rows = 1
        height = ur if rows % ur == 0 else 1
        z, r, c = _ublock_walk(total, rows, cols, height, uc if cols % uc == 0 else 1, order)
        core_r, core_c = (x.reshape(-1) for x in np.indices((1 if operand.role == "bias" and rt == 1 else gr, gc)))
        base_r, base_c = core_r * rows, core_c * cols
    zz = np.broadcast_to(z, (len(base_r), len(z)))
    return zz, base_r[:, None] + r, base_c[:, None] + c


def buffer_address(
    row: np.void, order: str, t: np.ndarray, r: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(core, position in tiles) of the tiles (t, r, c) of a stored output: core row-major, t outermost in a buffer."""
    ur, uc, m, n = (int(row[f]) for f in ("ublock_r", "ublock_c", "mblock_m", "mblock_n"))
    gc = int(row["grid_c"])
    core = (r // (m * ur)) * gc + c // (n * uc)
    r, c = r % (m * ur), c % (n * uc)
    ublock = (r // ur) * n + c // uc if order == "r" else (c // uc) * m + r // ur
    return core, ((t * m * n + ublock) * ur + r % ur) * uc + c % uc
