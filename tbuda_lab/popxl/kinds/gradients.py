"""Gradients of kinds: a rule in PopXL's own ops for the simple ones, and for the others an op `<kind>Grad` that torch
differentiates on the host and the core's own rules on the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.reduce import Matmul
from tbuda_lab.core.passes.autograd.engine import differentiate, make_differentiable
from tbuda_lab.popxl.kinds.picking import SMALLEST, loss_rows, one_hot_rows
from tbuda_lab.popxl.kinds.table import KINDS, Attrs, Ground, NotOnGrid, add
from tbuda_lab.popxl.utils import product

if TYPE_CHECKING:
    from tbuda_lab.popxl.graph import Op
    from tbuda_lab.popxl.tensor import Tensor


class Backward:
    """One op while its gradient is made, in the graph of gradients. x, y: forward operands and results there; grads: by
    result, None where nothing flows back; needs: operands whose gradient is wanted."""

    def __init__(
        self, op: Op, grads: Sequence[Tensor | None], needs: Sequence[bool], fetch: Callable[[Any], Any]
    ) -> None:
        self.op, self.grads, self.needs, self._fetch = op, grads, needs, fetch
        self.attrs = op.attrs

    @property
    def g(self) -> Tensor:
        grad = self.grads[0]
        assert grad is not None
        return grad

    def x(self, k: int) -> Tensor:
        result: Tensor = self._fetch(self.op.inputs[k])
        return result

    def y(self, k: int = 0) -> Tensor:
        result: Tensor = self._fetch(self.op.outputs[k])
        return result

    def shape(self, k: int) -> tuple[int, ...]:
        return self.op.inputs[k].shape


def _ops() -> Any:
    from tbuda_lab.popxl import ops

    return ops


def summed_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gradient summed along the dims that the op broadcast."""
    if g.shape == shape:
        return g
    lead = g.rank - len(shape)
    axes = [k for k in range(g.rank) if k < lead or (shape[k - lead] == 1 and g.shape[k] != 1)]
    total: Tensor = _ops().sum(g, axes, True) if axes else g
    return total if total.shape == shape else total.reshape(shape)


def _both(rule: Callable[[Backward], Sequence[Any]]) -> Callable[[Backward], Sequence[Any]]:
    """A rule of two operands that broadcast."""

    def run(b: Backward) -> Sequence[Any]:
        return [g if g is None else summed_to(g, b.shape(k)) for k, g in enumerate(rule(b))]

    return run


def _want(b: Backward, k: int, make: Callable[[], Any]) -> Any:
    return make() if b.needs[k] else None


def _mul(b: Backward) -> Sequence[Any]:
    return [_want(b, 0, lambda: b.g * b.x(1)), _want(b, 1, lambda: b.g * b.x(0))]


def _div(b: Backward) -> Sequence[Any]:
    return [_want(b, 0, lambda: b.g / b.x(1)), _want(b, 1, lambda: -(b.g * b.x(0) / (b.x(1) * b.x(1))))]


def _swapped(t: Tensor) -> Tensor:
    order = [*range(t.rank - 2), t.rank - 1, t.rank - 2]
    return t.transpose(order)


def _matmul(b: Backward) -> Sequence[Any]:
    """Vectors count as matrices of one row or column."""
    p, q = b.shape(0), b.shape(1)
    left = (1, *p) if len(p) == 1 else p
    right = (*q, 1) if len(q) == 1 else q
    lead = b.op.outputs[0].shape[: len(b.op.outputs[0].shape) - (len(p) > 1) - (len(q) > 1)]
    g = b.g.reshape((*lead, left[-2], right[-1]))

    def first() -> Tensor:
        grad = _ops().matmul(g, _swapped(b.x(1).reshape(right)))
        return summed_to(grad, left).reshape(p)

    def second() -> Tensor:
        grad = _ops().matmul(_swapped(b.x(0).reshape(left)), g)
        return summed_to(grad, right).reshape(q)

    return [_want(b, 0, first), _want(b, 1, second)]


