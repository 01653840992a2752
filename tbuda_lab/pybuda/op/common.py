"""How the functions of `op` are called: an optional module first (an older spelling), then the op's name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tbuda_lab.core.errors import not_supported
from tbuda_lab.core.frontend.pybuda import Module, SomeTensor, Tensor, apply
from tbuda_lab.core.frontend.pybuda.tensor import Operand
from tbuda_lab.core.ops import NdOp

F = TypeVar("F", bound=Callable[..., Any])


def operation(function: F) -> F:
    """Accept `op(self, "name", ...)` as well as `op("name", ...)`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(args[1:] if args and isinstance(args[0], Module) else args), **kwargs)

    return call  # type: ignore[return-value]


def unary(op: NdOp, name: str, doc: str) -> Callable[..., Tensor]:
    """A function `<name>(name, operandA)` for an op without attributes."""

    def function(name: str, operandA: Operand) -> Tensor:
        return apply(name, op, operandA)

    return _with_name(function, name, doc)


def binary(op: NdOp, name: str, doc: str) -> Callable[..., Tensor]:
    """A function `<name>(name, operandA, operandB)` for an op without attributes."""

    def function(name: str, operandA: Operand, operandB: Operand) -> Tensor:
        return apply(name, op, operandA, operandB)

    return _with_name(function, name, doc)


def refusing(name: str, instead: str = "") -> Callable[..., Any]:
    """A function of PyBuda's that raises `NotSupported`."""

    def function(*_: Any, **__: Any) -> Any:
        raise not_supported(f"pybuda.op.{name}", instead)

    return _with_name(function, name, f"Not supported{f'; {instead}' if instead else ''}.")


def _with_name(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return operation(function)


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Shape of an operand; a number counts as (1,)."""
    return tuple(tensor.shape) if hasattr(tensor, "shape") else (1,)


__all__ = ["Operand", "SomeTensor", "Tensor", "apply", "binary", "operation", "refusing", "shape_of", "unary"]
