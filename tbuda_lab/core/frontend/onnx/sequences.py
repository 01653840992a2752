"""ONNX sequences, known while reading: a sequence is a list of values."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.onnx.elementwise import as_dtype
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates
from tbuda_lab.core.frontend.onnx.shapes import axis_of


def _sequence(n: OnnxNode) -> list[Any]:
    value = n.operands[0]
    if not isinstance(value, list):
        raise CannotMap("operand 0 is not a sequence that is known here")
    return value


@translates("SequenceConstruct")
def sequence_construct(n: OnnxNode) -> Any:
    return (n.xs(),)


@translates("SequenceEmpty")
def sequence_empty(n: OnnxNode) -> Any:
    return ([],)


@translates("SequenceLength")
def sequence_length(n: OnnxNode) -> Any:
    return n.constant(torch.tensor(len(_sequence(n))))


@translates("SequenceAt")
def sequence_at(n: OnnxNode) -> Any:
    return _sequence(n)[int(n.scalar(1, "position"))]


@translates("SequenceErase", "SequenceInsert")
def sequence_change(n: OnnxNode) -> Any:
    values = list(_sequence(n))
    if n.op_type == "SequenceErase":
        del values[int(n.scalar(1, "position", -1))]
        return (values,)
    at = int(n.scalar(2, "position", len(values)))
    values.insert(at if at >= 0 else at + len(values), n.x(1))
    return (values,)


@translates("SplitToSequence")
def split_to_sequence(n: OnnxNode) -> Any:
    axis, shape = axis_of(n.attr("axis", 0), n.rank()), n.shape()
    sizes = [1] * shape[axis]
    if n.opt(1) is not None:
        split = n.tensor(1, "split")
        each = int(split) if split.dim() == 0 else 0
        sizes = [min(each, shape[axis] - k) for k in range(0, shape[axis], each)] if each else split.tolist()
    parts = n.aten.split_with_sizes(n.x(), sizes, axis)
    keep = n.opt(1) is not None or n.attr("keepdims", 1)
    return ([p if keep else n.aten.squeeze(p, axis) for p in parts],)


@translates("ConcatFromSequence")
def concat_from_sequence(n: OnnxNode) -> Any:
    values = _sequence(n)
    return (n.aten.stack if n.attr("new_axis", 0) else n.aten.cat)(values, n.attr("axis"))


__all__ = ["as_dtype", "axis_of"]
