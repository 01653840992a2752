"""Lowering of convolution and max pooling in rows layout: (1, 1, H*W, C), one pixel per row.

A picker gathers, for every kernel position, the pixel each output reads (slice t of its result is kernel position t,
row-major over the kernel); hstack puts the positions side by side, and one dense matmul applies all the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core import ops
from tbuda_lab.core.graph import TILE, Shape
from tbuda_lab.core.graph.tm import broadcast, hstack
from tbuda_lab.core.lowering.context import Context, lowers
from tbuda_lab.core.lowering.hwops import HwDepthwise, HwMatmul, HwReduce
from tbuda_lab.core.lowering.values import Value, tiles_of


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
    *,
    clamp: bool,
) -> np.ndarray:
    """Picker entries (kernel position, output pixel, input pixel); padding = (left, right, top, bottom).

    Without `clamp` a tap in the padding has no entry (zero). With it the tap moves to the nearest one of its window
    that lies inside the image, which leaves a maximum over the window unchanged.
    """
    (h, w), (oh, ow), (kh, kw) = in_hw, out_hw, kernel
    ys = taps(h, oh, kh, stride[0], padding[2], dilation[0])
    xs = taps(w, ow, kw, stride[1], padding[0], dilation[1])
    if clamp:
        ys, xs = _clamped(ys, h), _clamped(xs, w)
    y, x = np.broadcast_arrays(ys[:, None, :, None], xs[None, :, None, :])  # (kh, kw, oh, ow)
    inside = ((y >= 0) & (y < h) & (x >= 0) & (x < w)).reshape(kh * kw, oh * ow)
    source = (y * w + x).reshape(kh * kw, oh * ow)
    position, pixel = np.nonzero(inside)
    return np.stack([position, pixel, source[position, pixel]], axis=1)


def _clamped(positions: np.ndarray, size: int) -> np.ndarray:
    valid = (positions >= 0) & (positions < size)
    lowest = np.where(valid, positions, size).min(axis=0)
    highest = np.where(valid, positions, -1).max(axis=0)
    clipped: np.ndarray = np.clip(positions, lowest, highest)
    return clipped


@lowers("conv2d_rows")
def conv2d_rows(ctx: Context, op: ops.ConvRows, operands: list[Value], shape: Shape) -> Value:
    x, bias = operands[0], (operands[2] if len(operands) == 3 else None)
    kernel, stride, padding, dilation, groups = op.kernel, op.stride, op.padding, op.dilation, op.groups
    cout, cin_per_group, kh, kw = ctx.source[ctx.node.inputs[1].source].shape
    cin = cin_per_group * groups
    out_hw = op.out_hw
    pointwise = (kh, kw) == (1, 1) and tuple(stride) == (1, 1) and not any(padding)
    positions = kh * kw
    if pointwise:
        columns = x
    else:
        entries = conv_entries(op.in_hw, out_hw, kernel, stride, padding, dilation, clamp=False)
        picked = ctx.pick_rows(x, (positions, out_hw[0] * out_hw[1], cin), entries)
        columns = (
            picked.through(
                hstack(positions), shape=(1, 1, out_hw[0] * out_hw[1], positions * tiles_of(cin) * TILE), zero_r=True
            )
            if positions > 1
            else picked.relabel((1, 1, *picked.shape[-2:]))
        )
    inputs = [columns]
    depthwise = groups > 1 and groups == cin == cout and not pointwise
    inputs.append(ctx.weights(ctx.node.inputs[1].source, ("conv2d_depthwise" if depthwise else "conv2d_dense", groups)))
    if bias is not None:
        row = ctx.fill(bias.relabel((1, bias.shape[-1])) if len(bias.shape) == 1 else bias, rows=True)
        inputs.append(row.through(broadcast("r", tiles_of(out_hw[0] * out_hw[1])), shape=(*shape[:-2], *shape[-2:])))
    zero_r = columns.zero_r and bias is None
    if depthwise:
        return ctx.emit(HwDepthwise(positions, bias=bias is not None), inputs, shape, zero_r=zero_r, zero_c=True)
    return ctx.emit(HwMatmul(bias=bias is not None), inputs, shape, zero_r=zero_r, zero_c=True)


@lowers("max_pool2d_rows")
def max_pool2d_rows(ctx: Context, op: ops.MaxPoolRows, operands: list[Value], shape: Shape) -> Value:
    (x,) = operands
    out_hw = op.out_hw
    positions = op.kernel[0] * op.kernel[1]
    entries = conv_entries(op.in_hw, out_hw, op.kernel, op.stride, op.padding, op.dilation, clamp=True)
    picked = ctx.pick_rows(x, (positions, out_hw[0] * out_hw[1], x.shape[-1]), entries)
    return ctx.emit(HwReduce("z", z=positions), [picked], shape, zero_r=True, zero_c=picked.zero_c)
