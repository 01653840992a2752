"""Chains of data moves in their shortest form."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Graph, Node, Op
from tbuda_lab.core.ops import HSlice, HStack, Index, Reshape, Transpose, VSlice, VStack
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.passes.base import Pass, Report, Rewriter
from tbuda_lab.core.passes.shuffle import Shuffle

SHUFFLES = (Transpose, Reshape, HSlice, HStack, VSlice, VStack)
TURN = Transpose(-2, -1)


def _cost(ops: list[Op]) -> int:
    """Moves of whole tiles happen on the way into the next op; any other may need an op of its own."""
    return sum(3 if isinstance(op, Reshape) or (isinstance(op, Transpose) and op != TURN) else 1 for op in ops)


@dataclasses.dataclass(frozen=True)
class SimplifyMoves(Pass):
    """Each transpose, reshape, slice and stack is composed with those before it and the whole written anew.

    What cancels disappears; heads split off columns become hslice, merged heads hstack; the rest is the fewest
    reshapes and transposes known. What selects a part of a chain selects it before the chain where that leaves less
    to move: queries, keys and values that are stacked and taken apart again are columns of one matmul.
    """

    name = "simplify_moves"
    doc = "Compose chains of reshapes and transposes and write them as slices, stacks and transposes of whole tiles"

    def apply(self, graph: Graph) -> Report:
        forms: dict[str, tuple[str, Shuffle, list[Op]]] = {}

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if isinstance(node.op, Index) and operands[0] in forms:
                return select_first(r, node, node.op, *forms[operands[0]])
            if not isinstance(node.op, SHUFFLES) or not isinstance(node.op, NdOp):
                return None
            x = operands[0]
            base, form, written = forms.get(x, (x, Shuffle.identity(r.new[x].shape), []))
            whole = form.then(node.op)
            if whole is None:
                base, written = x, []
                whole = Shuffle.identity(r.new[x].shape).then(node.op)
            if whole is None:
                before = r.new[x]
                if isinstance(node.op, Reshape) and isinstance(before.op, Reshape):
                    return r.keep(node, None, before.sources)
                return None
            ops = whole.ops()
            if not ops:
                return base
            chain: list[Op] = [*written, node.op]
            if _cost(ops) >= _cost(chain):
                forms[node.name] = (base, whole, chain)
                return None
            forms[node.name] = (base, whole, ops)
            b = r.builder(node)
            for op in ops[:-1]:
                base = b.op(op, base)
            return r.keep(node, ops[-1], (base,))

        def select_first(r: Rewriter, node: Node, op: Index, base: str, form: Shuffle, written: list[Op]) -> str | None:
            if op.stride != 1:
                return None
            result = form.selected(op.dim % len(form.outputs), op.start, op.stop)
            if result is None:
                return None
            dim, start, stop, left = result
            ops = left.ops()
            if _cost(ops) >= _cost(written):
                return None
            b = r.builder(node)
            cut = Index(dim - len(left.inputs), start, stop)
            if not ops:
                return r.keep(node, cut, (base,))
            x = part = b.op(cut, base)
            for step in ops[:-1]:
                x = b.op(step, x)
            forms[node.name] = (part, left, ops)
            return r.keep(node, ops[-1], (x,))

        return Report(self.name, Rewriter(graph, self.options).run(visit))
