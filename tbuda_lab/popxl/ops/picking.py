"""Ops that pick or place elements by index, losses by labels, images by coordinates."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ops.utils import check_memory_share, checked_axis, make, need_tensor, one, same_type, whole_numbers
from tbuda_lab.popxl.tensor import Constant, Tensor, constant

REDUCTIONS = ("mean", "sum", "none")


def _integers(name: str, t: Tensor) -> None:
    need_tensor(name, t)
    if not t.dtype.is_int:
        raise popart_exception(f"{name} {t.id!r} holds integers, not {t.dtype}")


def _gather(kind: str, t: Tensor, indices: Tensor, axis: int, zero: bool, share: float | None) -> Tensor:
    need_tensor("t", t)
    _integers("indices", indices)
    check_memory_share(share)
    own = checked_axis(t, axis, "gather")
    shape = (*t.shape[:own], *indices.shape, *t.shape[own + 1 :])
    attrs = {"axis": own, "zero_OOR": bool(zero), "available_memory_proportion": share, "index_shape": indices.shape}
    return one(kind, {"t": t, "indices": indices}, shape, t.dtype, attrs)


def gather(
    t: Tensor, indices: Tensor, axis: int = 0, available_memory_proportion: float | None = None, zero_OOR: bool = False
) -> Tensor:
    """Elements along an axis by index, in the shape of the indices. What is out of range is zero."""
    return _gather("Gather", t, indices, axis, zero_OOR, available_memory_proportion)


def tied_gather(
    t: Tensor, indices: Tensor, axis: int = 0, available_memory_proportion: float | None = None, zero_OOR: bool = False
) -> Tensor:
    """As `gather`, of a tensor that a matmul reads too."""
    return _gather("PopartTiedGather", t, indices, axis, zero_OOR, available_memory_proportion)


def groupedgather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    group_size: int = 1,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """A gather for each of the `group_size` groups along dim 0."""
    need_tensor("t", t)
    _integers("indices", indices)
    check_memory_share(available_memory_proportion)
    own = checked_axis(t, axis, "groupedgather")
    if group_size == 1 and own == 0:
        return gather(t, indices, axis, available_memory_proportion, zero_OOR)
    if not t.rank or t.shape[0] != group_size or not indices.rank or indices.shape[0] != group_size or own == 0:
        raise popart_exception(
            f"groupedgather: dim 0 of t {t.shape} and indices {indices.shape} counts the {group_size} "
            "groups, and the axis is another one"
        )
    shape = (group_size, *t.shape[1:own], *indices.shape[1:], *t.shape[own + 1 :])
    attrs = {
        "axis": own,
        "zero_OOR": bool(zero_OOR),
        "group_size": operator.index(group_size),
        "index_shape": indices.shape,
    }
    return one("Gather", {"t": t, "indices": indices}, shape, t.dtype, attrs)


def scatter(
    t: Tensor, indices: Tensor, values: Tensor, axis: int = 0, available_memory_proportion: float | None = None
) -> Tensor:
    """t with values written at indices along an axis, element by element."""
    need_tensor("t", t)
    _integers("indices", indices)
    need_tensor("values", values)
    check_memory_share(available_memory_proportion)
    own = checked_axis(t, axis, "scatter")
    if indices.shape != values.shape or indices.rank != t.rank:
        raise popart_exception(
            f"scatter: indices {indices.shape} and values {values.shape} have one shape, with as many "
            f"dims as t {t.shape}"
        )
    same_type("scatter", t, values)
    return one("Scatter", {"t": t, "indices": indices, "values": values}, t.shape, t.dtype, {"axis": own})


def _scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: str,
    initial: Tensor | None,
    axis: int,
    axis_size: int | None,
    group: int,
    broadcast: bool,
) -> Tensor:
    need_tensor("data", data)
    _integers("indices", indices)
    own = checked_axis(data, axis, "scatter_reduce")
    if reduction not in ("sum", "max", "min", "mul", "none"):
        raise ValueError(f"reduction is one of sum, max, min, mul, none, not {reduction!r}")
    if initial is None and axis_size is None:
        raise ValueError("scatter_reduce takes axis_size or initial_values")
    size = operator.index(axis_size) if axis_size is not None else initial.shape[own]  # type: ignore[union-attr]
    if size < 1:
        raise ValueError(f"scatter_reduce: axis_size is from 1 on, not {size}")
    shape = (*data.shape[:own], size, *data.shape[own + 1 :])
    inputs = {"data": data, "indices": indices}
    if initial is not None:
        if initial.shape != shape:
            raise popart_exception(f"scatter_reduce: initial_values have shape {shape}, not {initial.shape}")
        inputs["initial_values"] = initial
    attrs = {"axis": own, "axis_size": size, "reduction": reduction, "group_size": group, "broadcast": broadcast}
    return one("ScatterReduce", inputs, shape, data.dtype, attrs)


def scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: str,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Values go to their index along an axis; those that meet are reduced."""
    check_memory_share(available_memory_proportion)
    return _scatter_reduce(data, indices, reduction, initial_values, axis, axis_size, 1, enable_index_broadcast)


