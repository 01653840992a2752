"""Gradient graphs."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import not_supported
from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.kinds import calculates_as
from tbuda_lab.popxl.kinds.gradients import RULES, Backward, generic
from tbuda_lab.popxl.ops.call import CallSiteInfo, call_with_info
from tbuda_lab.popxl.ops.utils import need_tensor
from tbuda_lab.popxl.tensor import Constant, Tensor, constant


class ExpectedConnectionType(enum.Enum):
    """What an input or output of a gradient graph is: a tensor of the forward graph, or the gradient by it."""

    Fwd = "Fwd"
    FwdGrad = "FwdGrad"


class ExpectedConnection:
    """An input or output of a gradient graph. Made by `autodiff`."""

    _type: ExpectedConnectionType
    _tensor: Tensor

    def __init__(self) -> None:
        raise TypeError("an ExpectedConnection cannot be made; autodiff gives them")

    @classmethod
    def _make(cls, kind: ExpectedConnectionType, tensor: Tensor) -> ExpectedConnection:
        self = object.__new__(cls)
        self._type, self._tensor = kind, tensor
        return self

    @property
    def fwd_tensor(self) -> Tensor:
        return self._tensor

    @property
    def connection_type(self) -> ExpectedConnectionType:
        return self._type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpectedConnection) and (self._type, self._tensor) == (other._type, other._tensor)

    def __hash__(self) -> int:
        return hash((self._type, self._tensor))

    def __repr__(self) -> str:
        return f"ExpectedConnection({self._type.value}, {self._tensor.id})"


class GradGraphInfo:
    """A gradient graph and what it takes and gives. Made by `autodiff`."""

    _graph: Graph
    _forward: Graph
    _ins: list[ExpectedConnection]
    _outs: list[ExpectedConnection]

    def __init__(self) -> None:
        raise TypeError("a GradGraphInfo cannot be made; autodiff gives one")

    @classmethod
    def _make(cls, graph: Graph, forward: Graph) -> GradGraphInfo:
        self = object.__new__(cls)
        self._graph, self._forward, self._ins, self._outs = graph, forward, [], []
        return self

    def __repr__(self) -> str:
        return (
            f"GradGraphInfo[graph={self._graph.id}, forward_graph={self._forward.id},\n"
            f"  expected_inputs={self.expected_inputs},\n  expected_outputs={self.expected_outputs}]"
        )

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def forward_graph(self) -> Graph:
        return self._forward

    @property
    def expected_inputs(self) -> tuple[ExpectedConnection, ...]:
        return tuple(self._ins)

    @property
    def expected_outputs(self) -> tuple[ExpectedConnection, ...]:
        return tuple(self._outs)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors of the forward graph that the inputs are, or are the gradients by."""
        return tuple(c.fwd_tensor for c in self._ins)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors of the forward graph by which the outputs are gradients."""
        return tuple(c.fwd_tensor for c in self._outs)

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """By input of the gradient graph that is a tensor of the forward graph: that tensor at a call of the latter.
        Raises `TypeError` for a call of another graph."""
        if fwd_call_info.called_graph is not self._forward:
            raise TypeError(
                f"the call is of graph {fwd_call_info.called_graph.id!r}, the gradients are of {self._forward.id!r}"
            )
        return {
            own: fwd_call_info.graph_to_parent(c.fwd_tensor)
            for own, c in zip(self._graph._inputs, self._ins, strict=True)
            if c.connection_type is ExpectedConnectionType.Fwd
        }

    def fwd_graph_ins_to_grad_parent_outs(self, grad_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """By tensor of the forward graph the gradient by it at a call of the gradient graph."""
        return {c.fwd_tensor: out for c, out in zip(self._outs, grad_call_info.outputs, strict=False)}

    def fwd_parent_ins_to_grad_parent_outs(
        self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """By operand of a call of the forward graph the gradient by it at a call of the gradient graph. Raises
        `popart_exception` for an operand that the call has twice: its gradient is the sum of two."""
        result: dict[Tensor, Tensor] = {}
        for t, grad in self.fwd_graph_ins_to_grad_parent_outs(grad_call_info).items():
            operand = fwd_call_info.graph_to_parent(t)
            if operand in result:
                raise popart_exception(
                    f"{operand.id!r} is given twice to graph {self._forward.id!r}, and its gradient is the sum of two: "
                    "take them from fwd_graph_ins_to_grad_parent_outs and add them"
                )
            result[operand] = grad
        return result


def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: bool = False,
) -> Any:
    """The graph of the gradients of `graph`.

    It takes first the gradients by `grads_provided` (all outputs) and then the tensors of the forward graph that it
    needs, and gives the gradients by `grads_required` (all inputs). What it needs and the forward graph does not give
    becomes an output of that, and of all its calls. return_all_grad_graphs: by graph what belongs to it, graphs that
    are called included. Raises `popart_exception` for ops that modify tensors, and for a required gradient that there
    is not.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"autodiff is of a graph, not of {type(graph).__name__}: make one with ir.create_graph")
    infos = dict(called_graphs_grad_info or {})
    provided = list(graph._outputs if grads_provided is None else grads_provided)
    required = list(graph._inputs if grads_required is None else grads_required)
    for name, tensors in (("grads_provided", provided), ("grads_required", required)):
        for t in tensors:
            need_tensor(f"one of {name}", t)
    _refuse_modifying(graph, set())
    maker = _Maker(graph, provided, infos)
    info = maker.make(required, strict=True)
    infos[graph] = info
    return infos if return_all_grad_graphs else info


