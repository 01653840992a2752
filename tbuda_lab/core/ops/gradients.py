"""Ops that a model's own code puts on the way back: values that no gradient passes, and gradients of the model's own.

They say nothing in the forward pass, so that nothing is left of them once the backward ops are written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tbuda_lab.core.graph import Graph, Node, NodeKind, Shape, op
from tbuda_lab.core.ops.base import Names, NdOp
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.unary import Unary

Tensor = torch.Tensor


@op("stop_gradient")
class StopGradient(Unary):
    """y = x, and nothing flows back: `detach`, and what leaves a region of `no_grad`."""

    marks_gradients = True

    def evaluate(self, x: Tensor) -> Tensor:
        return x.detach()

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return None

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        return x


@op("gradient_seed")
class GradientSeed(Unary):
    """Stands for the gradient by x in the ops that say what a model makes of it; see `OwnGradient`."""

    marks_gradients = True

    def evaluate(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        return None

    def canonicalise(self, b: Builder, node: Node, x: str) -> str:
        return x  # nothing reads it when this is asked


@op("own_gradient")
class OwnGradient(NdOp):
    """y = x, with gradients that the model's own code says: the backward of an `autograd.Function`, a hook of a tensor.

    Operands: x, a `gradient_seed` of x, and pairs of a value and what its gradient is where the seed is that by y.
    """

    marks_gradients = True

    def infer(self, x: Shape, seed: Shape, *pairs: Shape) -> Shape:
        return x

    def evaluate(self, x: Tensor, seed: Tensor, *pairs: Tensor) -> Tensor:
        return x.detach()

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """The ops between the seed and the operand's gradient, on the gradient that has come."""
        if port < 2 or port % 2:
            return None
        return with_seed(b, x[1], x[port + 1], g)

    def canonicalise(self, b: Builder, node: Node, x: str, *_: str) -> str:
        return x


def gradient_sources(node: Node) -> Sequence[str]:
    """The operands of a node that a gradient may flow to."""
    if isinstance(node.op, StopGradient | GradientSeed):
        return ()
    return node.sources[2::2] if isinstance(node.op, OwnGradient) else node.sources


def behind_seed(graph: Graph, seed: str, result: str) -> list[str]:
    """The ops that lead from a seed to a value, operands first; the seed is not among them."""
    order: list[str] = []
    state: dict[str, bool] = {seed: True}  # whether a value depends on the seed
    stack = [result]
    while stack:
        name = stack[-1]
        sources = graph[name].sources if graph[name].kind is NodeKind.OP else ()
        waiting = [s for s in sources if s not in state]
        if name in state or waiting:
            stack.extend(waiting) if name not in state else stack.pop()
            continue
        stack.pop()
        state[name] = any(state[s] for s in sources)
        if state[name]:
            order.append(name)
    return order


def with_seed(b: Builder, seed: str, result: str, g: str) -> str:
    """The ops between the seed and `result` once more, on `g` in the place of the seed."""
    names = {seed: g}
    for name in behind_seed(b.graph, seed, result):
        node = b.graph[name]
        assert isinstance(node.op, NdOp)
        names[name] = b.op(node.op, *(names.get(s, s) for s in node.sources))
    return names.get(result, result)
