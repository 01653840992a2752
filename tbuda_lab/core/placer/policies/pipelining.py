"""Rows for all ops of an epoch at once with which its first input is through sooner.

An op that streams hands on parts of an input, and the op behind it begins with them; but both have to stream alike, so
no op changes alone (`spare_cores` changes one at a time). Here rows are chosen op by op in the order of the schedule,
and the best few beginnings are kept (a beam): least is the longest way of the first input so far, with a price for
every core. Beginnings that stream differently at their last op are kept beside each other, because what comes next may
go with one of them alone. The simulator of epochs decides whether the result is better.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import Load
from tbuda_lab.core.epochsim.constants import EpochConstants
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure, place_rows
from tbuda_lab.core.placer.policies.spare_cores import first_results
from tbuda_lab.core.placer.stalls.epoch_throughput import flow

_WIDTH = 10
"""Beginnings that are kept."""
_ALIKE = 2
"""Of these, at most so many whose last op streams alike."""
_CHECKS = 60
"""Beginnings of one more op whose edges are looked at."""
_PER_STREAMING = 3
_ROWS = 40
"""Rows of an op that are tried: of each streaming the best few, and no more than so many."""
_PRICES = (1.0, 0.5, 0.2, 3.0)
_FILLED = 0.02
"""Part of an epoch's time from which on what filling and waiting cost is worth a look."""
_WORTH = 0.995
_CONSTANTS = EpochConstants()
_HOP, _READY = _CONSTANTS.noc_latency, _CONSTANTS.dram_latency


@dataclasses.dataclass(frozen=True)
class PromisingRows:
    """Rows of one op that are tried, the cheapest first: cores, cycles, of them until the first tiles leave (`begun`),
    parts of each operand that have to be there by then (ports, rows), and the number of the streaming."""

    row: np.ndarray
    cores: np.ndarray
    cycles: np.ndarray
    begun: np.ndarray
    needs: np.ndarray
    streaming: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Beginning:
    """Rows of the first ops of an epoch. at: which of the rows tried each has; depth: when its first tiles leave;
    end: when the first input is through all of them; cores: what they take together."""

    rows: dict[int, int]
    at: tuple[int, ...]
    depth: tuple[float, ...]
    end: float
    cores: int


def pipelined(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int]) -> Segment:
    """The epoch with the rows that make a batch of it shortest; the epoch as it is where none do."""
    if segment.last - segment.first < 2:
        return segment
    best, was = segment, flow(problem, segment, problem.overrides)
    if was.roomy <= (1 + _FILLED) * problem.options.inputs_counted * segment.limiter_cycles:
        return segment
    limit, kernel = segment.limiter_cycles, segment.kernel_cycles
    for price in _PRICES:
        made = proposal(problem, segment, upstream_rows, limit, max(limit, kernel), price)
        if made is None:
            continue
        now = flow(problem, made, problem.overrides)
        if (now.deadlocks, now.roomy) < (was.deadlocks, _WORTH * was.roomy):
            best, was = made, now
    return best


def proposal(
    problem: Problem,
    segment: Segment,
    upstream_rows: Mapping[int, int],
    limit: float,
    kernel: float,
    price: float,
    drawn: random.Random | None = None,
) -> Segment | None:
    """A placed epoch of the same ops, of which no op takes longer than `limit`, no kernel than `kernel`, with a short
    way of the first input through it; None where none is found. price: what a core costs (1: the limit times the root
    of the number of ops, shared by all cores). drawn: where choices are to be disturbed."""
    first, last = segment.first, segment.last
    now = dict(zip(range(first, last), segment.rows, strict=True))
    load = measure(problem, first, last, now)[2]
    per_core = price * limit * math.sqrt(last - first) / problem.cores
    tried: dict[int, PromisingRows] = {}
    for op in now:
        rows = promising_rows(problem, op, first, last, now[op], load, limit, kernel, per_core)
        if rows is None:
            return None
        tried[op] = rows
    beginnings = [_Beginning({}, (), (), 0.0, 0)]
    for op in range(first, last):
        beginnings = _longer(problem, op, first, last, beginnings, tried, upstream_rows, per_core, drawn)
        if not beginnings:
            return None
    for one in beginnings:
        if one.rows == now:
            continue
        made = place_rows(problem, first, last, one.rows)
        if made is not None and made.limiter_cycles <= limit and made.kernel_cycles <= kernel:
            return made
    return None


