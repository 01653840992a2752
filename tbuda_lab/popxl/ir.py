"""The Ir: a main graph, graphs that it calls, and how many replicas and transfers there are."""

from __future__ import annotations

import inspect
import itertools
import operator
import typing
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tbuda_lab.dialects.replicas import total_replicas
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.replica_grouping import ReplicaGrouping
from tbuda_lab.popxl.tensor import Tensor, TensorByRef, TensorSpec, graph_input, graph_output

if TYPE_CHECKING:
    from tbuda_lab.popxl.remote_buffer import RemoteBuffer
    from tbuda_lab.popxl.streams import DeviceToHostStream, HostToDeviceStream


class Ir:
    """A program. replication: how many replicas run it; "popdist": those of all instances, which are one
    process here (`tbuda script --replicas N`); 1 where nothing says it. Raises `ValueError` for other values."""

    _ir_cache: ClassVar[weakref.WeakValueDictionary[int, Ir]] = weakref.WeakValueDictionary()
    _numbers: ClassVar[Iterable[int]] = itertools.count()

    def __init__(self, replication: int | str = 1) -> None:
        self._id = next(iter(Ir._numbers))
        Ir._ir_cache[self._id] = self
        self._ops = itertools.count(1)
        self._tensor_numbers = itertools.count()
        self._subgraph_numbers = itertools.count()
        self._buffers: list[RemoteBuffer] = []
        self._frozen = False
        self._num_host_transfers = 1
        self._replication = total_replicas() if replication == "popdist" else self._checked_replication(replication)
        self._options: Any = None
        self._graphs: dict[str, Graph] = {}
        self._readonly_memmaps = False
        self._main = Graph._make(self, "main")
        self._graphs["main"] = self._main

    @staticmethod
    def _checked_replication(value: Any) -> int:
        if type(value) is not int or value < 1:
            raise ValueError(f"replication is a whole number from 1 on or 'popdist', not {value!r}")
        return value

    # -- properties ------------------------------------------------------------------------------------------
    @property
    def main_graph(self) -> Graph:
        return self._main

    @property
    def id(self) -> int:
        return self._id

    @property
    def num_host_transfers(self) -> int:
        """How many tensors a run moves over each stream."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: int) -> None:
        count = operator.index(value)
        if count < 1:
            raise ValueError(f"num_host_transfers is a whole number from 1 on, not {count}")
        self._num_host_transfers = count

    @property
    def replication_factor(self) -> int:
        """How many replicas run the program."""
        return self._replication

    @replication_factor.setter
    def replication_factor(self, value: int) -> None:
        if self._frozen:
            raise RuntimeError("the replication factor is set before a Session is made")
        self._replication = self._checked_replication(value)

    @property
    def instance_replication_factor(self) -> int:
        """How many of the replicas belong to this process: all of them."""
        return self._replication

    # -- graphs ----------------------------------------------------------------------------------------------
    def create_graph(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """A graph of a function or `Module`: each argument that is a Tensor or TensorSpec becomes an input, also in
        lists and in *args and **kwargs; what it returns are the outputs.

        Raises `TypeError` for what is not callable and for containers that mix tensors with others, `ValueError` for
        arguments that do not fit the signature and for results that are no tensors.
        """
        if not callable(fn):
            raise TypeError(f"create_graph takes a function or a Module, not {type(fn).__name__}")
        from tbuda_lab.popxl.module import Module

        build = fn.build if isinstance(fn, Module) else fn
        signature = inspect.signature(build)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ValueError(f"{_name_of(fn)}: {error}") from error
        bound.apply_defaults()
        graph = self._new_graph(f"{_name_of(fn)}_subgraph")
        hints = _hints(build)
        with graph:
            values: dict[str, Any] = {}
            for name, value in bound.arguments.items():
                values[name] = _as_input(name, value, signature.parameters[name], hints.get(name))
            call = inspect.BoundArguments(signature, values)
            outputs = fn(*call.args, **call.kwargs)
            for t in _outputs(outputs, fn):
                graph_output(t)
        return graph

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """A graph without inputs and ops."""
        return self._new_graph(f"{name or 'graph'}_subgraph")

    def _new_graph(self, stem: str, number: bool = True) -> Graph:
        identifier = f"{stem}({next(self._subgraph_numbers)})" if number else stem
        graph = self._graphs[identifier] = Graph._make(self, identifier)
        return graph

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """The streams that some op stores to."""
        return {op.attrs["stream"] for op in self._exchanges() if op.kind == "HostStore"}

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """The streams that some op loads from."""
        return {op.attrs["stream"] for op in self._exchanges() if op.kind == "HostLoad"}

    def _exchanges(self) -> list[Op]:
        """All ops, those that were merged one by one."""
        ops = [op for g in self._graphs.values() for op in g._ops]
        return [part for op in ops for part in op.attrs.get("parts", [op])]

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Groups of replicas a stride apart; group_size: by default as many as fit. Raises `ValueError` for groups that
        do not divide the replicas."""
        return ReplicaGrouping._strided(self, stride, group_size)

    def replica_grouping_from_assignments(self, assignment: Sequence[int]) -> ReplicaGrouping:
        """By replica the number of its group. Raises `ValueError` for unequal groups and other numbers."""
        return ReplicaGrouping._assigned(self._replication, assignment)

    def dot_checkpoint(self, check: str, save_dir: str | None = None) -> None:
        """Write the Ir as a picture in the language dot, `<check>.dot` in the folder (the current one)."""
        from tbuda_lab.popxl.pictures import write_dot

        write_dot(self, check, save_dir)

    # -- inside ----------------------------------------------------------------------------------------------
    def _next_op(self) -> int:
        return next(self._ops)

    def _next_tensor(self) -> int:
        return next(self._tensor_numbers)

    def _add_buffer(self, buffer: RemoteBuffer) -> int:
        self._buffers.append(buffer)
        return len(self._buffers)

    def _refuse_frozen(self) -> None:
        if self._frozen:
            raise RuntimeError("the Ir belongs to a Session: no ops can be added")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ir):
            raise TypeError(f"an Ir is compared with {type(other).__name__}")
        return self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"Ir(id={self._id})"


