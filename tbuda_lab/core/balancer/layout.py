"""Where tiles lie in the buffer of a producer core, in which order a consumer core reads an operand, and where readers
find their tiles."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.balancer.profile import Candidate, OpProfile, as_read
from tbuda_lab.core.balancer.streaming import to_source
from tbuda_lab.core.graph import TM, TileShape
from tbuda_lab.core.lowering.hw_ops import HwReduce

Loop = tuple[int, int, int, int]
"""How often a loop runs, and what each of its steps adds to z, r and c."""


class Walk(NamedTuple):
    """In which order the cores of a reader take an operand's tiles: loops over the cores, and over the tiles that each
    of them takes, outermost first, in as few loops as say it."""

    cores: tuple[Loop, ...]
    tiles: tuple[Loop, ...]

    def coordinates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Three (cores, length) arrays of (z, r, c)."""
        (_, down, across), (z, r, c) = _coordinates(self.cores), _coordinates(self.tiles)
        return np.broadcast_to(z, (len(down), len(z))), down[:, None] + r, across[:, None] + c


def _coordinates(loops: Sequence[Loop]) -> list[np.ndarray]:
    """z, r and c at every step of nested loops."""
    coordinates = []
    for axis in (1, 2, 3):
        at = np.zeros(1, np.int64)
        for loop in loops:
            count, step = loop[0], loop[axis]
            at = (at[:, None] + step * np.arange(count)).reshape(-1) if step else at.repeat(count)
        coordinates.append(at)
    return coordinates


