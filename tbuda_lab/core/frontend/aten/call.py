"""One aten call while it is mapped, and the table of mapping functions."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Mapping as Mapping_
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.frontend.emitter import Emitter
from tbuda_lab.core.graph import Graph, Op, Shape
from tbuda_lab.core.ops import Reshape


class CannotMap(Exception):
    """This use of an op is not supported; the message says which argument is at fault and what would work."""


@dataclasses.dataclass(frozen=True)
class AtenValue:
    """A value that the device (or the host prologue) computes: the name of its node, and its torch dtype."""

    name: str
    dtype: torch.dtype


@dataclasses.dataclass
class FoldedValue:
    """A value known now; it becomes a CONSTANT node when something that isn't known reads it."""

    tensor: torch.Tensor
    label: str
    name: str | None = None


def known_if_empty(graph: Graph, value: AtenValue) -> AtenValue | FoldedValue:
    """A tensor without elements is known, whoever gives it: what is made of it alone is a constant."""
    shape = graph[value.name].shape
    if math.prod(shape):
        return value
    return FoldedValue(torch.empty(shape[:-1] if value.dtype.is_complex else shape, dtype=value.dtype), value.name)


def known_empty(result: torch.Tensor, label: str) -> FoldedValue | None:
    """A result of a call, as torch's tracing has it, where it has no elements: nothing has to compute it."""
    if 0 in (known_shape(result) or ()):
        return FoldedValue(torch.empty(result.shape, dtype=result.dtype), label)
    return None


RANDOM = "random numbers inside the model; pass them as an input"
VALUES_DECIDE = "the shape of its result depends on the values of a tensor; shapes must be known"


def known_shape(tensor: torch.Tensor) -> Shape | None:
    """The shape of a traced tensor, or None when a size depends on data."""
    sizes = [n if isinstance(n, int) else n.node.maybe_as_int() for n in tensor.shape]
    return None if None in sizes else tuple(int(n) for n in sizes)


Operand = AtenValue | FoldedValue | None
Result = str | tuple[str | None, ...]


class ReadArguments(dict[str, Any]):
    """Arguments by name, which knows which of them somebody has asked for."""

    def __init__(self, arguments: Mapping_[str, Any]) -> None:
        super().__init__(arguments)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


SAYS_NOTHING = frozenset(
    {
        "layout",
        "device",
        "pin_memory",
        "memory_format",
        "non_blocking",
        "copy",
        "implicit",
        "generator",
        "out",
        "cudnn_enabled",
        "cudnn_enable",
        "benchmark",
        "deterministic",
        "allow_tf32",
        "use_input_stats",
    }
)
"""Arguments that say where and how a result is made, and not what it is."""
SAYS_NOTHING_HERE = {
    "embedding": {"padding_idx", "scale_grad_by_freq", "sparse"},
    "embedding_bag": {"scale_grad_by_freq", "sparse", "mode"},
    "_embedding_bag": {"scale_grad_by_freq", "sparse", "mode"},
    "batch_norm": {"momentum"},
    "instance_norm": {"momentum"},
    "native_batch_norm": {"momentum"},
    "_native_batch_norm_legit": {"momentum"},
    "_native_batch_norm_legit_no_training": {"momentum"},
    "cudnn_batch_norm": {"momentum"},
    "native_group_norm": {"N", "C", "HxW"},
    "native_dropout": {"train"},
    "cumsum": {"dtype"},
    "pad": {"value"},
    "to": {"dtype", "other"},
    "_to_copy": {"dtype"},
    "type_as": {"other"},
    "copy": {"self"},
}
"""By op what only training asks for, or what other arguments say already; torch takes no value of padding but with the
mode that reads it."""
SHAPE_SAYS = frozenset(
    {
        "size",
        "sizes",
        "shape",
        "output_size",
        "chunks",
        "split_size",
        "split_sizes",
        "sections",
        "keepdim",
        "start_dim",
        "end_dim",
    }
)
"""Arguments of which the shape of the result tells all; so it does, of these ops, of those."""
SHAPE_SAYS_HERE = {
    "squeeze": {"dim"},
    "unsqueeze": {"dim"},
    "unflatten": {"dim"},
    "tensor_split": {"indices"},
    "tensor_indices_or_sections": {"indices"},
    "expand_as": {"other"},
    "view_as": {"other"},
    "reshape_as": {"other"},
}


