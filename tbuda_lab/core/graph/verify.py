"""Checks that a graph is well formed."""

from __future__ import annotations

from tbuda_lab.core.graph.graph import Graph, GraphError, Node, NodeKind
from tbuda_lab.core.graph.op import ShapeError


def problems(graph: Graph) -> list[str]:
    """Everything wrong with `graph`, one sentence each: names, edges, order, kinds, shapes, values."""
    problems: list[str] = []
    for name, node in graph.nodes.items():
        if name != node.name:
            problems.append(f"{node.name!r} is filed under {name!r}")
        problems.extend(f"{name!r} reads {s!r}, which does not exist" for s in node.sources if s not in graph.nodes)
    if problems:
        return problems
    try:
        order = graph.topological()
    except GraphError as e:
        return [str(e)]
    for node in order:
        problems.extend(f"{node.name!r}: {problem}" for problem in _node(graph, node))
    return problems


def verify(graph: Graph, after: str = "") -> None:
    """Raise `GraphError` with all problems; `after` names the pass that made the graph."""
    faults = problems(graph)
    if faults:
        where = f" after {after}" if after else ""
        raise GraphError(f"graph {graph.name!r} is malformed{where}: " + "; ".join(faults))


def _node(graph: Graph, node: Node) -> list[str]:
    count = len(node.inputs)
    if node.kind is NodeKind.OP:
        return _op(graph, node)
    if node.op is not None:
        return [f"a node of kind {node.kind.value} carries an op"]
    if node.kind is NodeKind.OUTPUT:
        if count != 1:
            return [f"an output reads one value, not {count}"]
        shape = graph[node.sources[0]].shape
        tms = node.inputs[0].tms
        return [] if tms or shape == node.shape else [f"has shape {node.shape}, its operand {shape}"]
    if node.kind is not NodeKind.QUEUE and count:
        return [f"a node of kind {node.kind.value} reads nothing, this one reads {count} value(s)"]
    if node.value is not None and tuple(node.value.shape) != node.shape:
        return [f"has shape {node.shape}, its value {tuple(node.value.shape)}"]
    return []


def _op(graph: Graph, node: Node) -> list[str]:
    if node.op is None:
        return ["an op node without an op"]
    if any(edge.tms for edge in node.inputs) or node.op.type.startswith("hw."):
        return []  # lowered: shapes are the lowering's rules, checked there
    try:
        shape = node.op.infer(*(graph[s].shape for s in node.sources))
    except ShapeError as e:
        return [str(e)]
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, MemoryError) as e:
        return [f"{node.op.type} cannot have these attributes and operands: {e}"]  # those of a text may be anything
    return [] if shape == node.shape else [f"has shape {node.shape}, {node.op.type} gives {shape}"]
