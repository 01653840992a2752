"""Frames of a run (where it stands, what its queues hold, how every op compares with torch) and of its trace (what it
consists of, tiles of its spans, what happens at one cycle, levels of buffers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tbuda_lab.core.epochsim import KIND_NAMES, EpochTrace, Fill, Spans, Trace
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.verification import Comparison


class RunStep(Protocol):
    """The part of a `LiveStep` that frames show."""

    @property
    def ops(self) -> tuple[str, ...]: ...
    @property
    def done(self) -> np.ndarray: ...
    @property
    def queues(self) -> tuple[str, ...]: ...
    @property
    def levels(self) -> np.ndarray: ...
    @property
    def capacity(self) -> np.ndarray: ...
    @property
    def total(self) -> int: ...
    @property
    def input(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def op(self) -> str: ...
    @property
    def paused(self) -> bool: ...
    @property
    def running(self) -> bool: ...


class Check(Protocol):
    """The part of an `OpCheck` that frames show."""

    @property
    def comparison(self) -> Comparison: ...
    @property
    def tiles(self) -> np.ndarray: ...
    @property
    def first(self) -> tuple[int, int, int] | None: ...


class Checks(Protocol):
    """The part of `OpChecks` that frames show."""

    @property
    def ops(self) -> Sequence[Check]: ...
    @property
    def unchecked(self) -> Sequence[str]: ...
    @property
    def stages(self) -> dict[str, tuple[Comparison, ...]]: ...
    @property
    def min_pcc(self) -> float: ...


def queues_frame(step: RunStep) -> Frame:
    """Names and entries of the queues whose levels `live_frame` gives, once per run."""
    strings = Strings()
    columns = {"queue_name": strings.column(step.queues), "queue_entries": step.capacity.astype("<u4")}
    return Frame("queues", {}, columns, strings.table)


def live_frame(step: RunStep, stalled: Sequence[str] = (), cycle: int | None = None) -> Frame:
    """`done`: inputs that each op has worked on, in the order of the ops frame; `level`: entries of each queue of the
    queues frame. meta: input, total, epoch, op, paused, running; stalled: ops that the simulator sees wait for space
    at a fork; cycle: where on the timeline of one input the op at work ends, None where that is not known."""
    columns = {"done": step.done.astype("<u4"), "level": step.levels.astype("<u4")}
    meta = {
        "input": step.input,
        "total": step.total,
        "epoch": step.epoch,
        "op": step.op,
        "paused": step.paused,
        "running": step.running,
        "stalled": list(stalled),
        "cycle": cycle,
    }
    return Frame("live", meta, columns)


def checks_frame(checks: Checks) -> Frame:
    """`check_*`: op in schedule order, pcc, max_abs, scale, first differing tile (tile_z -1: none), tiles of a tensor;
    `stage_*`: stage, node, pcc of the nodes that a stage shares with the one before."""
    strings = Strings()
    ops = checks.ops
    first = [c.first or (-1, -1, -1) for c in ops]
    stages = [(stage, c) for stage, stage_checks in checks.stages.items() for c in stage_checks]
    columns = {
        "check_op": strings.column(c.comparison.name for c in ops),
        "check_pcc": np.array([c.comparison.pcc for c in ops], dtype="<f8"),
        "check_max_abs": np.array([c.comparison.max_abs for c in ops], dtype="<f8"),
        "check_scale": np.array([c.comparison.scale for c in ops], dtype="<f8"),
        "stage_stage": strings.column(stage for stage, _ in stages),
        "stage_node": strings.column(c.name for _, c in stages),
        "stage_pcc": np.array([c.pcc for _, c in stages], dtype="<f8"),
    }
    for at, axis in enumerate("zrc"):
        columns[f"check_tile_{axis}"] = np.array([tile[at] for tile in first], dtype="<i4")
        columns[f"check_tiles_{axis}"] = np.array([c.tiles.shape[at] for c in ops], dtype="<u4")
    failed = [c.comparison.name for c in ops if not c.comparison.passes(checks.min_pcc)]
    meta = {
        "min_pcc": checks.min_pcc,
        "first": failed[0] if failed else "",
        "failed": len(failed),
        "stages": {stage: min(c.pcc for c in each) for stage, each in checks.stages.items() if each},
        "unchecked": list(checks.unchecked)[:50],
        "worst": min((c.comparison.pcc for c in ops), default=1.0),
    }
    return Frame("checks", meta, columns, strings.table)


def tensor_frame(check: Check) -> Frame:
    """The largest difference within each tile of one op's tensor: `tile`, slice by slice, row by row."""
    z, rows, cols = check.tiles.shape
    meta = {"op": check.comparison.name, "tiles": [z, rows, cols], "scale": check.comparison.scale}
    return Frame("tensor", meta, {"tile": np.ascontiguousarray(check.tiles.reshape(-1).astype("<f4"))})


