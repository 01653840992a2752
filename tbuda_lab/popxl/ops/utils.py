"""Checks that all ops make, and the making of ops."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.errors import UndefinedValue, popart_exception
from tbuda_lab.popxl.tensor import Tensor

if TYPE_CHECKING:
    from tbuda_lab.popxl.graph import Graph, Op

Shape = tuple[int, ...]


def cast_if_needed(t: Tensor, data_type: dtype) -> Tensor:
    """The tensor in another type; itself where it has it."""
    from tbuda_lab.popxl.ops.moves import cast

    return t if t.dtype is data_type else cast(t, data_type)


def check_in_graph(graph: Graph, *args: Tensor, **tensors: Tensor) -> None:
    """Raises `TypeError` for what is no tensor, `ValueError` for a tensor of another graph, by the argument's name."""
    named = {f"argument {k}": t for k, t in enumerate(args)} | tensors
    for name, t in named.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"{name} is {type(t).__name__}, not a Tensor")
        if t._graph is not graph:
            raise ValueError(
                f"{name}: tensor {t.id!r} belongs to graph {t._graph.id!r}, and not to {graph.id!r}: give it "
                "to the graph as an input"
            )


def check_tensor_ipu_and_tile_set(*args: Tensor, **tensors: Tensor) -> None:
    """Raises `ValueError` where tensors are on different IPUs or tile sets, as far as that is known."""
    named = {f"argument {k}": t for k, t in enumerate(args)} | tensors
    ipus: dict[str, int] = {}
    tiles: dict[str, str] = {}
    for name, t in named.items():
        try:
            ipus[name], tiles[name] = t.ipu, t.tile_set
        except UndefinedValue:
            continue
    for what, found in (("IPUs", ipus), ("tile sets", tiles)):
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name}: {place}" for name, place in found.items())
            raise ValueError(f"the inputs of an op are on different {what} ({listed}): copy them to one")


def handle_negative_axis(t: Tensor, axis: int) -> int:
    """An axis counted from the front."""
    return axis + t.rank if axis < 0 else axis


def is_whole(value: Any) -> bool:
    """Whether it is one whole number, NumPy's too; an array of several is none."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def whole_number(value: Any, what: str) -> int:
    """One whole number. Raises `TypeError` for anything else."""
    if not is_whole(value):
        raise TypeError(f"{what}: {value!r} is no whole number")
    return operator.index(value)


def whole_numbers(value: Any, what: str) -> list[int]:
    """One whole number or several. Raises `TypeError` for anything else."""
    if is_whole(value):
        return [operator.index(value)]
    if not isinstance(value, Iterable) or not all(map(is_whole, values := list(value))):
        raise TypeError(f"{what}: {value!r} is no whole number, and no list of them")
    return [operator.index(one) for one in values]


def tensors_of(ts: Any, what: str) -> list[Tensor]:
    """The tensors of a list. Raises `TypeError` for one tensor alone, `ValueError` for none."""
    if isinstance(ts, Tensor) or not isinstance(ts, Iterable):
        raise TypeError(f"{what} takes a list of tensors, not {type(ts).__name__}")
    found = list(ts)
    if not found:
        raise ValueError(f"{what} takes one tensor or more")
    for k, t in enumerate(found):
        need_tensor(f"tensor {k}", t)
    return found


def checked_axis(t: Tensor, axis: int, what: str) -> int:
    """An axis counted from the front. Raises `TypeError` for what is no whole number, `ValueError` for an axis that
    there is not."""
    own = handle_negative_axis(t, whole_number(axis, f"{what}: axis"))
    if not 0 <= own < t.rank:
        raise ValueError(f"{what}: a tensor of {t.rank} dims has no axis {axis}")
    return own


def convert_optional_float(v: float | None) -> float | None:
    return None if v is None else float(v)


def convert_optional_int(v: int | None) -> int | None:
    return None if v is None else operator.index(v)


def convert_optional_dtype(dt: dtype | None) -> dtype | None:
    return None if dt is None else dtype.as_dtype(dt)


def convert_optional_int64_list(l: Sequence[int] | None) -> list[int] | None:  # noqa: E741
    return None if l is None else [operator.index(n) for n in l]


def check_inputs(inputs: dict[str, Any]) -> None:
    """What every op checks of its operands, by the arguments' names."""
    tensors = {name: t for name, t in inputs.items()}
    check_in_graph(get_current_context().graph, **tensors)
    check_tensor_ipu_and_tile_set(**tensors)


def make(
    kind: str,
    inputs: dict[str, Any],
    outputs: Sequence[tuple[Shape, dtype]],
    attrs: dict[str, Any] | None = None,
    **more: Any,
) -> Op:
    """A new op of the current graph. inputs: operands by the arguments' names, in the order in which the kind has
    them."""
    check_inputs(inputs)
    return get_current_context().graph._add_op(kind, inputs.values(), outputs, attrs, **more)


def one(
    kind: str, inputs: dict[str, Any], shape: Shape, form: dtype, attrs: dict[str, Any] | None = None, **more: Any
) -> Tensor:
    """The output of a new op that has one."""
    return make(kind, inputs, [(shape, form)], attrs, **more).outputs[0]


def broadcast(what: str, *tensors: Tensor) -> Shape:
    """The shape to which NumPy broadcasts. Raises `popart_exception` where it does not."""
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{what} takes tensors, not {type(t).__name__}")
    try:
        return tuple(np.broadcast_shapes(*(t.shape for t in tensors)))
    except ValueError as error:
        shapes = " and ".join(f"{t.id!r} {t.shape}" for t in tensors)
        raise popart_exception(f"{what}: shapes do not broadcast: {shapes}") from error


def same_type(what: str, *tensors: Tensor) -> dtype:
    """Raises `popart_exception` where the types differ."""
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{what} takes tensors, not {type(t).__name__}")
    if len({t.dtype for t in tensors}) > 1:
        listed = ", ".join(f"{t.id!r} {t.dtype}" for t in tensors)
        raise popart_exception(f"{what}: operands have different types: {listed}; cast one of them")
    return tensors[0].dtype


def check_numbers(what: str, t: Tensor, **numbers: Any) -> None:
    """Raises `popart_exception` for fractions, and tensors of floats, in an op on whole numbers."""
    if t.dtype.is_floating_point:
        return
    for name, v in numbers.items():
        if isinstance(v, Tensor):
            if v.dtype.is_floating_point:
                raise popart_exception(
                    f"{what}: {t.id!r} is {t.dtype}, and {name} {v.id!r} {v.dtype}: cast one of them"
                )
        elif v is not None and np.isfinite(v) and v != int(v):
            raise popart_exception(f"{what}: {t.id!r} is {t.dtype}, and {name} = {v} is no whole number")


def check_memory_share(share: float | None) -> None:
    """Raises `ValueError` for a proportion of memory that there is not."""
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"available_memory_proportion is above 0 and at most 1, not {share}")


def need_tensor(name: str, t: Any) -> None:
    """Raises `TypeError` for anything else."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} is {type(t).__name__}, not a Tensor")


__all__ = [
    "broadcast",
    "cast_if_needed",
    "check_in_graph",
    "check_inputs",
    "check_memory_share",
    "check_numbers",
    "check_tensor_ipu_and_tile_set",
    "checked_axis",
    "convert_optional_dtype",
    "convert_optional_float",
    "convert_optional_int",
    "convert_optional_int64_list",
    "dtypes",
    "handle_negative_axis",
    "is_whole",
    "make",
    "need_tensor",
    "one",
    "same_type",
    "tensors_of",
    "whole_number",
    "whole_numbers",
]
