"""Ops of one epoch that use the link to the host together.

Parameters that are kept in L1 come in over streams that a core has for the whole epoch, and of those there are few
(placement.md#device-limits).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import HOST
from tbuda_lab.core.balancer.edges import MAX_DRAM_IN_QUEUES, MAX_PREFETCH_STREAMS
from tbuda_lab.core.balancer.layout import read_walk, walk_back
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.streaming import edge_tms
from tbuda_lab.core.graph.tm import TileShape
from tbuda_lab.core.placer.model.costs import Needs
from tbuda_lab.core.placer.model.problem import Problem

_SHARES = 3  # how often ops on the link are fitted to each other


def uses_host(problem: Problem, op: int) -> bool:
    """Whether an operand or the output of an op moves over the host link."""
    fact = problem.facts[op]
    return fact.host_output or HOST in fact.queue_place


def link_cycles(
    problem: Problem,
    hosted: Sequence[int],
    first: int,
    last: int,
    needs: Callable[[int, int, int], Needs],
    cache: dict[object, np.ndarray] | None = None,
) -> np.ndarray | None:
    """(levels, targets) cycles that the link is busy with what these ops of a run move over it, however they share it;
    None where no two do: what one alone takes is in its own cycles. cache: holds the last answer, for needs that
    follow from an op's candidates and places alone."""
    if len(hosted) < 2:
        return None
    if cache is not None:
        key = tuple((problem.tables[op].signature, problem.places(op, first, last)) for op in hosted)
        busy = cache.get(key)
        if busy is None:
            busy = link_cycles(problem, hosted, first, last, needs)
            assert busy is not None
            cache.clear()  # a run that grows asks the same again and again, then never
            cache[key] = busy
        return busy
    total = np.zeros(needs(hosted[0], first, last).at.shape)
    for op in hosted:
        total += problem.host_bytes(op, *problem.places(op, first, last))[needs(op, first, last).at]
    cycles: np.ndarray = total / problem.device.pcie_bytes_per_cycle
    return cycles


def share_link(
    problem: Problem, first: int, last: int, picked: dict[int, int], load: int, limit: int, part: float, price: int
) -> None:
    """Puts other rows into `picked` for ops that use the link together: each core gets as much of it as any other, so a
    small grid beside large ones would wait. The rest are the arguments of `Problem.frontier`, and the target."""
    hosted = [op for op in range(first, last) if uses_host(problem, op)]
    if len(hosted) < 2:
        return
    places = {op: problem.places(op, first, last) for op in hosted}
    for _ in range(_SHARES):
        cores = sum(problem.host_cores(op, *places[op], picked[op]) for op in hosted)
        before = dict(picked)
        for op in hosted:
            front = problem.costs.frontier(problem.tables[op], *places[op], load, part, price, cores)
            at = int(np.searchsorted(-front.cycles, -limit, side="left"))
            picked[op] = int(front.row[min(at, len(front.row) - 1)])  # the fastest where none is fast enough
        if picked == before:
            break


Reader = tuple[OpProfile, int, np.void]
"""What an op is, the port at which it reads a parameter, and its candidate."""


def buffers_read(reader: Reader, stored: TileShape, grid: tuple[int, int]) -> int:
    """Buffers of a queue of `stored` tiles (t, rows, columns) on `grid` that the busiest core of a reader reads."""
    profile, port, row = reader
    walk = walk_back(edge_tms(None, None, profile, port, row), stored, read_walk(profile, port, row, "r"))
    cell = walk.r // (stored[1] // grid[0]) * grid[1] + walk.c // (stored[2] // grid[1])
    read = np.zeros((len(cell), grid[0] * grid[1] + 1), dtype=bool)
    real = cell if walk.real is None else np.where(walk.real, cell, -1)
    read[np.arange(len(cell))[:, None], real] = True
    return int(read[:, :-1].sum(axis=1).max())


def prefetch_grid(readers: Sequence[Reader], stored: TileShape, grid: tuple[int, int]) -> tuple[int, int]:
    """The queue grid, no larger than `grid`, of a parameter that is kept in L1: one of which no core reads more buffers
    than its share of streams. An op's parameters share its streams evenly, so that what a queue may take depends on the
    queue's own readers alone. A preloaded parameter is fetched once, so fewer buffers cost nothing later."""
    share = min(MAX_PREFETCH_STREAMS // sum(o.feed == "parameter" for o in p.operands) for p, _, _ in readers)
    tried = dict.fromkeys((grid, (1, grid[1]), (grid[0], 1)))
    return next((grid for grid in tried if reads_few(readers, stored, grid, share)), (1, 1))


def reads_few(
    readers: Sequence[Reader], stored: TileShape, grid: tuple[int, int], most: int = MAX_DRAM_IN_QUEUES
) -> bool:
    """Whether no core of a reader reads more than so many buffers of a queue of `stored` tiles on `grid`."""
    return grid[0] * grid[1] <= most or max(buffers_read(reader, stored, grid) for reader in readers) <= most
