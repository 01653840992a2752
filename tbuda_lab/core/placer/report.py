"""What a placement costs and how far it is from what no placement can beat (place-and-route 11.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import limiter_name, limits
from tbuda_lab.core.balancer.types import EpochReport, PlacementReport
from tbuda_lab.core.placer.bounds import bounds
from tbuda_lab.core.placer.problem import Problem
from tbuda_lab.core.placer.segment import Segment, measure


def report(problem: Problem, segments: Sequence[Segment], policy: str, blocked: Sequence[str]) -> PlacementReport:
    """Cycles of every epoch and op, and the lower bounds. `blocked[i]`: why epoch i ends where it does."""
    epochs: list[EpochReport] = []
    ops: dict[str, tuple[int, int, str]] = {}
    for index, segment in enumerate(segments):
        rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
        kernel, limiter, load = measure(problem, segment.first, segment.last, rows)
        work = cores = 0
        worst_kernel = worst_limiter = segment.first
        for op, row in rows.items():
            where, output = problem.places(op, segment.first, segment.last)
            table = problem.tables[op].rows[row : row + 1]
            column = limits(
                problem.profiles[op], table, problem.device, where, output, load, problem.options.microbatch
            )[:, 0]
            slowest = int(column.argmax())
            ops[problem.order[op]] = (
                int(column[0]),
                int(np.ceil(column[slowest])),
                limiter_name(slowest, where, output),
            )
            work += int(column[0]) * int(table["cores"][0])
            cores += int(table["cores"][0])
            if int(column[0]) > ops[problem.order[worst_kernel]][0]:
                worst_kernel = op
            if ops[problem.order[op]][1] > ops[problem.order[worst_limiter]][1]:
                worst_limiter = op
        epochs.append(
            EpochReport(
                index,
                len(rows),
                cores,
                kernel,
                limiter,
                problem.order[worst_kernel],
                problem.order[worst_limiter],
                ops[problem.order[worst_limiter]][2],
                load.dram_cores,
                work / max(1, limiter * problem.cores),
                blocked[index],
            )
        )
    return PlacementReport(policy, tuple(epochs), bounds(problem, epochs), ops)


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
        said = refusals.get((segment.first, segment.last + 1))
        texts.append(said or f"with {name} the epoch would cost more than a new one")
    return texts
