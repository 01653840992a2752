"""Why the op that sets the pace of an epoch is not on more cores: each possible reason looked at in turn."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.balancer.bandwidth import limiter_name, limits, spoken
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility, refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure, place_rows

_TRIED = 24
"""Candidates whose edges and places are looked at, fewest cores first."""


def why_no_larger(problem: Problem, segment: Segment, op: int) -> str:
    """What keeps an op of an epoch from a candidate that is faster with all it reads and writes: that there is none,
    cores, edges, room, or that the epoch would be no faster for it. op: its number."""
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
            problem.options.inputs_counted,
        )[:, 0]
        what = limiter_name(int(here.argmax()), where, output)
        none = "none of the candidates that its override leaves" if table.held else "no legal candidate"
        return f"{none} is faster: it is limited by its {spoken(what)}"
    cores = table.rows["cores"][faster].astype(np.int64)
    own = int(table.rows["cores"][rows[op]])
    free = problem.cores - sum(int(problem.tables[o].rows["cores"][r]) for o, r in rows.items())
    if int(cores.min()) > own + free:
        return f"the next faster candidate takes {int(cores.min()) - own} cores more, {free} are free"
    fitting = faster[cores <= own + free]
    order = fitting[np.lexsort((fitting, cycles[fitting], table.rows["cores"][fitting]))][:_TRIED]
    book = EdgeCompatibility(problem, first, last, {})
    book.rows = {o: r for o, r in rows.items() if o != op}
    joined = [int(row) for row in order if book.check(op, int(row))]
    if not joined:
        assert book.refusal is not None
        producer, reader, reason = book.refusal
        return refusal_text(problem, producer, reader, reason)
    unplaced = 0
    for row in joined:
        placed = place_rows(problem, first, last, {**rows, op: row})
        if placed is None:
            unplaced += 1
        elif placed.limiter_cycles < limiter:
            grid = table.rows[row]
            return f"legal: {int(grid['grid_r'])}x{int(grid['grid_c'])} would make the epoch faster"
    if unplaced == len(joined):
        return f"{free} cores are free, but in no rectangle for a faster candidate"
    return "the epoch would be no faster: its traffic, or another op, takes as long"
