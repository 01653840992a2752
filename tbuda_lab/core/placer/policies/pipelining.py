"""Candidates for ops of an epoch that is chosen: rows for all ops at once with which its first input is through sooner,
and other ones at an edge whose full buffer holds the epoch up."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.policies.legal_rows import legal_rows, no_heavier
from tbuda_lab.core.placer.stalls.epoch_throughput import Throughput, full_edges, throughput, throughputs
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles

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
LIMITS_AND_PRICES = ((1.0, 0.1), (1.0, 0.7), (1.04, 0.4), (1.04, 1.5), (0.97, 1.0), (0.93, 3.0))
"""Of the slowest op of an epoch, how long one may take, and what a core costs."""
_FILLED = 0.02
"""Part of an epoch's time from which on what filling and waiting cost is worth a look."""
_WORTH = 0.995
_CONSTANTS = EpochConstants()
_HOP, _READY = _CONSTANTS.noc_latency, _CONSTANTS.dram_latency


@dataclasses.dataclass(frozen=True)
class PromisingRows:
    """Rows of one op that are tried, the cheapest first: cores, cycles, of them until the first tiles leave
    (`first_tiles`), parts of each operand that have to be there by then (ports, rows), and the number of the
    streaming."""

    row: np.ndarray
    cores: np.ndarray
    cycles: np.ndarray
    first_tiles: np.ndarray
    needs: np.ndarray
    streaming: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Beginnings:
    """Choices of rows for the first ops of an epoch, side by side. rows: by op; at: (choices, ops) which of the rows
    tried each has; depth: (choices, ops) when its first tiles leave; end: (choices,) when the first input is through
    all of them; cores: (choices,) what they take together."""

    rows: list[dict[int, int]]
    at: np.ndarray
    depth: np.ndarray
    end: np.ndarray
    cores: np.ndarray


def pipeline_epoch(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int]) -> Segment:
    """The epoch with the rows that make a batch of it shortest; the epoch as it is where none do."""
    if segment.last - segment.first < 2:
        return segment
    best, was = segment, throughput(problem, segment)
    if was.roomy <= (1 + _FILLED) * problem.inputs(segment.first) * segment.limiter_cycles:
        return segment
    limit, kernel = segment.limiter_cycles, segment.kernel_cycles
    proposals = [proposal(problem, segment, upstream_rows, limit, max(limit, kernel), price) for price in _PRICES]
    others = [p for p in proposals if p is not None]
    for other, now in zip(others, throughputs([(problem, p) for p in others]), strict=True):
        if (now.deadlocks, now.roomy) < (was.deadlocks, _WORTH * was.roomy):
            best, was = other, now
    return best


def streamed_anew(
    problem: Problem,
    segment: Segment,
    upstream_rows: Mapping[int, int],
    limits_and_prices: Sequence[tuple[float, float]] = LIMITS_AND_PRICES,
) -> Segment:
    """A priced epoch, or the best of those with rows chosen together for each of these limits (parts of its slowest op)
    and prices, as repairs will leave it. A lower limit may pay where the slowest op waits for others."""
    best = segment
    if segment.last - segment.first < 2 or segment.stall_cycles <= _FILLED * segment.limiter_cycles:
        return segment
    others = []
    for part, price in limits_and_prices:
        limit = part * segment.limiter_cycles
        other = proposal(problem, segment, upstream_rows, limit, limit, price)
        if other is not None and other.limiter_cycles < _WORTH * _interval(segment):
            others.append(other)
    throughputs([(problem, other) for other in others])  # side by side, before they are priced
    for other in others:
        if other.limiter_cycles >= _WORTH * _interval(best):
            continue
        other = with_stall_cycles(problem, other, upstream_rows)
        if _interval(other) < _WORTH * _interval(best):
            best = other
    return best


def _interval(segment: Segment) -> float:
    """Cycles from one input to the next, of a priced epoch."""
    return segment.limiter_cycles + segment.stall_cycles