def _name_of(fn: Any) -> str:
    from tbuda_lab.popxl.module import Module

    name = type(fn).__qualname__ if isinstance(fn, Module) else getattr(fn, "__qualname__", type(fn).__qualname__)
    return str(name).replace(".<locals>", "")


def _hints(build: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(build)
    except (NameError, TypeError, AttributeError):
        return dict(getattr(build, "__annotations__", {}))


def _by_ref(hint: Any) -> bool:
    """Whether an annotation is TensorByRef, or a container of it."""
    if hint is TensorByRef or hint in ("TensorByRef", "popxl.TensorByRef"):
        return True
    return any(map(_by_ref, typing.get_args(hint)))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | TensorSpec)


def _input(name: str, value: Tensor | TensorSpec, by_ref: bool) -> Tensor:
    return graph_input(value.shape, value.dtype, name, by_ref, value.meta_shape)


def _as_input(name: str, value: Any, parameter: inspect.Parameter, hint: Any) -> Any:
    """The argument as the function sees it in its graph."""
    by_ref = _by_ref(hint)
    if _is_tensor(value):
        return _input(name, value, by_ref)
    if isinstance(value, list | tuple) and any(map(_is_tensor, value)):
        if not all(map(_is_tensor, value)):
            raise TypeError(f"argument {name!r} mixes tensors with other values")
        made = [_input(f"{name}_{k}", v, by_ref) for k, v in enumerate(value)]
        return type(value)(made) if isinstance(value, list) else tuple(made)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD and any(map(_is_tensor, value.values())):
        if not all(map(_is_tensor, value.values())):
            raise TypeError(f"keyword arguments {name!r} mix tensors with other values")
        return {key: _input(key, v, by_ref) for key, v in value.items()}
    return value


def _outputs(result: Any, fn: Any) -> list[Tensor]:
    if result is None:
        return []
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Iterable) and not isinstance(result, str | Mapping):
        outputs = list(result)
        if all(isinstance(t, Tensor) for t in outputs):
            return outputs
    raise ValueError(
        f"{_name_of(fn)} returns {type(result).__name__}; a graph returns None, a tensor or several tensors"
    )
