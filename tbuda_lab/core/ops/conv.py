"""Convolutions. Paddings are (left, right, top, bottom), pairs are (height, width)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.graph import Node, Payload, Shape, ShapeError, op
from tbuda_lab.core.ops.base import Names, NdOp, need_rank, window
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.reduce import Matmul
from tbuda_lab.core.ops.tm import Concatenate, GatherRows, Index, Transpose

Tensor = torch.Tensor
Pair = tuple[int, int]
Sides = tuple[int, int, int, int]


def to_nchw(x: Tensor, channel_last: bool) -> Tensor:
    return x.permute(0, 3, 1, 2) if channel_last else x


def from_nchw(y: Tensor, channel_last: bool) -> Tensor:
    return y.permute(0, 2, 3, 1) if channel_last else y


def image(x: Shape, channel_last: bool, what: str) -> tuple[int, int, int, int]:
    """(n, c, h, w) of an image batch."""
    need_rank(x, 4, what)
    return (x[0], x[3], x[1], x[2]) if channel_last else (x[0], x[1], x[2], x[3])


def image_shape(n: int, c: int, h: int, w: int, channel_last: bool) -> Shape:
    return (n, h, w, c) if channel_last else (n, c, h, w)


def check_conv(x_channels: int, w: Shape, bias: Shape | None, groups: int, what: str) -> None:
    need_rank(w, 4, f"{what}'s weight")
    if w[1] * groups != x_channels or w[0] % groups:
        raise ShapeError(
            f"{what}: weight {w} in {groups} group(s) takes {w[1] * groups} input channels, the input has {x_channels}"
        )
    if bias is not None and (bias[-1:] != (w[0],) or math.prod(bias) != w[0]):  # one that an input gives gets rank 4
        raise ShapeError(f"{what}: the bias is a vector of the {w[0]} output channels, not {bias}")


@op("conv2d")
class Conv2d(NdOp):
    """2-D convolution: x NCHW (or NHWC), weight (out, in / groups, kh, kw), optional bias (out,)."""

    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    channel_last: bool = False

    def infer(self, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
        n, c, h, wd = image(x, self.channel_last, "conv2d")
        check_conv(c, w, bias, self.groups, "conv2d")
        left, right, top, bottom = self.padding
        oh = window(h, w[2], self.stride[0], top, bottom, self.dilation[0])
        ow = window(wd, w[3], self.stride[1], left, right, self.dilation[1])
        if oh < 1 or ow < 1:
            raise ShapeError(f"conv2d: a {w[2]}x{w[3]} kernel does not fit the padded {h}x{wd} image")
        return image_shape(n, w[0], oh, ow, self.channel_last)

    def evaluate(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        padded = functional.pad(to_nchw(x, self.channel_last), self.padding)
        y = functional.conv2d(padded, w, bias, self.stride, 0, self.dilation, self.groups)
        return from_nchw(y, self.channel_last)

    def canonicalise(self, b: Builder, node: Node, x: str, w: str, *bias: str) -> str:
        n, _, height, width = image(b.shape(x), self.channel_last, "conv2d")
        kernel = (b.shape(w)[2], b.shape(w)[3])
        together = images_together(n, height, width, self.stride[0], self.padding)
        if together < n:
            return per_image(b, x, lambda some: b.op(self, some, w, *bias), together)
        if n != 1:

            def conv(hw: Pair, sides: Sides) -> ConvRows:
                return ConvRows(hw, kernel, self.stride, sides, self.dilation, self.groups)

            return one_tall_image(
                b,
                x,
                self.channel_last,
                conv,
                self.stride[0],
                self.padding,
                image(node.shape, self.channel_last, "conv2d")[2],
                w,
                *bias,
            )
        rows = ConvRows((height, width), kernel, self.stride, self.padding, self.dilation, self.groups)
        return leave_rows(b, b.op(rows, enter_rows(b, x, self.channel_last), w, *bias), rows.out_hw, self.channel_last)


@op("conv2d_transpose")
class Conv2dTranspose(NdOp):
    """Transposed 2-D convolution: weight (in, out / groups, kh, kw), optional bias (out,)."""

    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    output_padding: Pair = (0, 0)
    channel_last: bool = False

    def infer(self, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
        n, c, h, wd = image(x, self.channel_last, "conv2d_transpose")
        need_rank(w, 4, "conv2d_transpose's weight")
        cout = w[1] * self.groups
        if w[0] != c or c % self.groups or (bias is not None and bias != (cout,)):
            raise ShapeError(f"conv2d_transpose: weight {w}, bias {bias}, {self.groups} groups do not fit {c} channels")
        left, right, top, bottom = self.padding
        oh = (h - 1) * self.stride[0] - top - bottom + self.dilation[0] * (w[2] - 1) + 1 + self.output_padding[0]
        ow = (wd - 1) * self.stride[1] - left - right + self.dilation[1] * (w[3] - 1) + 1 + self.output_padding[1]
        if oh < 1 or ow < 1:
            raise ShapeError(f"conv2d_transpose: padding {self.padding} leaves nothing of the result")
        return image_shape(n, cout, oh, ow, self.channel_last)

    def evaluate(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        left, right, top, bottom = self.padding
        y = functional.conv_transpose2d(
            to_nchw(x, self.channel_last), w, None, self.stride, 0, 0, self.groups, self.dilation
        )
        # Cropping by hand takes paddings that differ per side; output padding extends the bottom and right by zeros.
        y = functional.pad(y, (-left, self.output_padding[1] - right, -top, self.output_padding[0] - bottom))
        return from_nchw(y if bias is None else y + bias[:, None, None], self.channel_last)

    def canonicalise(self, b: Builder, node: Node, x: str, w: str, *bias: str) -> str:
        """A convolution by the turned kernel over the image with stride - 1 zero pixels between its pixels."""
        n, cin, height, width = image(b.shape(x), self.channel_last, "conv2d_transpose")
        if n != 1:
            return per_image(b, x, lambda one: b.op(self, one, w, *bias))
        (left, right, top, bottom), (kh, kw) = self.padding, b.shape(w)[2:]
        reach_h, reach_w = self.dilation[0] * (kh - 1), self.dilation[1] * (kw - 1)
        pads = (
            reach_w - left,
            reach_w - right + self.output_padding[1],
            reach_h - top,
            reach_h - bottom + self.output_padding[0],
        )
        pixels = np.arange(height * width).reshape(height, width)
        spread = np.full(((height - 1) * self.stride[0] + 1, (width - 1) * self.stride[1] + 1), -1)
        spread[:: self.stride[0], :: self.stride[1]] = pixels
        # A padding that is negative cuts pixels; doing it here keeps the convolution's own padding non-negative.
        cut = [max(0, -p) for p in pads]
        spread = spread[cut[2] : spread.shape[0] - cut[3], cut[0] : spread.shape[1] - cut[1]]
        rows = enter_rows(b, x, self.channel_last)
        if spread.size != pixels.size or (spread != pixels).any():
            rows = b.op(GatherRows(Payload(spread.reshape(-1))), rows)
        cout = b.shape(w)[1] * self.groups
        each = (self.groups, cin // self.groups, cout // self.groups, kh * kw)
        # A row per kernel position: that fills tiles, which the gradient of a weight that is trained needs.
        positions = b.op(Transpose(-2, -1), b.reshape(w, (1, 1, cin * cout // self.groups, kh * kw)))
        turned = b.op(Transpose(-2, -1), b.op(GatherRows(Payload(np.arange(kh * kw)[::-1])), positions))
        kernel = b.reshape(b.op(Transpose(-3, -2), b.reshape(turned, each)), (cout, cin // self.groups, kh, kw))
        hw = (spread.shape[0], spread.shape[1])
        sides = (max(0, pads[0]), max(0, pads[1]), max(0, pads[2]), max(0, pads[3]))
        conv = ConvRows(hw, (kh, kw), (1, 1), sides, self.dilation, self.groups)
        return leave_rows(b, b.op(conv, rows, kernel, *bias), conv.out_hw, self.channel_last)


@op("conv2d_rows")
class ConvRows(NdOp):
    """Convolution in rows layout: x (1, 1, H*W, Cin), one row per pixel in row-major order -> (1, 1, OH*OW, Cout).

    Weight (out, in / groups, kh, kw), optional bias (out,).
    """

    in_hw: Pair
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def out_hw(self) -> Pair:
        left, right, top, bottom = self.padding
        return (
            window(self.in_hw[0], self.kernel[0], self.stride[0], top, bottom, self.dilation[0]),
            window(self.in_hw[1], self.kernel[1], self.stride[1], left, right, self.dilation[1]),
        )

    def infer(self, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
        check_rows(x, self.in_hw, "conv2d_rows")
        check_conv(x[3], w, bias, self.groups, "conv2d_rows")
        oh, ow = self.out_hw
        if w[2:] != self.kernel or oh < 1 or ow < 1:
            raise ShapeError(f"conv2d_rows: kernel {self.kernel} against weight {w} on a {self.in_hw} image")
        return (x[0], 1, oh * ow, w[0])

    def evaluate(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        img = functional.pad(rows_to_nchw(x, self.in_hw), self.padding)
        bias = None if bias is None else bias.reshape(-1)
        return nchw_to_rows(functional.conv2d(img, w, bias, self.stride, 0, self.dilation, self.groups))

    def differentiable(self, b: Builder, node: Node, x: str, w: str, *bias: str) -> str:
        """The pixels of every kernel position side by side, times the weights; those of groups of channels are spread
        among zeros first. Depthwise (a channel is a group): the sum over kernel positions of the pixels times a row of
        weights."""
        positions = window_positions(self.in_hw, self.kernel, self.stride, self.padding, self.dilation)
        count, cin, (cout, each, _, _) = self.kernel[0] * self.kernel[1], b.shape(x)[3], b.shape(w)
        taken = [x if is_whole(at, self.in_hw) else b.op(GatherRows(Payload(at)), x) for at in positions]
        if self.groups == cout == cin:
            rows = b.op(Transpose(-2, -1), b.reshape(w, (1, 1, cout, count)))
            products = [b.multiply(t, b.op(Index(-2, k, k + 1), rows)) for k, t in enumerate(taken)]
            y = functools.reduce(b.add, products)
            return b.add(y, bias[0]) if bias else y
        patches = taken[0] if count == 1 else b.op(Concatenate(-1), *taken)
        apart = b.op(Transpose(-2, -1), b.reshape(w, (cout, each, count)))
        table = b.op(Transpose(-2, -1), b.reshape(apart, (cout, count * each)))
        if self.groups > 1:
            channels, outputs = np.arange(cin), np.arange(cout)
            repeat = b.constant((channels[:, None] % each == np.arange(each)).astype(np.float32))
            own = b.constant((channels[:, None] // each == outputs // (cout // self.groups)).astype(np.float32))
            rows = b.op(Matmul(), repeat, b.reshape(table, (count, each, cout)))  # (count, cin, cout)
            table = b.reshape(b.multiply(rows, own), (count * cin, cout))
        y = b.op(Matmul(), patches, table)
        return b.add(y, bias[0]) if bias else y


@op("patches_rows")
class PatchesRows(NdOp):
    """Patches of an image in rows layout: (1, 1, H*W, C) -> (1, 1, GH*GW, C*ph*pw), one row per patch in row-major
    order, its columns ordered (channel, row, column) as a weight (out, C, ph, pw) is.

    Patch (y, x) begins at pixel (y, x) * stride - (top, left); pixels outside the image are zero. It comes after the
    canonical forms, behind an input, and moves into its recipe: the host cuts the patches.
    """

    in_hw: Pair
    grid: Pair
    patch: Pair
    stride: Pair
    top_left: Pair = (0, 0)

    def infer(self, x: Shape) -> Shape:
        check_rows(x, self.in_hw, "patches_rows")
        if min(*self.grid, *self.patch, *self.stride) < 1 or x[0] != 1:
            raise ShapeError(f"patches_rows of {x}: grid, patch and stride are positive, and there is one image")
        return (1, 1, self.grid[0] * self.grid[1], x[3] * self.patch[0] * self.patch[1])

    def evaluate(self, x: Tensor) -> Tensor:
        (h, w), (top, left) = self.in_hw, self.top_left
        height, width = ((g - 1) * s + p for g, s, p in zip(self.grid, self.stride, self.patch, strict=True))
        sides = (left, width - w - left, top, height - h - top)  # below zero: pixels that no patch holds
        img = functional.pad(rows_to_nchw(x, self.in_hw), sides)
        windows = img.unfold(2, self.patch[0], self.stride[0]).unfold(3, self.patch[1], self.stride[1])
        count = math.prod(self.grid)  # copied position by position of a patch: a third of the time of torch's unfold
        return windows.permute(0, 1, 4, 5, 2, 3).reshape(x.shape[0], -1, count).transpose(1, 2)[:, None]

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Every pixel of every patch by a gather, then the pixels of a patch side by side."""
        (h, w), channels = self.in_hw, b.shape(x)[3]
        at = [
            np.arange(g)[:, None] * s + np.arange(p)[None, :] - first
            for g, s, p, first in zip(self.grid, self.stride, self.patch, self.top_left, strict=True)
        ]
        rows, cols = at[0][:, None, :, None], at[1][None, :, None, :]
        inside = (rows >= 0) & (rows < h) & (cols >= 0) & (cols < w)
        pixels = b.op(GatherRows(Payload(np.where(inside, rows * w + cols, -1).reshape(-1))), x)
        count, size = self.grid[0] * self.grid[1], self.patch[0] * self.patch[1]
        apart = b.op(Transpose(2, 3), b.reshape(pixels, (1, count, size, channels)))
        return b.reshape(apart, (1, 1, count, channels * size))


