"""The static twin of the op table: the slowest ops, or those of every epoch under its sub-total."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.opsframe import epoch_totals, op_columns

ROWS = 60


def table_html(frames: Mapping[str, Frame], group: bool = False, per_core: bool = False, rows: int = ROWS) -> str:
    """The slowest ops first. group: epoch by epoch, each under its sub-total; per_core: a row per core. At most `rows`
    of ops; what is left out is said."""
    if "ops" not in frames:
        return "<p>no placement yet</p>"
    frame = frames["ops"]
    c = op_columns(frame, per_core)
    order = c["cycles"].argsort(kind="stable")[::-1]
    if group:
        order = order[c["epoch"][order].argsort(kind="stable")]
    shown = order[:rows].tolist()
    limits = ["kernel or transfer", "limited by"] if "limiter" in c else []  # a file says nothing of them
    heads = ["op", "type", "epoch", "cycles", *limits, "grid", "core" if per_core else "at"]
    totals = {t["epoch"]: t for t in epoch_totals(frame)} if group else {}
    body, last = [], -1
    for i in shown:
        epoch = int(c["epoch"][i])
        if group and epoch != last:
            body.append(_total(totals[epoch], len(heads)))
            last = epoch
        body.append(_row(c, i, per_core))
    left = len(order) - len(shown)
    more = f"<p>and {left:,} more</p>" if left else ""
    head = "".join(f"<th>{h}</th>" for h in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def _row(c: dict[str, np.ndarray], i: int, per_core: bool) -> str:
    at = ("core_row", "core_col") if per_core else ("row", "col")
    limits = f"<td>{c['limiter_cycles'][i]:,.0f}</td><td>{escape(c['limiter'][i])}</td>" if "limiter" in c else ""
    return (
        f"<tr><td>{escape(c['name'][i])}</td><td>{escape(c['type'][i])}</td><td>{c['epoch'][i]}</td>"
        f"<td>{c['cycles'][i]:,.0f}</td>{limits}<td>{c['rows'][i]}×{c['cols'][i]}</td><td>{c[at[0]][i]},{c[at[1]][i]}</td></tr>"
    )


def _total(total: dict[str, Any], wide: int) -> str:
    return (
        f"<tr><th colspan='{wide}' style='text-align:left'>Epoch {total['epoch']}: {total['ops']} ops, "
        f"{total['time']:,.0f} cycles per input, slowest kernel {escape(total['slowest'])}, {total['cores']} cores, "
        f"{100 * total['balance']:.0f} % balance</th></tr>"
    )
