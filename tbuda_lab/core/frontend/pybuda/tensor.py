"""Tensor and Parameter of the PyBuda API: a shape, and a value, or a place in the graph being traced.

An op on them (`apply`) is recorded where a trace is active, and computed at once elsewhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.formats import DataFormat, parse_format
from tbuda_lab.core.frontend.emitter import as_array
from tbuda_lab.core.frontend.pybuda.tracer import Tracer, active
from tbuda_lab.core.graph import NodeKind, ShapeError
from tbuda_lab.core.ops import Add, Divide, Matmul, Multiply, NdOp, Subtract

TORCH_FORMATS: dict[torch.dtype, DataFormat] = {
    torch.float32: parse_format("Float32"),
    torch.float16: parse_format("Float16"),
    torch.bfloat16: parse_format("Float16_b"),
    torch.int8: parse_format("Int8"),
    torch.int32: parse_format("Int32"),
}


class TensorShape(tuple[int, ...]):
    """A shape that compares and prints like a tuple. `w`, `z`, `r`, `c` are its last four sizes, 1 where it has fewer;
    `rt` and `ct` are rows and columns in tiles."""

    def get_pytorch_shape(self) -> tuple[int, ...]:
        return tuple(self)

    def _from_end(self, place: int) -> int:
        return self[-place] if len(self) >= place else 1

    @property
    def c(self) -> int:
        return self._from_end(1)

    @property
    def r(self) -> int:
        return self._from_end(2)

    @property
    def z(self) -> int:
        return self._from_end(3)

    @property
    def w(self) -> int:
        return self._from_end(4)

    @property
    def v(self) -> int:
        return self._from_end(5)

    @property
    def rt(self) -> int:
        return -(-self.r // 32)

    @property
    def ct(self) -> int:
        return -(-self.c // 32)

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(self)

    def volume(self) -> int:
        """Number of elements."""
        return math.prod(self)


class Tensor:
    """A tensor of a PyBuda program.

    Outside a trace it holds a torch value; ops on it compute at once. Inside the trace of a module's forward it may
    stand for a node of the graph (`node`), and ops on it add nodes.
    """

    leaf_name = "input_{port}_{consumer}"
    """What its node is called where it is a constant of a graph, by the op that reads it."""

    def __init__(
        self,
        shape: Sequence[int],
        value: torch.Tensor | None = None,
        *,
        node: str | None = None,
        constant: bool = False,
        dev_data_format: DataFormat | None = None,
        pt_data_format: torch.dtype = torch.float32,
    ) -> None:
        self._shape = TensorShape(int(n) for n in shape)
        self._value = value
        self.node = node
        self.constant = constant
        self.dev_data_format = dev_data_format
        self._pt_data_format = pt_data_format
        self.requires_grad = bool(value is not None and value.requires_grad)

    @classmethod
    def create_from_torch(
        cls, torch_tensor: torch.Tensor, constant: bool = False, dev_data_format: DataFormat | None = None
    ) -> Tensor:
        """A tensor that holds `torch_tensor`; a constant one becomes a CONSTANT of the graphs that read it."""
        if not isinstance(torch_tensor, torch.Tensor):
            raise ModelError(f"create_from_torch takes a torch.Tensor, not {type(torch_tensor).__name__}")
        return Tensor(
            torch_tensor.shape,
            torch_tensor,
            constant=constant,
            dev_data_format=dev_data_format,
            pt_data_format=torch_tensor.dtype,
        )

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def pt_data_format(self) -> torch.dtype:
        return self._pt_data_format

    @property
    def data_format(self) -> DataFormat:
        return self.dev_data_format or TORCH_FORMATS.get(self._pt_data_format, parse_format("Float32"))

    def has_value(self) -> bool:
        return self._value is not None

    def value(self) -> torch.Tensor:
        """The torch tensor. Raises `ModelError` while a trace runs: a traced tensor has no value yet."""
        if self._value is None:
            raise ModelError(
                "this tensor has no value: inside forward, tensors stand for data that comes when the model runs; "
                "choose with pybuda.op.Where instead of looking at values"
            )
        return self._value

    def to_pytorch(self) -> torch.Tensor:
        return self.value()

    def set_value(self, value: SomeTensor) -> None:
        self._value = to_torch(value)

    def detach(self) -> Tensor:
        return Tensor(self.shape, to_torch(self).detach(), constant=self.constant, dev_data_format=self.dev_data_format)

    def is_constant(self) -> bool:
        return self.constant

    def __bool__(self) -> bool:
        return (
            bool(self.value().all()) if self.shape == () or len(self.value().reshape(-1)) == 1 else bool(self.value())
        )

    def __add__(self, other: Operand) -> Tensor:
        return apply("", Add(), self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return apply("", Add(), other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return apply("", Subtract(), self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return apply("", Subtract(), other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return apply("", Multiply(), self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return apply("", Multiply(), other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return apply("", Divide(), self, other)

    def __matmul__(self, other: Operand) -> Tensor:
        return apply("", Matmul(), self, other)

    def __repr__(self) -> str:
        content = f" = {self._value!r}" if self._value is not None else f" of node {self.node!r}" if self.node else ""
        return f"pybuda.Tensor {tuple(self.shape)}{content}"


class Parameter(Tensor):
    """A weight: `Parameter(*dims)` or `Parameter(torch_tensor)`.

    Without a value it is filled when the model is compiled, from its name: standard normal / sqrt(size of dim -2),
    the same on every run. `version` counts changes, so that a device sees when its weights are stale.
    """

    def __init__(
        self,
        *args: Any,
        requires_grad: bool = True,
        name: str | None = None,
        dev_data_format: DataFormat | None = None,
    ) -> None:
        value: torch.Tensor | None = None
        if len(args) == 1 and isinstance(args[0], torch.Tensor | np.ndarray | Tensor):
            value = to_torch(args[0]).detach()
            shape: Sequence[int] = value.shape
        elif len(args) == 1 and isinstance(args[0], tuple | list | torch.Size):
            shape = args[0]
        else:
            shape = args
        if not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
            raise ModelError(f"a Parameter takes sizes or one tensor, not {args}")
        super().__init__(shape, value, dev_data_format=dev_data_format)
        self.requires_grad = requires_grad
        self._name = name or ""
        self.version = 0

    @classmethod
    def create_from_torch(  # type: ignore[override]
        cls,
        torch_tensor: torch.Tensor,
        requires_grad: bool = True,
        name: str | None = None,
        dev_data_format: DataFormat | None = None,
    ) -> Parameter:
        return Parameter(torch_tensor, requires_grad=requires_grad, name=name, dev_data_format=dev_data_format)

    def __bool__(self) -> bool:
        """True: `if weights:` asks whether there are any."""
        return True

    def value(self) -> torch.Tensor:
        """The torch tensor, or None, as in PyBuda, while it has no value: a compile fills it (`fill`)."""
        return self._value  # type: ignore[return-value]

    def get_name(self) -> str:
        return self._name

    def _set_auto_name(self, name: str) -> None:
        if not self._name:
            self._name = name

    def set_value(self, value: SomeTensor) -> None:
        tensor = to_torch(value).detach()
        if tuple(tensor.shape) != tuple(self.shape):
            raise ModelError(
                f"parameter {self._name!r} has shape {tuple(self.shape)}; got a value of {tuple(tensor.shape)}"
            )
        self._value = tensor
        self.version += 1

    def set_data_format(self, dev_data_format: DataFormat) -> None:
        self.dev_data_format = dev_data_format
        self.version += 1

    def fill(self) -> torch.Tensor:
        """The value; made from the name if none was ever given."""
        if self._value is None:
            generator = torch.Generator().manual_seed(zlib.crc32(self._name.encode()))
            fan_in = self.shape[-2] if len(self.shape) > 1 else self.shape[-1]
            self._value = torch.randn(tuple(self.shape), generator=generator) / max(fan_in, 1) ** 0.5
        return self._value


SomeTensor = torch.Tensor | np.ndarray | Tensor
Operand = Tensor | float | int


def to_torch(value: Any) -> torch.Tensor:
    """A torch tensor from a torch tensor, an array or a Tensor."""
    if isinstance(value, Parameter):
        return value.fill()
    if isinstance(value, Tensor):
        return value.value()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        return value
    raise ModelError(f"a tensor is needed, not a {type(value).__name__}")


def to_pt_tensors(tensors: Any) -> tuple[torch.Tensor, ...]:
    """Torch tensors of a tuple, list or single tensor of any kind."""
    many = tensors if isinstance(tensors, tuple | list) else (tensors,)
    return tuple(to_torch(t) for t in many)


def node_of(tracer: Tracer, operand: Any, consumer: str, port: int) -> str:
    """Node of an operand: the traced one, or a PARAMETER or CONSTANT made for it (once)."""
    if isinstance(operand, bool | int | float):
        return tracer.emit.constant(float(operand), tracer.graph.unique(f"input_{port}_{consumer}"))
    if isinstance(operand, torch.Tensor):
        operand = Tensor.create_from_torch(operand, constant=True)
    if not isinstance(operand, Tensor):
        raise ModelError(f"operand {port} of {consumer!r} is a {type(operand).__name__}; ops take tensors and numbers")
    if operand.node is not None and operand.node in tracer.graph:
        return operand.node
    entry = tracer.leaves.get(id(operand))
    if entry is not None:
        return entry[0]
    if isinstance(operand, Parameter):
        name = operand.get_name() or f"input_{port}_{consumer}"
        node = tracer.emit.leaf(NodeKind.PARAMETER, name, operand.shape, as_array(operand.fill()))
        if operand.dev_data_format is not None:
            tracer.graph[node].df = operand.dev_data_format
    else:
        name = operand.leaf_name.format(port=port, consumer=consumer)
        node = tracer.emit.constant(operand.value(), tracer.graph.unique(name))
    tracer.leaves[id(operand)] = (node, operand)
    return node


def _record(tracer: Tracer, name: str, op: NdOp, operands: tuple[Any, ...], source_op: str) -> Tensor:
    tracer.emit.origin = tracer.origin(source_op)
    full = tracer.name_for(name, op.type)
    nodes = [node_of(tracer, x, full, port) for port, x in enumerate(operands)]
    try:
        tracer.emit.op(op, *nodes, name=full)
    except ShapeError as error:
        raise ModelError(f"op {full!r} at {tracer.emit.origin.location}: {error}") from None
    return Tensor(tracer.graph[full].shape, node=full)


def apply(name: str, op: NdOp, *operands: Any, source_op: str = "") -> Tensor:
    """The result of an op: a node of the active trace, or a value computed now. Raises `ModelError` for bad shapes."""
    tracer = active()
    if tracer is not None:
        return _record(tracer, name, op, operands, source_op or f"pybuda.op.{type(op).__name__}")
    values = [torch.tensor([float(x)]) if isinstance(x, bool | int | float) else to_torch(x) for x in operands]
    try:
        op.infer(*(tuple(v.shape) for v in values))
    except ShapeError as error:
        raise ModelError(f"{type(op).__name__}{f' {name!r}' if name else ''}: {error}") from None
    return Tensor.create_from_torch(op.evaluate(*values))
