"""Ops that move elements: shapes, slices, joins, casts, copies."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.errors import UndefinedValue, popart_exception
from tbuda_lab.popxl.kinds.moves import slices_of
from tbuda_lab.popxl.ops.utils import (
    checked_axis,
    handle_negative_axis,
    is_whole,
    need_tensor,
    one,
    tensors_of,
    whole_number,
    whole_numbers,
)
from tbuda_lab.popxl.ops.utils import make as _make
from tbuda_lab.popxl.tensor import Tensor
from tbuda_lab.popxl.utils import checked_shape, product


def _viewed(kind: str, view: bool, t: Tensor, shape: tuple[int, ...], attrs: dict[str, Any]) -> Tensor:
    name = f"{kind}Inplace" if view else kind
    return one(name, {"t": t}, shape, t.dtype, attrs, views=(0,) if view else ())


def reshape_handle_negative_axis(t: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape with its -1 worked out. Raises `ValueError` for more than one, and where the number of elements
    changes."""
    sizes = whole_numbers(shape, "reshape: shape")
    if sizes.count(-1) > 1 or any(n < -1 for n in sizes):
        what = (
            "Reshape shape can contain at most one '-1' value"
            if sizes.count(-1) > 1
            else "Invalid shape value in reshape"
        )
        raise ValueError(f"{what}: {tuple(sizes)}")
    if -1 in sizes:
        rest = product(n for n in sizes if n != -1)
        if rest == 0 or t.nelms % rest:
            raise ValueError(f"Invalid shape value in reshape: {t.nelms} elements do not fit {tuple(sizes)}")
        sizes[sizes.index(-1)] = t.nelms // rest
    if product(sizes) != t.nelms:
        raise ValueError(
            f"reshape: a tensor of shape {t.shape} has {t.nelms} elements, {tuple(sizes)} has {product(sizes)}"
        )
    return tuple(sizes)


def reshape(t: Tensor, shape: Sequence[int]) -> Tensor:
    """The elements in the same order under another shape."""
    need_tensor("t", t)
    sizes = reshape_handle_negative_axis(t, shape)
    return _viewed("Reshape", False, t, sizes, {"shape": sizes})


def reshape_(t: Tensor, shape: Sequence[int]) -> Tensor:
    """As `reshape`, as a view of t."""
    need_tensor("t", t)
    sizes = reshape_handle_negative_axis(t, shape)
    return _viewed("Reshape", True, t, sizes, {"shape": sizes})


def flatten(t: Tensor) -> Tensor:
    """All elements along one dim."""
    return reshape(t, (-1,)) if t.nelms else reshape(t, (0,))


def flatten_(t: Tensor) -> Tensor:
    """As `flatten`, as a view of t."""
    return reshape_(t, (-1,)) if t.nelms else reshape_(t, (0,))


def squeeze(t: Tensor, axes: Iterable[int] | None = None) -> Tensor:
    """Without dims of size 1, all of them or those given. Raises `ValueError` for others."""
    need_tensor("t", t)
    if axes is None:
        return reshape(t, [n for n in t.shape if n != 1])
    gone = [checked_axis(t, axis, "squeeze") for axis in whole_numbers(axes, "squeeze: axes")]
    if len(set(gone)) != len(gone):
        raise ValueError(f"squeeze: an axis is given twice: {gone}")
    for axis in gone:
        if t.shape[axis] != 1:
            raise ValueError(f"squeeze: axis {axis} has size {t.shape[axis]}")
    return reshape(t, [n for k, n in enumerate(t.shape) if k not in gone])


def _permutation(t: Tensor, permutation: Sequence[int] | None) -> tuple[int, ...]:
    if permutation is None:
        return tuple(reversed(range(t.rank)))
    given = tuple(whole_numbers(permutation, "transpose: permutation"))
    order = tuple(p + t.rank if p < 0 else p for p in given)
    if any(not 0 <= k < t.rank for k in order):
        raise ValueError(f"Values in permutation must be less than the rank {t.rank}: {given}")
    if sorted(order) != list(range(t.rank)):
        raise ValueError(f"transpose: {given} is no order of the {t.rank} dims")
    return order


