"""The state of an interactive placement: epochs, their ops, its history, and what may be asked of it; what the placer
takes and gives: shapes, places, refusals, and the solution it commits."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError, PlacementError
from tbuda_lab.core.placer.model.chip_stages import chip_order
from tbuda_lab.core.placer.model.grid import CoreGrid


class GridShape(NamedTuple):
    """Cores of an op."""

    rows: int
    columns: int


class Coord(NamedTuple):
    """A core, rows and columns from 0."""

    row: int
    col: int


class CoordRange(NamedTuple):
    """A rectangle of cores: `start` is its first core, `end` lies behind its last one on both axes."""

    start: Coord
    end: Coord

    @property
    def size(self) -> GridShape:
        return GridShape(self.end.row - self.start.row, self.end.col - self.start.col)

    def overlaps(self, other: CoordRange) -> bool:
        return (
            self.start.row < other.end.row
            and other.start.row < self.end.row
            and self.start.col < other.end.col
            and other.start.col < self.end.col
        )


@dataclasses.dataclass(frozen=True)
class PlacedOp:
    """Where an op stands. `shape` is its grid before turning."""

    name: str
    chip_id: int
    global_epoch_id: int
    grid_transpose: bool
    placed_cores: CoordRange
    shape: GridShape


@dataclasses.dataclass
class PlacerOpOverride:
    """What the user wants of an op's place, honoured when it is placed; None and False leave it free."""

    grid_start: Coord | None = None
    transpose_op: bool = False
    chip_id: int | None = None
    temporal_epoch_break: bool = False


