"""Ops of a model and of a profile as alignments see them: kind, shape of the result, what a product sums over."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.measured.op_codes import group_of
from tbuda_lab.core.measured.profile import MeasuredOp

PRODUCTS = ("matmul", "conv", "attention")
"""Groups of ops that a model is told by."""
_KINDS = {
    "matmul": "matmul",
    "conv1d": "conv",
    "conv2d": "conv",
    "conv2d_rows": "conv",
    "conv2d_transpose": "conv",
    "conv3d": "conv",
    "depthwise": "conv",
    "layernorm": "norm",
    "rmsnorm": "norm",
    "batchnorm": "norm",
    "group_norm": "norm",
    "softmax": "softmax",
    "log_softmax": "softmax",
    "attention": "attention",
    "embedding": "embedding",
    "transpose": "transpose",
    "reshape": "reshape",
    "squeeze": "reshape",
    "unsqueeze": "reshape",
    "narrow": "slice",
    "select": "slice",
    "index": "slice",
    "concatenate": "concat",
    "concat": "concat",
    "stack": "concat",
    "pad": "pad",
    "broadcast": "repeat",
    "repeat": "repeat",
    "resize2d": "upsample",
    "upsample2d": "upsample",
    "max_pool2d": "pool",
    "avg_pool2d": "pool",
    "max_pool1d": "pool",
    "cast": "typecast",
    "argmax": "sort",
    "cumsum": "scan",
    "add": "binary",
    "subtract": "binary",
    "multiply": "binary",
    "divide": "binary",
    "maximum": "binary",
    "minimum": "binary",
    "power_binary": "binary",
    "where": "binary",
    "heaviside": "binary",
    "equal": "binary",
    "greater": "binary",
    "less": "binary",
    "greater_equal": "binary",
    "less_equal": "binary",
    "not_equal": "binary",
    "logical_and": "binary",
    "reduce_sum": "reduce",
    "reduce_avg": "reduce",
    "reduce_max": "reduce",
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One op of either side as alignments see it. shape: of its result, without leading ones; inner: of a product, the
    length that is summed over; volume: elements of the result; weights: of a product what batch and length do not
    change, (inner, columns), 0 for what is not known, and () where a model has no parameter there; needs: of a model's
    op the products that it depends on, a bit for each in their order; None where that is not known."""

    name: str
    kind: str
    shape: tuple[int, ...]
    inner: int = 0
    section: str = ""
    weights: tuple[int, ...] = ()
    needs: int | None = None

    @property
    def group(self) -> str:
        return group_of(self.kind)

    @property
    def volume(self) -> int:
        return math.prod(self.shape)


def graph_steps(graph: Graph) -> list[Step]:
    """The ops of a traced graph that a device would run, in the model's order: not what works on parameters alone, for
    that is done once, nor shapes of the same tensor."""
    fixed = {n.name for n in graph if n.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT)}
    steps: list[Step] = []
    needs: dict[str, int] = {}  # by node the products that it depends on, itself among them
    products = 0
    for node in graph:
        needed = 0
        for source in node.sources:
            needed |= needs.get(source, 0)
        needs[node.name] = needed
        if node.kind is not NodeKind.OP or node.op is None:
            continue
        if node.sources and all(s in fixed for s in node.sources):
            fixed.add(node.name)
            continue
        step = dataclasses.replace(_graph_step(graph, node, fixed), needs=needed)
        if step.group in PRODUCTS:
            needs[node.name] |= 1 << products
            products += 1
        steps.append(step)
    return steps


def _graph_step(graph: Graph, node: Node, fixed: set[str]) -> Step:
    assert node.op is not None
    kind = _KINDS.get(node.op.type, "")
    if not kind:
        kind = "binary" if len(node.sources) == 2 else "unary" if len(node.sources) == 1 else "other"
    inner = 0
    weights: tuple[int, ...] = ()
    operand = graph[node.sources[1]] if len(node.sources) > 1 else None
    if kind == "matmul":
        inner = graph[node.sources[0]].shape[-1]
        weights = (inner, node.shape[-1])
    elif kind == "conv" and operand is not None:
        inner = math.prod(operand.shape[1:])
        weights = (0, operand.shape[0])  # on the device its channels may be padded
    if operand is None or operand.name not in fixed or "transpose" in node.op.type or "rows" in node.op.type:
        weights = ()
    return Step(node.name, kind, _core(node.shape), inner, node.origin.module, weights)


def profile_steps(ops: Sequence[MeasuredOp]) -> list[Step]:
    """The same of a profile's ops."""
    steps = []
    for op in ops:
        of = op.outputs[0] if op.outputs else op.inputs[0] if op.inputs else None
        shape = of.shape if of is not None else ()
        summed = op.inputs[:1] if op.kind == "matmul" else op.inputs[1:2] if op.kind == "conv" else ()
        inner = summed[0].shape[-1 if op.kind == "matmul" else -2] if summed else 0
        if any(not t.known for t in (of, *summed) if t is not None):
            shape, inner = (), 0  # as of a profile without sizes
        known = op.kind in ("matmul", "conv") and op.sized and op.outputs
        weights = (inner if op.kind == "matmul" else 0, shape[-1]) if known else ()
        steps.append(Step(op.name, op.kind, _core(shape), inner, op.section, weights))
    return steps


def _core(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(s for s in shape if s != 1)
