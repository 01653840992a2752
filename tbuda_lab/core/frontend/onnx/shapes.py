"""ONNX ops that move data: views, slices, gathers, padding; constants; sequences, which are lists of values known while
reading."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates


def _sequence(n: OnnxNode) -> list[Any]:
    value = n.operands[0]
    if not isinstance(value, list):
        raise CannotMap("operand 0 is not a sequence that is known here")
    return value


@translates("SequenceConstruct")
def sequence_construct(n: OnnxNode) -> Any:
    return (n.xs(),)


@translates("SequenceEmpty")
def sequence_empty(n: OnnxNode) -> Any:
    return ([],)


@translates("SequenceLength")
def sequence_length(n: OnnxNode) -> Any:
    return n.constant(torch.tensor(len(_sequence(n))))


@translates("SequenceAt")
def sequence_at(n: OnnxNode) -> Any:
    return _sequence(n)[int(n.scalar(1, "position"))]


@translates("SequenceErase", "SequenceInsert")
def sequence_change(n: OnnxNode) -> Any:
    values = list(_sequence(n))
    if n.op_type == "SequenceErase":
        del values[int(n.scalar(1, "position", -1))]
        return (values,)
    at = int(n.scalar(2, "position", len(values)))
    values.insert(at if at >= 0 else at + len(values), n.x(1))
    return (values,)


@translates("SplitToSequence")
def split_to_sequence(n: OnnxNode) -> Any:
    axis, shape = axis_of(n.attr("axis", 0), n.rank()), n.shape()
    sizes = [1] * shape[axis]
    if n.opt(1) is not None:
        split = n.tensor(1, "split")
        each = int(split) if split.dim() == 0 else 0
        sizes = [min(each, shape[axis] - k) for k in range(0, shape[axis], each)] if each else split.tolist()
    parts = n.aten.split_with_sizes(n.x(), sizes, axis)
    keep = n.opt(1) is not None or n.attr("keepdims", 1)
    return ([p if keep else n.aten.squeeze(p, axis) for p in parts],)


@translates("ConcatFromSequence")
def concat_from_sequence(n: OnnxNode) -> Any:
    values = _sequence(n)
    return (n.aten.stack if n.attr("new_axis", 0) else n.aten.cat)(values, n.attr("axis"))


def axis_of(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise CannotMap(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank if rank else 0


# -- constants -----------------------------------------------------------------------------------------------
@translates("Constant")
def constant(n: OnnxNode) -> Any:
    for name, dtype in (
        ("value", None),
        ("value_float", torch.float32),
        ("value_floats", torch.float32),
        ("value_int", torch.int64),
        ("value_ints", torch.int64),
    ):
        value = n.attr(name)
        if value is not None:
            return n.constant(value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype))
    raise CannotMap("a constant of strings or of a sparse tensor is not supported")


@translates("ConstantOfShape")
def constant_of_shape(n: OnnxNode) -> Any:
    value = n.attr("value")
    shape = _check_size(n.ints(0, "shape"))
    fill = torch.zeros(1) if value is None else value
    n.calls.make_room(shape, fill.dtype)
    return n.constant(torch.full(shape, fill.reshape(-1)[0].item(), dtype=fill.dtype))


def _check_size(shape: list[int]) -> list[int]:
    if any(s < 0 for s in shape) or math.prod(shape) > 2**31:
        raise CannotMap(f"a tensor of shape {shape}")
    return shape


@translates("Shape")
def shape(n: OnnxNode) -> Any:
    sizes = list(n.shape())
    return n.constant(torch.tensor(sizes[slice(n.attr("start", 0), n.attr("end", None))], dtype=torch.int64))


@translates("Size")
def size(n: OnnxNode) -> Any:
    return n.constant(torch.tensor(math.prod(n.shape()), dtype=torch.int64))


@translates("Range")
def range_(n: OnnxNode) -> Any:
    start, stop, step = (n.tensor(k, "range").reshape(()) for k in range(3))
    count = math.ceil((stop.item() - start.item()) / step.item())
    n.calls.make_room((max(0, count),), torch.float64)
    return n.constant(torch.from_numpy(np.arange(start.item(), stop.item(), step.item())).to(start.dtype))


@translates("EyeLike")
def eye_like(n: OnnxNode) -> Any:
    from tbuda_lab.core.frontend.onnx import read

    rows, columns = n.shape()
    kind = read.dtype_of(n.attr("dtype")) if n.attr("dtype") is not None else n.dtype()
    n.calls.make_room((rows, columns), torch.float64)
    return n.constant(torch.from_numpy(np.eye(rows, columns, n.attr("k", 0))).to(kind))


@translates("OneHot")
def one_hot(n: OnnxNode) -> Any:
    depth, values = int(n.scalar(1, "depth")), n.x(2)
    axis = axis_of(n.attr("axis", -1), n.rank() + 1)
    n.calls.make_room((depth,), torch.int64)
    at = n.x()
    if isinstance(at, FoldedValue):
        at = n.constant(torch.where(at.tensor < 0, at.tensor + depth, at.tensor))
    places = [1] * (n.rank() + 1)
    places[axis] = depth
    spread = n.aten.unsqueeze(at, axis)
    numbers = n.constant(torch.arange(depth).to(n.dtype()).reshape(places))
    same = n.aten.eq(spread, numbers)
    if isinstance(at, AtenValue):  # negative indices count from the end
        same = n.aten.logical_or(same, n.aten.eq(n.aten.add(spread, depth), numbers))
    return n.aten.where(same, n.aten.select(values, 0, 1), n.aten.select(values, 0, 0))


# -- views ---------------------------------------------------------------------------------------------------
@translates("Reshape")
def reshape(n: OnnxNode) -> Any:
    target, shape = n.ints(1, "shape"), n.shape()
    if not n.attr("allowzero", 0):
        target = [shape[k] if s == 0 else s for k, s in enumerate(target)]
    return n.aten.reshape(n.x(), target)


@translates("Flatten")
def flatten(n: OnnxNode) -> Any:
    shape = n.shape()
    axis = n.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return n.reshape(n.x(), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@translates("Squeeze")
def squeeze(n: OnnxNode) -> Any:
    axes, shape = n.ints_or_attr(1, "axes"), n.shape()
    gone = [d for d, s in enumerate(shape) if s == 1] if axes is None else [axis_of(a, len(shape)) for a in axes]
    if any(shape[d] != 1 for d in gone):
        raise CannotMap(f"it squeezes axes {axes} of {shape}; only a dim of size 1 can go")
    return n.reshape(n.x(), [s for d, s in enumerate(shape) if d not in gone])


@translates("Unsqueeze")
def unsqueeze(n: OnnxNode) -> Any:
    axes = n.ints_or_attr(1, "axes") or []
    rank = n.rank() + len(axes)
    places = {axis_of(a, rank) for a in axes}
    sizes = iter(n.shape())
    return n.reshape(n.x(), [1 if d in places else next(sizes) for d in range(rank)])


@translates("Transpose")
def transpose(n: OnnxNode) -> Any:
    return n.aten.permute(n.x(), list(n.attr("perm") or reversed(range(n.rank()))))


@translates("Expand")
def expand(n: OnnxNode) -> Any:
    target = _check_size(list(np.broadcast_shapes(n.shape(), tuple(n.ints(1, "shape")))))
    return n.aten.expand(n.x(), target)


@translates("Tile")
def tile(n: OnnxNode) -> Any:
    return n.aten.repeat(n.x(), n.ints(1, "repeats"))


@translates("Concat")
def concat(n: OnnxNode) -> Any:
    return n.aten.cat(n.xs(), n.attr("axis"))


@translates("Split")
def split(n: OnnxNode) -> Any:
    axis, sizes = axis_of(n.attr("axis", 0), n.rank()), n.ints_or_attr(1, "split")
    if not n.shape()[axis]:
        return tuple(n.constant(torch.zeros(n.shape(), dtype=n.dtype())) for _ in n.proto.output)
    if sizes is None:
        count, whole = len(n.proto.output), n.shape()[axis]
        each = -(-whole // count)
        sizes = [min(each, whole - each * k) for k in range(count)]
    return tuple(n.aten.split_with_sizes(n.x(), sizes, axis))


@translates("Slice")
def slice_(n: OnnxNode) -> Any:
    starts, stops = n.ints_or_attr(1, "starts") or [], n.ints_or_attr(2, "ends") or []
    axes = n.ints_or_attr(3, "axes", list(range(len(starts)))) or []
    steps = n.ints(4, "steps") if n.opt(4) is not None else [1] * len(starts)
    x = n.x()
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        size = n.calls.shape(x)[axis]
        if step > 0:
            x = n.aten.slice(x, axis, start, stop, step)
        else:
            stop = -size - 1 if stop < -size else stop
            at = list(range(*slice(start, None if stop == -size - 1 else stop, step).indices(size)))
            x = n.aten.index_select(x, axis, n.constant(torch.tensor(at, dtype=torch.int64)))
    return x


@translates("Gather")
def gather(n: OnnxNode) -> Any:
    x, axis = n.x(), axis_of(n.attr("axis", 0), n.rank())
    at = n.x(1)
    size, places = n.shape()[axis], n.shape(1)
    at = _counted_from_start(n, at, size)
    if isinstance(at, FoldedValue) and at.tensor.dim() == 0:
        return n.aten.select(x, axis, int(at.tensor))
    if axis == 0 and n.rank() == 2:
        return n.aten.embedding(x, at)
    flat = n.aten.index_select(x, axis, n.reshape(at, (math.prod(places),)))
    return n.reshape(flat, (*n.shape()[:axis], *places, *n.shape()[axis + 1 :]))


@translates("GatherElements")
def gather_elements(n: OnnxNode) -> Any:
    axis = axis_of(n.attr("axis", 0), n.rank())
    return n.aten.gather(n.x(), axis, _counted_from_start(n, n.x(1), n.shape()[axis]))


def _counted_from_start(n: OnnxNode, at: Tensor, size: int) -> Tensor:
    """Indices from 0 on: negative ones count from the end."""
    if isinstance(at, FoldedValue):
        return n.constant(torch.where(at.tensor < 0, at.tensor + size, at.tensor).to(torch.int64))
    back = n.aten.add(at, n.constant(torch.tensor(size)))
    return n.aten.where(n.aten.lt(at, n.constant(torch.tensor(0))), back, at)  # type: ignore[no-any-return]


@translates("GatherND")
def gather_nd(n: OnnxNode) -> Any:
    if not isinstance(n.x(1), FoldedValue) and not n.attr("batch_dims", 0):
        return n.aten.index(n.x(), _by_axis(n, n.x(1)))
    at, batch = n.tensor(1, "indices").to(torch.int64), n.attr("batch_dims", 0)
    shape, count = n.shape(), at.shape[-1]
    lead = shape[:batch]
    sizes = shape[batch : batch + count]
    rest = shape[batch + count :]
    flat = torch.zeros(at.shape[:-1], dtype=torch.int64)
    for k, s in enumerate(sizes):
        flat = flat * s + torch.where(at[..., k] < 0, at[..., k] + s, at[..., k])
    number = math.prod(lead)
    per = flat.reshape(number, -1) + torch.arange(number)[:, None] * math.prod(sizes)
    rows = n.reshape(n.x(), (number * math.prod(sizes), *rest))
    return n.reshape(n.aten.index_select(rows, 0, n.constant(per.reshape(-1))), (*at.shape[:-1], *rest))


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""By a reduction of ONNX's scatters torch's name of it."""


