"""What each core of an op keeps in L1, buffer by buffer, and the extra streams that the pipe generator gives it
(routing.md#l1-of-a-core)."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.cores.operands import (
    CoreOp,
    CoreOperand,
    OperandLists,
    lists_of,
    sources_in_phases,
)
from tbuda_lab.core.netlist.routing import tile_lists

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
AFTER, BEFORE, SHARE = "prologue_after_tms_in", "prologue_before_tms", "prologue_share"
TO_QUEUE, TO_OP = "dram_io", "output"


class CoreLoad(NamedTuple):
    """What the fullest cores of an op take.

    streams: the greater of what the router and the pipe generator count on a core; bytes: of the core with most of
    them, without the headers of tiles; buffers: those of that core, (kind of `netlist.cores`, bytes of each), or none
    where lists are too long to be written down; tiles: sizes of tiles that the op has to do with, for the headers;
    read: whether an op takes its output."""

    streams: int
    bytes: int
    buffers: tuple[tuple[str, tuple[int, ...]], ...] = ()
    tiles: frozenset[int] = frozenset()
    read: bool = False


@dataclasses.dataclass
class OpCores:
    """The cores of one op. kinds: for each kind of buffer a list of (rows, columns) bytes, 0 where a core has none;
    streams: (rows, columns) extra streams of the pipe generator. While they are counted: dram, the buffers in DRAM that
    a core works on; multicasts that end on it; gathers, (core, sources, bytes of a tile) of those that are none."""

    kinds: dict[str, list[I64]]
    streams: I64
    dram: I64
    multicasts: I64
    gathers: list[tuple[tuple[int, int], int, int]]

    @classmethod
    def of_grid(cls, grid: tuple[int, int]) -> OpCores:
        streams, dram, multicasts = (np.zeros(grid, np.int64) for _ in range(3))
        return cls({}, streams, dram, multicasts, [])

    def add(self, kind: str, size: I64 | int) -> None:
        size = np.broadcast_to(np.asarray(size, np.int64), self.streams.shape)
        if size.any():
            self.kinds.setdefault(kind, []).append(size)

    def add_on(self, kind: str, at: tuple[int, int], size: int) -> None:
        sizes = np.zeros_like(self.streams)
        sizes[at] = size
        self.add(kind, sizes)

    @property
    def total(self) -> I64:
        """(rows, columns) bytes of each core."""
        total = np.zeros_like(self.streams)
        for sizes in self.kinds.values():
            for size in sizes:
                total = total + size
        return total

    def fullest(self) -> tuple[tuple[int, int], int]:
        """(core of the op's grid, bytes) of the core with the most, the first of several."""
        total = self.total
        row, column = divmod(int(total.argmax()), total.shape[1])
        return (row, column), int(total[row, column])

    def of_core(self, at: tuple[int, int]) -> dict[str, list[int]]:
        """The buffers of one core by kind."""
        of_core = {kind: [int(size[at]) for size in sizes if size[at]] for kind, sizes in self.kinds.items()}
        return {kind: sizes for kind, sizes in of_core.items() if sizes}


@functools.lru_cache(maxsize=1 << 12)
def core_buffers(op: CoreOp, readers: tuple[CoreOperand, ...], input_count: int, arch: str) -> OpCores:
    """All buffers of an op but the headers of tiles, which are a matter of the whole chip. readers: operands of ops
    that read its output; without any a queue takes it."""
    cores = OpCores.of_grid(op.grid)
    cores.add(TO_OP if readers else TO_QUEUE, output_bytes(op, readers, input_count))
    if op.kind == "fused":
        for _ in range(op.intermediates):
            cores.add("intermediates", op.intermediate_ublock * op.intermediate_tile)
    elif op.adds_up and (op.intermediate_tile != op.output_tile or op.untilized):
        cores.add("intermediates", op.block * op.intermediate_tile)
    for operand in op.operands:
        (_preloaded if operand.preloaded else _streamed)(cores, op, operand, input_count, arch)
    _allot_gathers(cores, buffers.gathers_of(arch))
    if readers:
        forks = sum(lists_of(reader, input_count).link.sum(axis=1) for reader in readers)
        cores.streams += np.asarray(forks).reshape(op.grid) - 1
    else:
        cores.dram += 1
    cores.add("queue_state", np.maximum(cores.dram - buffers.STATES_FREE, 0) * buffers.QUEUE_STATE)
    for kind in ("gather_relays", "relay", SHARE):
        for size in cores.kinds.get(kind, ()):
            cores.streams += size > 0
    return cores


def output_bytes(op: CoreOp, readers: tuple[CoreOperand, ...], input_count: int) -> int:
    """Bytes of the output buffer of a core. Where readers jump in it and half of it holds more than all inputs that are
    worked on at once, only those are kept."""
    depth = max(op.buf_size_mb, op.t) if op.gradient else op.buf_size_mb
    if op.untilized:
        return depth * op.mblock[1] * op.ublock[0] * op.ublock[1] * op.plain_tile
    if readers and not op.gradient and input_count * op.t <= (1 if depth == 1 else depth // 2):
        cut = len(readers) > 1
        for reader in readers:
            pipes = tile_lists.pipes_of(
                reader.source, reader.reader, reader.seen, reader.steps, reader.unpad, reader.pad, input_count
            )
            granule = tile_lists.granularity(pipes)
            cut = cut or tile_lists.cut_in_pieces(pipes, reader.source, granule, op.grid[0] * op.grid[1], False)
        depth = input_count * op.t if cut else depth
    return depth * op.block * op.output_tile


def reading_cores(op: CoreOp, operand: CoreOperand) -> Bools:
    """(rows, columns): the cores on which lists of an operand end: of a multicast the first of a row, the last of a
    column."""
    reading = np.zeros(op.grid, bool)
    along = operand.seen.multicast
    reading[slice(None) if along != "column" else -1, slice(None) if along != "row" else 0] = True
    return reading


def _streamed(cores: OpCores, op: CoreOp, operand: CoreOperand, input_count: int, arch: str) -> None:
    """An operand that comes through an ordinary buffer: of another op, or read from DRAM for every input."""
    lists, tile, wide = lists_of(operand, input_count), operand.tile, op.multicasts(operand)
    kernel, g = op.ordinary(operand), op.granule(operand)
    name, reading = f"input_{operand.reader.port}", reading_cores(op, operand)
    if wide:
        cores.multicasts += reading
    if not operand.source.queue:
        cores.add(name, kernel * tile)
        _from_op(cores, op, operand, lists, input_count, arch)
        return
    block = int(operand.source.tiles * operand.source.t)
    step = lists.scatter(block, tile, kernel)
    length = lists.periods(step, g)
    chunk = buffers.read_chunk(length, g, step, tile)
    if wide:
        inside = np.full(len(step), kernel)
        staging = buffers.grown(chunk, tile, buffers.phase_tiles(block, length, g))
    else:
        inside, staging = buffers.streamed(kernel, chunk, g, tile, block, length)
    shape = operand.seen.grid
    cores.add(name, inside.reshape(shape) * tile)
    cores.dram += np.where(reading, lists.sources.reshape(shape), 0)
    cores.add(TO_QUEUE, np.where(reading, staging.reshape(shape) * tile, 0))
    if not wide:
        cores.streams += np.where(reading, staging.reshape(shape) > 0, 0)


def _from_op(
    cores: OpCores, op: CoreOp, operand: CoreOperand, lists: OperandLists, input_count: int, arch: str
) -> None:
    """Relays of an operand that another op makes."""
    wide, reading = op.multicasts(operand), reading_cores(op, operand)
    phased = None if wide else sources_in_phases(operand, lists, input_count)
    if phased is not None:
        several = reading & (np.broadcast_to(phased, reading.shape) > 1)
        cores.add("relay", np.where(several, buffers.relay_tiles(phased) * operand.tile, 0))
    elif not lists.packed(wide, False, arch):
        _gather(cores, op, operand, lists)


def _preloaded(cores: OpCores, op: CoreOp, operand: CoreOperand, input_count: int, arch: str) -> None:
    """An operand that waits in L1 from before the first input."""
    lists, tile, port = lists_of(operand, input_count), operand.tile, operand.reader.port
    kernel, reading = op.ordinary(operand), reading_cores(op, operand)
    block = int(operand.source.tiles * operand.source.t)
    share = op.share(operand, lists.length)
    if lists.length <= kernel:
        sizes = lists.periods(np.gcd(lists.step, block), op.granule(operand))
        cores.add(f"{AFTER}{port}", sizes.reshape(operand.seen.grid) * tile)
        return
    if share == 1:
        cores.add(f"{AFTER}{port}", lists.length * tile)
        return
    cores.add(f"input_{port}", kernel * tile)
    if op.multicasts(operand):
        cores.multicasts += reading
    if share:
        cores.add(SHARE, np.where(np.arange(op.grid[0])[:, None] < share, lists.length // share * tile, 0))
        _relays(cores, np.where(reading, share, 0), tile)
        return
    homes, forks = op.homes(operand), lists.link.sum(axis=1)
    for at, readers in zip(map(tuple, homes), forks, strict=True):
        cores.add_on(BEFORE, at, block * tile)
        cores.dram[at] += readers
        cores.streams[at] += readers
    if op.multicasts(operand):
        _gather(cores, op, operand, lists)
        return
    columns = operand.seen.grid[1]
    for k in np.flatnonzero(lists.sources > 1):
        places = np.unique(homes[lists.link[:, k]], axis=0)
        at = places[0] if len(places) == 1 else (k // columns, k % columns)
        cores.gathers.append(((int(at[0]), int(at[1])), int(lists.sources[k]), tile))


def _gather(cores: OpCores, op: CoreOp, operand: CoreOperand, lists: OperandLists) -> None:
    """Relays of lists from several sources, and of multicasts."""
    reading = reading_cores(op, operand)
    sources = np.where(reading, lists.sources.reshape(operand.seen.grid), 0)
    if op.multicasts(operand):
        _relays(cores, sources, operand.tile)
        return
    for r, c in np.argwhere(sources > 1):
        cores.gathers.append(((int(r), int(c)), int(sources[r, c]), operand.tile))


def _relays(cores: OpCores, sources: I64, tile: int) -> None:
    """Relays of multicasts; sources: (rows, columns) of the list that ends on a core, 0 where none does."""
    for n in range(buffers.RELAYS):
        cores.add("gather_relays", np.where(sources > max(n, 1), buffers.relay_tiles(sources) * tile, 0))
    cores.add("multicast_relay", np.where(sources == 1, buffers.RELAY_TILES * tile, 0))


def _allot_gathers(cores: OpCores, most: int) -> None:
    """Gives gathers that are no multicasts their relays: several while a core has room for them, one after that."""
    taken = cores.multicasts.copy()
    for at, sources, tile in cores.gathers:
        size = int(buffers.relay_tiles(sources)) * tile
        room = taken[at] < most
        for _ in range(min(buffers.RELAYS, sources) if room else 1):
            cores.add_on("gather_relays" if room else "relay", at, size)
        taken[at] += 1