def _slice(b: Backward) -> Sequence[Any]:
    from tbuda_lab.popxl.ops.utils import one

    return [one("SliceGrad", {"g": b.g}, b.shape(0), b.g.dtype, {**b.attrs, "shape": b.shape(0)})]


def _concat(b: Backward) -> Sequence[Any]:
    axis = b.attrs["axis"]
    return list(_ops().split(b.g, [t.shape[axis] for t in b.op.inputs], axis))


def _split(b: Backward) -> Sequence[Any]:
    parts = [g if g is not None else _ops().init(t.shape, t.dtype) for g, t in zip(b.grads, b.op.outputs, strict=True)]
    return [_ops().concat(parts, b.attrs["axis"])]


def _expanded(g: Tensor, shape: tuple[int, ...], axes: Sequence[int]) -> Tensor:
    from tbuda_lab.popxl.ops.utils import one

    kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
    return one("Expand", {"g": g.reshape(kept)}, shape, g.dtype, {"shape": shape})


def _sum(b: Backward) -> Sequence[Any]:
    return [_expanded(b.g, b.shape(0), b.attrs["axis"])]


def _mean(b: Backward) -> Sequence[Any]:
    count = product(b.shape(0)[k] for k in b.attrs["axis"])
    return [_expanded(b.g * (1.0 / count), b.shape(0), b.attrs["axis"])]


def _where(b: Backward) -> Sequence[Any]:
    zero = b.g._ensure_tensor(0.0)
    return [
        None,
        _want(b, 1, lambda: _ops().where(b.x(0), b.g, zero)),
        _want(b, 2, lambda: _ops().where(b.x(0), zero, b.g)),
    ]


def _scaled(b: Backward) -> Sequence[Any]:
    numbers = iter(range(2, len(b.op.inputs)))
    factors = [b.x(next(numbers)) if b.attrs[n] is None else b.attrs[n] for n in ("a", "b")]
    rest = len(b.op.inputs) - 2
    return [_want(b, 0, lambda: b.g * factors[0]), _want(b, 1, lambda: b.g * factors[1]), *[None] * rest]


def _softmax(b: Backward) -> Sequence[Any]:
    y = b.y()
    product_ = b.g * y
    return [product_ - y * _ops().sum(product_, [b.attrs["axis"]], True)]


def _cast(b: Backward) -> Sequence[Any]:
    from tbuda_lab.popxl.dtypes import dtype

    source = dtype.from_name(b.attrs["from"])
    return [_ops().cast(b.g, source) if source.is_floating_point else None]


def _by(kind: str, operands: Callable[[Backward], dict[str, Any]], more: int) -> Callable[[Backward], Sequence[Any]]:
    """A rule that is one op of another kind, which has the shape of the first operand."""

    def run(b: Backward) -> Sequence[Any]:
        from tbuda_lab.popxl.ops.utils import one

        attrs = {**b.attrs, "shape": b.shape(0)} if kind == "GatherGrad" else dict(b.attrs)
        return [one(kind, operands(b), b.shape(0), b.op.inputs[0].dtype, attrs), *[None] * more]

    return run


def _print(b: Backward) -> Sequence[Any]:
    if not b.attrs["print_gradient"]:
        return [b.g]
    from tbuda_lab.popxl.ops.utils import one

    attrs = {**b.attrs, "title": f"{b.attrs['title']}_gradient", "print_self": True, "print_gradient": False}
    return [one("PrintTensor", {"g": b.g}, b.g.shape, b.g.dtype, attrs)]


def _ipu_copy(b: Backward) -> Sequence[Any]:
    return [_ops().ipu_copy(b.g, b.attrs["source"], b.attrs["destination"])]


def _all_reduce(b: Backward) -> Sequence[Any]:
    """Of the sum over IPUs or replicas that of the gradients."""
    if b.op.kind.startswith("Replicated"):
        if b.attrs["op"] not in ("add", "mean"):
            return generic(b)
        return [_ops().collectives.replicated_all_reduce(b.g, b.attrs["op"], b.attrs["group"])]
    grads = [g if g is not None else _ops().init(t.shape, t.dtype) for g, t in zip(b.grads, b.op.outputs, strict=True)]
    if b.attrs["form"] == "identical_grad_inputs":
        return grads
    return list(_ops().collectives.all_reduce(grads, b.attrs["ipus"]))


