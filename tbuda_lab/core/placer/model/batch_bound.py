"""What the time of a batch cannot be below: the slowest op of every epoch, and the way of the first and the last input.

Source of what an op does when: placement.md#firings; what is bounded is what the simulator of epochs counts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from collections.abc import Callable

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, dram_rate
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul, HwSplice
from tbuda_lab.core.placer.model.bounds import least_rest, least_runs, relaxed_runs
from tbuda_lab.core.placer.model.filling_bound import FillingBound
from tbuda_lab.core.placer.model.op_parts import first_part, last_part, reads_all, reads_at_once
from tbuda_lab.core.placer.model.problem import Problem

_PRICES = np.concatenate([[0.0], np.geomspace(1.0, 1e5, 16)])
"""Cycles that a core may cost in the bound of the first input's way; each gives a bound, the largest counts."""
_CONSTANTS = EpochConstants()
_HOP, _READY = _CONSTANTS.noc_latency, _CONSTANTS.dram_latency
_LIMITS = np.array([*np.linspace(1.0, 1.1, 21), *np.linspace(1.12, 1.5, 20), np.inf])
"""Of what a run's slowest op takes at least: a slower one lets all ops be smaller, which leaves cores for the way of
the first input. Between two of these the lower one counts for the slowest op, the upper one for what is allowed."""
_FIRST_GUESS, _STEP, _NEAR = 1.05, 1.005, 1.004
"""What filling may make a run take more; by how much more it is asked for if that is not enough; and how near what is
too little and what may do are to be. Runs that begin at most `_NEIGHBOURS` ops apart take about as much more."""
_NEIGHBOURS = 3
_MOST_FILLED = 1.25
"""Of the slowest run on the best path, what no run is thought to take more than."""
_MOST_OPS = 4000
"""Ops of all runs that are looked at for that."""
_LOOKED_AT, _MOST_LOOKED_AT = 16, 256
"""Runs that are bounded by both at once: those on the best path, as long as there are others on it; at most so many for
each input of the batch, and in all. For one input more of them cost seconds and hardly move the bound."""


@dataclasses.dataclass(frozen=True)
class _OpLeast:
    """Of one op, over all its legal rows. (prices,) each: cores: what its cores cost at least; first, whole: cycles
    until its first tiles leave and of all its work, with what cores cost on top of the least. dram: cycles in which all
    of DRAM brings its parameters, and what it reads of the graph's inputs there, once."""

    cores: np.ndarray
    first: np.ndarray
    whole: np.ndarray
    dram: float


@dataclasses.dataclass(frozen=True)
class _OpWithin:
    """The same for every limit of an op's cycles. cycles: (rows,) of its kernel, sorted; the others (prices, rows):
    the least over the rows up to there. last: cycles from when the last tiles of its operands are there until it is
    done."""

    cycles: np.ndarray
    cores: np.ndarray
    first: np.ndarray
    whole: np.ndarray
    last: np.ndarray


def time_bound(problem: Problem) -> float:
    """Cycles per input below which no placement of this schedule stays, switches of epochs included. Worked out once.

    An epoch of a batch of B takes at least the longest of three things. What all of DRAM needs for every byte that has
    to be read once: parameters, preloaded or streamed, and inputs of the graph. The way of the first input: an op
    begins with the first tiles of those that it reads, and the last one does all of its work. And the way of the first
    input to the slowest op and of the last input from there, with B - 1 times that op in between, which is no faster
    than if rectangles and loads of DRAM were liquid. Along a way an op is not done before the one it reads is, and what
    it does with the last tiles comes on top; a picker goes through all kernel positions that need them. There a core
    has a price (a Lagrange multiplier): all ops together have the cores of the device, and the longest way is no
    shorter than the sum of what its ops take, each with the row that is best at that price, of those that are no slower
    than the slowest op. The dynamic programme over cuts adds the epochs up. Rows that edges refuse together, and
    buffers, are left out. Where the schedule has pickers `FillingBound` takes the place of the third thing.
    """
    entry = _known.get(problem)
    if entry is None:
        entry = _known[problem] = _time_bound(problem)
    return entry


_known: weakref.WeakKeyDictionary[Problem, float] = weakref.WeakKeyDictionary()


