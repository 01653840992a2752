"""Shapes with which an epoch is filled sooner: the op that limits it gains nothing by more cores, but the first input
has to pass every op.

How long one input takes through the epoch is the longest way through its ops, of which each adds what it needs until
its first tiles leave (`stalls/first_results.py`). Every op begins on the fewest cores that keep the limit; then the op
on the longest way gets the shape that shortens it most for the cores it takes more, until none are left. The simulator
of epochs decides whether the shapes are better.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad, dram_divider
from tbuda_lab.core.balancer.l1 import load_times
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.policies.legal_rows import legal_rows, no_heavier
from tbuda_lab.core.placer.stalls.epoch_throughput import Throughput, throughputs

_PARTS = np.geomspace(0.9, 0.05, 14)
"""Of the cycles of the slowest op, what all others are asked to stay within."""
_TRIES = 3
_ROUNDS, _ROUNDS_OF_BATCH = 2, 1
"""Times that shapes are chosen anew from where the last ones led. Of a batch a second time changed no placement of ten
models."""
_WORTH = 0.995
_SWAPS = 160
"""Shapes changed at most on the way to one proposal."""
_LESS = (1.0, 0.9)
"""Parts of the cores that a proposal may count on: not everything that has room on paper packs. Of a batch the second
is tried where the first does not pack: of 170 epochs it was the better one in three."""
_HOP, _READY = EpochConstants().noc_latency, EpochConstants().dram_latency


_Change = tuple[int, int]
"""An op, and the shape that it gets."""


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """Rows of one op that are worth a look: cores, cycles per input, of them until the first tiles leave
    (`first_tiles`), and parts of each operand that have to be there by then (ports, rows)."""

    row: np.ndarray
    cores: np.ndarray
    cycles: np.ndarray
    first_tiles: np.ndarray
    needs: np.ndarray

    @functools.cached_property
    def numbers(self) -> tuple[list[float], list[float], list[list[float]]]:
        """(cycles, begun, needs) as Python's numbers, which are quicker to take one by one."""
        return self.cycles.tolist(), self.first_tiles.tolist(), self.needs.tolist()


@dataclasses.dataclass(frozen=True)
class _Neighbours:
    """The n-th neighbour of every op that has so many, as (op, operand, neighbour). of: which of all shapes are those
    ops', and as how many each neighbour counts (`counts`)."""

    uses: list[tuple[int, int, int]]
    of: np.ndarray
    counts: np.ndarray


class _Ways:
    """All shapes of all ops of an epoch side by side: (shapes,) which op each is of, counted from the first, and its
    cores; (ops,) where those of each begin. before, after: by op, its (operand, producer) and its (reader, operand);
    ready: when its parameters are there."""

    def __init__(
        self,
        shapes: Mapping[int, _Shapes],
        before: Mapping[int, Sequence[tuple[int, int]]],
        after: Mapping[int, Sequence[tuple[int, int]]],
        ready: Mapping[int, float],
    ) -> None:
        self._shapes = shapes
        self._counts = np.array([len(s.row) for s in shapes.values()])
        self.op, self.begins = np.arange(len(shapes)).repeat(self._counts), self._counts.cumsum() - self._counts
        self.cores = np.concatenate([s.cores for s in shapes.values()])
        self._cycles = np.concatenate([s.cycles for s in shapes.values()])
        self._begun = np.concatenate([s.first_tiles for s in shapes.values()])
        self._start = np.array([ready[op] for op in shapes])[self.op] + self._begun
        self._before = self._rank(before)
        self._after = self._rank({op: [(port, r) for r, port in readers] for op, readers in after.items()})
        self._needs = [np.concatenate([shapes[op].needs[port] for op, port, _ in n.uses]) for n in self._before]

    def _rank(self, neighbours: Mapping[int, Sequence[tuple[int, int]]]) -> list[_Neighbours]:
        ranked = []
        for n in range(max(map(len, neighbours.values()), default=0)):
            uses = [(op, *others[n]) for op, others in neighbours.items() if len(others) > n]
            having = np.array([len(others) > n for others in neighbours.values()])
            ranked.append(_Neighbours(uses, np.flatnonzero(having[self.op]), self._counts[having]))
        return ranked

    def through(self, at: Mapping[int, int], depth: Mapping[int, float], tail: Mapping[int, float]) -> np.ndarray:
        """(shapes,) the longest way through an op for each of its shapes, the others as they are. at: their shapes;
        depth, tail: of these."""
        numbers = {op: shape.numbers for op, shape in self._shapes.items()}
        start, rest = self._start.copy(), self._cycles - self._begun
        for some, needs in zip(self._before, self._needs, strict=True):
            took = np.array([numbers[p][0][at[p]] for _, _, p in some.uses]).repeat(some.counts)
            left = np.array([depth[p] for _, _, p in some.uses]).repeat(some.counts)
            came = left + np.maximum(needs * took, self._begun[some.of]) + _HOP
            start[some.of] = np.maximum(start[some.of], came)
        for some in self._after:
            part = np.array([numbers[r][2][port][at[r]] for _, port, r in some.uses]).repeat(some.counts)
            theirs = np.array([numbers[r][1][at[r]] for _, _, r in some.uses]).repeat(some.counts)
            follows = np.array([tail[r] for _, _, r in some.uses]).repeat(some.counts)
            came = np.maximum(part * self._cycles[some.of], theirs) + _HOP + follows
            rest[some.of] = np.maximum(rest[some.of], came)
        through: np.ndarray = start + rest
        return through


