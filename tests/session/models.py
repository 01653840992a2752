"""Small modules for sessions: a perceptron, and two encoder layers as BERT has them."""

from __future__ import annotations

import torch
from torch import nn


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 512), nn.Linear(512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out, self.norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.up, self.down, self.last = (
            nn.Linear(hidden, 4 * hidden),
            nn.Linear(4 * hidden, hidden),
            nn.LayerNorm(hidden),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            f(x).reshape(1, -1, self.heads, self.size).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        scores = torch.softmax(q @ k.transpose(-1, -2) / self.size**0.5, dim=-1)
        x = self.norm(x + self.out((scores @ v).transpose(1, 2).reshape(1, -1, self.heads * self.size)))
        return self.last(x + self.down(torch.nn.functional.gelu(self.up(x))))


def perceptron() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return Perceptron().eval().requires_grad_(False), (torch.randn(1, 128, 256),)


def encoder(layers: int = 2) -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(128, 4) for _ in range(layers)))
    return model.eval().requires_grad_(False), (torch.randn(1, 64, 128),)
