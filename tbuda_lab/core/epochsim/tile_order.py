"""In which order an op reads and packs tiles, cut into steps: the numbers of `network.py` for a placed op and edge.

Exact per tile: the reader's walk over its operand is followed back through the TMs to the position at which the
producer's core packs each tile. Cores of an op go in step unless they need different blocks of a producer that streams.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.l1 import ordinary_tiles
from tbuda_lab.core.balancer.layout import BufferReads, read_walk
from tbuda_lab.core.balancer.pickers import streamed_picker
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.streaming import edge_tms, stored_shape
from tbuda_lab.core.epochsim.network import EdgeWaits
from tbuda_lab.core.graph import TILE
from tbuda_lab.core.lowering.hw_ops import HwReduce, HwSparseMatmul, HwSplice


@dataclasses.dataclass(frozen=True)
class Steps:
    """How the work on one input is cut. A block is the output of one t; it is made in outer * inner parts, of which
    `bounds` says where steps end: (steps + 1,) numbers of parts done. tiles: of a block; chunk: tiles leave whenever so
    many parts of a block are done (1: after each, all of them: with the block)."""

    blocks: int
    outer: int
    inner: int
    tiles: int
    chunk: int
    bounds: np.ndarray

    @property
    def parts(self) -> int:
        return self.outer * self.inner

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    @functools.cached_property
    def emit(self) -> np.ndarray:
        """(steps,) tiles packed after each step."""
        block, rest = np.divmod(self.bounds[1:], self.parts)
        packed: np.ndarray = block * self.tiles + rest // self.chunk * self.chunk * self.tiles // self.parts
        return packed


def op_steps(profile: OpProfile, row: np.void, order: str, steps: int, most: int) -> Steps:
    """The parts in which an op's kernel works (placement.md#firings), cut into at least `steps` steps where it
    has so many, and at most `most`.

    A fused op with sums goes through its schedules for a whole block each. A matmul that accumulates goes through k and
    for each k through the rows of ublocks, and packs at the end; one that does not, row by row. A reduction works
    through what it reduces for every output ublock. Eltwise ops go ublock by ublock, splices line by line. A picker
    goes through the strips of its operand for every block.
    """
    m, n = int(row["mblock_m"]), int(row["mblock_n"])
    k = max(1, int(row["m_k"]))
    blocks = int(row["t"])
    tiles = m * n * int(row["ublock_r"]) * int(row["ublock_c"])
    op = profile.op
    gradual = True
    outer, inner = (m, n) if order == "r" else (n, m)
    if isinstance(op, HwSparseMatmul):
        outer, inner, gradual = k, 1, False
    elif (isinstance(op, HwSplice) and op.axis == "z") or profile.fused_sums:
        outer = inner = 1
    elif isinstance(op, HwSplice):
        inner = 1
    elif profile.kind == "depthwise":
        outer, inner, gradual = max(1, profile.inner), m * n, False
    elif profile.matmul_like:
        outer, inner, gradual = profile.z_group * k, m, False
        if outer == 1:
            outer, inner, gradual = m, 1, order == "r"
    elif isinstance(op, HwReduce) and op.dim == "z":
        outer, inner, gradual = profile.z_group, m * n, False
    elif isinstance(op, HwReduce):
        outer, inner = (n if op.dim == "r" else m), k
    parts = outer * inner
    chunk = 1 if gradual else parts
    if isinstance(op, HwReduce) and op.dim in "rc":
        chunk = inner
    if blocks > most:
        bounds = np.arange(most + 1, dtype=np.int64) * blocks // most * parts
        return Steps(blocks, outer, inner, tiles, chunk, bounds)
    sizes = [*divisors(outer), *(outer * d for d in divisors(inner)[1:])]
    per_block, room = -(-steps // blocks), most // blocks
    share = next((s for s in sizes if per_block <= s <= room), max(s for s in sizes if s <= room))
    bounds = np.arange(blocks * share + 1, dtype=np.int64) * (parts // share)
    return Steps(blocks, outer, inner, tiles, chunk, bounds)


@dataclasses.dataclass(frozen=True)
class Stripes:
    """How the grid of an op falls into rectangles of cores that go in step: first row and column of each stripe."""

    rows: tuple[int, ...] = (0,)
    cols: tuple[int, ...] = (0,)

    @property
    def count(self) -> int:
        return len(self.rows) * len(self.cols)

    def rectangles(self, grid: tuple[int, int]) -> list[tuple[int, int, int, int]]:
        """(first row, first column, rows, columns) of every part, in the op's own grid."""
        down = list(zip(self.rows, (*self.rows[1:], grid[0]), strict=True))
        along = list(zip(self.cols, (*self.cols[1:], grid[1]), strict=True))
        return [(r, c, r_end - r, c_end - c) for r, r_end in down for c, c_end in along]

    def part_of(self, grid: tuple[int, int]) -> np.ndarray:
        """(rows, columns) number of the part of every core."""
        row = np.searchsorted(self.rows, np.arange(grid[0]), side="right") - 1
        col = np.searchsorted(self.cols, np.arange(grid[1]), side="right") - 1
        part: np.ndarray = row[:, None] * len(self.cols) + col
        return part


