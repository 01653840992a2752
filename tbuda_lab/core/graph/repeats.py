"""Where a graph repeats: copies of the same ops, wired alike, one after another, as the layers of a model."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.graph.graph import Graph, Node, NodeKind


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Ops `first` to `first + copies * period` (numbers in graph order) are `copies` of one part.

    loop: whether a loop could run one part for all: what a copy takes from outside is the same for all copies, a weight
    of its own, or made by the copy before it, at the same op each time; and only the next copy reads what one makes.
    """

    first: int
    period: int
    copies: int
    loop: bool


def repeats(graph: Graph, copies: int) -> Repeats | None:
    """The largest part that stands `copies` times in a row, of equal ops and shapes and wired alike inside; of equally
    large ones one that a loop could run, else the first. None if there is none, or for fewer than two copies."""
    stretch = _Ops(graph)
    for period in range(len(stretch.ops) // copies, 0, -1) if copies > 1 else ():
        first_part: Repeats | None = None
        for first in stretch.starts(period, copies):
            sources = [stretch.sources(first + copy * period, period) for copy in range(copies)]
            inside = [[s if isinstance(s, int) else None for s in copy] for copy in sources]
            if any(places != inside[0] for places in inside):
                continue
            loop = stretch.is_carried(sources, first, period) and stretch.stays_near(first, period, copies)
            if loop:
                return Repeats(first, period, copies, True)
            first_part = first_part or Repeats(first, period, copies, False)
        if first_part is not None:
            return first_part
    return None


class _Ops:
    """The ops of a graph in order, with a number for each kind."""

    def __init__(self, graph: Graph) -> None:
        self.ops = [node for node in graph.topological() if node.kind is NodeKind.OP]
        self.number = {node.name: k for k, node in enumerate(self.ops)}
        self.users = graph.users()
        seen: dict[object, int] = {}
        self.kinds = np.array([seen.setdefault(_kind(graph, node), len(seen)) for node in self.ops], dtype=np.int64)

    def starts(self, period: int, copies: int) -> list[int]:
        """Where `copies` equal parts of that many ops begin, by their kinds."""
        length = period * (copies - 1)
        equal = np.concatenate([[0], np.cumsum(self.kinds[period:] == self.kinds[: len(self.kinds) - period])])
        return [int(s) for s in np.flatnonzero(equal[length:] - equal[: len(equal) - length] == length)]

    def sources(self, begin: int, period: int) -> list[int | str]:
        """Of every operand of a copy, in order: the place in the copy of the op that makes it, or a name outside."""
        numbers = [(s, self.number.get(s, -1)) for node in self.ops[begin : begin + period] for s in node.sources]
        return [at - begin if begin <= at < begin + period else name for name, at in numbers]

    def is_carried(self, sources: list[list[int | str]], first: int, period: int) -> bool:
        """Whether what comes from outside is one for all copies, stored, or the copy before makes it at one place."""
        for operand in zip(*sources, strict=True):
            names = [s for s in operand if isinstance(s, str)]
            if len(set(names)) < 2 or all(name not in self.number for name in names):
                continue
            places = {self.number.get(name, -1) - first - period * k for k, name in enumerate(names[1:])}
            if len(places) > 1 or not 0 <= min(places) < period:
                return False
        return True

    def stays_near(self, first: int, period: int, copies: int) -> bool:
        """Whether what a copy makes, the last one's left out, goes no further than the next copy."""
        for k in range(first, first + period * (copies - 1)):
            begin = first + (k - first) // period * period
            readers = [self.number.get(user, -1) for user, _ in self.users[self.ops[k].name]]
            if any(not begin <= at < begin + 2 * period for at in readers):
                return False
        return True


def _kind(graph: Graph, node: Node) -> object:
    """What has to be equal in every copy: the op, its shape, and of each operand the shape, the TMs and whether it is
    stored."""
    stored = (NodeKind.PARAMETER, NodeKind.CONSTANT)
    operands = ((graph[e.source].kind in stored, graph[e.source].shape, e.tms) for e in node.inputs)
    return node.op, node.shape, tuple(operands)
