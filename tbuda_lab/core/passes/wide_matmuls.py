"""Wide matmuls: one that is read in slices becomes one for each slice, and a vocabulary that no grid divides gets a few
idle columns, which the host cuts off."""

from __future__ import annotations

import dataclasses
import itertools

from tbuda_lab.core.graph import TILE, Graph, Node, NodeKind
from tbuda_lab.core.ops import Add, Index, Matmul, Pad
from tbuda_lab.core.passes.base import Pass, Report, Rewriter, is_stored
from tbuda_lab.core.passes.host import before_output


@dataclasses.dataclass(frozen=True)
class SplitMatmul(Pass):
    """index(matmul(x, W) + b) along the columns becomes matmul(x, W[:, range]) + b[range].

    Only where all readers are slices of whole tiles and the slices do not overlap, so that no product is computed
    twice; the slices of weight and bias are stored.
    """

    name = "split_matmul"
    doc = "Split a matmul that is only read in slices of whole tiles (fused query, key, value)"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_visit))


def _visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
    if not isinstance(node.op, Index):
        return None
    wide = r.old[node.sources[0]]
    product = _product(r, wide)
    if product is None or not _only_slices(r, wide):
        return None
    b = r.builder(product)
    b.stem = node.name

    def cut(name: str) -> str:
        assert isinstance(node.op, Index)
        return name if b.shape(name)[-1] == 1 else b.op(Index(-1, node.op.start, node.op.stop), name)

    left, *stored = product.sources
    result = b.op(Matmul(), r.at[left], *(cut(name) for name in stored))
    if wide is not product:
        bias = next(name for name in wide.sources if name != product.name)
        result = b.add(result, cut(bias))
    return result


def _product(r: Rewriter, wide: Node) -> Node | None:
    """The matmul by a stored weight that `wide` is, or is with a stored row vector added."""
    if isinstance(wide.op, Matmul):
        return wide if all(is_stored(r.old[s]) for s in wide.sources[1:]) else None
    if not isinstance(wide.op, Add):
        return None
    for source, other in (wide.sources, wide.sources[::-1]):
        row = r.old[other]
        if isinstance(r.old[source].op, Matmul) and r.single_user(source) and is_stored(row):
            if not all(n == 1 for n in row.shape[:-1]) or r.old[source].shape != wide.shape:
                return None
            return _product(r, r.old[source])
    return None


def _only_slices(r: Rewriter, wide: Node) -> bool:
    """Whether all readers take whole tiles of the columns and no column is read twice."""
    ranges = []
    for reader, _ in r.users[wide.name]:
        op = r.old[reader].op
        if not isinstance(op, Index) or op.dim != -1 or op.stride != 1:
            return False
        if op.start % TILE or (op.stop - op.start) % TILE:
            return False
        ranges.append((op.start, op.stop))
    ranges.sort()
    return all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))


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
