"""How full the L1 of every core of an epoch is, as SVG, as `labextension/src/views/memory/l1.ts` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.pictures.graph import FONT, check_epoch, elide, picture, short_name
from tbuda_lab.widgets.pictures.grid import rows_of
from tbuda_lab.widgets.pictures.palette import load_paint

CELL_W, CELL_H, STRIP, LEFT, TOP = 52, 34, 10, 20, 18


def heat_svg(ops: Frame, memory: Frame, epoch: int, core: Sequence[int] = ()) -> str:
    """The core grid of an epoch, ops coloured by the share of L1 that their buffers take of what buffers may use.

    core: (row, column) of a core to mark. Raises `IndexError` for an epoch that there is not.
    """
    check_epoch(ops, epoch)
    c, rows, cols = ops.columns, int(ops.meta["rows"]), int(ops.meta["cols"])
    tops, strips, height = rows_of(ops, CELL_H, STRIP, int(c["epoch_chip"][epoch]))
    room = memory.meta["l1_size"] - memory.meta["l1_reserved"]
    used = dict(zip(memory.text("op_name"), memory.columns["op_used"].tolist(), strict=True))
    cells = "".join(
        f"M{x * CELL_W + 1} {tops[y] + 1}h{CELL_W - 2}v{CELL_H - 2}h{2 - CELL_W}z"
        for y in range(rows) for x in range(cols)
    )  # fmt: skip
    parts = [
        f"<g transform='translate({LEFT} {TOP})' {FONT}><path d='{cells}' fill='#f0f3f7' stroke='#dde3eb'/>",
        *(f"<rect y='{y + 1}' width='{cols * CELL_W}' height='{STRIP - 2}' fill='url(#h)'/>" for y, _ in strips),
    ]
    names = ops.text("op_name")
    for op in np.flatnonzero(c["op_epoch"] == epoch).tolist():
        y, x, high, wide = (int(c[f"op_{k}"][op]) for k in ("row", "col", "rows", "cols"))
        if not high or names[op] not in used:
            continue
        share = used[names[op]] / room
        paint = load_paint(share)
        left, top = x * CELL_W + 1.5, tops[y] + 1.5
        w, h = wide * CELL_W - 3, tops[y + high - 1] + CELL_H - tops[y] - 3
        label = elide(short_name(names[op]), int((w - 6) / 5.6)) if h > 40 else ""
        words = [label, f"{100 * share:.0f} %"] if label else [f"{100 * share:.0f} %"]
        text = "".join(
            f"<text x='{left + w / 2}' y='{top + h / 2 + 4 + 12 * (k - (len(words) - 1) / 2)}' font-size='9.5' "
            f"fill='{paint.text}' text-anchor='middle'>{escape(word)}</text>"
            for k, word in enumerate(words)
        )
        parts.append(
            f"<g><title>{escape(names[op])}: {100 * share:.0f} % of what buffers may use</title><rect x='{left}' "
            f"y='{top}' width='{w}' height='{h}' rx='4' fill='{paint.fill}' stroke='{paint.edge}'/>{text}</g>"
        )
    if core and core[0] in tops and core[1] < cols:
        parts.append(
            f"<rect x='{core[1] * CELL_W + 3}' y='{tops[core[0]] + 3}' width='{CELL_W - 6}' "
            f"height='{CELL_H - 6}' fill='none' stroke='#1f63d6' stroke-width='2' stroke-dasharray='5 3'/>"
        )
    return picture(LEFT + cols * CELL_W + 4, TOP + height + 4, [*parts, "</g>"], f"L1 of epoch {epoch}")
