"""A trace in columns: what every op did when.

From steps to the columns of a trace: steps without a wait between them become one span.

Chrome trace JSON: "Trace Event Format", complete events, times in microseconds at the device's clock.

A process per chip. Its first thread shows the epochs; each further one an op of whatever epoch runs, in the order of
the epoch, so that a trace of many epochs stays as high as its largest. Waits are events of their own, named after what
is waited for.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tbuda_lab.core.epochsim.pyramid import KIND_NAMES, MOST_ROWS, Pyramid, Spans, WaitKind
from tbuda_lab.core.epochsim.run import NetworkRun
from tbuda_lab.core.files import atomic_text

ModelShapes = Mapping[str, Mapping[str, tuple[int, ...]]]


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
class Columns:
    """Spans of a run, an entry each. Times in cycles from the start of the op's epoch.

    op: int32 index of the op; input: int32; start, end: int64; kind: uint8 `WaitKind`; cause: int32, the op that is
    waited for, -1 where it is none but a transfer that takes longer than the kernel.
    """

    op: np.ndarray
    input: np.ndarray
    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    cause: np.ndarray

    def where(self, chosen: np.ndarray) -> Columns:
        return Columns(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(Columns)))


@dataclasses.dataclass(frozen=True)
class Trace(Columns):
    """Spans sorted by op and then start; the spans of one op never overlap. Times in cycles from the batch's start,
    `op` indexes `ops`. The epoch of a span is its op's.
    """

    ops: tuple[TraceOp, ...]
    epochs: tuple[TraceEpoch, ...]
    clock_hz: float

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
        spans = self.pyramid.covering(cycle)
        return Moment(cycle, self.op[spans], self.input[spans], self.kind[spans], self.cause[spans])

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

    def to_chrome_trace(self, path: str | Path, shapes: ModelShapes | None = None) -> None:
        """Write Chrome trace JSON (chrome://tracing, Perfetto), in one go. shapes: see `CompileResult.model_shapes`; by
        them a reader knows of which model it is. Raises `OutputError`."""
        write_chrome_trace(self, Path(path), shapes or {})


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
        return Columns(
            empty.astype(np.int32), empty.astype(np.int32), empty, empty, empty.astype(np.uint8), empty.astype(np.int32)
        )
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


_COLOURS = ("thread_state_running", "thread_state_runnable", "terrible", "thread_state_iowait", "thread_state_unknown")


def write_chrome_trace(trace: Trace, path: Path, shapes: ModelShapes) -> None:
    """Write `trace` to `path`. The file appears when it is complete. Raises `OutputError`."""
    facts = f'"otherData":{json.dumps(shapes)},' if shapes else ""
    with atomic_text(path) as stream:
        stream.write(f'{{"displayTimeUnit":"ns",{facts}"traceEvents":[\n')
        first = True
        for line in _lines(trace):
            stream.write(line if first else ",\n" + line)
            first = False
        stream.write("\n]}\n")


def _lines(trace: Trace) -> Iterator[str]:
    lanes: dict[tuple[int, int], int] = {}
    lane_of = []
    for op in trace.ops:
        key = (op.chip, op.epoch)
        lanes[key] = lanes.get(key, 0) + 1
        lane_of.append(lanes[key])
    for chip in sorted({e.chip for e in trace.epochs} | {o.chip for o in trace.ops}):
        yield _meta("process_name", chip, 0, {"name": f"chip {chip}"})
        yield _meta("thread_name", chip, 0, {"name": "epochs"})
        for lane in range(1, 1 + max((n for (c, _), n in lanes.items() if c == chip), default=0)):
            yield _meta("thread_name", chip, lane, {"name": f"op {lane} of the epoch"})
            yield _meta("thread_sort_index", chip, lane, {"sort_index": lane})
    scale = 1e6 / trace.clock_hz
    for epoch in trace.epochs:
        yield json.dumps(
            {
                "ph": "X",
                "cat": "epoch",
                "name": f"epoch {epoch.epoch}",
                "pid": epoch.chip,
                "tid": 0,
                "ts": epoch.start * scale,
                "dur": (epoch.end - epoch.start) * scale,
                "args": {"run": epoch.run, "cycles": epoch.end - epoch.start},
            }
        )
    heads = []
    for op, lane in zip(trace.ops, lane_of, strict=True):
        row, col, rows, cols = op.cores
        facts = f'"epoch":{op.epoch},"cores":"{rows}x{cols} at {row},{col}"'
        heads.append((json.dumps(op.name), f'"pid":{op.chip},"tid":{lane}', facts))
    names = [json.dumps(op.name) for op in trace.ops]
    columns = (trace.op, trace.input, trace.start, trace.end, trace.kind, trace.cause)
    for op_, input_, start, end, kind, cause in zip(*(c.tolist() for c in columns), strict=True):
        name, place, facts = heads[op_]
        title, category = (name, "op") if kind == 0 else (f'"{KIND_NAMES[kind]}"', "wait")
        blame = f',"for":{names[cause]}' if cause >= 0 else ""
        yield (
            f'{{"ph":"X","cat":"{category}","name":{title},{place},"ts":{start * scale!r},"dur":'
            f'{(end - start) * scale!r},"cname":"{_COLOURS[kind]}","args":{{"op":{name},"input":{input_},'
            f'"cycles":{end - start},{facts}{blame}}}}}'
        )


def _meta(name: str, process: int, thread: int, facts: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": process, "tid": thread, "args": facts})
