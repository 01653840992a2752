"""Where branches of a fork meet again: found once per graph, whatever epochs it is cut into."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping

from tbuda_lab.core.placer.model.problem import Problem

Step = tuple[int, int]
"""An op and the operand through which a branch enters it."""


@dataclasses.dataclass(frozen=True)
class Reconvergence:
    """Two branches from a fork that meet at a join for the first time: the ops of each and the join's operand last.
    `long` is the one that has to give its first result before the join takes what came over `short`. The ops stand in
    the schedule's order, so an epoch that holds fork and join holds them all."""

    fork: int
    join: int
    short: tuple[Step, ...]
    long: tuple[Step, ...]


def reconvergences(problem: Problem) -> Mapping[int, tuple[Reconvergence, ...]]:
    """By join, all of a graph within the ops that one epoch may hold. A branch through a DRAM queue of the user's never
    has to wait and is none."""
    entry = _cache.get(problem)
    if entry is None:
        entry = _cache[problem] = reconvergences_of(problem, range(len(problem.order)))
    return entry


def reconvergences_of(problem: Problem, forks: range) -> dict[int, tuple[Reconvergence, ...]]:
    """The same of some forks alone."""
    by_join: dict[int, list[Reconvergence]] = {}
    for fork in forks:
        for meeting in _of(problem, fork):
            by_join.setdefault(meeting.join, []).append(meeting)
    return {join: tuple(some) for join, some in by_join.items()}


_cache: weakref.WeakKeyDictionary[Problem, dict[int, tuple[Reconvergence, ...]]] = weakref.WeakKeyDictionary()

_Ends = tuple[tuple[Step, ...], tuple[Step, ...]]
"""The shortest and the longest way of a branch to an op, by the number of ops."""


def _of(problem: Problem, fork: int) -> list[Reconvergence]:
    facts = problem.facts
    readers = [(r, p) for r, p in facts[fork].readers if p not in facts[r].queued]
    if len({r for r, _ in readers}) < 2:
        return []
    result: list[Reconvergence] = []
    reached: dict[int, dict[int, _Ends]] = {}  # by op, and by the reader that a branch begins with
    heads = {r for r, _ in readers}
    apart = set(heads)  # branches that have not met another one yet
    open_until = {fork: max(heads)}
    end = min(len(problem.order), fork + problem.cores)
    for op in range(fork + 1, end):
        if op > max(open_until.values()):
            break
        ways: dict[int, _Ends] = {}
        for port, producer in enumerate(facts[op].producers):
            if port in facts[op].queued:
                continue
            step: tuple[Step, ...] = ((op, port),)
            if producer == fork:
                ways[op] = _merged(ways.get(op), (step, step))
            for way, (short, long) in reached.get(producer, {}).items():
                ways[way] = _merged(ways.get(way), ((*short, *step), (*long, *step)))
        if not ways:
            continue
        if len(ways) > 1:
            for a, (short, _) in ways.items():
                others = [long for b, (_, long) in ways.items() if b != a]
                long = max(others, key=len)
                if len(long) > 1:
                    result.append(Reconvergence(fork, op, short, long))
            apart -= set(ways)
            apart.add(min(ways))
            ways = {min(ways): ways[min(ways)]}
            if len(apart) < 2:
                break
        reached[op] = ways
        if facts[op].readers:
            open_until[op] = facts[op].readers[-1][0]
    return result


def _merged(before: _Ends | None, new: _Ends) -> _Ends:
    if before is None:
        return new
    return min(before[0], new[0], key=len), max(before[1], new[1], key=len)
