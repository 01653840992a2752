"""Elementwise arithmetic in float32 (float64 for integer tensors), as the golden model defines it.

Every function takes `out`, an array of the result's shape that may be one of the operands, or None for a fresh one.
Clean-ups of rare values (0 times infinity, overflow) look at one dot product of the result with itself, which is NaN
or infinite if any element is, and costs a tenth of the operation.

Reductions within tiles' rows, columns or over slices, and top-k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tbuda_lab.sim.arrays import Array, TileDim
from tbuda_lab.sim.kernels.libraries import MANY, loaded_torch, tensor

EPSILON = np.float32(1.1920929e-7)
_MAX = np.finfo(np.float32).max
_CHUNK = 1 << 16
_SQRT_2_OVER_PI = 0.7978845608028654
_INV_SQRT_2PI = 0.3989422804014327

Unary = Callable[[Array, Array | None], Array]
Binary = Callable[[Array, Array, Array | None], Array]


def _square_sum(x: Array) -> float:
    """A number that is NaN or infinite if an element of x is; may be infinite for large finite ones too."""
    flat = x.reshape(-1) if x.flags.c_contiguous else x.ravel(order="K")
    return float(flat.dot(flat))


_LARGE = 1 << 14
"""Numbers from which torch is faster where columns of an operand are equal: NumPy goes through it row by row."""


def _pair(name: str) -> Binary:
    """The function of two operands that NumPy and torch have by this name."""
    plain = getattr(np, name)

    def run(x: Array, y: Array, out: Array | None = None) -> Array:
        columns = (x.strides[-1] == 0 or y.strides[-1] == 0) and max(x.size, y.size) >= _LARGE
        torch = loaded_torch() if columns and x.dtype == y.dtype == np.float32 else None
        result: Array
        if torch is None:
            result = plain(x, y, out=out)
            return result
        function = getattr(torch, name)
        if out is None:
            result = function(tensor(torch, x), tensor(torch, y)).numpy()
            return result
        function(tensor(torch, x), tensor(torch, y), out=torch.from_numpy(out))
        return out

    return run


add, subtract, maximum, _multiply = _pair("add"), _pair("subtract"), _pair("maximum"), _pair("multiply")


def multiply(x: Array, y: Array, out: Array | None = None) -> Array:
    """x * y, where zero times anything, infinity and NaN included, is zero."""
    if x is y or _harmless(y) or _harmless(x):
        return _multiply(x, y, out)
    product = _multiply(x, y, out if out is not x and out is not y else None)
    if math.isnan(_square_sum(product)):
        product[(np.broadcast_to(x, product.shape) == 0) | (np.broadcast_to(y, product.shape) == 0)] = 0
    return product


def _harmless(x: Array) -> bool:
    """Whether rows or columns of x are repeated, finite, and never zero: then no product is zero that would not be."""
    if x.strides[-1] == 0 or x.strides[-2] == 0:
        part = x[..., :1] if x.strides[-1] == 0 else x[..., :1, :]
        return bool(np.isfinite(part).all() and part.all())
    return False


def exp(x: Array, out: Array | None = None) -> Array:
    """e**x, at most the largest float32."""
    result: Array = np.exp(x, out=out)
    if not math.isfinite(_square_sum(result)):
        np.minimum(result, result.dtype.type(_MAX), out=result)
    return result


def log(x: Array, out: Array | None = None) -> Array:
    """Natural logarithm; that of zero is the one of `EPSILON`."""
    result: Array = np.log(x, out=out)
    if not math.isfinite(_square_sum(result)):
        result[np.isneginf(result)] = np.log(EPSILON)
    return result


def reciprocal(x: Array, out: Array | None = None) -> Array:
    """1 / x; that of zero of either sign is 1 / `EPSILON`."""
    result: Array = np.reciprocal(x, out=out if out is not x else None)
    if not math.isfinite(_square_sum(result)):
        result[x == 0] = 1 / EPSILON
    return result


def sqrt(x: Array, out: Array | None = None) -> Array:
    return np.sqrt(x, out=out)


def absolute(x: Array, out: Array | None = None) -> Array:
    return np.abs(x, out=out)


def square(x: Array, out: Array | None = None) -> Array:
    return np.multiply(x, x, out=out)


def sine(x: Array, out: Array | None = None) -> Array:
    return np.sin(x, out=out)


def cosine(x: Array, out: Array | None = None) -> Array:
    return np.cos(x, out=out)


def tanh(x: Array, out: Array | None = None) -> Array:
    return np.tanh(x, out=out)


def sigmoid(x: Array, out: Array | None = None) -> Array:
    """1 / (1 + exp(-x))."""
    result: Array = np.negative(x, out=out)
    np.exp(result, out=result)
    result += 1
    return np.reciprocal(result, out=result)


def gelu(x: Array, out: Array | None = None) -> Array:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))), in pieces that stay in the cache."""
    return _in_pieces(x, out, _gelu_piece)


