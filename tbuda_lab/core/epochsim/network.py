"""What the recurrence works on: ops that take steps and hand tiles on through bounded buffers; the constants of the
model."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class EpochConstants:
    """All times in cycles of the device's clock. None of them is measured on silicon: they are stated assumptions.

    switch: from the end of an epoch to the start of the next on the same chip (loading kernels and stream
        configuration). No published figure; the placer's objective uses the same one.
    noc_latency: a message between cores, data one way and the credit for freed space the other.
    dram_latency: from an epoch's start to the first tile of a queue in DRAM or host memory, and from the last packed
        tile to its place there. Transfers themselves are in the ops' limiter cycles.
    host_input, host_output: cycles per input that the host needs to push one, and to pop one; 0: never the limit.
    steps: into how many equal steps an op's work on one input is cut, at least (an op that streams takes one step per
        t or more, one with fewer ublocks takes fewer). More steps follow the hand-over of blocks more closely.
    max_steps: and at most.
    parts: into how many groups of cores an op may fall that do not go in step (they need different blocks of what
        streams in); an op with more is taken to go in step.
    """

    switch: int = 20_000
    noc_latency: int = 100
    dram_latency: int = 500
    host_input: int = 0
    host_output: int = 0
    steps: int = 16
    max_steps: int = 96
    parts: int = 16

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in ("steps", "max_steps", "parts") else 0
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{field.name} is a whole number of at least {least}, not {value!r}")


class FlowOp(NamedTuple):
    """An op, or a part of one whose cores go in step (parts of an op have its name). It works on an input in `steps`
    steps of nearly equal length, `cycles` together.

    emit: (steps,) tiles (per core) that have left after each step; non-decreasing, the last is the whole output.
    ready: cycles after the epoch's start before which it cannot begin (preloaded parameters, first tile from DRAM).
    kernel: the part of `cycles` that is computation; for the rest it waits for the transfer that limits it.
    from_host: `ready` is when the first tile from host memory is there. is_host: the host that pushes inputs or pops
    results, not an op.
    """

    name: str
    cycles: int
    emit: np.ndarray
    ready: int = 0
    kernel: int | None = None
    from_host: bool = False
    is_host: bool = False

    @property
    def steps(self) -> int:
        return len(self.emit)

    @property
    def total(self) -> int:
        return int(self.emit[-1])

    def durations(self) -> np.ndarray:
        """(steps,) int64 cycles of each step; they add up to `cycles`."""
        return _split(self.cycles, self.steps)

    def kernel_durations(self) -> np.ndarray:
        """(steps,) the computing part of each step."""
        kernel = _split(self.cycles if self.kernel is None else self.kernel, self.steps)
        shorter: np.ndarray = np.minimum(kernel, self.durations())
        return shorter


@functools.lru_cache(4096)
def _split(whole: int, parts: int) -> np.ndarray:
    lengths: np.ndarray = np.diff(whole * np.arange(parts + 1, dtype=np.int64) // parts)
    lengths.flags.writeable = False  # all who ask share it
    return lengths


class EdgeConstraints(NamedTuple):
    """What two ops wait for over an edge: (3, data + space) step that is waited for, step that waits, and how many
    inputs before; first those by which the consumer waits for data, then those by which the producer waits for space.
    """

    table: np.ndarray
    data: int
    space: int


class EdgeWaits:
    """Which steps of two ops wait for each other over an edge. emit: of the producer (`FlowOp`); need, freed: see
    `FlowEdge`. Worked out once: networks of the same candidates ask again and again."""

    def __init__(self, emit: np.ndarray, need: np.ndarray, freed: np.ndarray) -> None:
        self.emit, self.need, self.freed = emit, need, freed
        self._constraints: dict[int | None, EdgeConstraints] = {}

    def constraints(self, capacity: int | None) -> EdgeConstraints:
        """Where so many tiles fit between the two, or any number."""
        entry = self._constraints.get(capacity)
        if entry is None:
            step, waiting = self._data
            count = len(step)
            space = [] if capacity is None else self._space(capacity)
            table = np.zeros((3, count + (len(space[0]) if space else 0)), np.int64)
            table[0, :count], table[1, :count] = step, waiting
            for row, values in zip(table, space, strict=False):
                row[count:] = values
            entry = self._constraints[capacity] = EdgeConstraints(table, count, table.shape[1] - count)
        return entry

    @functools.cached_property
    def step(self) -> np.ndarray:
        """(steps,) of the consumer, the step of the producer with which all it needs has left."""
        return np.searchsorted(self.emit, np.maximum.accumulate(self.need))

    @functools.cached_property
    def _data(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps of the producer, and of the consumer that wait for them, without what the step before implies."""
        step, keep = self.step, np.maximum.accumulate(self.need) > 0
        keep[1:] &= (step[1:] != step[:-1]) | ~keep[:-1]
        waiting = np.flatnonzero(keep)
        return step[waiting], waiting

    @functools.cached_property
    def _packing(self) -> np.ndarray:
        """Steps of the producer that pack tiles."""
        packs = self.emit > 0
        packs[1:] &= self.emit[1:] > self.emit[:-1]
        return np.flatnonzero(packs)

    def _space(self, capacity: int) -> list[np.ndarray]:
        """Steps of the consumer that free space, of the producer that wait for it, and how many inputs before."""
        packing, total = self._packing, int(self.emit[-1])
        behind = self.emit[packing] - capacity  # tiles of this input that must be gone; <= 0 reaches back
        lag = (total - behind) // total
        step = np.searchsorted(self.freed, behind + lag * total)
        fresh = np.ones(len(packing), dtype=bool)
        fresh[1:] = (step[1:] != step[:-1]) | (lag[1:] != lag[:-1])
        return [step[fresh], packing[fresh], lag[fresh]]


class FlowEdge(NamedTuple):
    """Tiles from one op to another, in the order in which the producer packs them.

    need: (consumer steps,) how many tiles of an input must have arrived before each step; frees: how many will not be
    read again after it (the last is the whole). capacity: tiles that fit between the two; None for a queue in DRAM that
    holds the whole batch. latency: cycles of a message either way. constraints: what follows from all this
    (`EdgeWaits`), where it was worked out before.
    """

    producer: int
    consumer: int
    port: int
    need: np.ndarray
    frees: np.ndarray
    capacity: int | None
    latency: int = 0
    constraints: EdgeConstraints | None = None


@dataclasses.dataclass(frozen=True)
class Network:
    """Ops and the edges between them; producers may stand after their consumers."""

    ops: tuple[FlowOp, ...]
    edges: tuple[FlowEdge, ...]
