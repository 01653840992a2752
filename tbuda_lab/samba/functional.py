"""`samba.functional`: torch functions by SambaFlow's groups, for tensors of both kinds.

A result is a `SambaTensor` where an operand is one. Inside a model that is traced they are the torch functions. What
only the host has, `out=` and `alpha=`, is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp

GROUPS: dict[str, tuple[str, ...]] = {
    "arithmetic": (
        "abs",
        "add",
        "ceil",
        "clamp",
        "cos",
        "div",
        "exp",
        "floor",
        "log",
        "mul",
        "neg",
        "pow",
        "reciprocal",
        "rsqrt",
        "sigmoid",
        "sin",
        "sqrt",
        "sub",
        "tanh",
    ),
    "tensorarithmetic": ("addmm", "baddbmm", "bmm", "matmul", "mm"),
    "reduce": ("amax", "amin", "argmax", "max", "mean", "min", "sum"),
    "logical": ("eq", "ge", "gt", "le", "logical_and", "logical_not", "logical_or", "lt", "ne", "where"),
    "loss": ("binary_cross_entropy", "cross_entropy", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss"),
    "tensorops": (
        "cat",
        "chunk",
        "concat",
        "flatten",
        "index_select",
        "permute",
        "reshape",
        "split",
        "squeeze",
        "stack",
        "swapaxes",
        "transpose",
        "unsqueeze",
    ),
    "stir": (
        "conv1d",
        "conv2d",
        "dropout",
        "embedding",
        "gelu",
        "layer_norm",
        "linear",
        "log_softmax",
        "max_pool2d",
        "relu",
        "silu",
        "softmax",
    ),
}
"""Names by group."""

HOST_ONLY = ("out", "alpha")


def _refusing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A torch function that takes no argument of `HOST_ONLY`."""

    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        wrong = [key for key in HOST_ONLY if settings.get(key) is not None]
        if wrong:
            fix = f"leave {wrong[0]}= out" + (" and multiply the operand" if "alpha" in wrong else "")
            raise UnsupportedOp(
                f"samba.functional.{name} takes no {wrong[0]}=",
                [Diagnostic("error", name, "samba", f"{wrong[0]}= is supported on the host only", fix)],
            )
        return function(*arguments, **settings)

    return call


def _function(name: str) -> Callable[..., Any]:
    own: Callable[..., Any] = getattr(F if name in (*GROUPS["loss"], *GROUPS["stir"]) else torch, name)
    return own


__all__ = sorted(name for names in GROUPS.values() for name in names)
globals().update({name: _refusing(name, _function(name)) for name in __all__})


def __getattr__(name: str) -> Any:
    raise AttributeError(f"samba.functional has no {name!r}; it has {', '.join(__all__)}")
