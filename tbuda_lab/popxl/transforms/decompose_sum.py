"""Sums of many tensors as additions one after the other."""

from __future__ import annotations

from tbuda_lab.popxl.graph import Graph


def decompose_sum(graph: Graph) -> Graph:
    """Every sum of several tensors becomes an accumulation from zeros: as each tensor is there, it is added."""
    from tbuda_lab.popxl.ops.elementwise import add_
    from tbuda_lab.popxl.ops.moves import init

    for op in [o for o in graph._ops if o.kind == "Sum"]:
        before, behind = graph._ops[: graph._ops.index(op)], graph._ops[graph._ops.index(op) + 1 :]
        (out,) = op.outputs
        graph._ops = before
        with graph:
            total = init(out.shape, out.dtype, name=f"{out.name}_sum")
            for t in op.inputs:
                t._consumers.remove(op)
                total = add_(total, t)
        last = graph._ops[-1]
        del graph._tensors[last.outputs[0].id]
        last.outputs = [out]
        out._producer = last
        graph._ops += behind
    return graph
