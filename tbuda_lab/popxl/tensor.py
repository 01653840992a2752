"""Tensors: values of ops, variables, constants, and inputs of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.dtypes import as_array
from tbuda_lab.popxl.errors import UndefinedValue
from tbuda_lab.popxl.utils import check_whole, product

if TYPE_CHECKING:
    from tbuda_lab.popxl.graph import Graph, Op
    from tbuda_lab.popxl.ir import Ir
    from tbuda_lab.popxl.remote_buffer import RemoteBuffer
    from tbuda_lab.popxl.replica_grouping import ReplicaGrouping

Shape = tuple[int, ...]
RetrievalMode = Literal["one_per_group", "all_replicas"]


class TensorSpec:
    """Shape, type and meta shape of a tensor; `**spec` gives them as keywords."""

    def __init__(self, shape: Shape, dtype: dtypes.dtype, meta_shape: Shape = ()) -> None:
        self.shape, self.dtype, self.meta_shape = tuple(shape), dtype, tuple(meta_shape)

    def to_dict(self) -> dict[str, Any]:
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.meta_shape

    def keys(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_tuple())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and self.to_tuple() == other.to_tuple()

    def __hash__(self) -> int:
        return hash(self.to_tuple())

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}, meta_shape={self.meta_shape})"


class Tensor:
    """A tensor of a graph. Two are equal where they are the same."""

    _graph: Graph
    _id: str
    _shape: Shape
    _dtype: dtypes.dtype
    _meta_shape: Shape
    _kind: str
    _producer: Op | None
    _consumers: list[Op]

    __iter__ = None
    __contains__ = None
    __array_ufunc__ = None

    def __init__(self) -> None:
        raise RuntimeError(
            "a Tensor cannot be made so; call popxl.variable, popxl.constant, popxl.graph_input or an op"
        )

    @classmethod
    def _make(
        cls, graph: Graph, identifier: str, shape: Shape, data_type: dtypes.dtype, meta: Shape, kind: str
    ) -> Tensor:
        self = object.__new__(cls)
        self._graph, self._id, self._shape, self._dtype, self._meta_shape = graph, identifier, shape, data_type, meta
        self._kind, self._producer, self._consumers = kind, None, []
        return self

    # -- properties ------------------------------------------------------------------------------------------
    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        """The id without the graph's scope."""
        scope = self.scope
        return self._id[len(scope) + 1 :] if scope else self._id

    @property
    def scope(self) -> str:
        return self._graph._scope

    @property
    def dtype(self) -> dtypes.dtype:
        return self._dtype

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def meta_shape(self) -> Shape:
        """Of a shard the shape of the whole tensor, else ()."""
        return self._meta_shape

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self._shape, self._dtype, self._meta_shape)

    @property
    def rank(self) -> int:
        return len(self._shape)

    @property
    def nelms(self) -> int:
        return product(self._shape)

    @property
    def ir(self) -> Ir:
        return self._graph.ir

    @property
    def location_info(self) -> tuple[int, Literal["compute", "io"]]:
        """IPU and tile set. Raises `UndefinedValue` where no op reads or makes the tensor."""
        return self.ipu, self.tile_set

    def _op_of_place(self) -> Op:
        op = self._producer or (self._consumers[0] if self._consumers else None)
        if op is None:
            raise UndefinedValue(f"nothing says where {self._id!r} is: no op reads or makes it")
        return op

    @property
    def ipu(self) -> int:
        """Raises `UndefinedValue` where no op reads or makes the tensor."""
        op = self._op_of_place()
        if self._producer is not None and "destination" in op.attrs:
            return int(op.attrs["destination"])
        if self._producer is None and "source" in op.attrs:
            return int(op.attrs["source"])
        if "ipus" in op.attrs and self._producer is not None:
            return int(op.attrs["ipus"][op.outputs.index(self)])
        if op.ipu is None:
            raise UndefinedValue(f"nothing says on which IPU {self._id!r} is")
        return op.ipu

    @property
    def tile_set(self) -> Literal["compute", "io"]:
        """Raises `UndefinedValue` where no op reads or makes the tensor."""
        op = self._op_of_place()
        if op.kind == "IoTileCopy" and self._producer is None:
            return "compute" if op.io_tiles else "io"
        return "io" if op.io_tiles else "compute"

    @property
    def in_sync_with_ipu(self) -> bool:
        """Whether the host's copy is what lies on the device; of variables in a Session alone."""
        return bool(getattr(self, "_in_sync", True))

    def strides(self, shape: Shape | None = None) -> tuple[int, ...]:
        """Bytes between neighbours along each dim, as NumPy has them."""
        sizes = self._shape if shape is None else tuple(shape)
        return tuple(product(sizes[k + 1 :]) * self._dtype.as_numpy().itemsize for k in range(len(sizes)))

    def __hash__(self) -> int:
        return hash((self.ir.id, self._id))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self._id} {self._dtype} {self._shape}]"

    def __len__(self) -> int:
        """Raises `ValueError` for a number."""
        if not self._shape:
            raise ValueError("a tensor without dims has no length")
        return self._shape[0]

    # -- methods ---------------------------------------------------------------------------------------------
    @property
    def T(self) -> Tensor:
        return self.transpose()

    @property
    def T_(self) -> Tensor:
        return self.transpose_()

    def transpose(self, permutation: Sequence[int] | None = None) -> Tensor:
        return _op("transpose", self, permutation)

    def transpose_(self, permutation: Sequence[int] | None = None) -> Tensor:
        return _op("transpose_", self, permutation)

    def reshape(self, shape: Sequence[int]) -> Tensor:
        return _op("reshape", self, shape)

    def reshape_(self, shape: Sequence[int]) -> Tensor:
        return _op("reshape_", self, shape)

    def flatten(self) -> Tensor:
        return _op("flatten", self)

    def flatten_(self) -> Tensor:
        return _op("flatten_", self)

    def detach(self) -> Tensor:
        return _op("detach", self)

    def detach_(self) -> Tensor:
        return _op("detach_", self)

    def diag(self) -> Tensor:
        """The diagonal of a square matrix. Raises `ValueError` for anything else."""
        if self.rank != 2 or self._shape[0] != self._shape[1]:
            raise ValueError(f"diag takes a square matrix, not a tensor of shape {self._shape}")
        size = self._shape[0]
        return self.flatten()[:: size + 1] if size > 1 else self.flatten()

    def copy_to_ipu(self, destination: int, source: int | None = None) -> Tensor:
        return _op("ipu_copy", self, destination, source)

    # -- operators -------------------------------------------------------------------------------------------
    def _ensure_tensor(self, other: Any, dtype: dtypes.dtype | None = None, raise_on_empty: bool = True) -> Tensor:
        """`other` as a tensor: a constant of this tensor's type for anything that is none. Raises `ValueError` for what
        is empty, and for numbers that an integer type does not have."""
        if isinstance(other, Tensor):
            return other
        array = as_array(other)
        if raise_on_empty and array.size == 0:
            raise ValueError(f"{other!r} is empty: it cannot be an operand")
        form = dtype or self._dtype
        check_whole(array, form.as_numpy(), repr(self._id))
        return constant(array, form)

    def __add__(self, other: Any) -> Tensor:
        return _op("add", self, self._ensure_tensor(other))

    def __radd__(self, other: Any) -> Tensor:
        return _op("add", self._ensure_tensor(other), self)

    def __iadd__(self, other: Any) -> Tensor:
        return _op("add_", self, self._ensure_tensor(other))

    def __sub__(self, other: Any) -> Tensor:
        return _op("sub", self, self._ensure_tensor(other))

    def __rsub__(self, other: Any) -> Tensor:
        return _op("sub", self._ensure_tensor(other), self)

    def __mul__(self, other: Any) -> Tensor:
        return _op("mul", self, self._ensure_tensor(other))

    def __rmul__(self, other: Any) -> Tensor:
        return _op("mul", self._ensure_tensor(other), self)

    def __truediv__(self, other: Any) -> Tensor:
        return _op("div", self, self._ensure_tensor(other))

    def __rtruediv__(self, other: Any) -> Tensor:
        return _op("div", self._ensure_tensor(other), self)

    def __mod__(self, other: Any) -> Tensor:
        return _op("fmod", self, self._ensure_tensor(other))

    def __rmod__(self, other: Any) -> Tensor:
        return _op("fmod", self._ensure_tensor(other), self)

    def __pow__(self, other: Any) -> Tensor:
        return _op("pow", self, self._ensure_tensor(other))

    def __rpow__(self, other: Any) -> Tensor:
        return _op("pow", self._ensure_tensor(other), self)

    def __neg__(self) -> Tensor:
        return _op("negate", self)

    def __matmul__(self, other: Any) -> Tensor:
        return _op("matmul", self, self._ensure_tensor(other))

    def __rmatmul__(self, other: Any) -> Tensor:
        return _op("matmul", self._ensure_tensor(other), self)

    def __and__(self, other: Any) -> Tensor:
        return _op("logical_and", self, self._ensure_tensor(other))

    def __rand__(self, other: Any) -> Tensor:
        return _op("logical_and", self._ensure_tensor(other), self)

    def __or__(self, other: Any) -> Tensor:
        return _op("logical_or", self, self._ensure_tensor(other))

    def __ror__(self, other: Any) -> Tensor:
        return _op("logical_or", self._ensure_tensor(other), self)

    def __invert__(self) -> Tensor:
        return _op("logical_not", self)

    def __getitem__(self, key: Any) -> Tensor:
        """Integers and slices, as in NumPy; whole numbers in a tensor pick along dim 0; a mask of bools makes zeros.

        Raises `TypeError` for anything else."""
        if isinstance(key, list):
            key = np.asarray(key)
        if isinstance(key, Tensor | np.ndarray | torch.Tensor):
            return self._picked(key if isinstance(key, Tensor) else as_array(key))
        keys = key if isinstance(key, tuple) else (key,)
        for one in keys:
            if isinstance(one, bool) or not isinstance(one, int | np.integer | slice):
                raise TypeError(
                    f"a tensor is indexed by integers, slices or a tensor of them, not {type(one).__name__}"
                )
        if len(keys) > self.rank:
            raise TypeError(f"{len(keys)} indices into a tensor of {self.rank} dims")
        return self._sliced(keys)

    def _picked(self, key: Any) -> Tensor:
        kind = key.dtype.is_int if isinstance(key, Tensor) else key.dtype.kind in "iu"
        mask = key.dtype is dtypes.bool if isinstance(key, Tensor) else key.dtype.kind == "b"
        if not kind and not mask:
            raise TypeError(f"a tensor is indexed by integers or bools, not {key.dtype}")
        if mask:
            condition = key if isinstance(key, Tensor) else constant(key, dtypes.bool)
            return _op("where", condition, self, constant(0, self._dtype))
        indices = key if isinstance(key, Tensor) else constant(key, dtypes.int32)
        return _op("gather", self, indices)

    def _sliced(self, keys: tuple[Any, ...]) -> Tensor:
        starts: list[int] = []
        stops: list[int | None] = []
        steps: list[int] = []
        axes: list[int] = []
        strides = [1] * self.rank
        gone = []
        for axis, key in enumerate(keys):
            size = self._shape[axis]
            if isinstance(key, slice):
                begin, end, step = key.indices(size)
                if (begin, end, step) == (0, size, 1):
                    continue
                strides[axis] = abs(step)
                unit = 1 if step > 0 else -1
                stops.append(None if end < 0 else end)
                steps.append(unit)
            else:
                begin = int(key) + (size if key < 0 else 0)
                if not 0 <= begin < size:
                    raise IndexError(f"index {int(key)} into dim {axis} of size {size}")
                stops.append(begin + 1)
                steps.append(1)
                gone.append(axis)
            starts.append(begin)
            axes.append(axis)
        result: Tensor = self
        if axes:
            result = _op("slice", result, starts, stops, steps, axes)
        if any(step > 1 for step in strides):
            result = _op("subsample", result, strides)
        if gone:
            result = _op("squeeze", result, gone)
        return result if result is not self else _op("slice", self)


