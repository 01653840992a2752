"""One or more epochs made again after an edit, moving as little as possible.

In this order: every op keeps its candidate and its place, and the touched ones take a free place; all are packed anew;
as few others as possible shrink, as far as the epoch's slowest op allows; all are chosen anew; the epoch is split. The
last two are compared by cycles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.placer.model.chip_stages import epoch_cost
from tbuda_lab.core.placer.model.edge_compatibility import Repair
from tbuda_lab.core.placer.model.grid import CoreGrid, Spot
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows, polish

_STEP = 1.12
_TRIES = 6
_ROUNDS = 4
_SLACK = (1.0, 1.05, 1.12)
_WORTH = 1.15  # an epoch that got slower by no more is not worth the search for a cut


class EpochReplacement:
    """Makes the ops of `old` (epochs that follow each other) epochs again. `changed`: ops whose candidates or pins
    changed; `retabled`: those of them with other candidates. `upstream_rows`: rows of the ops of earlier epochs."""

    def __init__(
        self,
        problem: Problem,
        old: Sequence[Segment],
        changed: set[int],
        retabled: set[int],
        upstream_rows: Mapping[int, int],
    ) -> None:
        self.problem, self.old, self.changed, self.retabled = problem, old, changed, retabled
        self.upstream_rows = dict(upstream_rows)
        self.repairs: dict[tuple[object, ...], Repair] = {}
        self.row = {op: r for s in old for op, r in zip(range(s.first, s.last), s.rows, strict=True)}
        self.spot = {op: p for s in old for op, p in zip(range(s.first, s.last), s.spots, strict=True)}
        self.load = max(measure(problem, s.first, s.last, self._rows_of(s))[2].dram_cores for s in old)

    def _rows_of(self, segment: Segment) -> dict[int, int]:
        """Rows that exist in the tables there are now (the first legal one where the table changed)."""
        tables, legal = self.problem.tables, self.problem.legal
        return {
            op: int(legal[tables[op].signature][0]) if op in self.retabled else self.row[op]
            for op in range(segment.first, segment.last)
        }

    def run(self) -> list[Segment]:
        """The epochs. Raises `PlacementError` when an op does not even fit alone."""
        first, last = self.old[0].first, self.old[-1].last
        breaks = [op for op in range(first + 1, last) if self.problem.order[op] in self.problem.breaks]
        cuts = [first, *breaks, last]
        if len(self.old) > 1:
            return self._join_epochs(cuts)
        parts: list[Segment] = []
        for a, b in itertools.pairwise(cuts):
            fixed = self._hold(a, b)
            if fixed is None:
                parts += self._squeeze(a, b)
            else:
                parts.append(self._use_spare_cores(fixed) if breaks else fixed)
            for part in parts:
                self._record_rows(part)
        return parts

    def _join_epochs(self, cuts: Sequence[int]) -> list[Segment]:
        """A break was taken away: one epoch where that costs no more than the old ones."""
        parts: list[Segment] = []
        for a, b in itertools.pairwise(cuts):
            inner = [s for s in self.old if a <= s.first and s.last <= b]
            together = self._fit(a, b)
            apart = self._cost(inner)
            if together is not None:
                together = self._use_spare_cores(together)
            if together is not None and self._cost([together]) <= apart:
                parts.append(together)
            elif any(op in self.changed for op in range(a, b)) or not inner:
                parts += self._squeeze(a, b)
            else:
                for segment in inner:
                    fixed = self._hold(segment.first, segment.last)
                    parts += [fixed] if fixed is not None else self._squeeze(segment.first, segment.last)
            for part in parts:
                self._record_rows(part)
        return parts

    def _cost(self, parts: Sequence[Segment]) -> float:
        return sum(epoch_cost(self.problem, s) for s in parts)

    def _record_rows(self, segment: Segment) -> None:
        self.upstream_rows.update(zip(range(segment.first, segment.last), segment.rows, strict=True))

    # -- rows ------------------------------------------------------------------------------------------------
    def _fitting(self, op: int) -> np.ndarray:
        """Legal rows of an op that its pin leaves room for."""
        problem = self.problem
        table = problem.tables[op]
        legal = problem.legal[table.signature]
        pin = problem.pins.get(problem.order[op])
        if pin is None:
            return legal
        data = table.rows[legal]
        height, width = data["grid_r"].astype(np.int64), data["grid_c"].astype(np.int64)
        if pin.transpose:
            height, width = width, height
        top, left = pin.start or (0, 0)
        fits = (height + top <= problem.device.rows) & (width + left <= problem.device.cols)
        if pin.start is None and pin.transpose is None:
            fits |= (width <= problem.device.rows) & (height <= problem.device.cols)
        fitting: np.ndarray = legal[fits]
        return fitting

    def _fastest(self, op: int, first: int, last: int) -> int | None:
        """The row with the fewest limiter cycles for the load of the old epoch."""
        rows = self._fitting(op)
        if not len(rows):
            return None
        where, output = self.problem.places(op, first, last)
        cycles = self.problem.row_limits(op, where, output, EpochLoad(self.load, 0))[rows]
        data = self.problem.tables[op].rows[rows]
        return int(rows[np.lexsort((rows, data["t"], data["cores"], np.ceil(cycles)))[0]])

    def _rows(self, first: int, last: int) -> dict[int, int] | None:
        rows: dict[int, int] = {}
        for op in range(first, last):
            if op in self.changed:
                keep = op not in self.retabled and self.row[op] in self._fitting(op)
                row = self.row[op] if keep else self._fastest(op, first, last)
                if row is None:
                    return None
                rows[op] = row
            else:
                rows[op] = self.row[op]
        return rows

    def _limit(self, first: int, last: int, rows: Mapping[int, int]) -> int:
        """Cycles that the epoch takes at least: as before, or the new candidates of touched ops."""
        problem, load = self.problem, EpochLoad(self.load, 0)
        new = [
            problem.row_limits(op, *problem.places(op, first, last), load)[row]
            for op, row in rows.items()
            if op in self.changed
        ]
        return math.ceil(max([float(s.limiter_cycles) for s in self.old] + [float(c) for c in new]))

    # -- ways to place ---------------------------------------------------------------------------------------
    def _hold(self, first: int, last: int) -> Segment | None:
        """Everything as it was, the touched ops with their new candidates."""
        rows = self._rows(first, last)
        return self._again(first, last, rows, _SLACK[1] * self._limit(first, last, rows)) if rows is not None else None

    def _again(self, first: int, last: int, rows: Mapping[int, int], target: float) -> Segment | None:
        """An epoch of these rows, every op that keeps its row in its place where that works out. Edges that do not go
        together get other rows within the target."""
        chosen, _ = choose_rows(
            self.problem, first, last, rows, self.load, target, self.upstream_rows, repairs=self.repairs
        )
        if chosen is None:
            return None
        spots = self._spots(first, last, chosen)
        if spots is None:
            return place_rows(self.problem, first, last, chosen)
        kernel, limiter, _ = measure(self.problem, first, last, chosen)
        return Segment(first, last, tuple(chosen[op] for op in range(first, last)), spots, kernel, limiter)

    def _spots(self, first: int, last: int, rows: Mapping[int, int]) -> tuple[Spot, ...] | None:
        """Places with every op that kept its size where it was; None if the others find no room between them."""
        problem = self.problem
        grid = CoreGrid(problem.device.rows, problem.device.cols)
        spots: dict[int, Spot] = {}
        moving: list[int] = []
        for op in range(first, last):
            if op in self.changed or rows[op] != self.row[op]:
                moving.append(op)
                continue
            top, left, turned = self.spot[op]
            grid.take(top, left, *self._size(op, rows[op], turned))
            spots[op] = self.spot[op]
        pins = problem.pins
        moving.sort(key=lambda op: (pins.get(problem.order[op]) is None, -self._area(op, rows[op])))
        for op in moving:
            spot = self._spot(grid, op, rows[op])
            if spot is None:
                return None
            grid.take(spot[0], spot[1], *self._size(op, rows[op], spot[2]))
            spots[op] = spot
        return tuple(spots[op] for op in range(first, last))

    def _spot(self, grid: CoreGrid, op: int, row: int) -> Spot | None:
        """Where the pin says; else where it was; else the first free place, upright before turned."""
        pin = self.problem.pins.get(self.problem.order[op])
        turns = (False, True) if pin is None or pin.transpose is None else (pin.transpose,)
        if pin is not None and pin.start is not None:
            # without a word on transposing, a pinned op stands upright, as the placer has it
            turned = bool(pin.transpose)
            fits = grid.fits(*pin.start, *self._size(op, row, turned))
            return (*pin.start, turned) if fits else None
        top, left, _ = self.spot[op]
        for turned in turns:
            if grid.fits(top, left, *self._size(op, row, turned)):
                return top, left, turned
        for turned in turns:
            at = grid.first_fit(*self._size(op, row, turned))
            if at is not None:
                return *at, turned
        return None

    def _size(self, op: int, row: int, turned: bool) -> tuple[int, int]:
        data = self.problem.tables[op].rows[row]
        size = (int(data["grid_r"]), int(data["grid_c"]))
        return size[::-1] if turned else size

    def _area(self, op: int, row: int) -> int:
        return int(self.problem.tables[op].rows["cores"][row])

    def _squeeze(self, first: int, last: int) -> list[Segment]:
        """The others shrink, or the epoch is split: whichever takes fewer cycles."""
        together = self._shrink(first, last)
        if together is not None:
            return [together]
        together = self._fit(first, last)
        if together is not None:
            together = self._use_spare_cores(together)
            if self._cost([together]) <= self._cost(self.old) * _WORTH:
                return [together]
        apart = self._split(first, last, together is not None) if last - first > 1 else None
        if together is not None and (apart is None or self._cost([together]) <= self._cost(apart)):
            return [together]
        if apart is None:
            name = self.problem.order[first]
            raise PlacementError(
                f"{name} fits no epoch",
                [Diagnostic("error", name, "no-epoch", "it cannot be placed here", "remove its pin or its size")],
            )
        return [self._use_spare_cores(part) for part in apart]

    def _use_spare_cores(self, segment: Segment) -> Segment:
        """Cores that are left go to the op that limits the epoch."""
        return polish(self.problem, segment, self.upstream_rows, _ROUNDS)

    def _shrink(self, first: int, last: int) -> Segment | None:
        """Room made by ops that have time to spare: those that give most cores first, no more than are needed."""
        problem = self.problem
        rows_now = self._rows(first, last)
        if rows_now is None:
            return None
        where = {op: problem.places(op, first, last) for op in rows_now}
        limit = self._limit(first, last, rows_now)
        for slack in _SLACK:
            smaller: list[tuple[int, int, int]] = []  # cores saved, op, row
            for op in rows_now:
                if op in self.changed:
                    continue
                front = problem.costs.frontier(problem.tables[op], *where[op], self.load)
                at = int(np.searchsorted(-front.cycles, -limit * slack, side="left"))
                if at < len(front.row) and (saved := self._area(op, rows_now[op]) - int(front.cores[at])) > 0:
                    smaller.append((-saved, op, int(front.row[at])))
            smaller.sort()
            missing = sum(self._area(op, row) for op, row in rows_now.items()) - problem.cores
            enough = int(np.searchsorted(np.cumsum([-s[0] for s in smaller]), missing)) + 1
            for count in sorted({enough, enough + 2, len(smaller)}):
                if not 0 < count <= len(smaller):
                    continue
                rows = rows_now | {op: row for _, op, row in smaller[:count]}
                segment = self._again(first, last, rows, limit * slack)
                if segment is not None:
                    return segment
        return None

    def _fit(self, first: int, last: int) -> Segment | None:
        """One epoch at the lowest target at which areas, edges and packing work out."""
        problem = self.problem
        fronts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # cores ascending, cycles descending, row
        for op in range(first, last):
            where, output = problem.places(op, first, last)
            if op in self.changed and len(self._fitting(op)) < len(problem.legal[problem.tables[op].signature]):
                row = self._fastest(op, first, last)
                if row is None:
                    return None
                cycles = problem.row_limits(op, where, output, EpochLoad(self.load, 0))[row]
                fronts.append((np.array([self._area(op, row)]), np.array([math.ceil(cycles)]), np.array([row])))
            else:
                front = problem.costs.frontier(problem.tables[op], where, output, self.load)
                fronts.append((front.cores, front.cycles, front.row))
        low = max(int(cycles[-1]) for _, cycles, _ in fronts)
        high = max(int(cycles[0]) for _, cycles, _ in fronts)
        target, tries = float(low), 0
        while tries < _TRIES:
            at = [int(np.searchsorted(-cycles, -target, side="left")) for _, cycles, _ in fronts]
            if sum(int(front[0][i]) for front, i in zip(fronts, at, strict=True)) <= problem.cores:
                tries += 1
                picked = {op: int(fronts[op - first][2][i]) for op, i in zip(range(first, last), at, strict=True)}
                rows, _ = choose_rows(
                    problem, first, last, picked, self.load, max(target, low), self.upstream_rows, repairs=self.repairs
                )
                segment = place_rows(problem, first, last, rows) if rows is not None else None
                if segment is not None:
                    return segment
            if target >= high:
                return None
            target = max(target + 1, target * _STEP)
        return None

    def _split(self, first: int, last: int, whole_fits: bool = False) -> list[Segment] | None:
        """Two epochs: cut beside a touched op, or in the middle where the whole would fit too; only where that gives
        none, cut where the longest run from the front ends."""
        cuts = {c for op in range(first, last) if op in self.changed for c in (op, op + 1)}
        if whole_fits:
            cuts.add((first + last) // 2)
        best: list[Segment] | None = None
        for cut in sorted(c for c in cuts if first < c < last):
            parts = self._halves(first, cut, last)
            if parts is not None and (best is None or self._cost(parts) < self._cost(best)):
                best = parts
        if best is not None:
            return best
        low, high = first, last
        while high - low > 1:
            middle = (low + high) // 2
            if self._fit(first, middle) is not None:
                low = middle
            else:
                high = middle
        if low == first:
            return None
        best = self._halves(first, low, last)
        if best is None:
            front = self._fit(first, low)
            rest = self._split(low, last) if last - low > 1 else None
            if front is not None and rest is not None:
                best = [front, *rest]
        return best

    def _halves(self, first: int, cut: int, last: int) -> list[Segment] | None:
        parts = []
        for a, b in ((first, cut), (cut, last)):
            part = self._hold(a, b) or self._fit(a, b)
            if part is None:
                return None
            parts.append(part)
        return parts
