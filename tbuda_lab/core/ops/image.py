"""Resizing and re-ordering of images."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from tbuda_lab.core.graph import TILE, Node, Payload, Shape, ShapeError, op
from tbuda_lab.core.ops.base import NdOp, need_rank
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.conv import (
    FromRows,
    Pair,
    ToRows,
    enter_rows,
    from_nchw,
    image,
    image_shape,
    leave_rows,
    per_image,
    to_nchw,
)
from tbuda_lab.core.ops.slices import HSlice
from tbuda_lab.core.ops.tm import GatherRows, Index, gather

Tensor = torch.Tensor


@op("resize2d")
class Resize2d(NdOp):
    """Image to size (height, width); mode "nearest" or "bilinear", torch's pixel positions."""

    size: Pair
    mode: str = "nearest"
    align_corners: bool = False
    channel_last: bool = False

    def infer(self, x: Shape) -> Shape:
        n, c, _, _ = image(x, self.channel_last, "resize2d")
        return image_shape(n, c, *self.size, self.channel_last)

    def evaluate(self, x: Tensor) -> Tensor:
        img = to_nchw(x, self.channel_last)
        corners = self.align_corners if self.mode == "bilinear" else None
        y = functional.interpolate(img, self.size, mode=self.mode, align_corners=corners)
        return from_nchw(y, self.channel_last)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Nearest gathers rows; bilinear blends two gathers along the height, then two along the width."""
        n, _, height, width = image(b.shape(x), self.channel_last, "resize2d")
        if n != 1:
            return per_image(b, x, lambda one: b.op(self, one))
        if (height, width) == self.size:
            return x
        rows = enter_rows(b, x, self.channel_last)
        if self.mode == "nearest":
            at = _nearest(height, self.size[0])[:, None] * width + _nearest(width, self.size[1])[None, :]
            rows = b.op(GatherRows(Payload(at.reshape(-1))), rows)
            return leave_rows(b, rows, self.size, self.channel_last)
        low, high, weight = _linear(height, self.size[0], self.align_corners)
        column = np.arange(width)[None, :]
        rows = _blend(b, rows, low[:, None] * width + column, high[:, None] * width + column, weight[:, None])
        low, high, weight = _linear(width, self.size[1], self.align_corners)
        line = np.arange(self.size[0])[:, None] * width
        rows = _blend(b, rows, line + low[None, :], line + high[None, :], weight[None, :])
        return leave_rows(b, rows, self.size, self.channel_last)


def _blend(b: Builder, rows: str, low: np.ndarray, high: np.ndarray, weight: np.ndarray) -> str:
    """(1 - weight) * rows[low] + weight * rows[high]."""
    at = np.broadcast_to(weight, low.shape).reshape(1, 1, -1, 1).astype(np.float32)
    before = b.op(GatherRows(Payload(low.reshape(-1))), rows)
    if not at.any():
        return before
    after = b.op(GatherRows(Payload(high.reshape(-1))), rows)
    return b.add(b.multiply(before, b.constant(1 - at)), b.multiply(after, b.constant(at)))


def _nearest(size: int, out: int) -> np.ndarray:
    """Source position of each output position, torch's own rounding."""
    ramp = torch.arange(size, dtype=torch.float32)[None, None]
    return np.asarray(functional.interpolate(ramp, out, mode="nearest")[0, 0].to(torch.int64).numpy())


def _linear(size: int, out: int, align_corners: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lower position, upper position, weight of the upper) for each output position."""
    at = np.arange(out)
    if align_corners:
        source = at * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        source = np.maximum((at + 0.5) * (size / out) - 0.5, 0.0)
    low = np.minimum(np.floor(source).astype(np.int64), size - 1)
    return low, np.minimum(low + 1, size - 1), source - low


@op("pixel_shuffle")
class PixelShuffle(NdOp):
    """(N, C*r*r, H, W) -> (N, C, H*r, W*r)."""

    r: int

    def infer(self, x: Shape) -> Shape:
        need_rank(x, 4, "pixel_shuffle")
        if x[1] % (self.r * self.r):
            raise ShapeError(f"pixel_shuffle by {self.r} of {x}: the channels must be a multiple of {self.r * self.r}")
        return (x[0], x[1] // (self.r * self.r), x[2] * self.r, x[3] * self.r)

    def evaluate(self, x: Tensor) -> Tensor:
        return functional.pixel_shuffle(x, self.r)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Channels ordered sub-pixel first (gathered, each sub-pixel's channels padded to
        whole tiles), sub-pixels turned into rows, rows put in place."""
        n, channels, height, width = b.shape(x)
        if n != 1:
            return per_image(b, x, lambda one: b.op(self, one))
        count, pixels = self.r * self.r, height * width
        c = channels // count
        wide = -(-c // TILE) * TILE
        order = np.full((count, wide), -1)
        at = np.arange(channels)
        order[at % count, at // count] = at
        grouped = gather(b, b.op(ToRows(), x), -1, order.reshape(-1))
        stacked = b.reshape(b.op(HSlice(count), grouped), (1, 1, count * pixels, wide))
        places = np.arange(count * pixels).reshape(self.r, self.r, height, width).transpose(2, 0, 3, 1).reshape(-1)
        rows = b.op(GatherRows(Payload(places)), stacked)
        if wide != c:
            rows = b.op(Index(-1, 0, c), rows)
        return b.op(FromRows((height * self.r, width * self.r)), rows)
