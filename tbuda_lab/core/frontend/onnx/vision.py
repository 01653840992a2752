"""ONNX ops on images that read or write at places which tensors give."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx.elementwise import as_dtype
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates

MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
EDGES = {"zeros": 0, "border": 1, "reflection": 2}


@translates("GridSample")
def grid_sample(n: OnnxNode) -> Any:
    """As torch's: x (N, C, H, W) or (N, C, D, H, W) at places of grid (N, ..., 2 or 3), from -1 to 1."""
    mode, edges = MODES.get(n.attr("mode", "linear")), EDGES.get(n.attr("padding_mode", "zeros"))
    if mode is None or edges is None:
        raise CannotMap(f"sampling by {n.attr('mode')!r} with edges of {n.attr('padding_mode')!r}")
    sample = {4: n.aten.grid_sampler_2d, 5: n.aten.grid_sampler_3d}.get(n.rank())
    if sample is None:
        raise CannotMap(f"sampling of a tensor of rank {n.rank()}; images have 2 or 3 dims")
    return sample(n.x(), n.x(1), mode, edges, bool(n.attr("align_corners", 0)))


@translates("Col2Im")
def columns_to_image(n: OnnxNode) -> Any:
    """Blocks (N, C * kernel, places) summed where they overlap: (N, C, *image)."""
    image, kernel = n.ints(1, "image_shape"), n.ints(2, "block_shape")
    rank = len(image)
    stride, dilation = list(n.attr("strides") or [1] * rank), list(n.attr("dilations") or [1] * rank)
    pads = list(n.attr("pads") or [0] * (2 * rank))
    padded = [s + pads[d] + pads[d + rank] for d, s in enumerate(image)]
    axes = []
    for d in range(rank):
        places = np.arange(0, padded[d] - dilation[d] * (kernel[d] - 1), stride[d])
        axes.append(np.arange(kernel[d])[:, None] * dilation[d] + places[None])
    flat = np.zeros((1,) * (2 * rank), np.int64)
    for d, axis in enumerate(axes):
        along = [1] * (2 * rank)
        along[d], along[d + rank] = axis.shape
        flat = flat * padded[d] + axis.reshape(along)
    batch, channels = n.shape()[0], n.shape()[1] // math.prod(kernel)
    columns = n.reshape(n.x(), (batch, channels, flat.size))
    at = n.constant(torch.from_numpy(flat.reshape(-1)).expand(batch, channels, flat.size).contiguous())
    zeros = n.constant(torch.zeros(batch, channels, math.prod(padded), dtype=n.dtype()))
    y = n.reshape(n.aten.scatter_add(zeros, 2, at, columns), (batch, channels, *padded))
    for d in range(rank):
        y = n.aten.slice(y, d + 2, pads[d], pads[d] + image[d])
    return y


@translates("MaxUnpool")
def max_unpool(n: OnnxNode) -> Any:
    """Values at the places of the whole flattened tensor that a MaxPool has found, zeros elsewhere."""
    kernel = list(n.attr("kernel_shape"))
    rank = len(kernel)
    stride, pads = list(n.attr("strides") or [1] * rank), list(n.attr("pads") or [0] * (2 * rank))
    sizes = [(s - 1) * stride[d] - pads[d] - pads[d + rank] + kernel[d] for d, s in enumerate(n.shape()[2:])]
    shape = [*n.shape()[:2], *sizes]
    zeros = n.constant(torch.zeros(math.prod(shape), dtype=n.dtype()))
    count = math.prod(n.shape())
    y = n.reshape(n.aten.scatter(zeros, 0, n.reshape(n.x(1), (count,)), n.reshape(n.x(), (count,))), shape)
    if n.opt(2) is not None:
        final = n.ints(2, "output_shape")
        if any(f < s for f, s in zip(final, shape, strict=True)):
            raise CannotMap(f"its output_shape {final} is less than its windows cover, {shape}")
        grown = [p for f, s in zip(reversed(final), reversed(shape), strict=True) for p in (0, f - s)]
        y = n.aten.constant_pad_nd(y, grown, 0.0)
    return y


