"""Plots on their way to a page, and what a notebook keeps of them."""

from __future__ import annotations

import sys

import pytest

from tbuda_lab.core.session import Session
from tbuda_lab.widgets import PlotsView, export_plots
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.protocol import frame_registry
from tbuda_lab.widgets.views.netlist_file import FileHub
from tbuda_lab.widgets.views.plot_scripts import DARK_TEXT
from tests.session.models import perceptron
from tests.widgets.talk import answers, say

TITLES = ("Cycles per epoch", "Utilisation and balance", "Roofline per op", "Gap to bounds", "Cost over the session")


def text(frame: object) -> str:
    return frame.columns["text"].tobytes().decode()  # type: ignore[attr-defined]


def test_bokehjs_comes_once_and_plots_follow_the_theme(hub: Hub) -> None:
    assert frame_registry.MAKERS
    first = say(hub, type="plots", library=True, dark=False).frames()
    assert set(first) == {"bokehjs", "plots"} and "Bokeh" in text(first["bokehjs"])
    assert all(title in text(first["plots"]) for title in TITLES)
    assert len(text(first["plots"])) < 200_000, "an edit costs no library"
    second = say(hub, type="plots", library=False, dark=True).frames()
    assert set(second) == {"plots"} and second["plots"].meta["dark"]
    assert DARK_TEXT in text(second["plots"]) and DARK_TEXT not in text(first["plots"])
    assert hub.frame("plots") is None, "kept for nobody"


def test_without_bokeh_the_page_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n == "bokeh" or n.startswith("bokeh.")]:
        monkeypatch.setitem(sys.modules, name, None)
    page = say(hub, type="plots", library=True)
    assert "pip install" in answers(page, "refused")[0]["text"] and not page.frames()


def test_a_file_has_none() -> None:
    assert answers(say(FileHub([]), type="plots"), "refused")[0]["key"] == "plots"


def test_the_view_and_its_twin(tmp_path: object) -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    view = PlotsView(session)
    assert view.static().html == "<p>no placement yet</p>"
    session.compile()
    assert len(view.figures()) == len(TITLES)
    html = view.static().html
    assert "<td>0</td>" in html and "slowest op at its fastest" in html and len(html) < 20_000
    path = export_plots(session, tmp_path / "plots.html")  # type: ignore[operator]
    assert all(title in path.read_text() for title in TITLES)
    export = session.export("plots")
    assert export.cli.startswith("tbuda export plots") and "export_plots(session, 'mlp.plots.html')" in export.python
