"""L1 that one core keeps for each operand (placement.md#l1-of-a-candidate), and which parameters a candidate keeps
there (prologue) and which it streams from DRAM for every input."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.pickers import ENCODING_DF, SPARSE_TILE_DF, encoding_tiles, picker_profile
from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.hw_ops import HwReduce, HwSparseMatmul


def operand_bytes(
    profile: OpProfile, port: int, rows: np.ndarray, multiplier: Mapping[int, int], align: int
) -> tuple[np.ndarray, np.ndarray]:
    """(input buffer, resident parameter) of one operand for every row. multiplier: blocks in an operand's buffer, where
    it isn't the usual two."""
    operand = profile.operands[port]
    rows = as_read(profile, port, rows)
    ur, uc = rows["ublock_r"].astype(np.int64), rows["ublock_c"].astype(np.int64)
    m, n = rows["mblock_m"].astype(np.int64), rows["mblock_n"].astype(np.int64)
    u_kt = np.maximum(rows["u_kt"].astype(np.int64), 1)
    tile = tile_bytes(operand.df, align=align)
    factor = max(multiplier.get(port, 2), 2)
    z = operand.tiles[0]
    # a preloaded parameter stays for all t: what t-streaming cuts into parts is there with all its parts
    parts_r, parts_c = rows["stream_r"].astype(np.int64), rows["stream_c"].astype(np.int64)
    if operand.role == "in0":
        # one row of ublocks: the first operand has the minimal buffer (`min_buffer_input: 0`)
        streamed = factor * ur * (uc if profile.kind == "depthwise" else u_kt)
        whole = z * parts_r * m * ur * profile.inner * (n * uc if profile.kind == "depthwise" else 1)
    elif operand.role == "in1":
        streamed = factor * uc * (1 if profile.kind == "depthwise" else u_kt * n)
        whole = z * operand.tiles[1] * parts_c * n * uc
    elif operand.role == "bias":
        streamed = np.maximum(2 // u_kt, factor) * ur * uc
        whole = z * parts_c * n * uc
    else:
        streamed = factor * _elt_ublock(profile, ur, uc, u_kt)
        if profile.uses and profile.uses[port].late:
            streamed = np.maximum(streamed, late_tiles(rows))
        whole = operand.tiles[0] * operand.tiles[1] * operand.tiles[2] // rows["cores"].astype(np.int64)
    if operand.feed != "parameter":
        return streamed * tile, np.zeros(len(rows), dtype=np.int64)
    # a small one is kept as it lies in its queue and fed through the ordinary input buffer
    prologue, small = preloads(profile, port, rows), is_small(profile, port, rows)
    resident = np.where(small, resident_tiles(profile, port, rows), np.where(prologue, whole, 0))
    beside = np.maximum(streamed - resident, 0) if operand.may_stream else 0
    return np.where(prologue & ~small, beside, streamed) * tile, resident * tile


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
    """The buffer of an encoding that L1 has no room for: two of its tiles at most."""
    streamed: np.ndarray = np.minimum(resident, 2 * tile_bytes(ENCODING_DF, align=align))
    return streamed


def _elt_ublock(profile: OpProfile, ur: np.ndarray, uc: np.ndarray, u_kt: np.ndarray) -> np.ndarray:
    """Tiles of one input ublock of an eltwise op, splice or reduce."""
    op = profile.op
    tiles: np.ndarray = ur * uc
    if isinstance(op, HwReduce) and op.dim == "r":
        tiles = u_kt * uc
    elif isinstance(op, HwReduce) and op.dim == "c":
        tiles = u_kt * ur
    return tiles


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
    tiles: np.ndarray = z * rt * ct // (share_r * share_c)
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


def load_times(sizes: Sequence[float], cores: Sequence[int], device: DeviceSpec) -> np.ndarray:
    """When each of several loads that begin together ends, in cycles: bytes that every one of its cores fetches, and
    how many cores fetch. A core gets half of one DRAM access at best, all cores together what DRAM gives; those that
    still load share it evenly."""
    size, count = np.asarray(sizes, dtype=np.float64), np.asarray(cores, dtype=np.float64)
    order = np.argsort(size, kind="stable")
    more = np.diff(size[order], prepend=0.0)
    loading = np.cumsum(count[order][::-1])[::-1]
    together = device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels / 1.5
    rate = np.minimum(device.dram_bytes_per_cycle / 2, together / np.maximum(loading, 1.0))
    ends = np.empty(len(size))
    ends[order] = np.cumsum(more / rate)
    return ends
