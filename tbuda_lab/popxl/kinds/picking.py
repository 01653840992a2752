"""Elements by index: gathers, scatters, dynamic slices, one-hot rows, losses by labels.

The grid picks rows with a product: the host makes rows of zeros and a one of the indices (`OneHotRows`), which is the
encoding of an integer input, and the grid multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.ops import binary, unary
from tbuda_lab.core.passes.whole_numbers import BACK, MASKS, sum_of_branches
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.kinds.table import INPLACE, Attrs, Ground, add
from tbuda_lab.popxl.utils import product

SMALLEST = float(np.finfo(np.float32).tiny)


# -- gathers -----------------------------------------------------------------------------------------------------------
def one_hot_rows(indices: np.ndarray, size: int) -> np.ndarray:
    """(number of indices, size): a one at the index; nothing where it is outside."""
    flat = indices.reshape(-1).astype(np.int64)
    rows = np.zeros((flat.size, size), np.float32)
    inside = np.flatnonzero((flat >= 0) & (flat < size))
    rows[inside, flat[inside]] = 1.0
    return rows


def mask_words(condition: np.ndarray, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The masks of a selection of 32-bit integers (see `core.passes.whole_numbers`)."""
    chosen = np.broadcast_to(condition != 0, tuple(shape))
    first, second = (np.where(chosen, *(np.int32(n) for n in pair)) for pair in MASKS)
    return first, second


def _select_words(g: Ground, a: Attrs, first: str, second: str, x: str, y: str) -> str:
    back = g.b.constant(np.full(g.shape(x), BACK, np.int32))
    return g.op(binary.Add(), sum_of_branches(g.op, (x, y), (first, second)), back)


add("SelectWords", numpy=lambda a, first, second, x, y: np.where(first == MASKS[0][0], x, y), grid=_select_words)


