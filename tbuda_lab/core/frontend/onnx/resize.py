"""ONNX's Resize in all its forms."""

from __future__ import annotations

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
    if n.attr("antialias", 0) and any(s < 1 for s in scales):
        raise CannotMap("resizing with antialias")
    if where == "tf_crop_and_resize":
        raise CannotMap("resizing by tf_crop_and_resize")
    rounding = n.attr("nearest_mode", "floor" if upsample else "round_prefer_floor")
    moved = [(a, s, r) for a, s, r in zip(axes, sizes, scales, strict=True) if s != shape[a] or r != 1.0]
    image = rank == 4 and {a for a, _, _ in moved} <= {2, 3}
    exact = all(r * shape[a] == s for a, s, r in moved)
    torch_like = where in ("half_pixel", "pytorch_half_pixel", "align_corners")
    if image and exact and torch_like and mode in ("linear", "bilinear"):
        final = [dict((a, s) for a, s, _ in moved).get(d, shape[d]) for d in (2, 3)]
        if where == "align_corners" or min(final) > 1:
            return n.aten.upsample_bilinear2d(x, final, where == "align_corners")
    if image and exact and mode == "nearest" and where == "asymmetric" and rounding == "floor":
        return n.aten.upsample_nearest2d(x, [dict((a, s) for a, s, _ in moved).get(d, shape[d]) for d in (2, 3)])
    for axis, target, ratio in moved:
        n.calls.make_room((target, shape[axis]), torch.float64)
        weights = _resizing(n, shape[axis], target, ratio, mode, where, rounding)
        turned = n.aten.transpose(x, axis, rank - 1)
        product = n.aten.matmul(turned, n.constant(torch.from_numpy(weights.T.copy()).to(torch.float32)))
        x = n.aten.transpose(product, axis, rank - 1)
    return x


def _resizing(
    n: OnnxNode, size: int, target: int, scale: float, mode: str, where: str, rounding: str
) -> np.ndarray:
    """(wanted, given) weights of the pixels of one dim."""
    out = np.arange(target, dtype=np.float64)
    if where == "align_corners":
        source = out * ((size - 1) / (scale * size - 1)) if target > 1 else out * 0
    elif where == "asymmetric":
        source = out / scale
    elif where == "pytorch_half_pixel":
        source = (out + 0.5) / scale - 0.5 if target > 1 else out * 0
    elif where == "half_pixel_symmetric":
        adjustment = target / (scale * size)
        source = size / 2 * (1 - adjustment) + (out + 0.5) / scale - 0.5
    else:
        source = (out + 0.5) / scale - 0.5
    weights = np.zeros((target, size))
    if mode == "nearest":
        at = {
            "round_prefer_floor": np.ceil(source - 0.5), "round_prefer_ceil": np.floor(source + 0.5),
            "floor": np.floor(source), "ceil": np.ceil(source),
        }[rounding]  # fmt: skip
        weights[np.arange(target), at.astype(int).clip(0, size - 1)] = 1
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
        inside = (at >= 0) & (at < size)
        np.add.at(weights, (np.arange(target), at.clip(0, size - 1)), np.where(inside | (not outside), weight, 0.0))
    return weights / weights.sum(1, keepdims=True) if outside else weights
