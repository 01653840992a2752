"""Ops that only move data: transpose, reshape, slices, stacks, padding, concatenation, broadcast."""

from __future__ import annotations

import math

import torch

from tbuda_lab.core.graph import Payload, Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.ops.base import NdOp, axis_of, with_size

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


@op("reshape")
class Reshape(NdOp):
    """The same elements in row-major order under another shape; one size may be -1."""

    shape: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        count = math.prod(x)
        known = math.prod(n for n in self.shape if n != -1)
        shape = tuple(count // known if n == -1 and known else n for n in self.shape)
        if self.shape.count(-1) > 1 or math.prod(shape) != count:
            raise ShapeError(f"reshape of {x} ({count} elements) to {self.shape}: the element counts must agree")
        return shape

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.reshape(x, self.shape)


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


@op("select")
class Select(NdOp):
    """Of every `stride` elements along dim, those at begin .. begin + length - 1; stride 0 means the whole dim.

    The last group may be short: elements it lacks are zero.
    """

    dim: int
    begin: int
    length: int
    stride: int = 0

    def _groups(self, size: int) -> tuple[int, int]:
        stride = self.stride or size
        return stride, -(-size // stride)

    def infer(self, x: Shape) -> Shape:
        axis = axis_of(self.dim, len(x), "select")
        stride, groups = self._groups(x[axis])
        if self.begin < 0 or self.length < 1 or self.begin + self.length > stride:
            raise ShapeError(
                f"select [{self.begin}, {self.begin + self.length}) of every {stride} along dim {self.dim} of {x}: "
                "the range must lie inside one stride"
            )
        return with_size(x, axis, groups * self.length)

    def evaluate(self, x: Tensor) -> Tensor:
        axis = self.dim % x.dim()
        stride, groups = self._groups(x.shape[axis])
        missing = groups * stride - x.shape[axis]
        if missing:
            x = torch.cat([x, x.new_zeros(with_size(tuple(x.shape), axis, missing))], axis)
        x = x.reshape(*x.shape[:axis], groups, stride, *x.shape[axis + 1 :])
        x = x.narrow(axis + 1, self.begin, self.length)
        return x.reshape(*x.shape[:axis], groups * self.length, *x.shape[axis + 2 :])


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


@op("stack")
class Stack(NdOp):
    """Operands side by side along a new dim at axis (counted in the result)."""

    axis: int

    def infer(self, *operands: Shape) -> Shape:
        first = operands[0]
        if any(s != first for s in operands):
            raise ShapeError(f"stack takes operands of one shape, not {operands}")
        axis = axis_of(self.axis, len(first) + 1, "stack")
        return (*first[:axis], len(operands), *first[axis:])

    def evaluate(self, *operands: Tensor) -> Tensor:
        return torch.stack(operands, self.axis)


@op("interleave")
class Interleave(NdOp):
    """Operands of one shape dealt in turn along axis, `stride` elements each time."""

    axis: int = -3
    stride: int = 1

    def infer(self, *operands: Shape) -> Shape:
        first = operands[0]
        axis = axis_of(self.axis, len(first), "interleave")
        if any(s != first for s in operands) or self.stride < 1 or first[axis] % self.stride:
            raise ShapeError(
                f"interleave by {self.stride} along {self.axis} takes operands of one shape whose size there is a "
                f"multiple of {self.stride}, not {operands}"
            )
        return with_size(first, axis, first[axis] * len(operands))

    def evaluate(self, *operands: Tensor) -> Tensor:
        shape = operands[0].shape
        axis = self.axis % len(shape)
        split = (*shape[:axis], shape[axis] // self.stride, self.stride, *shape[axis + 1 :])
        dealt = torch.stack([x.reshape(split) for x in operands], axis + 1)
        return dealt.reshape(*shape[:axis], shape[axis] * len(operands), *shape[axis + 1 :])


@op("unsqueeze")
class Unsqueeze(NdOp):
    """A new dim of size 1 at dim (counted in the result)."""

    dim: int

    def infer(self, x: Shape) -> Shape:
        axis = axis_of(self.dim, len(x) + 1, "unsqueeze")
        return (*x[:axis], 1, *x[axis:])

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.unsqueeze(x, self.dim)


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


def _zrc(x: Shape, what: str) -> tuple[Shape, int, int, int]:
    """(leading dims, z, r, c); a matrix counts as one slice."""
    if len(x) < 2:
        raise ShapeError(f"{what} takes a tensor of rank 2 or more, not {x}")
    return (x[:-3], x[-3], x[-2], x[-1]) if len(x) > 2 else ((), 1, x[0], x[1])


def _divide(size: int, n: int, what: str, unit: str, x: Shape) -> int:
    if n < 1 or size % n:
        raise ShapeError(f"{what}({n}) of {x}: {n} does not divide the {size} {unit}")
    return size // n


@op("hslice")
class HSlice(NdOp):
    """(..., Z, R, C) -> (..., Z*n, R, C/n): slice z*n + i holds columns i*C/n .. of slice z."""

    n: int

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "hslice")
        return (*lead, z * self.n, r, _divide(c, self.n, "hslice", "columns", x))

    def evaluate(self, x: Tensor) -> Tensor:
        lead, z, r, c = _zrc(tuple(x.shape), "hslice")
        split = x.reshape(*lead, z, r, self.n, c // self.n).transpose(-3, -2)
        return split.reshape(*lead, z * self.n, r, c // self.n)


@op("hstack")
class HStack(NdOp):
    """(..., Z, R, C) -> (..., Z/n, R, C*n): the inverse of hslice; n = -1 takes all slices."""

    n: int = -1

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "hstack")
        n = z if self.n == -1 else self.n
        return (*lead, _divide(z, n, "hstack", "slices", x), r, c * n)

    def evaluate(self, x: Tensor) -> Tensor:
        lead, z, r, c = _zrc(tuple(x.shape), "hstack")
        n = z if self.n == -1 else self.n
        return x.reshape(*lead, z // n, n, r, c).transpose(-3, -2).reshape(*lead, z // n, r, c * n)


@op("vslice")
class VSlice(NdOp):
    """(..., Z, R, C) -> (..., Z*n, R/n, C): rows cut into n pieces that become slices."""

    n: int

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "vslice")
        return (*lead, z * self.n, _divide(r, self.n, "vslice", "rows", x), c)

    def evaluate(self, x: Tensor) -> Tensor:
        return x.reshape(self.infer(tuple(x.shape)))


@op("vstack")
class VStack(NdOp):
    """(..., Z, R, C) -> (..., Z/n, R*n, C): the inverse of vslice; n = -1 takes all slices."""

    n: int = -1

    def infer(self, x: Shape) -> Shape:
        lead, z, r, c = _zrc(x, "vstack")
        n = z if self.n == -1 else self.n
        return (*lead, _divide(z, n, "vstack", "slices", x), r * n, c)

    def evaluate(self, x: Tensor) -> Tensor:
        return x.reshape(self.infer(tuple(x.shape)))


@op("gather_rows")
class GatherRows(NdOp):
    """y[..., r, :] = x[..., index[r], :], or zeros where index[r] is -1."""

    index: Payload

    def infer(self, x: Shape) -> Shape:
        at = self.index.array
        if len(x) < 2 or at.ndim != 1 or at.size == 0 or at.min() < -1 or at.max() >= x[-2]:
            raise ShapeError(f"gather_rows of {x}: a one-dimensional index with entries -1..{x[-2] - 1 if len(x) > 1 else 0}")
        return (*x[:-2], int(at.size), x[-1])

    def evaluate(self, x: Tensor) -> Tensor:
        at = torch.from_numpy(self.index.array.astype("int64"))
        y = x.index_select(-2, at.clamp(min=0))
        return torch.where((at >= 0)[:, None], y, torch.zeros((), dtype=y.dtype))
