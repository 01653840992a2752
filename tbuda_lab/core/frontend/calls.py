"""aten calls made one at a time: how importers of other formats (ONNX, TFLite, JAX) say what an op means.

An importer writes each op of its format as calls of aten. A call on tensors that are known is made by torch itself; a
call on a value that depends on an input goes through the table that reads torch models, so that a convolution has one
mapping whatever format it came from.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import HOST_FIX, Diagnostic, InputError, UnsupportedOp
from tbuda_lab.core.files import Budget
from tbuda_lab.core.frontend.aten.call import (
    AtenValue,
    Call,
    CannotMap,
    FoldedValue,
    by_name,
    known_empty,
    known_if_empty,
    known_shape,
    lookup,
)
from tbuda_lab.core.frontend.aten.host import complex_call, has_host_form, host_instead, mapping_of
from tbuda_lab.core.frontend.emitter import Emitter, as_array, is_whole
from tbuda_lab.core.frontend.inputs import FIXED, dtype_name
from tbuda_lab.core.graph import Graph, NodeKind, Origin, Shape, ShapeError
from tbuda_lab.core.ops import Cast, Reshape
from tbuda_lab.core.ops.evaluate import ancestors, evaluate_value

Tensor = AtenValue | FoldedValue
MAX_FOLDED = 1 << 29
"""Bytes of tensors that a model's ops make of known ones, all together; `Calls.room` grows with what the file holds."""
SMALL = 4096
"""Elements and sizes up to which a call on known tensors is made without asking first how much comes of it."""


COMPLEX_ALONE = frozenset({"complex", "_fft_r2c"})
"""Calls that make complex numbers of real ones."""


class NotMapped:
    """The result of an op that could not be mapped: its readers are skipped, so that one import names every gap."""


NOT_MAPPED = NotMapped()


