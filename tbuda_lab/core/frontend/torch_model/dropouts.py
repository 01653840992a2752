"""Dropouts as they are traced for training: calls that are not taken for their operand."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tbuda_lab.core.frontend.torch_model.caches import NAMESPACE


@torch.library.custom_op(f"{NAMESPACE}::dropout", mutates_args=())
def dropout(value: torch.Tensor, p: float, whole_channels: bool) -> torch.Tensor:
    """Stands for a dropout with probability p, in eval mode; whole_channels: one draw for each of dim 1."""
    return value.clone()


@dropout.register_fake
def _(value: torch.Tensor, p: float, whole_channels: bool) -> torch.Tensor:
    return torch.empty_like(value)


ELEMENTS = (functional.dropout, torch.dropout, torch.dropout_)
CHANNELS = (
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    torch.feature_dropout,
    torch.feature_dropout_,
)
ALPHA = (functional.alpha_dropout, functional.feature_alpha_dropout, torch.alpha_dropout)
UNBATCHED = {functional.dropout1d: 2, functional.dropout3d: 4}
"""Ranks at which these take dim 0 for the channels."""
IN_PLACE = (torch.dropout_, torch.feature_dropout_)


class KeepDropouts(TorchFunctionMode):
    """While it is active, dropouts of elements and of whole channels become calls of `dropout` above.

    The model is in eval mode, where torch's own dropouts return their operand: in the trace whatever reads the operand
    would read the dropout then, and a decomposition of another op would leave the dropout out.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func not in ELEMENTS and func not in CHANNELS:
            return func(*args, **kwargs)
        return self._dropout(func, *args, **kwargs)

    def __init__(self, always: bool = True) -> None:
        """always: calls with training=False too, as those of a model that is traced in eval mode."""
        super().__init__()
        self.always = always

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """With a dropout inside: in the ops that torch's own kernel does then."""
        native = functional.scaled_dot_product_attention
        if not dropout_p:
            return native(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        if enable_gqa:
            repeats = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~allowed, float("-inf"))
        if attn_mask is not None:
            kept = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, float("-inf")) if kept else scores + attn_mask
        mixed: torch.Tensor = dropout(scores.softmax(-1), float(dropout_p), False) @ value
        return mixed

    def _dropout(self, func: Any, input: torch.Tensor, p: float = 0.5, *rest: Any, **more: Any) -> torch.Tensor:
        trains = rest[0] if rest else more.get("training", more.get("train", True))
        if not p or not (trains or self.always):
            return input
        inplace = func in IN_PLACE or bool(more.get("inplace", rest[1] if len(rest) > 1 else False))
        if input.dim() == UNBATCHED.get(func):
            result = dropout(input.unsqueeze(0), float(p), True).squeeze(0)
        else:
            result = dropout(input, float(p), func in CHANNELS)
        return input.copy_(result) if inplace else result


class NoDropouts(TorchFunctionMode):
    """While it is active, functional dropouts return their operand."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in ELEMENTS or func in CHANNELS or func in ALPHA:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs = {k: v for k, v in kwargs.items() if k != "dropout_p"}
        return func(*args, **kwargs)
