"""A vocabulary that no grid divides gets a few idle columns; the host cuts them off."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import TILE, Graph, Node, NodeKind
from tbuda_lab.core.ops import Index, Matmul, Pad
from tbuda_lab.core.passes.base import Pass, Report, Rewriter, is_stored
from tbuda_lab.core.passes.host_moves import before_output

NARROW = 64
"""Up to this many tiles of columns, one core holds the width and no divisor is needed."""
LARGEST_FACTOR = 7
"""Widths with no larger prime factor have divisors for any grid and any streaming."""
COLUMNS = 8
"""A widened head is a multiple of this, so that eight columns of cores share it."""


@dataclasses.dataclass(frozen=True)
class WidenHeads(Pass):
    """A matmul with stored weights that only an output reads, and whose tiles of columns have a large prime factor
    (GPT-2's vocabulary is 1571 tiles, a prime), is computed wider: zero columns up to the next width with small
    factors."""

    name = "widen_heads"
    doc = "Pad the columns of an output matmul to a number of tiles that grids divide"

    def apply(self, graph: Graph) -> Report:
        widened: dict[str, int] = {}  # output -> its columns

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if not isinstance(node.op, Matmul) or any(not is_stored(r.new[o]) for o in operands[1:]):
                return None
            tiles = -(-node.shape[-1] // TILE)
            reader = r.single_user(node.name)
            if tiles <= NARROW or largest_factor(tiles) <= LARGEST_FACTOR:
                return None
            if reader is None or r.old[reader].kind is not NodeKind.OUTPUT:
                return None
            b = r.builder(node)
            extra = smooth(tiles) * TILE - node.shape[-1]
            wide = [b.op(Pad((*[(0, 0)] * (len(b.shape(o)) - 1), (0, extra))), o) for o in operands[1:]]
            widened[reader] = node.shape[-1]
            return r.keep(node, None, (operands[0], *wide))

        Rewriter(graph, self.options, same_shapes=False).run(visit)
        for name, width in widened.items():
            output = graph[name]
            source = graph[output.sources[0]]
            cut = Index(-1, 0, width)
            step = Node(f"{name}.cut", NodeKind.OP, cut.infer(source.shape), cut, origin=output.origin)
            output.recipe = before_output(output, step, source)
            output.shape = source.shape
        return Report(self.name, len(widened), tuple(widened))


def largest_factor(n: int) -> int:
    """Largest prime factor of n >= 2."""
    largest_factor, d = 1, 2
    while d * d <= n:
        while n % d == 0:
            largest_factor, n = d, n // d
        d += 1
    return max(largest_factor, n)


def smooth(n: int) -> int:
    """The next multiple of `COLUMNS` from n on without a prime factor above `LARGEST_FACTOR`."""
    n = -(-n // COLUMNS) * COLUMNS
    while largest_factor(n) > LARGEST_FACTOR:
        n += COLUMNS
    return n
