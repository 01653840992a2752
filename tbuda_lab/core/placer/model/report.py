"""What a placement costs, epoch by epoch and op by op.

Why the op that sets the pace of an epoch is not on more cores: each possible reason looked at in turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.balancer.bandwidth import limiter_name, limits, spoken
from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.balancer.types import Bounds, EpochReport, PlacementReport
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility, refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure, place_rows


@dataclasses.dataclass(frozen=True)
class EpochCost:
    """What an epoch costs, whatever its number: see `EpochReport`. ops: op -> (kernel cycles, limiter cycles, what
    limits it)."""

    cores: int
    kernel_cycles: int
    limiter_cycles: int
    kernel_op: str
    limiter_op: str
    dram_cores: int
    balance: float
    no_larger: str
    larger: tuple[int, int] | None
    ops: dict[str, tuple[int, int, str]]


class _RefusedEdge(NamedTuple):
    """Why two ops do not go together; both are counted from the first op of their epoch."""

    producer: int
    reader: int
    reason: EdgeReason


@dataclasses.dataclass(frozen=True)
class _Figures:
    """`EpochCost` without the names of ops, which are counted from the first of the epoch: it holds for equal
    epochs."""

    cores: int
    kernel_cycles: int
    limiter_cycles: int
    kernel_op: int
    limiter_op: int
    dram_cores: int
    balance: float
    no_larger: str | _RefusedEdge
    larger: tuple[int, int] | None
    ops: tuple[tuple[int, int, str], ...]


def epoch_cost(problem: Problem, segment: Segment) -> EpochCost:
    """Cycles of an epoch and its ops: worked out once for equal epochs."""
    first, last = segment.first, segment.last
    key = ("figures of an epoch", problem.structure(first, last), segment.rows)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, _Figures):
        entry = problem.costs.answers[key] = _figures(problem, segment)
    names, why = problem.order[first:last], entry.no_larger
    if isinstance(why, _RefusedEdge):
        why = refusal_text(problem, first + why.producer, first + why.reader, why.reason)
    return EpochCost(
        entry.cores,
        entry.kernel_cycles,
        entry.limiter_cycles,
        names[entry.kernel_op],
        names[entry.limiter_op],
        entry.dram_cores,
        entry.balance,
        why,
        entry.larger,
        dict(zip(names, entry.ops, strict=True)),
    )


def _figures(problem: Problem, segment: Segment) -> _Figures:
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    kernel, limiter, load = measure(problem, first, last, rows)
    ops: list[tuple[int, int, str]] = []
    work = cores = 0
    for op, row in rows.items():
        where, output = problem.places(op, first, last)
        table = problem.tables[op].rows[row : row + 1]
        column = limits(problem.profiles[op], table, problem.device, where, output, load, problem.inputs(op))
        cycles = column[:, 0]
        slowest = int(cycles.argmax())
        ops.append((int(cycles[0]), int(np.ceil(cycles[slowest])), limiter_name(slowest, where, output)))
        work += int(cycles[0]) * int(table["cores"][0])
        cores += int(table["cores"][0])
    worst_kernel, worst_limiter = (max(range(len(ops)), key=lambda at: ops[at][column]) for column in (0, 1))
    why, larger = why_no_larger(problem, segment, first + worst_limiter)
    balance = work / max(1, limiter * problem.cores)
    return _Figures(
        cores, kernel, limiter, worst_kernel, worst_limiter, load.dram_cores, balance, why, larger, tuple(ops)
    )


def report(
    problem: Problem, epochs: Sequence[EpochCost], policy: str, blocked: Sequence[str], limits: Bounds
) -> PlacementReport:
    """Cycles of every epoch and op, beside lower bounds. `blocked[i]`: why epoch i ends where it does."""
    reports = tuple(
        EpochReport(
            index,
            len(epoch.ops),
            epoch.cores,
            epoch.kernel_cycles,
            epoch.limiter_cycles,
            epoch.kernel_op,
            epoch.limiter_op,
            epoch.ops[epoch.limiter_op][2],
            epoch.dram_cores,
            epoch.balance,
            blocked[index],
            epoch.no_larger,
            epoch.larger,
        )
        for index, epoch in enumerate(epochs)
    )
    reached = dataclasses.replace(
        limits,
        achieved_kernel=sum(e.kernel_cycles for e in epochs),
        achieved_limiter=sum(e.limiter_cycles for e in epochs),
    )
    return PlacementReport(policy, reports, reached, {op: cost for epoch in epochs for op, cost in epoch.ops.items()})


def blocked_reasons(problem: Problem, segments: Sequence[Segment], refusals: dict[tuple[int, int], str]) -> list[str]:
    """For each epoch, why the next op did not join it."""
    texts: list[str] = []
    for segment in segments:
        if segment.last == len(problem.order):
            texts.append("")
            continue
        name = problem.order[segment.last]
        if name in problem.breaks:
            texts.append(f"epoch break before {name}")
            continue
        entry = refusals.get((segment.first, segment.last + 1))
        texts.append(entry or f"with {name} the epoch would cost more than a new one")
    return texts


_TRIED = 24
"""Candidates whose edges and places are looked at, fewest cores first."""
_TRIED_PER_GRID = 3
"""Of them the fastest of each grid: ways to stream on the cores that the op has would leave no room for other grids."""


def _fewest_cores(rows: np.ndarray, fitting: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """The candidates among `fitting` to try, fewest cores first, then fastest. cycles: of every row of the table."""
    grids = rows["grid_r"][fitting].astype(np.int64) << 16 | rows["grid_c"][fitting].astype(np.int64)
    by_grid = np.lexsort((fitting, cycles[fitting], grids))
    begins = np.flatnonzero(np.r_[True, np.diff(grids[by_grid]) != 0])
    place = np.arange(len(fitting)) - np.repeat(begins, np.diff(np.r_[begins, len(fitting)]))
    fastest = fitting[by_grid[place < _TRIED_PER_GRID]]
    return fastest[np.lexsort((fastest, cycles[fastest], rows["cores"][fastest]))][:_TRIED]


def why_no_larger(problem: Problem, segment: Segment, op: int) -> tuple[str | _RefusedEdge, tuple[int, int] | None]:
    """(what keeps an op of an epoch from a candidate that is faster with all it reads and writes: that there is none,
    cores, edges, room, or that the epoch would be no faster for it; the shape where nothing does). op: its number."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    _, limiter, load = measure(problem, first, last, rows)
    where, output = problem.places(op, first, last)
    table = problem.tables[op]
    cycles = problem.row_limits(op, where, output, load)
    now = cycles[rows[op]]
    legal = problem.legal[table.signature]
    faster = legal[cycles[legal] < now]
    if not len(faster):
        here = limits(
            problem.profiles[op],
            table.rows[rows[op] : rows[op] + 1],
            problem.device,
            where,
            output,
            load,
            problem.inputs(op),
        )[:, 0]
        what = limiter_name(int(here.argmax()), where, output)
        none = "none of the candidates that its override leaves" if table.overridden else "no legal candidate"
        return f"{none} is faster: it is limited by its {spoken(what)}", None
    cores = table.rows["cores"][faster].astype(np.int64)
    own = int(table.rows["cores"][rows[op]])
    free = problem.cores - sum(int(problem.tables[o].rows["cores"][r]) for o, r in rows.items())
    if int(cores.min()) > own + free:
        return f"the next faster candidate takes {int(cores.min()) - own} cores more, {free} are free", None
    fitting = faster[cores <= own + free]
    order = _fewest_cores(table.rows, fitting, cycles)
    book = EdgeCompatibility(problem, first, last, {})
    book.rows = {o: r for o, r in rows.items() if o != op}
    joined = [int(row) for row in order if book.check(op, int(row))]
    if not joined:
        assert book.refusal is not None
        producer, reader, reason = book.refusal
        return _RefusedEdge(producer - first, reader - first, reason), None
    unplaced = 0
    for row in joined:
        placed = place_rows(problem, first, last, {**rows, op: row})
        if placed is None:
            unplaced += 1
        elif placed.limiter_cycles < limiter:
            grid = int(table.rows[row]["grid_r"]), int(table.rows[row]["grid_c"])
            return f"legal: {grid[0]}x{grid[1]} would make the epoch faster", grid
    if unplaced == len(joined):
        return f"{free} cores are free, but in no rectangle for a faster candidate", None
    return "the epoch would be no faster: its traffic, or another op, takes as long", None