@translates("ScatterElements", "Scatter")
def scatter_elements(n: OnnxNode) -> Any:
    """Writes at places that are known; the last of several writes to one place stays, sums and so on take all. At
    others the host writes."""
    axis = axis_of(n.attr("axis", 0), n.rank())
    if not isinstance(n.x(1), FoldedValue):
        places, how = _counted_from_start(n, n.x(1), n.shape()[axis]), REDUCTIONS.get(n.attr("reduction", "none"))
        if how is None:
            return n.aten.scatter(n.x(), axis, places, n.x(2))
        return n.aten.scatter_reduce(n.x(), axis, places, n.x(2), how)
    at = n.tensor(1, "indices").to(torch.int64)
    at = torch.where(at < 0, at + n.shape()[axis], at)
    grid = torch.meshgrid(*(torch.arange(s) for s in at.shape), indexing="ij")
    flat = torch.zeros_like(at)
    for d, s in enumerate(n.shape()):
        flat = flat * s + (at if d == axis else grid[d])
    return scatter_rows(n, n.x(), flat.reshape(-1), n.reshape(n.x(2), (at.numel(), 1)), n.attr("reduction", "none"))


def _by_axis(n: OnnxNode, at: Tensor) -> list[Tensor]:
    """Indices (..., count) that an input decides: for each of the first `count` axes its own, none of them negative."""
    count, last = n.calls.shape(at)[-1], len(n.calls.shape(at)) - 1
    return [_counted_from_start(n, n.aten.select(at, last, k), n.shape()[k]) for k in range(count)]


