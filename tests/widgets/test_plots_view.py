"""Plots on their way to a page, and what a notebook keeps of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
import torch

from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp, GraphView, PlotsView, export_plots
from tbuda_lab.widgets.handlers import frames
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.pictures.plots import DARK_TEXT
from tbuda_lab.widgets.views.files import FileHub
from tests.session.models import perceptron
from tests.widgets.talk import Page, answers, say

TITLES = (
    "Cycles per input by epoch",
    "Cores in use per epoch",
    "Roofline per op",
    "Gap to bounds",
    "Cost over the session",
)


def for_training() -> tuple[Session, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    model = torch.nn.Linear(32, 32)
    data = [(torch.randn(2, 32, 32), torch.randn(2, 32, 32)) for _ in range(3)]
    session = Session.for_training(model, data[0][0], torch.nn.MSELoss(), data[0][1], learning_rate=0.25)
    session.compile()
    return session, data


def test_the_time_of_training_says_that_it_counts_updates() -> None:
    session, _ = for_training()
    assert "2 inputs and one update (limiters" in BringUp(session).static().html


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(2400):
        if true():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never came true")


def text(frame: object) -> str:
    return frame.columns["text"].tobytes().decode()  # type: ignore[attr-defined]


def test_bokehjs_comes_once_and_plots_follow_the_theme(hub: Hub) -> None:
    assert frames.MAKERS
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


def test_the_view_and_its_picture(tmp_path: object) -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    view = PlotsView(session)
    assert view.static().html == "<p>no placement yet</p>"
    session.compile()
    assert len(view.figures()) == len(TITLES)
    html = view.static().html
    assert "<td>0</td>" in html and "fastest candidate of the slowest op" in html and len(html) < 20_000
    path = export_plots(session, tmp_path / "plots.html")  # type: ignore[operator]
    assert all(title in path.read_text() for title in TITLES)
    export = session.export("plots")
    assert export.cli.startswith("tbuda export plots") and "export_plots(session, 'mlp.plots.html')" in export.python


def test_training_is_drawn_while_it_goes_on_and_stepped_from_the_page() -> None:
    session, data = for_training()
    hub = Hub(session)
    page = Page()
    hub.attach(page)
    session.control.pause()
    hub.train(data)
    until(lambda: hub.frame("training") is not None and hub.frame("training").meta["paused"])
    assert page.statuses()[-1]["running"] and "Paused after training step 0 of 3" in page.statuses()[-1]["message"]
    say(hub, type="step", of="input")
    until(lambda: hub.frame("training").meta["done"] == 1 and hub.frame("training").meta["paused"])
    plots = text(say(hub, type="plots", library=False).frames()["plots"])
    assert "learning rate" in plots and "Roofline" not in plots, "what needs a compile waits for the end"
    say(hub, type="resume")
    hub.wait(120)
    frame = hub.frame("training")
    assert frame.columns["loss"].tolist() == [s.loss for s in session.training_steps] and frame.meta["done"] == 3
    assert not frame.meta["running"] and not hub.status()["status"]["running"]
    titles = [f.title.text for f in PlotsView(session).figures()]
    assert titles[0] == "Training" and len(titles) == len(TITLES) + 1


def test_the_curve_of_a_search_is_drawn() -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    curve = session.optimise(steps=4)
    figure = PlotsView(session).figures()[0]
    assert figure.title.text == "Search for a better placement"
    source = figure.renderers[0].data_source.data
    assert list(zip(source["step"], source["cycles"], strict=True)) == list(curve)
    assert source["cycles"] == sorted(source["cycles"], reverse=True)
    assert figure.y_range.default_span >= 10 and figure.yaxis[0].ticker.min_interval == 1, "no two ticks say the same"


def test_titles_fit_a_narrow_cell_and_no_figure_narrows_another() -> None:
    """430 px: a bold letter of a title is 7 px wide, and the numbers of an axis take 80."""
    session = Session(*perceptron(), "n150", name="mlp")
    session.optimise(steps=4)
    for figure in PlotsView(session).figures():
        assert len(figure.title.text) <= (430 - 80) // 7 and not figure.frame_align


def test_gradients_are_an_overlay_of_the_graph() -> None:
    session, data = for_training()
    view = GraphView(session)
    page = Page()
    view.send = lambda content, buffers=None: page.post(content, list(buffers or []))
    comparisons = view.overlay_gradients(*data[0])
    assert {c.name for c in comparisons} == {"weight", "bias"} and all(c.pcc > 0.99 for c in comparisons)
    frame = page.frames()["overlay"]
    values = dict(zip(frame.text("overlay_name"), frame.columns["overlay_value"].tolist(), strict=True))
    assert values["matmul"] == pytest.approx(1 - min(c.pcc for c in comparisons))
