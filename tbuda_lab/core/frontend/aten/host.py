"""aten ops that the device has no form for: calls that the host makes."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import (
    VALUES_DECIDE,
    AtenValue,
    Call,
    CannotMap,
    FoldedValue,
    Mapping,
    Result,
    known_shape,
    lookup,
    maps,
)
from tbuda_lab.core.ops import Equal, Matmul, Multiply, ReduceSum
from tbuda_lab.core.ops.host import COMPLEX_CALLS, FALLBACK_CALLS, HOST_FORMS, INTEGER_CALLS, HostCall

MAPPED_ELSEWHERE = {
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "div",
    "gather",
    "index",
    "remainder",
    "scatter_add",
}
OPERATORS = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
}
"""By aten's name of an operator of Python, the call that it is."""


def host_call(c: Call) -> Result:
    """The call as it is, with its tensors as operands. Complex numbers have a last dim of 2 in the graph."""
    operands: list[str] = []
    complex_operands: list[int] = []
    dtypes: list[str] = []

    def plain(value: Any) -> Any:
        if isinstance(value, AtenValue | FoldedValue):
            if _dtype(value).is_complex:
                complex_operands.append(len(operands))
            dtypes.append(_kept_type(_dtype(value)))
            operands.append(c.node_of(_parts(value)))
            return f"${len(operands) - 1}"
        if isinstance(value, list | tuple):
            return tuple(plain(v) for v in value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise CannotMap(f"an argument of type {type(value).__name__}")

    schema = c.target._schema
    arguments = tuple(plain(c.arguments[a.name]) for a in schema.arguments if not a.kwarg_only)
    keywords = tuple((a.name, plain(c.arguments[a.name])) for a in schema.arguments if a.kwarg_only)
    results = c.out if isinstance(c.out, tuple | list) else (c.out,)
    name = schema.name.split("::")[-1]
    name = OPERATORS.get(name, name)
    if any(known_shape(r) is None for r in results):
        raise CannotMap(VALUES_DECIDE)
    results_of = tuple(
        c.emit.op(
            HostCall(name, arguments, keywords, k, tuple(complex_operands), tuple(dtypes) if any(dtypes) else ()),
            *operands,
            name=c.emit.name_for(name.strip("_")),
        )
        for k in range(len(results))
    )
    return results_of if isinstance(c.out, tuple | list) else results_of[0]


host_call.reads_all = True  # type: ignore[attr-defined]


def has_host_form(c: Call) -> bool:
    return c.target._schema.name.split("::")[-1] in HOST_FORMS


def host_instead(c: Call, count: int) -> Result:
    """The call as the host makes it, instead of what its mapping wrote behind the first `count` nodes."""
    c.emit.take_back(count)
    return host_call(c)


def _kept_type(dtype: torch.dtype) -> str:
    """The name of a type that a call has to see as it is: all but the plain floats, which an evaluation may widen."""
    plain = dtype.is_complex or dtype in (torch.float32, torch.float64)
    return "" if plain else str(dtype).removeprefix("torch.")


def _dtype(value: AtenValue | FoldedValue) -> torch.dtype:
    return value.dtype if isinstance(value, AtenValue) else value.tensor.dtype


def _parts(value: AtenValue | FoldedValue) -> AtenValue | FoldedValue:
    """Real and imaginary parts of a complex constant as its last dim; other values as they are."""
    if isinstance(value, FoldedValue) and value.tensor.is_complex():
        return FoldedValue(torch.view_as_real(value.tensor.resolve_conj()), value.label)
    return value


def complex_call(c: Call) -> Result:
    """A call that reads or makes complex numbers: the host makes it, but for what only names their parts."""
    name = c.target._schema.name.split("::")[-1]
    if name == "view_as_real":
        return c.node_of(_parts(c.arguments["self"]))
    if name in ("clone", "resolve_conj", "_to_copy"):
        x = c.node_of(_parts(c.arguments["self"]))
        if _dtype(c.arguments["self"]).is_complex and c.out.is_complex():
            return x
        if c.out.is_complex():  # with imaginary parts of 0
            return c.emit.op(HostCall("complex", ("$0", "$1")), x, c.op(Multiply(), x, c.constant(0.0)))
    if name not in COMPLEX_CALLS:
        raise CannotMap("of complex numbers the host makes Fourier transforms, sums, products and what moves them")
    return host_call(c)


def mapping_of(target: object) -> Mapping | None:
    """The mapping of an op overload; for one that only the host can make, a call of torch."""
    mapping = lookup(target)
    if mapping is None and isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return host_call if target._schema.name.split("::")[-1] in FALLBACK_CALLS else None
    return mapping


@maps("transformers.grouped_mm_fallback")
def grouped_matmul(c: Call) -> str:
    """Rows in groups, each times its own matrix (experts of transformers): every row times all matrices, and of these
    the product with its group's. The host finds the group: the number of ends (`offs`) that a row does not lie before;
    rows behind the last end are 0."""
    x, weights, ends = c.x("input"), c.x("weight"), c.x("offs")
    rows, groups = c.shape(x)[0], c.shape(weights)[0]
    places = c.constant(torch.arange(rows))
    group = c.op(HostCall("searchsorted", ("$0", "$1"), (("right", True),)), ends, places)
    numbers = c.constant(torch.arange(groups).reshape(groups, 1, 1))
    chosen = c.op(Equal(), numbers, c.reshape(group, (1, rows, 1)))
    products = c.op(Matmul(), c.reshape(x, (1, *c.shape(x))), weights)
    return c.reshape(c.op(ReduceSum(-3), c.op(Multiply(), products, chosen)), c.out_shape)


for _name in ("__lshift__", "__rshift__"):
    maps(f"aten.{_name}")(host_call)
for _name in sorted(INTEGER_CALLS - MAPPED_ELSEWHERE):
    maps(f"aten.{_name}")(host_call)

__all__ = ["complex_call", "host_call", "mapping_of"]
