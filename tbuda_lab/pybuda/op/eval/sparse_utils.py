"""`pybuda.op.eval.sparse_utils`: sizes and pickers of convolutions, by their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tbuda_lab.core.graph import TILE
from tbuda_lab.core.ops import ConvRows
from tbuda_lab.core.passes.prestride import patch_cut
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.op.common import refusing
from tbuda_lab.pybuda.op.nn_ops import sides, two


def conv2d_padding_to_canonical(padding: int | str | Sequence[int], kernel_size: Any) -> list[int]:
    """[left, right, top, bottom] of a padding argument."""
    return list(sides(padding, two(kernel_size)))


def calculate_conv2d_output_dimensions(
    original_y: int,
    original_x: int,
    kernel_size: Any,
    stride: Any,
    padding: Sequence[int],
    dilation: int = 1,
    ceil_mode: bool = False,
) -> tuple[int, int]:
    """(height, width) of a convolution's result; padding is [left, right, top, bottom]."""
    (kh, kw), (sh, sw) = two(kernel_size), two(stride)
    left, right, top, bottom = padding
    spans = (original_y + top + bottom - dilation * (kh - 1) - 1, original_x + left + right - dilation * (kw - 1) - 1)
    up = 1 if ceil_mode else 0
    return (spans[0] + up * (sh - 1)) // sh + 1, (spans[1] + up * (sw - 1)) // sw + 1


def calculate_conv2d_transpose_output_dimensions(
    original_y: int,
    original_x: int,
    kernel_size: Any,
    stride: Any,
    padding: Sequence[int],
    dilation: int = 1,
    output_padding: Any = 0,
) -> tuple[int, int]:
    """(height, width) of a transposed convolution's result; padding is [left, right, top, bottom]."""
    (kh, kw), (sh, sw) = two(kernel_size), two(stride)
    left, right, top, bottom = padding
    more = two(output_padding)
    y = (original_y - 1) * sh - top - bottom + dilation * (kh - 1) + 1 + more[0]
    x = (original_x - 1) * sw - left - right + dilation * (kw - 1) + 1 + more[1]
    return y, x


