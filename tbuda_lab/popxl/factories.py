"""How a program makes variables, constants, and inputs and outputs of graphs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.popxl.context import execution_context, get_current_context
from tbuda_lab.popxl.dtypes import dtype as DataType
from tbuda_lab.popxl.environment import log
from tbuda_lab.popxl.remote_buffer import RemoteBuffer
from tbuda_lab.popxl.tensorlocation import ExecutionContext
from tbuda_lab.popxl.utils import checked_shape, downcast_np_dtypes, product, to_numpy

if TYPE_CHECKING:
    from tbuda_lab.popxl.graph import Graph
    from tbuda_lab.popxl.replica_grouping import ReplicaGrouping
    from tbuda_lab.popxl.tensor import Constant, RetrievalMode, Tensor, Variable

_MODES = ("one_per_group", "all_replicas")


def _memmap(data: np.memmap, dtype: DataType | None, downcast: bool, graph: Graph) -> np.ndarray:
    """A file's data as they are. Raises `ValueError` where they would have to be copied."""
    what = "When passing a memory-mapped NumPy array, "
    own = DataType.as_dtype(data.dtype)
    if dtype is not None and dtype is not own:
        raise ValueError(f"{what}the `dtype` parameter is None or the file's, {own}: the data stay where they are")
    if not data.flags["C_CONTIGUOUS"]:
        raise ValueError(f"{what}it must already be in C-ordered memory: the data stay where they are")
    if downcast and data.dtype in downcast_np_dtypes:
        raise ValueError(
            f"{what}the dtype {dtype} is not supported, as it requires downcasting of {own}: pass downcast=False, or a "
            "file of 32-bit data"
        )
    if not data.flags["WRITEABLE"]:
        graph.ir._readonly_memmaps = True
    return data


def _variable(
    data: Any,
    dtype: DataType | None,
    name: str | None,
    downcast: bool,
    grouping: ReplicaGrouping | None,
    mode: str | None,
    log2_scale: int | None,
    nan_on_overflow: bool | None,
) -> Variable:
    from tbuda_lab.popxl.tensor import Variable

    graph = get_current_context().graph
    if not graph._is_main:
        raise ValueError("variables belong to the main graph: make it there, and give it to the graph as an input")
    if mode is not None and mode not in _MODES:
        raise ValueError(f"retrieval_mode is one of {', '.join(_MODES)}, not {mode!r}")
    if isinstance(data, np.memmap):
        array = _memmap(data, dtype, downcast, graph)
    else:
        array = to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    if isinstance(data, np.memmap) and grouping is not None and not grouping.is_const:
        log("WARN", "you have passed np.memmap data and a non-const replica grouping: the groups' data are copied")
    group = grouping if grouping is not None else graph.ir.replica_grouping()
    if group.num_replicas != graph.ir.replication_factor:
        raise ValueError(f"the grouping is of {group.num_replicas} replicas, the Ir has {graph.ir.replication_factor}")
    if group.num_groups > 1 and (not array.ndim or array.shape[0] != group.num_groups):
        raise ValueError(
            f"there are {group.num_groups} groups of replicas: dim 0 of the data has as many, not "
            f"{array.shape[:1] or 'none'}"
        )
    shape = array.shape[1:] if group.num_groups > 1 else array.shape
    made = graph._new_tensor(shape, DataType.as_dtype(array.dtype), name or "t", Variable)
    assert isinstance(made, Variable)
    made._data, made._grouping, made._remote, made._shards, made._in_sync = array, group, None, 1, True
    made._retrieval = mode or "one_per_group"  # type: ignore[assignment]
    return made


