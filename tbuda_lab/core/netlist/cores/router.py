"""Extra streams of a core as the router counts them, which differs from what the pipe generator takes
(routing.md#extra-streams)."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.cores.operands import CoreOp, CoreOperand, OperandLists, jumping_steps, lists_of

I64 = npt.NDArray[np.int64]
At = tuple[int, int]


class _Streams:
    """Streams of the cores of one op while they are counted. plain: (rows, columns); multicasts: that end on each core,
    before whose gathers they take their room; gathers: by core the streams that each of the others wants."""

    def __init__(self, grid: At) -> None:
        self.plain: I64 = np.zeros(grid, np.int64)
        self.multicasts: I64 = np.zeros(grid, np.int64)
        self.gathers: dict[At, list[int]] = {}

    def gather(self, at: At, steps: int, multicast: bool = False) -> None:
        wanted = min(buffers.RELAYS, int(steps))
        if multicast:
            self.plain[at] += wanted
        else:
            self.gathers.setdefault(at, []).append(wanted)

    def total(self, most: int) -> I64:
        total = self.plain.copy()
        for at, wanted in self.gathers.items():
            wanted = sorted(wanted, reverse=True)
            room = max(0, most - int(self.multicasts[at]))
            total[at] += sum(wanted[:room]) + len(wanted[room:])
        return total


@functools.lru_cache(maxsize=1 << 12)
def router_streams(op: CoreOp, readers: tuple[CoreOperand, ...], input_count: int, arch: str) -> I64:
    """(rows, columns): extra streams of each core. readers: operands of ops that read its output."""
    streams = _Streams(op.grid)
    for operand in op.operands:
        lists = lists_of(operand, input_count)
        if not lists.packed(op.multicasts(operand), operand.source.queue, arch):
            (_preloaded if operand.preloaded else _streamed)(streams, op, operand, lists)
    if readers:
        forks = sum(lists_of(reader, input_count).link.sum(axis=1) for reader in readers)
        streams.plain += np.asarray(forks).reshape(op.grid) - 1
    elif op.untilized and op.grid[0] * op.grid[1] > 1:
        streams.gather((0, 0), op.grid[0] * op.grid[1])
    return streams.total(buffers.gathers_of(arch))


def _ends(op: CoreOp, operand: CoreOperand) -> list[At]:
    """The core on which each list of an operand ends: of a multicast the first of a row, the last of a column."""
    gr, gc = (int(x) for x in operand.seen.grid)
    column = operand.seen.multicast == "column"
    return [(op.grid[0] - 1 if column else r, c) for r in range(gr) for c in range(gc)]


def _jumps(op: CoreOp, operand: CoreOperand, lists: OperandLists) -> I64:
    """(lists,) steps of an operand's lists that jump, 0 of the others. What is preloaded for columns of cores jumps as
    a whole if one of its lists does, and what is streamed from DRAM a row of cores at a time."""
    block = int(operand.source.tiles * operand.source.t)
    step = lists.scatter(block, operand.tile, op.ordinary(operand))
    again = bool(operand.seen.multicast) and not operand.preloaded
    jumps = np.array([jumping_steps(lists.core[i], lists.index[i], int(s), again) for i, s in enumerate(step)])
    if op.is_second(operand):
        return np.full_like(jumps, jumps.max())
    if operand.preloaded and lists.length > op.ordinary(operand):
        return jumps
    rows = jumps.reshape(operand.seen.grid)
    return np.broadcast_to(rows.max(axis=1, keepdims=True), rows.shape).reshape(-1)


def _streamed(streams: _Streams, op: CoreOp, operand: CoreOperand, lists: OperandLists) -> None:
    queue, jumps, wide = operand.source.queue, _jumps(op, operand, lists), op.multicasts(operand)
    for k, at in enumerate(_ends(op, operand)):
        streams.multicasts[at] += wide
        if jumps[k] and (queue or lists.sources[k] > 1 or wide):
            streams.gather(at, jumps[k], wide)
        elif queue:
            streams.plain[at] += 1


def _preloaded(streams: _Streams, op: CoreOp, operand: CoreOperand, lists: OperandLists) -> None:
    jumps, ends, wide = _jumps(op, operand, lists), _ends(op, operand), op.multicasts(operand)
    share = op.share(operand, lists.length)
    if lists.length <= op.ordinary(operand):
        each = np.broadcast_to(jumps.reshape(operand.seen.grid), op.grid)
        for r, c in np.argwhere(each):
            streams.gather((int(r), int(c)), each[r, c])
        return
    if share:
        streams.plain[:share] += 1
        for k, (_, column) in enumerate(ends):
            if share > 1:
                streams.multicasts[op.grid[0] - 1, column] += 1
                streams.gather((op.grid[0] - 1, column), share, True)
            for row in range(share) if jumps[k] else ():
                streams.gather((row, column), jumps[k])
        return
    homes, forks = op.homes(operand), lists.link.sum(axis=1)
    for buffer, home in enumerate(map(tuple, homes)):
        plain = int((jumps[lists.link[buffer]] == 0).sum())
        streams.plain[home] += 1 + (plain if forks[buffer] > 1 and not wide else 0)
    for end in ends if wide else ():
        streams.multicasts[end] += 1
    for reader in np.flatnonzero(jumps):
        places = {(int(r), int(c)) for r, c in homes[lists.link[:, reader]]}
        at = places.pop() if len(places) == 1 and not wide else ends[int(reader)]
        streams.gather(at, int(jumps[reader]), wide)
