"""Reverse-mode differentiation of an nD graph: the backward ops are added to the graph itself.

Every op brings its own rule (`NdOp.gradient`); this module walks the graph from results to operands, adds up the
gradients of values that are read more than once, and sums along dims that an op broadcast.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp, quantity
from tbuda_lab.core.graph import Graph, Node, NodeKind, Shape
from tbuda_lab.core.ops import Add, BroadcastTo, ReduceSum
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.builder import DEFAULTS, NO_ORIGIN, Builder
from tbuda_lab.core.ops.gradients import gradient_sources
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.base import Rewriter

ROUNDS = 16


class GradientBuilder(Builder):
    """Names what it adds `<prefix>_<op>_<k>`, its constants `input_constant_<prefix>_<k>`."""

    def __init__(
        self, graph: Graph, prefix: str, source: Node | None = None, options: CompileOptions = DEFAULTS
    ) -> None:
        """source: the forward node whose origin the new ones have."""
        attrs = {}
        if source is not None and source.op is not None:
            attrs = {"original_op_name": source.name, "original_op_type": source.op.type}
        super().__init__(graph, source.origin if source is not None else NO_ORIGIN, prefix, attrs, options)

    def _name(self, kind: str, constant: bool) -> str:
        while True:
            k, self.count = self.count, self.count + 1
            name = f"input_constant_{self.stem}_{k}" if constant else f"{self.stem}_{kind}_{k}"
            if name not in self.graph:
                return name


def make_differentiable(graph: Graph, options: CompileOptions = DEFAULTS) -> int:
    """Write ops without a gradient rule in ops that have one, in place; returns how many were."""

    def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        if not isinstance(node.op, NdOp) or node.op.host:
            return None
        return node.op.differentiable(r.builder(node), node, *operands)

    total = 0
    for _ in range(ROUNDS):
        rewrites = Rewriter(graph, options).run(visit)
        total += rewrites
        if rewrites == 0:
            return total
    raise AssertionError(f"differentiable forms did not settle in {ROUNDS} rounds")


def differentiate(
    graph: Graph,
    seeds: Mapping[str, str],
    sources: Collection[str],
    options: CompileOptions = DEFAULTS,
    stop: Collection[str] = (),
) -> dict[str, str]:
    """Add the backward ops of `graph` to it; returns, by name of `sources`, the node that holds its gradient.

    seeds: for values of the graph the node that holds the gradient by them, of the same shape. sources: names of leaves
    or values; one that nothing flows back to is missing in the result. stop: values through which nothing flows back.
    Backward ops are named `bw_in<operand>_<forward op>_<op>_<k>`; every op must have a rule (`make_differentiable`).

    Raises `UnsupportedOp` naming every op on the way that has no gradient.
    """
    order = graph.topological()
    carrying = _carrying(order, set(sources), set(stop))
    needed = carrying & _before(graph, seeds)
    _refuse_without_rule(graph, needed)
    gradients: dict[str, list[str]] = {name: [gradient] for name, gradient in seeds.items()}
    gradient_of: dict[str, str] = {}
    for node in reversed(order):
        parts = gradients.pop(node.name, None)
        if not parts or node.name not in needed:
            continue
        total = parts[0]
        for k, part in enumerate(parts[1:]):
            b = GradientBuilder(graph, f"bw_combine_{node.name}", node, options)
            total = b.op(Add(), total, part, name=graph.unique(f"bw_combine_{node.name}_add_{k}"))
        if node.name in sources:
            gradient_of[node.name] = total
        if node.kind is not NodeKind.OP or not isinstance(node.op, NdOp):
            continue
        for port, source in enumerate(node.sources):
            if source not in needed:
                continue
            b = GradientBuilder(graph, f"bw_in{port}_{node.name}", node, options)
            gradient = node.op.gradient(b, port, node.sources, node.name, total)
            if gradient is not None:
                gradients.setdefault(source, []).append(summed_to(b, gradient, graph[source].shape))
    return {name: gradient_of[name] for name in sources if name in gradient_of}


def summed_to(b: Builder, name: str, shape: Shape) -> str:
    """A value in this shape: summed along dims that were broadcast, repeated along dims that are missing."""
    have = b.shape(name)
    lead = max(0, len(have) - len(shape))
    target = (1,) * (len(have) - len(shape)) + tuple(shape)
    for axis, size in enumerate(have):
        if size > 1 and (axis < lead or target[axis + len(target) - len(have)] == 1):
            name = b.op(ReduceSum(axis - len(have)), name)
    if lead:
        name = b.reshape(name, b.shape(name)[lead:])
    return name if b.shape(name) == tuple(shape) else b.op(BroadcastTo(tuple(shape)), name)


def _carrying(order: list[Node], sources: set[str], stop: set[str]) -> set[str]:
    """Values that depend on a source."""
    carrying = set(sources)
    for node in order:
        if node.name not in stop and any(s in carrying for s in gradient_sources(node)):
            carrying.add(node.name)
    return carrying


def _before(graph: Graph, names: Collection[str]) -> set[str]:
    """The values and all that they depend on."""
    before: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name not in before:
            before.add(name)
            stack.extend(gradient_sources(graph[name]))
    return before


def _refuse_without_rule(graph: Graph, names: Collection[str]) -> None:
    findings, refused = [], []
    for name in sorted(names):
        node = graph[name]
        if node.kind is not NodeKind.OP:
            continue
        if isinstance(node.op, NdOp) and type(node.op).gradient is not NdOp.gradient:
            continue
        refused.append(name)
        kind = node.op.type if node.op is not None else "?"
        where = node.where
        findings.append(
            Diagnostic(
                "error",
                where,
                "gradient",
                f"{kind} {name!r} has no gradient on the device",
                "run it on a CPUDevice before the TTDevice, or freeze what stands before it (requires_grad=False)",
            )
        )
    if findings:
        raise UnsupportedOp(f"{quantity(len(findings), 'op')} on the way back to trainable values", findings, refused)
