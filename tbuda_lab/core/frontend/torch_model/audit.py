"""Whether a graph does what the user's modules do, in torch on the sample, before anything is compiled.

A trace sees what is calculated and what torch tells of it, and torch's own rewriting can lose some of that. So the
answers of a traced graph are compared with those of the module itself; of a graph that trains, the loss and the
gradient by every weight. A graph that differs by more than rounding is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.frontend.eager import EagerStep, call, classes_kept, eager_steps, own_copy, same_seeds
from tbuda_lab.core.frontend.inputs import BoundInputs, draw_masks, elements, fed_inputs
from tbuda_lab.core.frontend.provenance import PACKAGE, function_line, user_line_of
from tbuda_lab.core.frontend.torch_model.dropouts import NoDropouts
from tbuda_lab.core.frontend.torch_model.state import FirstCall
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import LOSS, PHASE, TRAINABLE, WRITES
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import evaluate, evaluate_nodes, to_tensor
from tbuda_lab.core.ops.gradients import OwnGradient, behind_seed

Values = dict[str, torch.Tensor]
OWN, ALL = 1e-3, 1e-5
"""How far a gradient may be off: of its own largest element, and of the largest of all gradients."""
ROUNDINGS = 8.0
"""As `OWN`, in roundings of a format of 16 bits."""


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


Mode = Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]
NEAR = 1e-4
"""Of a number, or of the usual magnitude of its output: answers that differ by less are rounding of many ops."""
GROWTH = 20.0
"""By how much more than a run with noise of one rounding an answer may be off: three runs do not show the worst one."""
LOGGED = 1 << 27
"""Elements of results up to which a run is kept to find the op that differs first."""


def audit_answers(
    graph: Graph, module: torch.nn.Module, bound: BoundInputs, first: FirstCall, mode: Mode, at: int = 0
) -> None:
    """Compare what a traced graph makes of its sample with what the module returned for it.

    bound: the inputs that the graph was traced on, or one element, `at`, of the microbatch that those of `first` are;
    mode: a context in which a copy of the module is called. Raises `UnsupportedOp` that names the op whose result
    differs first and its line; differences that a rounding of every op explains are none.
    """
    if any(n.value is None for n in graph.of_kind(NodeKind.PARAMETER)) or any(t.is_meta for _, t in bound.leaves):
        return
    given = dict(bound.leaves)
    feed = {n.name: given[str(n.attrs["argument"])] for n in fed_inputs(graph)}
    feed = {n: t.float() if t.dtype == torch.float64 else t for n, t in feed.items()}  # as any device rounds them
    feed |= draw_masks(graph, 1, active=False)
    values = evaluate(graph, feed)
    outputs = [n for n in graph.outputs if WRITES not in n.attrs]
    writes = {str(n.attrs[WRITES]): n for n in graph.outputs if WRITES in n.attrs and PHASE not in n.attrs}
    wanted = [*_of_element(first, bound, at), *(first.buffers[n] for n in writes if n in first.buffers)]
    nodes = [*outputs, *(node for n, node in writes.items() if n in first.buffers)]
    if len(wanted) != len(nodes):
        text = f"the trace has {len(outputs)} outputs, the module returns {len(wanted) - len(nodes) + len(outputs)}"
        raise _other_answers([Diagnostic("error", graph.name, "trace", text, _WRITE_PLAINLY)])
    have = [values[n.name] for n in nodes]
    dtypes = [getattr(torch, str(n.attrs.get("dtype", "float32"))) for n in nodes]
    free: list[torch.Tensor] | None = None
    for k, (h, w, dtype) in enumerate(zip(have, wanted, dtypes, strict=True)):
        text = unlike(h, w, dtype)
        if text and h.shape == w.shape and dtype == w.dtype:
            free = _freedom(module, bound, mode, len(outputs)) if free is None else free
            text = unlike(h, w, dtype, free[k] if k < len(free) else None)
        if text:
            op, where = _first_unlike(graph, feed, module, bound, mode)
            name = f"{op}: " if op else ""
            found = Diagnostic(
                "error", where or nodes[k].name, "trace", f"{name}{nodes[k].name}: {text}", _WRITE_PLAINLY
            )
            raise _other_answers([found])


_WRITE_PLAINLY = (
    "write that line another way (clone() what is written to in place, nothing that asks how the model is run), or "
    "place that part of the model on a CPUDevice"
)


def _other_answers(findings: list[Diagnostic]) -> UnsupportedOp:
    return UnsupportedOp("the trace of the model gives another answer than the model itself", findings)


def _of_element(first: FirstCall, bound: BoundInputs, at: int) -> list[torch.Tensor]:
    """The outputs of a first call, of one element alone where the trace is of one."""
    return [t[at : at + 1] for t in first.outputs] if first.microbatch > bound.microbatch else first.outputs


def unlike(have: torch.Tensor, want: torch.Tensor, dtype: torch.dtype, free: torch.Tensor | None = None) -> str:
    """How an output differs from torch's; "" where it does not. dtype: that the trace says it has; free: how far each
    element may be off, NaN where it may be anything."""
    if tuple(have.shape) != tuple(want.shape):
        return f"its shape is {tuple(have.shape)}, in torch {tuple(want.shape)}"
    if dtype != want.dtype:
        return f"its type is {dtype}, in torch {want.dtype}"
    if want.is_complex() or not want.numel():
        return ""
    a, b = have.to(want.dtype).double(), want.double()
    slack = torch.zeros_like(b) if free is None else free
    if want.is_floating_point():
        finite = b[b.isfinite() & (b != 0)].abs()  # of the usual magnitude: a few huge numbers hide nothing
        near = max(NEAR, 8 * torch.finfo(want.dtype).eps)
        slack = slack + near * torch.clamp(
            b.abs().nan_to_num(0.0, 0.0), min=float(finite.median()) if len(finite) else 0.0
        )
    same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= slack) | slack.isnan()
    if bool(same.all()):
        return ""
    at = int((~same).flatten().nonzero()[0])
    return (
        f"{int((~same).sum())} of {same.numel()} elements differ; the first is {a.flatten()[at].item():.6g} in the "
        f"trace, {b.flatten()[at].item():.6g} in torch"
    )


def _run(module: torch.nn.Module, bound: BoundInputs, mode: Mode, watch: TorchDispatchMode) -> list[torch.Tensor]:
    """What a copy of the module returns with a mode of torch that sees its calls."""
    own = own_copy(module)
    if own is None:
        return []
    with classes_kept(module), same_seeds(), mode(own), torch.no_grad(), watch:
        returned = call(own, bound)
    return [t.clone() for t in pytree.tree_leaves(returned) if isinstance(t, torch.Tensor)]


def _freedom(module: torch.nn.Module, bound: BoundInputs, mode: Mode, count: int) -> list[torch.Tensor]:
    """How far each element of the outputs may be off for the rounding of the ops before it: a few runs in which every
    result is off by a rounding. NaN where that decides what it is, as in a sort of equal numbers."""
    kinds = [t.dtype for t in itertools.chain(module.parameters(), (t for _, t in bound.leaves))]
    size = max([torch.finfo(d).eps for d in kinds if d.is_floating_point] + [torch.finfo(torch.float32).eps])
    want = _run(module, bound, mode, _Log())
    free = [torch.zeros(t.shape, dtype=torch.float64) for t in want]
    for seed in range(3):
        for f, w, o in zip(free, want, _run(module, bound, mode, _Rounded(seed, 4 * size)), strict=True):
            if w.is_complex() or o.shape != w.shape:
                continue
            apart = (o.double() - w.double()).abs()
            apart = torch.where((o == w) | (o.isnan() & w.isnan()), 0.0, apart)
            if not w.is_floating_point():
                apart = torch.where(apart > 0, torch.nan, 0.0)
            alike = (o.isnan() == w.isnan()) & (o.isinf() == w.isinf())
            f.copy_(torch.where(alike, torch.maximum(f, GROWTH * apart), torch.nan))
    return free[:count]


class _Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every result that is calculated is off by up to `size` of itself; what is moved, chosen or whole stays."""

    def __init__(self, seed: int, size: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator, self.size = torch.Generator().manual_seed(seed), size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if function._schema.is_mutable:
            operands = [t.clone() for t in operands]
        out = function(*args, **(kwargs or {}))
        if any(r.alias_info is not None and not r.alias_info.is_write for r in function._schema.returns):
            return out
        before = [t.double().flatten() for t in operands if not t.is_complex()]
        operand_values = torch.cat(before) if before else torch.zeros(0, dtype=torch.float64)
        for t in pytree.tree_leaves(out):
            if not (isinstance(t, torch.Tensor) and t.is_floating_point() and t.element_size() > 1 and t.numel()):
                continue
            if not _is_moved(t, operand_values):
                noise = torch.rand(t.shape, generator=self.generator, dtype=torch.float32).mul_(2).sub_(1)
                scale = t.abs().double()  # which has room for a sum's terms
                if torch.Tag.pointwise not in function.tags:  # sums: their roundings are of the terms' size
                    scale = torch.clamp(
                        scale, min=float(_finite(torch.cat([operand_values, t.double().flatten()])).max())
                    )
                t.copy_(t + (self.size * noise * scale).to(t.dtype))
        return out


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Magnitudes of the finite values, and 0."""
    return torch.cat([values[values.isfinite()].abs(), values.new_zeros(1)])


def _is_moved(result: torch.Tensor, known: torch.Tensor) -> bool:
    """Whether every number of a result is whole or one of the operands', with either sign."""
    values = result[result.isfinite()].double().abs()
    return bool((values == values.round()).all()) or bool(torch.isin(values, known.abs()).all())


class _Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps (line, op, result) of every call of a run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, str, torch.Tensor]] = []
        self.size = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        result = next((t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)), None)
        if result is not None and not result.is_complex() and self.size + result.numel() <= LOGGED:
            self.size += result.numel()
            frames = [(f.filename, f.lineno or 0) for f in traceback.extract_stack()]
            begin = max(k for k, (path, _) in enumerate(frames) if path.startswith(PACKAGE) and k < len(frames) - 1)
            self.calls.append((user_line_of(frames[begin + 1 : -1]), str(function), result.detach().clone()))
        return out


