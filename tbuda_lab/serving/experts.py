"""Mixtures of experts of transformers without a choice of rows: every expert works on every token, and weighs nothing
where it was not chosen. On the grid no shape and no place of a tensor may depend on values.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

MOST = 256
"""Numbers among which the largest are found by comparing each with each."""


@contextlib.contextmanager
def every_expert(model: nn.Module) -> Iterator[None]:
    """While this lasts, the experts of a model of transformers all work on all tokens, and routers compare."""
    experts = [layer for layer in model.modules() if hasattr(type(layer), "_apply_gate") and hasattr(layer, "has_gate")]
    for layer in experts:
        layer.__dict__["forward"] = functools.partial(_all_of_them, layer)
    try:
        with _Comparing() if experts else contextlib.nullcontext():
            yield
    finally:
        for layer in experts:
            del layer.__dict__["forward"]


def _all_of_them(layer: Any, states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What the chosen experts give, by their weights. states: (tokens, size); chosen, weights: (tokens, experts of a
    token)."""
    places = torch.arange(layer.num_experts, device=states.device)
    shares = (weights.unsqueeze(-1) * (chosen.unsqueeze(-1) == places).to(weights.dtype)).sum(-2)
    up, down = ("gate_up_proj" if layer.has_gate else "up_proj"), "down_proj"
    total = torch.zeros_like(states)
    for number in range(layer.num_experts):
        inner = _product(layer, up, number, states)
        result = _product(layer, down, number, layer._apply_gate(inner) if layer.has_gate else layer.act_fn(inner))
        if layer.has_post_expert_norm:
            result = layer.post_expert_norm(result)
        total = total + result * shares[:, number : number + 1].to(states.dtype)
    return total


def _product(layer: Any, name: str, number: int, states: torch.Tensor) -> torch.Tensor:
    weight = getattr(layer, name)[number]
    bias = getattr(layer, f"{name}_bias")[number] if layer.has_bias else None
    return nn.functional.linear(states, weight.T if layer.is_transposed else weight, bias)


class _Comparing(TorchFunctionMode):
    """The largest of a few numbers by comparisons. Their places are floats, which `gather`, `scatter_` of a number and
    experts take; what else reads them says that it takes whole numbers."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.topk, torch.Tensor.topk):
            return _largest(*args, **kwargs)
        if function in (torch.gather, torch.Tensor.gather):
            return _at(*args, **kwargs)
        if function is torch.Tensor.scatter_:
            return _set_at(*args, **kwargs)
        return function(*args, **kwargs)


def _largest(values: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """As `torch.topk`; of equal numbers the first."""
    count = values.shape[dim]
    if dim % values.dim() != values.dim() - 1 or not largest or count > MOST:
        return torch.topk(values, k, dim, largest, sorted)
    places = torch.arange(count, device=values.device)
    mine, other = values.unsqueeze(-1), values.unsqueeze(-2)
    before = (other > mine) | ((other == mine) & (places < places.unsqueeze(-1)))
    rank = before.to(values.dtype).sum(-1)
    picked = rank.unsqueeze(-2) == torch.arange(k, device=values.device).unsqueeze(-1)
    found = torch.where(picked, other, 0.0).sum(-1)
    return torch.return_types.topk((found, (picked.to(values.dtype) * places.to(values.dtype)).sum(-1)))


def _at(values: torch.Tensor, dim: int, index: torch.Tensor, **settings: Any) -> torch.Tensor:
    """As `torch.gather`; index: also places that `_largest` found."""
    if not index.is_floating_point() or dim % values.dim() != values.dim() - 1:
        return torch.gather(values, dim, index, **settings)
    places = torch.arange(values.shape[-1], device=values.device).to(index.dtype)
    return torch.where(index.unsqueeze(-1) == places, values.unsqueeze(-2), 0.0).sum(-1)


def _set_at(values: torch.Tensor, dim: int, index: torch.Tensor, value: Any, **settings: Any) -> torch.Tensor:
    """As `torch.Tensor.scatter_`; index: also places that `_largest` found, for a number."""
    plain = not index.is_floating_point() or isinstance(value, torch.Tensor) or dim % values.dim() != values.dim() - 1
    if plain:
        return values.scatter_(dim, index, value, **settings)
    places = torch.arange(values.shape[-1], device=values.device).to(index.dtype)
    return values.copy_(torch.where((index.unsqueeze(-1) == places).any(-2), float(value), values))
