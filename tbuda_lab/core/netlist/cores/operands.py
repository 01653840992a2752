"""Ops and operands as the pipe generator's rules on cores see them, and the facts of an operand's lists of tiles."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.routing import tile_lists
from tbuda_lab.core.netlist.routing.edge import RoutedEdge, divides
from tbuda_lab.core.netlist.routing.layout import EdgeReader, OperandView, Source, Step, shape_after, view
from tbuda_lab.core.netlist.routing.stacks import chain_of, phases, sent_in_phases
from tbuda_lab.core.netlist.routing.tile_lists import PADDING

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SPARSE = "sparse_matmul"
SHORT_LIST = 64
"""Steps up to which a list is taken as it is; a longer one that only repeats counts as its period."""
LEAST_PERIOD = 32


@dataclasses.dataclass(frozen=True)
class CoreOperand:
    """One input of an op. source: the layout of the queue or op that it reads; steps: its TMs; tile: bytes of a tile
    with header; preloaded: it waits in L1 from before the first input (a prologue); least: its
    `input_buf_min_size_tiles`, 0 for none."""

    source: Source
    steps: tuple[Step, ...]
    reader: EdgeReader
    tile: int
    preloaded: bool = False
    least: int = 0
    unpad: tuple[int, int] = (0, 0)
    pad: tuple[int, int] = (0, 0)

    @property
    def seen(self) -> OperandView:
        """How the op reads it."""
        return view(self.reader, shape_after(self.source.shape, self.steps, self.unpad, self.pad))

    @property
    def fits(self) -> bool:
        """Whether every TM divides what it gets, and the op reads what comes out."""
        if divides(RoutedEdge(self.source, self.steps, self.reader, unpad=self.unpad, pad=self.pad)):
            return False
        after, seen = shape_after(self.source.shape, self.steps, self.unpad, self.pad), self.seen
        return (seen.rows, seen.columns) == after[1:] and seen.t in (None, after[0])


@dataclasses.dataclass(frozen=True)
class CoreOp:
    """An op of an epoch with all that its cores keep. kind: of `EdgeReader.type`; output_tile, intermediate_tile: bytes
    of a tile; plain_tile: of an output tile without header; intermediates: of a fused op; min_buffer: the operand of
    which a matmul keeps one row or column of ublocks only, -1 for neither; intermediate_ublock: tiles of one
    intermediate of a fused op."""

    kind: str
    grid: tuple[int, int]
    t: int
    mblock: tuple[int, int]
    ublock: tuple[int, int]
    order: str
    buf_size_mb: int
    output_tile: int
    plain_tile: int
    intermediate_tile: int
    operands: tuple[CoreOperand, ...]
    m_k: int = 1
    u_kt: int = 1
    z: int = 1
    dim: str = ""
    bias: bool = False
    accumulate: bool = False
    untilized: bool = False
    min_buffer: int = -1
    intermediates: int = 0
    gradient: bool = False
    intermediate_ublock: int = 0

    @property
    def block(self) -> int:
        return self.mblock[0] * self.mblock[1] * self.ublock[0] * self.ublock[1]

    @property
    def thirds(self) -> int:
        """What the least input buffer is divided by, in thirds: inputs of a fused op or splice that has more than 3."""
        count = len(self.operands)
        return count if self.kind in ("fused", "splice") and count > 3 else 3

    @property
    def adds_up(self) -> bool:
        """Whether partial results wait in a buffer of intermediates."""
        if self.kind in ("matmul", SPARSE):
            return self.bias or self.m_k > 1 or self.accumulate
        if self.kind == "depthwise":
            return self.bias or self.m_k > 1
        return self.kind == "reduce" and self.dim == "z"

    @property
    def tile_sizes(self) -> frozenset[int]:
        """Sizes in bytes of the tiles that the op has to do with."""
        sizes = {operand.tile for operand in self.operands}
        sizes.add(self.plain_tile if self.untilized else self.output_tile)
        return frozenset(sizes | ({self.intermediate_tile} if self.adds_up or self.intermediates else set()))

    def granule(self, operand: CoreOperand) -> int:
        """`buffers.granule` of an operand."""
        reader = operand.reader
        if self.kind == SPARSE and reader.port != 1:
            return int(reader.tiles) if reader.port == 0 else 1
        kind, port = (reader.use, reader.operand) if self.kind == "fused" else (self.kind, reader.port)
        blocks = (*reader.mblock, *reader.ublock)
        u_kt, dim = (reader.u_kt, reader.dim) if self.kind == "fused" else (self.u_kt, self.dim)
        # a matmul inside a fused op takes its operands by ublocks
        small = port if self.kind == "fused" else self.min_buffer
        kind = "matmul" if kind == SPARSE else kind
        return int(buffers.granule(kind, port, blocks, u_kt, small, dim, reader.kernel_broadcast))

    def ordinary(self, operand: CoreOperand) -> int:
        """Tiles of the ordinary input buffer of an operand."""
        floorless = self.kind == SPARSE and operand.reader.port != 1
        return int(
            buffers.ordinary(
                self.granule(operand),
                operand.tile,
                self.thirds,
                operand.reader.kernel_broadcast or floorless,
                operand.least,
            )
        )

    def is_second(self, operand: CoreOperand) -> bool:
        """Whether it is the operand that a matmul or depthwise takes by columns of cores."""
        return self.kind in ("matmul", "depthwise", SPARSE) and operand.reader.port == 1

    def multicasts(self, operand: CoreOperand) -> bool:
        """Whether several cores take one list of an operand."""
        along = operand.seen.multicast
        return (along == "row" and self.grid[1] > 1) or (along == "column" and self.grid[0] > 1)

    def share(self, operand: CoreOperand, length: int) -> int:
        """Among how many cores of a column a preloaded second operand without TMs of so many tiles is divided; 0 for
        any other operand."""
        if not self.is_second(operand) or operand.steps:
            return 0
        return max(d for d in range(1, self.grid[0] + 1) if length % d == 0)

    def homes(self, operand: CoreOperand) -> I64:
        """(buffers, 2): the core, as row and column, that keeps each buffer of a queue that is preloaded as it lies."""
        (rows, columns), (qr, qc) = self.grid, operand.source.grid
        r, c = (x.reshape(-1) for x in np.indices((qr, qc)))
        row = r % rows
        return np.stack([rows - 1 - row if self.is_second(operand) else row, c % columns], axis=1)


@dataclasses.dataclass(frozen=True)
class OperandLists:
    """What the cores of a view read of one input: a list for each, of the cores (or queue buffers) of the source and of
    the indices there, (lists, tiles). length: tiles of a list; step: gcd of its runs and of where they begin; sources:
    distinct buffers of each; link: (buffers, lists), which list reads which."""

    core: I64
    index: I64
    length: int
    step: I64
    sources: I64
    link: Bools

    def packed(self, multicast: bool, queue: bool, arch: str) -> bool:
        """Whether cores of an op send multicasts themselves: each of them one, and nothing else."""
        return (
            multicast
            and not queue
            and arch != "grayskull"
            and int(self.sources.max()) == 1
            and int(self.link.sum(axis=1).max()) == 1
        )

    def scatter(self, block: int, tile: int, kernel: int = 0) -> I64:
        """(lists,) tiles of one step. block: of the buffer that is read; kernel: of an ordinary buffer that a step may
        not be larger than, 0 for none."""
        step = np.gcd(self.step, block)
        if kernel:
            step = np.where(kernel < step, np.gcd(step, kernel), step)
        return np.where(
            step * tile > buffers.LARGEST_STEP, buffers.largest_divisor(step, buffers.LARGEST_STEP // tile), step
        )

    def periods(self, step: I64, g: int) -> I64:
        """(lists,) tiles that count of each list, see `period`."""
        return np.array(
            [period(core, index, int(s), g) for core, index, s in zip(self.core, self.index, step, strict=True)],
            dtype=np.int64,
        )


@functools.lru_cache(maxsize=32)
def lists_of(operand: CoreOperand, input_count: int) -> OperandLists:
    """The lists of an operand; of an op's output as far as its buffer holds it, for so many inputs at once."""
    source, reader, seen = operand.source, operand.reader, operand.seen
    if source.queue:
        shape = tuple(int(x) for x in source.shape)
        ids = tile_lists.tile_ids((shape[0], shape[1], shape[2]), operand.steps, operand.unpad, operand.pad)
        core, index = tile_lists.places(source, tile_lists.reading(ids, seen))
        if reader.kernel_broadcast:
            core, index = _first_tiles(core, index, ids.shape[0], reader.kernel_broadcast, reader.per_t)
        inside: Bools = np.ones(core.shape, bool)
    else:
        pipes = tile_lists.pipes_of(source, reader, seen, operand.steps, operand.unpad, operand.pad, input_count)
        core, index, inside = pipes.core, pipes.index, pipes.inside
    joined = np.zeros(core.shape, bool)
    joined[:, 1:] = (core[:, 1:] == core[:, :-1]) & (index[:, 1:] == index[:, :-1] + 1)
    length = core.shape[1]
    position = np.broadcast_to(np.arange(length), core.shape)
    starts = np.where(joined, 0, np.gcd(index, position))
    step = np.gcd(np.gcd.reduce(starts, axis=1), length)
    link = np.zeros((int(source.grid[0] * source.grid[1]), core.shape[0]), bool)
    real = (core != PADDING) & inside
    link[core[real], np.nonzero(real)[0]] = True
    return OperandLists(core, index, length, step, link.sum(axis=0), link)


