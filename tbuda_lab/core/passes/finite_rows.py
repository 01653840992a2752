"""Softmaxes whose rows can hold no +inf are found by bounds on what their operands hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tbuda_lab.core.formats import within
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import (
    Abs,
    Add,
    Cast,
    Clip,
    Concatenate,
    Divide,
    Gelu,
    Index,
    Layernorm,
    LogSoftmax,
    Matmul,
    Maximum,
    Minimum,
    Multiply,
    Nop,
    Pad,
    ReduceAvg,
    ReduceMax,
    ReduceSum,
    Relu,
    Reshape,
    Select,
    Sigmoid,
    Softmax,
    Squeeze,
    Stack,
    Subtract,
    Tanh,
    Transpose,
    Unsqueeze,
    Where,
)
from tbuda_lab.core.ops.base import FILLS_ROWS
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Unary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.base import Pass, Report, is_stored

Bounds = tuple[float, float]
"""The least and the largest value; NaN may be among the values of any bounds."""

UNKNOWN: Bounds = -math.inf, math.inf
LARGEST_WEIGHT = 65_536.0
"""Weights may be written again after the compile; they are taken to stay within this magnitude."""
ROUNDING = 2.0
"""Factor on every normalised value: mean and variance are rounded on the device."""


@dataclasses.dataclass(frozen=True)
class FiniteRows(Pass):
    """Marks each softmax and log_softmax whose operand holds no +inf whatever the inputs are.

    A row with +inf is NaN in torch; on the device that takes two more ops (`ops.norm`). A layernorm, softmax,
    sigmoid or tanh bounds what it writes by itself; bounds then go through moves, additions, products and matmuls.
    What a model's input holds is not known. `bounds_of` is what decides.
    """

    name = "finite_rows"
    doc = "Find the softmaxes that can see no infinity"

    def apply(self, graph: Graph) -> Report:
        bounds: dict[str, Bounds] = {}
        whole: set[str] = set()
        largest = 65_504.0 if _some_small_range(self.options) else float(np.finfo(np.float32).max) / 2
        marked = []
        for node in graph.topological():
            low, high = bounds_of(node, [bounds[s] for s in node.sources], [graph[s] for s in node.sources])
            # What overflows the format is an infinity from there on.
            bounds[node.name] = (low if low >= -largest else -math.inf), (high if high <= largest else math.inf)
            op = node.op
            if _fills_rows(node, whole, bounds, graph):
                whole.add(node.name)
            if isinstance(op, MOVES) and node.sources[0] in whole:
                node.attrs[FILLS_ROWS] = True
            if isinstance(op, Softmax | LogSoftmax) and not op.finite and bounds[node.sources[0]][1] <= largest:
                node.op = dataclasses.replace(op, finite=True)
                if isinstance(node.op, Softmax) and bounds[node.sources[0]][0] >= -largest:
                    node.op = dataclasses.replace(node.op, safe=False)  # nor a row of -inf
                marked.append(node.name)
        return Report(self.name, len(marked), tuple(marked))


def _fills_rows(node: Node, whole: set[str], bounds: dict[str, Bounds], graph: Graph) -> bool:
    """Whether all of a row is NaN wherever one of its elements is, and all is finite elsewhere: what a layernorm or
    softmax over the row writes, and what products and element-wise ops with finite weights make of that."""
    op: Any = node.op
    if not all(map(math.isfinite, bounds[node.name])):
        return False
    if isinstance(op, Layernorm | Softmax):
        return op.dim in (-1, len(node.shape) - 1)
    if isinstance(op, Matmul):
        return all(s in whole or is_stored(graph[s]) for s in node.sources)
    if isinstance(op, Transpose):
        return (
            node.sources[0] in whole and -1 not in (op.dim0, op.dim1) and len(node.shape) - 1 not in (op.dim0, op.dim1)
        )
    if isinstance(op, Reshape):  # a row of the result lies within one of the operand, or is made of whole ones
        old, new = (*graph[node.sources[0]].shape, 1)[-1], (*node.shape, 1)[-1]
        return node.sources[0] in whole and (old % new == 0 or old == new)
    if isinstance(op, (Add, Subtract, Multiply, Unary)):
        rows = [s for s in node.sources if s in whole and graph[s].shape[-1:] == node.shape[-1:]]
        return bool(rows) and all(s in rows or is_stored(graph[s]) for s in node.sources)
    return (
        isinstance(op, Index | Squeeze | Unsqueeze)
        and node.sources[0] in whole
        and (not isinstance(op, Squeeze | Unsqueeze) or node.shape[-1:] == graph[node.sources[0]].shape[-1:])
    )


def _some_small_range(options: CompileOptions) -> bool:
    """Whether any op may be calculated in a format with 5 bits of exponent."""
    formats = [options.data_format, options.fp32_fallback]
    for rule in options.precision:
        formats += [df for df in (rule.output_df, rule.intermediate_df, rule.accumulate_df) if df is not None]
        formats += [df for _, df, _ in rule.inputs]
    return any(df.family == "a" for df in formats)


def bounds_of(node: Node, x: list[Bounds], sources: list[Node]) -> Bounds:
    """Bounds of what a node holds, from those of its operands `x`; `UNKNOWN` for ops that are not listed here."""
    op: Any = node.op
    if node.kind is not NodeKind.OP:
        return x[0] if x else _stored_bounds(node)
    if isinstance(op, (*MOVES, Nop, Cast, ReduceAvg, ReduceMax)):
        return x[0]
    if isinstance(op, Select):
        return _join(x[0], (0.0, 0.0))  # columns that it does not take from its operand are 0
    if isinstance(op, Pad):
        return _join(x[0], (op.value, op.value)) if op.mode == "constant" else x[0]
    if isinstance(op, Concatenate | Stack):
        return _join(*x)
    if isinstance(op, Where):
        return _join(*x[1:])
    if isinstance(op, Layernorm):
        most = ROUNDING * math.sqrt(sources[0].shape[op.dim])
        return _sum(_product((-most, most), x[1]), x[2])
    if isinstance(op, Softmax | Sigmoid):
        return 0.0, ROUNDING
    if isinstance(op, Tanh):
        return -ROUNDING, ROUNDING
    if isinstance(op, Matmul):
        terms = sources[0].shape[-1]
        low, high = _product(x[0], x[1])
        inner = terms * low, terms * high
        return _sum(inner, x[2]) if len(x) > 2 else inner
    if isinstance(op, ReduceSum):
        terms = sources[0].shape[op.dim]
        return terms * x[0][0], terms * x[0][1]
    if isinstance(op, Add):
        return _sum(x[0], x[1])
    if isinstance(op, Subtract):
        return _sum(x[0], (-x[1][1], -x[1][0]))
    if isinstance(op, Multiply):
        return _product(x[0], x[1])
    if isinstance(op, Divide) and (x[1][0] > 0 or x[1][1] < 0):
        return _product(x[0], (1 / x[1][1], 1 / x[1][0]))
    if isinstance(op, Maximum | Minimum):
        choose = max if isinstance(op, Maximum) else min
        return choose(x[0][0], x[1][0]), choose(x[0][1], x[1][1])
    if isinstance(op, Clip):
        low, high = (-math.inf if op.min is None else op.min), (math.inf if op.max is None else op.max)
        return min(max(x[0][0], low), high), max(min(x[0][1], high), low)
    if isinstance(op, Abs | Relu | Gelu):  # of relu with a threshold too: it writes 0 or what it reads
        most = max(abs(x[0][0]), abs(x[0][1]))
        return -most, most
    return UNKNOWN


def _stored_bounds(node: Node) -> Bounds:
    """A constant never changes; a weight has its own bounds, and at least those that weights written later may have."""
    if not is_stored(node):
        return (0.0, 1.0) if node.attrs.get("dtype") == "bool" else UNKNOWN
    value = node.value
    if value is None or value.size == 0:
        return (-LARGEST_WEIGHT, LARGEST_WEIGHT) if node.kind is NodeKind.PARAMETER else UNKNOWN
    if node.kind is NodeKind.PARAMETER and within(value, LARGEST_WEIGHT):
        return -LARGEST_WEIGHT, LARGEST_WEIGHT
    low, high = float(value.min()), float(value.max())
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return _join((low, high), (-LARGEST_WEIGHT, LARGEST_WEIGHT)) if node.kind is NodeKind.PARAMETER else (low, high)


def _join(*x: Bounds) -> Bounds:
    return min(b[0] for b in x), max(b[1] for b in x)


def _sum(a: Bounds, b: Bounds) -> Bounds:
    return a[0] + b[0], a[1] + b[1]


def _product(a: Bounds, b: Bounds) -> Bounds:
    """Of infinite bounds nothing is known: zero times infinity is not a number."""
    if not all(map(math.isfinite, (*a, *b))):
        return UNKNOWN
    corners = [p * q for p in a for q in b]
    return min(corners), max(corners)
