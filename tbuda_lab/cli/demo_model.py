"""The demo's model: the encoder that the first notebook brings up, BERT-base's of `transformers`.

Where `transformers` is not installed, the same architecture in plain torch takes its place, after Vaswani et al. (2017)
and Devlin et al. (2018): 12 post-norm layers, hidden 768, 12 heads, feed-forward 3072.
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
        out: torch.Tensor = self.dense(mixed.transpose(1, 2).reshape(batch, rows, hidden))
        return out


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.norm_1 = nn.LayerNorm(hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, inner), nn.GELU(), nn.Linear(inner, hidden))
        self.norm_2 = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm_1(x + self.attention(x))
        out: torch.Tensor = self.norm_2(x + self.feed_forward(x))
        return out


class Encoder(nn.Module):
    def __init__(self, layers: int = 12, hidden: int = 768, heads: int = 12, inner: int = 3072) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer(hidden, heads, inner) for _ in range(layers)))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(hidden_states)
        return out


def make_model(seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """(BERT-base's encoder with random weights, in eval mode; one input of shape (1, 128, 768))."""
    torch.manual_seed(seed)
    model: nn.Module
    try:
        from transformers import BertConfig, BertModel
    except ImportError:
        model = Encoder()
    else:
        model = BertModel(BertConfig()).encoder
    return model.eval().requires_grad_(False), (torch.randn(1, 128, 768),)