class Reads:
    """The stretch [begin, end) of a walk that each step reads: (steps,) each."""

    def __init__(self, begin: np.ndarray, end: np.ndarray) -> None:
        self.bounds = np.stack([begin, end], axis=1).reshape(-1)
        self.nothing = begin >= end
        self.always = not self.nothing.any()

    def reduce(self, operation: np.ufunc, values: np.ndarray, nothing: int) -> np.ndarray:
        """(..., steps) `operation` over what each step reads of (..., length) values; `nothing` where that is none."""
        padded = np.empty((*values.shape[:-1], values.shape[-1] + 1), values.dtype)
        padded[..., :-1] = values
        padded[..., -1] = nothing
        reduced: np.ndarray = operation.reduceat(padded, self.bounds, axis=-1)[..., ::2]
        return reduced if self.always else np.where(self.nothing, nothing, reduced)


class CutOp:
    """A candidate of an op cut into steps, one object for all networks (`TileOrderCache`). order, read_order: "r" or
    "c", in which it packs its ublocks and reads those of eltwise operands; asked: how many steps it was to have at
    least; finest: whether it cannot have more; grid: rows and columns of cores; emit: see `Steps`; output_tiles: of a
    core's output buffer; most_at_once: the most tiles that leave with one step."""

    __slots__ = (
        "_input_tiles",
        "_reads",
        "_rectangles",
        "asked",
        "emit",
        "finest",
        "grid",
        "most_at_once",
        "order",
        "output_tiles",
        "profile",
        "read_order",
        "row",
        "steps",
    )

    def __init__(
        self, profile: OpProfile, row: np.void, order: str, read_order: str, asked: int, most: int, steps: Steps
    ) -> None:
        """most: steps that an op may have."""
        self.profile, self.row, self.order, self.read_order = profile, row, order, read_order
        self.asked, self.steps, self.emit = asked, steps, steps.emit
        self.finest = steps.count >= min(most, steps.blocks * steps.parts)
        self.grid = int(row["grid_r"]), int(row["grid_c"])
        self.output_tiles = int(row["buf_size_mb"]) * steps.tiles
        self.most_at_once = int(np.diff(self.emit, prepend=0).max())
        self._reads: dict[tuple[int, int], Reads] = {}
        self._input_tiles: dict[tuple[int, int], int] = {}
        self._rectangles: dict[tuple[tuple[int, ...], ...], list[tuple[int, int, int, int]]] = {}

    def reads(self, port: int, length: int) -> Reads:
        """What each step reads of an operand whose walk has so many tiles."""
        entry = self._reads.get((port, length))
        if entry is None:
            entry = self._reads[port, length] = Reads(*stretches(self.profile, port, self.row, self.steps, length))
        return entry

    def input_tiles(self, port: int, factor: int) -> int:
        """Tiles of a core's ordinary buffer for an operand, of at least `factor` times what is read at once."""
        entry = self._input_tiles.get((port, factor))
        if entry is None:
            entry = self._input_tiles[port, factor] = ordinary_tiles(self.profile, port, self.row, factor)[1]
        return entry

    def rectangles(self, cut: Stripes) -> list[tuple[int, int, int, int]]:
        """See `Stripes.rectangles`."""
        key = cut.rows, cut.cols
        entry = self._rectangles.get(key)
        if entry is None:
            entry = self._rectangles[key] = cut.rectangles(self.grid)
        return entry


