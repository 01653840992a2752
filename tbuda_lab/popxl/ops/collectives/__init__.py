"""Between replicas, and between IPUs of one replica."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Literal

from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ops import faults
from tbuda_lab.popxl.ops.utils import check_in_graph, checked_axis, need_tensor, one
from tbuda_lab.popxl.replica_grouping import CommGroup, CommGroupType, ReplicaGrouping
from tbuda_lab.popxl.tensor import Tensor
from tbuda_lab.popxl.utils import product

OPERATORS = ("add", "mean", "mul", "min", "max", "logical_and", "logical_or", "square_add", "and", "or")
"""How the tensors of replicas are put together."""


def to_collective_op(op: str) -> str:
    """The word as this module has it. Raises `ValueError` for another one."""
    if op not in OPERATORS:
        raise ValueError(f"op is one of {', '.join(OPERATORS[:8])}, not {op!r}")
    return op.removeprefix("logical_")


def _group(group: ReplicaGrouping | CommGroup | None) -> ReplicaGrouping:
    ir = get_current_context().ir
    if group is None:
        return ir.replica_grouping()
    if isinstance(group, CommGroup):
        return group.toReplicaGrouping(ir.replication_factor)
    if not isinstance(group, ReplicaGrouping):
        raise TypeError(f"group is a ReplicaGrouping, not {type(group).__name__}")
    if group.num_replicas != ir.replication_factor:
        raise ValueError(f"the grouping is of {group.num_replicas} replicas, the Ir has {ir.replication_factor}")
    if not group.is_const:
        raise NotImplementedError("a collective takes a grouping with one stride; this one has none")
    return group


def replicated_all_reduce(t: Tensor, op: str = "add", group: ReplicaGrouping | CommGroup | None = None) -> Tensor:
    """The tensors of all replicas of a group put together, on each of them."""
    need_tensor("t", t)
    attrs = {"op": to_collective_op(op), "group": _group(group)}
    return one("ReplicatedAllReduce", {"t": t}, t.shape, t.dtype, attrs, meta_shape=t.meta_shape)


def replicated_all_reduce_(t: Tensor, op: str = "add", group: ReplicaGrouping | CommGroup | None = None) -> Tensor:
    """As `replicated_all_reduce`, written over t."""
    need_tensor("t", t)
    attrs = {"op": to_collective_op(op), "group": _group(group)}
    return one("ReplicatedAllReduceInplace", {"t": t}, t.shape, t.dtype, attrs, modifies=(0,), meta_shape=t.meta_shape)


def replicated_all_gather(
    t: Tensor,
    axis: int = 0,
    group: ReplicaGrouping | CommGroup | None = None,
    output_shape: Literal["new_axis", "concat", "meta_shape", "auto"] = "auto",
) -> Tensor:
    """The tensors of all replicas of a group, on each of them: along a new axis, joined along `axis`, or shards as the
    tensor that they are parts of; "auto" is that where t is a shard, else joined. Raises `ValueError` for a
    group whose shards are not that tensor."""
    need_tensor("t", t)
    own, rg, axis = _group(group), output_shape, operator.index(axis)
    if output_shape not in ("new_axis", "concat", "meta_shape", "auto"):
        raise ValueError(f"output_shape is new_axis, concat, meta_shape or auto, not {output_shape!r}")
    if rg == "auto":
        rg = "meta_shape" if t.meta_shape else "concat" if t.rank else "new_axis"
    size = own.group_size
    if rg == "meta_shape":
        if not t.meta_shape:
            raise ValueError(f"tensor {t.id!r} is no shard: it has no meta_shape")
        whole = product(t.meta_shape)
        if t.nelms < whole and -(-whole // size) != t.nelms:  # where each has it all, that of the first is taken
            raise ValueError(
                f"{size} shards of {t.nelms} elements are not tensor {t.id!r}, which was sharded from shape "
                f"{t.meta_shape}: the group is the replicas that share one"
            )
        shape, at = t.meta_shape, 0
    elif rg == "new_axis":
        at = axis + t.rank + 1 if axis < 0 else axis
        if not 0 <= at <= t.rank:
            raise ValueError(f"a result of {t.rank + 1} dims has no axis {axis}")
        shape = (*t.shape[:at], size, *t.shape[at:])
    else:
        at = checked_axis(t, axis, "replicated_all_gather") if t.rank else 0
        shape = (*t.shape[:at], t.shape[at] * size, *t.shape[at + 1 :]) if t.rank else (size,)
    return one("ReplicatedAllGather", {"t": t}, shape, t.dtype, {"group": own, "form": rg, "axis": at, "shape": shape})


def _shard(t: Tensor, size: int) -> tuple[int, ...]:
    return (-(-t.nelms // size),)


def replicated_reduce_scatter(
    t: Tensor,
    op: str = "add",
    group: ReplicaGrouping | CommGroup | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """The tensors of all replicas of a group put together, a shard of it on each of them."""
    need_tensor("t", t)
    own = _group(group)
    attrs = {"op": to_collective_op(op), "group": own}
    meta = t.shape if configure_output_for_replicated_tensor_sharding else ()
    return one("ReplicatedReduceScatter", {"t": t}, _shard(t, own.group_size), t.dtype, attrs, meta_shape=meta)


def replica_sharded_slice(t: Tensor, group: ReplicaGrouping | CommGroup | None = None) -> Tensor:
    """The shard of t that belongs to each replica of a group."""
    need_tensor("t", t)
    own = _group(group)
    attrs = {"op": "local", "group": own}
    return one("ReplicatedReduceScatter", {"t": t}, _shard(t, own.group_size), t.dtype, attrs, meta_shape=t.shape)


def replicated_slice(t: Tensor, axis: int = 0, group: ReplicaGrouping | CommGroup | None = None) -> Tensor:
    """Of as many equal parts of t along an axis as the group has replicas that of each one; without the axis where a
    part has size 1. Raises `ValueError` where they are not equal."""
    need_tensor("t", t)
    own, at = _group(group), checked_axis(t, axis, "replicated_slice")
    size = own.group_size
    if t.shape[at] % size:
        raise ValueError(f"axis {axis} of size {t.shape[at]} cannot be {size} equal parts")
    part = t.shape[at] // size
    shape = (*t.shape[:at], *(() if part == 1 else (part,)), *t.shape[at + 1 :])
    return one("ReplicatedSlice", {"t": t}, shape, t.dtype, {"group": own, "axis": at, "part": part})


# -- IPUs of one replica -----------------------------------------------------------------------------------------------
def _between(kind: str, ts: Sequence[Tensor], ipus: Sequence[int] | None, op: str) -> list[Tensor]:
    tensors = list(ts)
    if op != "add":
        raise NotImplementedError(f"{kind}: 'add' is the operator between IPUs, not {op!r}")
    for k, t in enumerate(tensors):
        need_tensor(f"tensor {k}", t)
    places = [t.ipu for t in tensors] if ipus is None else [operator.index(n) for n in ipus]
    if len(places) != len(tensors):
        raise ValueError(f"{kind}: {len(places)} IPUs are given for {len(tensors)} tensors")
    if len(set(places)) != len(places):
        raise ValueError(f"{kind}: each tensor is on an IPU of its own, not {places}")
    if len({(t.shape, t.dtype) for t in tensors}) > 1:
        raise popart_exception(f"{kind}: all tensors have one shape and type")
    graph = get_current_context().graph
    check_in_graph(graph, **{f"t{k}": t for k, t in enumerate(tensors)})
    outputs = [(t.shape, t.dtype) for t in tensors]
    op_made = graph._add_op("AllReduce", tensors, outputs, {"ipus": places, "form": kind})
    return list(op_made.outputs)


def all_reduce(ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add") -> list[Tensor]:
    """The sum of tensors on several IPUs, on each of them."""
    return _between("all_reduce", ts, ipus, op)


def all_reduce_identical_inputs(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> list[Tensor]:
    """Copies of equal tensors whose gradients are added up."""
    return _between("identical_inputs", ts, ipus, op)


def all_reduce_identical_grad_inputs(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> list[Tensor]:
    """The sum of tensors whose gradients are equal: each gradient is passed on."""
    return _between("identical_grad_inputs", ts, ipus, op)


faults.tell_where(globals())

__all__ = [
    "CommGroup",
    "CommGroupType",
    "all_reduce",
    "all_reduce_identical_grad_inputs",
    "all_reduce_identical_inputs",
    "replica_sharded_slice",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_reduce_scatter",
    "replicated_slice",
    "to_collective_op",
]
