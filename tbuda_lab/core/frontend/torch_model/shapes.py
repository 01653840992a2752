"""What common calls give on the meta device, without torch's own rules for them.

torch's rules for these are in Python, and the first one of a process imports `torch._dynamo`, which takes 0.6 s. Here
are the plain cases: contiguous tensors of one floating type. Anything else is left to torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

aten = torch.ops.aten

Rule = Callable[..., tuple[int, ...] | None]


def result_of(target: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The result of a call, a tensor on the meta device; None where torch has to say what it is. args, kwargs: with
    tensors on the meta device."""
    if target is aten.scaled_dot_product_attention.default:
        return _attention(*args, **kwargs)
    rule = _RULES.get(target)
    if rule is None or kwargs:
        return None
    tensors = [t for a in args for t in (a if isinstance(a, list | tuple) else (a,)) if isinstance(t, torch.Tensor)]
    dtype = tensors[0].dtype
    if not dtype.is_floating_point or not all(t.dtype == dtype and t.is_contiguous() for t in tensors):
        return None
    shape = rule(*args)
    if shape is None or 0 in shape:
        return None
    if target._schema.is_mutable:
        return tensors[0] if shape == tensors[0].shape else None
    return torch.empty(shape, dtype=dtype, device="meta")


def _like(x: torch.Tensor, *_: Any) -> tuple[int, ...]:
    return tuple(x.shape)


def _normalised(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> tuple[int, ...] | None:
    return tuple(x.shape) if dtype is None and -x.dim() <= dim < x.dim() else None


def _batch_norm(x: torch.Tensor, *rest: Any) -> tuple[int, ...] | None:
    held = [t for t in rest if isinstance(t, torch.Tensor)]
    return tuple(x.shape) if x.dim() > 1 and all(t.shape == x.shape[1:2] for t in held) else None


def _layer_norm(x: torch.Tensor, sizes: list[int], *rest: Any) -> tuple[int, ...] | None:
    held = [t for t in rest if isinstance(t, torch.Tensor)]
    fits = list(x.shape[x.dim() - len(sizes) :]) == list(sizes) and all(list(t.shape) == list(sizes) for t in held)
    return tuple(x.shape) if fits else None


def _broadcast(x: Any, y: Any) -> tuple[int, ...] | None:
    if isinstance(x, torch.Tensor) and type(y) in (int, float):
        return tuple(x.shape)
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor) or not x.dim() or not y.dim():
        return None
    return tuple(np.broadcast_shapes(tuple(x.shape), tuple(y.shape)))


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[int, ...] | None:
    if weight.dim() != 2 or not x.dim() or x.shape[-1] != weight.shape[1]:
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    return (*x.shape[:-1], weight.shape[0])


def _cat(tensors: list[torch.Tensor], dim: int = 0) -> tuple[int, ...] | None:
    first = list(tensors[0].shape)
    if not -len(first) <= dim < len(first):
        return None
    dim %= len(first)
    if any([*t.shape[:dim], *t.shape[dim + 1 :]] != [*first[:dim], *first[dim + 1 :]] for t in tensors):
        return None
    return (*first[:dim], sum(t.shape[dim] for t in tensors), *first[dim + 1 :])


def _mean(x: torch.Tensor, dims: list[int] | None, keepdim: bool = False) -> tuple[int, ...] | None:
    if not dims or not all(-x.dim() <= d < x.dim() for d in dims) or len({d % x.dim() for d in dims}) < len(dims):
        return None
    gone = {d % x.dim() for d in dims}
    if keepdim:
        return tuple(1 if d in gone else n for d, n in enumerate(x.shape))
    return tuple(n for d, n in enumerate(x.shape) if d not in gone) or None


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any,
) -> torch.Tensor | None:  # fmt: skip
    """The result has the strides that the CPU's kernel gives it, where torch chooses that one."""
    on_cpu = [None if t is None else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
              for t in (query, key, value, mask)]  # fmt: skip
    chosen = torch._fused_sdp_choice(*on_cpu, dropout_p, is_causal, **kwargs)  # type: ignore[call-arg,arg-type]
    if chosen != torch.nn.attention.SDPBackend.FLASH_ATTENTION.value:
        return None
    result: torch.Tensor = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]
    return result


def _adaptive_pool(x: torch.Tensor, sizes: list[int]) -> tuple[int, ...] | None:
    return (*x.shape[:2], *sizes) if x.dim() == 4 and len(sizes) == 2 and math.prod(sizes) > 0 else None


_RULES: dict[torch._ops.OpOverload, Rule] = {
    **dict.fromkeys(
        (aten.relu.default, aten.relu_.default, aten.hardtanh.default, aten.hardtanh_.default, aten.tanh.default,
         aten.sigmoid.default, aten.silu.default, aten.silu_.default, aten.hardswish.default, aten.hardswish_.default,
         aten.hardsigmoid.default, aten.leaky_relu.default, aten.leaky_relu_.default, aten.gelu.default),
        _like,
    ),
    **dict.fromkeys((aten.softmax.int, aten.log_softmax.int), _normalised),
    **dict.fromkeys((aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.mul_.Tensor,
                     aten.div.Tensor), _broadcast),
    aten.batch_norm.default: _batch_norm,
    aten.layer_norm.default: _layer_norm,
    aten.linear.default: _linear,
    aten.cat.default: _cat,
    aten.mean.dim: _mean,
    aten.adaptive_avg_pool2d.default: _adaptive_pool,
}  # fmt: skip
