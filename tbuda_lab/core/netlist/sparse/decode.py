"""The word stream back to tiles, and to one scipy matrix.

The stream is a chain: where a strip begins follows from the lengths of all before it. It is walked by pointer
doubling, with one table of jumps per power of two over all words at once, so that no loop runs over strips or tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse

from tbuda_lab.core.errors import Diagnostic, NetlistError
from tbuda_lab.core.netlist.sparse.layout import (
    I64,
    LAST_IN_PAGE,
    LAST_IN_SLICE,
    PAGE_WORDS,
    STRIP_INDEX,
    STRIP_WORDS,
    TILE,
    U32,
    bits_for,
)


@dataclasses.dataclass(frozen=True)
class DecodedTiles:
    """One element per tile of the picker: stream, slice t, strip, ublock row, tile row in the ublock, tile row in
    the strip, and pointer to its sparse tile; all int64 of one length."""

    stream: I64
    t: I64
    strip: I64
    ublock: I64
    in_r: I64
    in_d: I64
    pointer: I64


def _words_of(encodings: U32) -> I64:
    """The 16-bit words of all streams, one after the other."""
    return np.ascontiguousarray(encodings, dtype="<u4").view("<u2").astype(np.int64).reshape(-1)


@dataclasses.dataclass(frozen=True)
class _Hops:
    """For every word, and one place behind the last, where a chain that ran out stays: what it says if a strip or a
    ublock begins there, and where the next one does. limit: end of the stream that it lies in; header: of a strip;
    ublocks: of a strip; tiles: of a ublock."""

    limit: I64
    header: I64
    ublocks: I64
    tiles: I64
    after_ublock: I64
    after_strip: I64

    @classmethod
    def of(cls, words: I64, streams: int, mblock_m: int, index_bits: int) -> _Hops:
        """words: of all streams, which are equally long."""
        total = words.size
        width = total // streams
        padded = np.append(words, np.zeros(STRIP_WORDS + 1, np.int64))
        at = np.arange(total + 1)
        limit = np.minimum(at // width + 1, streams) * width
        tiles = padded[at] >> index_bits
        tiles[tiles == 0] = 1 << (16 - index_bits)
        after_ublock = np.where(at + 1 + tiles <= limit, np.minimum(at + 1 + tiles, total), total)
        after_ublock[total] = total
        ublocks = padded[at + 2]
        after_strip = _hop(after_ublock, np.minimum(at + STRIP_WORDS, total), np.minimum(ublocks, mblock_m + 1))
        header = padded[at] | padded[at + 1] << 16
        page_end = (header & LAST_IN_PAGE) != 0
        after_strip = np.where(page_end, -(-after_strip // PAGE_WORDS) * PAGE_WORDS, after_strip)
        # a stream's end is where the next begins: a chain that arrives there has run out
        after_strip = np.where((after_strip >= limit) | (after_strip >= total), total, after_strip)
        return cls(limit, header, ublocks, tiles, after_ublock, after_strip)


def decode_stream(
    encodings: U32,
    *,
    t: int,
    mblock_m: int,
    ublock_r: int,
    u_kt: int,
    strips: int,
    pointer_bits: int,
    index_bits: int,
    num_sparse_tiles: int,
    where: str = "sparse matmul",
) -> DecodedTiles:
    """Tiles of all streams; encodings (streams, words) uint32, a multiple of 1024 words.

    Raises `NetlistError` naming `where` and what is inconsistent: a stream that ends before its `t` slices do, or
    a strip, ublock, tile place or tile pointer out of range.
    """
    streams = encodings.shape[0]
    words, width = _words_of(encodings), 2 * encodings.shape[1]
    hops = _Hops.of(words, streams, mblock_m, index_bits)

    strip_at, strip_stream, strip_t = _strips(
        hops.after_strip, (hops.header & LAST_IN_SLICE) != 0, streams, width, t, where
    )
    ublocks = hops.ublocks[strip_at]
    _require(ublocks <= mblock_m, strip_stream, where, f"a strip with more than its {mblock_m} ublocks")
    strip_index = hops.header[strip_at] & STRIP_INDEX
    _require(strip_index < strips, strip_stream, where, f"a strip index beyond the {strips} strips of the activation")

    owner = np.repeat(np.arange(strip_at.size), ublocks)
    ordinal = np.arange(owner.size) - np.repeat(np.cumsum(ublocks) - ublocks, ublocks)
    ublock_at = _hop(hops.after_ublock, strip_at[owner] + STRIP_WORDS, ordinal)
    _require(
        ublock_at < hops.limit[strip_at[owner]], strip_stream[owner], where, "a strip that runs past the encodings"
    )
    counts = hops.tiles[ublock_at]
    ublock = words[ublock_at] & ((1 << index_bits) - 1)
    _require(ublock < mblock_m, strip_stream[owner], where, f"a ublock row beyond mblock {mblock_m}")
    _require(
        counts <= ublock_r * u_kt, strip_stream[owner], where, f"a ublock with more than its {ublock_r} x {u_kt} tiles"
    )

    of = np.repeat(np.arange(ublock_at.size), counts)
    place = np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)
    tile_at = ublock_at[of] + 1 + place
    tile_stream = strip_stream[owner][of]
    _require(tile_at < hops.limit[ublock_at[of]], tile_stream, where, "a ublock that runs past the encodings")
    word = words[tile_at]
    low = word & ((1 << (16 - pointer_bits)) - 1)
    inner = max(1, (u_kt - 1).bit_length())  # one bit even for a single row
    in_r, in_d, pointer = low >> inner, low & ((1 << inner) - 1), word >> (16 - pointer_bits)
    _require((in_r < ublock_r) & (in_d < u_kt), tile_stream, where, f"a tile outside its {ublock_r} x {u_kt} ublock")
    _require(pointer < num_sparse_tiles, tile_stream, where, f"a pointer beyond the {num_sparse_tiles} sparse tiles")
    strip = owner[of]
    return DecodedTiles(tile_stream, strip_t[strip], strip_index[strip], ublock[of], in_r, in_d, pointer)


def decode_to_csr(
    sparse_tiles: npt.NDArray[np.float32],
    encodings: U32,
    *,
    t: int,
    mblock_m: int,
    ublock_r: int,
    u_kt: int,
    act_rows: int,
    pointer_bits: int,
    index_bits: int | None,
    fracture: int = 1,
    where: str = "sparse matmul",
) -> list[scipy.sparse.csr_matrix]:
    """One matrix per column group: (t * grid_r * mblock_m * ublock_r * 32, act_rows), whose product with the
    activation's stacked rows is the op's output, slice after slice.

    sparse_tiles (grid_r, fracture, tiles, 32, 32); encodings (grid_r, fracture, words); act_rows in elements.
    index_bits None (not written): the width of the tile pointer, or, where the stream contradicts that, the least
    width that serves mblock_m, or else the first that it doesn't contradict. Raises `NetlistError` for an inconsistent
    stream.
    """
    grid_r, groups, count = sparse_tiles.shape[:3]
    widths = list(dict.fromkeys([pointer_bits, max(1, bits_for(mblock_m)), *range(1, 16)]))
    words = _decode_by_first(
        [index_bits] if index_bits is not None else widths,
        lambda width: decode_stream(
            encodings.reshape(grid_r * groups, -1),
            t=t,
            mblock_m=mblock_m,
            ublock_r=ublock_r,
            u_kt=u_kt,
            strips=-(-act_rows // (u_kt * TILE)),
            pointer_bits=pointer_bits,
            index_bits=width,
            num_sparse_tiles=count,
            where=where,
        ),
    )
    tiles = sparse_tiles.reshape(grid_r * groups * count, TILE, TILE)
    of, row, column, value = _elements(tiles, words.stream * count + words.pointer)
    core, group = words.stream // groups, words.stream % groups
    out_tile = ((words.t * grid_r + core) * mblock_m + words.ublock) * ublock_r + words.in_r
    in_tile = words.strip * u_kt + words.in_d
    rows = out_tile[of] * TILE + row
    columns = in_tile[of] * TILE + column
    shape = (t * grid_r * mblock_m * ublock_r * TILE, act_rows)
    _require(
        columns < act_rows,
        words.stream[of],
        where,
        f"a strip that reaches past the {act_rows // TILE} tile rows of the activation",
    )
    matrices = []
    for g in range(groups):  # a handful of column groups
        mine = slice(None) if groups == 1 else group[of] == g
        matrix = scipy.sparse.csr_matrix((value[mine], (rows[mine], columns[mine])), shape=shape)
        matrices.append(matrix)
    return matrices


def _decode_by_first(widths: Sequence[int], decode: Callable[[int], DecodedTiles]) -> DecodedTiles:
    """By the first width of ublock indices that the stream does not contradict. Raises the `NetlistError` of the first
    one if it contradicts all."""
    errors: list[NetlistError] = []
    for width in widths:
        try:
            return decode(width)
        except NetlistError as error:
            errors.append(error)
    raise errors[0]


def _elements(tiles: npt.NDArray[np.float32], used: I64) -> tuple[I64, I64, I64, npt.NDArray[np.float32]]:
    """(its use, row, column, value) of every element that is not 0, of every use of a tile. tiles: (n, 32, 32); used:
    the numbers of tiles."""
    which, row, column = np.nonzero(tiles)
    value = tiles[which, row, column]
    per_tile = np.bincount(which, minlength=tiles.shape[0])
    begin = np.cumsum(per_tile) - per_tile
    repeats = per_tile[used]
    of = np.repeat(np.arange(used.size), repeats)
    element = np.repeat(begin[used] - (np.cumsum(repeats) - repeats), repeats) + np.arange(of.size)
    return of, row[element], column[element], value[element]


def _hop(step: I64, start: I64, count: I64) -> I64:
    """`count` times `step`, from `start`; arrays of one shape."""
    at = start.copy()
    left = count.copy()
    while left.size and int(left.max()) > 0:
        odd = (left & 1) == 1
        at[odd] = step[at[odd]]
        left >>= 1
        if int(left.max()) > 0:
            step = step[step]
    return at


def _strips(
    following: I64, last_in_slice: npt.NDArray[np.bool_], streams: int, width: int, t: int, where: str
) -> tuple[I64, I64, I64]:
    """(first word, stream, slice) of every strip, stream by stream."""
    total = following.size - 1
    chain = (np.arange(streams) * width)[:, None]
    while True:
        ends = np.where(chain < total, last_in_slice[chain], False)
        if (ends.sum(axis=1) >= t).all():
            break
        if (chain[:, -1] >= total).all() or chain.shape[1] > width:
            short = int(np.flatnonzero(ends.sum(axis=1) < t)[0])
            raise _broken(where, short, f"the stream ends after {int(ends[short].sum())} of {t} slices")
        chain = np.concatenate([chain, following[chain]], axis=1)
        following = following[following]
    slice_of = np.cumsum(ends, axis=1) - ends  # slices that ended before
    used = (slice_of < t) & (chain < total)
    return chain[used], np.nonzero(used)[0], slice_of[used]


def _require(good: npt.NDArray[np.bool_], stream: I64, where: str, what: str) -> None:
    if not good.all():
        raise _broken(where, int(stream[int(np.flatnonzero(~good)[0])]), what)


def _broken(where: str, stream: int, what: str) -> NetlistError:
    return NetlistError(
        f"{where}: the encodings cannot be decoded",
        [
            Diagnostic(
                "error",
                where,
                "sparse-encoding",
                f"stream {stream}: {what}",
                "check the encodings against t, mblock, ublock, u_kt, sparse_tile_ptr_bits and sparse_ublock_idx_bits",
            )
        ],
    )
