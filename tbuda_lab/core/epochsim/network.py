"""What the recurrence works on: ops that take steps and hand tiles on through bounded buffers."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class FlowOp:
    """An op, or a part of one whose cores go in step (parts of an op have its name). It works on an input in `steps`
    steps of nearly equal length, `cycles` together.

    emit: (steps,) tiles (per core) that have left after each step; non-decreasing, the last is the whole output.
    ready: cycles after the epoch's start before which it cannot begin (preloaded parameters, first tile from DRAM).
    kernel: the part of `cycles` that is computation; for the rest it waits for the transfer that limits it.
    from_host: `ready` is when the first tile from host memory is there. is_host: it is no op, but the host that pushes
    inputs or pops results.
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


def _split(whole: int, parts: int) -> np.ndarray:
    lengths: np.ndarray = np.diff(whole * np.arange(parts + 1, dtype=np.int64) // parts)
    return lengths


@dataclasses.dataclass(frozen=True)
class FlowEdge:
    """Tiles from one op to another, in the order in which the producer packs them.

    need: (consumer steps,) how many tiles of an input must have arrived before each step; freed: how many will not be
    read again after it (the last is the whole). capacity: tiles that fit between the two; None for a queue in DRAM that
    holds the whole batch. latency: cycles of a message either way.
    """

    producer: int
    consumer: int
    port: int
    need: np.ndarray
    freed: np.ndarray
    capacity: int | None
    latency: int = 0


@dataclasses.dataclass(frozen=True)
class Network:
    """Ops and the edges between them; producers may stand after their consumers."""

    ops: tuple[FlowOp, ...]
    edges: tuple[FlowEdge, ...]
