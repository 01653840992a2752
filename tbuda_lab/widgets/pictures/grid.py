"""Static twins of the core grid as SVG: an epoch on one chip, with the load of its links; all chips of a time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from tbuda_lab.core.frames import Frame, epoch_time, op_load
from tbuda_lab.widgets.pictures.graph import FONT, check_epoch, fitting, picture, short
from tbuda_lab.widgets.pictures.noc_links import CELL_H, CELL_W, LEGEND, STRIP, link_legend, link_lines
from tbuda_lab.widgets.pictures.palette import load_paint

RULER = 24
SMALL_W, SMALL_H, SMALL_STRIP = 22, 14, 5  # of a core where several chips are drawn
GAP, HEAD = 14, 18
CORES = "fill='#f0f3f7' stroke='#dde3eb' stroke-width='.6'"


def epoch_svg(frame: Frame, epoch: int, links: Frame | None = None, threshold: float = 0.0) -> str:
    """The core grid of one epoch of a placement frame as SVG.

    links: the frame of its links, drawn where they carry `threshold` bytes per cycle or more. Raises `IndexError` for
    an epoch that there is not.
    """
    meta = frame.meta
    check_epoch(frame, epoch)
    top, strips, height = rows_of(frame, CELL_H, STRIP, int(frame.columns["epoch_chip"][epoch]))
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

    def tiles(words: bool = False) -> list[str]:
        ops = np.flatnonzero((frame.columns["op_epoch"] == epoch) & (frame.columns["op_rows"] > 0))
        return [_tile(frame, op, top, words) for op in ops.tolist()]

    parts += tiles()
    parts += _shared(frame, epoch, top)
    for y, row in strips:
        parts.append(f"<rect x='0' y='{y + 1}' width='{width}' height='{STRIP - 2}' fill='url(#h)'/>")
        parts.append(
            f"<text x='{width / 2}' y='{y + STRIP / 2 + 3}' font-size='9' fill='#566376' text-anchor='middle'>"
            f"row {row} harvested</text>"
        )
    legend = 0
    if links is not None:
        parts += link_lines(links, top, {row: y for y, row in strips}, threshold)
        parts += tiles(words=True)  # what is written lies over the links
        parts += link_legend(links, height)
        legend = LEGEND
    parts.append("</g>")
    return picture(width + RULER + 6, height + RULER + legend, parts, f"Core grid of epoch {epoch}")


def chips_svg(frame: Frame, epoch: int, per_row: int) -> str:
    """All chips of the time of an epoch beside each other, `per_row` in a row, as SVG; those that rest then too.

    Raises `IndexError` for an epoch that there is not.
    """
    c, meta = frame.columns, frame.meta
    check_epoch(frame, epoch)
    temporal = int(c["epoch_temporal"][epoch])
    now = np.flatnonzero(c["epoch_temporal"] == temporal)
    on = {int(c["epoch_chip"][e]): int(e) for e in now}
    times = epoch_time(frame)
    slowest = float(times[now].max())
    width = meta["cols"] * SMALL_W
    lies = {chip: rows_of(frame, SMALL_H, SMALL_STRIP, chip) for chip in meta["chips"]}
    high = max(height for _, _, height in lies.values())
    drawn: set[str] = set()
    parts = [f"<g {FONT}>"]
    for place, chip in enumerate(meta["chips"]):
        top, strips, _ = lies[chip]
        cores = f"cores{meta['rows']}x{meta['cols']}{''.join(f'-{y}' for y, _ in strips)}"
        if cores not in drawn:
            drawn.add(cores)
            parts.append(f"<defs><path id='{cores}' d='{_cells(meta, top)}' {CORES}/></defs>")
        x, y = place % per_row * (width + GAP) + GAP / 2, place // per_row * (high + HEAD + GAP) + HEAD
        here = on.get(chip)
        cycles = "rests" if here is None else f"epoch {here}, {short(float(times[here]))} cycles"
        mark = "▲ " if here is not None and times[here] >= slowest else ""
        parts.append(
            f"<g transform='translate({x} {y})'><text y='-5' font-size='10.5' fill='#17202e'>"
            f"<tspan font-weight='600'>chip {chip}</tspan> {mark}{cycles}</text><use href='#{cores}'/>"
        )
        if here is not None:
            parts += [_small(frame, op, top) for op in np.flatnonzero(c["op_epoch"] == here).tolist()]
        parts += [
            f"<rect y='{y + .5}' width='{width}' height='{SMALL_STRIP - 1}' fill='url(#h)'/>" for y, _ in strips
        ]
        parts.append("</g>")
    lines = -(-len(meta["chips"]) // per_row)
    size = min(per_row, len(meta["chips"])) * (width + GAP), lines * (high + HEAD + GAP)
    return picture(*size, [*parts, "</g>"], f"Chips of temporal epoch {temporal}")


def _cells(meta: Mapping[str, Any], top: dict[int, int]) -> str:
    return "".join(
        f"M{k * SMALL_W + 0.5} {top[r] + 0.5}h{SMALL_W - 1}v{SMALL_H - 1}h{1 - SMALL_W}z"
        for r in range(meta["rows"]) for k in range(meta["cols"])
    )


def _small(frame: Frame, op: int, top: dict[int, int]) -> str:
    """A tile without words, or with its name where that fits."""
    c = frame.columns
    row, col, high, wide = (int(c[f"op_{k}"][op]) for k in ("row", "col", "rows", "cols"))
    if not high:
        return ""
    w, h = wide * SMALL_W - 1, top[row + high - 1] + SMALL_H - top[row] - 1
    cycles, load, _ = (column[op] for column in op_load(frame))
    paint = load_paint(float(load))
    name = frame.strings[int(c["op_name"][op])]
    x, y = col * SMALL_W + 0.5, top[row] + 0.5
    label = fitting(name, int((w - 4) / 4.6))
    words = (
        f"<text x='{x + w / 2}' y='{y + h / 2 + 3}' font-size='7.5' fill='{paint.text}' text-anchor='middle'>"
        f"{escape(label)}</text>" if len(label) > 3 else ""
    )
    return (
        f"<g><title>{escape(name)}: {cycles:.0f}</title><rect x='{x}' y='{y}' width='{w}' height='{h}' rx='1.5' "
        f"fill='{paint.fill}' stroke='{paint.edge}' stroke-width='.6'/>{words}</g>"
    )


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


def rows_of(frame: Frame, cell: int, strip: int, chip: int) -> tuple[dict[int, int], list[tuple[int, int]], int]:
    """Of a chip of a placement frame, where rows are `cell` high and harvested ones `strip`: top of every logical row,
    (top, physical row) of the harvested strips, height of all."""
    physical, harvested = frame.meta["physical"], frame.meta["harvested"]
    if "chip_rows" in frame.meta:
        physical, harvested = frame.meta["chip_rows"][frame.meta["chips"].index(chip)]
    logical = {p: i for i, p in enumerate(physical)}
    top: dict[int, int] = {}
    strips: list[tuple[int, int]] = []
    y = 0
    for row in sorted([*physical, *harvested]):
        if row in logical:
            top[logical[row]] = y
            y += cell
        else:
            strips.append((y, row))
            y += strip
    return top, strips, y


def _clear(top: dict[int, int], row: int, high: int) -> float:
    """The middle of the tallest run of the rows of an op that no harvested strip parts."""
    last, start, best = row + high - 1, row, (0, 0.0)
    for r in range(row, last + 1):
        if r == last or top[r + 1] - top[r] > CELL_H:
            best = max(best, (r + 1 - start, (top[start] + top[r] + CELL_H) / 2), key=lambda run: run[0])
            start = r + 1
    return best[1]


def _tile(frame: Frame, op: int, top: dict[int, int], words: bool = False) -> str:
    """An op; `words`: only what is written on it, with a seam of its colour."""
    c = frame.columns
    row, col, high, wide = (int(c[f"op_{k}"][op]) for k in ("row", "col", "rows", "cols"))
    x, y = col * CELL_W + 1.5, top[row] + 1.5
    w, h = wide * CELL_W - 3, top[row + high - 1] + CELL_H - top[row] - 3
    cycles, load, limits = (column[op] for column in op_load(frame))
    paint = load_paint(float(load))
    name = frame.strings[int(c["op_name"][op])]
    mark = "▲ " if limits else ""
    middle = _clear(top, row, high)
    head = f"<g paint-order='stroke' stroke='{paint.fill}' stroke-width='3.5'>" if words else (
        f"<g><title>{escape(name)}: {cycles:.0f} cycles, {100 * load:.0f} % of the slowest op</title>"
        f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='4' fill='{paint.fill}' stroke='{paint.edge}'/>"
    )
    return (
        f"{head}"
        f"<text x='{x + w / 2}' y='{middle - 1}' font-size='10.5' font-weight='600' fill='{paint.text}' "
        f"text-anchor='middle'>{escape(fitting(name, int((w - 6) / 6.6)))}</text>"
        f"<text x='{x + w / 2}' y='{middle + 12}' font-size='10' fill='{paint.text}' text-anchor='middle'>"
        f"{mark}{short(cycles)}</text></g>"
    )
