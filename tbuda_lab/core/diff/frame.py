"""The frame of a comparison: every op of both sides with its classes, queues that differ, epochs that match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tbuda_lab.core.diff import DeviceGrid, Diff, OpState
from tbuda_lab.core.diff.compare import REST, queue_text, totals, verdict
from tbuda_lab.core.diff.sides import CLASSES, CYCLES
from tbuda_lab.core.frames.frame import Frame, Strings


def diff_frame(diff: Diff) -> Frame:
    """Columns of a comparison.

    `op_*`: all ops of both sides, those of `after` last: name; classes (bit k: `CLASSES[k]`); for each side, with the
    prefixes `a_` and `b_`: epoch (-1: not there), chip, rectangle of cores (row, col, rows, cols), and in cycles per
    input of the kernel (`cycles`), of the kernel or slowest transfer (`limit`), and what is compared (`time`: simulated
    where meta `simulated` says so, else the same as `limit`). `queue_*`: those that differ. `pair_a`, `pair_b`: epochs
    that match (-1: none). `a_epoch_*`, `b_epoch_*`: temporal number, chip, cycles per input: simulated, or of the
    slowest op where a side is a file; of the slowest kernel (`kernels`). meta `rest`: see `Diff.rest`. Of two measured
    runs times are in ns, and there are `op_kind`, and `place` in the order of each run (-1: not there).
    """
    strings = Strings()
    names = list(dict.fromkeys((*diff.before.ops, *diff.after.ops)))
    bits = {c.op: sum(1 << CLASSES.index(k) for k in c.classes) for c in diff.changes}
    columns: dict[str, np.ndarray] = {
        "op_name": strings.column(names),
        "op_classes": np.array([bits.get(n, 0) for n in names], dtype="u1"),
    }
    for prefix, side in (("a", diff.before), ("b", diff.after)):
        states = [side.ops.get(n) for n in names]
        columns |= {f"op_{prefix}_{key}": _column(states, get, dtype) for key, get, dtype in _FIELDS}
        columns[f"{prefix}_epoch_temporal"] = np.array([e.temporal for e in side.epochs], dtype="<u4")
        columns[f"{prefix}_epoch_chip"] = np.array([e.chip for e in side.epochs], dtype="<u2")
        columns[f"{prefix}_epoch_cycles"] = np.array(
            [e.limiter_cycles if e.time is None or not diff.has_simulated_time else e.time for e in side.epochs],
            dtype="<f8",
        )
        columns[f"{prefix}_epoch_kernels"] = np.array([e.cycles for e in side.epochs], dtype="<f8")
    if diff.unit != CYCLES:
        present = [diff.after.ops.get(n) or diff.before.ops[n] for n in names]
        columns["op_kind"] = strings.column(s.kind for s in present)
        for prefix, side in (("a", diff.before), ("b", diff.after)):
            place = {name: k for k, name in enumerate(side.ops)}
            columns[f"op_{prefix}_place"] = np.array([place.get(n, -1) for n in names], dtype="<i4")
    for at, prefix in enumerate("ab"):
        columns[f"pair_{prefix}"] = np.array([-1 if p[at] is None else p[at] for p in diff.pairs], dtype="<i4")
    columns |= {
        "queue_name": strings.column(q.queue for q in diff.queues),
        "queue_what": strings.column(q.what for q in diff.queues),
        "queue_a": strings.column(queue_text(q.before) for q in diff.queues),
        "queue_b": strings.column(queue_text(q.after) for q in diff.queues),
    }
    meta: dict[str, Any] = {
        "a": diff.a,
        "b": diff.b,
        "classes": list(CLASSES),
        "verdict": verdict(diff),
        "counts": {name: len(getattr(diff, name)) for name in CLASSES},
        "totals": [[title, round(before), round(after)] for title, before, after in totals(diff)],
        "unit": diff.unit,
        "simulated": diff.has_simulated_time,
        "batch": diff.after.batch,
        "rest": diff.rest,
        "rest_of": REST,
        "notes": list(diff.notes),
        "grid_a": _grid(diff.before.grid),
        "grid_b": _grid(diff.after.grid),
    }
    return Frame("diff", meta, columns, strings.table)


_FIELDS: tuple[tuple[str, Callable[[OpState], float], str], ...] = (
    ("epoch", lambda s: s.epoch, "<i4"),
    ("chip", lambda s: s.chip, "<i2"),
    ("row", lambda s: s.start[0], "<i2"),
    ("col", lambda s: s.start[1], "<i2"),
    ("rows", lambda s: s.size[0], "<i2"),
    ("cols", lambda s: s.size[1], "<i2"),
    ("cycles", lambda s: s.cycles, "<f8"),
    ("limit", lambda s: s.limiter_cycles, "<f8"),
    ("time", lambda s: s.compared_cycles, "<f8"),
)


def _column(states: list[OpState | None], get: Callable[[OpState], float], dtype: str) -> np.ndarray:
    return np.array([-1 if s is None else get(s) for s in states], dtype=dtype)


def _grid(grid: DeviceGrid) -> dict[str, Any]:
    return {
        "device": grid.device,
        "rows": grid.rows,
        "cols": grid.cols,
        "physical": list(grid.physical),
        "harvested": list(grid.harvested),
        **({"chips": [*grid.chips], "chip_rows": [[*map(list, p)] for p in grid.chip_rows]} if grid.chip_rows else {}),
    }
