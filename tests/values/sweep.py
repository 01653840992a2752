"""Special values through some hundred small modules, in Float32 against torch.

Each value stands alone in a tensor of ordinary numbers, so that what it does to its neighbours shows. `RULES` names
what docs/numbers.md says of the machine, by module: there alone a difference is right.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn

INF = math.inf
VALUES = (INF, -INF, math.nan, 3e38, -3e38, 1e30, -1e30, 40000.0, -40000.0, 1e-20, -1e-20, 1e-30, 0.0, -0.0, 16777217.0)
OPTIONS = CompileOptions(default_df_override=DataFormat.Float32)
Function = Callable[[torch.Tensor], Any]


def comparison(name: str, other: Function) -> Function:
    return lambda x: getattr(torch, name)(x, other(x))


def comparisons(what: str, other: Function) -> dict[str, Function]:
    """All six with `other(x)`, by "gt <what>"."""
    return {f"{name} {what}": comparison(name, other) for name in ("gt", "ge", "lt", "le", "eq", "ne")}


EXACT: dict[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in ("relu", "abs", "neg", "sigmoid", "tanh", "sign", "square", "isnan", "isinf")
    },
    "times 2": lambda x: x * 2,
    "plus 1": lambda x: x + 1,
    "minus inf": lambda x: x - INF,
    "times -1e30": lambda x: x * -1e30,
    "plus 1e30": lambda x: x + 1e30,
    "twice itself": lambda x: x + x,
    "minus itself": lambda x: x - x,
    "maximum": lambda x: torch.maximum(x, x.flip(-1)),
    "minimum": lambda x: torch.minimum(x, x.flip(-1)),
    "maximum of -inf": lambda x: torch.maximum(x, torch.tensor(-INF)),
    "minimum of inf": lambda x: torch.minimum(x, torch.tensor(INF)),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp min": lambda x: x.clamp(min=-5),
    "clamp max": lambda x: x.clamp(max=50000),
    "relu6": F.relu6,
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5),
    **comparisons("0", lambda x: 0.0),
    **comparisons("1e-30", lambda x: 1e-30),
    **comparisons("inf", lambda x: INF),
    **comparisons("-inf", lambda x: -INF),
    **comparisons("other", lambda x: x.flip(-1)),
    "is a number": lambda x: x == x,
    "is none": lambda x: x != x,
    "bool": lambda x: x.bool(),
    "not": torch.logical_not,
    "and": lambda x: torch.logical_and(x, x.flip(-1)),
    "or of truths": lambda x: (x > 0) + (x < 1),
    "fill -inf": lambda x: x.masked_fill(x > 0.5, -INF),
    "fill 1e30": lambda x: x.masked_fill(x > 0.5, 1e30),
    "where": lambda x: torch.where(x > 0, x, -INF),
    "where not": lambda x: torch.where(x > 0, INF, x),
    "fill by columns": lambda x: x.masked_fill(torch.arange(12) > 5, -INF),
    "tril": torch.tril,
    "triu": lambda x: x.triu(1),
    "flip": lambda x: x.flip(-1) * 1,
    "roll": lambda x: x.roll(1, -1) * 1,
    "roll rows": lambda x: x.roll(2, -2) * 1,
    "slice": lambda x: x[..., 1:] * 1,
    "steps": lambda x: x[..., ::2] * 1,
    "reshape": lambda x: (x * 1).reshape(1, 4, 18) * 1,
    "transpose": lambda x: x.transpose(1, 2) * 1,
    "cat": lambda x: torch.cat([x, x * 2], -1),
    "stack": lambda x: torch.stack([x, x], 1),
    "pad": lambda x: F.pad(x, (1, 2)) * 1,
    "pad -inf": lambda x: F.pad(x, (1, 2), value=-INF) * 1,
    "repeat": lambda x: x.repeat(1, 2, 2) * 1,
    "pad reflect": lambda x: F.pad(x, (2, 1), mode="reflect") * 1,
    "unfold": lambda x: x.unfold(-1, 3, 2) * 1,
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum rows": lambda x: x.cumsum(-2),
    "sum": lambda x: x.sum(-1),
    "sum rows": lambda x: x.sum(-2),
    "sum all": lambda x: x.sum(),
    "mean": lambda x: x.mean(-1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-2),
    "max": lambda x: x.max(),
    "sum of slices": lambda x: x.reshape(1, 2, 3, 12).sum(1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "max pool": lambda x: F.max_pool2d(x[None], 2),
    "max pool padded": lambda x: F.max_pool2d(x[None], 3, 1, 1),
    "average pool": lambda x: F.avg_pool2d(x[None], 2),
    "average pool padded": lambda x: F.avg_pool2d(x[None], 3, 1, 1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x[None], (2, 5)),
    "nearest": lambda x: F.interpolate(x[None], scale_factor=2),
    "pad -inf then max pool": lambda x: F.max_pool2d(F.pad(x[None], (0, 1, 0, 1), value=-INF), 3, 2),
    "shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 3, 6), 2),
    "half and back": lambda x: x.half().float(),
    "select": lambda x: x[:, 2] * 1,
    "index": lambda x: x[..., [0, 3, 1]] * 1,
    "broadcast": lambda x: x[..., :1] + torch.zeros(12),
    "linear": nn.Linear(12, 5),
    "elu": F.elu,
    "softplus": F.softplus,
    "floor": torch.floor,
    "chunk": lambda x: x.chunk(2, -1)[1] * 1,
    "squeeze": lambda x: x.squeeze(0) * 1,
    "diagonal": lambda x: x.diagonal(0, 1, 2) * 1,
    "kl_div": lambda x: F.kl_div(torch.full_like(x, -0.5), x, reduction="none"),
}
"""Where nothing may differ."""

NAMED: dict[str, tuple[str, Function]] = {
    "times a mask": ("zero times", lambda x: x * (x > 0)),
    "times 0": ("zero times", lambda x: x * 0.0),
    "silu": ("zero times", F.silu),
    "gelu": ("zero times", F.gelu),
    "hardswish": ("zero times", F.hardswish),
    "mish": ("zero times", F.mish),
    "tanh gelu": ("zero times", lambda x: F.gelu(x, approximate="tanh")),
    "reciprocal": ("one over zero", torch.reciprocal),
    "rsqrt": ("one over zero", lambda x: x.abs().rsqrt()),
    "log": ("log of zero", lambda x: x.abs().log()),
    "exp": ("exp", torch.exp),
    "expm1": ("exp", torch.expm1),
    "argmax": ("argmax with NaN", lambda x: x.argmax(-1)),
    "argmin": ("argmax with NaN", lambda x: x.argmin(-1)),
    "group norm": ("tiles of products", lambda x: F.group_norm(x[None].reshape(1, 6, 3, 4), 2)),
    "layer norm": ("squares", nn.LayerNorm(12)),
    "instance norm": ("squares", lambda x: F.instance_norm(x * 1.0)),
    "normalize": ("zero times", lambda x: F.normalize(x, dim=-1)),
}
"""By module the rule of docs/numbers.md by which it may differ."""


@dataclasses.dataclass(frozen=True)
class Difference:
    module: str
    value: float
    text: str


def tensor_with(value: float) -> torch.Tensor:
    x = torch.randn(1, 6, 12, generator=torch.Generator().manual_seed(4))
    x[0, 2, 3] = value
    return x


def differences(name: str, function: Function) -> list[Difference]:
    """One compile, each value run through it. A module that is refused by a type differs in nothing."""
    inputs = [tensor_with(v) for v in VALUES]
    module = (function if isinstance(function, nn.Module) else Fn(function)).eval()
    try:
        session = Session(module, (tensor_with(0.5),), options=OPTIONS)
        answers = session.run([(x,) for x in inputs])
    except TbudaError:
        return []
    found = []
    for value, x, (got, *_) in zip(VALUES, inputs, answers, strict=True):
        with torch.no_grad():
            want = module(x)
        if got.dtype != want.dtype and not want.is_floating_point():
            found.append(Difference(name, value, f"{got.dtype}, torch {want.dtype}"))
            continue
        same = torch.isclose(got.double(), want.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        if not bool(same.all()):
            at = int((~same).flatten().nonzero()[0])
            text = f"{int((~same).sum())} of {same.numel()}, ours {got.flatten()[at]!r}, torch {want.flatten()[at]!r}"
            found.append(Difference(name, value, text))
    return found
