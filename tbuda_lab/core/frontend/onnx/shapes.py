"""ONNX ops that move data: views, slices, gathers, padding, resizing; constants; sequences known while reading."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, Folded
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx.elementwise import as_dtype
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates


def axis_of(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise CannotMap(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank if rank else 0


# -- constants -----------------------------------------------------------------------------------------------
@translates("Constant")
def constant(n: OnnxNode) -> Any:
    for name, dtype in (
        ("value", None), ("value_float", torch.float32), ("value_floats", torch.float32), ("value_int", torch.int64),
        ("value_ints", torch.int64),
    ):  # fmt: skip
        value = n.attr(name)
        if value is not None:
            return n.constant(value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype))
    raise CannotMap("a constant of strings or of a sparse tensor is not supported")


@translates("ConstantOfShape")
def constant_of_shape(n: OnnxNode) -> Any:
    value = n.attr("value")
    shape = _sized(n.ints(0, "shape"))
    fill = torch.zeros(1) if value is None else value
    n.calls.make_room(shape, fill.dtype)
    return n.constant(torch.full(shape, fill.reshape(-1)[0].item(), dtype=fill.dtype))


def _sized(shape: list[int]) -> list[int]:
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
    if isinstance(at, Folded):
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
    wanted, given = n.ints(1, "shape"), n.shape()
    if not n.attr("allowzero", 0):
        wanted = [given[k] if s == 0 else s for k, s in enumerate(wanted)]
    return n.aten.reshape(n.x(), wanted)


@translates("Flatten")
def flatten(n: OnnxNode) -> Any:
    given = n.shape()
    axis = n.attr("axis", 1)
    axis = axis + len(given) if axis < 0 else axis
    return n.reshape(n.x(), (math.prod(given[:axis]), math.prod(given[axis:])))


@translates("Squeeze")
def squeeze(n: OnnxNode) -> Any:
    axes, given = n.ints_or_attr(1, "axes"), n.shape()
    gone = [d for d, s in enumerate(given) if s == 1] if axes is None else [axis_of(a, len(given)) for a in axes]
    if any(given[d] != 1 for d in gone):
        raise CannotMap(f"it squeezes axes {axes} of {given}; only a dim of size 1 can go")
    return n.reshape(n.x(), [s for d, s in enumerate(given) if d not in gone])


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
    wanted = _sized(list(np.broadcast_shapes(n.shape(), tuple(n.ints(1, "shape")))))
    return n.aten.expand(n.x(), wanted)


@translates("Tile")
def tile(n: OnnxNode) -> Any:
    return n.aten.repeat(n.x(), n.ints(1, "repeats"))


@translates("Concat")
def concat(n: OnnxNode) -> Any:
    return n.aten.cat(n.xs(), n.attr("axis"))


@translates("Split")
def split(n: OnnxNode) -> Any:
    axis, sizes = axis_of(n.attr("axis", 0), n.rank()), n.ints_or_attr(1, "split")
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
    if isinstance(at, Folded) and at.tensor.dim() == 0:
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
    if isinstance(at, Folded):
        return n.constant(torch.where(at.tensor < 0, at.tensor + size, at.tensor).to(torch.int64))
    back = n.aten.add(at, n.constant(torch.tensor(size)))
    return n.aten.where(n.aten.lt(at, n.constant(torch.tensor(0))), back, at)  # type: ignore[no-any-return]


@translates("GatherND")
def gather_nd(n: OnnxNode) -> Any:
    at, batch = n.tensor(1, "indices").to(torch.int64), n.attr("batch_dims", 0)
    given, count = n.shape(), at.shape[-1]
    lead = given[:batch]
    sizes = given[batch : batch + count]
    rest = given[batch + count :]
    flat = torch.zeros(at.shape[:-1], dtype=torch.int64)
    for k, s in enumerate(sizes):
        flat = flat * s + torch.where(at[..., k] < 0, at[..., k] + s, at[..., k])
    number = math.prod(lead)
    per = flat.reshape(number, -1) + torch.arange(number)[:, None] * math.prod(sizes)
    rows = n.reshape(n.x(), (number * math.prod(sizes), *rest))
    return n.reshape(n.aten.index_select(rows, 0, n.constant(per.reshape(-1))), (*at.shape[:-1], *rest))


@translates("ScatterElements", "Scatter")
def scatter_elements(n: OnnxNode) -> Any:
    """Writes at places that are known; the last of several writes to one place stays, sums and so on take all."""
    axis = axis_of(n.attr("axis", 0), n.rank())
    at = n.tensor(1, "indices").to(torch.int64)
    at = torch.where(at < 0, at + n.shape()[axis], at)
    grid = torch.meshgrid(*(torch.arange(s) for s in at.shape), indexing="ij")
    flat = torch.zeros_like(at)
    for d, s in enumerate(n.shape()):
        flat = flat * s + (at if d == axis else grid[d])
    return scattered(n, n.x(), flat.reshape(-1), n.reshape(n.x(2), (at.numel(), 1)), n.attr("reduction", "none"))


@translates("ScatterND")
def scatter_nd(n: OnnxNode) -> Any:
    at = n.tensor(1, "indices").to(torch.int64)
    count, given = at.shape[-1], n.shape()
    flat = torch.zeros(at.shape[:-1], dtype=torch.int64)
    for k in range(count):
        flat = flat * given[k] + torch.where(at[..., k] < 0, at[..., k] + given[k], at[..., k])
    width = math.prod(given[count:])
    updates = n.reshape(n.x(2), (flat.numel(), width))
    return scattered(n, n.x(), flat.reshape(-1), updates, n.attr("reduction", "none"))


def scattered(n: OnnxNode, x: Tensor, at: torch.Tensor, updates: Tensor, reduction: str) -> Any:
    """x seen as rows, with updates (places, width) written to the rows `at`."""
    given = n.calls.shape(x)
    width = n.calls.shape(updates)[1]
    rows = n.reshape(x, (math.prod(given) // width, width))
    count = n.calls.shape(rows)[0]
    if at.numel() and (int(at.min()) < 0 or int(at.max()) >= count):
        raise CannotMap("it writes to places outside the tensor")
    if reduction == "none":
        source = torch.arange(count)
        source[at] = torch.arange(at.numel()) + count
        return n.reshape(n.aten.index_select(n.aten.cat([rows, updates], 0), 0, n.constant(source)), given)
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
    return n.reshape(rows, given)


@translates("TensorScatter")
def tensor_scatter(n: OnnxNode) -> Any:
    raise CannotMap("a cache that is written at places an input gives; read the model with its cache as an output")


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
    lengths, given = n.ints(1, "sequence_lens"), n.shape()
    at = torch.arange(given[time]).repeat(given[batch], 1)
    for row, length in enumerate(lengths):
        at[row, :length] = torch.arange(length - 1, -1, -1)
    flat = (torch.arange(given[batch])[:, None] * given[time] + at).reshape(-1)
    rest = [d for d in range(len(given)) if d not in (time, batch)]
    order = [batch, time, *rest]
    rows = n.reshape(n.aten.permute(n.x(), order), (given[batch] * given[time], *(given[d] for d in rest)))
    picked = n.reshape(n.aten.index_select(rows, 0, n.constant(flat)), [given[d] for d in order])
    return n.aten.permute(picked, [order.index(d) for d in range(len(given))])


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
    for axis, wanted in zip(axes, sizes, strict=True):
        given = n.calls.shape(x)[axis]
        if given > wanted:
            start = (given - wanted) // 2
            x = n.aten.slice(x, axis, start, start + wanted)
        elif given < wanted:
            before = (wanted - given) // 2
            flat = [0] * (2 * (n.rank() - axis - 1)) + [before, wanted - given - before]
            x = n.aten.constant_pad_nd(x, flat, 0)
    return x


@translates("TopK")
def top_k(n: OnnxNode) -> Any:
    axis = axis_of(n.attr("axis", -1), n.rank())
    values, places = n.aten.sort(n.x(), stable=True, dim=axis, descending=bool(n.attr("largest", 1)))
    count = int(n.scalar(1, "k"))
    return n.aten.slice(values, axis, 0, count), n.aten.slice(places, axis, 0, count)


# -- resizing ------------------------------------------------------------------------------------------------
@translates("Resize", "Upsample")
def resize(n: OnnxNode) -> Any:
    """Along each dim a product with a matrix of weights; the two common forms stay whole images."""
    rank, given = n.rank(), n.shape()
    upsample = n.op_type == "Upsample"
    axes = [axis_of(a, rank) for a in n.attr("axes") or range(rank)]
    scales_at, sizes_at = (1, 9) if upsample or n.opset < 11 else (2, 3)
    scales = None
    if n.opt(scales_at) is not None and n.tensor(scales_at, "scales").numel():
        scales = [float(s) for s in n.tensor(scales_at, "scales").tolist()]
        sizes = [math.floor(given[a] * s) for a, s in zip(axes, scales, strict=True)]
    else:
        sizes = n.ints(sizes_at, "sizes")
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [s / given[a] for a, s in zip(axes, sizes, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            scales = [ratio] * len(axes)
            sizes = [math.floor(given[a] * ratio + 0.5) for a in axes]
        else:
            scales = [s / given[a] for a, s in zip(axes, sizes, strict=True)]
    mode = n.attr("mode", "nearest")
    where = n.attr("coordinate_transformation_mode", "asymmetric" if upsample else "half_pixel")
    x = n.x()
    if n.attr("antialias", 0) and any(s < 1 for s in scales):
        raise CannotMap("resizing with antialias")
    if where == "tf_crop_and_resize":
        raise CannotMap("resizing by tf_crop_and_resize")
    rounding = n.attr("nearest_mode", "floor" if upsample else "round_prefer_floor")
    moved = [(a, s, r) for a, s, r in zip(axes, sizes, scales, strict=True) if s != given[a] or r != 1.0]
    image = rank == 4 and {a for a, _, _ in moved} <= {2, 3}
    exact = all(r * given[a] == s for a, s, r in moved)
    torch_like = where in ("half_pixel", "pytorch_half_pixel", "align_corners")
    if image and exact and torch_like and mode in ("linear", "bilinear"):
        final = [dict((a, s) for a, s, _ in moved).get(d, given[d]) for d in (2, 3)]
        if where == "align_corners" or min(final) > 1:
            return n.aten.upsample_bilinear2d(x, final, where == "align_corners")
    if image and exact and mode == "nearest" and where == "asymmetric" and rounding == "floor":
        return n.aten.upsample_nearest2d(x, [dict((a, s) for a, s, _ in moved).get(d, given[d]) for d in (2, 3)])
    for axis, wanted, ratio in moved:
        n.calls.make_room((wanted, given[axis]), torch.float64)
        weights = _resizing(n, given[axis], wanted, ratio, mode, where, rounding)
        turned = n.aten.transpose(x, axis, rank - 1)
        product = n.aten.matmul(turned, n.constant(torch.from_numpy(weights.T.copy()).to(torch.float32)))
        x = n.aten.transpose(product, axis, rank - 1)
    return x


def _resizing(
    n: OnnxNode, given: int, wanted: int, scale: float, mode: str, where: str, rounding: str
) -> np.ndarray:
    """(wanted, given) weights of the pixels of one dim."""
    out = np.arange(wanted, dtype=np.float64)
    if where == "align_corners":
        source = out * ((given - 1) / (scale * given - 1)) if wanted > 1 else out * 0
    elif where == "asymmetric":
        source = out / scale
    elif where == "pytorch_half_pixel":
        source = (out + 0.5) / scale - 0.5 if wanted > 1 else out * 0
    elif where == "half_pixel_symmetric":
        adjustment = wanted / (scale * given)
        source = given / 2 * (1 - adjustment) + (out + 0.5) / scale - 0.5
    else:
        source = (out + 0.5) / scale - 0.5
    weights = np.zeros((wanted, given))
    if mode == "nearest":
        at = {
            "round_prefer_floor": np.ceil(source - 0.5), "round_prefer_ceil": np.floor(source + 0.5),
            "floor": np.floor(source), "ceil": np.ceil(source),
        }[rounding]  # fmt: skip
        weights[np.arange(wanted), at.astype(int).clip(0, given - 1)] = 1
        return weights
    low = np.floor(source)
    part = source - low
    if mode in ("linear", "bilinear"):
        taps = {0: 1 - part, 1: part}
    elif mode == "cubic":
        a = n.attr("cubic_coeff_a", -0.75)
        taps = {}
        for k in range(-1, 3):
            d = np.abs(part - k)
            near = (a + 2) * d**3 - (a + 3) * d**2 + 1
            far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            taps[k] = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    else:
        raise CannotMap(f"resizing by {mode!r}")
    outside = n.attr("exclude_outside", 0)
    for k, weight in taps.items():
        at = (low + k).astype(int)
        inside = (at >= 0) & (at < given)
        np.add.at(weights, (np.arange(wanted), at.clip(0, given - 1)), np.where(inside | (not outside), weight, 0.0))
    return weights / weights.sum(1, keepdims=True) if outside else weights


# -- sequences -----------------------------------------------------------------------------------------------
def _sequence(n: OnnxNode) -> list[Any]:
    value = n.operands[0]
    if not isinstance(value, list):
        raise CannotMap("operand 0 is no sequence that is known here")
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
    axis, given = axis_of(n.attr("axis", 0), n.rank()), n.shape()
    sizes = [1] * given[axis]
    if n.opt(1) is not None:
        asked = n.tensor(1, "split")
        each = int(asked) if asked.dim() == 0 else 0
        sizes = [min(each, given[axis] - k) for k in range(0, given[axis], each)] if each else asked.tolist()
    parts = n.aten.split_with_sizes(n.x(), sizes, axis)
    keep = n.opt(1) is not None or n.attr("keepdims", 1)
    return ([p if keep else n.aten.squeeze(p, axis) for p in parts],)


@translates("ConcatFromSequence")
def concat_from_sequence(n: OnnxNode) -> Any:
    values = _sequence(n)
    return (n.aten.stack if n.attr("new_axis", 0) else n.aten.cat)(values, n.attr("axis"))


__all__ = ["as_dtype", "axis_of"]
