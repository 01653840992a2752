"""Dense matmul, depthwise matmul and what follows them in the same op; products of float32 matrices by the BLAS that
this process has."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tbuda_lab.sim.arrays import Array, TileDim
from tbuda_lab.sim.kernels.libraries import MANY, faster_torch, loaded_torch, tensor

_FEW = 1 << 15
"""Multiplications below which NumPy has finished before torch has begun."""

_CLASHING = 512
"""Rows this many elements apart, or a multiple of it, displace one another from the processor's cache."""
_GAP = 16


def product(a: Array, b: Array, out: Array | None = None, packed: PackedOperand | None = None) -> Array:
    """a @ b as `np.matmul` has it: (rows, inner) and (inner, columns), or (n or 1, z, rows, inner) and (n or 1, z or 1,
    inner, columns). out: C-contiguous, of the result's shape. packed: of b in two dims, where the caller keeps one."""
    packed_product = None if packed is None else packed.product(a, b)
    if packed_product is not None:
        if out is None:
            return packed_product
        out[...] = packed_product
        return out
    torch = faster_torch()
    several = a.ndim == 4
    shape = (max(len(a), len(b)), *a.shape[1:-1], b.shape[-1]) if several else (len(a), b.shape[-1])
    if (
        torch is None
        or a.dtype != np.float32
        or b.dtype != np.float32
        or a.shape[-1] != b.shape[-2]
        or (math.prod(shape) * a.shape[-1] < _FEW)
        or (several and b.shape[1] not in (1, a.shape[1]))
    ):
        plain: Array = np.matmul(a, b, out=out)
        return plain
    result = np.empty(shape, np.float32) if out is None else out
    if not several:
        torch.mm(tensor(torch, a), tensor(torch, b), out=torch.from_numpy(result))
        return result
    for i, target in enumerate(result):
        left, right = (tensor(torch, x[i if len(x) > 1 else 0]) for x in (a, b))
        torch.bmm(left, right.expand(a.shape[1], -1, -1), out=torch.from_numpy(target))
    return result


_PACKED_ROWS = range(33, 1025)
_PACKED_NUMBERS = 1 << 19
"""Rows of a first operand, and numbers of a second one, from which on a product gains by a packed second operand."""
_PLAIN_PRODUCTS = 3
"""Products of the same memory before it is packed: packing takes as long as some twenty products gain."""


@functools.cache
def packed_products() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """torch's calls of MKL that pack a matrix and multiply with it; None where this torch has none that work."""
    torch = faster_torch()
    try:
        pack, linear = torch.ops.mkl._mkl_reorder_linear_weight, torch.ops.mkl._mkl_linear
        x, weight = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        works = torch.equal(linear(x, pack(weight, 2), weight, None, 2), weight.t())
    except (AttributeError, RuntimeError):
        return None
    return (pack, linear) if works else None


class PackedOperand:
    """The second operand of an op's products. Once `_PLAIN_PRODUCTS` have met the same memory it is packed as MKL reads
    it, which MKL would else do in every product. The sums are those of a plain product."""

    def __init__(self) -> None:
        self._owner: Callable[[], object] = lambda: None
        self._key: tuple[object, ...] = ()
        self._products = 0
        self._packed: Any = None

    def product(self, a: Array, b: Array) -> Array | None:
        """a (rows, inner) @ b (inner, columns), or None where a plain product is to be made."""
        if len(a) not in _PACKED_ROWS or b.size < _PACKED_NUMBERS or a.dtype != np.float32 or b.dtype != np.float32:
            return None
        calls = packed_products()
        if calls is None:
            return None
        owner: Any = b
        while getattr(owner, "base", None) is not None:  # `as_strided` puts an object of its own between
            owner = owner.base
        if not isinstance(owner, np.ndarray):
            return None
        key = (b.__array_interface__["data"], b.shape, b.strides, len(a))
        if self._owner() is not owner or key != self._key:
            self._owner, self._key, self._products, self._packed = weakref.ref(owner), key, 0, None
        self._products += 1
        if self._products <= _PLAIN_PRODUCTS:
            return None
        torch = faster_torch()
        weight = tensor(torch, b).t()
        if self._packed is None:
            self._packed = calls[0](weight.contiguous(), len(a))
        result: Array = calls[1](tensor(torch, a), self._packed, weight, None, len(a)).numpy()
        return result


def spread_rows(x: Array) -> Array:
    """x, copied with a gap after each row where rows would displace one another from the processor's cache."""
    columns = x.shape[-1]
    if columns % _CLASHING or x.shape[-2] == 1:
        return x
    apart = np.empty((*x.shape[:-1], columns + _GAP), x.dtype)
    apart[..., :columns] = x
    return apart[..., :columns]


