"""All candidates of one op as one structured array: every legal row, and every refused one with its reason.

Formulas: placement.md#enumeration and placement.md#l1-of-a-candidate, as array expressions over all rows at once.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import threading
from collections.abc import Callable, Hashable
from functools import partial

import numpy as np

from tbuda_lab.core.balancer.blocks import divisors, expand, ublock_shapes
from tbuda_lab.core.balancer.l1 import ENCODING, operand_bytes, picker_bytes, prologues, streamed_encoding_bytes
from tbuda_lab.core.balancer.pickers import picker_profile
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.routes import output_buffer_rules
from tbuda_lab.core.balancer.streams import within_streams
from tbuda_lab.core.balancer.types import CANDIDATE, Reason
from tbuda_lab.core.cost import Table, fused_share
from tbuda_lab.core.cost import cycles as cost_cycles
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.fused_steps import Block, inner_block, intermediate_tiles, plan, step_block
from tbuda_lab.core.lowering.hw_ops import HwFused, HwMatmul, HwReduce, HwSparseMatmul, HwSplice, HwUnary
from tbuda_lab.core.options import CompileOptions

_MAX_STREAM_FACTOR = 256
_LARGE_SLICE = 64
"""Tiles of a slice above which more slices than `_MAX_STREAM_FACTOR` are tried as well: a prime goes into single
tiles, or not at all."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """What overrides fix for one op; None leaves it free. Multipliers: operand -> factor, output macro blocks."""

    grid: tuple[int, int] | None = None
    stream_dir: str | None = None  # "n" none, "r", "c", "rz"
    stream_shape: tuple[int, int] | None = None
    u_kt: int | None = None
    input_multiplier: tuple[tuple[int, int], ...] = ()
    output_multiplier: int | None = None
    dram_parameters: bool | None = None
    prologue: tuple[tuple[int, bool], ...] = ()  # operand -> preloaded or streamed


def parallel_tiles(profile: OpProfile) -> tuple[int, int]:
    """(R, C): the tiles that the rows and columns of a grid divide among themselves."""
    _, rt, ct = profile.out
    op = profile.op
    if profile.kind == "depthwise" or profile.fused_sums == "c":
        return rt, 1
    if profile.fused_sums == "r":
        return 1, ct
    if isinstance(op, HwSplice) and op.axis != "z":
        # a core splices what it holds, so a grid may only cut between whole periods of every operand
        along = 1 if op.axis == "r" else 2
        periods = math.gcd(
            *(
                o.tiles[along] // (index + stride)
                for o, (index, _, stride) in zip(profile.operands, op.ranges, strict=True)
            )
        )
        return (periods, ct) if op.axis == "r" else (rt, periods)
    return rt, ct


def legal_stream_dirs(profile: OpProfile) -> tuple[str, ...]:
    """Directions in which an op of this kind may be cut over time at all."""
    op = profile.op
    if profile.z_group > 1 or profile.fused_sums:
        return ()
    if isinstance(op, HwReduce) and op.dim == "z":
        return ()
    if isinstance(op, HwReduce):
        return ("c",) if op.dim == "r" else ("r",)
    if isinstance(op, HwSplice):
        return {"z": (), "r": ("c",), "c": ("r",)}[op.axis]
    if isinstance(op, HwSparseMatmul):
        return ("r", "rz") if profile.out[0] > 1 else ("r",)
    if profile.kind == "depthwise":
        return ("r",)
    return ("r", "c")


def _stream_factors(profile: OpProfile, options: CompileOptions, choice: Choice) -> list[tuple[str, int, int]]:
    """(direction, rows, columns) of every t-streaming worth a row; the first is none."""
    factors: list[tuple[str, int, int]] = [("", 1, 1)]
    dirs = legal_stream_dirs(profile)
    constrained = choice.stream_dir is not None or choice.stream_shape is not None
    enabled = options.enable_t_streaming and (not options.manual_t_streaming or constrained)
    if enabled and choice.stream_dir != "n":
        rows, cols = parallel_tiles(profile)
        for direction in dirs:
            if choice.stream_dir is not None and direction != choice.stream_dir:
                continue
            extent = cols if direction == "c" else rows
            numbers = [f for f in divisors(extent) if f > 1]
            usual = [f for f in numbers if f <= _MAX_STREAM_FACTOR]
            few = choice.stream_shape is None and extent // max((1, *usual)) <= _LARGE_SLICE
            for f in usual if few else numbers:
                factors.append((direction, 1, f) if direction == "c" else (direction, f, 1))
    if choice.stream_shape is not None:
        factors = [s for s in factors if (s[1], s[2]) == choice.stream_shape]
    elif choice.stream_dir not in (None, "n"):
        factors = [s for s in factors if s[0]]
    return factors


def _inner_steps(profile: OpProfile, options: CompileOptions, choice: Choice) -> np.ndarray:
    """Legal u_kt, largest first; [0] for ops without an inner dimension, and for fused ops, whose ublock decides it."""
    if not profile.inner or profile.fused_sums:
        return np.zeros(1, dtype=np.int64)
    if profile.kind == "depthwise":
        return np.ones(1, dtype=np.int64)
    steps = np.array(divisors(profile.inner_run)[::-1], dtype=np.int64)
    if choice.u_kt is not None:
        steps = steps[steps == choice.u_kt]
    return steps


def _grid_sizes(
    profile: OpProfile, device: DeviceSpec, options: CompileOptions, choice: Choice
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of cores that an op may have."""
    par_r, par_c = parallel_tiles(profile)
    grid_r = np.array([d for d in divisors(par_r) if d <= device.rows], dtype=np.int64)
    grid_c = np.array([d for d in divisors(par_c) if d <= device.cols], dtype=np.int64)
    if options.place_on_one_row:
        grid_r = grid_r[:1]  # one row, the least there is
    if profile.shared_ram:
        grid_r, grid_c = grid_r[:1], grid_c[:1]  # one core
    if choice.grid is not None:
        grid_r = grid_r[grid_r == choice.grid[0]]
        grid_c = grid_c[grid_c == choice.grid[1]]
    return grid_r, grid_c