def _time_bound(problem: Problem) -> float:
    options = problem.options
    if not options.counts_fill:
        return float(least_times_from(problem)[0])
    runs, switch = least_runs(problem), options.epoch_switch_cycles / options.inputs_counted
    takes = [taken.copy() for taken in _least_takes(problem)]
    ways = Ways(problem)
    known: dict[tuple[int, ...], float] = {}
    done: set[tuple[int, int]] = set()
    fills = options.inputs_counted > 1 and any(isinstance(p.op, HwSparseMatmul) for p in problem.profiles)
    most = 0 if fills else min(_LOOKED_AT * options.inputs_counted, _MOST_LOOKED_AT)
    while True:
        bound, path = _cheapest(runs, takes, switch)
        todo = [run for run in path if run not in done]
        if not todo or len(known) >= most:
            return _filling_bound(problem, takes, path) if fills and path else bound
        for first, at in todo:
            last = first + int(runs[first][0][at])
            alike = problem.structure(first, last)
            if alike not in known:
                least = ways.least(first, last, float(runs[first][1][at]))
                known[alike] = problem.share(first) * least / problem.inputs(first)
            takes[first][at] = max(takes[first][at], known[alike])
            done.add((first, at))


def _filling_bound(problem: Problem, takes: list[np.ndarray], path: list[tuple[int, int]]) -> float:
    """The bound when runs on the best path take as much more as `FillingBound` says, as long as there are runs on it of
    which that is not known, and as many ops are looked at as is worth it. takes: see `_least_takes`; path: the best one
    so far. takes is changed."""
    runs, relaxed = least_runs(problem), relaxed_runs(problem)
    switch = problem.options.epoch_switch_cycles / problem.options.inputs_counted
    shares = [problem.share(op) / problem.inputs(op) for op in range(len(runs))]
    filling = FillingBound(problem, _MOST_FILLED * max(takes[first][at] / problem.share(first) for first, at in path))
    known: dict[tuple[object, ...], _FillingCycles] = {}
    more = np.full(len(runs) + 1, _FIRST_GUESS)  # by first op, what runs from near there were found to take more
    looked_at = 0
    while looked_at < _MOST_OPS:
        _, path = _cheapest(runs, takes, switch)
        settled = True
        for first, at in path:
            last = first + int(runs[first][0][at])
            alike = problem.structure(first, last)
            run = known.get(alike)
            if run is None:
                slowest = relaxed.least(first, last, float(runs[first][1][at]))
                quick = max(takes[first][at] / shares[first], problem.inputs(first) * slowest)
                run = known[alike] = _FillingCycles(quick)
            if run.most > _NEAR * run.least:
                settled, looked_at = False, looked_at + last - first
                run.ask(float(more[first]), functools.partial(filling.excludes, first, last))
                if run.most <= _NEAR * run.least:
                    more[max(0, first - _NEIGHBOURS) : first + _NEIGHBOURS] = run.least / run.quick
            takes[first][at] = max(takes[first][at], shares[first] * run.least)
        if settled:
            break
    return _cheapest(runs, takes, switch)[0]


class _FillingCycles:
    """Cycles of a batch of a run: quick: without what filling costs; least: are not enough; most: may be."""

    def __init__(self, quick: float) -> None:
        self.quick = self.least = quick
        self.most = math.inf

    def ask(self, guess: float, excludes: Callable[[float], bool]) -> None:
        """Brings one of both nearer. guess: what it may take over `quick`."""
        cycles = math.sqrt(self.least * self.most) if self.most < math.inf else self.quick * guess
        if self.most == math.inf and cycles <= self.least:
            cycles = self.least * _STEP
        if excludes(cycles):
            self.least = cycles
        else:
            self.most = cycles


def least_times_from(problem: Problem) -> np.ndarray:
    """(ops + 1,) cycles per input that all ops from each on take at least: the first two things of `time_bound`, and
    the slowest op of every epoch. Infinite where the ops fit no epochs. Worked out once."""
    options = problem.options
    switch = options.epoch_switch_cycles / options.inputs_counted
    if not options.counts_fill:
        return least_rest(problem, switch)
    entry = _rests.get(problem)
    if entry is None:
        runs, takes = least_runs(problem), _least_takes(problem)
        entry = _rests[problem] = np.full(len(runs) + 1, np.inf)
        entry[-1] = 0.0
        for first in range(len(runs) - 1, -1, -1):
            entry[first] = (takes[first] + switch + entry[first + runs[first][0]]).min(initial=np.inf)
    return entry


_rests: weakref.WeakKeyDictionary[Problem, np.ndarray] = weakref.WeakKeyDictionary()


