"""Arithmetic of integers that the device has no op for: the host does it, on what depends on integer inputs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tbuda_lab.core.graph import op
from tbuda_lab.core.ops.base import not_on_device
from tbuda_lab.core.ops.binary import Binary

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Node
    from tbuda_lab.core.ops.builder import Builder

Tensor = torch.Tensor


class HostBinary(Binary):
    """Of two operands that broadcast, on the host only."""

    host = True

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        raise not_on_device(node, "the device rounds no numbers; only integers that inputs alone decide are supported")


@op("remainder")
class Remainder(HostBinary):
    """a - b * floor(a / b): the sign is that of b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.remainder(a, b)


@op("floor_divide")
class FloorDivide(HostBinary):
    """The largest integer that is no larger than a / b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.floor_divide(a, b)
