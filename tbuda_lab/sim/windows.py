"""Depthwise convolution where the image lies: its windows are a view of it, once its border stands around it.

A picker says row by row which pixel each tap of each window reads. Here the image's and the kernel's sizes are found in
those numbers again, and taken only if they give every one of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.sim.arrays import Array

_NARROW = 160
"""Channels below which whole rows of windows are summed at once."""


@dataclasses.dataclass(frozen=True)
class Progression:
    """Positions first, first + step, ... along one axis."""

    first: int
    step: int
    count: int

    @property
    def last(self) -> int:
        return self.first + self.step * (self.count - 1)


@dataclasses.dataclass(frozen=True)
class Windows:
    """image: (height, width) in pixels; out: (rows, columns) of windows, each `stride` pixels from the next. dy, dx:
    the kernel's rows and columns, from a window's place on; taps: each tap's number among rows * columns of it."""

    image: tuple[int, int]
    out: tuple[int, int]
    stride: int
    dy: Progression
    dx: Progression
    taps: Array


def find_windows(index: Array, blocks: int) -> Windows | None:
    """index: (z * blocks, R) source rows, -1 for none; the taps of a slice follow one another. None if the source rows
    are not the pixels of such windows, row by row of the image."""
    rows = index.shape[1]
    flat = np.ascontiguousarray(index.reshape(-1, blocks, rows).swapaxes(0, 1)).reshape(blocks, -1)
    seen = flat >= 0
    if not seen.any(axis=1).all():
        return None
    sizes = _sizes(flat[np.argsort(-seen.sum(axis=1), kind="stable")])
    if sizes is None:
        return None
    stride, columns, down = sizes
    width = down // stride
    out_rows = int(np.flatnonzero(seen.any(axis=0))[-1]) // columns + 1
    if out_rows * columns > flat.shape[1]:
        return None
    first = seen.argmax(axis=1)
    offsets = flat[np.arange(blocks), first] - (first // columns * stride * width + first % columns * stride)
    down_by = (offsets + width // 2) // width
    across = offsets - down_by * width
    dy, dx = _steps(down_by), _steps(across)
    if dy is None or dx is None:
        return None
    height = int(flat.max()) // width + 1
    y = np.arange(out_rows)[:, None] * stride + down_by[:, None, None]
    x = np.arange(columns) * stride + across[:, None, None]
    expected = np.full_like(flat, -1)
    expected[:, :out_rows * columns] = np.where((y >= 0) & (y < height) & (x >= 0) & (x < width), y * width + x,
                                                -1).reshape(blocks, -1)
    if not np.array_equal(flat, expected):
        return None
    taps = (down_by - dy.first) // dy.step * dx.count + (across - dx.first) // dx.step
    return Windows((height, width), (out_rows, columns), stride, dy, dx, taps)


def depthwise_windows(source: Array, weights: Array, windows: Windows, rows: int) -> Array | None:
    """(n, rows, C): for every window the sum over its taps of pixel times weight, in the taps' order; zeros in the rows
    after the last window. None if a result is not finite.

    source (n, pixels, C), weights (n or 1, taps, C).
    """
    columns = source.shape[2]
    (out_rows, out_columns), (dy, dx) = windows.out, (windows.dy, windows.dx)
    count = out_rows * out_columns
    kernels: Array = np.zeros((len(weights), dy.count * dx.count, columns), np.float32)
    kernels[:, windows.taps] = weights
    joined = windows.stride == 1 and columns < _NARROW
    if joined:  # the windows of a row lie side by side in memory for each tap
        kernels = np.tile(kernels, (1, 1, out_columns))
    kernels = kernels.reshape(len(weights), dy.count, dx.count, -1)
    out = np.empty((max(len(source), len(weights)), rows, columns), np.float32)
    out[:, count:] = 0
    for i, result in enumerate(out):
        if i == 0 or len(source) > 1:
            framed = _framed(source[i], windows)
            a, b, c = framed.strides
            taps = (dy.count, dx.count), (a * dy.step, b * dx.step)
            shape = (out_rows, *taps[0], out_columns * columns) if joined else (
                out_rows, out_columns, *taps[0], columns)
            strides = (a, *taps[1], c) if joined else (a * windows.stride, b * windows.stride, *taps[1], c)
            view = np.lib.stride_tricks.as_strided(framed, shape, strides)
        np.einsum("hyxc,yxc->hc" if joined else "hwyxc,yxc->hwc", view, kernels[i if len(kernels) > 1 else 0],
                  out=result[:count].reshape((out_rows, -1) if joined else (out_rows, out_columns, columns)))
    # a sum of finite numbers is finite, but for an overflow: then the taps are multiplied as they are
    return out if np.isfinite(np.einsum("nrc->", out)) else None


def _framed(pixels: Array, windows: Windows) -> Array:
    """(rows, columns, C) of the image that the windows see, zero where they reach beyond it."""
    (height, width), (out_rows, out_columns) = windows.image, windows.out
    dy, dx, stride = windows.dy, windows.dx, windows.stride
    image = pixels[:height * width].reshape(height, width, -1)
    top, left = dy.first, dx.first
    bottom, right = (out_rows - 1) * stride + dy.last + 1, (out_columns - 1) * stride + dx.last + 1
    inside = image[max(top, 0):bottom, max(left, 0):right]
    if top >= 0 and left >= 0 and bottom <= height and right <= width:
        return inside
    framed = np.empty((bottom - top, right - left, image.shape[2]), image.dtype)
    y, x = max(-top, 0), max(-left, 0)
    y_end, x_end = y + inside.shape[0], x + inside.shape[1]
    framed[:y], framed[y_end:], framed[y:y_end, :x], framed[y:y_end, x_end:] = 0, 0, 0, 0
    framed[y:y_end, x:x_end] = inside
    return framed


def _sizes(flat: Array) -> tuple[int, int, int] | None:
    """(stride, windows in a row, pixels from a row of windows to the next), of the taps (taps, windows), those of most
    pixels first. A row ends where pixels do not go on as before: at a border, or where a stride leaves some out."""
    stride = 0
    for tap in flat:
        places = np.flatnonzero(tap >= 0)
        pixels = tap[places]
        beside = np.diff(places) == 1
        stride = stride or _most_common(np.diff(pixels)[beside])
        starts = np.flatnonzero(np.concatenate([[True], ~beside | (np.diff(pixels) != stride)]))
        if stride > 0 and starts.size > 1:
            columns, down = _most_common(np.diff(places[starts])), _most_common(np.diff(pixels[starts]))
            return (stride, columns, down) if down >= stride and down % stride == 0 else None
    return None


def _most_common(numbers: Array) -> int:
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts.argmax()]) if values.size else 0


def _steps(positions: Array) -> Progression | None:
    """The different ones of `positions` as equal steps; None if they are not."""
    values = np.unique(positions)
    if values.size == 1:
        return Progression(int(values[0]), 1, 1)
    step = int(values[1] - values[0])
    return Progression(int(values[0]), step, values.size) if (np.diff(values) == step).all() else None
