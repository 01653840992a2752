"""Sizes of the buffers of one core in tiles, as the pipe generator makes them (routing.md#l1-of-a-core). All functions
take integers or integer arrays over candidates; sizes of tiles are in bytes, with header."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.netlist.routing.layout import Ints

I64 = npt.NDArray[np.int64]

LIMITS = {"grayskull": 839_616, "wormhole_b0": 1_290_176}
"""Bytes of L1 that the buffers of a core may take."""
WRAPS = {"grayskull": 1_048_512, "wormhole_b0": 1_499_072}
"""Bytes of a core above which the pipe generator refuses nothing, for its sum wraps."""
PHASE = 2048
"""Tiles that a stream counts in one phase."""
LEAST_INPUT = 32 << 10
READ_CHUNK = 52 << 10
"""Bytes up to which reads from DRAM are joined, and a buffer that they fill is enlarged."""
WHOLE_READS = 100 << 10
"""Bytes up to which an input buffer becomes a multiple of the reads that fill it."""
LARGEST_STEP = 64 << 10
"""Bytes of a step of a scattered read."""
RELAY_TILES, LEAST_RELAY, RELAYS = 12, 4, 3
EXTRA_STREAMS = 24
HEADERS = 32 << 10
"""Bytes of tile headers for each size of tile beyond the first."""
QUEUE_STATE, STATES_FREE = 36, 40
"""Bytes for each DRAM buffer that a core works on, beyond so many."""


def header_bytes(sizes: Collection[int]) -> int:
    """Bytes of tile headers that every core has. sizes: of the tiles in use, in bytes; 0 is none."""
    return max(0, len(set(sizes) - {0}) - 1) * HEADERS


def granule(
    kind: str,
    port: int,
    block: tuple[Ints, Ints, Ints, Ints],
    u_kt: Ints,
    min_buffer: Ints = -1,
    dim: str = "",
    kernel_broadcast: Ints = 0,
) -> I64:
    """Tiles that an op releases of an input at once. block: mblock and ublock as (m, n, u, v); min_buffer: the operand
    of which only one row or column of ublocks is kept, -1 for neither; dim: of a reduce."""
    m, n, u, v = (np.asarray(x, np.int64) for x in block)
    k = np.asarray(u_kt, np.int64)
    tiles = u * v
    if kind == "matmul" and port == 0:
        tiles = np.where(np.asarray(min_buffer) == 0, 1, m) * u * k
    elif kind == "matmul" and port == 1:
        tiles = np.where(np.asarray(min_buffer) == 1, 1, n) * v * k
    elif kind == "depthwise" and port == 0:
        tiles = np.where(np.asarray(min_buffer) == 0, 1, m) * u * v
    elif kind == "depthwise" and port == 1:
        tiles = n * v
    elif kind == "reduce" and dim in ("r", "c"):
        tiles = (v if dim == "r" else u) * k
    return np.where(np.asarray(kernel_broadcast) > 0, kernel_broadcast, tiles)


def ordinary(g: Ints, tile: Ints, thirds: Ints = 1, kernel_broadcast: Ints = 0, least: Ints = 0) -> I64:
    """Tiles of an ordinary input buffer. g: `granule`; thirds: inputs of a fused op or splice where it has more than
    three, else 3; least: `input_buf_min_size_tiles`."""
    size = np.asarray(tile, np.int64)
    rounded = 1 << np.round(np.log2(np.maximum(size, 1))).astype(np.int64)
    floor = np.where(np.asarray(kernel_broadcast) > 0, 0, LEAST_INPUT * 3 // np.maximum(thirds, 3) // rounded)
    g = np.asarray(g, np.int64)
    usual = _up(np.maximum(2 * g, floor), 2 * g)
    return np.where(np.asarray(least) > usual, _up(np.asarray(least, np.int64), g), usual)


def _up(x: Ints, step: Ints) -> I64:
    up: I64 = -(-np.asarray(x, np.int64) // step) * step
    return up


def _down(x: Ints, step: Ints) -> I64:
    down: I64 = np.asarray(x, np.int64) // step * step
    return down


_MOST_BOUND = 256


@functools.cache
def _divisor_table() -> npt.NDArray[np.int16]:
    """[number, bound]: the largest divisor of the number that is at most the bound; 1 at bound 0."""
    table = np.ones((PHASE + 1, _MOST_BOUND + 1), np.int16)
    for d in range(2, _MOST_BOUND + 1):
        table[d::d, d:] = d
    return table


def largest_divisor(number: Ints, bound: Ints) -> I64:
    """The largest divisor of `number` that is at most `bound`, which is at most 256; 1 if there is none."""
    number, bound = np.asarray(number, np.int64), np.clip(np.asarray(bound, np.int64), 0, _MOST_BOUND)
    largest: I64 = _divisor_table()[np.minimum(number, PHASE), bound].astype(np.int64)
    if number.size and int(number.max()) > PHASE:
        divisors = np.arange(1, _MOST_BOUND + 1)
        good = (number[..., None] % divisors == 0) & (divisors <= bound[..., None])
        largest = np.where(number > PHASE, _MOST_BOUND - good[..., ::-1].argmax(axis=-1), largest)
    return largest


def read_chunk(length: Ints, g: Ints, step: Ints, tile: Ints) -> I64:
    """Tiles that one read from DRAM brings. length: of the core's list; step: of its scatter."""
    g, s = np.asarray(g, np.int64), np.asarray(step, np.int64)
    whole = np.gcd(_down(PHASE, np.minimum(g, PHASE)), length)
    times = whole // np.gcd(whole, s)
    chunk: I64 = s * np.where(times * s * tile <= READ_CHUNK, times, largest_divisor(times, READ_CHUNK // (s * tile)))
    return chunk


def phase_tiles(block: Ints, length: Ints, unit: Ints) -> I64:
    """Tiles of a phase of a read. block: of the queue's buffer; length: of the list, which is sent in several phases
    where it has more than 2048; unit: tiles that such phases are whole multiples of."""
    long = np.asarray(length) > PHASE
    first = np.lcm(block, np.where(long, unit, 1))
    tiles = np.where(first <= PHASE, _down(PHASE, np.maximum(first, 1)), PHASE)
    return np.where(long & (np.asarray(unit) <= PHASE), _down(tiles, np.maximum(unit, 1)), tiles)


def grown(size: Ints, tile: Ints, phase: Ints) -> I64:
    """A buffer that reads from DRAM fill, enlarged. size: of the least that holds whole reads; phase: tiles of one."""
    size, tile = np.asarray(size, np.int64), np.asarray(tile, np.int64)
    b = size * tile
    most = np.maximum(-(-READ_CHUNK // b) - 1, 1)  # the largest f with f b < 52 KiB
    factor = most
    for k in range(int(np.max(most, initial=1)), 0, -1):
        stops = (k < most) & (k * b >= READ_CHUNK // 2) & (phase % np.maximum(k * size, 1) == 0)
        factor = np.where(stops, k, factor)
    double = (factor == 1) & (2 * b <= WHOLE_READS) & (phase % np.maximum(2 * size, 1) == 0)
    grown: I64 = size * np.where(double, 2, factor)
    return grown


def streamed(kernel: Ints, chunk: Ints, g: Ints, tile: Ints, block: Ints, length: Ints) -> tuple[I64, I64]:
    """(input buffer, staging buffer) in tiles of a list that a core reads from DRAM for itself. kernel: the ordinary
    buffer; chunk: `read_chunk`; g: `granule`; block, length: as `phase_tiles` takes them."""
    kernel, chunk = np.asarray(kernel, np.int64), np.asarray(chunk, np.int64)
    both = np.lcm(chunk, kernel)
    joined = both * tile <= np.maximum(WHOLE_READS, kernel * tile)
    return (
        np.where(joined, grown(both, tile, phase_tiles(block, length, kernel)), kernel),
        np.where(joined, 0, grown(chunk, tile, phase_tiles(block, length, g))),
    )


def relay_tiles(sources: Ints) -> I64:
    """Tiles of one relay of a gather from so many sources."""
    tiles: Any = np.maximum(LEAST_RELAY, RELAY_TILES // np.maximum(sources, 1))
    return np.asarray(tiles, np.int64)


def gathers_of(arch: str) -> int:
    """Multicasts and gathers of a core that have relays of their own."""
    return 3 if arch == "grayskull" else 4