class Aten:
    """`aten.add(a, b)`: the op of that name, overload chosen by its operands as torch does."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._calls.call(name, args, kwargs)

        return call


class Calls:
    """Writes a graph by calls of aten. `origin` is that of the op being read; `findings` are the ops without a form;
    progress: hears how far reading is ("op 113 of 337"), and may raise `Cancelled` to stop it."""

    def __init__(self, graph: Graph, progress: Callable[[str], None] | None = None) -> None:
        self.graph, self.progress = graph, progress
        self.emit = Emitter(graph)
        self.aten = Aten(self)
        self.findings: list[Diagnostic] = []
        self.samples: dict[str, torch.Tensor] = {}
        """Sample inputs by the names of their INPUT nodes: see `decided`."""
        self.room = Budget("the model", MAX_FOLDED)

    def at_op(self, position: int, count: int) -> None:
        """Reading is at an op (from 0) of so many."""
        if self.progress is not None:
            self.progress(f"op {position + 1} of {count}")

    # -- leaves ----------------------------------------------------------------------------------------------
    def input(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> AtenValue:
        """An INPUT node; truth values are read through a cast, as those of torch models are."""
        kind = str(dtype).removeprefix("torch.")
        node = self.emit.leaf(NodeKind.INPUT, name, shape, dtype=kind, argument=name)
        if dtype == torch.bool:
            self.emit.scope = ""
            node = self.emit.op(Cast("bool"), node, name=self.graph.unique(f"{node}.cast"))
        return AtenValue(self.emit.typed(node, dtype), dtype)

    def parameter(self, name: str, value: torch.Tensor) -> AtenValue:
        return AtenValue(self.emit.leaf(NodeKind.PARAMETER, name, value.shape, as_array(value)), value.dtype)

    def output(self, value: Tensor, name: str, path: str) -> None:
        """An OUTPUT node. Raises `UnsupportedOp` for complex numbers."""
        if self.dtype(value).is_complex:
            raise UnsupportedOp(f"output {path or name} of the model is complex; return its real and imaginary parts")
        node = value.name
        if isinstance(value, FoldedValue):
            node = self.emit.constant(value.tensor, self.graph.unique(f"{name}.value"))
        dtype = value.dtype if isinstance(value, AtenValue) else value.tensor.dtype
        assert node is not None
        self.emit.output(node, name, path=path, dtype=str(dtype).removeprefix("torch."))

    # -- the op being read -----------------------------------------------------------------------------------
    def at(self, origin: Origin) -> None:
        """Nodes written from now on come from this place of the model."""
        self.emit.origin, self.emit.scope = origin, origin.module

    def refuse(self, origin: Origin, reason: str) -> None:
        """Note an op that is not supported; the import goes on to find the others."""
        where = origin.module or "(root)"
        at = f" ({origin.location})" if origin.location and origin.location != where else ""
        finding = Diagnostic("error", where + at, "unsupported op", f"{origin.source_op}: {reason}", HOST_FIX)
        self.findings.append(finding)

    # -- reading ---------------------------------------------------------------------------------------------
    def shape(self, x: Tensor) -> Shape:
        """Complex values have a last dim of 2 in the graph, which is not part of their shape."""
        if isinstance(x, FoldedValue):
            return tuple(x.tensor.shape)
        shape = tuple(self.graph[x.name].shape)
        return shape[:-1] if x.dtype.is_complex else shape

    def dtype(self, x: Tensor) -> torch.dtype:
        return x.dtype if isinstance(x, AtenValue) else x.tensor.dtype

    def whole_as(self, value: Any, dtype: torch.dtype) -> Any:
        """Whole numbers in the type that the model has them in: torch sums, multiplies and counts in 64 bits what
        others do in the type of their operands, which wraps."""
        if not isinstance(value, AtenValue | FoldedValue) or self.dtype(value) == dtype:
            return value
        both = is_whole(dtype) and is_whole(self.dtype(value))
        return self.aten._to_copy(value, dtype=dtype) if both else value

    def sign(self, x: Tensor) -> Tensor:
        """As all but torch have it: NaN where x is, not 0."""
        y: Tensor = self.aten.sign(x)
        return self.aten.where(self.aten.ne(x, x), x, y) if self.dtype(x).is_floating_point else y

    def constant(self, value: Any, label: str | None = None) -> FoldedValue:
        """A number, array or tensor as an operand."""
        tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
        stem = label or "constant"
        return FoldedValue(tensor, f"{self.emit.scope}.{stem}" if self.emit.scope and label is None else stem)

    def make_room(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Before a tensor is made that the model states. Raises `CannotMap` where all of them are too much."""
        try:
            self.room.take_array(tuple(shape), dtype.itemsize, "a tensor that is known")
        except InputError as error:
            raise CannotMap(str(error)) from error

    def decided(self, x: AtenValue) -> torch.Tensor | None:
        """The value of a tensor that says how, not what (a shape, axes, a count), where inputs decide it: the one that
        the sample inputs give. Those inputs are fixed to it (`inputs.FIXED`). None where there are no samples, or where
        it takes inputs that are too large to be such numbers."""
        names = ancestors(self.graph, x.name)
        leaves = [n for n in map(self.graph.__getitem__, names) if n.kind is not NodeKind.OP]
        given = {n.name: self.samples.get(n.name) for n in leaves if n.kind is NodeKind.INPUT}
        for name, sample in given.items():
            if sample is None or tuple(sample.shape) != tuple(self.graph[name].shape) or not _says_how(sample):
                return None
        if any(n.kind is NodeKind.PARAMETER and n.value is None for n in leaves):
            return None
        feeds = {name: sample for name, sample in given.items() if sample is not None}
        for name, sample in feeds.items():
            self.graph[name].attrs[FIXED] = sample.reshape(-1).tolist()
        return evaluate_value(self.graph, x.name, feeds).to(x.dtype)

    # -- calls -----------------------------------------------------------------------------------------------
    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One aten call. Raises `CannotMap` for a use without a form, or one that torch itself refuses."""
        packet = getattr(torch.ops.aten, name)
        example_args, example_kwargs = pytree.tree_map_only((AtenValue, FoldedValue), self._example, (args, kwargs))
        try:
            with torch.no_grad():
                overload = torch._C._jit_resolve_packet(f"aten::{name}", *example_args, **example_kwargs)
                return self.overload(getattr(packet, overload or "default"), args, kwargs)
        except (RuntimeError, TypeError, IndexError, NotImplementedError) as error:
            raise CannotMap(str(error).strip().split("\n")[0]) from error

    def overload(self, target: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose overload is chosen: made now if every operand is known, else mapped, else decomposed."""
        args, kwargs = pytree.tree_map_only(AtenValue, functools.partial(known_if_empty, self.graph), (args, kwargs))
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(v, NotMapped) for v in leaves):
            return NOT_MAPPED
        if not any(isinstance(v, AtenValue) for v in leaves):
            self._fits(target, leaves, args, kwargs)
            plain_args, plain_kwargs = pytree.tree_map_only(FoldedValue, lambda f: f.tensor, (args, kwargs))
            return pytree.tree_map_only(torch.Tensor, self.constant, target(*plain_args, **plain_kwargs))
        mapping = lookup(target)
        if mapping is None:
            decomposition = torch._decomp.decomposition_table.get(target)
            mapping = mapping_of(target)
            of_complex = any(self.dtype(v).is_complex for v in leaves if isinstance(v, AtenValue | FoldedValue))
            if of_complex or target._schema.name.split("::")[-1] in COMPLEX_ALONE:
                mapping = complex_call
            elif decomposition is not None:
                try:
                    return self.trace(decomposition, *args, **kwargs)
                except CannotMap:
                    if mapping is None:
                        raise
            elif mapping is None:
                raise CannotMap(f"unsupported op {target}")
        example_args, example_kwargs = pytree.tree_map_only((AtenValue, FoldedValue), self._example, (args, kwargs))
        out = target(*example_args, **example_kwargs)
        pieces = list(out) if isinstance(out, tuple | list) else [out]
        if all(p.numel() == 0 for p in pieces):  # nothing computes it, so it is known
            return self.constant(torch.empty(out.shape, dtype=out.dtype)) if len(pieces) == 1 else None
        if any(self.dtype(v).is_complex for v in leaves if isinstance(v, AtenValue | FoldedValue)) or any(
            p.is_complex() for p in pieces
        ):
            mapping = complex_call
        count, call = len(self.graph.nodes), Call(target, by_name(target, args, kwargs), out, self.emit)
        try:
            result = mapping(call)
        except (CannotMap, ShapeError):
            if not has_host_form(call):
                raise
            result = host_instead(call, count)
        if call.counts():
            self.emit.mark_sums(count, result, out)
        if isinstance(result, tuple):
            return tuple(
                self._check_value(r, o) if r is not None else known_empty(o, "constant")
                for r, o in zip(result, out, strict=False)
            )
        return self._check_value(result, out)

    def _fits(
        self, target: torch._ops.OpOverload, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Raises `CannotMap` where a call on known tensors would make more than there is room for."""
        elements = sum(v.tensor.numel() for v in leaves if isinstance(v, FoldedValue))
        sizes = math.prod(max(1, abs(v)) for v in leaves if isinstance(v, int))
        if elements <= SMALL and sizes <= SMALL:
            return
        example_args, example_kwargs = pytree.tree_map_only(FoldedValue, self._example, (args, kwargs))
        if not any(isinstance(v, FoldedValue) for v in leaves) and any(
            a.name == "device" for a in target._schema.arguments
        ):
            example_kwargs["device"] = torch.device("meta")
        try:
            results = pytree.tree_leaves(target(*example_args, **example_kwargs))
        except (RuntimeError, NotImplementedError):
            return  # how much it makes depends on values, and is less than it reads; or torch refuses it in a moment
        for result in results:
            if isinstance(result, torch.Tensor):
                self.make_room(result.shape, result.dtype)

    def trace(self, function: Callable[..., Any], *args: Any, whole_ops: bool = True, **kwargs: Any) -> Any:
        """What a function of torch tensors calls, made call by call: for what is easier said as a whole.

        whole_ops: keep matmul, layer_norm and the like whole; without it they arrive in torch's own pieces.
        """
        from torch.fx.experimental.proxy_tensor import make_fx  # with torch's tracer, which few calls need

        flat, spec = pytree.tree_flatten((args, kwargs))
        places = [k for k, v in enumerate(flat) if isinstance(v, AtenValue | FoldedValue)]

        def of_tensors(*tensors: torch.Tensor) -> Any:
            filled = list(flat)
            for k, tensor in zip(places, tensors, strict=True):
                filled[k] = tensor
            inner_args, inner_kwargs = pytree.tree_unflatten(filled, spec)
            return function(*inner_args, **inner_kwargs)

        examples = [torch.zeros(self.shape(flat[k]), dtype=self.dtype(flat[k])) for k in places]
        with torch.no_grad():
            module = make_fx(of_tensors, tracing_mode="fake", pre_dispatch=whole_ops)(*examples)
        values: dict[torch.fx.Node, Any] = {}
        operands = iter([flat[k] for k in places])
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(operands)
            elif node.op == "get_attr":
                values[node] = self.constant(operator.attrgetter(str(node.target))(module))
            elif node.op == "call_function":
                inner = pytree.tree_map_only(torch.fx.Node, values.__getitem__, (node.args, node.kwargs))
                if node.target is operator.getitem:
                    values[node] = inner[0][0][inner[0][1]]
                else:
                    assert isinstance(node.target, torch._ops.OpOverload)
                    values[node] = self.overload(node.target, *inner)
            elif node.op == "output":
                return pytree.tree_map_only(torch.fx.Node, values.__getitem__, node.args[0])
        return None

    def _example(self, x: Tensor) -> torch.Tensor:
        return torch.empty(self.shape(x), dtype=self.dtype(x), device="meta")

    def _check_value(self, name: str, example: torch.Tensor) -> AtenValue:
        ours, theirs = tuple(self.graph[name].shape), known_shape(example)
        if theirs is not None and example.is_complex():
            theirs = (*theirs, 2)
        if theirs is not None and ours != theirs and math.prod(ours) == math.prod(theirs):
            name, ours = self.emit.op(Reshape(theirs), name), theirs
        if ours != theirs:
            raise ShapeError(f"mapped to shape {ours}, torch says {theirs}")
        return AtenValue(self.emit.typed(name, example.dtype), example.dtype)


MOST_DECIDING = 1024
MOST_DECIDING_FLOATS = 16


def _says_how(sample: torch.Tensor) -> bool:
    """Whether an input may be taken for numbers that decide shapes: whole numbers, or a few floats in a row."""
    if sample.is_floating_point():
        return sample.dim() <= 1 and sample.numel() <= MOST_DECIDING_FLOATS
    return not sample.is_complex() and sample.numel() <= MOST_DECIDING


def finish(calls: Calls) -> Graph:
    """The graph without ops, constants and weights that nobody reads."""
    calls.graph.prune()
    return calls.graph


__all__ = ["NOT_MAPPED", "Aten", "Calls", "NotMapped", "Tensor", "dtype_name", "finish"]
