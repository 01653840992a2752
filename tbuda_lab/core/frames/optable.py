"""Rows of the op table beyond one per op: one per core, and sub-totals per epoch. All from the frame of a placement."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core.frames.frame import Frame
from tbuda_lab.core.frames.opsframe import epoch_time

TEXTS = {
    "op_name", "op_type", "op_module", "op_location", "op_df", "op_fidelity", "op_stream", "op_limiter", "op_bound",
}


def op_columns(frame: Frame, per_core: bool = False) -> dict[str, np.ndarray]:
    """All columns by name, one entry per op in schedule order. per_core: one per core instead, row by row, with its
    logical `core_row` and `core_col`."""
    columns = {
        name.removeprefix("op_"): np.array(frame.text(name)) if name in TEXTS else values
        for name, values in frame.columns.items()
        if name.startswith("op_")
    }
    if not per_core:
        return columns
    high, wide = columns["rows"].astype(np.int64), columns["cols"].astype(np.int64)
    count = high * wide
    op = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count)
    op_columns = {name: values[op] for name, values in columns.items()}
    op_columns["core_row"] = (columns["row"][op] + within // wide[op]).astype("<u2")
    op_columns["core_col"] = (columns["col"][op] + within % wide[op]).astype("<u2")
    return op_columns


def epoch_totals(frame: Frame) -> list[dict[str, Any]]:
    """One dict per epoch: `epoch`, `temporal`, `chip`, `ops`, `cores`, `time` per input (see `epoch_time`),
    `cycles` and `limiter_cycles` per input of its slowest op by kernel alone and with its data, `slowest` (that op, by
    kernel), `balance` (sum of cores x kernel cycles over all cores x `time`)."""
    c, names = frame.columns, frame.text("op_name")
    limits = c.get("epoch_limiter_cycles", c["epoch_cycles"])  # a file says nothing of what limits its ops
    times = epoch_time(frame)
    epoch_totals = []
    for epoch in range(len(c["epoch_cycles"])):
        members = np.flatnonzero(c["op_epoch"] == epoch)
        slowest = names[members[c["op_cycles"][members].argmax()]] if members.size else ""
        epoch_totals.append({
            "epoch": epoch, "temporal": int(c["epoch_temporal"][epoch]), "chip": int(c["epoch_chip"][epoch]),
            "ops": int(members.size), "cores": int(c["epoch_cores"][epoch]), "cycles": float(c["epoch_cycles"][epoch]),
            "limiter_cycles": float(limits[epoch]), "slowest": slowest, "time": float(times[epoch]),
            "balance": float(c["epoch_busy"][epoch]),
        })  # fmt: skip
    return epoch_totals
