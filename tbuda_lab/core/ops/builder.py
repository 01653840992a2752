"""Adds nodes to a graph: shapes inferred, names made, origins kept."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from tbuda_lab.core.graph import REGISTRY, Edge, Graph, GraphError, Node, NodeKind, Op, Origin, Shape, ShapeError
from tbuda_lab.core.options import CompileOptions

NO_ORIGIN = Origin()
DEFAULTS = CompileOptions()


class Builder:
    """Appends nodes to `graph`.

    With a `stem` (the node being decomposed) ops are named `<stem>.dc.<op>.<k>` and constants
    `dc.input_tensor.<stem>.<k>`, k counting both; without one, by op type. Every node gets `origin` and a copy of
    `attrs`. `options` tell decompositions what the user chose (stable softmax, data format).
    Names in `taken` are not given to new nodes.
    """

    def __init__(
        self,
        graph: Graph,
        origin: Origin = NO_ORIGIN,
        stem: str = "",
        attrs: Mapping[str, Any] | None = None,
        options: CompileOptions = DEFAULTS,
        taken: Container[str] = (),
    ) -> None:
        self.graph = graph
        self.taken = taken
        self.options = options
        self.origin = origin
        self.stem = stem
        self.attrs = dict(attrs or {})
        self.count = 0

    def _name(self, kind: str, constant: bool) -> str:
        if not self.stem:
            return self.graph.unique(kind)
        while True:
            k, self.count = self.count, self.count + 1
            name = f"dc.input_tensor.{self.stem}.{k}" if constant else f"{self.stem}.dc.{kind}.{k}"
            if name not in self.graph and name not in self.taken:
                return name

    def shape(self, name: str) -> Shape:
        return self.graph[name].shape

    def op(self, op: Op, *operands: str, name: str | None = None) -> str:
        """Add an op; returns its name. Raises `GraphError` naming the node when the shapes do not fit."""
        name = name or self._name(op.type, False)
        try:
            shape = op.infer(*(self.graph[o].shape for o in operands))
        except ShapeError as e:
            raise GraphError(f"{name}: {e}") from e
        edges = tuple(Edge(o) for o in operands)
        attrs = dict(self.attrs)
        self.graph.add(Node(name, NodeKind.OP, shape, op, edges, origin=self.origin, attrs=attrs))
        return name

    def constant(self, value: Any, name: str | None = None) -> str:
        """Add a constant; Python numbers become one-element float32 tensors. Returns its name."""
        array = np.atleast_1d(np.asarray(value, dtype=np.float32)) if np.isscalar(value) else np.asarray(value)
        name = name or self._name("constant", True)
        self.graph.add(Node(name, NodeKind.CONSTANT, tuple(array.shape), origin=self.origin, value=array))
        return name

    def value(self, name: str) -> np.ndarray | None:
        """The array of a constant; None for anything else."""
        node = self.graph[name]
        return node.value if node.kind is NodeKind.CONSTANT else None

    def scalar(self, name: str) -> float | None:
        """The number that every element of a constant has; None for anything else."""
        value = self.value(name)
        if value is None or value.size == 0:
            return None
        first = value.reshape(-1)[0]
        return float(first) if value.size == 1 or bool((value == first).all()) else None

    def mark_truth(self, name: str) -> str:
        """Note that `name` holds only 0 and 1."""
        if self.graph[name].kind is NodeKind.OP:
            self.graph[name].attrs["truth"] = True
        return name

    # -- arithmetic, with Python numbers allowed on either side ------------------------------------------------
    def _new(self, op_type: str, *operands: str | float, **fields: Any) -> str:
        """Add an op by its type: the classes of ops write themselves with this builder, which knows none of them."""
        make: Callable[..., Op] = REGISTRY[op_type]
        return self.op(make(**fields), *map(self._operand, operands))

    def _operand(self, x: str | float) -> str:
        return x if isinstance(x, str) else self.constant(float(x))

    def add(self, a: str | float, b: str | float) -> str:
        return self._new("add", a, b)

    def subtract(self, a: str | float, b: str | float) -> str:
        return self._new("subtract", a, b)

    def multiply(self, a: str | float, b: str | float) -> str:
        return self._new("multiply", a, b)

    def maximum(self, a: str | float, b: str | float) -> str:
        return self._new("maximum", a, b)

    def negate(self, x: str) -> str:
        return self.multiply(x, -1.0)

    def reshape(self, x: str, shape: Shape) -> str:
        """x under another shape; x itself when it has that shape."""
        return x if self.shape(x) == tuple(shape) else self._new("reshape", x, shape=tuple(shape))

    def transpose(self, x: str, dim0: int = -2, dim1: int = -1) -> str:
        return self._new("transpose", x, dim0=dim0, dim1=dim1)

    # -- 1 where a finite x compares so with a number, else 0 --------------------------------------------------
    def above(self, x: str, bound: float) -> str:
        return self._new("greater", x, bound, finite=True)

    def below(self, x: str, bound: float) -> str:
        return self._new("less", x, bound, finite=True)

    def from_on(self, x: str, bound: float) -> str:
        return self._new("greater_equal", x, bound, finite=True)

    def up_to(self, x: str, bound: float) -> str:
        return self._new("less_equal", x, bound, finite=True)
