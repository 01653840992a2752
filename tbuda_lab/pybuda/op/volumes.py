"""Ops on volumes, (N, C, D, H, W) or with channels last (N, D, H, W, C), written in the ops on images.

A resize or pool of a volume is one of its images and then one along depth. A convolution is one per output slice, whose
channels are those of the input slices under the kernel, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tbuda_lab.core import ops
from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.graph import ShapeError
from tbuda_lab.pybuda.op.common import Operand, Tensor, apply, operation, refusing, shape_of
from tbuda_lab.pybuda.op.nn_ops import as_vector

Size3 = int | Sequence[int]


def three(value: Size3) -> tuple[int, int, int]:
    """(depth, height, width)."""
    if isinstance(value, int):
        return value, value, value
    if len(value) != 3:
        raise ModelError(f"a size of a volume is a number or (depth, height, width), not {value!r}")
    return int(value[0]), int(value[1]), int(value[2])


def _sides(padding: Any, kernel: tuple[int, int, int], pooling: bool) -> tuple[tuple[int, int], ...]:
    """(before, after) of depth, height and width; 6 numbers are left, right, top, bottom, front, back."""
    if padding == "same":
        return tuple((k // 2, k // 2 if pooling or k % 2 else k // 2 - 1) for k in kernel)
    if isinstance(padding, int):
        return ((padding, padding),) * 3
    if isinstance(padding, str) or len(padding) not in (3, 6):
        raise ModelError(f'padding of a volume is "same", a number, or a list of 3 or 6, not {padding!r}')
    if len(padding) == 3:
        return tuple((int(p), int(p)) for p in padding)
    return tuple((int(padding[i]), int(padding[i + 1])) for i in (4, 2, 0))


class _Steps:
    """Names the ops of one call: the last has the name that was given, the others "<name>.<what>"."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, what: str, op: Any, *operands: Any) -> Any:
        return apply(f"{self.name}.{what}" if self.name else "", op, *operands)

    def end(self, op: Any, *operands: Any) -> Tensor:
        return apply(self.name, op, *operands)


def _channels_first(step: _Steps, x: Any, channel_last: bool) -> Any:
    if len(shape_of(x)) != 5:
        raise ModelError(f"a volume has 5 dims, not {shape_of(x)}")
    for k, (a, b) in enumerate(((-2, -1), (-3, -2), (-4, -3)) if channel_last else ()):
        x = step(f"first{k}", ops.Transpose(a, b), x)
    return x


def _finish(step: _Steps, x: Any, shape: tuple[int, ...], channel_last: bool) -> Tensor:
    """`x` as the result of shape (N, C, D, H, W), channels last again where they were."""
    if not channel_last:
        return step.end(ops.Reshape(shape), x)
    x = step("volume", ops.Reshape(shape), x)
    x = step("last0", ops.Transpose(-4, -3), x)
    x = step("last1", ops.Transpose(-3, -2), x)
    return step.end(ops.Transpose(-2, -1), x)


def _images_then_depth(
    name: str, operand: Operand, channel_last: bool, plane: Callable[[], Any], depth: Callable[[], Any]
) -> Tensor:
    step = _Steps(name)
    x = _channels_first(step, operand, channel_last)
    n, c, d, h, w = shape_of(x)
    x = step("planes", ops.Reshape((n, c * d, h, w)), x)
    x = step("plane", plane(), x)
    h, w = shape_of(x)[-2:]
    x = step("columns", ops.Reshape((n, c, d, h * w)), x)
    x = step("depth", depth(), x)
    return _finish(step, x, (n, c, shape_of(x)[-2], h, w), channel_last)


