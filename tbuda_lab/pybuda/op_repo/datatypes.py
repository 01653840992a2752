"""Descriptions of ops as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

TensorShape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class OperatorParamNumber:
    """A number parameter: its type (float or int) and range."""

    name: str
    type: type
    min_value: int | None = None
    max_value: int | None = None


OperatorParam = OperatorParamNumber


@dataclasses.dataclass(frozen=True)
class OperandNumInt:
    """A fixed number of operands: a range of one."""

    value: int

    @property
    def operands_min(self) -> int:
        return self.value

    @property
    def operands_max(self) -> int:
        return self.value


@dataclasses.dataclass(frozen=True)
class OperandNumRange:
    """A range of operand counts, ends included."""

    operands_min: int
    operands_max: int


@dataclasses.dataclass
class ShapeCalculationContext:
    """What a shape rule needs: the op, how many operands, the wanted output shape; `rng_shape` draws sizes."""

    operator: OperatorDefinition
    input_num: int
    output_shape: TensorShape
    rng_shape: Any = None


@dataclasses.dataclass
class OperatorDefinition:
    """An op: short name, full name of the function or class, operand count, parameters of constructor and forward.

    calc_input_shapes: shapes of the operands for an output shape; default: all like the output.
    """

    name: str
    full_name: str
    input_num_range: OperandNumInt | OperandNumRange = dataclasses.field(default_factory=lambda: OperandNumInt(1))
    constructor_params: Sequence[OperatorParam] = ()
    forward_params: Sequence[OperatorParam] = ()
    instantiate: bool = False
    calc_input_shapes: Callable[[ShapeCalculationContext, Any], list[TensorShape]] | None = None
    operands: Sequence[str] = ()

    @property
    def input_num(self) -> int:
        """The number of operands (the smallest, where there is a range)."""
        return self.input_num_range.operands_min

    @property
    def is_operator(self) -> bool:
        return not self.instantiate

    @property
    def is_layer(self) -> bool:
        return self.instantiate


class OperatorRepository:
    """Ops by name."""

    def __init__(self, operators: Sequence[OperatorDefinition]) -> None:
        self.operators = list(operators)

    def get_by_name(self, name: str) -> OperatorDefinition:
        """The op of that name; raises `KeyError` listing the names."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(f"no operator {name!r}; there are {', '.join(o.name for o in self.operators)}")
