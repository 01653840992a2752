"""Zooming into a trace of any size: each query costs what it shows, not what the trace holds."""

from __future__ import annotations

import dataclasses
from enum import IntEnum

import numpy as np


class WaitKind(IntEnum):
    """What an op does in a span. DRAM: it waits for a queue in DRAM, or for preloaded parameters. HOST: it waits for a
    queue in host memory, for the link to the host, or for the host to push an input or to pop a result."""

    COMPUTE = 0
    INPUT = 1
    SPACE = 2
    DRAM = 3
    HOST = 4


KIND_NAMES = ("compute", "wait for input", "wait for space", "wait for DRAM", "wait for host")
KINDS = len(WaitKind)
MOST_ROWS = 3800
"""Of a window, unless asked otherwise: with 26 bytes each below 100 KB."""
_CELLS = 1 << 17
_MOST_BUCKETS = 1024


@dataclasses.dataclass(frozen=True)
class Spans:
    """A window of a trace, sorted by op and start. Times are relative to `origin` (uint32 where they fit).

    op: first of `lanes` neighbouring ops that a row stands for (1 but for very many ops); input: -1 where several
    spans are summed up; count: how many; kind: what most of the time goes to; share: (rows, KINDS) uint8, the part of
    the row's time spent on each kind, 255 for all of it (the rest is idle). exact: the rows are the trace's own spans.
    """

    origin: int
    end_of_window: int
    exact: bool
    lanes: int
    op: np.ndarray
    input: np.ndarray
    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    share: np.ndarray
    count: np.ndarray

    def __len__(self) -> int:
        return len(self.op)

    @property
    def nbytes(self) -> int:
        columns = (self.op, self.input, self.start, self.end, self.kind, self.share, self.count)
        return sum(column.nbytes for column in columns)