def proposal(
    problem: Problem,
    segment: Segment,
    upstream_rows: Mapping[int, int],
    limit: float,
    kernel: float,
    price: float,
    drawn: random.Random | None = None,
) -> Segment | None:
    """The first of `proposals` for all ops of an epoch; None where there is none."""
    ops = range(segment.first, segment.last)
    return next(iter(proposals(problem, segment, upstream_rows, ops, limit, kernel, price, 1, drawn)), None)


def proposals(
    problem: Problem,
    segment: Segment,
    upstream_rows: Mapping[int, int],
    ops: range,
    limit: float,
    kernel: float,
    price: float,
    most: int,
    drawn: random.Random | None = None,
) -> list[Segment]:
    """Placed epochs with other rows for some of the ops, of which no op takes longer than `limit`, no kernel than
    `kernel`, with a short way of the first input through the epoch: at most so many, the shortest first. price: what a
    core costs (1: the limit times the root of the number of ops, shared by all cores). drawn: where choices are to be
    disturbed."""
    first, last = segment.first, segment.last
    now = dict(zip(range(first, last), segment.rows, strict=True))
    load = measure(problem, first, last, now)[2]
    per_core = price * limit * math.sqrt(last - first) / problem.cores
    tried: dict[int, PromisingRows] = {}
    of_equals: dict[tuple[object, ...], PromisingRows | None] = {}
    for op in now:
        equals = problem.tables[op].signature, problem.orders[problem.order[op]], problem.places(op, first, last)
        key = (*equals, now[op], op in ops)
        if key not in of_equals:
            if op in ops:
                rows = promising_rows(problem, op, first, last, now[op], load, limit, kernel, per_core)
            else:
                rows = _row_as_it_is(problem, op, first, last, now[op], load, limit)
            of_equals[key] = rows
        rows = of_equals[key]
        if rows is None:
            return []
        tried[op] = rows
    none = np.zeros((1, 0))
    beginnings = _Beginnings([{}], none.astype(np.int64), none, np.zeros(1), np.zeros(1, dtype=np.int64))
    fewest = [int(tried[op].cores.min()) for op in range(first, last)]
    left = problem.cores - sum(fewest)
    book = EdgeCompatibility(problem, first, last, upstream_rows)
    for op in range(first, last):
        left += fewest[op - first]  # of which all later ops take the fewest that they can
        beginnings = _longer(book, op, beginnings, tried, per_core, drawn, left)
        if not beginnings.rows:
            return []
    result: list[Segment] = []
    for chosen in beginnings.rows:
        if chosen == now:
            continue
        placed = place_rows(problem, first, last, chosen)
        if placed is not None and placed.limiter_cycles <= limit and placed.kernel_cycles <= kernel:
            result.append(placed)
            if len(result) == most:
                break
    return result


def _row_as_it_is(
    problem: Problem, op: int, first: int, last: int, row: int, load: EpochLoad, limit: float
) -> PromisingRows | None:
    """The one row of an op that stays as it is; None where it takes longer than the limit."""
    cycles = problem.row_limits(op, *problem.places(op, first, last), load)[row : row + 1]
    if math.ceil(cycles[0]) > limit:
        return None
    rows = legal_rows(problem, op)
    at = [rows.at(row)]
    first_tiles = cycles * rows.first[at]
    return PromisingRows(
        np.array([row]), rows.cores[at], cycles, first_tiles, rows.needs[:, at], np.zeros(1, dtype=np.int64)
    )


