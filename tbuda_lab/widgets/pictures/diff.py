"""A comparison as HTML: totals, the grids of the epochs that differ most as `labextension/src/views/diff/side.ts` draws
them, a table."""

from __future__ import annotations

from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.pictures.svg import FONT, Paint, delta_paint, fitting, picture, short_name

MODES = ("split", "blink", "delta")
CELL_W, CELL_H, LEFT, TOP = 52, 34, 20, 18
CAPTION, GAP = 18, 14
PAINT = {
    "added": ("#d6ecdf", "#1b7f4b"),
    "removed": ("#f7dbd9", "#c0271d"),
    "resized": ("#d9e5f9", "#1f63d6"),
    "moved": ("#e7dcf6", "#7a3fc4"),
    "retimed": ("#f1e4d0", "#9a5b00"),
}
SAME = ("#eef1f5", "#b9c3d0")
GLYPH = {"added": "+", "removed": "−", "resized": "⤢", "moved": "→", "retimed": "◷"}

Pair = tuple[int, int]
"""Epochs of both sides that match; -1 where a side has none."""


def pairs_of(frame: Frame) -> list[tuple[int, Pair]]:
    """The pairs of epochs with the number of differing ops in each, most first."""
    c = frame.columns
    differs = c["op_classes"] > 0
    result = []
    for a, b in zip(c["pair_a"].tolist(), c["pair_b"].tolist(), strict=True):
        in_pair = ((c["op_a_epoch"] == a) & (a >= 0)) | ((c["op_b_epoch"] == b) & (b >= 0))
        result.append((int((differs & in_pair).sum()), (a, b)))
    return sorted(result, key=lambda item: -item[0])


def classes_of(frame: Frame, op: int) -> list[str]:
    """What differs about an op; nothing for one that both sides have alike."""
    bits = int(frame.columns["op_classes"][op])
    return [name for k, name in enumerate(frame.meta["classes"]) if bits >> k & 1]


def sides_of(pair: Pair, mode: str) -> list[tuple[str, int]]:
    """(side, epoch) of the grids that a mode draws: both for "split", else the second, or the one there is."""
    sides = [(side, epoch) for side, epoch in zip("ab", pair, strict=True) if epoch >= 0]
    return sides if mode == "split" else sides[-1:]


def pair_svg(frame: Frame, pair: Pair, mode: str) -> str:
    """The grids of a pair of epochs beside each other in one picture, each under its name."""
    parts, x, height = [f"<g {FONT}>"], 0.0, 0.0
    for side, epoch in sides_of(pair, mode):
        w, h, drawn = _grid(frame, side, epoch, pair, mode)
        heading = escape(caption(frame, side, epoch, mode))
        head = f"<text x='{LEFT}' y='-4' font-size='11' fill='#17202e'>{heading}</text>"
        parts.append(f"<g transform='translate({x} {CAPTION})'>{head}{''.join(drawn)}</g>")
        x, height = x + w + GAP, max(height, h)
    title = " and ".join(f"{frame.meta[side]}, epoch {epoch}" for side, epoch in sides_of(pair, mode))
    return picture(x - GAP, height + CAPTION, [*parts, "</g>"], title)


def side_svg(frame: Frame, side: str, pair: Pair, mode: str = "split") -> str:
    """One of them by itself."""
    epoch = pair["ab".index(side)]
    width, height, parts = _grid(frame, side, epoch, pair, mode)
    return picture(width, height, [f"<g {FONT}>", *parts, "</g>"], f"{frame.meta[side]}, epoch {epoch}")


def caption(frame: Frame, side: str, epoch: int, mode: str) -> str:
    """What stands above a grid."""
    more = {"delta": ": cycles, blue fewer and orange more", "blink": ": outlines where ops stood before"}.get(mode, "")
    return f"{frame.meta[side]}: epoch {epoch}{more}"


def _grid(frame: Frame, side: str, epoch: int, pair: Pair, mode: str) -> tuple[float, float, list[str]]:
    """Width, height and parts. Ops that differ have the colour and glyph of their first class, or with "delta" the
    colour of the change of cycles; but for "split", outlines show where they stood before."""
    grid, c = frame.meta[f"grid_{side}"], frame.columns
    cells = "".join(
        f"M{LEFT + col * CELL_W + 1} {TOP + row * CELL_H + 1}h{CELL_W - 2}v{CELL_H - 2}h{2 - CELL_W}z"
        for row in range(grid["rows"])
        for col in range(grid["cols"])
    )
    parts = [f"<path d='{cells}' fill='#f0f3f7' stroke='#dde3eb'/>", "<g font-size='9.5' fill='#566376'>"]
    parts += [f"<text x='{LEFT + (k + 0.4) * CELL_W}' y='{TOP - 5}'>{k}</text>" for k in range(grid["cols"])]
    parts += [f"<text x='{LEFT - 14}' y='{TOP + (k + 0.6) * CELL_H}'>{k}</text>" for k in range(grid["rows"])]
    parts.append("</g>")
    for op in np.flatnonzero((c[f"op_{side}_epoch"] == epoch) & (c[f"op_{side}_rows"] > 0)).tolist():
        parts.append(_tile(frame, side, op, mode == "delta"))
    if mode != "split" and side == "b" and pair[0] >= 0:
        parts += _before(frame, pair[0])
    return LEFT + grid["cols"] * CELL_W + 4, TOP + grid["rows"] * CELL_H + 4, parts


