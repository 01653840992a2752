"""`MeasuredView` and `open_profile`: a measured run beside a session, or as a document of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import ClassVar

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.measured import MeasuredProfile, read_profile
from tbuda_lab.core.measured.kernels import load_kernels
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.views.base import View
from tbuda_lab.widgets.views.files import FileHub

PathLike = str | os.PathLike[str]
ROWS = 60


def open_profile(path: PathLike, *, kernels: PathLike | None = None, height: int = 0) -> MeasuredView:
    """A view of a measured run without a model: `ops_perf_results*.csv`, or a trace as JSON. kernels: a table of
    `tbuda calibrate --profile` to predict its ops by. Raises `InputError` naming file and row."""
    return MeasuredView(read_profile(os.fspath(path)), kernels=kernels, height=height)


class MeasuredView(View):
    """Measured and predicted time by op, the ratio, what is lost against the roofline, totals by kind and by mark.

    `MeasuredView(session)` shows the run that `session.load_profile` loaded, laid over the placement: its rows select
    the ops, and graph and grid take its colours. `MeasuredView(profile)` shows a run alone.
    """

    kind = "measured"
    frames_shown: ClassVar[tuple[str, ...]] = ("measured", "ops")

    def __init__(self, source: Session | MeasuredProfile, *, kernels: PathLike | None = None, height: int = 0) -> None:
        self._alone: Frame | None = None
        if isinstance(source, Session):
            if kernels is not None:
                raise InputError("give the kernels to session.load_profile")
            super().__init__(source, height=height)
            if source.measured is not None:
                self.hub.publish([measured_frame(source.measured)])
            return
        self._alone = measured_frame(source, None if kernels is None else load_kernels(Path(kernels)))
        self._open(FileHub([self._alone]), height)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        frame = self._alone or frames.get("measured")
        return "<p>no measured run is loaded</p>" if frame is None else measured_table(frame)

    def __repr__(self) -> str:
        return super().__repr__() if self._alone is None else f"MeasuredView({self._alone.meta['name']!r})"


def measured_table(frame: Frame) -> str:
    """The ops with most time as a table."""
    time, table = frame.columns["row_time"], frame.columns["row_table"]
    names, shapes = frame.text("row_name"), frame.text("row_shape")
    order = sorted(range(len(names)), key=lambda i: -float(time[i]) if time[i] == time[i] else 0.0)[:ROWS]
    head = "".join(f"<th>{t}</th>" for t in ("op", "shapes", "measured us", "by table us"))
    rows = "".join(
        f"<tr><td>{escape(names[i])}</td><td>{escape(shapes[i])}</td><td>{time[i] / 1e3:,.2f}</td>"
        f"<td>{'' if table[i] != table[i] else f'{table[i] / 1e3:,.2f}'}</td></tr>"
        for i in order
    )
    more = f"<p>and {len(names) - ROWS} more</p>" if len(names) > ROWS else ""
    return f"<table><tr>{head}</tr>{rows}</table>{more}"