def promising_rows(
    problem: Problem,
    op: int,
    first: int,
    last: int,
    now: int,
    load: EpochLoad,
    limit: float,
    kernel: float,
    per_core: float,
) -> PromisingRows | None:
    """Of the legal rows within the limits, with what the op preloads now and no more cores on DRAM, those of each
    streaming that begin first, a core counted as `per_core` cycles; None where there is none."""
    where, output = problem.places(op, first, last)
    rows = legal_rows(problem, op)
    cycles = problem.row_limits(op, where, output, load)[rows.number]
    keep = no_heavier(problem, op, where, output, now) & rows.simulated & (rows.kernel <= kernel)
    keep |= rows.number == now
    keep &= cycles <= np.floor(limit)
    at = np.flatnonzero(keep)
    if not len(at):
        return None
    cycles, cores = cycles[at], rows.cores[at]
    begun = cycles * rows.first[at]
    score = begun + 0.1 * cycles + 0.3 * limit * rows.most[at] + per_core * cores
    score = score + np.where(rows.in_turns[at], 0.2 * limit, 0.0)
    order = np.argsort(score, kind="stable")
    streaming = rows.streaming[at]
    alike = np.argsort(streaming[order], kind="stable")  # those that stream alike, the best first
    kind = streaming[order[alike]]
    begins = np.flatnonzero(np.diff(kind, prepend=-1))
    rank = np.arange(len(kind)) - begins.repeat(np.diff(begins, append=len(kind)))
    best = np.zeros(len(order), dtype=bool)
    best[alike[rank < _PER_STREAMING]] = True
    best |= rows.number[at[order]] == now
    chosen = order[best][:_ROWS]
    at = at[chosen]
    return PromisingRows(
        rows.number[at], cores[chosen], cycles[chosen], begun[chosen], rows.needs[:, at], streaming[chosen]
    )


def _longer(
    book: EdgeCompatibility,
    op: int,
    beginnings: _Beginnings,
    tried: Mapping[int, PromisingRows],
    per_core: float,
    drawn: random.Random | None,
    left: int,
) -> _Beginnings:
    """The best beginnings with one op more, with no more cores than `left`."""
    mine, first, last = tried[op], book.first, book.last
    # (beginnings, rows of the op) each
    depths = np.repeat((_READY + mine.first_tiles)[None], len(beginnings.rows), axis=0)
    for port, p in enumerate(book.problem.facts[op].producers):
        if not first <= p < last:
            continue
        took = tried[p].cycles[beginnings.at[:, p - first]]
        came = np.maximum(mine.needs[port] * took[:, None], mine.first_tiles)
        np.maximum(depths, beginnings.depth[:, p - first, None] + came + _HOP, out=depths)
    ends = np.maximum(beginnings.end[:, None], depths + mine.cycles - mine.first_tiles)
    cores = beginnings.cores[:, None] + mine.cores
    # the op's own way is what comes next; the end alone would not tell two of them apart
    flat = np.where(cores <= left, 0.5 * (depths + ends) + per_core * cores, np.inf).reshape(-1)
    if drawn is not None:
        flat = flat * np.array([drawn.lognormvariate(0.0, 0.02) for _ in range(len(flat))])
    rows, streaming = mine.row.tolist(), mine.streaming.tolist()
    chosen: list[int] = []
    result: list[dict[int, int]] = []
    alike: dict[int, int] = {}
    seen: set[tuple[float, float, int, int]] = set()
    checks, count = 0, len(rows)
    for index in np.argsort(flat, kind="stable").tolist():
        if not math.isfinite(flat[index]) or len(result) == _WIDTH or checks == _CHECKS * (1 + (not result) * 3):
            break
        which, at = divmod(index, count)
        kind = streaming[at]
        if count > 1 and alike.get(kind, 0) >= _ALIKE:
            continue
        same = depths.item(index), ends.item(index), cores.item(index), kind
        if same in seen:
            continue
        book.rows = beginnings.rows[which]
        checks += 1
        if not book.check(op, rows[at]):
            continue
        alike[kind] = alike.get(kind, 0) + 1
        seen.add(same)
        chosen.append(index)
        result.append({**book.rows, op: rows[at]})
    which, at = np.divmod(np.array(chosen, dtype=np.int64), count)
    return _Beginnings(
        result,
        np.column_stack([beginnings.at[which], at]),
        np.column_stack([beginnings.depth[which], depths[which, at]]),
        ends[which, at],
        cores[which, at],
    )


_FLOWS = 1.02
"""Part of its slowest op that an input may take in an epoch that flows."""
_WORTH_ANOTHER_SHAPE = 0.995
_ROUNDS = 6
_EDGES = 3
_TRIES = 10
"""Candidates of one op that are simulated in a round."""