@dataclasses.dataclass(frozen=True)
class TileOrder:
    """An operand followed back to its producer. core, address: (lines, length) core of the producer's grid (-1:
    padding) and position in its packing order, for each line of readers that receive the same; line: (rows, columns)
    number of the line that each core of the reader is on. reads: of every step. padded: whether there is padding.

    within: the most tiles of one input that a line has between the first it still needs and the last it has asked for,
    which the buffers between the two must hold; step: the most that one of its steps reads in between.
    """

    core: np.ndarray
    address: np.ndarray
    line: np.ndarray
    reads: Reads
    padded: bool
    total: int
    within: int
    step: int

    @property
    def length(self) -> int:
        return int(self.core.shape[1])


def edge_walk(producer: CutOp, consumer: CutOp, port: int, known: BufferReads) -> TileOrder:
    """Where each tile comes from that the reader takes, in the order in which it takes them. known: what was followed
    back before."""
    shape = stored_shape(producer.profile, producer.row)
    tms = edge_tms(producer.profile, producer.row, consumer.profile, port, consumer.row)
    walk = known.of(tms, shape, read_walk(consumer.profile, port, consumer.row, consumer.read_order))
    core, address = known.buffers(producer.row, producer.order, shape).find(walk)
    total = producer.steps.blocks * producer.steps.tiles
    early = address
    if walk.real is not None:
        address, early = np.where(walk.real, address, -1), np.where(walk.real, address, total)
    within = 0
    if not isinstance(consumer.profile.op, HwSparseMatmul):
        furthest = np.maximum.accumulate(address, axis=1)
        oldest = np.minimum.accumulate(early[:, ::-1], axis=1)[:, ::-1]
        within = int((_packed_with(producer.steps, furthest) - oldest).max())
    reads = consumer.reads(port, core.shape[1])
    spread = reads.reduce(np.maximum, address, -1) - reads.reduce(np.minimum, early, total)
    step = max(0, int(spread.max()) + 1)
    line = _lines(consumer.profile, port, consumer.row, len(core))
    return TileOrder(core, address, line, reads, walk.real is not None, total, within, step)


def _lines(profile: OpProfile, port: int, row: np.void, count: int) -> np.ndarray:
    """(rows, columns) which line of `consumer_walk` each core of the grid reads."""
    gr, gc = int(row["grid_r"]), int(row["grid_c"])
    role, op = profile.operands[port].role, profile.op
    by_row, by_col = np.arange(gr)[:, None], np.arange(gc)[None, :]
    if role == "in0" or (isinstance(op, HwReduce) and op.dim == "c"):
        line = by_row + 0 * by_col
    elif role == "in1" or (role == "bias" and count == gc) or (isinstance(op, HwReduce) and op.dim == "r"):
        line = by_col + 0 * by_row
    else:
        line = by_row * gc + by_col
    return line


