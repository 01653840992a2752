"""What each JAX primitive means, in calls of aten."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import RANDOM, AtenValue, CannotMap, FoldedValue, ReadArguments
from tbuda_lab.core.frontend.calls import Aten, Calls, Tensor
from tbuda_lab.core.frontend.jax_model.exponentials import guards_maximum, is_centred, softmax_of
from tbuda_lab.core.graph import Shape
from tbuda_lab.core.ops import RoundTo


@dataclasses.dataclass
class Equation:
    """One equation of a jaxpr: its operands, parameters, and the shapes and types of its results."""

    calls: Calls
    kind: str
    params: ReadArguments
    operands: list[Tensor]
    out: list[Any]

    @property
    def aten(self) -> Aten:
        return self.calls.aten

    def x(self, position: int = 0) -> Tensor:
        return self.operands[position]

    def shape(self, position: int = 0) -> Shape:
        return self.calls.shape(self.operands[position])

    def dtype(self, position: int = 0) -> torch.dtype:
        return self.calls.dtype(self.operands[position])

    def constant_operand(self, position: int, what: str) -> torch.Tensor:
        value = self.operands[position]
        if not isinstance(value, FoldedValue):
            raise CannotMap(f"its {what} depend on an input of the model; they must be known")
        return value.tensor


SAYS_NOTHING = frozenset(
    {
        "accuracy",
        "algorithm",
        "indices_are_sorted",
        "is_stable",
        "mesh",
        "out_sharding",
        "precision",
        "sharding",
        "unique_indices",
        "update_consts",
        "weak_type",
        "input_dtype",
        "index_dtype",
        "out_dtype",
        "preferred_element_type",
        "new_sizes",
    }
)
"""Parameters that say where and how a result is made, or that its type and shape, which are known, say already."""
SAYS_NOTHING_HERE = {
    "squeeze": {"dimensions"},
    "gather": {"fill_value", "mode"},  # places outside are refused when the model runs, whatever they would give
    "scatter": {"update_jaxpr"},
    "scatter-add": {"update_jaxpr"},
    "scatter-mul": {"update_jaxpr"},
    "scatter-min": {"update_jaxpr"},
    "scatter-max": {"update_jaxpr"},
    "device_put": {"devices", "srcs", "copy_semantics"},
    "sharding_constraint": {"layout", "context_mesh", "unconstrained_dims"},
}
"""By primitive what its name says already, and where its result lies."""


def refuse_unread(e: Equation) -> None:
    """Raises `CannotMap` for a parameter that the translator has not asked for and that says something: it would be
    accepted and ignored."""
    known = e.params.read | SAYS_NOTHING | SAYS_NOTHING_HERE.get(e.kind, set())
    for name in sorted(set(e.params) - known):
        value = dict.get(e.params, name)
        if value is not None and value is not False and value != ():
            raise CannotMap(f"parameter {name}={value!r} of {e.kind} has no form here")


Translator = Callable[[Equation], Any]
TABLE: dict[str, Translator] = {}
UNARY = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "erfc": "erfc",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "floor": "floor",
    "is_finite": "isfinite",
    "log": "log",
    "log1p": "log1p",
    "logistic": "sigmoid",
    "neg": "neg",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "tan": "tan",
    "tanh": "tanh",
    "bessel_i0e": "special_i0e",
    "bessel_i1e": "special_i1e",
    "digamma": "digamma",
    "erf_inv": "erfinv",
    "lgamma": "lgamma",
}
BINARY = {
    "add": "add",
    "add_any": "add",
    "atan2": "atan2",
    "eq": "eq",
    "ge": "ge",
    "gt": "gt",
    "igamma": "igamma",
    "igammac": "igammac",
    "le": "le",
    "le_to": "le",
    "lt": "lt",
    "lt_to": "lt",
    "max": "maximum",
    "min": "minimum",
    "mul": "mul",
    "ne": "ne",
    "nextafter": "nextafter",
    "pow": "pow",
    "rem": "fmod",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "sub": "sub",
    "zeta": "special_zeta",
}
SAME = (
    "stop_gradient",
    "copy",
    "copy_p",
    "optimization_barrier",
    "device_put",
    "sharding_constraint",
)


def translates(*names: str) -> Callable[[Translator], Translator]:
    def register(function: Translator) -> Translator:
        for name in names:
            TABLE[name] = function
        return function

    return register


def _one(kind: str, name: str) -> None:
    TABLE[kind] = lambda e: getattr(e.aten, name)(e.x())


def _two(kind: str, name: str) -> None:
    TABLE[kind] = lambda e: getattr(e.aten, name)(e.x(0), e.x(1))


for _kind, _name in UNARY.items():
    _one(_kind, _name)
for _kind, _name in BINARY.items():
    _two(_kind, _name)


@translates(*SAME)
def same(e: Equation) -> Any:
    return list(e.operands)


@translates("max")
def maximum(e: Equation) -> Any:
    for k in (0, 1):  # softmax compares with minus infinity, which changes nothing
        operand = e.x(k)
        if isinstance(operand, FoldedValue) and bool(torch.isneginf(operand.tensor.float()).all()):
            return e.x(1 - k)
    return e.aten.maximum(e.x(0), e.x(1))


@translates("div")
def div(e: Equation) -> Any:
    if e.dtype().is_floating_point:
        shares, total = e.x(0), e.x(1)
        if isinstance(shares, AtenValue) and isinstance(total, AtenValue):
            found = softmax_of(e.calls.graph, shares.name, total.name)
            if found is not None:
                return e.aten.softmax(AtenValue(found[0], shares.dtype), found[1])
        return e.aten.div(shares, total)
    return e.aten.div(e.x(0), e.x(1), rounding_mode="trunc")


@translates("round")
def round_(e: Equation) -> Any:
    """Ties to even, or away from zero."""
    x = e.x()
    if int(e.params["rounding_method"]) == 1:
        return e.aten.round(x)
    whole = e.aten.floor(e.aten.abs(x))
    over = e.aten._to_copy(e.aten.ge(e.aten.sub(e.aten.abs(x), whole), 0.5), dtype=e.dtype())  # x + 0.5 would round
    return e.aten.mul(e.aten.sign(x), e.aten.add(whole, over))


WIDTHS = {(8, 23): torch.float32, (8, 7): torch.bfloat16, (5, 10): torch.float16}


@translates("reduce_precision")
def reduce_precision(e: Equation) -> Any:
    wanted = int(e.params["exponent_bits"]), int(e.params["mantissa_bits"])
    narrow = WIDTHS.get(wanted)
    if narrow is None:
        raise CannotMap(f"it rounds to (exponent, mantissa) bits {wanted}; those of {list(WIDTHS)} have forms")
    x = e.x()
    if torch.finfo(narrow).bits >= torch.finfo(e.dtype()).bits:
        return x
    if isinstance(x, FoldedValue):
        return e.calls.constant(x.tensor.to(narrow).to(e.dtype()))
    return AtenValue(e.calls.emit.op(RoundTo(str(narrow).removeprefix("torch.")), x.name), x.dtype)


@translates("sign")
def sign(e: Equation) -> Any:
    return e.calls.sign(e.x())


@translates("shift_right_logical")
def shift_right_logical(e: Equation) -> Any:
    """The bits of a number with a sign, moved as one without."""
    x, bits = e.x(), 8 * e.dtype().itemsize
    if not e.dtype().is_signed:
        return e.aten.bitwise_right_shift(x, e.x(1))
    if bits == 64:
        raise CannotMap("a shift of 64-bit numbers that brings zeros in; of 32 bits it has a form")
    plain = e.aten.bitwise_and(e.aten._to_copy(x, dtype=torch.int64), 2**bits - 1)
    return e.aten._to_copy(e.aten.bitwise_right_shift(plain, e.x(1)), dtype=e.dtype())


@translates("cbrt")
def cbrt(e: Equation) -> Any:
    return e.aten.mul(e.aten.sign(e.x()), e.aten.pow(e.aten.abs(e.x()), 1 / 3))


@translates("integer_pow")
def integer_pow(e: Equation) -> Any:
    return e.aten.pow(e.x(), int(e.params["y"]))


@translates("and", "or", "xor", "not")
def logic(e: Equation) -> Any:
    truth = e.dtype() == torch.bool
    name = ("logical_" if truth else "bitwise_") + e.kind
    return getattr(e.aten, name)(*e.operands)


@translates("select_n")
def select_n(e: Equation) -> Any:
    which, cases = e.x(0), e.operands[1:]
    if e.dtype() == torch.bool:
        if isinstance(which, FoldedValue) and which.tensor.numel() == 1:  # the other case may be NaN, as in jnp.var
            return cases[int(which.tensor)]
        if guards_maximum(e.calls.graph, which, cases):  # the device itself has this form of the test
            return e.aten.where(e.aten.eq(e.aten.abs(cases[1]), math.inf), cases[0], cases[1])
        return e.aten.where(which, cases[1], cases[0])
    y = cases[-1]
    for k in range(len(cases) - 2, -1, -1):
        y = e.aten.where(e.aten.le(which, k), cases[k], y)
    return y


@translates("add")
def add(e: Equation) -> Any:
    """Of a `logsumexp` it is the maximum itself that is added, not the 0 that stands for an infinite one: the sum is
    the same, and needs no logarithm of 0 or of infinity (see `aten.logsumexp`)."""
    graph = e.calls.graph
    for total, centre in ((e.x(0), e.x(1)), (e.x(1), e.x(0))):
        if (
            isinstance(total, AtenValue)
            and isinstance(centre, AtenValue)
            and is_centred(graph, total.name, centre.name)
        ):
            return e.aten.add(total, AtenValue(graph[centre.name].sources[2], centre.dtype))
    return e.aten.add(e.x(0), e.x(1))


@translates("clamp")
def clamp(e: Equation) -> Any:
    return e.aten.minimum(e.aten.maximum(e.x(1), e.x(0)), e.x(2))


@translates("convert_element_type")
def convert(e: Equation) -> Any:
    wanted = e.params["new_dtype"]
    narrow = str(wanted) == "bfloat16"
    dtype = torch.bfloat16 if narrow else torch.from_numpy(np.zeros(0, plain_type(wanted))).dtype
    if narrow and isinstance(x := e.x(), FoldedValue):
        return e.calls.constant(x.tensor.to(torch.bfloat16).float())
    return e.x() if dtype == e.dtype() else e.aten._to_copy(e.x(), dtype=dtype)


def plain_type(dtype: Any) -> Any:
    """A NumPy type that torch computes with; bfloat16 is computed as float32."""
    name = str(dtype)
    if name.startswith("key<"):
        raise CannotMap(RANDOM)
    return {"bfloat16": np.float32, "uint32": np.int64, "uint16": np.int32, "uint64": np.int64}.get(name, name)


@translates("iota")
def iota(e: Equation) -> Any:
    shape, dim = e.params["shape"], e.params["dimension"]
    places = [1] * len(shape)
    places[dim] = shape[dim]
    values = np.broadcast_to(np.arange(shape[dim]).reshape(places), shape).astype(plain_type(e.params["dtype"]))
    return e.calls.constant(values.copy())


# -- moving data ---------------------------------------------------------------------------------------------
@translates("reshape", "squeeze", "expand_dims")
def reshape(e: Equation) -> Any:
    shape = [int(n) for n in e.out[0].shape]
    return e.x() if list(e.shape()) == shape else e.aten.reshape(e.x(), shape)


@translates("broadcast_in_dim")
def broadcast_in_dim(e: Equation) -> Any:
    shape, dims = list(e.params["shape"]), e.params["broadcast_dimensions"]
    places = [1] * len(shape)
    for d, n in zip(dims, e.shape(), strict=True):
        places[d] = n
    x = e.x() if list(e.shape()) == places else e.aten.reshape(e.x(), places)
    return x if places == shape else e.aten.expand(x, shape)


@translates("transpose")
def transpose(e: Equation) -> Any:
    return e.aten.permute(e.x(), list(e.params["permutation"]))


@translates("concatenate")
def concatenate(e: Equation) -> Any:
    return e.aten.cat(e.operands, e.params["dimension"])


@translates("stack")
def stack(e: Equation) -> Any:
    return e.aten.stack(e.operands, e.params["axis"])


@translates("tile")
def tile(e: Equation) -> Any:
    return e.aten.repeat(e.x(), [int(n) for n in e.params["reps"]])


@translates("platform_index")
def platform_index(e: Equation) -> Any:
    """Which of the forms for several platforms is meant: that for all others, or the CPU's."""
    names = [name for group in e.params["platforms"] for name in (group or (None,))]
    for wanted in (None, "cpu"):
        for k, group in enumerate(e.params["platforms"]):
            if wanted in (group or (None,)):
                return e.calls.constant(np.int32(k))
    raise CannotMap(f"a form for {', '.join(map(str, names))} only")