class TableCache:
    """Tables of this process, the most recently used ones of `most` bytes in all. Safe with threads."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self._tables: collections.OrderedDict[Hashable, np.ndarray] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get_or(self, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The table, which nobody may write to, made if there is none."""
        with self._lock:
            table = self._tables.get(key)
            if table is not None:
                self._tables.move_to_end(key)
                return table
        made = make()
        made.setflags(write=False)
        with self._lock:
            table = self._tables.setdefault(key, made)  # another thread may have been sooner
            self.bytes += made.nbytes if table is made else 0
            while self.bytes > self.most:
                self.bytes -= self._tables.popitem(last=False)[1].nbytes
        return table


_TABLES = TableCache(64 << 20)


def candidates(
    profile: OpProfile, device: DeviceSpec, options: CompileOptions, choice: Choice = Choice()
) -> np.ndarray:
    """What `enumerate_candidates` gives, read-only: other graphs of the process have the same ops."""
    key = profile.signature, device, options, choice
    return _TABLES.get_or(key, lambda: enumerate_candidates(profile, device, options, choice))


def enumerate_candidates(
    profile: OpProfile, device: DeviceSpec, options: CompileOptions, choice: Choice = Choice()
) -> np.ndarray:
    """The CANDIDATE table of an op. Order: grid rows, grid columns, t-stream, ublock (largest first), u_kt (largest
    first), output buffer, prologue; so the first of equal rows is the one upstream would have taken."""
    rt, ct = profile.out[1], profile.out[2]
    par_r, par_c = parallel_tiles(profile)
    grid_r, grid_c = _grid_sizes(profile, device, options, choice)
    streams = _stream_factors(profile, options, choice)
    steps = _inner_steps(profile, options, choice)
    if not (len(grid_r) and len(grid_c) and streams and len(steps)):
        return np.zeros(0, dtype=CANDIDATE)

    stream_r = np.array([s[1] for s in streams], dtype=np.int64)
    stream_c = np.array([s[2] for s in streams], dtype=np.int64)
    gr, gc, s = (a.reshape(-1) for a in np.meshgrid(grid_r, grid_c, np.arange(len(streams)), indexing="ij"))
    exact = (par_r % (gr * stream_r[s]) == 0) & (par_c % (gc * stream_c[s]) == 0)
    if not exact.any():
        return np.zeros(0, dtype=CANDIDATE)
    gr, gc, s = gr[exact], gc[exact], s[exact]
    block_r, block_c = rt // (gr * stream_r[s]), ct // (gc * stream_c[s])

    dst = device.dst_tiles(profile.acc_df)
    owner, ublock = _ublocks(profile, block_r, block_c, dst)

    # -- inner steps, output buffers, prologue ---------------------------------------------------------------
    buffers = _buffer_factors(profile, choice)
    grids = np.zeros(len(gr), dtype=CANDIDATE)
    grids["grid_r"], grids["grid_c"] = gr, gc
    in_dram = options.streams_parameters if choice.dram_parameters is None else choice.dram_parameters
    masks, new = prologues(profile, grids, in_dram, dict(choice.prologue))
    n = len(owner)
    shape = (n, len(steps), len(buffers), masks.shape[1])
    base, step, buf, pro = (a.reshape(-1) for a in np.indices(shape))
    if not new.all():
        distinct = new[owner[base], pro]
        base, step, buf, pro = base[distinct], step[distinct], buf[distinct], pro[distinct]
    rows = np.zeros(len(base), dtype=CANDIDATE)
    o = owner[base]
    rows["grid_r"], rows["grid_c"] = gr[o], gc[o]
    rows["stream"] = np.array([x[0] for x in streams])[s[o]]
    rows["stream_r"], rows["stream_c"] = stream_r[s[o]], stream_c[s[o]]
    rows["t"] = profile.out[0] * rows["stream_r"] * rows["stream_c"]
    rows["ublock_r"], rows["ublock_c"] = ublock[base, 0], ublock[base, 1]
    rows["mblock_m"], rows["mblock_n"] = block_r[o] // rows["ublock_r"], block_c[o] // rows["ublock_c"]
    rows["u_kt"] = steps[step]
    rows["m_k"] = profile.inner // np.maximum(rows["u_kt"], 1) if profile.inner else 0
    if isinstance(profile.op, HwFused) and profile.fused_sums:
        block = (rows["mblock_m"], rows["mblock_n"]), (rows["ublock_r"], rows["ublock_c"])
        rows["m_k"], rows["u_kt"] = inner_block(profile.op, *block, dst)
    rows["buf_size_mb"] = np.array(buffers)[buf]
    rows["prologue"] = masks[o, pro]
    rows["cores"] = rows["grid_r"].astype(np.int64) * rows["grid_c"]
    alike = np.ravel_multi_index((base, step, buf), shape[:3])
    rows, alike = within_streams(profile, rows, alike, dict(choice.prologue), device.tile_align)
    _refuse_outputs(profile, rows, options.microbatch)
    _sparse_counts(profile, rows)
    rows, at = _l1(profile, device, choice, rows)
    alike = alike[at]
    if options.default_dram_parameters is False and choice.dram_parameters is None:
        _preload_all_that_fit(rows, alike, rows["prologue"] & np.uint32(ENCODING - 1))
    price_rows(profile, device, rows)
    return rows