def _merge_loops(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The same steps in fewer loops: without those of one step, and two as one where the outer goes on from where the
    inner ends."""
    joined: list[Loop] = []  # innermost first
    for count, *step in reversed(loops):
        if count == 1:
            continue
        inner = joined[-1] if joined else None
        if inner is not None and step == [inner[0] * by for by in inner[1:]]:
            joined[-1] = count * inner[0], *inner[1:]
        else:
            joined.append((count, step[0], step[1], step[2]))
    return tuple(reversed(joined))


def _ublock_loops(t: int, rows: int, cols: int, ur: int, uc: int, order: str) -> tuple[Loop, ...]:
    """(t, r, c) inside a block of rows x cols tiles, ublocks in `order`, tiles of a ublock by rows; t outermost."""
    down, across = (rows // ur, 0, ur, 0), (cols // uc, 0, 0, uc)
    ublocks = (down, across) if order == "r" else (across, down)
    return (t, 1, 0, 0), *ublocks, (ur, 0, 1, 0), (uc, 0, 0, 1)


def consumer_walk(
    profile: OpProfile, port: int, row: np.void, order: str, t: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`read_walk` as three (cores, length) arrays of (z, r, c)."""
    return read_walk(profile, port, row, order, t).coordinates()


def read_walk(profile: OpProfile, port: int, row: Candidate, order: str, t: int | None = None) -> Walk:
    """Tiles of an operand, after the TMs, in the order each core reads them.

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
    lines: tuple[Loop, ...]
    down, across = ((gr, 0, m * ur, 0),), ((gc, 0, 0, n * uc),)
    by_rows, by_columns = (m, 0, ur, 0), (n, 0, 0, uc)
    if operand.role == "in0" and profile.kind == "depthwise":
        # the output block once for every tap, side by side, in columns of ublocks (routing.md#views)
        lines, tiles = down, _ublock_loops(total, m * ur, profile.inner * n * uc, ur, uc, "c")
    elif profile.fused_sums and operand.role != "elt":
        # row by row of ublocks, and column by column (routing.md#views)
        lines, ublocks, tile = (
            (down, (by_rows, (profile.inner // u_kt, 0, 0, u_kt)), (ur, u_kt))
            if operand.role == "in0"
            else (across, (by_columns, (profile.inner // u_kt, 0, u_kt, 0)), (u_kt, uc))
        )
        tiles = (total, 1, 0, 0), *ublocks, (tile[0], 0, 1, 0), (tile[1], 0, 0, 1)
    elif operand.role == "in0":
        k = profile.inner // u_kt
        lines, tiles = down, ((total, 1, 0, 0), (k, 0, 0, u_kt), by_rows, (ur, 0, 1, 0), (u_kt, 0, 0, 1))
    elif operand.role == "in1":
        if profile.kind == "sparse_matmul":
            total = operand.tiles[0]
        k = operand.tiles[1] // u_kt
        lines, tiles = across, ((total, 1, 0, 0), (k, 0, u_kt, 0), by_columns, (u_kt, 0, 1, 0), (uc, 0, 0, 1))
    elif isinstance(op, HwReduce) and op.dim in "rc":
        k = profile.inner // u_kt
        if op.dim == "r":
            lines, tiles = across, ((total, 1, 0, 0), by_columns, (k, 0, u_kt, 0), (u_kt, 0, 1, 0), (uc, 0, 0, 1))
        else:
            lines, tiles = down, ((total, 1, 0, 0), by_rows, (k, 0, 0, u_kt), (ur, 0, 1, 0), (u_kt, 0, 0, 1))
    else:
        zt, rt, ct = operand.tiles
        rows = rt // int(row["stream_r"]) // gr
        cols = ct // int(row["stream_c"]) // gc
        if profile.kind == "splice":
            total = zt * int(row["stream_r"]) * int(row["stream_c"])
            total = total if t is None else min(t, total)
        once = operand.role == "bias" and rt == 1
        if once:
            rows = 1
        lines = (1 if once else gr, 0, rows, 0), (gc, 0, 0, cols)
        height = ur if rows % ur == 0 else 1
        tiles = _ublock_loops(total, rows, cols, height, uc if cols % uc == 0 else 1, order)
    return Walk(_merge_loops(lines), _merge_loops(tiles))


def buffer_address(
    row: Candidate, order: str, t: np.ndarray, r: np.ndarray, c: np.ndarray
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
_BUFFER = ("grid_c", "mblock_m", "mblock_n", "ublock_r", "ublock_c")
"""What of a candidate says where the tiles of its output lie."""


@dataclasses.dataclass(frozen=True)
class BufferRead:
    """(readers, length) stored coordinates of the tiles that each core reads, in its order. real: which of them are no
    padding, None where all are; where they are, coordinates are 0."""

    t: np.ndarray
    r: np.ndarray
    c: np.ndarray
    real: np.ndarray | None


class BufferReads:
    """Keeps the reads by walk and TMs; beyond a million tiles it forgets those used longest ago."""

    def __init__(self) -> None:
        self._results: OrderedDict[tuple[object, ...], BufferRead] = OrderedDict()
        self._tiles = 0
        self._buffers: dict[tuple[object, ...], Buffers] = {}

    def buffers(self, row: Candidate, order: str, stored: TileShape) -> Buffers:
        """The buffers of a stored output (t, rows, columns)."""
        key = (*(row[name] for name in _BUFFER), order, stored)
        entry = self._buffers.get(key)
        if entry is None:
            if len(self._buffers) >= _KEPT_BUFFERS:
                self._buffers.clear()
            entry = self._buffers[key] = buffers(row, order, stored)
        return entry

    def of(self, tms: tuple[TM, ...], stored: TileShape, walk: Walk) -> BufferRead:
        """`walk_back`, kept. stored: (t, rows, columns) of what the producer stored."""
        key = tms, stored, walk
        entry = self._results.get(key)
        if entry is not None:
            self._results.move_to_end(key)
            return entry
        read = self._results[key] = walk_back(tms, stored, walk)
        self._tiles += read.r.size
        while self._tiles > _KEPT_TILES and len(self._results) > 1:
            self._tiles -= self._results.popitem(last=False)[1].r.size
        return read


def walk_back(tms: Sequence[TM], stored: TileShape, walk: Walk) -> BufferRead:
    """Where an operand's tiles lie in what its producer stored, in the order in which each core of the reader takes
    them."""
    z, r, c = to_source(tms, stored, *walk.coordinates())
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


def buffers(row: Candidate, order: str, stored: TileShape) -> Buffers:
    """The buffers of a stored output (t, rows, columns)."""
    zero = np.zeros(1, dtype=np.int64)
    core_r, at_r = buffer_address(row, order, zero, np.arange(stored[1]), zero)
    core_c, at_c = buffer_address(row, order, zero, zero, np.arange(stored[2]))
    slot = int(row["mblock_m"]) * int(row["mblock_n"]) * int(row["ublock_r"]) * int(row["ublock_c"])
    return Buffers(core_r, core_c, at_r, at_c, slot)
