"""How weights are arranged for the op that reads them. The host applies it when it fills the parameter's queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.graph import TILE, Shape
from tbuda_lab.core.lowering.values import collapse, tiles_of
from tbuda_lab.core.ops.evaluate import to_tensor

_SLICES = ("rows", "columns")
_CONV_COLUMNS = "conv2d_columns"
LAYOUTS = ("conv2d_dense", "conv2d_depthwise", _CONV_COLUMNS, *_SLICES)


class WeightLayout(NamedTuple):
    """An arrangement of a convolution's weights, for kernel positions [first, last) or ("conv2d_columns") for output
    channels [first, last) alone; or the rows or columns [first, last) of a matmul's."""

    name: str
    groups: int
    first: int
    last: int

    def suffix(self, kernel: Sequence[int]) -> str:
        """What tells this arrangement of a parameter from others of it."""
        whole = self.name not in (*_SLICES, _CONV_COLUMNS) and (self.first, self.last) == (0, math.prod(kernel))
        return self.name if whole else f"{self.name}.{self.first}_{self.last}"


def arrange(layout: WeightLayout, weight: np.ndarray) -> np.ndarray:
    """A parameter (as the nD graph has it) in the arrangement `layout`; float32, two-dimensional."""
    if layout.name in _SLICES:
        table = weight.reshape(collapse(weight.shape)[1:])
        return table[layout.first : layout.last] if layout.name == "rows" else table[:, layout.first : layout.last]
    if layout.name == _CONV_COLUMNS:
        return dense_weights(weight, layout.groups)[:, layout.first : layout.last]
    if layout.name == "conv2d_dense":
        table = dense_weights(weight, layout.groups)
    elif layout.name == "conv2d_depthwise":
        table = depthwise_weights(weight)
    else:
        raise ValueError(f"unknown weight layout {layout.name!r}; known: {', '.join(LAYOUTS)}")
    depth = len(table) // math.prod(weight.shape[2:])
    return table[layout.first * depth : layout.last * depth]


def arranged_shape(layout: WeightLayout, shape: Shape) -> Shape:
    if layout.name in _SLICES:
        _, rows, cols = collapse(shape)
        size = layout.last - layout.first
        return (size, cols) if layout.name == "rows" else (rows, size)
    cout, per_group, kh, kw = shape
    if layout.name == _CONV_COLUMNS:
        return kh * kw * _depth(per_group * layout.groups, kh * kw), layout.last - layout.first
    depth = TILE if layout.name == "conv2d_depthwise" else _depth(per_group * layout.groups, kh * kw)
    return (layout.last - layout.first) * depth, cout


def _depth(cin: int, positions: int) -> int:
    """Rows of weights per kernel position: whole tiles where positions stack, or where one row would be replicated."""
    return tiles_of(cin) * TILE if positions > 1 or cin == 1 else cin


def dense_weights(weight: np.ndarray, groups: int) -> np.ndarray:
    """OIHW weights -> (kH*kW * padded Cin, Cout): kernel position major, channel minor, groups on the diagonal."""
    cout, per_group, kh, kw = weight.shape
    cin = per_group * groups
    padded = _depth(cin, kh * kw)
    table = (np.empty if padded == cin and groups == 1 else np.zeros)((kh * kw, padded, cout), np.float32)
    if groups == 1:  # torch copies a transposed array about twice as fast
        taps = to_tensor(weight).reshape(cout, cin, kh * kw)
        to_tensor(table)[:, :cin].copy_(taps.permute(2, 1, 0))
        return table.reshape(kh * kw * padded, cout)
    taps_first = weight.reshape(groups, cout // groups, per_group, kh * kw).transpose(3, 0, 2, 1)
    view = table[:, :cin].reshape(kh * kw, groups, per_group, groups, cout // groups)
    diagonal = np.arange(groups)
    view[:, diagonal, :, diagonal, :] = taps_first.transpose(1, 0, 2, 3)
    return table.reshape(kh * kw * padded, cout)


def depthwise_weights(weight: np.ndarray) -> np.ndarray:
    """(C, 1, kH, kW) -> (kH*kW * 32, C): for every kernel position a row of tiles with the weights on the diagonal."""
    channels, _, kh, kw = weight.shape
    table = np.zeros((kh * kw, TILE, channels), np.float32)
    column = np.arange(channels)
    table[:, column % TILE, column] = weight.reshape(channels, kh * kw).T
    return table.reshape(kh * kw * TILE, channels)
