"""Loops over a graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.graph import Graph
from tbuda_lab.popxl.ops.call import CallSiteInfo, bind_inputs, need_graph
from tbuda_lab.popxl.tensor import Tensor, constant


class RepeatSiteInfo(CallSiteInfo):
    """A call of the graph of a loop, which takes a count and a condition before the operands."""

    @property
    def _extra(self) -> int:
        return 2

    def _modify(self, operands: list[int]) -> None:
        """The loop calls a graph that calls the program's: what that does is done to the operands of both."""
        super()._modify(operands)
        (call,) = self._op.calls[0]._ops
        call.modifies = tuple(sorted({*call.modifies, *(k - self._extra for k in operands)}))


def repeat_with_info(
    graph: Graph,
    repeat_count: int,
    *inputs: Any,
    inputs_dict: Mapping[Tensor, Any] | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """Call a graph `repeat_count` times: what it gives are its first inputs the next time, the other inputs stay.

    The operands of the call begin with the count and a condition. Raises `ValueError` for a negative count, and for a
    graph with more outputs than inputs; `popart_exception` where one is not like the input that it becomes.
    """
    need_graph(graph)
    repeat_count = operator.index(repeat_count)
    if repeat_count < 0:
        raise ValueError(f"Repeat count must be >= 0, not {repeat_count}")
    if len(graph._outputs) > len(graph._inputs):
        raise ValueError(
            f"To repeat the subgraph {graph.id!r} what it gives has to be its first inputs: it gives "
            f"{len(graph._outputs)} tensors, and takes {len(graph._inputs)}"
        )
    for made, taken in zip(graph._outputs, graph._inputs, strict=False):
        if (made.shape, made.dtype) != (taken.shape, taken.dtype):
            raise popart_exception(
                f"repeat: {made.id!r} is {made.dtype} of shape {made.shape}, and {taken.id!r}, which it is the next "
                f"time, {taken.dtype} of shape {taken.shape}"
            )
    operands = bind_inputs(graph, inputs, inputs_dict, check_inputs)
    current = get_current_context().graph
    wrapper = _wrapper(graph)
    count = constant(repeat_count, dtypes.int32, name="repeat_count")
    condition = constant(True, dtypes.bool, name="keep_going")
    current._of_ops |= {count, condition}
    outputs = [(t.shape, t.dtype) for t in graph._outputs]
    modifies = tuple(k + 2 for k, t in enumerate(graph._inputs) if t in graph._by_ref_inputs)
    op = current._add_op(
        "Loop",
        [count, condition, *operands],
        outputs,
        {"count": repeat_count, "before": 2},
        modifies=modifies,
        calls=(wrapper,),
    )
    return RepeatSiteInfo(op)


def _wrapper(graph: Graph) -> Graph:
    """The graph that the loop calls: an iterator, a condition and the operands; it calls the user's graph."""
    wrapper = graph.ir._new_graph(f"{graph.id}__loop_wrapper_subgraph")
    with wrapper:
        wrapper._inputs += [
            wrapper._new_tensor((), dtypes.int32, "iterator", kind="input"),
            wrapper._new_tensor((), dtypes.bool, "keep_going", kind="input"),
        ]
        inner = []
        for t in graph._inputs:
            own = wrapper._new_tensor(t.shape, t.dtype, t.name, kind="input", meta_shape=t.meta_shape)
            wrapper._inputs.append(own)
            if t in graph._by_ref_inputs:
                wrapper._by_ref_inputs.add(own)
            inner.append(own)
        outputs = [(t.shape, t.dtype) for t in graph._outputs]
        modifies = tuple(k for k, t in enumerate(graph._inputs) if t in graph._by_ref_inputs)
        op = wrapper._add_op("Call", inner, outputs, {}, modifies=modifies, calls=(graph,))
        wrapper._outputs += op.outputs
    return wrapper


def repeat(
    graph: Graph, repeat_count: int, *inputs: Any, inputs_dict: Mapping[Tensor, Any] | None = None
) -> tuple[Tensor, ...]:
    """As `repeat_with_info`; the results."""
    return repeat_with_info(graph, repeat_count, *inputs, inputs_dict=inputs_dict).outputs