def _ublocks(profile: OpProfile, block_r: np.ndarray, block_c: np.ndarray, dst: int) -> tuple[np.ndarray, np.ndarray]:
    """(the number of its block, rows and columns) of every ublock of blocks of these sizes, block by block."""
    snap_r, snap_c = _splice_units(profile, block_r, block_c)
    pairs, where = np.unique(np.stack([snap_r, snap_c]), axis=1, return_inverse=True)
    where = where.reshape(-1)
    shapes = [_ublock_shapes(profile, int(r), int(c), dst) for r, c in pairs.T]
    counts = np.array([len(x) for x in shapes])
    flat = np.array([u for x in shapes for u in x], dtype=np.int64).reshape(-1, 2)
    first = np.cumsum(counts) - counts
    owner, nth = expand(counts[where])
    return owner, flat[first[where[owner]] + nth]


def _refuse_outputs(profile: OpProfile, rows: np.ndarray, microbatch: int) -> None:
    """Mark the candidates whose output reaches its queue in another order than that takes, or has no legal buffer."""
    if profile.feeds_host:
        # an untilized queue takes the tiles in rows; slices of columns, or slices before z, come in another order
        rows["reason"][(rows["stream_c"] > 1) | (rows["stream"] == "rz")] = Reason.USER_ACCESS_PREVENTS_STREAMING
    if profile.feeds_ram:
        rows["reason"][(rows["stream_r"] > 1) | (rows["stream_c"] > 1)] = Reason.USER_ACCESS_PREVENTS_STREAMING
    legal = rows["reason"] == Reason.LEGAL
    rows["reason"][legal & output_buffer_rules(rows, microbatch)] = Reason.OUTPUT_BUFFER


