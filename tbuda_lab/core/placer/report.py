"""What a placement costs, epoch by epoch and op by op."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import limiter_name, limits
from tbuda_lab.core.balancer.types import Bounds, EpochReport, PlacementReport
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure
from tbuda_lab.core.placer.search.bottleneck import why_no_larger


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
    ops: dict[str, tuple[int, int, str]]


def epoch_cost(problem: Problem, segment: Segment) -> EpochCost:
    """Cycles of an epoch and its ops."""
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    kernel, limiter, load = measure(problem, segment.first, segment.last, rows)
    ops: dict[str, tuple[int, int, str]] = {}
    work = cores = 0
    worst_kernel = worst_limiter = segment.first
    for op, row in rows.items():
        where, output = problem.places(op, segment.first, segment.last)
        table = problem.tables[op].rows[row : row + 1]
        batch = problem.options.inputs_counted
        column = limits(problem.profiles[op], table, problem.device, where, output, load, batch)
        cycles = column[:, 0]
        slowest = int(cycles.argmax())
        ops[problem.order[op]] = (int(cycles[0]), int(np.ceil(cycles[slowest])), limiter_name(slowest, where, output))
        work += int(cycles[0]) * int(table["cores"][0])
        cores += int(table["cores"][0])
        if int(cycles[0]) > ops[problem.order[worst_kernel]][0]:
            worst_kernel = op
        if ops[problem.order[op]][1] > ops[problem.order[worst_limiter]][1]:
            worst_limiter = op
    return EpochCost(
        cores,
        kernel,
        limiter,
        problem.order[worst_kernel],
        problem.order[worst_limiter],
        load.dram_cores,
        work / max(1, limiter * problem.cores),
        why_no_larger(problem, segment, worst_limiter),
        ops,
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
