"""A placement carried over to another order of its ops: who keeps the epoch, and who goes along with its neighbours."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from tbuda_lab.core.placer import Problem
from tbuda_lab.core.placer.model.segment import Segment


class Carried(NamedTuple):
    """moved: ops that changed the epoch; touched: epochs (indices) with other ops than before."""

    problem: Problem
    segments: Sequence[Segment]
    chips: Sequence[int]
    moved: frozenset[int] = frozenset()
    touched: frozenset[int] = frozenset()


def carried(problem: Problem, segments: Sequence[Segment], chips: Sequence[int], order: Sequence[str]) -> Carried:
    """As many ops as possible stay in their epochs. One that goes later joins the op behind it, one that goes earlier
    the op before it. They lie where they lay, possibly over others, and the cycles of epochs with other ops are those
    of before: both wait to be made again. An epoch that loses all its ops is gone.
    """
    epoch = [index for index, s in enumerate(segments) for _ in range(s.first, s.last)]
    was = [problem.number[name] for name in order]
    staying = _longest_rising([epoch[op] for op in was])
    made = Problem(
        problem.graph, problem.models, problem.device, problem.options, order, problem.pins, problem.breaks,
        problem.chip_breaks,
    )  # fmt: skip
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
    known = {
        op: (row, spot)
        for s in segments
        for op, row, spot in zip(range(s.first, s.last), s.rows, s.spots, strict=True)
    }
    found: list[Segment] = []
    placed_on: list[int] = []
    touched: set[int] = set()
    first = 0
    for index in sorted(set(now)):
        last = first + now.count(index)
        there = [known[was[at]] for at in range(first, last)]
        old = segments[index]
        if {was[at] for at in range(first, last)} != set(range(old.first, old.last)):
            touched.add(len(found))
        found.append(
            dataclasses.replace(
                old, first=first, last=last, rows=tuple(row for row, _ in there), spots=tuple(s for _, s in there)
            )
        )
        placed_on.append(chips[index])
        first = last
    return Carried(made, found, placed_on, frozenset(moved), frozenset(touched))


def _longest_rising(values: Sequence[int]) -> set[int]:
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
    found: set[int] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        found.add(at)
        at = before[at]
    return found
