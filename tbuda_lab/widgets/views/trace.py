"""The timeline of a placement: Python side of `labextension/src/views/trace`.

What a timeline is told besides its trace: the stretch of time, which rows are open, which ops, cursors, playing.
"""

from __future__ import annotations

import math
import numbers
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import traitlets

from tbuda_lab.core.epochsim import KIND_NAMES, EpochTrace
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.runs import BATCHES, MOST
from tbuda_lab.widgets.pictures.svg import FONT, picture, short, short_name
from tbuda_lab.widgets.views.base import View

LEVELS = ("", "epochs", "ops", "cores")


class TraceTraits(traitlets.HasTraits):
    """Traits of the timeline, settable from Python; the page sets them when somebody moves about, once it rests.

    t0, t1: the stretch of cycles in sight, from `t0` to before `t1` (None: to the end); `window` sets both at once.
    level: which rows are open: "epochs" none, "ops" all epochs, "cores" all ops too; "" for those that somebody opened,
    or that the view opens at first. lanes: names of the only ops shown, () for all. cursors: the cycles of at most two
    cursors. play: whether the playhead moves, a window in twelve seconds.
    """

    t0 = traitlets.Float(0.0).tag(sync=True, echo_update=False)
    t1 = traitlets.Float(None, allow_none=True).tag(sync=True, echo_update=False)
    level = traitlets.Enum(LEVELS, "").tag(sync=True)
    lanes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    cursors = traitlets.List(traitlets.Float(), maxlen=2).tag(sync=True, echo_update=False)
    play = traitlets.Bool(False).tag(sync=True)

    def window(self, t0: float = 0.0, t1: float | None = None) -> None:
        """Show the cycles from `t0` to before `t1` (default: to the end). Raises `InputError` for no stretch."""
        if not _cycle(t0) or not (t1 is None or _cycle(t1)) or (t1 is not None and t0 >= t1):
            raise InputError(f"a stretch of time goes from a cycle to a later one, not from {t0} to {t1}")
        with self.hold_trait_notifications():
            self.t0, self.t1 = t0, t1

    @traitlets.validate("t0", "t1")
    def _stretch(self, proposal: Any) -> float | None:
        value: float | None = proposal["value"]
        name = proposal["trait"].name
        if value is None:
            return None
        if not _cycle(value):
            raise traitlets.TraitError(f"{name} is a cycle, 0 or later, not {value}")
        t0, t1 = (value, self.t1) if name == "t0" else (self.t0, value)
        if t1 is not None and t0 >= t1:
            raise traitlets.TraitError(f"cycle {t0:g} (t0) is not before {t1:g} (t1); window(t0, t1) sets both at once")
        return value

    @traitlets.validate("cursors")
    def _cycles(self, proposal: Any) -> list[float]:
        value: list[float] = proposal["value"]
        if not all(map(_cycle, value)):
            raise traitlets.TraitError(f"cursors stand on cycles, 0 or later, not {value}")
        return value


def _cycle(value: object) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value) and float(value) >= 0


