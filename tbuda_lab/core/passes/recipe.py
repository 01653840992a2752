"""Recipes: small graphs that compute a folded parameter, or an input of the device, from what the model has."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Op, Shape

RESULT = "result"


def of_leaf(node: Node, keep_values: bool = False) -> Graph:
    """The recipe of a leaf: its own, or the node itself. A parameter becomes an INPUT unless its value is kept."""
    if node.recipe is not None:
        return node.recipe
    recipe = Graph(node.name)
    kind = node.kind
    if kind is NodeKind.PARAMETER and not keep_values:
        recipe.add(Node(node.name, NodeKind.INPUT, node.shape, origin=node.origin, attrs={"dtype": "float32"}))
    else:
        recipe.add(dataclasses.replace(node, attrs=dict(node.attrs)))
    return _finish(recipe, node.name, node.shape)


def compose(name: str, op: Op, shape: Shape, operands: list[Graph]) -> Graph:
    """The recipe of `op` applied to the results of recipes; equal parts are shared."""
    recipe = Graph(name)
    edges = tuple(Edge(_merge(recipe, part)) for part in operands)
    node_name = recipe.unique(name)
    recipe.add(Node(node_name, NodeKind.OP, shape, op, edges))
    return _finish(recipe, node_name, shape)


def extract(graph: Graph, name: str) -> Graph:
    """The part of `graph` that `name` depends on, as a recipe; parameters keep their values."""
    recipe = Graph(name)
    needed: set[str] = set()
    stack = [name]
    while stack:
        at = stack.pop()
        if at not in needed:
            needed.add(at)
            stack.extend(graph[at].sources)
    for node in graph.topological():
        if node.name in needed:
            recipe.add(dataclasses.replace(node, attrs=dict(node.attrs)))
    return _finish(recipe, name, graph[name].shape)


def result_of(recipe: Graph) -> str:
    """The node whose value a recipe delivers."""
    (output,) = recipe.outputs
    return output.sources[0]


def form(recipe: Graph) -> tuple[object, ...]:
    """Equal for recipes that calculate the same from the same parameters, whatever their nodes are called."""
    at: dict[str, int] = {}
    parts: list[object] = []
    for node in recipe.topological():
        at[node.name] = len(at)
        leaf = node.name if node.kind is NodeKind.INPUT else None if node.value is None else node.value.tobytes()
        parts.append((node.kind, repr(node.op), node.shape, tuple(at[s] for s in node.sources), leaf))
    return tuple(parts)


def _finish(recipe: Graph, last: str, shape: Shape) -> Graph:
    recipe.add(Node(recipe.unique(RESULT), NodeKind.OUTPUT, shape, inputs=(Edge(last),)))
    return recipe


def _merge(recipe: Graph, part: Graph) -> str:
    """Copy `part` without its output into `recipe`; returns the name of its result there."""
    at: dict[str, str] = {}
    for node in part:
        if node.kind is NodeKind.OUTPUT:
            continue
        inputs = tuple(Edge(at[e.source], e.tms) for e in node.inputs)
        present = recipe.nodes.get(node.name)
        if present is not None and _same(present, node, inputs):
            at[node.name] = node.name
            continue
        at[node.name] = recipe.unique(node.name)
        recipe.add(dataclasses.replace(node, name=at[node.name], inputs=inputs))
    return at[result_of(part)]


def _same(a: Node, b: Node, inputs: tuple[Edge, ...]) -> bool:
    return (a.kind, a.op, a.shape, a.inputs) == (b.kind, b.op, b.shape, inputs) and a.value is b.value
