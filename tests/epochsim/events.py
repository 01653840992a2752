"""A second simulator of one epoch, tile by tile and core by core, made from the emitted netlist alone: it shares no
code with `core.epochsim`, and none of its steps, parts or combined buffers.

Every core of an op works ublock by ublock in the order that the netlist says, and every operand has a list of tiles
that it reads, a buffer of its own, and pulls the next tile as soon as its producer has packed it and there is room. A
core packs where its output buffer has room; a slot there is free when all who read the tile have pulled it. What an op
takes for an input, and when its first operands are there, is given: that is the cost model's matter.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from tbuda_lab.core.netlist.schema import NetGraph, NetOp

Place = tuple[str, int, int]  # op, row and column of the core


@dataclasses.dataclass
class Work:
    """One step of a core: tiles of each operand (of all inputs so far within this one) that must have come, and that
    are given back after it; tiles that it packs."""

    needs: dict[int, int]
    frees: dict[int, int]
    packs: int


class Port:
    """What a core reads of an op: per input the (producer core, position in its packing order) of each tile."""

    def __init__(self, tiles: list[tuple[Place, int]], room: int) -> None:
        self.tiles, self.room = tiles, room
        self.pulled = self.arrived = self.freed = 0
        self.sources = sorted({core for core, _ in tiles})
        # of each producer core, after so many pulls of an input: the first position that was not pulled yet
        self.kept: dict[Place, list[int]] = {}
        for source in self.sources:
            mine = [position if core == source else None for core, position in tiles]
            lowest, rest = [math.inf] * (len(mine) + 1), math.inf
            for k in range(len(mine) - 1, -1, -1):
                if mine[k] is not None:
                    rest = min(rest, mine[k])  # type: ignore[type-var]
                lowest[k] = rest
            self.kept[source] = [-1 if value == math.inf else int(value) for value in lowest]


class Core:
    """A core with its steps for one input."""

    def __init__(self, place: Place, steps: list[Work], cycles: int, ready: int, room: int) -> None:
        self.place, self.steps, self.room, self.ready = place, steps, room, ready
        self.lengths = [cycles * (k + 1) // len(steps) - cycles * k // len(steps) for k in range(len(steps))]
        self.ports: dict[int, Port] = {}
        self.readers: list[tuple[Place, int]] = []
        self.total = sum(step.packs for step in steps)
        self.packed = self.turn = self.at = 0
        self.busy = False
        self.end = 0


def output_order(op: NetOp, t: int) -> Iterator[tuple[int, int, int]]:
    """(t, row of ublocks, column) of the ublocks of a core in the order in which they are packed."""
    m, n = op.blocking.mblock
    for slice_ in range(t):
        pairs = itertools.product(range(m), range(n))
        if op.blocking.order == "c":
            pairs = ((r, c) for c, r in itertools.product(range(n), range(m)))
        for r, c in pairs:
            yield slice_, r, c


def packing(op: NetOp) -> dict[tuple[int, int, int], tuple[tuple[int, int], int]]:
    """By tile (t, row, column): the core that makes it, and when in its order."""
    (gr, gc), (m, n), (u, v), t = op.grid_size, op.blocking.mblock, op.blocking.ublock, op.blocking.t
    made = {}
    for i, j in itertools.product(range(gr), range(gc)):
        position = 0
        for slice_, r, c in output_order(op, t):
            for a, b in itertools.product(range(u), range(v)):
                made[slice_, (i * m + r) * u + a, (j * n + c) * v + b] = (i, j), position
                position += 1
    return made


def block(first: int, size: int) -> range:
    return range(first * size, (first + 1) * size)


def steps_of(op: NetOp) -> list[Work]:
    """The steps of a core: of an element-wise op a ublock each; of a matmul a ublock of each of the m_k parts; of
    several parts the last packs the whole block (placement.md#firings). Operand 0 of a matmul is given back by
    rows of ublocks, operand 1 by parts."""
    (m, n), (u, v), t = op.blocking.mblock, op.blocking.ublock, op.blocking.t
    if op.type != "matmul":
        size = u * v
        done = [dict.fromkeys(range(len(op.inputs)), (k + 1) * size) for k in range(t * m * n)]
        return [Work(tiles, tiles, size) for tiles in done]
    parts, inner = int(op.attributes["m_k"]), int(op.attributes["u_kt"])
    steps = []
    for slice_, k, r, c in itertools.product(range(t), range(parts), range(m), range(n)):
        row = (slice_ * parts + k) * m + r
        part = slice_ * parts + k
        columns = part * n + (c + 1 if r == 0 else n)
        steps.append(
            Work(
                {0: (row + 1) * u * inner, 1: columns * v * inner},
                {0: (row + (c == n - 1)) * u * inner, 1: (part + ((r, c) == (m - 1, n - 1))) * n * v * inner},
                u * v if parts == 1 else m * n * u * v * ((k, r, c) == (parts - 1, m - 1, n - 1)),
            )
        )
    return steps


def reads(op: NetOp, port: int, i: int, j: int) -> list[tuple[int, int, int]]:
    """The tiles (t, row, column) of an operand without TMs in the order in which core (i, j) reads them."""
    (m, n), (u, v), t = op.blocking.mblock, op.blocking.ublock, op.blocking.t
    if op.type != "matmul":
        return [
            (s, (i * m + r) * u + a, (j * n + c) * v + b)
            for s, r, c in output_order(op, t)
            for a, b in itertools.product(range(u), range(v))
        ]
    parts, inner = int(op.attributes["m_k"]), int(op.attributes["u_kt"])
    if port == 0:
        return [
            (s, row, column)
            for s, k, r in itertools.product(range(t), range(parts), range(m))
            for row in block(i * m + r, u)
            for column in block(k, inner)
        ]
    return [
        (s, row, column)
        for s, k, c in itertools.product(range(t), range(parts), range(n))
        for row in block(k, inner)
        for column in block(j * n + c, v)
    ]


def buffer_of(op: NetOp, port: int) -> int:
    """Tiles of an operand's buffer: twice what the kernel takes at once."""
    (_, n), (u, v) = op.blocking.mblock, op.blocking.ublock
    least = (op.input_buf_min_size_tiles or [0] * len(op.inputs))[port]
    if op.type != "matmul":
        return max(2 * u * v, least)
    inner = int(op.attributes["u_kt"])
    return max(2 * (u if port == 0 else n * v) * inner, least)


class Events:
    """Runs a batch through a graph of a netlist. cycles: of one input, by op; ready: before which it cannot begin."""

    def __init__(self, graph: NetGraph, cycles: Mapping[str, int], ready: Mapping[str, int], latency: int) -> None:
        self.latency, self.cores = latency, dict[Place, Core]()
        self.heap: list[tuple[int, int, Callable[[int], None]]] = []
        self.count = itertools.count()
        made = {op.name: packing(op) for op in graph.ops.values()}
        for op in graph.ops.values():
            (m, n), (u, v) = op.blocking.mblock, op.blocking.ublock
            for i, j in itertools.product(*map(range, op.grid_size)):
                room = int(op.buf_size_mb or 1) * m * n * u * v
                self.cores[op.name, i, j] = Core((op.name, i, j), steps_of(op), cycles[op.name], ready[op.name], room)
        for op in graph.ops.values():
            for (i, j), (port, source) in itertools.product(
                itertools.product(*map(range, op.grid_size)), enumerate(op.inputs)
            ):
                if source.source in graph.ops:
                    assert not source.tms, f"{op.name} moves tiles of {source.source}"
                    own = made[source.source]
                    tiles = [((source.source, *own[tile][0]), own[tile][1]) for tile in reads(op, port, i, j)]
                    core = self.cores[op.name, i, j]
                    core.ports[port] = Port(tiles, buffer_of(op, port))
                    for place in core.ports[port].sources:
                        self.cores[place].readers.append(((op.name, i, j), port))

    def run(self, batch: int) -> int:
        """The cycle in which the last core is done with the last input."""
        self.batch = batch
        for core in self.cores.values():
            self.post(core.ready, lambda now, core=core: self.work(core, now))
        while self.heap:
            now, _, act = heapq.heappop(self.heap)
            act(now)
        assert all(core.turn == batch for core in self.cores.values()), "the epoch stands still"
        return max(core.end for core in self.cores.values())

    def post(self, time: int, act: Callable[[int], None]) -> None:
        heapq.heappush(self.heap, (time, next(self.count), act))

    def free_until(self, place: Place) -> int:
        """Tiles that all readers of a core have pulled, from the first on."""
        core = self.cores[place]
        least = core.packed
        for reader, number in core.readers:
            port = self.cores[reader].ports[number]
            turn, at = divmod(port.arrived, len(port.tiles))
            kept = port.kept[place][at]
            least = min(least, turn * core.total + (core.total if kept < 0 else kept))
        return least

    def work(self, core: Core, now: int) -> None:
        """Begins the next step of a core if it can."""
        if core.busy or core.turn == self.batch or now < core.ready:
            return
        step = core.steps[core.at]
        for number, port in core.ports.items():
            if port.arrived < core.turn * len(port.tiles) + step.needs[number]:
                return
        if core.readers and step.packs and core.packed + step.packs - self.free_until(core.place) > core.room:
            return
        core.busy = True
        self.post(now + core.lengths[core.at], lambda then: self.done(core, then))

    def done(self, core: Core, now: int) -> None:
        step = core.steps[core.at]
        core.busy, core.packed, core.end = False, core.packed + step.packs, now
        for number, port in core.ports.items():
            port.freed = core.turn * len(port.tiles) + step.frees[number]
        core.at += 1
        if core.at == len(core.steps):
            core.at, core.turn = 0, core.turn + 1
        for port in core.ports.values():
            self.pull(core, port, now)
        for reader, number in core.readers:
            other = self.cores[reader]
            self.pull(other, other.ports[number], now)
        self.work(core, now)

    def pull(self, core: Core, port: Port, now: int) -> None:
        """Sends for the next tiles of an operand, as far as they are packed and have room."""
        before = port.pulled
        while port.pulled - port.freed < port.room:
            turn, at = divmod(port.pulled, len(port.tiles))
            place, position = port.tiles[at]
            source = self.cores[place]
            if turn == self.batch or source.packed <= turn * source.total + position:
                break
            port.pulled += 1
        if port.pulled > before:
            count = port.pulled
            self.post(now + self.latency, lambda then: self.arrive(core, port, count, then))

    def arrive(self, core: Core, port: Port, count: int, now: int) -> None:
        port.arrived = max(port.arrived, count)
        self.work(core, now)
        for place in port.sources:
            self.work(self.cores[place], now)