def _first_unlike(
    graph: Graph, feed: Mapping[str, torch.Tensor], module: torch.nn.Module, bound: BoundInputs, mode: Mode
) -> tuple[str, str]:
    """The op of the module whose result no node of its line in the graph has, and the line; ("", "") where none is
    found."""
    log = _Log()
    _run(module, bound, mode, log)
    made: dict[str, list[torch.Tensor]] = {}
    for name, value in evaluate_nodes(graph, feed).items():
        made.setdefault(graph[name].origin.location, []).append(value)
    lines = [list(calls) for _, calls in itertools.groupby(log.calls, key=lambda entry: entry[0])]
    for line, op, result in (*(calls[-1] for calls in lines), *log.calls):  # what a line makes, then all that it calls
        rivals = [v for v in made.get(line, ()) if v.numel() == result.numel()]
        if rivals and all(unlike(v.reshape(result.shape), result, result.dtype) for v in rivals):
            return op, line
    return "", ""


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
    """`differences` of one step; none where torch itself refuses the sample, for then the trace says why.

    The graph is evaluated in float32. A model with weights or inputs of 16 bits rounds in every op, which is no
    difference of the trace: its float32 twin is what is compared, and itself, coarsely, where torch refuses the twin.
    """
    with same_seeds():
        masks = draw_masks(graph, sum(1 for _ in elements(graph, feed)))

    def against(model: torch.nn.Module, loss: torch.nn.Module, inputs: Any, goals: Any, own: float) -> Any:
        try:
            with contextlib.nullcontext() if drops else NoDropouts():
                steps = eager_steps(model if drops else without_dropouts(model), loss, inputs, goals, {}, 1)
        except Exception:
            return None
        if not steps:
            return {}
        wanted = dataclasses.replace(steps[0], gradients={names.get(n, n): g for n, g in steps[0].gradients.items()})
        return differences(wanted, graph_step(graph, {**feed, **masks}), own)

    floats = [t.dtype for t in [*model.parameters(), *feed.values()] if t.is_floating_point()]
    coarsest = max((torch.finfo(dtype).eps for dtype in floats), default=0.0)
    if coarsest <= torch.finfo(torch.float32).eps:
        return against(model, loss, inputs, targets, OWN) or {}
    twins = [None if own is None else own.float() for own in (own_copy(model), own_copy(loss))]
    off = None
    if twins[0] is not None and twins[1] is not None:
        wide = pytree.tree_map(_widened, (inputs, tuple(targets)))
        off = against(twins[0], twins[1], wide[0], wide[1], OWN)
    return (against(model, loss, inputs, targets, ROUNDINGS * coarsest) if off is None else off) or {}


