"""Small models for device images, and the archives made of them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import torch
from torch import nn

from tbuda_lab.core.session import Session

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def tokens() -> Made:
    """Integer inputs that the host embeds, a norm, weights that are folded (transposed), sizes that fill no tile."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 70), nn.LayerNorm(70), nn.ReLU(), nn.Linear(70, 10))
    return model.eval(), (torch.randint(0, 50, (1, 40)),)


def picture() -> Made:
    """Convolutions: weights that are arranged, patches cut by the host, statistics of a norm in buffers."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 1, 1))
    for value in model[1].buffers():
        if value.is_floating_point():
            value.uniform_(0.5, 1.5)
    return model.eval(), (torch.randn(1, 3, 32, 32),)


def pair() -> Made:
    """Two inputs, two outputs, a scalar."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 32, bias=False)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = torch.tanh(self.first(x)) * 0.5
            return self.second(hidden), hidden + y

    torch.manual_seed(3)
    return Pair().eval(), (torch.randn(1, 32, 64), torch.randn(1, 32, 96))


MODELS: dict[str, Callable[[], Made]] = {"tokens": tokens, "picture": picture, "pair": pair}


def session(name: str, device: str = "n150") -> Session:
    return Session(*MODELS[name](), device, name=name)


def files_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}


def write_tar(path: Path, files: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change is not None:
                change(info)
            tar.addfile(info, BytesIO(data) if info.isreg() else None)
    return path
