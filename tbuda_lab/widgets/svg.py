"""Static twins as SVG: the graph of a stage and the grid of an epoch, as the page draws them, without any script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame, place
from tbuda_lab.core.frames.coordinates import (
    HEADER,
    ITEM_ENTRY,
    ITEM_EXIT,
    ITEM_GROUP,
    ITEM_LANE,
    ITEM_NODE,
    LABEL_CHARS,
    Layout,
)
from tbuda_lab.widgets.paint import family_paint, load_paint

CELL_W, CELL_H, STRIP, RULER = 74, 46, 18, 24
FONT = "font-family='system-ui,sans-serif'"


def graph_svg(frame: Frame, opened: Iterable[int] | None = None) -> str:
    """A graph frame as SVG, with the given groups open (default: those a first view opens)."""
    layout = place(frame, set(frame.meta["open"] if opened is None else opened))
    parts = [*_groups(frame, layout), _edges(frame, layout), *_nodes(frame, layout)]
    return _svg(layout.size[0], layout.size[1], parts, f"Graph of stage {frame.meta['stage']}")


def epoch_svg(frame: Frame, epoch: int) -> str:
    """The core grid of one epoch of a placement frame as SVG."""
    meta = frame.meta
    top, strips, height = _rows(meta["physical"], meta["harvested"])
    width = meta["cols"] * CELL_W
    parts = [f"<g transform='translate({RULER} {RULER - 6})' {FONT}>"]
    cells = "".join(
        f"M{c * CELL_W + 1.5} {top[r] + 1.5}h{CELL_W - 3}v{CELL_H - 3}h{3 - CELL_W}z"
        for r in range(meta["rows"]) for c in range(meta["cols"])
    )
    parts.append(f"<path d='{cells}' fill='#f0f3f7' stroke='#dde3eb'/>")
    parts += [
        f"<text x='{(c + 0.5) * CELL_W}' y='-6' font-size='10' fill='#566376' text-anchor='middle'>{c}</text>"
        for c in range(meta["cols"])
    ]
    parts += [
        f"<text x='-7' y='{top[r] + CELL_H / 2 + 4}' font-size='10' fill='#566376' text-anchor='end'>{r}</text>"
        for r in range(meta["rows"])
    ]
    for op in np.flatnonzero(frame.columns["op_epoch"] == epoch).tolist():
        if frame.columns["op_rows"][op]:
            parts.append(_tile(frame, op, top))
    parts += _shared(frame, epoch, top)
    for y, row in strips:
        parts.append(f"<rect x='0' y='{y + 1}' width='{width}' height='{STRIP - 2}' fill='url(#h)'/>")
        parts.append(
            f"<text x='{width / 2}' y='{y + STRIP / 2 + 3}' font-size='9' fill='#566376' text-anchor='middle'>"
            f"row {row} harvested</text>"
        )
    parts.append("</g>")
    return _svg(width + RULER + 6, height + RULER, parts, f"Core grid of epoch {epoch}")


def _shared(frame: Frame, epoch: int, top: dict[int, int]) -> list[str]:
    """Marks over the cores that several ops of an epoch claim."""
    c = frame.columns
    count = np.zeros((frame.meta["rows"], frame.meta["cols"]), int)
    for op in np.flatnonzero(c["op_epoch"] == epoch).tolist():
        row, col, high, wide = (int(c[f"op_{k}"][op]) for k in ("row", "col", "rows", "cols"))
        count[row : row + high, col : col + wide] += 1
    return [
        f"<g><rect x='{col * CELL_W + 1.5}' y='{top[row] + 1.5}' width='{CELL_W - 3}' height='{CELL_H - 3}' rx='4' "
        f"fill='#fff' fill-opacity='.82' stroke='#b3261e' stroke-width='2'/><text x='{(col + 0.5) * CELL_W}' "
        f"y='{top[row] + CELL_H / 2 + 4}' font-size='11' font-weight='700' fill='#b3261e' text-anchor='middle'>"
        f"{count[row, col]} ops</text></g>"
        for row, col in np.argwhere(count > 1).tolist()
    ]


def _svg(width: float, height: float, parts: list[str], title: str) -> str:
    hatch = (
        "<defs><pattern id='h' width='7' height='7' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
        "<rect width='7' height='7' fill='#eceff3'/><path d='M0 0V7' stroke='#c9ced7' stroke-width='3'/></pattern>"
        "</defs>"
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
        f"style='max-width:100%;height:auto;background:#fff' role='img' aria-label='{escape(title, True)}'>"
        f"{hatch}{''.join(parts)}</svg>"
    )


def _rows(physical: list[int], harvested: list[int]) -> tuple[dict[int, int], list[tuple[int, int]], int]:
    """Top of every logical row, (top, physical row) of the harvested strips, height of all."""
    logical = {p: i for i, p in enumerate(physical)}
    top: dict[int, int] = {}
    strips: list[tuple[int, int]] = []
    y = 0
    for row in sorted([*physical, *harvested]):
        if row in logical:
            top[logical[row]] = y
            y += CELL_H
        else:
            strips.append((y, row))
            y += STRIP
    return top, strips, y


def short_name(name: str) -> str:
    """The last two parts of a dotted name; a decomposed op shows its original (or its module) and its step."""
    if ".dc." in name:
        stem, step = name.split(".dc.", 1)[0], name.rsplit(".dc.", 1)[1]
        words = [part for part in step.split(".") if not part.isdigit()]
        owners = stem.split(".")
        said = bool(words) and words[0].startswith(owners[-1]) and len(owners) > 1
        return ".".join([owners[-2] if said else owners[-1], *words])
    return ".".join(name.split(".")[-2:])


def fitting(name: str, room: int) -> str:
    """The fullest form of a name that fits: two parts, or the last one alone, cut if need be."""
    full = short_name(name)
    return full if len(full) <= room else elide(full.partition(".")[2] or full, room)


def elide(text: str, room: int) -> str:
    """Cut in the middle, so that the head and the end of a name stay readable."""
    if len(text) <= room:
        return text
    if room < 2:
        return ""
    tail = -(-(room - 1) * 6 // 10)
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def _tile(frame: Frame, op: int, top: dict[int, int]) -> str:
    c = frame.columns
    row, col, high, wide = (int(c[f"op_{k}"][op]) for k in ("row", "col", "rows", "cols"))
    x, y = col * CELL_W + 1.5, top[row] + 1.5
    w, h = wide * CELL_W - 3, top[row + high - 1] + CELL_H - top[row] - 3
    cycles, slowest = float(c["op_cycles"][op]), float(c["epoch_cycles"][int(c["op_epoch"][op])])
    load = cycles / slowest if slowest else 0.0
    paint = load_paint(load)
    name = frame.strings[int(c["op_name"][op])]
    mark = "▲ " if load >= 1 else ""
    return (
        f"<g><title>{escape(name)}: {cycles:.0f} cycles, {100 * load:.0f} % of the epoch</title>"
        f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='4' fill='{paint.fill}' stroke='{paint.edge}'/>"
        f"<text x='{x + w / 2}' y='{y + h / 2 - 1}' font-size='10.5' font-weight='600' fill='{paint.text}' "
        f"text-anchor='middle'>{escape(fitting(name, int((w - 6) / 6.6)))}</text>"
        f"<text x='{x + w / 2}' y='{y + h / 2 + 12}' font-size='10' fill='{paint.text}' text-anchor='middle'>"
        f"{mark}{short(cycles)}</text></g>"
    )


def short(value: float) -> str:
    """12345678 -> "12.3M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.0f}{unit}" if value / size >= 100 else f"{value / size:.1f}{unit}"
    return f"{value:.0f}"


