"""aten ops of images and volumes: convolution, pooling, resizing."""

from __future__ import annotations

import math

import torch

from tbuda_lab.core.frontend.aten.call import Call, CannotMap, Result, maps
from tbuda_lab.core.frontend.aten.eltwise import times
from tbuda_lab.core.frontend.aten.host import host_call
from tbuda_lab.core.frontend.aten.shape import slice_dim
from tbuda_lab.core.graph import Shape
from tbuda_lab.core.ops import (
    AdaptiveAvgPool2d,
    Add,
    AvgPool2d,
    Concatenate,
    Conv2d,
    Conv2dTranspose,
    Matmul,
    Maximum,
    MaxPool2d,
    Resize2d,
    Stack,
)


def pair(value: int | list[int], default: int = 0) -> tuple[int, int]:
    """(height, width) of a torch size argument."""
    if isinstance(value, int):
        return value, value
    if not value:
        return default, default
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def same_padding(size: int, kernel: int, dilation: int) -> tuple[int, int]:
    """torch's padding="same" (stride 1): what is odd goes after."""
    total = dilation * (kernel - 1)
    return total // 2, total - total // 2


def convolve(c: Call, transposed: bool, output_padding: list[int]) -> str:
    x, weight = c.x("input"), c.x("weight")
    rank = len(c.shape(weight)) - 2
    if rank == 3:
        return convolve_volume(c, transposed, output_padding)
    batched = len(c.shape(x)) == rank + 2
    if not batched:
        x = c.reshape(x, (1, *c.shape(x)))
    bias = [c.x("bias")] if c.has("bias") else []
    padding = c.get("padding", [0])
    if rank == 1:
        x = c.reshape(x, (*c.shape(x)[:2], 1, c.shape(x)[2]))
        weight = c.reshape(weight, (*c.shape(weight)[:2], 1, c.shape(weight)[2]))

    def sizes(value: int | list[int], fill: int) -> tuple[int, int]:
        if rank == 2:
            return pair(value, fill)
        return fill, value if isinstance(value, int) else value[0]

    stride, dilation = sizes(c.get("stride", [1]), 1), sizes(c.get("dilation", [1]), 1)
    kernel, image = c.shape(weight)[2:], c.shape(x)[2:]
    if isinstance(padding, str):
        spans = [same_padding(n, k, d) for n, k, d in zip(image, kernel, dilation, strict=True)]
        (top, bottom), (left, right) = spans if padding == "same" else ((0, 0), (0, 0))
    else:
        (top, left) = (bottom, right) = sizes(padding, 0)
    sides = (left, right, top, bottom)
    groups = c.get("groups", 1)
    if transposed:
        op: Conv2d | Conv2dTranspose = Conv2dTranspose(stride, sides, dilation, groups, sizes(output_padding, 0))
    else:
        op = Conv2d(stride, sides, dilation, groups)
    return c.reshape(c.op(op, x, weight, *bias), c.out_shape)


def triple(value: int | list[int]) -> tuple[int, int, int]:
    """(depth, height, width) of a torch size argument."""
    flat = [value] if isinstance(value, int) else list(value)
    return (flat[0], flat[0], flat[0]) if len(flat) == 1 else (flat[0], flat[1], flat[2])


