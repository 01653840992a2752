"""Matrix products, convolutions, pools and norms."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.kinds.products import padded_sides, pooled
from tbuda_lab.popxl.ops.moves import _scale_tensor
from tbuda_lab.popxl.ops.utils import check_memory_share, checked_axis, need_tensor, one, same_type, whole_numbers
from tbuda_lab.popxl.ops.utils import make as _make
from tbuda_lab.popxl.tensor import Tensor
from tbuda_lab.popxl.utils import product

PAD_TYPES = ("not_set", "same_upper", "same_lower", "valid")
_PARTIALS = (None, "half", "float")


def _product_shape(lhs: Tensor, rhs: Tensor) -> tuple[int, ...]:
    need_tensor("lhs", lhs)
    need_tensor("rhs", rhs)
    p, q = lhs.shape, rhs.shape
    fault = popart_exception(f"matmul: shapes {p} and {q} cannot be multiplied")
    if not p or not q or p[-1] != (q[0] if len(q) == 1 else q[-2]):
        raise fault
    try:
        lead = np.broadcast_shapes(p[:-2], q[:-2])
    except ValueError as error:
        raise fault from error
    return (*lead, *(p[-2:-1]), *(q[-1:] if len(q) > 1 else ()))


def _partials(given: dtype | str | None) -> None:
    name = given.name.replace("float16", "half").replace("float32", "float") if isinstance(given, dtype) else given
    if name not in _PARTIALS:
        raise ValueError(f"partials_type is float16 or float32, not {given!r}")


def _check_steps(what: str, least: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """Raises `ValueError` for strides, dilations or pads below `least`."""
    if any(v < least for v in values):
        raise ValueError(f"{what} are from {least} on, not {values}")
    return values


def _check_side(name: str, pad_type: str, pads: tuple[int, ...]) -> None:
    """Raises `ValueError` for an unknown type of padding, and for pads next to one that says them itself."""
    if pad_type not in PAD_TYPES:
        raise ValueError(f"{name} is one of {', '.join(PAD_TYPES)}, not {pad_type!r}")
    if pad_type != "not_set" and any(pads):
        raise ValueError(f"{name}={pad_type!r} says what the padding is: leave out {pads}, or say {name}='not_set'")


def matmul(
    lhs: Tensor,
    rhs: Tensor,
    available_memory_proportion: float | None = None,
    output_type: dtype | None = None,
    partials_type: dtype | None = None,
) -> Tensor:
    """The matrix product by NumPy's rules. The memory proportion and the type of partial sums are checked, and mean
    nothing here."""
    shape = _product_shape(lhs, rhs)
    _partials(partials_type)
    check_memory_share(available_memory_proportion)
    form = same_type("matmul", lhs, rhs)
    made = form if output_type is None else dtype.as_dtype(output_type)
    if made is not form and made.name not in ("float16", "float32"):
        raise ValueError(f"output_type is float16 or float32, not {made}: cast the product")
    attrs = {"available_memory_proportion": available_memory_proportion}
    return one("MatMul", {"lhs": lhs, "rhs": rhs}, shape, made, attrs)


def _float8(what: str, **tensors: Tensor) -> None:
    for name, t in tensors.items():
        need_tensor(name, t)
        if not t.dtype.is_float8:
            raise TypeError(f"{what}: {name} is float8_143 or float8_152, not {t.dtype}")


def matmul_pow2scaled(
    lhs: Tensor, rhs: Tensor, log2_scale: int | Tensor, available_memory_proportion: float | None = None
) -> Tensor:
    """The product of two tensors of 8-bit floats times 2^log2_scale, in float16."""
    _float8("matmul_pow2scaled", lhs=lhs, rhs=rhs)
    shape = _product_shape(lhs, rhs)
    inputs = {"lhs": lhs, "rhs": rhs, "log2_scale": _scale_tensor(log2_scale)}
    return one("MatMulPow2Scaled", inputs, shape, dtypes.float16, {})


def multi_conv_options(
    sess_opts: Any, attr_param: Any, available_memory_proportions: Any, partials_types: Any, enable_conv_dithering: Any
) -> dict[str, Any]:
    """The options of a convolution that say how PopART plans it, checked; nothing here depends on them."""
    for share in available_memory_proportions or ():
        check_memory_share(share)
    for partial in partials_types or ():
        _partials(partial)
    return {
        "available_memory_proportions": available_memory_proportions,
        "partials_types": partials_types,
        "enable_conv_dithering": enable_conv_dithering,
    }


def _conv_attrs(
    t: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    pad_type: str,
    plan: dict[str, Any],
) -> dict[str, Any]:
    need_tensor("t", t)
    need_tensor("weight", weight)
    spatial = t.rank - 2
    pads = tuple(whole_numbers(padding, "conv: padding"))
    _check_side("pad_type", pad_type, pads)
    if groups < 1:
        raise ValueError(f"conv: groups are from 1 on, not {groups}")
    if spatial not in (1, 2, 3) or weight.rank != t.rank:
        raise popart_exception(
            f"conv: t is (batch, channels, up to 3 spatial dims) and weight has as many dims, not "
            f"{t.shape} and {weight.shape}"
        )
    lists = {
        "strides": tuple(whole_numbers(stride, "conv: stride")),
        "dilations": tuple(whole_numbers(dilation, "conv: dilation")),
        "pads": pads,
    }
    for name, values in lists.items():
        most = spatial * (2 if name == "pads" else 1)
        default = 0 if name == "pads" else 1
        _check_steps(f"conv: {name}", default, values)
        if len(values) != most:
            if any(v != default for v in values):
                raise popart_exception(f"conv: {name} has {most} entries for {spatial} spatial dims, not {len(values)}")
            lists[name] = (default,) * most
    return {**lists, "groups": operator.index(groups), "pad_type": pad_type, "plan": plan}


def _conv_shape(attrs: dict[str, Any], t: Tensor, weight: Tensor) -> tuple[int, ...]:
    groups = attrs["groups"]
    if weight.shape[1] * groups != t.shape[1] or weight.shape[0] % groups:
        raise popart_exception(
            f"conv: weight {weight.shape} in {groups} groups takes {weight.shape[1] * groups} channels, "
            f"t has {t.shape[1]}"
        )
    spatial, kernel = t.shape[2:], weight.shape[2:]
    sides = padded_sides(attrs, spatial, kernel)
    sizes = tuple(
        pooled(n, k, s, side, d, False)
        for n, k, s, side, d in zip(spatial, kernel, attrs["strides"], sides, attrs["dilations"], strict=True)
    )
    if min(sizes) < 1:
        raise popart_exception(f"conv: a kernel of {kernel} does not fit {spatial} with pads {attrs['pads']}")
    return (t.shape[0], weight.shape[0], *sizes)


def conv(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """A convolution of 1 to 3 spatial dims. t: (batch, in, ...), weight: (out, in / groups, ...); padding: all
    beginnings, then all ends."""
    plan = multi_conv_options(None, None, available_memory_proportions, partials_types, enable_conv_dithering)
    attrs = _conv_attrs(t, weight, stride, padding, dilation, groups, pad_type, plan)
    same_type("conv", t, weight)
    return one("Conv", {"t": t, "weight": weight}, _conv_shape(attrs, t, weight), t.dtype, attrs)


def conv_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: int | Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """A convolution of 8-bit floats times 2^log2_scale, in float16."""
    _float8("conv_pow2scaled", t=t, weight=weight)
    plan = multi_conv_options(None, None, available_memory_proportions, None, enable_conv_dithering)
    attrs = _conv_attrs(t, weight, stride, padding, dilation, groups, pad_type, plan)
    inputs = {"t": t, "weight": weight, "log2_scale": _scale_tensor(log2_scale)}
    return one("ConvPow2Scaled", inputs, _conv_shape(attrs, t, weight), dtypes.float16, attrs)


def _transposed(
    attrs: dict[str, Any], t: Tensor, weight: Tensor, output_padding: Any, output_shape: Any
) -> tuple[int, ...]:
    """The shape of a transposed convolution; its pads and output padding become part of the attributes."""
    spatial, kernel = t.shape[2:], weight.shape[2:]
    n = len(spatial)
    if weight.shape[0] != t.shape[1]:
        raise popart_exception(
            f"conv_transpose: weight {weight.shape} takes {weight.shape[0]} channels, t has {t.shape[1]}"
        )
    extra = list(map(operator.index, output_padding)) or [0] * n
    pads = list(attrs["pads"])
    full = [
        (spatial[k] - 1) * attrs["strides"][k] + attrs["dilations"][k] * (kernel[k] - 1) + 1 + extra[k]
        for k in range(n)
    ]
    wanted = _spatial_sizes(output_shape, (t.shape[0], weight.shape[1] * attrs["groups"]), n)
    if attrs["pad_type"] in ("same_upper", "same_lower") and wanted is None:
        wanted = [spatial[k] * attrs["strides"][k] for k in range(n)]
    if wanted is not None:
        for k in range(n):
            total = full[k] - wanted[k]
            extra[k] += max(0, -total)
            total = max(0, total)
            less = total // 2
            first = less if attrs["pad_type"] != "same_lower" else total - less
            pads[k], pads[k + n] = first, total - first
        full = [
            (spatial[k] - 1) * attrs["strides"][k] + attrs["dilations"][k] * (kernel[k] - 1) + 1 + extra[k]
            for k in range(n)
        ]
    elif attrs["pad_type"] == "valid":
        pads = [0] * (2 * n)
    attrs |= {"pads": tuple(pads), "output_padding": tuple(extra)}
    sizes = tuple(full[k] - pads[k] - pads[k + n] for k in range(n))
    return (t.shape[0], weight.shape[1] * attrs["groups"], *sizes)


def _spatial_sizes(output_shape: Any, lead: tuple[int, int], n: int) -> list[int] | None:
    """The spatial sizes of an output shape that is asked for, the whole one or its `n` spatial dims alone; None for
    none. lead: batch and channels that the result has. Raises `popart_exception` for others."""
    sizes = tuple(map(operator.index, output_shape))
    if len(sizes) not in (0, n, n + 2) or (len(sizes) == n + 2 and sizes[:2] != lead):
        raise popart_exception(
            f"conv_transpose: output_shape {sizes} does not begin with batch and channels {lead}, or has not {n} "
            "spatial dims"
        )
    return list(sizes[-n:]) or None


def conv_transpose(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """A transposed convolution. weight: (in, out / groups, ...)."""
    plan = multi_conv_options(None, None, available_memory_proportions, partials_types, enable_conv_dithering)
    attrs = _conv_attrs(t, weight, stride, padding, dilation, groups, pad_type, plan)
    same_type("conv_transpose", t, weight)
    shape = _transposed(attrs, t, weight, output_padding, output_shape)
    return one("ConvTranspose", {"t": t, "weight": weight}, shape, t.dtype, attrs)


def conv_transpose_pow2scaled(
    t: Tensor,
    weight: Tensor,
    log2_scale: int | Tensor,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """A transposed convolution of 8-bit floats times 2^log2_scale, in float16."""
    _float8("conv_transpose_pow2scaled", t=t, weight=weight)
    plan = multi_conv_options(None, None, available_memory_proportions, None, enable_conv_dithering)
    attrs = _conv_attrs(t, weight, stride, padding, dilation, groups, pad_type, plan)
    shape = _transposed(attrs, t, weight, output_padding, output_shape)
    inputs = {"t": t, "weight": weight, "log2_scale": _scale_tensor(log2_scale)}
    return one("ConvTransposePow2Scaled", inputs, shape, dtypes.float16, attrs)


def receptive_attributes(
    strides: Any, pads: Any, out_pads: Any, dilations: Any, in_dilations: Any, auto_pad: Any, ceil_mode: Any
) -> dict[str, Any]:
    """The attributes of a pool by their names."""
    return {
        "strides": strides,
        "pads": pads,
        "out_pads": out_pads,
        "dilations": dilations,
        "in_dilations": in_dilations,
        "pad_type": auto_pad,
        "ceil_mode": ceil_mode,
    }


def _pool(kind: str, t: Tensor, kernel: Sequence[int], values: dict[str, Any]) -> Tensor:
    need_tensor("t", t)
    n = t.rank - 2
    window = tuple(whole_numbers(kernel, "a pool: kernel_size"))
    if n not in (1, 2, 3) or len(window) != n:
        raise popart_exception(
            f"a pool takes (batch, channels, up to 3 spatial dims) and a kernel of as many, not {t.shape} and {window}"
        )
    pads = () if values["pads"] is None else tuple(whole_numbers(values["pads"], "a pool: padding"))
    _check_side("auto_pad", values["pad_type"], pads)
    _check_steps("a pool: sizes of windows", 1, window)
    for name, most, default in (
        ("strides", n, 1),
        ("pads", 2 * n, 0),
        ("dilations", n, 1),
        ("out_pads", n, 0),
        ("in_dilations", n, 1),
    ):
        given = () if values[name] is None else tuple(whole_numbers(values[name], f"a pool: {name}"))
        if name == "strides" and not given:
            given = (1,) * n
        _check_steps(f"a pool: {name}", default, given)
        if given and len(given) not in ((most,) if name in ("strides", "dilations") else (most, 2 * n)):
            raise popart_exception(f"{name} has {most} entries for {n} spatial dims, not {len(given)}")
        values[name] = given or (default,) * most
        if name in ("out_pads", "in_dilations") and any(v != default for v in values[name]):
            raise NotImplementedError(f"{name} of a pool other than {default} has no form here: leave it out")
    attrs = {**values, "kernel": window}
    sides = padded_sides(attrs, t.shape[2:], window)
    sizes = tuple(
        pooled(size, window[k], attrs["strides"][k], sides[k], attrs["dilations"][k], attrs["ceil_mode"])
        for k, size in enumerate(t.shape[2:])
    )
    if min(sizes) < 1:
        raise popart_exception(f"a window of {window} does not fit {t.shape[2:]} with pads {attrs['pads']}")
    _check_windows(attrs, t.shape[2:], sizes, sides)
    return one(kind, {"t": t}, (*t.shape[:2], *sizes), t.dtype, attrs)


def _check_windows(
    attrs: dict[str, Any], spatial: tuple[int, ...], counts: tuple[int, ...], sides: list[tuple[int, int]]
) -> None:
    """Raises `popart_exception` for a window that has nothing of the image: it has no largest pixel, and no mean."""
    for k, size in enumerate(spatial):
        first = np.arange(counts[k]) * attrs["strides"][k] - sides[k][0]
        seen = first[:, None] + np.arange(attrs["kernel"][k]) * attrs["dilations"][k]
        empty = ~((seen >= 0) & (seen < size)).any(1)
        if empty.any():
            raise popart_exception(
                f"a window of spatial dim {k} begins at {first[empty][0]}, and has nothing of the {size} pixels: give "
                f"smaller pads than {attrs['pads']}" + (", or ceil_mode=False" if attrs["ceil_mode"] else "")
            )


def average_pool(
    t: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    out_pads: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    in_dilations: Sequence[int] | None = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; padding does not count."""
    return _pool(
        "AveragePool",
        t,
        kernel_size,
        receptive_attributes(stride, padding, out_pads, dilation, in_dilations, auto_pad, bool(ceil_mode)),
    )