def _ublock_shapes(profile: OpProfile, rows: int, cols: int, dst: int) -> tuple[tuple[int, int], ...]:
    """`ublock_shapes`; a fused op that sums over rows and reads the sum at full length has one ublock along one side,
    for a broadcast over rows gives no more than that of an intermediate with several (netlist-format.md, F6)."""
    if profile.shared_ram:
        return ((1, 1),)
    shapes = ublock_shapes(rows, cols, dst)
    op = profile.op
    if isinstance(op, HwFused) and op.dim == "r" and len(op.steps) - 1 not in op.narrow:
        shapes = tuple((r, c) for r, c in shapes if r == rows or c == cols)
    return shapes


def _preload_all_that_fit(rows: np.ndarray, block: np.ndarray, asked: np.ndarray) -> None:
    """Exclude what streams a parameter although a row alike in all else preloads more of them.

    block: by row a number that rows alike but for their prologue share; asked: by row the mask of preloaded operands.
    """
    legal = rows["reason"] == Reason.LEGAL
    count = np.where(legal, np.bitwise_count(asked).astype(np.int64), -1)
    most = np.full(int(block.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(most, block, count)
    rows["reason"][legal & (count < most[block])] = Reason.OVERRIDDEN


def _splice_units(profile: OpProfile, block_r: np.ndarray, block_c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a ublock must divide: the block, and for a splice every index, length and stride along its axis too."""
    op = profile.op
    if not isinstance(op, HwSplice) or op.axis == "z":
        return block_r, block_c
    unit = 0
    for index, length, stride in op.ranges:
        unit = math.gcd(unit, index, index + length, index + stride)
    if op.axis == "r":
        return np.gcd(block_r, unit), block_c
    return block_r, np.gcd(block_c, unit)


def _buffer_factors(profile: OpProfile, choice: Choice) -> list[int]:
    """Output buffer sizes in macro blocks: double, and enough to hold a whole stack for readers that need it."""
    if choice.output_multiplier is not None:
        return [choice.output_multiplier]
    return sorted({2, *(2 * n for n in profile.user_stacks if n > 1)})


def _sparse_counts(profile: OpProfile, rows: np.ndarray) -> None:
    if not isinstance(profile.op, HwSparseMatmul):
        return
    grid_r = rows["grid_r"].astype(np.int64)
    stats = picker_profile(profile.op.picker).statistics(
        rt=profile.out[1], grid_r=grid_r * rows["stream_r"], ublock_r=rows["ublock_r"], u_kt=rows["u_kt"]
    )
    for field, total in (
        ("nz_tiles", stats.nz_tiles),
        ("nz_ublocks", stats.nz_ublocks),
        ("nz_strips", stats.nz_strips),
    ):
        rows[field] = np.maximum(1, -(-total // grid_r))
    # a core keeps the tiles of all its slices, the statistics count those of one
    all_tiles = picker_profile(profile.op.picker).distinct(max(1, profile.out[1]))
    low = _bits(rows["ublock_r"].astype(np.int64)) + np.maximum(1, _bits(rows["u_kt"].astype(np.int64)))
    good = stats.fits & ((rows["stream_r"] == 1) | (max(1, (all_tiles - 1).bit_length()) + low <= 16))
    rows["reason"][~good] = Reason.ILLEGAL_SPARSE_MATMUL


def _bits(count: np.ndarray) -> np.ndarray:
    """Bits that tell `count` things apart."""
    bits: np.ndarray = np.ceil(np.log2(np.maximum(count, 1))).astype(np.int64)
    return bits


def _l1(profile: OpProfile, device: DeviceSpec, choice: Choice, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows with the bytes of every buffer of one core, and the verdict; and of each which of `rows` it was
    (placement.md#l1-of-a-candidate). What fits where another op makes the operands may not where a queue does: there
    `l1_staged` counts, and where a row would then have other buffers, both are candidates."""
    ur, uc = rows["ublock_r"].astype(np.int64), rows["ublock_c"].astype(np.int64)
    m, n = rows["mblock_m"].astype(np.int64), rows["mblock_n"].astype(np.int64)
    align = device.tile_align
    block = m * n * ur * uc
    out_tile = tile_bytes(profile.df, align=align)
    parts = rows["t"] if profile.accumulates else 1
    rows["l1_output"] = block * np.maximum(rows["buf_size_mb"], parts) * out_tile

    reduces_z = isinstance(profile.op, HwReduce) and profile.op.dim == "z"
    apart = profile.intermed_df != profile.df or profile.feeds_host  # untilized, the output cannot hold partial results
    if apart and (profile.matmul_like or reduces_z):
        rows["l1_intermed"] = block * tile_bytes(profile.intermed_df, align=align)
    elif isinstance(profile.op, HwFused):
        partials = intermediate_tiles(
            profile.op, device.arch, (m, n, ur, uc), rows["m_k"].astype(np.int64), rows["u_kt"].astype(np.int64)
        )
        rows["l1_intermed"] = partials * tile_bytes(profile.intermed_df, align=align)

    multiplier = dict(choice.input_multiplier)
    for port in range(len(profile.operands)):
        fed, staged, parameter = operand_bytes(profile, port, rows, multiplier, align)
        rows["l1_input"] += fed
        rows["l1_staged"] += staged
        rows["l1_param"] += parameter
    at = np.arange(len(rows))
    if not rows["l1_staged"].any():
        _settle_buffers(profile, device, choice, rows)
        return rows, at
    queued = rows.copy()  # whatever feeds it
    queued["l1_input"] += queued["l1_staged"]
    _settle_buffers(profile, device, choice, queued)
    legal = queued["reason"] == Reason.LEGAL
    if not legal.any():
        queued["l1_staged"] = 0
        return queued, at
    _settle_buffers(profile, device, choice, rows)
    differ = legal & ((queued["buf_size_mb"] != rows["buf_size_mb"]) | (queued["prologue"] != rows["prologue"]))
    queued["l1_staged"], queued["queued"] = 0, True
    return np.concatenate([rows, queued[differ]]), np.concatenate([at, at[differ]])


def _settle_buffers(profile: OpProfile, device: DeviceSpec, choice: Choice, rows: np.ndarray) -> None:
    """Whether a picker's encoding stays and the output buffer is double, the total, and the verdict."""
    align = device.tile_align
    block = np.prod([rows[f].astype(np.int64) for f in ("mblock_m", "mblock_n", "ublock_r", "ublock_c")], axis=0)
    parts = rows["t"] if profile.accumulates else 1
    if isinstance(profile.op, HwSparseMatmul):
        tiles, resident = picker_bytes(profile, rows, align)
        rows["l1_param"] += tiles
        room = (
            device.l1_usable
            - profile.headers
            - rows["l1_output"]
            - rows["l1_intermed"]
            - rows["l1_param"]
            - rows["l1_input"]
        )
        keep = resident <= room
        rows["prologue"] |= np.where(keep, np.uint32(ENCODING), np.uint32(0))
        rows["l1_param"] += np.where(keep, resident, 0)
        rows["l1_input"] += np.where(keep, 0, streamed_encoding_bytes(resident, align))
    fixed = rows["l1_output"] + rows["l1_intermed"] + rows["l1_param"] + profile.headers
    rows["l1_total"] = fixed + rows["l1_input"]

    limit = device.l1_usable
    over = rows["l1_total"] > limit
    if choice.output_multiplier is None:
        # fall back to a single output buffer: the packer then waits for the reader, but the op fits
        saved = rows["l1_output"] - block * np.maximum(1, parts) * tile_bytes(profile.df, align=align)
        single = over & (rows["buf_size_mb"] == 2) & (rows["l1_total"] - saved <= limit)
        for field in ("l1_output", "l1_total"):
            rows[field] -= np.where(single, saved, 0)
        rows["buf_size_mb"][single] = 1
        fixed = fixed - np.where(single, saved, 0)
        over &= ~single
    legal = rows["reason"] == Reason.LEGAL
    rows["reason"][legal & over & (fixed > limit)] = Reason.L1_OVER_LIMIT
    rows["reason"][legal & over & (fixed <= limit)] = Reason.INPUT_BUFFER_ALLOCATION


def price_rows(profile: OpProfile, device: DeviceSpec, rows: np.ndarray, table: Table | None = None) -> None:
    """Writes the kernel cycles of rows (n,) CANDIDATE, by the coefficients of the device's arch or of `table`."""
    op = profile.op
    t, m, n, ur, uc = (rows[f].astype(np.int64) for f in ("t", "mblock_m", "mblock_n", "ublock_r", "ublock_c"))
    block = partial(
        cost_cycles,
        arch=device.arch,
        fidelity=profile.fidelity,
        t=t,
        mblock_m=m,
        mblock_n=n,
        ublock_r=ur,
        ublock_c=uc,
        table=table,
    )
    step = partial(block, df=profile.operands[0].df, acc_df=profile.acc_df)
    if isinstance(op, HwFused):
        rows["cycles"] = _fused_cycles(op, device, step, (m, n, ur, uc), rows)
        return
    rows["cycles"] = step(
        profile.kind,
        m_k=np.maximum(rows["m_k"].astype(np.int64), 1),
        u_kt=np.maximum(rows["u_kt"].astype(np.int64), 1),
        z=profile.z_group,
        dim=op.dim if isinstance(op, HwReduce) else None,
        approximate=isinstance(op, HwUnary) and op.approximate,
        sparse=(rows["nz_tiles"], rows["nz_ublocks"], rows["nz_strips"]) if profile.kind == "sparse_matmul" else None,
    )
    if isinstance(op, HwMatmul) and op.sfpu_op:
        # the epilogue runs on the finished block, after the multiplication
        rows["cycles"] += block(op.sfpu_op, df=profile.df)


def _fused_cycles(
    op: HwFused, device: DeviceSpec, cycles: Callable[..., np.ndarray], block: Block, rows: np.ndarray
) -> np.ndarray:
    """The sum of `cycles` over the sub-ops' types, each with its own block; arithmetic on a value that waits in dest
    takes half (placement.md#kernel-cycles)."""
    total: np.ndarray = np.zeros(1)
    inner = {"m_k": rows["m_k"].astype(np.int64), "u_kt": rows["u_kt"].astype(np.int64)}
    for k, step in enumerate(plan(op, device.arch)):
        m, n, ur, uc = step_block(op, step.narrow, block, inner["m_k"], inner["u_kt"])
        own = {"mblock_m": m, "mblock_n": n, "ublock_r": ur, "ublock_c": uc} | (inner if k in op.sums else {})
        total = total + cycles(step.fn, **own) * fused_share(step.fn, step.from_dest)
    whole: np.ndarray = np.rint(total).astype(np.int64)
    return whole
