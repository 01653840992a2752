"""L1 that one core keeps for each operand (placement.md#l1-of-a-candidate), and which parameters a candidate keeps
there (prologue) and which it streams from DRAM for every input."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.pickers import ENCODING_DF, SPARSE_TILE_DF, encoding_tiles, picker_profile
from tbuda_lab.core.balancer.profile import OpProfile, as_read, output_on_host
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwFused, HwReduce, HwSparseMatmul, HwSplice
from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.options import CompileOptions


def header_bytes(graph: Graph, options: CompileOptions) -> int:
    """Bytes of tile headers that every core has: for each size of tile of a graph beyond the first, as every epoch may
    have all of them."""
    sizes: set[int] = set()
    for node in graph:
        formats = {node.df or options.data_format}
        if node.kind is NodeKind.OP:
            formats.add(node.attrs.get("intermed_df") or node.df or options.data_format)
            formats |= {SPARSE_TILE_DF, ENCODING_DF} if isinstance(node.op, HwSparseMatmul) else set()
        elif node.kind is NodeKind.OUTPUT and output_on_host(node, options):
            sizes |= {tile_bytes(df, header=False) for df in formats}
        sizes |= {tile_bytes(df) for df in formats}
    return buffers.header_bytes(sizes)


RELAYS = buffers.RELAY_TILES
"""Tiles of relays beside a buffer that is gathered from several cores, or taken by several, at most."""


def operand_bytes(
    profile: OpProfile, port: int, rows: np.ndarray, multiplier: Mapping[int, int], align: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(what feeds it, more than that where a queue does, resident parameter) of one operand for every row, on the core
    that keeps the most: the sizes of `netlist.cores.buffers` for an operand whose queue is laid out as it is read, and
    of the worst that another op or queue can ask for. What feeds a parameter is always a queue. multiplier: granules
    that an operand's buffer has at least, where it is asked for."""
    operand = profile.operands[port]
    rows = as_read(profile, port, rows)
    tile = tile_bytes(operand.df, align=align)
    g, kernel = kernel_buffer(profile, port, rows, multiplier, tile)
    length = tiles_read(profile, port, rows)
    streamed = _streamed_tiles(profile, port, rows, g, kernel, length, tile)
    none = np.zeros(len(rows), dtype=np.int64)
    if operand.feed != "parameter":
        made = kernel + RELAYS
        return made * tile, (streamed - made) * tile, none
    beside, resident = _preloaded_tiles(profile, port, rows, kernel, length)
    if operand.may_stream:
        beside = np.maximum(beside, streamed - resident)
    prologue = preloads(profile, port, rows)
    return np.where(prologue, beside, streamed) * tile, none, np.where(prologue, resident, 0) * tile


def least_tiles(g: np.ndarray, factor: int) -> np.ndarray:
    """Tiles of an input buffer for which a multiplier is asked. g: of a granule, what an op releases at once."""
    least: np.ndarray = g * max(factor, 2)
    return least


def ordinary_tiles(profile: OpProfile, port: int, row: np.void, factor: int = 2) -> tuple[int, int]:
    """(granule, buffer) in tiles of an operand that another op of the epoch makes, for one candidate. factor: granules
    that it has at least, where more than two are asked for."""
    rows = as_read(profile, port, np.array([row]))
    more = {port: factor} if factor > 2 else {}
    g, kernel = kernel_buffer(profile, port, rows, more, tile_bytes(profile.operands[port].df), sums=False)
    return int(g[0]), int(kernel[0])


def input_tiles(profile: OpProfile, port: int, rows: np.ndarray, factor: int, align: int) -> np.ndarray:
    """`least_tiles` of an operand for every row."""
    operand = profile.operands[port]
    g, _ = kernel_buffer(profile, port, as_read(profile, port, rows), {}, tile_bytes(operand.df, align=align))
    return least_tiles(g, factor)


