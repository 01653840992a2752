"""Shared by the end-to-end tests: torch's answer, and how alike two answers are. Nothing of ours is used here."""

from __future__ import annotations

from typing import Any

import torch


def pcc(a: torch.Tensor, b: torch.Tensor) -> float:
    """Pearson's correlation of all elements, in float64."""
    x, y = a.double().flatten(), b.double().flatten()
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x.norm() * y.norm()))


def eager(module: torch.nn.Module, inputs: tuple[Any, ...]) -> torch.Tensor:
    """The first tensor that the module itself returns."""
    with torch.no_grad():
        output = module(*inputs)
    while not isinstance(output, torch.Tensor):
        output = output[0]
    return output
