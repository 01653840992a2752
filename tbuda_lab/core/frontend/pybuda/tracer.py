"""Recording a PyBudaModule.forward as a graph; outside a trace the same ops compute at once."""

from __future__ import annotations

import contextlib
import contextvars
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.frontend.emitter import Emitter, as_array
from tbuda_lab.core.frontend.torch_model.provenance import foreign, short_path
from tbuda_lab.core.graph import Graph, NodeKind, Origin, ShapeError
from tbuda_lab.core.ops import NdOp

if TYPE_CHECKING:
    from tbuda_lab.core.frontend.pybuda.module import Module
    from tbuda_lab.core.frontend.pybuda.tensor import Tensor


class Tracer:
    """The graph of one trace: parameters and constants found on the way, names as PyBuda gives them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.emit = Emitter(graph)
        self.modules: list[Module] = []
        self._leaves: dict[int, tuple[str, Any]] = {}
        self._counts: dict[str, int] = {}

    def name_for(self, name: str, op_type: str) -> str:
        """The name asked for, or `<op>_<n>` in order of creation within the module; made unique where it is taken."""
        module = self.modules[-1].get_name() if self.modules else ""
        if not name:
            count = self._counts.get(module, 0)
            self._counts[module] = count + 1
            name = f"{op_type}_{count}"
        if name in self.graph and module:
            name = f"{module}.{name}"
        return self.graph.unique(name)

    def origin(self, source_op: str) -> Origin:
        path = ""
        for module in self.modules:
            name = module.get_name()
            path = name if not path or name.startswith(f"{path}.") else f"{path}.{name}"
        return Origin(path, type(self.modules[-1]).__name__ if self.modules else "", source_op, _caller())

    def node_of(self, operand: Any, consumer: str, port: int) -> str:
        """Node of an operand: the traced one, or a PARAMETER or CONSTANT made for it (once)."""
        from tbuda_lab.core.frontend.pybuda.tensor import Parameter, Tensor

        if isinstance(operand, bool | int | float):
            return self.emit.constant(float(operand), self.graph.unique(f"input_{port}_{consumer}"))
        if isinstance(operand, torch.Tensor):
            operand = Tensor.create_from_torch(operand, constant=True)
        if not isinstance(operand, Tensor):
            raise ModelError(
                f"operand {port} of {consumer!r} is a {type(operand).__name__}; ops take tensors and numbers"
            )
        if operand.node is not None and operand.node in self.graph:
            return operand.node
        entry = self._leaves.get(id(operand))
        if entry is not None:
            return entry[0]
        if isinstance(operand, Parameter):
            name = operand.get_name() or f"input_{port}_{consumer}"
            result = self.emit.leaf(NodeKind.PARAMETER, name, operand.shape, as_array(operand.fill()))
            if operand.dev_data_format is not None:
                self.graph[result].df = operand.dev_data_format
        else:
            name = operand.leaf_name.format(port=port, consumer=consumer)
            result = self.emit.constant(operand.value(), self.graph.unique(name))
        self._leaves[id(operand)] = (result, operand)
        return result

    def record(self, name: str, op: NdOp, operands: tuple[Any, ...], source_op: str) -> Tensor:
        from tbuda_lab.core.frontend.pybuda.tensor import Tensor

        self.emit.origin = self.origin(source_op)
        full = self.name_for(name, op.type)
        nodes = [self.node_of(x, full, port) for port, x in enumerate(operands)]
        try:
            self.emit.op(op, *nodes, name=full)
        except ShapeError as error:
            raise ModelError(f"op {full!r} at {self.emit.origin.location}: {error}") from None
        return Tensor(self.graph[full].shape, node=full)


_ACTIVE: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar("tracer", default=None)


@contextlib.contextmanager
def tracing(tracer: Tracer) -> Iterator[Tracer]:
    """Ops inside the block are recorded by `tracer`."""
    token = _ACTIVE.set(tracer)
    try:
        yield tracer
    finally:
        _ACTIVE.reset(token)


def active() -> Tracer | None:
    return _ACTIVE.get()


@contextlib.contextmanager
def inside(module: Module) -> Iterator[None]:
    """Ops inside the block belong to `module`."""
    tracer = active()
    if tracer is None:
        yield
        return
    tracer.modules.append(module)
    try:
        yield
    finally:
        tracer.modules.pop()


def apply(name: str, op: NdOp, *operands: Any, source_op: str = "") -> Tensor:
    """The result of an op: a node of the active trace, or a value computed now. Raises `ModelError` for bad shapes."""
    from tbuda_lab.core.frontend.pybuda.tensor import Tensor, to_torch

    tracer = active()
    if tracer is not None:
        return tracer.record(name, op, operands, source_op or f"pybuda.op.{type(op).__name__}")
    values = [torch.tensor([float(x)]) if isinstance(x, bool | int | float) else to_torch(x) for x in operands]
    try:
        op.infer(*(tuple(v.shape) for v in values))
    except ShapeError as error:
        raise ModelError(f"{type(op).__name__}{f' {name!r}' if name else ''}: {error}") from None
    return Tensor.create_from_torch(op.evaluate(*values))


def _caller() -> str:
    """ "file.py:12" of the line of the user's code that calls the op."""
    for frame, line in traceback.walk_stack(None):
        if foreign(frame.f_code.co_filename):
            return f"{short_path(frame.f_code.co_filename)}:{line}"
    return ""
