"""Small models of kinds that users bring, with random weights; each makes trouble in a way of its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class Heads(nn.Module):
    """Attention with one product for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        scores = scores if bias is None else scores + bias
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, width))


class SwinBlock(nn.Module):
    """Shifted windows of 4 x 4 in an image of 4 x 4 windows: every dim that moves has the same size."""

    def __init__(self, width: int = 32, window: int = 4, size: int = 16, shift: int = 2) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.before, self.heads, self.after = nn.LayerNorm(width), Heads(width, 2), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.bias = nn.Parameter(torch.randn(2, window**2, window**2) * 0.3)
        areas = torch.zeros(1, size, size, 1)
        cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
        for i, rows in enumerate(cuts):
            for j, columns in enumerate(cuts):
                areas[:, rows, columns] = 3 * i + j
        of = self.windows(areas).squeeze(-1)
        self.register_buffer("mask", (of.unsqueeze(1) != of.unsqueeze(2)).float() * -100.0)
        self.merged, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width)

    def windows(self, x: Tensor) -> Tensor:
        b, rows, columns, width = x.shape
        w = self.window
        return x.view(b, rows // w, w, columns // w, w, width).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, width)

    def forward(self, x: Tensor) -> Tensor:
        b, rows, columns, width = x.shape
        y = self.windows(torch.roll(self.before(x), (-self.shift, -self.shift), (1, 2)))
        y = self.heads(y, self.bias.unsqueeze(0) + self.mask.unsqueeze(1))
        w = self.window
        y = y.view(b, rows // w, columns // w, w, w, width).permute(0, 1, 3, 2, 4, 5).reshape(b, rows, columns, width)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + self.mlp(self.after(x))
        parts = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.merge(self.merged(parts.reshape(b, -1, 4 * width)))


class LlamaBlock(nn.Module):
    """Root-mean-square norms, rotary positions, grouped queries, a gated feed-forward network, causal attention."""

    def __init__(self, width: int = 128, heads: int = 4, groups: int = 2, hidden: int = 192, words: int = 100) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.words = nn.Embedding(words, width)
        self.first, self.second = (nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down, self.head = nn.Linear(hidden, width, bias=False), nn.Linear(width, words, bias=False)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def turned(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cosine + torch.cat([-x[..., half:], x[..., :half]], -1) * sine

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        b, n, width = x.shape
        inverse = 1 / (10000 ** (torch.arange(0, self.size, 2).float() / self.size))
        angles = torch.outer(torch.arange(n).float(), inverse).repeat(1, 2)
        y = self.norm(x, self.first)
        q = self.q(y).view(b, n, self.heads, self.size).transpose(1, 2)
        k, v = (f(y).view(b, n, self.groups, self.size).transpose(1, 2) for f in (self.k, self.v))
        q, k = (self.turned(t, angles.cos(), angles.sin()) for t in (q, k))
        k, v = (
            t[:, :, None].expand(b, self.groups, self.heads // self.groups, n, self.size).reshape(q.shape)
            for t in (k, v)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, n, width))
        y = self.norm(x, self.second)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class SqueezeExcite(nn.Module):
    """A mobile convolution whose channels are weighted by their own means."""

    def __init__(self, c: int = 24, wide: int = 96) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c), nn.SiLU())
        self.expand = nn.Sequential(nn.Conv2d(c, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 5, 1, 2, groups=wide), nn.SiLU())
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 6, 1), nn.SiLU(), nn.Conv2d(6, wide, 1), nn.Sigmoid()
        )
        self.project = nn.Conv2d(wide, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.weigh(y))


class TwoTowers(nn.Module):
    """Images and words, four results."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        self.norm, self.heads, self.image = nn.LayerNorm(width), Heads(width, 4), nn.Linear(width, 32)
        self.words, self.order = nn.Embedding(50, width), nn.Parameter(torch.randn(16, width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0, "gelu", batch_first=True)
        self.text, self.scale = nn.Linear(width, 32), nn.Parameter(torch.tensor(2.0))
        self.register_buffer("later", torch.full((16, 16), float("-inf")).triu(1))

    def forward(self, image: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        a = self.image((x + self.heads(self.norm(x)))[:, 0])
        t = self.text(self.layer(self.words(ids) + self.order, src_mask=self.later)[:, -1])
        a, t = a / a.norm(dim=-1, keepdim=True), t / t.norm(dim=-1, keepdim=True)
        scores = self.scale.exp() * a @ t.t()
        return scores, scores.t(), a, t


class WideAndDeep(nn.Module):
    """Bags of hashed ids beside numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.sum = nn.EmbeddingBag(100, 32, mode="mean"), nn.EmbeddingBag(60, 16, mode="sum")
        self.tables = nn.ModuleList(nn.Embedding(20, 8) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(85, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.wide, self.out = nn.Linear(13, 4), nn.Linear(32, 4)

    def forward(self, dense: Tensor, bag: Tensor, ids: Tensor) -> Tensor:
        looked_up = [self.mean(bag), self.sum(bag % 60), *(t(ids[:, i]) for i, t in enumerate(self.tables))]
        return torch.sigmoid(self.out(self.deep(torch.cat([*looked_up, dense], 1))) + self.wide(dense))


class Unrolled(nn.Module):
    """A recurrent cell, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(32, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        steps = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            steps.append(h)
        return self.out(torch.stack(steps, 1)), h


class Decoder(nn.Module):
    """From a vector to an image: transposed convolutions, both kinds of resizing, norms over groups and instances."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.up = nn.Linear(32, 256), nn.ConvTranspose2d(16, 16, 4, 2, 1)
        self.groups, self.odd = nn.GroupNorm(4, 16), nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1)
        self.single, self.last = nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 3, 3, padding=2, dilation=2)

    def forward(self, z: Tensor) -> Tensor:
        x = F.silu(self.groups(self.up(self.first(z).view(-1, 16, 4, 4))))
        x = F.interpolate(F.leaky_relu(self.single(self.odd(x)), 0.2), scale_factor=2, mode="nearest")
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.tanh(self.last(x))


KINDS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "swin": lambda: (SwinBlock(), (torch.randn(1, 16, 16, 32),)),
    "llama": lambda: (LlamaBlock(), (torch.randint(0, 100, (1, 40)),)),
    "squeeze_excite": lambda: (SqueezeExcite(), (torch.randn(1, 3, 32, 32),)),
    "two_towers": lambda: (TwoTowers(), (torch.randn(1, 3, 32, 32), torch.randint(0, 50, (1, 16)))),
    "wide_and_deep": lambda: (
        WideAndDeep(),
        (torch.randn(1, 13), torch.randint(0, 100, (1, 6)), torch.randint(0, 20, (1, 3))),
    ),
    "unrolled_gru": lambda: (Unrolled(), (torch.randn(1, 4, 32), torch.randn(1, 64))),
    "decoder": lambda: (Decoder(), (torch.randn(1, 32),)),
}