def stripes(walks: list[tuple[TileOrder, Steps, np.ndarray]], grid: tuple[int, int], most: int) -> Stripes:
    """Into which rectangles the grid of an op falls whose operands arrive by these walks (each with its producer's
    steps, and the part of each of its cores): cores do not go in step that at the same step need what their producer
    makes in different steps, or what parts of it make that do not go in step. One rectangle if there would be more
    than `most`."""
    rows, cols = np.zeros(grid[0], dtype=bool), np.zeros(grid[1], dtype=bool)
    for walk, steps, parts in walks:
        if len(walk.core) == 1 or (steps.count == 1 and not parts.any()):
            continue
        lines = np.searchsorted(steps.emit, walk.reads.reduce(np.maximum, walk.address, -1), side="right")
        if parts.any():
            part = np.append(parts, -1)[walk.core]  # of padding, whose core is -1: none
            lines = np.concatenate(
                [lines, walk.reads.reduce(np.maximum, part, -1), walk.reads.reduce(np.minimum, part, len(parts))],
                axis=-1,
            )
        if (lines == lines[0]).all():
            continue
        _, label = np.unique(lines, axis=0, return_inverse=True)
        grid_label = label.reshape(-1)[walk.line]
        rows[1:] |= (grid_label[1:] != grid_label[:-1]).any(axis=1)
        cols[1:] |= (grid_label[:, 1:] != grid_label[:, :-1]).any(axis=0)
    rows[0] = cols[0] = True
    rectangles = Stripes(tuple(np.flatnonzero(rows).tolist()), tuple(np.flatnonzero(cols).tolist()))
    return rectangles if rectangles.count <= most else Stripes()


@dataclasses.dataclass(frozen=True)
class TileFlow:
    """An edge between two parts in tiles of one producer core, in packing order: see `FlowEdge`. coarse: the most tiles
    that are between the first a whole step still needs and the last it asks for; waits: of such an edge."""

    producer: int
    consumer: int
    need: np.ndarray
    frees: np.ndarray
    coarse: int
    waits: EdgeWaits


def part_flows(
    walk: TileOrder, producer: CutOp, p_stripes: Stripes, consumer: CutOp, c_stripes: Stripes
) -> list[TileFlow]:
    """What each step of each part of the reader needs of each part of the producer, and what it frees."""
    made_by = np.append(p_stripes.part_of(producer.grid).reshape(-1), -1)
    read_by = c_stripes.part_of(consumer.grid)
    flows = []
    for reader in range(c_stripes.count):
        core, address = walk.core, walk.address
        if c_stripes.count > 1:
            lines = np.unique(walk.line[read_by == reader])
            core, address = core[lines], address[lines]
        if p_stripes.count == 1 and not walk.padded:  # all is of one part
            flows.append(_flow(walk.reads, 0, reader, address.max(axis=0), address.min(axis=0), producer.emit))
            continue
        maker = made_by[core]
        for maker_part in range(p_stripes.count):
            mine = maker == maker_part
            if mine.any():
                last = np.where(mine, address, -1).max(axis=0)
                early = np.where(mine, address, walk.total).min(axis=0)
                flows.append(_flow(walk.reads, maker_part, reader, last, early, producer.emit))
    return flows


def _flow(
    reads: Reads, producer: int, consumer: int, last: np.ndarray, early: np.ndarray, emit: np.ndarray
) -> TileFlow:
    """last, early: (length,) latest and earliest position among the tiles that any core of a part takes at once."""
    total = int(emit[-1])
    need = np.maximum.accumulate(reads.reduce(np.maximum, last, -1) + 1)
    low = reads.reduce(np.minimum, early, total)
    freed = np.full(len(low), total)
    freed[:-1] = np.minimum.accumulate(low[:0:-1])[::-1]
    waits = EdgeWaits(emit, need, freed)
    sent = np.where(need > 0, emit[waits.step], 0)
    coarse = max(int(sent[0]), int((sent[1:] - freed[:-1]).max(initial=0)))
    return TileFlow(producer, consumer, need, freed, coarse, waits)