def window_positions(hw: Pair, kernel: Pair, stride: Pair, padding: Sides, dilation: Pair) -> list[np.ndarray]:
    """For every position of a kernel, row by row, the pixel (row of the rows layout) that it sees in each window; -1
    where that lies outside the image."""
    left, right, top, bottom = padding
    oh = window(hw[0], kernel[0], stride[0], top, bottom, dilation[0])
    ow = window(hw[1], kernel[1], stride[1], left, right, dilation[1])
    window_positions = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = (np.arange(oh) * stride[0] + i * dilation[0] - top)[:, None]
            cols = (np.arange(ow) * stride[1] + j * dilation[1] - left)[None, :]
            inside = (rows >= 0) & (rows < hw[0]) & (cols >= 0) & (cols < hw[1])
            window_positions.append(np.where(inside, rows * hw[1] + cols, -1).reshape(-1))
    return window_positions


def is_whole(at: np.ndarray, hw: Pair) -> bool:
    """Whether the pixels are those of the image in order."""
    return np.array_equal(at, np.arange(hw[0] * hw[1]))


def check_rows(x: Shape, hw: Pair, what: str) -> None:
    need_rank(x, 4, what)
    if x[1] != 1 or x[2] != hw[0] * hw[1]:
        raise ShapeError(f"{what} takes (n, 1, {hw[0]}*{hw[1]}, channels), not {x}")


