"""A JAX function read equation by equation of its jaxpr into a Graph."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import InputError, ModelError, UnsupportedOp
from tbuda_lab.core.frontend.aten.call import RANDOM, AtenValue, CannotMap, FoldedValue, ReadArguments
from tbuda_lab.core.frontend.calls import NOT_MAPPED, Calls, NotMapped, Tensor, finish
from tbuda_lab.core.frontend.jax_model import indices, linear_algebra  # noqa: F401  they fill the table
from tbuda_lab.core.frontend.jax_model.primitives import TABLE, Equation, plain_type, refuse_unread
from tbuda_lab.core.frontend.provenance import short_path
from tbuda_lab.core.graph import Graph, Origin, ShapeError

MISSING = "reading JAX models needs the package jax: pip install 'tbuda-lab[jax]'"
LONGEST = 4096
"""Turns of a scan that are unrolled."""


def from_jax(
    function: Callable[..., Any],
    sample_inputs: Any,
    params: Any = None,
    *,
    name: str = "model",
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """The nD graph of `function(*sample_inputs)`, or of `function(params, *sample_inputs)` with weights in a pytree.

    sample_inputs: arrays or tensors. Leaves of `params` become parameters named by their path ("layers.0.w"), arrays
    that the function closes over become "weight", "weight.1", ... Ops bear the scopes of `jax.named_scope` (and of Flax
    modules) and the user's line. OUTPUT nodes are `<name>.output_<k>`. progress: as of `Calls`. Raises
    `ModelError` for a function that JAX cannot trace and `UnsupportedOp` naming every primitive without a form.
    """
    try:
        import jax
    except ImportError:
        raise ModelError(MISSING) from None
    inputs = [as_array(x) for x in (sample_inputs if isinstance(sample_inputs, tuple | list) else [sample_inputs])]
    weights, tree = jax.tree_util.tree_flatten_with_path(params)

    def call(leaves: list[Any], *arguments: Any) -> Any:
        if params is None:
            return function(*arguments)
        return function(jax.tree_util.tree_unflatten(tree, leaves), *arguments)

    try:
        closed, returned = jax.make_jaxpr(call, return_shape=True)([leaf for _, leaf in weights], *inputs)
    except Exception as error:
        raise ModelError(
            f"JAX cannot trace the function: {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    reader = _JaxReader(Calls(Graph(name), progress))
    names = [_dotted_path(path) for path, _ in weights]
    places = closed.jaxpr.invars[: len(weights)]
    values: dict[Any, Any] = {}
    stored = [(f"args[{k}]", x) for k, x in enumerate(inputs)]
    for var, (label, x) in zip(closed.jaxpr.invars[len(weights) :], stored, strict=True):
        values[var] = reader.calls.input(label, x.shape, torch.from_numpy(np.zeros(0, x.dtype)).dtype)
    for var, label, (_, leaf) in zip(places, names, weights, strict=True):
        values[var] = reader.weight(label, leaf)
    for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        values[var] = reader.weight("weight", const)
    results = reader.equations(closed.jaxpr, values, "")
    if reader.calls.findings:
        count = len(reader.calls.findings)
        raise UnsupportedOp(
            f"{count} primitive{'s' * (count > 1)} of the model cannot be mapped", reader.calls.findings
        )
    for x in inputs:
        if x.dtype.kind == "u" and x.dtype.itemsize > 1:
            raise InputError(
                f"an input of {x.dtype} has no arithmetic here; give int32, and convert it in the function"
            )
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(returned)[0]]
    reader.calls.at(Origin())
    for k, (value, path) in enumerate(zip(results, paths, strict=True)):
        try:
            value = reader._plain(value)
        except CannotMap as error:
            raise ModelError(f"output {path or k} of the function is a key of random numbers, not an array") from error
        reader.calls.output(value, f"{name}.output_{k}", path)
    if not results:
        raise ModelError("the function returns no array")
    return finish(reader.calls)


def as_array(value: Any) -> np.ndarray:
    """A NumPy array of 32 bits, as JAX takes it by default. Raises `InputError` for what is not a tensor."""
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"an input of type {type(value).__name__} is not an array of numbers")
    narrow = {"float64": np.float32, "int64": np.int32}.get(array.dtype.name)
    return array if narrow is None else array.astype(narrow)


def _dotted_path(path: Any) -> str:
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    return ".".join(p for p in parts if p not in ("params", "")) or "weight"


@dataclasses.dataclass
class OpaqueValue:
    """A known value of a type that torch does not compute with: a key of random numbers, whole numbers without sign."""

    value: Any


class _JaxReader:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def weight(self, name: str, value: Any) -> Tensor | OpaqueValue:
        if _of_jax_alone(value):
            return OpaqueValue(value)
        dtype = getattr(value, "dtype", None)
        plain = np.float32 if _is_short_float(value) else None if dtype is None else plain_type(dtype)
        tensor = torch.from_numpy(np.array(value, dtype=plain))
        if tensor.is_floating_point() and tensor.numel() > 1:
            self.calls.at(Origin(module=name.rpartition(".")[0]))
            return self.calls.parameter(name, tensor)
        return FoldedValue(tensor, name)

    def equations(self, jaxpr: Any, values: dict[Any, Any], scope: str) -> list[Any]:
        """Values of the outputs of a jaxpr whose inputs are in `values`."""

        def of(atom: Any) -> Any:
            if type(atom).__name__ == "Literal":
                return self.calls.constant(np.asarray(atom.val).astype(plain_type(atom.aval.dtype)))
            return values[atom]

        for position, equation in enumerate(jaxpr.eqns):
            self.calls.at_op(position, len(jaxpr.eqns))
            operands = [of(v) for v in equation.invars]
            results = self.equation(equation, operands, scope)
            for var, value in zip(equation.outvars, results, strict=True):
                values[var] = value
        return [of(v) for v in jaxpr.outvars]

    def equation(self, equation: Any, operands: list[Any], scope: str) -> list[Any]:
        kind, params = equation.primitive.name, equation.params
        origin = _origin(equation, scope)
        if any(isinstance(v, NotMapped) for v in operands):
            return [NOT_MAPPED] * len(equation.outvars)
        inner = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        self.calls.at(origin)
        try:
            if all(isinstance(v, FoldedValue | OpaqueValue) for v in operands) and (
                kind == "random_seed" or any(isinstance(v, OpaqueValue) for v in operands)
            ):
                return self._now(equation, operands)
            operands = [self._plain(v) for v in operands]
            if kind == "scan":
                return self._scan(params, operands, origin)
            if kind == "cond":
                return self._cond(params, operands, origin)
            if kind == "while":
                return self._while(params, operands, origin)
            if kind == "custom_linear_solve":
                counts = params["const_lengths"]
                first = counts.matvec + counts.vecmat
                own = [*operands[first : first + counts.solve], *operands[sum(counts) :]]
                return self._inline(params["jaxprs"].solve, own, origin)
            if inner is not None:
                return self._inline(inner, operands, origin)
            if kind not in TABLE:
                raise CannotMap("unsupported op")
            one = Equation(self.calls, kind, ReadArguments(params), operands, [v.aval for v in equation.outvars])
            result = TABLE[kind](one)
            refuse_unread(one)
            results = list(result) if isinstance(result, tuple | list) else [result]
            return [self._as_typed(value, var.aval) for value, var in zip(results, equation.outvars, strict=False)]
        except (CannotMap, ShapeError) as error:
            self.calls.refuse(origin, str(error))
            return [NOT_MAPPED] * len(equation.outvars)

    def _as_typed(self, value: Any, wanted: Any) -> Any:
        if not np.issubdtype(wanted.dtype, np.integer):
            return value
        return self.calls.whole_as(value, torch.from_numpy(np.zeros(0, plain_type(wanted.dtype))).dtype)

    def _now(self, equation: Any, operands: list[Any]) -> list[Any]:
        """The equation made by JAX itself: random numbers of a key that is known are known."""
        import jax

        values = [
            v.value if isinstance(v, OpaqueValue) else jax.numpy.asarray(v.tensor.numpy(), dtype=var.aval.dtype)
            for v, var in zip(operands, equation.invars, strict=True)
        ]
        with jax.ensure_compile_time_eval():
            results = equation.primitive.bind(*values, **equation.params)
        results = list(results) if equation.primitive.multiple_results else [results]
        return [OpaqueValue(r) if _of_jax_alone(r) else self._plain(OpaqueValue(r)) for r in results]

    def _plain(self, value: Any) -> Any:
        """What JAX alone holds, as a tensor. Raises `CannotMap` for the key of random numbers."""
        if not isinstance(value, OpaqueValue):
            return value
        if not np.issubdtype(value.value.dtype, np.generic):
            raise CannotMap(RANDOM)
        return self.calls.constant(np.asarray(value.value).astype(plain_type(value.value.dtype)))

    def _inline(self, inner: Any, operands: list[Any], origin: Origin) -> list[Any]:
        closed = hasattr(inner, "consts")
        jaxpr = inner.jaxpr if closed else inner
        values = dict(zip(jaxpr.invars, operands, strict=True))
        for var, const in zip(jaxpr.constvars, inner.consts if closed else (), strict=True):
            values[var] = self.weight("weight", const)
        return self.equations(jaxpr, values, origin.module)

    def _scan(self, params: Any, operands: list[Any], origin: Origin) -> list[Any]:
        """A scan, unrolled."""
        consts, carries, length = params["num_consts"], params["num_carry"], params["length"]
        if length > LONGEST:
            raise CannotMap(f"a scan of {length} turns; at most {LONGEST} are unrolled")
        fixed, state, scanned = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]
        count = len(params["jaxpr"].jaxpr.outvars) - carries
        collected: list[list[Any]] = [[] for _ in range(count)]
        order = range(length - 1, -1, -1) if params["reverse"] else range(length)
        for turn in order:
            parts = [self.calls.aten.select(x, 0, turn) for x in scanned]
            results = self._inline(params["jaxpr"], [*fixed, *state, *parts], origin)
            state = results[:carries]
            for column, value in zip(collected, results[carries:], strict=True):
                column.append(value)
        stacked = [self.calls.aten.stack(c[::-1] if params["reverse"] else c, 0) for c in collected]
        return [*state, *stacked]

    def _while(self, params: Any, operands: list[Any], origin: Origin) -> list[Any]:
        """A loop whose number of turns no input decides, unrolled."""
        tested, turned = params["cond_nconsts"], params["body_nconsts"]
        fixed, body, state = operands[:tested], operands[tested : tested + turned], operands[tested + turned :]
        for _ in range(LONGEST):
            (goes_on,) = self._inline(params["cond_jaxpr"], [*fixed, *state], origin)
            if not isinstance(goes_on, FoldedValue):
                raise CannotMap("how often the loop turns depends on an input; use a fixed number of turns")
            if not bool(goes_on.tensor):
                return state
            state = self._inline(params["body_jaxpr"], [*body, *state], origin)
        raise CannotMap(f"a loop of more than {LONGEST} turns")

    def _cond(self, params: Any, operands: list[Any], origin: Origin) -> list[Any]:
        """A known index picks its branch; else all are computed and one is chosen."""
        which, rest = operands[0], operands[1:]
        branches = params["branches"]
        if isinstance(which, FoldedValue):
            at = min(max(int(which.tensor), 0), len(branches) - 1)
            return self._inline(branches[at], rest, origin)
        results = [self._inline(b, rest, origin) for b in branches]
        chosen = results[-1]
        for k in range(len(branches) - 2, -1, -1):
            here = self.calls.aten.le(which, k)
            chosen = [self.calls.aten.where(here, a, b) for a, b in zip(results[k], chosen, strict=True)]
        return chosen


def _of_jax_alone(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (str(dtype).startswith("key<") or str(dtype) in ("uint16", "uint32", "uint64"))


def _is_short_float(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) in ("bfloat16", "float16", "float64")


def _origin(equation: Any, scope: str) -> Origin:
    """Scopes of the equation's name stack, and the innermost line of the user's code."""
    stack = re.sub(r"\w+\(([^()]*)\)", r"\1", str(equation.source_info.name_stack))
    module = ".".join(p for p in (scope, stack.replace("/", ".")) if p)
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(equation.source_info.traceback)
        location = f"{short_path(frame.file_name)}:{frame.start_line}" if frame else ""
    except Exception:  # where JAX keeps it is not promised
        location = ""
    return Origin(module, "", f"jax.{equation.primitive.name}", location)


__all__ = ["AtenValue", "from_jax"]
