"""Small clean-ups: ops that do nothing, equal ops, numbers that no data format holds."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.graph import Graph, Node, NodeKind, Op
from tbuda_lab.core.graph.phases import RECOMPUTE
from tbuda_lab.core.ops import Add, BroadcastTo, Buffer, Matmul, Multiply, Nop, Reshape, Subtract
from tbuda_lab.core.ops.binary import Binary
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

HUGE = 1e30
TAME = 2.0**15
"""Stands in for infinity: every float format holds it, and twice it is still finite in all but one."""


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
    """Float constants of magnitude 1e30 and more, infinities included, become 2^15 with their sign.

    Models write them as "never" in additive masks; no result depends on how large they are, but the small float
    formats cannot hold them, and infinity minus itself is no number.
    """

    name = "tame_constants"
    doc = "Replace infinite and huge constants by a large number that every data format holds"
    integers: bool = False
    """Also turn integer constants into float32, which is what the device computes in."""

    def apply(self, graph: Graph) -> Report:
        count = 0
        for node in graph.of_kind(NodeKind.CONSTANT):
            value = node.value
            if value is not None and value.dtype.kind != "f" and self.integers:
                node.value = value.astype(np.float32)
                count += 1
            if value is None or value.dtype.kind != "f":
                continue
            huge = np.abs(value) >= HUGE
            if huge.any():
                node.value = np.where(huge, np.copysign(np.float32(TAME), value), value).astype(value.dtype)
                count += 1
        return Report(self.name, count)


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
