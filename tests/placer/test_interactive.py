"""The interactive placer against sets of cells, and its rules one by one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import InputError, PlacementError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.interactive import GridShape, IncrementalPlacer, InteractivePlacer, PlacerOpOverride
from tbuda_lab.core.placer.model.chip_stages import chip_order
from tests.placer.graphs import encoder, placed_as_chosen

ROWS, COLS = 6, 7
SMALL: DeviceSpec = dataclasses.replace(load_device("wormhole_b0"), rows=ROWS, cols=COLS)
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))
CELLS = st.tuples(st.integers(-1, ROWS), st.integers(-1, COLS))
EDITS = st.one_of(
    st.tuples(st.just("place"), SHAPES, st.booleans()),
    st.tuples(st.just("at"), SHAPES, st.booleans(), CELLS),
    st.tuples(st.just("move"), st.integers(0, 20), st.booleans(), CELLS, st.integers(0, 3)),
    st.tuples(st.just("swap"), st.integers(0, 20), st.integers(0, 20)),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("next")),
    st.tuples(st.just("rewind")),
    st.tuples(st.just("rewind_to"), st.integers(0, 20)),
    st.tuples(st.just("undo")),
    st.tuples(st.just("redo")),
)


def cells(row: int, col: int, height: int, width: int) -> frozenset[tuple[int, int]]:
    return frozenset((r, c) for r in range(row, row + height) for c in range(col, col + width))


ALL = cells(0, 0, ROWS, COLS)


class Brute:
    """Epochs as lists of (name, shape, cells); free rectangles by trying every start."""

    def __init__(self) -> None:
        self.epochs: list[list[tuple[str, tuple[int, int], frozenset[tuple[int, int]]]]] = [[]]

    def used(self, epoch: int, without: tuple[str, ...] = ()) -> set[tuple[int, int]]:
        return {cell for name, _, own in self.epochs[epoch] if name not in without for cell in own}

    def fits(self, epoch: int, own: frozenset[tuple[int, int]], without: tuple[str, ...] = ()) -> bool:
        return own <= ALL and not own & self.used(epoch, without)

    def first(self, height: int, width: int) -> tuple[int, int] | None:
        free = [s for s in sorted(ALL) if self.fits(len(self.epochs) - 1, cells(*s, height, width))]
        return free[0] if free else None

    def names(self) -> list[str]:
        return [name for epoch in self.epochs for name, _, _ in epoch]

    def find(self, name: str) -> tuple[int, int]:
        return next((i, k) for i, e in enumerate(self.epochs) for k, op in enumerate(e) if op[0] == name)

    def copy(self) -> list:
        return [list(e) for e in self.epochs]


def extent(own: frozenset[tuple[int, int]]) -> tuple[int, int]:
    (top, left), (bottom, right) = min(own), max(own)
    return bottom - top + 1, right - left + 1


def snapshot(placer: InteractivePlacer) -> list:
    """Epochs of a placer in the brute-force form."""
    snapshot: list = [[] for _ in range(placer.get_current_epoch_index() + 1)]
    for op in placer.get_current_name_to_op_placement().values():
        own = cells(*op.placed_cores.start, *op.placed_cores.size)
        snapshot[op.global_epoch_id].append((op.name, tuple(op.shape), own))
    return snapshot


@given(st.lists(EDITS, max_size=30))
def test_edits_agree_with_sets_of_cells(edits: list) -> None:
    placer, brute = InteractivePlacer(SMALL), Brute()
    past: list = []
    future: list = []
    for number, (kind, *arguments) in enumerate(edits):
        before, name, names = brute.copy(), f"op{number}", brute.names()
        at = len(brute.epochs) - 1
        done = True
        if kind == "place":
            (shape, turn) = arguments
            normal = brute.first(*shape)
            turned = brute.first(*shape[::-1]) if turn else None
            start = min((s for s in (normal, turned) if s is not None), default=None)
            area = placer.place_op(name, shape, turn)
            if start is None:
                assert area is None and placer.last_refusal is not None and placer.last_refusal.rule == "full"
                done = False
            else:
                size = shape if start == normal else shape[::-1]
                assert area is not None and tuple(area.start) == start and tuple(area.size) == tuple(size)
                brute.epochs[at].append((name, shape, cells(*start, *size)))
        elif kind == "at":
            shape, turn, start = arguments
            own = cells(*start, *(shape[::-1] if turn else shape))
            if brute.fits(at, own):
                placer.place_op_at(name, shape, start, transpose=turn)
                brute.epochs[at].append((name, shape, own))
            else:
                with pytest.raises(PlacementError):
                    placer.place_op_at(name, shape, start, transpose=turn)
                done = False
        elif kind == "move" and names:
            pick, turn, start, epoch = arguments
            name, epoch = names[pick % len(names)], epoch % len(brute.epochs)
            i, k = brute.find(name)
            shape = brute.epochs[i][k][1]
            own = cells(*start, *(shape[::-1] if turn else shape))
            if brute.fits(epoch, own, (name,)):
                placer.move(name, start, transpose=turn, epoch=epoch)
                if epoch == i:
                    brute.epochs[i][k] = (name, shape, own)
                else:
                    del brute.epochs[i][k]
                    brute.epochs[epoch].append((name, shape, own))
            else:
                with pytest.raises(PlacementError):
                    placer.move(name, start, transpose=turn, epoch=epoch)
                done = False
        elif kind == "swap" and len(names) > 1:
            a, b = (names[i % len(names)] for i in arguments)
            if a == b:
                continue
            (i, k), (j, m) = brute.find(a), brute.find(b)
            one, two = brute.epochs[i][k][2], brute.epochs[j][m][2]
            new_one, new_two = cells(*min(two), *extent(one)), cells(*min(one), *extent(two))
            apart = i != j or not new_one & new_two
            if apart and brute.fits(j, new_one, (a, b)) and brute.fits(i, new_two, (a, b)):
                placer.swap(a, b)
                shapes = brute.epochs[i][k][1], brute.epochs[j][m][1]
                brute.epochs = [[op for op in e if op[0] not in (a, b)] for e in brute.epochs]
                brute.epochs[j].append((a, shapes[0], new_one))
                brute.epochs[i].append((b, shapes[1], new_two))
            else:
                with pytest.raises(PlacementError):
                    placer.swap(a, b)
                done = False
        elif kind == "remove" and names:
            name = names[arguments[0] % len(names)]
            placer.remove(name)
            i, k = brute.find(name)
            del brute.epochs[i][k]
        elif kind == "next":
            assert placer.next_epoch() == len(brute.epochs)
            brute.epochs.append([])
        elif kind == "rewind":
            log = placer.rewind_epoch_logged()
            assert [name for name, _ in log] == [name for name, _, _ in brute.epochs[-1]]
            brute.epochs[-1] = []
        elif kind == "rewind_to":
            here = [name for name, _, _ in brute.epochs[-1]]
            if not here:
                with pytest.raises(InputError):
                    placer.rewind_to("nothing")
                continue
            k = arguments[0] % len(here)
            assert placer.rewind_to(here[k])[0] == (here[k - 1] if k else "")
            brute.epochs[-1] = brute.epochs[-1][:k]
        elif kind == "undo":
            assert placer.undo() == bool(past)
            if past:
                future.append(brute.copy())
                brute.epochs = past.pop()
            done = False
        elif kind == "redo":
            assert placer.redo() == bool(future)
            if future:
                past.append(brute.copy())
                brute.epochs = future.pop()
            done = False
        else:
            continue
        if done:
            past.append(before)
            future.clear()
        assert snapshot(placer) == brute.epochs


@given(st.lists(st.tuples(SHAPES, CELLS), max_size=8), SHAPES, st.booleans(), st.integers(0, 8))
def test_starts_heat_and_explanations_agree_with_sets_of_cells(ops: list, shape: tuple, turn: bool, drag: int) -> None:
    placer, brute = InteractivePlacer(SMALL), Brute()
    for i, (size, start) in enumerate(ops):
        own = cells(*start, *size)
        if brute.fits(0, own):
            placer.place_op_at(f"op{i}", size, start)
            brute.epochs[0].append((f"op{i}", size, own))
    without = (f"op{drag}",)
    used = brute.used(0, without)
    height, width = shape[::-1] if turn else shape
    masks = placer.starts(shape, transpose=turn, without=without)
    heat = placer.heat(shape, transpose=turn, without=without)
    for row in range(-1, ROWS + 1):
        for col in range(-1, COLS + 1):
            own = cells(row, col, height, width)
            free = own <= ALL and not own & used
            message = placer.explain(shape, (row, col), transpose=turn, without=without)
            assert (message is None) == free
            if (row, col) in ALL:
                assert bool(masks[row] >> col & 1) == free
                assert heat[row, col] == (len(own & used) if own <= ALL else -1)
            if message is None:
                continue
            if not own <= ALL:
                assert message.rule == "outside"
            else:
                assert message.rule == "occupied" and set(message.cells) == own & used
                assert set(message.blockers) == {n for n, _, o in brute.epochs[0] if o & own and n not in without}
            starts = [s for s in ALL if cells(*s, height, width) <= ALL and not cells(*s, height, width) & used]
            if message.nearest is None:
                assert not starts
            else:
                far = abs(message.nearest[0] - row) + abs(message.nearest[1] - col)
                assert tuple(message.nearest) in starts
                assert far == min(abs(r - row) + abs(c - col) for r, c in starts)


# -- chips ---------------------------------------------------------------------------------------------------------
def test_chip_wishes_take_chips_out_of_turn() -> None:
    """Four ops of 8x8 on four chips; three ask for chips 3, 2 and 1, the fourth gets what is left."""
    device = dataclasses.replace(load_device("n300", chips=4), rows=8, cols=8)
    placer = InteractivePlacer(device)
    for name, chip in (("a", 3), ("b", 2), ("c", 1)):
        placer.get_op_overrides()[name] = PlacerOpOverride(chip_id=chip)
    assert all(placer.place_op(n, (8, 8)) is not None for n in "abcd")
    assert [p.chip_id for p in placer.get_current_name_to_op_placement().values()] == [3, 2, 1, 0]
    assert placer.get_current_epoch_index() == 3
    assert placer.place_op("e", (1, 1)) is None
    solution = placer.commit()
    assert [solution.epoch_id_to_epoch_info[i].spatial_epoch_id for i in range(4)] == [0, 1, 2, 3]
    assert solution.num_temporal_epochs() == 1 and solution.chip_id("b") == 2


def test_a_chip_used_in_this_temporal_epoch_is_gone() -> None:
    placer = InteractivePlacer(load_device("n300"))
    assert placer.place_op("a", (8, 8)) and placer.place_op("b", (1, 1))
    first = placer.get_current_name_to_op_placement()["a"].chip_id
    placer.get_op_overrides()["c"] = PlacerOpOverride(chip_id=first)
    assert placer.place_op("c", (1, 1)) is None
    assert placer.last_refusal is not None and placer.last_refusal.rule == "chip"
    placer.next_epoch()
    assert placer.place_op("c", (1, 1)) is not None


def test_outputs_go_to_chips_that_the_host_reaches() -> None:
    device = load_device("wormhole_b0", chips=4)
    placer = InteractivePlacer(device)
    placer.place_op("a", (2, 2))
    assert placer.place_op("out", (2, 2), output=True) is not None
    assert placer.get_current_name_to_op_placement()["out"].chip_id in device.mmio_chips


def test_a_chip_break_moves_on_only_from_a_chip_that_holds_ops() -> None:
    placer = InteractivePlacer(load_device("n300"))
    placer.place_op("a", (1, 1), chip_break=True)
    assert placer.get_current_epoch_index() == 0
    placer.place_op("b", (1, 1), chip_break=True)
    assert placer.get_current_epoch_index() == 1
    assert placer.place_op("c", (1, 1), chip_break=True) is None


def test_idle_chips_get_empty_graphs() -> None:
    placer = InteractivePlacer(load_device("wormhole_b0", chips=4))
    placer.place_op("a", (1, 1))
    assert placer.next_epoch() == 4
    placer.place_op("b", (1, 1))
    solution = placer.commit()
    assert solution.num_epochs == 5 and solution.temporal_epoch_id("b") == 1
    assert sorted(solution.epoch_id_to_chip[i] for i in range(4)) == [0, 1, 2, 3]


def test_snake_turns_every_other_temporal_epoch_round() -> None:
    placer = InteractivePlacer(load_device("n300"), snake=True)
    placer.place_op("a", (1, 1))
    placer.next_epoch()
    placer.place_op("b", (1, 1))
    chips = [p.chip_id for p in placer.get_current_name_to_op_placement().values()]
    assert chips == [1, 0]


def test_a_pipelined_placement_deals_epochs_in_shares() -> None:
    placer = InteractivePlacer(load_device("n300"), pipelined=True)
    for i in range(5):
        assert placer.place_op(f"op{i}", (8, 8)) is not None
        assert placer.place_op("more", (1, 1)) is None
        if i < 4:
            placer.next_epoch()
    solution = placer.commit()
    assert [solution.epoch_id_to_chip[i] for i in range(5)] == [1, 1, 1, 0, 0]
    assert [solution.temporal_epoch_id(i) for i in range(5)] == [0, 1, 2, 2, 3]
    with pytest.raises(InputError):
        placer.undo()


@pytest.mark.parametrize("chips", [2, 4, 8, 32])
def test_chip_orders_end_at_the_host_and_a_snake_goes_link_by_link(chips: int) -> None:
    device = load_device("wormhole_b0", chips=chips)
    for policy in ("MMIO_LAST", "SNAKE"):
        order = chip_order(device, policy)
        assert sorted(order) == sorted(device.chips) and order[-1] in device.mmio_chips
    assert all(device.hops(a, b) == 1 for a, b in itertools.pairwise(order))


# -- pairs, pins, errors -------------------------------------------------------------------------------------------
def test_two_ops_stand_side_by_side_or_one_above_the_other() -> None:
    placer = InteractivePlacer(SMALL)
    area = placer.place_two_ops_rowwise("a", (2, 3), "b", (2, 4))
    assert area is not None and tuple(area.size) == (2, 7)
    spots = placer.get_current_name_to_op_placement()
    assert tuple(spots["a"].placed_cores.end) == (2, 3) and tuple(spots["b"].placed_cores.start) == (0, 3)
    turned = InteractivePlacer(SMALL).place_two_ops_rowwise("a", (7, 2), "b", (7, 3), enable_transpose=True)
    assert turned is not None and tuple(turned.size) == (5, 7)
    with pytest.raises(PlacementError, match="rows"):
        placer.place_two_ops_rowwise("c", (1, 1), "d", (2, 1))
    with pytest.raises(PlacementError, match="do not fit"):
        placer.place_two_ops_rowwise("c", (2, 4), "d", (2, 4))


def test_a_pin_is_kept_or_refused_with_what_blocks_it() -> None:
    placer = InteractivePlacer(SMALL)
    placer.get_op_overrides()["a"] = PlacerOpOverride(grid_start=(2, 3))  # type: ignore[arg-type]
    placer.get_op_overrides()["b"] = PlacerOpOverride(grid_start=(3, 3), transpose_op=True)  # type: ignore[arg-type]
    assert tuple(placer.place_op("a", (2, 2)).start) == (2, 3)  # type: ignore[union-attr]
    assert placer.place_op("b", (1, 2)) is None
    assert placer.last_refusal is not None and placer.last_refusal.blockers == ("a",)
    placer.next_epoch()
    area = placer.place_op("b", (1, 2))
    assert area is not None and tuple(area.start) == (3, 3) and tuple(area.size) == (2, 1)
    placer.get_op_overrides()["c"] = PlacerOpOverride(grid_start=(5, 6))  # type: ignore[arg-type]
    with pytest.raises(PlacementError, match="leave the grid"):
        placer.place_op("c", (2, 2))


def test_refusals_name_harvested_rows() -> None:
    device = load_device("n150")
    message = InteractivePlacer(device).explain((2, 2), (device.rows - 1, 0))
    assert message is not None and message.rule == "outside"
    assert all(str(row) in message.text for row in device.harvested_by_chip[0])


def test_an_op_too_large_or_placed_twice_is_an_error() -> None:
    placer = InteractivePlacer(SMALL)
    assert placer.can_fit_on_single_epoch(7, 2, allow_transpose=True) and not placer.can_fit_on_single_epoch(7, 2)
    with pytest.raises(PlacementError, match="do not fit"):
        placer.place_op("a", (7, 2))
    placer.place_op("a", (7, 2), enable_transpose=True)
    with pytest.raises(PlacementError, match="already"):
        placer.place_op("a", (1, 1))


def test_an_epoch_break_waits_for_the_next_epoch() -> None:
    placer = InteractivePlacer(SMALL)
    placer.place_op("a", (1, 1))
    placer.get_op_overrides()["b"] = PlacerOpOverride(temporal_epoch_break=True)
    assert placer.place_op("b", (1, 1)) is None
    placer.next_epoch()
    assert placer.place_op("b", (1, 1)) is not None


# -- from and to the compiler --------------------------------------------------------------------------------------
def test_an_edited_placement_comes_back_from_the_compiler() -> None:
    graph, device, options = encoder(1), load_device("wormhole_b0"), CompileOptions()
    before = placed_as_chosen(graph, device, options)
    placer = InteractivePlacer.of(before, device)
    assert not placer.as_overrides(before)
    placed = placer.get_current_name_to_op_placement()
    name, start = next(
        (op, (r, c))
        for op, spot in placed.items()
        for r, mask in enumerate(placer.starts(spot.shape, epoch=spot.global_epoch_id, without=(op,)))
        for c in range(device.cols)
        if mask >> c & 1 and (r, c) != tuple(spot.placed_cores.start) and not spot.grid_transpose
    )
    placer.move(name, start)
    overrides = placer.as_overrides(before)
    assert [o.target for o in overrides] == [name]
    after = placed_as_chosen(graph, device, options, overrides)
    assert after.ops[name].start == start and not after.ops[name].transposed
    assert placer.undo() and not placer.as_overrides(before)
    assert GridShape(*before.ops[name].size) == placed[name].placed_cores.size


# -- what is no grid, no start, no chip ----------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [None, (3,), (2, 2, 2), ("a", 1), (1.5, 2), 4, (0, 1), (-1, 2)])
def test_grids_are_two_whole_numbers_from_one(shape: object) -> None:
    placer = InteractivePlacer(SMALL)
    asks: list[Callable[[], object]] = [
        lambda: placer.place_op("a", shape),  # type: ignore[arg-type]
        lambda: placer.place_op_at("a", shape, (0, 0)),  # type: ignore[arg-type]
        lambda: placer.place_two_ops_rowwise("a", shape, "b", shape),  # type: ignore[arg-type]
        lambda: placer.starts(shape),  # type: ignore[arg-type]
        lambda: placer.heat(shape),  # type: ignore[arg-type]
        lambda: placer.explain(shape, (0, 0)),  # type: ignore[arg-type]
    ]
    for ask in asks:
        with pytest.raises(InputError, match="grid"):
            ask()
    assert placer.current_epoch_empty() and not placer.undo()


@pytest.mark.parametrize("start", [None, (0,), ("x", 0), (0, 0, 0), (0.5, 0)])
def test_starts_are_two_whole_numbers(start: object) -> None:
    placer = InteractivePlacer(SMALL)
    placer.place_op("a", (1, 1))
    placer.get_op_overrides()["c"] = PlacerOpOverride(grid_start=start or (1,))  # type: ignore[arg-type]
    asks: list[Callable[[], object]] = [
        lambda: placer.place_op_at("b", (1, 1), start),  # type: ignore[arg-type]
        lambda: placer.move("a", start),  # type: ignore[arg-type]
        lambda: placer.explain((1, 1), start),  # type: ignore[arg-type]
        lambda: placer.place_op("c", (1, 1)),
    ]
    for ask in asks:
        with pytest.raises(InputError, match="start"):
            ask()
    assert placer.current_epoch_ops() == ("a",)


def test_a_chip_that_there_is_not_is_an_error_and_no_matter_of_the_next_epoch() -> None:
    placer = InteractivePlacer(load_device("n300"))
    placer.get_op_overrides()["a"] = PlacerOpOverride(chip_id=7)
    with pytest.raises(PlacementError, match="chips: 0, 1"):
        placer.place_op("a", (1, 1))


def test_one_op_does_not_stand_beside_itself() -> None:
    placer = InteractivePlacer(SMALL)
    with pytest.raises(PlacementError, match="beside itself"):
        placer.place_two_ops_rowwise("a", (1, 1), "a", (1, 1))
    assert placer.current_epoch_empty()


def test_a_chip_break_names_placed_ops_or_nothing_is_committed() -> None:
    placer = InteractivePlacer(load_device("n300"), pipelined=True)
    for name in "ab":
        placer.place_op(name, (1, 1))
        placer.next_epoch()
    with pytest.raises(InputError, match="'z' is not placed"):
        placer.commit(["z"])
    chips = placer.commit(["b"]).epoch_id_to_chip
    assert chips[0] != chips[1]


def test_what_is_moved_by_hand_is_an_edit_of_the_whole_placement() -> None:
    """Overrides of the placer by hand, placed by the incremental one: the op is moved, other epochs are taken over."""
    device = load_device("wormhole_b0")
    engine = IncrementalPlacer.place(encoder(1), device, CompileOptions())
    before = engine.whole().placement()
    hand = InteractivePlacer.of(before, device)
    free = {
        name: [
            (row, col)
            for row, mask in enumerate(hand.starts(before.ops[name].size, epoch=0, without=(name,)))
            for col in range(device.cols)
            if mask >> col & 1 and (row, col) != before.ops[name].start
        ]
        for name in before.epochs[0].ops
    }
    name, spot = next((op, spots[-1]) for op, spots in free.items() if spots)
    hand.move(name, spot)
    placed = engine.edit(hand.as_overrides(before))
    assert placed is not None and placed.ops()[name].start == spot
    others = [op for op in before.ops.values() if op.epoch > 0]
    assert [placed.ops()[op.op] for op in others] == others
    assert [placed.placement().epochs[i].ops for i in range(len(before.epochs))] == [e.ops for e in before.epochs]