BLOCK = 32
"""Lanes of a tile at most: a view shows about so many at a time."""
TILE_ROWS = 4096
"""Spans of a tile at most: with 24 bytes each it stays below 100 KB."""
STATIC_ROWS = 20_000
"""Spans that a page without a kernel carries, over all its tiles."""


def blocks(trace: Trace) -> list[tuple[int, int]]:
    """Runs of at most `BLOCK` lanes of one epoch, (first, end): what a tile covers."""
    blocks: list[tuple[int, int]] = []
    epochs = [op.epoch for op in trace.ops]
    first = 0
    for lane in range(1, len(epochs) + 1):
        if lane == len(epochs) or epochs[lane] != epochs[first] or lane - first == BLOCK:
            blocks.append((first, lane))
            first = lane
    return blocks


def trace_frame(epoch_trace: EpochTrace, rev: int, batches: Sequence[int] = ()) -> Frame:
    """Everything but the spans.

    `lane_*`: name, epoch, chip and rectangle of cores; an op whose cores do not go in step has several lanes, next to
    each other. `block_*`: first lane and end of each block of lanes that a tile covers. `run_*`: epoch, chip, round of
    the loop, start and end in cycles. `op_*`: cycles of the batch by kind, whom it waited for. `stall_*`: fork, join,
    the edge on which a buffer would help (source, target), cycles of the batch, whether it slows its epoch down, and
    the branches in words.
    """
    trace, strings = epoch_trace.trace, Strings()
    cuts = blocks(trace)
    short = [s.short[0] if s.short else s.join for s in epoch_trace.stalls]
    columns: dict[str, np.ndarray] = {
        "lane_name": strings.column(op.name for op in trace.ops),
        "lane_epoch": np.array([op.epoch for op in trace.ops], dtype="<u4"),
        "lane_chip": np.array([op.chip for op in trace.ops], dtype="<u2"),
        "block_first": np.array([low for low, _ in cuts], dtype="<u4"),
        "block_end": np.array([high for _, high in cuts], dtype="<u4"),
        "run_epoch": np.array([e.epoch for e in trace.epochs], dtype="<u4"),
        "run_chip": np.array([e.chip for e in trace.epochs], dtype="<u2"),
        "run_round": np.array([e.run for e in trace.epochs], dtype="<u4"),
        "run_start": np.array([e.start for e in trace.epochs], dtype="<f8"),
        "run_end": np.array([e.end for e in trace.epochs], dtype="<f8"),
        "op_name": strings.column(op.op for op in epoch_trace.ops),
        "op_compute": np.array([op.compute for op in epoch_trace.ops], dtype="<f8"),
        "op_input": np.array([op.wait_input for op in epoch_trace.ops], dtype="<f8"),
        "op_space": np.array([op.wait_space for op in epoch_trace.ops], dtype="<f8"),
        "op_dram": np.array([op.wait_dram for op in epoch_trace.ops], dtype="<f8"),
        "op_host": np.array([op.wait_host for op in epoch_trace.ops], dtype="<f8"),
        "op_input_from": strings.column(op.input_from for op in epoch_trace.ops),
        "op_space_to": strings.column(op.space_to for op in epoch_trace.ops),
        "stall_epoch": np.array([s.epoch for s in epoch_trace.stalls], dtype="<u4"),
        "stall_fork": strings.column(s.fork for s in epoch_trace.stalls),
        "stall_join": strings.column(s.join for s in epoch_trace.stalls),
        "stall_source": strings.column(s.fork for s in epoch_trace.stalls),
        "stall_target": strings.column(short),
        "stall_cycles": np.array([s.cycles for s in epoch_trace.stalls], dtype="<f8"),
        "stall_critical": np.array([s.critical for s in epoch_trace.stalls], dtype="u1"),
        "stall_short": strings.column(" → ".join(s.short) for s in epoch_trace.stalls),
        "stall_long": strings.column(" → ".join(s.long) for s in epoch_trace.stalls),
    }
    for at, field in enumerate(("row", "col", "rows", "cols")):
        columns[f"lane_{field}"] = np.array([op.cores[at] for op in trace.ops], dtype="<u2")
    meta = {
        "rev": rev,
        "batch": epoch_trace.batch,
        "per_run": epoch_trace.per_run,
        "cycles": max(epoch_trace.cycles, trace.cycles),
        "events": len(trace),
        "clock_hz": trace.clock_hz,
        "kinds": list(KIND_NAMES),
        "deadlocked": epoch_trace.deadlocked,
        "batches": list(batches),
        "switch": epoch_trace.constants.switch,
    }
    return Frame("trace", meta, columns, strings.table)


