"""ONNX's Resize in all its forms."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates
from tbuda_lab.core.frontend.onnx.shapes import axis_of


@translates("Resize", "Upsample")
def resize(n: OnnxNode) -> Any:
    """Along each dim a product with a matrix of weights; the two common forms stay whole images."""
    rank, shape = n.rank(), n.shape()
    upsample = n.op_type == "Upsample"
    axes = [axis_of(a, rank) for a in n.attr("axes") or range(rank)]
    scales_at, sizes_at = (1, 9) if upsample or n.opset < 11 else (2, 3)
    scales = None
    if n.opt(scales_at) is not None and n.tensor(scales_at, "scales").numel():
        scales = [float(s) for s in n.tensor(scales_at, "scales").tolist()]
        sizes = [math.floor(shape[a] * s) for a, s in zip(axes, scales, strict=True)]
    else:
        sizes = n.ints(sizes_at, "sizes")
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [s / shape[a] for a, s in zip(axes, sizes, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            scales = [ratio] * len(axes)
            sizes = [math.floor(shape[a] * ratio + 0.5) for a in axes]
        else:
            scales = [s / shape[a] for a, s in zip(axes, sizes, strict=True)]
    mode = n.attr("mode", "nearest")
    where = n.attr("coordinate_transformation_mode", "asymmetric" if upsample else "half_pixel")
    x = n.x()
    smooth = bool(n.attr("antialias", 0)) and any(s < 1 for s in scales)
    crops = _crops(n, axes) if where == "tf_crop_and_resize" else {}
    rounding = n.attr("nearest_mode", "floor" if upsample else "round_prefer_floor")
    moved = [
        (a, s, r)
        for a, s, r in zip(axes, sizes, scales, strict=True)
        if s != shape[a] or r != 1.0 or crops.get(a, (0.0, 1.0)) != (0.0, 1.0)
    ]
    image = rank == 4 and {a for a, _, _ in moved} <= {2, 3}
    exact = all(r * shape[a] == s for a, s, r in moved)
    torch_like = where in ("half_pixel", "pytorch_half_pixel", "align_corners")
    if image and exact and torch_like and not smooth and mode in ("linear", "bilinear"):
        final = [dict((a, s) for a, s, _ in moved).get(d, shape[d]) for d in (2, 3)]
        if where == "align_corners" or min(final) > 1:
            return n.aten.upsample_bilinear2d(x, final, where == "align_corners")
    for axis, target, _ in moved:
        n.calls.make_room((target, shape[axis]) if mode != "nearest" else (target,), torch.float64)
    sources = {a: _sources(shape[a], s, r, where, crops.get(a)) for a, s, r in moved}
    if mode == "nearest":
        at = {a: _nearest(source, rounding).clip(0, shape[a] - 1) for a, source in sources.items()}
        repeats = all(np.array_equal(at[a], np.arange(s) * shape[a] // s) for a, s, _ in moved)
        if image and exact and repeats and not crops:
            return n.aten.upsample_nearest2d(x, [dict((a, s) for a, s, _ in moved).get(d, shape[d]) for d in (2, 3)])
    for axis, target, ratio in moved:
        source = sources[axis]
        outside = np.zeros(target, bool) if axis not in crops else (source < 0) | (source > shape[axis] - 1)
        if mode == "nearest":  # a product would spread an infinity over all
            x = n.aten.index_select(x, axis, n.constant(torch.from_numpy(at[axis])))
        weights = None if mode == "nearest" else _weights(n, source, shape[axis], ratio, mode)
        if weights is None and not outside.any():
            continue
        x = n.aten.transpose(x, axis, rank - 1)
        if weights is not None:
            x = n.aten.matmul(x, n.constant(torch.from_numpy(weights.T.copy()).to(torch.float32)))
        if outside.any():
            value = n.constant(torch.tensor(float(n.attr("extrapolation_value", 0.0)), dtype=n.calls.dtype(x)))
            x = n.aten.where(n.constant(torch.from_numpy(outside)), value, x)
        x = n.aten.transpose(x, axis, rank - 1)
    return x


def _crops(n: OnnxNode, axes: list[int]) -> dict[int, tuple[float, float]]:
    """By axis the part of the image that is kept, from 0 to 1."""
    roi = [float(v) for v in n.tensor(1, "roi").reshape(-1).tolist()] or [0.0] * len(axes) + [1.0] * len(axes)
    return {axis: (roi[k], roi[k + len(axes)]) for k, axis in enumerate(axes)}


def _sources(size: int, target: int, scale: float, where: str, crop: tuple[float, float] | None) -> np.ndarray:
    """Where each pixel of one dim is read. crop: the part of it that is kept."""
    out = np.arange(target, dtype=np.float64)
    if where == "align_corners":
        source = out * ((size - 1) / (scale * size - 1)) if target > 1 else out * 0
    elif where == "asymmetric":
        source = out / scale
    elif where == "pytorch_half_pixel":
        source = (out + 0.5) / scale - 0.5 if target > 1 else out * 0
    elif crop is not None:
        start, end = crop
        middle = 0.5 * (start + end) * (size - 1)
        source = start * (size - 1) + out * ((end - start) * (size - 1) / (target - 1)) if target > 1 else out + middle
    elif where == "half_pixel_symmetric":
        adjustment = target / (scale * size)
        source = size / 2 * (1 - adjustment) + (out + 0.5) / scale - 0.5
    else:
        source = (out + 0.5) / scale - 0.5
    return source


def _nearest(source: np.ndarray, rounding: str) -> np.ndarray:
    whole: np.ndarray = {
        "round_prefer_floor": np.ceil(source - 0.5),
        "round_prefer_ceil": np.floor(source + 0.5),
        "floor": np.floor(source),
        "ceil": np.ceil(source),
    }[rounding]
    return whole.astype(np.int64)


def _weights(n: OnnxNode, source: np.ndarray, size: int, scale: float, mode: str) -> np.ndarray:
    """(wanted, given) weights of the pixels of one dim."""
    target = len(source)
    weights = np.zeros((target, size))
    low = np.floor(source)
    part = source - low
    stretch = min(scale, 1.0) if n.attr("antialias", 0) else 1.0  # a filter that is wider where the image shrinks
    if mode in ("linear", "bilinear"):
        reach, shape = 1.0, _triangle
    elif mode == "cubic":
        reach, shape = 2.0, functools.partial(_cubic, a=n.attr("cubic_coeff_a", -0.75))
    else:
        raise CannotMap(f"resizing by {mode!r}")
    first, last = math.floor(-reach / stretch) + 1, math.ceil(reach / stretch)
    taps = {k: shape(np.abs(part - k) * stretch) for k in range(first, last + 1)}
    if stretch < 1.0:
        total = np.sum(list(taps.values()), axis=0)
        taps = {k: weight / total for k, weight in taps.items()}
    outside = n.attr("exclude_outside", 0)
    for k, weight in taps.items():
        at = (low + k).astype(int)
        inside = (at >= 0) & (at < size)
        np.add.at(weights, (np.arange(target), at.clip(0, size - 1)), np.where(inside | (not outside), weight, 0.0))
    return weights / weights.sum(1, keepdims=True) if outside else weights


def _triangle(d: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - d)


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic at distances d."""
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