@dataclasses.dataclass(frozen=True)
class EpochInfo:
    """A global epoch is one graph on one chip; those with the same temporal epoch run at the same time."""

    global_epoch_id: int
    temporal_epoch_id: int
    spatial_epoch_id: int
    epoch_type: str


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why an op may not stand somewhere. `rule`: "outside", "occupied", "placed", "chip", "epoch-break" or "full".

    blockers: ops in the way, in the order in which they were placed; cells: cores of theirs that would be shared;
    nearest: the free start closest to the one asked for (rows plus columns), None where the epoch has none.
    """

    rule: str
    text: str
    fix: str = ""
    blockers: tuple[str, ...] = ()
    cells: tuple[Coord, ...] = ()
    nearest: Coord | None = None


@dataclasses.dataclass(frozen=True)
class PlacerSolution:
    """A committed placement, by global epoch and by op."""

    name_to_op_placement: Mapping[str, PlacedOp]
    epoch_id_to_chip: Mapping[int, int]
    epoch_id_to_op_placement: Mapping[int, tuple[PlacedOp, ...]]
    epoch_id_to_device_grid: Mapping[int, tuple[int, ...]]
    epoch_id_to_epoch_info: Mapping[int, EpochInfo]
    num_epochs: int
    is_pipelined: bool

    def is_placed(self, op: str) -> bool:
        return op in self.name_to_op_placement

    def chip_id(self, op: str) -> int:
        return self.name_to_op_placement[op].chip_id

    def epoch_id(self, op: str) -> int:
        return self.name_to_op_placement[op].global_epoch_id

    def temporal_epoch_id(self, which: str | int) -> int:
        """Of an op, or of a global epoch."""
        epoch = self.epoch_id(which) if isinstance(which, str) else which
        return self.epoch_id_to_epoch_info[epoch].temporal_epoch_id

    def num_temporal_epochs(self, epoch_type: str | None = None) -> int:
        infos = self.epoch_id_to_epoch_info.values()
        return len({i.temporal_epoch_id for i in infos if epoch_type in (None, i.epoch_type)})


@dataclasses.dataclass(frozen=True)
class BoardEpoch:
    """One graph on one chip; `ops` in the order in which they were placed."""

    temporal: int
    spatial: int
    chip: int
    kind: str
    ops: tuple[PlacedOp, ...] = ()


State = tuple[BoardEpoch, ...]


class Board:
    """Rectangles of ops on the epochs of a device, with undo. The arguments are those of `InteractivePlacer`."""

    def __init__(
        self,
        device: DeviceSpec,
        *,
        chip_placement_policy: str = "MMIO_LAST",
        snake: bool = False,
        pipelined: bool = False,
    ) -> None:
        self.device = device
        self._chips = chip_order(device, chip_placement_policy)
        self._snake, self._pipelined = snake, pipelined
        self._overrides: dict[str, PlacerOpOverride] = {}
        self._state: State = (BoardEpoch(0, 0, self._order(0)[0], "fwd"),)
        self._past: list[State] = []
        self._future: list[State] = []
        self._committed = False
        self.last_refusal: Refusal | None = None
        """Why the last `place_op` or `place_two_ops_rowwise` gave None."""

    # -- queries ---------------------------------------------------------------------------------------------
    def get_current_epoch_index(self) -> int:
        """Global number of the epoch (graph) that takes the next op."""
        return len(self._state) - 1

    def current_epoch_ops(self) -> tuple[str, ...]:
        """Ops of the current temporal epoch, over all its chips, in the order in which they were placed."""
        return tuple(op.name for epoch in self._current() for op in epoch.ops)

    def current_epoch_size(self) -> int:
        return len(self.current_epoch_ops())

    def current_epoch_empty(self) -> bool:
        return not self.current_epoch_ops()

    def op_placed(self, name: str) -> bool:
        return self._find(name) is not None

    def get_op_overrides(self) -> dict[str, PlacerOpOverride]:
        """The wishes that `place_op` honours, by op; edit it before placing."""
        return self._overrides

    def get_current_name_to_op_placement(self) -> dict[str, PlacedOp]:
        """Everything placed so far, in placement order."""
        return {op.name: op for epoch in self._state for op in epoch.ops}

    def can_fit_on_single_epoch(self, rows: int, cols: int, allow_transpose: bool = False) -> bool:
        """Whether an empty epoch has room for a rectangle."""
        fits = rows <= self.device.rows and cols <= self.device.cols
        return fits or (allow_transpose and cols <= self.device.rows and rows <= self.device.cols)

    def starts(
        self, shape: Sequence[int], *, epoch: int | None = None, transpose: bool = False, without: Iterable[str] = ()
    ) -> tuple[int, ...]:
        """For every row a bitmask of the columns where a rectangle of `shape` may start (bit c: column c), in the
        current epoch or the global epoch of that number. `without`: ops to think away, as the one being dragged."""
        height, width = turn_shape(shape, transpose)
        return tuple(self._grid(self._epoch(epoch), frozenset(without)).starts(height, width))

    def heat(
        self, shape: Sequence[int], *, epoch: int | None = None, transpose: bool = False, without: Iterable[str] = ()
    ) -> np.ndarray:
        """(rows, columns) int64: how many cores of other ops a rectangle that starts there would cover; 0 where it
        fits, -1 where it would leave the grid."""
        height, width = turn_shape(shape, transpose)
        masks = self._grid(self._epoch(epoch), frozenset(without)).mask
        cells = np.array([[mask >> c & 1 for c in range(self.device.cols)] for mask in masks], dtype=np.int64)
        sums = np.zeros((self.device.rows + 1, self.device.cols + 1), dtype=np.int64)
        sums[1:, 1:] = cells.cumsum(axis=0).cumsum(axis=1)
        heat = np.full(cells.shape, -1, dtype=np.int64)
        if height <= self.device.rows and width <= self.device.cols:
            high, wide = self.device.rows - height + 1, self.device.cols - width + 1
            covered = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
            heat[:high, :wide] = covered
        return heat

    def explain(
        self,
        shape: Sequence[int],
        start: Sequence[int],
        *,
        epoch: int | None = None,
        transpose: bool = False,
        without: Iterable[str] = (),
    ) -> Refusal | None:
        """Why a rectangle may not start there, or None when it may."""
        height, width = turn_shape(shape, transpose)
        where = self._epoch(epoch)
        ignored = frozenset(without)
        row, col = coord(start)
        area = CoordRange(Coord(row, col), Coord(row + height, col + width))
        grid = self._grid(where, ignored)
        if grid.fits(row, col, height, width):
            return None
        nearest = _nearest(grid.starts(height, width), row, col)
        fix = f"the nearest free start is ({nearest.row}, {nearest.col})" if nearest else self._no_room(height, width)
        rows, cols = self.device.rows, self.device.cols
        if row < 0 or col < 0 or area.end.row > rows or area.end.col > cols:
            text = f"{height}x{width} cores at ({row}, {col}) leave the {rows}x{cols} grid"
            harvested = self._harvested_rows(where.chip)
            if harvested and area.end.row > rows:
                text += f"; physical rows {', '.join(map(str, harvested))} of chip {where.chip} are harvested"
            return Refusal("outside", text, fix, nearest=nearest)
        blockers = [op for op in where.ops if op.name not in ignored and op.placed_cores.overlaps(area)]
        cells = tuple(
            Coord(r, c)
            for r in range(row, area.end.row)
            for c in range(col, area.end.col)
            if any(_inside(b.placed_cores, r, c) for b in blockers)
        )
        names = ", ".join(b.name for b in blockers)
        text = f"{len(cells)} of {height * width} cores at ({row}, {col}) belong to {names}"
        return Refusal("occupied", text, fix, tuple(b.name for b in blockers), cells, nearest)

    # -- history ---------------------------------------------------------------------------------------------
    def undo(self) -> bool:
        """One edit back, whatever epoch it was in; False when there is none."""
        self._open()
        if not self._past:
            return False
        self._future.append(self._state)
        self._state = self._past.pop()
        return True

    def redo(self) -> bool:
        """The last undone edit again; False when there is none."""
        self._open()
        if not self._future:
            return False
        self._past.append(self._state)
        self._state = self._future.pop()
        return True

    # -- inside ----------------------------------------------------------------------------------------------
    def _order(self, temporal: int) -> tuple[int, ...]:
        if self._pipelined:
            return self._chips[:1]
        return self._chips[::-1] if self._snake and temporal % 2 else self._chips

    def _current(self, state: State | None = None) -> State:
        state = self._state if state is None else state
        return tuple(e for e in state if e.temporal == state[-1].temporal)

    def _remaining(self, state: State) -> list[int]:
        used = {e.chip for e in self._current(state)}
        return [c for c in self._order(state[-1].temporal) if c not in used]

    def _rewound(self) -> State:
        current = self._current()
        prefix = self._state[: len(self._state) - len(current)]
        temporal = current[0].temporal
        return (*prefix, BoardEpoch(temporal, 0, self._order(temporal)[0], current[0].kind))

    def _epoch(self, index: int | None) -> BoardEpoch:
        at = self.get_current_epoch_index() if index is None else index
        if not 0 <= at < len(self._state):
            raise InputError(f"there is no epoch {at}; there are {len(self._state)}")
        return self._state[at]

    def _grid(self, epoch: BoardEpoch, without: frozenset[str] = frozenset()) -> CoreGrid:
        grid = CoreGrid(self.device.rows, self.device.cols)
        for op in epoch.ops:
            if op.name not in without:
                grid.take(*op.placed_cores.start, *op.placed_cores.size)
        return grid

    def _find(self, name: str) -> tuple[int, PlacedOp] | None:
        return next(((i, op) for i, e in enumerate(self._state) for op in e.ops if op.name == name), None)

    def _op_of(self, name: str) -> tuple[int, PlacedOp]:
        entry = self._find(name)
        if entry is None:
            raise InputError(f"{name!r} is not placed")
        return entry

    def _new(self, name: str) -> None:
        entry = self._find(name)
        if entry is not None:
            raise fault(name, "placed", f"it stands in epoch {entry[0]} already", "move it, or remove it first")

    def _must(self, name: str, refusal: Refusal | None) -> None:
        if refusal is not None:
            self.last_refusal = refusal
            raise fault(name, refusal.rule, refusal.text, refusal.fix)

    def _no_room(self, height: int, width: int) -> str:
        if not self.can_fit_on_single_epoch(height, width):
            return "no epoch of this device can hold it"
        return "this epoch has no free rectangle of that size"

    def _harvested_rows(self, chip: int) -> tuple[int, ...]:
        return self.device.harvested_by_chip[self.device.chips.index(chip)]

    def _with(self, state: State, at: int, name: str, shape: GridShape, area: CoordRange, turned: bool) -> State:
        op = PlacedOp(name, state[at].chip, at, turned, area, shape)
        epoch = dataclasses.replace(state[at], ops=(*state[at].ops, op))
        return (*state[:at], epoch, *state[at + 1 :])

    def _without(self, names: set[str]) -> State:
        return tuple(dataclasses.replace(e, ops=tuple(o for o in e.ops if o.name not in names)) for e in self._state)

    def _replace(self, name: str, new: PlacedOp) -> State:
        return tuple(
            dataclasses.replace(e, ops=tuple(new if o.name == name else o for o in e.ops)) for e in self._state
        )

    def _commit_state(self, state: State) -> None:
        self._past.append(self._state)
        self._future.clear()
        self._state = state

    def _open(self) -> None:
        if self._committed:
            raise InputError("this placer has committed its solution; make a new one")


def _two(what: str, value: Sequence[int]) -> tuple[int, int]:
    try:
        row, col = (operator.index(part) for part in value)
    except (TypeError, ValueError):
        raise InputError(f"{what} is two whole numbers (rows, columns), not {value!r}") from None
    return row, col


def grid_shape(shape: Sequence[int]) -> GridShape:
    """A grid as it was given. Raises `InputError` for anything but two whole numbers."""
    return GridShape(*_two("a grid", shape))


def coord(start: Sequence[int]) -> Coord:
    """A core as it was given. Raises `InputError` for anything but two whole numbers."""
    return Coord(*_two("a start", start))


def turn_shape(shape: Sequence[int], transpose: bool) -> tuple[int, int]:
    """Rows and columns as they stand. Raises `InputError` for an empty grid, and for what is none."""
    height, width = grid_shape(shape)
    if height < 1 or width < 1:
        raise InputError(f"a grid has one core or more, not {height}x{width}")
    return (width, height) if transpose else (height, width)


def area_of(start: Coord, shape: GridShape, turned: bool) -> CoordRange:
    """The cores of a grid at a start."""
    height, width = turn_shape(shape, turned)
    return CoordRange(start, Coord(start.row + height, start.col + width))


def _inside(area: CoordRange, row: int, col: int) -> bool:
    return area.start.row <= row < area.end.row and area.start.col <= col < area.end.col


def _nearest(starts: Sequence[int], row: int, col: int) -> Coord | None:
    free = [Coord(r, c) for r, mask in enumerate(starts) for c in range(mask.bit_length()) if mask >> c & 1]
    return min(free, key=lambda s: (abs(s.row - row) + abs(s.col - col), s), default=None)


def fault(name: str, rule: str, text: str, fix: str) -> PlacementError:
    """The error for one op that cannot stand where it was asked to."""
    return PlacementError(f"{name} cannot be placed", [Diagnostic("error", name, rule, text, fix)])