def convolve_volume(c: Call, transposed: bool, output_padding: list[int]) -> str:
    """A 3-D convolution: for each depth of the result one 2-D convolution of the depths it sees, side by side as
    channels."""
    x, weight = c.x("input"), c.x("weight")
    if len(c.shape(x)) == 4:
        x = c.reshape(x, (1, *c.shape(x)))
    padding = c.get("padding", [0])
    (depth, height, width), (deep, kh, kw) = c.shape(x)[2:], c.shape(weight)[2:]
    stride, dilation = triple(c.get("stride", [1])), triple(c.get("dilation", [1]))
    if isinstance(padding, str):
        spans = [
            same_padding(size, k, d) if padding == "same" else (0, 0)
            for size, k, d in zip((depth, height, width), (deep, kh, kw), dilation, strict=True)
        ]
    else:
        spans = [(p, p) for p in triple(padding)]
    (before, after), (top, bottom), (left, right) = spans
    groups, extra = c.get("groups", 1), triple(output_padding)
    sides = (left, right, top, bottom)
    bias = [c.x("bias")] if c.has("bias") else []
    flat: Conv2d | Conv2dTranspose
    if transposed:
        flat = Conv2dTranspose(stride[1:], sides, dilation[1:], groups, extra[1:])
        out_depth = (depth - 1) * stride[0] - before - after + dilation[0] * (deep - 1) + 1 + extra[0]
    else:
        flat = Conv2d(stride[1:], sides, dilation[1:], groups)
        out_depth = (depth + before + after - dilation[0] * (deep - 1) - 1) // stride[0] + 1
    layers = []
    for at in range(out_depth):
        if transposed:
            seen = [
                ((at + before - k * dilation[0]) // stride[0], k)
                for k in range(deep)
                if (at + before - k * dilation[0]) % stride[0] == 0
            ]
        else:
            seen = [(at * stride[0] - before + k * dilation[0], k) for k in range(deep)]
        seen = [(d, k) for d, k in seen if 0 <= d < depth]
        layers.append(_layer(c, x, weight, seen, flat, bias, transposed, c.out_shape))
    return c.reshape(c.op(Stack(-3), *layers), c.out_shape)


def _layer(
    c: Call,
    x: str,
    weight: str,
    seen: list[tuple[int, int]],
    flat: Conv2d | Conv2dTranspose,
    bias: list[str],
    transposed: bool,
    out_shape: Shape,
) -> str:
    """One depth of the result of a 3-D convolution: `seen` pairs depths of the image with depths of the kernel."""
    n, channels, _, height, width = c.shape(x)
    first, second, _, kh, kw = c.shape(weight)
    count = len(seen)
    if not count:  # nothing of the image reaches here: the bias alone
        zero = c.constant(torch.zeros(n, out_shape[-4], *out_shape[-2:]))
        return c.op(Add(), zero, c.reshape(bias[0], (out_shape[-4], 1, 1))) if bias else zero
    images = c.op(Stack(-3), *(c.reshape(slice_dim(c, x, 2, d, d + 1), (n, channels, height, width)) for d, _ in seen))
    stacked = c.reshape(images, (n, channels * count, height, width))
    kernels = [slice_dim(c, weight, 2, k, k + 1) for _, k in seen]
    if not transposed:
        joined_kernels = kernels[0] if count == 1 else c.op(Concatenate(-3), *kernels)
        return c.op(flat, stacked, c.reshape(joined_kernels, (first, second * count, kh, kw)), *bias)
    lined = [c.reshape(k, (first, 1, second, kh, kw)) for k in kernels]
    joined_kernels = lined[0] if count == 1 else c.op(Concatenate(-4), *lined)
    return c.op(flat, stacked, c.reshape(joined_kernels, (first * count, second, kh, kw)), *bias)


@maps("aten.max_pool3d", "aten.max_pool3d_with_indices", "aten.avg_pool3d", "aten.adaptive_avg_pool3d")
def pool_volume(c: Call) -> Result:
    """Pooling of a volume: the slices it sees are pooled as images, and their maximum or mean is taken."""
    name = c.target._schema.name
    x = c.x()
    x = c.reshape(x, (1, *c.shape(x))) if len(c.shape(x)) == 4 else x
    n, channels, depth, height, width = c.shape(x)
    if "adaptive" in name:
        out = c.out_shape[-3:]
        if any(size % o for size, o in zip((depth, height, width), out, strict=True)):
            raise CannotMap(f"adaptive pooling of {(depth, height, width)} to {out}: the output must divide the input")
        kernel = stride = (depth // out[0], height // out[1], width // out[2])
        padding, dilation = (0, 0, 0), (1, 1, 1)
    else:
        kernel = triple(c.get("kernel_size"))
        stride = triple(c.get("stride", []) or list(kernel))
        padding, dilation = triple(c.get("padding", [0])), triple(c.get("dilation", [1]))
    biggest = "max" in name
    if c.get("ceil_mode") or (not biggest and (padding[0] or c.get("divisor_override") is not None)):
        raise CannotMap("3-D pooling with ceil_mode, a divisor, or an average over padded depth")
    sides = around(padding[1:])
    flat: MaxPool2d | AvgPool2d
    if biggest:
        flat = MaxPool2d(kernel[1:], stride[1:], sides, dilation[1:], False)
    else:
        flat = AvgPool2d(kernel[1:], stride[1:], sides, False, bool(c.get("count_include_pad", True)))
    images = [c.op(flat, c.reshape(slice_dim(c, x, 2, d, d + 1), (n, channels, height, width))) for d in range(depth)]
    layers = []
    for at in range((depth + 2 * padding[0] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1):
        seen = [at * stride[0] - padding[0] + k * dilation[0] for k in range(kernel[0])]
        inside = [images[d] for d in seen if 0 <= d < depth]
        y = inside[0]
        for other in inside[1:]:
            y = c.op(Maximum() if biggest else Add(), y, other)
        layers.append(y if biggest else times(c, y, 1.0 / len(inside)))
    y = c.reshape(c.op(Stack(-3), *layers), c.out_shape)
    return (y, None) if name.endswith("_with_indices") else y


@maps("aten.upsample_nearest3d", "aten.upsample_trilinear3d")
def upsample_volume(c: Call) -> str:
    """Slices resized as images, then the depth: repeated, or blended by a matrix of weights."""
    x = c.x("input" if "input" in c.arguments else "self")
    n, channels, depth, height, width = c.shape(x)
    (out_depth, out_height, out_width) = c.out_shape[-3:]
    factors = c.get("scale_factors", [c.get(f"scales_{axis}") for axis in "dhw"])
    for factor, size, out in zip(factors, (depth, height, width), c.out_shape[-3:], strict=True):
        if factor is not None and factor * size != out:
            raise CannotMap(f"resizing of {size} to {out} by {factor}: the positions are those of the sizes alone")
    linear = "linear" in c.target._schema.name
    corners = bool(c.get("align_corners", False)) if linear else False
    x = c.reshape(x, (n, channels * depth, height, width))
    if (out_height, out_width) != (height, width):
        x = c.op(Resize2d((out_height, out_width), "bilinear" if linear else "nearest", corners), x)
    eye = torch.eye(depth).reshape(1, depth, depth)
    mode = "linear" if linear else "nearest"
    weights = torch.nn.functional.interpolate(eye, out_depth, mode=mode, align_corners=corners if linear else None)[0]
    rows = c.reshape(x, (n, channels, depth, out_height * out_width))
    return c.reshape(c.op(Matmul(), c.constant(weights.t().contiguous()), rows), c.out_shape)


@maps("aten.conv2d", "aten.conv1d", "aten.conv3d", "aten._conv_depthwise2d")
def conv(c: Call) -> str:
    return convolve(c, False, [0])


@maps("aten.conv_transpose2d", "aten.conv_transpose1d", "aten.conv_transpose3d")
def conv_transpose(c: Call) -> str:
    return convolve(c, True, c.get("output_padding", [0]))


@maps("aten.convolution")
def convolution(c: Call) -> str:
    return convolve(c, bool(c.get("transposed")), c.get("output_padding", [0]))


# -- pooling and resizing ------------------------------------------------------------------------------------
def as_image(c: Call, x: str, rank: int) -> str:
    """x as (N, C, H, W): a missing batch and, for 1-D pooling, a height of 1 are added."""
    shape = c.shape(x)
    if rank == 1:
        shape = (*shape[:-1], 1, shape[-1])
    return c.reshape(x, (1,) * (4 - len(shape)) + shape)


def around(value: tuple[int, int]) -> tuple[int, int, int, int]:
    return value[1], value[1], value[0], value[0]


def pool_sizes(c: Call, rank: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """(kernel, stride, padding, dilation) as pairs; an empty stride is the kernel."""

    def two(value: int | list[int], fill: int) -> tuple[int, int]:
        if rank == 2:
            return pair(value, fill)
        return fill, value if isinstance(value, int) else value[0]

    kernel = c.get("kernel_size")
    stride = c.get("stride", []) or kernel
    return two(kernel, 1), two(stride, 1), two(c.get("padding", 0), 0), two(c.get("dilation", 1), 1)


@maps("aten.max_pool2d", "aten.max_pool2d_with_indices", "aten.max_pool1d", "aten.max_pool1d_with_indices")
def max_pool(c: Call) -> Result:
    rank = 1 if "pool1d" in c.target._schema.name else 2
    kernel, stride, padding, dilation = pool_sizes(c, rank)
    op = MaxPool2d(kernel, stride, around(padding), dilation, bool(c.get("ceil_mode", False)))
    y = c.reshape(c.op(op, as_image(c, c.x(), rank)), c.out_shape)
    return (y, None) if c.target._schema.name.endswith("_with_indices") else y


@maps("aten.avg_pool2d", "aten.avg_pool1d")
def avg_pool(c: Call) -> str:
    rank = 1 if "pool1d" in c.target._schema.name else 2
    kernel, stride, padding, _ = pool_sizes(c, rank)
    ceil_mode, divisor = bool(c.get("ceil_mode", False)), c.get("divisor_override")
    if divisor is not None and ceil_mode:
        raise CannotMap("avg_pool2d with divisor_override and ceil_mode; leave one of them out")
    counted = bool(c.get("count_include_pad", True)) or divisor is not None
    x = as_image(c, c.x(), rank)
    if ceil_mode:  # a window may be larger than the image; of what lies beyond its padding nothing is counted
        height, width = (n + 2 * p for n, p in zip(c.shape(x)[-2:], padding, strict=True))
        kernel = (min(kernel[0], height), min(kernel[1], width))
    op = AvgPool2d(kernel, stride, around(padding), ceil_mode, counted)
    y = c.op(op, x)
    y = times(c, y, kernel[0] * kernel[1] / divisor) if divisor is not None else y
    return c.reshape(y, c.out_shape)


@maps("aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool1d")
def adaptive_avg_pool(c: Call) -> str:
    rank = 1 if "pool1d" in c.target._schema.name else 2
    x = as_image(c, c.x(), rank)
    size = (1, c.out_shape[-1]) if rank == 1 else c.out_shape[-2:]
    if c.shape(x)[2:] == tuple(size):
        return c.reshape(x, c.out_shape)
    return c.reshape(c.op(AdaptiveAvgPool2d((int(size[0]), int(size[1]))), x), c.out_shape)


@maps("aten.adaptive_max_pool2d")
def adaptive_max_pool(c: Call) -> Result:
    x = as_image(c, c.x(), 2)
    (h, w), (oh, ow) = c.shape(x)[2:], c.out_shape[-2:]
    if h % oh or w % ow:
        return host_call(c)  # windows of several sizes
    kernel = (h // oh, w // ow)
    return c.reshape(c.op(MaxPool2d(kernel, kernel), x), c.out_shape), None


@maps("aten.upsample_nearest2d", "aten.upsample_bilinear2d", "aten.upsample_nearest1d")
def upsample(c: Call) -> str:
    name = c.target._schema.name
    x = as_image(c, c.x("input" if "input" in c.arguments else "self"), 1 if name.endswith("1d") else 2)
    size = (1, c.out_shape[-1]) if name.endswith("1d") else (c.out_shape[-2], c.out_shape[-1])
    mode = "nearest" if "nearest" in name else "bilinear"
    for scale, n, m in zip(_scales(c), c.shape(x)[2:], size, strict=False):
        if scale is not None and not math.isclose(scale * n, m) and mode == "bilinear":
            raise CannotMap(f"bilinear resizing of {n} by {scale} to {m}; give a size instead of a scale factor")
    return c.reshape(c.op(Resize2d(size, mode, bool(c.get("align_corners", False))), x), c.out_shape)


def _scales(c: Call) -> list[float | None]:
    """Scale factors given by the call, which torch uses for pixel positions in place of the ratio of the sizes."""
    return list(c.get("scale_factors", [])) or [c.get("scales_h"), c.get("scales_w")]
