"""The timeline of a placement: Python side of `labextension/src/views/trace`."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.epochsim import KIND_NAMES, EpochTrace
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.baseview import View
from tbuda_lab.widgets.timekeeper import BATCHES, MOST
from tbuda_lab.widgets.tracesvg import trace_html


class RunTrace(View):
    """The placement in time: epochs, ops, cores; what each waits for; how full the buffers are.

    batch: how many inputs are simulated. The cursor drives the core grid of the same session.
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

    def to_chrome_trace(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write Chrome trace JSON; returns the path. Raises `OutputError` where it cannot be written."""
        self.trace.trace.to_chrome_trace(path)
        return pathlib.Path(path)

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        if self.session.result is None:
            return "<p>no placement yet</p>"
        return trace_html(self.session.timeline(self.batch))