def _refuse_modifying(graph: Graph, seen: set[Graph]) -> None:
    seen.add(graph)
    for op in graph._ops:
        if op.modifies and op.kind not in ("Call", "Loop", "If"):
            raise popart_exception(
                f"autodiff of graph {graph.id!r}: {op.where()} modifies a tensor; use the form that does not"
            )
        for called in op.calls:
            if called not in seen:
                _refuse_modifying(called, seen)


class _Maker:
    """Makes one gradient graph."""

    def __init__(self, forward: Graph, provided: Sequence[Tensor], infos: dict[Graph, GradGraphInfo]) -> None:
        for t in provided:
            if t._graph is not forward:
                raise ValueError(f"grads_provided: tensor {t.id!r} does not belong to graph {forward.id!r}")
        self.forward, self.provided, self.infos = forward, provided, infos
        self.graph = forward.ir._new_graph(_free_name(forward), number=False)
        self.info = GradGraphInfo._make(self.graph, forward)
        self.copies: dict[Tensor, Tensor] = {}
        self.grads: dict[Tensor, list[Tensor]] = {}

    def make(self, required: Sequence[Tensor], strict: bool) -> GradGraphInfo:
        """strict: whether a required gradient that there is not is an error; else it is left out."""
        for t in required:
            if t._graph is not self.forward:
                raise ValueError(f"grads_required: tensor {t.id!r} does not belong to graph {self.forward.id!r}")
        carrying = self._carrying(required)
        context = get_current_context()
        with self.graph:
            ipus = list(context._ipus)
            sequences, context._sequences = context._sequences, []
            try:
                self._fill(carrying, required)
            finally:
                context._ipus[:], context._sequences = ipus, sequences
            for t in required:
                if t not in self.grads:
                    if not strict:
                        continue
                    raise popart_exception(
                        f"autodiff of graph {self.forward.id!r}: no gradient flows from "
                        f"{', '.join(repr(p.id) for p in self.provided) or 'no outputs'} to {t.id!r}: leave it out of "
                        "grads_required"
                    )
                self.graph._outputs.append(self._total(t))
                self.info._outs.append(ExpectedConnection._make(ExpectedConnectionType.FwdGrad, t))
        return self.info

    def _carrying(self, required: Sequence[Tensor]) -> set[Tensor]:
        """Tensors that depend on one that a gradient is wanted of."""
        carrying = set(required)
        for op in self.forward._ops:
            if any(t in carrying for t in op.inputs):
                carrying.update(op.outputs)
        return carrying

    def _fill(self, carrying: set[Tensor], required: Sequence[Tensor]) -> None:
        for t in self.provided:
            own = self.graph._new_tensor(t.shape, t.dtype, f"Gradient___{t.name}", kind="input")
            self.graph._inputs.append(own)
            self.info._ins.append(ExpectedConnection._make(ExpectedConnectionType.FwdGrad, t))
            self.grads.setdefault(t, []).append(own)
        for op in reversed(self.forward._ops):
            if not any(t in self.grads for t in op.outputs) or not any(t in carrying for t in op.inputs):
                continue
            grads = [self._total(t) if t in self.grads else None for t in op.outputs]
            whole = all(t.dtype.is_int for t in (*op.inputs, *op.outputs))  # indices among floats carry none
            needs = [t in carrying and (t.dtype.is_floating_point or whole) for t in op.inputs]
            if not any(needs):
                continue
            get_current_context()._ipus[:] = [op.ipu]
            for t, grad in zip(op.inputs, self._of(op, grads, needs), strict=True):
                if grad is not None and t in carrying:
                    self.grads.setdefault(t, []).append(grad)

    def _total(self, t: Tensor) -> Tensor:
        """The gradient by a tensor: the sum of what its readers give."""
        total = _sum_of(self.grads[t], f"Gradient___{t.name}")
        assert total is not None
        self.grads[t] = [total]
        return total

    def _of(self, op: Op, grads: list[Tensor | None], needs: list[bool]) -> Sequence[Tensor | None]:
        if op.kind == "Call":
            return self._of_call(op, grads, needs)
        if op.kind == "If":
            return self._of_if(op, grads, needs)
        if op.kind == "Loop":
            return self._of_loop(op, grads, needs)
        kind = calculates_as(op.kind)
        return RULES.get(kind, generic)(Backward(op, grads, needs, self.fetch))

    def fetch(self, t: Tensor) -> Tensor:
        """A tensor of the forward graph as an input of this one; constants are copied."""
        if t in self.copies:
            return self.copies[t]
        if isinstance(t, Constant):
            made: Tensor = constant(t._data, t.dtype, t.name)
        else:
            made = self.graph._new_tensor(t.shape, t.dtype, t.name, kind="input", meta_shape=t.meta_shape)
            self.graph._inputs.append(made)
            self.info._ins.append(ExpectedConnection._make(ExpectedConnectionType.Fwd, t))
            give(self.forward, t)
        self.copies[t] = made
        return made

    def _grads_of(self, graph: Graph, provided: list[Tensor], required: list[Tensor]) -> GradGraphInfo:
        """The gradient graph of a called graph: the one that is given, or one that gives what it can."""
        info = self.infos.get(graph)
        if info is None:
            info = self.infos[graph] = _Maker(graph, provided, self.infos).make(required, strict=False)
        return info

    def _of_call(self, op: Op, grads: list[Tensor | None], needs: list[bool]) -> Sequence[Tensor | None]:
        called = op.calls[0]
        provided = [t for t, g in zip(called._outputs, grads, strict=False) if g is not None]
        required = [t for t, n in zip(called._inputs, needs, strict=True) if n]
        info = self._grads_of(called, provided, required)
        by_tensor = dict(zip(called._outputs, grads, strict=False))
        found = _call_backward(info, CallSiteInfo(op), by_tensor, self.fetch)
        return [found.get(t) for t in called._inputs]

    def _of_loop(self, op: Op, grads: list[Tensor | None], needs: list[bool]) -> Sequence[Tensor | None]:
        """The turns are calculated again, one call each, and their gradient graphs called from the last to the first:
        what goes on from turn to turn takes the gradient with it, of the other operands the gradients are summed."""
        body, turns, results = op.calls[0], int(op.attrs["count"]), len(op.outputs)
        _refuse_effects(op, self.forward)
        if turns > MOST_TURNS:
            raise not_supported(
                f"the gradient of {op.where()} over {turns} turns",
                f"repeat at most {MOST_TURNS} times, or nest two repeats",
            )
        carried = list(grads)
        others: dict[int, list[Tensor]] = {}
        sites: list[CallSiteInfo] = []
        operands = [self.fetch(t) for t in op.inputs[2:]] if turns else []
        state = list(operands)
        for _ in range(turns):
            ends = constant(0, body._inputs[0].dtype, "turn"), constant(True, body._inputs[1].dtype, "keep_going")
            sites.append(call_with_info(body, *ends, *state))
            state = [*sites[-1].outputs[:results], *operands[results:]]
        wanted = [t for t in body._inputs[2:] if t.dtype.is_floating_point]
        provided = [t for t in body._outputs[:results] if t.dtype.is_floating_point]
        for site in reversed(sites):
            info = self._grads_of(body, provided, wanted)
            found = _call_backward(info, site, dict(zip(body._outputs, carried, strict=False)), lambda t: t)
            made = [found.get(t) for t in body._inputs[2:]]
            carried = made[:results]
            for k, grad in enumerate(made[results:], results):
                if grad is not None:
                    others.setdefault(k, []).append(grad)
        summed = (_sum_of(others.get(k, []), "gradient") for k in range(results, len(op.inputs) - 2))
        return [None, None, *carried, *summed]

    def _of_if(self, op: Op, grads: list[Tensor | None], needs: list[bool]) -> Sequence[Tensor | None]:
        """A conditional of two graphs, each of which calculates its own branch again and then its gradients; it gives
        zeros for the operands of the other one."""
        from tbuda_lab.popxl.ops.conditional import conditional

        _refuse_effects(op, self.forward)
        first = 1 + len(op.calls[0]._inputs)
        of_branch = [list(range(1, first)), list(range(first, len(op.inputs)))]
        wanted = [k for k in range(1, len(op.inputs)) if needs[k]]
        flowing = [(k, g) for k, g in enumerate(grads) if g is not None]
        first_branch, second_branch = (self._branch(op, n, own, wanted, flowing) for n, own in enumerate(of_branch))
        ins, others = ([g for _, g in flowing] + [self.fetch(op.inputs[k]) for k in own] for own in of_branch)
        made = conditional(self.fetch(op.inputs[0]), first_branch, second_branch, ins, others)
        found = dict(zip(wanted, made, strict=True))
        return [found.get(k) for k in range(len(op.inputs))]

    def _branch(
        self, op: Op, number: int, own: list[int], wanted: list[int], flowing: list[tuple[int, Tensor]]
    ) -> Graph:
        """The graph that takes the gradients of a conditional's results and the operands of one branch, and gives the
        gradients by `wanted` operands of both."""
        from tbuda_lab.popxl.ops.moves import init

        forward = op.calls[number]
        info = self._grads_of(
            forward,
            [forward._outputs[k] for k, _ in flowing],
            [t for t in forward._inputs if t.dtype.is_floating_point],
        )
        graph = self.forward.ir._new_graph(f"{forward.id}_bwd_branch")
        with graph:
            taken = [(g.shape, g.dtype, f"g{k}") for k, g in flowing]
            taken += [(t.shape, t.dtype, t.name) for t in forward._inputs]
            graph._inputs += [graph._new_tensor(*form, kind="input") for form in taken]
            site = call_with_info(forward, *graph._inputs[len(flowing) :])
            arriving = {forward._outputs[k]: t for (k, _), t in zip(flowing, graph._inputs, strict=False)}
            found = _call_backward(info, site, arriving, lambda t: t)
            by_operand = {k: found.get(t) for k, t in zip(own, forward._inputs, strict=True)}
            for k in wanted:
                t = op.inputs[k]
                graph._outputs.append(by_operand.get(k) or init(t.shape, t.dtype))
        return graph


