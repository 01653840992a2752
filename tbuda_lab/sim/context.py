"""What a kernel is built from: an op, its attributes and the tensors around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import FusedOp, NetOp
from tbuda_lab.sim.arrays import FULL_TILE, Array, TileDim, misfit, op_shape, shape_text
from tbuda_lab.sim.numerics import Numerics

Kernel = Callable[[Sequence[Array], int | None], Array]
"""Runs an op on its inputs, each (n or 1, z, R, C) after TMs; the second argument is the index of an input whose
memory may be overwritten, or None. Returns (n, z, R, C)."""


@dataclasses.dataclass
class GradientOutput:
    """The last output of a gradient op, to which the next one is added; None after its accumulator was zeroed."""

    last: Array | None = None


@dataclasses.dataclass(frozen=True)
class OpContext:
    """One op about to be built. `source_dfs`: formats in which its inputs were produced; `input_tiles`: (height,
    width) of their tiles after TMs."""

    op: NetOp
    numerics: Numerics
    fused_ops: dict[str, FusedOp]
    source_dfs: tuple[DataFormat, ...]
    input_tiles: tuple[TileDim, ...]

    @property
    def tile_dim(self) -> TileDim:
        """Of the output."""
        return self.op.tile_dim or FULL_TILE

    @property
    def shape(self) -> tuple[int, int, int]:
        """(z, R, C) of the output."""
        return op_shape(self.op)

    def flag(self, name: str) -> bool:
        return truth(self.op.attributes.get(name, False))

    def whole(self, name: str, default: int | None = None) -> int:
        """An integer attribute; without a default, `NetlistError` if it is not written."""
        value = self.op.attributes.get(name, default)
        if value is None:
            raise self.error("O7", f"attribute {name!r} is missing", f"write {name} in the attributes")
        try:
            return int(value)
        except (TypeError, ValueError):
            raise self.error("O1", f"attribute {name!r} is {value!r}", "a whole number") from None

    def number(self, name: str, default: float) -> float:
        """An attribute as a number. Raises `NetlistError` where it is none."""
        value = self.op.attributes.get(name, default)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self.error("O1", f"attribute {name!r} is {value!r}", "a number") from None

    def text(self, name: str, default: str) -> str:
        return str(self.op.attributes.get(name, default))

    def error(self, rule: str, message: str, fix: str = "") -> NetlistError:
        return misfit(f"op {self.op.name!r} ({self.op.type})", rule, message, fix)

    def expect_same(self, args: Sequence[Array]) -> None:
        """Raises unless all inputs have one (z, R, C)."""
        if any(x.shape[1:] != args[0].shape[1:] for x in args[1:]):
            shapes = ", ".join(f"{p.source!r} {shape_text(x)}" for p, x in zip(self.op.inputs, args, strict=False))
            raise self.error(
                "G8",
                f"its inputs differ in shape (z, R, C): {shapes}",
                f"after their TMs all must be {shape_text(self.shape)}",
            )


def truth(value: Any) -> bool:
    """A boolean as netlists write it: true, "true", 1."""
    return value.strip().lower() in ("true", "1") if isinstance(value, str) else bool(value)


def relu_of(attributes: dict[str, Any]) -> tuple[float, str] | None:
    """(threshold, "min" or "max") of the packer's relu, or None."""
    mode = str(attributes.get("relu_mode", "min")).lower()
    if not truth(attributes.get("relu_en", False)) or mode == "none":
        return None
    return float(attributes.get("relu_threshold", 0.0)), mode
