"""aten ops of networks: products, normalisation, attention, reductions."""

from __future__ import annotations

import math

import torch

from tbuda_lab.core.frontend.aten.call import Call, CannotMap, FoldedValue, Result, maps
from tbuda_lab.core.frontend.aten.eltwise import times
from tbuda_lab.core.frontend.aten.shape import slice_dim, swap_dims
from tbuda_lab.core.graph import Shape
from tbuda_lab.core.ops import (
    Abs,
    Add,
    Argmax,
    Batchnorm,
    Cast,
    CumSum,
    Equal,
    Exp,
    GroupNorm,
    Layernorm,
    Log,
    LogSoftmax,
    Matmul,
    Multiply,
    NotEqual,
    Reciprocal,
    ReduceAvg,
    ReduceMax,
    ReduceSum,
    Sigmoid,
    Softmax,
    Sqrt,
    Subtract,
    Where,
)

MASKED = -3e38
"""Added to an attention score that a truth-value mask hides: no score that is seen is as small, and e^MASKED is 0.
Finite, so that a row that is hidden as a whole is one of equal weights, and no number is 0 times infinity."""


# -- products ------------------------------------------------------------------------------------------------
@maps("aten.linear")
def linear(c: Call) -> str:
    x, weight = c.x("input"), swap_dims(c, c.x("weight"), -2, -1)
    if len(c.shape(x)) == 1:
        x = c.reshape(x, (1, *c.shape(x)))
    bias = [c.x("bias")] if c.has("bias") else []
    return c.reshape(c.op(Matmul(), x, weight, *bias), c.out_shape)


def product(c: Call, a: str, b: str) -> str:
    """torch's matmul: vectors become matrices and the result's shape is torch's."""
    if len(c.shape(a)) == 1:
        a = c.reshape(a, (1, *c.shape(a)))
    if len(c.shape(b)) == 1:
        b = c.reshape(b, (*c.shape(b), 1))
    return c.op(Matmul(), a, b)


@maps("aten.matmul", "aten.bmm", "aten.mm", "aten.mv", "aten.dot")
def matmul(c: Call) -> str:
    second = next(n for n in ("other", "mat2", "vec", "tensor") if n in c.arguments)
    return c.reshape(product(c, c.x(), c.x(second)), c.out_shape)


@maps("aten._trilinear")
def trilinear(c: Call) -> str:
    """The product of three tensors that are spread along new dims, summed over some."""
    terms = []
    for k in (1, 2, 3):
        x = c.x(f"i{k}")
        shape = list(c.shape(x))
        for dim in sorted(c.get(f"expand{k}")):
            shape.insert(dim, 1)
        terms.append(c.reshape(x, tuple(shape)))
    c.get("unroll_dim")  # says only in which order the terms are added
    whole = c.op(Multiply(), c.op(Multiply(), terms[0], terms[1]), terms[2])
    dims = sorted((d - len(c.shape(whole)) for d in c.get("sumdim")), reverse=True)
    return c.reshape(reduce_dims(c, whole, ReduceSum, dims), c.out_shape)


@maps("aten.addmm", "aten.baddbmm", "aten.addmv")
def addmm(c: Call) -> str:
    """torch reads no summand whose factor is 0, whatever it holds."""
    first, second = next(pair for pair in _FACTORS if pair[0] in c.arguments)
    beta, alpha = c.get("beta", 1), c.get("alpha", 1)
    if beta == 1 and alpha == 1 and first != "mat":
        return c.op(Matmul(), c.x(first), c.x(second), c.x())
    scaled_product = c.reshape(times(c, product(c, c.x(first), c.x(second)), alpha), c.out_shape)
    summand = times(c, c.x(), beta)
    return scaled_product if beta == 0 else c.op(Add(), scaled_product, summand)