def _sum_of(parts: Sequence[Tensor], name: str) -> Tensor | None:
    """One Sum of several tensors; None of none."""
    from tbuda_lab.popxl.ops.utils import one

    if len(parts) < 2:
        return parts[0] if parts else None
    inputs = {f"g{k}": p for k, p in enumerate(parts)}
    return one("Sum", inputs, parts[0].shape, parts[0].dtype, name=name)


MOST_TURNS = 256
"""Of a repeat whose gradient is made: each is two calls in the gradient graph."""
_EFFECTS = frozenset(
    ("HostLoad", "HostStore", "RemoteLoad", "RemoteLoadInplace", "RemoteStore", "PrintTensor", "MultiExchange")
)


def _refuse_effects(op: Op, forward: Graph) -> None:
    """Raises `NotSupported` where what a repeat or conditional calls cannot be calculated again: it loads, stores or
    prints; `popart_exception` where it changes an operand."""
    if op.modifies:
        raise popart_exception(f"autodiff of graph {forward.id!r}: {op.where()} modifies a tensor")
    todo, seen = list(op.calls), set(op.calls)
    while todo:
        for inner in todo.pop()._ops:
            if inner.kind in _EFFECTS:
                fix = f"move {inner.where()} out of what it calls, which is calculated twice"
                raise not_supported(f"the gradient of {op.where()}", fix)
            todo += [g for g in inner.calls if g not in seen]
            seen.update(inner.calls)


