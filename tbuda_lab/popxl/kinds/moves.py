"""Moves: elements keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tbuda_lab.core.ops import binary, unary
from tbuda_lab.core.ops.tm import Concatenate
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.kinds.table import VIEWS, Attrs, Ground, NotOnGrid, add


def slices_of(attrs: Attrs, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The slices, one for each dim, of a Slice with starts, stops (None: to the end), steps of 1 or -1, and axes."""
    result = [slice(None)] * len(shape)
    for start, stop, step, axis in zip(attrs["starts"], attrs["stops"], attrs["steps"], attrs["axes"], strict=True):
        begin, end, unit = slice(start, stop, step).indices(shape[axis])
        result[axis] = slice(begin, None if end < 0 else end, unit)
    return tuple(result)


def _slice_torch(a: Attrs, x: torch.Tensor) -> torch.Tensor:
    for axis, part in enumerate(slices_of(a, tuple(x.shape))):
        order = list(range(*part.indices(x.shape[axis])))
        x = x.index_select(axis, torch.tensor(order, dtype=torch.int64))
    return x


def _slice_grid(g: Ground, a: Attrs, x: str) -> str:
    shape = g.shape(x)
    for axis, part in enumerate(slices_of(a, shape)):
        order = range(*part.indices(shape[axis]))
        if not order:
            raise NotOnGrid("it has no elements")
        x = g.index(x, axis, order[0], order[-1] + 1) if order.step > 0 else g.pick(x, axis, list(order))
    return x


def _subsample_grid(g: Ground, a: Attrs, x: str) -> str:
    for axis, stride in enumerate(a["strides"]):
        x = g.index(x, axis, 0, g.shape(x)[axis], stride) if stride > 1 else x
    return x


def _subsample(a: Attrs, x: Any) -> Any:
    return x[tuple(slice(None, None, s) for s in a["strides"])]


def _concat_grid(g: Ground, a: Attrs, *xs: str) -> str:
    return xs[0] if len(xs) == 1 else g.op(Concatenate(a["axis"]), *xs)


def _bounds(a: Attrs) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *a["splits"]])
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))


def _split(a: Attrs, x: Any) -> Any:
    lead = (slice(None),) * a["axis"]
    return tuple(x[(*lead, slice(begin, end))] for begin, end in _bounds(a))


def _split_grid(g: Ground, a: Attrs, x: str) -> tuple[str, ...]:
    if any(begin == end for begin, end in _bounds(a)):
        raise NotOnGrid("it has no elements")
    return tuple(g.index(x, a["axis"], begin, end) for begin, end in _bounds(a))


def _cast(a: Attrs, x: np.ndarray) -> np.ndarray:
    target = dtype.from_name(a["to"]).as_numpy()
    if x.dtype.kind == "f" and target.kind in "iu":
        return np.asarray(np.trunc(np.nan_to_num(x)).astype(np.int64).astype(target))
    return x.astype(target)


def _cast_grid(g: Ground, a: Attrs, x: str) -> str:
    source, target = a["from"], a["to"]
    if target == "bool":
        return g.op(binary.NotEqual(), x, g.full((1,), 0.0))
    if target == "float32" or source == target or (source == "bool" and target == "float16"):
        return g.op(unary.Nop(), x)
    raise NotOnGrid(f"rounding to {target}")


def _init_grid(g: Ground, a: Attrs) -> str:
    return g.full(a["shape"], 0.0)


