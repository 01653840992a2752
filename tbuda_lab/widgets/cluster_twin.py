"""The static twin of the cluster view: cards with links, a table of what crosses."""

from __future__ import annotations

from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.memory_twin import size_text
from tbuda_lab.widgets.paint import load_paint
from tbuda_lab.widgets.svg import short

CARD_W, CARD_H, GAP_X, GAP_Y = 132, 66, 96, 34


def cluster_twin(frame: Frame, ops: Frame) -> str:
    """Chips of a cluster frame, with the epochs of the placement frame, as an HTML fragment."""
    c = frame.columns
    spot = {int(k): (int(x), int(y)) for k, x, y in zip(c["chip_id"], c["chip_x"], c["chip_y"], strict=True)}

    def middle(chip: int) -> tuple[float, float]:
        x, y = spot[chip]
        return x * (CARD_W + GAP_X) + CARD_W / 2 + 4, y * (CARD_H + GAP_Y) + CARD_H / 2 + 4

    parts = []
    for a, b, forth, back, load in zip(
        *(c[f"link_{k}"].tolist() for k in ("a", "b", "forth", "back", "load")), strict=True
    ):
        (x0, y0), (x1, y1) = middle(a), middle(b)
        busy = forth + back > 0
        colour, width = ("#c2570c", 3) if busy else ("#b9c3d0", 1.5)
        parts.append(f"<path d='M{x0} {y0}L{x1} {y1}' stroke='{colour}' stroke-width='{width}'/>")
        if busy:
            parts.append(
                f"<text x='{(x0 + x1) / 2}' y='{(y0 + y1) / 2 - 4}' text-anchor='middle' font-size='9.5' "
                f"fill='#8a3d08'>{size_text(forth + back)}, {100 * load:.0f} %</text>"
            )
    pace = max(1.0, float(frame.meta["pace"]))
    homes = ops.columns["epoch_chip"].tolist()
    for k, chip in enumerate(c["chip_id"].tolist()):
        x, y = (v - s / 2 for v, s in zip(middle(chip), (CARD_W, CARD_H), strict=True))
        cycles = float(c["chip_cycles"][k])
        paint = load_paint(cycles / pace)
        epochs = [e for e, home in enumerate(homes) if home == chip]
        listed = ", ".join(map(str, epochs[:8])) + (" …" if len(epochs) > 8 else "")
        lines = (
            f"chip {chip}{' · host' if c['chip_mmio'][k] else ''}", f"epochs {listed}" if epochs else "idle",
            f"{short(cycles)} cycles / input" if epochs else "",
        )
        texts = "".join(
            f"<text x='{x + 8}' y='{y + 17 + 16 * n}' font-size='{11 if n else 12}' font-weight='{400 if n else 600}' "
            f"fill='{paint.text}'>{escape(line)}</text>"
            for n, line in enumerate(lines)
        )
        parts.append(
            f"<g><rect x='{x}' y='{y}' width='{CARD_W}' height='{CARD_H}' rx='7' fill='{paint.fill}' "
            f"stroke='{paint.edge}'/>{texts}</g>"
        )
    width = (1 + int(np.max(c["chip_x"]))) * (CARD_W + GAP_X) - GAP_X + 8
    height = (1 + int(np.max(c["chip_y"]))) * (CARD_H + GAP_Y) - GAP_Y + 8
    picture = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' role='img' "
        f"font-family='system-ui,sans-serif' style='max-width:100%;height:auto;background:#fff' "
        f"aria-label='Chips and links'>{''.join(parts)}</svg>"
    )
    return picture + _moves(frame)


def _moves(frame: Frame) -> str:
    c = frame.columns
    order = np.argsort(-c["move_bytes"], kind="stable")[:40].tolist()
    if not order:
        return "<p>nothing crosses between chips</p>"
    body = "".join(
        f"<tr><td>{c['move_from'][k]}</td><td>{c['move_to'][k]}</td><td>{size_text(float(c['move_bytes'][k]))}</td></tr>"
        for k in order
    )
    head = "<th>from chip</th><th>to</th><th>per input</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
