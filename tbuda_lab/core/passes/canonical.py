"""Canonical form: every op is written in canonical ones, every activation has rank 4, and ops that do nothing, equal
ops and numbers that no data format holds go."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp, quantity
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Op, Shape
from tbuda_lab.core.graph.phases import RECOMPUTE, WRITES
from tbuda_lab.core.ops import (
    Add,
    BroadcastTo,
    Buffer,
    Cast,
    Clip,
    Concatenate,
    LogSoftmax,
    Matmul,
    Maximum,
    Minimum,
    Multiply,
    Nop,
    Pad,
    Reshape,
    Softmax,
    Subtract,
    Where,
)
from tbuda_lab.core.ops.base import IN_TRAINING, ON_HOST, NdOp
from tbuda_lab.core.ops.binary import Binary
from tbuda_lab.core.ops.evaluate import GRID_WHOLE
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes import recipe
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

ROUNDS = 16


@dataclasses.dataclass(frozen=True)
class Decompose(Pass):
    """`canonicalise` of each op, repeated; ops of the types in `keep` wait for a later pass.

    Raises one `UnsupportedOp` with a finding for every op that the device cannot run.
    """

    name = "decompose"
    doc = "Write every op in the canonical set that lowering takes"
    keep: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Report:
        total = 0
        for _ in range(ROUNDS):
            findings: list[Diagnostic] = []
            refused: list[str] = []

            def visit(
                r: Rewriter,
                node: Node,
                operands: tuple[str, ...],
                findings: list[Diagnostic] = findings,
                refused: list[str] = refused,
            ) -> str | None:
                if not isinstance(node.op, NdOp) or node.op.type in self.keep:
                    return None
                try:
                    return node.op.canonicalise(r.builder(node), node, *operands)
                except UnsupportedOp as e:
                    training = self.options.training is not None
                    findings.extend(
                        dataclasses.replace(d, fix=IN_TRAINING) if training and d.fix == ON_HOST else d
                        for d in e.diagnostics
                    )
                    refused.extend(e.ops)
                    return None

            rewrites = Rewriter(graph, self.options).run(visit)
            if findings:
                many = quantity(len(findings), "op")
                raise UnsupportedOp(f"the model holds {many} that the device cannot run", findings, refused)
            total += rewrites
            if rewrites == 0:
                return Report(self.name, total)
        raise AssertionError(f"canonical forms did not settle in {ROUNDS} rounds")


def four(shape: Shape) -> Shape:
    """`shape` with ones in front up to rank 4; higher ranks as they are."""
    return (1,) * (4 - len(shape)) + tuple(shape)


@dataclasses.dataclass(frozen=True)
class RankFour(Pass):
    """Inputs are unsqueezed and outputs reshaped back by the host; stored values keep their shapes and broadcast."""

    name = "rank_four"
    doc = "Give every activation four dims; reshapes that only add or drop leading ones disappear"

    def apply(self, graph: Graph) -> Report:
        count = 0
        for node in graph.inputs:
            if four(node.shape) != node.shape:
                shape = four(node.shape)
                node.recipe = recipe.compose(f"{node.name}.rank", Reshape(shape), shape, [recipe.of_leaf(node)])
                node.shape = shape
                count += 1
        shapes = {node.name: node.shape for node in graph.outputs}
        count += Rewriter(graph, self.options, same_shapes=False).run(_visit)
        for node in graph.outputs:
            if WRITES in node.attrs:  # a ram keeps slices, rows and columns, which leading ones do not change
                continue
            if graph[node.sources[0]].shape != shapes[node.name]:
                node.recipe = output_recipe(node, Reshape(shapes[node.name]), shapes[node.name])
                count += 1
            node.shape = graph[node.sources[0]].shape
        return Report(self.name, count)


def output_recipe(node: Node, op: Reshape, shape: Shape) -> Graph:
    """A recipe from what the device delivers for `node` (an INPUT of its name) to the model's own output."""
    output_recipe = Graph(node.name)
    output_recipe.add(Node(node.name, NodeKind.INPUT, four(shape), attrs={"dtype": "float32"}))
    output_recipe.add(Node(f"{node.name}.0", NodeKind.OP, shape, op, (Edge(node.name),)))
    output_recipe.add(Node(recipe.RESULT, NodeKind.OUTPUT, shape, inputs=(Edge(f"{node.name}.0"),)))
    return output_recipe


def _visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
    op = node.op
    if isinstance(op, (Reshape, BroadcastTo)):
        shape = four(op.shape)
        if r.new[operands[0]].shape == shape:
            return operands[0]
        return r.keep(node, dataclasses.replace(op, shape=shape), operands)
    if isinstance(op, Pad):
        return r.keep(node, dataclasses.replace(op, pads=((0, 0),) * (4 - len(op.pads)) + op.pads), operands)
    if isinstance(op, Concatenate):
        b = r.builder(node)
        return r.keep(node, None, tuple(b.reshape(o, four(r.new[o].shape)) for o in operands))
    assert op is not None
    if isinstance(op, Matmul) and len(node.shape) < 4 and len(operands) == 3 and len(r.new[operands[2]].shape) == 4:
        # Stored matrices and a bias that an activation gives, which would not broadcast into a product of two dims.
        b, (first, *others) = r.builder(node), operands
        return r.keep(node, None, (b.reshape(first, four(r.new[first].shape)), *others))
    shape = op.infer(*(r.new[o].shape for o in operands))
    if four(shape) == shape:
        return None
    return r.builder(node).reshape(r.keep(node, None, operands), four(shape))


