"""Matrix products, convolutions, pools and norms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.ops import unary
from tbuda_lab.core.ops.conv import Conv2d, Conv2dTranspose
from tbuda_lab.core.ops.norm import Softmax
from tbuda_lab.core.ops.pool import AvgPool2d, MaxPool2d
from tbuda_lab.core.ops.reduce import Matmul
from tbuda_lab.core.ops.tm import Concatenate, Pad, Transpose
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.errors import poplar_application_runtime_error
from tbuda_lab.popxl.fp8_utils import decode8, encode8
from tbuda_lab.popxl.kinds.table import Attrs, Ground, NotOnGrid, add
from tbuda_lab.popxl.utils import product


def _matmul(g: Ground, a: Attrs, x: str, y: str) -> str:
    """NumPy's rules: a vector is a row on the left and a column on the right."""
    p, q = g.shape(x), g.shape(y)
    left = g.reshape(x, (1, *p)) if len(p) == 1 else x
    right = g.reshape(y, (*q, 1)) if len(q) == 1 else y
    z = g.op(Matmul(), left, right)
    shape = list(g.shape(z))
    if len(p) == 1:
        del shape[-2]
    if len(q) == 1:
        del shape[-1]
    return g.reshape(z, shape)


add("MatMul", torch=lambda a, x, y: torch.matmul(x, y), numpy=lambda a, x, y: np.matmul(x, y), grid=_matmul)


# -- 8-bit floats ------------------------------------------------------------------------------------------------------
def _decoded(a: Attrs, x: np.ndarray) -> np.ndarray:
    if x.dtype.names:
        return decode8(x, dtype.as_dtype(x.dtype)).astype(np.float32)
    return x


def _power(scale: np.ndarray) -> float:
    """2 to the scale. Raises `poplar_application_runtime_error` for one that is not in -32 .. 31."""
    exponent = int(np.asarray(scale).reshape(-1)[0])
    if not -32 <= exponent < 32:
        raise poplar_application_runtime_error(f"log2_scale is from -32 to 31, not {exponent}")
    return float(2.0**exponent)


