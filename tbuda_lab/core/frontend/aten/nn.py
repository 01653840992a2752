"""aten ops of networks: products, convolutions, pooling, normalisation, attention, reductions."""

from __future__ import annotations

import math

import torch

from tbuda_lab.core.frontend.aten.call import Call, CannotMap, Folded, Result, maps
from tbuda_lab.core.frontend.aten.eltwise import scaled
from tbuda_lab.core.frontend.aten.shape import sliced, swapped
from tbuda_lab.core.graph import Shape
from tbuda_lab.core.ops import (
    AdaptiveAvgPool2d,
    Add,
    Argmax,
    AvgPool2d,
    Batchnorm,
    Concatenate,
    Conv2d,
    Conv2dTranspose,
    CumSum,
    GroupNorm,
    Layernorm,
    LogSoftmax,
    Matmul,
    Maximum,
    MaxPool2d,
    Multiply,
    Reciprocal,
    ReduceAvg,
    ReduceMax,
    ReduceSum,
    Resize2d,
    Sigmoid,
    Softmax,
    Sqrt,
    Stack,
    Subtract,
)

MASKED = -1e9
"""Added to an attention score that a truth-value mask hides: e^MASKED is 0 in every format."""


# -- products ------------------------------------------------------------------------------------------------
@maps("aten.linear")
def linear(c: Call) -> str:
    x, weight = c.x("input"), swapped(c, c.x("weight"), -2, -1)
    if len(c.shape(x)) == 1:
        x = c.reshape(x, (1, *c.shape(x)))
    bias = [c.x("bias")] if c.has("bias") else []
    return c.reshape(c.op(Matmul(), x, weight, *bias), c.out_shape)


def product(c: Call, a: str, b: str) -> str:
    """torch's matmul: vectors become matrices and the result's shape is torch's."""
    if len(c.shape(a)) == 1:
        a = c.reshape(a, (1, *c.shape(a)))
    if len(c.shape(b)) == 1:
        b = c.reshape(b, (*c.shape(b), 1))
    return c.op(Matmul(), a, b)


@maps("aten.matmul", "aten.bmm", "aten.mm", "aten.mv", "aten.dot")
def matmul(c: Call) -> str:
    second = next(n for n in ("other", "mat2", "vec", "tensor") if n in c.arguments)
    return c.reshape(product(c, c.x(), c.x(second)), c.out_shape)


@maps("aten.addmm", "aten.baddbmm")
def addmm(c: Call) -> str:
    first, second = ("mat1", "mat2") if "mat1" in c.arguments else ("batch1", "batch2")
    beta, alpha = c.get("beta", 1), c.get("alpha", 1)
    if beta == 1 and alpha == 1:
        return c.op(Matmul(), c.x(first), c.x(second), c.x())
    scaled_product = scaled(c, c.op(Matmul(), c.x(first), c.x(second)), alpha)
    return scaled_product if beta == 0 else c.op(Add(), scaled_product, scaled(c, c.x(), beta))


