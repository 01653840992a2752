"""Writing an nD graph while a model is read: names that stay, origins, constants made once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.frontend.inputs import refuse_beyond_float32
from tbuda_lab.core.frontend.large_values import LARGEST
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Op, Origin, Shape, ShapeError
from tbuda_lab.core.ops import Add, Cast, Matmul, ReduceSum
from tbuda_lab.core.ops.evaluate import WHOLE_TYPE
from tbuda_lab.core.ops.tm import MOVES


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """The value of a node from a torch tensor: floats as float32, integers as they are, truth values as 0.0 and 1.0.

    Raises `ModelError` for a tensor without values (on the meta device), unless it is empty, and `InputError` for
    float64 beyond float32.
    """
    if tensor.is_meta:
        if tensor.numel():
            raise ModelError(
                f"the model holds a constant of shape {tuple(tensor.shape)} on the meta device, which has no values; "
                "make constants outside `torch.device('meta')`, or register the tensor as a buffer"
            )
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype)
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    refuse_beyond_float32(plain, f"a weight or constant of shape {tuple(plain.shape)}")
    if plain.dtype == torch.bool or plain.is_floating_point():
        return np.asarray(plain.to(torch.float32).numpy())
    return np.asarray(plain.numpy())


def is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


class Emitter:
    """Adds nodes to a graph. `origin` and `scope` (the name prefix) belong to the op of the model being read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.origin = Origin()
        self.scope = ""
        self.made: dict[str, torch.dtype] = {}  # by value the type it was made in, where that is narrowed
        self.dropouts: list[Origin] = []  # calls that draw when the model trains, and do nothing here
        self.drops: Callable[[Origin], bool] | None = None  # which of them multiply by a mask all the same
        self.keeps_stops = False  # whether what stops gradients becomes an op
        self._counts: dict[str, int] = {}
        self._scalars: dict[tuple[str, str], str] = {}

    def name_for(self, stem: str) -> str:
        """`<scope>.<stem>` the first time, `<scope>.<stem>_<k>` from the second on."""
        full = f"{self.scope}.{stem}" if self.scope else stem
        while True:
            count = self._counts.get(full, 0)
            self._counts[full] = count + 1
            name = full if count == 0 else f"{full}_{count}"
            if name not in self.graph:
                return name

    def shape(self, name: str) -> Shape:
        return self.graph[name].shape

    def op(self, op: Op, *operands: str, name: str | None = None) -> str:
        """Add an op node on the named operands; its shape is inferred. Returns its name. Raises `ShapeError` for a
        value that no device holds."""
        shape = tuple(op.infer(*(self.graph[x].shape for x in operands)))
        if (size := math.prod(shape)) > LARGEST:
            raise ShapeError(
                f"a value of {size:,} elements; {LARGEST:,} are the most: cut it into several inputs or calls"
            )
        if isinstance(op, Matmul) and size and 0 in self.graph[operands[0]].shape:  # a sum of nothing, and the bias
            zeros = self.constant(np.zeros(shape, np.float32))
            return self.op(Add(), zeros, operands[2], name=name) if len(operands) > 2 else zeros
        node = Node(
            name or self.name_for(op.type), NodeKind.OP, shape, op, tuple(Edge(x) for x in operands), origin=self.origin
        )
        self.graph.add(node)
        return node.name

    def take_back(self, count: int) -> None:
        """Forget the nodes behind the first `count`, and that there were any."""
        for name in list(self.graph.nodes)[count:]:
            del self.graph.nodes[name]
            self.made.pop(name, None)
        self._scalars = {key: name for key, name in self._scalars.items() if name in self.graph}

    def constant(self, value: torch.Tensor | np.ndarray | float, name: str | None = None) -> str:
        """Add a CONSTANT node; a bare number becomes a tensor of shape (1,) shared by the ops of one scope."""
        if isinstance(value, int | float):
            key = (float(value).hex(), self.scope)  # which tells -0.0 from 0.0, and NaN is itself
            if key in self._scalars:
                return self._scalars[key]
            with np.errstate(over="ignore"):  # beyond float32 is infinity there, as in torch
                number = np.full((1,), value, np.float32)
            result = self._constant(number, name or self.name_for("constant"))
            self._scalars[key] = result
            return result
        array = as_array(value) if isinstance(value, torch.Tensor) else value
        return self._constant(array, name or self.name_for("constant"))

    def _constant(self, array: np.ndarray, name: str) -> str:
        node = Node(name, NodeKind.CONSTANT, tuple(int(n) for n in array.shape), value=array, origin=self.origin)
        self.graph.add(node)
        return name

    def leaf(
        self, kind: NodeKind, name: str, shape: Sequence[int], value: np.ndarray | None = None, **attrs: object
    ) -> str:
        """Add an INPUT or PARAMETER node under a free name."""
        node = Node(self.graph.unique(name), kind, tuple(int(n) for n in shape), value=value, origin=self.origin)
        node.attrs.update(attrs)
        self.graph.add(node)
        return node.name

    def typed(self, name: str, dtype: torch.dtype) -> str:
        """The value as one of this type. Moves keep the type that their operand was made in, and an op of whole numbers
        says so: floats do not hold all of them."""
        known = self.made.get(name, dtype)
        if known != dtype and is_whole(dtype) and (is_whole(known) or known == torch.bool):
            name = self.op(Cast(str(dtype).removeprefix("torch.")), name)  # a sum of one number, say, has another type
        node = self.graph[name]
        if node.kind is NodeKind.OP:
            if isinstance(node.op, MOVES):
                self.made.setdefault(name, self.made.get(node.sources[0], dtype))
            if is_whole(dtype):
                node.attrs.setdefault(WHOLE_TYPE, str(dtype).removeprefix("torch."))
        self.made.setdefault(name, dtype)
        return name

    def mark_sums(self, count: int, result: Any, example: Any) -> None:
        """Mark the sums behind the first `count` nodes, which a call on whole numbers has written: each may pass what
        float32 counts to, not only the result. They are 64-bit ones, as torch makes them; the result wraps."""
        if isinstance(example, torch.Tensor) and is_whole(example.dtype):
            for name in list(self.graph.nodes)[count:]:
                if name != result and isinstance(self.graph[name].op, ReduceSum):
                    self.graph[name].attrs.setdefault(WHOLE_TYPE, "int64")

    def output(self, source: str, name: str, **attrs: object) -> str:
        node = Node(name, NodeKind.OUTPUT, self.graph[source].shape, inputs=(Edge(source),))
        node.origin = self.graph[source].origin
        node.attrs.update(attrs)
        self.graph.add(node)
        return name
