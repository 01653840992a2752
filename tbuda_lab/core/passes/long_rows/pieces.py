"""How a long row is cut: into the rows of a matrix, or into slices side by side; and what a move of rows becomes."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import TILE, Node, Shape
from tbuda_lab.core.ops import BroadcastTo, Concatenate, GatherRows, Index, Pad, Reshape, Transpose
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.passes.canonical import four
from tbuda_lab.core.passes.wide_matmuls import LARGEST_FACTOR, NARROW, largest_factor

LONG = 512
"""Tiles of columns above which no row of cores holds a row of the tensor, and its neighbours, in every format."""
FEW_ROWS = TILE
"""Below this many rows of a tensor its tiles are mostly padding, and each row becomes a matrix."""
PADDING = 1.15
"""Tiles that the pieces have together are at most so many times those of the row, or one more."""
SLICE = 64
"""Tiles of columns of a slice, at most."""

ROW_MOVES = (Concatenate, Index, GatherRows, Pad, Reshape, BroadcastTo, Transpose)
"""Ops that move whole rows, where they leave the last dim as it is."""


def tiles(size: int) -> int:
    """Tiles that hold so many elements side by side."""
    return -(-size // TILE)


def is_long(shape: Shape) -> bool:
    """Whether no grid shares out the last dim of this shape, or no row of cores holds it."""
    if not shape or tiles(shape[-1]) <= NARROW:
        return False
    count = tiles(shape[-1])
    return count > LONG or largest_factor(count) > LARGEST_FACTOR


@dataclasses.dataclass(frozen=True)
class Pieces:
    """How a row of `size` elements is cut into `count` pieces of `width`: "matrix" (its rows), or "slices"."""

    kind: str
    size: int
    count: int
    width: int

    @property
    def padded(self) -> int:
        return self.count * self.width

    def shape(self, shape: Shape) -> Shape:
        """Of a tensor that has the row, or size 1, as its last dim."""
        rows = 1 if len(shape) < 2 else shape[-2]
        count, width = (1, 1) if shape[-1] == 1 else (self.count, self.width)
        if self.kind == "matrix":
            return four_dims((*shape[:-1], count, width))
        return four_dims((*shape[:-2], count, rows, width))

    @property
    def dims(self) -> tuple[int, int]:
        """The dims that were the row."""
        return (-1, -2) if self.kind == "matrix" else (-1, -3)

    @property
    def mask_shape(self) -> Shape:
        return (self.count, self.width) if self.kind == "matrix" else (self.count, 1, self.width)

    @property
    def tiles(self) -> int:
        """Tiles of all pieces of one row."""
        return tiles(self.count) * tiles(self.width) if self.kind == "matrix" else self.count * tiles(self.width)

    def dim(self, dim: int) -> int:
        """Where a dim above the row, counted from the end, is now."""
        return dim if self.kind == "slices" and dim == -2 else dim - 1

    def move(self, node: Node, source: Shape) -> NdOp | None:
        """The op that does with pieces what `node` does with whole rows of an operand of this shape; None where there
        is none. A gather of matrices is `pick`'s."""
        op, rank = node.op, len(node.shape)
        if isinstance(op, Concatenate):
            return Concatenate(self.dim(_from_end(op.axis, rank)))
        if isinstance(op, Index):
            return dataclasses.replace(op, dim=self.dim(_from_end(op.dim, rank)))
        if isinstance(op, Transpose):
            return Transpose(self.dim(_from_end(op.dim0, rank)), self.dim(_from_end(op.dim1, rank)))
        if isinstance(op, GatherRows):
            return op
        if isinstance(op, Pad):
            return dataclasses.replace(op, pads=self._pads(op.pads, node.shape))
        if isinstance(op, Reshape) and self.kind == "slices" and strip(source) != strip(node.shape):
            return None
        return (Reshape if isinstance(op, Reshape) else BroadcastTo)(self.shape(node.shape))

    def _pads(self, pads: tuple[tuple[int, int], ...], shape: Shape) -> tuple[tuple[int, int], ...]:
        none = ((0, 0),)
        result = (*pads[:-1], *none, *none) if self.kind == "matrix" else (*pads[:-2], *none, pads[-2], *none)
        rank = len(self.shape(shape))
        return (none * rank + result)[-rank:]


def moves_rows(node: Node, sources: list[Shape]) -> bool:
    """Whether an op of `ROW_MOVES` leaves the last dim alone; sources: shapes of its operands."""
    op, rank = node.op, len(node.shape)
    if isinstance(op, Concatenate):
        return _from_end(op.axis, rank) < -1
    if isinstance(op, Index):
        return _from_end(op.dim, rank) < -1
    if isinstance(op, Transpose):
        return max(_from_end(op.dim0, rank), _from_end(op.dim1, rank)) < -1
    if isinstance(op, Pad):
        return rank > 1 and op.pads[-1] == (0, 0) and op.mode == "constant" and op.value == 0
    if isinstance(op, Reshape):
        return len(node.shape) > 0 and sources[0][-1:] == node.shape[-1:]
    return isinstance(op, (GatherRows, BroadcastTo))


def _from_end(dim: int, rank: int) -> int:
    return dim - rank if dim >= 0 else dim


def four_dims(shape: Shape) -> Shape:
    """The shape with rank four; of more dims, if those in front are 1."""
    while len(shape) > 4 and shape[0] == 1:
        shape = shape[1:]
    return four(shape)


def strip(shape: Shape) -> Shape:
    """The shape without the ones in front."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def matrix(size: int) -> Pieces:
    """The matrix of the least padding, whose sides have small factors and are nearly alike."""
    least = -(-size // (TILE * TILE))
    best: tuple[float, int, int] | None = None
    for total in range(least, int(least * PADDING) + 2):
        for rows in range(1, math.isqrt(total) + 1):
            if total % rows == 0:
                cols = total // rows
                cost = math.log(total / least) + _awkward(rows) + _awkward(cols) + 0.02 * math.log(cols / rows)
                if best is None or cost < best[0]:
                    best = cost, rows, total // rows
    assert best is not None
    return Pieces("matrix", size, best[1] * TILE, best[2] * TILE)


def slices(size: int) -> Pieces:
    """Slices of the least padding, whose numbers of tiles have small factors."""
    whole = tiles(size)

    def cost(width: int) -> tuple[float, int]:
        count = -(-whole // width)
        return math.log(count * width / whole) + _awkward(width) + (0.0 if width % 8 == 0 else 0.05), -width

    width = min(range(min(16, whole), SLICE + 1), key=cost)
    return Pieces("slices", size, -(-whole // width), width * TILE)


def _awkward(count: int) -> float:
    """What a number of tiles loses for want of divisors."""
    return 0.0 if count == 1 or largest_factor(count) <= LARGEST_FACTOR else 0.1
