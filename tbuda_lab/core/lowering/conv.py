"""Lowering of convolution and max pooling in rows layout: (1, 1, H*W, C), one pixel per row.

A picker gathers, for every kernel position, the pixel each output reads (slice t of its result is kernel position t,
row-major over the kernel); hstack puts the positions side by side, and one dense matmul applies all the weights. Where
one such pair would be too slow (see `split`), several share the kernel positions and their results are added, or the
output channels and their results stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tbuda_lab.core import ops
from tbuda_lab.core.graph import TILE, NodeKind, Shape
from tbuda_lab.core.graph.tm import broadcast, hstack
from tbuda_lab.core.lowering.context import LoweringContext, lowers
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwDepthwise, HwMatmul, HwSplice
from tbuda_lab.core.lowering.split import is_depthwise, is_pointwise, shares
from tbuda_lab.core.lowering.values import TileValue, tiles_of
from tbuda_lab.core.lowering.weights import WeightLayout
from tbuda_lab.sim.arrays import held_too_large

_BYTES_OF_ENTRY = 100
"""Memory that an entry of a picker takes at most while it is made, sorted and counted."""


def taps(size: int, out: int, kernel: int, stride: int, before: int, dilation: int) -> np.ndarray:
    """Input position read by output o at kernel position k along one axis: (kernel, out), unclipped."""
    return np.arange(kernel)[:, None] * dilation + np.arange(out)[None, :] * stride - before


def conv_entries(
    in_hw: Sequence[int],
    out_hw: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    """Picker entries (kernel position, output pixel, input pixel); a tap in the padding has none, which makes it zero.

    padding = (left, right, top, bottom).
    """
    (h, w), (oh, ow), (kh, kw) = in_hw, out_hw, kernel
    ys = taps(h, oh, kh, stride[0], padding[2], dilation[0])
    xs = taps(w, ow, kw, stride[1], padding[0], dilation[1])
    rows, columns = (ys >= 0) & (ys < h), (xs >= 0) & (xs < w)
    inside = (rows[:, None, :, None] & columns[None, :, None, :]).reshape(kh * kw, oh * ow)
    # 32 bits where they suffice: a wide kernel on a large image has millions of entries
    kind: np.dtype[Any] = np.dtype(np.int32 if max(kh * kw, oh * ow, h * w) < 2**31 else np.int64)
    source = (ys.astype(kind)[:, None, :, None] * w + xs.astype(kind)[None, :, None, :]).reshape(kh * kw, oh * ow)
    entries = np.empty((np.count_nonzero(inside), 3), kind)
    entries[:, 0] = np.repeat(np.arange(kh * kw), inside.sum(axis=1))
    entries[:, 1] = np.broadcast_to(np.arange(oh * ow, dtype=kind), inside.shape)[inside]
    entries[:, 2] = source[inside]
    return entries


def _clamp(positions: np.ndarray, size: int) -> np.ndarray:
    """Taps in the padding move to the nearest one of their window inside the image: its maximum stays the same."""
    valid = (positions >= 0) & (positions < size)
    lowest = np.where(valid, positions, size).min(axis=0)
    highest = np.where(valid, positions, -1).max(axis=0)
    clipped: np.ndarray = np.clip(positions, lowest, highest)
    return clipped


@lowers("conv2d_rows")
def conv2d_rows(ctx: LoweringContext, op: ops.ConvRows, operands: list[TileValue], shape: Shape) -> TileValue:
    """x (1, 1, H * W, Cin), weights (Cout, Cin / groups, kh, kw) -> (1, 1, OH * OW, Cout): a picker and a matmul for
    each part of the kernel positions (`split.shares`), their results added. A kernel of 1 x 1 with stride 1 needs no
    picker; depthwise ones are `depthwise`."""
    x, bias = ctx.finite_padding(operands[0], cols=True), (operands[2] if len(operands) == 3 else None)
    kernel, stride, padding, dilation, groups = op.kernel, op.stride, op.padding, op.dilation, op.groups
    cout, cin_per_group, kh, kw = ctx.source[ctx.node.inputs[1].source].shape
    cin = cin_per_group * groups
    rows, positions = op.out_hw[0] * op.out_hw[1], kh * kw
    pointwise = is_pointwise(op, (kh, kw))
    depthwise = is_depthwise(op, cin, cout) and not pointwise
    layout = "conv2d_depthwise" if depthwise else "conv2d_dense"
    entries, parts = None, ctx.parts.get(ctx.node.name, 1)
    if not pointwise:
        problem = held_too_large(_BYTES_OF_ENTRY * positions * rows)
        if problem:
            raise ctx.fail(
                f"its kernel of {kh} x {kw} reads {positions * rows:,} pixels, which are listed: {problem}",
                "a smaller kernel or image, or a larger stride",
            )
        entries = conv_entries(op.in_hw, op.out_hw, kernel, stride, padding, dilation)
    if positions == 1 and parts > 1:
        columns = x if entries is None else _columns(ctx, x, entries, range(1), (rows, cin))
        return _side_by_side(ctx, columns, groups, parts, shape)
    if parts > 1 and ctx.source[ctx.node.inputs[0].source].kind is NodeKind.INPUT:
        x = ctx.read_once(x)
    if bias is not None:
        row = ctx.fill(bias.relabel((1, bias.shape[-1])) if len(bias.shape) == 1 else bias, rows=True)
        bias = row.through(broadcast("r", tiles_of(rows)), shape=(*shape[:-2], *shape[-2:]))
    sums: list[TileValue] = []
    for share in shares(positions, parts):
        columns = x if entries is None else _columns(ctx, x, entries, share, (rows, cin))
        weights = ctx.weights(ctx.node.inputs[1].source, WeightLayout(layout, groups, share.start, share.stop))
        inputs = [columns, weights] if bias is None else [columns, weights, bias]
        dense = HwDepthwise(len(share), bias=bias is not None) if depthwise else HwMatmul(bias=bias is not None)
        part = ctx.emit(dense, inputs, shape, zero_r=columns.zero_r and bias is None, zero_c=True)
        sums.append(part)
        bias = None  # the first part has it
    while len(sums) > 1:
        pair = sums[:2]
        zero = all(p.zero_r for p in pair)
        sums = [*sums[2:], ctx.emit(HwBinary("add"), pair, shape, zero_r=zero, zero_c=True)]
    return sums[0]


def _side_by_side(ctx: LoweringContext, columns: TileValue, groups: int, parts: int, shape: Shape) -> TileValue:
    """A dense convolution with one kernel position in parts that each have as many output channels. columns: the pixels
    that it reads; its bias is one stored row, or nothing."""
    weights, *bias = ctx.node.sources[1:]
    size = shape[-1] // parts
    results: list[TileValue] = []
    for part in range(parts):
        first, last = part * size, (part + 1) * size
        inputs = [columns, ctx.weights(weights, WeightLayout("conv2d_columns", groups, first, last))]
        part_shape = (*shape[:-1], size)
        for name in bias:
            row = ctx.fill(ctx.weights(name, WeightLayout("columns", 1, first, last)), rows=True)
            inputs.append(row.through(broadcast("r", tiles_of(shape[-2])), shape=part_shape))
        zero_r = columns.zero_r and not bias
        results.append(ctx.emit(HwMatmul(bias=bool(bias)), inputs, part_shape, zero_r=zero_r, zero_c=True))
    ranges = tuple((0, size // TILE, size // TILE) for _ in results)
    return ctx.emit(HwSplice("c", ranges), results, shape, zero_r=results[-1].zero_r, zero_c=True)


def _columns(ctx: LoweringContext, x: TileValue, entries: np.ndarray, share: range, size: tuple[int, int]) -> TileValue:
    """(1, 1, rows, n * channels) pixels that n of all kernel positions read, side by side. size: (rows, channels)."""
    rows, cin = size
    own = entries[slice(*np.searchsorted(entries[:, 0], (share.start, share.stop)).tolist())].copy()
    own[:, 0] -= share.start
    picked = ctx.pick_rows(x, (len(share), rows, cin), own)
    if len(share) == 1:
        return picked.relabel((1, 1, *picked.shape[-2:]))
    return picked.through(hstack(len(share)), shape=(1, 1, rows, len(share) * tiles_of(cin) * TILE), zero_r=True)


@lowers("max_pool2d_rows")
def max_pool2d_rows(ctx: LoweringContext, op: ops.MaxPoolRows, operands: list[TileValue], shape: Shape) -> TileValue:
    """A window's maximum is the maximum over its rows of the maxima along them: one axis after the other.

    Each tap of an axis is a picker of its own, joined by `maximum`: per tile far cheaper than the `reduce` op over z.
    """
    (x,) = operands
    (h, w), (oh, ow) = op.in_hw, op.out_hw
    channels = x.shape[-1]
    left, _, top, _ = op.padding
    columns = _clamp(taps(w, ow, op.kernel[1], op.stride[1], left, op.dilation[1]), w)
    rows = _clamp(taps(h, oh, op.kernel[0], op.stride[0], top, op.dilation[0]), h)
    along = [(np.arange(h)[:, None] * w + tap[None, :]).reshape(-1) for tap in columns]
    x = _maximum_of(ctx, x, (1, 1, h * ow, channels), along)
    down = [(tap[:, None] * ow + np.arange(ow)[None, :]).reshape(-1) for tap in rows]
    return _maximum_of(ctx, x, shape, down)


def _maximum_of(ctx: LoweringContext, x: TileValue, shape: Shape, sources: list[np.ndarray]) -> TileValue:
    """The element-wise maximum of several row selections of x, as a balanced tree."""
    parts = [
        x if x.shape == shape and np.array_equal(source, np.arange(len(source))) else picked_rows(ctx, x, shape, source)
        for source in unique(sources)
    ]
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [
            ctx.emit(
                HwBinary("maximum"),
                pair,
                shape,
                zero_r=all(p.zero_r for p in pair),
                zero_c=all(p.zero_c for p in pair),
                fill_c=all(p.fill_c for p in pair),
            )
            if len(pair) == 2
            else pair[0]
            for pair in pairs
        ]
    return parts[0]


def unique(sources: list[np.ndarray]) -> list[np.ndarray]:
    """Equal selections count once."""
    unique: list[np.ndarray] = []
    for source in sources:
        if not any(np.array_equal(source, other) for other in unique):
            unique.append(source)
    return unique


def picked_rows(ctx: LoweringContext, x: TileValue, shape: Shape, source: np.ndarray) -> TileValue:
    """Row k of the result is row source[k] of x."""
    rows = np.arange(len(source))
    return ctx.pick_rows(x, shape, np.stack([np.zeros_like(rows), rows, source], axis=1))
