"""One ONNX node while it is read, the values around it, and the table of translators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, FoldedValue, ReadArguments
from tbuda_lab.core.frontend.calls import Aten, Calls, Tensor
from tbuda_lab.core.graph import NodeKind, Shape

if TYPE_CHECKING:
    import onnx

Translator = Callable[["OnnxNode"], Any]
TABLE: dict[str, Translator] = {}
"""Translators by op type. A translator returns one value, or a tuple with one for each output."""


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register a translator for these op types of the default domain."""

    def register(function: Translator) -> Translator:
        for name in names:
            if name in TABLE:
                raise ValueError(f"{name} has two translators")
            TABLE[name] = function
        return function

    return register


@dataclasses.dataclass
class Scope:
    """Values by name in one graph or function body; `outer` is the graph around a branch or loop body."""

    opset: int
    values: dict[str, Any]
    outer: Scope | None = None
    prefix: str = ""
    depth: int = 0
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    """By value the element type that the model gives it, where torch's says less (`read.torch_of`)."""

    def kind_of(self, name: str) -> int:
        """The element type that is known of a value; 0 for none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.kinds:
                return scope.kinds[name]
            scope = scope.outer
        return 0

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise ModelError(f"the model reads {name!r} before anything computes it")


class OnnxNode:
    """Operands and attributes of one node. `aten` writes calls; `opset` is the model's version of the op set."""

    def __init__(
        self, calls: Calls, proto: onnx.NodeProto, operands: list[Any], attributes: dict[str, Any], scope: Scope
    ) -> None:
        self.calls, self.proto, self.operands, self.scope = calls, proto, operands, scope
        self.attributes = ReadArguments(attributes)
        self.aten: Aten = calls.aten
        self.op_type: str = proto.op_type
        self.opset: int = scope.opset

    # -- operands --------------------------------------------------------------------------------------------
    def x(self, position: int = 0) -> Tensor:
        """An operand that must be there."""
        value = self.opt(position)
        if value is None:
            raise CannotMap(f"operand {position} is missing")
        return value

    def opt(self, position: int) -> Tensor | None:
        """An operand that may be left out."""
        if position >= len(self.operands):
            return None
        value = self.operands[position]
        if value is not None and not isinstance(value, AtenValue | FoldedValue):
            raise CannotMap(f"operand {position} is a {type(value).__name__}, not a tensor")
        return value

    def xs(self) -> list[Tensor]:
        return [self.x(k) for k in range(len(self.operands))]

    def shape(self, position: int = 0) -> Shape:
        return self.calls.shape(self.x(position))

    def rank(self, position: int = 0) -> int:
        return len(self.shape(position))

    def dtype(self, position: int = 0) -> torch.dtype:
        return self.calls.dtype(self.x(position))

    def tensor(self, position: int, what: str) -> torch.Tensor:
        """An operand that must be known when the model is read."""
        value = self.x(position)
        if isinstance(value, FoldedValue):
            return value.tensor
        stored = self.calls.graph[value.name]
        if stored.kind is NodeKind.PARAMETER and stored.value is not None:
            return torch.from_numpy(stored.value)
        decided = self.calls.decided(value)
        if decided is None:
            raise CannotMap(
                f"its {what} depends on an input of the model; it must be a constant, or be decided by "
                "sample inputs of whole numbers"
            )
        return decided

    def ints(self, position: int, what: str) -> list[int]:
        return [int(n) for n in self.tensor(position, what).reshape(-1).tolist()]

    def scalar(self, position: int, what: str, default: Any = None) -> Any:
        """A known one-element operand as a number; `default` when it is left out."""
        return default if self.opt(position) is None else self.tensor(position, what).reshape(-1)[0].item()

    # -- attributes ------------------------------------------------------------------------------------------
    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def ints_or_attr(self, position: int, name: str, default: list[int] | None = None) -> list[int] | None:
        """Integers that are an operand since some version of the op set and were an attribute before."""
        if self.opt(position) is not None:
            return self.ints(position, name)
        value = self.attr(name, default)
        return None if value is None else [int(n) for n in (value if isinstance(value, list | tuple) else [value])]

    # -- writing ---------------------------------------------------------------------------------------------
    def constant(self, value: Any) -> FoldedValue:
        return self.calls.constant(value)

    def trace(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.calls.trace(function, *args)

    def reshape(self, x: Tensor, shape: list[int] | Shape) -> Tensor:
        shape = [int(n) for n in shape]
        return x if list(self.calls.shape(x)) == shape else self.aten.reshape(x, shape)
