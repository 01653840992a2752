"""The static twin of a comparison: totals, the grids of the epochs that differ most, a table."""

from __future__ import annotations

from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.pictures.diff_grid import MODES, caption, classes_of, pairs_of, side_svg, sides_of
from tbuda_lab.widgets.pictures.fragments import LIMIT

ROWS = 60
PAIRS = 4


def diff_twin(frame: Frame, mode: str = MODES[0]) -> str:
    """A comparison frame as an HTML fragment. mode: one of `diff_grid.MODES`, how the grids are drawn."""
    meta = frame.meta
    names = " → ".join(escape(str(meta[side])) for side in "ab")
    parts = [f"<p><b>{names}</b>: {escape(meta['verdict'])}</p>", _totals(frame)]
    parts += [f"<p>{escape(note)}</p>" for note in meta["notes"]]
    budget = LIMIT - sum(map(len, parts))
    for picture in _pictures(frame, mode):
        budget -= len(picture)
        if budget < 60_000:  # the table comes after
            break
        parts.append(picture)
    return "".join([*parts, _table(frame), _queues(frame)])


def _totals(frame: Frame) -> str:
    rows = []
    for title, before, after in frame.meta["totals"]:
        change = f"{100 * (after / before - 1):+.1f} %" if before else ""
        rows.append(f"<tr><td>{escape(title)}</td><td>{before:,}</td><td>{after:,}</td><td>{change}</td></tr>")
    return f"<table><tr><th></th><th>before</th><th>after</th><th>change</th></tr>{''.join(rows)}</table>"


def _pictures(frame: Frame, mode: str) -> list[str]:
    """The grids of the pairs of epochs with most differing ops."""
    return [
        "<div style='display:flex;flex-wrap:wrap;gap:12px'>" + "".join(
            f"<figure style='margin:0'><figcaption>{escape(caption(frame, side, epoch, mode))}</figcaption>"
            f"{side_svg(frame, side, pair, mode)}</figure>"
            for side, epoch in sides_of(pair, mode)
        ) + "</div>"
        for count, pair in pairs_of(frame)[:PAIRS] if count
    ]  # fmt: skip


def _table(frame: Frame) -> str:
    c = frame.columns
    ops = np.flatnonzero(c["op_classes"])
    if not ops.size:
        return "<p>no op differs</p>"
    delta = np.maximum(c["op_b_time"], 0) - np.maximum(c["op_a_time"], 0)
    ops = ops[np.argsort(-np.abs(delta[ops]), kind="stable")]
    unit = "cycles per input, simulated" if frame.meta["simulated"] else "cycles per input, kernel or transfer"
    head = "".join(f"<th>{t}</th>" for t in ("op", "differs", "before", "after", f"{unit}: before", "after", "change"))
    body = "".join(_row(frame, op, float(delta[op])) for op in ops[:ROWS].tolist())
    if round(frame.meta["rest"]):
        body += f"<tr><td colspan='6'>{frame.meta['rest_of']}</td><td>{frame.meta['rest']:+,.0f}</td></tr>"
    more = f"<p>and {ops.size - ROWS} more</p>" if ops.size > ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _row(frame: Frame, op: int, delta: float) -> str:
    c = frame.columns
    cycles = [float(c[f"op_{side}_time"][op]) for side in "ab"]
    both = min(cycles) >= 0 and cycles[0] > 0
    share = f"{100 * delta / cycles[0]:+.1f} %" if both else ""
    cells = (
        frame.strings[int(c["op_name"][op])], ", ".join(classes_of(frame, op)), _place(frame, "a", op),
        _place(frame, "b", op), *(f"{v:,.0f}" if v >= 0 else "–" for v in cycles), share,
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _place(frame: Frame, side: str, op: int) -> str:
    keys = ("epoch", "rows", "cols", "row", "col")
    epoch, rows, cols, row, col = (int(frame.columns[f"op_{side}_{key}"][op]) for key in keys)
    return "–" if epoch < 0 else f"{rows}×{cols} at {row},{col}, epoch {epoch}"


def _queues(frame: Frame) -> str:
    names = frame.text("queue_name")[:ROWS]
    if not names:
        return ""
    columns = [names, *(frame.text(f"queue_{k}")[:ROWS] for k in ("what", "a", "b"))]
    head = "".join(f"<th>{t}</th>" for t in ("queue", "differs", "before", "after"))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in zip(*columns, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
