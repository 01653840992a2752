"""A multi-layer perceptron for 28x28 digits: 784 - 512 - 256 - 10."""

from __future__ import annotations

import torch
from torch import nn


def make_model(seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10), nn.LogSoftmax(dim=-1)
    )
    # Weights as large as after training, or the output is nearly constant.
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return model.eval().requires_grad_(False), make_inputs(seed)


def make_inputs(seed: int) -> tuple[torch.Tensor]:
    return (torch.randn(1, 784, generator=torch.Generator().manual_seed(seed)),)