def _packed_with(steps: Steps, position: np.ndarray) -> np.ndarray:
    """Tiles that are packed when the one at `position` is (-1: none)."""
    unit = max(1, steps.chunk * steps.tiles // steps.parts)
    packed: np.ndarray = (position // unit + 1) * unit
    return packed


def stretches(profile: OpProfile, port: int, row: np.void, steps: Steps, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(begin, end) of the walk that each step reads."""
    operand = profile.operands[port]
    before, after = steps.bounds[:-1], steps.bounds[1:]
    if isinstance(profile.op, HwSparseMatmul):
        return _picker_steps(profile, row, steps, length)
    if isinstance(profile.op, HwSplice) and profile.op.axis == "z":
        return _splice_steps(profile.op, port, operand.tiles[0], steps, length)
    whole = steps.blocks * steps.parts
    group = 1
    if operand.role == "bias" or steps.parts == 1:
        group = steps.parts
    elif operand.role == "in1":
        # kept while the rows of ublocks go by: of one k, or of the block where there is one k only
        group = steps.parts if steps.inner == 1 and steps.chunk == 1 else steps.inner
    before, after = before // group * group, -(-after // group) * group
    return before * length // whole, -(-after * length // whole)


def _picker_steps(profile: OpProfile, row: np.void, steps: Steps, length: int) -> tuple[np.ndarray, np.ndarray]:
    """A picker goes, for each t, from the first to the last strip that it picks rows of."""
    op = profile.op
    assert isinstance(op, HwSparseMatmul)
    slices, rows, _ = profile.operands[0].tiles
    coords = streamed_picker(op.picker.array, profile.out, str(row["stream"]), int(row["stream_r"]))
    strip = coords[:, 2] // (TILE * int(row["u_kt"]))
    first = np.full(steps.blocks, np.iinfo(np.int64).max)
    last = np.full(steps.blocks, -1)
    np.minimum.at(first, coords[:, 0], strip)
    np.maximum.at(last, coords[:, 0], strip)
    first, extent = np.where(last < 0, 0, first), np.where(last < 0, 0, last + 1 - first)
    # strips of a block go up from part to part: a step reads from its first part on to its last one, and all strips of
    # the blocks between
    none = extent == 0
    low = np.where(none, np.iinfo(np.int64).max, first)
    high = np.where(none, 0, first + extent)
    (block, part), (final, end_part) = (np.divmod(at, steps.parts) for at in (steps.bounds[:-1], steps.bounds[1:] - 1))
    begin = np.where(none[block], low[block], first[block] + part * extent[block] // steps.parts)
    end = np.where(none[final], 0, first[final] - (-(end_part + 1) * extent[final] // steps.parts))
    begin = np.minimum(begin, _over_ranges(np.minimum, low, block + 1, final + 1, np.iinfo(np.int64).max))
    end = np.maximum(end, _over_ranges(np.maximum, high, block, final, 0))
    unit = length // max(1, slices * rows // int(row["u_kt"]))
    return np.minimum(begin, end) * unit, end * unit


def _over_ranges(reduce: np.ufunc, values: np.ndarray, begin: np.ndarray, end: np.ndarray, none: int) -> np.ndarray:
    """(ranges,) the values from `begin` to before `end` reduced; `none` for ranges without any."""
    over = reduce.reduceat(np.append(values, none), np.stack([begin, end], axis=1).reshape(-1))[::2]
    return np.where(begin < end, over, none)


def _splice_steps(op: HwSplice, port: int, slices: int, steps: Steps, length: int) -> tuple[np.ndarray, np.ndarray]:
    """A splice over z takes whole slices, from its operands in turn."""
    order: list[tuple[int, int]] = []
    turn = 0
    while len(order) < steps.blocks:
        for operand, (index, count, stride) in enumerate(op.ranges):
            start = turn * (index + stride) + index
            order += [(operand, s) for s in range(start, start + count)]
        turn += 1
    mine = np.array([s if operand == port else -1 for operand, s in order[: steps.blocks]], dtype=np.int64)
    low = np.minimum.reduceat(np.where(mine < 0, slices, mine), steps.bounds[:-1])
    high = np.maximum.reduceat(mine, steps.bounds[:-1])
    none = high < 0
    return np.where(none, 0, low) * length // slices, np.where(none, 0, high + 1) * length // slices