_FACTORS = (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec"))


# -- normalisation -------------------------------------------------------------------------------------------
def weight_or(c: Call, name: str, shape: Shape, fill: float) -> str:
    return c.x(name) if c.has(name) else c.constant(torch.full(shape, fill))


@maps(
    "aten.batch_norm",
    "aten._native_batch_norm_legit_no_training",
    "aten._native_batch_norm_legit",
    "aten.native_batch_norm",
    "aten.cudnn_batch_norm",
)
def batch_norm(c: Call) -> Result:
    training = bool(c.get("training"))
    if training and c.has("running_mean"):
        raise CannotMap("batch norm that updates its statistics needs training; call .eval() on the model")
    if not training and not c.has("running_mean"):
        raise CannotMap("batch norm without running statistics (track_running_stats=False) is not supported")
    x = c.x("input")
    y = by_own_statistics(c, x, float(c.get("eps"))) if training else _by_running_statistics(c, x)
    return y if c.target._schema.name == "aten::batch_norm" else (y, None, None)


def _by_running_statistics(c: Call, x: str) -> str:
    channels = (c.shape(x)[1],)
    weight, bias = weight_or(c, "weight", channels, 1.0), weight_or(c, "bias", channels, 0.0)
    return c.op(Batchnorm(float(c.get("eps"))), x, weight, bias, c.x("running_mean"), c.x("running_var"))


def by_own_statistics(c: Call, x: str, epsilon: float) -> str:
    """Batch norm by mean and variance of this very tensor: with the batch beside the pixels, a group norm in which
    every channel is a group."""
    shape = c.shape(x)
    batch, channels = shape[:2]
    ahead = swap_dims(c, x, 0, 1) if batch > 1 else x
    flat = c.reshape(ahead, (1, channels, math.prod(shape) // channels))
    weight, bias = weight_or(c, "weight", (channels,), 1.0), weight_or(c, "bias", (channels,), 0.0)
    y = c.op(GroupNorm(channels, epsilon), flat, weight, bias)
    return swap_dims(c, c.reshape(y, (channels, batch, *shape[2:])), 0, 1) if batch > 1 else c.reshape(y, shape)


@maps("aten._native_batch_norm_legit_functional")
def batch_norm_that_updates(c: Call) -> Result:
    """Batch norm in training mode: by this tensor's own statistics, with the running ones that it leaves. Those weigh
    the variance by n / (n - 1), as torch's do."""
    if not c.get("training"):
        raise CannotMap("batch norm that updates statistics it does not take is not supported")
    x, momentum = c.x("input"), float(c.get("momentum"))
    shape = c.shape(x)
    dims = [d for d in range(len(shape)) if d != 1]
    mean = reduce_dims(c, x, ReduceAvg, dims)
    off = c.op(Subtract(), x, mean)
    variance = reduce_dims(c, c.op(Multiply(), off, off), ReduceAvg, dims)
    count = math.prod(shape) // shape[1]
    parts = ((c.x("running_mean"), mean, momentum), (c.x("running_var"), variance, momentum * count / (count - 1)))
    running = [
        c.op(Add(), times(c, old, 1 - momentum), times(c, c.reshape(new, (shape[1],)), weight))
        for old, new, weight in parts
    ]
    return by_own_statistics(c, x, float(c.get("eps"))), None, None, *running


@maps("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(c: Call) -> Result:
    x, normal = c.x("input"), tuple(c.get("normalized_shape"))
    shape = c.shape(x)
    width = (math.prod(normal),)
    weight = c.reshape(weight_or(c, "weight", normal, 1.0), width)
    bias = c.reshape(weight_or(c, "bias", normal, 0.0), width)
    flat = c.reshape(x, (*shape[: len(shape) - len(normal)], *width))
    y = c.reshape(c.op(Layernorm(-1, float(c.get("eps"))), flat, weight, bias), shape)
    return y if c.target._schema.name == "aten::layer_norm" else (y, None, None)


@maps("aten.rms_norm")
def rms_norm(c: Call) -> str:
    x, normal = c.x("input"), c.get("normalized_shape")
    if len(normal) != 1:
        raise CannotMap("rms_norm over several dims; normalise over the last")
    eps = c.get("eps", torch.finfo(torch.float32).eps)
    square = c.op(ReduceAvg(-1), c.op(Multiply(), x, x))
    y = c.op(Multiply(), x, c.op(Reciprocal(), c.op(Sqrt(), c.op(Add(), square, c.constant(float(eps))))))
    return c.op(Multiply(), y, c.x("weight")) if c.has("weight") else y


@maps("aten.group_norm", "aten.native_group_norm", "aten.instance_norm")
def group_norm(c: Call) -> Result:
    name = c.target._schema.name
    x = c.x("input")
    channels = c.shape(x)[1]
    if name == "aten::instance_norm" and not c.get("use_input_stats"):
        return _by_running_statistics(c, x)
    groups = channels if name == "aten::instance_norm" else c.get("num_groups", c.arguments.get("group"))
    weight, bias = weight_or(c, "weight", (channels,), 1.0), weight_or(c, "bias", (channels,), 0.0)
    y = c.op(GroupNorm(groups, float(c.get("eps"))), x, weight, bias)
    return (y, None, None) if name == "aten::native_group_norm" else y


@maps("aten.softmax", "aten._softmax")
def softmax(c: Call) -> str:
    return along(c, Softmax, c.x())


@maps("aten._safe_softmax")
def safe_softmax(c: Call) -> str:
    """Rows of minus infinities alone are 0: attention that hides every key, taken apart by torch."""
    x = c.vector()
    dim = c.get("dim") % len(c.shape(x)) - len(c.shape(x))
    return c.reshape(c.op(Softmax(dim, safe=True), x), c.out_shape)


@maps("aten.log_softmax", "aten._log_softmax")
def log_softmax(c: Call) -> str:
    return along(c, LogSoftmax, c.x())


def along(c: Call, op: type[Softmax] | type[LogSoftmax] | type[CumSum], x: str) -> str:
    """An op along the dim that the call names; a single number has one, of size 1."""
    x = c.reshape(x, c.shape(x) or (1,))
    rank = len(c.shape(x))
    return c.reshape(c.op(op(c.get("dim") % rank - rank), x), c.out_shape)


# -- attention -----------------------------------------------------------------------------------------------
@maps("aten.scaled_dot_product_attention")
def attention(c: Call) -> str:
    """softmax(q k^T * scale + mask) v. Heads that share keys are stacked as rows, so keys are never copied."""
    if float(c.get("dropout_p", 0.0)) > 0:
        raise CannotMap("attention dropout that is active needs training; call .eval() on the model")
    q, k, v = c.x("query"), c.x("key"), c.x("value")
    rows, width = c.shape(q)[-2:]
    heads = c.shape(q)[:-2]
    keys = c.shape(k)[-2]
    shared = 1
    if c.get("enable_gqa") and heads[-1] != c.shape(k)[-3]:
        shared = heads[-1] // c.shape(k)[-3]
        q = c.reshape(q, (*heads[:-1], heads[-1] // shared, rows * shared, width))
    scale = c.get("scale")
    q = times(c, q, float(scale) if scale is not None else 1.0 / math.sqrt(width))
    scores = c.op(Matmul(), q, swap_dims(c, k, -2, -1))
    scores = c.reshape(scores, (*heads, rows, keys)) if shared > 1 else scores
    scores = add_mask(c, scores, rows, keys)
    weights = c.op(Softmax(-1, safe=may_hide_rows(c)), scores)
    weights = without_hidden_rows(c, weights)
    if shared > 1:
        weights = c.reshape(weights, (*heads[:-1], heads[-1] // shared, rows * shared, keys))
    return c.reshape(c.op(Matmul(), weights, v), c.out_shape)


def add_mask(c: Call, scores: str, rows: int, keys: int) -> str:
    """Scores plus the mask: a truth-value mask hides where it is false, a float mask is added."""
    if c.get("is_causal"):
        hidden = torch.ones(rows, keys).tril() == 0
        return c.op(Add(), scores, c.constant(hidden.to(torch.float32) * MASKED))
    if not c.has("attn_mask"):
        return scores
    mask = c.arguments["attn_mask"]
    if c.dtype_of("attn_mask") != torch.bool:
        return c.op(Add(), scores, c.x("attn_mask"))
    if isinstance(mask, FoldedValue):
        if bool(mask.tensor.all()):
            return scores
        return c.op(Add(), scores, c.constant((~mask.tensor).to(torch.float32) * MASKED))
    hidden_by_input = c.op(Subtract(), c.constant(1.0), c.x("attn_mask"))
    return c.op(Add(), scores, times(c, hidden_by_input, MASKED))


def may_hide_rows(c: Call) -> bool:
    """Whether a float mask may be -inf in a whole row, whose weights are 0 in torch."""
    if not c.has("attn_mask") or c.dtype_of("attn_mask") == torch.bool:
        return False
    mask = c.arguments["attn_mask"]
    return not isinstance(mask, FoldedValue) or bool((mask.tensor == -math.inf).all(-1).any())


def without_hidden_rows(c: Call, weights: str) -> str:
    """Weights whose rows are 0 where a truth-value mask hides every key, as in torch; softmax gives equal weights."""
    if c.get("is_causal") or not c.has("attn_mask") or c.dtype_of("attn_mask") != torch.bool:
        return weights
    mask = c.arguments["attn_mask"]
    if isinstance(mask, FoldedValue):
        if bool(mask.tensor.any(-1).all()):
            return weights
        return c.op(Multiply(), weights, c.constant(mask.tensor.to(torch.float32)))
    return c.op(Multiply(), weights, c.x("attn_mask"))


@maps("aten.glu")
def glu(c: Call) -> str:
    x, dim = c.x(), c.get("dim", -1)
    half = c.shape(x)[dim] // 2
    gate = c.op(Sigmoid(), slice_dim(c, x, dim, half, 2 * half))
    return c.op(Multiply(), slice_dim(c, x, dim, 0, half), gate)


# -- reductions ----------------------------------------------------------------------------------------------
def dims_of(c: Call, rank: int) -> list[int]:
    """The reduced dims, counted from the back, innermost first; no dim means all."""
    dim = c.arguments.get("dim")
    if rank == 0:
        return []
    dims = list(range(rank)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    return sorted((d % rank - rank for d in dims), reverse=True)


def reduce_dims(c: Call, x: str, op: type[ReduceSum] | type[ReduceAvg] | type[ReduceMax], dims: list[int]) -> str:
    for dim in dims:
        x = c.op(op(dim), x)
    return x


@maps("aten.mean")
def mean(c: Call) -> str:
    x = c.x()
    return c.reshape(reduce_dims(c, x, ReduceAvg, dims_of(c, len(c.shape(x)))), c.out_shape)


@maps("aten.sum")
def sum_(c: Call) -> str:
    x = c.x()
    return c.reshape(reduce_dims(c, x, ReduceSum, dims_of(c, len(c.shape(x)))), c.out_shape)


@maps("aten.amax", "aten.max.default", "aten.max.dim")
def amax(c: Call) -> Result:
    x = c.x()
    y = c.reshape(reduce_dims(c, x, ReduceMax, dims_of(c, len(c.shape(x)))), c.out_shape)
    return (y, None) if c.target._overloadname == "dim" else y


@maps("aten.amin", "aten.min.default", "aten.min.dim")
def amin(c: Call) -> Result:
    x = times(c, c.x(), -1.0)
    y = times(c, reduce_dims(c, x, ReduceMax, dims_of(c, len(c.shape(x)))), -1.0)
    y = c.reshape(y, c.out_shape)
    return (y, None) if c.target._overloadname == "dim" else y


@maps("aten.var", "aten.std", "aten.var_mean")
def variance(c: Call) -> Result:
    x = c.x()
    rank = len(c.shape(x))
    dims = dims_of(c, rank)
    count = math.prod(c.shape(x)[d] for d in dims)
    lost = 1.0 if c.get("unbiased", True) else 0.0
    lost = float(c.get("correction", lost))
    middle = reduce_dims(c, x, ReduceAvg, dims)
    if count <= lost:  # of nothing, which is no number
        spread = c.constant(torch.full(c.out_shape, torch.nan))
    else:
        centred = c.op(Subtract(), x, middle)
        spread = reduce_dims(c, c.op(Multiply(), centred, centred), ReduceAvg, dims)
        spread = times(c, spread, count / (count - lost))
    name = c.target._schema.name
    y = c.reshape(c.op(Sqrt(), spread) if name == "aten::std" else spread, c.out_shape)
    return (y, c.reshape(middle, c.out_shape)) if name == "aten::var_mean" else y


@maps("aten.linalg_vector_norm", "aten.norm")
def norm(c: Call) -> str:
    order = c.get("ord", c.arguments.get("p"))
    if order not in (None, 2, 1, 0, math.inf, -math.inf):
        raise CannotMap(f"a vector norm of order {order}; the orders 0, 1, 2 and those of infinity have a form here")
    x = c.x()
    dims = dims_of(c, len(c.shape(x)))
    if order == 0:
        return c.reshape(reduce_dims(c, c.op(NotEqual(), x, c.constant(0.0)), ReduceSum, dims), c.out_shape)
    if order not in (None, 2):
        size = times(c, c.op(Abs(), x), math.copysign(1.0, order))
        total = reduce_dims(c, size, ReduceSum if order == 1 else ReduceMax, dims)
        return c.reshape(times(c, total, math.copysign(1.0, order)), c.out_shape)
    if all(c.shape(x)[d] == 1 for d in dims):  # its square would pass the range of float32 first
        return c.reshape(c.op(Abs(), x), c.out_shape)
    total = reduce_dims(c, c.op(Multiply(), x, x), ReduceSum, dims)
    return c.reshape(c.op(Sqrt(), total), c.out_shape)


@maps("aten.argmax", "aten.argmin")
def argmax(c: Call) -> str:
    x, dim = c.x(), c.arguments.get("dim")
    if c.target._schema.name == "aten::argmin":
        x = times(c, x, -1.0)
    if dim is None:
        x, dim = c.reshape(x, (math.prod(c.shape(x)),)), -1
    x = c.reshape(x, c.shape(x) or (1,))
    return c.reshape(c.op(Argmax(dim % len(c.shape(x)) - len(c.shape(x))), x), c.out_shape)


@maps("aten.logsumexp")
def log_sum_exp(c: Call) -> str:
    """m + ln of the sum of e^(x - m) for the largest element m, or 0 for an infinite one. It is m itself that is added:
    of a row of minus infinities the device's logarithm of 0 is finite."""
    x = c.x()
    dims = dims_of(c, len(c.shape(x)))
    most = reduce_dims(c, x, ReduceMax, dims)
    zero = c.constant(0.0)
    centre = c.op(Where(), c.op(Equal(), c.op(Abs(), most), c.constant(math.inf)), zero, most)
    total = reduce_dims(c, c.op(Exp(), c.op(Subtract(), x, centre)), ReduceSum, dims)
    return c.reshape(c.op(Add(), c.op(Log(), total), most), c.out_shape)


@maps("aten.cumsum")
def cumsum(c: Call) -> str:
    """Floats that torch adds up as whole numbers become these first: a split model adds them on the host, exactly."""
    x, after = c.x(), c.out.dtype
    if c.dtype_of().is_floating_point and not after.is_floating_point:
        x = c.op(Cast(str(after).removeprefix("torch.")), x)
    return along(c, CumSum, x)


@maps("aten.any", "aten.all")
def any_or_all(c: Call) -> str:
    """Truth over dims: the largest (or smallest) of the truth values. A number is true that is not zero, NaN too."""
    x, negate = c.x(), c.target._schema.name == "aten::all"
    if c.dtype_of() != torch.bool:
        x = c.op(NotEqual(), x, c.constant(0.0))
    one = c.constant(1.0)
    x = c.op(Subtract(), one, x) if negate else x
    y = reduce_dims(c, x, ReduceMax, dims_of(c, len(c.shape(x))))
    return c.reshape(c.op(Subtract(), one, y) if negate else y, c.out_shape)
