"""Whether a graph trains as the user's modules do: one step of both in torch, before anything is compiled.

A trace sees what is calculated, not everything that torch's autograd does with it. So the loss and the gradient by
every weight of the traced graph are compared with those of the modules themselves; a graph that differs is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.frontend.eager import EagerStep, eager_steps, own_copy, same_seeds
from tbuda_lab.core.frontend.inputs import draw_masks, elements
from tbuda_lab.core.frontend.torch_model.dropouts import NoDropouts
from tbuda_lab.core.frontend.torch_model.provenance import function_line
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import LOSS, TRAINABLE
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import to_tensor
from tbuda_lab.core.ops.gradients import OwnGradient, behind_seed

Values = dict[str, torch.Tensor]
OWN, ALL = 1e-3, 1e-5
"""How far a gradient may be off: of its own largest element, and of the largest of all gradients."""


class _Own(torch.autograd.Function):
    """A value whose gradients are calculated by `again`."""

    @staticmethod
    def forward(ctx: Any, again: Any, value: torch.Tensor, *operands: torch.Tensor) -> torch.Tensor:
        ctx.again = again
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, None, *ctx.again(gradients[0])


def _own_gradient(graph: Graph, node: Node, values: Values) -> torch.Tensor:
    seed, results = node.sources[1], node.sources[3::2]
    steps = [behind_seed(graph, seed, result) for result in results]

    def again(g: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            found = {seed: g}
            for step in steps:
                for name in step:
                    op = graph[name].op
                    assert isinstance(op, NdOp)
                    found[name] = op.evaluate(*(found.get(s, values[s]) for s in graph[name].sources))
            return [found.get(result, values[result]) for result in results]

    operands = (values[s] for s in node.sources[2::2])
    value: torch.Tensor = _Own.apply(again, values[node.sources[0]], *operands)  # type: ignore[no-untyped-call]
    return value


def graph_step(
    graph: Graph,
    feed: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> EagerStep:
    """The loss of a batch and its gradients by the weights, by torch's autograd of the graph's ops, element by element.

    feed: every input of the graph for the whole batch; weights: values instead of the graph's own.
    """
    leaves = {
        n.name: (weights[n.name] if weights and n.name in weights else to_tensor(n.value))
        .to(dtype, copy=True)
        .reshape(n.shape)
        .requires_grad_()
        for n in graph.of_kind(NodeKind.PARAMETER)
        if n.attrs.get(TRAINABLE) and n.value is not None
    }
    order = graph.topological()
    total = torch.zeros((), dtype=dtype)
    with torch.enable_grad():
        for element in elements(graph, dict(feed)):
            for value, share in _losses(graph, order, element, leaves, dtype):
                total = total + value.sum() * share
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True) if total.requires_grad else ()
    gradients = {n: g for n, g in zip(leaves, found, strict=False) if g is not None}
    return EagerStep(float(total.detach()), [total.detach()], gradients)


def _losses(
    graph: Graph, order: Iterable[Node], element: Mapping[str, torch.Tensor], leaves: Values, dtype: torch.dtype
) -> list[tuple[torch.Tensor, float]]:
    values: Values = {}
    losses = []
    for node in order:
        if node.name in leaves:
            values[node.name] = leaves[node.name]
        elif node.kind is NodeKind.INPUT:
            given = element[node.name]
            values[node.name] = given.to(dtype) if given.is_floating_point() else given
        elif node.value is not None:
            values[node.name] = to_tensor(node.value, dtype)
        elif isinstance(node.op, OwnGradient):
            values[node.name] = _own_gradient(graph, node, values)
        elif isinstance(node.op, NdOp):
            values[node.name] = node.op.evaluate(*(values[s] for s in node.sources))
        elif node.attrs.get(LOSS):
            losses.append((values[node.sources[0]], float(node.attrs[LOSS])))
    return losses


def audit(
    model: torch.nn.Module,
    loss: torch.nn.Module,
    graph: Graph,
    feed: Mapping[str, torch.Tensor],
    inputs: Any,
    targets: Sequence[torch.Tensor],
    *,
    drops: bool = True,
    names: Mapping[str, str] | None = None,
) -> None:
    """Compare one step of a graph that ends in a loss with the modules that it was made of.

    feed: inputs and targets by name, the whole batch in dim 0, without the masks of dropouts, which are drawn as torch
    draws them; drops: False where the graph drops nothing. names: in the graph of weights that are called otherwise
    there. A sample on a bend of a function, or with equal maxima, is tried again a little beside.
    Raises `UnsupportedOp` that names the weights whose gradients differ and what may change them.
    """
    if any(t.is_meta for t in [*model.parameters(), *feed.values()]):
        return
    off = _compare(model, loss, graph, feed, inputs, targets, drops, names or {})
    if off:
        generator = torch.Generator().manual_seed(5)
        moved: dict[int, torch.Tensor] = {}

        def beside(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            if id(value) not in moved:
                moved[id(value)] = value + 0.1 * torch.randn(value.shape, generator=generator).to(value.dtype)
            return moved[id(value)]

        goals = {id(t) for t in targets}
        fed = {name: value if id(value) in goals else beside(value) for name, value in feed.items()}
        off = off and _compare(model, loss, graph, fed, pytree.tree_map(beside, inputs), targets, drops, names or {})
    if off:
        raise UnsupportedOp("the model does not train on the device as it does in torch", _findings(model, off))


def _compare(
    model: torch.nn.Module,
    loss: torch.nn.Module,
    graph: Graph,
    feed: Mapping[str, torch.Tensor],
    inputs: Any,
    targets: Sequence[torch.Tensor],
    drops: bool,
    names: Mapping[str, str],
) -> dict[str, str]:
    """`differences` of one step; none where torch itself refuses the sample, for then the trace says why."""
    try:
        with contextlib.nullcontext() if drops else NoDropouts():
            steps = eager_steps(model if drops else without_dropouts(model), loss, inputs, targets, {}, 1)
    except Exception:
        return {}
    if not steps:
        return {}
    wanted = dataclasses.replace(steps[0], gradients={names.get(n, n): g for n, g in steps[0].gradients.items()})
    with same_seeds():
        masks = draw_masks(graph, sum(1 for _ in elements(graph, feed)))
    return differences(wanted, graph_step(graph, {**feed, **masks}))


def without_dropouts(model: torch.nn.Module) -> torch.nn.Module:
    """A copy whose layers drop nothing, as devices train that leave dropouts out."""
    own = own_copy(model) or model
    kinds = torch.nn.modules.dropout._DropoutNd | torch.nn.RNNBase | torch.nn.MultiheadAttention
    for layer in own.modules() if own is not model else ():
        if isinstance(layer, kinds):
            layer.training = False
    return own


def differences(wanted: EagerStep, have: EagerStep) -> dict[str, str]:
    """By name of a weight, or "" for the loss, how the second step differs from the first."""
    result = {}
    if abs(wanted.loss - have.loss) > OWN * abs(wanted.loss) + ALL:
        result[""] = f"the loss is {have.loss:.6g} here, {wanted.loss:.6g} in torch"
    largest = max((float(g.abs().max()) for g in wanted.gradients.values() if g.numel()), default=0.0)
    for name in sorted({*wanted.gradients, *have.gradients}):
        there, here = wanted.gradients.get(name), have.gradients.get(name)
        known = there if there is not None else here
        assert known is not None
        if not known.numel():
            continue
        there = torch.zeros_like(known) if there is None else there
        here = torch.zeros_like(known) if here is None else here.reshape(there.shape)
        size = float(there.abs().max())
        error = float((there - here).abs().max())
        if not error <= OWN * size + ALL * largest + 1e-7:
            result[name] = f"its gradient is off by {error:.3g}, where the largest element is {size:.3g} in torch"
    return result


def _findings(model: torch.nn.Module, off: Mapping[str, str]) -> list[Diagnostic]:
    fix = "leave it out for the device, or place that part of the model on a CPUDevice, where torch trains it"
    causes = suspects(model)
    rows = [Diagnostic("error", where, "gradient", what, fix) for where, what in causes]
    return rows + [
        Diagnostic("error", name or "loss", "gradient", text, "" if causes else fix) for name, text in off.items()
    ]


def suspects(model: torch.nn.Module) -> list[tuple[str, str]]:
    """(line or module, what it is) of what changes gradients and is not in a trace."""
    found = []
    for name, layer in model.named_modules():
        for hook in (*layer._backward_hooks.values(), *layer._backward_pre_hooks.values()):
            found.append((function_line(hook) or name, f"a backward hook of module {name or type(layer).__name__!r}"))
        if layer.training and (p := active_dropout(layer)):
            found.append((name, f"{type(layer).__name__} drops with probability {p:g} inside"))
    for name, parameter in model.named_parameters():
        for hook in (
            *(parameter._backward_hooks or {}).values(),
            *(getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values(),
        ):
            found.append((function_line(hook) or name, f"a hook of parameter {name!r}"))
    return found


def active_dropout(layer: torch.nn.Module) -> float:
    """The probability with which a layer of torch's own drops values where no trace sees it."""
    if isinstance(layer, torch.nn.RNNBase) and layer.num_layers == 1:
        return 0.0
    if isinstance(layer, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        return float(layer.dropout)
    alpha = torch.nn.AlphaDropout | torch.nn.FeatureAlphaDropout
    return float(layer.p) if isinstance(layer, alpha) else 0.0
