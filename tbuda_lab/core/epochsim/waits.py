"""What each step waited for: the constraint that decided when it could start."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.epochsim.eventgraph import EventGraph, WaitReason
from tbuda_lab.core.epochsim.solve import NEVER, Schedule

_CHUNK = 1 << 22


@dataclasses.dataclass(frozen=True)
class Waits:
    """(nodes, batch): cycles between an op's previous step (or the epoch's start) and this one, and the index of the
    constraint that decided, -1 where there was no wait. Of equal ones data goes before space."""

    cycles: np.ndarray
    cause: np.ndarray


def waits(graph: EventGraph, schedule: Schedule) -> Waits:
    """Which constraint each wait is due to."""
    start = schedule.start
    nodes, batch = start.shape
    done = start + graph.duration[:, None]
    before = np.zeros_like(start)
    before[1:] = done[:-1]
    first, last = graph.base[:-1], graph.base[1:] - 1
    before[first, 1:] = done[last, :-1]
    before[first, 0] = 0
    cycles = start - before
    cause = np.full((nodes, batch), -1, dtype=np.int32)
    other = np.flatnonzero(graph.why != WaitReason.OWN)
    other = other[np.lexsort((graph.why[other], graph.target[other]))]
    target = graph.target[other]
    bounds = np.flatnonzero(np.diff(target, prepend=-1))
    wide = max(1, _CHUNK // max(1, len(other)))
    rank = np.arange(len(other), 0, -1, dtype=np.int32)[:, None]
    for low in range(0, batch, wide):
        inputs = np.arange(low, min(batch, low + wide))
        from_ = inputs[None, :] - graph.lag[other][:, None]
        real = from_ >= 0
        source = graph.source[other][:, None]
        outside = source == nodes
        value = np.where(
            outside, 0, start[np.minimum(source, nodes - 1), np.maximum(from_, 0)]
        ) + graph.weight[other][:, None]
        value = np.where(real, value, NEVER)
        met = (value == start[target][:, inputs]) * rank
        best = np.maximum.reduceat(met, bounds, axis=0)
        result = np.where(best > 0, other[np.minimum(len(other) - best, len(other) - 1)], -1)
        cause[np.ix_(target[bounds], inputs)] = result
    return Waits(cycles, np.where(cycles > 0, cause, -1).astype(np.int32))