def _groups(frame: Frame, layout: Layout) -> list[str]:
    labels, paths = frame.text("group_label"), frame.text("group_path")
    leaves = frame.columns["group_leaves"]
    parents = frame.columns["group_parent"].tolist()
    refs = frame.columns["item_ref"].tolist()
    shown = {int(g) for g in frame.columns["item_group"][layout.visible]}
    items = [i for i, k in enumerate(frame.columns["item_kind"].tolist()) if k == ITEM_GROUP and layout.visible[i]]

    def depth(group: int) -> int:
        return 0 if parents[group] < 0 else 1 + depth(parents[group])

    parts = [f"<g {FONT}>"]
    for i in sorted(items, key=lambda i: depth(refs[i])):
        x, y, w, h = layout.boxes[i]
        g = refs[i]
        title = f"<title>{escape(paths[g])}</title>"
        if g in shown:
            parts.append(
                f"<g>{title}<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' rx='8' fill='#5a7396' "
                f"fill-opacity='.08' stroke='#c3cddb'/><text x='{x + 9:.1f}' y='{y + HEADER / 2 + 5:.1f}' "
                f"font-size='10.5' font-weight='600' fill='#566376'>{escape(labels[g])}</text></g>"
            )
        else:
            parts.append(
                f"<g>{title}<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' rx='7' fill='#edf1f7' "
                f"stroke='#9aa8ba'/><text x='{x + w / 2:.1f}' y='{y + h / 2 - 2:.1f}' font-size='11' font-weight='600' "
                f"fill='#17202e' text-anchor='middle'>{escape(elide(labels[g], LABEL_CHARS))}</text><text "
                f"x='{x + w / 2:.1f}' y='{y + h / 2 + 12:.1f}' font-size='9.5' fill='#566376' text-anchor='middle'>"
                f"{int(leaves[g])} nodes</text></g>"
            )
    return [*parts, "</g>"]


