"""Rectangles on a grid of cores, one integer bitmask per row."""

from __future__ import annotations

from collections.abc import Sequence


class CoreGrid:
    """Occupancy of rows x cols cores. A set bit is a used core; bit c of `rows[r]` is the core (r, c)."""

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        self.mask = [0] * rows

    def copy(self) -> CoreGrid:
        grid = CoreGrid(self.rows, self.cols)
        grid.mask = list(self.mask)
        return grid

    def starts(self, height: int, width: int) -> list[int]:
        """For every row, the bitmask of columns where a rectangle of that size may start (its top left core)."""
        if height > self.rows or width > self.cols:
            return [0] * self.rows
        inside = (1 << (self.cols - width + 1)) - 1
        free_runs: list[int] = []
        for mask in self.mask:
            blocked = mask
            for shift in range(1, width):
                blocked |= mask >> shift
            free_runs.append(~blocked & inside)
        starts = [0] * self.rows
        for r in range(self.rows - height + 1):
            column = free_runs[r]
            for below in free_runs[r + 1 : r + height]:
                column &= below
            starts[r] = column
        return starts

    def first_fit(self, height: int, width: int) -> tuple[int, int] | None:
        """First free start in row-major order, or None."""
        if height > self.rows or width > self.cols:
            return None
        inside = (1 << (self.cols - width + 1)) - 1
        mask = self.mask
        for r in range(self.rows - height + 1):
            used = mask[r]
            for below in mask[r + 1 : r + height]:
                used |= below
            blocked = used
            for shift in range(1, width):
                blocked |= used >> shift
            free = ~blocked & inside
            if free:
                return r, (free & -free).bit_length() - 1
        return None

    def fits(self, row: int, col: int, height: int, width: int) -> bool:
        if row < 0 or col < 0 or row + height > self.rows or col + width > self.cols:
            return False
        bits = ((1 << width) - 1) << col
        return not any(m & bits for m in self.mask[row : row + height])

    def take(self, row: int, col: int, height: int, width: int) -> None:
        bits = ((1 << width) - 1) << col
        for r in range(row, row + height):
            self.mask[r] |= bits

    def release(self, row: int, col: int, height: int, width: int) -> None:
        bits = ((1 << width) - 1) << col
        for r in range(row, row + height):
            self.mask[r] &= ~bits

    @property
    def free(self) -> int:
        return self.rows * self.cols - sum(m.bit_count() for m in self.mask)


class Item:
    """A rectangle to place: rows x cols, whether it may be turned, where the user pinned it, and whether it is turned,
    when it is taller than wide, wherever it comes to lie no later (`enable_auto_transposing_placement`)."""

    __slots__ = ("cols", "lies", "pin", "rows", "turn")

    def __init__(
        self, rows: int, cols: int, turn: bool = True, pin: tuple[int, int] | None = None, lies: bool = False
    ) -> None:
        self.rows, self.cols, self.turn, self.pin, self.lies = rows, cols, turn, pin, lies


Spot = tuple[int, int, bool]
"""(row, column, transposed) of a placed item."""


def _try(items: Sequence[Item], order: Sequence[int], grid: CoreGrid, turn: bool) -> list[Spot] | None:
    spots: list[Spot | None] = [None] * len(items)
    for i in order:
        item = items[i]
        if item.pin is not None:
            continue
        spot: Spot | None = None
        at = grid.first_fit(item.rows, item.cols)
        if at is not None:
            spot = (*at, False)
        lies = item.lies and item.rows > item.cols
        if lies or (turn and item.turn and item.rows != item.cols):
            turned = grid.first_fit(item.cols, item.rows)
            if turned is not None and (spot is None or turned < (spot[0], spot[1]) or (lies and turned == spot[:2])):
                spot = (*turned, True)
        if spot is None:
            return None
        height, width = (item.cols, item.rows) if spot[2] else (item.rows, item.cols)
        grid.take(spot[0], spot[1], height, width)
        spots[i] = spot
    return [s if s is not None else (0, 0, False) for s in spots]


def pack(items: Sequence[Item], rows: int, cols: int) -> list[Spot] | None:
    """Places all items without overlap, or None. Pinned items go first where they are pinned (an impossible pin gives
    None); the rest by first fit: in the given order, then by falling height, width and area, turned where it helps."""
    base = CoreGrid(rows, cols)
    pinned: dict[int, Spot] = {}
    area = 0
    for i, item in enumerate(items):
        area += item.rows * item.cols
        if item.pin is None:
            continue
        at = item.pin
        if base.fits(*at, item.rows, item.cols):
            base.take(*at, item.rows, item.cols)
            pinned[i] = (*at, False)
        else:
            return None
    if area > rows * cols:
        return None
    input_order = range(len(items))
    orders = [
        sorted(input_order, key=lambda i: (-items[i].rows, -items[i].cols)),
        sorted(input_order, key=lambda i: (-items[i].rows * items[i].cols, -items[i].rows)),
        sorted(input_order, key=lambda i: (-items[i].cols, -items[i].rows)),
        sorted(input_order, key=lambda i: (-max(items[i].rows, items[i].cols), -items[i].rows * items[i].cols)),
    ]
    for turn in (False, True):
        for order in (input_order, *orders):
            result = _try(items, order, base.copy(), turn)
            if result is not None:
                for i, spot in pinned.items():
                    result[i] = spot
                return result
    return None
