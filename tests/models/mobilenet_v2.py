"""MobileNetV2 (width 1.0) for 224x224 images, after Sandler et al., "MobileNetV2: Inverted Residuals" (2018)."""

from __future__ import annotations

import torch
from torch import nn

from tests.models.calibrate import calibrate, sample

# expansion t, output channels c, repeats n, stride s of the first: the paper's table 2
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def conv_bn(channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels_out),
    ]


class InvertedResidual(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels_in * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += [*conv_bn(channels_in, hidden, 1), nn.ReLU6(inplace=True)]
        layers += [*conv_bn(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(inplace=True)]
        layers += conv_bn(hidden, channels_out, 1)
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and channels_in == channels_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 32, 3, 2), nn.ReLU6(inplace=True)]
        channels = 32
        for expansion, width, repeats, stride in STAGES:
            for k in range(repeats):
                layers.append(InvertedResidual(channels, width, stride if k == 0 else 1, expansion))
                channels = width
        layers += [*conv_bn(channels, 1280, 1), nn.ReLU6(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean(dim=(2, 3)))


def make_model(seed: int = 0, size: int = 224) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(seed)
    model = calibrate(MobileNetV2(), (3, size, size), seed)
    return model, make_inputs(seed, size)


def make_inputs(seed: int, size: int = 224) -> tuple[torch.Tensor]:
    return (sample((3, size, size), seed),)
