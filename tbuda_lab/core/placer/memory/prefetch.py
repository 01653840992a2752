"""Parameters that are kept in L1 come in over streams that a core has for the whole epoch, and of those there are few
(placement.md#device-limits)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.buffer_reads import walk_back
from tbuda_lab.core.balancer.edges import MAX_PREFETCH_STREAMS
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.streaming import edge_tms
from tbuda_lab.core.graph.tm import TileShape

Reader = tuple[OpProfile, int, np.void]
"""What an op is, the port at which it reads a parameter, and its candidate."""


def buffers_read(reader: Reader, stored: TileShape, grid: tuple[int, int]) -> int:
    """Buffers of a queue of `stored` tiles (t, rows, columns) on `grid` that the busiest core of a reader reads."""
    profile, port, row = reader
    walk = walk_back(edge_tms(None, None, profile, port, row), stored, profile, port, row, "r", None)
    cell = walk.r // (stored[1] // grid[0]) * grid[1] + walk.c // (stored[2] // grid[1])
    read = np.zeros((len(cell), grid[0] * grid[1] + 1), dtype=bool)
    real = cell if walk.real is None else np.where(walk.real, cell, -1)
    read[np.arange(len(cell))[:, None], real] = True
    return int(read[:, :-1].sum(axis=1).max())


def prefetch_grid(readers: Sequence[Reader], stored: TileShape, grid: tuple[int, int]) -> tuple[int, int] | None:
    """The queue grid, no larger than `grid`, from which every reader can keep the parameter in L1; None if there is
    none, so that it has to be streamed. An op's parameters share its streams evenly: what a queue may take then depends
    on the queue's own readers alone. A preloaded parameter is fetched once, so fewer buffers cost nothing later."""
    share = min(MAX_PREFETCH_STREAMS // sum(o.feed == "parameter" for o in p.operands) for p, _, _ in readers)
    for tried in dict.fromkeys((grid, (1, grid[1]), (grid[0], 1), (1, 1))):
        cells = tried[0] * tried[1]
        if cells <= share or max(buffers_read(reader, stored, tried) for reader in readers) <= share:
            return tried
    return None