def _bilinear(n: OnnxNode, x: Tensor, y_at: Tensor, x_at: Tensor, outside: float) -> list[tuple[Tensor, Tensor]]:
    """Of rows and columns (places,) that may lie between pixels of an image of x (channels, H * W): the four
    neighbours' values (channels, places) with their weights (places,); zero beyond `outside` pixels from the image."""
    height, width = (int(s) for s in n.shape()[2:])
    parts = []
    limits = [(y_at, height), (x_at, width)]
    inside: Any = None
    low: list[Tensor] = []
    part: list[Tensor] = []
    for at, size in limits:
        near = n.aten.logical_and(
            n.aten.gt(at, -outside) if outside == 1.0 else n.aten.ge(at, -outside),
            n.aten.lt(at, size - 1 + outside) if outside == 1.0 else n.aten.le(at, size - 1 + outside),
        )
        inside = near if not low else n.aten.logical_and(inside, near)
        floor = n.aten.floor(at)
        low.append(floor)
        part.append(n.aten.sub(at, floor))
    for dy, dx in itertools.product((0, 1), repeat=2):
        weight: Tensor = as_dtype(n, inside, torch.float32)
        flat: Any = None
        there: Any = None
        for axis, (step, size) in enumerate(((dy, height), (dx, width))):
            place = n.aten.add(low[axis], step)
            share = part[axis] if step else n.aten.rsub(part[axis], 1.0)
            weight = n.aten.mul(weight, share)
            valid = n.aten.logical_and(n.aten.ge(place, 0.0), n.aten.le(place, size - 1.0))
            there = valid if there is None else n.aten.logical_and(there, valid)
            whole = as_dtype(n, n.aten.clamp(place, 0.0, size - 1.0), torch.int64)
            flat = whole if flat is None else n.aten.add(n.aten.mul(flat, size), whole)
        weight = n.aten.mul(weight, as_dtype(n, there, torch.float32))
        parts.append((n.aten.index_select(x, 1, flat), weight))
    return parts


@translates("DeformConv")
def deformed_convolution(n: OnnxNode) -> Any:
    """A convolution whose kernel positions are moved by offsets (N, groups * kernel * 2, *out), and weighted by a mask.

    Every position is sampled between four pixels; the samples times the weights are the result."""
    batch, channels = n.shape()[:2]
    weight, bias, mask = n.x(1), n.opt(3), n.opt(4)
    out_channels, per_group = n.shape(1)[:2]
    kernel, rank = list(n.shape(1)[2:]), len(n.shape(1)) - 2
    if rank != 2:
        raise CannotMap("a deformed convolution of other than images")
    stride, dilation = list(n.attr("strides") or [1, 1]), list(n.attr("dilations") or [1, 1])
    pads, groups, parts = list(n.attr("pads") or [0] * 4), n.attr("group", 1), n.attr("offset_group", 1)
    out = list(n.shape(2)[2:])
    places, count = math.prod(out), math.prod(kernel)
    base = [
        torch.arange(k)[:, None] * d - p + torch.arange(o)[None] * s
        for k, d, p, o, s in zip(kernel, dilation, pads[:2], out, stride, strict=True)
    ]
    rows = base[0][:, None, :, None].expand(*kernel, *out).reshape(count * places).float()
    columns = base[1][None, :, None, :].expand(*kernel, *out).reshape(count * places).float()
    offsets = n.reshape(n.x(2), (batch, parts, count, 2, places))
    results = []
    for b in range(batch):
        sampled = []
        for g in range(parts):
            own = n.aten.select(n.aten.select(offsets, 0, b), 0, g)
            y_at = n.aten.add(n.reshape(n.aten.select(own, 1, 0), (count * places,)), n.constant(rows))
            x_at = n.aten.add(n.reshape(n.aten.select(own, 1, 1), (count * places,)), n.constant(columns))
            share = channels // parts
            image = n.aten.slice(n.aten.select(n.x(), 0, b), 0, g * share, (g + 1) * share)
            flat = n.reshape(image, (share, math.prod(n.shape()[2:])))
            total: Any = None
            for values, w in _bilinear(n, flat, y_at, x_at, 1.0):
                term = n.aten.mul(values, w)
                total = term if total is None else n.aten.add(total, term)
            if mask is not None:
                m = n.aten.select(n.aten.select(n.reshape(mask, (batch, parts, count * places)), 0, b), 0, g)
                total = n.aten.mul(total, m)
            sampled.append(n.reshape(total, (share, count, places)))
        whole = n.aten.cat(sampled, 0) if parts > 1 else sampled[0]
        grouped = n.reshape(whole, (groups, per_group * count, places))
        weights = n.reshape(weight, (groups, out_channels // groups, per_group * count))
        results.append(n.reshape(n.aten.bmm(weights, grouped), (1, out_channels, *out)))
    y = n.aten.cat(results, 0) if batch > 1 else results[0]
    return y if bias is None else n.aten.add(y, n.reshape(bias, (1, out_channels, 1, 1)))