def _gathered(b: Backward) -> Sequence[Any]:
    """Of an all-gather each replica's part of its own gradient, which is the same on all of them."""
    collectives = _ops().collectives
    if b.attrs["form"] == "meta_shape":
        return [collectives.replica_sharded_slice(b.g, b.attrs["group"])]
    return [collectives.replicated_slice(b.g, b.attrs["axis"], b.attrs["group"]).reshape(b.shape(0))]


def _scattered(b: Backward) -> Sequence[Any]:
    collectives = _ops().collectives
    if b.attrs["op"] not in ("add", "local"):
        return generic(b)
    whole = collectives.replicated_all_gather(b.g, 0, b.attrs["group"], "concat")
    size = product(b.shape(0))
    if whole.nelms != size:
        whole = _ops().slice(whole, 0, size, 1, 0)
    return [whole.reshape(b.shape(0))]


RULES: dict[str, Callable[[Backward], Sequence[Any]]] = {
    "Add": _both(lambda b: [b.g, b.g]),
    "Sub": _both(lambda b: [b.g, _want(b, 1, lambda: -b.g)]),
    "Mul": _both(_mul),
    "Div": _both(_div),
    "Neg": lambda b: [-b.g],
    "Sum": lambda b: [summed_to(b.g, t.shape) for t in b.op.inputs],
    "Identity": lambda b: [b.g],
    "IoTileCopy": lambda b: [b.g],
    "IpuCopy": _ipu_copy,
    "Detach": lambda b: [None],
    "Sign": lambda b: [None],
    "Floor": lambda b: [None],
    "Ceil": lambda b: [None],
    "Reshape": lambda b: [b.g.reshape(b.shape(0))],
    "Transpose": lambda b: [b.g.transpose([int(k) for k in np.argsort(b.attrs["perm"])])],
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "MatMul": _matmul,
    "Where": lambda b: [g if g is None else summed_to(g, b.shape(k)) for k, g in enumerate(_where(b))],
    "ScaledAdd": _scaled,
    "Exp": lambda b: [b.g * b.y()],
    "Tanh": lambda b: [b.g * (1.0 - b.y() * b.y())],
    "Sqrt": lambda b: [b.g / (b.y() * 2.0)],
    "Softmax": _softmax,
    "Cast": _cast,
    "PrintTensor": _print,
    "ShapedDropout": _by("ShapedDropoutGrad", lambda b: {"g": b.g, "seed": b.x(1)}, 1),
    "Dropout": _by("ShapedDropoutGrad", lambda b: {"g": b.g, "seed": b.x(1)}, 1),
    "Gather": _by("GatherGrad", lambda b: {"g": b.g, "indices": b.x(1)}, 1),
    "PopartTiedGather": _by("GatherGrad", lambda b: {"g": b.g, "indices": b.x(1)}, 1),
    "Nll": _by("NllGrad", lambda b: {"probs": b.x(0), "labels": b.x(1), "g": b.g}, 1),
    "AllReduce": _all_reduce,
    "ReplicatedAllReduce": _all_reduce,
    "ReplicatedAllGather": _gathered,
    "ReplicatedReduceScatter": _scattered,
}


def generic(b: Backward) -> Sequence[Any]:
    """An op `<kind>Grad`. Raises `NotSupported` for a kind without one."""
    from tbuda_lab.core.errors import not_supported
    from tbuda_lab.popxl.kinds.table import calculates_as
    from tbuda_lab.popxl.ops.utils import make

    kind = calculates_as(b.op.kind)
    if f"{kind}Grad" not in KINDS:
        raise not_supported(f"the gradient of {b.op.where()}", "leave it out with ops.detach, or with grads_required")
    wanted = [k for k, t in enumerate(b.op.inputs) if b.needs[k] and t.dtype.is_floating_point]
    given = [k for k, g in enumerate(b.grads) if g is not None]
    inputs: dict[str, Any] = {f"x{k}": b.x(k) for k in range(len(b.op.inputs))}
    inputs |= {f"g{k}": b.grads[k] for k in given}
    attrs = {"of": kind, "attrs": dict(b.op.attrs), "wanted": wanted, "given": given, "operands": len(b.op.inputs)}
    outputs = [(b.shape(k), b.op.inputs[k].dtype) for k in wanted]
    made = iter(make(f"{kind}Grad", inputs, outputs, attrs).outputs)
    return [next(made) if k in wanted else None for k in range(len(b.op.inputs))]