def _edges(frame: Frame, layout: Layout) -> str:
    c = frame.columns
    kind, ref, home = c["item_kind"].tolist(), c["item_ref"].tolist(), c["item_group"].tolist()
    shown = {int(g) for g in c["item_group"][layout.visible]}
    port = {(kind[i], home[i], ref[i]): i for i in range(len(kind)) if kind[i] in (ITEM_ENTRY, ITEM_EXIT)}
    box = layout.boxes
    d: list[str] = []
    for g, s, t, net in zip(*(c[f"seg_{k}"].tolist() for k in ("group", "source", "target", "net")), strict=True):
        if g not in shown or not layout.visible[s]:
            continue
        tail = port.get((ITEM_EXIT, ref[s], net), s) if kind[s] == ITEM_GROUP and ref[s] in shown else s
        head = port.get((ITEM_ENTRY, ref[t], net), t) if kind[t] == ITEM_GROUP and ref[t] in shown else t
        x0, y0 = box[tail][0] + box[tail][2] / 2, box[tail][1] + (0 if kind[tail] == ITEM_ENTRY else box[tail][3])
        x1, y1 = box[head][0] + box[head][2] / 2, box[t][1]
        bend = max(8.0, abs(y1 - y0) / 2)
        d.append(f"M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}")
    for i, k in enumerate(kind):
        if k == ITEM_LANE and layout.visible[i] and box[i][3]:
            d.append(f"M{box[i][0] + box[i][2] / 2:.1f} {box[i][1]:.1f}v{box[i][3]:.1f}")
    return f"<path d='{''.join(d)}' fill='none' stroke='#9aa8ba'/>"


def _nodes(frame: Frame, layout: Layout) -> list[str]:
    names, labels = frame.text("node_name"), frame.text("node_label")
    types, shapes = frame.text("node_type"), frame.text("node_shape")
    op_kind = list(frame.meta["kinds"]).index("op")
    parts = [f"<g {FONT} text-anchor='middle'>"]
    kinds, refs = frame.columns["item_kind"].tolist(), frame.columns["item_ref"].tolist()
    for i in range(len(kinds)):
        if kinds[i] != ITEM_NODE or not layout.visible[i]:
            continue
        n = refs[i]
        x, y, w, h = layout.boxes[i]
        is_op = int(frame.columns["node_kind"][n]) == op_kind
        paint = family_paint(types[n] if is_op else "io")
        parts.append(
            f"<g><title>{escape(names[n])}</title><rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' "
            f"rx='{5 if is_op else h / 2:.0f}' fill='{paint.fill}' stroke='{paint.edge}'/>"
            f"<text x='{x + w / 2:.1f}' y='{y + h / 2 - 2:.1f}' font-size='11' font-weight='600' fill='{paint.text}'>"
            f"{escape(elide(labels[n], LABEL_CHARS))}</text>"
            f"<text x='{x + w / 2:.1f}' y='{y + h / 2 + 11:.1f}' font-size='9' fill='{paint.text}'>"
            f"{escape(elide(shapes[n], int((w - 10) / 4.9)))}</text></g>"
        )
    return [*parts, "</g>"]
