"""Six small models, random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tests.session.models import Layer

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Causal(nn.Module):
    """A decoder's layer as GPT-2 has it: one product for query, key and value, which are cut out of it."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v)
        return x - self.down(torch.tanh(self.up(x)))


class Gated(nn.Module):
    """Products side by side that are multiplied, subtracted and divided."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(size, 96), nn.Linear(size, 96), nn.Linear(96, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.a(x)) * self.b(x)
        y = self.c(gate - self.a(x))
        return (y - x) / (1.5 + torch.sigmoid(x))


class Residual(nn.Module):
    """Convolutions with batch norms and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.two = nn.Conv2d(32, 32, 1)
        self.norm, self.head = nn.BatchNorm2d(32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        y = torch.relu(self.norm(self.one(x))) - self.two(x)
        return self.head(y.mean((2, 3)))


def _mlp() -> Made:
    """Rows and columns of a real one: of a smaller the host's part of a run is all that is timed."""
    layers = nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, 32)
    return nn.Sequential(*layers), (torch.randn(1, 256, 256),)


MODELS: dict[str, Callable[[], Made]] = {
    "mlp": _mlp,
    "encoder": lambda: (nn.Sequential(Layer(64, 2), Layer(64, 2)), (torch.randn(1, 64, 64),)),
    "causal": lambda: (nn.Sequential(Causal(), Causal()), (torch.randn(1, 64, 64),)),
    "gated": lambda: (nn.Sequential(Gated(), Gated()), (torch.randn(1, 64, 64),)),
    "residual": lambda: (Residual(), (torch.randn(1, 3, 16, 16),)),
    "attention": lambda: (Layer(64, 2), (torch.randn(1, 96, 64),)),
}


def make(name: str, seed: int = 0) -> Made:
    """The model in eval mode with its sample inputs."""
    torch.manual_seed(seed)
    module, inputs = MODELS[name]()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.uniform_(-0.5, 0.5), norm.running_var.uniform_(0.5, 2.0)
            norm.weight.data.uniform_(0.5, 1.5), norm.bias.data.uniform_(-0.5, 0.5)
    return module.eval().requires_grad_(False), inputs
