"""Ops that the user wants in parts: each part an op of its own on a slice of its operands, which may run side by side.

A matmul is cut along its columns (-1), its inner dimension (-2 of its weight; the parts are summed), its rows or its
slices; an element-wise op, a softmax or a concatenation along any dim of its result but the one it works along. A
parameter means the matmul that it is the weight of. Part k is named `fractured_<k>_<op>`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import Add, Concatenate, Index, Matmul
from tbuda_lab.core.ops.binary import Binary, Where
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.norm import LogSoftmax, Softmax
from tbuda_lab.core.ops.unary import Unary
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

INNER = "inner"
"""The inner dimension of a matmul, as a dim to cut."""

Cut = tuple[int | str, int]
"""(dim from the end, or INNER; number of parts)."""


@dataclasses.dataclass(frozen=True)
class Fracture(Pass):
    """Cut the ops that `options.fracture_groups` names.

    Raises `UnsupportedOp` for an op that has no such form, a dim that is not cut evenly, and a name that is none.
    """

    name = "fracture"
    doc = "Cut ops into parts that the user asked for"

    def apply(self, graph: Graph) -> Report:
        cuts: dict[str, list[Cut]] = {}
        notes = []
        for name, dims, factors in self.options.fracture_groups:
            if name not in graph:
                names = ", ".join(list(graph.nodes)[:8])
                raise _fault(name, "there is no op or parameter of this name", f"{names}, ...")
            parts = [(dim, count) for dim, count in zip(dims, factors, strict=True) if count > 1]
            if graph[name].kind is NodeKind.PARAMETER:
                users = [u for u, port in graph.users()[name] if port == 1 and isinstance(graph[u].op, Matmul)]
                if not users:
                    raise _fault(name, "no matmul has it as its weight", "name the op that reads it")
                for user in users:
                    cuts.setdefault(user, []).extend((INNER if d == -2 else d, n) for d, n in parts)
            else:
                cuts.setdefault(name, []).extend(parts)
            notes += [f"{name}: {count} parts along dim {dim}" for dim, count in parts]

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if node.name not in cuts or not cuts[node.name]:
                return None
            return _Cutter(r.builder(node), node).cut(cuts[node.name], operands)

        return Report(self.name, Rewriter(graph, self.options).run(visit), tuple(notes))


Group = tuple[str, tuple[int, ...], tuple[int, ...]]


def named_by_place(graph: Graph, groups: Sequence[Group]) -> tuple[tuple[Group, ...], dict[str, str]]:
    """Groups whose unknown names are replaced by names of the graph, and which for which.

    TVM numbers the ops of a graph in one count, producers first: `matmul_7` is the matmul at place 7, and places depend
    on what TVM inserts. So names `<kind>_<number>` that the graph lacks are taken in the order of their numbers for ops
    of that kind, each for the first one that stands behind the one before it.
    """
    unknown = {name: _NUMBERED.fullmatch(name) for name, _, _ in groups if name not in graph}
    numbered = sorted((int(m[2]), name, m[1]) for name, m in unknown.items() if m is not None)
    order = [node for output in graph.outputs for node in _depth_first(graph, output)]
    chosen: dict[str, str] = {}
    at = 0
    for _, name, kind in numbered:
        place = next((k for k in range(at, len(order)) if _is_kind(order[k], kind)), None)
        if place is not None:
            chosen[name], at = order[place].name, place + 1
    return tuple((chosen.get(name, name), dims, parts) for name, dims, parts in groups), chosen


def _is_kind(node: Node, kind: str) -> bool:
    return node.op is not None and node.op.type == kind


_NUMBERED = re.compile(r"([a-z][a-z0-9_]*?)_(\d+)")


def _depth_first(graph: Graph, last: Node) -> Iterator[Node]:
    """A node behind all that it depends on, operands from left to right."""
    seen: set[str] = set()
    stack = [(last, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node.name not in seen:
            seen.add(node.name)
            stack.append((node, True))
            stack += [(graph[source], False) for source in reversed(node.sources)]


class _Cutter:
    def __init__(self, builder: Builder, node: Node) -> None:
        self.b, self.node = builder, node
        self.parts = 0

    def cut(self, cuts: list[Cut], operands: tuple[str, ...]) -> str:
        """The op on these operands, in parts along the first dim, each of them in parts along the next, and so on."""
        if not cuts:
            name = f"fractured_{self.parts}_{self.node.name}"
            self.parts += 1
            assert self.node.op is not None
            return self.b.op(self.node.op, *operands, name=name if name not in self.b.graph else None)
        (dim, count), rest = cuts[0], cuts[1:]
        how, join = self._form(dim, count, operands)
        pieces = [self.cut(rest, how(k)) for k in range(count)]
        return join(pieces)

    def _form(
        self, dim: int | str, count: int, operands: tuple[str, ...]
    ) -> tuple[Callable[[int], tuple[str, ...]], Callable[[list[str]], str]]:
        """From the number of a part to its operands, and from the parts to the whole."""
        op, shapes = self.node.op, [self.b.shape(o) for o in operands]

        def concatenate(parts: list[str]) -> str:
            assert isinstance(dim, int)
            return self.b.op(Concatenate(dim), *parts)

        def add_up(parts: list[str]) -> str:
            total = parts[0]
            for part in parts[1:]:
                total = self.b.op(Add(), total, part)
            return total

        if isinstance(op, Matmul):
            if len(operands) > 2 and dim == INNER:
                fault = "its bias would be added in every part"
                raise _fault(self.node.name, fault, "add the bias as an op of its own")
            axes: list[int | None] = [None] * len(operands)
            if dim == INNER:
                axes[0], axes[1] = -1, -2
            elif dim == -1:
                axes = [None, *(-1 for _ in operands[1:])]
            elif dim == -2:
                axes[0] = -2
            else:
                assert isinstance(dim, int)
                axes = [dim if len(s) >= -dim and s[dim] > 1 else None for s in shapes]
        elif isinstance(op, Binary | Unary | Where) and isinstance(dim, int):
            axes = [dim if len(s) >= -dim and s[dim] > 1 else None for s in shapes]
        elif isinstance(op, Softmax | LogSoftmax) and isinstance(dim, int) and (op.dim - dim) % len(shapes[0]):
            axes = [dim]
        elif isinstance(op, Concatenate) and isinstance(dim, int) and (op.axis - dim) % len(shapes[0]):
            axes = [dim] * len(operands)
        else:
            kind = op.type if op is not None else self.node.kind.value
            fix = "a matmul, an element-wise op, or another dim"
            raise _fault(self.node.name, f"{kind} is not cut along dim {dim}", fix)
        if all(axis is None for axis in axes):
            raise _fault(self.node.name, f"no operand has more than one element along dim {dim}", "another dim")
        for shape, axis in zip(shapes, axes, strict=True):
            if axis is not None and shape[axis] % count:
                fault = f"dim {axis} of {shape} has no {count} equal parts"
                raise _fault(self.node.name, fault, "a factor that divides it")

        def part(k: int) -> tuple[str, ...]:
            part = []
            for name, shape, axis in zip(operands, shapes, axes, strict=True):
                if axis is None:
                    part.append(name)
                    continue
                size = shape[axis] // count
                part.append(self.b.op(Index(axis, k * size, (k + 1) * size), name))
            return tuple(part)

        return part, add_up if dim == INNER else concatenate


def _fault(name: str, message: str, fix: str) -> UnsupportedOp:
    return UnsupportedOp("an op cannot be fractured", [Diagnostic("error", name, "fracture", message, fix)])