def tile_frame(trace: Trace, level: int, index: int, block: int, rev: int = 0) -> Frame:
    """Tile `index` of `level` for the lanes of a block. Raises `IndexError` where there is none such."""
    cuts = blocks(trace)
    if not 0 <= block < len(cuts):
        raise IndexError(f"there is no block {block}, only {len(cuts)}")
    spans = trace.tile(level, index, TILE_ROWS, cuts[block])
    return _tile(trace, spans, {"level": level, "index": index, "block": block, "rev": rev}, "tracetile")


def static_tiles(trace: Trace, rows: int = STATIC_ROWS) -> list[Frame]:
    """One tile per block over the whole time of its epoch, for pages that cannot ask; `rows` spans over all of them."""
    cuts = blocks(trace)
    each = max(8, min(TILE_ROWS, rows // max(1, len(cuts))))
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    for run in trace.epochs:
        begin[run.epoch] = min(begin.get(run.epoch, run.start), run.start)
        end[run.epoch] = max(end.get(run.epoch, run.end), run.end)
    frames = []
    for block, (low, high) in enumerate(cuts):
        epoch = trace.ops[low].epoch
        spans = trace.zoom(begin.get(epoch, 0), end.get(epoch, 0) + 1, each, (low, high))
        facts = {"level": -1, "index": 0, "block": block, "rev": 0}
        frames.append(_tile(trace, spans, facts, f"tracetile:{block}"))
    return frames


def _tile(trace: Trace, spans: Spans, facts: dict[str, Any], key: str) -> Frame:
    """Columns: lane, input (-1: several), start and end from `origin`, kind, share of the kinds (255: all),
    count. An exact tile holds the spans themselves, so it has neither share nor count."""
    lanes = "<u2" if len(trace.ops) < 1 << 16 else "<u4"
    columns: dict[str, np.ndarray] = {
        "lane": spans.op.astype(lanes),
        "input": spans.input.astype("<i4"),
        "start": _time(spans.start),
        "end": _time(spans.end),
        "kind": spans.kind,
    }
    if not spans.exact:
        columns["count"] = spans.count.astype("<u4")
        columns["share"] = np.ascontiguousarray(spans.share).reshape(-1)
    meta = {**facts, "origin": spans.origin, "window_end": spans.end_of_window, "exact": spans.exact}
    return Frame(key, meta, columns)


def _time(values: np.ndarray) -> np.ndarray:
    return values.astype("<u4") if values.dtype.itemsize <= 4 else values.astype("<f8")


def moment_frame(trace: Trace, cycle: int, rev: int = 0) -> Frame:
    """What every lane that is active at `cycle` does: lane, op and cores, input, kind, the lane waited for (-1: none).
    meta `epochs`: those that run then."""
    moment, strings = trace.at(cycle), Strings()
    lanes = [trace.ops[i] for i in moment.op.tolist()]
    columns = {
        "op": strings.column(op.name for op in lanes),
        "lane": moment.op.astype("<u4"),
        "input": moment.input.astype("<i4"),
        "kind": moment.kind.astype("u1"),
        "cause": moment.cause.astype("<i4"),
    }
    for at, field in enumerate(("row", "col", "rows", "cols")):
        columns[field] = np.array([op.cores[at] for op in lanes], dtype="<u2")
    epochs = [e.epoch for e in trace.epochs if e.start <= cycle < e.end]
    return Frame("moment", {"cycle": cycle, "rev": rev, "epochs": epochs}, columns, strings.table)


def slice_frame(trace: Trace, start: int, end: int, rev: int = 0) -> Frame:
    """What the ops did in [start, end), most work first: op, epoch, cycles by kind (`compute`, `input`, `space`,
    `dram`, `host`; the mean over an op's cores), inputs it worked on."""
    stats, strings = trace.slice(start, end), Strings()
    order = np.argsort(-stats.cycles[:, 0], kind="stable")
    columns = {
        "op": strings.column(stats.ops[i] for i in order.tolist()),
        "epoch": np.array([stats.epochs[i] for i in order.tolist()], dtype="<u4"),
        "inputs": stats.inputs[order].astype("<u4"),
    }
    for kind, name in enumerate(("compute", "input", "space", "dram", "host")):
        columns[name] = np.ascontiguousarray(stats.cycles[order, kind]).astype("<f8")
    return Frame("slice", {"start": start, "end": end, "rev": rev}, columns, strings.table)


FLOWS = 256
"""Flows of one op that are sent at most."""


def flows_frame(trace: EpochTrace, op: str, edges: Sequence[tuple[str, str]], rev: int = 0) -> Frame:
    """The inputs that an op gets and hands on, one row per edge and input, the first `FLOWS`: producer, consumer,
    input, and when each of the two begins with it."""
    number, strings = {name: i for i, name in enumerate(trace.levels.names)}, Strings()
    pairs = [(number[a], number[b]) for a, b in edges if a in number and b in number]
    at = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    inputs = np.arange(trace.batch)
    count = min(FLOWS, len(pairs) * trace.batch)
    edge = np.tile(np.arange(len(pairs)), trace.batch)[:count]
    each = np.repeat(inputs, len(pairs))[:count]
    names = trace.levels.names
    columns = {
        "producer": strings.column(names[i] for i in at[edge, 0].tolist()),
        "consumer": strings.column(names[i] for i in at[edge, 1].tolist()),
        "input": each.astype("<u4"),
        "leaves": trace.start[at[edge, 0], each].astype("<f8"),
        "arrives": trace.start[at[edge, 1], each].astype("<f8"),
    }
    return Frame("flows", {"op": op, "rev": rev, "edges": len(pairs)}, columns, strings.table)


def fills_frame(op: str, fills: Sequence[Fill], window: tuple[int, int], rev: int = 0) -> Frame:
    """Levels of the buffers around an op: `fill_*` one row per buffer, `point_*` their points one after another."""
    strings = Strings()
    columns = {
        "fill_producer": strings.column(f.producer for f in fills),
        "fill_consumer": strings.column(f.consumer for f in fills),
        "fill_unit": strings.column(f.unit for f in fills),
        "fill_capacity": np.array([f.capacity or 0 for f in fills], dtype="<u4"),
        "fill_points": np.array([len(f.time) for f in fills], dtype="<u4"),
        "point_time": np.concatenate([np.zeros(0), *(f.time for f in fills)]).astype("<f8"),
        "point_level": np.concatenate([np.zeros(0), *(f.level for f in fills)]).astype("<f4"),
    }
    return Frame("fills", {"op": op, "start": window[0], "end": window[1], "rev": rev}, columns, strings.table)
