"""Epochs that only a refused edge keeps apart are merged by a DRAM queue on that edge, where that is cheaper.

An op begins an epoch of its own when none of its candidates may take a tensor from those of the producers before it:
streams that do not match, more than 16 output streams, too many phases (see `EdgeReason`). Through a queue in DRAM it
may; what that costs in bandwidth is weighed against the epoch switch it saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tbuda_lab.core.errors import Diagnostic, OverrideError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.chip_stages import chips_of, epoch_cost
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility, refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.stalls.repairs import with_edits, with_queues
from tbuda_lab.core.placer.stalls.stall_repair import RepairedPlacement, with_stall_cycles

_WORTH = 0.99  # part of the cycles that two epochs as one have to stay below
_TRIES = 64  # candidates of an op looked at before its edge counts as refused
_TARGETS = 6  # target cycles tried for the epoch of both


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """Why an op does not follow into the epoch before it, and the operands that a queue would have to bring."""

    reason: str
    producer: int
    ports: tuple[int, ...]


def merge_epochs(
    problem: Problem, segments: Sequence[Segment], check: Callable[[float], None] = lambda fraction: None
) -> RepairedPlacement:
    """Merges neighbouring epochs of a chip whose edge is refused, as long as that pays for the microbatch. Each queue
    is told by a note with its price. Breaks and pinned chips of the user stay."""
    result = list(segments)
    edits: list[Override] = []
    notes: list[Diagnostic] = []
    at = 0
    while at + 1 < len(result):
        check(at / len(result))
        merged = _merge(problem, result, at)
        if merged is None:
            at += 1
            continue
        new_problem, segment, added, note = merged
        problem, result = new_problem, [*result[:at], segment, *result[at + 2 :]]
        edits, notes = [*edits, *added], [*notes, note]
    return RepairedPlacement(problem, tuple(result), tuple(edits), tuple(notes))


def _merge(
    problem: Problem, segments: Sequence[Segment], at: int
) -> tuple[Problem, Segment, tuple[Override, ...], Diagnostic] | None:
    """Epochs `at` and `at` + 1 as one: (problem, epoch, queues, note), or None where they stay apart."""
    first, second = segments[at], segments[at + 1]
    if problem.order[second.first] in problem.breaks | problem.chip_breaks:
        return None
    if problem.has_stages and len(set(chips_of(problem, segments)[at : at + 2])) > 1:
        return None
    upstream_rows = {op: row for s in segments[:at] for op, row in zip(range(s.first, s.last), s.rows, strict=True)}
    refused = _refusal(problem, first, second.first, upstream_rows)
    if refused is None:
        return None
    before = epoch_cost(problem, first) + epoch_cost(problem, second)
    reader = problem.order[second.first]
    edits = tuple(
        Override("insert_queue", problem.order[producer], {"dest": (reader,), "port": port}, "placer")
        for port in refused.ports
        if (producer := problem.facts[second.first].producers[port]) >= 0
    )
    try:
        result = with_queues(problem, with_edits(problem, edits))
    except OverrideError:  # no queue can stand there
        return None
    best: Segment | None = None
    for rows in _row_choices(result, first, second):
        segment = _place(result, first.first, second.last, rows, upstream_rows)
        if segment is not None and (best is None or epoch_cost(result, segment) < epoch_cost(result, best)):
            best = segment
    if best is None or not epoch_cost(result, best) < _WORTH * before:
        return None
    best = with_stall_cycles(result, best, upstream_rows)
    before = sum(epoch_cost(problem, with_stall_cycles(problem, s, upstream_rows)) for s in (first, second))
    if not epoch_cost(result, best) < _WORTH * before:
        return None
    source = problem.order[refused.producer]
    text = (
        f"{source} and {reader} may not be joined by a pipe ({refused.reason}): a DRAM queue between them makes one "
        f"epoch of two, {round(epoch_cost(result, best))} cycles an input with the switch instead of {round(before)}"
    )
    note = Diagnostic("note", reader, "repair", text, f"set_epoch_break({reader!r}) keeps the epochs apart")
    return result, best, edits, note


def _refusal(problem: Problem, segment: Segment, op: int, upstream_rows: Mapping[int, int]) -> _Refusal | None:
    """Why no candidate of the op behind an epoch may read from it; None where one may, or where it reads nothing."""
    fact = problem.facts[op]
    inside = [p for p in range(len(fact.producers)) if fact.by_noc(p, segment.first, op)]
    if not inside:
        return None
    book = EdgeCompatibility(problem, segment.first, op + 1, upstream_rows)
    book.rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    rows = _shapes(problem, op)
    if not rows or any(book.check(op, row) for row in rows) or book.refusal is None:
        return None
    producer, _, reason = book.refusal
    chosen = [p for p in inside if fact.producers[p] == producer] or inside
    return _Refusal(refusal_text(problem, producer, op, reason), fact.producers[chosen[0]], tuple(chosen))


def _shapes(problem: Problem, op: int) -> list[int]:
    """The first legal candidate of every grid, stream and buffer of an op."""
    legal = problem.legal[problem.tables[op].signature]
    _, first = np.unique(problem.shapes(op)[legal], return_index=True)
    return [int(row) for row in legal[np.sort(first)][:_TRIES]]


def _row_choices(problem: Problem, first: Segment, second: Segment) -> Iterator[dict[int, int]]:
    """Candidates for all ops of both epochs: those they have, then the smallest that meet ever slower targets."""
    rows = dict(zip(range(first.first, second.last), (*first.rows, *second.rows), strict=True))
    yield rows
    dram = sum(int(problem.dram_cores(op, *problem.places(op, first.first, second.last))[rows[op]]) for op in rows)
    least = max(first.limiter_cycles, second.limiter_cycles)
    most = epoch_cost(problem, first) + epoch_cost(problem, second)
    for target in np.geomspace(max(1, least), max(2.0, most), _TARGETS):
        picked: dict[int, int] = {}
        for op in rows:
            front = problem.costs.frontier(problem.tables[op], *problem.places(op, first.first, second.last), dram)
            place = int(np.searchsorted(-front.cycles, -float(target), side="left"))
            if place < len(front.row):
                picked[op] = int(front.row[place])
        if len(picked) == len(rows):
            yield picked


def _place(
    problem: Problem, first: int, last: int, targets: Mapping[int, int], upstream_rows: Mapping[int, int]
) -> Segment | None:
    """The run as one epoch with these candidates, or others where an edge asks for them."""
    cores = sum(int(problem.tables[op].rows["cores"][row]) for op, row in targets.items())
    if cores > problem.cores:
        return None
    kernel, limiter, load = measure(problem, first, last, targets)
    rows, _ = choose_rows(
        problem, first, last, targets, load.dram_cores, float(limiter), dict(upstream_rows), float(kernel)
    )
    if rows is None:
        return None
    return place_rows(problem, first, last, {op: rows[op] for op in range(first, last)})