def rows_to_nchw(x: Tensor, hw: Pair) -> Tensor:
    return x.reshape(x.shape[0], *hw, x.shape[3]).permute(0, 3, 1, 2)


def nchw_to_rows(y: Tensor) -> Tensor:
    n, c, h, w = y.shape
    return y.permute(0, 2, 3, 1).reshape(n, 1, h * w, c)


@op("to_rows")
class ToRows(NdOp):
    """(1, C, H, W) -> (1, 1, H*W, C): into rows layout."""

    def infer(self, x: Shape) -> Shape:
        need_rank(x, 4, "to_rows")
        return (x[0], 1, x[2] * x[3], x[1])

    def evaluate(self, x: Tensor) -> Tensor:
        return nchw_to_rows(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(FromRows((b.shape(x[0])[2], b.shape(x[0])[3])), g)


@op("from_rows")
class FromRows(NdOp):
    """(1, 1, H*W, C) -> (1, C, H, W): out of rows layout."""

    hw: Pair

    def infer(self, x: Shape) -> Shape:
        check_rows(x, self.hw, "from_rows")
        return (x[0], x[3], *self.hw)

    def evaluate(self, x: Tensor) -> Tensor:
        return rows_to_nchw(x, self.hw)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(ToRows(), g)


def enter_rows(b: Builder, x: str, channel_last: bool) -> str:
    """The one image x as rows."""
    if channel_last:
        _, c, h, w = image(b.shape(x), True, "rows layout")
        return b.reshape(x, (1, 1, h * w, c))
    return b.op(ToRows(), x)


def leave_rows(b: Builder, rows: str, hw: Pair, channel_last: bool) -> str:
    """Rows as one image."""
    if channel_last:
        return b.reshape(rows, (1, *hw, b.shape(rows)[3]))
    return b.op(FromRows(hw), rows)


TALLEST = 1 << 14
"""Pixels of a tall image: sparse encodings and buffers of larger ones do not fit."""


def images_together(n: int, height: int, width: int, stride: int, padding: Sides) -> int:
    """How many of n images one tall image holds, in as few tall images of about equal size as possible."""
    most = max(1, TALLEST // (_rows_of_each(height, stride, padding) * width))
    return -(-n // -(-n // most))


def _rows_of_each(height: int, stride: int, padding: Sides) -> int:
    """Rows of an image in a tall one: with those of zeros, a multiple of the stride."""
    return -(-(height + padding[2] + max(0, padding[3])) // stride) * stride


def one_tall_image(
    b: Builder,
    x: str,
    channel_last: bool,
    windows: Callable[[Pair, Sides], Any],
    stride: int,
    padding: Sides,
    out_height: int,
    *others: str,
) -> str:
    """A batch as one image, its images below each other, with `windows` over it: as many ops as one image takes.

    windows: an op in rows layout of a height and width, and of a padding. Each image has rows of zeros above as the
    padding says, and below to the next multiple of the stride; results of windows over two images are left out.
    """
    n, channels, height, width = image(b.shape(x), channel_last, "rows layout")
    left, right, top, _ = padding
    each = _rows_of_each(height, stride, padding)
    if not channel_last:
        x = b.transpose(b.reshape(x, (n, 1, channels, height * width)))
    rows = b.reshape(x, (1, 1, n * height * width, channels))
    if each != height:
        pixels = np.full((n, each, width), -1)
        pixels[:, top : top + height] = np.arange(n * height * width).reshape(n, height, width)
        rows = b.op(GatherRows(Payload(pixels.reshape(-1))), rows)
    op = windows((n * each, width), (left, right, 0, 0))
    y = b.op(op, rows, *others)
    across = op.out_hw[1]
    first = np.arange(n)[:, None] * (each // stride) + np.arange(out_height)
    chosen = (first[:, :, None] * across + np.arange(across)).reshape(-1)
    if len(chosen) != b.shape(y)[2]:
        y = b.op(GatherRows(Payload(chosen)), y)
    outputs = b.shape(y)[3]
    if channel_last:
        return b.reshape(y, (n, out_height, across, outputs))
    apart = b.transpose(b.reshape(y, (n, 1, out_height * across, outputs)))
    return b.reshape(apart, (n, outputs, out_height, across))


def per_image(b: Builder, x: str, apply: Callable[[str], str], together: int = 1) -> str:
    """`apply` on each image of a batch (dim 0), or on each `together` of them, the results side by side again."""
    rank, count = len(b.shape(x)), b.shape(x)[0]
    parts = [apply(b.op(Index(-rank, i, min(count, i + together)), x)) for i in range(0, count, together)]
    return b.op(Concatenate(-len(b.shape(parts[0]))), *parts)
