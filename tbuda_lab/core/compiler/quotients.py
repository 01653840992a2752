"""Quotients that are rounded to whole numbers: the host's, for the device multiplies by 1 / y."""

from __future__ import annotations

from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.ops import Cast, Concatenate, Divide, FloorDivide, HostCall, Reciprocal, ReduceMax, Remainder
from tbuda_lab.core.ops.binary import Binary, ComparisonOp, Where
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Unary

ROUNDED_QUOTIENT = "it is a quotient that is rounded to whole numbers, and the device multiplies by 1 / y"
ROUNDINGS = frozenset(("round", "floor", "ceil", "trunc", "frac", "fmod", "remainder", "div", "floor_divide"))
"""Calls for which a number a little below a whole one is another number."""


def rounded_quotients(graph: Graph) -> set[str]:
    """Quotients that are rounded to whole numbers, with the ops of single numbers between: 3 * x * (1 / x) may be a
    little less than 3."""
    read: set[str] = set()
    """What a rounding reads by way of ops of single numbers."""
    quotients: set[str] = set()
    """Quotients, and what is made of them by ops of single numbers."""
    order = graph.topological()
    for node in reversed(order):
        if _rounds(node) or (node.name in read and _of_single_numbers(node)):
            read.update(node.sources)
    for node in order:
        made = isinstance(node.op, Divide | Reciprocal) or any(s in quotients for s in node.sources)
        if made and node.name in read and _of_single_numbers(node):
            quotients.add(node.name)
    return quotients


def _rounds(node: Node) -> bool:
    if isinstance(node.op, Cast):
        return not node.op.dtype.startswith(("float", "bfloat", "bool"))
    return isinstance(node.op, FloorDivide | Remainder) or (isinstance(node.op, HostCall) and node.op.call in ROUNDINGS)


def _of_single_numbers(node: Node) -> bool:
    return isinstance(node.op, (Unary, Binary, Where, Concatenate, ReduceMax, *MOVES)) and not isinstance(
        node.op, ComparisonOp
    )
