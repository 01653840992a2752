"""One epoch being filled op by op, as upstream's shared loop does: edges first, then the first free rectangle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility, refusal_text
from tbuda_lab.core.placer.model.grid import CoreGrid, Spot, pack
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, items, measure
from tbuda_lab.core.placer.policies.narrow_grids import Narrow
from tbuda_lab.core.placer.policies.portfolio import count_epoch, uncount_epoch

Preference = Callable[[int], Iterable[int]]
"""Rows of an op, preferred first."""

_TRIES = 48
_REPAIRS = 12


class OpenEpoch:
    """Ops from `first` on, each with a row and a spot. `turn(op, row)`: whether the policy wants that op transposed."""

    def __init__(
        self,
        problem: Problem,
        first: int,
        upstream_rows: Mapping[int, int],
        preference: Preference,
        turn: Callable[[int, int], bool] | None = None,
    ) -> None:
        self.problem, self.first, self.last = problem, first, first
        self.preference, self.turn = preference, turn or (lambda op, row: False)
        self.book = EdgeCompatibility(problem, first, first, upstream_rows)
        self.grid = CoreGrid(problem.device.rows, problem.device.cols)
        self.spots: dict[int, Spot] = {}
        self.refusal = ""
        """Why the last op that was to join did not."""

    @property
    def rows(self) -> dict[int, int]:
        return self.book.rows

    def joins(self, op: int) -> bool:
        """Whether breaks, chips and the number of readers allow `op` as the next op of this epoch."""
        problem = self.problem
        if op > self.first:
            chips = {chip(problem, member) for member in range(self.first, op + 1)} - {None}
            if problem.order[op] in problem.breaks | problem.chip_breaks or len(chips) > 1:
                self.refusal = f"{problem.order[op]} begins an epoch, or is on another chip, by an override"
                return False
            self.book.last = op + 1
            crowded = self.book.users_ok()
            if crowded is not None:
                self.book.last = op
                self.book.refused = (crowded, crowded, EdgeReason.USERS)
                self.refusal = self._edge()
                return False
        return True

    def _edge(self) -> str:
        """The last edge that was refused, in words."""
        if self.book.refusal is None:
            return "no legal combination of candidates"
        producer, consumer, reason = self.book.refusal
        return refusal_text(self.problem, producer, consumer, reason)

    def add(self, op: int) -> bool:
        """Adds the next op with its most preferred legal row; False, and nothing changed, if that does not fit."""
        if not self.joins(op):
            return False
        self.book.last = op + 1
        for row in islice(self.preference(op), _TRIES):
            if self.book.check(op, row):
                self.rows[op] = row
                break
        else:
            if not self._repair(op):
                self.book.last = op
                self.refusal = self._edge()
                return False
            if self._replay(op + 1):
                return True
        if op in self.spots or self._place(op):
            self.last = op + 1
            return True
        # a grid of the whole device may be refused by its pin alone: then the next one that is accepted
        if op == self.first:
            for row in islice(self.preference(op), _TRIES):
                if self.book.check(op, row):
                    self.rows[op] = row
                    if self._place(op):
                        self.last = op + 1
                        return True
        high, wide = self._size(op, False) if op in self.rows else (0, 0)
        self.rows.pop(op, None)
        self.book.last = op
        grid = f"{high}x{wide} " if high else ""
        self.refusal = f"no free {grid}rectangle for {self.problem.order[op]} among {self.grid.free} free cores"
        return False

    def drop(self, op: int) -> None:
        """Takes the last op back."""
        self._clear(op)
        del self.rows[op]
        self.last = self.book.last = op

    def _clear(self, op: int) -> None:
        row, col, turned = self.spots.pop(op)
        height, width = self._size(op, turned)
        self.grid.release(row, col, height, width)

    def _size(self, op: int, turned: bool) -> tuple[int, int]:
        record = self.problem.tables[op].rows[self.rows[op]]
        size = (int(record["grid_r"]), int(record["grid_c"]))
        return size[::-1] if turned else size

    def _place(self, op: int) -> bool:
        pin = self.problem.pins.get(self.problem.order[op])
        free = not self.problem.options.place_on_one_row and self.turn(op, self.rows[op])
        turned = free if pin is None or pin.transpose is None else pin.transpose
        spot = self._spot(op, turned)
        if spot is None and turned and (pin is None or pin.transpose is None):
            spot = self._spot(op, False)
        if pin is None or pin.transpose is None:
            spot = self._auto_transposed(op, spot)
        if spot is None:
            return pin is not None and pin.start is not None and self._make_room(op)
        self.grid.take(spot[0], spot[1], *self._size(op, spot[2]))
        self.spots[op] = spot
        return True

    def _spot(self, op: int, turned: bool) -> Spot | None:
        height, width = self._size(op, turned)
        pin = self.problem.pins.get(self.problem.order[op])
        if pin is not None and pin.start is not None:
            return (*pin.start, turned) if self.grid.fits(*pin.start, height, width) else None
        at = self.grid.first_fit(height, width)
        return None if at is None else (*at, turned)

    def _auto_transposed(self, op: int, spot: Spot | None) -> Spot | None:
        """Transposed where the option asks for it, the op is taller than wide, and it comes to lie no later."""
        height, width = self._size(op, False)
        if not self.problem.options.enable_auto_transposing_placement or height <= width or (spot and spot[2]):
            return spot
        other = self._spot(op, True)
        if other is None or (spot is not None and spot[:2] < other[:2]):
            return spot
        return other

    def _make_room(self, op: int) -> bool:
        """A pinned op takes its place; those that lay there are packed anew around it."""
        spots = pack(items(self.problem, self.first, op + 1, self.rows), self.grid.rows, self.grid.cols)
        if spots is None:
            return False
        for other in list(self.spots):
            self._clear(other)
        for member, (row, col, turned) in zip(range(self.first, op + 1), spots, strict=True):
            pin = self.problem.pins.get(self.problem.order[member])
            spot = (row, col, turned or (pin is not None and pin.transpose is True))
            self.grid.take(row, col, *self._size(member, spot[2]))
            self.spots[member] = spot
        return True

    def _replay(self, last: int) -> bool:
        """Places ops [first, last) again with their present rows; those that do not fit stay without a spot."""
        self.grid = CoreGrid(self.grid.rows, self.grid.cols)
        self.spots.clear()
        for op in range(self.first, last):
            if not self._place(op):
                return False
        self.last = self.book.last = last
        return True

    def _repair(self, op: int) -> bool:
        """No row of `op` is legal with its producers: another row for one of them, if both then fit."""
        book = self.book
        rows = list(islice(self.preference(op), _TRIES))
        for producer in dict.fromkeys(p for p in self.problem.facts[op].producers if p in book.rows):
            old_row = book.rows.pop(producer)
            for other in islice(self.preference(producer), _REPAIRS):
                if other == old_row or not book.check(producer, other):
                    continue
                book.rows[producer] = other
                for row in rows:
                    if not book.check(op, row):
                        continue
                    book.rows[op] = row
                    if self._replay(op + 1):
                        return True
                    del book.rows[op]
                    break
                del book.rows[producer]
            book.rows[producer] = old_row
        self._replay(op)
        return False

    def assign(self, rows: Mapping[int, int]) -> bool:
        """Takes these rows for the ops of the epoch instead, if all of them can be placed; edges are not looked at."""
        before, last = dict(self.rows), self.last
        self.book.rows = dict(rows)
        if self._replay(last):
            return True
        self.book.rows = before
        self._replay(last)
        return False

    def segment(self) -> Segment:
        rows = {op: self.rows[op] for op in range(self.first, self.last)}
        kernel, limiter, _ = measure(self.problem, self.first, self.last, rows)
        spots = tuple(self.spots[op] for op in range(self.first, self.last))
        return Segment(self.first, self.last, tuple(rows.values()), spots, kernel, limiter)


def chip(problem: Problem, op: int) -> int | None:
    """The chip an op is pinned to."""
    pin = problem.pins.get(problem.order[op])
    return None if pin is None else pin.chip


def fill(
    problem: Problem, preference: Preference, check: Callable[[float], None], *, one_op: bool = False
) -> list[Segment]:
    """Ops in order, each with the most preferred row that is legal; a new epoch whenever the next op does not fit.
    Where an op could not read what earlier epochs wrote, those are filled again with a smaller grid of the writer.

    Raises `PlacementError` naming an op that fits no epoch, not even alone.
    """
    n = len(problem.order)
    result: list[Segment] = []
    upstream_rows: dict[int, int] = {}
    narrow = Narrow(problem)

    def allowed_rows(op: int) -> Iterable[int]:
        return narrow.rows(op, preference(op))

    while (first := result[-1].last if result else 0) < n:
        epoch = OpenEpoch(problem, first, upstream_rows, allowed_rows)
        while epoch.last < n and not (one_op and epoch.last > first) and epoch.add(epoch.last):
            pass
        if epoch.last == first:
            writer = narrow.writer(first, epoch.book.reason(), upstream_rows)
            if writer is None:
                raise no_epoch(problem, first, epoch.book.reason())
            while result and result[-1].last > writer:
                uncount_epoch(check, gone := result.pop())
                upstream_rows = {op: row for op, row in upstream_rows.items() if op < gone.first}
            continue
        if epoch.refusal or one_op:
            problem.refusals[first, epoch.last + 1] = epoch.refusal or "this policy gives every op an epoch of its own"
        result.append(epoch.segment())
        upstream_rows.update(epoch.rows)
        count_epoch(check, result[-1])
        check(epoch.last / n)
    return result


def no_epoch(problem: Problem, op: int, why: EdgeReason | None = None) -> PlacementError:
    """The error for an op that not even an epoch of its own can hold. why: what refused its candidates last."""
    name = problem.order[op]
    text = "" if why is None else f": {why.value}"
    return PlacementError(
        f"op {name!r} fits no epoch, not even alone",
        [
            Diagnostic(
                "error",
                name,
                "no-epoch",
                f"none of its legal candidates can be placed{text}",
                "remove the pin or size override of this op, or choose a larger device",
            )
        ],
    )
