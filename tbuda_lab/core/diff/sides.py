"""One side of a comparison: where every op and queue stands and what it takes, wherever that was read from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tbuda_lab.core.balancer.types import OpPlacement, QueuePlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.batch_time import BatchTime, attribute_to_ops
from tbuda_lab.core.errors import Diagnostic

CYCLES = "cycles per input"
CLASSES = ("added", "removed", "resized", "moved", "retimed")
"""In which ways an op may differ."""


@dataclasses.dataclass(frozen=True)
class OpState:
    """How an op stands and what it takes. `grid` is (rows, columns) before any transposition; cycles per input.

    time: what a simulated batch takes because of this op (`epochsim.batch_time.attribute_to_ops`), per input; None
    where nothing was simulated (files). kind: of an op of a measured run.
    """

    epoch: int
    chip: int
    start: tuple[int, int]
    grid: tuple[int, int]
    transposed: bool
    cycles: int
    limiter_cycles: int
    time: float | None = None
    kind: str = ""

    @property
    def compared_cycles(self) -> float:
        """What comparisons count: the simulated time, else the limiter cycles."""
        return self.limiter_cycles if self.time is None else self.time

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the cores it occupies."""
        return (self.grid[1], self.grid[0]) if self.transposed else self.grid


@dataclasses.dataclass(frozen=True)
class QueueState:
    """Where a queue lies: chip, "dram" or "host", the channels of its buffers, bytes of all of them."""

    chip: int
    location: str
    channels: tuple[int, ...]
    entries: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class EpochState:
    """Cycles per input of an epoch's slowest op: by its kernel alone, and by whatever limits it. time: of the epoch in
    a simulated batch, per input; None where nothing was simulated (files)."""

    temporal: int
    chip: int
    cycles: int
    limiter_cycles: int
    time: float | None = None


@dataclasses.dataclass(frozen=True)
class DeviceGrid:
    """The grid that a side is drawn on; `physical` rows of the logical ones, `harvested` physical rows, both of the
    first chip; `chip_rows`: both of each of the `chips`, where they differ."""

    device: str
    rows: int
    cols: int
    physical: tuple[int, ...]
    harvested: tuple[int, ...]
    chips: tuple[int, ...] = dataclasses.field(default=(), compare=False)
    chip_rows: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = dataclasses.field(default=(), compare=False)


@dataclasses.dataclass(frozen=True)
class Side:
    """A placement as far as comparisons go. `cycles_from`: "compile", "cycles.csv" or "estimate"; `unknown`: ops for
    which there is no estimate, of a measured run no time. time: simulated cycles per input of the whole model for a
    batch of `batch`; None where nothing was simulated (files). loaded_once: its epochs stay loaded, so that `time` has
    no switches. unit: of all times, "cycles per input", or "ns" of a measured run. findings: of the file that such a
    run was read from; gaps: those because of which `time` is not that of the whole run; other_work: in what it is not
    the same work, or not measured alike, as the side that it is compared with."""

    name: str
    ops: dict[str, OpState]
    queues: dict[str, QueueState]
    epochs: tuple[EpochState, ...]
    grid: DeviceGrid
    cycles_from: str = "compile"
    unknown: tuple[str, ...] = ()
    time: float | None = None
    batch: int = 0
    loaded_once: bool = False
    unit: str = CYCLES
    findings: tuple[Diagnostic, ...] = ()
    gaps: tuple[Diagnostic, ...] = ()
    other_work: tuple[str, ...] = ()

    @property
    def temporal_epochs(self) -> int:
        return len({e.temporal for e in self.epochs})

    @property
    def cycles(self) -> int:
        """Kernel cycles per input: sum over epochs; of those that run side by side on chips the slowest counts."""
        return _sum(self.epochs, "cycles")

    @property
    def limiter_cycles(self) -> int:
        """As `cycles`, with whatever limits each op."""
        return _sum(self.epochs, "limiter_cycles")


def listed(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _sum(epochs: tuple[EpochState, ...], field: str) -> int:
    slowest: dict[int, int] = {}
    for epoch in epochs:
        slowest[epoch.temporal] = max(slowest.get(epoch.temporal, 0), getattr(epoch, field))
    return sum(slowest.values())


def side_of_result(result: CompileResult, name: str, times: BatchTime | None = None) -> Side:
    """A compile as one side. times: its batch, simulated."""
    placement, device = result.placement, result.device
    report = placement.report
    limits = report.op_limiters if report is not None else {}
    spent = {} if times is None else attribute_to_ops(placement.epochs, times)[0]

    def state(op: str, spot: OpPlacement) -> OpState:
        row = placement.candidate(op)
        kernel = int(row["cycles"])
        _, limiter, _ = limits.get(op, (kernel, kernel, "kernel"))
        grid = (int(row["grid_r"]), int(row["grid_c"]))
        return OpState(spot.epoch, spot.chip, spot.start, grid, spot.transposed, kernel, limiter, spent.get(op))

    limiters = placement.epoch_cycles if report is None else tuple(e.limiter_cycles for e in report.epochs)
    lasts = [None] * len(limiters) if times is None else [e.cycles / times.batch for e in times.epochs]
    epochs = tuple(
        EpochState(e.temporal, e.chip, int(kernel), int(limiter), time)
        for e, kernel, limiter, time in zip(placement.epochs, placement.epoch_cycles, limiters, lasts, strict=True)
    )
    return Side(
        name,
        {op: state(op, spot) for op, spot in placement.ops.items()},
        {name: _queue(q) for name, q in placement.queues.items()},
        epochs,
        grid_of(device),
        time=None if times is None else times.per_input,
        batch=0 if times is None else times.batch,
        loaded_once=result.loaded_once,
    )


def _queue(q: QueuePlacement) -> QueueState:
    channels = tuple(channel for channel, _ in q.buffers)
    return QueueState(q.chip, q.location, channels, q.entries, q.bytes_per_buffer * len(q.buffers))


def grid_of(device: DeviceSpec) -> DeviceGrid:
    """The grid of a device's chips."""
    physical = tuple(int(device.physical_row(r)) for r in range(device.rows))
    return DeviceGrid(
        device.name,
        device.rows,
        device.cols,
        physical,
        tuple(sorted(device.harvested_rows)),
        device.chips,
        device.chip_rows,
    )