@translates("random_wrap", "random_seed", "random_bits", "random_unwrap", "threefry2x32")
def random(e: Equation) -> Any:
    raise CannotMap(RANDOM)


@translates("split")
def split(e: Equation) -> Any:
    return e.aten.split_with_sizes(e.x(), list(e.params["sizes"]), e.params["axis"])


@translates("rev")
def rev(e: Equation) -> Any:
    return e.aten.flip(e.x(), list(e.params["dimensions"]))


@translates("slice")
def slice_(e: Equation) -> Any:
    x = e.x()
    steps = e.params["strides"] or [1] * len(e.shape())
    for d, (start, stop, step) in enumerate(
        zip(e.params["start_indices"], e.params["limit_indices"], steps, strict=True)
    ):
        if (start, stop, step) != (0, e.shape()[d], 1):
            x = e.aten.slice(x, d, int(start), int(stop), int(step))
    return x


@translates("dynamic_slice")
def dynamic_slice(e: Equation) -> Any:
    x = e.x()
    for d, size in enumerate(e.params["slice_sizes"]):
        start = int(e.constant_operand(d + 1, "starts"))
        start = min(max(start, 0), e.shape()[d] - size)
        x = e.aten.slice(x, d, start, start + size)
    return x


@translates("pad")
def pad(e: Equation) -> Any:
    x, value = e.x(), e.constant_operand(1, "padding values").item()
    for d, (_, _, inner) in enumerate(e.params["padding_config"]):
        x = spread(e, x, d, inner + 1, value)
    flat = [int(p) for low, high, _ in reversed(list(e.params["padding_config"])) for p in (low, high)]
    return e.aten.constant_pad_nd(x, flat, value) if any(flat) else x


