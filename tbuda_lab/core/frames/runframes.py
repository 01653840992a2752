"""Frames of a run: where it stands, what its queues hold, how every op compares with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

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
        "input": step.input, "total": step.total, "epoch": step.epoch, "op": step.op, "paused": step.paused,
        "running": step.running, "stalled": list(stalled), "cycle": cycle,
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
        "min_pcc": checks.min_pcc, "first": failed[0] if failed else "", "failed": len(failed),
        "stages": {stage: min(c.pcc for c in each) for stage, each in checks.stages.items() if each},
        "unchecked": list(checks.unchecked)[:50], "worst": min((c.comparison.pcc for c in ops), default=1.0),
    }
    return Frame("checks", meta, columns, strings.table)


def tensor_frame(check: Check) -> Frame:
    """The largest difference within each tile of one op's tensor: `tile`, slice by slice, row by row."""
    z, rows, cols = check.tiles.shape
    meta = {"op": check.comparison.name, "tiles": [z, rows, cols], "scale": check.comparison.scale}
    return Frame("tensor", meta, {"tile": np.ascontiguousarray(check.tiles.reshape(-1).astype("<f4"))})
