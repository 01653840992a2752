"""Calls of torch that only the host makes: what the device has no form for and integers or a fallback may need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tbuda_lab.core.graph import Shape, ShapeError, op
from tbuda_lab.core.ops.base import NdOp, not_on_device, truth

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Node
    from tbuda_lab.core.ops.builder import Builder

CALLS = frozenset({
    "acos", "argsort", "asin", "atan", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "ceil", "div", "floor", "fmod", "frac", "gather", "index", "index_put",
    "isinf", "isnan", "isfinite", "masked_scatter", "prod", "cumprod", "remainder", "round", "scatter", "scatter_add",
    "scatter_reduce", "searchsorted", "sort", "topk", "trunc",
})  # fmt: skip
"""aten ops that a graph may name; a graph read from text can call nothing else."""


@op("host_call")
class HostCall(NdOp):
    """Result number `result` of aten.<call>: operand k stands where `arguments` holds "$k", other arguments are plain.

    `keywords`: (name, value) pairs. Truth values come out as 0.0 and 1.0.
    """

    call: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    result: int = 0

    host = True

    def _run(self, operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if self.call not in CALLS:
            raise ShapeError(f"host_call knows no {self.call!r}")

        def filled(value: Any) -> Any:
            if isinstance(value, tuple):
                return [filled(v) for v in value]
            return operands[int(value[1:])] if isinstance(value, str) and value.startswith("$") else value

        function = getattr(torch.ops.aten, self.call)
        out = function(*map(filled, self.arguments), **{k: filled(v) for k, v in self.keywords})
        chosen: torch.Tensor = out[self.result] if isinstance(out, tuple | list) else out
        return chosen

    def infer(self, *operands: Shape) -> Shape:
        """The shape torch gives; integer operands are tried where floats are refused (indices)."""
        kinds = (torch.float32, torch.int64)
        for first in kinds:
            for rest in kinds:
                try:
                    examples = [torch.zeros(s, dtype=rest if k else first) for k, s in enumerate(operands)]
                    return tuple(self._run(tuple(examples)).shape)
                except (RuntimeError, IndexError, TypeError) as error:
                    text = str(error).split("\n")[0]
        raise ShapeError(f"{self.call} of {', '.join(map(str, operands))}: {text}")

    def evaluate(self, *operands: torch.Tensor) -> torch.Tensor:
        y = self._run(operands)
        return truth(y, operands[0]) if y.dtype == torch.bool else y

    def canonicalise(self, b: Builder, node: Node, *operands: str) -> str:
        raise not_on_device(
            node,
            f"the device has no {self.call}; it works on integers that inputs alone decide, or on the host "
            "(CPU fallback)",
        )
