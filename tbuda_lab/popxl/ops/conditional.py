"""One of two graphs, by a condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.graph import Graph
from tbuda_lab.popxl.ops.call import SiteInfo, _inside, bind_inputs, need_graph
from tbuda_lab.popxl.ops.utils import cast_if_needed, check_in_graph
from tbuda_lab.popxl.tensor import Tensor


class ConditionalSiteInfo(SiteInfo):
    """A conditional. Its operands are the condition, those of the first graph, those of the second."""

    @property
    def called_graph(self) -> tuple[Graph, Graph]:
        then_graph, else_graph = self._op.calls
        return then_graph, else_graph

    @property
    def _then(self) -> int:
        return len(self._op.calls[0].inputs)

    def graph_to_parent_input_index(self, idx: int, then_branch: bool = True) -> int:
        """Raises `IndexError` for an input that the graph does not have."""
        _inside(idx, len(self._op.calls[0 if then_branch else 1].inputs), "input")
        return 1 + idx + (0 if then_branch else self._then)

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Raises `IndexError` for an operand that there is not, and for the condition."""
        if not 1 <= idx < len(self._op.inputs):
            raise IndexError(f"operands of the graphs are 1 to {len(self._op.inputs) - 1}, not {idx}")
        return idx - 1 if idx <= self._then else idx - 1 - self._then

    def is_parent_index_in_then_branch(self, idx: int) -> bool:
        """Raises `IndexError` for an operand that there is not, and for the condition."""
        self.parent_to_graph_input_index(idx)
        return idx <= self._then

    def graph_to_parent_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Raises `IndexError` for a result that there is not."""
        _inside(idx, len(self._op.outputs), "output")
        return idx

    def parent_to_graph_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Raises `IndexError` for a result that there is not."""
        _inside(idx, len(self._op.outputs), "output")
        return idx

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """Raises `ValueError` for what is no input or output of one of the graphs."""
        for branch, graph in enumerate(self._op.calls):
            for number, t in enumerate(graph._inputs):
                if t is graph_tensor:
                    return self._op.inputs[1 + number + (self._then if branch else 0)]
            for number, t in enumerate(graph._outputs):
                if t is graph_tensor:
                    return self._op.outputs[number]
        raise ValueError(f"{graph_tensor!r} is no input or output of the graphs of this conditional")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The input where an operand is first used. Raises `ValueError` for others, and for results, which belong to
        both graphs."""
        for number, t in enumerate(self._op.inputs[1:], 1):
            if t is parent_tensor:
                graph = self._op.calls[0 if number <= self._then else 1]
                return graph._inputs[self.parent_to_graph_input_index(number)]
        raise ValueError(f"{parent_tensor!r} is no operand of the graphs of this conditional")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = True) -> None:
        """What the graphs do to their inputs happens to this operand. Raises `ValueError` for another tensor."""
        numbers = [k for k, t in enumerate(self._op.inputs) if t is parent_tensor and k]
        if not numbers:
            raise ValueError(f"{parent_tensor!r} is no operand of the graphs of this conditional")
        self._modify(numbers)


def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Iterable[Any] | None = None,
    else_inputs: Iterable[Any] | None = None,
    then_inputs_dict: Mapping[Tensor, Any] | None = None,
    else_inputs_dict: Mapping[Tensor, Any] | None = None,
    check_inputs: bool = True,
) -> ConditionalSiteInfo:
    """Call the first graph where the condition holds, else the second.

    Raises `ValueError` where they give different numbers of tensors, `NotImplementedError` for inputs by reference,
    `popart_exception` where a result has two shapes or types.
    """
    need_graph(then_branch)
    need_graph(else_branch)
    current = get_current_context().graph
    check_in_graph(current, cond=cond)
    mask = cast_if_needed(cond, dtypes.bool)
    if mask.nelms != 1:
        raise popart_exception(f"the condition of a conditional is one bool, not of shape {mask.shape}")
    if len(then_branch._outputs) != len(else_branch._outputs):
        raise ValueError(
            f"the graphs of a conditional give {len(then_branch._outputs)} and {len(else_branch._outputs)} "
            "tensors; give as many"
        )
    if then_branch._by_ref_inputs or else_branch._by_ref_inputs:
        raise NotImplementedError("a conditional takes no inputs by reference: return the tensor, and copy it over")
    operands = [
        mask,
        *bind_inputs(then_branch, then_inputs or (), then_inputs_dict, check_inputs),
        *bind_inputs(else_branch, else_inputs or (), else_inputs_dict, check_inputs),
    ]
    for a, b in zip(then_branch._outputs, else_branch._outputs, strict=True):
        if a.shape != b.shape or a.dtype is not b.dtype:
            raise popart_exception(
                f"a result of a conditional is {a.dtype} {a.shape} in one graph and {b.dtype} {b.shape} in the other"
            )
    outputs = [(t.shape, t.dtype) for t in then_branch._outputs]
    op = current._add_op("If", operands, outputs, {}, calls=(then_branch, else_branch))
    return ConditionalSiteInfo(op)


def conditional(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Iterable[Any] | None = None,
    else_inputs: Iterable[Any] | None = None,
    then_inputs_dict: Mapping[Tensor, Any] | None = None,
    else_inputs_dict: Mapping[Tensor, Any] | None = None,
) -> tuple[Tensor, ...]:
    """As `conditional_with_info`; the results."""
    return conditional_with_info(
        cond, then_branch, else_branch, then_inputs, else_inputs, then_inputs_dict, else_inputs_dict
    ).outputs
