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
    functional.dropout1d, functional.dropout2d, functional.dropout3d, torch.feature_dropout, torch.feature_dropout_,
)  # fmt: skip
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
        if func not in ELEMENTS and func not in CHANNELS:
            return func(*args, **kwargs)
        return self._dropout(func, *args, **kwargs)

    def _dropout(self, func: Any, input: torch.Tensor, p: float = 0.5, *rest: Any, **more: Any) -> torch.Tensor:
        if not p:
            return input
        inplace = func in IN_PLACE or bool(more.get("inplace", rest[1] if len(rest) > 1 else False))
        if input.dim() == UNBATCHED.get(func):
            result = dropout(input.unsqueeze(0), float(p), True).squeeze(0)
        else:
            result = dropout(input, float(p), func in CHANNELS)
        return input.copy_(result) if inplace else result
