"""Row-wise ops run before a reshape that only regroups rows, so that the reshape can meet its inverse."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tbuda_lab.core.graph import Graph, Node, NodeKind, Op, Payload, Shape
from tbuda_lab.core.ops import (
    BroadcastTo,
    Concatenate,
    FromRows,
    GatherRows,
    Index,
    Matmul,
    Pad,
    ReduceAvg,
    ReduceMax,
    ReduceSum,
    Reshape,
    ToRows,
    Transpose,
)
from tbuda_lab.core.ops.binary import Binary
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.conv import Pair
from tbuda_lab.core.ops.tm import gather, pick
from tbuda_lab.core.ops.unary import Unary
from tbuda_lab.core.passes.base import Pass, Report, Rewriter


@dataclasses.dataclass(frozen=True)
class FlatRows(Pass):
    """(1, 1, A*B, C) regrouped as (1, A, B, C), B no whole number of tiles, costs a row picker each way.

    Element-wise ops, sums and maxima along a row, and matmuls by one stored matrix do not care how rows are grouped:
    they move above the regrouping, which is kept only for readers that do. A sequence that comes with its batch of one
    second, as (1, A, 1, C), is regrouped too: each of its rows would fill a tile.
    """

    name = "flat_rows"
    doc = "Move row-wise ops above reshapes that regroup rows"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_Flat().visit))


def _is_row(shape: Shape) -> bool:
    return math.prod(shape[:-1]) == 1


def _only_ones_move(op: Transpose, shape: Shape) -> bool:
    """Whether a transpose leaves the dims that are not 1 in their order, and is a reshape."""
    order = list(range(len(shape)))
    i, j = op.dim0 % len(shape), op.dim1 % len(shape)
    order[i], order[j] = order[j], order[i]
    moved = [d for d in order if shape[d] > 1]
    return moved == sorted(moved)


class _Flat:
    def __init__(self) -> None:
        self.flat: dict[str, str] = {}

    def visit(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        op = node.op
        if isinstance(op, Reshape) or (isinstance(op, Transpose) and _only_ones_move(op, r.new[operands[0]].shape)):
            return self.reshape(r, node, operands[0])
        if isinstance(op, (Unary, Binary, Matmul, ReduceSum, ReduceAvg, ReduceMax, Index, Concatenate)):
            for name in operands:
                self.regroup(r, name)
        main = next((name for name in operands if name in self.flat), None)
        if main is None:
            return None
        grouped = r.new[main].shape
        if isinstance(op, (ReduceSum, ReduceAvg, ReduceMax, Index)):
            fits = op.dim == -1
        elif isinstance(op, Concatenate):
            fits = op.axis == -1 and all(o in self.flat for o in operands)
        elif isinstance(op, Matmul):
            fits = operands[0] == main and all(math.prod(r.new[o].shape[:-2]) == 1 for o in operands[1:])
            fits = fits and all(_is_row(r.new[o].shape) for o in operands[2:])
        elif isinstance(op, (Unary, Binary)):
            fits = all(
                (o in self.flat and r.new[o].shape[:-1] == grouped[:-1]) or _is_row(r.new[o].shape) for o in operands
            )
        else:
            fits = False
        if not fits:
            return None
        entry = r.keep(node, None, tuple(self.flat.get(o, o) for o in operands))
        back = r.builder(node).reshape(entry, node.shape)
        if back != entry:
            self.flat[back] = entry
        return back

    def regroup(self, r: Rewriter, x: str) -> None:
        """An input whose rows lie one in a slice is read in one slice."""
        node = r.new[x]
        if node.kind is not NodeKind.INPUT or x in self.flat or len(node.shape) != 4:
            return
        one, slices, rows, columns = node.shape
        if one == rows == 1 and slices > 1:
            self.flat[x] = r.builder(node).op(Reshape((1, 1, slices, columns)), x)

    def reshape(self, r: Rewriter, node: Node, x: str) -> str | None:
        if x in self.flat:
            return r.builder(node).reshape(self.flat[x], node.shape)
        before = r.new[x].shape
        if len(before) == len(node.shape) == 4 and before[:2] == (1, 1) and before[3] == node.shape[3]:
            self.flat[node.name] = x
        return None


REDUCES = (ReduceSum, ReduceAvg, ReduceMax)
MOVES = (Reshape, Transpose, BroadcastTo, GatherRows)
"""What may begin a chain of moves of an image; slices have a rule of their own."""


@dataclasses.dataclass(frozen=True)
class RowsLayout(Pass):
    """Ops between convolutions are moved to the rows form of their operands.

    For every image value that exists as rows the pass remembers them. Element-wise ops, concatenations, pads, slices
    and reductions of such a value run on the rows; the image form is made only for readers that need it. So do chains
    of moves that make an image of an image: shuffled channels, repeated or mirrored pixels.
    """

    name = "rows_layout"
    doc = "Keep images as (1, 1, H*W, C) between convolutions, pools and what stands between them"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_Layout().visit))


def _four(shape: Shape) -> Shape | None:
    """(1, c, h, w) of an operand that broadcasts against images; None for what is no image."""
    full = (1,) * (4 - len(shape)) + shape
    return full if len(full) == 4 and full[0] == 1 else None


class _Layout:
    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, Pair]] = {}
        self.moved: dict[str, ImageElements] = {}

    # -- helpers ---------------------------------------------------------------------------------------------
    def deliver(self, r: Rewriter, node: Node, rows: str, hw: Pair) -> str:
        """Note `rows` as the rows form of `node`; the image form beside it dies unless somebody reads it."""
        images = r.builder(node).op(FromRows(hw), rows)
        self.rows[images] = (rows, hw)
        return images

    def as_rows(self, b: Builder, name: str, hw: Pair) -> str | None:
        """`name` in rows layout, or in a shape that broadcasts against rows of an hw image."""
        if name in self.rows and self.rows[name][1] in (hw, (1, 1)):
            return self.rows[name][0]
        shape = b.shape(name)
        full = _four(shape)
        if full is None:
            return None
        if math.prod(shape) == 1:
            return name
        if full[2:] not in ((1, 1), hw):
            name = b.op(BroadcastTo((1, full[1], *hw)), name)
        return b.op(ToRows(), b.reshape(name, (1, full[1], *b.shape(name)[-2:]) if full[2:] != (1, 1) else full))

    # -- rules -----------------------------------------------------------------------------------------------
    def visit(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        op = node.op
        if isinstance(op, FromRows):
            name = r.keep(node, None, operands)
            self.rows[name] = (operands[0], op.hw)
            return name
        if isinstance(op, ToRows):
            if operands[0] in self.rows:
                return self.rows[operands[0]][0]
            name = r.keep(node, None, operands)
            image = r.new[operands[0]].shape
            self.rows.setdefault(operands[0], (name, (image[2], image[3])))
            return name
        if len(operands) == 1 and operands[0] in self.moved:
            return self.move(r, node, self.moved[operands[0]])
        if not any(name in self.rows for name in operands):
            if isinstance(op, Transpose):
                return self.from_channels_last(r, node, op, r.new[operands[0]])
            return None if not isinstance(op, REDUCES) else self.reduce(r, node, operands[0])
        if isinstance(op, Unary):
            rows, hw = self.rows[operands[0]]
            return self.deliver(r, node, r.keep(node, None, (rows,)), hw)
        if isinstance(op, Binary):
            return self.binary(r, node, operands)
        if isinstance(op, Concatenate):
            return self.concatenate(r, node, operands)
        if isinstance(op, REDUCES):
            return self.reduce(r, node, operands[0])
        if isinstance(op, Pad):
            return self.pad(r, node, op, operands[0])
        if isinstance(op, Index):
            return self.index(r, node, op, operands[0])
        if len(operands) > 1:  # a matmul, say: its operands are images
            return None
        rows, hw = self.rows[operands[0]]
        channels = r.new[rows].shape[3]
        if isinstance(op, BroadcastTo) and (spread := self.broadcast(r, node, operands[0])) is not None:
            return spread
        if isinstance(op, Reshape) and (math.prod(hw) == 1 or channels == 1):
            return r.builder(node).reshape(rows, node.shape)
        return self.move(r, node, ImageElements.image(rows, channels, hw)) if isinstance(op, MOVES) else None

    def move(self, r: Rewriter, node: Node, image: ImageElements) -> str | None:
        """One more move of an image: rows again where the result is an image, else what is remembered of it."""
        assert node.op is not None
        moved = image.then(node.op)
        if moved is None:
            return None
        rows = moved.in_rows(r.builder(node))
        if rows is None:
            self.moved[node.name] = moved
            return None
        output = self.deliver(r, node, rows, (node.shape[2], node.shape[3]))
        self.rows[node.name] = self.rows[output]  # which is its name where no other op is new
        return output

    def from_channels_last(self, r: Rewriter, node: Node, op: Transpose, before: Node) -> str | None:
        """The second of two transposes that make (1, c, h, w) of (1, h, w, c), which is rows already."""
        if not isinstance(before.op, Transpose) or len(before.shape) != 4 or before.shape[0] != 1:
            return None
        order = [0, 1, 2, 3]
        for swap in (before.op, op):
            i, j = swap.dim0 % 4, swap.dim1 % 4
            order[i], order[j] = order[j], order[i]
        if order != [0, 3, 1, 2]:
            return None
        _, channels, h, w = node.shape
        rows = r.builder(node).reshape(before.sources[0], (1, 1, h * w, channels))
        return self.deliver(r, node, rows, (h, w))

    def binary(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        full = _four(node.shape)
        if full is None or len(node.shape) != 4:
            return None
        hw = (full[2], full[3])
        if not any(self.rows[o][1] == hw for o in operands if o in self.rows):
            return None
        b = r.builder(node)
        sides = [self.as_rows(b, o, hw) for o in operands]
        if any(side is None for side in sides):
            return None
        return self.deliver(r, node, r.keep(node, None, tuple(s for s in sides if s is not None)), hw)

    def concatenate(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        assert isinstance(node.op, Concatenate)
        if len(node.shape) != 4 or node.shape[0] != 1:
            return None
        axis = node.op.axis % 4
        images = [r.new[o].shape for o in operands]
        b = r.builder(node)
        parts = [self.rows[o][0] if o in self.rows else b.op(ToRows(), o) for o in operands]
        hw = (node.shape[2], node.shape[3])
        if axis == 1:
            return self.deliver(r, node, r.keep(node, Concatenate(-1), tuple(parts)), hw)
        if axis == 2:
            return self.deliver(r, node, r.keep(node, Concatenate(-2), tuple(parts)), hw)
        if axis != 3:
            return None
        stacked = b.op(Concatenate(-2), *parts)
        starts = np.cumsum([0, *(s[2] * s[3] for s in images)])
        at = np.concatenate(
            [start + np.arange(s[2] * s[3]).reshape(s[2], s[3]) for start, s in zip(starts, images, strict=False)], 1
        )
        return self.deliver(r, node, r.keep(node, GatherRows(Payload(at.reshape(-1))), (stacked,)), hw)

    def reduce(self, r: Rewriter, node: Node, name: str) -> str | None:
        """Over channels; over one of height and width when the other is 1; or the second of a pair over both."""
        op = node.op
        assert isinstance(op, REDUCES)
        rank = len(node.shape)
        if rank != 4 or node.shape[0] != 1:
            return None
        dim = op.dim % 4
        if name in self.rows:
            rows, hw = self.rows[name]
            if dim == 1:
                return self.deliver(r, node, r.keep(node, dataclasses.replace(op, dim=-1), (rows,)), hw)
            if dim in (2, 3) and hw[3 - dim] == 1:
                return self.deliver(r, node, r.keep(node, dataclasses.replace(op, dim=-2), (rows,)), (1, 1))
            return None
        first = r.new[name]
        if type(first.op) is not type(op) or first.sources[0] not in self.rows:
            return None
        assert isinstance(first.op, REDUCES)
        if {first.op.dim % 4, dim} != {2, 3}:
            return None
        rows, _ = self.rows[first.sources[0]]
        return self.deliver(r, node, r.keep(node, dataclasses.replace(op, dim=-2), (rows,)), (1, 1))

    def pad(self, r: Rewriter, node: Node, op: Pad, name: str) -> str | None:
        rows, (h, w) = self.rows[name]
        batch, channel, height, width = op.pads
        constant = op.mode == "constant"
        if batch != (0, 0) or (channel != (0, 0) and (not constant or op.value != 0)) or (constant and op.value != 0):
            return None
        b = r.builder(node)
        if (height, width) != ((0, 0), (0, 0)):
            if constant:
                at = np.pad(np.arange(h * w).reshape(h, w), (height, width), constant_values=-1)
            else:
                at = op.source(2, h).numpy()[:, None] * w + op.source(3, w).numpy()[None, :]
            rows = b.op(GatherRows(Payload(at.reshape(-1))), rows)
        if channel != (0, 0):
            rows = b.op(Pad(((0, 0), (0, 0), (0, 0), channel)), rows)
        return self.deliver(r, node, rows, (node.shape[2], node.shape[3]))

    def index(self, r: Rewriter, node: Node, op: Index, name: str) -> str | None:
        rows, (h, w) = self.rows[name]
        dim = op.dim % 4
        b = r.builder(node)
        hw = (node.shape[2], node.shape[3])
        if dim == 1:
            if op.stride == 1:
                return self.deliver(r, node, r.keep(node, dataclasses.replace(op, dim=-1), (rows,)), hw)
            return self.deliver(r, node, gather(b, rows, -1, np.arange(op.start, op.stop, op.stride)), hw)
        if dim == 0:
            return None
        cut = slice(op.start, op.stop, op.stride)
        grid = np.arange(h * w).reshape(h, w)
        at = (grid[cut] if dim == 2 else grid[:, cut]).reshape(-1)
        if np.array_equal(at, np.arange(at[0], at[0] + at.size)):
            return self.deliver(r, node, b.op(Index(-2, int(at[0]), int(at[-1]) + 1), rows), hw)
        return self.deliver(r, node, b.op(GatherRows(Payload(at)), rows), hw)

    def broadcast(self, r: Rewriter, node: Node, name: str) -> str | None:
        rows, hw = self.rows[name]
        if len(node.shape) != 4 or node.shape[0] != 1 or hw not in ((1, 1), node.shape[2:]):
            return None
        target = (node.shape[2], node.shape[3])
        spread = (1, 1, target[0] * target[1], node.shape[1])
        return self.deliver(r, node, r.builder(node).op(BroadcastTo(spread), rows), target)


@dataclasses.dataclass(frozen=True)
class ExpandRows(Pass):
    """What is left of `to_rows` and `from_rows` is written as reshape and transpose."""

    name = "expand_rows"
    doc = "Write the remaining changes of layout as reshapes and transposes"

    def apply(self, graph: Graph) -> Report:
        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            b = r.builder(node)
            shape = b.shape(operands[0])
            if isinstance(node.op, ToRows):
                return b.op(Transpose(-2, -1), b.reshape(operands[0], (shape[0], 1, shape[1], shape[2] * shape[3])))
            if isinstance(node.op, FromRows):
                return b.reshape(b.op(Transpose(-2, -1), operands[0]), node.shape)
            return None

        return Report(self.name, Rewriter(graph, self.options).run(visit))


@dataclasses.dataclass(frozen=True)
class ImageElements:
    """A value made of the elements of one image.

    rows: the image as (1, 1, H*W, C). pixels: H*W. source: for every element its position in (C, H*W), flat.
    """

    rows: str
    pixels: int
    source: np.ndarray

    @staticmethod
    def image(rows: str, channels: int, hw: Pair) -> ImageElements:
        """The image itself."""
        pixels = hw[0] * hw[1]
        return ImageElements(rows, pixels, np.arange(channels * pixels).reshape(1, channels, *hw))

    def then(self, op: Op) -> ImageElements | None:
        """After one more move; None for what is none, or brings zeros in."""
        x = self.source
        if isinstance(op, Reshape):
            x = x.reshape(op.shape)
        elif isinstance(op, Transpose):
            x = x.swapaxes(op.dim0, op.dim1)
        elif isinstance(op, BroadcastTo):
            x = np.broadcast_to(x, op.shape)
        elif isinstance(op, Index):
            x = x[(slice(None),) * (op.dim % x.ndim) + (slice(op.start, op.stop, op.stride),)]
        elif isinstance(op, GatherRows) and int(op.index.array.min()) >= 0:
            x = x.take(op.index.array.reshape(-1), axis=-2)
        else:
            return None
        return dataclasses.replace(self, source=x)

    def in_rows(self, b: Builder) -> str | None:
        """The value as an image of some pixels and some channels, in rows; None where one depends on the other."""
        x = self.source
        if x.ndim != 4 or x.shape[0] != 1:
            return None
        channels, places = x[0, :, 0, 0] // self.pixels, x[0, 0] % self.pixels
        if not np.array_equal(x[0], channels[:, None, None] * self.pixels + places):
            return None
        return pick(b, _pixels(b, self.rows, places.reshape(-1)), -1, channels)


def _pixels(b: Builder, rows: str, at: np.ndarray) -> str:
    if np.array_equal(at, np.arange(at[0], at[0] + at.size)):
        return pick(b, rows, -2, at)
    return b.op(GatherRows(Payload(at)), rows)
