"""The static twin of a comparison: totals, the grids of the epochs that differ most, a table."""

from __future__ import annotations

from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.svg import elide, short_name
from tbuda_lab.widgets.twins import LIMIT

ROWS = 60
PAIRS = 4
CELL_W, CELL_H, LEFT, TOP = 52, 34, 20, 18
PAINT = {
    "added": ("#d6ecdf", "#1b7f4b"), "removed": ("#f7dbd9", "#c0271d"), "resized": ("#d9e5f9", "#1f63d6"),
    "moved": ("#e7dcf6", "#7a3fc4"), "retimed": ("#f1e4d0", "#9a5b00"),
}  # fmt: skip
GLYPH = {"added": "+", "removed": "−", "resized": "⤢", "moved": "→", "retimed": "◷"}


def diff_twin(frame: Frame) -> str:
    """A comparison frame as an HTML fragment."""
    meta = frame.meta
    names = " → ".join(escape(str(meta[side])) for side in "ab")
    parts = [f"<p><b>{names}</b>: {escape(meta['verdict'])}</p>", _totals(frame)]
    parts += [f"<p>{escape(note)}</p>" for note in meta["notes"]]
    budget = LIMIT - sum(map(len, parts))
    for picture in _pictures(frame):
        budget -= len(picture)
        if budget < 60_000:  # the table comes after
            break
        parts.append(picture)
    return "".join([*parts, _table(frame), _queues(frame)])


def _classes(frame: Frame, op: int) -> list[str]:
    bits = int(frame.columns["op_classes"][op])
    return [name for k, name in enumerate(frame.meta["classes"]) if bits >> k & 1]


def _totals(frame: Frame) -> str:
    rows = []
    for title, before, after in frame.meta["totals"]:
        change = f"{100 * (after / before - 1):+.1f} %" if before else ""
        rows.append(f"<tr><td>{escape(title)}</td><td>{before:,}</td><td>{after:,}</td><td>{change}</td></tr>")
    return f"<table><tr><th></th><th>before</th><th>after</th><th>change</th></tr>{''.join(rows)}</table>"


def _pictures(frame: Frame) -> list[str]:
    """Both sides of the pairs of epochs with most differing ops."""
    c = frame.columns
    differs = c["op_classes"] > 0
    found = []
    for a, b in zip(c["pair_a"].tolist(), c["pair_b"].tolist(), strict=True):
        count = int((differs & (((c["op_a_epoch"] == a) & (a >= 0)) | ((c["op_b_epoch"] == b) & (b >= 0)))).sum())
        if count:
            found.append((count, a, b))
    found.sort(key=lambda item: -item[0])
    return [
        "<div style='display:flex;flex-wrap:wrap;gap:12px'>" + "".join(
            f"<figure style='margin:0'><figcaption>{escape(str(frame.meta[side]))}: epoch {epoch}</figcaption>"
            f"{side_svg(frame, side, epoch)}</figure>"
            for side, epoch in (("a", a), ("b", b)) if epoch >= 0
        ) + "</div>"
        for _, a, b in found[:PAIRS]
    ]  # fmt: skip


def side_svg(frame: Frame, side: str, epoch: int) -> str:
    """The core grid of one side; ops that differ have the colour and glyph of their first class."""
    grid, c = frame.meta[f"grid_{side}"], frame.columns
    width, height = LEFT + grid["cols"] * CELL_W + 4, TOP + grid["rows"] * CELL_H + 4
    cells = "".join(
        f"M{LEFT + col * CELL_W + 1} {TOP + row * CELL_H + 1}h{CELL_W - 2}v{CELL_H - 2}h{2 - CELL_W}z"
        for row in range(grid["rows"]) for col in range(grid["cols"])
    )
    parts = [f"<path d='{cells}' fill='#f0f3f7' stroke='#dde3eb'/>"]
    for op in np.flatnonzero(c[f"op_{side}_epoch"] == epoch).tolist():
        row, col, rows, cols = (int(c[f"op_{side}_{k}"][op]) for k in ("row", "col", "rows", "cols"))
        if rows <= 0:
            continue
        kinds = _classes(frame, op)
        fill, edge = PAINT[kinds[0]] if kinds else ("#eef1f5", "#b9c3d0")
        name = frame.strings[int(c["op_name"][op])]
        x, y, w, h = LEFT + col * CELL_W + 1.5, TOP + row * CELL_H + 1.5, cols * CELL_W - 3, rows * CELL_H - 3
        label = " ".join(["".join(GLYPH[k] for k in kinds), elide(short_name(name), int((w - 6) / 5.6) - len(kinds))])
        parts.append(
            f"<g><title>{escape(name)}: {', '.join(kinds) or 'as before'}</title><rect x='{x}' y='{y}' width='{w}' "
            f"height='{h}' rx='4' fill='{fill}' stroke='{edge}'/><text x='{x + w / 2}' y='{y + h / 2 + 4}' "
            f"font-size='9.5' fill='#17202e' text-anchor='middle'>{escape(label.strip())}</text></g>"
        )
    title = f"{frame.meta[side]}, epoch {epoch}"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' role='img' "
        f"font-family='system-ui,sans-serif' style='max-width:100%;height:auto;background:#fff' "
        f"aria-label='{escape(title, True)}'>{''.join(parts)}</svg>"
    )


def _table(frame: Frame) -> str:
    c = frame.columns
    ops = np.flatnonzero(c["op_classes"])
    if not ops.size:
        return "<p>no op differs</p>"
    delta = np.maximum(c["op_b_limit"], 0) - np.maximum(c["op_a_limit"], 0)
    ops = ops[np.argsort(-np.abs(delta[ops]), kind="stable")]
    head = "".join(f"<th>{t}</th>" for t in ("op", "differs", "before", "after", "cycles", "", "change"))
    body = "".join(_row(frame, op, float(delta[op])) for op in ops[:ROWS].tolist())
    more = f"<p>and {ops.size - ROWS} more</p>" if ops.size > ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _row(frame: Frame, op: int, delta: float) -> str:
    c = frame.columns
    limits = [float(c[f"op_{side}_limit"][op]) for side in "ab"]
    both = min(limits) >= 0 and limits[0] > 0
    share = f"{100 * delta / limits[0]:+.1f} %" if both else ""
    cells = (
        frame.strings[int(c["op_name"][op])], ", ".join(_classes(frame, op)), _place(frame, "a", op),
        _place(frame, "b", op), *(f"{v:,.0f}" if v >= 0 else "–" for v in limits), share,
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