class Pyramid:
    """Running sums of the time of each kind along each op's spans: the time spent on a kind in any window is then the
    difference of two look-ups. Columns as in `Trace`."""

    def __init__(
        self,
        op: np.ndarray,
        input_: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        kind: np.ndarray,
        ops: int,
        cycles: int,
    ) -> None:
        self.op, self.input, self.start, self.end, self.kind = op, input_, start, end, kind
        self.ops, self.cycles = ops, cycles
        self.far = int(max(cycles, end.max(initial=0))) + 2
        if self.far * (ops + 1) >= 1 << 62:
            raise ValueError(f"a trace of {cycles} cycles and {ops} ops is longer than 64-bit times can hold")
        # one ascending key for all ops: position in time within a stretch of its own for each
        self.starts = op.astype(np.int64) * self.far + start
        self.ends = op.astype(np.int64) * self.far + end
        length = end - start
        self.before = np.zeros((KINDS, len(op) + 1), dtype=np.int64)
        for k in range(KINDS):
            np.cumsum(np.where(kind == k, length, 0), out=self.before[k, 1:])

    def covering(self, cycle: int) -> np.ndarray:
        """Indices of the spans with start <= cycle < end, one per active op."""
        if not 0 <= cycle < self.far:
            return np.zeros(0, dtype=np.int64)
        key = np.arange(self.ops, dtype=np.int64) * self.far + cycle
        at = np.searchsorted(self.starts, key, side="right") - 1
        at = at[at >= 0]
        return np.unique(at[(self.start[at] <= cycle) & (cycle < self.end[at])])

    def tile(self, level: int, index: int, limit: int = MOST_ROWS, ops: tuple[int, int] | None = None) -> Spans:
        """Part `index` of the 2**level equal parts of the trace. Raises `IndexError` outside."""
        if not (0 <= level < 63 and 0 <= index < 1 << level):
            raise IndexError(f"there is no tile {index} on level {level}")
        return self.zoom(self.cycles * index >> level, self.cycles * (index + 1) >> level, limit, ops)

    def zoom(self, start: int, end: int, limit: int = MOST_ROWS, ops: tuple[int, int] | None = None) -> Spans:
        """At most `limit` rows for [start, end), clipped to the trace. ops: only those from the first number up to,
        but without, the second; `IndexError` where there are none such."""
        if limit < 1:
            raise ValueError("a window has room for one span at least")
        low, high = (0, self.ops) if ops is None else ops
        if not 0 <= low <= high <= self.ops:
            raise IndexError(f"there are no ops {low} to {high}, only {self.ops}")
        start, end = max(0, int(start)), min(self.far - 1, int(end))
        end = max(start, end)
        lane = np.arange(low, high, dtype=np.int64) * self.far
        first = np.searchsorted(self.ends, lane + start, side="right")
        last = np.maximum(first, np.searchsorted(self.starts, lane + end, side="left"))
        counts = last - first
        if int(counts.sum()) <= limit:
            return self._exact(start, end, first, counts)
        return self._sum_spans(start, end, low + np.flatnonzero(counts), limit)

    def _exact(self, start: int, end: int, first: np.ndarray, counts: np.ndarray) -> Spans:
        rows = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        share = np.zeros((len(rows), KINDS), dtype=np.uint8)
        share[np.arange(len(rows)), self.kind[rows]] = 255
        origin = min(start, int(self.start[rows].min(initial=start)))
        time = _time_type(int(self.end[rows].max(initial=end)) - origin)
        return Spans(
            origin,
            end,
            True,
            1,
            self.op[rows].astype(np.int32),
            self.input[rows].astype(np.int32),
            (self.start[rows] - origin).astype(time),
            (self.end[rows] - origin).astype(time),
            self.kind[rows].astype(np.uint8),
            share,
            np.ones(len(rows), dtype=np.uint32),
        )

    def _sum_spans(self, start: int, end: int, active: np.ndarray, limit: int) -> Spans:
        buckets = 1
        while buckets * 2 <= min(_MOST_BUCKETS, _CELLS // len(active), end - start):
            buckets *= 2
        edges = start + (end - start) * np.arange(buckets + 1, dtype=np.int64) // buckets
        spent, spans = self._bucket_cycles(active, edges)
        lanes = 1
        while True:
            rows = _rows(spent)
            if len(rows[0]) <= limit:
                break
            if spent.shape[1] > 1:
                spent = spent[:, ::2] + spent[:, 1::2]
                spans = spans[:, ::2] + spans[:, 1::2]
                edges = edges[::2]
            else:
                spent, spans, active = (_pairs(a) for a in (spent, spans, active))
                active = active[:, 0]
                spent, spans = spent.sum(axis=1), spans.sum(axis=1)
                lanes *= 2
        lane, low, high = rows
        totals = np.concatenate([np.zeros_like(spent[:, :1]), np.cumsum(spent, axis=1)], axis=1)
        number = np.concatenate([np.zeros_like(spans[:, :1]), np.cumsum(spans, axis=1)], axis=1)
        time = totals[lane, high] - totals[lane, low]
        width = np.maximum(1, (edges[high] - edges[low]) * lanes)
        kind = _time_type(end - start)
        return Spans(
            start,
            end,
            False,
            lanes,
            active[lane].astype(np.int32),
            np.full(len(lane), -1, dtype=np.int32),
            (edges[low] - start).astype(kind),
            (edges[high] - start).astype(kind),
            time.argmax(axis=1).astype(np.uint8),
            (time * 255 // width[:, None]).astype(np.uint8),
            np.maximum(1, number[lane, high] - number[lane, low]).astype(np.uint32),
        )

    def _bucket_cycles(self, lanes: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(lanes, buckets, kinds) cycles spent in each bucket, and (lanes, buckets) spans that begin in it."""
        time = np.broadcast_to(edges, (len(lanes), len(edges)))
        at = np.searchsorted(self.starts, lanes[:, None] * self.far + time, side="right")
        span = np.maximum(at - 1, 0)
        mine = (at > 0) & (self.op[span] == lanes[:, None])
        into = np.where(mine, np.clip(time, self.start[span], self.end[span]) - self.start[span], 0)
        spent = np.empty((*time.shape, KINDS), dtype=np.int64)
        for k in range(KINDS):
            spent[:, :, k] = np.where(
                mine, self.before[k, span] + np.where(self.kind[span] == k, into, 0), self.before[k, at]
            )
        return np.diff(spent, axis=1), np.diff(at, axis=1)


def _rows(spent: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lane, first bucket, end bucket) of the stretches of neighbouring buckets with the same busiest kind."""
    lanes, buckets, _ = spent.shape
    look = np.where(spent.sum(axis=2) > 0, spent.argmax(axis=2), -1)
    fresh = np.ones((lanes, buckets), dtype=bool)
    fresh[:, 1:] = look[:, 1:] != look[:, :-1]
    at = np.flatnonzero(fresh)
    to = np.append(at[1:], lanes * buckets)
    lane, low = np.divmod(at, buckets)
    keep = look.reshape(-1)[at] >= 0
    return lane[keep], low[keep], (to - lane * buckets)[keep]


def _pairs(values: np.ndarray) -> np.ndarray:
    """Neighbours along the first axis as pairs; an odd last one gets a partner of zeros (for indices: itself)."""
    if len(values) % 2:
        last = values[-1:] if values.ndim == 1 else np.zeros_like(values[-1:])
        values = np.concatenate([values, last])
    return values.reshape(len(values) // 2, 2, *values.shape[1:])


def _time_type(longest: int) -> type[np.uint32] | type[np.uint64]:
    return np.uint32 if longest < 1 << 32 else np.uint64
