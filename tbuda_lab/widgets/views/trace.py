"""The timeline of a placement: Python side of `labextension/src/views/trace`.

What a timeline is told besides its trace: the stretch of time, which rows are open, which ops, cursors, playing.
"""

from __future__ import annotations

import math
import numbers
import pathlib
from collections.abc import Mapping
from html import escape
from typing import Any

import traitlets

from tbuda_lab.core.epochsim import KIND_NAMES, EpochTrace
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.trace_service import BATCHES, MOST
from tbuda_lab.widgets.pictures.trace import Viewport, trace_html, trace_svg, viewport_of
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
                "op": trace.ops[op].name, "input": input_, "doing": KIND_NAMES[kind], "cores": trace.ops[op].cores,
                "waiting_for": trace.ops[cause].name if cause >= 0 else "",
            }
            for op, input_, kind, cause in rows
        ]

    def show(self, cycle: int) -> None:
        """Put the cursor on a cycle; the core grid follows."""
        self.post({"type": "trace_show", "cycle": int(cycle)}, [])

    @traitlets.validate("lanes")
    def _placed(self, proposal: Any) -> list[str]:
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
        self.trace.trace.to_chrome_trace(path)
        return pathlib.Path(path)

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        if self.session.result is None:
            return "<p>no placement yet</p>"
        try:
            return trace_html(self.trace, self._sight())
        except InputError as error:  # another placement is shorter
            return f"<p>{escape(str(error).splitlines()[0])}</p>{trace_html(self.trace)}"
