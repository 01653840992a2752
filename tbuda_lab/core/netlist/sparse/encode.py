"""A picker as sparse tiles and encodings, for one grid and blocking."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import Diagnostic, InputError, PlacementError
from tbuda_lab.core.netlist.sparse.layout import (
    I64,
    LAST_IN_PAGE,
    LAST_IN_SLICE,
    PAGE_WORDS,
    STRIP_WORDS,
    TILE,
    U32,
    as_entries,
    bits_for,
    in_order,
    inner_bits,
    mask_hashes,
    masks_to_tiles,
    starts,
    tile_masks,
)


@dataclasses.dataclass(frozen=True)
class SparseEncoding:
    """What a sparse matmul op needs besides the activation.

    sparse_tiles: (grid_r, fracture * num_sparse_tiles, 32, 32) float32. encodings: (grid_r, fracture *
    num_index_tiles, 1024) uint32 words. nz_tiles, nz_ublocks, nz_strips: int64 (grid_r,), empty strips not counted.
    The other fields are the op's attributes.
    """

    sparse_tiles: npt.NDArray[np.float32]
    encodings: U32
    num_sparse_tiles: int
    num_index_tiles: int
    sparse_tile_ptr_bits: int
    sparse_ublock_idx_bits: int
    fracture_factor: int
    nz_tiles: I64
    nz_ublocks: I64
    nz_strips: I64

    def sparse_tensor(self) -> npt.NDArray[np.float32]:
        """(1, grid_r * 32, fracture * num_sparse_tiles * 32): one entry of the queue of sparse tiles."""
        grid_r, tiles = self.sparse_tiles.shape[:2]
        return np.ascontiguousarray(self.sparse_tiles.transpose(0, 2, 1, 3)).reshape(1, grid_r * TILE, tiles * TILE)

    def index_tensor(self) -> npt.NDArray[np.int32]:
        """(1, grid_r * 32, fracture * num_index_tiles * 32): one entry of the RawUInt32 queue of encodings, its
        words tile after tile as raw formats are handed over."""
        grid_r, tiles = self.encodings.shape[:2]
        return self.encodings.view(np.int32).reshape(1, grid_r * TILE, tiles * TILE)


def encode_picker(
    coo: npt.ArrayLike,
    *,
    grid_r: int,
    t: int,
    mblock_m: int,
    ublock_r: int,
    u_kt: int,
    act_rt: int,
    act_z: int,
    fracture: int = 1,
    pointer_bits: int = 1,
    index_bits: int = 1,
) -> SparseEncoding:
    """Encodes a picker for an op of `t` slices on `grid_r` rows of cores with (mblock_m, ublock_r, u_kt).

    coo: (n, 3) of (t, out_row, in_row) in elements; out_row counts the op's padded rows, in_row those of the
    activation with its `act_z` slices of `act_rt` tile rows stacked. With `fracture` f, slices t .. 2t-1 belong to
    the second group of columns, and so on. pointer_bits and index_bits are least widths of the two attributes.

    Raises `InputError` for entries outside the tensors, `PlacementError` when the 16-bit words do not suffice (see
    `fits`).
    """
    entries = as_entries(coo)
    strips = -(-act_rt * act_z // u_kt)
    _check_range(entries, (fracture * t, grid_r * mblock_m * ublock_r * TILE, act_rt * act_z * TILE))

    tile_key, masks = _tiles_of_streams(entries, fracture, t, strips, mblock_m, ublock_r, u_kt)
    in_d, rest = tile_key % u_kt, tile_key // u_kt
    in_r, ublock_key = rest % ublock_r, rest // ublock_r
    strip_key = ublock_key // mblock_m
    tile_stream = strip_key // strips // t
    streams = grid_r * fracture

    pointer, distinct, num_sparse_tiles = _deduplicate(masks, tile_stream, streams)
    pointer_bits = _pointer_bits(max(pointer_bits, bits_for(num_sparse_tiles)), num_sparse_tiles, ublock_r, u_kt)
    index_bits = max(index_bits, bits_for(mblock_m))
    blocks = _Ublocks.of(ublock_key, strip_key, tile_key.size)
    most = _most_tiles(blocks, index_bits, mblock_m)
    strip, place, counts, tiles = _strips(blocks, streams * t, strips)
    words = STRIP_WORDS + counts + tiles
    if int(words.max()) > PAGE_WORDS:
        raise _too_wide(
            f"a strip of {int(words.max())} words; a page holds {PAGE_WORDS}", "a smaller u_kt, or more rows of cores"
        )

    strip_stream = strip // strips // t
    position, last_in_page, pages = _paginate(words, strip_stream, streams)
    last_in_slice = np.append(starts(strip // strips)[1:], True)

    position = position + strip_stream * (pages * PAGE_WORDS)
    out = np.zeros(streams * pages * PAGE_WORDS, np.uint16)
    header = strip % strips | np.where(last_in_slice, LAST_IN_SLICE, 0) | np.where(last_in_page, LAST_IN_PAGE, 0)
    out[position], out[position + 1], out[position + 2] = header & 0xFFFF, header >> 16, counts
    if tile_key.size:
        at = position[place[blocks.strip]] + STRIP_WORDS + blocks.offset_in_strip(place)
        out[at] = (ublock_key[blocks.first] % mblock_m) | ((blocks.tiles % most) << index_bits)
        in_ublock = np.arange(tile_key.size) - np.repeat(blocks.first, blocks.tiles)
        words_of_tiles = pointer << (16 - pointer_bits) | in_r << inner_bits(u_kt) | in_d
        out[np.repeat(at, blocks.tiles) + 1 + in_ublock] = words_of_tiles

    def per_row(stream_of: I64) -> I64:
        return np.bincount(stream_of // fracture, minlength=grid_r).astype(np.int64)

    return SparseEncoding(
        sparse_tiles=masks_to_tiles(distinct).reshape(grid_r, fracture * num_sparse_tiles, TILE, TILE),
        encodings=out.view("<u4").astype(np.uint32).reshape(grid_r, fracture * pages, PAGE_WORDS // 2),
        num_sparse_tiles=num_sparse_tiles,
        num_index_tiles=pages,
        sparse_tile_ptr_bits=pointer_bits,
        sparse_ublock_idx_bits=index_bits,
        fracture_factor=fracture,
        nz_tiles=per_row(tile_stream),
        nz_ublocks=per_row(tile_stream[blocks.first]),
        nz_strips=per_row(blocks.filled // strips // t),
    )


def _tiles_of_streams(
    entries: I64, fracture: int, t: int, strips: int, mblock_m: int, ublock_r: int, u_kt: int
) -> tuple[I64, U32]:
    """(keys of the tiles that hold elements, the masks of those tiles) in the order of the streams: core row, column
    group, slice, strip, ublock, tile. A key is the tile's place in the counts of these, as digits of one number."""
    slice_, out_tile, in_tile = entries[:, 0], entries[:, 1] // TILE, entries[:, 2] // TILE
    core, row_in_core = out_tile // (mblock_m * ublock_r), out_tile % (mblock_m * ublock_r)
    stream = core * fracture + slice_ // t
    key = stream * t + slice_ % t
    for size, digit in (
        (strips, in_tile // u_kt),
        (mblock_m, row_in_core // ublock_r),
        (ublock_r, row_in_core % ublock_r),
        (u_kt, in_tile % u_kt),
        (TILE, entries[:, 1] % TILE),
        (TILE, entries[:, 2] % TILE),
    ):
        key = key * size + digit
    key = in_order(key)
    element_tile = key // (TILE * TILE)
    first = starts(element_tile)
    tile_key = element_tile[first]
    return tile_key, tile_masks(np.cumsum(first) - 1, key // TILE % TILE, key % TILE, tile_key.size)


def _pointer_bits(bits: int, num_sparse_tiles: int, ublock_r: int, u_kt: int) -> int:
    """The width of a pointer to a sparse tile; raises `PlacementError` where a word has no room for it."""
    low_bits = bits_for(ublock_r) + inner_bits(u_kt)
    if bits + low_bits > 16:
        raise _too_wide(
            f"{num_sparse_tiles} distinct sparse tiles need {bits} bits beside {low_bits} for a "
            f"place among {ublock_r} x {u_kt} tiles, together more than 16",
            "a smaller u_kt or ublock, or more rows of cores",
        )
    return bits


def _most_tiles(blocks: _Ublocks, index_bits: int, mblock_m: int) -> int:
    """How many tiles the header of a ublock can count; raises `PlacementError` where one has more."""
    most = 1 << (16 - index_bits)
    if blocks.tiles.size and int(blocks.tiles.max()) > most:
        raise _too_wide(
            f"a ublock with {int(blocks.tiles.max())} tiles; beside {index_bits} bits for {mblock_m} "
            f"ublock rows there is room for {most}",
            "a smaller u_kt or mblock",
        )
    return most


@dataclasses.dataclass(frozen=True)
class _Ublocks:
    """The ublocks that hold tiles, in the order of the stream. first: the number of its first tile; tiles: how many it
    has; filled: keys of the strips that have any; strip: of each ublock the number of its strip among those; counts:
    ublocks of each filled strip."""

    first: I64
    tiles: I64
    filled: I64
    strip: I64
    counts: I64

    @classmethod
    def of(cls, ublock_key: I64, strip_key: I64, tile_count: int) -> _Ublocks:
        first: I64 = np.flatnonzero(starts(ublock_key)).astype(np.int64)
        tiles: I64 = np.diff(np.append(first, tile_count))
        filled, strip, counts = np.unique(strip_key[first], return_inverse=True, return_counts=True)
        return cls(first, tiles, filled, strip, counts)

    def offset_in_strip(self, place: I64) -> I64:
        """Words between the header of its strip and each ublock: one for every ublock and every tile before it."""
        own_strip = place[self.strip]
        first_ublock: I64 = np.flatnonzero(starts(own_strip)).astype(np.int64)
        ordinal = np.arange(self.tiles.size) - first_ublock[self.strip]
        first_tile = self.first[starts(own_strip)][self.strip]
        offset: I64 = ordinal + (self.first - first_tile)
        return offset


def _strips(blocks: _Ublocks, slices: int, strips: int) -> tuple[I64, I64, I64, I64]:
    """The keys of all strips of the stream, each slice having at least one; the place of the filled ones among them;
    ublocks and tiles of each."""
    empty = np.setdiff1d(np.arange(slices), blocks.filled // strips) * strips
    strip = np.sort(np.concatenate([blocks.filled, empty]))
    place = np.asarray(np.searchsorted(strip, blocks.filled), np.int64)
    counts = np.zeros(strip.size, np.int64)
    counts[place] = blocks.counts
    tiles = np.zeros(strip.size, np.int64)
    np.add.at(tiles, place[blocks.strip], blocks.tiles)
    return strip, place, counts, tiles


def _check_range(entries: I64, limits: tuple[int, int, int]) -> None:
    for column, (name, limit) in enumerate(zip(("t", "out_row", "in_row"), limits, strict=True)):
        largest = int(entries[:, column].max()) if entries.size else -1
        if largest >= limit:
            raise InputError(f"picker entry with {name} {largest}; the tensors end at {limit - 1}")


def _deduplicate(masks: U32, stream: I64, streams: int) -> tuple[I64, U32, int]:
    """(which of its stream's distinct tiles each tile is, (streams, most, 32) row masks, most).

    A stream's distinct tiles stand in the order of their first use; `most` is the longest list, at least 1.
    """
    hashes = mask_hashes(masks)
    order = np.lexsort((hashes, stream))
    new = starts(stream[order], hashes[order])
    kind = np.empty(masks.shape[0], np.int64)
    kind[order] = np.cumsum(new) - 1
    first_use = order[new]  # lexsort is stable: the first of equal tiles comes first
    if not np.array_equal(masks[first_use[kind]], masks):
        raise InputError("two different sparse tiles share a 64-bit hash")
    by_use = np.argsort(first_use)
    by_use = by_use[np.argsort(stream[first_use[by_use]], kind="stable")]
    owner = stream[first_use[by_use]]
    rank = np.arange(owner.size) - np.searchsorted(owner, owner)
    most = max(1, int(np.bincount(owner, minlength=streams).max()))
    pointer_of_kind = np.empty(owner.size, np.int64)
    pointer_of_kind[by_use] = rank
    distinct = np.zeros((streams, most, TILE), np.uint32)
    distinct[owner, rank] = masks[first_use[by_use]]
    return pointer_of_kind[kind], distinct, most


def _paginate(words: I64, stream: I64, streams: int) -> tuple[I64, npt.NDArray[np.bool_], int]:
    """(first word of each strip in its stream, last-of-page flags, pages of the longest stream)."""
    ends = np.cumsum(words)
    begins = ends - words
    bounds = np.searchsorted(stream, np.arange(streams + 1))
    position = np.empty(words.size, np.int64)
    last = np.zeros(words.size, np.bool_)
    pages = 1
    for s in range(streams):
        start, page = int(bounds[s]), 0
        while start < bounds[s + 1]:  # one turn per page
            stop = int(np.searchsorted(ends[: bounds[s + 1]], begins[start] + PAGE_WORDS, side="right"))
            position[start:stop] = begins[start:stop] - begins[start] + page * PAGE_WORDS
            last[stop - 1] = True
            start, page = stop, page + 1
        pages = max(pages, page)
    return position, last, pages


def _too_wide(message: str, fix: str) -> PlacementError:
    return PlacementError(
        "a sparse matmul does not fit its 16-bit encoding",
        [Diagnostic("error", "sparse matmul", "IllegalSparseMatmul", message, fix)],
    )