def without_full_buffers(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int]) -> Segment:
    """The epoch with other candidates at the edges that hold it up, one op after the other, as long as a batch gets
    shorter; the epoch as it is where it flows or none helps. No op becomes slower than the slowest was. A single input
    has no pace that a buffer could hold up."""
    if problem.inputs(segment.first) < 2:
        return segment
    now = throughput(problem, segment)
    for _ in range(_ROUNDS):
        if not now.deadlocked and now.period <= _FLOWS * segment.limiter_cycles:
            break
        better = _better(problem, segment, upstream_rows, now)
        if better is None:
            break
        segment, now = better
    return segment


def _better(
    problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], now: Throughput
) -> tuple[Segment, Throughput] | None:
    """The best other candidate of the first op for which one helps."""
    held_up = full_edges(problem, segment)
    nearby = dict.fromkeys(segment.first + end for edge in held_up[:_EDGES] for end in edge[:2])
    for op in nearby:
        best, least = None, (now.deadlocks, _WORTH_ANOTHER_SHAPE * now.roomy)
        options = list(_others(problem, segment, upstream_rows, op))
        ends = throughputs([(problem, option) for option in options])
        for option, then in zip(options, ends, strict=True):
            if (then.deadlocks, then.roomy) < least:
                best, least = (option, then), (then.deadlocks, then.roomy)
        if best is not None:
            return best
    return None


def _others(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], op: int) -> Iterator[Segment]:
    """The epoch with each of the first few other candidates of an op that edges and packing allow."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    load = measure(problem, first, last, rows)[2]
    limit, kernel = segment.limiter_cycles, max(segment.limiter_cycles, segment.kernel_cycles)
    tried = promising_rows(problem, op, first, last, rows[op], load, limit, kernel, limit / problem.cores)
    if tried is None:
        return
    free = problem.cores - sum(int(problem.tables[other].rows["cores"][row]) for other, row in rows.items())
    most = free + int(problem.tables[op].rows["cores"][rows[op]])
    book = EdgeCompatibility(problem, first, last, upstream_rows)
    book.rows = {other: row for other, row in rows.items() if other != op}
    count = 0
    for row, cores in zip(tried.row.tolist(), tried.cores.tolist(), strict=True):
        if row == rows[op] or cores > most or not book.check(op, row):
            continue
        placed = place_rows(problem, first, last, {**rows, op: row})
        if placed is None or placed.limiter_cycles > limit:
            continue
        yield placed
        count += 1
        if count == _TRIES:
            return


def flowing_epochs(problem: Problem, segments: Sequence[Segment], streams: bool = True) -> tuple[Segment, ...]:
    """Repaired epochs, those that are held up all the same with other candidates at their full buffers, or with rows
    that stream together beside the ops that repairs inserted, where every later epoch can still read what they write.
    Their stall cycles are those of a batch without further repairs. streams: whether the latter is tried."""
    streams = streams and problem.options.inputs_counted > 1
    result = list(segments)
    upstream_rows: dict[int, int] = {}
    done: dict[tuple[object, ...], Segment] = {}
    for index, segment in enumerate(segments):
        first, last = segment.first, segment.last
        key = problem.structure(first, last), segment.rows
        if key not in done:
            freed = without_full_buffers(problem, segment, upstream_rows)
            if streams:
                freed = streamed_anew(problem, with_stall_cycles(problem, freed, upstream_rows), upstream_rows)
            done[key] = freed
        other = dataclasses.replace(done[key], first=first, last=last)
        if other.rows != segment.rows:
            trial = [*result[:index], other, *result[index + 1 :]]
            if all(_legal(problem, trial, at) for at in range(index, len(trial))):
                result = trial
        upstream_rows.update(zip(range(first, last), result[index].rows, strict=True))
    return tuple(result)


def _legal(problem: Problem, segments: Sequence[Segment], index: int) -> bool:
    """Whether an epoch's candidates go together, and with what it reads of the epochs before."""
    segment = segments[index]
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    before = {op: row for s in segments[:index] for op, row in zip(range(s.first, s.last), s.rows, strict=True)}
    return choose_rows(problem, segment.first, segment.last, rows, 0, 0.0, before)[0] == rows
