"""Where tiles lie in the buffer of a producer core, in which order a consumer core reads an operand, and where readers
find their tiles."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.balancer.streaming import to_source
from tbuda_lab.core.graph import TM, TileShape
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
    row = as_read(profile, port, row)
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
    elif profile.fused_sums and operand.role != "elt":
        # row by row of ublocks, and column by column (routing.md#views)
        first, steps = operand.role == "in0", profile.inner // u_kt
        count = m if first else n
        z, mm, i, a, b = (
            x.reshape(-1) for x in np.indices((total, count, steps, *((ur, u_kt) if first else (u_kt, uc))))
        )
        r, c = (mm * ur + a, i * u_kt + b) if first else (i * u_kt + a, mm * uc + b)
        lines = np.arange(gr if first else gc)
        base_r, base_c = (lines * m * ur, 0 * lines) if first else (0 * lines, lines * n * uc)
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


_KEPT_TILES = 1 << 20
_KEPT_BUFFERS = 4096


@dataclasses.dataclass(frozen=True)
class BufferRead:
    """(readers, length) stored coordinates of the tiles that each core reads, in its order. real: which of them are no
    padding, None where all are; where they are, coordinates are 0."""

    t: np.ndarray
    r: np.ndarray
    c: np.ndarray
    real: np.ndarray | None


class BufferReads:
    """Keeps the reads by reader, its row and the TMs; beyond a million tiles it forgets those used longest ago."""

    def __init__(self) -> None:
        self._results: OrderedDict[tuple[object, ...], tuple[OpProfile, BufferRead]] = OrderedDict()
        self._tiles = 0
        self._buffers: dict[tuple[object, ...], Buffers] = {}

    def buffers(self, row: np.void, order: str, stored: TileShape) -> Buffers:
        """The buffers of a stored output (t, rows, columns)."""
        key = (row.item(), order, stored)
        entry = self._buffers.get(key)
        if entry is None:
            if len(self._buffers) >= _KEPT_BUFFERS:
                self._buffers.clear()
            entry = self._buffers[key] = buffers(row, order, stored)
        return entry

    def of(
        self,
        tms: Sequence[TM],
        stored: TileShape,
        consumer: OpProfile,
        port: int,
        row: np.void,
        order: str,
        t: int | None,
    ) -> BufferRead:
        """`walk_back`, kept. stored: (t, rows, columns) of what the producer stored."""
        key = (tuple(tms), stored, id(consumer), port, row.item(), order, t)
        entry = self._results.get(key)
        if entry is not None:
            self._results.move_to_end(key)
            return entry[1]
        walk = walk_back(tms, stored, consumer, port, row, order, t)
        self._results[key] = consumer, walk  # the profile is held, so that its id stays its own
        self._tiles += walk.r.size
        while self._tiles > _KEPT_TILES and len(self._results) > 1:
            self._tiles -= self._results.popitem(last=False)[1][1].r.size
        return walk


def walk_back(
    tms: Sequence[TM], stored: TileShape, consumer: OpProfile, port: int, row: np.void, order: str, t: int | None
) -> BufferRead:
    """Where an operand's tiles lie in what its producer stored, in the order in which each core of the reader takes
    them. row, order: of the reader; t: only that many leading slices, None for all."""
    z, r, c = to_source(tms, stored, *consumer_walk(consumer, port, row, order, t))
    # a coordinate at a time: what is largest tells whether there is padding at all
    if int(z.max()) < stored[0] and int(r.max()) < stored[1] and int(c.max()) < stored[2]:
        return BufferRead(z, r, c, None)
    real = (z < stored[0]) & (r < stored[1]) & (c < stored[2])
    return BufferRead(np.where(real, z, 0), np.where(real, r, 0), np.where(real, c, 0), real)


@dataclasses.dataclass(frozen=True)
class Buffers:
    """The output buffers of an op: the core and the position of a tile are sums of what its t, row and column add."""

    core_r: np.ndarray
    core_c: np.ndarray
    at_r: np.ndarray
    at_c: np.ndarray
    slot: int  # tiles of one t in a core

    def find(self, walk: BufferRead) -> tuple[np.ndarray, np.ndarray]:
        """`buffer_address` of a walk's tiles; (-1, 0) for padding."""
        core = self.core_r[walk.r] + self.core_c[walk.c]
        address = self.at_r[walk.r] + self.at_c[walk.c] + walk.t * self.slot
        if walk.real is None:
            return core, address
        return np.where(walk.real, core, -1), np.where(walk.real, address, 0)


def buffers(row: np.void, order: str, stored: TileShape) -> Buffers:
    """The buffers of a stored output (t, rows, columns)."""
    zero = np.zeros(1, dtype=np.int64)
    core_r, at_r = buffer_address(row, order, zero, np.arange(stored[1]), zero)
    core_c, at_c = buffer_address(row, order, zero, zero, np.arange(stored[2]))
    slot = int(row["mblock_m"]) * int(row["mblock_n"]) * int(row["ublock_r"]) * int(row["ublock_c"])
    return Buffers(core_r, core_c, at_r, at_c, slot)
