"""Gelu spelled out in the model becomes the device's gelu."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import Add, Divide, Erf, Gelu, Multiply, Pow, Tanh
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

TOLERANCE = 1e-4
"""Models write the constants with four digits and more."""
CUBIC = 0.044715


@dataclasses.dataclass(frozen=True)
class FuseGelu(Pass):
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 and x (1 + erf(x / sqrt(2))) / 2, factors in any order."""

    name = "fuse_gelu"
    doc = "Recognise gelu written as tanh or erf and arithmetic"

    def apply(self, graph: Graph) -> Report:
        # A product matches from its outermost multiply; the inner ones have x or the bracket missing.
        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            found = _match(r.old, node)
            if found is None:
                return None
            x, kind = found
            return r.keep(node, Gelu(kind), (r.at[x],)) if r.old[x].shape == node.shape else None

        return Report(self.name, Rewriter(graph, self.options).run(visit))


def _match(graph: Graph, node: Node) -> tuple[str, str] | None:
    if not isinstance(node.op, Multiply):
        return None
    factors, number = _factors(graph, node.name)
    if len(factors) != 2 or not _close(number, 0.5):
        return None
    for x, bracket in (factors, factors[::-1]):
        terms, offset = _terms(graph, bracket)
        if len(terms) != 1 or not _close(offset, 1.0):
            continue
        curve = graph[terms[0]]
        if isinstance(curve.op, Erf) and _is_scaled(graph, curve.sources[0], x, math.sqrt(0.5)):
            return x, "none"
        if isinstance(curve.op, Tanh) and _is_cubic(graph, curve.sources[0], x):
            return x, "tanh"
    return None


def _number(graph: Graph, name: str) -> float | None:
    node = graph[name]
    if node.kind is not NodeKind.CONSTANT or node.value is None or node.value.size != 1:
        return None
    return float(node.value.reshape(-1)[0])


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * abs(b)


def _factors(graph: Graph, name: str) -> tuple[list[str], float]:
    """A product as its factors that are no numbers, and the product of those that are."""
    node = graph[name]
    number = _number(graph, name)
    if number is not None:
        return [], number
    if isinstance(node.op, Divide):
        below = _number(graph, node.sources[1])
        if below:
            factors, number = _factors(graph, node.sources[0])
            return factors, number / below
    if not isinstance(node.op, Multiply) or node.sources[0] == node.sources[1]:
        return [name], 1.0
    a, b = (_factors(graph, source) for source in node.sources)
    return a[0] + b[0], a[1] * b[1]


def _terms(graph: Graph, name: str) -> tuple[list[str], float]:
    """A sum as its terms that are no numbers, and the sum of those that are."""
    number = _number(graph, name)
    if number is not None:
        return [], number
    node = graph[name]
    if not isinstance(node.op, Add):
        return [name], 0.0
    a, b = (_terms(graph, source) for source in node.sources)
    return a[0] + b[0], a[1] + b[1]


def _is_scaled(graph: Graph, name: str, x: str, scale: float) -> bool:
    factors, number = _factors(graph, name)
    return factors == [x] and _close(number, scale)


def _is_cubic(graph: Graph, name: str, x: str) -> bool:
    """sqrt(2/pi) * (x + 0.044715 * x^3)."""
    factors, number = _factors(graph, name)
    if len(factors) != 1 or not _close(number, math.sqrt(2 / math.pi)):
        return False
    terms, offset = _terms(graph, factors[0])
    if len(terms) != 2 or offset != 0 or x not in terms:
        return False
    cube, scale = _factors(graph, terms[1] if terms[0] == x else terms[0])
    if not _close(scale, CUBIC):
        return False
    if cube == [x, x, x]:
        return True
    powers = [graph[c] for c in cube]
    if len(powers) == 1:
        power = powers[0]
        return isinstance(power.op, Pow) and power.op.exponent == 3 and power.sources == (x,)
    return len(powers) == 2 and any(
        cube[1 - i] == x
        and power.sources in ((x,), (x, x))
        and (isinstance(power.op, Multiply) or (isinstance(power.op, Pow) and power.op.exponent == 2))
        for i, power in enumerate(powers)
    )
