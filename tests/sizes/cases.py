"""Cases of the fuzz over sizes: an op kind, tiles a side, a format, a device; drawn from a seed, primes first.

Inputs are matrices of a batch of one, so that both sides are sides of one tensor. A case of more than `MOST_TO_RUN`
tiles is placed only, with an input that takes no memory; a case that is refused is right where its own tensors exceed
the device's DRAM, which is counted here, from the shapes.
"""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

DEVICES = ("grayskull", "n150", "blackhole")
FORMATS = (DataFormat.Float32, DataFormat.Float16_b)
MOST_TILES = 2_000
"""Tiles of a side, at most."""
MOST_TO_RUN = 800
"""Tiles of a tensor that is run as well; larger ones are placed only."""
MOST_TO_PLACE = 40_000
"""Tiles of a tensor at most: torch evaluates the model a few times while it is traced."""
BYTES = {DataFormat.Float32: 4, DataFormat.Float16_b: 2}


class _Row(torch.nn.Module):
    """A stored row is multiplied in, another one added."""

    def __init__(self, cols: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(cols)
        self.weight = torch.nn.Parameter(torch.rand(cols, generator=generator) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(cols, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * self.weight + self.bias


_PLAIN = {
    "relu": torch.relu,
    "exp": lambda x: torch.exp(-x.abs()),
    "add": lambda x: torch.relu(x) + x,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "max": lambda x: x.amax(-1, keepdim=True),
    "sum_rows": lambda x: x.sum(-2, keepdim=True) / x.shape[-2] ** 0.5,
    "transpose": lambda x: torch.relu(x).transpose(-1, -2),
}


class _Of(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _PLAIN[self.kind](x)
        return result


class _Linear(torch.nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(cols)
        self.weight = torch.nn.Parameter(torch.randn(cols, 64, generator=generator) / cols**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) @ self.weight


KINDS = (
    "relu",
    "exp",
    "add",
    "row",
    "softmax",
    "log_softmax",
    "layernorm",
    "linear",
    "mean",
    "max",
    "sum_rows",
    "transpose",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """rows, cols: elements."""

    kind: str
    rows: int
    cols: int
    df: DataFormat
    device: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.rows} x {self.cols}, {self.df.name} on {self.device}"

    @property
    def tiles(self) -> int:
        return -(-self.rows // 32) * -(-self.cols // 32)

    @property
    def output_tiles(self) -> int:
        rows, cols = -(-self.rows // 32), -(-self.cols // 32)
        return {"linear": rows * 2, "mean": rows, "max": rows, "sum_rows": cols}.get(self.kind, rows * cols)

    @property
    def dram_bytes(self) -> int:
        """What input, output and stored matrices hold, without what is between them."""
        stored = {"linear": 2, "row": 2, "layernorm": 2}.get(self.kind, 0) * -(-self.cols // 32)
        return (self.tiles + self.output_tiles + stored) * 32 * 32 * BYTES[self.df]

    def sample(self) -> torch.Tensor:
        """Numbers, or one number as often as the shape says, which takes no memory, where the case is not run."""
        if self.tiles > MOST_TO_RUN:
            return torch.ones(1).expand(1, self.rows, self.cols)
        return torch.randn(1, self.rows, self.cols, generator=torch.Generator().manual_seed(0))

    def model(self) -> torch.nn.Module:
        made = {"row": _Row, "layernorm": torch.nn.LayerNorm, "linear": _Linear}.get(self.kind)
        return _Of(self.kind) if made is None else made(self.cols)


def cases(count: int, seed: int) -> list[Case]:
    """So many cases. One side is long; the other is short, one row, or, once in eight cases, anything."""
    rng = np.random.default_rng(seed)
    sides = np.arange(1, MOST_TILES + 1)
    primes = np.array([n for n in sides if n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))])
    result = []
    for k in range(count):
        long = int(rng.choice(primes if k % 3 else sides))
        short = int(rng.choice((1, 1, 1, 2, 3, 7, 13) if rng.random() < 7 / 8 else sides[: MOST_TO_PLACE // long]))
        cut = int(rng.integers(0, 32)) if rng.random() < 0.5 else 0
        a, b = long * 32 - cut, short * 32 if rng.random() < 0.6 else max(1, short * 32 - 31)
        rows, cols = (b, a) if rng.random() < 0.6 else (a, b)
        result.append(
            Case(KINDS[k % len(KINDS)], rows, cols, FORMATS[int(rng.integers(2))], DEVICES[int(rng.integers(3))])
        )
    return result


def dram_of(device: str) -> int:
    """Bytes that the device has."""
    spec = load_device(device)
    return sum(spec.dram_end(channel) - spec.dram_start(channel) for channel in range(spec.dram_channels))


def fault(case: Case) -> str:
    """What is wrong with a case; "" where it places and agrees with torch, or exceeds DRAM."""
    model, x = case.model(), case.sample()
    session = Session(model, [x], case.device, CompileOptions(default_df_override=case.df), name="size", cache=False)
    try:
        session.compile()
        if case.tiles > MOST_TO_RUN:
            return ""
        ((found,),) = session.run()
    except TbudaError as error:
        return "" if case.dram_bytes > dram_of(case.device) else f"{type(error).__name__}: {error}"
    return difference(case, model, x, found)


def difference(case: Case, model: torch.nn.Module, x: torch.Tensor, found: torch.Tensor) -> str:
    """How an output differs from torch's in float64 by more than torch's own in the format does, four times."""
    wanted = copy.deepcopy(model).double()(x.double()).detach()
    if found.shape != wanted.shape:
        return f"shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
    own = copy.deepcopy(model).to(torch.bfloat16)(x.to(torch.bfloat16)).detach().double()
    allowed = 1e-4 if case.df is DataFormat.Float32 else max(0.02, 4 * relative(own, wanted))
    error = relative(found.double(), wanted)
    return f"differs from torch by {error:.2g} of the norm, {allowed:.2g} are allowed" if error > allowed else ""


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The norm of the difference over that of what is wanted."""
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))