def _call_backward(
    info: GradGraphInfo, site: CallSiteInfo, arriving: Mapping[Tensor, Tensor | None], fetch: Any
) -> dict[Tensor, Tensor]:
    """Call a gradient graph for a call of its forward graph; by input of that the gradient. arriving: by output of the
    forward graph its gradient; fetch: from a tensor at that call to one of the current graph."""
    from tbuda_lab.popxl.ops.moves import init

    operands = []
    for c in info.expected_inputs:
        t = c.fwd_tensor
        if c.connection_type is ExpectedConnectionType.Fwd:
            operands.append(fetch(site.graph_to_parent(t)))
        else:
            operands.append(arriving.get(t) or init(t.shape, t.dtype))
    return dict(zip(info.outputs, call_with_info(info.graph, *operands).outputs, strict=True))


def give(graph: Graph, t: Tensor) -> None:
    """Make a tensor an output of its graph and of all calls of it, unless it is an input or output already."""
    if t in graph._inputs or t in graph._outputs:
        return
    graph._outputs.append(t)
    for op in graph._sites:
        if op.kind == "Call":
            made = op.graph._new_tensor(t.shape, t.dtype, f"{t.name}_out", meta_shape=t.meta_shape)
            made._producer = op
            op.outputs.append(made)


def _free_name(forward: Graph) -> str:
    name, k = f"{forward.id}_bwd", 0
    while name in forward.ir._graphs:
        k += 1
        name = f"{forward.id}_bwd_{k}"
    return name