def spread(e: Equation, x: Tensor, dim: int, step: int, value: float = 0.0) -> Tensor:
    """x with step - 1 values between neighbours along dim."""
    if step == 1:
        return x
    shape = list(e.calls.shape(x))
    column = e.aten.reshape(x, [*shape[: dim + 1], 1, *shape[dim + 1 :]])
    wide = e.aten.constant_pad_nd(column, [0] * (2 * (len(shape) - dim - 1)) + [0, step - 1], value)
    merged = e.aten.reshape(wide, [*shape[:dim], shape[dim] * step, *shape[dim + 1 :]])
    return e.aten.slice(merged, dim, 0, (shape[dim] - 1) * step + 1)  # type: ignore[no-any-return]


# -- products, reductions ------------------------------------------------------------------------------------
@translates("dot_general")
def dot_general(e: Equation) -> Any:
    """Operands as (batch, rows, inner) and (batch, inner, columns)."""
    (contract_a, contract_b), (batch_a, batch_b) = e.params["dimension_numbers"]
    a, b = e.shape(0), e.shape(1)
    free_a = [d for d in range(len(a)) if d not in (*contract_a, *batch_a)]
    free_b = [d for d in range(len(b)) if d not in (*contract_b, *batch_b)]
    lead = [a[d] for d in batch_a]
    rows, columns = math.prod(a[d] for d in free_a), math.prod(b[d] for d in free_b)
    inner = math.prod(a[d] for d in contract_a)
    left = e.aten.reshape(_permute(e, e.x(0), [*batch_a, *free_a, *contract_a]), [*lead, rows, inner])
    right = e.aten.reshape(_permute(e, e.x(1), [*batch_b, *contract_b, *free_b]), [*lead, inner, columns])
    y = e.aten.matmul(left, right)
    return e.aten.reshape(y, [*lead, *(a[d] for d in free_a), *(b[d] for d in free_b)])


