"""ONNX ops of networks: products, convolutions, pooling, normalisation, attention, reductions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx.elementwise import as_dtype
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates
from tbuda_lab.core.frontend.onnx.shapes import axis_of


# -- products ------------------------------------------------------------------------------------------------
@translates("MatMul")
def matmul(n: OnnxNode) -> Any:
    return n.aten.matmul(n.x(0), n.x(1))


@translates("Gemm")
def gemm(n: OnnxNode) -> Any:
    a, b, c = n.x(0), n.x(1), n.opt(2)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    a = n.aten.t(a) if n.attr("transA", 0) else a
    if alpha == beta == 1.0 and n.attr("transB", 0) and c is not None and n.calls.shape(c) == (n.shape(1)[0],):
        return n.aten.linear(a, b, c)
    b = n.aten.t(b) if n.attr("transB", 0) else b
    y = n.aten.mm(a, b)
    y = y if alpha == 1.0 else n.aten.mul(y, alpha)
    if c is None or beta == 0.0:
        return y
    return n.aten.add(y, c if beta == 1.0 else n.aten.mul(c, beta))


@translates("Einsum")
def einsum(n: OnnxNode) -> Any:
    equation = str(n.attr("equation"))
    return n.calls.trace(lambda *xs: torch.einsum(equation, *xs), *n.xs(), whole_ops=False)


# -- convolution and pooling ---------------------------------------------------------------------------------
def spans(
    n: OnnxNode, image: tuple[int, ...], kernel: list[int], stride: list[int], dilation: list[int]
) -> tuple[list[int], list[int]]:
    """(before, after) padding of each dim, by `pads` or by `auto_pad`."""
    auto, rank = n.attr("auto_pad", "NOTSET"), len(kernel)
    if auto in ("NOTSET", ""):
        pads = [int(p) for p in n.attr("pads") or [0] * (2 * rank)]
        return pads[:rank], pads[rank:]
    if auto == "VALID":
        return [0] * rank, [0] * rank
    before, after = [], []
    for size, k, s, d in zip(image, kernel, stride, dilation, strict=True):
        total = max(0, (-(-size // s) - 1) * s + d * (k - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return before, after


def pad_image(
    n: OnnxNode, x: Tensor, before: list[int], after: list[int], value: float = 0.0
) -> tuple[Tensor, list[int]]:
    """(x, the symmetric padding that is left to do): uneven padding is done at once."""
    if before == after:
        return x, before
    flat = [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]
    return n.aten.constant_pad_nd(x, flat, value), [0] * len(before)


@translates("Conv")
def conv(n: OnnxNode) -> Any:
    return convolve(n, n.x(0), n.x(1), n.opt(2))


def convolve(n: OnnxNode, x: Tensor, w: Tensor, bias: Tensor | None) -> Any:
    kernel = list(n.calls.shape(w)[2:])
    rank = len(kernel)
    stride, dilation = list(n.attr("strides") or [1] * rank), list(n.attr("dilations") or [1] * rank)
    before, after = spans(n, n.calls.shape(x)[2:], kernel, stride, dilation)
    x, both = pad_image(n, x, before, after)
    return n.aten.convolution(x, w, bias, stride, both, dilation, False, [0] * rank, n.attr("group", 1))


@translates("ConvTranspose")
def conv_transpose(n: OnnxNode) -> Any:
    x, w, image = n.x(0), n.x(1), n.shape(0)[2:]
    kernel = list(n.shape(1)[2:])
    rank, group = len(kernel), n.attr("group", 1)
    stride, dilation = list(n.attr("strides") or [1] * rank), list(n.attr("dilations") or [1] * rank)
    extra = list(n.attr("output_padding") or [0] * rank)
    full = [(i - 1) * s + d * (k - 1) + 1 for i, s, d, k in zip(image, stride, dilation, kernel, strict=True)]
    output_shape, auto = n.attr("output_shape"), n.attr("auto_pad", "NOTSET")
    if output_shape or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = list(output_shape)[-rank:] if output_shape else [i * s for i, s in zip(image, stride, strict=True)]
        total = [f + e - t for f, e, t in zip(full, extra, sizes, strict=True)]
        half = [t // 2 for t in total]
        rest = [t - h for t, h in zip(total, half, strict=True)]
        before, after = (half, rest) if auto == "SAME_UPPER" else (rest, half)
    else:
        before, after = spans(n, image, kernel, stride, dilation)
    grown = [f + e for f, e in zip(full, extra, strict=True)]
    need = [max(e, -a) for e, a in zip(extra, after, strict=True)]
    y = n.aten.convolution(x, w, n.opt(2), stride, [0] * rank, dilation, True, [0] * rank, group)
    if before == after and extra == [0] * rank and min(before) >= 0:
        return n.aten.convolution(x, w, n.opt(2), stride, before, dilation, True, extra, group)
    if any(need):
        bias = n.opt(2)
        y = n.aten.convolution(x, w, None, stride, [0] * rank, dilation, True, [0] * rank, group)
        flat = [p for k in reversed(need) for p in (0, k)]
        y = n.aten.constant_pad_nd(y, flat, 0.0)
        y = y if bias is None else n.aten.add(y, n.reshape(bias, (n.calls.shape(bias)[0], *[1] * rank)))
    for d in range(rank):
        y = n.aten.slice(y, d + 2, before[d], grown[d] - after[d])
    return y


def _pool_sizes(n: OnnxNode) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    kernel = list(n.attr("kernel_shape"))
    rank = len(kernel)
    stride, dilation = list(n.attr("strides") or [1] * rank), list(n.attr("dilations") or [1] * rank)
    before, after = spans(n, n.shape()[2:], kernel, stride, dilation)
    if n.attr("ceil_mode", 0):
        for d, size in enumerate(n.shape()[2:]):
            over = (size + before[d] + after[d] - dilation[d] * (kernel[d] - 1) - 1) % stride[d]
            grown = after[d] + (stride[d] - over if over else 0)
            count = (size + before[d] + grown - dilation[d] * (kernel[d] - 1) - 1) // stride[d]
            after[d] = grown if count * stride[d] < size + before[d] else after[d]  # it must start inside the image
    return kernel, stride, dilation, before, after


def _windows(n: OnnxNode, x: Tensor, sizes: tuple[list[int], ...], fill: float) -> list[Tensor]:
    """The padded image seen from every position of the kernel: one strided slice for each. Positions that see nothing
    but padding are left out."""
    kernel, stride, dilation, before, after = sizes
    image = n.calls.shape(x)[2:]
    flat = [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]
    x = n.aten.constant_pad_nd(x, flat, fill) if any(flat) else x
    shape = n.calls.shape(x)[2:]
    columns = []  # by dim: first and end of the slices
    for d, k in enumerate(kernel):
        length = (shape[d] - dilation[d] * (k - 1) - 1) // stride[d] * stride[d] + 1
        first = torch.arange(k) * dilation[d]
        at = first[:, None] + torch.arange(0, length, stride[d])
        touches = ((at >= before[d]) & (at < before[d] + image[d])).any(1)
        columns.append([(f, f + length) for f in first[touches].tolist()])
    seen = []
    for place in itertools.product(*columns):
        part = x
        for d, (low, high) in enumerate(place):
            part = n.aten.slice(part, d + 2, low, high, stride[d])
        seen.append(part)
    return seen


def _covers_image(n: OnnxNode, sizes: tuple[list[int], ...]) -> bool:
    """Whether there is one window, and all of the image is in it."""
    return all(
        step == 1 and size + b + a - k < s and k >= b + size
        for size, k, s, step, b, a in zip(n.shape()[2:], *sizes, strict=True)
    )


@translates("MaxPool")
def max_pool(n: OnnxNode) -> Any:
    sizes = kernel, stride, dilation, before, after = _pool_sizes(n)
    rank = len(kernel)
    whole = before == after and all(2 * b <= k for b, k in zip(before, kernel, strict=True))
    floats = n.dtype().is_floating_point
    places = len([name for name in n.proto.output if name]) > 1
    if rank <= 2 and whole and floats and not places:
        pool = n.aten.max_pool1d if rank == 1 else n.aten.max_pool2d
        return pool(n.x(), kernel, stride, before, dilation, False), None
    if _covers_image(n, sizes) and not places:
        return n.aten.amax(n.x(), list(range(2, 2 + rank)), True), None
    low = float(torch.finfo(torch.float32).min) if floats else int(torch.iinfo(n.dtype()).min)
    parts = _windows(n, n.x(), sizes, low)
    y, at = parts[0], None
    image = n.shape()[2:]
    if places:  # where the first of the largest stands in the flattened tensor
        order = list(range(len(image)))[::-1] if n.attr("storage_order", 0) else list(range(len(image)))
        flat = torch.arange(math.prod(image)).reshape([image[d] for d in order]).permute(order)
        lead = torch.arange(math.prod(n.shape()[:2])).reshape(*n.shape()[:2], *[1] * rank) * math.prod(image)
        spots = _windows(n, n.constant((flat + lead).to(torch.int64)), sizes, 0)
        at = spots[0]
        for part, spot in zip(parts[1:], spots[1:], strict=True):
            at = n.aten.where(n.aten.gt(part, y), spot, at)
            y = n.aten.maximum(y, part)
        return y, at
    for part in parts[1:]:
        y = n.aten.maximum(y, part)
    return y, None


@translates("AveragePool", "LpPool")
def average_pool(n: OnnxNode) -> Any:
    sizes = kernel, stride, dilation, before, after = _pool_sizes(n)
    x, rank = n.x(), len(kernel)
    if n.op_type == "LpPool":
        p = n.attr("p", 2)
        total = _total(n, _windows(n, n.aten.pow(n.aten.abs(x), p), sizes, 0.0))
        return n.aten.pow(total, 1.0 / p)
    counts = bool(n.attr("count_include_pad", 0))
    plain = dilation == [1] * rank and before == after and not n.attr("ceil_mode", 0)
    if rank <= 2 and plain and all(2 * b <= k for b, k in zip(before, kernel, strict=True)):
        return (n.aten.avg_pool1d if rank == 1 else n.aten.avg_pool2d)(x, kernel, stride, before, False, counts)
    if _covers_image(n, sizes) and not counts:
        return n.aten.mean(x, list(range(2, 2 + rank)), True)
    total = _total(n, _windows(n, x, sizes, 0.0))
    ones = torch.ones(1, 1, *n.shape()[2:])
    if counts:  # what `pads` adds counts, what ceil_mode adds does not
        padding = spans(n, n.shape()[2:], kernel, stride, dilation)
        around = [p for both in zip(*map(reversed, padding), strict=True) for p in both]
        ones = torch.nn.functional.pad(ones, around, value=1.0)
        left = [a - g for a, g in zip(after, padding[1], strict=True)]
        number = _total(n, _windows(n, n.constant(ones), (kernel, stride, dilation, [0] * rank, left), 0.0))
    else:
        number = _total(n, _windows(n, n.constant(ones), sizes, 0.0))
    return n.aten.div(total, number)


def _total(n: OnnxNode, parts: list[Tensor]) -> Tensor:
    y = parts[0]
    for part in parts[1:]:
        y = n.aten.add(y, part)
    return y


@translates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: OnnxNode) -> Any:
    x, dims = n.x(), list(range(2, n.rank()))
    if n.op_type == "GlobalAveragePool":
        return n.aten.mean(x, dims, True)
    if n.op_type == "GlobalMaxPool":
        return n.aten.amax(x, dims, True)
    p = n.attr("p", 2)
    return n.aten.pow(n.aten.sum(n.aten.pow(n.aten.abs(x), p), dims, True), 1.0 / p)


# -- normalisation -------------------------------------------------------------------------------------------
@translates("BatchNormalization")
def batch_normalization(n: OnnxNode) -> Any:
    x, (weight, bias, mean, variance) = n.x(), (n.x(k) for k in range(1, 5))
    if n.attr("training_mode", 0):
        dims, momentum = [d for d in range(n.rank()) if d != 1], n.attr("momentum", 0.9)
        middle = n.aten.mean(x, dims, True)
        centred = n.aten.sub(x, middle)
        spread = n.aten.mean(n.aten.mul(centred, centred), dims, True)
        inverse = n.aten.rsqrt(n.aten.add(spread, n.attr("epsilon", 1e-5)))
        along = [1, n.shape()[1], *[1] * (n.rank() - 2)]
        y = n.aten.add(n.aten.mul(n.aten.mul(centred, inverse), n.reshape(weight, along)), n.reshape(bias, along))
        now = [n.reshape(v, (n.shape()[1],)) for v in (middle, spread)]
        selected = [n.aten.mul(v, momentum) for v in (mean, variance)]
        return y, *(n.aten.add(k, n.aten.mul(v, 1 - momentum)) for k, v in zip(selected, now, strict=True))
    return n.aten.batch_norm(x, weight, bias, mean, variance, False, 0.0, n.attr("epsilon", 1e-5), False)


@translates("InstanceNormalization")
def instance_normalization(n: OnnxNode) -> Any:
    return n.aten.group_norm(n.x(), n.shape()[1], n.x(1), n.x(2), n.attr("epsilon", 1e-5))


@translates("GroupNormalization")
def group_normalization(n: OnnxNode) -> Any:
    groups, channels = n.attr("num_groups"), n.shape()[1]
    weight, bias = n.x(1), n.x(2)
    if n.calls.shape(weight) == (groups,) and groups != channels:  # opset 18: one number for a group
        weight, bias = (
            n.reshape(n.aten.expand(n.reshape(v, (groups, 1)), [groups, channels // groups]), (channels,))
            for v in (weight, bias)
        )
    return n.aten.group_norm(n.x(), groups, weight, bias, n.attr("epsilon", 1e-5))


@translates("LayerNormalization", "RMSNormalization")
def layer_normalization(n: OnnxNode) -> Any:
    shape, axis = n.shape(), axis_of(n.attr("axis", -1), n.rank())
    normal, epsilon, x = list(shape[axis:]), n.attr("epsilon", 1e-5), n.x()
    dims = list(range(axis, len(shape)))
    if n.op_type == "RMSNormalization":
        scale = n.aten.rsqrt(n.aten.add(n.aten.mean(n.aten.mul(x, x), dims, True), epsilon))
        return n.aten.mul(n.aten.mul(x, scale), n.x(1))
    fits = n.shape(1) == tuple(normal) and (n.opt(2) is None or n.shape(2) == tuple(normal))
    if fits and len([name for name in n.proto.output if name]) == 1:
        return n.aten.layer_norm(x, normal, n.x(1), n.opt(2), epsilon)
    mean = n.aten.mean(x, dims, True)
    centred = n.aten.sub(x, mean)
    inverse = n.aten.rsqrt(n.aten.add(n.aten.mean(n.aten.mul(centred, centred), dims, True), epsilon))
    y = n.aten.mul(n.aten.mul(centred, inverse), n.x(1))
    return (y if n.opt(2) is None else n.aten.add(y, n.x(2))), mean, inverse


@translates("LRN")
def local_response_normalization(n: OnnxNode) -> Any:
    size, x = n.attr("size"), n.x()
    square = n.aten.mul(x, x)
    channels = n.shape()[1]
    at = torch.arange(channels)
    near = (at[None] - at[:, None] >= -((size - 1) // 2)) & (at[None] - at[:, None] <= size // 2)
    flat = n.reshape(square, (n.shape()[0], channels, math.prod(n.shape()[2:])))
    total = n.reshape(n.aten.matmul(n.constant(near.to(n.dtype())), flat), n.shape())
    scale = n.aten.add(n.aten.mul(total, n.attr("alpha", 1e-4) / size), n.attr("bias", 1.0))
    return n.aten.mul(x, n.aten.pow(scale, -float(n.attr("beta", 0.75))))


@translates("LpNormalization")
def lp_normalization(n: OnnxNode) -> Any:
    p, x, axis = n.attr("p", 2), n.x(), n.attr("axis", -1)
    if p == 1:
        norm = n.aten.sum(n.aten.abs(x), [axis], True)
    else:
        norm = n.aten.sqrt(n.aten.sum(n.aten.mul(x, x), [axis], True))
    zero = n.aten.eq(norm, 0.0)
    return n.aten.div(x, n.aten.where(zero, n.constant(torch.ones((), dtype=n.dtype())), norm))


@translates("MeanVarianceNormalization")
def mean_variance_normalization(n: OnnxNode) -> Any:
    axes, x = list(n.attr("axes") or [0, 2, 3]), n.x()
    centred = n.aten.sub(x, n.aten.mean(x, axes, True))
    spread = n.aten.sqrt(n.aten.mean(n.aten.mul(centred, centred), axes, True))
    return n.aten.div(centred, n.aten.add(spread, 1e-9))


@translates("Softmax", "LogSoftmax", "Hardmax")
def softmax(n: OnnxNode) -> Any:
    x, shape = n.x(), n.shape()
    axis = axis_of(n.attr("axis", -1 if n.opset >= 13 else 1), len(shape))
    if n.opset < 13:  # the tensor is taken for a matrix, split at the axis
        x = n.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    if n.op_type == "Hardmax":
        size = n.calls.shape(x)[axis]
        first = n.aten.argmax(x, axis, True)
        places = [1] * len(n.calls.shape(x))
        places[axis] = size
        y = as_dtype(n, n.aten.eq(n.constant(torch.arange(size).reshape(places)), first), n.dtype())
    else:
        y = (n.aten.softmax if n.op_type == "Softmax" else n.aten.log_softmax)(x, axis)
    return n.reshape(y, shape)


# -- reductions ----------------------------------------------------------------------------------------------
@translates(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
def reduce(n: OnnxNode) -> Any:
    axes, keep, x = n.ints_or_attr(1, "axes"), bool(n.attr("keepdims", 1)), n.x()
    stays = bool(n.attr("noop_with_empty_axes", 0))  # read here: with axes it says nothing
    if not axes:
        if stays:
            return _pointwise(n, x)
        axes = list(range(n.rank()))
    if 0 in n.shape():  # what it reduces has no elements, so the result is known
        x = n.constant(torch.empty(n.shape(), dtype=n.dtype()))
        if n.op_type in ("ReduceMax", "ReduceMin"):
            selected = [1 if d in [a % n.rank() for a in axes] else s for d, s in enumerate(n.shape())]
            selected = [s for d, s in enumerate(selected) if keep or d not in [a % n.rank() for a in axes]]
            return n.constant(_least(n.dtype(), n.op_type == "ReduceMin").expand(selected).clone())
        if n.op_type == "ReduceProd":
            return n.constant(x.tensor.prod(axes[0], keep))
        if n.op_type == "ReduceLogSumExp":
            return n.constant(torch.logsumexp(x.tensor, axes, keep))
    kind = n.op_type
    if kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"):
        names = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "amax", "ReduceMin": "amin"}
        y = getattr(n.aten, names[kind])(x, axes, keep)
        return as_dtype(n, y, n.dtype()) if kind == "ReduceSum" else y
    if kind == "ReduceProd":
        rank = n.rank()
        for axis in sorted((a % rank for a in axes), reverse=True):
            product = n.aten.select(x, axis, 0)
            for k in range(1, n.calls.shape(x)[axis]):
                product = n.aten.mul(product, n.aten.select(x, axis, k))
            x = n.aten.unsqueeze(product, axis) if keep else product
        return x
    if kind == "ReduceL1":
        return n.aten.sum(n.aten.abs(x), axes, keep)
    if kind == "ReduceLogSum":
        return n.aten.log(n.aten.sum(x, axes, keep))
    if kind == "ReduceLogSumExp":
        return n.aten.logsumexp(x, axes, keep)
    total = n.aten.sum(n.aten.mul(x, x), axes, keep)
    return n.aten.sqrt(total) if kind == "ReduceL2" else as_dtype(n, total, n.dtype())


def _least(dtype: torch.dtype, largest: bool) -> torch.Tensor:
    """The smallest number of a type (the largest for a minimum): the result over no elements."""
    if dtype == torch.bool:
        return torch.tensor(largest)
    if dtype.is_floating_point:
        return torch.tensor(math.inf if largest else -math.inf, dtype=dtype)
    limits = torch.iinfo(dtype)
    return torch.tensor(limits.max if largest else limits.min, dtype=dtype)


def _pointwise(n: OnnxNode, x: Tensor) -> Any:
    """A reduction over no axes: only what is done to each element is left."""
    kind = n.op_type
    if kind in ("ReduceL1", "ReduceL2"):
        return n.aten.abs(x)
    if kind == "ReduceLogSum":
        return n.aten.log(x)
    return n.aten.mul(x, x) if kind == "ReduceSumSquare" else x


@translates("ArgMax", "ArgMin")
def arg_max(n: OnnxNode) -> Any:
    axis, keep, x = axis_of(n.attr("axis", 0), n.rank()), bool(n.attr("keepdims", 1)), n.x()
    x = n.aten.neg(x) if n.op_type == "ArgMin" else x
    size = n.shape()[axis]
    if not n.attr("select_last_index", 0):
        return n.aten.argmax(x, axis, keep)
    turned = n.aten.argmax(n.aten.flip(x, [axis]), axis, keep)
    return n.aten.rsub(turned, size - 1)


@translates("CumSum")
def cum_sum(n: OnnxNode) -> Any:
    axis, x = axis_of(int(n.scalar(1, "axis")), n.rank()), n.x()
    backward = bool(n.attr("reverse", 0))
    x = n.aten.flip(x, [axis]) if backward else x
    if n.attr("exclusive", 0):  # the sum before each: the sum less it would lose what is small beside it
        size, behind = n.calls.shape(x)[axis], n.rank() - 1 - axis
        x = n.aten.constant_pad_nd(n.aten.slice(x, axis, 0, size - 1), [*[0, 0] * behind, 1, 0], 0.0)
    y = as_dtype(n, n.aten.cumsum(x, axis), n.dtype())
    return n.aten.flip(y, [axis]) if backward else y
