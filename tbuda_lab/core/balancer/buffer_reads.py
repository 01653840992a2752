"""Where the readers of an op find their tiles in its buffers.

What is worked out for one end of an edge is kept: many rows of the producer are asked about with one row of the reader,
and many rows of the reader with one row of the producer.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.layout import buffer_address, consumer_walk
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.streaming import to_source
from tbuda_lab.core.graph import TM, TileShape

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