HUGE = 1e30
TAME = 2.0**15
"""Stands in for infinity in formats without one: each holds it, and twice it is still finite in all but one."""


@dataclasses.dataclass(frozen=True)
class RemoveNoOps(Pass):
    """Nops, reshapes and broadcasts to the same shape, + 0, - 0, * 1 by constants."""

    name = "remove_noops"
    doc = "Drop ops that return their operand unchanged"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_unchanged))


def _unchanged(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
    x = operands[0] if operands else ""
    if isinstance(node.op, Nop):
        return x
    if isinstance(node.op, (Reshape, BroadcastTo)):
        return x if r.new[x].shape == node.shape else None
    if isinstance(node.op, (Add, Subtract, Multiply)):
        b = r.builder(node)
        neutral = 1.0 if isinstance(node.op, Multiply) else 0.0
        if b.shape(x) == node.shape and b.scalar(operands[1]) == neutral:
            return x
        if not isinstance(node.op, Subtract) and b.shape(operands[1]) == node.shape and b.scalar(x) == neutral:
            return operands[1]
    return None


@dataclasses.dataclass(frozen=True)
class ShareEqual(Pass):
    """Two ops of the same attributes on the same operands are one."""

    name = "share_equal"
    doc = "Compute equal expressions once"

    def apply(self, graph: Graph) -> Report:
        seen: dict[tuple[Op | None, tuple[str, ...], bool], str] = {}

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if isinstance(node.op, Buffer):
                return None
            first = seen.setdefault((node.op, operands, RECOMPUTE in node.attrs), node.name)
            return None if first == node.name else first

        return Report(self.name, Rewriter(graph, self.options).run(visit))


@dataclasses.dataclass(frozen=True)
class TameConstants(Pass):
    """Float constants that the data format does not hold.

    Float32 holds all. Float16_b rounds numbers of float32 beyond 2^128 - 2^120 to infinity: they become that number, so
    that what is finite stays so ("never" in masks of rows that are masked throughout). In the formats without
    infinities a constant of magnitude 1e30 or more becomes 2^15 with its sign where a softmax alone sees it, through
    selections, sums and moves; anywhere else it is what the format makes of it.
    """

    name = "tame_constants"
    doc = "Keep constants within what the data format holds, where their readers cannot tell"
    integers: bool = False
    """Also turn integer constants into float32, which is what the device computes in, where no mark says otherwise."""

    def apply(self, graph: Graph) -> Report:
        count = 0
        users: dict[str, list[tuple[str, int]]] | None = None
        limit = finite_limit(self.options)
        for node in graph.of_kind(NodeKind.CONSTANT):
            value = node.value
            if value is not None and value.dtype.kind != "f" and self.integers and GRID_WHOLE not in node.attrs:
                node.value = value.astype(np.float32)
                count += 1
            if value is None or value.dtype.kind != "f":
                continue
            beyond = np.abs(value) >= HUGE if limit is None else np.isfinite(value) & (np.abs(value) > limit)
            if limit == math.inf or not beyond.any():
                continue
            if limit is None:
                users = graph.users() if users is None else users
                if not only_softmax_reads(graph, users, node.name):
                    continue
            stands = np.float32(TAME if limit is None else limit)
            node.value = np.where(beyond, np.copysign(stands, value), value).astype(value.dtype)
            count += 1
        return Report(self.name, count)


def finite_limit(options: CompileOptions) -> float | None:
    """The largest finite number of the data format among those with infinities; infinity where float32's are all held,
    None for a format without infinities."""
    df = options.data_format
    if df is DataFormat.Float32:
        return math.inf
    return 2.0**128 - 2.0**120 if df is DataFormat.Float16_b else None


HANDED_ON = (Add, Subtract, Where, Multiply, Concatenate, Pad, Cast, Clip, Maximum, Minimum, *MOVES)


def only_softmax_reads(graph: Graph, users: dict[str, list[tuple[str, int]]], name: str) -> bool:
    """Whether everything that depends on a value does so through a softmax: however large a hidden score is, its
    exponential is 0."""
    seen, stack, found = {name}, [name], False
    while stack:
        for user, _ in users[stack.pop()]:
            node = graph[user]
            if isinstance(node.op, Softmax | LogSoftmax):
                found = True
            elif not isinstance(node.op, HANDED_ON):
                return False
            elif user not in seen:
                seen.add(user)
                stack.append(user)
    return found


@dataclasses.dataclass(frozen=True)
class DropImplicitBroadcasts(Pass):
    """An element-wise op or a matmul broadcasts by itself: an explicit broadcast before it can go."""

    name = "drop_broadcasts"
    doc = "Remove broadcasts that the consumer does implicitly"

    def apply(self, graph: Graph) -> Report:
        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if not isinstance(node.op, (Binary, Matmul)):
                return None
            slim = list(operands)
            for i, name in enumerate(operands):
                source = r.new[name]
                if isinstance(source.op, BroadcastTo):
                    trial = [*slim[:i], source.sources[0], *slim[i + 1 :]]
                    shapes = [r.new[o].shape for o in trial]
                    if len(shapes[i]) >= (2 if isinstance(node.op, Matmul) else 0) and _fits(node, shapes):
                        slim = trial
            return None if tuple(slim) == operands else r.keep(node, None, tuple(slim))

        return Report(self.name, Rewriter(graph, self.options).run(visit))


def _fits(node: Node, shapes: list[tuple[int, ...]]) -> bool:
    assert node.op is not None
    if isinstance(node.op, Matmul) and shapes[0][-1] != shapes[1][-2]:
        return False
    return node.op.infer(*shapes) == node.shape
