"""Resizing and re-ordering of images."""

from __future__ import annotations

import torch
from torch.nn import functional

from tbuda_lab.core.graph import Shape, ShapeError, op
from tbuda_lab.core.ops.base import NdOp, need_rank
from tbuda_lab.core.ops.conv import Pair, from_nchw, image, image_shape, to_nchw

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
        return from_nchw(functional.interpolate(img, self.size, mode=self.mode, align_corners=corners), self.channel_last)


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
