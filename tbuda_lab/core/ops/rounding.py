"""Rounding of floats to formats of a few bits, which models are quantised to."""

from __future__ import annotations

import torch

from tbuda_lab.core.graph import Node, Shape, op
from tbuda_lab.core.ops.base import NdOp, not_on_device
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.unary import Abs, step

Tensor = torch.Tensor

TORCH_TYPES = {
    "FLOAT8E4M3FN": torch.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": torch.float8_e4m3fnuz,
    "FLOAT8E5M2": torch.float8_e5m2,
    "FLOAT8E5M2FNUZ": torch.float8_e5m2fnuz,
    "BFLOAT16": torch.bfloat16,
    "FLOAT16": torch.float16,
}
"""Formats that torch converts to, to nearest with ties to even."""
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of four-bit floats."""
FORMATS = (*TORCH_TYPES, "FLOAT8E8M0", "FLOAT4E2M1")


@op("round_float")
class RoundFloat(NdOp):
    """The nearest numbers of a format, as floats of the operand's type; -0.0 is kept where the format has it.

    format: one of `FORMATS`, by ONNX's names. saturate: what lies beyond becomes the largest number, else an infinity
    or, where the format has none, not a number; eight bits of exponent and four-bit floats always saturate. mode: of
    FLOAT8E8M0, which holds powers of two: "up", "down" or "nearest".
    """

    format: str
    saturate: bool = True
    mode: str = "up"

    host = True

    def infer(self, x: Shape) -> Shape:
        return x

    def result_dtype(self, shapes: object, dtypes: list[torch.dtype]) -> torch.dtype:
        return dtypes[0]

    def evaluate(self, x: Tensor) -> Tensor:
        wide = x.float()
        if self.format == "FLOAT8E8M0":
            return _power_of_two(wide, self.mode).to(x.dtype)
        if self.format == "FLOAT4E2M1":
            return _four_bits(wide).to(x.dtype)
        kind = TORCH_TYPES[self.format]
        if self.saturate and self.format.startswith("FLOAT8"):
            most = torch.finfo(kind).max
            wide = wide.clamp(-most, most)  # NaN stays
        y = wide.to(kind)
        if self.format == "FLOAT8E4M3FN":  # without infinities: what rounds beyond 448, to 480 or more, is no number
            y = torch.where(wide.abs() > 464.0, torch.tensor(torch.nan).to(kind), y)
        return y.to(x.dtype)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        raise not_on_device(node, f"the device does not round to {self.format}")


@op("round_whole")
class RoundWhole(NdOp):
    """The nearest whole numbers, halves to the even one, of numbers no larger than 2^bits.

    The device takes the bits of |x| off one after the other, the highest first, and rounds by what is left. Every
    difference is exact in float32, and in a shorter format no more is lost than in x itself.
    """

    bits: int

    def infer(self, x: Shape) -> Shape:
        return x

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.round(x)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        rest, whole, odd = b.op(Abs(), x), "", ""
        for k in reversed(range(self.bits + 1)):
            odd = b.subtract(1.0, step(b, b.subtract(2.0**k, rest)))  # 1 where the bit is set
            part = b.multiply(odd, 2.0**k) if k else odd
            rest = b.subtract(rest, part)
            whole = b.add(whole, part) if whole else part
        above = step(b, b.subtract(rest, 0.5))
        half = b.subtract(1.0, step(b, b.subtract(0.5, rest)))  # 1 from a half on
        up = b.maximum(above, b.multiply(half, odd))
        size = b.add(whole, up)
        return b.multiply(size, b.subtract(1.0, b.multiply(step(b, b.negate(x)), 2.0)))


@op("bitcast")
class Bitcast(NdOp):
    """The bits of numbers of one type read as those of another one of the same width: names of torch's types. Whole
    numbers without a sign are given in a wider type (`source` says theirs) and come out in one (`target`)."""

    source: str
    target: str

    host = True

    def infer(self, x: Shape) -> Shape:
        return x

    def result_dtype(self, shapes: object, dtypes: object) -> torch.dtype:
        dtype: torch.dtype = WIDER.get(self.target, getattr(torch, self.target))
        return dtype

    def evaluate(self, x: Tensor) -> Tensor:
        signed = {"uint16": torch.int16, "uint32": torch.int32, "uint64": torch.int64}
        bits = x.to(signed.get(self.source, getattr(torch, self.source))).contiguous()
        y = bits.view(signed.get(self.target, getattr(torch, self.target)))
        if self.target == "bool":
            return y.float()
        if self.target in WIDER and self.target != "uint64":
            return y.to(WIDER[self.target]) & ((1 << torch.iinfo(y.dtype).bits) - 1)
        return y

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        raise not_on_device(node, "the device does not read the bits of its numbers")


WIDER = {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64, "bool": torch.float32}
"""By type without a form in a graph, the one that has room for it."""


def _four_bits(x: Tensor) -> Tensor:
    """To the nearest of `E2M1`, ties to the one with an even mantissa; what is no number becomes -0."""
    values = torch.tensor(E2M1)
    size = x.abs().nan_to_num(E2M1[-1]).clamp(max=E2M1[-1])
    above = torch.searchsorted(values, size).clamp(1, len(E2M1) - 1)
    low, high = values[above - 1], values[above]
    middle = (low + high) / 2
    up = (size > middle) | ((size == middle) & (above % 2 == 0))
    return torch.where(x.isnan(), torch.tensor(-0.0), torch.where(up, high, low).copysign(x))


def _power_of_two(x: Tensor, mode: str) -> Tensor:
    """Of the magnitude of x, from 2^-127 to 2^127."""
    mantissa, exponent = torch.frexp(x.abs().double())  # x = mantissa * 2^exponent, mantissa in [0.5, 1)
    lower = exponent - 1
    if mode == "up":
        raised = lower + (mantissa > 0.5).int()
    elif mode == "down":
        raised = lower
    else:
        raised = lower + (mantissa >= 0.75).int()
    raised = torch.where(x == 0, torch.full_like(raised, -127), raised).clamp(-127, 127)
    power = torch.ldexp(torch.ones((), dtype=torch.float64), raised).float()
    return torch.where(x.isnan() | x.isinf(), torch.full_like(power, torch.nan), power)


__all__ = ["FORMATS", "Bitcast", "RoundFloat", "RoundWhole"]
