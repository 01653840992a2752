"""Products, reductions, convolutions, pooling, normalisation. Every function takes the op's name first."""

from __future__ import annotations

import math
from typing import Any

import torch

from tbuda_lab.core import ops
from tbuda_lab.core.errors import ModelError, PipelineError
from tbuda_lab.core.frontend.pybuda import to_torch
from tbuda_lab.pybuda.op.common import Operand, Tensor, apply, operation, refusing, shape_of

Size = int | tuple[int, int] | list[int]


@operation
def Matmul(name: str, operandA: Operand, operandB: Operand, bias: Operand | None = None) -> Tensor:
    """operandA @ operandB, plus bias if given."""
    return apply(name, ops.Matmul(), operandA, operandB, *([] if bias is None else [bias]))


@operation
def SparseMatmul(name: str, sparse: Any, dense: Operand) -> Tensor:
    """A product with a constant sparse matrix (a torch sparse tensor, or a Tensor that holds one)."""
    matrix = to_torch(sparse)
    matrix = matrix.to_dense() if matrix.layout is not torch.strided else matrix
    stored = Tensor.create_from_torch(matrix, constant=True)
    stored.leaf_name = "lc.input_tensor.{consumer}.{port}"  # as PyBuda's lowering calls what a sparse op reads
    return apply(name, ops.Matmul(), stored, dense)


@operation
def ReduceSum(name: str, operandA: Operand, dim: int) -> Tensor:
    """Sum along dim, which keeps size 1."""
    return apply(name, ops.ReduceSum(dim), operandA)


@operation
def ReduceAvg(name: str, operandA: Operand, dim: int) -> Tensor:
    """Mean along dim, which keeps size 1."""
    return apply(name, ops.ReduceAvg(dim), operandA)


@operation
def ReduceMax(name: str, operandA: Operand, dim: int, stride: int = -1) -> Tensor:
    """Maximum along dim, which keeps size 1; with a stride, of every `stride` elements, which keeps one each."""
    shape = shape_of(operandA)
    if stride in (-1, shape[dim]):
        return apply(name, ops.ReduceMax(dim), operandA)
    at = dim % len(shape)
    groups = shape[at] // stride
    split = apply(
        f"{name}.split" if name else "", ops.Reshape((*shape[:at], groups, stride, *shape[at + 1 :])), operandA
    )
    top = apply(f"{name}.max" if name else "", ops.ReduceMax(at + 1), split)
    return apply(name, ops.Reshape((*shape[:at], groups, *shape[at + 1 :])), top)


