"""Softmax and logsumexp among the primitives that JAX writes them in.

Both divide or shift by a maximum that may be infinite, which the device's arithmetic does not follow as JAX does. Known
again, they get the forms that hold infinities (`ops.norm.Softmax`, `aten.logsumexp`).
"""

from __future__ import annotations

import torch

from tbuda_lab.core.frontend.aten.call import AtenValue, FoldedValue
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.ops import (
    Abs,
    BroadcastTo,
    Exp,
    Log,
    Multiply,
    ReduceMax,
    ReduceSum,
    Reshape,
    Subtract,
    Where,
)
from tbuda_lab.core.ops.host import HostCall


def _moved(graph: Graph, name: str) -> Node:
    """The node behind changes of shape."""
    node = graph[name]
    while isinstance(node.op, Reshape | BroadcastTo):
        node = graph[node.sources[0]]
    return node


def guards_maximum(graph: Graph, which: Tensor, cases: list[Tensor]) -> bool:
    """Whether a maximum is replaced by 0 where it is infinite or NaN, as `logsumexp` does before it subtracts it: what
    is made of a row with NaN is NaN all the same."""
    if not isinstance(which, AtenValue) or not isinstance(cases[1], AtenValue) or not isinstance(cases[0], FoldedValue):
        return False
    test = graph[which.name]
    finite = isinstance(test.op, HostCall) and test.op.call == "isfinite" and test.sources == (cases[1].name,)
    return finite and isinstance(_moved(graph, cases[1].name).op, ReduceMax) and not bool(cases[0].tensor.any())


def is_centred(graph: Graph, total: str, centre: str) -> bool:
    """Whether one value is the log of the sum of e^(x - m), times weights or where a mask says so, and the other m, a
    maximum guarded as in `guards_maximum`."""
    guard, node = graph[centre], _moved(graph, total)
    if not isinstance(guard.op, Where) or not isinstance(_moved(graph, guard.sources[2]).op, ReduceMax):
        return False
    for kind, between in ((Log, Abs), (ReduceSum, (ReduceSum, Multiply, Where)), (Exp, ()), (Subtract, ())):
        if not isinstance(node.op, kind):
            return False
        following = node.sources[-1 if kind is Subtract else 0]
        node = _moved(graph, following)
        while isinstance(node.op, between):
            node = _moved(graph, node.sources[1 if isinstance(node.op, Where) else 0])
    return node is guard


def softmax_of(graph: Graph, shares: str, total: str) -> tuple[str, int] | None:
    """(x, dim) where a quotient is e^(x - m) over its sum along dim, m being the maximum of x along dim; the sum may be
    over what a mask leaves, where x is minus infinity at the others. None for any other quotient."""
    share, whole = graph[shares], _moved(graph, total)
    if not isinstance(share.op, Exp) or not isinstance(whole.op, ReduceSum):
        return None
    centred, summed = graph[share.sources[0]], graph[whole.sources[0]]
    if not isinstance(centred.op, Subtract):
        return None
    x, largest = graph[centred.sources[0]], _moved(graph, centred.sources[1])
    if not isinstance(largest.op, ReduceMax) or largest.op.dim != whole.op.dim:
        return None
    if not _same(graph, graph[largest.sources[0]], x):
        return None
    if summed is not share:
        masked = isinstance(summed.op, Where) and isinstance(x.op, Where) and summed.sources[1] == shares
        if not (masked and _same(graph, graph[summed.sources[0]], graph[x.sources[0]])):
            return None
        if not (_holds(graph, summed.sources[2], 0.0) and _holds(graph, x.sources[2], -torch.inf)):
            return None
    return x.name, whole.op.dim


def _same(graph: Graph, one: Node, other: Node) -> bool:
    """Whether two nodes are one, equal constants, or equal choices between the same."""
    if one is other:
        return True
    if one.value is not None and other.value is not None:
        return one.shape == other.shape and bool((one.value == other.value).all())
    if not isinstance(one.op, Where) or not isinstance(other.op, Where):
        return False
    return all(_same(graph, graph[a], graph[b]) for a, b in zip(one.sources, other.sources, strict=True))


def _holds(graph: Graph, name: str, number: float) -> bool:
    """Whether a node is that number throughout."""
    value = graph[name].value
    return value is not None and bool((value == number).all())
