"""Which tiles of which producer core each reader takes, and the rules that follow from those lists.

One row of an array per pipe (a core of the view: one for each reader core, or for each row or column of a multicast),
in reading order; all pipes of an edge at once. See routing.md#tile-lists.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.netlist.routing.layout import EdgeReader, OperandView, Source, Step
from tbuda_lab.core.netlist.routing.rules import RouteRule

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
PADDING = -1


def tile_ids(shape: tuple[int, int, int], steps: Sequence[Step], unpad: tuple[int, int], pad: tuple[int, int]) -> I64:
    """(t, rows, columns) after the TMs: for each tile its number in the producer's (t, rows, columns), or PADDING.
    Raises ValueError where a factor does not divide."""
    ids: I64 = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    ids = ids[:, : shape[1] - unpad[0], : shape[2] - unpad[1]]
    for name, *arguments in steps:
        n = arguments[0] if arguments else 1
        t, rows, columns = ids.shape
        match name:
            case "transpose":
                ids = ids.transpose(0, 2, 1)
            case "hslice":
                ids = ids.reshape(t, rows, n, columns // n).transpose(0, 2, 1, 3).reshape(t * n, rows, columns // n)
            case "vslice":
                ids = ids.reshape(t * n, rows // n, columns)
            case "hstack":
                ids = ids.reshape(t // n, n, rows, columns).transpose(0, 2, 1, 3).reshape(t // n, rows, n * columns)
            case "vstack":
                ids = ids.reshape(t // n, n * rows, columns)
            case "r":
                ids = np.tile(ids, (1, n, 1))
            case "c":
                ids = np.tile(ids, (1, 1, n))
            case "z":
                ids = np.tile(ids, (n, 1, 1))
            case "pad":
                ids = np.pad(ids, ((0, 0), (0, arguments[0]), (0, arguments[1])), constant_values=PADDING)
    if any(pad):
        ids = np.pad(ids, ((0, 0), (0, pad[0]), (0, pad[1])), constant_values=PADDING)
    return ids


def reading(ids: I64, seen: OperandView) -> I64:
    """(pipes, length): the tiles of each core of the view in the order in which it reads them; t is outermost."""
    (gr, gc), (m, n), (u, v) = seen.grid, seen.mblock, seen.ublock
    blocks = ids.reshape(ids.shape[0], gr, m, u, gc, n, v)
    order = (1, 4, 0, 2, 5, 3, 6) if seen.scan == "r" else (1, 4, 0, 5, 2, 3, 6)
    return blocks.transpose(order).reshape(gr * gc, -1)


def places(source: Source, tiles: I64) -> tuple[I64, I64]:
    """(core, index in its buffer) of the producer's tiles by number; core and index of padding are PADDING."""
    (_, gc), (m, n), (u, v) = source.grid, source.mblock, source.ublock
    _, rows, columns = source.shape
    t, rest = np.divmod(tiles, rows * columns)
    r, c = np.divmod(rest, columns)
    core = r // (m * u) * gc + c // (n * v)
    block_r, block_c = r // u % m, c // v % n
    ublock = block_r * n + block_c if source.order == "r" else block_c * m + block_r
    index = t * source.tiles + ublock * (u * v) + r % u * v + c % v
    padding = tiles == PADDING
    return np.where(padding, PADDING, core), np.where(padding, PADDING, index)


@dataclasses.dataclass(frozen=True)
class Pipes:
    """The lists of an edge, cut where the producer's buffer ends. core, index: (pipes, length); lengths: how many of
    each row's tiles count, 0 where there is no pipe. period: tiles that a reader takes in one t; repeated: how often
    the list of one input was written down. reach: tiles that may be addressed in one core."""

    core: I64
    index: I64
    lengths: I64
    period: int
    reach: int
    block: int

    @property
    def inside(self) -> Bools:
        """(pipes, length): which tiles count."""
        inside: Bools = np.arange(self.core.shape[1]) < self.lengths[:, None]
        return inside


def pipes_of(
    source: Source,
    reader: EdgeReader,
    seen: OperandView,
    steps: Sequence[Step],
    unpad: tuple[int, int],
    pad: tuple[int, int],
    input_count: int,
) -> Pipes:
    """The lists of an edge whose shapes fit. Raises ValueError where they do not."""
    shape = source.shape
    ids = tile_ids((int(shape[0]), int(shape[1]), int(shape[2])), steps, unpad, pad)
    core, index = places(source, reading(ids, seen))
    slots, block = int(source.slots(input_count)), int(source.tiles)
    reach = slots * block
    t = int(source.t)
    period = core.shape[1] // ids.shape[0]
    if slots > t and not reader.kernel_broadcast:
        times = slots // t
        shift = np.repeat(np.arange(times) * t * block, core.shape[1])
        core = np.tile(core, (1, times))
        index = np.tile(index, (1, times))
        index = np.where(core == PADDING, PADDING, index + shift)
    past = index >= reach
    first_past = np.where(past.any(axis=1), past.argmax(axis=1), core.shape[1]).astype(np.int64)
    return Pipes(core, index, first_past, period, reach, block)


