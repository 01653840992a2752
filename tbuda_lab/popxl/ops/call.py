"""Calls of graphs, and what a call site knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.dtypes import as_array
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.ops.utils import check_in_graph
from tbuda_lab.popxl.tensor import Tensor


class SiteInfo:
    """An op that runs graphs: its operands and results."""

    def __init__(self, subgraph_op: Op) -> None:
        self._op = subgraph_op

    def parent_input(self, idx: int) -> Tensor:
        """Raises `IndexError` for an operand that there is not."""
        _inside(idx, len(self._op.inputs), "operand")
        return self._op.inputs[idx]

    def parent_output(self, idx: int) -> Tensor:
        """Raises `IndexError` for a result that there is not."""
        _inside(idx, len(self._op.outputs), "result")
        return self._op.outputs[idx]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self._op.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self._op.outputs)

    def _modify(self, operands: list[int]) -> None:
        self._op.modifies = tuple(sorted({*self._op.modifies, *operands}))


class CallSiteInfo(SiteInfo):
    """A call of a graph. Its outputs follow those of the graph: a gradient graph that asks for more of them adds them
    to every call."""

    @property
    def _before(self) -> int:
        """How many operands stand before those of the graph."""
        return int(self._op.attrs.get("before", 0))

    @property
    def called_graph(self) -> Graph:
        return self._op.calls[0]

    def graph_to_parent_input_index(self, idx: int) -> int:
        """Raises `IndexError` for an input that the graph does not have."""
        _inside(idx, len(self.called_graph.inputs) - self._extra, "input")
        return idx + self._before

    def parent_to_graph_input_index(self, idx: int) -> int:
        _inside(idx, len(self._op.inputs), "input")
        return idx - self._before

    def graph_to_parent_output_index(self, idx: int) -> int:
        _inside(idx, len(self._op.outputs), "output")
        return idx

    def parent_to_graph_output_index(self, idx: int) -> int:
        _inside(idx, len(self._op.outputs), "output")
        return idx

    @property
    def _extra(self) -> int:
        return 0

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """The operand or result that belongs to an input or output of the graph. Raises `ValueError` for others."""
        graph = self.called_graph
        for number, t in enumerate(graph._inputs):
            if t is graph_tensor:
                return self._op.inputs[number + self._before - self._extra]
        for number, t in enumerate(graph._outputs[: len(self._op.outputs)]):
            if t is graph_tensor:
                return self._op.outputs[number]
        raise ValueError(f"{graph_tensor!r} is no input or output of graph {graph.id!r}")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """The input or output of the graph that belongs to an operand (where it is first used) or result. Raises
        `ValueError` for others."""
        graph = self.called_graph
        for number, t in enumerate(self._op.inputs):
            if t is parent_tensor and number >= self._before - self._extra:
                return graph._inputs[number - self._before + self._extra]
        for number, t in enumerate(self._op.outputs):
            if t is parent_tensor:
                return graph._outputs[number]
        raise ValueError(f"{parent_tensor!r} is no operand or result of this call of {graph.id!r}")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = False) -> None:
        """What the graph does to its input happens to this operand. Raises `ValueError` for another tensor."""
        numbers = [k for k, t in enumerate(self._op.inputs) if t is parent_tensor]
        if not numbers:
            raise ValueError(f"{parent_tensor!r} is no operand of this call")
        self._modify(numbers)


def _path(graph: Graph, target: Graph) -> list[Graph]:
    """The graphs through which one leads to another by its calls, both among them; none where it does not."""
    leads: dict[Graph, Graph | None] = {graph: None}
    for one in (todo := [graph]):
        for called in one.called_graphs:
            if called not in leads:
                leads[called] = one
                todo.append(called)
    path: list[Graph] = []
    at = target if target in leads else None
    while at is not None:
        path.insert(0, at)
        at = leads[at]
    return path


def _inside(number: int, count: int, what: str) -> None:
    if not 0 <= number < count:
        raise IndexError(f"there are {count} {what}s, and no {number}")


def _flat(values: Iterable[Any]) -> list[Any]:
    result: list[Any] = []
    for value in values:
        result += _flat(value) if isinstance(value, list | tuple) and _holds_tensors(value) else [value]
    return result


def _holds_tensors(value: Sequence[Any]) -> bool:
    return any(isinstance(v, Tensor) or (isinstance(v, list | tuple) and _holds_tensors(v)) for v in value)


def need_graph(graph: Any) -> None:
    """Raises `TypeError` for what is no graph, `ValueError` for a graph of another Ir than the current one."""
    if not isinstance(graph, Graph):
        raise TypeError(f"a graph is called, and this is {type(graph).__name__}: make one with ir.create_graph")
    if graph.ir is not get_current_context().ir:
        raise ValueError(f"graph {graph.id!r} belongs to another Ir: make it with this one's create_graph")


def bind_inputs(
    graph: Graph, inputs: Iterable[Any], inputs_dict: Mapping[Tensor, Any] | None, check: bool = True
) -> list[Tensor]:
    """The operand of every input of a graph: first those given in order, then those by input.

    Raises `ValueError` for missing, superfluous or doubly given inputs, tensors of other graphs and calls in a circle,
    `TypeError` for values that can be no tensor, `popart_exception` for other shapes and types.
    """
    need_graph(graph)
    current = get_current_context().graph
    if current is graph:
        raise ValueError(f"graph {graph.id!r} cannot call itself")
    between = _path(graph, current)
    if between:
        chain = " calls ".join(repr(g.id) for g in (current, *between))
        raise ValueError(f"graph {current.id!r} would call itself: {chain}")
    given = _flat(inputs)
    own = graph._inputs
    if len(given) > len(own):
        raise ValueError(f"Too many inputs have been provided: graph {graph.id!r} takes {len(own)}, not {len(given)}")
    operands: dict[Tensor, Any] = dict(zip(own, given, strict=False))
    for key, value in (inputs_dict or {}).items():
        if not isinstance(key, Tensor) or key not in own:
            raise ValueError(f"inputs_dict: {key!r} is not in the called graph, {graph.id!r}, as an input")
        if key in operands:
            raise ValueError(f"Graph input tensor is specified twice: {key.id!r}")
        operands[key] = value
    missing = [t.id for t in own if t not in operands]
    if missing:
        raise ValueError(f"Not enough inputs have been provided: graph {graph.id!r} lacks {', '.join(missing)}")
    return [_operand(current, t, operands[t], check) for t in own]


def _operand(current: Graph, target: Tensor, value: Any, check: bool) -> Tensor:
    if not isinstance(value, Tensor):
        try:
            array = as_array(value)
            if array.dtype.kind not in "biuf":
                raise TypeError(f"{value!r} holds no numbers")
        except (TypeError, ValueError) as error:
            raise TypeError(f"input {target.id!r}: {value!r} cannot be made a tensor") from error
        value = target._ensure_tensor(value)
    check_in_graph(current, **{target.name: value})
    if check and (value.shape != target.shape or value.dtype is not target.dtype):
        raise popart_exception(
            f"input {target.id!r} is {target.dtype} of shape {target.shape}; given is {value.id!r}, "
            f"{value.dtype} of shape {value.shape}"
        )
    result: Tensor = value
    return result


def call_with_info(
    graph: Graph, *inputs: Any, inputs_dict: Mapping[Tensor, Any] | None = None, check_inputs: bool = True
) -> CallSiteInfo:
    """Call a graph with copies of its operands; those that it takes by reference may be modified."""
    operands = bind_inputs(graph, inputs, inputs_dict, check_inputs)
    outputs = [(t.shape, t.dtype) for t in graph._outputs]
    modifies = tuple(k for k, t in enumerate(graph._inputs) if t in graph._by_ref_inputs)
    current = get_current_context().graph
    op = current._add_op("Call", operands, outputs, {}, modifies=modifies, calls=(graph,))
    for made, t in zip(op.outputs, graph._outputs, strict=True):
        made._meta_shape = t.meta_shape
    return CallSiteInfo(op)


def call(graph: Graph, *inputs: Any, inputs_dict: Mapping[Tensor, Any] | None = None) -> tuple[Tensor, ...]:
    """As `call_with_info`; the results."""
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict).outputs
