"""From steps to the columns of a trace: steps without a wait between them become one span."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.epochsim.pyramid import WaitKind
from tbuda_lab.core.epochsim.run import NetworkRun


@dataclasses.dataclass(frozen=True)
class Columns:
    """As in `Trace`; times from the start of the op's epoch."""

    op: np.ndarray
    input: np.ndarray
    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    cause: np.ndarray

    def where(self, chosen: np.ndarray) -> Columns:
        return Columns(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(self)))


def span_columns(run: NetworkRun, stalls: np.ndarray, ops: int) -> Columns:
    """Spans of the first `ops` ops. stalls: (ops,) `WaitKind` of the part of an op's time that is no computation.

    Of every run of steps the computation is drawn first and the rest of the time after it.
    """
    graph, network = run.graph, run.network
    batch = run.schedule.start.shape[1]
    steps = np.diff(graph.base)[:ops]
    each = steps * batch
    op = np.repeat(np.arange(ops, dtype=np.int32), each)
    local = np.arange(len(op), dtype=np.int64) - np.repeat(np.cumsum(each) - each, each)
    turn, step = np.divmod(local, steps[op])
    flat = (graph.base[op] + step) * batch + turn
    kernels = [o.kernel_durations() for o in network.ops[:ops]]
    kernel = np.concatenate(kernels) if kernels else np.zeros(0, np.int64)
    node = graph.base[op] + step
    start = run.schedule.start.reshape(-1)[flat]
    wait = run.waits.cycles.reshape(-1)[flat]

    fresh = np.flatnonzero((wait > 0) | (step == 0))
    if not len(fresh):
        empty = np.zeros(0, dtype=np.int64)
        return Columns(empty.astype(np.int32), empty.astype(np.int32), empty, empty, empty.astype(np.uint8),
                       empty.astype(np.int32))
    finish = np.append(fresh[1:], len(op)) - 1
    begin = start[fresh]
    end = start[finish] + graph.duration[node[finish]]
    middle = begin + np.add.reduceat(kernel[node], fresh)
    times = np.stack([begin - wait[fresh], begin, middle, end], axis=1)
    shape = (len(fresh), 3)
    kind = np.zeros(shape, dtype=np.uint8)
    kind[:, 0] = run.kinds().reshape(-1)[flat[fresh]]
    kind[:, 1] = WaitKind.COMPUTE
    kind[:, 2] = stalls[op[fresh]]
    cause = np.full(shape, -1, dtype=np.int32)
    blamed = run.causes().reshape(-1)[flat[fresh]]
    cause[:, 0] = np.where(blamed < ops, blamed, -1)
    columns = Columns(
        np.repeat(op[fresh], 3),
        np.repeat(turn[fresh].astype(np.int32), 3),
        times[:, :3].reshape(-1),
        times[:, 1:].reshape(-1),
        kind.reshape(-1),
        cause.reshape(-1),
    )
    return columns.where(columns.end > columns.start)
