"""A small U-Net for 64x64 images, after Ronneberger et al. (2015): three levels, 16 channels at the top.

As in the paper, the way up is an upsampling followed by a 2x2-halving convolution (here 3x3, padded, so that sizes
match and nothing is cropped) and a concatenation with the way down. Batch norms follow each convolution, as in nearly
all later versions.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.models.calibrate import calibrate, sample


def double_conv(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, channels: int = 3, classes: int = 2, width: int = 16, levels: int = 3) -> None:
        super().__init__()
        widths = [width << k for k in range(levels + 1)]
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip([channels, *widths[:-2]], widths[:-1], strict=True))
        self.bottom = double_conv(widths[-2], widths[-1])
        self.halve = nn.ModuleList(nn.Conv2d(2 * w, w, 3, padding=1) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(double_conv(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for halve, block in zip(self.halve, self.up, strict=True):
            x = halve(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
            x = block(torch.cat([skips.pop(), x], dim=1))
        return self.head(x)


def make_model(seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(seed)
    model = calibrate(UNet(), (3, 64, 64), seed)
    return model, make_inputs(seed)


def make_inputs(seed: int) -> tuple[torch.Tensor]:
    return (sample((3, 64, 64), seed),)
