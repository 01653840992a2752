"""A trace in columns: what every op did when."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np

from tbuda_lab.core.epochsim.chrome import write_chrome_trace
from tbuda_lab.core.epochsim.pyramid import MOST_ROWS, Pyramid, Spans, WaitKind


@dataclasses.dataclass(frozen=True)
class TraceOp:
    """An op's place: epoch, chip and rectangle of cores (row, column, rows, columns). An op whose cores do not go in
    step appears once for each rectangle of cores that do."""

    name: str
    epoch: int
    chip: int
    cores: tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class TraceEpoch:
    """When an epoch ran, in cycles from the start of the batch, without the switch before it. `run`: how many times the
    program has been round its loop."""

    epoch: int
    chip: int
    run: int
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Moment:
    """What every op that is active at one cycle does; all columns are as long as there are such ops."""

    cycle: int
    op: np.ndarray  # index into Trace.ops
    input: np.ndarray
    kind: np.ndarray
    cause: np.ndarray

    def __len__(self) -> int:
        return len(self.op)


@dataclasses.dataclass(frozen=True)
class SliceStats:
    """What ops did in a stretch of time, those that did something. cycles: (ops, kinds) by `WaitKind`, the mean over
    the cores of an op; inputs: (ops,) how many different inputs it worked on."""

    ops: tuple[str, ...]
    epochs: tuple[int, ...]
    cycles: np.ndarray
    inputs: np.ndarray


@dataclasses.dataclass(frozen=True)
class Trace:
    """Spans sorted by op and then start; the spans of one op never overlap. Times in cycles from the batch's start.

    op: int32 index into `ops`; input: int32; start, end: int64; kind: uint8 `WaitKind`; cause: int32, the op that is
    waited for, -1 where it is none but a transfer that takes longer than the kernel. The epoch of a span is its op's.
    """

    ops: tuple[TraceOp, ...]
    epochs: tuple[TraceEpoch, ...]
    clock_hz: float
    op: np.ndarray
    input: np.ndarray
    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    cause: np.ndarray

    def __len__(self) -> int:
        return len(self.op)

    @property
    def cycles(self) -> int:
        """The end of the last epoch."""
        return max((e.end for e in self.epochs), default=0)

    @property
    def epoch(self) -> np.ndarray:
        """int32 epoch of every span."""
        epochs: np.ndarray = np.array([o.epoch for o in self.ops], dtype=np.int32)[self.op]
        return epochs

    @property
    def cores(self) -> np.ndarray:
        """(spans, 4) int32 rectangle of every span: row, column, rows, columns."""
        cores: np.ndarray = np.array([o.cores for o in self.ops], dtype=np.int32).reshape(-1, 4)[self.op]
        return cores

    @functools.cached_property
    def pyramid(self) -> Pyramid:
        """For zooming: sums over time that any window can be summed up from."""
        return Pyramid(self.op, self.input, self.start, self.end, self.kind, len(self.ops), self.cycles)

    def zoom(self, start: int, end: int, limit: int = MOST_ROWS, ops: tuple[int, int] | None = None) -> Spans:
        """At most `limit` spans that show [start, end), of all ops or those numbered from..to: the real ones if they
        are few enough, else summed up."""
        return self.pyramid.zoom(start, end, limit, ops)

    def tile(self, level: int, index: int, limit: int = MOST_ROWS, ops: tuple[int, int] | None = None) -> Spans:
        """Tile `index` of the 2**level equal parts of the whole trace. Raises `IndexError` outside."""
        return self.pyramid.tile(level, index, limit, ops)

    def at(self, cycle: int) -> Moment:
        """What every op does at `cycle`: the spans with start <= cycle < end."""
        result = self.pyramid.covering(cycle)
        return Moment(cycle, self.op[result], self.input[result], self.kind[result], self.cause[result])

    def slice(self, start: int, end: int) -> SliceStats:
        """What the ops did from cycle `start` to before `end`."""
        spent = np.minimum(self.end, end) - np.maximum(self.start, start)
        inside = np.flatnonzero(spent > 0)
        names = list(dict.fromkeys(o.name for o in self.ops))
        number = {name: i for i, name in enumerate(names)}
        owner = np.array([number[o.name] for o in self.ops], dtype=np.int64)
        cores = np.array([o.cores[2] * o.cores[3] for o in self.ops], dtype=np.float64)
        share = cores / np.bincount(owner, cores, len(names))[owner]
        op, kinds = self.op[inside], len(WaitKind)
        cell = owner[op] * kinds + self.kind[inside]
        cycles = np.bincount(cell, spent[inside] * share[op], len(names) * kinds).reshape(-1, kinds)
        works = self.kind[inside] == WaitKind.COMPUTE
        pairs = np.unique(np.stack([owner[op[works]], self.input[inside][works].astype(np.int64)]), axis=1)
        inputs = np.bincount(pairs[0], minlength=len(names))
        epoch = dict(zip(owner.tolist(), (o.epoch for o in self.ops), strict=True))
        busy = np.flatnonzero(cycles.sum(axis=1) > 0)
        at = busy.tolist()
        return SliceStats(tuple(names[i] for i in at), tuple(epoch[i] for i in at), cycles[busy], inputs[busy])

    def to_chrome_trace(self, path: str | Path) -> None:
        """Write Chrome trace JSON (chrome://tracing, Perfetto), in one go: see `chrome.py`."""
        write_chrome_trace(self, Path(path))
