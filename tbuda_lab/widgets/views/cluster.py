"""`ClusterView`: the chips of a device, what runs on each and what crosses between them."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import ClassVar

import numpy as np
import traitlets

from tbuda_lab.core.analysis.cluster import ClusterMap, cluster_map
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame, op_load
from tbuda_lab.core.frames.analysis_frames import cluster_frame
from tbuda_lab.core.session import PlaceOp, Session
from tbuda_lab.widgets.pictures.svg import FONT, load_paint, picture, short, size_text
from tbuda_lab.widgets.views.base import View


class ClusterView(View):
    """Chips as cards with their links, what each runs in a temporal epoch, and what crosses the links.

    Dragging an op or an epoch to another chip is `chip` or `chip_of_epoch`, an edit like any other. epoch:
    the epoch shown, and with it all that run at its time; the page sets it too.
    """

    kind = "cluster"
    frames_shown: ClassVar[tuple[str, ...]] = ("cluster", "ops", "edits")

    epoch = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, session: Session, *, height: int = 0) -> None:
        super().__init__(session, height=height)
        if session.result is not None:
            self.hub.publish([cluster_frame(session.result, session.rev)])

    def map(self) -> ClusterMap:
        """Chips, links and what crosses them."""
        return cluster_map(self.session.compile())

    def chip(self, op: str, chip: int) -> None:
        """Put an op on a chip, and compile. Raises what the compile raises."""
        self.session.apply(PlaceOp(op, chip=chip))
        self.session.compile()

    def chip_of_epoch(self, epoch: int, chip: int) -> None:
        """Put all ops of an epoch on a chip as one edit, and compile. Raises `InputError` and what the compile does."""
        epochs = self.session.compile().placement.epochs
        if not 0 <= epoch < len(epochs):
            raise InputError(f"there is no epoch {epoch}; there are {len(epochs)}")
        self.session.apply(*(PlaceOp(op, chip=chip) for op in epochs[epoch].ops), label=f"epoch {epoch} to chip {chip}")
        self.session.compile()

    def svg(self, epoch: int | None = None) -> str:
        """The chips with their links, and what runs at the time of an epoch (default: the one shown), as SVG. Compiles
        what is not compiled. Raises `InputError` for an epoch that there is not."""
        epochs = self.session.compile().placement.epochs
        at = self.epoch if epoch is None else epoch
        if not 0 <= at < len(epochs):
            raise InputError(f"there is no epoch {at}; there are {len(epochs)}")
        frame = self._frame(self.hub.frames)
        assert frame is not None  # there is a placement
        return cluster_svg(frame, self.hub.frames["ops"], at)

    def _frame(self, frames: Mapping[str, Frame]) -> Frame | None:
        """The chips, of the newest placement."""
        frame, result = frames.get("cluster"), self.session.result
        if result is not None and (frame is None or frame.meta["rev"] != self.session.rev):
            frame = cluster_frame(result, self.session.rev)
        return frame

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        frame = self._frame(frames)
        if frame is None or "ops" not in frames:
            return "<p>no placement yet</p>"
        last = frames["ops"].columns["epoch_temporal"].size - 1
        return cluster_fragment(frame, frames["ops"], max(0, min(self.epoch, last)))


CARD_W, CARD_H, GAP_X, GAP_Y = 156, 150, 96, 34
MINI_H = 66
EDGE = 4
LOADS = 10  # shades of ops on a card


def cluster_fragment(frame: Frame, ops: Frame, epoch: int = 0) -> str:
    """Chips of a cluster frame, with what runs at the time of an epoch of the placement frame, as an HTML fragment."""
    times = ops.columns["epoch_temporal"]
    text = f"<p>Temporal epoch {int(times[epoch])} of {int(times.max()) + 1}</p>" if times.size else ""
    return text + cluster_svg(frame, ops, epoch) + _moves(frame)


def cluster_svg(frame: Frame, ops: Frame, epoch: int = 0) -> str:
    """The chips as cards with their links, and the cores at work at the time of an epoch, as SVG.

    Raises `IndexError` for an epoch that there is not.
    """
    c = frame.columns
    times = ops.columns["epoch_temporal"]
    if not 0 <= epoch < max(1, times.size):
        raise IndexError(f"there is no epoch {epoch}; there are {times.size}")
    concurrent = np.flatnonzero(times == times[epoch]) if times.size else np.empty(0, int)
    spot = {int(k): (int(x), int(y)) for k, x, y in zip(c["chip_id"], c["chip_x"], c["chip_y"], strict=True)}
    place = {k: (x * (CARD_W + GAP_X) + EDGE, y * (CARD_H + GAP_Y) + EDGE) for k, (x, y) in spot.items()}
    parts = [f"<g {FONT}>", *_links(frame, place)]
    for k, chip in enumerate(c["chip_id"].tolist()):
        chip_epochs = concurrent[ops.columns["epoch_chip"][concurrent] == chip].tolist()
        parts.append(_card(frame, ops, k, place[chip], chip_epochs))
    width = max(x for x, _ in place.values()) + CARD_W + EDGE
    height = max(y for _, y in place.values()) + CARD_H + EDGE
    title = f"Chips and links, temporal epoch {int(times[epoch]) if times.size else 0}"
    return picture(width, height, [*parts, "</g>"], title)


def _links(frame: Frame, place: dict[int, tuple[int, int]]) -> list[str]:
    """Lines between the cards, busy ones with what crosses them."""
    c = frame.columns
    parts = []
    columns = (c[f"link_{k}"].tolist() for k in ("a", "b", "forth", "back", "load"))
    for a, b, forth, back, load in zip(*columns, strict=True):
        (x0, y0), (x1, y1) = ((x + CARD_W / 2, y + CARD_H / 2) for x, y in (place[a], place[b]))
        busy = forth + back > 0
        colour, width = ("#c2570c", 3) if busy else ("#b9c3d0", 1.5)
        parts.append(f"<path d='M{x0} {y0}L{x1} {y1}' stroke='{colour}' stroke-width='{width}'/>")
        if busy:
            parts.append(
                f"<text x='{(x0 + x1) / 2}' y='{(y0 + y1) / 2 - 4}' text-anchor='middle' font-size='9.5' "
                f"fill='#8a3d08'>{size_text(forth + back)}, {100 * load:.0f} %</text>"
            )
    return parts


def _card(frame: Frame, ops: Frame, k: int, at: tuple[int, int], here: list[int]) -> str:
    """A chip: its cores with what runs `here` (epochs) now, all its epochs, how long it takes."""
    c, (x, y) = frame.columns, at
    chip, cycles = int(c["chip_id"][k]), float(c["chip_cycles"][k])
    load = cycles / max(1.0, float(frame.meta["slowest"]))
    epochs = np.flatnonzero(ops.columns["epoch_chip"] == chip).tolist()
    cores = sum(int(ops.columns["epoch_cores"][e]) for e in here) / (ops.meta["rows"] * ops.meta["cols"])
    listed = ", ".join(map(str, epochs[:8])) + (" …" if len(epochs) > 8 else "")
    lines = (
        (y + 17, 600, f"chip {chip}{' · host' if c['chip_mmio'][k] else ''}"),
        (y + 104, 400, f"epoch {', '.join(map(str, here))}: {100 * cores:.0f} % of cores" if here else "idle"),
        (y + 120, 400, f"epochs {listed}" if epochs else "no epochs"),
        (y + 136, 400, f"{short(cycles)} cycles / input" if epochs else ""),
    )
    texts = "".join(
        f"<text x='{x + 8}' y='{top}' font-size='{12 if weight > 400 else 10.5}' font-weight='{weight}' "
        f"fill='#17202e'>{escape(line)}</text>"
        for top, weight, line in lines
        if line
    )
    bar = (CARD_W - 16) * min(1.0, load) if epochs else 0
    return (
        f"<g><rect x='{x}' y='{y}' width='{CARD_W}' height='{CARD_H}' rx='7' fill='#fff' stroke='#b9c3d0'/>{texts}"
        f"{_mini(ops, x + 8, y + 24, here)}<rect x='{x + 8}' y='{y + CARD_H - 8}' width='{bar:.1f}' height='3' "
        f"fill='{load_paint(load).edge}'/></g>"
    )


def _mini(ops: Frame, x: float, y: float, here: list[int]) -> str:
    """The ops of some epochs on the cores of a chip, without words; one path per shade."""
    c = ops.columns
    w, h = (CARD_W - 16) / ops.meta["cols"], MINI_H / ops.meta["rows"]
    parts = [f"<rect x='{x}' y='{y}' width='{CARD_W - 16}' height='{MINI_H}' rx='2' fill='#f0f3f7' stroke='#dde3eb'/>"]
    chosen = np.flatnonzero(np.isin(c["op_epoch"], here) & (c["op_rows"] > 0))
    shades = np.round(LOADS * op_load(ops)[1][chosen]).astype(int)
    for shade in np.unique(shades).tolist():
        paint = load_paint(shade / LOADS)
        same_shade = chosen[shades == shade]
        row, col, rows, cols = (c[f"op_{n}"][same_shade].astype(float) for n in ("row", "col", "rows", "cols"))
        left, top, wide, high = x + col * w + 0.4, y + row * h + 0.4, cols * w - 0.8, rows * h - 0.8
        d = "".join(
            f"M{a:.1f} {b:.1f}h{p:.1f}v{q:.1f}h{-p:.1f}z" for a, b, p, q in zip(left, top, wide, high, strict=True)
        )
        parts.append(f"<path d='{d}' fill='{paint.fill}' stroke='{paint.edge}' stroke-width='.5'/>")
    return "".join(parts)


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
