"""An event-driven simulation of the same networks, by counting tiles in a heap of times; it knows nothing of levels,
lags or constraints."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict

import numpy as np

from tbuda_lab.core.epochsim import Network


class EventDriven:
    """Every op fires as soon as its tiles have arrived, its result has room, and it is done with what it did before.

    start: (op, input, step) -> cycle. finished: whether all steps of all inputs ran; if not, nothing could move.
    """

    def __init__(self, network: Network, batch: int) -> None:
        self.network, self.batch = network, batch
        self.start: dict[tuple[int, int, int], int] = {}
        self.durations = [[int(d) for d in _lengths(op.cycles, op.steps)] for op in network.ops]
        self.into = defaultdict(list)
        self.out = defaultdict(list)
        for number, edge in enumerate(network.edges):
            self.into[edge.consumer].append(number)
            self.out[edge.producer].append(number)
        self.arrived = [0] * len(network.edges)  # tiles that the reader can use
        self.freed = [0] * len(network.edges)  # tiles whose space the producer knows to be free again
        self.packed = [0] * len(network.ops)
        self.at = [(0, 0)] * len(network.ops)  # input and step that comes next
        self.busy = [False] * len(network.ops)
        self.queue: list[tuple[int, int, str, int, int]] = []
        self.count = 0
        self._run()
        self.finished = all(turn == batch for turn, _ in self.at)

    def _post(self, time: int, what: str, which: int, amount: int = 0) -> None:
        heapq.heappush(self.queue, (time, self.count, what, which, amount))
        self.count += 1

    def _run(self) -> None:
        for op, model in enumerate(self.network.ops):
            self.busy[op] = True
            self._post(model.ready, "free", op)
        while self.queue:
            now = self.queue[0][0]
            touched = set()
            while self.queue and self.queue[0][0] == now:
                _, _, what, which, amount = heapq.heappop(self.queue)
                if what == "free":
                    self.busy[which] = False
                    touched.add(which)
                elif what == "done":
                    self._done(which, now)
                    touched.add(which)
                elif what == "arrive":
                    self.arrived[which] = max(self.arrived[which], amount)
                    touched.add(self.network.edges[which].consumer)
                else:
                    self.freed[which] = max(self.freed[which], amount)
                    touched.add(self.network.edges[which].producer)
            for op in touched:
                self._fire(op, now)

    def _fire(self, op: int, now: int) -> None:
        turn, step = self.at[op]
        if self.busy[op] or turn == self.batch:
            return
        model = self.network.ops[op]
        for number in self.into[op]:
            edge = self.network.edges[number]
            whole = self.network.ops[edge.producer].total
            need = int(edge.need[step])
            if need and self.arrived[number] < turn * whole + need:
                return
        after = turn * model.total + int(model.emit[step])
        if after > self.packed[op]:
            for number in self.out[op]:
                capacity = self.network.edges[number].capacity
                if capacity is not None and after - self.freed[number] > capacity:
                    return
        self.busy[op] = True
        self.start[op, turn, step] = now
        self._post(now + self.durations[op][step], "done", op)

    def _done(self, op: int, now: int) -> None:
        turn, step = self.at[op]
        model = self.network.ops[op]
        self.busy[op] = False
        self.packed[op] = turn * model.total + int(model.emit[step])
        for number in self.out[op]:
            self._post(now + self.network.edges[number].latency, "arrive", number, self.packed[op])
        for number in self.into[op]:
            edge = self.network.edges[number]
            whole = self.network.ops[edge.producer].total
            self._post(now + edge.latency, "space", number, turn * whole + int(edge.frees[step]))
        self.at[op] = (turn, step + 1) if step + 1 < model.steps else (turn + 1, 0)


def _lengths(cycles: int, steps: int) -> list[int]:
    ends = [cycles * i // steps for i in range(steps + 1)]
    return [b - a for a, b in itertools.pairwise(ends)]


def starts(network: Network, batch: int) -> np.ndarray:
    """(steps of all ops, batch) start times, in the order of `NetworkRun.schedule.start`."""
    run = EventDriven(network, batch)
    assert run.finished
    rows = [(op, step) for op, model in enumerate(network.ops) for step in range(model.steps)]
    return np.array([[run.start[op, turn, step] for turn in range(batch)] for op, step in rows], dtype=np.int64)
