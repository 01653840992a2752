"""`MemoryView`: L1 of the cores, queues in DRAM channels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import traitlets

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import DramMap, L1Map, NetlistMemory
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.analysis_frames import memory_frame
from tbuda_lab.core.frames.netlist_file import netlist_frames
from tbuda_lab.core.session import QueueChannel, Session
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.pictures.grid import rows_of
from tbuda_lab.widgets.pictures.svg import FONT, check_epoch, elide, load_paint, picture, short_name, size_text
from tbuda_lab.widgets.views.base import View
from tbuda_lab.widgets.views.files import FileHub, memory_of


class MemoryView(View):
    """How full the L1 of every core is and with what; where queues lie in DRAM and what is asked of the channels.

    `MemoryView(session)`: of a placement; dragging a queue to another channel is `put`, an edit like any other.
    `MemoryView("a.netlist.yaml")`: of a netlist file, as far as the file says: buffers at the least they can be, one
    entry read per reader and input, loads against estimated cycles. Raises `NetlistError` for what is not a netlist,
    `InputError` for one without ops.

    mode: "l1" for the cores of an epoch, "dram" for the channels. epoch: the one shown. core: the (row, column) of the
    core whose buffers are listed, () for the fullest; choosing it selects its op. channel: the DRAM channel that is
    marked, None for none. The page sets them too.
    """

    kind = "memory"
    frames_shown: ClassVar[tuple[str, ...]] = ("memory", "ops", "edits")

    mode = traitlets.Enum(("l1", "dram"), "l1").tag(sync=True)
    epoch = traitlets.Int(0, min=0).tag(sync=True)
    core = traitlets.List(traitlets.Int(min=0)).tag(sync=True)
    channel = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)

    @traitlets.validate("core")
    def _on_the_grid(self, proposal: Any) -> list[int]:
        value: list[int] = proposal["value"]
        ops = self.hub.frames.get("ops") if value else None
        size = (ops.meta["rows"], ops.meta["cols"]) if ops is not None else None
        if len(value) not in (0, 2) or (size is not None and not (value[0] < size[0] and value[1] < size[1])):
            grid = f"; there are {size[0]} rows and {size[1]} columns" if size else ""
            raise traitlets.TraitError(f"a core is (row, column), or (), not {tuple(value)}{grid}")
        return value

    @traitlets.validate("channel")
    def _of_the_device(self, proposal: Any) -> int | None:
        value: int | None = proposal["value"]
        frame = self.hub.frames.get("memory") if value is not None else None
        channels = [value] if frame is None else [c for kind, c, *_ in frame.meta["channels"] if kind == "dram"]
        if value is not None and value not in channels:
            raise traitlets.TraitError(f"there is no DRAM channel {value}; there are {', '.join(map(str, channels))}")
        return value

    def __init__(self, source: Session | str | os.PathLike[str], *, arch: str | None = None, height: int = 0) -> None:
        self._file: NetlistMemory | None = None
        if isinstance(source, Session):
            super().__init__(source, height=height)
            if source.result is not None:
                self.hub.publish([memory_frame(source.result, source.rev)])
            return
        self._name = Path(source).name
        netlist = netlists.load(Path(source), lenient=True)
        shown = [f for f in netlist_frames(netlist, "", arch=arch) if f.key == "ops"]
        if not shown:
            raise InputError(f"{source} has no ops")
        self._file, frame = memory_of(netlist, arch, shown)
        self._open(FileHub([*shown, frame], lambda: frame), height)

    def l1(self, op: str) -> L1Map:
        """The buffers of an op in the L1 of its cores. Raises `InputError` for a name that is not placed."""
        return self.session.l1(op) if self._file is None else self._file.l1(op)

    def dram(self) -> DramMap:
        """Where every queue lies, when it is needed, and what is asked of the channels."""
        return self.session.dram() if self._file is None else self._file.dram()

    def put(self, queue: str, channel: int) -> None:
        """Put a queue into a DRAM channel, and compile. Raises what the compile raises; `InputError` for a file."""
        if self._file is not None:
            raise InputError(f"{self._name} is a file: only the queues of a session can be moved")
        self.session.apply(QueueChannel(queue, channel))
        self.session.compile()

    def svg(self, chip: int | None = None) -> str:
        """What `mode` says, as SVG: the L1 of the cores of `epoch` with `core` marked, or the DRAM channels of a chip
        (default: the first) with `channel` marked. Compiles what is not compiled. Raises `InputError` for an epoch or
        chip that there is not."""
        if self._file is None:
            self.session.compile()
        memory = self._frame(self.hub.frames)
        assert memory is not None  # there is a placement
        chips, ops = list(memory.meta["chips"]), self.hub.frames["ops"]
        if self.mode == "l1":
            epochs = ops.columns["epoch_cycles"].size
            if self.epoch >= epochs:
                raise InputError(f"there is no epoch {self.epoch}; there are {epochs}")
            return heat_svg(ops, memory, self.epoch, self.core)
        if chip is not None and chip not in chips:
            raise InputError(f"there is no chip {chip}; there are {', '.join(map(str, chips))}")
        return lanes_svg(memory, chips[0] if chip is None else chip, self.channel)

    def __repr__(self) -> str:
        return super().__repr__() if self._file is None else f"MemoryView({self._name!r})"

    def _frame(self, frames: Mapping[str, Frame]) -> Frame | None:
        """The frame of memory, of the newest placement."""
        frame = frames.get("memory")
        if self._file is None:
            result = self.session.result
            if result is not None and (frame is None or frame.meta["rev"] != self.session.rev):
                frame = memory_frame(result, self.session.rev)
        return frame

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        frame, ops = self._frame(frames), frames.get("ops")
        if frame is None:
            return "<p>no placement yet</p>"
        heat = ""
        if self.mode == "l1" and ops is not None:
            epoch = min(self.epoch, ops.columns["epoch_cycles"].size - 1)
            heat = f"<p>L1 of epoch {epoch}: share of what buffers may use</p>{heat_svg(ops, frame, epoch, self.core)}"
        return heat + memory_fragment(frame, self.channel, LIMIT - len(heat))


TABLE_ROWS = 40
BLOCKS = 1200  # of the picture of a chip
WIDTH, LANE, LEFT, RIGHT = 760, 22, 56, 150
PAINT = {
    "input": "#58b7c4",
    "parameter": "#7fc09c",
    "constant": "#b9c98a",
    "output": "#7aa5e6",
    "e2e": "#eab065",
    "sparse tiles": "#c29ade",
    "sparse encoding": "#e0a0b8",
}


def memory_fragment(frame: Frame, channel: int | None = None, limit: int = LIMIT) -> str:
    """A memory frame as an HTML fragment of at most `limit` characters or so. channel: marked."""
    parts, queues = [_ops(frame)], _queues(frame)
    budget = limit - len(parts[0]) - len(queues)
    for chip in frame.meta["chips"]:
        picture = lanes_svg(frame, int(chip), channel)
        budget -= len(picture)
        if budget < 0:
            break
        parts.append(f"<p>DRAM of chip {chip}; stretches that no channel uses are left out (grey).</p>{picture}")
    return "".join([*parts, queues])


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
    bytes_moved = np.zeros((len(cycles), sum(lane[0] == "dram" for lane in meta["channels"])))
    bytes_moved[c["load_epoch"], c["load_channel"]] = c["load_bytes"]
    share: np.ndarray = bytes_moved / cycles[:, None] / meta["capacity"]
    return share


def _ops(frame: Frame) -> str:
    c, meta = frame.columns, frame.meta
    room = meta["l1_size"] - meta["l1_reserved"]
    names = frame.text("op_name")
    parts = np.zeros((len(names), len(meta["kinds"])))
    np.add.at(parts, (c["part_op"], c["part_kind"]), c["part_bytes"])
    there = np.flatnonzero(parts.any(axis=0))  # few models have all kinds of buffers
    kinds = [meta["kinds"][kind] for kind in there.tolist()]
    order = np.argsort(-c["op_used"], kind="stable")[:TABLE_ROWS].tolist()
    head = "".join(f"<th>{t}</th>" for t in ("op", *kinds, "used", "of L1 for buffers", "free"))
    body = "".join(
        f"<tr><td title='{escape(names[k], True)}'>{escape(short_name(names[k]))}</td>"
        + "".join(f"<td>{size_text(v) if v else ''}</td>" for v in parts[k, there].tolist())
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
        for k in np.argsort(-total, kind="stable")[:TABLE_ROWS].tolist()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


CELL_W, CELL_H, STRIP, HEAT_LEFT, HEAT_TOP = 52, 34, 10, 20, 18


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
        for y in range(rows)
        for x in range(cols)
    )
    parts = [
        f"<g transform='translate({HEAT_LEFT} {HEAT_TOP})' {FONT}><path d='{cells}' fill='#f0f3f7' stroke='#dde3eb'/>",
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
    return picture(HEAT_LEFT + cols * CELL_W + 4, HEAT_TOP + height + 4, [*parts, "</g>"], f"L1 of epoch {epoch}")