def _permute(e: Equation, x: Tensor, order: list[int]) -> Tensor:
    return x if order == list(range(len(order))) else e.aten.permute(x, order)


@translates("conv_general_dilated")
def convolution(e: Equation) -> Any:
    p = e.params
    if p["batch_group_count"] != 1:
        raise CannotMap("a convolution with batch groups")
    numbers = p["dimension_numbers"]
    x = _permute(e, e.x(0), list(numbers.lhs_spec))
    w = _permute(e, e.x(1), list(numbers.rhs_spec))
    rank = len(e.shape(0)) - 2
    for d, step in enumerate(p["lhs_dilation"]):
        x = spread(e, x, d + 2, int(step))
    before, after = ([int(pair[k]) for pair in p["padding"]] for k in (0, 1))
    if before != after or min(before, default=0) < 0:
        flat = [v for pair in zip(reversed(before), reversed(after), strict=True) for v in pair]
        x, before = e.aten.constant_pad_nd(x, flat, 0.0), [0] * rank
    stride, dilation = [int(n) for n in p["window_strides"]], [int(n) for n in p["rhs_dilation"]]
    y = e.aten.convolution(x, w, None, stride, before, dilation, False, [0] * rank, int(p["feature_group_count"]))
    out = list(numbers.out_spec)
    return _permute(e, y, [out.index(d) for d in range(len(out))])


REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "amax", "reduce_min": "amin"}


@translates("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod")
def reduce(e: Equation) -> Any:
    axes = [int(a) for a in e.params["axes"]]
    if not axes:
        return e.x()
    if e.kind in REDUCTIONS:
        y = getattr(e.aten, REDUCTIONS[e.kind])(e.x(), axes, False)
        return y if e.calls.dtype(y) == e.dtype() else e.aten._to_copy(y, dtype=e.dtype())
    x = e.x()
    for axis in sorted(axes, reverse=True):
        if e.kind == "reduce_prod":
            x = e.aten.prod(x, axis)
        else:
            x = (e.aten.all if e.kind == "reduce_and" else e.aten.any)(x, axis)
    return x


@translates("argmax", "argmin")
def argmax(e: Equation) -> Any:
    (axis,) = e.params["axes"]
    return e.aten.argmax(e.x() if e.kind == "argmax" else e.aten.neg(e.x()), axis)


RUNNING = {
    "cumsum": "cumsum",
    "cumprod": "cumprod",
    "cummax": "cummax",
    "cummin": "cummin",
    "cumlogsumexp": "logcumsumexp",
}


@translates(*RUNNING)
def running(e: Equation) -> Any:
    """Sums, products, extremes of all values up to each one."""
    axis, x = e.params["axis"], e.x()
    if e.params["reverse"]:
        x = e.aten.flip(x, [axis])
    y = getattr(e.aten, RUNNING[e.kind])(x, axis)
    y = y[0] if isinstance(y, tuple | list) else y
    return e.aten.flip(y, [axis]) if e.params["reverse"] else y


@translates("psum")
def psum(e: Equation) -> Any:
    """A sum over a dim that `vmap` has named; over devices there is none."""
    axes = e.params["axes"]
    if not all(isinstance(a, int) for a in axes):
        raise CannotMap(f"a sum over the devices of {axes}; a graph is placed on one grid")
    return [e.aten.sum(x, [int(a) for a in axes], False) for x in e.operands]


@translates("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def reduce_window(e: Equation) -> Any:
    """Pooling: over the two dims that move, seen as an image; a sum is a mean times the window, a minimum is less the
    maximum of what has the other sign."""
    window, stride = list(e.params["window_dimensions"]), list(e.params["window_strides"])
    pads = [tuple(map(int, pair)) for pair in e.params["padding"]]
    if any(n != 1 for n in (*e.params["base_dilation"], *e.params["window_dilation"])):
        raise CannotMap("a window with dilation")
    moving = [d for d, n in enumerate(window) if n != 1 or stride[d] != 1]
    rank = len(window)
    while len(moving) < 2 and len(moving) < rank:
        moving = sorted({*moving, next(d for d in range(rank - 1, -1, -1) if d not in moving)})
    if len(moving) != 2 or any(pads[d] != (0, 0) for d in range(rank) if d not in moving):
        raise CannotMap("a window over other than two dims")
    rest = [d for d in range(rank) if d not in moving]
    order = [*rest, *moving]
    shape = e.shape()
    lead = math.prod(shape[d] for d in rest)
    x = e.aten.reshape(_permute(e, e.x(), order), [1, lead, *(shape[d] for d in moving)])
    extreme, least = e.kind != "reduce_window_sum", e.kind == "reduce_window_min"
    flat = [p for d in reversed(moving) for p in pads[d]]
    kernel, steps = [window[d] for d in moving], [stride[d] for d in moving]
    both = [pads[d][0] for d in moving]
    if not extreme or any(pads[d][0] != pads[d][1] or 2 * pads[d][0] > window[d] for d in moving):
        x = e.aten.constant_pad_nd(x, flat, 0.0 if not extreme else math.inf if least else -math.inf)
        both = [0, 0]
    if extreme:
        y = e.aten.max_pool2d(e.aten.neg(x) if least else x, kernel, steps, both)
        y = e.aten.neg(y) if least else y
    else:
        y = e.aten.mul(e.aten.avg_pool2d(x, kernel, steps), float(math.prod(kernel)))
    out = e.out[0].shape
    split_up = e.aten.reshape(y, [*(out[d] for d in rest), *(out[d] for d in moving)])
    return _permute(e, split_up, [order.index(d) for d in range(rank)])
