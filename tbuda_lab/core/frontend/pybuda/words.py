"""32-bit whole numbers in PyBuda's modules: what is calculated of them alone is whole, as in torch and ONNX."""

from __future__ import annotations

import dataclasses
import math

import torch

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import Where
from tbuda_lab.core.ops.evaluate import WHOLE_TYPE
from tbuda_lab.core.ops.reduce import CumSum, ReduceSum
from tbuda_lab.core.ops.unary import Clip

WORD = torch.int32
_SUMS = (ReduceSum, CumSum)
"""Torch's are of 64 bits; PyBuda has no such type, so they wrap."""


def mark_words(graph: Graph) -> None:
    """Say of each op on int32 alone whose result torch has as int32 that it is whole, and of outputs of such."""
    types: dict[str, torch.dtype] = {}
    for node in graph:
        if node.kind is NodeKind.OUTPUT:
            if types[node.sources[0]] is WORD:
                node.attrs = {**node.attrs, "dtype": "int32"}
            continue
        if isinstance(node.op, Clip) and types[node.sources[0]] is WORD:
            node.op = _whole_bounds(node.op)
        types[node.name] = _type_of(node, graph, types)
        if node.kind is NodeKind.OP and types[node.name] is WORD:
            node.attrs = {**node.attrs, WHOLE_TYPE: "int32"}


def _whole_bounds(op: Clip) -> Clip:
    """The op with whole bounds: PyBuda's are floats, of which a clamp makes floats. One of fractions as it is."""
    low, high = (None if b is None or abs(b) == math.inf else b for b in (op.min, op.max))
    written = all(b is None or (float(b).is_integer() and -(2**31) <= b < 2**31) for b in (low, high))
    if op.min == math.inf or op.max == -math.inf or not written:
        return op
    return dataclasses.replace(op, min=None if low is None else int(low), max=None if high is None else int(high))


def _type_of(node: Node, graph: Graph, types: dict[str, torch.dtype]) -> torch.dtype:
    if not isinstance(node.op, NdOp):
        return getattr(torch, str(node.attrs.get("dtype", "float32"))) if node.value is None else torch.float32
    own = [types[s] for s in node.sources]
    operands = own[1:] if isinstance(node.op, Where) else own
    if not operands or any(t is not WORD for t in operands):
        return torch.float32
    made = node.op.result_dtype([graph[s].shape for s in node.sources], own)
    return WORD if made is WORD or (made is torch.int64 and isinstance(node.op, _SUMS)) else made