def use_spare_cores(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], spare: int = 0) -> Segment:
    """The epoch with other shapes where that makes a batch of it shorter, and no op slower than the slowest was. spare:
    cores that stay free."""
    if segment.last - segment.first < 2:
        return segment
    was: Throughput | None = None
    batch = problem.inputs(segment.first) > 1
    for _ in range(_ROUNDS_OF_BATCH if batch else _ROUNDS):
        filling = SpareCoreFill(problem, segment, spare)
        limit, kernel = segment.limiter_cycles, segment.kernel_cycles
        proposals = [filling.even(upstream_rows, limit, kernel)]
        changes: list[_Change] = []
        for part in _LESS:
            proposals.append(filling.proposal(upstream_rows, limit, kernel, part, changes=changes))
            if batch and proposals[-1] is not None:
                break
        others = [p for p in proposals if p is not None]
        before, *ends = throughputs([(problem, p) for p in (segment, *others)])  # side by side
        was = before if was is None else was
        trials = list(zip(others, ends, strict=True))
        if not trials:
            break
        fastest, now = min(trials, key=lambda pair: (pair[1].deadlocks, pair[1].roomy))
        if (now.deadlocks, now.roomy) >= (was.deadlocks, _WORTH * was.roomy):
            break
        segment, was = fastest, now
    return segment