add(
    "Reshape",
    torch=lambda a, x: x.reshape(a["shape"]),
    numpy=lambda a, x: x.reshape(a["shape"]),
    grid=lambda g, a, x: g.reshape(x, a["shape"]) if g.shape(x) != tuple(a["shape"]) else g.op(unary.Nop(), x),
)
add(
    "Transpose",
    torch=lambda a, x: x.permute(a["perm"]),
    numpy=lambda a, x: x.transpose(a["perm"]),
    grid=lambda g, a, x: g.permute(x, a["perm"]),
)
add("Slice", torch=_slice_torch, numpy=lambda a, x: x[slices_of(a, x.shape)], grid=_slice_grid)
add("Subsample", torch=_subsample, numpy=_subsample, grid=_subsample_grid)
add(
    "Concat",
    torch=lambda a, *xs: torch.cat(xs, a["axis"]),
    numpy=lambda a, *xs: np.concatenate(xs, a["axis"]),
    grid=_concat_grid,
)
add("Split", torch=_split, numpy=_split, grid=_split_grid)
add(
    "Expand",
    torch=lambda a, x: x.expand(a["shape"]),
    numpy=lambda a, x: np.broadcast_to(x, a["shape"]),
    grid=lambda g, a, x: g.mul(x, g.full(a["shape"], 1.0)),
)
add("Cast", numpy=_cast, grid=_cast_grid)
add("Init", numpy=lambda a: np.zeros(a["shape"], dtype.from_name(a["dtype"]).as_numpy()), grid=_init_grid)
for _name in ("IpuCopy", "IoTileCopy"):
    add(_name, torch=lambda a, x: x.clone(), numpy=lambda a, x: np.array(x), grid=lambda g, a, x: g.op(unary.Nop(), x))

VIEWS |= {
    "ReshapeInplace": "Reshape",
    "TransposeInplace": "Transpose",
    "SliceInplace": "Slice",
    "ConcatInplace": "Concat",
    "IdentityInplace": "Identity",
    "DetachInplace": "Detach",
}


def put_back(kind: str, attrs: Attrs, shapes: list[tuple[int, ...]], run: Any, new: Any, olds: list[Any]) -> list[Any]:
    """What the inputs of a view become when the view becomes `new`.

    shapes: of the inputs; run(kind, attrs, operands, shape): makes an op; olds: the inputs' values. The inverse of each
    kind of view, in terms of ordinary kinds."""
    if kind == "Reshape":
        return [run("Reshape", {"shape": shapes[0]}, [new], shapes[0])]
    if kind == "Transpose":
        back = [int(k) for k in np.argsort(attrs["perm"])]
        return [run("Transpose", {"perm": back}, [new], shapes[0])]
    if kind in ("Identity", "Detach"):
        return [new]
    if kind == "Concat":
        axis, parts, begin = attrs["axis"], [], 0
        for shape in shapes:
            part = {"starts": [begin], "stops": [begin + shape[axis]], "steps": [1], "axes": [axis]}
            parts.append(run("Slice", part, [new], shape))
            begin += shape[axis]
        return parts
    assert kind == "Slice", kind
    return [_overwritten(attrs, shapes[0], run, new, olds[0])]


def _overwritten(attrs: Attrs, shape: tuple[int, ...], run: Any, new: Any, old: Any) -> Any:
    """`old` with a region replaced: along each sliced axis what lies before, the region, what lies behind."""
    parts = slices_of(attrs, shape)

    def part(axis: int, value: Any, size: tuple[int, ...], begin: int, end: int) -> Any:
        form = {"starts": [begin], "stops": [end], "steps": [1], "axes": [axis]}
        return run("Slice", form, [value], (*size[:axis], end - begin, *size[axis + 1 :]))

    def fill(axis: int, base: Any, size: tuple[int, ...], region: Any) -> Any:
        """`base`, of `size`, whose axes below `axis` are cut to the region already, with the region in it."""
        if axis == len(shape):
            return region
        order = range(*parts[axis].indices(shape[axis]))
        low, high = min(order[0], order[-1]), max(order[0], order[-1]) + 1
        inner = base if (low, high) == (0, shape[axis]) else part(axis, base, size, low, high)
        cut = (*size[:axis], high - low, *size[axis + 1 :])
        middle = fill(axis + 1, inner, cut, region)
        pieces = [middle]
        if low > 0:
            pieces.insert(0, part(axis, base, size, 0, low))
        if high < shape[axis]:
            pieces.append(part(axis, base, size, high, shape[axis]))
        return middle if len(pieces) == 1 else run("Concat", {"axis": axis}, pieces, size)

    backwards = [axis for axis, p in enumerate(parts) if (p.step or 1) < 0]
    region_shape = tuple(len(range(*p.indices(n))) for p, n in zip(parts, shape, strict=True))
    if 0 in region_shape:
        return old
    for axis in backwards:
        turn = {"starts": [region_shape[axis] - 1], "stops": [None], "steps": [-1], "axes": [axis]}
        new = run("Slice", turn, [new], region_shape)
    return fill(0, old, shape, new)