Round = Callable[[Array], Array]
"""Rounds an array it may overwrite."""

_TILE = 32
_LONG = 512
"""Inner dimension from which the order of a sum depends on the number of rows, in MKL as in OpenBLAS."""
_FEW_ROWS = 4
"""Rows of a product of rows that stand for a tile each: with one, the order of a sum would be another at any inner
dimension, and more take longer where there is but one."""


def blas_ready(x: Array) -> Array:
    """x, copied only if its last two axes are laid out in a way that BLAS cannot walk."""
    item = x.itemsize
    row, column = x.strides[-2:]
    rows, columns = x.shape[-2:]
    by_rows = column == item and row % item == 0 and row // item >= columns
    by_columns = row == item and column % item == 0 and column // item >= rows
    return x if by_rows or by_columns or rows == 1 or columns == 1 else np.ascontiguousarray(x)


def matmul(a: Array, b: Array, out: Array | None = None, packed: PackedOperand | None = None) -> Array:
    """out[n, z] = a[n, z] @ b[n, z]; a (n, z, M, K), b (n or 1, z, K, N).

    Slices of b beyond those of a are not used. One b for all inputs and slices makes one large product of it, with
    `packed` if the caller keeps one for it.
    """
    n, z, rows, inner = a.shape
    b = blas_ready(b[:, :z])
    if n == z == len(b) == 1 and out is None and a.size * b.shape[3] < _FEW:
        few: Array = np.matmul(blas_ready(a), b)
        return few
    if b.shape[1] > 1 and b.strides[1] == 0:
        b = b[:, :1]
    if b.shape[0] == 1 and b.shape[1] == 1:
        flat = a.reshape(n * z * rows, inner) if a.flags.c_contiguous or n * z == 1 else None
        if flat is not None:
            shape = (n, z, rows, b.shape[3])
            if out is None and flat.size * b.shape[3] >= _FEW and tiles_of_one_row(flat):
                alike = _by_rows(np.ascontiguousarray(flat[::_TILE]), b[0, 0], _FEW_ROWS)
                return np.repeat(alike, _TILE, axis=0).reshape(shape)
            target = out.reshape(n * z * rows, b.shape[3]) if out is not None else None
            return _by_rows(blas_ready(flat), b[0, 0], z * rows, target, packed).reshape(shape)
    return product(blas_ready(a), b, out)


class RowProduct:
    """Products of a tensor of which memory holds one row, which stands for a tile of them, with the bits of the whole
    product. What depends on the second operand alone is done when another one comes."""

    def __init__(self) -> None:
        self._b: Array | None = None
        self._row = self._result = np.empty(0, np.float32)
        self._multiply: Callable[[], object] = lambda: None

    def product(self, a: Array, b: Array) -> Array | None:
        """(1, 1, 1, N), of a (1, 1, M, K) and b (1, 1 or more, K, N); None for more inputs or slices, and other than
        float32."""
        if len(a) > 1 or a.shape[1] > 1 or len(b) > 1 or not a.dtype == b.dtype == np.float32:
            return None
        if b is not self._b:
            rows, results = (np.zeros((_FEW_ROWS, size), np.float32) for size in b.shape[2:])
            self._b, self._row, self._result = b, rows[0], results[None, None, :1]
            self._multiply = _multiplication(rows, blas_ready(b[0, 0]), results)
        self._row[...] = a[0, 0, 0]
        self._multiply()
        return self._result.copy()


def _multiplication(a: Array, b: Array, out: Array) -> Callable[[], object]:
    """`product` of these two matrices, for whatever they hold when it is called."""
    torch = faster_torch() if a.shape[0] * b.size >= _FEW else None
    if torch is None:
        return functools.partial(np.matmul, a, b, out)
    return functools.partial(torch.mm, torch.from_numpy(a), tensor(torch, b), out=torch.from_numpy(out))


