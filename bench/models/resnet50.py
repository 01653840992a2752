"""ResNet-50 for 224x224 images, after He et al., "Deep Residual Learning for Image Recognition" (2015), table 1.

The stride of a stage is taken by the 3x3 convolution of its first block, as nearly all implementations do since 2016.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.models.calibrate import calibrate, sample

# width of the 3x3 convolutions, blocks, stride of the first
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EXPANSION = 4


def conv_bn(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
    ]


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = width * EXPANSION
        self.layers = nn.Sequential(
            *conv_bn(channels_in, width, 1),
            nn.ReLU(),
            *conv_bn(width, width, 3, stride),
            nn.ReLU(),
            *conv_bn(width, channels_out, 1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(*conv_bn(channels_in, channels_out, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.layers(x) + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        channels = 64
        for width, blocks, stride in STAGES:
            for k in range(blocks):
                layers.append(Bottleneck(channels, width, stride if k == 0 else 1))
                channels = width * EXPANSION
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.features(x)), 1))


def make_model(seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(seed)
    model = calibrate(ResNet50(), (3, 224, 224), seed, batch=4)
    return model, (sample((3, 224, 224), seed),)
