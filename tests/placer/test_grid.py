"""Rectangles on bitmasks against sets of cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.placer.model.grid import CoreGrid, Item, pack

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 5))


def cells(row: int, col: int, height: int, width: int) -> set[tuple[int, int]]:
    return {(r, c) for r in range(row, row + height) for c in range(col, col + width)}


@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=14), st.integers(1, 10), st.integers(1, 12))
def test_packed_rectangles_lie_inside_and_apart(shapes: list, rows: int, cols: int) -> None:
    result = pack([Item(r, c, turn) for (r, c), turn in shapes], rows, cols)
    if result is None:
        return
    used: set[tuple[int, int]] = set()
    for ((r, c), turn), (row, col, turned) in zip(shapes, result, strict=True):
        assert not turned or turn
        mine = cells(row, col, *((c, r) if turned else (r, c)))
        assert not mine & used
        assert mine <= cells(0, 0, rows, cols)
        used |= mine


@given(st.lists(SIZES, min_size=1, max_size=10))
def test_rectangles_that_cover_a_grid_by_shelves_are_packed(shapes: list) -> None:
    """Equal heights side by side always fit a grid of their summed widths."""
    height = max(r for r, _ in shapes)
    assert pack([Item(height, c) for _, c in shapes], height, sum(c for _, c in shapes)) is not None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=12), SIZES)
def test_starts_and_first_fit_are_all_free_places(used: list, size: tuple[int, int]) -> None:
    grid = CoreGrid(6, 7)
    for r, c in used:
        grid.take(r, c, 1, 1)
    taken = set(used)
    expected = {
        (r, c)
        for r in range(6)
        for c in range(7)
        if cells(r, c, *size) <= cells(0, 0, 6, 7) and not cells(r, c, *size) & taken
    }
    masks = grid.starts(*size)
    assert {(r, c) for r in range(6) for c in range(7) if masks[r] >> c & 1} == expected
    assert grid.first_fit(*size) == min(expected, default=None)
    assert {(r, c) for r in range(6) for c in range(7) if grid.fits(r, c, *size)} == expected
    assert grid.free == 42 - len(taken)


def test_pins_are_kept_and_impossible_ones_refused() -> None:
    result = pack([Item(2, 2), Item(2, 2, pin=(0, 1))], 4, 4)
    assert result is not None and result[1] == (0, 1, False)
    assert not cells(*result[0][:2], 2, 2) & cells(0, 1, 2, 2)
    assert pack([Item(2, 2, pin=(0, 0)), Item(2, 2, pin=(1, 1))], 4, 4) is None
    assert pack([Item(2, 2, pin=(3, 3))], 4, 4) is None


def test_turning_is_used_where_nothing_else_fits() -> None:
    assert pack([Item(4, 1), Item(1, 3, turn=False)], 4, 2) is None
    turned = pack([Item(4, 1), Item(1, 3)], 4, 2)
    assert turned is not None and turned[1][2]


def test_what_lies_is_turned_where_it_comes_to_lie_no_later() -> None:
    wide, tall = Item(1, 3), Item(2, 1, lies=True)
    assert pack([wide, tall], 4, 8) == [(0, 0, False), (0, 3, True)]
    assert pack([wide, Item(2, 1)], 4, 8) == [(0, 0, False), (0, 3, False)]
    assert pack([Item(1, 7), tall], 4, 8) == [(0, 0, False), (0, 7, False)]  # it lies only further down