def _gelu_piece(x: Array, out: Array, t: Array) -> None:
    np.multiply(_share(x, t), x, out=out)


def _share(x: Array, t: Array) -> Array:
    """(1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))/2, into t: the share of x that gelu lets through."""
    np.multiply(x, x, out=t)
    t *= 0.044715 * _SQRT_2_OVER_PI
    t += _SQRT_2_OVER_PI
    t *= x
    np.tanh(t, out=t)
    t += 1
    t *= 0.5
    return t


def gelu_derivative(x: Array, out: Array | None = None) -> Array:
    """(1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))/2 + x pdf(x), pdf the normal density."""
    return _in_pieces(x, out, _gelu_derivative_piece)


def _gelu_derivative_piece(x: Array, out: Array, t: Array) -> None:
    density = np.exp(-0.5 * x * x)
    density *= x
    density *= _INV_SQRT_2PI
    np.add(_share(x, t), density, out=out)


def _in_pieces(x: Array, out: Array | None, piece: Callable[[Array, Array, Array], None]) -> Array:
    if x.flags.c_contiguous and (out is None or out is x):
        result = np.empty_like(x) if out is None else x
        flat, target, apart = x.reshape(-1), result.reshape(-1), out is None
    else:
        result = out if out is not None and _one_layout(x, out) else np.empty_like(x)
        if not (_one_layout(x, result) and np.may_share_memory(result, result.ravel(order="K"))):
            x = np.ascontiguousarray(x)
            result = np.empty_like(x)
        flat, target = x.ravel(order="K"), result.ravel(order="K")
        apart = not np.may_share_memory(flat, target)
    scratch = target if apart else np.empty(min(_CHUNK, flat.size), flat.dtype)
    for start in range(0, flat.size, _CHUNK):
        part, own = flat[start : start + _CHUNK], target[start : start + _CHUNK]
        piece(part, own, own if apart else scratch[: part.size])
    return result


def _one_layout(x: Array, y: Array) -> bool:
    """Whether the elements of two arrays of one shape lie in memory in the same order."""
    return all(a == b or size == 1 for a, b, size in zip(x.strides, y.strides, x.shape, strict=True))


def lrelu(slope: float) -> Unary:
    """x where x > 0, else slope * x."""

    def run(x: Array, out: Array | None = None) -> Array:
        scaled = x * x.dtype.type(slope)
        result: Array = np.maximum(x, scaled, out=out) if 0 <= slope <= 1 else np.where(x > 0, x, scaled)
        return result

    return run


def power(exponent: int) -> Unary:
    """x**exponent by repeated multiplication; the reciprocal of that for a negative exponent."""

    def run(x: Array, out: Array | None = None) -> Array:
        result = np.ones_like(x) if exponent == 0 else x.copy()
        for _ in range(abs(exponent) - 1):
            result *= x
        return np.reciprocal(result, out=result) if exponent < 0 else result

    return run


def dropout(p: float, rng: np.random.Generator) -> Unary:
    """x / (1 - p) with probability 1 - p, else 0."""
    scale = np.float32(1 / (1 - p)) if p < 1 else np.float32(0)

    def run(x: Array, out: Array | None = None) -> Array:
        result = rng.random(x.shape, dtype=np.float32) >= p
        return np.multiply(x * scale, result, out=out)

    return run


def vector_region(mode: object) -> tuple[int, int] | None:
    """Rows and columns of each tile that a written `vector` mode works on; None for all of them."""
    if mode is None or str(mode) == "rc":
        return None
    return (4, 32) if str(mode) == "r" else (32, 16)