def max_pool(
    t: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    out_pads: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    in_dilations: Sequence[int] | None = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
    storage_order: str = "row",
) -> Tensor:
    """The largest element of each window."""
    if storage_order not in ("row", "column"):
        raise ValueError(f"storage_order is 'row' or 'column', not {storage_order!r}")
    return _pool(
        "MaxPool",
        t,
        kernel_size,
        receptive_attributes(stride, padding, out_pads, dilation, in_dilations, auto_pad, bool(ceil_mode)),
    )


def softmax(t: Tensor, axis: int) -> Tensor:
    """e^t over its sum along an axis."""
    need_tensor("t", t)
    return one("Softmax", {"t": t}, t.shape, t.dtype, {"axis": checked_axis(t, axis, "softmax")})


def group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-05) -> Tensor:
    """Every group of channels (dim 1) of each image with mean 0 and variance 1, times weight plus bias."""
    need_tensor("t", t)
    if t.rank < 2 or num_groups < 1 or t.shape[1] % num_groups:
        raise popart_exception(f"group_norm: {t.shape} has no {num_groups} equal groups of channels")
    for name, vector in (("weight", weight), ("bias", bias)):
        need_tensor(name, vector)
        if vector.shape != (t.shape[1],):
            raise popart_exception(f"group_norm: {name} has shape ({t.shape[1]},), not {vector.shape}")
    parts = ((t.shape[0] * operator.index(num_groups),), dtypes.float32)
    attrs = {"groups": operator.index(num_groups), "epsilon": float(eps)}
    inputs = {"t": t, "weight": weight, "bias": bias}
    return _make("GroupNormalization", inputs, [(t.shape, t.dtype), parts, parts], attrs).outputs[0]


def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-05) -> Tensor:
    """The last dim with mean 0 and variance 1, times weight plus bias."""
    need_tensor("t", t)
    if t.rank < 1:
        raise popart_exception("layer_norm: a number has no last dim")
    if t.rank == 2:
        return group_norm(t, weight, bias, 1, eps)
    rows = t.reshape((product(t.shape[:-1]), t.shape[-1]))
    return group_norm(rows, weight, bias, 1, eps).reshape(t.shape)


def batch_norm_inference(
    t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-05, momentum: float = 0.9
) -> Tensor:
    """(t - mean) / sqrt(var + epsilon) * scale + bias, by channel (dim 1)."""
    need_tensor("t", t)
    vectors = {"scale": scale, "bias": bias, "mean": mean, "var": var}
    for name, vector in vectors.items():
        need_tensor(name, vector)
        if vector.shape != t.shape[1:2]:
            raise popart_exception(f"batch_norm_inference: {name} has shape {t.shape[1:2]}, not {vector.shape}")
    attrs = {"epsilon": float(epsilon), "momentum": float(momentum)}
    return one("BatchNormalization", {"t": t, **vectors}, t.shape, t.dtype, attrs)
