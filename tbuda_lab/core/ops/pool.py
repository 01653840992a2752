"""Pooling. Paddings are (left, right, top, bottom), pairs are (height, width)."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Node, Payload, Shape, ShapeError, op
from tbuda_lab.core.ops.base import NdOp, window
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.conv import (
    Pair,
    Sides,
    check_rows,
    enter_rows,
    from_nchw,
    image,
    image_shape,
    images_together,
    is_whole,
    leave_rows,
    nchw_to_rows,
    one_tall_image,
    per_image,
    rows_to_nchw,
    to_nchw,
    window_positions,
)
from tbuda_lab.core.ops.reduce import ReduceAvg, ReduceMax
from tbuda_lab.core.ops.tm import Concatenate, GatherRows, SumRows

Tensor = torch.Tensor
LOWEST = float("-inf")
OUTSIDE = -65504.0
"""In formats without infinities added to pixels outside the image, so that they are never the largest."""


def _extend(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int, ceil_mode: bool
) -> tuple[int, int]:
    """(windows, padding after) along one dim, the padding grown or cut so that the windows fit exactly."""
    count = window(size, kernel, stride, before, after, dilation, ceil_mode)
    return count, (count - 1) * stride + dilation * (kernel - 1) + 1 - size - before


def pool_windows(
    hw: Pair, kernel: Pair, stride: Pair, padding: Sides, dilation: Pair, ceil_mode: bool
) -> tuple[Pair, Sides]:
    """(output height and width, effective paddings); an effective padding may be negative (unused pixels)."""
    left, right, top, bottom = padding
    oh, bottom = _extend(hw[0], kernel[0], stride[0], top, bottom, dilation[0], ceil_mode)
    ow, right = _extend(hw[1], kernel[1], stride[1], left, right, dilation[1], ceil_mode)
    if oh < 1 or ow < 1:
        raise ShapeError(f"pooling: a {kernel[0]}x{kernel[1]} kernel does not fit the padded {hw[0]}x{hw[1]} image")
    return (oh, ow), (left, right, top, bottom)


@op("max_pool2d")
class MaxPool2d(NdOp):
    """Largest pixel of each window; padding never wins."""

    kernel: Pair
    stride: Pair
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False
    channel_last: bool = False

    def infer(self, x: Shape) -> Shape:
        n, c, h, w = image(x, self.channel_last, "max_pool2d")
        (oh, ow), _ = pool_windows((h, w), self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
        return image_shape(n, c, oh, ow, self.channel_last)

    def evaluate(self, x: Tensor) -> Tensor:
        img = to_nchw(x, self.channel_last)
        hw = (img.shape[2], img.shape[3])
        _, sides = pool_windows(hw, self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
        y = functional.max_pool2d(functional.pad(img, sides, value=LOWEST), self.kernel, self.stride, 0, self.dilation)
        return from_nchw(y, self.channel_last)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        n, _, height, width = image(b.shape(x), self.channel_last, "max_pool2d")
        hw = (height, width)
        (out_height, _), sides = pool_windows(hw, self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)
        if n != 1:
            # rows of zeros between images would win over negative pixels
            together = images_together(n, height, width, self.stride[0], sides) if sides[2:] == (0, 0) else 1
            if together < n:
                return per_image(b, x, lambda some: b.op(self, some), together)

            def windows(hw: Pair, sides: Sides) -> MaxPoolRows:
                return MaxPoolRows(hw, self.kernel, self.stride, sides, self.dilation)

            return one_tall_image(b, x, self.channel_last, windows, self.stride[0], sides, out_height)
        rows = MaxPoolRows(hw, self.kernel, self.stride, sides, self.dilation)
        return leave_rows(b, b.op(rows, enter_rows(b, x, self.channel_last)), rows.out_hw, self.channel_last)


@op("avg_pool2d")
class AvgPool2d(NdOp):
    """Mean of each window. count_include_pad: the divisor counts padding (never what ceil_mode adds beyond it)."""

    kernel: Pair
    stride: Pair
    padding: Sides = (0, 0, 0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    channel_last: bool = False

    def infer(self, x: Shape) -> Shape:
        n, c, h, w = image(x, self.channel_last, "avg_pool2d")
        (oh, ow), _ = pool_windows((h, w), self.kernel, self.stride, self.padding, (1, 1), self.ceil_mode)
        return image_shape(n, c, oh, ow, self.channel_last)

    def counts(self, hw: Pair) -> Tensor:
        """The divisor of every window, (oh, ow)."""
        _, sides = pool_windows(hw, self.kernel, self.stride, self.padding, (1, 1), self.ceil_mode)
        ones = torch.ones(1, 1, *hw)
        left, right, top, bottom = self.padding
        if self.count_include_pad:
            ones = torch.ones(1, 1, hw[0] + top + bottom, hw[1] + left + right)
            sides = (0, sides[1] - right, 0, sides[3] - bottom)
        return functional.avg_pool2d(functional.pad(ones, sides), self.kernel, self.stride, divisor_override=1)[0, 0]

    def evaluate(self, x: Tensor) -> Tensor:
        img = to_nchw(x, self.channel_last)
        hw = (img.shape[2], img.shape[3])
        _, sides = pool_windows(hw, self.kernel, self.stride, self.padding, (1, 1), self.ceil_mode)
        y = functional.avg_pool2d(functional.pad(img, sides), self.kernel, self.stride, divisor_override=1)
        return from_nchw(y / self.counts(hw).to(y.dtype), self.channel_last)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """The mean of all rows, or sums of windows over their counts."""
        n, _, height, width = image(b.shape(x), self.channel_last, "avg_pool2d")
        hw = (height, width)
        out, sides = pool_windows(hw, self.kernel, self.stride, self.padding, (1, 1), self.ceil_mode)
        counts = self.counts(hw).numpy().reshape(1, 1, -1, 1)
        most = float(counts.max())
        whole = out == (1, 1) and self.kernel == hw and sides == (0, 0, 0, 0)
        alike = not whole and float(counts.min()) == most
        together = images_together(n, height, width, self.stride[0], sides) if alike else 1
        if together < n:
            return per_image(b, x, lambda some: b.op(self, some), together)
        if whole:
            return leave_rows(b, b.op(ReduceAvg(-2), enter_rows(b, x, self.channel_last)), out, self.channel_last)
        if n != 1:

            def windows(hw: Pair, sides: Sides) -> SumPoolRows:
                return SumPoolRows(hw, self.kernel, self.stride, sides)

            y = one_tall_image(b, x, self.channel_last, windows, self.stride[0], sides, out[0])
            return b.multiply(y, 1.0 / most)
        y = b.op(SumPoolRows(hw, self.kernel, self.stride, sides), enter_rows(b, x, self.channel_last))
        y = b.multiply(y, b.constant((1.0 / counts).astype(np.float32)) if float(counts.min()) != most else 1.0 / most)
        return leave_rows(b, y, out, self.channel_last)


@op("sum_pool2d_rows")
class SumPoolRows(NdOp):
    """Sums of windows in rows layout: x (1, 1, H*W, C), one row per pixel in row-major order -> (1, 1, OH*OW, C).
    Pixels outside the image add nothing."""

    in_hw: Pair
    kernel: Pair
    stride: Pair
    padding: Sides = (0, 0, 0, 0)

    @property
    def out_hw(self) -> Pair:
        return pool_windows(self.in_hw, self.kernel, self.stride, self.padding, (1, 1), False)[0]

    def infer(self, x: Shape) -> Shape:
        check_rows(x, self.in_hw, "sum_pool2d_rows")
        oh, ow = self.out_hw
        return (x[0], 1, oh * ow, x[3])

    def evaluate(self, x: Tensor) -> Tensor:
        img = functional.pad(rows_to_nchw(x, self.in_hw), self.padding)
        return nchw_to_rows(functional.avg_pool2d(img, self.kernel, self.stride, divisor_override=1))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        positions = np.stack(window_positions(self.in_hw, self.kernel, self.stride, self.padding, (1, 1)), axis=1)
        windows, _ = np.nonzero(positions >= 0)
        pairs = np.stack([windows, positions[positions >= 0]], axis=1).astype(np.int32)
        return b.op(SumRows(Payload(pairs), len(positions)), x)


@op("adaptive_avg_pool2d")
class AdaptiveAvgPool2d(NdOp):
    """Mean over output[0] x output[1] regions that cover the image evenly (torch's region bounds)."""

    output: Pair
    channel_last: bool = False

    def infer(self, x: Shape) -> Shape:
        n, c, _, _ = image(x, self.channel_last, "adaptive_avg_pool2d")
        return image_shape(n, c, *self.output, self.channel_last)

    def evaluate(self, x: Tensor) -> Tensor:
        y = functional.adaptive_avg_pool2d(to_nchw(x, self.channel_last), self.output)
        return from_nchw(y, self.channel_last)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Average pooling where the output divides the image, else sums of the pixels of each region, times the weight
        of one."""
        n, _, height, width = image(b.shape(x), self.channel_last, "adaptive_avg_pool2d")
        if (height, width) == self.output:
            return x
        if height % self.output[0] == 0 and width % self.output[1] == 0:
            kernel = (height // self.output[0], width // self.output[1])
            return b.op(AvgPool2d(kernel, kernel, channel_last=self.channel_last), x)
        if n != 1:
            return per_image(b, x, lambda one: b.op(self, one))
        average = np.kron(_bins(height, self.output[0]), _bins(width, self.output[1])).astype(np.float32)
        pairs = np.argwhere(average > 0).astype(np.int32)
        rows = b.op(SumRows(Payload(pairs), len(average)), enter_rows(b, x, self.channel_last))
        rows = b.multiply(rows, b.constant(average.max(1).reshape(1, 1, -1, 1)))
        return leave_rows(b, rows, self.output, self.channel_last)


def _bins(size: int, bins: int) -> np.ndarray:
    """(bins, size) averaging matrix; bin i covers floor(i*size/bins) .. ceil((i+1)*size/bins) - 1."""
    i, at = np.arange(bins)[:, None], np.arange(size)[None, :]
    inside = (at >= i * size // bins) & (at < -(-(i + 1) * size // bins))
    average: np.ndarray = inside / inside.sum(1, keepdims=True)
    return average


@op("max_pool2d_rows")
class MaxPoolRows(NdOp):
    """Max pooling in rows layout: x (1, 1, H*W, C), one row per pixel in row-major order -> (1, 1, OH*OW, C)."""

    in_hw: Pair
    kernel: Pair
    stride: Pair
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def out_hw(self) -> Pair:
        return pool_windows(self.in_hw, self.kernel, self.stride, self.padding, self.dilation, False)[0]

    def infer(self, x: Shape) -> Shape:
        check_rows(x, self.in_hw, "max_pool2d_rows")
        oh, ow = self.out_hw
        return (x[0], 1, oh * ow, x[3])

    def evaluate(self, x: Tensor) -> Tensor:
        img = functional.pad(rows_to_nchw(x, self.in_hw), self.padding, value=LOWEST)
        return nchw_to_rows(functional.max_pool2d(img, self.kernel, self.stride, 0, self.dilation))

    def differentiable(self, b: Builder, node: Node, x: str) -> str:
        """One slice for every kernel position, and the maximum of the slices."""
        positions = window_positions(self.in_hw, self.kernel, self.stride, self.padding, self.dilation)
        slices = []
        for at in positions:
            one = x if is_whole(at, self.in_hw) else b.op(GatherRows(Payload(at)), x)
            if (at < 0).any():
                lowest = LOWEST if b.options.data_format in (DataFormat.Float32, DataFormat.Float16_b) else OUTSIDE
                outside = np.where(at < 0, lowest, 0.0).astype(np.float32).reshape(1, 1, -1, 1)
                one = b.add(one, b.constant(outside))
            slices.append(one)
        return slices[0] if len(slices) == 1 else b.op(ReduceMax(-3), b.op(Concatenate(-3), *slices))