def _gather(a: Attrs, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    axis, group = a["axis"], a.get("group_size", 0)
    if group:
        whole = indices.reshape(group, *indices.shape[1:])
        return np.stack([_gather({**a, "group_size": 0, "axis": axis - 1}, x[k], whole[k]) for k in range(group)])
    at = indices.astype(np.int64)
    inside = (at >= 0) & (at < x.shape[axis])
    y = np.take(x, np.where(inside, at, 0), axis)
    if a.get("zero_OOR") or not inside.all():
        mask = inside.reshape((1,) * axis + inside.shape + (1,) * (x.ndim - axis - 1))
        y = np.where(mask, y, np.zeros((), x.dtype)).astype(x.dtype)
    return y


def _gather_grid(g: Ground, a: Attrs, x: str, rows: str) -> str:
    """rows: (number of indices, size of the axis), made by the host."""
    from tbuda_lab.core.ops.reduce import Matmul

    shape, axis = g.shape(x), a["axis"]
    order = [axis, *(k for k in range(len(shape)) if k != axis)]
    table = g.reshape(g.permute(x, order), (shape[axis], product(shape) // shape[axis]))
    rest = [shape[k] for k in order[1:]]
    picked = g.reshape(g.op(Matmul(), rows, table), (*a["index_shape"], *rest))
    many = len(a["index_shape"])
    lead = [many + k for k in range(axis)]
    return g.permute(picked, [*lead, *range(many), *range(many + axis, many + len(rest))])


for _name in ("Gather", "PopartTiedGather"):
    add(_name, numpy=_gather, grid=_gather_grid)


# -- one-hot rows and losses -------------------------------------------------------------------------------------------
MOST_ENCODED = 1 << 28
"""Elements of one-hot rows, at most: their number is a tensor's value, which may be anything."""


def _one_hot(a: Attrs, indices: np.ndarray, classes: np.ndarray, values: np.ndarray) -> np.ndarray:
    size, axis = int(np.asarray(classes).reshape(-1)[0]), a["axis"]
    if not 0 < size * indices.size <= MOST_ENCODED:
        raise ValueError(f"one-hot rows of {size} classes for {indices.size} indices cannot be made")
    rows = one_hot_rows(indices, size).reshape(*indices.shape, size)
    return np.moveaxis(np.where(rows > 0, values[1], values[0]).astype(values.dtype), -1, axis)


add("OneHot", numpy=_one_hot, host_reason="integer encoding")


def _loss_weights(a: Attrs, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """By label whether it counts."""
    ignored = a["ignore_index"]
    return np.ones(labels.shape, np.float32) if ignored is None else (labels != ignored).astype(np.float32)


def loss_rows(a: Attrs, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """What the host makes of labels: rows of a one at the label, zero where it is ignored, already divided by the
    number of labels that count for a mean; and the number itself."""
    flat = labels.reshape(-1)
    counts = _loss_weights(a, flat, flat)
    wrong = flat[(counts > 0) & ((flat < 0) | (flat >= classes))]
    if wrong.size:
        raise ValueError(f"label {wrong[0]} is none of the {classes} classes, and ignore_index is {a['ignore_index']}")
    rows = one_hot_rows(flat, classes) * counts[:, None]
    share = np.float32(1.0)
    if a["reduction"] == "mean":
        share = np.float32(1.0 / max(1.0, float(counts.sum())))
    return rows, np.concatenate([counts, [share]]).astype(np.float32)


def _nll(a: Attrs, probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    wide = probs.reshape(-1, probs.shape[-1]).astype(np.float32)
    rows, counts = loss_rows(a, labels, probs.shape[-1])
    logs = wide if a["log_prob"] else np.log(np.maximum(wide, SMALLEST))
    each = -(np.where(rows > 0, logs, 0) * rows).sum(-1)
    if a["reduction"] == "none":
        return np.asarray(each.reshape(labels.shape).astype(probs.dtype))
    return np.asarray(each.sum() * counts[-1]).astype(probs.dtype)


def _nll_grid(g: Ground, a: Attrs, probs: str, rows: str, share: str) -> str:
    shape = g.shape(probs)
    flat = g.reshape(probs, (product(shape[:-1]), shape[-1]))
    logs = flat if a["log_prob"] else g.op(unary.Log(), g.b.maximum(flat, SMALLEST))
    each = g.sum(g.mul(g.mul(logs, rows), -1.0), [1])
    if a["reduction"] == "none":
        return g.reshape(each, shape[:-1])
    total = g.sum(each, [0])
    return g.reshape(g.mul(total, g.reshape(share, (1, 1))), ())


def _nll_direct(a: Attrs, probs: np.ndarray, labels: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    loss = _nll({**a, "log_prob": False}, probs, labels)
    rows, counts = loss_rows(a, labels, probs.shape[-1])
    flat = probs.reshape(-1, probs.shape[-1])
    grad = (flat * counts[:-1, None] - rows) * counts[-1] * np.float32(seed.reshape(-1)[0])
    return loss, grad.reshape(probs.shape).astype(probs.dtype)


def _nll_direct_grid(g: Ground, a: Attrs, probs: str, rows: str, share: str, counts: str, seed: str) -> tuple[str, ...]:
    """dx = (probs - one hot) * loss_grad, over the number of labels for a mean; (dialects.md 2.2)."""
    shape = g.shape(probs)
    flat = g.reshape(probs, (product(shape[:-1]), shape[-1]))
    loss = _nll_grid(g, {**a, "log_prob": False}, probs, rows, share)
    kept = g.mul(flat, counts) if a["ignore_index"] is not None else flat
    factor = g.mul(g.reshape(seed, (1, 1)), g.reshape(share, (1, 1)))
    return loss, g.reshape(g.mul(g.sub(kept, rows), factor), shape)


add("Nll", numpy=_nll, grid=_nll_grid)
add("NlllWithSoftmaxGradDirect", numpy=_nll_direct, grid=_nll_direct_grid)


# -- dynamic slices ----------------------------------------------------------------------------------------------------
def _region(a: Attrs, shape: tuple[int, ...], index: np.ndarray) -> tuple[slice, ...]:
    """The region of a dynamic slice. Raises `ValueError` for one that reaches beyond the tensor."""
    region = [slice(None)] * len(shape)
    for start, axis, size in zip(np.asarray(index).reshape(-1), a["axes"], a["sizes"], strict=True):
        begin = int(start)
        if not 0 <= begin <= shape[axis] - size:
            raise ValueError(f"{size} elements from {begin} on are not among the {shape[axis]} of axis {axis}")
        region[axis] = slice(begin, begin + size)
    return tuple(region)


def _dynamic_slice(a: Attrs, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    return np.array(x[_region(a, x.shape, index)])


def _dynamic_update(a: Attrs, x: np.ndarray, index: np.ndarray, new: np.ndarray) -> np.ndarray:
    y = np.array(x)
    y[_region(a, x.shape, index)] = new.reshape(y[_region(a, x.shape, index)].shape)
    return y


def _differentiable_slice(a: Attrs, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[_region(a, tuple(x.shape), index.numpy())]


def _differentiable_update(a: Attrs, x: torch.Tensor, index: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    region = _region(a, tuple(x.shape), index.numpy())
    y[region] = new.reshape(y[region].shape)
    return y


# the torch forms are for gradients: an integer among the operands has the NumPy ones calculate
add("DynamicSlice", torch=_differentiable_slice, numpy=_dynamic_slice, host_reason="integer index")
add("DynamicUpdate", torch=_differentiable_update, numpy=_dynamic_update, host_reason="integer index")
INPLACE["DynamicUpdateInplace"] = "DynamicUpdate"


# -- scatters ----------------------------------------------------------------------------------------------------------
def _scatter(a: Attrs, x: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    y = np.array(x)
    np.put_along_axis(y, indices.astype(np.int64), values.astype(x.dtype), a["axis"])
    return y


def _scatter_reduce(a: Attrs, values: np.ndarray, indices: np.ndarray, *initial: np.ndarray) -> np.ndarray:
    """Values go to the index along the axis; those that meet are reduced. Where nothing goes the initial value stays,
    which is 0 unless it is given."""
    if a.get("group_size", 1) > 1:
        parts = [
            _scatter_reduce(
                {**a, "group_size": 1, "axis": a["axis"] - 1}, values[k], indices[k], *(i[k] for i in initial)
            )
            for k in range(a["group_size"])
        ]
        return np.stack(parts)
    axis = a["axis"]
    if a["broadcast"] and indices.ndim == 1 and values.ndim > 1:
        indices = indices.reshape([-1 if k == axis else 1 for k in range(values.ndim)])
    at = np.broadcast_to(indices, values.shape).astype(np.int64)
    shape = (*values.shape[:axis], a["axis_size"], *values.shape[axis + 1 :])
    start = np.zeros(shape, values.dtype) if not initial else np.array(initial[0])
    where = [
        np.broadcast_to(np.arange(n).reshape([-1 if j == k else 1 for j in range(values.ndim)]), values.shape)
        for k, n in enumerate(values.shape)
    ]
    where[axis] = at
    place = tuple(where)
    reduction = a["reduction"]
    if reduction == "none":
        start[place] = values
        return start
    ufunc = {"sum": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    if not initial:  # what nothing goes to stays 0, and 0 takes no part in the rest
        neutral = {"sum": 0, "mul": 1, "max": _least(values.dtype), "min": _most(values.dtype)}[reduction]
        touched = np.zeros(shape, bool)
        touched[place] = True
        start = np.where(touched, neutral, 0).astype(values.dtype)
    ufunc.at(start, place, values)
    return start


def _differentiable_scatter(a: Attrs, x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    at = torch.remainder(indices.long(), x.shape[a["axis"]])
    return torch.scatter(x, a["axis"], at, values.to(x.dtype))


def _differentiable_reduce(
    a: Attrs, values: torch.Tensor, indices: torch.Tensor, *initial: torch.Tensor
) -> torch.Tensor:
    """As `_scatter_reduce`; elements that are equally extreme share the gradient, as torch has it."""
    if a.get("group_size", 1) > 1:
        own = {**a, "group_size": 1, "axis": a["axis"] - 1}
        parts = zip(values, indices, *initial, strict=True)
        return torch.stack([_differentiable_reduce(own, *part) for part in parts])
    axis, size = a["axis"], a["axis_size"]
    if a["broadcast"] and indices.ndim == 1 and values.ndim > 1:
        indices = indices.reshape([-1 if k == axis else 1 for k in range(values.ndim)])
    at = torch.remainder(indices.long(), size).expand(values.shape)
    shape = (*values.shape[:axis], size, *values.shape[axis + 1 :])
    start = initial[0] if initial else values.new_zeros(shape)
    if a["reduction"] == "none":
        return torch.scatter(start, axis, at, values)
    reduction = {"sum": "sum", "mul": "prod", "max": "amax", "min": "amin"}[a["reduction"]]
    return torch.scatter_reduce(start, axis, at, values, reduction, include_self=bool(initial))


def _least(kind: np.dtype[Any]) -> Any:
    return -np.inf if kind.kind == "f" else np.iinfo(kind).min


def _most(kind: np.dtype[Any]) -> Any:
    return np.inf if kind.kind == "f" else np.iinfo(kind).max


add("Scatter", torch=_differentiable_scatter, numpy=_scatter, host_reason="integer index")
add("ScatterReduce", torch=_differentiable_reduce, numpy=_scatter_reduce, host_reason="integer index")


# -- images by coordinates ---------------------------------------------------------------------------------------------
def positions(a: Attrs, size: int, out: int, scale: float) -> np.ndarray:
    """(out,) coordinates in an axis of `size` pixels, by ONNX's modes."""
    x = np.arange(out, dtype=np.float64)
    mode = a["coordinates"]
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and out > 1):
        return (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return np.zeros(out)
    if mode == "align_corners":
        return x * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
    return x / scale


def interpolation(a: Attrs, size: int, out: int, scale: float) -> np.ndarray:
    """(out, size): what each pixel of the axis gives to each of the result."""
    at = positions(a, size, out, scale)
    rows = np.zeros((out, size))
    index = np.arange(out)
    if a["mode"] == "nearest":
        rounded = {
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at),
            "ceil": np.ceil(at),
            "pytorch": np.floor(at),
        }[a["nearest_mode"]]
        rows[index, np.clip(rounded, 0, size - 1).astype(int)] = 1
        return rows.astype(np.float32)
    low = np.floor(at).astype(int)
    part = at - low
    if a["mode"] == "linear":
        weights = [(low, 1 - part), (low + 1, part)]
    else:
        k = -0.75  # ONNX's coefficient

        def near(d: np.ndarray) -> np.ndarray:
            return np.asarray(((k + 2) * d - (k + 3)) * d * d + 1)

        def far(d: np.ndarray) -> np.ndarray:
            return np.asarray(((k * d - 5 * k) * d + 8 * k) * d - 4 * k)

        weights = [(low - 1, far(part + 1)), (low, near(part)), (low + 1, near(1 - part)), (low + 2, far(2 - part))]
    for pixel, weight in weights:
        np.add.at(rows, (index, np.clip(pixel, 0, size - 1)), weight)
    return rows.astype(np.float32)


def _matrices(a: Attrs, shape: tuple[int, ...]) -> list[np.ndarray | None]:
    result: list[np.ndarray | None] = []
    for axis, scale in enumerate(a["scales"]):
        out = int(np.floor(shape[axis] * scale))
        result.append(None if scale == 1 else interpolation(a, shape[axis], out, scale))
    return result


def _resize(a: Attrs, x: torch.Tensor) -> torch.Tensor:
    for axis, matrix in enumerate(_matrices(a, tuple(x.shape))):
        if matrix is not None:
            x = torch.movedim(torch.tensordot(torch.from_numpy(matrix), x, ([1], [axis])), 0, axis)
    return x


def _resize_grid(g: Ground, a: Attrs, x: str) -> str:
    from tbuda_lab.core.ops.reduce import Matmul

    shape = g.shape(x)
    last = len(shape) - 1
    for axis, matrix in enumerate(_matrices(a, shape)):
        if matrix is None:
            continue
        order = [k for k in range(len(shape)) if k != axis] + [axis]
        x = g.op(Matmul(), g.permute(x, order), g.b.constant(np.ascontiguousarray(matrix.T)))
        back = list(range(last))
        back.insert(axis, last)
        x = g.permute(x, back)
    return g.op(unary.Nop(), x)


add("Resize", torch=_resize, grid=_resize_grid)


def _roi_align(a: Attrs, x: torch.Tensor, rois: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Means of bilinear samples in each cell of each region (rois in x1, y1, x2, y2). Regions have no gradient."""
    high, wide = a["output_size"]
    regions = rois.detach().numpy().astype(np.float64) * a["scale"]
    result: list[torch.Tensor] = []
    for roi, image in zip(regions, batch.detach().numpy().astype(int), strict=True):
        width, height = max(roi[2] - roi[0], 1.0), max(roi[3] - roi[1], 1.0)
        counts = [a["sampling"] or int(np.ceil(n / m)) for n, m in ((height, high), (width, wide))]
        ys = roi[1] + (np.arange(high * counts[0]) + 0.5) * height / high / counts[0]
        xs = roi[0] + (np.arange(wide * counts[1]) + 0.5) * width / wide / counts[1]
        rows, cols = (torch.from_numpy(_bilinear(at, size)) for at, size in ((ys, x.shape[2]), (xs, x.shape[3])))
        samples = rows @ x[int(image)].double() @ cols.T
        result.append(samples.reshape(-1, high, counts[0], wide, counts[1]).mean((2, 4)))
    return (torch.stack(result) if result else x.new_zeros((0, x.shape[1], high, wide))).to(x.dtype)


def _bilinear(at: np.ndarray, size: int) -> np.ndarray:
    """(len(at), size) weights; nothing of what lies more than a pixel outside."""
    rows = np.zeros((len(at), size))
    index = np.arange(len(at))
    inside = (at >= -1) & (at <= size)
    place = np.clip(at, 0, size - 1)
    low = np.floor(place).astype(int)
    part = place - low
    np.add.at(rows, (index, low), (1 - part) * inside)
    np.add.at(rows, (index, np.minimum(low + 1, size - 1)), part * inside)
    return rows


add("RoiAlign", torch=_roi_align, host_reason="order statistics")


# -- random numbers ----------------------------------------------------------------------------------------------------
def generator(seed: np.ndarray, stream: int = 0) -> np.random.Generator:
    """A generator of its own for every seed and stream."""
    return np.random.default_rng([int(n) for n in np.asarray(seed).reshape(-1)] + [stream])


def _mask(a: Attrs, x: np.ndarray, seed: np.ndarray) -> np.ndarray:
    shape = a.get("shape") or x.shape
    kept = generator(seed).random(shape) >= a["ratio"]
    return np.where(kept, np.float32(1.0 / (1.0 - a["ratio"])), np.float32(0.0))


def _dropout(a: Attrs, x: np.ndarray, seed: np.ndarray) -> np.ndarray:
    return np.asarray((x * _mask(a, x, seed)).astype(x.dtype))


def _split_seed(a: Attrs, seed: np.ndarray, modifier: np.ndarray) -> np.ndarray:
    return generator(seed, 1 + int(np.asarray(modifier).reshape(-1)[0])).integers(0, 2**32, 2, np.uint32)


add("Dropout", numpy=_dropout, host_reason="random numbers")
add("ShapedDropout", numpy=_dropout, host_reason="random numbers")
add("ShapedDropoutGrad", numpy=_dropout, host_reason="random numbers")
add(
    "RandomNormal",
    numpy=lambda a, seed: (
        generator(seed).normal(a["mean"], a["std"], a["shape"]).astype(dtype.from_name(a["dtype"]).as_numpy())
    ),
    host_reason="random numbers",
)
add(
    "RandomUniform",
    numpy=lambda a, seed: (
        generator(seed).uniform(a["low"], a["high"], a["shape"]).astype(dtype.from_name(a["dtype"]).as_numpy())
    ),
    host_reason="random numbers",
)
add("ModifyRandomSeed", numpy=_split_seed, host_reason="random numbers")