def kernel_buffer(
    profile: OpProfile, port: int, rows: np.ndarray, multiplier: Mapping[int, int], tile: int, sums: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """(granule, ordinary buffer) of an operand in tiles. rows: `as_read`; tile: bytes of one; sums: whether room is
    counted for all that a matmul inside a fused op goes back over."""
    operand, op = profile.operands[port], profile.op
    m, n, u, v = (rows[f].astype(np.int64) for f in ("mblock_m", "mblock_n", "ublock_r", "ublock_c"))
    u_kt, m_k = (np.maximum(rows[f].astype(np.int64), 1) for f in ("u_kt", "m_k"))
    number = {"in0": 0, "in1": 1}.get(operand.role, 2)
    kind = "depthwise" if profile.kind == "depthwise" else "matmul" if number < 2 else "eltwise"
    dim = op.dim if isinstance(op, HwReduce) else ""
    # one row of ublocks: the first operand of a matmul or depthwise has the minimal buffer (`min_buffer_input: 0`)
    g = buffers.granule("reduce" if dim else kind, number, (m, n, u, v), u_kt, number if profile.fused_sums else 0, dim)
    count = len(profile.operands)
    least: np.ndarray | int = least_tiles(g, multiplier[port]) if port in multiplier else 0
    if profile.uses and profile.uses[port].late:
        least = np.maximum(least, late_tiles(rows))
    kernel = buffers.ordinary(g, tile, count if count > 3 and isinstance(op, (HwFused, HwSplice)) else 3, 0, least)
    if sums and profile.fused_sums and number < 2:  # a matmul inside a fused op keeps its operands for the whole sum
        kernel = np.maximum(kernel, 2 * m_k * g * np.where(number, n, n > 1))
    return g, kernel


def tiles_read(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Tiles that one core reads of an operand for one input: of all t, after its TMs. rows: `as_read`."""
    operand = profile.operands[port]
    t, m, n, u, v = (rows[f].astype(np.int64) for f in ("t", "mblock_m", "mblock_n", "ublock_r", "ublock_c"))
    inner = max(profile.inner, 1)
    tiles: np.ndarray
    if operand.role == "in0":
        tiles = t * m * u * inner * (n * v if profile.kind == "depthwise" else 1)
    elif operand.role == "in1":
        tiles = t * inner * n * v
    elif isinstance(profile.op, HwReduce) and profile.op.dim in "rc":
        tiles = t * inner * (n * v if profile.op.dim == "r" else m * u)
    elif isinstance(profile.op, HwSplice):
        z, rt, ct = operand.tiles
        tiles = z * rt * ct // rows["cores"].astype(np.int64)
    else:
        tiles = t * m * n * u * v
    return np.maximum(tiles * profile.z_group, 1)


def _taken_by_several(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Rows of which several cores take an operand together."""
    role = profile.operands[port].role
    if profile.fused_sums or role not in ("in0", "in1"):
        return np.zeros(len(rows), dtype=bool)
    several: np.ndarray = rows["grid_c" if role == "in0" else "grid_r"] > 1
    return several


def _streamed_tiles(
    profile: OpProfile, port: int, rows: np.ndarray, g: np.ndarray, kernel: np.ndarray, length: np.ndarray, tile: int
) -> np.ndarray:
    """Tiles of an operand that is not preloaded: its buffer as reads from DRAM enlarge it, with what they stage, or
    with the relays of what another op makes. Reads run on, or jump at every tile."""
    most = kernel + RELAYS
    several = _taken_by_several(profile, port, rows)
    for step in (np.gcd(length, kernel), np.ones_like(length)):
        chunk = buffers.read_chunk(length, g, step, tile)
        staging = buffers.grown(chunk, tile, buffers.phase_tiles(length, length, g))
        inside, beside = buffers.streamed(kernel, chunk, g, tile, length, length)
        most = np.maximum(most, np.where(several, kernel + staging, inside + beside))
    return most


def _preloaded_tiles(
    profile: OpProfile, port: int, rows: np.ndarray, kernel: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(ordinary buffer and relays, resident tiles) of an operand that is preloaded: as it is read where it fits its
    buffer; a second operand without TMs shared by a column; as it lies in its queue otherwise."""
    after = length <= kernel
    share, shared = _column_share(profile, port, rows, length)
    resident = np.where(shared, length // share, resident_tiles(profile, port, rows))
    beside = np.where(shared & (share == 1), 0, kernel + RELAYS)
    return np.where(after, 0, beside), np.where(after, length, resident)


def _column_share(profile: OpProfile, port: int, rows: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(cores of a column that keep a part of what one of them reads, whether they do): of a matmul's second operand
    without TMs the most that divide its tiles. length: `tiles_read`."""
    share = np.ones_like(length)
    if profile.operands[port].role != "in1" or profile.operands[port].tms or profile.fused_sums:
        return share, np.zeros(len(rows), dtype=bool)
    for d in range(2, int(rows["grid_r"].max(initial=1)) + 1):
        share = np.where((rows["grid_r"] >= d) & (length % d == 0), d, share)
    return share, (rows["stream_r"] == 1) & (rows["stream_c"] == 1)


def fetched(profile: OpProfile, port: int, rows: np.ndarray, readers: np.ndarray, align: int) -> tuple[np.ndarray, ...]:
    """(tiles, cores) of an operand that is preloaded: how many tiles each core takes from DRAM that takes any, for
    every row, as it is kept in L1: shared by a column every core fetches its part, as it lies in its queue each buffer
    of the queue goes to one core. readers: cores that read the operand where it is streamed."""
    rows = as_read(profile, port, rows)
    _, kernel = kernel_buffer(profile, port, rows, {}, tile_bytes(profile.operands[port].df, align=align))
    length = tiles_read(profile, port, rows)
    share, shared = _column_share(profile, port, rows, length)
    stored, whole = resident_tiles(profile, port, rows), int(np.prod(profile.operands[port].source_tiles))
    tiles = np.where(shared, length // share, stored)
    cores = np.where(shared, rows["grid_c"].astype(np.int64) * share, np.maximum(1, whole // stored))
    after = length <= kernel
    return np.where(after, np.minimum(length, whole), tiles), np.where(after, readers, cores)


def late_tiles(rows: np.ndarray | np.void) -> np.ndarray:
    """Tiles that the input buffer has for an operand which a fused op reads after a sum: all of a block, for the sum
    may read the same and waits for the end of it. rows: `as_read`."""
    late_tiles: np.ndarray = np.prod(
        [rows[f].astype(np.int64) for f in ("mblock_m", "mblock_n", "ublock_r", "ublock_c")], axis=0
    )
    return late_tiles


def picker_bytes(profile: OpProfile, rows: np.ndarray, align: int) -> tuple[int, np.ndarray]:
    """(sparse tiles, encoding) of a sparse matmul's picker, both as a whole."""
    assert isinstance(profile.op, HwSparseMatmul)
    distinct = picker_profile(profile.op.picker).distinct(max(1, profile.out[1]))
    tiles = distinct * tile_bytes(SPARSE_TILE_DF, align=align)
    return tiles, encoding_tiles(rows) * tile_bytes(ENCODING_DF, align=align)


def streamed_encoding_bytes(resident: np.ndarray, align: int) -> np.ndarray:
    """The buffer of an encoding that L1 has no room for: two of its tiles, as reads from DRAM enlarge them. Reads run
    on, or jump at every tile. resident: bytes of all of it."""
    tile = tile_bytes(ENCODING_DF, align=align)
    length = np.maximum(resident // tile, 1)
    one = np.ones_like(length)
    most = 2 * one
    for step in (np.gcd(length, 2), one):
        chunk = buffers.read_chunk(length, one, step, tile)
        inside, beside = buffers.streamed(2 * one, chunk, one, tile, length, length)
        most = np.maximum(most, inside + beside)
    enlarged: np.ndarray = most * tile
    return enlarged


SMALL_TILES = 24
"""A parameter that leaves at most this many tiles on a core (bias, scale, constant) is preloaded whatever the batch,
unless an override says otherwise: it costs less L1 than it would cost DRAM accesses for every input."""

ENCODING = 1 << 31
"""The bit of `prologue` for the encoding of a sparse matmul's picker."""

_ALL_WAYS = 3
"""Parameters of one op of which every combination of preloaded and streamed becomes a candidate. With more of them
there are candidates with all, with none, with all but one and with one alone."""


def resident_tiles(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Tiles per core of a parameter kept as it lies in its queue (before its TMs): its rows and columns are divided
    among the cores as far as the grid divides them."""
    operand = profile.operands[port]
    z, rt, ct = operand.source_tiles
    grid_r, grid_c = rows["grid_r"].astype(np.int64), rows["grid_c"].astype(np.int64)
    if any(tm.name == "transpose" for tm in operand.tms):
        grid_r, grid_c = grid_c, grid_r
        reads_r, reads_c = operand.role in ("elt", "in1", "bias"), operand.role in ("elt", "in0")
    else:
        reads_r, reads_c = operand.role in ("elt", "in0"), operand.role in ("elt", "in1", "bias")
    share_r = np.gcd(grid_r, rt) if reads_r else np.ones_like(grid_r)
    share_c = np.gcd(grid_c, ct) if reads_c else np.ones_like(grid_c)
    # a transposed queue has its buffers along the other side: several of them come to lie on one core
    on_core = -(-share_r // rows["grid_r"].astype(np.int64)) * -(-share_c // rows["grid_c"].astype(np.int64))
    tiles: np.ndarray = z * rt * ct // (share_r * share_c) * on_core
    return tiles


def preloads(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Rows that preload an operand."""
    if profile.operands[port].feed != "parameter":
        return np.zeros(len(rows), dtype=bool)
    preloads: np.ndarray = rows["prologue"] >> port & 1 == 1
    return preloads


def preloads_encoding(rows: np.ndarray) -> np.ndarray:
    """Rows that preload the encoding of their picker."""
    preloads_encoding: np.ndarray = rows["prologue"] & ENCODING != 0
    return preloads_encoding


def is_small(profile: OpProfile, port: int, rows: np.ndarray) -> np.ndarray:
    """Rows that preload an operand which is small enough to be kept as it lies in its queue, beside an ordinary input
    buffer."""
    small: np.ndarray = preloads(profile, port, rows) & (resident_tiles(profile, port, rows) <= SMALL_TILES)
    return small


def preloads_large(profile: OpProfile, rows: np.ndarray) -> np.ndarray:
    """Rows that preload a parameter which is not small."""
    preloads_large = np.zeros(len(rows), dtype=bool)
    for port in range(len(profile.operands)):
        preloads_large |= preloads(profile, port, rows) & ~is_small(profile, port, rows)
    return preloads_large


def prologues(
    profile: OpProfile, grids: np.ndarray, stream: bool, requested: Mapping[int, bool]
) -> tuple[np.ndarray, np.ndarray]:
    """(grids, ways) masks of preloaded operands for every grid, and which of them stand there for the first time.

    grids: records with `grid_r`, `grid_c`; stream: no parameter is preloaded but small ones; requested: by operand,
    whether it has to be preloaded.
    """
    ports = [port for port, operand in enumerate(profile.operands) if operand.feed == "parameter"]
    fixed = sum(1 << port for port in ports if requested.get(port, False))
    free = [port for port in ports if port not in requested]
    always = np.full(len(grids), fixed, dtype=np.int64)
    for port in free:
        if not profile.stream_parameters:
            always |= np.where(resident_tiles(profile, port, grids) <= SMALL_TILES, 1 << port, 0)
    masks = np.array([0] if stream else preload_choices(free), dtype=np.int64)
    prologues = always[:, None] | masks
    new = np.ones(prologues.shape, dtype=bool)
    for way in range(1, len(masks)):
        new[:, way] = (prologues[:, :way] != prologues[:, way : way + 1]).all(axis=1)
    return prologues, new


def preload_choices(ports: Sequence[int]) -> list[int]:
    """Masks of the operands that may be preloaded, the most first."""
    every = sum(1 << port for port in ports)
    if len(ports) <= _ALL_WAYS:
        ways = [sum(bits) for bits in itertools.product(*((1 << port, 0) for port in ports))]
    else:
        ways = [every, *(every & ~(1 << port) for port in ports), *(1 << port for port in ports), 0]
    return ways


def load_times(
    sizes: Sequence[float],
    cores: Sequence[int],
    device: DeviceSpec,
    streamed: Sequence[tuple[float, int]] = (),
) -> np.ndarray:
    """When each of several loads that begin together ends, in cycles: bytes that every one of its cores fetches, and
    how many cores fetch. A core gets half of one DRAM access at best, all cores together what DRAM gives; those that
    still load share it evenly. streamed: (bytes, cores) of what is read meanwhile for the first input; it takes its
    share, and the last load is not there before DRAM has given all of both."""
    count_of_loads = len(sizes)
    size = np.array([*sizes, *(size for size, _ in streamed)], dtype=np.float64)
    count = np.array([*cores, *(count for _, count in streamed)], dtype=np.float64)
    order = np.argsort(size, kind="stable")
    more = np.diff(size[order], prepend=0.0)
    loading = np.cumsum(count[order][::-1])[::-1]
    together = device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels / 1.5
    rate = np.minimum(device.dram_bytes_per_cycle / 2, together / np.maximum(loading, 1.0))
    ends = np.empty(len(size))
    ends[order] = np.cumsum(more / rate)
    loads = ends[:count_of_loads]
    if streamed and count_of_loads:
        last = loads.argmax()
        loads[last] = max(loads[last], size @ count / together)
    return loads
