"""A placer driven one op at a time by a policy, a script, or somebody who drags rectangles
(placement.md#interactive-placing)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.interactive.board import (
    Board,
    BoardEpoch,
    Coord,
    CoordRange,
    EpochInfo,
    GridShape,
    PlacedOp,
    PlacerOpOverride,
    PlacerSolution,
    Refusal,
    State,
    area_of,
    coord,
    fault,
    grid_shape,
    turn_shape,
)


class InteractivePlacer(Board):
    """Places ops on the epochs of a device. Several chips are filled one after the other within a temporal epoch.

    device: its grid, chips and harvested rows. chip_placement_policy: see `chip_order`. snake: every other temporal
    epoch takes the chips in reverse. pipelined: a temporal epoch has one graph, and `commit` deals the epochs to chips.
    """

    @classmethod
    def of(cls, placement: Placement, device: DeviceSpec) -> InteractivePlacer:
        """A placer that holds a finished placement, to edit it. Its history begins there."""
        placer = cls(device)
        epochs: list[BoardEpoch] = []
        spatial: dict[int, int] = {}
        for epoch in placement.epochs:
            at = spatial.get(epoch.temporal, 0)
            spatial[epoch.temporal] = at + 1
            ops = []
            for name in epoch.ops:
                spot = placement.ops[name]
                start = Coord(*spot.start)
                area = CoordRange(start, Coord(start.row + spot.size[0], start.col + spot.size[1]))
                shape = GridShape(*(spot.size[::-1] if spot.transposed else spot.size))
                ops.append(PlacedOp(name, epoch.chip, epoch.index, spot.transposed, area, shape))
            epochs.append(BoardEpoch(epoch.temporal, at, epoch.chip, epoch.direction, tuple(ops)))
        if epochs:
            placer._state = tuple(epochs)
        return placer

    # -- placing ---------------------------------------------------------------------------------------------
    def place_op(
        self,
        name: str,
        shape: Sequence[int],
        enable_transpose: bool = False,
        chip_break: bool = False,
        output: bool = False,
    ) -> CoordRange | None:
        """The first free rectangle of the current epoch, else of the next chip of this temporal epoch; None when no
        chip is left (then call `next_epoch`), and nothing has changed.

        enable_transpose: take the turned rectangle where it comes first. chip_break: start on the next chip if this
        one holds ops. output: the op feeds the host, so it needs a chip that the host reaches. An override of the op
        (`get_op_overrides`) fixes start, chip, transposition.
        Raises `PlacementError` for an op that is placed already, that not even an empty epoch can hold, or that is
        wanted on a chip that there is not.
        """
        wish = self._overrides.get(name, PlacerOpOverride())
        area = self._place((name,), grid_shape(shape), wish, enable_transpose, chip_break, output)
        return None if area is None else area[0]

    def place_two_ops_rowwise(
        self,
        first: str,
        first_shape: Sequence[int],
        second: str,
        second_shape: Sequence[int],
        enable_transpose: bool = False,
        chip_break: bool = False,
    ) -> CoordRange | None:
        """Two ops of equal rows side by side as one rectangle (one above the other when turned); the rectangle, or None
        as in `place_op`. The override of the first op counts. Raises `PlacementError` for unequal rows too."""
        a, b = grid_shape(first_shape), grid_shape(second_shape)
        if first == second:
            raise fault(second, "placed", "one op cannot stand beside itself", "name two ops")
        if a.rows != b.rows:
            raise fault(second, "rows", f"{a.rows} and {b.rows} rows do not stand side by side", "equal rows")
        wish = self._overrides.get(first, PlacerOpOverride())
        whole = GridShape(a.rows, a.columns + b.columns)
        rectangles = self._place((first, second), whole, wish, enable_transpose, chip_break, False, (a, b))
        return None if rectangles is None else CoordRange(rectangles[0].start, rectangles[1].end)

    def place_op_at(
        self,
        name: str,
        shape: Sequence[int],
        start: Sequence[int],
        *,
        transpose: bool = False,
        epoch: int | None = None,
    ) -> CoordRange:
        """An op at exactly this start of the current epoch (or the one of that number). Raises `PlacementError` with
        the refusal as its diagnostic."""
        self._open()
        at = self.get_current_epoch_index() if epoch is None else epoch
        self._new(name)
        self._must(name, self.explain(shape, start, epoch=at, transpose=transpose))
        grid = grid_shape(shape)
        area = area_of(coord(start), grid, transpose)
        self._commit_state(self._with(self._state, at, name, grid, area, transpose))
        return area

    # -- editing ---------------------------------------------------------------------------------------------
    def move(
        self, name: str, start: Sequence[int], *, transpose: bool | None = None, epoch: int | None = None
    ) -> CoordRange:
        """An op to another start, another epoch, or turned; the others stay. Raises `PlacementError` with the refusal,
        `InputError` for an op that is not placed."""
        self._open()
        at, op = self._op_of(name)
        target = at if epoch is None else epoch
        turned = op.grid_transpose if transpose is None else transpose
        self._must(name, self.explain(op.shape, start, epoch=target, transpose=turned, without=(name,)))
        area = area_of(coord(start), op.shape, turned)
        if target == at:
            state = self._replace(name, dataclasses.replace(op, placed_cores=area, grid_transpose=turned))
        else:
            state = self._with(self._without({name}), target, name, op.shape, area, turned)
        self._commit_state(state)
        return area

    def swap(self, first: str, second: str) -> tuple[CoordRange, CoordRange]:
        """Two ops, of one epoch or of two, each to the other's start. Raises `PlacementError` naming what is in the
        way."""
        self._open()
        (at_a, a), (at_b, b) = self._op_of(first), self._op_of(second)
        both = (first, second)
        area_a = area_of(b.placed_cores.start, a.shape, a.grid_transpose)
        area_b = area_of(a.placed_cores.start, b.shape, b.grid_transpose)
        for op, at, area in ((a, at_b, area_a), (b, at_a, area_b)):
            self._must(op.name, self.explain(op.shape, area.start, epoch=at, transpose=op.grid_transpose, without=both))
        if at_a == at_b and area_a.overlaps(area_b):
            raise fault(first, "occupied", f"{first} and {second} would overlap at each other's starts", "move one")
        state = self._with(self._without(set(both)), at_b, first, a.shape, area_a, a.grid_transpose)
        self._commit_state(self._with(state, at_a, second, b.shape, area_b, b.grid_transpose))
        return area_a, area_b

    def remove(self, name: str) -> PlacedOp:
        """Takes an op off the grid. Raises `InputError` when it is not placed."""
        self._open()
        _, op = self._op_of(name)
        self._commit_state(self._without({name}))
        return op

    # -- epochs ----------------------------------------------------------------------------------------------
    def next_epoch(self, epoch_type: str = "fwd") -> int:
        """Closes the temporal epoch and starts one; the global number of the new epoch. Chips that took nothing get an
        empty graph first."""
        self._open()
        state = self._state
        temporal = state[-1].temporal
        for chip in self._remaining(state):
            state = (*state, BoardEpoch(temporal, state[-1].spatial + 1, chip, state[-1].kind))
        self._commit_state((*state, BoardEpoch(temporal + 1, 0, self._order(temporal + 1)[0], epoch_type)))
        return self.get_current_epoch_index()

    def insert_empty_graphs(self, spatial_epoch_id: int, temporal_epoch_id: int) -> None:
        """One empty graph per chip that the current temporal epoch has not used, numbered from `spatial_epoch_id`.
        Raises `InputError` for another temporal epoch than the current one."""
        self._open()
        if temporal_epoch_id != self._state[-1].temporal:
            raise InputError(f"temporal epoch {temporal_epoch_id} is not the current one, {self._state[-1].temporal}")
        state, kind = self._state, self._state[-1].kind
        for i, chip in enumerate(self._remaining(state)):
            state = (*state, BoardEpoch(temporal_epoch_id, spatial_epoch_id + i, chip, kind))
        self._commit_state(state)

    def rewind_epoch(self) -> None:
        """Takes back everything placed in the current temporal epoch, and goes back to its first chip."""
        self._open()
        self._commit_state(self._rewound())

    def rewind_epoch_logged(self) -> list[tuple[str, PlacedOp]]:
        """`rewind_epoch`, with what was placed, in that order."""
        log = [(op.name, op) for epoch in self._current() for op in epoch.ops]
        self.rewind_epoch()
        return log

    def rewind_to(self, name: str) -> tuple[str, PlacedOp | None]:
        """Takes back an op of the current temporal epoch and all placed after it; the op placed last before it with its
        place, or ("", None). Raises `InputError` for an op that is not in this temporal epoch."""
        self._open()
        order = [op for epoch in self._current() for op in epoch.ops]
        at = next((i for i, op in enumerate(order) if op.name == name), None)
        if at is None:
            raise InputError(f"cannot rewind to {name!r}: the current temporal epoch has no such op")
        gone = {op.name for op in order[at:]}
        first = len(self._state) - len(self._current())
        state = [dataclasses.replace(e, ops=tuple(o for o in e.ops if o.name not in gone)) for e in self._state]
        while len(state) > first + 1 and not state[-1].ops:
            state.pop()
        self._commit_state(tuple(state))
        return (order[at - 1].name, order[at - 1]) if at else ("", None)

    def commit(self, chip_break: Iterable[str] = ()) -> PlacerSolution:
        """The finished placement; the placer takes nothing more afterwards. In pipelined mode the epochs are dealt to
        the chips in order, ceil(epochs / chips) to each, or a new chip at every epoch that holds an op of `chip_break`;
        temporal epochs are numbered anew: a new one wherever the chip was used already. Raises `InputError` for a
        break at an op that is not placed; the placer goes on then."""
        self._open()
        chip_break = (chip_break,) if isinstance(chip_break, str) else tuple(chip_break)
        for name in chip_break:
            self._op_of(name)
        state = list(self._state)
        while len(state) > 1 and not state[-1].ops and state[-1].temporal != state[-2].temporal:
            state.pop()
        if self._pipelined:
            state = self._dealt(state, frozenset(chip_break))
        self._committed = True
        by_epoch = {
            i: tuple(dataclasses.replace(op, chip_id=e.chip, global_epoch_id=i) for op in e.ops)
            for i, e in enumerate(state)
        }
        return PlacerSolution(
            {op.name: op for ops in by_epoch.values() for op in ops},
            {i: e.chip for i, e in enumerate(state)},
            by_epoch,
            {i: tuple(self._grid(e).mask) for i, e in enumerate(state)},
            {i: EpochInfo(i, e.temporal, e.spatial, e.kind) for i, e in enumerate(state)},
            len(state),
            self._pipelined,
        )

    def as_overrides(self, before: Placement | None = None) -> tuple[Override, ...]:
        """Records that make the compiler place the ops as they stand here: start, transposition, chip, and an epoch
        break at the first op of every epoch. With `before`: only for ops that stand elsewhere than there, with breaks
        only if one of them changed its epoch; its schedule then tells which op of an epoch is the first."""
        schedule = {} if before is None else {name: i for i, name in enumerate(before.schedule)}
        pins: list[Override] = []
        moved = before is None
        for i, epoch in enumerate(self._state):
            for op in epoch.ops:
                spot = None if before is None else before.ops.get(op.name)
                start = (op.placed_cores.start.row, op.placed_cores.start.col)
                moved |= spot is not None and spot.epoch != i
                if spot is None or (spot.start, spot.transposed, spot.chip, spot.epoch) != (
                    start,
                    op.grid_transpose,
                    epoch.chip,
                    i,
                ):
                    value = {"start": start, "transpose": op.grid_transpose, "chip": epoch.chip}
                    pins.append(Override("op_placement", op.name, value, "interactive"))
        if not moved:
            return tuple(pins)
        firsts = [min(e.ops, key=lambda op: schedule.get(op.name, -1)).name for e in self._state[1:] if e.ops]
        return (*pins, *(Override("epoch_break", name, True, "interactive") for name in firsts))

    # -- inside ----------------------------------------------------------------------------------------------
    def _place(
        self,
        names: tuple[str, ...],
        shape: GridShape,
        wish: PlacerOpOverride,
        enable_transpose: bool,
        chip_break: bool,
        output: bool,
        parts: tuple[GridShape, ...] = (),
    ) -> list[CoordRange] | None:
        self._open()
        self.last_refusal = None
        for name in names:
            self._new(name)
        turns = (True,) if wish.transpose_op else (False, True) if enable_transpose else (False,)
        if not any(self.can_fit_on_single_epoch(*turn_shape(shape, turn)) for turn in turns):
            text = f"{shape.rows}x{shape.columns} cores do not fit {self.device.rows}x{self.device.cols}"
            raise fault(names[0], "device-too-small", text, "a smaller grid, or let it be transposed")
        if wish.chip_id is not None and wish.chip_id not in self.device.chips:
            chips = ", ".join(map(str, self.device.chips))
            raise fault(names[0], "chip", f"{self.device.name} has no chip {wish.chip_id!r}", f"chips: {chips}")
        if wish.temporal_epoch_break and not self.current_epoch_empty():
            self.last_refusal = Refusal("epoch-break", f"{names[0]} starts an epoch", "call next_epoch")
            return None
        for state in self._tries(wish, chip_break, output):
            spot = self._spot(state[-1], shape, wish, turns, names[0])
            if spot is None:
                continue
            start, turned = spot
            areas = []
            for name, part in zip(names, parts or (shape,), strict=True):
                area = area_of(start, part, turned)
                areas.append(area)
                state = self._with(state, len(state) - 1, name, part, area, turned)
                start = Coord(area.end.row, start.col) if turned else Coord(start.row, area.end.col)
            self._commit_state(state)
            self.last_refusal = None
            return areas
        if self.last_refusal is None:
            self.last_refusal = Refusal(
                "chip", f"{names[0]} needs a chip that this temporal epoch has used or skipped", "call next_epoch"
            )
        return None

    def _tries(self, wish: PlacerOpOverride, chip_break: bool, output: bool) -> Iterable[State]:
        """States whose last epoch may take the op, in the order in which they are tried."""
        chips = set(self.device.chips)
        if wish.chip_id is not None:
            chips = {wish.chip_id}
        elif output:
            chips = set(self.device.mmio_chips)
        state, here = self._state, self._state[-1]
        if here.chip in chips and not (chip_break and here.ops):
            yield state
        for chip in self._remaining(state):
            if chip not in chips:
                continue
            if here.ops:
                yield (*state, BoardEpoch(here.temporal, here.spatial + 1, chip, here.kind))
            else:  # a chip that holds nothing goes back to the others
                yield (*state[:-1], dataclasses.replace(here, chip=chip))

    def _spot(
        self, epoch: BoardEpoch, shape: GridShape, wish: PlacerOpOverride, turns: tuple[bool, ...], name: str
    ) -> tuple[Coord, bool] | None:
        grid = self._grid(epoch)
        spot: tuple[Coord, bool] | None = None
        for turn in turns:
            height, width = turn_shape(shape, turn)
            if wish.grid_start is not None:
                row, col = coord(wish.grid_start)
                if row < 0 or col < 0 or row + height > self.device.rows or col + width > self.device.cols:
                    if turn == turns[-1] and spot is None:
                        text = f"{height}x{width} cores at ({row}, {col}) leave the grid"
                        raise fault(name, "outside", text, "a smaller row or column")
                    continue
                at = (row, col) if grid.fits(row, col, height, width) else None
            else:
                at = grid.first_fit(height, width)
            if at is not None and (spot is None or at < tuple(spot[0])):
                spot = (Coord(*at), turn)
        if spot is None:
            free = grid.free
            if wish.grid_start is not None and epoch is self._state[-1]:
                self.last_refusal = self.explain(shape, wish.grid_start, transpose=turns[-1])
            else:
                text = f"no free {shape.rows}x{shape.columns} rectangle among {free} free cores of chip {epoch.chip}"
                self.last_refusal = Refusal("full", text, "call next_epoch", tuple(o.name for o in epoch.ops))
        return spot

    def _dealt(self, state: list[BoardEpoch], breaks: frozenset[str]) -> list[BoardEpoch]:
        share = -(-len(state) // len(self._chips))
        chip, temporal = 0, -1
        used: set[int] = set()
        dealt: list[BoardEpoch] = []
        for i, epoch in enumerate(state):
            if breaks:
                chip += int(i > 0 and any(op.name in breaks for op in epoch.ops))
            else:
                chip = i // share
            number = self._chips[chip % len(self._chips)]
            if temporal < 0 or number in used or epoch.kind != dealt[-1].kind:
                temporal, used = temporal + 1, set()
            dealt.append(dataclasses.replace(epoch, chip=number, temporal=temporal, spatial=len(used)))
            used.add(number)
        return dealt
