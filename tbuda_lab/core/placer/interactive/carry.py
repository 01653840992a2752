"""A placement carried over: to its graph with nops, queues or formats of the user's, or to another order of its ops.

Every op keeps its epoch, its candidate and its place until the epochs near the edits are made again."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tbuda_lab.core.balancer.types import LAYOUT, OpModels
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment


@dataclasses.dataclass(frozen=True)
class RegraphResult:
    """The same epochs with the inserted nops among them.

    changed_epochs: ops whose candidates or neighbours differ, and the nops; anew: those of them that have no candidate
    yet (an arbitrary one stands in `segments`, on an arbitrary place); remade: epochs (indices) with other ops than
    before.
    """

    problem: Problem
    segments: tuple[Segment, ...]
    changed_epochs: frozenset[int]
    anew: frozenset[int]
    remade: frozenset[int]


def regraph(
    problem: Problem, segments: Sequence[Segment], graph: Graph, models: Mapping[str, OpModels]
) -> RegraphResult:
    """`segments` of a problem carried over to an edited copy of its graph, with the candidates there are now. A nop
    stands in the epoch of its first reader, right before it; one that only feeds the host behind its source."""
    before, after = _homes(problem, graph)
    order: list[str] = []
    remade: set[int] = set()
    spans: list[tuple[int, int]] = []
    for index, segment in enumerate(segments):
        first = len(order)
        for name in problem.order[segment.first : segment.last]:
            order += [*before.get(name, ()), name, *after.get(name, ())]
        spans.append((first, len(order)))
        if len(order) - first != segment.last - segment.first:
            remade.add(index)
    updated = problem.regraph(graph, models, order)
    changed, anew = _changed_ops(problem, updated)
    placed = {
        problem.order[op]: (row, spot)
        for s in segments
        for op, row, spot in zip(range(s.first, s.last), s.rows, s.spots, strict=True)
    }
    segments_now = []
    for segment, (first, last) in zip(segments, spans, strict=True):
        rows, spots = [], []
        for op in range(first, last):
            row, spot = placed.get(updated.order[op], (0, (0, 0, False)))
            if op in changed and op not in anew:
                same = _same_row(updated.tables[op], problem.models[updated.order[op]], row)
                if same is None:
                    anew.add(op)
                row = same or 0
            rows.append(int(updated.legal[updated.tables[op].signature][0]) if op in anew else row)
            spots.append(spot)
        carried = dataclasses.replace(segment, first=first, last=last, rows=tuple(rows), spots=tuple(spots))
        segments_now.append(segment if carried == segment else carried)
    return RegraphResult(updated, tuple(segments_now), frozenset(changed), frozenset(anew), frozenset(remade))


def _homes(problem: Problem, graph: Graph) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The nops that are new: by the op they stand before, and by the op they stand behind."""
    users = graph.users()
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    new = [n.name for n in graph.topological() if n.kind is NodeKind.OP and n.name not in problem.number]
    homes: dict[str, int] = {}  # number of the first reader, directly or behind other nops
    for name in reversed(new):
        readers = [problem.number.get(u, homes.get(u)) for u, _ in users[name]]
        ahead = [r for r in readers if r is not None]
        if ahead:
            homes[name] = min(ahead)
    for name in new:
        if name in homes:
            before.setdefault(problem.order[homes[name]], []).append(name)
        else:
            source = graph[name].sources[0]
            while source not in problem.number:
                source = graph[source].sources[0]
            after.setdefault(source, []).append(name)
    return before, after


def _changed_ops(old: Problem, new: Problem) -> tuple[set[int], set[int]]:
    """(ops whose candidates, operands or readers differ, and the new ones; the new ones)."""
    changed: set[int] = set()
    added: set[int] = set()
    for op, name in enumerate(new.order):
        at = old.number.get(name)
        if at is None:
            added.add(op)
            continue
        if old.tables[at].signature != new.tables[op].signature:
            changed.add(op)
        a, b = old.graph[name], new.graph[name]
        if a.sources != b.sources or queued_ports(a) != queued_ports(b):
            changed.add(op)
            changed |= {new.number[s] for s in (*a.sources, *b.sources) if s in new.number}
    return changed | added, added


def _same_row(table: OpModels, old: OpModels, row: int) -> int | None:
    """The row of a table that is `row` of another one; None where there is none, or it is not legal."""
    if table.signature == old.signature:
        return row
    same = table.legal()
    for field in (*LAYOUT, "m_k", "u_kt", "prologue"):
        same = same[table.rows[field][same] == old.rows[field][row]]
    return int(same[0]) if len(same) else None


# -- to another order --------------------------------------------------------------------------------------------------
class CarryResult(NamedTuple):
    """moved_ops: ops that changed the epoch; touched_epochs: epochs (indices) with other ops than before."""

    problem: Problem
    segments: Sequence[Segment]
    chips: Sequence[int]
    moved_ops: frozenset[int] = frozenset()
    touched_epochs: frozenset[int] = frozenset()


def carry(problem: Problem, segments: Sequence[Segment], chips: Sequence[int], order: Sequence[str]) -> CarryResult:
    """As many ops as possible stay in their epochs. One that goes later joins the op behind it, one that goes earlier
    the op before it. They lie where they lay, possibly over others, and the cycles of epochs with other ops are those
    of before: both wait to be made again. An epoch that loses all its ops is gone.
    """
    epoch = [index for index, s in enumerate(segments) for _ in range(s.first, s.last)]
    was = [problem.number[name] for name in order]
    staying = longest_rising([epoch[op] for op in was])
    updated = Problem.of(
        problem.graph,
        problem.models,
        problem.device,
        problem.options,
        order,
        problem.constraints,
        problem.costs,
    )
    homes = [epoch[op] for op in was]
    behind = list(homes)  # the epoch of the next op that stays
    for at in range(len(was) - 2, -1, -1):
        behind[at] = homes[at + 1] if at + 1 in staying else behind[at + 1]
    now: list[int] = []
    moved: set[int] = set()
    for at, home in enumerate(homes):
        if at not in staying:
            before = now[-1] if now else home
            home = behind[at] if home < before else before  # it goes later, or earlier
        if home != homes[at]:
            moved.add(at)
        now.append(home)
    placed = {
        op: (row, spot) for s in segments for op, row, spot in zip(range(s.first, s.last), s.rows, s.spots, strict=True)
    }
    moved_segments: list[Segment] = []
    placed_on: list[int] = []
    touched: set[int] = set()
    first = 0
    for index in sorted(set(now)):
        last = first + now.count(index)
        there = [placed[was[at]] for at in range(first, last)]
        old = segments[index]
        if {was[at] for at in range(first, last)} != set(range(old.first, old.last)):
            touched.add(len(moved_segments))
        moved_segments.append(
            dataclasses.replace(
                old, first=first, last=last, rows=tuple(row for row, _ in there), spots=tuple(s for _, s in there)
            )
        )
        placed_on.append(chips[index])
        first = last
    return CarryResult(updated, moved_segments, placed_on, frozenset(moved), frozenset(touched))


def longest_rising(values: Sequence[int]) -> set[int]:
    """Indices of a longest run of values, in their order, that never falls."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for at, value in enumerate(values):
        k = bisect.bisect_right(tails, value)
        before.append(ends[k - 1] if k else -1)
        if k == len(tails):
            tails.append(value)
            ends.append(at)
        else:
            tails[k], ends[k] = value, at
    indices: set[int] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        indices.add(at)
        at = before[at]
    return indices