def grouped_scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: str,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    group_size: int = 1,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """As `scatter_reduce`, for each of the groups along dim 0."""
    check_memory_share(available_memory_proportion)
    return _scatter_reduce(
        data, indices, reduction, initial_values, axis, axis_size, group_size, enable_index_broadcast
    )


def _dynamic(
    t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int], what: str
) -> tuple[list[int], list[int]]:
    need_tensor("t", t)
    _integers("index", index)
    own = [checked_axis(t, a, what) for a in whole_numbers(axes, f"{what}: axes")]
    parts = whole_numbers(sizes, f"{what}: sizes")
    if len(own) != len(parts) or index.nelms != len(own):
        raise popart_exception(
            f"{what}: an index and a size for each axis, not {index.nelms}, {len(parts)} and {len(own)}"
        )
    if any(not 1 <= n <= t.shape[a] for a, n in zip(own, parts, strict=True)):
        raise popart_exception(f"{what}: sizes {parts} along axes {own} of {t.shape}")
    return own, parts


def dynamic_slice(t: Tensor, index: Tensor, axes: Sequence[int], sizes: Sequence[int], no_overlap: bool) -> Tensor:
    """A part of t that begins at an index which the program works out."""
    own, parts = _dynamic(t, index, axes, sizes, "dynamic_slice")
    shape = list(t.shape)
    for axis, size in zip(own, parts, strict=True):
        shape[axis] = size
    attrs = {"axes": own, "sizes": parts, "no_overlap": bool(no_overlap)}
    return one("DynamicSlice", {"t": t, "index": index}, tuple(shape), t.dtype, attrs)


def _update(
    kind: str,
    t: Tensor,
    index: Tensor,
    new: Tensor,
    axes: Sequence[int],
    sizes: Sequence[int],
    no_overlap: bool,
    **more: object,
) -> Tensor:
    own, parts = _dynamic(t, index, axes, sizes, "dynamic_update")
    need_tensor("t_update", new)
    same_type("dynamic_update", t, new)
    attrs = {"axes": own, "sizes": parts, "no_overlap": bool(no_overlap)}
    return one(kind, {"t": t, "index": index, "t_update": new}, t.shape, t.dtype, attrs, **more)


def dynamic_update(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Sequence[int], sizes: Sequence[int], no_overlap: bool
) -> Tensor:
    """t with a part replaced that begins at an index which the program works out."""
    return _update("DynamicUpdate", t, index, t_update, axes, sizes, no_overlap)


def dynamic_update_(
    t: Tensor, index: Tensor, t_update: Tensor, axes: Sequence[int], sizes: Sequence[int], no_overlap: bool
) -> Tensor:
    """As `dynamic_update`, written over t."""
    return _update("DynamicUpdateInplace", t, index, t_update, axes, sizes, no_overlap, modifies=(0,))


def onehot(t: Tensor, num_classes: Tensor, values: Tensor, axis: int) -> Tensor:
    """values[1] at the index along a new axis, values[0] elsewhere. num_classes is a constant."""
    _integers("t", t)
    need_tensor("num_classes", num_classes)
    need_tensor("values", values)
    if not isinstance(num_classes, Constant):
        raise popart_exception("onehot: num_classes is a constant: it decides the shape of the result")
    if values.shape != (2,):
        raise popart_exception(f"onehot: values has shape (2,), not {values.shape}")
    rank = t.rank + 1
    own = axis + rank if axis < 0 else operator.index(axis)
    if not 0 <= own < rank:
        raise ValueError(f"onehot: the result has {rank} dims, and no axis {axis}")
    size = int(num_classes._data.reshape(-1)[0])
    inputs = {"t": t, "num_classes": num_classes, "values": values}
    return one("OneHot", inputs, (*t.shape[:own], size, *t.shape[own:]), values.dtype, {"axis": own})