def _to_float8(a: Attrs, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return encode8(x.astype(np.float64) * _power(scale), dtype.from_name(a["to"]), bool(a.get("nan", True)))


def _from_float8(a: Attrs, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return (_decoded(a, x).astype(np.float64) * _power(scale)).astype(dtype.from_name(a["to"]).as_numpy())


def _pow2scaled(name: str) -> Any:
    def run(a: Attrs, x: np.ndarray, y: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from tbuda_lab.popxl.kinds.table import KINDS

        (z,) = KINDS[name].run(a, [_decoded(a, x), _decoded(a, y)])
        return (z.astype(np.float64) * _power(scale)).astype(np.float16)

    return run


add("Pow2ScaleThenCast", numpy=_to_float8, host_reason="8-bit floats")
add("CastThenPow2Scale", numpy=_from_float8, host_reason="8-bit floats")
for _kind in ("MatMul", "Conv", "ConvTranspose"):
    add(f"{_kind}Pow2Scaled", numpy=_pow2scaled(_kind), host_reason="8-bit floats")


# -- convolutions ------------------------------------------------------------------------------------------------------
def padded_sides(a: Attrs, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> list[tuple[int, int]]:
    """Zeros before and behind each spatial dim: the pads, or what "same" makes of them."""
    n = len(spatial)
    mode = a.get("pad_type", "not_set")
    if mode == "valid":
        return [(0, 0)] * n
    if mode == "not_set":
        return [(int(a["pads"][k]), int(a["pads"][k + n])) for k in range(n)]
    sides = []
    for size, width, stride, dilation in zip(spatial, kernel, a["strides"], a["dilations"], strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size)
        less = total // 2
        sides.append((less, total - less) if mode == "same_upper" else (total - less, less))
    return sides


def _flat(sides: list[tuple[int, int]]) -> list[int]:
    """As `functional.pad` takes them: the last dim first."""
    return [n for pair in reversed(sides) for n in pair]


def _conv(a: Attrs, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    spatial = tuple(x.shape[2:])
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[len(spatial) - 1]
    padded = functional.pad(x, _flat(padded_sides(a, spatial, tuple(w.shape[2:]))))
    return run(padded, w, None, tuple(a["strides"]), 0, tuple(a["dilations"]), a["groups"])


def _as_2d(values: Any, fill: int) -> tuple[int, int]:
    return (fill, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def _image(g: Ground, x: str) -> str:
    """A line of pixels as an image of one row."""
    shape = g.shape(x)
    if len(shape) not in (3, 4):
        raise NotOnGrid(f"{len(shape) - 2} spatial dims")
    return g.reshape(x, (*shape[:2], 1, shape[2])) if len(shape) == 3 else x


def _each_image(g: Ground, x: str, fn: Any) -> str:
    """Of every image of a batch, joined again."""
    n = g.shape(x)[0]
    if n == 1:
        return str(fn(x))
    return g.op(Concatenate(0), *(str(fn(g.index(x, 0, k, k + 1))) for k in range(n)))


def _sides(sides: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    """Left, right, top, bottom."""
    top, right = ((0, 0), sides[0]) if len(sides) == 1 else (sides[0], sides[1])
    return (*right, *top)


def _by_products(
    g: Ground, x: str, w: str, strides: Any, sides: list[tuple[int, int]], dilations: Any, groups: int
) -> str:
    """A convolution whose weights are no constants: one matrix product with what each kernel position sees.

    x: (n, c, ...), w: (out, c / groups, ...), of any number of spatial dims."""
    n, channels = g.shape(x)[:2]
    out, kernel = g.shape(w)[0], g.shape(w)[2:]
    if any(before or after for before, after in sides):
        x = g.op(Pad(((0, 0), (0, 0), *sides)), x)
    sizes = [
        pooled(size, k, s, (0, 0), d, False)
        for size, k, s, d in zip(g.shape(x)[2:], kernel, strides, dilations, strict=True)
    ]
    seen = []
    for position in itertools.product(*map(range, kernel)):
        part = x
        for axis, (k, s, d, size) in enumerate(zip(position, strides, dilations, sizes, strict=True), 2):
            part = g.index(part, axis, k * d, k * d + (size - 1) * s + 1, s)
        seen.append(g.reshape(part, (n, groups, channels // groups, product(sizes))))
    patches = seen[0] if len(seen) == 1 else g.op(Concatenate(2), *seen)
    inner = channels // groups * len(seen)
    order = [0, *range(2, 2 + len(kernel)), 1]  # the kernel positions are the slower ones, as in the patches
    weight = g.reshape(g.permute(w, order), (1, groups, out // groups, inner))
    return g.reshape(g.op(Matmul(), weight, patches), (n, out, *sizes))


def _spread(g: Ground, x: str, strides: Any, extra: Any) -> str:
    """Zeros between neighbours along the spatial dims, and `extra` at the ends."""
    for axis, (stride, more) in enumerate(zip(strides, extra, strict=True), 2):
        shape = g.shape(x)
        if stride > 1:
            apart = g.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            pads = tuple((0, stride - 1 if k == axis + 1 else 0) for k in range(len(shape) + 1))
            wide = g.reshape(g.op(Pad(pads), apart), (*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]))
            x = g.index(wide, axis, 0, (shape[axis] - 1) * stride + 1)
        if more:
            x = g.op(Pad(tuple((0, more if k == axis else 0) for k in range(len(shape)))), x)
    return x


def _transposed_by_products(g: Ground, a: Attrs, x: str, w: str) -> str:
    """A transposed convolution is one of the spread image with the kernel turned round."""
    n, groups = len(a["strides"]), a["groups"]
    kernel = g.shape(w)[2:]
    for axis in range(2, 2 + n):
        w = g.pick(w, axis, list(range(g.shape(w)[axis]))[::-1]) if g.shape(w)[axis] > 1 else w
    channels = g.shape(w)[0]
    parts = [g.index(w, 0, k * channels // groups, (k + 1) * channels // groups) for k in range(groups)]
    turned = [g.op(Transpose(0, 1), part) for part in parts]
    weight = turned[0] if groups == 1 else g.op(Concatenate(0), *turned)
    sides = []
    for k in range(n):
        reach = a["dilations"][k] * (kernel[k] - 1)
        sides.append((reach - int(a["pads"][k]), reach - int(a["pads"][k + n])))
    if any(side < 0 for pair in sides for side in pair):
        raise NotOnGrid("pads larger than the kernel")
    image = _spread(g, x, a["strides"], _output_padding(a))
    return _by_products(g, image, weight, (1,) * n, sides, a["dilations"], groups)


def _conv_grid(g: Ground, a: Attrs, x: str, w: str) -> str:
    if g.value(w) is None:
        return _by_products(
            g, x, w, a["strides"], padded_sides(a, g.shape(x)[2:], g.shape(w)[2:]), a["dilations"], a["groups"]
        )
    flat = len(g.shape(x)) == 3
    sides = padded_sides(a, g.shape(x)[2:], g.shape(w)[2:])
    image, weight = _image(g, x), _image(g, w)
    op = Conv2d(_as_2d(a["strides"], 1), _sides(sides), _as_2d(a["dilations"], 1), a["groups"])
    y = _each_image(g, image, lambda one: g.op(op, one, weight))
    shape = g.shape(y)
    return g.reshape(y, (*shape[:2], shape[3])) if flat else y


def _output_padding(a: Attrs) -> tuple[int, ...]:
    return tuple(a["output_padding"]) or (0,) * len(a["strides"])


def _conv_transpose(a: Attrs, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    spatial = len(a["strides"])
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[spatial - 1]
    y = run(x, w, None, tuple(a["strides"]), 0, _output_padding(a), a["groups"], tuple(a["dilations"]))
    sides = [(int(a["pads"][k]), int(a["pads"][k + spatial])) for k in range(spatial)]
    return functional.pad(y, _flat([(-before, -after) for before, after in sides]))


def _conv_transpose_grid(g: Ground, a: Attrs, x: str, w: str) -> str:
    if g.value(w) is None:
        return _transposed_by_products(g, a, x, w)
    flat = len(g.shape(x)) == 3
    spatial = len(a["strides"])
    sides = [(int(a["pads"][k]), int(a["pads"][k + spatial])) for k in range(spatial)]
    image, weight = _image(g, x), _image(g, w)
    op = Conv2dTranspose(
        _as_2d(a["strides"], 1), _sides(sides), _as_2d(a["dilations"], 1), a["groups"], _as_2d(_output_padding(a), 0)
    )
    y = _each_image(g, image, lambda one: g.op(op, one, weight))
    shape = g.shape(y)
    return g.reshape(y, (*shape[:2], shape[3])) if flat else y


add("Conv", torch=_conv, grid=_conv_grid)
add("ConvTranspose", torch=_conv_transpose, grid=_conv_transpose_grid)


# -- pools -------------------------------------------------------------------------------------------------------------
def pooled(size: int, width: int, stride: int, sides: tuple[int, int], dilation: int, ceil: bool) -> int:
    """How many windows there are along a dim."""
    span = size + sum(sides) - dilation * (width - 1) - 1
    return (-(-span // stride) if ceil else span // stride) + 1


def _pool_sides(a: Attrs, spatial: tuple[int, ...]) -> list[tuple[int, int]]:
    sides = padded_sides(a, spatial, tuple(a["kernel"]))
    result = []
    for k, (before, after) in enumerate(sides):
        width, stride, dilation = a["kernel"][k], a["strides"][k], a["dilations"][k]
        count = pooled(spatial[k], width, stride, (before, after), dilation, a["ceil_mode"])
        reach = (count - 1) * stride + dilation * (width - 1) + 1
        result.append((before, max(after, reach - spatial[k] - before)))
    return result


def _max_pool(a: Attrs, x: torch.Tensor) -> torch.Tensor:
    spatial = tuple(x.shape[2:])
    run = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(spatial) - 1]
    padded = functional.pad(x, _flat(_pool_sides(a, spatial)), value=-float("inf"))
    return run(padded, tuple(a["kernel"]), tuple(a["strides"]), 0, tuple(a["dilations"]))


def _average_pool(a: Attrs, x: torch.Tensor) -> torch.Tensor:
    """The mean of the pixels of each window that are in the image."""
    spatial = tuple(x.shape[2:])
    run = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(spatial) - 1]
    sides = _flat(_pool_sides(a, spatial))
    if any(d != 1 for d in a["dilations"]):
        return _mean_of_spread_windows(a, x, sides)
    total = run(functional.pad(x, sides), tuple(a["kernel"]), tuple(a["strides"]))
    share = run(functional.pad(torch.ones_like(x), sides), tuple(a["kernel"]), tuple(a["strides"]))
    result: torch.Tensor = total / share
    return result


def _mean_of_spread_windows(a: Attrs, x: torch.Tensor, sides: list[int]) -> torch.Tensor:
    """As `_average_pool` of windows with gaps: a convolution by ones, of each channel alone."""
    spatial = x.shape[2:]
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[len(spatial) - 1]
    ones = torch.ones((1, 1, *a["kernel"]), dtype=x.dtype)
    each = x.reshape(-1, 1, *spatial)
    total, share = (
        run(functional.pad(image, sides), ones, None, tuple(a["strides"]), 0, tuple(a["dilations"]))
        for image in (each, torch.ones_like(each))
    )
    return (total / share).reshape(*x.shape[:2], *total.shape[2:])


def _pool_grid(kind: Any) -> Any:
    def run(g: Ground, a: Attrs, x: str) -> str:
        flat = len(g.shape(x)) == 3
        sides = _pool_sides(a, g.shape(x)[2:])
        image = _image(g, x)
        dilation = _as_2d(a["dilations"], 1)
        if kind is MaxPool2d:
            op: Any = MaxPool2d(_as_2d(a["kernel"], 1), _as_2d(a["strides"], 1), _sides(sides), dilation)
        elif dilation != (1, 1):
            raise NotOnGrid("dilation of an average pool")
        else:
            op = AvgPool2d(_as_2d(a["kernel"], 1), _as_2d(a["strides"], 1), _sides(sides), False, False)
        y = _each_image(g, image, lambda one: g.op(op, one))
        shape = g.shape(y)
        return g.reshape(y, (*shape[:2], shape[3])) if flat else y

    return run


add("MaxPool", torch=_max_pool, grid=_pool_grid(MaxPool2d))
add("AveragePool", torch=_average_pool, grid=_pool_grid(AvgPool2d))


# -- norms -------------------------------------------------------------------------------------------------------------
def _softmax(g: Ground, a: Attrs, x: str) -> str:
    shape = g.shape(x)
    if not shape:
        return g.full((), 1.0)
    rank = len(shape)
    return g.along(a["axis"] % rank, x, lambda y, axis: g.op(Softmax(axis - rank), y))


add("Softmax", torch=lambda a, x: torch.softmax(x, a["axis"]), grid=_softmax)


def _channels(rank: int, size: int) -> tuple[int, ...]:
    return (1, size, *(1,) * (rank - 2))


def _group_norm(a: Attrs, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    parts = x.reshape(x.shape[0], a["groups"], -1)
    mean = parts.mean(-1, keepdim=True)
    variance = ((parts - mean) ** 2).mean(-1, keepdim=True)
    deviation = 1 / torch.sqrt(variance + a["epsilon"])
    size = _channels(x.dim(), x.shape[1])
    y = ((parts - mean) * deviation).reshape(x.shape) * w.reshape(size) + b.reshape(size)
    return y, mean.reshape(-1), deviation.reshape(-1)


def _group_norm_grid(g: Ground, a: Attrs, x: str, w: str, b: str) -> tuple[str, ...]:
    shape, groups = g.shape(x), a["groups"]
    width = product(shape[1:]) // groups
    parts = g.reshape(x, (shape[0], groups, width))
    mean = g.mul(g.sum(parts, [2]), 1 / width)
    centred = g.sub(parts, mean)
    variance = g.mul(g.sum(g.mul(centred, centred), [2]), 1 / width)
    deviation = g.op(unary.Reciprocal(), g.op(unary.Sqrt(), g.add(variance, float(a["epsilon"]))))
    size = _channels(len(shape), shape[1])
    y = g.reshape(g.mul(centred, deviation), shape)
    y = g.add(g.mul(y, g.reshape(w, size)), g.reshape(b, size))
    return y, g.reshape(mean, (shape[0] * groups,)), g.reshape(deviation, (shape[0] * groups,))


def _batch_norm(a: Attrs, x: Any, w: Any, b: Any, mean: Any, variance: Any) -> Any:
    size = _channels(x.dim(), x.shape[1])
    factor = w / torch.sqrt(variance + a["epsilon"])
    return (x - mean.reshape(size)) * factor.reshape(size) + b.reshape(size)


def _batch_norm_grid(g: Ground, a: Attrs, x: str, w: str, b: str, mean: str, variance: str) -> str:
    size = _channels(len(g.shape(x)), g.shape(x)[1])
    scale = g.op(unary.Reciprocal(), g.op(unary.Sqrt(), g.add(variance, float(a["epsilon"]))))
    factor = g.reshape(g.mul(w, scale), size)
    return g.add(g.mul(g.sub(x, g.reshape(mean, size)), factor), g.reshape(b, size))


add("GroupNormalization", torch=_group_norm, grid=_group_norm_grid)
add("BatchNormalization", torch=_batch_norm, grid=_batch_norm_grid)
