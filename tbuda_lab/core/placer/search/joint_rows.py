"""Rows of many ops of an epoch changed together, by what each change alone does.

Single ops are given other rows, one at a time, and the epoch is simulated with each, many side by side. What a change
does to the filling of the epoch, the cores that it takes and the cycles of the op are noted. Of all changes known for
the epoch, those are put together that make a batch shortest: for a limit that no op may exceed and a price of a core,
every op takes the row that costs least; the price is the lowest at which the cores suffice. So cores go from ops that
do not need them to those that hold the epoch up, and a slower limit is left where enough ops can be made faster. What
is put together is simulated as a whole, and whoever asks takes it where it is better.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure, place_rows
from tbuda_lab.core.placer.stalls.epoch_throughput import batch_times, full_edges

_LOOKS = 16
"""Changes of single ops that are simulated in a step."""
_FULL = 6
"""Edges with full buffers, whose ops are changed the sooner."""
_DRAWS = 12
"""Rows of an op that are drawn before another op is."""
_MOST_LIMITS, _APART = 10, 4
"""Lower limits that are tried, each so many of all there are behind the one before."""
_SLOWEST_PART = 0.7
"""Of the present limit, the least that is tried."""
_PRICES = np.concatenate([[0.0], np.geomspace(1e-4, 0.3, 28)])
"""What a core costs, as a part of the time that filling takes."""
_TRIALS = 8
"""Of what is put together, how much is simulated."""
_FEWER = (1.0, 0.5, 0.25)
"""Parts of the changes that are made, those that gain most first."""
_MOST_STEPS = EpochConstants().max_steps

Key = tuple[int, int]
"""An op, counted from the first of its epoch, and a row."""


@dataclasses.dataclass(frozen=True)
class _Change:
    """What one other row does. fill: cycles of a batch beyond those of the slowest op; cycles: of the op per input."""

    fill: float
    cycles: float
    cores: int


class JointRows:
    """What is known of changes of single ops, by the structure of epochs: equal layers share it."""

    def __init__(self) -> None:
        self._changes: dict[tuple[int, ...], dict[Key, _Change]] = {}

    def better(
        self, problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], drawn: random.Random
    ) -> list[Segment]:
        """Placed epochs with other rows, the best first, that are faster than this one before any repair."""
        epoch = _Epoch(problem, segment, upstream_rows)
        changes_so_far = self._changes.setdefault(problem.structure(segment.first, segment.last), {})
        looks = epoch.looks(drawn, changes_so_far)
        times = self._times(epoch, [epoch.rows, *looks])
        now = float(times[0])
        if not math.isfinite(now):
            return []
        base = now - epoch.inputs * segment.limiter_cycles
        alone = list(zip(times[1:].tolist(), looks, strict=True))
        for time, rows in alone:
            op = next(op for op, row in rows.items() if row != epoch.rows[op])
            epoch.note(changes_so_far, op, rows[op], time, base)
        tried = [dict(zip(epoch.rows, rows, strict=True)) for rows in epoch.together(changes_so_far, base)]
        together = zip(self._times(epoch, tried).tolist(), tried, strict=True)
        better = sorted((pair for pair in (*together, *alone) if pair[0] < now), key=lambda pair: pair[0])
        return epoch.place_first(rows for _, rows in better)

    @staticmethod
    def _times(epoch: _Epoch, trials: Sequence[Mapping[int, int]]) -> np.ndarray:
        problem = epoch.problem
        return batch_times([(problem, epoch.without_places(rows)) for rows in trials])


class _Epoch:
    def __init__(self, problem: Problem, segment: Segment, upstream_rows: Mapping[int, int]) -> None:
        self.problem, self.segment, self.upstream_rows = problem, segment, upstream_rows
        self.first, self.last = segment.first, segment.last
        self.rows = dict(zip(range(self.first, self.last), segment.rows, strict=True))
        self.load: EpochLoad = measure(problem, self.first, self.last, self.rows)[2]
        self.inputs = problem.inputs(segment.first)
        self.cycles = {op: float(self.limits(op)[row]) for op, row in self.rows.items()}
        self.cores = {op: int(problem.tables[op].rows["cores"][row]) for op, row in self.rows.items()}
        self.free = problem.cores - sum(self.cores.values())

    def limits(self, op: int) -> np.ndarray:
        """Limiter cycles of every row of an op's table."""
        return self.problem.row_limits(op, *self.problem.places(op, self.first, self.last), self.load)

    def without_places(self, rows: Mapping[int, int]) -> Segment:
        """The epoch with other rows, for the simulator alone, which does not ask where ops stand."""
        return dataclasses.replace(self.segment, rows=tuple(rows.values()))

    # -- changes of single ops -------------------------------------------------------------------------------
    def looks(self, drawn: random.Random, changes_so_far: Mapping[Key, _Change]) -> list[dict[int, int]]:
        """Rows of the epoch with one op changed each, which edges allow; none that is known."""
        looks: list[dict[int, int]] = []
        seen: set[Key] = set()
        ops, rows_of = list(self.rows), {}
        full = full_edges(self.problem, self.segment)
        near = [self.first + op for edge in full[:_FULL] for op in edge[:2]]
        book = EdgeCompatibility(self.problem, self.first, self.last, self.upstream_rows)
        book.rows = dict(self.rows)
        for _ in range(3 * _LOOKS):
            op = drawn.choice(near) if near and drawn.random() < 0.5 else drawn.choice(ops)
            if op not in rows_of:
                rows_of[op] = self._candidates(op)
            rows = rows_of[op]
            for _ in range(_DRAWS if len(rows) else 0):
                row = int(rows[drawn.randrange(len(rows))])
                key = op - self.first, row
                if row == self.rows[op] or key in seen or (key in changes_so_far and drawn.random() < 0.9):
                    continue
                seen.add(key)
                if self._fits(book, op, row):
                    looks.append({**self.rows, op: row})
                    break
            if len(looks) == _LOOKS:
                break
        return looks

    def _candidates(self, op: int) -> np.ndarray:
        """Legal rows of an op that are no slower than the slowest op, on not many more cores than it has."""
        data, legal = self.problem.tables[op].rows, self.problem.legal[self.problem.tables[op].signature]
        keep = np.ceil(self.limits(op)[legal]) <= max(self.segment.limiter_cycles, math.ceil(self.cycles[op]))
        keep &= data["cores"][legal] <= max(self.free, self.cores[op]) + self.cores[op]
        keep &= data["t"][legal] <= max(_MOST_STEPS, int(data["t"][self.rows[op]]))
        rows: np.ndarray = legal[keep]
        return rows

    def _fits(self, book: EdgeCompatibility, op: int, row: int) -> bool:
        """Whether edges allow a row beside those of the book, in which the op keeps what it has."""
        now = book.rows.pop(op)
        fits = book.check(op, row)
        book.rows[op] = now
        return fits

    def note(self, changes_so_far: dict[Key, _Change], op: int, row: int, time: float, base: float) -> None:
        """Takes in what a change came to. base: what filling takes now."""
        cycles = float(self.limits(op)[row])
        slowest = max(cycles, *(c for other, c in self.cycles.items() if other != op), 0.0)
        fill = time - self.inputs * math.ceil(slowest) - base
        changes_so_far[op - self.first, row] = _Change(fill, cycles, int(self.problem.tables[op].rows["cores"][row]))

    # -- changes together ------------------------------------------------------------------------------------
    def together(self, changes_so_far: Mapping[Key, _Change], base: float) -> list[tuple[int, ...]]:
        """Rows of all ops with changes that make a batch shortest, as far as what they do alone adds up; the best
        first."""
        ops = list(self.rows)
        changes = [(key, change) for key, change in changes_so_far.items() if math.isfinite(change.fill)]
        stay = [((op - self.first, self.rows[op]), _Change(0.0, self.cycles[op], self.cores[op])) for op in ops]
        mine = {key for key, _ in stay}
        every = sorted([*stay, *((k, c) for k, c in changes if k not in mine)], key=lambda pair: pair[0])
        op = np.array([key[0] for key, _ in every])
        row = np.array([key[1] for key, _ in every])
        fill = np.array([change.fill for _, change in every])
        cycles = np.ceil([change.cycles for _, change in every])
        cores = np.array([change.cores for _, change in every])
        begins = np.flatnonzero(np.diff(op, prepend=-1))
        limit = self.segment.limiter_cycles
        lower = np.unique(cycles[(cycles < limit) & (cycles >= _SLOWEST_PART * limit)])[::-1]
        limits = [limit, *lower[: _MOST_LIMITS * _APART : _APART].tolist(), *lower[:2].tolist()]
        prices = _PRICES * max(base, 0.05 * self.inputs * limit)
        found: dict[tuple[int, ...], tuple[float, float]] = {}
        for most in dict.fromkeys(limits):
            # (prices, choices)
            score = np.where(cycles <= most, fill + prices[:, None] * cores, np.inf)
            least = np.minimum.reduceat(score, begins, axis=1)
            if not np.isfinite(least).all():
                continue
            hit = score == np.repeat(least, np.diff([*begins, len(op)]), axis=1)
            index = np.where(hit, np.arange(len(op)), len(op))
            chosen = np.minimum.reduceat(index, begins, axis=1)
            fits = np.flatnonzero(cores[chosen].sum(axis=1) <= self.problem.cores)
            for at in fits[:2].tolist():
                picked = chosen[at]
                value = float(fill[picked].sum()) + self.inputs * (max(cycles[picked]) - limit)
                if value < 0:
                    found[tuple(picked.tolist())] = value, most
        result: dict[tuple[int, ...], None] = {}
        for picked in sorted(found, key=lambda p: found[p]):
            chosen_rows = {self.first + int(op[i]): (int(row[i]), float(fill[i])) for i in picked}
            for part in _FEWER:
                rows = self._legal(chosen_rows, found[picked][1], part)
                if rows is not None:
                    result[rows] = None
            if len(result) >= _TRIALS:
                break
        result.pop(tuple(self.rows.values()), None)
        return list(result)[:_TRIALS]

    def _legal(self, chosen: Mapping[int, tuple[int, float]], limit: float, part: float) -> tuple[int, ...] | None:
        """The rows chosen for the ops, as far as edges allow: of all that are too slow for the limit, of that part of
        the others that gain, those first that gain most, and of as many of those that give cores as it takes. None
        where cores or edges do not suffice."""
        table = self.problem.tables
        more = {op: int(table[op].rows["cores"][row]) - self.cores[op] for op, (row, _) in chosen.items()}
        changed = [op for op, (row, _) in chosen.items() if row != self.rows[op]]
        must = [op for op in changed if math.ceil(self.cycles[op]) > limit]
        gaining = sorted((op for op in changed if op not in must and chosen[op][1] < 0), key=lambda op: chosen[op][1])
        gaining = gaining[: math.ceil(part * len(gaining))]
        giving = [op for op in changed if op not in must and chosen[op][1] >= 0 and more[op] < 0]
        giving.sort(key=lambda op: chosen[op][1] / more[op], reverse=True)
        book = EdgeCompatibility(self.problem, self.first, self.last, self.upstream_rows)
        book.rows = dict(self.rows)
        free = self.free
        for group in (must, gaining, giving):
            waiting = group
            for _ in range(2):  # what one change forbids, another one may allow
                again = []
                for op in waiting:
                    if group is giving and free >= 0:
                        break
                    if self._fits(book, op, chosen[op][0]):
                        book.rows[op] = chosen[op][0]
                        free -= more[op]
                    else:
                        again.append(op)
                waiting = again
            if group is must and waiting:
                return None
        return tuple(book.rows[op] for op in self.rows) if free >= 0 else None

    def place_first(self, trials: Iterable[Mapping[int, int]]) -> list[Segment]:
        """Those of the first few that pack."""
        placed: list[Segment] = []
        for rows in trials:
            segment = place_rows(self.problem, self.first, self.last, rows)
            if segment is not None:
                placed.append(segment)
                if len(placed) == 2:
                    break
        return placed