def variable(
    data: Any,
    dtype: DataType | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable on the device. With several groups of replicas, dim 0 of the data counts them.

    Raises `ValueError` in another graph than the main one, and for a memory-mapped file that would have to be copied.
    """
    return _variable(data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow)


def remote_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: DataType | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable that lies in a remote buffer, at an entry. Raises `ValueError` for an entry that there is not; a
    Session refuses one that is not as large as the buffer's entries."""
    made = _variable(data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow)
    return _at_entry(made, remote_buffer, offset)


def _at_entry(made: Variable, remote_buffer: RemoteBuffer, offset: int) -> Variable:
    entry = operator.index(offset)
    if not 0 <= entry < remote_buffer.entries:
        raise ValueError(f"the remote buffer has {remote_buffer.entries} entries, and none at {offset}")
    made._remote = (remote_buffer, entry)
    return made


def remote_replica_sharded_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: DataType | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable of which every replica has a shard in a remote buffer. Raises `ValueError` with one replica; a
    Session refuses one whose shards are not as large as the buffer's entries."""
    ir = get_current_context().ir
    if ir.replication_factor <= 1:
        raise ValueError("a sharded variable needs several replicas: set ir.replication_factor first")
    made = _variable(data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow)
    _at_entry(made, remote_buffer, offset)
    size, replicas = product(remote_buffer.tensor_shape), made._grouping.group_size
    fitting = (n for n in range(1, replicas + 1) if replicas % n == 0 and -(-made.nelms // n) == size)
    made._shards = next(fitting, replicas)
    if not remote_buffer.meta_shape:
        remote_buffer.meta_shape = made.shape
    return made


def replica_sharded_buffer(
    shape: tuple[int, ...],
    dtype: DataType,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    entries: int = 1,
) -> RemoteBuffer:
    """A buffer for shards of a tensor of `shape` (with the groups as dim 0 where there are several).

    Raises `ValueError` where `shard_over` does not divide the size of a group.
    """
    ir = get_current_context().ir
    group = replica_grouping if replica_grouping is not None else ir.replica_grouping()
    over = group.group_size if shard_over is None else shard_over
    if over < 1 or group.group_size % over:
        raise ValueError(f"shard_over {over} does not divide the {group.group_size} replicas of a group")
    own = tuple(shape[1:]) if group.num_groups > 1 else tuple(shape)
    buffer = RemoteBuffer((-(-product(own) // over),), dtype, entries)
    buffer.meta_shape = own
    return buffer


def replica_sharded_variable(
    data: Any,
    dtype: DataType | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    retrieval_mode: RetrievalMode = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[Variable, Tensor]:
    """A sharded variable and the shard of each replica, which is loaded with the weights and stored with them."""
    from tbuda_lab.popxl.ops.transfers import remote_load, remote_store

    if get_current_context().ir.replication_factor <= 1:
        raise ValueError("a sharded variable needs several replicas: set ir.replication_factor first")
    is_file = isinstance(data, np.memmap)
    array = data if is_file else to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    form = dtype if is_file else DataType.as_dtype(array.dtype)
    buffer = replica_sharded_buffer(array.shape, DataType.as_dtype(array.dtype), replica_grouping, shard_over)
    made = remote_replica_sharded_variable(array, buffer, 0, form, name, downcast, replica_grouping, retrieval_mode)
    with execution_context(ExecutionContext.WeightsFromHostFragment):
        shard = remote_load(buffer, 0, name)
    with execution_context(ExecutionContext.WeightsToHostFragment):
        remote_store(buffer, 0, shard)
    return made, shard


def constant(
    data: Any,
    dtype: DataType | None = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """A constant of the current graph."""
    from tbuda_lab.popxl.tensor import Constant

    array = to_numpy(data, dtype, downcast, True, log2_scale, nan_on_overflow)
    graph = get_current_context().graph
    made = graph._new_tensor(array.shape, DataType.as_dtype(array.dtype), name or "t", Constant)
    assert isinstance(made, Constant)
    made._data = array
    return made


def graph_input(
    shape: Any,
    dtype: DataType,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: tuple[int, ...] | None = None,
) -> Tensor:
    """A new last input of the current graph. by_ref: what the graph does to it happens to the caller's tensor."""
    graph = get_current_context().graph
    sizes, form = checked_shape(shape, f"graph input {name!r}"), DataType.as_dtype(dtype)
    made = graph._new_tensor(sizes, form, name or "t", kind="input", meta_shape=meta_shape or ())
    graph._inputs.append(made)
    if by_ref:
        graph._by_ref_inputs.add(made)
    return made


def graph_output(t: Tensor) -> None:
    """Make a tensor an output of the current graph. Raises `ValueError` in the main graph and for a tensor of another
    graph."""
    from tbuda_lab.popxl.ops.utils import check_in_graph

    graph = get_current_context().graph
    check_in_graph(graph, t=t)
    if graph._is_main:
        raise ValueError("the main graph has no outputs: store to a stream")
    graph._outputs.append(t)