def _least_takes(problem: Problem) -> list[np.ndarray]:
    """By first op, the cycles per input that the runs of `least_runs` take at least by their slowest op, by DRAM and by
    the way of the first input. Worked out once."""
    entry = _takes.get(problem)
    if entry is None:
        runs = least_runs(problem)
        least = _least_times(problem, max((int(lengths.max(initial=1)) for lengths, _ in runs), default=1))
        entry = _takes[problem] = [
            problem.share(first) * np.maximum(cycles, least[first, lengths - 1] / problem.inputs(first))
            for first, (lengths, cycles) in enumerate(runs)
        ]
    return entry


_takes: weakref.WeakKeyDictionary[Problem, list[np.ndarray]] = weakref.WeakKeyDictionary()


def _cheapest(
    runs: list[tuple[np.ndarray, np.ndarray]], takes: list[np.ndarray], switch: float
) -> tuple[float, list[tuple[int, int]]]:
    """(cycles, (first op, position among the runs from there) of every epoch) of the cheapest cut."""
    rest = np.full(len(runs) + 1, np.inf)
    rest[-1] = 0.0
    chosen = np.zeros(len(runs), dtype=np.int64)
    for first in range(len(runs) - 1, -1, -1):
        lengths = runs[first][0]
        if len(lengths):
            total = takes[first] + rest[first + lengths]
            chosen[first] = total.argmin()
            rest[first] = total[chosen[first]] + switch
    if not np.isfinite(rest[0]):
        return 0.0, []
    path, first = [], 0
    while first < len(runs):
        path.append((first, int(chosen[first])))
        first += int(runs[first][0][chosen[first]])
    return float(rest[0]), path


