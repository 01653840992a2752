"""Outputs of whole numbers: the device's formats round what is beyond their mantissa, so the host computes them, or a
warning says so."""

from __future__ import annotations

import math

from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.ops import Cast
from tbuda_lab.core.ops.binary import Add, ComparisonOp, Multiply, Subtract
from tbuda_lab.core.ops.evaluate import WHOLE_TYPE
from tbuda_lab.core.ops.reduce import Argmax, CumSum, ReduceSum
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import LogicalNot
from tbuda_lab.core.passes.finite_rows import Bounds, bounds_of

WHOLE = "an output of whole numbers, which formats of the device would round"
EXACT_WHOLE = {
    DataFormat.Float16: 2**11, DataFormat.Float16_b: 2**8, DataFormat.Bfp8: 2**7, DataFormat.Bfp8_b: 2**7,
    DataFormat.Bfp4: 2**3, DataFormat.Bfp4_b: 2**3, DataFormat.Bfp2: 2, DataFormat.Bfp2_b: 2,
}  # fmt: skip
"""The largest n for which a format holds every whole number up to n, of the formats coarser than Float32."""


def rounded_outputs(graph: Graph, df: DataFormat) -> list[Diagnostic]:
    """A warning for each output that counts further than the format holds whole numbers."""
    fix = "default_df_override=Float32 and accumulate_df=Float32 (not on Grayskull), or count outside the model"
    counts = {o.sources[0] for o in graph.outputs}
    return [
        Diagnostic("warning", name, "whole-numbers", reason, fix)
        for name, reason in counting_ops(graph, df).items()
        if name in counts
    ]


def counting_ops(graph: Graph, df: DataFormat) -> dict[str, str]:
    """Ops of outputs that count (`Argmax`, a sum of truth values) further than the format holds whole numbers, with the
    data moves behind them."""
    most = EXACT_WHOLE.get(df, 2**24)
    why: dict[str, str] = {}
    for output in graph.outputs:
        if is_float(output):
            continue
        chain, node = [], graph[output.sources[0]]
        while isinstance(node.op, (*MOVES, Cast)):
            chain.append(node.name)
            node = graph[node.sources[0]]
        count = counted_to(graph, node)
        if count is not None and count > most:
            reason = f"an output of whole numbers up to {count}; {df.name} holds them exactly up to {most}"
            why |= dict.fromkeys((node.name, *chain), reason)
    return why


def beyond_float32(graph: Graph) -> dict[str, str]:
    """Sums and products of whole numbers that the device would make, and that may exceed what float32 counts to."""
    most = 2.0**24
    bounds: dict[str, Bounds] = {}
    why: dict[str, str] = {}
    for node in graph.topological():
        sources = [graph[s] for s in node.sources]
        bounds[node.name] = _counted_bounds(node, [bounds[s] for s in node.sources], sources)
        low, high = bounds[node.name]
        if WHOLE_TYPE in node.attrs and isinstance(node.op, SUMS) and max(-low, high) > most:
            why[node.name] = "whole numbers beyond 2^24, of which no format of the device holds all"
    return why


SUMS = (Add, Subtract, Multiply, ReduceSum, CumSum)


def _counted_bounds(node: Node, x: list[Bounds], sources: list[Node]) -> Bounds:
    if isinstance(node.op, ComparisonOp | LogicalNot):
        return 0.0, 1.0
    if isinstance(node.op, Argmax):
        return 0.0, float(sources[0].shape[node.op.dim])
    if isinstance(node.op, CumSum):
        terms = sources[0].shape[node.op.axis]
        return min(0.0, terms * x[0][0]), max(0.0, terms * x[0][1])
    return bounds_of(node, x, sources)


def counted_to(graph: Graph, node: Node) -> int | None:
    """The largest whole number that an op which counts can give; None for an op that does not count."""
    if isinstance(node.op, Argmax):
        return graph[node.sources[0]].shape[node.op.dim] - 1
    truths = isinstance(node.op, ReduceSum) and _without_casts(graph, node.sources[0]).op
    if isinstance(truths, ComparisonOp | LogicalNot):
        return math.prod(graph[node.sources[0]].shape) // max(1, math.prod(node.shape))
    return None


def _without_casts(graph: Graph, name: str) -> Node:
    node = graph[name]
    while isinstance(node.op, (*MOVES, Cast)):
        node = graph[node.sources[0]]
    return node


def is_float(node: Node) -> bool:
    """Whether an INPUT or OUTPUT holds floats, by its attribute."""
    return str(node.attrs.get("dtype", "float32")).startswith(("float", "bfloat"))


def fallback_note(node: Node, reason: str) -> Diagnostic:
    """A note that the host runs an op, or gives an output, and why."""
    where = ", ".join(p for p in (node.origin.module or node.name, node.origin.source_op, node.origin.location) if p)
    kind = node.op.type if node.op is not None else node.kind.value
    return Diagnostic("note", where, "cpu-fallback", f"{kind} {node.name!r} runs on the host: {reason}")


__all__ = ["EXACT_WHOLE", "WHOLE", "beyond_float32", "counting_ops", "fallback_note", "is_float", "rounded_outputs"]
