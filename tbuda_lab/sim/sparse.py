"""Sparse (identity) matmul: the encoding decoded once, then one product per group of columns; rows that a picker chose,
copied only when somebody needs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import scipy.sparse

from tbuda_lab.core.netlist.schema import Tm
from tbuda_lab.core.netlist.sparse import decode_to_csr
from tbuda_lab.sim.arrays import Array, shape_text
from tbuda_lab.sim.context import Kernel, OpContext
from tbuda_lab.sim.kernels import matmul as mm
from tbuda_lab.sim.windows import Windows, WindowSums, find_windows


@dataclasses.dataclass(frozen=True, eq=False)
class RowPicker:
    """A matrix whose rows hold a single 1 or nothing: the common case, in which a product copies rows.

    index: (z, R, k) the row of the source that stands at each place, 0 where none does; empty: the places, counted
    through, where none does. k rows of the source stand side by side in one row of the result.
    """

    index: Array
    empty: Array
    moved_by: dict[Callable[[Array], Array], RowPicker] = dataclasses.field(default_factory=dict)
    windows_of: dict[int, Windows | None] = dataclasses.field(default_factory=dict)

    def __matmul__(self, x: Array) -> Array:
        out = np.empty((self.index.size, x.shape[1]), x.dtype)
        self.into(out, x)
        return out

    def into(self, out: Array, x: Array) -> None:
        """Writes the product with x to `out`: (rows, columns)."""
        np.take(x, self.index.reshape(-1), axis=0, out=out, mode="clip")  # all in range; "raise" would copy first
        out[self.empty] = 0

    def signed_index(self) -> Array:
        """`index` with -1 where no row stands."""
        result = self.index.copy()
        result.reshape(-1)[self.empty] = -1
        return result

    def move(self, move: Callable[[Array], Array]) -> RowPicker:
        """The picker of what `move`, which keeps rows of the source whole, makes of the result."""
        picker = self.moved_by.get(move)
        if picker is None:
            rows = np.ascontiguousarray(move(self.signed_index()[None])[0])
            empty = np.flatnonzero(rows < 0)
            picker = self.moved_by[move] = RowPicker(np.maximum(rows, 0), empty)
        return picker

    def windows(self, blocks: int) -> Windows | None:
        """The windows of an image that the rows are, as the taps of a depthwise product of `blocks`; None if they are
        none."""
        if blocks not in self.windows_of:
            self.windows_of[blocks] = find_windows(self.signed_index()[..., 0], blocks)
        return self.windows_of[blocks]


class PickedRows:
    """The tensor (n, z, R, C) that `picker` takes from `source` (n, rows, columns). It stands for an array among the
    values of an epoch; `as_array` makes one of it. The source must not change before."""

    def __init__(self, source: Array, picker: RowPicker) -> None:
        self.source, self.picker = source, picker
        z, rows, side_by_side = picker.index.shape
        self.shape = (source.shape[0], z, rows, side_by_side * source.shape[2])
        self.dtype = source.dtype
        self._copy: Array | None = None

    def as_array(self) -> Array:
        """The rows, gathered at the first call."""
        if self._copy is None:
            self._copy = np.empty(self.shape, self.dtype)
            for x, out in zip(self.source, self._copy, strict=True):
                self.picker.into(out.reshape(-1, x.shape[1]), x)
        return self._copy

    def move(self, move: Callable[[Array], Array]) -> PickedRows:
        """What `move`, which keeps rows of the source whole, makes of it."""
        return PickedRows(self.source, self.picker.move(move))


def as_array(x: Array | PickedRows) -> Array:
    """The rows, gathered at the first call."""
    return x.as_array() if isinstance(x, PickedRows) else x


class DepthwiseRows:
    """`depthwise_taps` of the taps (n, z, blocks, R, C) that picked rows hold as (n, z * blocks, R, C), with one set of
    weights (n or 1, z, blocks, C)."""

    def __init__(self, weights: Array) -> None:
        self._weights = weights
        self._alike = not weights.strides[1] or bool((weights == weights[:, :1]).all())
        self._sums: tuple[RowPicker, WindowSums | None] | None = None  # for the picker that came last

    def of(self, x: PickedRows) -> Array | None:
        """None if a result is not finite, the rows are no windows of an image, or slices differ in their weights."""
        slices, blocks = self._weights.shape[1:3]
        if self._sums is None or self._sums[0] is not x.picker:
            windows = x.picker.windows(blocks) if self._alike else None
            self._sums = (
                x.picker,
                None if windows is None else WindowSums(windows, self._weights[:, 0], slices * x.shape[2]),
            )
        sums = self._sums[1]
        out = None if sums is None else sums.of(x.source)
        return None if out is None else out.reshape(len(out), slices, *x.shape[2:])


TILE = 32
_DENSE = 64  # values per tile from which blocks are quicker than single elements
Matrix = scipy.sparse.csr_matrix | scipy.sparse.bsr_matrix


def build_sparse(context: OpContext) -> Kernel:
    """inputs: sparse tiles, activation, encodings, optional bias row.

    Tiles and encodings are cut by grid rows and `fracture_factor` groups of columns; a group of columns of cores
    uses its own. Where the matrix only picks rows, and nothing is done to them, the kernel returns `PickedRows`, which
    stand for an array.
    """
    attributes = context.op.attributes
    if "sparse_tile_ptr_bits" not in attributes and {"indices_len", "num_columns", "starting_row"} & set(attributes):
        raise context.error(
            "sparse-encoding",
            "its encodings use the old format (indices_len, num_columns, starting_row), which is not supported",
            "encode the picker again, with sparse_tile_ptr_bits and sparse_ublock_idx_bits",
        )
    matrices = _Matrices(context)
    fracture = matrices.fracture
    t, rows, columns = context.shape
    h = context.tile_dim[0]  # a picker works in full tiles; smaller ones keep their first rows
    bias = context.flag("bias")
    spill = context.numerics.spill(context.op)

    def run(args: Sequence[Array], free: int | None) -> Array:
        tiles, act, words = args[:3]
        n = max(x.shape[0] for x in args[:3])
        height, width = act.shape[1] * act.shape[2], columns // fracture
        if act.shape[3] != columns:
            raise context.error("G8", f"the activation is (z, R, C) = {shape_text(act)}", f"it must be {columns} wide")
        if (
            spill is None
            and not bias
            and fracture == 1
            and h == TILE
            and act.dtype == np.float32
            and (tiles.shape[0] == words.shape[0] == 1)
        ):
            only = matrices.of(tiles[0], words[0], height)[0]
            if isinstance(only, RowPicker):
                source = np.ascontiguousarray(act.reshape(-1, height, columns))
                return cast(Array, PickedRows(source, only))
        out = np.empty((n, t, rows, columns), np.float32)
        for i in range(n):
            own = matrices.of(tiles[i % tiles.shape[0]], words[i % words.shape[0]], height)
            x = act[i % act.shape[0]].reshape(height, columns)
            if fracture == 1 and h == TILE and isinstance(own[0], RowPicker) and x.dtype == out.dtype:
                own[0].into(out[i].reshape(t * rows, columns), np.ascontiguousarray(x))
                continue
            for g, matrix in enumerate(own):
                part = slice(g * width, (g + 1) * width)
                product = matrix @ np.ascontiguousarray(x[:, part])
                out[i, :, :, part] = product.reshape(t, rows // h, TILE, width)[:, :, :h].reshape(t, rows, width)
        if spill is not None:
            out = spill(out)
        return mm.add_row(out, args[3], context.tile_dim[0], context.input_tiles[3][0]) if bias else out

    return run


class _Matrices:
    """The matrices of a sparse matmul, a group of columns each; those that came last are kept until other tiles or
    encodings arrive."""

    def __init__(self, context: OpContext) -> None:
        self._context = context
        self.fracture = context.whole("fracture_factor", 1)
        self._u_kt = context.whole("u_kt")
        self._pointer_bits = context.whole("sparse_tile_ptr_bits")
        self._index_bits = context.whole("sparse_ublock_idx_bits", -1)
        self._last: tuple[Array, Array, int, list[Matrix | RowPicker]] | None = None

    def of(self, tiles: Array, words: Array, act_rows: int) -> list[Matrix | RowPicker]:
        """tiles, words: of one entry of their queues; act_rows: of the activation, slices stacked."""
        if self._last is not None:
            last_tiles, last_words, last_rows, matrices = self._last
            if last_rows == act_rows and same_memory(last_tiles, tiles) and same_memory(last_words, words):
                return matrices
        op = self._context.op
        blocks = self._per_core(tiles, 0).astype(np.float32, copy=False)
        encodings = self._per_core(words, 2).astype(np.int32, copy=False).view(np.uint32)
        matrices = [
            _compact(m, self._context.shape[0])
            for m in decode_to_csr(
                blocks,
                encodings.reshape(op.grid_size[0], self.fracture, -1),
                t=self._context.shape[0],
                mblock_m=op.blocking.mblock[0],
                ublock_r=op.blocking.ublock[0],
                u_kt=self._u_kt,
                act_rows=act_rows,
                pointer_bits=self._pointer_bits,
                index_bits=None if self._index_bits < 0 else self._index_bits,
                where=f"op {op.name!r}",
            )
        ]
        self._last = tiles, words, act_rows, matrices
        return matrices

    def _per_core(self, x: Array, index: int) -> Array:
        """(z, R, C) -> (grid rows, column groups, tiles, 32, 32); what a broadcast along c repeats is left out."""
        op, fracture = self._context.op, self.fracture
        grid_r = op.grid_size[0]
        rt, ct = x.shape[1] // TILE, x.shape[2] // TILE // _column_repeats(op.inputs[index].tms or ())
        if rt % grid_r or ct % fracture:
            raise self._context.error(
                "G8",
                f"input {index} is {rt} x {ct} tiles",
                f"it is cut into {grid_r} grid rows and {fracture} groups of columns",
            )
        tiles = x[0, :, : ct * TILE].reshape(grid_r, rt // grid_r, TILE, fracture, ct // fracture, TILE)
        return np.ascontiguousarray(tiles.transpose(0, 3, 1, 4, 2, 5)).reshape(grid_r, fracture, -1, TILE, TILE)


def same_memory(x: Array, y: Array) -> bool:
    """Whether two arrays are the same bytes. Slots are never written in place, and the caller holds on to one."""
    return x is y or (
        x.__array_interface__["data"] == y.__array_interface__["data"]
        and x.shape == y.shape
        and x.strides == y.strides
        and x.dtype == y.dtype
    )


def _compact(matrix: scipy.sparse.csr_matrix, slices: int) -> Matrix | RowPicker:
    """As a picker of rows, or as blocks of tiles where single elements would take longer."""
    per_row = np.diff(matrix.indptr)
    if per_row.size and per_row.max() <= 1 and (matrix.data == 1).all():
        index = np.zeros(per_row.size, np.intp)
        index[per_row == 1] = matrix.indices
        return RowPicker(index.reshape(slices, -1, 1), np.flatnonzero(per_row == 0))
    blocks = matrix.tobsr((TILE, TILE)) if matrix.nnz > 1 << 20 else None
    return blocks if blocks is not None and matrix.nnz > _DENSE * max(1, blocks.indices.size) else matrix


def _column_repeats(tms: Sequence[Tm]) -> int:
    repeats = 1
    for tm in tms:
        if tm.name == "broadcast":
            for dim, k in tm.args:
                repeats *= int(k) if dim == "c" else 1
    return repeats
