"""Why an op stands as it does: its candidate against the next best, and what keeps it from a faster one."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.balancer.types import Reason
from tbuda_lab.core.placer import why as placer_why
from tbuda_lab.core.placer.interactive.placed import Placed
from tbuda_lab.core.placer.model.edge_compatibility import EdgeBook
from tbuda_lab.core.placer.model.segment import measure
from tbuda_lab.core.session.commands import ResizeOp
from tbuda_lab.core.session.legal import LegalTable

_ALTERNATIVES = 5


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A shape that was not chosen: its best candidate, what stands against it, and the edit that asks for it."""

    grid: tuple[int, int]
    cores: int
    cycles: int
    limiter_cycles: int
    epoch_cycles: int
    l1_bytes: int
    against: str
    command: ResizeOp


@dataclasses.dataclass(frozen=True)
class Reasons:
    """Cycles are per input. `refused`: (reason, candidates, meaning, remedy), most frequent first. `limiter_op` and
    `limiter`: what limits the op's epoch. `fused`: why it is one op with others, or why not; "" for an op that no other
    could be fused with."""

    op: str
    epoch: int
    grid: tuple[int, int]
    cycles: int
    limiter_cycles: int
    limited_by: str
    l1_bytes: int
    cores: int
    legal: int
    total: int
    refused: tuple[tuple[Reason, int, str, str], ...]
    next_best: tuple[Alternative, ...]
    limiter_op: str
    limiter: str
    epoch_cycles: int
    text: str
    fused: str = ""


def reasons_of(placed: Placed, op: str, table: LegalTable, fused: str = "") -> Reasons:
    """The answer for a placed op; `table` is that of `legal`, `fused` what there is to say about fusing it."""
    placement = placed.placement()
    problem = placed.problem
    message = placer_why(placement, op, problem.cores)
    assert placement.report is not None
    epoch = placement.report.epochs[placement.ops[op].epoch]
    row = placement.candidate(op)
    return Reasons(
        op,
        message.epoch,
        message.grid,
        message.kernel_cycles,
        message.limiter_cycles,
        message.limiter,
        int(row["l1_total"]),
        int(row["cores"]),
        message.legal,
        message.total,
        message.refused,
        _next_best(placed, op, table, message.limiter_cycles),
        epoch.limiter_op,
        epoch.limiter,
        epoch.limiter_cycles,
        message.text,
        fused,
    )


def _next_best(placed: Placed, op: str, table: LegalTable, now: int) -> tuple[Alternative, ...]:
    shapes = table.shapes
    legal = [s for s in table.legal if s != table.grid]
    legal.sort(key=lambda s: (float(shapes[s[0] - 1, s[1] - 1]["limiter_cycles"]), s[0] * s[1], s))
    next_best: list[Alternative] = []
    for r, c in legal[:_ALTERNATIVES]:
        shape = shapes[r - 1, c - 1]
        next_best.append(
            Alternative(
                (r, c),
                int(shape["cores"]),
                int(shape["cycles"]),
                int(shape["limiter_cycles"]),
                int(shape["epoch_cycles"]),
                int(shape["l1_bytes"]),
                _against(placed, op, table, (r, c), now),
                ResizeOp(op, (r, c)),
            )
        )
    return tuple(next_best)


def _against(placed: Placed, op: str, table: LegalTable, size: tuple[int, int], now: int) -> str:
    problem = placed.problem
    shape = table.shapes[size[0] - 1, size[1] - 1]
    segment = placed.segments[table.epoch]
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    number = problem.number[op]
    if float(shape["limiter_cycles"]) >= now:
        return "no faster"
    high, wide = table.shapes.shape
    turned = size[::-1] if size[1] <= high and size[0] <= wide else size  # of a tall shape none, on a grid not so wide
    if not (table.starts(*size) or table.starts(*turned)):
        free = problem.cores - sum(int(problem.tables[o].rows["cores"][r]) for o, r in rows.items() if o != number)
        return f"no free place of that size in the epoch ({free} cores without this op)"
    if table.candidates.signature == problem.tables[number].signature:
        book = EdgeBook(problem, segment.first, segment.last, {})
        book.rows = {o: r for o, r in rows.items() if o != number}
        if not book.check(number, int(shape["row"])) and book.refusal is not None:
            producer, reader, reason = book.refusal
            return f"{problem.order[producer]} -> {problem.order[reader]}: {reason.value}"
    before = measure(problem, segment.first, segment.last, rows)[1]
    if not np.isfinite(shape["epoch_cycles"]) or float(shape["epoch_cycles"]) >= before:
        return "the epoch would be no faster: another op limits it"
    return "nothing: it would make the epoch faster"