def transpose(t: Tensor, permutation: Sequence[int] | None = None) -> Tensor:
    """Dims in another order, by default the opposite one."""
    need_tensor("t", t)
    order = _permutation(t, permutation)
    return _viewed("Transpose", False, t, tuple(t.shape[k] for k in order), {"perm": order})


def transpose_(t: Tensor, permutation: Sequence[int] | None = None) -> Tensor:
    """As `transpose`, as a view of t."""
    need_tensor("t", t)
    order = _permutation(t, permutation)
    return _viewed("Transpose", True, t, tuple(t.shape[k] for k in order), {"perm": order})


Ends = int | Sequence[int | None] | None


def _ends(name: str, value: Any) -> list[int | None]:
    if isinstance(value, list | tuple):
        return [None if v is None else whole_numbers(v, f"slice: {name}")[0] for v in value]
    return list(whole_numbers(value, f"slice: {name}"))


def process_args(
    start: Ends = None, stop: Ends = None, step: Ends = None, axis: Ends = None
) -> tuple[list[int], list[int | None], list[int], list[int]]:
    """Starts, stops, steps and axes of equal length. Raises `TypeError` for what is no whole number, `ValueError` where
    the lists differ in length."""
    given = {"start": start, "stop": stop, "step": step, "axis": axis}
    lists = [None if v is None else _ends(name, v) for name, v in given.items()]
    lengths = {len(v) for v in lists if v is not None}
    if len(lengths) > 1:
        raise ValueError(f"slice: start, stop, step and axis have as many entries each, not {sorted(lengths)}")
    count = lengths.pop() if lengths else 0
    starts, stops, steps, axes = (v if v is not None else [None] * count for v in lists)
    filled_steps = [1 if s is None else operator.index(s) for s in steps]
    filled_axes = [k if a is None else operator.index(a) for k, a in enumerate(axes)]
    return starts, stops, filled_steps, filled_axes  # type: ignore[return-value]


def _slice(t: Tensor, start: Ends, stop: Ends, step: Ends, axis: Ends, view: bool) -> Tensor:
    need_tensor("t", t)
    starts, stops, steps, axes = process_args(start, stop, step, axis)
    axes = [checked_axis(t, a, "slice") for a in axes]
    if any(abs(s) != 1 for s in steps):
        raise ValueError(f"slice: steps are 1 or -1, not {steps}; subsample takes every so-manieth element")
    attrs = {"starts": starts, "stops": stops, "steps": steps, "axes": axes}
    parts = slices_of(attrs, t.shape)
    if all(p.indices(n) == (0, n, 1) for p, n in zip(parts, t.shape, strict=True)):
        return t
    shape = tuple(len(range(*p.indices(n))) for p, n in zip(parts, t.shape, strict=True))
    return _viewed("Slice", view, t, shape, attrs)


def slice(t: Tensor, start: Ends = None, stop: Ends = None, step: Ends = None, axis: Ends = None) -> Tensor:
    """Elements from start to stop along some axes (by default the first ones), forwards or backwards; t itself where
    nothing is cut off."""
    return _slice(t, start, stop, step, axis, False)


def slice_(t: Tensor, start: Ends = None, stop: Ends = None, step: Ends = None, axis: Ends = None) -> Tensor:
    """As `slice`, as a view of t."""
    return _slice(t, start, stop, step, axis, True)