@operation
def GroupedReduceAvg(name: str, operandA: Operand, dim: int, groups: int, keep_dims: bool = False) -> Tensor:
    """Mean of each of `groups` groups along dim; with keep_dims every element of a group gets its mean."""
    shape = shape_of(operandA)
    at = dim % len(shape)
    split_shape = (*shape[:at], groups, shape[at] // groups, *shape[at + 1 :])
    split = apply(f"{name}.split" if name else "", ops.Reshape(split_shape), operandA)
    mean = apply(f"{name}.mean" if name else "", ops.ReduceAvg(at + 1), split)
    if keep_dims:
        wide = apply(f"{name}.wide" if name else "", ops.BroadcastTo(split_shape), mean)
        return apply(name, ops.Reshape(shape), wide)
    return apply(name, ops.Reshape((*shape[:at], groups, *shape[at + 1 :])), mean)


@operation
def Constant(name: str, *, constant: float) -> Tensor:
    """A tensor of shape (1,) that holds the number."""
    return Tensor.create_from_torch(torch.tensor([float(constant)]), constant=True)


# -- convolution and pooling ---------------------------------------------------------------------------------
def two(value: Size) -> tuple[int, int]:
    """(height, width)."""
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def sides(padding: Any, kernel: tuple[int, int], pooling: bool = False) -> tuple[int, int, int, int]:
    """(left, right, top, bottom) of "same", a number, (height, width), or the four of them.

    "same" is PyBuda's: kernel // 2 before; after as much for an odd kernel and for `pooling` (transposed convolutions
    included), one less for an even kernel of a convolution. A dilation does not change it.
    """
    if padding == "same":
        (top, left), odd = (k // 2 for k in kernel), [pooling or k % 2 == 1 for k in kernel]
        return left, left if odd[1] else left - 1, top, top if odd[0] else top - 1
    if isinstance(padding, str):
        raise ModelError(f'padding is "same", a number, or a list of 2 or 4, not {padding!r}')
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if len(padding) == 2:
        return int(padding[1]), int(padding[1]), int(padding[0]), int(padding[0])
    return int(padding[0]), int(padding[1]), int(padding[2]), int(padding[3])


@operation
def Conv2d(
    name: str,
    activations: Operand,
    weights: Operand,
    bias: Operand | None = None,
    stride: Size = 1,
    padding: int | str | list[int] = "same",
    dilation: Size = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """2-D convolution of (N, Cin, H, W) (or (N, H, W, Cin)) with (Cout, Cin / groups, kH, kW); bias (Cout,)."""
    _one_weight("Conv2d", weights)
    kernel, spread = shape_of(weights)[2:], two(dilation)
    op = ops.Conv2d(two(stride), sides(padding, (kernel[0], kernel[1])), spread, groups, channel_last)
    return apply(name, op, activations, weights, *_bias(name, bias))


@operation
def Conv2dTranspose(
    name: str,
    activations: Operand,
    weights: Operand,
    bias: Operand | None = None,
    stride: Size = 1,
    padding: int | str | list[int] = "same",
    dilation: Size = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Transposed 2-D convolution; weights (Cin, Cout / groups, kH, kW)."""
    _one_weight("Conv2dTranspose", weights)
    kernel, spread = shape_of(weights)[2:], two(dilation)
    around = sides(padding, (kernel[0], kernel[1]), pooling=True)
    op = ops.Conv2dTranspose(two(stride), around, spread, groups, (0, 0), channel_last)
    return apply(name, op, activations, weights, *_bias(name, bias))


def _one_weight(kind: str, weights: Any) -> None:
    if isinstance(weights, list | tuple):
        refusing(
            f"{kind} with weights in a list", "give one tensor (Cout, Cin / groups, kH, kW); it is split unasked"
        )()


def as_vector(name: str, bias: Operand) -> Operand:
    """The bias as a vector: PyBuda also takes (1, 1, 1, Cout) and (1, Cout, 1, 1)."""
    return bias if len(shape_of(bias)) == 1 else apply(f"{name}.bias" if name else "", ops.Reshape((-1,)), bias)


def _bias(name: str, bias: Operand | None) -> list[Operand]:
    return [] if bias is None else [as_vector(name, bias)]


@operation
def MaxPool2d(
    name: str,
    activations: Operand,
    kernel_size: Size,
    stride: Size = 1,
    padding: int | str | list[int] = "same",
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    max_pool_add_sub_surround: bool = False,
    max_pool_add_sub_surround_value: float = 1.0,
    channel_last: bool = False,
) -> Tensor:
    """Largest value of each window. Padding never wins, so `max_pool_add_sub_surround` is not needed and ignored."""
    if return_indices:
        refusing("MaxPool2d(return_indices=True)")()
    kernel, spread = two(kernel_size), two(dilation)
    op = ops.MaxPool2d(kernel, two(stride), sides(padding, kernel, pooling=True), spread, ceil_mode, channel_last)
    return apply(name, op, activations)


@operation
def MaxPool1d(
    name: str,
    activations: Operand,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Largest value of each window along the last dim of (N, C, L)."""
    n, c, length = shape_of(activations)
    image = apply(f"{name}.image" if name else "", ops.Reshape((n, c, 1, length)), activations)
    before, after, _, _ = sides(padding, (1, kernel_size), pooling=True)
    op = ops.MaxPool2d((1, kernel_size), (1, stride), (before, after, 0, 0), (1, dilation), ceil_mode)
    pooled = apply(f"{name}.pool" if name else "", op, image)
    return apply(name, ops.Reshape((n, c, -1)), pooled)


@operation
def AvgPool2d(
    name: str,
    activations: Operand,
    kernel_size: Size,
    stride: Size = 1,
    padding: int | str | list[int] = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    channel_last: bool = False,
) -> Tensor:
    """Mean of each window: its sum over `divisor_override`, or over the number of its elements. Raises
    `PipelineError` for a divisor of 0."""
    kernel = two(kernel_size)
    around = sides(padding, kernel, pooling=True)
    if divisor_override is None:
        op = ops.AvgPool2d(kernel, two(stride), around, ceil_mode, count_include_pad, channel_last)
        return apply(name, op, activations)
    if not divisor_override or ceil_mode:
        raise PipelineError("AvgPool2d: divisor_override is a number other than 0, and goes without ceil_mode")
    op = ops.AvgPool2d(kernel, two(stride), around, False, True, channel_last)
    mean = apply(f"{name}.mean" if name else "", op, activations)
    return apply(name, ops.Multiply(), mean, kernel[0] * kernel[1] / divisor_override)


@operation
def AvgPool1d(
    name: str,
    activations: Operand,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window along the last dim of (N, C, L)."""
    n, c, length = shape_of(activations)
    image = apply(f"{name}.image" if name else "", ops.Reshape((n, c, 1, length)), activations)
    before, after, _, _ = sides(padding, (1, kernel_size), pooling=True)
    op = ops.AvgPool2d((1, kernel_size), (1, stride), (before, after, 0, 0), ceil_mode, count_include_pad)
    pooled = apply(f"{name}.pool" if name else "", op, image)
    return apply(name, ops.Reshape((n, c, -1)), pooled)


@operation
def Resize2d(
    name: str,
    operandA: Operand,
    sizes: list[int] | tuple[int, int],
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    extrapolation_value: float = 0.0,
    channel_last: bool = False,
) -> Tensor:
    """An image of another size; method "nearest_neighbor", "linear" or "bilinear"."""
    if extrapolation_value:
        refusing("Resize2d(extrapolation_value=...)", "nothing outside the image is read")()
    mode = "nearest" if method == "nearest_neighbor" else "bilinear"
    return apply(name, ops.Resize2d((int(sizes[0]), int(sizes[1])), mode, align_corners, channel_last), operandA)


@operation
def Embedding(name: str, embedding_table: Operand, indices: Operand) -> Tensor:
    """Rows of the table at integer indices; looked up by the host."""
    return apply(name, ops.Embedding(), embedding_table, indices)


# -- normalisation -------------------------------------------------------------------------------------------
@operation
def Softmax(name: str, operandA: Operand, *, dim: int, stable: bool = True) -> Tensor:
    """e**x / sum(e**x) along dim; stable: the maximum is subtracted first."""
    return apply(name, ops.Softmax(dim, stable), operandA)


@operation
def LogSoftmax(name: str, operandA: Operand, *, dim: int, stable: bool = True) -> Tensor:
    """log(softmax(x)) along dim; the maximum is always subtracted first, so stable=False changes no number."""
    return apply(name, ops.LogSoftmax(dim), operandA)


@operation
def Layernorm(
    name: str, operandA: Operand, weights: Operand, bias: Operand, dim: int = -1, epsilon: float = 1e-05
) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * weights + bias along dim."""
    return apply(name, ops.Layernorm(dim, epsilon), operandA, weights, bias)


@operation
def Batchnorm(
    name: str,
    operandA: Operand,
    weights: Operand,
    bias: Operand,
    running_mean: Operand,
    running_var: Operand,
    epsilon: float = 1e-05,
) -> Tensor:
    """(x - running_mean) / sqrt(running_var + epsilon) * weights + bias, channels in dim 1."""
    return apply(name, ops.Batchnorm(epsilon), operandA, weights, bias, running_mean, running_var)


@operation
def DRAMQueue(name: str, operandA: Operand, *, num_entries: int = 1) -> Tensor:
    """operandA through a buffer; the placer decides where it lies, and how many entries it has."""
    if num_entries != 1:
        refusing(
            f"DRAMQueue(num_entries={num_entries})",
            "set_configuration_options(insert_queues=) puts a queue on an "
            "edge, and the placer gives it the entries that its readers need",
        )()
    return apply(name, ops.Buffer(), operandA)


_WHOLE = {torch.int8: (-128.0, 127.0), torch.uint8: (0.0, 255.0), torch.int32: (-(2.0**24), 2.0**24)}


@operation
def Quantize(
    name: str,
    operandA: Operand,
    scale: Operand,
    zero_point: float = 0.0,
    axis: int = 0,
    out_dtype: torch.dtype = torch.int8,
) -> Tensor:
    """round(operandA / scale) + zero_point, within the range of out_dtype: whole numbers in float tensors.

    scale: one number, or one for each index of axis. The device rounds no numbers, so that rounding runs on the host
    (CPU fallback); whole numbers below 2^24 are exact in Float32.
    """
    if out_dtype not in _WHOLE:
        refusing(f"Quantize(out_dtype={out_dtype})", f"out_dtype is one of {', '.join(map(str, _WHOLE))}")()
    low, high = _WHOLE[out_dtype]
    ratio = apply(f"{name}.ratio" if name else "", ops.Divide(), operandA, _along(operandA, scale, axis))
    whole = apply(f"{name}.round" if name else "", ops.HostCall("round", ("$0",)), ratio)
    moved = apply(f"{name}.zero_point" if name else "", ops.Add(), whole, float(zero_point))
    return apply(name, ops.Clip(low, high), moved)


@operation
def Dequantize(name: str, operandA: Operand, scale: Operand, zero_point: float = 0.0, axis: int = 0) -> Tensor:
    """(operandA - zero_point) * scale; see `Quantize`."""
    moved = apply(f"{name}.zero_point" if name else "", ops.Subtract(), operandA, float(zero_point))
    return apply(name, ops.Multiply(), moved, _along(operandA, scale, axis))


@operation
def Requantize(
    name: str,
    operandA: Operand,
    input_scale: Operand,
    output_scale: Operand,
    input_zero_point: float = 0.0,
    output_zero_point: float = 0.0,
    axis: int = 0,
    out_dtype: torch.dtype = torch.int8,
) -> Tensor:
    """Whole numbers of one scale as whole numbers of another: `Dequantize`, then `Quantize`."""
    real = Dequantize(f"{name}.real" if name else "", operandA, input_scale, input_zero_point, axis)
    return Quantize(name, real, output_scale, output_zero_point, axis, out_dtype)


def _along(tensor: Operand, scale: Operand, axis: int) -> Operand:
    """A scale as it broadcasts: a vector along `axis`."""
    count, rank = math.prod(shape_of(scale)), len(shape_of(tensor))
    behind = rank - 1 - axis % rank
    if count == 1 or behind == 0:
        return scale
    return apply("", ops.Reshape((count, *(1,) * behind)), scale)


BudaRequantize = refusing("BudaRequantize", "choose formats with default_df_override")
