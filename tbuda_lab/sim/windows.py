"""Depthwise convolution where the image lies: its windows are a view of it, once its border stands around it.

A picker says row by row which pixel each tap of each window reads. Here the image's and the kernel's sizes are found in
those numbers again, and taken only if they give every one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tbuda_lab.sim.arrays import Array
from tbuda_lab.sim.kernels.libraries import loaded_torch, tensor

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
    expected[:, : out_rows * columns] = np.where(
        (y >= 0) & (y < height) & (x >= 0) & (x < width), y * width + x, -1
    ).reshape(blocks, -1)
    if not np.array_equal(flat, expected):
        return None
    taps = (down_by - dy.first) // dy.step * dx.count + (across - dx.first) // dx.step
    return Windows((height, width), (out_rows, columns), stride, dy, dx, taps)


class WindowSums:
    """For every window the sum over its taps of pixel times weight, in the taps' order.

    weights: (n or 1, taps, C). rows: how many a result has; those after the last window are zero.
    """

    def __init__(self, windows: Windows, weights: Array, rows: int) -> None:
        taps, columns = (windows.dy.count, windows.dx.count), weights.shape[2]
        kernels: Array = np.zeros((len(weights), taps[0] * taps[1], columns), np.float32)
        kernels[:, windows.taps] = weights
        self._kernels = kernels.reshape(len(weights), *taps, columns)
        self._rows = rows
        self._count = windows.out[0] * windows.out[1]
        self._convolve = _convolution(windows, rows, self._kernels) or (
            lambda pixels, i: _sum_windows(windows, pixels, self._kernels[i])
        )

    def of(self, source: Array) -> Array | None:
        """(n, rows, C), of pixels (n, pixels, C); None if a result is not finite."""
        several, rows, columns = len(self._kernels) > 1, self._rows, source.shape[2]
        results = [
            self._convolve(source[i if len(source) > 1 else 0], i if several else 0)
            for i in range(max(len(source), len(self._kernels)))
        ]
        if len(results) == 1 and len(results[0]) == rows:
            out = results[0][None]
        else:
            out = np.empty((len(results), rows, columns), np.float32)
            for target, result in zip(out, results, strict=True):
                target[: self._count] = result[: self._count]
        out[:, self._count :] = 0
        # a sum of finite numbers is finite, but for an overflow: then the taps are multiplied as they are
        flat = out.reshape(-1)
        return out if np.isfinite(np.dot(flat, flat)) or np.isfinite(flat).all() else None


_SPARE = 4
"""One of so many rows of windows may be computed and not used."""


def _convolution(windows: Windows, rows: int, kernels: Array) -> Callable[[Array, int], Array] | None:
    """From pixels (pixels, C) and the number of a kernel (rows, columns, C) to the windows (windows, C), by torch; None
    where this process has no torch, or its convolution, which pads both ends alike, has no such windows. `rows`
    windows, with anything in those after the last one, where that takes few rows of windows more."""
    torch = loaded_torch()
    (height, width), (out_rows, out_columns), (dy, dx) = windows.image, windows.out, (windows.dy, windows.dx)
    stride, left = windows.stride, -dx.first
    if (
        torch is None
        or not torch.backends.mkldnn.is_available()
        or left < 0
        or (out_columns != (width + left - dx.last - 1) // stride + 1)
    ):
        return None

    def spare(wanted: int) -> tuple[int, int]:
        """(rows of windows above the first one, padding) with which so many follow from the first one on."""
        above = max(0, -(-dy.first // stride))
        while True:
            padding = above * stride - dy.first
            if (height + 2 * padding - (dy.last - dy.first) - 1) // stride + 1 >= above + wanted:
                return above, padding
            above += 1

    above, padding = spare(out_rows)
    count = out_rows * out_columns
    filled, wider = spare(-(-rows // out_columns))
    if (filled - above) * _SPARE <= out_rows:
        above, padding, count = filled, wider, rows
    part = slice(above * out_columns, above * out_columns + count)
    weights = torch.from_numpy(kernels).permute(0, 3, 1, 2)[:, :, None].contiguous()
    channels = kernels.shape[3]

    def run(pixels: Array, number: int) -> Array:
        image = tensor(torch, pixels[: height * width].reshape(1, height, width, channels)).permute(0, 3, 1, 2)
        out = torch.conv2d(image, weights[number], None, stride, (padding, left), (dy.step, dx.step), channels)
        flat: Array = out.permute(0, 2, 3, 1).reshape(-1, channels).numpy()
        return flat[part]

    return run


def _sum_windows(windows: Windows, pixels: Array, kernel: Array) -> Array:
    """What `_convolution` does, of any windows, by NumPy."""
    columns = pixels.shape[1]
    (out_rows, out_columns), (dy, dx) = windows.out, (windows.dy, windows.dx)
    framed = _frame(pixels, windows)
    a, b, c = framed.strides
    taps, steps = (dy.count, dx.count), (a * dy.step, b * dx.step)
    if windows.stride == 1 and columns < _NARROW:  # the windows of a row lie side by side in memory for each tap
        view = np.lib.stride_tricks.as_strided(framed, (out_rows, *taps, out_columns * columns), (a, *steps, c))
        joined: Array = np.einsum("hyxc,yxc->hc", view, np.tile(kernel, (1, 1, out_columns)))
        return joined.reshape(-1, columns)
    view = np.lib.stride_tricks.as_strided(
        framed, (out_rows, out_columns, *taps, columns), (a * windows.stride, b * windows.stride, *steps, c)
    )
    apart: Array = np.einsum("hwyxc,yxc->hwc", view, kernel)
    return apart.reshape(-1, columns)


def _frame(pixels: Array, windows: Windows) -> Array:
    """(rows, columns, C) of the image that the windows see, zero where they reach beyond it."""
    (height, width), (out_rows, out_columns) = windows.image, windows.out
    dy, dx, stride = windows.dy, windows.dx, windows.stride
    image = pixels[: height * width].reshape(height, width, -1)
    top, left = dy.first, dx.first
    bottom, right = (out_rows - 1) * stride + dy.last + 1, (out_columns - 1) * stride + dx.last + 1
    inside = image[max(top, 0) : bottom, max(left, 0) : right]
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