# -- convolution ---------------------------------------------------------------------------------------------
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
            seen = [((at + before - k * dilation[0]) // stride[0], k) for k in range(deep)
                    if (at + before - k * dilation[0]) % stride[0] == 0]
        else:
            seen = [(at * stride[0] - before + k * dilation[0], k) for k in range(deep)]
        seen = [(d, k) for d, k in seen if 0 <= d < depth]
        layers.append(_layer(c, x, weight, seen, flat, bias, transposed, c.out_shape))
    return c.reshape(c.op(Stack(-3), *layers), c.out_shape)


def _layer(
    c: Call, x: str, weight: str, seen: list[tuple[int, int]], flat: Conv2d | Conv2dTranspose, bias: list[str],
    transposed: bool, out_shape: Shape,
) -> str:  # fmt: skip
    """One depth of the result of a 3-D convolution: `seen` pairs depths of the image with depths of the kernel."""
    n, channels, _, height, width = c.shape(x)
    first, second, _, kh, kw = c.shape(weight)
    count = len(seen)
    if not count:  # nothing of the image reaches here: the bias alone
        zero = c.constant(torch.zeros(n, out_shape[-4], *out_shape[-2:]))
        return c.op(Add(), zero, c.reshape(bias[0], (out_shape[-4], 1, 1))) if bias else zero
    images = c.op(Stack(-3), *(c.reshape(sliced(c, x, 2, d, d + 1), (n, channels, height, width)) for d, _ in seen))
    stacked = c.reshape(images, (n, channels * count, height, width))
    kernels = [sliced(c, weight, 2, k, k + 1) for _, k in seen]
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
    images = [
        c.op(flat, c.reshape(sliced(c, x, 2, d, d + 1), (n, channels, height, width))) for d in range(depth)
    ]
    layers = []
    for at in range((depth + 2 * padding[0] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1):
        seen = [at * stride[0] - padding[0] + k * dilation[0] for k in range(kernel[0])]
        inside = [images[d] for d in seen if 0 <= d < depth]
        y = inside[0]
        for other in inside[1:]:
            y = c.op(Maximum() if biggest else Add(), y, other)
        layers.append(y if biggest else scaled(c, y, 1.0 / len(inside)))
    y = c.reshape(c.op(Stack(-3), *layers), c.out_shape)
    return (y, None) if name.endswith("_with_indices") else y


@maps("aten.upsample_nearest3d", "aten.upsample_trilinear3d")
def upsample_volume(c: Call) -> str:
    """Slices resized as images, then the depth: repeated, or blended by a matrix of weights."""
    x = c.x("input" if "input" in c.arguments else "self")
    n, channels, depth, height, width = c.shape(x)
    (out_depth, out_height, out_width) = c.out_shape[-3:]
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
    y = scaled(c, y, kernel[0] * kernel[1] / divisor) if divisor is not None else y
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
        raise CannotMap(f"adaptive max pooling of {h}x{w} to {oh}x{ow}: the output must divide the input")
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


# -- normalisation -------------------------------------------------------------------------------------------
def weight_or(c: Call, name: str, shape: Shape, fill: float) -> str:
    return c.x(name) if c.has(name) else c.constant(torch.full(shape, fill))


@maps("aten.batch_norm", "aten._native_batch_norm_legit_no_training", "aten.native_batch_norm", "aten.cudnn_batch_norm")
def batch_norm(c: Call) -> Result:
    if c.get("training"):
        raise CannotMap("batch norm that updates its statistics needs training; call .eval() on the model")
    if not c.has("running_mean"):
        raise CannotMap("batch norm without running statistics (track_running_stats=False) is not supported")
    x = c.x("input")
    channels = (c.shape(x)[1],)
    epsilon = float(c.get("eps"))
    y = c.op(
        Batchnorm(epsilon),
        x,
        weight_or(c, "weight", channels, 1.0),
        weight_or(c, "bias", channels, 0.0),
        c.x("running_mean"),
        c.x("running_var"),
    )
    return y if c.target._schema.name == "aten::batch_norm" else (y, None, None)


@maps("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(c: Call) -> Result:
    x, normal = c.x("input"), tuple(c.get("normalized_shape"))
    shape = c.shape(x)
    width = (math.prod(normal),)
    weight = c.reshape(weight_or(c, "weight", normal, 1.0), width)
    bias = c.reshape(weight_or(c, "bias", normal, 0.0), width)
    flat = c.reshape(x, (*shape[: len(shape) - len(normal)], *width))
    y = c.reshape(c.op(Layernorm(-1, float(c.get("eps"))), flat, weight, bias), shape)
    return y if c.target._schema.name == "aten::layer_norm" else (y, None, None)


@maps("aten.rms_norm")
def rms_norm(c: Call) -> str:
    x, normal = c.x("input"), c.get("normalized_shape")
    if len(normal) != 1:
        raise CannotMap("rms_norm over several dims; normalise over the last")
    eps = c.get("eps", torch.finfo(torch.float32).eps)
    square = c.op(ReduceAvg(-1), c.op(Multiply(), x, x))
    y = c.op(Multiply(), x, c.op(Reciprocal(), c.op(Sqrt(), c.op(Add(), square, c.constant(float(eps))))))
    return c.op(Multiply(), y, c.x("weight")) if c.has("weight") else y


@maps("aten.group_norm", "aten.native_group_norm", "aten.instance_norm")
def group_norm(c: Call) -> Result:
    name = c.target._schema.name
    x = c.x("input")
    channels = c.shape(x)[1]
    if name == "aten::instance_norm" and not c.get("use_input_stats"):
        raise CannotMap("instance norm with running statistics; use batch norm")
    groups = channels if name == "aten::instance_norm" else c.get("num_groups", c.arguments.get("group"))
    weight, bias = weight_or(c, "weight", (channels,), 1.0), weight_or(c, "bias", (channels,), 0.0)
    y = c.op(GroupNorm(groups, float(c.get("eps"))), x, weight, bias)
    return (y, None, None) if name == "aten::native_group_norm" else y


@maps("aten.softmax", "aten._softmax", "aten._safe_softmax")
def softmax(c: Call) -> str:
    return c.op(Softmax(_negative(c, c.get("dim"))), c.x())


@maps("aten.log_softmax", "aten._log_softmax")
def log_softmax(c: Call) -> str:
    return c.op(LogSoftmax(_negative(c, c.get("dim"))), c.x())


def _negative(c: Call, dim: int) -> int:
    rank = len(c.shape(c.x()))
    return dim % rank - rank


# -- attention -----------------------------------------------------------------------------------------------
@maps("aten.scaled_dot_product_attention")
def attention(c: Call) -> str:
    """softmax(q k^T * scale + mask) v. Heads that share keys are stacked as rows, so keys are never copied."""
    if float(c.get("dropout_p", 0.0)) > 0:
        raise CannotMap("attention dropout that is active needs training; call .eval() on the model")
    q, k, v = c.x("query"), c.x("key"), c.x("value")
    rows, width = c.shape(q)[-2:]
    heads = c.shape(q)[:-2]
    keys = c.shape(k)[-2]
    shared = 1
    if c.get("enable_gqa") and heads[-1] != c.shape(k)[-3]:
        shared = heads[-1] // c.shape(k)[-3]
        q = c.reshape(q, (*heads[:-1], heads[-1] // shared, rows * shared, width))
    scale = c.get("scale")
    q = scaled(c, q, float(scale) if scale is not None else 1.0 / math.sqrt(width))
    scores = c.op(Matmul(), q, swapped(c, k, -2, -1))
    scores = c.reshape(scores, (*heads, rows, keys)) if shared > 1 else scores
    scores = masked(c, scores, rows, keys)
    weights = c.op(Softmax(-1), scores)
    weights = without_hidden_rows(c, weights)
    if shared > 1:
        weights = c.reshape(weights, (*heads[:-1], heads[-1] // shared, rows * shared, keys))
    return c.reshape(c.op(Matmul(), weights, v), c.out_shape)


def masked(c: Call, scores: str, rows: int, keys: int) -> str:
    """Scores plus the mask: a truth-value mask hides where it is false, a float mask is added."""
    if c.get("is_causal"):
        hidden = torch.ones(rows, keys).tril() == 0
        return c.op(Add(), scores, c.constant(hidden.to(torch.float32) * MASKED))
    if not c.has("attn_mask"):
        return scores
    mask = c.arguments["attn_mask"]
    if c.dtype_of("attn_mask") != torch.bool:
        return c.op(Add(), scores, c.x("attn_mask"))
    if isinstance(mask, Folded):
        if bool(mask.tensor.all()):
            return scores
        return c.op(Add(), scores, c.constant((~mask.tensor).to(torch.float32) * MASKED))
    hidden_by_input = c.op(Subtract(), c.constant(1.0), c.x("attn_mask"))
    return c.op(Add(), scores, scaled(c, hidden_by_input, MASKED))


def without_hidden_rows(c: Call, weights: str) -> str:
    """Weights whose rows are 0 where a truth-value mask hides every key, as in torch; softmax gives equal weights."""
    if c.get("is_causal") or not c.has("attn_mask") or c.dtype_of("attn_mask") != torch.bool:
        return weights
    mask = c.arguments["attn_mask"]
    if isinstance(mask, Folded):
        if bool(mask.tensor.any(-1).all()):
            return weights
        return c.op(Multiply(), weights, c.constant(mask.tensor.to(torch.float32)))
    return c.op(Multiply(), weights, c.x("attn_mask"))


@maps("aten.glu")
def glu(c: Call) -> str:
    x, dim = c.x(), c.get("dim", -1)
    half = c.shape(x)[dim] // 2
    gate = c.op(Sigmoid(), sliced(c, x, dim, half, 2 * half))
    return c.op(Multiply(), sliced(c, x, dim, 0, half), gate)


# -- reductions ----------------------------------------------------------------------------------------------
def dims_of(c: Call, rank: int) -> list[int]:
    """The reduced dims, counted from the back, innermost first; no dim means all."""
    given = c.arguments.get("dim")
    dims = list(range(rank)) if given is None or given == [] else [given] if isinstance(given, int) else list(given)
    return sorted((d % rank - rank for d in dims), reverse=True)


def reduced(c: Call, x: str, op: type[ReduceSum] | type[ReduceAvg] | type[ReduceMax], dims: list[int]) -> str:
    for dim in dims:
        x = c.op(op(dim), x)
    return x


@maps("aten.mean")
def mean(c: Call) -> str:
    x = c.x()
    return c.reshape(reduced(c, x, ReduceAvg, dims_of(c, len(c.shape(x)))), c.out_shape)


@maps("aten.sum")
def sum_(c: Call) -> str:
    x = c.x()
    return c.reshape(reduced(c, x, ReduceSum, dims_of(c, len(c.shape(x)))), c.out_shape)


@maps("aten.amax", "aten.max.default", "aten.max.dim")
def amax(c: Call) -> Result:
    x = c.x()
    y = c.reshape(reduced(c, x, ReduceMax, dims_of(c, len(c.shape(x)))), c.out_shape)
    return (y, None) if c.target._overloadname == "dim" else y


@maps("aten.amin", "aten.min.default", "aten.min.dim")
def amin(c: Call) -> Result:
    x = scaled(c, c.x(), -1.0)
    y = scaled(c, reduced(c, x, ReduceMax, dims_of(c, len(c.shape(x)))), -1.0)
    y = c.reshape(y, c.out_shape)
    return (y, None) if c.target._overloadname == "dim" else y


@maps("aten.var", "aten.std", "aten.var_mean")
def variance(c: Call) -> Result:
    x = c.x()
    rank = len(c.shape(x))
    dims = dims_of(c, rank)
    count = math.prod(c.shape(x)[d] for d in dims)
    lost = 1.0 if c.get("unbiased", True) else 0.0
    lost = float(c.get("correction", lost))
    middle = reduced(c, x, ReduceAvg, dims)
    centred = c.op(Subtract(), x, middle)
    spread = reduced(c, c.op(Multiply(), centred, centred), ReduceAvg, dims)
    spread = scaled(c, spread, count / (count - lost))
    name = c.target._schema.name
    y = c.reshape(c.op(Sqrt(), spread) if name == "aten::std" else spread, c.out_shape)
    return (y, c.reshape(middle, c.out_shape)) if name == "aten::var_mean" else y


@maps("aten.linalg_vector_norm", "aten.norm")
def norm(c: Call) -> str:
    order = c.get("ord", c.arguments.get("p"))
    if order not in (None, 2, 2.0):
        raise CannotMap(f"a vector norm of order {order}; the order 2 has a form here")
    x = c.x()
    total = reduced(c, c.op(Multiply(), x, x), ReduceSum, dims_of(c, len(c.shape(x))))
    return c.reshape(c.op(Sqrt(), total), c.out_shape)


@maps("aten.argmax")
def argmax(c: Call) -> str:
    x, dim = c.x(), c.arguments.get("dim")
    if dim is None:
        x, dim = c.reshape(x, (math.prod(c.shape(x)),)), -1
    return c.reshape(c.op(Argmax(dim % len(c.shape(x)) - len(c.shape(x))), x), c.out_shape)


@maps("aten.cumsum")
def cumsum(c: Call) -> str:
    return c.op(CumSum(_negative(c, c.get("dim"))), c.x())


@maps("aten.any", "aten.all")
def any_or_all(c: Call) -> str:
    """Truth over dims: the largest (or smallest) of the truth values."""
    if c.dtype_of() != torch.bool:
        raise CannotMap("any and all of numbers; compare with zero first")
    x, negate = c.x(), c.target._schema.name == "aten::all"
    one = c.constant(1.0)
    x = c.op(Subtract(), one, x) if negate else x
    y = reduced(c, x, ReduceMax, dims_of(c, len(c.shape(x))))
    return c.reshape(c.op(Subtract(), one, y) if negate else y, c.out_shape)