@operation
def Resize3d(
    name: str,
    operandA: Operand,
    sizes: Sequence[int],
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    extrapolation_value: int = 0,
    channel_last: bool = False,
) -> Tensor:
    """A volume of another size (depth, height, width); method "nearest_neighbor", "linear" or "trilinear"."""
    if method not in ("nearest_neighbor", "linear", "trilinear"):
        raise ModelError(f"Resize3d: method is nearest_neighbor, linear or trilinear, not {method!r}")
    if extrapolation_value:
        refusing("Resize3d(extrapolation_value=...)", "nothing outside the volume is read")()
    depth, height, width = three(sizes)
    mode = "nearest" if method == "nearest_neighbor" else "bilinear"
    return _images_then_depth(
        name,
        operandA,
        bool(channel_last),
        lambda: ops.Resize2d((height, width), mode, align_corners),
        lambda: ops.Resize2d((depth, height * width), mode, align_corners),
    )


@operation
def MaxPool3d(
    name: str,
    activations: Operand,
    kernel_size: Size3,
    stride: Size3 = 1,
    padding: Any = "same",
    dilation: Size3 = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    max_pool_add_sub_surround: bool = False,
    max_pool_add_sub_surround_value: float = 1.0,
    channel_last: bool = False,
) -> Tensor:
    """Largest value of each window. Padding never wins, so that `max_pool_add_sub_surround` is not needed."""
    if return_indices:
        refusing("MaxPool3d(return_indices=True)", "compare the result with its operand")()
    kernel, step, spread = three(kernel_size), three(stride), three(dilation)
    (front, back), (top, bottom), (left, right) = _sides(padding, kernel, pooling=True)
    return _images_then_depth(
        name,
        activations,
        bool(channel_last),
        lambda: ops.MaxPool2d(kernel[1:], step[1:], (left, right, top, bottom), spread[1:], ceil_mode),
        lambda: ops.MaxPool2d((kernel[0], 1), (step[0], 1), (0, 0, front, back), (spread[0], 1), ceil_mode),
    )


@operation
def Conv3d(
    name: str,
    activations: Operand,
    weights: Operand,
    bias: Operand | None = None,
    stride: Size3 = 1,
    padding: Any = "same",
    dilation: Size3 = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """3-D convolution with weights (Cout, Cin / groups, kD, kH, kW); bias (Cout,)."""
    steps = _Steps(name)
    cout, each, *sizes = shape_of(weights)
    kernel, step, spread = three(sizes), three(stride), three(dilation)
    (front, back), (top, bottom), (left, right) = _sides(padding, kernel, pooling=False)
    x = _channels_first(steps, activations, bool(channel_last))
    n, c, d, h, w = shape_of(x)
    reach = spread[0] * (kernel[0] - 1) + 1
    if d + front + back < reach:
        raise ModelError(
            f"Conv3d {name!r}: the kernel reaches over {reach} slices, the padded volume has {d + front + back}"
        ) from ShapeError("depth")
    if front or back:
        x = steps("slices", ops.Pad(((0, 0), (0, 0), (front, back), (0, 0), (0, 0))), x)
    table = steps("kernel", ops.Reshape((cout, each * kernel[0], *kernel[1:])), weights)
    offset = [] if bias is None else [as_vector(name, bias)]
    op = ops.Conv2d(step[1:], (left, right, top, bottom), spread[1:], groups)
    planes = []
    for k, at in enumerate(range(0, d + front + back - reach + 1, step[0])):
        under = steps(f"under{k}", ops.Index(2, at, at + reach, spread[0]), x)
        stacked = steps(f"stacked{k}", ops.Reshape((n, c * kernel[0], h, w)), under)
        planes.append(steps(f"conv{k}", op, stacked, table, *offset))
    oh, ow = shape_of(planes[0])[-2:]
    flat = [steps(f"plane{k}", ops.Reshape((n, cout, 1, oh * ow)), p) for k, p in enumerate(planes)]
    whole = flat[0] if len(flat) == 1 else steps("depth", ops.Concatenate(2), *flat)
    return _finish(steps, whole, (n, cout, len(planes), oh, ow), bool(channel_last))