def _by_rows(a: Array, b: Array, rows: int, out: Array | None = None, packed: PackedOperand | None = None) -> Array:
    """a (n * rows, K) @ b (K, N) with the bits that each `rows` rows give by themselves. Where K is long, the BLAS sums
    in an order that depends on the number of rows, so that each part is a product of its own."""
    if len(a) % rows:
        padded = np.zeros((-(-len(a) // rows) * rows, a.shape[1]), a.dtype)  # whole parts
        padded[: len(a)] = a
        whole = _by_rows(padded, b, rows)[: len(a)]
        if out is None:
            return whole
        out[:] = whole
        return out
    step = rows if a.shape[1] >= _LONG and rows < len(a) else len(a)
    if out is None and step == len(a):
        return product(a, b, packed=packed)
    result = np.empty((len(a), b.shape[1]), np.result_type(a, b)) if out is None else out
    for begin in range(0, len(a), step):
        product(a[begin : begin + step], b, result[begin : begin + step], packed)
    return result


def joined_columns(b: Array, z: int) -> Array | None:
    """(n, 1, K, z * N): the first z slices of b side by side, where they are columns of one matrix in memory; else
    None. One product of it serves all slices."""
    n, slices, inner, columns = b.shape
    if z == 1 or slices < z or b.strides[3] != b.itemsize or b.strides[1] != columns * b.itemsize:
        return None
    return np.lib.stride_tricks.as_strided(b, (n, 1, inner, z * columns), b.strides)


def cut_columns(x: Array, z: int) -> Array:
    """(n, 1, R, z * C) as (n, z, R, C), without a copy: slices lie side by side in memory."""
    n, _, rows, columns = x.shape
    return x.reshape(n, rows, z, columns // z).swapaxes(1, 2)


def tiles_of_one_row(x: Array) -> bool:
    """Whether all rows of every tile of x (R, C) have the same bits, as where a model's tensor has a single row: the
    host fills the tile with it."""
    rows, columns = x.shape
    if x.strides[0] == 0:
        return True
    if rows % _TILE or x.dtype != np.float32 or not x.flags.c_contiguous or x[0, 0] != x[_TILE - 1, 0]:
        return False
    tiles = x.view(np.uint32).reshape(-1, _TILE, columns)
    return bool((tiles[0, 0] == tiles[0, -1]).all() and (tiles[:, 1:] == tiles[:, :1]).all())


def blocked_matmul(a: Array, b: Array, blocks: int, spill: Round) -> Array:
    """As `matmul`, with K in `blocks` equal parts whose running sum `spill` rounds after each but the last; spill
    works in place."""
    step = a.shape[3] // blocks
    if a.shape[0] > 1 and b.shape[0] == b.shape[1] == 1:  # one tall matrix, whose parts BLAS can walk
        shape = (*a.shape[:3], b.shape[3])
        a = np.ascontiguousarray(a).reshape(1, 1, -1, a.shape[3])
        return blocked_matmul(a, b, blocks, spill).reshape(shape)
    total = matmul(a[..., :step], b[:, :, :step])
    part = np.empty_like(total)
    for k in range(1, blocks):
        total = spill(total)
        total += matmul(a[..., k * step : (k + 1) * step], b[:, :, k * step : (k + 1) * step], part)
    return total


def accumulate(x: Array, groups: int) -> Array:
    """Sum of every `groups` consecutive slices."""
    n, z, rows, columns = x.shape
    total: Array = x.reshape(n, z // groups, groups, rows, columns).sum(axis=2)
    return total


def add_row(x: Array, bias: Array, h: int, hb: int) -> Array:
    """Adds row 0 of each tile of `bias` to every row of the tile; overwrites x unless its shape is too small.

    x (n, z, R, C) in tiles of h rows, bias (n or 1, z or 1, as many tile rows as x, C) in tiles of hb rows.
    """
    n, z, rows, columns = x.shape
    if rows == h and len(bias) <= n and x.size < MANY:
        x += bias[:, :, :1]
        return x
    row = bias.reshape(*bias.shape[:2], bias.shape[2] // hb, hb, columns)[:, :, :, :1]
    torch = loaded_torch() if x.size >= MANY and x.dtype == bias.dtype == np.float32 else None
    if torch is not None and row.shape[0] <= n and (row.shape[2] == 1 or row.strides[2] == 0):
        torch.from_numpy(x).add_(tensor(torch, row[:, :, 0]))
        return x
    tiles = x.reshape(n, z, rows // h, h, columns)
    if row.shape[0] > n:
        return (tiles + row).reshape(-1, z, rows, columns)
    tiles += row
    return x


def depthwise(a: Array, b: Array, blocks: int, tile_dim: TileDim) -> Array:
    """out(r, c) = sum over k of a(r, c + ct * k) @ b(k, c), tile by tile.

    a (n, z, R, blocks * C), b (n, z, blocks * inner, C) with C = ct tiles; inner is the width of a's tiles.
    """
    n, z, rows, wide = a.shape
    columns = b.shape[3]
    w = tile_dim[1]
    ct = columns // w
    inner = b.shape[2] // blocks
    taps = a.reshape(n, z, rows, blocks, wide // (blocks * inner), inner)
    right = b.reshape(b.shape[0], b.shape[1], blocks * inner, ct, w)[:, :z]
    out = np.empty((max(n, right.shape[0]), z, rows, ct, w), np.result_type(a, b))
    left = np.empty((n, z, rows, blocks, inner), a.dtype)  # one column of tiles: it stays in the processor's cache
    for c in range(ct):
        left[:] = taps[..., c, :]
        np.matmul(left.reshape(n, z, rows, blocks * inner), right[..., c, :], out=out[..., c, :])
    return out.reshape(-1, z, rows, columns)


PIECE = 1 << 17
"""Numbers of a product that are finished (bias, relu) before the next ones are begun."""


def pieces(x: Array, height: int, size: int = 0) -> Iterator[tuple[slice, slice, slice]]:
    """x (n, z, R, C) in pieces of about `size` numbers (`PIECE`): inputs, slices and rows of each, whole tiles."""
    n, z, rows, columns = x.shape
    size = size or PIECE
    if x.size <= size:
        yield slice(0, n), slice(0, z), slice(0, rows)
        return
    step = max(1, size // (columns * height)) * height
    for i in range(n):
        for s in range(z):
            for begin in range(0, rows, step):
                yield slice(i, i + 1), slice(s, s + 1), slice(begin, min(begin + step, rows))


def by_pieces(a: Array, b: Array) -> bool:
    """Whether a product is worth making in pieces: one second operand, many results, and sums so short that their bits
    do not depend on the number of rows."""
    n, z, rows, inner = a.shape
    return (
        len(b) == 1
        and (b.shape[1] == 1 or b.strides[1] == 0)
        and n * z * rows * b.shape[3] > 2 * PIECE
        and (inner < _LONG)
        and a.dtype == b.dtype == np.float32
    )


def rows_of_bias(bias: Array, inputs: slice, slices: slice, rows: slice, height: int, bias_height: int) -> Array:
    """What `add_row` adds to such a piece; height and bias_height are those of the tiles."""
    own = slice(rows.start // height * bias_height, rows.stop // height * bias_height)
    return bias[inputs if len(bias) > 1 else slice(None), slices if bias.shape[1] > 1 else slice(None), own]


CHUNK = 1 << 14
"""Numbers of a tensor that are worked on together, so that sums stay in the processor's cache."""


def diagonals(b: Array, blocks: int, w: int) -> Array | None:
    """(n, z, blocks, C) the weight of every channel and block, of b (n, z, blocks * inner, C); None where tiles are not
    square or hold anything beside their diagonal."""
    n, z, height, columns = b.shape
    if height != blocks * w or b.dtype != np.float32:
        return None
    tiles = b.reshape(n, z, blocks, w, columns // w, w)
    weights = np.ascontiguousarray(np.einsum("nzkici->nzkci", tiles)).reshape(n, z, blocks, columns)
    return weights if np.count_nonzero(weights) == np.count_nonzero(b) else None


def depthwise_taps(a: Array, weights: Array) -> Array | None:
    """out(r, c) = sum over k of a(k, r, c) * weights(k, c), in ascending k; None if a result is not finite.

    a (n, z, blocks, R, C), weights (n or 1, z, blocks, C). With finite results this is what `depthwise` calculates of
    diagonal tiles, in which zeros add nothing; there each product and sum is rounded once, here both are.
    """
    n, z, blocks, rows, columns = a.shape
    count = max(n, weights.shape[0])
    out = np.empty((count, z, rows, columns), np.float32)
    step = min(rows, max(1, CHUNK // columns))
    product = np.empty((step, columns), np.float32)
    for i in range(count):
        for s in range(z):
            own = weights[i if weights.shape[0] > 1 else 0, s]
            repeated = np.ascontiguousarray(np.broadcast_to(own[:, None], (blocks, step, columns)))
            taps = a[i if n > 1 else 0, s]
            for begin in range(0, rows, step):
                total = out[i, s, begin : begin + step]
                size = len(total)
                np.multiply(taps[0, begin : begin + step], repeated[0, :size], out=total)
                part = product[:size]
                for k in range(1, blocks):
                    np.multiply(taps[k, begin : begin + step], repeated[k, :size], out=part)
                    total += part
                total += np.float32(0)  # no negative zero, as where a sum begins with 0
    # a sum of finite numbers is finite, but for an overflow: then the tiles are multiplied as they are
    return out if np.isfinite(np.einsum("nzrc->", out)) else None
