"""Rows that a picker chose: copied only when somebody needs them, and then in the order in which they are read.

A picked tensor is mostly read once, by the convolution's product. A matmul reads its rows side by side (hstack), so
they are gathered in that order at once; a depthwise product reads the windows of the source where they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tbuda_lab.sim.arrays import Array
from tbuda_lab.sim.windows import Windows, depthwise_windows, find_windows


@dataclasses.dataclass(frozen=True, eq=False)
class RowPicker:
    """A matrix whose rows hold a single 1 or nothing: the common case, in which a product copies rows.

    index: (z, R, k) the row of the source that stands at each place, 0 where none does; empty: the places, counted
    through, where none does. k rows of the source stand side by side in one row of the result.
    """

    index: Array
    empty: Array
    moved_by: dict[Callable[[Array], Array], RowPicker] = dataclasses.field(default_factory=dict)
    windows_of: dict[int, Windows | None] = dataclasses.field(default_factory=dict)

    def __matmul__(self, x: Array) -> Array:
        out = np.empty((self.index.size, x.shape[1]), x.dtype)
        self.into(out, x)
        return out

    def into(self, out: Array, x: Array) -> None:
        """Writes the product with x to `out`: (rows, columns)."""
        np.take(x, self.index.reshape(-1), axis=0, out=out, mode="clip")  # all in range; "raise" would copy first
        out[self.empty] = 0

    def signed(self) -> Array:
        """`index` with -1 where no row stands."""
        result = self.index.copy()
        result.reshape(-1)[self.empty] = -1
        return result

    def moved(self, move: Callable[[Array], Array]) -> RowPicker:
        """The picker of what `move`, which keeps rows of the source whole, makes of the result."""
        known = self.moved_by.get(move)
        if known is None:
            rows = np.ascontiguousarray(move(self.signed()[None])[0])
            empty = np.flatnonzero(rows < 0)
            known = self.moved_by[move] = RowPicker(np.maximum(rows, 0), empty)
        return known

    def windows(self, blocks: int) -> Windows | None:
        """The windows of an image that the rows are, as the taps of a depthwise product of `blocks`; None if they are
        none."""
        if blocks not in self.windows_of:
            self.windows_of[blocks] = find_windows(self.signed()[..., 0], blocks)
        return self.windows_of[blocks]


class PickedRows:
    """The tensor (n, z, R, C) that `picker` takes from `source` (n, rows, columns). It stands for an array among the
    values of an epoch; `as_array` makes one of it. The source must not change before."""

    def __init__(self, source: Array, picker: RowPicker) -> None:
        self.source, self.picker = source, picker
        z, rows, side_by_side = picker.index.shape
        self.shape = (source.shape[0], z, rows, side_by_side * source.shape[2])
        self.dtype = source.dtype
        self._copy: Array | None = None

    def as_array(self) -> Array:
        """The rows, gathered at the first call."""
        if self._copy is None:
            self._copy = np.empty(self.shape, self.dtype)
            for x, out in zip(self.source, self._copy, strict=True):
                self.picker.into(out.reshape(-1, x.shape[1]), x)
        return self._copy

    def moved(self, move: Callable[[Array], Array]) -> PickedRows:
        """What `move`, which keeps rows of the source whole, makes of it."""
        return PickedRows(self.source, self.picker.moved(move))


def as_array(x: Array | PickedRows) -> Array:
    """The rows, gathered at the first call."""
    return x.as_array() if isinstance(x, PickedRows) else x


def depthwise_rows(x: PickedRows, weights: Array) -> Array | None:
    """As `depthwise_taps` of the taps (n, z, blocks, R, C) that x holds as (n, z * blocks, R, C); None, besides, if
    they are no windows of an image, or slices differ in their weights (n or 1, z, blocks, C)."""
    blocks = weights.shape[2]
    windows = x.picker.windows(blocks)
    if windows is None or (weights.strides[1] and not (weights == weights[:, :1]).all()):
        return None
    out = depthwise_windows(x.source, weights[:, 0], windows, x.shape[1] // blocks * x.shape[2])
    return None if out is None else out.reshape(len(out), -1, *x.shape[2:])
