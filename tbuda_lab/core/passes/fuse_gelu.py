"""Gelu spelled out in the model becomes the device's gelu."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import Add, Divide, Erf, Gelu, Multiply, Pow, Subtract, Tanh
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

TOLERANCE = 1e-4
"""Models write the constants with four digits and more."""
CUBIC = 0.044715


@dataclasses.dataclass(frozen=True)
class FuseGelu(Pass):
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, x (1 + erf(x / sqrt(2))) / 2 and x (1 - erf(-x / sqrt(2))) / 2,
    which JAX writes; factors in any order."""

    name = "fuse_gelu"
    doc = "Recognise gelu written as tanh or erf and arithmetic"

    def apply(self, graph: Graph) -> Report:
        # A product matches from its outermost multiply; the inner ones have x or the bracket missing.
        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            match = _Matcher(r).match(node)
            if match is None:
                return None
            x, kind = match
            return r.keep(node, Gelu(kind), (r.at[x],)) if r.old[x].shape == node.shape else None

        return Report(self.name, Rewriter(graph, self.options).run(visit))


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * abs(b)


class _Matcher:
    """Reads products and sums of the old graph; only values with one reader are taken apart, so x stays whole."""

    def __init__(self, r: Rewriter) -> None:
        self.graph, self.users = r.old, r.users

    def match(self, node: Node) -> tuple[str, str] | None:
        """(x, kind of approximation) if `node` is the last multiplication of a gelu."""
        if not isinstance(node.op, Multiply):
            return None
        factors, number = self.product_of(node)
        if len(factors) != 2 or not _close(number, 0.5):
            return None
        for x, bracket in (factors, factors[::-1]):
            less = self.graph[bracket]
            if isinstance(less.op, Subtract) and self.number(less.sources[0]) == 1.0:
                curve = self.graph[less.sources[1]]
                if isinstance(curve.op, Erf) and self.is_scaled(curve.sources[0], x, -1):
                    return x, "none"
            terms, offset = self.terms(bracket)
            if len(terms) != 1 or not _close(offset, 1.0):
                continue
            curve = self.graph[terms[0]]
            if isinstance(curve.op, Erf) and self.is_scaled(curve.sources[0], x):
                return x, "none"
            if isinstance(curve.op, Tanh) and self.is_cubic(curve.sources[0], x):
                return x, "tanh"
        return None

    def number(self, name: str) -> float | None:
        node = self.graph[name]
        if node.kind is not NodeKind.CONSTANT or node.value is None or node.value.size != 1:
            return None
        return float(node.value.reshape(-1)[0])

    def factors(self, name: str) -> tuple[list[str], float]:
        """A product as its factors that are no numbers, and the product of those that are."""
        number = self.number(name)
        if number is not None:
            return [], number
        return self.product_of(self.graph[name]) if len(self.users[name]) == 1 else ([name], 1.0)

    def product_of(self, node: Node) -> tuple[list[str], float]:
        if isinstance(node.op, Divide):
            below = self.number(node.sources[1])
            if below:
                factors, number = self.factors(node.sources[0])
                return factors, number / below
        if not isinstance(node.op, Multiply) or node.sources[0] == node.sources[1]:
            return [node.name], 1.0
        a, b = (self.factors(source) for source in node.sources)
        return a[0] + b[0], a[1] * b[1]

    def terms(self, name: str) -> tuple[list[str], float]:
        """A sum as its terms that are no numbers, and the sum of those that are."""
        number = self.number(name)
        if number is not None:
            return [], number
        node = self.graph[name]
        if not isinstance(node.op, Add) or len(self.users[name]) != 1:
            return [name], 0.0
        a, b = (self.terms(source) for source in node.sources)
        return a[0] + b[0], a[1] + b[1]

    def is_scaled(self, name: str, x: str, sign: int = 1) -> bool:
        factors, number = self.factors(name)
        return factors == [x] and _close(number, sign * math.sqrt(0.5))

    def is_cubic(self, name: str, x: str) -> bool:
        """sqrt(2/pi) * (x + 0.044715 * x^3)."""
        factors, number = self.factors(name)
        if len(factors) != 1 or not _close(number, math.sqrt(2 / math.pi)):
            return False
        terms, offset = self.terms(factors[0])
        if len(terms) != 2 or offset != 0 or x not in terms:
            return False
        parts, scale = self.factors(terms[1] if terms[0] == x else terms[0])
        return _close(scale, CUBIC) and sum(self.power(part, x) for part in parts) == 3

    def power(self, name: str, x: str) -> float:
        """n where `name` is x ** n for a small whole n; infinity for anything else."""
        if name == x:
            return 1
        node = self.graph[name]
        if isinstance(node.op, Pow) and node.sources == (x,):
            return node.op.exponent
        return 2 if isinstance(node.op, Multiply) and node.sources == (x, x) else math.inf