def _widened(value: Any) -> Any:
    """A tensor of floats as float32; anything else as it is."""
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def without_dropouts(model: torch.nn.Module) -> torch.nn.Module:
    """A copy whose layers drop nothing, as devices train that leave dropouts out."""
    copied = own_copy(model)
    own = model if copied is None else copied
    kinds = torch.nn.modules.dropout._DropoutNd | torch.nn.RNNBase | torch.nn.MultiheadAttention
    for layer in own.modules() if own is not model else ():
        if isinstance(layer, kinds):
            layer.training = False
    return own


def differences(wanted: EagerStep, have: EagerStep, own: float = OWN) -> dict[str, str]:
    """By name of a weight, or "" for the loss, how the second step differs from the first by more than `own` of it."""
    differing = {}
    if abs(wanted.loss - have.loss) > own * abs(wanted.loss) + ALL:
        differing[""] = f"the loss is {have.loss:.6g} here, {wanted.loss:.6g} in torch"
    largest = max((float(g.abs().max()) for g in wanted.gradients.values() if g.numel()), default=0.0)
    for name in sorted({*wanted.gradients, *have.gradients}):
        there, here = wanted.gradients.get(name), have.gradients.get(name)
        gradient = there if there is not None else here
        assert gradient is not None
        if not gradient.numel():
            continue
        there = torch.zeros_like(gradient) if there is None else there
        here = torch.zeros_like(gradient) if here is None else here.reshape(there.shape)
        size = float(there.abs().max())
        error = float((there - here).abs().max())
        if not error <= own * size + ALL * largest + 1e-7:
            differing[name] = f"its gradient is off by {error:.3g}, where the largest element is {size:.3g} in torch"
    return differing


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