class Ways:
    """The third of the things that an epoch takes, run by run."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.relaxed = problem, relaxed_runs(problem)

    def least(self, first: int, last: int, slowest: float) -> float:
        """Cycles of a batch that a run takes at least. slowest: what its slowest op takes at least."""
        problem, ops = self.problem, range(first, last)
        slowest = self.relaxed.least(first, last, slowest)
        low, high = slowest * _LIMITS[:-1], slowest * _LIMITS[1:]
        within = [_op_within(problem, op) for op in ops]
        at = [np.searchsorted(w.cycles, high, side="right") - 1 for w in within]
        usable = np.min(at, axis=0) >= 0  # some op has no row that fast
        cores = -_PRICES[:, None] * problem.cores + sum(w.cores[:, a] for w, a in zip(within, at, strict=True))
        end = self._ends(ops, within, at)
        after = self._afters(ops, within, at)
        way = np.full(cores.shape, np.inf)  # the shortest through an op that may be the slowest
        longest = np.zeros(cores.shape)
        for op, e, a in zip(ops, end, after, strict=True):
            longest = np.maximum(longest, e + a)
            way = np.minimum(way, np.where(self.relaxed.slowest(op, first, last) >= low, e + a, np.inf))
        more = problem.inputs(first) - 1
        cycles = np.maximum(longest, np.where(np.isfinite(way), way, longest) + more * low) + cores
        best = np.maximum(cycles.max(axis=0), (more + 1) * low)
        return float(best[usable].min(initial=np.inf)) if usable.any() else 0.0

    def _ends(self, ops: range, within: list[_OpWithin], at: list[np.ndarray]) -> list[np.ndarray]:
        """By op, when it is done with the first input."""
        problem, first = self.problem, ops.start
        depth: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        for op, w, a in zip(ops, within, at, strict=True):
            start, done = np.full((len(_PRICES), len(a)), float(_READY)), None
            producers, op_type = problem.facts[op].producers, problem.profiles[op].op
            inside = [depth[p - first] + _HOP for p in producers if p >= first]
            if isinstance(op_type, HwSplice):
                if len(inside) == len(producers):
                    start = np.min(inside, axis=0)
            elif inside and reads_at_once(op_type):
                start = np.max(inside, axis=0)
            depth.append(start + w.first[:, a])
            done = start + w.whole[:, a]
            for port, p in enumerate(producers):
                if p >= first and reads_all(problem, op, port):
                    done = np.maximum(done, ends[p - first] + _HOP + w.last[:, a])
            ends.append(done)
        return ends

    def _afters(self, ops: range, within: list[_OpWithin], at: list[np.ndarray]) -> list[np.ndarray]:
        """By op, from when it is done with an input until all that reads it is."""
        problem, first, last = self.problem, ops.start, ops.stop
        afters: list[np.ndarray] = []
        for op in reversed(ops):
            late = _READY if problem.places(op, first, last)[1] in (DRAM, HOST) else 0
            after = np.full((len(_PRICES), len(at[0])), float(late))
            for reader, port in problem.facts[op].readers:
                if reader < last and reads_all(problem, reader, port):
                    theirs = within[reader - first].last[:, at[reader - first]]
                    after = np.maximum(after, _HOP + theirs + afters[last - 1 - reader])
            afters.append(after)
        return afters[::-1]


def _least_times(problem: Problem, longest: int) -> np.ndarray:
    """(ops, longest) cycles of a batch that runs of 1, 2, ... ops from each op on take at least, by DRAM and by the way
    of the first input. Op by op, for all runs that it may belong to at once."""
    count = len(problem.order)
    least: np.ndarray = np.zeros((count, longest))
    depth: dict[int, np.ndarray] = {}  # by op, (first ops of runs up to it, prices)
    end, cores, dram = np.zeros((0, len(_PRICES))), np.zeros((0, len(_PRICES))), np.zeros(0)
    for op in range(count):
        here, op_type = _op_least(problem, op), problem.profiles[op].op
        low = max(0, op + 1 - longest)  # the first op of the longest run
        if op >= longest:
            end, cores, dram = end[1:], cores[1:], dram[1:]
            del depth[op - longest]
        end = np.concatenate([end, np.zeros((1, len(_PRICES)))])
        cores = np.concatenate([cores, -_PRICES[None] * problem.cores]) + here.cores
        dram = np.concatenate([dram, np.zeros(1)]) + here.dram
        producers = problem.facts[op].producers
        start = np.full(end.shape, float(_READY))
        inside = [depth[p][low - p - 1 :] + _HOP for p in producers if p >= low]  # runs that begin with `low` up to p
        if isinstance(op_type, HwSplice):  # it may begin with any of its operands
            if len(inside) == len(producers):
                shared = min(map(len, inside))
                start[:shared] = np.min([began[:shared] for began in inside], axis=0)
        elif reads_at_once(op_type):
            for began in inside:
                np.maximum(start[: len(began)], began, out=start[: len(began)])
        depth[op] = start + here.first
        end = np.maximum(end, start + here.whole)
        firsts = np.arange(low, op + 1)
        least[firsts, op - firsts] = np.maximum(dram, (end + cores).max(axis=1))
    return least


def _op_least(problem: Problem, op: int) -> _OpLeast:
    """Worked out once for equal ops. Kernel cycles alone count: they hold wherever operands come from."""
    table = problem.tables[op]
    where = _outer_places(problem, op)
    key = ("least of an op", table.signature, where)
    entry = problem.costs.answers.get(key)
    if isinstance(entry, _OpLeast):
        return entry
    profile = problem.profiles[op]
    legal = problem.legal[table.signature]
    rows = table.rows[legal]
    cycles = rows["cycles"].astype(np.float64)
    price = rows["cores"] * _PRICES[:, None]
    fewest = price.min(axis=1)
    begun = np.maximum(0.0, np.floor(cycles * first_part(profile, rows)) - 1.0)  # steps are whole cycles
    # the last load is there when DRAM has brought it and what all ops stream for one input (`load_times`)
    bytes_ = problem.loads(op)[1][legal] + problem.streamed(op, where)[legal]
    entry = _OpLeast(
        fewest,
        (begun + price).min(axis=1) - fewest,
        (cycles + price).min(axis=1) - fewest,
        float(bytes_.min()) / dram_rate(problem.device),
    )
    problem.costs.answers[key] = entry
    return entry


def _outer_places(problem: Problem, op: int) -> tuple[str, ...]:
    """Over what the operands of an op move that come from queues of the graph, "" for those of other ops."""
    fact = problem.facts[op]
    return tuple(place if p < 0 else "" for p, place in zip(fact.producers, fact.queue_place, strict=True))


def _op_within(problem: Problem, op: int) -> _OpWithin:
    """Worked out once for equal ops."""
    table = problem.tables[op]
    key = ("least of an op within limits", table.signature)
    entry = problem.costs.answers.get(key)
    if isinstance(entry, _OpWithin):
        return entry
    profile = problem.profiles[op]
    rows = table.rows[problem.legal[table.signature]]
    rows = rows[np.argsort(rows["cycles"], kind="stable")]
    cycles = rows["cycles"].astype(np.float64)
    price = rows["cores"] * _PRICES[:, None]
    fewest = np.minimum.accumulate(price, axis=1)

    def least(values: np.ndarray) -> np.ndarray:
        lowest: np.ndarray = np.minimum.accumulate(values + price, axis=1) - fewest
        return lowest

    steps = (np.maximum(0.0, np.floor(cycles * part(profile, rows)) - 1.0) for part in (first_part, last_part))
    first, last = steps
    entry = _OpWithin(cycles, fewest, least(first), least(cycles), least(last))
    problem.costs.answers[key] = entry
    return entry
