"""The machine's own arithmetic where it is not torch's (docs/numbers.md), as a mode of torch: which rule explains a
difference is found by calling the model once more with that rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core.frontend.dispatch import references
from tbuda_lab.core.verification import Comparison, compare_tensors

Arguments = tuple[Any, ...]
Rule = Callable[[str, Arguments, torch.Tensor], torch.Tensor | None]
"""Takes the name of an op of torch, its arguments and its result; the machine's result, None where it is torch's."""

EPS = 2.0**-23
TINY = 2.0**-126
LARGEST = torch.finfo(torch.float32).max
SQUARED = 1.8e19
"""Numbers beyond have squares beyond float32."""
GATED = ("silu", "gelu", "hardswish", "mish")
"""Ops that multiply their operand with a gate that becomes 0 below and 1 above; torch's gelu(inf) is NaN."""


def _operand(value: Any) -> torch.Tensor:
    return torch.as_tensor(value)


def zero_times(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name in ("mul", "addcmul"):
        a, b = (_operand(v) for v in args[-2:])
        rest = args[0] if name == "addcmul" else torch.zeros_like(out)
        return torch.where((a == 0) | (b == 0), rest, out)
    if name in GATED:
        return torch.where(out.isnan() & ~args[0].isnan(), args[0].clamp(min=0.0), out)
    if name == "div":  # by way of 1 / b, which is 0
        return torch.where(_operand(args[1]).isinf(), 0.0, out)
    return None


def one_over_zero(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name == "reciprocal":
        return torch.where(args[0] == 0, 1 / EPS, out)
    if name == "rsqrt":
        return torch.where(args[0] == 0, 1 / EPS, out)
    return torch.where(_operand(args[1]) == 0, _operand(args[0]) / EPS, out) if name == "div" else None


def log_of_zero(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    least = getattr(torch, name)(torch.tensor(EPS)) if name in ("log", "log2", "log10") else None
    return None if least is None else torch.where(args[0] == 0, least, out)


def exp(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    return out.clamp(max=LARGEST) if name in ("exp", "expm1", "exp2") else None


def means(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name != "mean" or not bool(out.isinf().any()):
        return None
    wide: torch.Tensor = torch.ops.aten.mean.dim(args[0].double(), *(args[1:] or (None,)))
    return wide.to(out.dtype)


def power(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name != "pow":
        return None
    base, exponent = (_operand(v) for v in args[:2])
    if exponent.dim() == 0 and float(2 * exponent) == round(float(2 * exponent)):
        return None
    return (exponent * base.clamp(min=TINY).log()).exp()


def squares(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name in ("var", "std"):
        return torch.where(out.isinf(), torch.nan, out)
    if name == "native_batch_norm" and args[5]:  # by its own statistics: also what instance norm is
        channels = args[0].transpose(0, 1).flatten(1)
        lost = (channels.double().abs().amax(1) > SQUARED) & channels.isfinite().all(1)
        return torch.where(lost.reshape(1, -1, *[1] * (out.dim() - 2)), torch.nan, out)
    if name != "native_layer_norm":
        return None
    dims = list(range(-len(args[1]), 0))
    far = (args[0].double().abs().amax(dims, keepdim=True) > SQUARED) & args[0].isfinite().all(-1, keepdim=True)
    return torch.where(far, torch.nan, out)


def tiles_of_products(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    """A NaN or infinity reaches its whole channel or group, and what lies beside them."""
    if name not in ("native_group_norm", "convolution", "embedding"):
        return None
    return None if bool(args[0].isfinite().all()) else torch.full_like(out, torch.nan)


def quotients(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name != "div" or not out.is_floating_point():
        return None
    return _operand(args[0]) * (1.0 / _operand(args[1]).to(out.dtype))


def argmax_with_nan(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    if name not in ("argmax", "argmin") or not bool(args[0].isnan().any()):
        return None
    if len(args) < 2 or args[1] is None:
        return torch.zeros_like(out)
    hit = args[0].isnan().any(args[1], keepdim=bool(args[2]) if len(args) > 2 else False)
    return torch.where(hit, 0, out)


def wide_floats(name: str, args: Arguments, out: torch.Tensor) -> torch.Tensor | None:
    return out.float().double() if out.dtype == torch.float64 else None


RULES: dict[str, Rule] = {
    "zero times": zero_times,
    "one over zero": one_over_zero,
    "log of zero": log_of_zero,
    "exp": exp,
    "means": means,
    "power": power,
    "squares": squares,
    "quotients": quotients,
    "argmax with NaN": argmax_with_nan,
    "tiles of products": tiles_of_products,
    "float64": wide_floats,
}
"""By the name that docs/numbers.md has for it."""


class MachineArithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch with some of `RULES`. used: those that changed a result."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.used = tuple(names), set[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = [a.clone() if isinstance(a, torch.Tensor) and function._schema.is_mutable else a for a in args]
        out = function(*args, **(kwargs or {}))
        tensor = next((t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)), None)
        if tensor is None or tensor.is_complex() or (kwargs or {}).get("rounding_mode"):
            return out
        name = str(function).split(".")[1].rstrip("_")
        for rule in self.names:
            own = RULES[rule](name, tuple(before), tensor)
            if own is not None and not torch.allclose(own.to(tensor.dtype), tensor, 0.0, 0.0, equal_nan=True):
                self.used.add(rule)
                tensor.copy_(own)
        return out


def explained(
    verdicts: Sequence[Comparison], got: Sequence[torch.Tensor], model: Any, sample: Any, pcc: float
) -> list[Comparison]:
    """The same comparisons of a run's outputs; those that are not good get the name of the rule with which the model
    itself answers what the machine did, or the names of the rules, if it takes several."""
    if all(v.passes(pcc) for v in verdicts):
        return list(verdicts)
    comparisons = list(verdicts)
    for names in (*((name,) for name in RULES), tuple(RULES)):
        mode = MachineArithmetic(names)
        with mode:
            (wanted,) = references(model, sample, 1)
        for k, (verdict, w, g) in enumerate(zip(comparisons, wanted, got, strict=False)):
            if mode.used and not verdict.passes(pcc) and not verdict.rule and compare_tensors("", w, g).passes(pcc):
                comparisons[k] = dataclasses.replace(verdict, rule=", ".join(n for n in names if n in mode.used))
    return comparisons


__all__ = ["RULES", "MachineArithmetic", "explained"]
