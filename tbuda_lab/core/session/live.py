"""A run as it goes: progress per op, levels of queues, at a rate that a page can follow."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.runcontrol import RunControl
from tbuda_lab.core.runner import Runner
from tbuda_lab.sim.io import QueueIo

INTERVAL = 0.25
"""Seconds between two reports: with the status messages beside them a run stays below ten messages a second."""
_QUEUES = ("input", "output", "e2e")


@dataclasses.dataclass(frozen=True)
class LiveStep:
    """Where a run stands.

    done: (ops,) inputs that each op has worked on, in the order of `ops`; levels: (queues,) entries that each queue of
    `queues` holds of its `capacity`; input: how many inputs are done of `total`; epoch: index of the epoch at work, op:
    its last op that worked ("" before there was one); paused: it stands and waits; running: False in the last report.
    """

    ops: tuple[str, ...]
    done: np.ndarray
    queues: tuple[str, ...]
    levels: np.ndarray
    capacity: np.ndarray
    total: int
    input: int
    epoch: int
    op: str
    paused: bool
    running: bool


class LiveRun:
    """Follows one run (a `Watcher`) and reports to `tell` at most every `interval` seconds, and whenever it pauses."""

    def __init__(
        self, result: CompileResult, control: RunControl, tell: Callable[[LiveStep], None], interval: float = INTERVAL
    ) -> None:
        placement = result.placement
        self.ops = tuple(n for n in placement.schedule if n in placement.ops)
        self._number = {name: i for i, name in enumerate(self.ops)}
        self._epochs = np.array([placement.ops[n].epoch for n in self.ops], dtype=np.int64)
        self._queues = tuple(q.name for q in placement.queues.values() if q.kind in _QUEUES)
        self._control, self._tell, self._interval = control, tell, interval
        self._done = np.zeros(len(self.ops), dtype=np.uint32)
        self._fifos: dict[str, QueueIo] = {}
        self._total, self._op, self._due = 0, -1, 0.0

    def begins(self, runner: Runner, total: int) -> None:
        io = runner.executor.io
        self._fifos = {n: q for n in self._queues if isinstance(q := io.get(n), QueueIo)}
        self._total = total
        self._report(running=True)

    def stepped(self, op: str, inputs: int) -> None:
        at = self._number.get(op)
        if at is None:
            return
        self._done[at] += inputs
        self._op = at
        if time.monotonic() >= self._due:
            self._report(running=True)

    def epoch_ended(self, graph: str) -> None:
        """Nothing to say: the next op tells."""

    def waits(self) -> None:
        self._report(running=True, paused=True)

    def ends(self) -> None:
        self._report(running=False)

    def _report(self, *, running: bool, paused: bool = False) -> None:
        self._due = time.monotonic() + self._interval
        self._tell(
            LiveStep(
                self.ops,
                self._done.copy(),
                tuple(self._fifos),
                np.array([q.occupancy for q in self._fifos.values()], dtype=np.uint32),
                np.array([q.entries for q in self._fifos.values()], dtype=np.uint32),
                self._total,
                int(self._done.min(initial=self._total)),
                int(self._epochs[self._op]) if self._op >= 0 else 0,
                self.ops[self._op] if self._op >= 0 else "",
                paused,
                running,
            )
        )