def subsample(t: Tensor, strides: int | Sequence[int]) -> Tensor:
    """Every so-manieth element along each dim. Raises `ValueError` for strides below 1 or of another number."""
    need_tensor("t", t)
    steps = whole_numbers(strides, "subsample: strides") * (t.rank if is_whole(strides) else 1)
    steps += [1] * (t.rank - len(steps))
    if len(steps) != t.rank or any(s < 1 for s in steps):
        raise ValueError(f"subsample: a stride from 1 on for each of the {t.rank} dims, not {strides}")
    shape = tuple(-(-n // s) for n, s in zip(t.shape, steps, strict=True))
    return one("Subsample", {"t": t}, shape, t.dtype, {"strides": steps})


def _concat(ts: Sequence[Tensor], axis: int, view: bool) -> Tensor:
    tensors = tensors_of(ts, "concat")
    if len({t.dtype for t in tensors}) > 1:
        listed = ", ".join(f"{t.id!r} {t.dtype}" for t in tensors)
        raise TypeError(f"All inputs to a concat operation must have the same type: {listed}")
    first = tensors[0]
    own = handle_negative_axis(first, whole_number(axis, "concat: axis"))
    for t in tensors:
        same = t.rank == first.rank and all(
            a == b for k, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if k != own
        )
        if not 0 <= own < max(t.rank, 1) or t.rank == 0 or not same:
            raise popart_exception(
                f"concat along axis {axis}: shapes {', '.join(str(x.shape) for x in tensors)} do not fit"
            )
    shape = (*first.shape[:own], sum(t.shape[own] for t in tensors), *first.shape[own + 1 :])
    views = tuple(range(len(tensors))) if view else ()
    return one(
        "ConcatInplace" if view else "Concat",
        {f"t{k}": t for k, t in enumerate(tensors)},
        shape,
        first.dtype,
        {"axis": own},
        views=views,
    )


def concat(ts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis."""
    return _concat(ts, axis, False)


def concat_(ts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """As `concat`, as a view of all of them."""
    return _concat(ts, axis, True)


def split(t: Tensor, splits: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Parts along an axis: as many equal ones, or of these sizes. Raises `ValueError` where they do not add up."""
    need_tensor("t", t)
    own = checked_axis(t, axis, "split")
    size = t.shape[own]
    sizes = whole_numbers(splits, "split: splits")
    if is_whole(splits):
        count = sizes[0]
        if count < 1 or size % count:
            raise ValueError(f"split: {size} elements cannot be {count} equal parts")
        sizes = [size // count] * count
    if sum(sizes) != size or any(n < 0 for n in sizes):
        raise popart_exception(f"split: parts of {sizes} are not the {size} elements")
    shapes = [((*t.shape[:own], n, *t.shape[own + 1 :]), t.dtype) for n in sizes]
    return list(_make("Split", {"t": t}, shapes, {"splits": sizes, "axis": own}).outputs)


def identity(t: Tensor, output_name: str | None = None) -> Tensor:
    """A copy, under another name."""
    need_tensor("t", t)
    return one("Identity", {"t": t}, t.shape, t.dtype, name=output_name)


rename = identity


def detach(t: Tensor) -> Tensor:
    """A copy through which no gradient flows."""
    need_tensor("t", t)
    return one("Detach", {"t": t}, t.shape, t.dtype)


def detach_(t: Tensor) -> Tensor:
    """As `detach`, as a view of t."""
    need_tensor("t", t)
    return one("DetachInplace", {"t": t}, t.shape, t.dtype, views=(0,))


def cast(t: Tensor, data_type: dtype) -> Tensor:
    """The values in another type. Raises `TypeError` for 8-bit floats, which have casts of their own."""
    need_tensor("t", t)
    form = dtype.as_dtype(data_type)
    if form.is_float8 or t.dtype.is_float8:
        raise TypeError("cast: 8-bit floats are cast with pow2scale_cast_to_fp8 and pow2scale_cast_from_fp8")
    return one("Cast", {"t": t}, t.shape, form, {"from": t.dtype.name, "to": form.name}, name=_cast_name(t, form))


def _cast_name(t: Tensor, form: dtype) -> str:
    return f"{t.name}_{form.name}"


def _scale_tensor(log2_scale: int | Tensor) -> Tensor:
    from tbuda_lab.popxl.tensor import constant

    scale = log2_scale if isinstance(log2_scale, Tensor) else constant(log2_scale, dtypes.int32)
    if scale.shape not in ((), (1,)):
        raise ValueError(f"log2_scale must be a scalar tensor, not of shape {scale.shape}")
    if scale.dtype is not dtypes.int32:
        raise TypeError(f"log2_scale must be of type popxl.int32, not {scale.dtype}")
    return scale


def pow2scale_cast_to_fp8(t: Tensor, log2_scale: int | Tensor = 0, data_type: dtype = dtypes.float8_143) -> Tensor:
    """t * 2^log2_scale as 8-bit floats."""
    need_tensor("t", t)
    if t.dtype not in (dtypes.float16, dtypes.float32) or not data_type.is_float8:
        raise TypeError(f"from {t.dtype} to {data_type}: from float16 or float32 to float8_143 or float8_152")
    scale = _scale_tensor(log2_scale)
    return one(
        "Pow2ScaleThenCast",
        {"t": t, "log2_scale": scale},
        t.shape,
        data_type,
        {"to": data_type.name},
        name=_cast_name(t, data_type),
    )


def pow2scale_cast_from_fp8(t: Tensor, log2_scale: int | Tensor = 0, data_type: dtype = dtypes.float16) -> Tensor:
    """8-bit floats * 2^log2_scale in another type."""
    need_tensor("t", t)
    if not t.dtype.is_float8 or data_type not in (dtypes.float16, dtypes.float32):
        raise TypeError(f"from {t.dtype} to {data_type}: from float8_143 or float8_152 to float16 or float32")
    scale = _scale_tensor(log2_scale)
    return one(
        "CastThenPow2Scale",
        {"t": t, "log2_scale": scale},
        t.shape,
        data_type,
        {"to": data_type.name},
        name=_cast_name(t, data_type),
    )


pow2scale_then_cast, cast_then_pow2scale = pow2scale_cast_to_fp8, pow2scale_cast_from_fp8


def init(
    shape: Sequence[int],
    dtype: dtype,
    name: str | None = None,
    init_type: str = "zero",
    meta_shape: Sequence[int] | None = None,
) -> Tensor:
    """A tensor of zeros; "undef" says that its contents do not matter, and makes zeros, too."""
    if init_type not in ("zero", "undef"):
        raise ValueError(f"init_type is 'zero' or 'undef', not {init_type!r}")
    sizes = checked_shape(shape, "init")
    return one(
        "Init",
        {},
        sizes,
        dtype,
        {"shape": sizes, "dtype": dtype.name},
        name=name or "init",
        meta_shape=tuple(meta_shape or ()),
    )


def ipu_copy(t: Tensor, destination: int, source: int | None = None) -> Tensor:
    """A copy on another IPU. Raises `ValueError` where it is not known on which one t is."""
    need_tensor("t", t)
    for end in (destination, *(() if source is None else (source,))):
        if operator.index(end) < 0:
            raise ValueError(f"IPUs are counted from 0, and none is {end}")
    origin = source
    if origin is None:
        try:
            origin = t.ipu
        except UndefinedValue as error:
            raise ValueError(f"Could not infer the ipu of {t.id!r}. Please specify `source`") from error
    return one("IpuCopy", {"t": t}, t.shape, t.dtype, {"source": origin, "destination": operator.index(destination)})


def io_tile_copy(t: Tensor) -> Tensor:
    """A copy on the other set of tiles: compute or transfers."""
    need_tensor("t", t)
    return one("IoTileCopy", {"t": t}, t.shape, t.dtype)


def current_graph_is_main() -> bool:
    """Whether new ops go to a main graph."""
    return get_current_context().graph._is_main