class RunTrace(TraceTraits, View):
    """The placement in time: epochs, ops, cores; what each waits for; how full the buffers are.

    batch: how many inputs are simulated. The cursor drives the core grid of the same session. See `TraceTraits` for its
    traits.
    """

    kind = "trace"
    frames_shown = ("ops", "edits", "netlist")

    def __init__(self, session: Session, *, batch: int = BATCHES[1], height: int = 0) -> None:
        if not 1 <= batch <= MOST:
            raise InputError(f"a batch of {batch}: 1 to {MOST} inputs are simulated")
        self.batch = batch
        super().__init__(session, height=height)

    @property
    def trace(self) -> EpochTrace:
        """The trace that is shown, simulated now if need be."""
        return self.session.timeline(self.batch)

    def at(self, cycle: int) -> list[dict[str, Any]]:
        """What every op does at a cycle: op, input, doing (a kind by name), cores, waiting_for (an op or "")."""
        trace = self.trace.trace
        moment = trace.at(cycle)
        columns = (moment.op, moment.input, moment.kind, moment.cause)
        rows = zip(*(c.tolist() for c in columns), strict=True)
        return [
            {
                "op": trace.ops[op].name,
                "input": input_,
                "doing": KIND_NAMES[kind],
                "cores": trace.ops[op].cores,
                "waiting_for": trace.ops[cause].name if cause >= 0 else "",
            }
            for op, input_, kind, cause in rows
        ]

    def show(self, cycle: int) -> None:
        """Put the cursor on a cycle; the core grid follows."""
        self.post({"type": "trace_show", "cycle": int(cycle)}, [])

    @traitlets.validate("lanes")
    def _place_labels(self, proposal: Any) -> list[str]:
        names: list[str] = proposal["value"]
        result = self.session.result if names else None
        unknown = [n for n in names if result is not None and n not in result.placement.ops]
        if unknown:
            raise traitlets.TraitError(f"{unknown[0]!r} is not an op of this placement; lanes are names of placed ops")
        return names

    def _sight(self) -> Viewport:
        return viewport_of(self.trace, self.t0, self.t1, self.lanes, rows=self.level != "epochs")

    def svg(self) -> str:
        """The epochs, and what the ops in sight do, as SVG: within `t0` to `t1`, of `lanes`, without ops at the level
        "epochs"; the ops of the epoch that most of the stretch belongs to. Compiles what is not compiled. Raises
        `InputError` where nothing runs in that stretch."""
        self.session.compile()
        return trace_svg(self.trace, self._sight())

    def to_chrome_trace(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write Chrome trace JSON; returns the path. Raises `OutputError` where it cannot be written."""
        self.trace.trace.to_chrome_trace(path, self.session.compile().model_shapes)
        return pathlib.Path(path)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        if self.session.result is None:
            return "<p>no placement yet</p>"
        try:
            return trace_html(self.trace, self._sight())
        except InputError as error:  # another placement is shorter
            return f"<p>{escape(str(error).splitlines()[0])}</p>{trace_html(self.trace)}"


WIDTH, LABEL, ROW, BAR = 900, 190, 17, 13
LANES = 44
SPANS = 2400
PAINTS = (
    ("#5b93d6", "#2f66ab"),
    ("#fbe9c6", "#b97a08"),
    ("#fadbd5", "#bb3a2c"),
    ("#e8def6", "#7446b0"),
    ("#d3efe6", "#17765a"),
)
"""(ground, ink) of compute, input, space, DRAM, host: the light palette of `views/trace/paint.ts`."""


@dataclass(frozen=True)
class Viewport:
    """What is in sight: rows of `lanes` (indices of `trace.ops`) from cycle `start` to `end`. epoch: marked above."""

    epoch: int
    start: int
    end: int
    lanes: tuple[int, ...]
    words: str


def viewport_of(
    epoch_trace: EpochTrace, t0: float = 0.0, t1: float | None = None, only: Sequence[str] = (), rows: bool = True
) -> Viewport:
    """Of a stretch of time the epoch that most of it belongs to (without one the longest epoch, from its start to its
    end), with its ops, or with those of `only` from whatever epoch. Raises `InputError` where nothing runs."""
    trace = epoch_trace.trace
    end = epoch_trace.cycles if t1 is None else min(t1, epoch_trace.cycles)
    everything = t0 <= 0 and end >= epoch_trace.cycles
    epochs = [e for e in trace.epochs if min(e.end, end) > max(e.start, t0)]
    if not epochs:
        raise InputError(f"nothing runs from cycle {t0:g} to {end:g}; the trace has {epoch_trace.cycles} cycles")
    most = max(epochs, key=lambda e: (min(e.end, end) - max(e.start, t0), -e.start))
    if everything:  # the longest, and of rounds of the loop the first
        most = next(e for e in epochs if e.epoch == max(epochs, key=lambda r: (r.end - r.start, -r.epoch)).epoch)
    names = set(only)
    lanes = [i for i, op in enumerate(trace.ops) if (op.name in names if names else op.epoch == most.epoch)]
    start, stop = (most.start, most.end) if everything else (int(t0), int(np.ceil(end)))
    if names and everything:
        start, stop = 0, epoch_trace.cycles
    ops = f"the ops of epoch {most.epoch}{', the longest' if everything else ''}" if not names else f"{len(names)} ops"
    words = "all epochs, and " + ops if rows else "all epochs"
    return Viewport(most.epoch, start, stop, tuple(lanes) if rows else (), words)


def trace_html(epoch_trace: EpochTrace, sight: Viewport | None = None) -> str:
    """The picture, what it leaves out, and the fork-join stalls in words. sight: by default the longest epoch."""
    trace = epoch_trace.trace
    if not trace.epochs:
        return "<p>nothing runs</p>"
    sight = sight or viewport_of(epoch_trace)
    per_input = f", {short(epoch_trace.cycles / epoch_trace.batch)} per input" if epoch_trace.batch > 1 else ""
    head = (
        f"<p>{epoch_trace.batch} input{'s' if epoch_trace.batch > 1 else ''} in "
        f"{short(epoch_trace.cycles)} cycles{per_input}; {len(trace):,} events. Below: {sight.words}.</p>"
    )
    return head + trace_svg(epoch_trace, sight) + _stalls(epoch_trace)


def trace_svg(epoch_trace: EpochTrace, sight: Viewport) -> str:
    """All epochs on one line, and below them what each op in sight does.

    Where several spans fall together, the bar shows what most of the time goes to.
    """
    trace = epoch_trace.trace
    lanes, start, end = sight.lanes, sight.start, sight.end
    shown = lanes[:LANES]
    parts = [f"<g {FONT} font-size='10.5' fill='#17202e'>", *_overview(epoch_trace, sight)]
    top = 3 * ROW
    if shown:
        spans = trace.zoom(start, end, SPANS, (shown[0], shown[-1] + 1))
        rows = np.full(shown[-1] + 1, -1)
        rows[list(shown)] = np.arange(len(shown))
        scale = (WIDTH - LABEL - 8) / max(1, end - start)
        low = LABEL + (np.maximum(0, spans.start.astype(np.int64) + spans.origin - start)) * scale
        high = LABEL + (np.minimum(end, spans.end.astype(np.int64) + spans.origin) - start) * scale
        for kind, (ground, ink) in enumerate(PAINTS):
            mine = (spans.kind == kind) & (rows[spans.op] >= 0)
            d = "".join(
                f"M{x:.1f} {top + row * ROW + 2}h{max(0.4, w):.1f}v{BAR}h{-max(0.4, w):.1f}z"
                for x, w, row in zip(low[mine], (high - low)[mine], rows[spans.op[mine]].tolist(), strict=True)
            )
            fill = ground if kind == 0 else f"url(#tk{kind})"
            parts.append(f"<path d='{d}' fill='{fill}' stroke='{ink}' stroke-width='.4'/>")
    for row, lane in enumerate(shown):
        op = trace.ops[lane]
        name = short_name(op.name)
        name = name if len(name) <= 30 else f"…{name[-29:]}"
        parts.append(
            f"<text x='{LABEL - 6}' y='{top + row * ROW + 12}' text-anchor='end'><title>{escape(op.name)}</title>"
            f"{escape(name)}</text>"
        )
    if len(lanes) > len(shown):
        y = top + len(shown) * ROW + 12
        parts.append(f"<text x='{LABEL}' y='{y}' fill='#566376'>and {len(lanes) - len(shown)} more</text>")
    height = top + (len(shown) + (len(lanes) > len(shown))) * ROW + 26
    parts += [*_legend(height - 14), "</g>"]
    return picture(WIDTH, height, [_PATTERNS, *parts], f"Timeline of epoch {sight.epoch}")


def _overview(epoch_trace: EpochTrace, sight: Viewport) -> list[str]:
    epoch = sight.epoch
    scale = (WIDTH - LABEL - 8) / max(1, epoch_trace.cycles)
    parts = [f"<text x='{LABEL - 6}' y='17' text-anchor='end' fill='#566376'>epochs</text>"]
    for run in epoch_trace.trace.epochs[:600]:
        x, width = LABEL + run.start * scale, max(0.6, (run.end - run.start) * scale)
        fill = "#5b93d6" if run.epoch == epoch else "#c9d6e6"
        parts.append(f"<path d='M{x:.1f} 6h{width:.1f}v14h{-width:.1f}z' fill='{fill}' stroke='#8296b0'/>")
        if width > 18:
            parts.append(f"<text x='{x + width / 2:.1f}' y='17' text-anchor='middle'>{run.epoch}</text>")
    span = f"epoch {epoch}: cycle {short(sight.start)} to {short(sight.end)}"
    parts.append(f"<text x='{LABEL}' y='38' fill='#566376'>{span}</text>")
    return parts


def _legend(y: int) -> list[str]:
    parts = []
    for kind, (ground, ink) in enumerate(PAINTS):
        x = LABEL + kind * 138
        fill = ground if kind == 0 else f"url(#tk{kind})"
        parts.append(f"<rect x='{x}' y='{y - 9}' width='16' height='11' fill='{fill}' stroke='{ink}'/>")
        parts.append(f"<text x='{x + 21}' y='{y}'>{KIND_NAMES[kind]}</text>")
    return parts


_MARKS = ((1, "M0 6L6 0"), (2, "M0 0L6 6M0 6L6 0"), (3, "M3 2v2"), (4, "M0 3h6"))
_PATTERNS = (
    "<defs>"
    + "".join(
        f"<pattern id='tk{k}' width='6' height='6' patternUnits='userSpaceOnUse'><rect width='6' height='6' "
        f"fill='{PAINTS[k][0]}'/><path d='{d}' stroke='{PAINTS[k][1]}' fill='none' stroke-width='1.2'/></pattern>"
        for k, d in _MARKS
    )
    + "</defs>"
)


def _stalls(epoch_trace: EpochTrace) -> str:
    stalls = [s for s in epoch_trace.stalls if s.critical] or list(epoch_trace.stalls)
    if not stalls:
        return ""
    rows = "".join(
        f"<li>epoch {s.epoch}: {escape(s.fork)} waits for space, because {escape(s.join)} joins a short branch with a "
        f"slower one ({short(s.cycles)} cycles{', slows the epoch down' if s.critical else ''}); "
        f"a buffering nop from {escape(s.fork)} to {escape(s.short[0] if s.short else s.join)} would give it room</li>"
        for s in stalls[:12]
    )
    return f"<p>Fork-join stalls:</p><ul>{rows}</ul>"
