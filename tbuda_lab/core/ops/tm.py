"""Ops that only move data: transpose, reshape, slices, stacks, padding, concatenation, broadcast."""

from __future__ import annotations

import math

import numpy as np
import torch

from tbuda_lab.core.graph import Node, Payload, Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.ops.base import Names, NdOp, axis_of, negative, with_size
from tbuda_lab.core.ops.builder import Builder

Tensor = torch.Tensor


@op("transpose")
class Transpose(NdOp):
    """Swap two dims."""

    dim0: int
    dim1: int

    def infer(self, x: Shape) -> Shape:
        i, j = axis_of(self.dim0, len(x), "transpose"), axis_of(self.dim1, len(x), "transpose")
        out = list(x)
        out[i], out[j] = out[j], out[i]
        return tuple(out)

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.transpose(x, self.dim0, self.dim1)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(self, g)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        rank = len(b.shape(x))
        low, high = sorted((negative(self.dim0, rank), negative(self.dim1, rank)))
        if low == high:
            return x
        return None if (self.dim0, self.dim1) == (low, high) else b.op(Transpose(low, high), x)


@op("reshape")
class Reshape(NdOp):
    """The same elements in row-major order under another shape; one size may be -1."""

    shape: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        count = math.prod(x)
        size = math.prod(n for n in self.shape if n != -1)
        shape = tuple(count // size if n == -1 and size else n for n in self.shape)
        if self.shape.count(-1) > 1 or math.prod(shape) != count:
            raise ShapeError(f"reshape of {x} ({count} elements) to {self.shape}: the element counts must agree")
        return shape

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.reshape(x, self.shape)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.reshape(g, b.shape(x[0]))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        return None if -1 not in self.shape else b.op(Reshape(node.shape), x)


@op("index")
class Index(NdOp):
    """Elements start, start + stride, ... below stop along dim."""

    dim: int
    start: int
    stop: int
    stride: int = 1

    def infer(self, x: Shape) -> Shape:
        axis = axis_of(self.dim, len(x), "index")
        if not 0 <= self.start < self.stop <= x[axis] or self.stride < 1:
            raise ShapeError(
                f"index {self.start}:{self.stop}:{self.stride} along dim {self.dim} of {x}: "
                f"needs 0 <= start < stop <= {x[axis]} and stride >= 1"
            )
        return with_size(x, axis, -(-(self.stop - self.start) // self.stride))

    def evaluate(self, x: Tensor) -> Tensor:
        where = [slice(None)] * x.dim()
        where[self.dim % x.dim()] = slice(self.start, self.stop, self.stride)
        return x[tuple(where)]

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        shape = b.shape(x[0])
        axis = self.dim % len(shape)
        if self.stride == 1:
            pads = tuple((self.start, n - self.stop) if i == axis else (0, 0) for i, n in enumerate(shape))
            return b.op(Pad(pads), g)
        return unpick(b, g, axis - len(shape), np.arange(self.start, self.stop, self.stride), shape[axis])

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """Runs of neighbours are canonical; every n-th row or column is a gather."""
        shape = b.shape(x)
        dim = negative(self.dim, len(shape))
        at = np.arange(self.start, self.stop, self.stride)
        if at.size == shape[dim]:
            return x
        if at.size > 1 and self.stride > 1 and dim >= -2:
            return gather(b, x, dim, at)
        stride = self.stride if at.size > 1 else 1
        plain = Index(dim, self.start, int(at[-1]) + 1, stride)
        return None if plain == self else b.op(plain, x)


@op("select")
class Select(NdOp):
    """Of every `stride` elements along dim, those at begin .. begin + length - 1; stride 0 means the whole dim.

    As many groups as begin inside of dim. The last one may be short: elements it lacks are zero.
    """

    dim: int
    begin: int
    length: int
    stride: int = 0

    def _groups(self, size: int) -> tuple[int, int]:
        stride = self.stride or size
        return stride, -(-(size - self.begin) // stride)

    def infer(self, x: Shape) -> Shape:
        axis = axis_of(self.dim, len(x), "select")
        stride, groups = self._groups(x[axis])
        if self.begin < 0 or self.length < 1 or self.begin + self.length > stride or groups < 1:
            raise ShapeError(
                f"select [{self.begin}, {self.begin + self.length}) of every {stride} along dim {self.dim} of {x}: "
                "the range must begin inside the dim and lie inside one stride"
            )
        return with_size(x, axis, groups * self.length)

    def evaluate(self, x: Tensor) -> Tensor:
        axis = self.dim % x.dim()
        stride, groups = self._groups(x.shape[axis])
        missing = groups * stride - x.shape[axis]
        if missing > 0:
            x = torch.cat([x, x.new_zeros(with_size(tuple(x.shape), axis, missing))], axis)
        x = x.narrow(axis, 0, groups * stride)  # what is left over begins before `begin`
        x = x.reshape(*x.shape[:axis], groups, stride, *x.shape[axis + 1 :])
        x = x.narrow(axis + 1, self.begin, self.length)
        return x.reshape(*x.shape[:axis], groups * self.length, *x.shape[axis + 2 :])

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        shape = b.shape(x[0])
        size = shape[self.dim]
        stride, groups = self._groups(size)
        at = (np.arange(groups)[:, None] * stride + self.begin + np.arange(self.length)).reshape(-1)
        return unpick(b, g, negative(self.dim, len(shape)), np.where(at < size, at, -1), size)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        shape = b.shape(x)
        dim, size = negative(self.dim, len(shape)), shape[self.dim]
        stride, groups = self._groups(size)
        at = (np.arange(groups)[:, None] * stride + self.begin + np.arange(self.length)).reshape(-1)
        return pick(b, x, dim, np.where(at < size, at, -1))


@op("pad")
class Pad(NdOp):
    """Elements added before and after every dim: (before, after) per dim, all dims named.

    mode "constant" adds `value`; "reflect" mirrors without the edge; "replicate" repeats the edge.
    """

    pads: tuple[tuple[int, int], ...]
    mode: str = "constant"
    value: float = 0.0

    def infer(self, x: Shape) -> Shape:
        if len(self.pads) != len(x):
            raise ShapeError(f"pad names {len(self.pads)} dims of a tensor of rank {len(x)}; name them all")
        for n, (before, after) in zip(x, self.pads, strict=True):
            if before < 0 or after < 0:
                raise ShapeError(f"pad {self.pads}: sizes are not negative; cut with index instead")
            if self.mode == "reflect" and max(before, after) >= n:
                raise ShapeError(f"pad of {x} by {self.pads}: a reflection reaches at most size - 1")
        return tuple(n + before + after for n, (before, after) in zip(x, self.pads, strict=True))

    def source(self, axis: int, size: int) -> Tensor:
        """For each position of the padded axis, the position it copies (modes reflect and replicate)."""
        before, after = self.pads[axis]
        at = torch.arange(-before, size + after)
        if self.mode == "replicate":
            return at.clamp(0, size - 1)
        at = at.abs()
        return torch.where(at >= size, 2 * (size - 1) - at, at)

    def evaluate(self, x: Tensor) -> Tensor:
        if self.mode == "constant":
            flat = [n for pair in reversed(self.pads) for n in pair]
            return torch.nn.functional.pad(x, flat, value=self.value)
        for axis, pair in enumerate(self.pads):
            if pair != (0, 0):
                x = x.index_select(axis, self.source(axis, x.shape[axis]))
        return x

    def differentiable(self, b: Builder, node: Node, x: str) -> str | None:
        return None if self.mode == "constant" else self.canonicalise(b, node, x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """Of mode "constant"; the others are gathers, see `differentiable`."""
        for axis, ((before, _), n) in enumerate(zip(self.pads, b.shape(x[0]), strict=True)):
            if b.shape(g)[axis] != n:
                g = b.op(Index(axis, before, before + n), g)
        return g

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        """Zeros are canonical; another value is added where the zeros are; a mirror or a repeated edge is a gather."""
        shape = b.shape(x)
        if all(pair == (0, 0) for pair in self.pads):
            return x
        if self.mode == "constant":
            if self.value == 0:
                return None
            outside = np.pad(np.zeros(shape, np.float32), self.pads, constant_values=np.float32(self.value))
            return b.add(b.op(Pad(self.pads), x), b.constant(outside))
        for axis, pair in enumerate(self.pads):
            if pair != (0, 0):
                x = pick(b, x, axis - len(shape), self.source(axis, shape[axis]).numpy())
        return x


@op("concatenate")
class Concatenate(NdOp):
    """Operands one after the other along axis."""

    axis: int

    def infer(self, *operands: Shape) -> Shape:
        first = operands[0]
        axis = axis_of(self.axis, len(first), "concatenate")
        for other in operands[1:]:
            if len(other) != len(first) or with_size(other, axis, 0) != with_size(first, axis, 0):
                raise ShapeError(f"concatenate along {self.axis} of {first} and {other}: all other sizes must agree")
        return with_size(first, axis, sum(s[axis] for s in operands))

    def evaluate(self, *operands: Tensor) -> Tensor:
        return torch.cat(operands, self.axis)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        sizes = [b.shape(name)[self.axis] for name in x]
        start = sum(sizes[:port])
        return b.op(Index(self.axis, start, start + sizes[port]), g)

    def canonicalise(self, b: Builder, node: Node, *operands: str) -> str | None:
        axis = negative(self.axis, len(node.shape))
        if len(operands) == 1:
            return operands[0]
        return None if axis == self.axis else b.op(Concatenate(axis), *operands)


@op("unsqueeze")
class Unsqueeze(NdOp):
    """A new dim of size 1 at dim (counted in the result)."""

    dim: int

    def infer(self, x: Shape) -> Shape:
        axis = axis_of(self.dim, len(x) + 1, "unsqueeze")
        return (*x[:axis], 1, *x[axis:])

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.unsqueeze(x, self.dim)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.reshape(g, b.shape(x[0]))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        return b.reshape(x, node.shape)


@op("squeeze")
class Squeeze(NdOp):
    """Drop a dim of size 1."""

    dim: int

    def infer(self, x: Shape) -> Shape:
        axis = axis_of(self.dim, len(x), "squeeze")
        if x[axis] != 1:
            raise ShapeError(f"squeeze of dim {self.dim} of {x}: only a dim of size 1 can go")
        return (*x[:axis], *x[axis + 1 :])

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.squeeze(x, self.dim)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.reshape(g, b.shape(x[0]))

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        return b.reshape(x, node.shape)


@op("broadcast_to")
class BroadcastTo(NdOp):
    """Numpy broadcasting to an explicit shape."""

    shape: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        if broadcast_shapes(x, self.shape) != self.shape:
            raise ShapeError(f"{x} does not broadcast to {self.shape}: sizes must be equal or 1, aligned at the right")
        return self.shape

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.broadcast_to(x, self.shape)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """What was repeated is summed by whoever asks, as for every op that broadcasts."""
        return g

    def canonicalise(self, b: Builder, node: Node, x: str) -> str | None:
        return b.reshape(x, self.shape) if math.prod(b.shape(x)) == math.prod(self.shape) else None


@op("repeat")
class Repeat(NdOp):
    """The tensor laid out factors[i] times along dim i; more factors than dims add dims in front."""

    factors: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        if len(self.factors) < len(x) or min(self.factors, default=1) < 1:
            raise ShapeError(f"repeat of {x} by {self.factors}: one factor >= 1 for each dim, more only in front")
        padded = (1,) * (len(self.factors) - len(x)) + x
        return tuple(n * k for n, k in zip(padded, self.factors, strict=True))

    def evaluate(self, x: Tensor) -> Tensor:
        return x.repeat(self.factors)

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        """Size 1 broadcasts; rows and columns gather; slices are laid one after the other."""
        x = b.reshape(x, (1,) * (len(self.factors) - len(b.shape(x))) + b.shape(x))
        shape = b.shape(x)
        spread = tuple(k if n == 1 else n for n, k in zip(shape, self.factors, strict=True))
        x = x if spread == shape else b.op(BroadcastTo(spread), x)
        for axis, (n, k) in enumerate(zip(shape, self.factors, strict=True)):
            if n > 1 and k > 1:
                dim = axis - len(shape)
                x = gather(b, x, dim, np.tile(np.arange(n), k)) if dim >= -2 else b.op(Concatenate(dim), *[x] * k)
        return x


MOVES: tuple[type[NdOp], ...] = (Transpose, Reshape, Index, Unsqueeze, Squeeze, BroadcastTo, Repeat)
"""Ops whose every result element is an element of their one operand."""


@op("gather_rows")
class GatherRows(NdOp):
    """y[..., r, :] = x[..., index[r], :], or zeros where index[r] is -1."""

    index: Payload

    def infer(self, x: Shape) -> Shape:
        at = self.index.array
        if len(x) < 2 or at.ndim != 1 or at.size == 0 or at.min() < -1 or at.max() >= x[-2]:
            raise ShapeError(f"gather_rows of {x}: a one-dimensional index with entries from -1 to the last row")
        return (*x[:-2], int(at.size), x[-1])

    def evaluate(self, x: Tensor) -> Tensor:
        at = torch.from_numpy(self.index.array.astype("int64"))
        y = x.index_select(-2, at.clamp(min=0))
        return torch.where((at >= 0)[:, None], y, torch.zeros((), dtype=y.dtype))

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(ScatterRows(self.index, b.shape(x[0])[-2]), g)


@op("scatter_rows")
class ScatterRows(NdOp):
    """y[..., index[r], :] is the sum of the rows x[..., r, :] that go there, of `rows` rows; index -1 drops a row."""

    index: Payload
    rows: int

    def infer(self, x: Shape) -> Shape:
        at = self.index.array
        if len(x) < 2 or at.ndim != 1 or at.size != x[-2] or at.min() < -1 or at.max() >= self.rows:
            raise ShapeError(f"scatter_rows of {x} to {self.rows} rows: an entry from -1 to the last row for each row")
        return (*x[:-2], self.rows, x[-1])

    def evaluate(self, x: Tensor) -> Tensor:
        at = torch.from_numpy(self.index.array.astype("int64"))
        source_rows = torch.nonzero(at >= 0)[:, 0]
        y = x.new_zeros((*x.shape[:-2], self.rows, x.shape[-1]))
        return y.index_add(-2, at[source_rows], x.index_select(-2, source_rows))

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(GatherRows(self.index), g)


@op("sum_rows")
class SumRows(NdOp):
    """y[..., r, :] is the sum of the rows x[..., s, :] of all pairs (r, s), of `rows` rows: windows of a pool, running
    sums. What no pair names adds nothing, whatever it holds."""

    pairs: Payload
    rows: int

    def infer(self, x: Shape) -> Shape:
        at = self.pairs.array
        fits = at.ndim == 2 and at.shape[1] == 2 and at.size > 0 and at.min() >= 0
        if len(x) < 2 or not fits or at[:, 0].max() >= self.rows or at[:, 1].max() >= x[-2]:
            raise ShapeError(f"sum_rows of {x} to {self.rows} rows: pairs (row of the result, row of the operand)")
        return (*x[:-2], self.rows, x[-1])

    def evaluate(self, x: Tensor) -> Tensor:
        target, source = torch.from_numpy(self.pairs.array.astype("int64")).unbind(1)
        y = x.new_zeros((*x.shape[:-2], self.rows, x.shape[-1]))
        return y.index_add(-2, target, x.index_select(-2, source))

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return b.op(SumRows(Payload(np.ascontiguousarray(self.pairs.array[:, ::-1])), b.shape(x[0])[-2]), g)


def unpick(b: Builder, x: str, dim: int, at: np.ndarray, size: int) -> str:
    """Positions of x back to where `pick` took them from: result position at[i] is x's i, others are zero. dim < 0."""
    back = np.full(size, -1)
    keep = np.flatnonzero(at >= 0)
    back[at[keep]] = keep
    return pick(b, x, dim, back)


def gather(b: Builder, x: str, dim: int, at: np.ndarray) -> str:
    """Positions `at` along a negative dim (-1 in `at` is a zero); other dims than rows are turned there and back."""
    shape = b.shape(x)
    if len(shape) == 1:
        return b.reshape(b.op(GatherRows(Payload(at)), b.reshape(x, (shape[0], 1))), (int(at.size),))
    if dim == -2:
        return b.op(GatherRows(Payload(at)), x)
    return b.transpose(b.op(GatherRows(Payload(at)), b.transpose(x, dim, -2)), dim, -2)


def pick(b: Builder, x: str, dim: int, at: np.ndarray) -> str:
    """As `gather`, by runs of neighbours where they are few and the dim is neither rows nor columns."""
    size = b.shape(x)[dim]
    if np.array_equal(at, np.arange(size)):
        return x
    if (at >= 0).all() and np.array_equal(at, np.arange(at[0], at[0] + at.size)):
        return b.op(Index(dim, int(at[0]), int(at[-1]) + 1), x)
    if dim >= -2:
        return gather(b, x, dim, at)
    empty = at < 0
    follows = np.where(empty[1:] | empty[:-1], empty[1:] == empty[:-1], at[1:] == at[:-1] + 1)
    cuts = np.flatnonzero(~follows) + 1
    runs = np.split(at, cuts)
    shape = b.shape(x)
    parts = []
    for run in runs:
        if run[0] < 0:
            parts.append(b.constant(np.zeros(with_size(shape, len(shape) + dim, int(run.size)), np.float32)))
        else:
            parts.append(b.op(Index(dim, int(run[0]), int(run[-1]) + 1), x))
    return b.op(Concatenate(dim), *parts)
