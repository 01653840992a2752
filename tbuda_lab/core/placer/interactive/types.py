"""What the interactive placer takes and gives: shapes, places, refusals, and the solution it commits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple


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
    """Why an op may not stand somewhere. `rule`: "upstream_rows", "occupied", "placed", "chip", "epoch-break" or
    "full".

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