def sources_in_phases(operand: CoreOperand, lists: OperandLists, input_count: int) -> I64 | None:
    """(rows, columns) of the view: sources of the list that each core gets in phases; None for an edge without them."""
    source, seen = operand.source, operand.seen
    chain, slots = chain_of(operand.steps), source.slots(input_count)
    if source.queue or not bool(sent_in_phases(chain, source.t, slots)):
        return None
    after = shape_after(source.shape, operand.steps, operand.unpad, operand.pad)
    pad = [sum(int(step[k]) for step in operand.steps if step[0] == "pad") for k in (1, 2)]
    verdict = phases(chain, slots, (after[1], after[2]), (operand.pad[0] + pad[0], operand.pad[1] + pad[1]), seen)
    rows, columns = int(verdict.rows), int(verdict.columns)
    if rows * columns == 1:
        return None
    gr, gc = int(seen.grid[0]), int(seen.grid[1])
    sources = np.zeros((gr, gc), np.int64)
    for s in range(rows * columns):
        r, c = (s // columns, s % columns) if chain.by_rows else (s % rows, s // rows)
        for own in np.flatnonzero(lists.sources):
            to = own // gc + r * gr // rows, own % gc + c * gc // columns
            if to[0] < gr and to[1] < gc:
                sources[to] = max(sources[to], lists.sources[own])
    return sources


def _first_tiles(core: I64, index: I64, t: int, factor: int, per_t: bool) -> tuple[I64, I64]:
    """The lists without what kernel_broadcast reads again."""
    if not per_t:
        return core[:, :factor], index[:, :factor]
    pipes = core.shape[0]
    return (
        core.reshape(pipes, t, -1)[:, :, :factor].reshape(pipes, -1),
        index.reshape(pipes, t, -1)[:, :, :factor].reshape(pipes, -1),
    )


def period(core: I64, index: I64, step: int, g: int) -> int:
    """Tiles of a list that count: all, or of more than 64 steps that only repeat themselves as few as repeat: at least
    32 steps and whole granules, else the most."""
    length, best = len(core), 0
    if length // step <= SHORT_LIST:
        return length
    for n in range(step, length // 2 + 1, step):
        if length % n == 0 and (core[n:] == core[:-n]).all() and (index[n:] == index[:-n]).all():
            best = n
            break
    if not best:
        return length
    multiples = [n for n in range(best, length + 1, best) if length % n == 0]
    good = [n for n in multiples if n // step >= LEAST_PERIOD and n % g == 0]
    return good[0] if good else multiples[-2]


def jumping_steps(core: I64, index: I64, s: int, again: bool) -> int:
    """Steps of a list that jumps, 0 of one that runs upward through one buffer, where a step may be taken several times
    and the buffer may begin again. s: tiles of a step; again: the list may begin again, too."""
    core, index = core[::s], index[::s] // s
    ahead = np.diff(index)
    back = (ahead < 0) & (index[1:] > 0) & ((not again) | (index[1:] != index[0]))
    jumps = (np.diff(core) != 0) | (ahead > 1) | back
    return len(core) if bool(jumps.any()) else 0
