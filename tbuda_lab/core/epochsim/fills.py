"""How full the buffers and queues around an op are over time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.epochsim.network import Network
from tbuda_lab.core.epochsim.run import NetworkRun


@dataclasses.dataclass(frozen=True)
class Fill:
    """The level of one buffer: at `time[i]` (cycles, int64, ascending) it becomes `level[i]`, and stays until the next.

    unit: "tiles" (per core of the producer, in its output buffer and the reader's input buffer together) or "inputs"
    (entries of a queue in DRAM). capacity: what fits, None for a queue that holds the whole batch. Where there are more
    changes than were asked for, each point is the highest level of its share of the window.
    """

    producer: str
    consumer: str
    port: int
    unit: str
    capacity: int | None
    time: np.ndarray
    level: np.ndarray


@dataclasses.dataclass(frozen=True)
class Levels:
    """What `of` is computed from: the solved network and when each round of each epoch starts.

    owner, epoch: of every part; starts: (rounds, epochs) cycles; counts: (rounds, epochs) inputs; start, end:
    (ops, batch) of `names`; feeds: (producer, reader, operand) numbers of the ops that exchange data through a queue.
    """

    run: NetworkRun
    names: tuple[str, ...]
    owner: np.ndarray
    epoch: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    start: np.ndarray
    end: np.ndarray
    feeds: tuple[tuple[int, int, int], ...]

    def of(self, op: str, start: int, end: int, points: int = 512) -> list[Fill]:
        """The buffers that feed `op` and that it fills, over [start, end). Raises `KeyError` for an unknown op."""
        if op not in self._number:
            raise KeyError(f"{op!r} is not in the trace")
        number = self._number[op]
        fills: dict[tuple[int, int, int], Fill] = {}
        for index in self._edges_of(number):
            edge = self.run.network.edges[index]
            key = (int(self.owner[edge.producer]), int(self.owner[edge.consumer]), edge.port)
            fill = self._buffer(index, start, end, points)
            if key not in fills or _fullness(fill) > _fullness(fills[key]):
                fills[key] = fill
        for producer, consumer, port in self.feeds:
            if number in (producer, consumer):
                fills.setdefault((producer, consumer, port), self._queue(producer, consumer, port, start, end, points))
        return [fills[key] for key in sorted(fills)]

    @property
    def _number(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def _edges_of(self, number: int) -> list[int]:
        parts = len(self.owner)
        return [
            index
            for index, edge in enumerate(self.run.network.edges)
            if edge.producer < parts
            and edge.consumer < parts
            and number in (self.owner[edge.producer], self.owner[edge.consumer])
        ]

    def _buffer(self, index: int, start: int, end: int, points: int) -> Fill:
        """Tiles that have left the producer and that the reader still needs."""
        network: Network = self.run.network
        edge = network.edges[index]
        arrivals = np.diff(network.ops[edge.producer].emit, prepend=0)
        freed = np.diff(edge.frees, prepend=0)
        done = []
        for part in (edge.producer, edge.consumer):
            low, high = int(self.run.graph.base[part]), int(self.run.graph.base[part + 1])
            done.append(self.run.schedule.start[low:high] + self.run.graph.duration[low:high, None])
        times, changes = [], []
        epoch = self.epoch[edge.producer]
        for shift, size in zip(self.starts[:, epoch].tolist(), self.counts[:, epoch].tolist(), strict=True):
            for ends, change in ((done[0], arrivals), (done[1], -freed)):
                times.append((ends[:, :size] + shift).reshape(-1))
                changes.append(np.repeat(change, size))
        time, level = _levels(np.concatenate(times), np.concatenate(changes), start, end, points)
        names = (self.names[self.owner[edge.producer]], self.names[self.owner[edge.consumer]])
        return Fill(*names, edge.port, "tiles", edge.capacity, time, level)

    def _queue(self, producer: int, consumer: int, port: int, start: int, end: int, points: int) -> Fill:
        """Inputs that the producer has finished and the reader has not."""
        times = np.concatenate([self.end[producer], self.end[consumer]])
        one = np.ones(self.end.shape[1], dtype=np.int64)
        time, level = _levels(times, np.concatenate([one, -one]), start, end, points)
        return Fill(self.names[producer], self.names[consumer], port, "inputs", None, time, level)


def _fullness(fill: Fill) -> float:
    most = int(fill.level.max(initial=0))
    return most / fill.capacity if fill.capacity else float(most)


def _levels(time: np.ndarray, change: np.ndarray, start: int, end: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The steps of a running sum within [start, end), at most `points` of them; the first stands at `start`.

    Of changes at one moment what is freed goes first: a buffer never shows more than it held.
    """
    by = np.lexsort((change, time))
    time, level = time[by], np.cumsum(change[by])
    last = np.append(np.flatnonzero(np.diff(time)), len(time) - 1) if len(time) else np.zeros(0, dtype=np.int64)
    time, level = time[last], np.maximum(level[last], 0)
    low, high = np.searchsorted(time, start, side="right"), np.searchsorted(time, end, side="left")
    before = int(level[low - 1]) if low else 0
    time = np.append(np.int64(start), time[low:high])
    level = np.append(np.int64(before), level[low:high])
    if len(time) <= points:
        return time, level
    bucket = (time - start) * points // max(1, end - start)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    return time[first], np.maximum.reduceat(level, first)