def kernel_broadcast_rule(pipes: Pipes, source: Source, reader: EdgeReader, slots: int) -> RouteRule:
    """The tiles beyond the factor must repeat those within it."""
    factor = reader.kernel_broadcast
    if not reader.per_t and (slots != 1 or int(source.t) != 1):
        return RouteRule.KERNEL_BCAST_BUF
    position = np.arange(pipes.core.shape[1])
    if reader.per_t:
        of_t = position // pipes.period
        beyond = position % pipes.period >= factor
        first = of_t * factor + position % factor
    else:
        beyond = position >= factor
        first = position % factor
    first = np.minimum(first, position.size - 1)
    same = (pipes.core == pipes.core[:, first]) & (pipes.index == pipes.index[:, first])
    return RouteRule.OK if bool((same | ~beyond | ~pipes.inside).all()) else RouteRule.KERNEL_BCAST_PERIODIC


def padding_rule(pipes: Pipes) -> RouteRule:
    """No pipe may consist of padding only."""
    real = (pipes.core != PADDING) & pipes.inside
    return RouteRule.PAD_ONLY if bool(((pipes.lengths > 0) & ~real.any(axis=1)).any()) else RouteRule.OK


def unfed_rule(pipes: Pipes, grid: tuple[int, int], steps: tuple[int, int], by_rows: bool) -> RouteRule:
    """Every core of the view must be a destination. steps: rows and columns that a phased pipe goes through."""
    gr, gc = grid
    rows, columns = steps
    own = np.flatnonzero(pipes.lengths > 0)
    s = np.arange(rows * columns)
    step_r, step_c = (s // columns, s % columns) if by_rows else (s % rows, s // rows)
    to_r = own[:, None] // gc + (step_r * gr // rows)[None, :]
    to_c = own[:, None] % gc + (step_c * gc // columns)[None, :]
    fed = np.zeros((gr, gc), bool)
    good = (to_r < gr) & (to_c < gc)
    fed[to_r[good], to_c[good]] = True
    return RouteRule.OK if fed.all() else RouteRule.UNFED_CORE


def granularity(pipes: Pipes) -> int:
    """Greatest common divisor of the reach, of where contiguous runs begin and of how long they are."""
    inside, core, index = pipes.inside, pipes.core, pipes.index
    if bool(((core == PADDING) & inside).any()):
        return 1
    joined = np.zeros(core.shape, bool)
    joined[:, 1:] = (core[:, 1:] == core[:, :-1]) & (index[:, 1:] == index[:, :-1] + 1)
    starts = ~joined & inside
    g = math.gcd(pipes.reach, int(np.gcd.reduce(index[starts], initial=0)))
    # a run ends where the next begins: positions of starts differ by lengths
    position = np.broadcast_to(np.arange(core.shape[1]), core.shape)[starts]
    g = math.gcd(g, int(np.gcd.reduce(position, initial=0)))
    return math.gcd(g, int(np.gcd.reduce(pipes.lengths, initial=0)))


def cut_in_pieces(pipes: Pipes, source: Source, granule: int, cores: int, several: bool) -> bool:
    """Whether the output buffer is cut in pieces: some reader does not take a core's tiles in their plain order to
    itself. several: pipes with more than one destination."""
    inside = pipes.inside
    if several or granule != pipes.block * int(source.single):
        return True
    if bool(((pipes.core == PADDING) & inside).any()):
        return True
    link = readers_of(pipes, cores)
    if int(link.sum(axis=1).max(initial=0)) > 1:
        return True
    first = np.zeros(pipes.core.shape, bool)
    first[:, 0] = True
    first[:, 1:] = pipes.core[:, 1:] != pipes.core[:, :-1]
    plain = np.where(first, pipes.index == 0, False)
    plain[:, 1:] |= ~first[:, 1:] & (pipes.index[:, 1:] == pipes.index[:, :-1] + 1)
    if not bool((plain | ~inside).all()):
        return True
    counts = np.bincount(pipes.core[inside], minlength=cores)
    return bool((counts % pipes.block != 0).any())


def readers_of(pipes: Pipes, cores: int) -> Bools:
    """(cores, pipes): which pipe reads which producer core."""
    link = np.zeros((cores, pipes.core.shape[0]), bool)
    real = pipes.inside & (pipes.core != PADDING)
    link[pipes.core[real], np.nonzero(real)[0]] = True
    return link


def piece_tiles(source: Source, granule: int, cut: bool, input_count: int) -> int:
    """Tiles of one piece of the producer's output buffer; granule: over all its readers."""
    buffer, block = int(source.buf_size_mb), int(source.tiles)
    if not cut:
        if source.untilized:
            return int(source.mblock[1] * source.ublock[0] * source.ublock[1])
        return buffer * block
    single = int(source.single)
    return granule if input_count * int(source.t) <= single else buffer // single * granule
