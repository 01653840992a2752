"""Graphs and their ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tbuda_lab.popxl.context import get_current_context, get_source_location
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.tensorlocation import ExecutionContext

if TYPE_CHECKING:
    from tbuda_lab.popxl.ir import Ir
    from tbuda_lab.popxl.tensor import Constant, Tensor, Variable


class Op:
    """One op of a graph. kind: the name that PopART has for it.

    modifies: numbers of the inputs that it changes. view: by output the input of which it is a view, in the form that
    `ops.table` gives for the kind. after: ops that have to run before it, beside those whose tensors it reads.
    calls: the graphs that it runs. ipu: None where the program chose none.
    """

    def __init__(self, kind: str, graph: Graph, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> None:
        context = get_current_context()
        self.kind, self.graph, self.inputs, self.attrs = kind, graph, list(inputs), attrs
        self.outputs: list[Tensor] = []
        self.modifies: tuple[int, ...] = ()
        self.views: tuple[int, ...] = ()
        self.after: set[Op] = set()
        self.calls: tuple[Graph, ...] = ()
        self.ipu = context.ipu_id
        self.io_tiles = context.io_tile_set
        self.context = context.execution_context
        self.location = get_source_location()
        self.number = graph.ir._next_op()

    def where(self) -> str:
        """The op for messages: its kind, output and line."""
        name = self.outputs[0].id if self.outputs else self.graph.name
        return f"{self.kind} {name!r}" + (f" ({self.location})" if self.location else "")

    def __repr__(self) -> str:
        return f"Op[{self.kind} {', '.join(t.id for t in self.outputs)}]"


class Graph:
    """Made by `Ir.main_graph`, `Ir.create_graph` and `Ir.create_empty_graph`. As a context it takes new ops."""

    _ir: Ir
    _id: str
    _tensors: dict[str, Tensor]
    _ops: list[Op]
    _inputs: list[Tensor]
    _outputs: list[Tensor]
    _by_ref_inputs: set[Tensor]
    _hooks: dict[int, Callable[[Op], Any]]
    _sites: list[Op]
    _of_ops: set[Tensor]
    """Constants that an op brings with it, which the program has no name for: the count of a loop."""

    def __init__(self) -> None:
        raise TypeError("a Graph cannot be made so; call ir.create_graph or ir.create_empty_graph")

    @classmethod
    def _make(cls, ir: Ir, identifier: str) -> Graph:
        self = object.__new__(cls)
        self._ir, self._id = ir, identifier
        self._tensors, self._ops = {}, []
        self._inputs, self._outputs = [], []
        self._by_ref_inputs = set()
        self._hooks = {}
        self._sites = []  # ops that call this graph
        self._of_ops = set()
        return self

    # -- reading ---------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self._id

    @property
    def id(self) -> str:
        return self._id

    @property
    def ir(self) -> Ir:
        return self._ir

    @property
    def main_graph(self) -> Graph:
        return self._ir.main_graph

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self._inputs)

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        return {t.name: t for t in self._inputs}

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self._outputs)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self._tensors.values() if t not in self._of_ops)

    @property
    def variables(self) -> tuple[Variable, ...]:
        from tbuda_lab.popxl.tensor import Variable

        return tuple(t for t in self.tensors if isinstance(t, Variable))

    @property
    def constants(self) -> tuple[Constant, ...]:
        from tbuda_lab.popxl.tensor import Constant

        return tuple(t for t in self.tensors if isinstance(t, Constant))

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        return tuple(dict.fromkeys(g for op in self._ops for g in op.calls))

    def get_tensor(self, tensor_id: str) -> Tensor:
        """Raises `ValueError` for an id that no tensor of this graph has."""
        if tensor_id not in self._tensors:
            raise ValueError(f"graph {self._id!r} has no tensor {tensor_id!r}")
        return self._tensors[tensor_id]

    def __contains__(self, value: object) -> bool:
        from tbuda_lab.popxl.tensor import Tensor

        if not isinstance(value, Tensor):
            raise TypeError(f"a graph holds tensors, not {type(value).__name__}")
        return self._tensors.get(value.id) is value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            raise TypeError(f"a Graph is compared with {type(other).__name__}")
        return self is other

    def __hash__(self) -> int:
        return hash((self._ir.id, self._id))

    def __repr__(self) -> str:
        return f"Graph(id={self._id!r})"

    # -- as a context ----------------------------------------------------------------------------------------
    def __enter__(self) -> Graph:
        get_current_context().push_graph(self)
        return self

    def __exit__(self, *_: object) -> None:
        get_current_context().pop_graph()

    def register_op_created_hook(self, fn: Callable[[Op], Any]) -> int:
        """fn is called with every new op of this graph; returns a handle."""
        handle = self._ir._next_op()
        self._hooks[handle] = fn
        return handle

    def remove_op_created_hook(self, handle: int) -> None:
        """Raises `ValueError` for a handle that there is not."""
        if handle not in self._hooks:
            raise ValueError(f"graph {self._id!r} has no hook {handle}")
        del self._hooks[handle]

    # -- writing ---------------------------------------------------------------------------------------------
    @property
    def _scope(self) -> str:
        return "" if self is self._ir.main_graph else self._id

    def _new_tensor(
        self,
        shape: tuple[int, ...],
        data_type: dtype,
        name: str,
        cls: type[Tensor] | None = None,
        kind: str = "",
        meta_shape: tuple[int, ...] = (),
    ) -> Tensor:
        """A tensor of this graph with an id of its own."""
        from tbuda_lab.popxl.tensor import Tensor

        scopes = get_current_context().name_scopes
        parts = [*filter(None, [self._scope]), *scopes, name]
        identifier = "/".join(parts)
        while identifier in self._tensors:
            identifier = f"{'/'.join(parts)}__t{self._ir._next_tensor()}"
        made = (cls or Tensor)._make(self, identifier, tuple(shape), data_type, tuple(meta_shape), kind)
        self._tensors[identifier] = made
        return made

    def _add_op(
        self,
        kind: str,
        inputs: Iterable[Tensor],
        outputs: Sequence[tuple[tuple[int, ...], dtype]],
        attrs: dict[str, Any] | None = None,
        name: str | None = None,
        modifies: tuple[int, ...] = (),
        views: tuple[int, ...] = (),
        calls: tuple[Graph, ...] = (),
        meta_shape: tuple[int, ...] = (),
    ) -> Op:
        """Append an op with new output tensors of these shapes and types. Raises `RuntimeError` once a Session froze
        the Ir."""
        self._ir._refuse_frozen()
        op = Op(kind, self, list(inputs), dict(attrs or {}))
        op.modifies, op.views, op.calls = modifies, views, calls
        for number, (shape, data_type) in enumerate(outputs):
            stem = name or f"{kind[:1].lower()}{kind[1:]}_out"
            made = self._new_tensor(
                shape, data_type, stem if number == 0 else f"{stem}_{number}", meta_shape=meta_shape
            )
            made._producer = op
            op.outputs.append(made)
        for t in op.inputs:
            t._consumers.append(op)
        self._ops.append(op)
        for called in dict.fromkeys(calls):
            called._sites.append(op)
        get_current_context().op_created(op)
        for hook in list(self._hooks.values()):
            hook(op)
        return op

    @property
    def _is_main(self) -> bool:
        return self is self._ir.main_graph


__all__ = ["ExecutionContext", "Graph", "Op"]
