"""An epoch filled sooner: rows of single ops, and of an op with its reader, changed one after the other, as long as the
first input is through sooner or the same is had for fewer cores.

What a change does is worked out from the steps of the ops around it (`first_input`), for all rows of an op at once; so
thousands are looked at where the simulator would take a few. It leaves full buffers out: what comes of it is simulated
by whoever asks. A core has a price, so that ops off the longest way give theirs to those on it; it rises while too many
are taken and falls while some are left.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, place_rows
from tbuda_lab.core.placer.policies.pipelining import promising_rows
from tbuda_lab.core.placer.policies.spare_cores import SpareCoreFill
from tbuda_lab.core.placer.search.first_input import FirstInput, RowSteps, WaitCache
from tbuda_lab.core.placer.stalls.epoch_throughput import batch_times

_ROWS = 24
"""Promising rows of an op that are looked at, and as many others."""
_PAIRS = 6
"""Rows of an op that are tried with all rows of its reader."""
_OF_READER = 16
_CHECKS = 16
_SLACK = 0.02
"""What a cycle counts for off the longest way."""
_CORE_PRICES = (0.03, 0.1, 0.2, 0.4, 0.7, 1.0)
"""Of a core at the start (1: the limit times the root of the number of ops, shared by all cores)."""
_DEARER, _CHEAPER, _SPARE = 1.05, 0.9, 1
"""How the price rises while no more cores than so many are left, and falls while more are."""
_ON_THE_WAY = 0.7
"""How often an op on the longest way is looked at; else any is."""
_KICKS = (0, 0, 0, 2, 4)
"""Ops that are given any row at first."""
_CHUNK = 16
"""Ops that are looked at before what they came to is simulated."""
_LOOKED_AT = 3
_HELD_UP = 1.003
"""Of the time without full buffers, what an epoch takes that is held up by them."""
_MOST_STEPS = EpochConstants().max_steps


class Sooner:
    """One epoch on its way. limit: cycles per input that no op may take longer than; ops that do have to change."""

    def __init__(
        self,
        problem: Problem,
        segment: Segment,
        upstream_rows: Mapping[int, int],
        limit: float,
        drawn: random.Random,
        cache: WaitCache,
    ) -> None:
        self.problem, self.segment, self.limit, self.drawn = problem, segment, limit, drawn
        self.inputs = problem.inputs(segment.first)
        self.first, self.last = segment.first, segment.last
        filling = SpareCoreFill(problem, segment)
        self.load: EpochLoad = filling.load
        self.rows: dict[int, int] = dict(filling.now)
        self.way = FirstInput(problem, self.first, self.last, filling.ready(self.rows), cache)
        self.book = EdgeCompatibility(problem, self.first, self.last, upstream_rows)
        self.book.rows = self.rows
        self.steps = {op: self._steps(op, np.array([row])) for op, row in self.rows.items()}
        self.price = 0.0
        self.ends: dict[int, np.ndarray] = {}
        self.left: dict[int, np.ndarray] = {}
        self._tried: dict[int, RowSteps] = {}
        self._look()

    @property
    def cores(self) -> int:
        return sum(int(one.cores[0]) for one in self.steps.values())

    def _look(self, changed: Collection[int] = ()) -> None:
        """Works out the way of the first input with the rows as they are; where it was known before some changed, as
        far as that reaches."""
        ends, left = (self.ends, self.left) if changed else (None, None)
        self.ends, self.left = self.way.ends(self.steps, ends, changed), self.way.left(self.steps, left, changed)
        self.through = {
            op: float((self.ends[op] + self.left[op] - (one.after - one.before)[0]).max())
            for op, one in self.steps.items()
        }
        self.total = max(self.through.values())

    def _limits(self, op: int) -> np.ndarray:
        return self.problem.row_limits(op, *self.problem.places(op, self.first, self.last), self.load)

    def _steps(self, op: int, rows: np.ndarray) -> RowSteps:
        return self.way.rows(op, rows, self._limits(op)[rows])

    def _options(self, op: int) -> RowSteps:
        """The row that an op has, and others within the limit: promising ones, and some that are drawn."""
        entry = self._tried.get(op)
        if entry is not None and int(entry.row[0]) == self.rows[op]:
            return entry
        problem, now = self.problem, self.rows[op]
        table, legal = problem.tables[op], problem.legal[problem.tables[op].signature]
        where, output = problem.places(op, self.first, self.last)
        cycles, data, dram = self._limits(op), table.rows, problem.dram_cores(op, where, output)
        keep = (np.ceil(cycles[legal]) <= self.limit) & (data["prologue"][legal] == data["prologue"][now])
        keep &= (dram[legal] <= dram[now]) & (data["t"][legal] <= max(_MOST_STEPS, int(data["t"][now])))
        keep &= data["buf_size_mb"][legal] >= min(2, int(data["buf_size_mb"][now]))
        keep &= data["cores"][legal] <= max(4, 4 * int(data["cores"][now]))
        others = legal[keep]
        per_core = self.price if self.price else self.limit / problem.cores
        good = promising_rows(
            problem, op, self.first, self.last, now, self.load, self.limit, max(self.limit, 1.0), per_core
        )
        some = [np.array([now])]
        if good is not None:
            some.append(good.row[np.isin(good.row, others)][:_ROWS])
        if len(others):
            some.append(others[[self.drawn.randrange(len(others)) for _ in range(min(len(others), _ROWS))]])
        rows = np.concatenate(some)
        _, unique = np.unique(rows, return_index=True)
        entry = self._tried[op] = self._steps(op, rows[np.sort(unique)])
        return entry

    def _some(self, options: RowSteps) -> RowSteps:
        """The first of them, which is the row that the op has, and some that are drawn."""
        count = len(options.row)
        if count <= _OF_READER:
            return options
        return options.only([0, *sorted(self.drawn.sample(range(1, count), _OF_READER - 1))])

    def _score(self, op: int, options: RowSteps, ends: np.ndarray, behind: np.ndarray) -> np.ndarray:
        """(rows,) the longest way through the op, what is off the longest way of all counting little, and its cores."""
        through = (ends + options.left(behind)).max(axis=1)
        rest = self.total if self.through[op] < 0.9999 * self.total else 0.0
        score: np.ndarray = np.maximum(through, rest) + _SLACK * through + self.price * options.cores
        score[np.ceil(options.cycles) > self.limit] += 1e15
        return score

    def _room(self, *ops: int) -> int:
        """Cores that these ops may take together."""
        mine = sum(int(self.steps[op].cores[0]) for op in ops)
        return mine + max(0, self.problem.cores - self.cores)

    def one(self, op: int) -> bool:
        """Gives an op the row by which all gains most; whether that is another one."""
        options = self._options(op)
        if len(options.row) < 2:
            return False
        ends = options.ends(self.way.arrival(op, options, self.rows, self.ends))
        behind = self.way.behind(op, options, self.rows, self.left)
        score = self._score(op, options, ends, behind)
        score[1:][options.cores[1:] > self._room(op)] = np.inf
        was = self.rows.pop(op)
        for at in np.argsort(score, kind="stable")[:_CHECKS].tolist():
            if score[at] >= score[0] - 1e-6:
                break
            if self.book.check(op, int(options.row[at])):
                self.rows[op] = was
                self._give({op: options.only([at])})
                return True
        self.rows[op] = was
        return False

    def _kick(self) -> None:
        """Gives an op any row that edges and cores allow, from where other rows are near than from where it was."""
        op = self.drawn.randrange(self.first, self.last)
        options = self._options(op)
        was = self.rows.pop(op)
        fits = (options.cores <= self._room(op)) & (np.ceil(options.cycles) <= self.limit)
        tried = [at for at in self.drawn.sample(range(len(fits)), len(fits)) if at and fits[at]]
        at = next((at for at in tried[:_CHECKS] if self.book.check(op, int(options.row[at]))), 0)
        self.rows[op] = was
        if at:
            self._give({op: options.only([at])})

    def two(self, op: int, reader: int) -> bool:
        """The same for an op and one of its readers together."""
        mine, theirs = self._options(op), self._some(self._options(reader))
        tried = [0, *(self.drawn.randrange(len(mine.row)) for _ in range(_PAIRS))]
        arrival = self.way.arrival(op, mine, self.rows, self.ends)
        ends = mine.ends(arrival)
        behind = self.way.behind(op, mine, self.rows, self.left, (reader,))
        scores: list[tuple[float, int, int]] = []
        now, room = math.inf, self._room(op, reader)
        from_others = self.way.arrival(reader, theirs, self.rows, self.ends, (op,))
        their_behind = self.way.behind(reader, theirs, self.rows, self.left)
        for i in dict.fromkeys(tried):
            one = mine.only([i])
            arrival = self.way.after(op, reader, theirs, int(one.row[0]), ends[i], from_others.copy())
            score = self._score(reader, theirs, theirs.ends(arrival), their_behind)
            score += self._score(op, one, ends[i : i + 1], behind[i : i + 1])[0]
            score[theirs.cores + one.cores[0] > room] = np.inf
            if i == 0:
                now = float(score[0])
            scores += zip(score.tolist(), [i] * len(score), range(len(score)), strict=True)
        was = self.rows.pop(op), self.rows.pop(reader)
        for value, i, j in sorted(scores)[:_CHECKS]:
            if value >= now - 1e-6:
                break
            if not self.book.check(op, int(mine.row[i])):
                continue
            self.rows[op] = int(mine.row[i])
            fits = self.book.check(reader, int(theirs.row[j]))
            del self.rows[op]
            if fits:
                self.rows[op], self.rows[reader] = was
                self._give({op: mine.only([i]), reader: theirs.only([j])})
                return True
        self.rows[op], self.rows[reader] = was
        return False

    def _give(self, steps: Mapping[int, RowSteps]) -> None:
        self.steps.update(steps)
        self.rows.update({op: int(one.row[0]) for op, one in steps.items()})
        self._look(steps)

    # -- the way through all of them ---------------------------------------------------------------------------
    def run(self, visits: int) -> Segment | None:
        """The fastest placed epoch that is met, None where none is faster than before. visits: how many ops are looked
        at."""
        drawn, problem = self.drawn, self.problem
        unit = self.limit * math.sqrt(self.last - self.first) / problem.cores
        self.price = unit * drawn.choice(_CORE_PRICES)
        best, least = None, float(batch_times([(problem, self.segment)])[0])
        good, ratio = tuple(self.rows.values()), least / max(1.0, self._cycles())
        for op in range(self.first, self.last):
            if math.ceil(float(self.steps[op].cycles[0])) > self.limit and not self.one(op):
                return None
        for _ in range(drawn.choice(_KICKS)):
            self._kick()
        for _ in range(0, visits, _CHUNK):
            states = self._states(_CHUNK)
            some = sorted(states, key=lambda rows: (states[rows], rows))[:_LOOKED_AT]
            epochs = [(problem, dataclasses.replace(self.segment, rows=rows)) for rows in some]
            times = batch_times(epochs)
            for index in np.argsort(times, kind="stable").tolist():
                if times[index] >= least:
                    break
                rows = dict(zip(range(self.first, self.last), some[index], strict=True))
                placed = place_rows(problem, self.first, self.last, rows)
                if placed is not None:
                    best, least, good = placed, float(times[index]), some[index]
                    break
            if some and times[0] > _HELD_UP * max(1.0, ratio) * states[some[0]]:  # by full buffers
                self._back(good)
        return best

    def _states(self, visits: int) -> dict[tuple[int, ...], float]:
        """Rows that are met, where they keep the limit and there are cores for them, with the cycles of a batch."""
        drawn, problem = self.drawn, self.problem
        unit = self.limit * math.sqrt(self.last - self.first) / problem.cores
        states: dict[tuple[int, ...], float] = {}
        for _ in range(visits):
            longest = [op for op, cycles in self.through.items() if cycles >= 0.999 * self.total]
            op = drawn.choice(longest) if drawn.random() < _ON_THE_WAY else drawn.randrange(self.first, self.last)
            readers = [reader for reader, _, _ in self.way.readers[op]]
            changed = self.two(op, drawn.choice(readers)) if readers and drawn.random() < 0.5 else self.one(op)
            self.price = min(unit, self.price * (_DEARER if problem.cores - self.cores <= _SPARE else _CHEAPER))
            if changed and self.cores <= problem.cores:
                states[tuple(self.rows[op] for op in range(self.first, self.last))] = self._cycles()
        return states

    def _cycles(self) -> float:
        """Of a batch, if no buffer is ever full."""
        slowest = math.ceil(max(float(one.cycles[0]) for one in self.steps.values()))
        return self.total + (self.inputs - 1) * slowest

    def _back(self, rows: Sequence[int]) -> None:
        """Goes back to rows that were met before."""
        ops = range(self.first, self.last)
        changed = {op: row for op, row in zip(ops, rows, strict=True) if self.rows[op] != row}
        if changed:
            self._give({op: self._steps(op, np.array([row])) for op, row in changed.items()})
