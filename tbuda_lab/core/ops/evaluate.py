"""Runs an nD graph in torch: the reference of passes, of verification, and of host recipes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

import numpy as np
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import Graph, GraphError, Node, NodeKind
from tbuda_lab.core.graph.phases import evaluation_order, handed_over
from tbuda_lab.core.ops.base import NdOp

Values = dict[str, torch.Tensor]
WHOLE_TYPE = "whole_type"
"""Attribute of an op on whole numbers: the type that torch gives its result, in which it wraps."""
GRID_WHOLE = "grid_whole"
"""Mark of an op whose result, and of a constant or an INPUT that holds 32-bit whole numbers on the device."""


class Evaluation:
    """A graph made ready to be evaluated more than once. It must not change."""

    def __init__(self, graph: Graph) -> None:
        order, self._handed = evaluation_order(graph), handed_over(graph)
        self._outputs = [node.name for node in graph.outputs]
        last_use = {name: node.name for node in order for name in node.sources}
        last_use.update((source, name) for name, source in self._handed.items())
        dying: dict[str, list[str]] = {}
        for name, reader in last_use.items():
            dying.setdefault(reader, []).append(name)
        self._steps = [(n.name, functools.partial(node_value, graph, n), tuple(dying.get(n.name, ()))) for n in order]

    def run(self, feeds: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Values:
        """See `evaluate`."""
        values: Values = {}
        with torch.no_grad() if torch.is_grad_enabled() else contextlib.nullcontext():
            for name, value, dead in self._steps:
                fed = name in self._handed and name not in feeds
                values[name] = values[self._handed[name]] if fed else value(values, feeds, dtype)
                for each in dead:
                    values.pop(each, None)
        return {name: values[name] for name in self._outputs}


def evaluate(graph: Graph, feeds: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> Values:
    """Outputs by name. `feeds` holds the model's own inputs; an INPUT or OUTPUT with a recipe applies it.

    dtype: evaluate all floats in this type (torch.float64 for a closer reference). A fed tensor also stands in for a
    parameter of that name. Of generation (see `graph.phases`) the prompt's part is evaluated first, then the decode
    part on the cache that it leaves. Raises `InputError` for a missing input or a wrong shape.
    """
    return Evaluation(graph).run(feeds, dtype)


def evaluate_nodes(
    graph: Graph, feeds: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None, differentiable: bool = False
) -> Values:
    """The value of every node by name; otherwise as `evaluate`. differentiable: torch records what its autograd needs
    for gradients by the fed tensors that require one."""
    values: Values = {}
    handed = handed_over(graph)
    with torch.set_grad_enabled(differentiable):
        for node in evaluation_order(graph):
            fed = node.name in handed and node.name not in feeds
            values[node.name] = values[handed[node.name]] if fed else node_value(graph, node, values, feeds, dtype)
    return values


def ancestors(graph: Graph, name: str) -> set[str]:
    """A node and all that it depends on."""
    found: set[str] = set()
    stack = [name]
    while stack:
        at = stack.pop()
        if at not in found:
            found.add(at)
            stack.extend(graph[at].sources)
    return found


def evaluate_value(graph: Graph, name: str, feeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The value of one node; only what it depends on is evaluated."""
    needed, values = ancestors(graph, name), dict[str, torch.Tensor]()
    with torch.no_grad():
        for node in graph.topological():
            if node.name in needed:
                values[node.name] = node_value(graph, node, values, feeds, None)
    return values[name]


def run_recipe(recipe: Graph, feeds: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> torch.Tensor:
    """The one result of a recipe (a graph with one output)."""
    (result,) = evaluate(recipe, feeds, dtype).values()
    return result


def to_tensor(value: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A node's array as a tensor; shares memory where torch allows it."""
    tensor = torch.from_numpy(value if value.flags.writeable else np.array(value))
    return _as(tensor, dtype)


def _as(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def node_value(
    graph: Graph, node: Node, values: Values, feeds: Mapping[str, torch.Tensor], dtype: torch.dtype | None
) -> torch.Tensor:
    """The value of one node, of those of its operands in `values`."""
    if node.kind is NodeKind.INPUT:
        if node.recipe is not None:
            return run_recipe(node.recipe, feeds, dtype)
        return _feed_value(node, feeds, dtype)
    if node.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT):
        if node.kind is NodeKind.PARAMETER and node.name in feeds and node.recipe is None:
            return _feed_value(node, feeds, dtype)
        if node.value is None:
            raise GraphError(f"{node.kind.value} {node.name!r} has no value, graph {graph.name!r} cannot be evaluated")
        return to_tensor(node.value, dtype)
    operands = [values[name] for name in node.sources]
    if node.kind is NodeKind.OUTPUT:
        return operands[0] if node.recipe is None else run_recipe(node.recipe, {_only_input(node.recipe): operands[0]})
    if not isinstance(node.op, NdOp):
        raise GraphError(f"{node.name!r} is not an nD op; only nD graphs are evaluated here")
    result = node.op.evaluate(*_alike(operands))
    whole = node.attrs.get(WHOLE_TYPE)
    return result if whole is None else result.to(getattr(torch, str(whole)))


def _alike(operands: list[torch.Tensor]) -> list[torch.Tensor]:
    """Floats of several widths in the widest: torch's products take operands of one type only."""
    floats = {t.dtype for t in operands if t.is_floating_point()}
    if len(floats) < 2:
        return operands
    widest = functools.reduce(torch.promote_types, floats)
    return [_as(t, widest) for t in operands]


def _feed_value(node: Node, feeds: Mapping[str, torch.Tensor], dtype: torch.dtype | None) -> torch.Tensor:
    if node.name not in feeds:
        raise InputError(f"input {node.name!r} of shape {node.shape} is missing; given were {sorted(feeds)}")
    tensor = feeds[node.name]
    if tuple(tensor.shape) != node.shape:
        raise InputError(f"input {node.name!r} takes shape {node.shape}, not {tuple(tensor.shape)}")
    return _as(tensor, dtype)


def _only_input(recipe: Graph) -> str:
    (node,) = recipe.inputs
    return node.name
