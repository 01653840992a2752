"""`PlotsView`: what people look at rather than read."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, ClassVar

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.profile import bound_costs, epoch_costs
from tbuda_lab.widgets.pictures.plots import all_plots
from tbuda_lab.widgets.views.base import View

ROWS = 100  # epochs in the table


class PlotsView(View):
    """Plots of a session (Bokeh): cycles and balance per epoch, roofline of ops, gap to bounds, cost history."""

    kind = "plots"
    frames_shown: ClassVar[tuple[str, ...]] = ("ops",)

    def figures(self) -> list[Any]:
        """The figures, for `bokeh.io.show` or a layout of one's own. Raises `OutputError` without Bokeh."""
        return all_plots(self.session)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return plots_fragment(self.session)


def plots_fragment(session: Session) -> str:
    """The numbers behind the plots as tables."""
    if session.result is None:
        return "<p>no placement yet</p>"
    times = session.time()
    rows = epoch_costs(session.result, times)
    titles = ("epoch", "simulated", "bound by", "slowest kernel alone", "cores", "busy", "what limits it")
    head = "".join(f"<th>{t}</th>" for t in titles)
    body = "".join(
        f"<tr><td>{r.index}</td><td>{r.time:,.0f}</td><td>{r.bound}</td><td>{r.kernel:,}</td>"
        f"<td>{100 * r.cores:.0f} %</td><td>{100 * r.busy:.0f} %</td><td>{escape(r.limits)}</td></tr>"
        for r in rows[:ROWS]
    )
    more = f"<p>and {len(rows) - ROWS} more</p>" if len(rows) > ROWS else ""
    costs = bound_costs(session.result, times)
    bounds = "".join(f"<tr><td>{escape(name)}</td><td>{cycles:,}</td></tr>" for name, cycles in costs)
    return (
        f"<table><caption>Cycles per input, batch of {times.batch}</caption><tr>{head}</tr>{body}</table>{more}"
        f"<table><caption>Gap to bounds</caption>{bounds}</table>"
    )