# -- ops of the kind <kind>Grad ----------------------------------------------------------------------------------------
def _by_torch(a: Attrs, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    form = KINDS[a["of"]].torch
    assert form is not None
    count = a["operands"]
    with torch.enable_grad():
        xs = [t.detach().clone().requires_grad_(k in a["wanted"]) for k, t in enumerate(tensors[:count])]
        made = form(a["attrs"], *xs)
        ys = made if isinstance(made, tuple) else (made,)
        chosen = [ys[k] for k in a["given"]]
        grads = torch.autograd.grad(chosen, [xs[k] for k in a["wanted"]], list(tensors[count:]), allow_unused=True)
    return tuple(torch.zeros_like(xs[k]) if g is None else g for k, g in zip(a["wanted"], grads, strict=True))


def _by_core(g: Ground, a: Attrs, *names: str) -> tuple[str, ...]:
    """The op alone in a graph of its own, differentiated there, and its backward ops written here."""
    form = KINDS[a["of"]].grid
    if form is None:
        raise NotOnGrid(KINDS[a["of"]].host_reason or "no form on the grid")
    count = a["operands"]
    graph = Graph("gradient")
    xs = [_leaf(graph, f"x{k}", g, name) for k, name in enumerate(names[:count])]
    made: Any = form(Ground(Builder(graph)), a["attrs"], *xs)
    ys = made if isinstance(made, tuple) else (made,)
    seeds = [_leaf(graph, f"g{k}", g, name) for k, name in enumerate(names[count:])]
    for k, at in enumerate(a["given"]):
        graph.add(Node(f"y{k}", NodeKind.OUTPUT, graph[ys[at]].shape, inputs=(Edge(ys[at]),)))
    make_differentiable(graph)
    ends = {graph[f"y{k}"].sources[0]: seed for k, seed in enumerate(seeds)}
    shaped = {end: Builder(graph).reshape(seed, graph[end].shape) for end, seed in ends.items()}
    found = differentiate(graph, shaped, [xs[k] for k in a["wanted"]])
    copies = dict(zip([*xs, *seeds], names, strict=True))
    return tuple(
        _copy(graph, found[xs[k]], g, copies) if xs[k] in found else g.full(graph[xs[k]].shape, 0.0)
        for k in a["wanted"]
    )


def _leaf(graph: Graph, name: str, g: Ground, source: str) -> str:
    value = g.value(source)
    if value is not None:
        return graph.add(Node(name, NodeKind.CONSTANT, g.shape(source), value=value)).name
    return graph.add(Node(name, NodeKind.INPUT, g.shape(source), attrs={"dtype": "float32"})).name


def _copy(graph: Graph, name: str, g: Ground, copies: dict[str, str]) -> str:
    """A node and what it needs, written with `g`; copies: by name what is there already."""
    todo = [name]
    while todo:
        at = todo[-1]
        if at in copies:
            todo.pop()
            continue
        node = graph[at]
        missing = [s for s in node.sources if s not in copies]
        if missing:
            todo += missing
            continue
        todo.pop()
        if node.kind is NodeKind.CONSTANT:
            copies[at] = g.b.constant(node.value)
        else:
            assert node.op is not None
            copies[at] = g.op(node.op, *(copies[s] for s in node.sources))
    return copies[name]


def _slice_grad(a: Attrs, grad: np.ndarray) -> np.ndarray:
    from tbuda_lab.popxl.kinds.moves import slices_of

    result = np.zeros(a["shape"], grad.dtype)
    result[slices_of(a, tuple(a["shape"]))] = grad
    return result


def _slice_grad_grid(g: Ground, a: Attrs, grad: str) -> str:
    from tbuda_lab.core.ops.tm import Pad
    from tbuda_lab.popxl.kinds.moves import slices_of

    shape, pads = tuple(a["shape"]), []
    for axis, part in enumerate(slices_of(a, shape)):
        order = range(*part.indices(shape[axis]))
        if not order:
            raise NotOnGrid("it has no elements")
        if order.step < 0:
            grad = g.pick(grad, axis, list(range(len(order)))[::-1])
        pads.append((min(order), shape[axis] - 1 - max(order)))
    return g.op(Pad(tuple(pads)), grad)


def _gather_grad(a: Attrs, grad: np.ndarray, indices: np.ndarray) -> np.ndarray:
    axis, shape = a["axis"], tuple(a["shape"])
    if a.get("group_size"):
        one = {**a, "group_size": 0, "axis": axis - 1, "shape": shape[1:]}
        return np.stack([_gather_grad(one, *part) for part in zip(grad, indices, strict=True)])
    many = indices.ndim
    rows = one_hot_rows(indices, shape[axis])
    flat = np.moveaxis(grad, range(axis, axis + many), range(many)).reshape(len(rows), -1)
    rest = [n for k, n in enumerate(shape) if k != axis]
    return np.asarray(np.moveaxis((rows.T @ flat).reshape(shape[axis], *rest), 0, axis).astype(grad.dtype))


def _gather_grad_grid(g: Ground, a: Attrs, grad: str, rows: str) -> str:
    from tbuda_lab.core.ops.tm import Transpose

    axis, shape, many = a["axis"], tuple(a["shape"]), len(a["index_shape"])
    rank = len(shape) - 1 + many
    order = [*range(axis, axis + many), *range(axis), *range(axis + many, rank)]
    rest = [n for k, n in enumerate(shape) if k != axis]
    flat = g.reshape(g.permute(grad, order), (g.shape(rows)[0], product(rest)))
    table = g.reshape(g.op(Matmul(), g.op(Transpose(-2, -1), rows), flat), (shape[axis], *rest))
    back = [k + 1 for k in range(axis)] + [0] + [k + 1 for k in range(axis, len(rest))]
    return g.permute(table, back)


def _nll_grad(a: Attrs, probs: np.ndarray, labels: np.ndarray, grad: np.ndarray) -> np.ndarray:
    rows, counts = loss_rows(a, labels, probs.shape[-1])
    flat = probs.reshape(-1, probs.shape[-1]).astype(np.float32)
    slope = -rows if a["log_prob"] else -rows / np.maximum(flat, SMALLEST)
    scale = grad.reshape(-1, 1) if a["reduction"] == "none" else grad * counts[-1]
    return np.asarray((slope * scale).reshape(probs.shape).astype(probs.dtype))


def _nll_grad_grid(g: Ground, a: Attrs, probs: str, rows: str, share: str, grad: str) -> str:
    from tbuda_lab.core.ops import unary

    shape = g.shape(probs)
    flat = g.reshape(probs, (product(shape[:-1]), shape[-1]))
    slope = g.mul(rows, -1.0)
    if not a["log_prob"]:
        slope = g.mul(slope, g.op(unary.Reciprocal(), g.b.maximum(flat, SMALLEST)))
    if a["reduction"] == "none":
        scale = g.reshape(grad, (product(shape[:-1]), 1))
    else:
        scale = g.mul(g.reshape(grad, (1, 1)), g.reshape(share, (1, 1)))
    return g.reshape(g.mul(slope, scale), shape)


add("SliceGrad", numpy=_slice_grad, grid=_slice_grad_grid)
add("GatherGrad", numpy=_gather_grad, grid=_gather_grad_grid)
add("NllGrad", numpy=_nll_grad, grid=_nll_grad_grid)
for _kind in [k for k in KINDS.values() if k.torch is not None]:
    if _kind.name not in RULES and not _kind.name.endswith("Grad"):
        add(f"{_kind.name}Grad", torch=_by_torch, grid=_by_core)