class SpareCoreFill:
    """The ops of an epoch with the load of DRAM that it has. spare: cores that stay free."""

    def __init__(self, problem: Problem, segment: Segment, spare: int = 0) -> None:
        self.problem, self.first, self.last = problem, segment.first, segment.last
        self.cores = problem.cores - spare
        self.now = dict(zip(range(self.first, self.last), segment.rows, strict=True))
        self.load = measure(problem, self.first, self.last, self.now)[2]
        facts = problem.facts
        inside = range(self.first, self.last)
        self.before = {op: [(port, p) for port, p in enumerate(facts[op].producers) if p in inside] for op in inside}
        self.after = {op: [(r, port) for r, port in facts[op].readers if r in inside] for op in inside}

    def proposal(
        self,
        upstream_rows: Mapping[int, int],
        limit: float,
        kernel: float,
        part: float = 1.0,
        drawn: random.Random | None = None,
        changes: list[_Change] | None = None,
    ) -> Segment | None:
        """A placed epoch of which no op takes longer than `limit`, no kernel than `kernel`, None where none is found.
        part: of the cores that it counts on; drawn: where choices are to be disturbed. changes: those on the way to a
        proposal with more cores, where it is known; those on the way to this one take their place."""
        rows = self._shorter(limit, kernel, int(part * self.cores), drawn, [] if changes is None else changes)
        return None if rows is None or rows == self.now else self._place(rows, upstream_rows, limit, kernel)

    def even(self, upstream_rows: Mapping[int, int], limit: float, kernel: float) -> Segment | None:
        """The same with every op asked to stay within the same cycles, the fewest for which there are cores."""
        problem, first, last, load = self.problem, self.first, self.last, self.load
        targets = np.unique(np.floor(limit * _PARTS))[::-1]
        rows_now = np.array(list(self.now.values()))
        rows = np.tile(rows_now, (len(targets), 1))
        total = np.zeros(len(targets), dtype=np.int64)
        for i, (op, row) in enumerate(self.now.items()):
            places = problem.places(op, first, last)
            front = problem.costs.frontier(problem.tables[op], *places, load.dram_cores, host=load.host_cores)
            now = float(problem.row_limits(op, *places, load)[row])
            at = np.searchsorted(-front.cycles, -targets, side="left")
            better = (targets < now) & (front.cycles[-1] < now)
            rows[better, i] = front.row[np.minimum(at, len(front.row) - 1)][better]  # the fastest where none will do
            total += problem.tables[op].rows["cores"][rows[:, i]].astype(np.int64)
        fits = np.flatnonzero((total <= self.cores) & (rows != rows_now).any(axis=1))
        for step in fits[::-1][:_TRIES]:
            chosen = dict(zip(self.now, rows[step].tolist(), strict=True))
            even = self._place(chosen, upstream_rows, limit, kernel)
            if even is not None:
                return even
        return None

    def _place(
        self, rows: Mapping[int, int], upstream_rows: Mapping[int, int], limit: float, kernel: float
    ) -> Segment | None:
        """The epoch with these rows, or those that edges ask for, None where it is slower or does not pack."""
        problem, first, last = self.problem, self.first, self.last
        chosen, _ = choose_rows(problem, first, last, rows, self.load.dram_cores, limit, upstream_rows, kernel)
        if chosen is None:
            return None
        placed = place_rows(problem, first, last, {op: chosen[op] for op in range(first, last)})
        if placed is None or placed.limiter_cycles > limit or placed.kernel_cycles > kernel:
            return None
        return placed

    def _shorter(
        self, limit: float, kernel: float, most: int, drawn: random.Random | None, changes: list[_Change]
    ) -> dict[int, int] | None:
        """By op, the row that is wanted. changes: what is best with more cores is best with fewer as long as they are
        enough."""
        shapes = {op: self._shapes(op, limit, kernel) for op in range(self.first, self.last)}
        if not all(len(s.row) for s in shapes.values()):
            return None
        at = {op: int(np.lexsort((s.first_tiles, s.cores))[0]) for op, s in shapes.items()}
        free = most - sum(int(shapes[op].cores[i]) for op, i in at.items())
        if free < 0:
            return None
        ready = self.ready({op: int(shapes[op].row[i]) for op, i in at.items()})
        noise = 0.0 if drawn is None else drawn.choice((0.0, 0.2, 0.5))
        for at_step, (op, index) in enumerate(changes):
            more = int(shapes[op].cores[index] - shapes[op].cores[at[op]])
            if more > free:
                del changes[at_step:]
                break
            free -= more
            at[op] = index
        ways = _Ways(shapes, self.before, self.after, ready)
        for _ in range(_SWAPS - len(changes)):
            depth, tail = self._times(shapes, at, ready)
            through = np.array([depth[op] + tail[op] for op in at])
            longest = float(through.max())
            critical = through >= 0.999 * longest
            gain = longest - ways.through(at, depth, tail)
            more = ways.cores - np.array([int(shapes[op].cores[i]) for op, i in at.items()])[ways.op]
            worth = np.where((more <= free) & (gain > 1.0) & critical[ways.op], gain / np.maximum(more, 0.25), 0.0)
            best = np.maximum.reduceat(worth, ways.begins)  # of each op
            if noise and drawn is not None:
                best[critical] *= [drawn.lognormvariate(0.0, noise) for _ in range(np.count_nonzero(critical))]
            number = int(best.argmax())
            if best[number] <= 0.0:
                break
            op = self.first + number
            index = int(worth[ways.begins[number] :][: len(shapes[op].row)].argmax())
            free -= int(shapes[op].cores[index] - shapes[op].cores[at[op]])
            at[op] = index
            changes.append((op, index))
        return {op: int(shapes[op].row[i]) for op, i in at.items()}

    def _times(
        self, shapes: Mapping[int, _Shapes], at: Mapping[int, int], ready: Mapping[int, float]
    ) -> tuple[dict[int, float], dict[int, float]]:
        """By op, from the start of the epoch until its first tiles leave, and from then until all that follows is done
        with the first input."""
        depth: dict[int, float] = {}
        tail: dict[int, float] = {}
        for op, i in at.items():
            _, begun, needs = shapes[op].numbers
            latest = ready[op] + begun[i]
            for port, p in self.before[op]:
                came = needs[port][i] * shapes[p].numbers[0][at[p]]
                latest = max(latest, depth[p] + max(came, begun[i]) + _HOP)
            depth[op] = latest
        for op in reversed(list(at)):
            i = at[op]
            cycles, begun, _ = shapes[op].numbers
            longest = cycles[i] - begun[i]
            for r, port in self.after[op]:
                _, theirs, needs = shapes[r].numbers
                longest = max(longest, max(needs[port][at[r]] * cycles[i], theirs[at[r]]) + _HOP + tail[r])
            tail[op] = longest
        return depth, tail

    def ready(self, rows: Mapping[int, int]) -> dict[int, float]:
        """By op, when its parameters are there, all loads sharing DRAM evenly."""
        problem = self.problem
        ready = dict.fromkeys(rows, float(_READY))
        loads = [(op, *(column[row] for column in problem.loads(op))) for op, row in rows.items()]
        loads = [(op, most, total) for op, most, total in loads if most > 0]
        if loads:
            sizes = [float(most) for _, most, _ in loads]
            cores = [max(1, round(total / most)) for _, most, total in loads]
            ends = load_times(sizes, cores, problem.device, self._streams(rows))
            for (op, _, _), end in zip(loads, ends.tolist(), strict=True):
                ready[op] = max(ready[op], end)
        return ready

    def _streams(self, rows: Mapping[int, int]) -> list[tuple[float, int]]:
        """By op (bytes of a core, cores) of what it reads from DRAM for every input."""
        problem, streams = self.problem, []
        for op, row in rows.items():
            where, output = problem.places(op, self.first, self.last)
            total = float(problem.streamed(op, where)[row])
            if total:
                cores = max(1, int(problem.dram_cores(op, where, output)[row]))
                streams.append((total / cores, cores))
        return streams

    def _shapes(self, op: int, limit: float, kernel: float) -> _Shapes:
        """Of all legal rows within the limits those that preload as the op does now, with no more cores on DRAM, and of
        each number of cores the ones that begin, end, or let go of their operands first."""
        problem, now = self.problem, self.now[op]
        where, output = problem.places(op, self.first, self.last)
        table = problem.tables[op]
        bounds = int(table.rows["prologue"][now]), int(problem.dram_cores(op, where, output)[now])  # of `no_heavier`
        key = (
            "filling",
            table.signature,
            where,
            output,
            dram_divider(problem.device, self.load.dram_cores),
            problem.orders[problem.order[op]],
            limit,
            kernel,
            bounds,
            self.load.host_cores,
        )
        entry = problem.costs.answers.get(key)
        if isinstance(entry, _Shapes):
            return entry
        rows = legal_rows(problem, op)
        limiter = problem.row_limits(op, where, output, EpochLoad(self.load.dram_cores, self.load.host_cores))
        keep = no_heavier(problem, op, where, output, now) & (rows.kernel <= kernel)
        at = rows.by_cores[keep[rows.by_cores]]
        cycles = limiter[rows.number[at]]
        at = at[cycles <= np.floor(limit)]
        cycles = limiter[rows.number[at]]
        begun, most = cycles * rows.first[at], rows.most[at]
        begins = np.flatnonzero(np.diff(rows.cores[at], prepend=-1))  # of the rows of each number of cores
        sizes = np.diff(begins, append=len(at))
        group = np.arange(len(begins)).repeat(sizes)
        best = np.zeros(len(at), dtype=bool)
        for weight in (0.0, 0.1, 1.0) if len(at) else ():
            score = begun + weight * cycles + most * limit * weight
            least = np.minimum.reduceat(score, begins).repeat(sizes)
            hits = np.flatnonzero(score == least)
            best[hits[np.flatnonzero(np.diff(group[hits], prepend=-1))]] = True
        best = np.flatnonzero(best)[np.argsort(at[best])]  # in the order of the table
        at = at[best]
        shapes = _Shapes(rows.number[at], rows.cores[at], cycles[best], begun[best], rows.needs[:, at])
        problem.costs.answers[key] = shapes
        return shapes