def create_conv2d_sparse_picker_matrix(
    y: int,
    x: int,
    y_shift: int,
    x_shift: int,
    y_kernel: int,
    x_kernel: int,
    stride: Any,
    padding: Sequence[int],
    dilation: int = 1,
    tile_align: bool = False,
    pad_x_only: bool = False,
    sparse_r_pad: int = 0,
    sparse_c_pad: int = 0,
) -> torch.Tensor:
    """The (output pixels, input pixels) matrix of ones that picks, for every output pixel, the input pixel under one
    kernel tap; (y_shift, x_shift) is the tap's offset from the kernel's centre. tile_align rounds both sizes to 32."""
    if pad_x_only or sparse_r_pad or sparse_c_pad:
        refusing("eval.sparse_utils.create_conv2d_sparse_picker_matrix with extra padding")()
    left, _, top, _ = padding
    oh, ow = calculate_conv2d_output_dimensions(y, x, (y_kernel, x_kernel), stride, padding, dilation)
    sh, sw = two(stride)
    rows = torch.arange(oh) * sh - top + dilation * (y_shift + y_kernel // 2)
    cols = torch.arange(ow) * sw - left + dilation * (x_shift + x_kernel // 2)
    source = rows[:, None] * x + cols[None, :]
    inside = ((rows >= 0) & (rows < y))[:, None] & ((cols >= 0) & (cols < x))[None, :]
    at = inside.reshape(-1).nonzero().reshape(-1)
    height, width = oh * ow, y * x
    if tile_align:
        height, width = -(-height // 32) * 32, -(-width // 32) * 32
    return torch.sparse_coo_tensor(
        torch.stack([at, source.reshape(-1)[at]]), torch.ones(len(at)), (height, width), check_invariants=True
    )


def create_flattened_padding_removal_sparse_picker_matrix(r: int, start: int, stop: int, length: int) -> torch.Tensor:
    """The matrix that keeps rows `start` to `stop` of every `length` of `r` rows."""
    groups = torch.arange(r // length)[:, None] * length
    source = (groups + torch.arange(start, stop)[None, :]).reshape(-1)
    return _picker(torch.arange(len(source)), source, (r // length * stop, r))


def create_reshape_flatten_sparse_picker_matrix(orig_r: int, new_r: int, tile_dim: int = TILE) -> torch.Tensor:
    """The (new_r, orig_r) matrix that puts row k first in a tile of its own: into row k * tile_dim."""
    source = torch.arange(new_r // tile_dim)
    return _picker(source * tile_dim, source, (new_r, orig_r))


def _picker(rows: torch.Tensor, columns: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    at = torch.stack([rows, columns])
    return torch.sparse_coo_tensor(at, torch.ones(len(rows)), size, check_invariants=True)


def calculate_conv2d_prestride_weights_and_padding(
    weights: torch.Tensor, original_y: int, original_x: int, stride: Sequence[int], padding: Sequence[int]
) -> tuple[torch.Tensor, list[int]]:
    """Weights and [left, right, top, bottom] of the convolution of stride 1 that stands for one of stride (y, x) when
    each phase of the image, `image[y::stride, x::stride]`, is a channel of its own (phases of y first).

    Kernel row u reads image row p * s + u - top = (p + m) * s + d: with the kernel shifted down by as many rows as top
    lacks to a multiple of s, u is row m of phase d. Padding may be negative: rows that nothing reads.
    """
    (sy, sx), (left, right, top, bottom) = stride, padding
    (kh, kw) = weights.shape[-2:]
    before, rows, after = _phases(original_y, kh, sy, top, bottom)
    start, columns, stop = _phases(original_x, kw, sx, left, right)
    shifted = torch.nn.functional.pad(
        weights,
        (
            start * sx - left,
            columns * sx - kw - (start * sx - left),
            before * sy - top,
            rows * sy - kh - (before * sy - top),
        ),
    )
    out, channels = weights.shape[:2]
    parts = shifted.reshape(out, channels, rows, sy, columns, sx).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(out, sy * sx * channels, rows, columns), [start, stop, before, after]


def _phases(size: int, kernel: int, stride: int, before: int, after: int) -> tuple[int, int, int]:
    """Along one dim: padding before, kernel size and padding after of the convolution over phases."""
    first = -(-before // stride)
    taps = -(-(kernel + first * stride - before) // stride)
    outputs = (size + before + after - kernel) // stride + 1
    return first, taps, outputs - 1 + taps - -(-size // stride) - first


def can_conv2d_prestride(
    activations_shape: Sequence[int],
    weights_shape: Sequence[int],
    stride: Any,
    dilation: Any,
    groups: int,
    padding: Sequence[int],
    channel_last: bool,
    is_graph_input: bool,
) -> bool:
    """Whether a compile with the options of now has the host cut the image for this convolution, so that it has stride
    1 on the device: one image that the host feeds, a square stride, no dilation, no groups, and fewer tiles for it."""
    height, width, channels = (
        activations_shape[-3:] if channel_last else (*activations_shape[-2:], activations_shape[-3])
    )
    if not is_graph_input or not config._get_global_compiler_config().effective("enable_conv_prestride"):
        return False
    left, right, top, bottom = padding
    kernel, borders = two(list(weights_shape[-2:])), (left, right, top, bottom)
    op = ConvRows((height, width), kernel, two(stride), borders, two(dilation), groups)
    return math.prod(activations_shape[:-3]) == 1 and patch_cut(op, channels) is not None


does_prestriding_improve_perf = refusing(
    "eval.does_prestriding_improve_perf",
    "can_conv2d_prestride says whether the host cuts the image, which it does only where that takes fewer tiles",
)