def _box(frame: Frame, side: str, op: int) -> tuple[float, float, float, float]:
    row, col, rows, cols = (int(frame.columns[f"op_{side}_{k}"][op]) for k in ("row", "col", "rows", "cols"))
    return LEFT + col * CELL_W + 1.5, TOP + row * CELL_H + 1.5, cols * CELL_W - 3, rows * CELL_H - 3


def _tile(frame: Frame, side: str, op: int, delta: bool) -> str:
    kinds = classes_of(frame, op)
    share = _share(frame, op) if delta else None
    paint = delta_paint(share) if delta else Paint(*PAINT.get(kinds[0] if kinds else "", SAME), "#17202e")
    name = frame.strings[int(frame.columns["op_name"][op])]
    x, y, w, h = _box(frame, side, op)
    glyphs = "".join(GLYPH[k] for k in kinds)
    label = " ".join([glyphs, fitting(short_name(name), int((w - 6) / 5.6) - 2 * len(kinds))]).strip()
    change = f"{100 * share:+.1f} %" if share else ""
    words = [label, change] if change else [label]
    text = "".join(
        f"<text x='{x + w / 2}' y='{y + h / 2 + 4 + 11 * (k - (len(words) - 1) / 2)}' font-size='9.5' "
        f"fill='{paint.text}' text-anchor='middle'>{escape(word)}</text>"
        for k, word in enumerate(words)
    )
    changes = ", ".join(kinds) or "as before"
    return (
        f"<g><title>{escape(name)}: {changes}{f', cycles {change}' if change else ''}</title><rect x='{x}' y='{y}' "
        f"width='{w}' height='{h}' rx='4' fill='{paint.fill}' stroke='{paint.edge}'/>{text}</g>"
    )


def _before(frame: Frame, epoch: int) -> list[str]:
    """Outlines of the ops of an epoch of the first side that moved, were resized, or are gone."""
    c = frame.columns
    parts = []
    for op in np.flatnonzero((c["op_a_epoch"] == epoch) & (c["op_a_rows"] > 0)).tolist():
        absent = int(c["op_b_epoch"][op]) < 0
        if absent or {"moved", "resized"} & set(classes_of(frame, op)):
            x, y, w, h = _box(frame, "a", op)
            ink = PAINT["removed"][1] if absent else "#566376"
            name = escape(frame.strings[int(c["op_name"][op])])
            parts.append(
                f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='4' fill='none' stroke='{ink}' stroke-width='1.6' "
                f"stroke-dasharray='5 3'><title>{name} before</title></rect>"
            )
    return parts


def _share(frame: Frame, op: int) -> float | None:
    """Change of the cycles of an op as a share of those before; None where a side has none."""
    before, after = (float(frame.columns[f"op_{side}_time"][op]) for side in "ab")
    return (after - before) / before if before > 0 and after >= 0 else None


ROWS = 60
PAIRS = 4


def diff_fragment(frame: Frame, mode: str = MODES[0]) -> str:
    """A comparison frame as an HTML fragment. mode: one of `MODES`, how the grids are drawn."""
    meta = frame.meta
    names = " → ".join(escape(str(meta[side])) for side in "ab")
    parts = [f"<p><b>{names}</b>: {escape(meta['verdict'])}</p>", _totals(frame)]
    parts += [f"<p>{escape(note)}</p>" for note in meta["notes"]]
    budget = LIMIT - sum(map(len, parts))
    for html in _pictures(frame, mode):
        budget -= len(html)
        if budget < 60_000:  # the table comes after
            break
        parts.append(html)
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
        "<div style='display:flex;flex-wrap:wrap;gap:12px'>"
        + "".join(
            f"<figure style='margin:0'><figcaption>{escape(caption(frame, side, epoch, mode))}</figcaption>"
            f"{side_svg(frame, side, pair, mode)}</figure>"
            for side, epoch in sides_of(pair, mode)
        )
        + "</div>"
        for count, pair in pairs_of(frame)[:PAIRS]
        if count
    ]


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
        frame.strings[int(c["op_name"][op])],
        ", ".join(classes_of(frame, op)),
        _place(frame, "a", op),
        _place(frame, "b", op),
        *(f"{v:,.0f}" if v >= 0 else "–" for v in cycles),
        share,
    )
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