def partial(function: Unary, x: Array, region: tuple[int, int], tile_dim: tuple[int, int]) -> Array:
    """`function` on the top left `region` of every tile; the rest of the tile stays as it is."""
    h, w = tile_dim
    out = x.copy()
    tiles = out.reshape(*x.shape[:2], x.shape[2] // h, h, x.shape[3] // w, w)
    part = tiles[:, :, :, : region[0], :, : region[1]]
    part[...] = function(np.ascontiguousarray(part), None)
    return out


def build_unary(kind: str, attributes: dict[str, Any], rng: np.random.Generator | None) -> Unary | None:
    """The function of a unary op with its attributes (slope, exp, p); None for an unknown type."""
    if kind == "lrelu":
        return lrelu(float(attributes.get("slope", 0.01)))
    if kind == "power":
        return power(int(attributes.get("exp", 1)))
    if kind == "dropout":
        assert rng is not None
        return dropout(float(attributes.get("p", 0.0)), rng)
    return UNARY.get(kind)


def relu(x: Array, threshold: float, mode: str, out: Array | None = None) -> Array:
    """The packer's relu. "min": x where x >= threshold, else 0; "max": threshold where x >= threshold, else
    max(x, 0)."""
    torch = loaded_torch() if out is x and x.size >= MANY and x.dtype == np.float32 else None
    if torch is not None and (mode == "max" or threshold == 0):
        torch.clamp_(torch.from_numpy(x), 0, threshold if mode == "max" else None)
        return x
    if mode == "max":
        clipped: Array = np.clip(x, 0, x.dtype.type(threshold), out=out)
        return clipped
    if threshold == 0:
        return np.maximum(x, 0, out=out)
    result: Array = np.where(x >= x.dtype.type(threshold), x, x.dtype.type(0))
    return result


UNARY: dict[str, Unary] = {
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "gelu": gelu,
    "gelu_derivative": gelu_derivative,
    "reciprocal": reciprocal,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "square": square,
    "sine": sine,
    "cosine": cosine,
    "abs": absolute,
}
BINARY: dict[str, Binary] = {"add": add, "subtract": subtract, "multiply": multiply, "maximum": maximum}


def quantization(x: Array, scale: Array, zero_point: float) -> Array:
    """x * scale + zero_point, not yet rounded (the output format rounds)."""
    result: Array = x * scale + x.dtype.type(zero_point)
    return result


def dequantization(x: Array, scale: Array, zero_point: float) -> Array:
    """(x - zero_point) * scale."""
    result: Array = (x - x.dtype.type(zero_point)) * scale
    return result


def _largest(x: Array, axis: int) -> Array:
    """The maximum along an axis, NaN if there is one; by torch where it is loaded, which takes a fifth of the time."""
    torch = loaded_torch() if x.size >= MANY else None
    if torch is None or x.dtype != np.float32 or not x.flags.writeable:
        plain: Array = np.maximum.reduce(x, axis=axis)
        return plain
    result: Array = torch.amax(torch.from_numpy(x), axis).numpy()
    return result


def reduce(x: Array, dim: str, func: str, tile_dim: TileDim, groups: tuple[int, int], z: int) -> Array:
    """Maximum or sum of (n, z, R, C) over rows ("r"), columns ("c"), both ("rc") or every `z` slices ("z").

    tile_dim: (height, width) of the output's tiles. groups: how many parts of rows and columns are reduced each for
    itself (the cores of the grid). The result of a part stands in row 0, column 0 or element 0 of one tile; the rest
    of the tile is 0.
    """
    pick = _largest if func == "max" else np.add.reduce
    n, slices, rows, columns = x.shape
    if dim == "z":
        reduced: Array = pick(x.reshape(n, slices // z, z, rows, columns), axis=2)
        return reduced
    h, w = tile_dim
    over_r, over_c = "r" in dim, "c" in dim
    if over_r:
        x = pick(x.reshape(n, slices, groups[0], rows // groups[0], columns), axis=3)
    if over_c:
        x = pick(x.reshape(n, slices, x.shape[2], groups[1], columns // groups[1]), axis=4)
    out = np.zeros((n, slices, x.shape[2] * (h if over_r else 1), x.shape[3] * (w if over_c else 1)), x.dtype)
    out[:, :, :: h if over_r else 1, :: w if over_c else 1] = x
    return out


def topk(values: Array, indices: Array, k: int, columns_of_cores: int, out_columns: int, sort: str) -> Array:
    """The k largest of each row on each core column, descending, or (sort "argmax") what stands at their places in
    `indices`; equal values in order of their place. Columns beyond k are 0.

    The attribute `kreduce` chooses how the machine's sorting network is cut into passes; which values win does not
    depend on it, so it is no argument here.

    values, indices: (n, z, R, C), either with n = 1 when it serves all; the result (n, z, R, out_columns).
    """
    if sort == "argmax" and len(values) != len(indices):
        values, indices = np.broadcast_arrays(values, indices)
    n, z, rows, columns = values.shape
    parts = values.reshape(n, z, rows, columns_of_cores, columns // columns_of_cores)
    order = np.argsort(-parts, axis=-1, kind="stable")[..., :k]
    source = indices.reshape(parts.shape) if sort == "argmax" else parts
    ordered = np.take_along_axis(source, order, axis=-1)
    out = np.zeros((n, z, rows, columns_of_cores, out_columns // columns_of_cores), ordered.dtype)
    out[..., : ordered.shape[-1]] = ordered
    return out.reshape(n, z, rows, out_columns)
