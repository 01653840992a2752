"""The demo's model: a transformer encoder of BERT-base's size in plain torch, so that the demo needs nothing else.

After Vaswani et al. (2017) and Devlin et al. (2018): post-norm layers, hidden 768, 12 heads, feed-forward 3072.
"""

from __future__ import annotations

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, hidden = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(batch, rows, self.heads, hidden // self.heads).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(hidden // self.heads)
        mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
        return self.dense(mixed.transpose(1, 2).reshape(batch, rows, hidden))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.norm_1 = nn.LayerNorm(hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, inner), nn.GELU(), nn.Linear(inner, hidden))
        self.norm_2 = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.feed_forward(x))


class Encoder(nn.Module):
    def __init__(self, layers: int = 12, hidden: int = 768, heads: int = 12, inner: int = 3072) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer(hidden, heads, inner) for _ in range(layers)))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.layers(hidden_states)


def make_model(seed: int = 0, layers: int = 12, sequence: int = 128) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """(encoder with random weights in eval mode, one input of shape (1, sequence, 768))."""
    torch.manual_seed(seed)
    model = Encoder(layers).eval().requires_grad_(False)
    return model, (torch.randn(1, sequence, 768),)
