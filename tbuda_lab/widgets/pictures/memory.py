"""The static twin of the memory view: the lanes of DRAM channels, the fullest ops, the largest queues."""

from __future__ import annotations

from html import escape

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.pictures.graph import short_name

ROWS = 40
BLOCKS = 1200  # of the picture of a chip
WIDTH, LANE, LEFT, RIGHT = 760, 22, 56, 150
PAINT = {
    "input": "#58b7c4", "parameter": "#7fc09c", "constant": "#b9c98a", "output": "#7aa5e6", "e2e": "#eab065",
    "sparse tiles": "#c29ade", "sparse encoding": "#e0a0b8",
}  # fmt: skip


def memory_twin(frame: Frame, channel: int | None = None, limit: int = LIMIT) -> str:
    """A memory frame as an HTML fragment of at most `limit` characters or so. channel: marked."""
    parts = [_ops(frame)]
    budget = limit - len(parts[0]) - 20_000
    for chip in frame.meta["chips"]:
        picture = lanes_svg(frame, int(chip), channel)
        budget -= len(picture)
        if budget < 0:
            break
        parts.append(f"<p>DRAM of chip {chip}; stretches that no channel uses are left out (grey).</p>{picture}")
    return "".join([*parts, _queues(frame)])


def lanes_svg(frame: Frame, chip: int, mark: int | None = None) -> str:
    """The channels of a chip with their queues by address, and the share of bandwidth asked in the busiest epoch.

    mark: a channel to mark.
    """
    c, meta = frame.columns, frame.meta
    names, kinds = frame.text("queue_name"), frame.text("queue_kind")
    load = _loads(frame)
    parts: list[str] = []
    drawn = 0
    rows = [lane for lane in meta["channels"] if lane[0] == "dram"]
    for at, (_, channel, _, _) in enumerate(rows):
        y = at * LANE
        parts.append(
            f"<text x='{LEFT - 8}' y='{y + 15}' text-anchor='end' fill='#566376'>ch {channel}</text>"
            f"<rect x='{LEFT}' y='{y + 2}' width='{WIDTH}' height='{LANE - 5}' fill='#f0f3f7' "
            f"stroke='{'#1f63d6' if channel == mark else '#dde3eb'}'/>"
        )
        for k in np.flatnonzero((c["gap_chip"] == chip) & (c["gap_location"] == 0)).tolist():
            x, w = LEFT + WIDTH * c["gap_x"][k], WIDTH * c["gap_w"][k]
            parts.append(f"<rect x='{x:.1f}' y='{y + 2}' width='{w:.1f}' height='{LANE - 5}' fill='#c9ced7'/>")
        mine = (c["block_channel"] == channel) & (c["queue_location"][c["block_queue"]] == 0)
        mine &= c["queue_chip"][c["block_queue"]] == chip
        for k in np.flatnonzero(mine).tolist()[: BLOCKS - drawn]:
            q = int(c["block_queue"][k])
            x, w = LEFT + WIDTH * c["block_x"][k], max(1.0, WIDTH * c["block_w"][k])
            parts.append(
                f"<rect x='{x:.1f}' y='{y + 3}' width='{w:.1f}' height='{LANE - 7}' stroke='#fff' stroke-width='.4' "
                f"fill='{PAINT.get(kinds[q], '#b0b8c4')}'><title>{escape(names[q])}</title></rect>"
            )
            drawn += 1
        queue_bytes = float(c["queue_bytes"][c["block_queue"][mine]].sum())
        share = f", {100 * load[:, channel].max():.0f} %" if any(meta["cycles"]) else ""
        parts.append(f"<text x='{LEFT + WIDTH + 8}' y='{y + 15}' fill='#566376'>{size_text(queue_bytes)}{share}</text>")
    height = LANE * len(rows) + 4
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {LEFT + WIDTH + RIGHT} {height}' role='img' "
        f"width='{LEFT + WIDTH + RIGHT}' font-family='system-ui,sans-serif' font-size='11' "
        f"style='max-width:100%;height:auto;background:#fff' aria-label='DRAM channels of chip {chip}'>"
        f"{''.join(parts)}</svg>"
    )


def _loads(frame: Frame) -> np.ndarray:
    """(epochs, channels) share of bandwidth."""
    c, meta = frame.columns, frame.meta
    cycles = np.array(meta["cycles"], dtype=float)
    cycles[cycles < 1] = np.inf  # not known
    result = np.zeros((len(cycles), sum(lane[0] == "dram" for lane in meta["channels"])))
    result[c["load_epoch"], c["load_channel"]] = c["load_bytes"]
    share: np.ndarray = result / cycles[:, None] / meta["capacity"]
    return share


def size_text(size: float) -> str:
    """1234567 -> "1.18 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size:.0f} B"


def _ops(frame: Frame) -> str:
    c, meta = frame.columns, frame.meta
    room = meta["l1_size"] - meta["l1_reserved"]
    names = frame.text("op_name")
    parts = np.zeros((len(names), len(meta["kinds"])))
    np.add.at(parts, (c["part_op"], c["part_kind"]), c["part_bytes"])
    order = np.argsort(-c["op_used"], kind="stable")[:ROWS].tolist()
    head = "".join(f"<th>{t}</th>" for t in ("op", *meta["kinds"], "used", "of L1 for buffers", "free"))
    body = "".join(
        f"<tr><td title='{escape(names[k], True)}'>{escape(short_name(names[k]))}</td>"
        + "".join(f"<td>{size_text(v) if v else ''}</td>" for v in parts[k].tolist())
        + f"<td>{size_text(c['op_used'][k])}</td><td>{100 * c['op_used'][k] / room:.0f} %</td>"
        f"<td>{size_text(c['op_free'][k])}</td></tr>"
        for k in order
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _queues(frame: Frame) -> str:
    c = frame.columns
    names, kinds = frame.text("queue_name"), frame.text("queue_kind")
    total = c["queue_bytes"] * c["queue_buffers"]
    head = "".join(f"<th>{t}</th>" for t in ("queue", "kind", "where", "entries", "bytes", "epochs"))
    body = "".join(
        f"<tr><td>{escape(names[k])}</td><td>{escape(kinds[k])}</td>"
        f"<td>{frame.meta['locations'][c['queue_location'][k]]}</td><td>{c['queue_entries'][k]}</td>"
        f"<td>{size_text(float(total[k]))}</td><td>{c['queue_first'][k]} to {c['queue_last'][k]}</td></tr>"
        for k in np.argsort(-total, kind="stable")[:ROWS].tolist()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
