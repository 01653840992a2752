"""Kinds of session x commands: whatever a page can ask of a session that trains, of several chips, of an image, of a
SambaFlow program, of a PopXL Ir, of a netlist file, is done, or refused in words."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab import popxl
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import EXPORTS, Session
from tbuda_lab.popxl import ops
from tbuda_lab.widgets import (
    BringUp,
    ClusterView,
    DiffView,
    EpochGrid,
    GraphView,
    MeasuredView,
    MemoryView,
    NetlistView,
    OpTable,
    OverridesPanel,
    PassStepper,
    PlotsView,
    ProblemsView,
    ProfileView,
    RunTrace,
    open_netlist,
    open_tti,
)
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of
from tbuda_lab.widgets.protocol import HANDLERS, MAKERS
from tbuda_lab.widgets.report import report_html
from tests.session.models import perceptron
from tests.widgets.talk import Page, say
from tests.widgets.test_program_view import write_pef


def training() -> Session:
    """A classifier and a batch of 32."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 10))
    inputs, targets = torch.randn(32, 64), torch.randint(0, 10, (32,))
    return Session.for_training(model, (inputs,), torch.nn.CrossEntropyLoss(), (targets,), device="n150", name="train")


def chips() -> Session:
    return Session(*perceptron(), "n300", CompileOptions(microbatch=2), name="chips")


def image() -> Session:
    folder = Path(tempfile.mkdtemp())
    Session(*perceptron(), "n150", name="image").export_tti(folder / "image.tti")
    return Session.open(folder / "image.tti")


def program() -> Session:
    return BringUp(write_pef(Path(tempfile.mkdtemp()), "small"), start=False).session


def ir() -> Session:
    built = popxl.Ir()
    with built.main_graph:
        x = ops.host_load(popxl.h2d_stream((32, 64), popxl.float32))
        w = popxl.variable(np.eye(64, dtype=np.float32), name="w")
        ops.host_store(popxl.d2h_stream((32, 64), popxl.float32), ops.gelu(x @ w))
    return BringUp(popxl.Session(built, "ipu_model"), start=False).session


SESSIONS: dict[str, Callable[[], Session]] = {f.__name__: f for f in (training, chips, image, program, ir)}


@functools.cache
def opened(kind: str) -> Session:
    """One session of each kind for all commands; they take back what they edit."""
    session = SESSIONS[kind]()
    session.compile()
    return session


@pytest.fixture(params=SESSIONS)
def hub(request: pytest.FixtureRequest) -> Hub:
    return hub_of(opened(request.param))


def wordy(page: Page) -> list[str]:
    """The refusals that a page heard."""
    return [str(m.get("text", "")) for m, _ in page.messages if m.get("ok") is False or m["type"] == "refused"]


def questions(hub: Hub) -> Iterator[dict[str, Any]]:
    """Every message that a page may send, with what such a page says in it."""
    op = next(iter(hub.session.result.placement.ops)) if hasattr(hub, "session") else "first.matmul"  # type: ignore[union-attr]
    where = {"op": op, "epoch": 0, "start": 0, "end": 1000, "cycle": 10, "tiles": [[0, 0, 0]], "noc": "both", "ask": 1}
    also: dict[str, list[dict[str, Any]]] = {
        "want": [{"key": key, "index": 0} for key in MAKERS],
        "export": [{"kind": k, "path": f"x{kind.suffix}", "replace": True} for k, kind in EXPORTS.items()],
        "export_plan": [{"kind": k, "path": f"x{kind.suffix}"} for k, kind in EXPORTS.items()],
        "edit": [{"do": "resize", "op": op, "size": [1, 2]}],
        "probe_exact": [{"edit": {"do": "resize", "op": op, "size": [1, 2]}}],
        "step": [{"of": "input"}],
        "profile": [{"edits": True}],
        "hello": [{"have": {}, "inflates": False}],
        "resync": [{"have": {}, "inflates": False}],
        "suggest": [{"n": 2}],
        "optimise": [{"seconds": 1}],
        "go_back": [{"name": "start"}],
    }
    for name in HANDLERS:
        for more in also.get(name, [{}]):
            yield {"type": name, **where, **more}


SILENT = {
    "probe_end",
    "pause",
    "resume",
    "graph",
    "need_tile",
    "need_moment",
    "need_slice",
    "need_flows",
    "need_fills",
    "need_tensor",
    "probe_exact",
    "need_trace",
}
"""They end something, or ask for a part of what is perhaps not there yet; the views wait for the whole first."""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def defects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What threads died of."""
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda a: seen.append(f"{a.exc_type.__name__}: {a.exc_value}"))
    return seen


def test_every_message_is_honoured_or_refused_in_words(hub: Hub, defects: list[str]) -> None:
    for question in questions(hub):
        page = say(hub, **question)
        if hub.busy:
            hub.session.control.resume()
        hub.wait(120)  # raises what the work raised: none is a red "Run failed"
        what = f"{hub.session.name}: {question['type']} {question.get('kind') or question.get('key') or ''}"
        assert defects == [], what
        assert page.messages or question["type"] in SILENT, f"{what} has no answer"
        assert all(len(text) > 12 for text in wordy(page)), what
        hub.session.undo()
        hub.session.compile()


def test_what_is_off_says_why_and_stays_off(hub: Hub) -> None:
    trains = hub.session.options.training is not None
    shown_alone = hub.session is opened("ir")
    assert ("find_error" in hub.off) == (trains or shown_alone) and ("start" in hub.off) == shown_alone
    for what, reason in hub.off.items():
        page = say(hub, type=what)
        assert reason in wordy(page)
        assert not hub.busy
    assert hub.status()["off"] == hub.off


@pytest.mark.parametrize("opener", ["netlist", "image"])
def test_a_file_refuses_what_needs_a_model(opener: str, defects: list[str]) -> None:
    session = opened("chips")
    if opener == "netlist":
        view: Any = open_netlist(session.export_netlist("x.netlist.yaml"))
    else:
        view = open_tti(session.export_tti("x.tti"))
    for question in questions(view.hub):
        page = say(view.hub, **question)
        assert defects == []
        assert page.messages or question["type"] in ("start", "cancel")
        if question["type"] in view.hub.off:
            assert "no model" in wordy(page)[0]
    assert view.static().html


VIEWS = (
    GraphView,
    EpochGrid,
    OpTable,
    MemoryView,
    ClusterView,
    PassStepper,
    RunTrace,
    ProfileView,
    PlotsView,
    DiffView,
    NetlistView,
    OverridesPanel,
    ProblemsView,
    MeasuredView,
)


def test_every_view_has_a_picture_and_the_report_is_written(hub: Hub) -> None:
    for kind in VIEWS:
        assert kind(hub.session).static().html, kind.__name__
    page = report_html(hub.session)
    assert hub.session.name in page


def test_a_batch_of_training_runs_and_is_compared() -> None:
    """A batch of 32 is 32 inputs, each with a loss of its own: the outputs of a run are those losses, per input."""
    session = opened("training")
    (losses,) = session.run()[0]
    assert losses.numel() == 32
    (verdict,) = BringUp(session, start=True).wait(120).comparisons
    assert verdict.name == "loss"
    assert verdict.max_abs < 0.05 * verdict.scale