def _loss_shape(probs: Tensor, labels: Tensor, reduction: str) -> tuple[int, ...]:
    need_tensor("probs", probs)
    need_tensor("labels", labels)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    if probs.rank < 1 or probs.shape[:-1] != labels.shape:
        raise popart_exception(f"nll_loss: probs {probs.shape} is labels {labels.shape} with the classes behind")
    return labels.shape if reduction == "none" else ()


def nll_loss(
    probs: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: str = "mean", log_prob: bool = False
) -> Tensor:
    """-log of the probability of each label: their mean, sum, or all. Labels equal to `ignore_index` do not count."""
    shape = _loss_shape(probs, labels, reduction)
    attrs = {"ignore_index": ignore_index, "reduction": reduction, "log_prob": bool(log_prob)}
    return one("Nll", {"probs": probs, "labels": labels}, shape, probs.dtype, attrs)


def nll_loss_with_softmax_grad(
    probs: Tensor,
    labels: Tensor,
    loss_grad: float | Tensor = 1,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss of softmax probabilities and its gradient by what the softmax was taken of."""
    shape = _loss_shape(probs, labels, reduction)
    seed = loss_grad if isinstance(loss_grad, Tensor) else constant(loss_grad, probs.dtype)
    attrs = {"ignore_index": ignore_index, "reduction": reduction}
    inputs = {"probs": probs, "labels": labels, "loss_grad": seed}
    outputs = [(shape, probs.dtype), (probs.shape, probs.dtype)]
    loss, grad = make("NlllWithSoftmaxGradDirect", inputs, outputs, attrs).outputs
    return loss, grad


_MODES = ("nearest", "linear", "cubic")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


def interpolate(
    t: Tensor,
    scale_factor: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """Other sizes: floor(size * scale) along each dim."""
    need_tensor("t", t)
    for name, value, known in (
        ("mode", mode, _MODES),
        ("nearest_mode", nearest_mode, _NEAREST),
        ("coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES),
    ):
        if value not in known:
            raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")
    if coordinate_transformation_mode == "tf_crop_and_resize":
        raise NotImplementedError("tf_crop_and_resize takes a region that interpolate has no argument for: slice first")
    scales = [float(s) for s in scale_factor]
    if len(scales) != t.rank:
        raise popart_exception(f"interpolate: a scale for each of the {t.rank} dims, not {len(scales)}")
    shape = tuple(math.floor(n * s) for n, s in zip(t.shape, scales, strict=True))
    if any(n < 1 for n in shape):
        raise popart_exception(f"interpolate: scales {scales} leave nothing of {t.shape}")
    attrs = {
        "scales": scales,
        "mode": mode,
        "nearest_mode": nearest_mode,
        "coordinates": coordinate_transformation_mode,
    }
    return one("Resize", {"t": t}, shape, t.dtype, attrs)


def roi_align(
    t: Tensor, rois: Tensor, batch_index: Tensor, output_size: Sequence[int], spatial_scale: float, sampling_ratio: int
) -> Tensor:
    """Regions (x1, y1, x2, y2) of images, averaged to `output_size`."""
    need_tensor("t", t)
    need_tensor("rois", rois)
    need_tensor("batch_index", batch_index)
    if t.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch_index.shape != rois.shape[:1]:
        raise popart_exception(
            f"roi_align: t (n, c, h, w), rois (k, 4), batch_index (k,), not {t.shape}, {rois.shape}, "
            f"{batch_index.shape}"
        )
    size = tuple(map(operator.index, output_size))
    attrs = {"output_size": size, "scale": float(spatial_scale), "sampling": operator.index(sampling_ratio)}
    inputs = {"t": t, "rois": rois, "batch_index": batch_index}
    return one("RoiAlign", inputs, (rois.shape[0], t.shape[1], *size), t.dtype, attrs)
