"""The plots on their way to a page: BokehJS once, then the figures as a script that draws them.

The page puts both into a frame of its own, so that Bokeh's globals and styles stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.errors import OutputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.messages import answers
from tbuda_lab.widgets.views.plots import all_plots, training

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

DARK_GRID, DARK_LINE, DARK_TEXT, DARK_GROUND = "#333c48", "#5a6675", "#dfe4ea", "#1c222b"
DARK = {
    "attrs": {
        "Plot": {"background_fill_color": DARK_GROUND, "border_fill_color": DARK_GROUND,
                 "outline_line_color": DARK_GRID},
        "Axis": {
            "axis_line_color": DARK_LINE, "major_tick_line_color": DARK_LINE, "minor_tick_line_color": DARK_LINE,
            "major_label_text_color": DARK_TEXT, "axis_label_text_color": DARK_TEXT,
        },
        "Legend": {"label_text_color": DARK_TEXT, "background_fill_alpha": 0.0, "inactive_fill_alpha": 0.4},
        "Title": {"text_color": DARK_TEXT},
        "Text": {"text_color": DARK_TEXT},
    }
}  # fmt: skip
"""Colours of a dark page; sizes are those of the light one."""


def library_frame() -> Frame:
    """BokehJS (about 1 MB). Raises `OutputError` without Bokeh."""
    try:
        from bokeh.resources import Resources
    except ImportError:
        raise OutputError("plots need Bokeh: pip install 'tbuda_lab[lab]', or pip install bokeh") from None
    code = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return _text("bokehjs", code, {})


def plots_frame(session: Session, dark: bool = False, *, trains: bool = False) -> Frame:
    """A fragment of HTML that draws all plots once BokehJS is there. trains: only those of training, which are there
    while the session works. Raises `OutputError` without Bokeh."""
    figures = [training(session)] if trains else all_plots(session)
    from bokeh.embed import components
    from bokeh.layouts import column
    from bokeh.themes import Theme

    if dark:
        for figure in figures:
            for grid in figure.grid:
                grid.grid_line_color = DARK_GRID if grid.grid_line_color is not None else None
    page = column(*figures, sizing_mode="stretch_width")
    script, place = components(page, theme=Theme(json=DARK) if dark else None)
    return _text("plots", place + script, {"rev": session.rev, "dark": dark})


def _text(key: str, text: str, meta: dict[str, Any]) -> Frame:
    return Frame(key, meta, {"text": np.frombuffer(text.encode(), dtype="u1")})


@answers("plots")
def _plots(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """dark: for a dark page; library: the page has no BokehJS yet."""

    def refuse(text: str) -> None:
        view.post({"type": "refused", "key": "plots", "text": text}, [])

    def work() -> None:
        try:
            if content.get("library") is True:
                hub.send_frame(view, library_frame())
            trains = hub.run_controller is not None and hub.run_controller.training
            hub.send_frame(view, plots_frame(hub.session, content.get("dark") is True, trains=trains))
        except TbudaError as error:
            refuse(str(error).splitlines()[0])

    if hub.edit_controller is None:
        refuse("A file has no plots.")
    else:
        hub.edit_controller.submit(work)