@translates("ScatterND")
def scatter_nd(n: OnnxNode) -> Any:
    if not isinstance(n.x(1), FoldedValue) and n.attr("reduction", "none") in ("none", "add"):
        return n.aten.index_put(n.x(), _by_axis(n, n.x(1)), n.x(2), n.attr("reduction", "none") == "add")
    at = n.tensor(1, "indices").to(torch.int64)
    count, shape = at.shape[-1], n.shape()
    flat = torch.zeros(at.shape[:-1], dtype=torch.int64)
    for k in range(count):
        flat = flat * shape[k] + torch.where(at[..., k] < 0, at[..., k] + shape[k], at[..., k])
    width = math.prod(shape[count:])
    updates = n.reshape(n.x(2), (flat.numel(), width))
    return scatter_rows(n, n.x(), flat.reshape(-1), updates, n.attr("reduction", "none"))


def scatter_rows(n: OnnxNode, x: Tensor, at: torch.Tensor, updates: Tensor, reduction: str) -> Any:
    """x seen as rows, with updates (places, width) written to the rows `at`."""
    shape = n.calls.shape(x)
    width = n.calls.shape(updates)[1]
    rows = n.reshape(x, (math.prod(shape) // width, width))
    count = n.calls.shape(rows)[0]
    if at.numel() and (int(at.min()) < 0 or int(at.max()) >= count):
        raise CannotMap("it writes to places outside the tensor")
    if reduction == "none":
        source = torch.arange(count)
        source[at] = torch.arange(at.numel()) + count
        return n.reshape(n.aten.index_select(n.aten.cat([rows, updates], 0), 0, n.constant(source)), shape)
    combine = {"add": n.aten.add, "mul": n.aten.mul, "max": n.aten.maximum, "min": n.aten.minimum}.get(reduction)
    if combine is None:
        raise CannotMap(f"a scatter that reduces by {reduction!r}")
    turns: list[list[int]] = []  # in each turn every place is written at most once
    seen: dict[int, int] = {}
    for k, place in enumerate(at.tolist()):
        turn = seen.get(place, 0)
        seen[place] = turn + 1
        turns.extend([[]] if turn == len(turns) else [])
        turns[turn].append(k)
    for turn_writes in turns:
        source = torch.arange(count)
        written = at[turn_writes]
        source[written] = torch.arange(len(turn_writes)) + count
        before = n.aten.index_select(rows, 0, n.constant(written))
        change = n.aten.index_select(updates, 0, n.constant(torch.tensor(turn_writes)))
        rows = n.aten.index_select(n.aten.cat([rows, combine(before, change)], 0), 0, n.constant(source))
    return n.reshape(rows, shape)


@translates("TensorScatter")
def tensor_scatter(n: OnnxNode) -> Any:
    """A cache (batch, ..., places, width) with new rows along an axis, of every element from its own place on."""
    axis, cache, update = axis_of(n.attr("axis", -2), n.rank()), n.x(), n.x(1)
    places, rows = n.shape()[axis], n.shape(1)[axis]
    along = [1] * n.rank()
    along[axis] = places
    at = n.constant(torch.arange(places).reshape(along))
    if n.opt(2) is not None:
        first = n.reshape(n.x(2), [n.shape()[0]] + [1] * (n.rank() - 1))
        at = n.aten.sub(at, first)
    if n.attr("mode", "linear") == "circular":
        at = n.aten.remainder(at, places)
    inside = n.aten.logical_and(n.aten.ge(at, 0), n.aten.lt(at, rows))
    source = n.aten.expand(n.aten.clamp(at, 0, rows - 1), list(n.shape()))
    return n.aten.where(inside, n.aten.gather(update, axis, source), cache)


@translates("Compress")
def compress(n: OnnxNode) -> Any:
    axis = n.attr("axis")
    x = n.x() if axis is not None else n.reshape(n.x(), (math.prod(n.shape()),))
    at = n.tensor(1, "condition").nonzero().reshape(-1)
    return n.aten.index_select(x, axis or 0, n.constant(at))


@translates("NonZero")
def non_zero(n: OnnxNode) -> Any:
    return n.constant(n.tensor(0, "operand").nonzero().t().contiguous())


@translates("Trilu")
def trilu(n: OnnxNode) -> Any:
    k = int(n.scalar(1, "k", 0))
    function = torch.triu if n.attr("upper", 1) else torch.tril
    keep = function(torch.ones(n.shape()[-2:]), k) != 0
    return n.aten.where(n.constant(keep), n.x(), n.constant(torch.zeros((), dtype=n.dtype())))


@translates("ReverseSequence")
def reverse_sequence(n: OnnxNode) -> Any:
    time, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    lengths, shape = n.ints(1, "sequence_lens"), n.shape()
    at = torch.arange(shape[time]).repeat(shape[batch], 1)
    for row, length in enumerate(lengths):
        at[row, :length] = torch.arange(length - 1, -1, -1)
    flat = (torch.arange(shape[batch])[:, None] * shape[time] + at).reshape(-1)
    rest = [d for d in range(len(shape)) if d not in (time, batch)]
    order = [batch, time, *rest]
    rows = n.reshape(n.aten.permute(n.x(), order), (shape[batch] * shape[time], *(shape[d] for d in rest)))
    picked = n.reshape(n.aten.index_select(rows, 0, n.constant(flat)), [shape[d] for d in order])
    return n.aten.permute(picked, [order.index(d) for d in range(len(shape))])


@translates("DepthToSpace")
def depth_to_space(n: OnnxNode) -> Any:
    batch, channels, h, w = n.shape()
    b = n.attr("blocksize")
    c = channels // (b * b)
    if n.attr("mode", "DCR") == "CRD":
        return n.aten.pixel_shuffle(n.x(), b)
    split = n.aten.permute(n.reshape(n.x(), (batch, b, b, c, h, w)), [0, 3, 4, 1, 5, 2])
    return n.reshape(split, (batch, c, h * b, w * b))


@translates("SpaceToDepth")
def space_to_depth(n: OnnxNode) -> Any:
    batch, c, h, w = n.shape()
    b = n.attr("blocksize")
    order = [0, 1, 3, 5, 2, 4] if n.attr("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    split = n.aten.permute(n.reshape(n.x(), (batch, c, h // b, b, w // b, b)), order)
    return n.reshape(split, (batch, c * b * b, h // b, w // b))


@translates("Pad")
def pad(n: OnnxNode) -> Any:
    flat, rank, mode, x = n.ints_or_attr(1, "pads") or [], n.rank(), n.attr("mode", "constant"), n.x()
    axes = [axis_of(a, rank) for a in n.ints(3, "axes")] if n.opt(3) is not None else list(range(rank))
    before, after = dict(zip(axes, flat[: len(axes)], strict=True)), dict(zip(axes, flat[len(axes) :], strict=True))
    if mode == "constant":
        value = n.scalar(2, "padding value", n.attr("value", 0))
        sizes = [p for d in reversed(range(rank)) for p in (before.get(d, 0), after.get(d, 0))]
        return n.aten.constant_pad_nd(x, sizes, value)
    for d in axes:
        size = n.calls.shape(x)[d]
        at = np.arange(-before[d], size + after[d])
        if mode == "edge":
            at = at.clip(0, size - 1)
        elif mode == "wrap":
            at %= size
        else:
            at = np.abs((at + size - 1) % max(1, 2 * size - 2) - (size - 1))
        if not np.array_equal(at, np.arange(size)):
            x = n.aten.index_select(x, d, n.constant(torch.from_numpy(at)))
    return x


@translates("CenterCropPad")
def center_crop_pad(n: OnnxNode) -> Any:
    sizes, x = n.ints(1, "shape"), n.x()
    axes = [axis_of(a, n.rank()) for a in n.attr("axes") or range(n.rank())]
    for axis, target in zip(axes, sizes, strict=True):
        size = n.calls.shape(x)[axis]
        if size > target:
            start = (size - target) // 2
            x = n.aten.slice(x, axis, start, start + target)
        elif size < target:
            before = (target - size) // 2
            flat = [0] * (2 * (n.rank() - axis - 1)) + [before, target - size - before]
            x = n.aten.constant_pad_nd(x, flat, 0)
    return x


@translates("TopK")
def top_k(n: OnnxNode) -> Any:
    axis = axis_of(n.attr("axis", -1), n.rank())
    values, places = n.aten.sort(n.x(), stable=True, dim=axis, descending=bool(n.attr("largest", 1)))
    count = int(n.scalar(1, "k"))
    return n.aten.slice(values, axis, 0, count), n.aten.slice(places, axis, 0, count)