TensorByRef = type("TensorByRef", (Tensor,), {"__doc__": "Annotation of an argument that a graph may modify."})


class _Stored(Tensor):
    """A tensor of the main graph that holds data."""

    _data: np.ndarray


class Constant(_Stored):
    """Holds data that nothing changes."""

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # type: ignore[override]
        return _op("ipu_copy", self, dst, src)


class Variable(_Stored):
    """Holds data that ops and the host may change."""

    _grouping: ReplicaGrouping
    _retrieval: RetrievalMode
    _remote: tuple[RemoteBuffer, int] | None
    _shards: int
    _in_sync: bool

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # type: ignore[override]
        return _op("ipu_copy", self, dst, src)

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        return self._grouping

    @property
    def retrieval_mode(self) -> RetrievalMode:
        return self._retrieval

    @property
    def shape_on_replica(self) -> Shape:
        return self._shape

    @property
    def shape_on_host(self) -> Shape:
        """With the groups of replicas as dim 0 where there are several."""
        return self._grouping._host_shape(self._shape)


def _op(name: str, *arguments: Any) -> Tensor:
    """A function of `ops`, which is imported when it is first needed: it needs the classes above."""
    from tbuda_lab.popxl import ops

    made: Tensor = getattr(ops, name)(*arguments)
    return made


from tbuda_lab.popxl.factories import (  # noqa: E402 - they make the classes above
    constant,
    graph_input,
    graph_output,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
    variable,
)

__all__ = [
    "Constant",
    "Tensor",
    "TensorByRef",
    "TensorSpec",
    "Variable",
    "constant",
    "get_current_context",
    "graph_input",
    "graph_output",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "variable",
]