def promising_rows(
    problem: Problem, op: int, first: int, last: int, now: int, load: Load, limit: float, kernel: float, per_core: float
) -> PromisingRows | None:
    """Of the legal rows within the limits, with what the op preloads now and no more cores on DRAM, those of each
    streaming that begin first, a core counted as `per_core` cycles; None where there is none."""
    where, output = problem.places(op, first, last)
    table = problem.tables[op]
    legal = problem.legal[table.signature]
    cycles = problem.row_limits(op, where, output, load)[legal]
    dram = problem.dram_cores(op, where, output)
    keep = (np.ceil(cycles) <= limit) & (table.rows["cycles"][legal] <= kernel)
    keep &= table.rows["prologue"][legal] == table.rows["prologue"][now]
    keep &= dram[legal] <= dram[now]
    keep &= table.rows["t"][legal] <= _CONSTANTS.max_steps  # steps of the simulator are no coarser than its blocks
    keep |= (legal == now) & (np.ceil(cycles) <= limit)
    at = np.flatnonzero(keep)
    if not len(at):
        return None
    results = first_results(problem, op)
    rows, cycles = legal[at], cycles[at]
    cores = table.rows["cores"][rows].astype(np.int64)
    begun = cycles * results.first[at]
    needs = np.stack([n[at] for n in results.needs]) if results.needs else np.zeros((1, len(at)))
    data = table.rows[rows]
    columns = np.stack([data["stream_r"], data["stream_c"], data["stream"] == "rz"]).astype(np.int64)
    streaming = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
    score = begun + 0.1 * cycles + 0.3 * limit * needs.max(axis=0) + per_core * cores
    score = score + np.where(table.rows["buf_size_mb"][rows] == 1, 0.2 * limit, 0.0)  # op and reader take turns
    order = np.lexsort((rows, score))
    rank = np.zeros(len(order), dtype=np.int64)  # of each row among those that stream alike
    for kind in np.unique(streaming):
        mine = order[streaming[order] == kind]
        rank[mine] = np.arange(len(mine))
    chosen = order[(rank[order] < _PER_STREAMING) | (rows[order] == now)][:_ROWS]
    return PromisingRows(
        rows[chosen], cores[chosen], cycles[chosen], begun[chosen], needs[:, chosen], streaming[chosen]
    )


def _longer(
    problem: Problem,
    op: int,
    first: int,
    last: int,
    beginnings: Sequence[_Beginning],
    tried: Mapping[int, PromisingRows],
    upstream_rows: Mapping[int, int],
    per_core: float,
    drawn: random.Random | None,
) -> list[_Beginning]:
    """The best beginnings with one op more."""
    mine = tried[op]
    feeds = [(port, p) for port, p in enumerate(problem.facts[op].producers) if first <= p < last]
    depths, ends, scores = [], [], []
    left = problem.cores - sum(int(tried[later].cores.min()) for later in range(op + 1, last))
    for one in beginnings:
        depth = _READY + mine.begun
        for port, p in feeds:
            came = mine.needs[port] * float(tried[p].cycles[one.at[p - first]])
            depth = np.maximum(depth, one.depth[p - first] + np.maximum(came, mine.begun) + _HOP)
        end = np.maximum(one.end, depth + mine.cycles - mine.begun)
        cores = one.cores + mine.cores
        # the op's own way is what comes next; the end alone would not tell two of them apart
        score = 0.5 * (depth + end) + per_core * cores
        depths.append(depth)
        ends.append(end)
        scores.append(np.where(cores <= left, score, np.inf))
    flat = np.concatenate(scores)
    if drawn is not None:
        flat = flat * np.array([drawn.lognormvariate(0.0, 0.02) for _ in range(len(flat))])
    result: list[_Beginning] = []
    alike: dict[int, int] = {}
    seen: set[tuple[float, float, int, int]] = set()
    checks = 0
    count = len(mine.row)
    for index in np.argsort(flat, kind="stable").tolist():
        if not math.isfinite(flat[index]) or len(result) == _WIDTH or checks == _CHECKS * (1 + (not result) * 3):
            break
        which, at = divmod(index, count)
        one, kind = beginnings[which], int(mine.streaming[at])
        same = float(depths[which][at]), float(ends[which][at]), one.cores + int(mine.cores[at]), kind
        if alike.get(kind, 0) >= _ALIKE or same in seen:
            continue
        book = EdgeCompatibility(problem, first, last, upstream_rows)
        book.rows = one.rows
        checks += 1
        if not book.check(op, int(mine.row[at])):
            continue
        alike[kind] = alike.get(kind, 0) + 1
        seen.add(same)
        result.append(
            _Beginning({**one.rows, op: int(mine.row[at])}, (*one.at, at), (*one.depth, same[0]), same[1], same[2])
        )
    return result
