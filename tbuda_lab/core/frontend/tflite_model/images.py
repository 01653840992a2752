"""What TFLite's operators of images mean, in calls of aten. Images lie (N, H, W, C)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.tflite_model.operators import Operator, translates

NCHW, NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """TensorFlow's SAME: what is odd goes after."""
    total = max(0, (-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size)
    return total // 2, total - total // 2


def as_image(o: Operator, position: int = 0) -> Tensor:
    return o.aten.permute(o.x(position), NCHW)  # type: ignore[no-any-return]


def pad_image(
    o: Operator, x: Tensor, kernel: list[int], stride: list[int], dilation: list[int], padding: int, value: float
) -> tuple[Tensor, list[int]]:
    """(x, the symmetric padding left to do) of an image (N, C, H, W); padding 0 is SAME, 1 VALID."""
    if padding == 1:
        return x, [0, 0]
    sizes = o.calls.shape(x)[2:]
    spans = [same_padding(n, k, s, d) for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True)]
    if all(before == after for before, after in spans):
        return x, [before for before, _ in spans]
    return o.aten.constant_pad_nd(x, [*spans[1], *spans[0]], value), [0, 0]


@translates("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(o: Operator) -> Any:
    deep = o.kind == "DEPTHWISE_CONV_2D"
    p = o.options("DepthwiseConv2DOptions" if deep else "Conv2DOptions")
    # stored (out, h, w, in), or (1, h, w, in * multiplier)
    w = o.aten.permute(o.x(1), [3, 0, 1, 2] if deep else NCHW)
    kernel = list(o.calls.shape(w)[2:])
    stride, dilation = [p.StrideH(), p.StrideW()], [p.DilationHFactor(), p.DilationWFactor()]
    x, both = pad_image(o, as_image(o), kernel, stride, dilation, p.Padding(), 0.0)
    channels = o.shape()[3]
    groups = channels if deep else channels // o.calls.shape(w)[1]
    y = o.aten.convolution(x, w, o.opt(2), stride, both, dilation, False, [0, 0], groups)
    return o.activate(o.aten.permute(y, NHWC), p.FusedActivationFunction())


@translates("TRANSPOSE_CONV")
def transpose_conv(o: Operator) -> Any:
    p = o.options("TransposeConvOptions")
    w = o.aten.permute(o.x(1), [3, 0, 1, 2])  # stored (out, h, w, in)
    x = as_image(o, 2)
    kernel, stride = list(o.calls.shape(w)[2:]), [p.StrideH(), p.StrideW()]
    y = o.aten.convolution(x, w, o.opt(3), stride, [0, 0], [1, 1], True, [0, 0], 1)
    for d in range(2):
        size = o.shapes[0][1 + d]
        before = same_padding(size, kernel[d], stride[d])[0] if p.Padding() == 0 else 0
        if before + size > o.calls.shape(y)[2 + d]:
            raise CannotMap("a transposed convolution whose output is larger than its windows reach")
        y = o.aten.slice(y, 2 + d, before, before + size)
    return o.activate(o.aten.permute(y, NHWC), p.FusedActivationFunction())


@translates("MAX_POOL_2D", "AVERAGE_POOL_2D")
def pool(o: Operator) -> Any:
    p = o.options("Pool2DOptions")
    kernel, stride = [p.FilterHeight(), p.FilterWidth()], [p.StrideH(), p.StrideW()]
    x = as_image(o)
    if o.kind == "MAX_POOL_2D":
        x, both = pad_image(o, x, kernel, stride, [1, 1], p.Padding(), float(torch.finfo(torch.float32).min))
        y = o.aten.max_pool2d(x, kernel, stride, both)
    else:
        filled, both = pad_image(o, x, kernel, stride, [1, 1], p.Padding(), 0.0)
        y = o.aten.avg_pool2d(filled, kernel, stride, both, False, both == [0, 0])
        if filled is not x:  # uneven padding was counted: scale by how much of each window is image
            ones = torch.ones(1, 1, *o.calls.shape(x)[2:])
            grown, _ = pad_image(o, o.calls.constant(ones), kernel, stride, [1, 1], p.Padding(), 0.0)
            y = o.aten.div(y, o.aten.avg_pool2d(grown, kernel, stride))
    return o.activate(o.aten.permute(y, NHWC), p.FusedActivationFunction())


@translates("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(o: Operator) -> Any:
    linear = o.kind == "RESIZE_BILINEAR"
    p = o.options("ResizeBilinearOptions" if linear else "ResizeNearestNeighborOptions")
    size, corners, half = o.ints(1, "sizes"), bool(p.AlignCorners()), bool(p.HalfPixelCenters())
    x = as_image(o)
    if linear and (corners or half):
        y = o.aten.upsample_bilinear2d(x, size, corners)
    elif not linear and not corners and not half:
        y = o.aten.upsample_nearest2d(x, size)
    else:
        y = x
        for d, count in enumerate(size):
            y = _resized(o, y, 2 + d, count, corners, half, linear)
    return o.aten.permute(y, NHWC)


def _resized(o: Operator, x: Tensor, dim: int, count: int, corners: bool, half: bool, linear: bool) -> Tensor:
    """x with so many places along a dim, by where they lie between those that it has: with half, pixels have their
    centres there; with corners, the first and the last lie on the first and the last."""
    had = o.calls.shape(x)[dim]
    scale = (had - 1) / (count - 1) if corners and count > 1 else had / count
    at = np.float32(scale) * (np.arange(count, dtype=np.float32) + np.float32(0.5 if half else 0.0))
    if not linear:
        nearest = np.clip(np.floor(at + 0.5) if corners else np.floor(at), 0, had - 1)
        return o.aten.index_select(x, dim, o.calls.constant(nearest.astype(np.int64)))  # type: ignore[no-any-return]
    below = np.clip(np.floor(at), 0, had - 1).astype(np.int64)
    share = o.calls.constant((at - below).astype(np.float32).reshape([-1, *[1] * (3 - dim)]))
    low = o.aten.index_select(x, dim, o.calls.constant(below))
    high = o.aten.index_select(x, dim, o.calls.constant(np.minimum(below + 1, had - 1)))
    return o.aten.add(low, o.aten.mul(o.aten.sub(high, low), share))  # type: ignore[no-any-return]


@translates("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth_to_space(o: Operator) -> Any:
    n, h, w, c = o.shape()
    if o.kind == "DEPTH_TO_SPACE":
        b = int(o.options("DepthToSpaceOptions").BlockSize())
        split = o.aten.permute(o.aten.reshape(o.x(), [n, h, w, b, b, c // (b * b)]), [0, 1, 3, 2, 4, 5])
    else:
        b = int(o.options("SpaceToDepthOptions").BlockSize())
        split = o.aten.permute(o.aten.reshape(o.x(), [n, h // b, b, w // b, b, c]), [0, 1, 3, 2, 4, 5])
    return o.aten.reshape(split, o.shapes[0])
