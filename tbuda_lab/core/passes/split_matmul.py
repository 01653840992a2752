"""One wide matmul read in slices becomes one matmul for each slice."""

from __future__ import annotations

import dataclasses
import itertools

from tbuda_lab.core.graph import TILE, Graph, Node
from tbuda_lab.core.ops import Add, Index, Matmul
from tbuda_lab.core.passes.base import Pass, Report, Rewriter, is_stored


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
