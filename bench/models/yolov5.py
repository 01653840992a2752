"""A detector like YOLOv5s (Ultralytics, release 6: depth 0.33, width 0.5) for 320x320 images, up to its three heads.

CSP-Darknet backbone of C3 blocks, SPPF, a top-down and a bottom-up path. The heads give raw maps: decoding boxes and
suppressing overlapping ones belong to the host.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.models.calibrate import calibrate, sample

ANCHORS, CLASSES = 3, 80


class Conv(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1, pad: int = -1) -> None:
        super().__init__()
        pad = kernel // 2 if pad < 0 else pad
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, pad, bias=False)
        self.bn = nn.BatchNorm2d(channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(Conv(channels, channels), Conv(channels, channels, 3))
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.shortcut else y


class C3(nn.Module):
    """Cross-stage partial block: two branches of half the channels, one of them through the bottlenecks."""

    def __init__(self, channels_in: int, channels_out: int, repeats: int, shortcut: bool = True) -> None:
        super().__init__()
        half = channels_out // 2
        self.deep = nn.Sequential(Conv(channels_in, half), *(Bottleneck(half, shortcut) for _ in range(repeats)))
        self.wide = Conv(channels_in, half)
        self.out = Conv(2 * half, channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([self.deep(x), self.wide(x)], dim=1))


class SPPF(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = Conv(channels, channels // 2)
        self.out = Conv(2 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.reduce(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.out(torch.cat(parts, dim=1))


class YOLOv5(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = (width << k for k in range(5))
        self.stem = nn.Sequential(Conv(3, c1, 6, 2, 2), Conv(c1, c2, 3, 2), C3(c2, c2, 1))
        self.p3 = nn.Sequential(Conv(c2, c3, 3, 2), C3(c3, c3, 2))
        self.p4 = nn.Sequential(Conv(c3, c4, 3, 2), C3(c4, c4, 3))
        self.p5 = nn.Sequential(Conv(c4, c5, 3, 2), C3(c5, c5, 1), SPPF(c5))
        self.lateral5 = Conv(c5, c4)
        self.top4 = C3(2 * c4, c4, 1, shortcut=False)
        self.lateral4 = Conv(c4, c3)
        self.top3 = C3(2 * c3, c3, 1, shortcut=False)
        self.down3 = Conv(c3, c3, 3, 2)
        self.bottom4 = C3(2 * c3, c4, 1, shortcut=False)
        self.down4 = Conv(c4, c4, 3, 2)
        self.bottom5 = C3(2 * c4, c5, 1, shortcut=False)
        self.heads = nn.ModuleList(nn.Conv2d(c, ANCHORS * (5 + CLASSES), 1) for c in (c3, c4, c5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        n5 = self.lateral5(self.p5(p4))
        n4 = self.lateral4(self.top4(torch.cat([functional.interpolate(n5, scale_factor=2.0), p4], dim=1)))
        out3 = self.top3(torch.cat([functional.interpolate(n4, scale_factor=2.0), p3], dim=1))
        out4 = self.bottom4(torch.cat([self.down3(out3), n4], dim=1))
        out5 = self.bottom5(torch.cat([self.down4(out4), n5], dim=1))
        return tuple(head(out) for head, out in zip(self.heads, (out3, out4, out5), strict=True))


def make_model(seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(seed)
    model = calibrate(YOLOv5(), (3, 320, 320), seed, batch=2)
    return model, (sample((3, 320, 320), seed),)
