"""Ops of the user's own: what they calculate, their gradient, and their form on the grid, as methods of one class."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tbuda_lab.core.errors import InputError
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.kinds.gradients import RULES, Backward
from tbuda_lab.popxl.kinds.table import KINDS, Attrs, Ground, Kind, NotOnGrid
from tbuda_lab.popxl.ops.utils import check_inputs, make
from tbuda_lab.popxl.tensor import Tensor, TensorSpec

HOST_REASON = "a custom op without lower()"


class CustomOp:
    """Base of ops of the user's own. A subclass is a frozen dataclass, its fields (numbers, strings, tuples of those)
    are the op's attributes; calling an instance adds the op to the current graph.

        @dataclasses.dataclass(frozen=True)
        class LeakyRelu(popxl.CustomOp):
            alpha: float = 0.01

            def evaluate(self, x):                    # NumPy arrays
                return np.where(x >= 0, x, self.alpha * x)

            def gradient(self, grads, inputs, outputs):   # PopXL tensors
                return [LeakyReluGrad(self.alpha)(grads[0], inputs[0])]

            def lower(self, grid, x):                 # names of values; core ops
                return grid.op(core_ops.LeakyRelu(self.alpha), x)

        y = LeakyRelu(0.02)(x)

    Without `lower` the op is a step of the host; without `gradient` none flows through it, and `autodiff` says so.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.kind = f"Custom.{cls.__module__}.{cls.__qualname__}"
        lowers = cls.lower is not CustomOp.lower
        KINDS[cls.kind] = Kind(
            cls.kind,
            numpy=lambda attrs, *arrays: _evaluated(cls, attrs, arrays),
            grid=(lambda g, attrs, *names: _lowered(cls, attrs, g, names)) if lowers else None,
            host_reason="" if lowers else HOST_REASON,
        )
        RULES.pop(cls.kind, None)  # of a class of this name that was written before
        if cls.gradient is not CustomOp.gradient:
            RULES[cls.kind] = lambda b: _gradients(cls, b)

    def infer(self, *inputs: TensorSpec) -> TensorSpec | Sequence[TensorSpec]:
        """Shape and type of the results; those of the first operand."""
        return inputs[0]

    def evaluate(self, *arrays: np.ndarray) -> Any:
        """The results of NumPy arrays, one array or a tuple: what the host does without `lower`, and of constants."""
        raise NotImplementedError(f"{type(self).__name__} has no evaluate()")

    def gradient(
        self, grads: Sequence[Tensor | None], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Sequence[Tensor | None]:
        """By operand its gradient, None for none, in ops of PopXL. grads: by result its gradient, None where nothing
        flows back; inputs, outputs: operands and results in the graph of gradients."""
        raise NotImplementedError

    def lower(self, grid: Ground, *names: str) -> str | tuple[str, ...]:
        """The names of the results in core ops that `grid` writes. Raises `NotImplementedError` with the reason where
        the grid has no form for these shapes: then the host does it."""
        raise NotImplementedError

    def __call__(self, *tensors: Tensor) -> Any:
        """The result, or a tuple of several. Raises `TypeError` for what is no tensor and for attributes that are no
        plain data."""
        check_inputs({f"input {k}": t for k, t in enumerate(tensors)})
        attrs = _attributes(self)
        results = _specs(self, [t.spec for t in tensors])
        inputs = {f"input {k}": t for k, t in enumerate(tensors)}
        op = make(
            self.kind,
            inputs,
            [(s.shape, s.dtype) for s in results],
            attrs,
            name=f"{type(self).__name__[:1].lower()}{type(self).__name__[1:]}_out",
        )
        return op.outputs[0] if len(op.outputs) == 1 else tuple(op.outputs)


def _attributes(op: CustomOp) -> Attrs:
    if not dataclasses.is_dataclass(op):
        raise TypeError(f"{type(op).__name__} is no dataclass: write @dataclasses.dataclass(frozen=True) above it")
    attrs: Attrs = dataclasses.asdict(op)
    try:
        json.dumps(attrs)
    except (TypeError, ValueError) as error:
        plain = "numbers, strings, or tuples of those"
        raise TypeError(f"attributes of {type(op).__name__} are {plain}: {error}") from None
    return attrs


def _instance(cls: type[CustomOp], attrs: Attrs) -> CustomOp:
    """The op of its attributes; lists of the host program's JSON become tuples."""
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()})


def _specs(op: CustomOp, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    made = op.infer(*inputs)
    return [made] if isinstance(made, TensorSpec) else list(made)


def _evaluated(cls: type[CustomOp], attrs: Attrs, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    op = _instance(cls, attrs)
    made = op.evaluate(*arrays)
    results = tuple(np.asarray(r) for r in (made if isinstance(made, tuple) else (made,)))
    wanted = [s.shape for s in _specs(op, [TensorSpec(a.shape, dtype.as_dtype(a.dtype)) for a in arrays])]
    if [r.shape for r in results] != wanted:
        given = ", ".join(str(r.shape) for r in results)
        raise InputError(
            f"{cls.__name__}.evaluate gave results of shape {given}; infer said {', '.join(map(str, wanted))}"
        )
    return results


def _lowered(cls: type[CustomOp], attrs: Attrs, g: Ground, names: Sequence[str]) -> str | tuple[str, ...]:
    try:
        return _instance(cls, attrs).lower(g, *names)
    except NotImplementedError as error:
        raise NotOnGrid(str(error) or HOST_REASON) from None


def _gradients(cls: type[CustomOp], b: Backward) -> Sequence[Tensor | None]:
    inputs = [b.x(k) for k in range(len(b.op.inputs))]
    outputs = [b.y(k) for k in range(len(b.op.outputs))]
    made = list(_instance(cls, b.attrs).gradient(b.grads, inputs, outputs))
    if len(made) != len(inputs):
        raise ValueError(f"{cls.__name__}.gradient gave {len(made)} gradients for {len(inputs)} operands")
    return made


__all__ = ["CustomOp"]
