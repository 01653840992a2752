"""Static twin of the timeline: the epochs, and the ops in sight (of the longest one at first), as SVG; no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from tbuda_lab.core.epochsim import KIND_NAMES, EpochTrace
from tbuda_lab.core.errors import InputError
from tbuda_lab.widgets.pictures.graph import FONT, picture, short, short_name

WIDTH, LABEL, ROW, BAR = 900, 190, 17, 13
LANES = 44
SPANS = 2400
PAINTS = (("#5b93d6", "#2f66ab"), ("#fbe9c6", "#b97a08"), ("#fadbd5", "#bb3a2c"), ("#e8def6", "#7446b0"),
          ("#d3efe6", "#17765a"))
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
    whole = t0 <= 0 and end >= epoch_trace.cycles
    there = [e for e in trace.epochs if min(e.end, end) > max(e.start, t0)]
    if not there:
        raise InputError(f"nothing runs from cycle {t0:g} to {end:g}; the trace has {epoch_trace.cycles} cycles")
    most = max(there, key=lambda e: (min(e.end, end) - max(e.start, t0), -e.start))
    if whole:  # the longest, and of rounds of the loop the first
        most = next(e for e in there if e.epoch == max(there, key=lambda r: (r.end - r.start, -r.epoch)).epoch)
    names = set(only)
    lanes = [i for i, op in enumerate(trace.ops) if (op.name in names if names else op.epoch == most.epoch)]
    start, stop = (most.start, most.end) if whole else (int(t0), int(np.ceil(end)))
    if names and whole:
        start, stop = 0, epoch_trace.cycles
    ops = f"the ops of epoch {most.epoch}{', the longest' if whole else ''}" if not names else f"{len(names)} ops"
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
_PATTERNS = "<defs>" + "".join(
    f"<pattern id='tk{k}' width='6' height='6' patternUnits='userSpaceOnUse'><rect width='6' height='6' "
    f"fill='{PAINTS[k][0]}'/><path d='{d}' stroke='{PAINTS[k][1]}' fill='none' stroke-width='1.2'/></pattern>"
    for k, d in _MARKS
) + "</defs>"


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