class Call:
    """Arguments of one aten call by their schema names, and an emitter to write its ops with."""

    def __init__(self, target: torch._ops.OpOverload, arguments: dict[str, Any], out: Any, emit: Emitter) -> None:
        self.target = target
        self.arguments = ReadArguments(arguments)
        self.depth = 0  # of mapping functions that call one another
        self.out = out
        self.emit = emit

    def refuse_unread(self) -> None:
        """Raise `CannotMap` for an argument that the mapping has not asked for and that is not the schema's default:
        it would be accepted and ignored."""
        name = self.target._schema.name.split("::")[-1]
        known = self.arguments.read | SAYS_NOTHING | SHAPE_SAYS
        known |= SAYS_NOTHING_HERE.get(name, set()) | SHAPE_SAYS_HERE.get(name, set())
        for argument in self.target._schema.arguments:
            if argument.name in known or argument.name not in self.arguments:
                continue
            value = dict.get(self.arguments, argument.name)
            if argument.name == "dtype" and self._keeps_kind():
                continue
            default = argument.default_value if argument.has_default_value() else None
            if isinstance(value, AtenValue | FoldedValue) or value != default:
                given = value.name if isinstance(value, AtenValue) else value
                given = value.label if isinstance(value, FoldedValue) else given
                raise CannotMap(f"argument {argument.name}={given!r} of {name} has no form here; {default!r} has")

    def _keeps_kind(self) -> bool:
        """Whether the result is of the kind of the operand: floats stay floats, whatever their width."""
        first = self.out[0] if isinstance(self.out, tuple | list) else self.out
        operand = dict.get(self.arguments, "self")
        before = operand.dtype if isinstance(operand, AtenValue) else first.dtype
        return bool(before.is_floating_point == first.dtype.is_floating_point)

    # -- reading ---------------------------------------------------------------------------------------------
    def get(self, name: str, default: Any = None) -> Any:
        """A plain argument (number, list, string); None stays None unless a default is given."""
        value = self.arguments.get(name)
        if isinstance(value, FoldedValue):
            return value.tensor.tolist()
        if isinstance(value, AtenValue):
            raise CannotMap(f"argument {name!r} must be known when the model is traced, but it depends on an input")
        return default if value is None else value

    def folded_value(self, name: str) -> torch.Tensor | None:
        """The tensor of an argument that is known now, else None."""
        value = self.arguments.get(name)
        return value.tensor if isinstance(value, FoldedValue) else None

    def has(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    def x(self, name: str = "self") -> str:
        """Name of the node behind a tensor (or number) argument."""
        return self.node_of(self.arguments[name])

    def xs(self, name: str = "tensors") -> list[str]:
        return [self.node_of(v) for v in self.arguments[name]]

    def node_of(self, value: Any) -> str:
        if isinstance(value, AtenValue):
            return value.name
        if isinstance(value, FoldedValue):
            if value.name is None:
                value.name = self.emit.constant(value.tensor, self.emit.graph.unique(value.label))
            return value.name
        if isinstance(value, bool | int | float):
            if isinstance(value, int) and self.counts():
                return self.emit.constant(torch.tensor([int(value)]).to(self._number_type()))
            return self.emit.constant(float(value))
        raise CannotMap(f"an operand of type {type(value).__name__} is not a tensor")

    def _dtypes(self) -> list[torch.dtype]:
        """The types of the tensors that the call reads."""
        leaves = pytree.tree_leaves(list(dict.values(self.arguments)))
        dtypes = [v.dtype for v in leaves if isinstance(v, AtenValue)]
        return dtypes + [v.tensor.dtype for v in leaves if isinstance(v, FoldedValue)]

    def _number_type(self) -> torch.dtype:
        """The type that torch gives a whole number beside whole tensors: theirs, in which it wraps; beside truth values
        alone int64."""
        common = functools.reduce(torch.promote_types, self._dtypes(), torch.bool)
        return torch.int64 if common == torch.bool else common

    def counts(self) -> bool:
        """Whether the call works on whole numbers: those beyond 2^24 are none that float32 holds."""
        dtypes = self._dtypes()
        first = self.out[0] if isinstance(self.out, tuple | list) else self.out
        if any(d.is_floating_point or d.is_complex for d in (*dtypes, first.dtype)):
            return False
        return any(d != torch.bool for d in (*dtypes, first.dtype))

    def dtype_of(self, name: str = "self") -> torch.dtype:
        value = self.arguments[name]
        if isinstance(value, AtenValue):
            return value.dtype
        return value.tensor.dtype if isinstance(value, FoldedValue) else torch.tensor(value).dtype

    def shape(self, name: str) -> Shape:
        """Shape of a node."""
        return self.emit.shape(name)

    @property
    def out_shape(self) -> Shape:
        """Shape of the (first) result, as torch computed it."""
        first = self.out[0] if isinstance(self.out, tuple | list) else self.out
        shape = known_shape(first)
        if shape is None:
            raise CannotMap(VALUES_DECIDE)
        return shape

    # -- writing ---------------------------------------------------------------------------------------------
    def op(self, op: Op, *operands: str) -> str:
        return self.emit.op(op, *operands)

    def constant(self, value: torch.Tensor | float) -> str:
        return self.emit.constant(value)

    def vector(self, name: str = "self") -> str:
        """An operand that has dims to count: a number as a vector of one, which torch counts it as."""
        x = self.x(name)
        return self.reshape(x, self.shape(x) or (1,))

    def reshape(self, x: str, shape: Shape) -> str:
        """Reshape, or `x` itself when it has that shape already."""
        return x if self.shape(x) == tuple(shape) else self.op(Reshape(tuple(int(n) for n in shape)), x)


def by_name(target: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by their schema names, with the schema's defaults."""
    named: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args):
            named[argument.name] = args[position]
        elif argument.name in kwargs:
            named[argument.name] = kwargs[argument.name]
        else:
            named[argument.name] = argument.default_value if argument.has_default_value() else None
    return named


Mapping = Callable[[Call], Result]
TABLE: dict[str, Mapping] = {}
"""Mapping functions by op name: "aten.mean.dim" for one overload, "aten.relu" for all of them."""


def maps(*names: str) -> Callable[[Mapping], Mapping]:
    """Register a mapping function for these op names. It reads every argument of the op, or the call is refused where
    an argument that it does not read is not the default."""

    def register(function: Mapping) -> Mapping:
        mapping = function if getattr(function, "reads_all", False) else _reading_all(function)
        for name in names:
            if name in TABLE:
                raise ValueError(f"{name} is mapped twice")
            TABLE[name] = mapping
        return mapping

    return register


def _reading_all(function: Mapping) -> Mapping:
    """The mapping function, held to read every argument that says something (`Call.refuse_unread`)."""

    @functools.wraps(function)
    def mapping(c: Call) -> Result:
        c.depth += 1
        try:
            result = function(c)
        finally:
            c.depth -= 1
        if c.depth == 0:
            c.refuse_unread()
        return result

    return mapping


def lookup(target: object) -> Mapping | None:
    """The mapping function of an op overload, or None."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    packet = f"{target.namespace}.{target._schema.name.split('::')[-1]}"
    return TABLE.get(f"{packet}.{target._overloadname}") or TABLE.get(packet)
