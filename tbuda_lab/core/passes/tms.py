"""Chains of data moves in their shortest form. The normal form: split the dims into factors, reorder the factors, group
them into dims again."""

from __future__ import annotations

import dataclasses
import itertools
import math

from tbuda_lab.core.graph import TILE, Graph, Node, Op, Shape
from tbuda_lab.core.ops import HSlice, HStack, Index, Reshape, Transpose, VSlice, VStack
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

Groups = tuple[tuple[int, ...], ...]

NARROWEST = 8
"""Columns of a piece that is spread to whole tiles: at most four times as many are computed."""


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """A chain of reshapes and transposes as one map.

    sizes: the factors in input order, none of size 1; inputs, outputs: for every dim of the input and the output the
    factors it is made of, slowest first. Inputs hold 0, 1, 2 ... in order.
    """

    sizes: tuple[int, ...]
    inputs: Groups
    outputs: Groups

    @staticmethod
    def identity(shape: Shape) -> Shuffle:
        sizes = tuple(n for n in shape if n != 1)
        ids = iter(range(len(sizes)))
        groups = tuple(() if n == 1 else (next(ids),) for n in shape)
        return Shuffle(sizes, groups, groups)

    @property
    def in_shape(self) -> Shape:
        return tuple(math.prod(self.sizes[i] for i in g) for g in self.inputs)

    @property
    def out_shape(self) -> Shape:
        return tuple(math.prod(self.sizes[i] for i in g) for g in self.outputs)

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(itertools.chain(*self.outputs))

    @property
    def is_reshape(self) -> bool:
        return self.order == tuple(range(len(self.sizes)))

    def transpose(self, dim0: int, dim1: int) -> Shuffle:
        groups = list(self.outputs)
        groups[dim0], groups[dim1] = groups[dim1], groups[dim0]
        return dataclasses.replace(self, outputs=tuple(groups))

    def reshape(self, shape: Shape) -> Shuffle | None:
        """Followed by a reshape; None where a boundary of the new shape falls inside a factor without dividing it."""
        sizes: list[int] = [self.sizes[i] for i in self.order]
        pieces: list[list[int]] = [[n] for n in sizes]
        groups: list[list[tuple[int, int]]] = []
        at, part, left = 0, 0, sizes[0] if sizes else 1
        for want in shape:
            group: list[tuple[int, int]] = []
            while want > 1:
                step = math.gcd(want, left) if want < left else left
                if step != min(want, left) or (want >= left and want % left):
                    return None
                if step < left:
                    pieces[at][part:] = [step, left // step]
                group.append((at, part))
                want //= step
                left //= step
                part += 1
                if left == 1:
                    at, part = at + 1, 0
                    left = sizes[at] if at < len(sizes) else 1
            groups.append(group)
        return self._renumber(pieces, groups)

    def _renumber(self, pieces: list[list[int]], groups: list[list[tuple[int, int]]]) -> Shuffle:
        """Number the factors again after some were split. `pieces` runs in output order."""
        split = {factor: pieces[place] for place, factor in enumerate(self.order)}
        start: dict[int, int] = {}
        sizes: list[int] = []
        for factor in range(len(self.sizes)):
            start[factor] = len(sizes)
            sizes.extend(split[factor])
        inputs = tuple(tuple(start[i] + k for i in g for k in range(len(split[i]))) for g in self.inputs)
        outputs = tuple(tuple(start[self.order[at]] + part for at, part in g) for g in groups)
        return Shuffle(tuple(sizes), inputs, outputs)

    def then(self, op: NdOp) -> Shuffle | None:
        """Followed by `op`, a transpose, reshape, slice or stack; None if the whole has no such form."""
        shape = self.out_shape
        rank = len(shape)
        if isinstance(op, Transpose):
            return self.transpose(op.dim0 % rank, op.dim1 % rank)
        target = op.infer(shape)
        if isinstance(op, (Reshape, VSlice, VStack)):
            return self.reshape(target)
        if isinstance(op, HSlice):
            lead, r, c = shape[:-2], shape[-2], shape[-1]
            cut = self.reshape((*lead, r, op.n, c // op.n))
        elif isinstance(op, HStack):
            z = shape[-3] if rank > 2 else 1
            n = z if op.n == -1 else op.n
            cut = self.reshape((*shape[:-3], z // n, n, shape[-2], shape[-1]))
        else:
            return None
        return None if cut is None else cut.transpose(len(cut.outputs) - 3, len(cut.outputs) - 2).reshape(target)

    def select(self, dim: int, start: int, stop: int) -> tuple[int, int, int, Shuffle] | None:
        """Followed by a selection start:stop along an output dim, as (dim, start, stop) of the input and the map of
        what is left; None where the selected elements are no run of neighbours along one input dim."""
        group = self.outputs[dim]
        if not group:
            return None
        factor = group[0]
        rest = math.prod(self.sizes[i] for i in group[1:])
        home = next(d for d, g in enumerate(self.inputs) if factor in g)
        if start % rest or stop % rest or self.inputs[home][0] != factor:
            return None
        first, last = start // rest, stop // rest
        unit = math.prod(self.sizes[i] for i in self.inputs[home][1:])
        left = [last - first if i == factor else n for i, n in enumerate(self.sizes)]
        number = {i: k for k, i in enumerate(i for i, n in enumerate(left) if n > 1)}
        inputs, outputs = (
            tuple(tuple(number[i] for i in g if i in number) for g in groups) for groups in (self.inputs, self.outputs)
        )
        return home, first * unit, last * unit, Shuffle(tuple(left[i] for i in number), inputs, outputs)

    # -- writing it in ops -----------------------------------------------------------------------------------
    def merge_factors(self) -> Shuffle:
        """Factors that stay neighbours within one dim on both sides joined into one."""
        together: list[list[int]] = []
        dim_in = {f: d for d, g in enumerate(self.inputs) for f in g}
        dim_out = {f: d for d, g in enumerate(self.outputs) for f in g}
        place = {f: i for i, f in enumerate(self.order)}
        for f in range(len(self.sizes)):
            if f and dim_in[f] == dim_in[f - 1] and dim_out[f] == dim_out[f - 1] and place[f] == place[f - 1] + 1:
                together[-1].append(f)
            else:
                together.append([f])
        new = {f: i for i, run in enumerate(together) for f in run}
        first = {run[0] for run in together}
        sizes = tuple(math.prod(self.sizes[f] for f in run) for run in together)
        return Shuffle(
            sizes,
            tuple(tuple(new[f] for f in g if f in first) for g in self.inputs),
            tuple(tuple(new[f] for f in g if f in first) for g in self.outputs),
        )

    def ops(self) -> list[Op]:
        """Ops that carry the map out, the cheapest form known: tile moves if all pieces are whole tiles."""
        if self.is_reshape and self.in_shape == self.out_shape:
            return []
        form = self.merge_factors()
        if len(form.inputs) >= 2 and len(form.outputs) >= 2:
            moves = _tile_moves(form)
            if moves is None and not form.is_reshape:
                moves = _tile_moves(form, ragged=True)
            if moves is not None:
                return moves
        return form.reshape_and_transposes()

    def reshape_and_transposes(self) -> list[Op]:
        """Reshape to factors, swap them into place, reshape to the result."""
        if self.is_reshape:
            return [Reshape(self.out_shape)]
        runs: list[list[int]] = []
        for f in self.order:
            if runs and f == runs[-1][-1] + 1:
                runs[-1].append(f)
            else:
                runs.append([f])
        ordered = sorted(runs)
        sizes = [math.prod(self.sizes[f] for f in run) for run in ordered]
        permutation = [ordered.index(run) for run in runs]
        pad = max(0, 4 - len(sizes))
        shape = [1] * pad + sizes
        target = list(range(pad)) + [pad + w for w in permutation]
        done: list[Op] = [Reshape(tuple(shape))] if tuple(shape) != self.in_shape else []
        now = list(range(len(shape)))
        for i in range(len(now)):
            if now[i] != target[i]:
                j = now.index(target[i])
                now[i], now[j] = now[j], now[i]
                done.append(Transpose(i - len(now), j - len(now)))
        if tuple(shape[i] for i in now) != self.out_shape:
            done.append(Reshape(self.out_shape))
        return done


State = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _tile_moves(form: Shuffle, depth: int = 4, ragged: bool = False) -> list[Op] | None:
    """Breadth-first search for slices, stacks and transposes of whole tiles; None if there are none that do it.

    ragged: columns may also be cut and joined in pieces from `NARROWEST` on, which takes a selection of columns.
    """
    sizes = form.sizes

    def fits(width: int) -> bool:
        return width % TILE == 0 or (ragged and width >= NARROWEST)

    def state(groups: Groups) -> State:
        return tuple(itertools.chain(*groups[:-2])), groups[-2], groups[-1]

    def count(ids: tuple[int, ...]) -> int:
        return math.prod(sizes[i] for i in ids)

    start, goal = state(form.inputs), state(form.outputs)
    paths: dict[State, list[Op]] = {start: []}
    frontier = [start]
    for _ in range(depth):
        if goal in paths:
            break
        reached: list[State] = []
        for here in frontier:
            z, r, c = here
            moves: list[tuple[Op, State]] = []
            for k in range(1, len(c)):
                if fits(count(c[k:])):
                    moves.append((HSlice(count(c[:k])), (z + c[:k], r, c[k:])))
            for k in range(1, len(z) + 1):
                if fits(count(c)):
                    moves.append((HStack(count(z[-k:])), (z[:-k], r, z[-k:] + c)))
            for k in range(1, len(r)):
                if count(r[k:]) % TILE == 0:
                    moves.append((VSlice(count(r[:k])), (z + r[:k], r[k:], c)))
            for k in range(1, len(z) + 1):
                if count(r) % TILE == 0:
                    moves.append((VStack(count(z[-k:])), (z[:-k], z[-k:] + r, c)))
            moves.append((Transpose(-2, -1), (z, c, r)))
            for op, there in moves:
                if there not in paths:
                    paths[there] = [*paths[here], op]
                    reached.append(there)
        frontier = reached
    if goal not in paths:
        return None
    ops = paths[goal]
    # The moves run on (1, z, r, c); leading dims are folded before and unfolded after, which moves nothing.
    first = (1, count(start[0]), count(start[1]), count(start[2]))
    last = (1, count(goal[0]), count(goal[1]), count(goal[2]))
    before: list[Op] = [Reshape(first)] if form.in_shape != first and ops else []
    after: list[Op] = [Reshape(form.out_shape)] if form.out_shape != (last if ops else form.in_shape) else []
    return before + ops + after


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
            selection = form.select(op.dim % len(form.outputs), op.start, op.stop)
            if selection is None:
                return None
            dim, start, stop, left = selection
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
