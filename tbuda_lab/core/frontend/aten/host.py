"""aten ops that the device has no form for: calls that the host makes."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import (
    AtenValue,
    Call,
    CannotMap,
    Folded,
    Mapping,
    Result,
    known_shape,
    lookup,
    maps,
)
from tbuda_lab.core.ops.hostcall import FALLBACK_CALLS, INTEGER_CALLS, HostCall

MAPPED_ELSEWHERE = {"bitwise_and", "bitwise_not", "bitwise_or", "div", "gather", "index", "remainder", "scatter_add"}


def host_call(c: Call) -> Result:
    """The call as it is, with its tensors as operands."""
    operands: list[str] = []

    def plain(value: Any) -> Any:
        if isinstance(value, AtenValue | Folded):
            operands.append(c.node_of(value))
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
    if any(known_shape(r) is None for r in results):
        raise CannotMap("the shape of its result depends on the values of a tensor; shapes must be known")
    results_of = tuple(
        c.emit.op(HostCall(name, arguments, keywords, k), *operands, name=c.emit.name_for(name.strip("_")))
        for k in range(len(results))
    )
    return results_of if isinstance(c.out, tuple | list) else results_of[0]


def mapping_of(target: object) -> Mapping | None:
    """The mapping of an op overload; for one that only the host can make, a call of torch."""
    mapping = lookup(target)
    if mapping is None and isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return host_call if target._schema.name.split("::")[-1] in FALLBACK_CALLS else None
    return mapping


for _name in sorted(INTEGER_CALLS - MAPPED_ELSEWHERE):
    maps(f"aten.{_name}")(host_call)

__all__ = ["host_call", "mapping_of"]
