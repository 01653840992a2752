"""The core grid as SVG: an epoch on one chip with the load of its links, drawn as in
`labextension/src/views/grid/links.ts`, and all chips that work at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from tbuda_lab.core.frames import Frame, epoch_time, op_load
from tbuda_lab.widgets.pictures.svg import FONT, check_epoch, distinct_names, fitting, load_paint, picture, short

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
        for r in range(meta["rows"])
        for c in range(meta["cols"])
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

    ops = np.flatnonzero((frame.columns["op_epoch"] == epoch) & (frame.columns["op_rows"] > 0))
    labels = _labels(frame, ops)

    def tiles(words: bool = False) -> list[str]:
        return [_tile(frame, op, top, label, words) for op, label in zip(ops.tolist(), labels, strict=True)]

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
        number = on.get(chip)
        cycles = "rests" if number is None else f"epoch {number}, {short(float(times[number]))} cycles"
        parts.append(
            f"<g transform='translate({x} {y})'><text y='-5' font-size='10.5' fill='#17202e'>"
            f"<tspan font-weight='600'>chip {chip}</tspan> {cycles}</text><use href='#{cores}'/>"
        )
        if number is not None:
            ops = np.flatnonzero(c["op_epoch"] == number)
            labels = _labels(frame, ops)
            parts += [_small(frame, op, top, label) for op, label in zip(ops.tolist(), labels, strict=True)]
        parts += [f"<rect y='{y + 0.5}' width='{width}' height='{SMALL_STRIP - 1}' fill='url(#h)'/>" for y, _ in strips]
        parts.append("</g>")
    lines = -(-len(meta["chips"]) // per_row)
    size = min(per_row, len(meta["chips"])) * (width + GAP), lines * (high + HEAD + GAP)
    return picture(*size, [*parts, "</g>"], f"Chips of temporal epoch {temporal}")


def _cells(meta: Mapping[str, Any], top: dict[int, int]) -> str:
    return "".join(
        f"M{k * SMALL_W + 0.5} {top[r] + 0.5}h{SMALL_W - 1}v{SMALL_H - 1}h{1 - SMALL_W}z"
        for r in range(meta["rows"])
        for k in range(meta["cols"])
    )


def _labels(frame: Frame, ops: np.ndarray) -> list[tuple[str, bool]]:
    """What `fitting` takes to write the names of the ops of an epoch: in short, and whether the last part tells."""
    short_ = distinct_names([frame.strings[i] for i in frame.columns["op_name"][ops].tolist()])
    last = [name.rpartition(".")[2] for name in short_]
    return [(name, last.count(end) == 1) for name, end in zip(short_, last, strict=True)]


def _small(frame: Frame, op: int, top: dict[int, int], said: tuple[str, bool]) -> str:
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
    label = fitting(said[0], int((w - 4) / 4.6), said[1])
    words = (
        f"<text x='{x + w / 2}' y='{y + h / 2 + 3}' font-size='7.5' fill='{paint.text}' text-anchor='middle'>"
        f"{escape(label)}</text>"
        if len(label) > 3
        else ""
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


def _tile(frame: Frame, op: int, top: dict[int, int], said: tuple[str, bool], words: bool = False) -> str:
    """An op with its name as `_labels` has it; `words`: only what is written on it, with a seam of its colour."""
    c = frame.columns
    row, col, high, wide = (int(c[f"op_{k}"][op]) for k in ("row", "col", "rows", "cols"))
    x, y = col * CELL_W + 1.5, top[row] + 1.5
    w, h = wide * CELL_W - 3, top[row + high - 1] + CELL_H - top[row] - 3
    cycles, load, limits = (column[op] for column in op_load(frame))
    paint = load_paint(float(load))
    name = frame.strings[int(c["op_name"][op])]
    mark = "▲ " if limits else ""
    middle = _clear(top, row, high)
    head = (
        f"<g paint-order='stroke' stroke='{paint.fill}' stroke-width='3.5'>"
        if words
        else (
            f"<g><title>{escape(name)}: {cycles:.0f} cycles, {100 * load:.0f} % of the slowest op</title>"
            f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='4' fill='{paint.fill}' stroke='{paint.edge}'/>"
        )
    )
    return (
        f"{head}"
        f"<text x='{x + w / 2}' y='{middle - 1}' font-size='10.5' font-weight='600' fill='{paint.text}' "
        f"text-anchor='middle'>{escape(fitting(said[0], int((w - 6) / 6.6), said[1]))}</text>"
        f"<text x='{x + w / 2}' y='{middle + 12}' font-size='10' fill='{paint.text}' text-anchor='middle'>"
        f"{mark}{short(cycles)}</text></g>"
    )


CELL_W, CELL_H, STRIP = 74, 46, 18
LEGEND = 34
LANE = 0.42
"""How far beside the middle of a core its links run, in parts of it: NoC 0 below and right, NoC 1 above and left."""


def link_lines(links: Frame, top: dict[int, int], strips: dict[int, int], threshold: float) -> list[str]:
    """A line per link that carries `threshold` bytes per cycle or more; the busiest last, over the others.

    top: of every logical row; strips: of every harvested row, by its physical number.
    """
    c, meta = links.columns, links.meta
    middles = [k * CELL_W + CELL_W / 2 for k in range(len(meta["columns"]))]
    xs = _places(meta["columns"], meta["size"][0], middles, CELL_W)
    rows = {row: top[k] + CELL_H / 2 for k, row in enumerate(meta["rows"])}
    rows |= {row: y + STRIP / 2 for row, y in strips.items()}
    names = sorted(rows)
    ys = _places(names, meta["size"][1], [rows[r] for r in names], CELL_H)
    producers, consumers = links.text("flow_producer"), links.text("flow_consumer")
    parts = ["<g fill='none'>"]
    for k in range(c["link_noc"].size - 1, -1, -1):
        if c["link_bytes"][k] / max(1, meta["cycles"]) < threshold:
            continue
        noc, axis, x, y = (int(c[f"link_{n}"][k]) for n in ("noc", "axis", "x", "y"))
        load, users = float(c["link_load"][k]), meta["users"]
        most = int(c["use_flow"][k * users])
        step = -1 if noc else 1
        line = _line(xs, ys, axis, x, y, step)
        to = ((x + step) % len(xs), y) if axis == 0 else (x, (y + step) % len(ys))
        tip = (
            f"NoC {noc}, ({x}, {y}) to ({to[0]}, {to[1]}): {short(float(c['link_bytes'][k]))}B per input, "
            f"{100 * load:.0f} %; most of it {producers[most]} → {consumers[most]}"
        )
        dash = " stroke-dasharray='6 3'" if noc else ""
        parts.append(
            f"<path d='{line}' stroke='{load_paint(load).edge}' stroke-width='{1 + 4 * min(1.0, load):.1f}'{dash}>"
            f"<title>{escape(tip)}</title></path>"
        )
    return [*parts, "</g>"]


def _places(fixed: list[int], count: int, at: list[float], size: float) -> list[float]:
    """Where every node of an axis lies: workers in the middle of their cores, others on the edge between."""
    places = []
    for node in range(count):
        if node in fixed:
            places.append(at[fixed.index(node)])
        else:
            before = [p for n, p in zip(fixed, at, strict=True) if n < node]
            places.append(before[-1] + size / 2 if before else at[0] - size / 2)
    return places


def _line(xs: list[float], ys: list[float], axis: int, x: int, y: int, step: int) -> str:
    """From a node to the next; where the torus goes round, two stubs at the edges."""
    along = xs if axis == 0 else ys
    lane = step * LANE * (CELL_H if axis == 0 else CELL_W)
    across = (ys[y] if axis == 0 else xs[x]) + lane
    at = x if axis == 0 else y
    begin, end = along[at], along[(at + step) % len(along)]
    pieces = [(begin, end)]
    if not 0 <= at + step < len(along):
        pieces = [(begin, begin + 8 * step), (end - 8 * step, end)]
    return "".join(
        f"M{a:.1f} {across:.1f}H{b:.1f}" if axis == 0 else f"M{across:.1f} {a:.1f}V{b:.1f}" for a, b in pieces
    )


def link_legend(links: Frame, below: float) -> list[str]:
    """Under the grid, in `LEGEND` pixels: what the colours say, and that it is an estimate."""
    words = {"0": "all over NoC 0", "1": "all over NoC 1", "both": "each over its shorter NoC"}[links.meta["noc"]]
    parts = [f"<g font-size='10' fill='#566376' transform='translate(0 {below + 13})'>"]
    x = 0
    for load in (0.1, 0.4, 0.7, 1.0):
        parts.append(
            f"<path d='M{x} -4h18' stroke='{load_paint(load).edge}' stroke-width='{1 + 4 * load:.1f}'/>"
            f"<text x='{x + 22}'>{100 * load:.0f} %</text>"
        )
        x += 60
    text = f"{words}; NoC 0 → ↓ solid, NoC 1 ← ↑ dashed"
    return [*parts, f"<text x='{x}'>of what a link carries, estimated:</text><text y='14'>{text}</text></g>"]
