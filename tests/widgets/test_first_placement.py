"""The first placement: shown while a better one is searched, edited at once, kept on demand."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tbuda_lab.core.compiler.pipeline import Pipeline
from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.session import Session
from tbuda_lab.core.session import compiles as session_compiles
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of
from tests.session.models import encoder
from tests.widgets.talk import say


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Compiles with the session's own options wait until it is set, or they are cancelled."""
    opened, compile_ = threading.Event(), Pipeline.compile
    monkeypatch.setattr(session_compiles, "FIRST_NODES", 10)

    def slow(self: Pipeline, graph: Any, request: Any, clock: Any) -> Any:
        while request.options.enable_auto_fusing and not opened.wait(0.02):
            if clock.cancel is not None and clock.cancel.is_set():
                raise Cancelled("cancelled while searching")
        return compile_(self, graph, request, clock)

    monkeypatch.setattr(Pipeline, "compile", slow)
    return opened


@pytest.fixture
def hub(gate: threading.Event) -> Hub:
    hub = hub_of(Session(*encoder(1), "n150", name="encoder", cache=False))
    first = threading.Event()
    session_ops = hub.publish

    def publish(frames: list[Any]) -> None:
        session_ops(frames)
        if hub.edit_controller is not None and hub.edit_controller.first:
            first.set()

    hub.publish = publish  # type: ignore[method-assign]
    hub.start(verify=False, run=False)
    assert first.wait(60)
    return hub


def test_it_is_shown_and_gives_way_to_what_the_search_finds(hub: Hub, gate: threading.Event) -> None:
    first = hub.frame("ops")
    assert hub.busy and hub.frame("edits").meta["first"] and hub.session.result is None
    assert hub.frame("netlist") is None, "there is no more of it than where the ops stand"
    gate.set()
    hub.wait(60)
    assert "first" not in hub.frame("edits").meta and hub.frame("ops") is not first
    assert not hub.session.history and hub.session.options.enable_auto_fusing
    assert all(stage.state == "done" for name, stage in hub.board.stages.items() if name not in ("run", "verify"))
    assert hub.session.time().per_input < first.meta["time"]


def test_an_edit_keeps_it_and_ends_the_search(hub: Hub, gate: threading.Event) -> None:
    session, frame = hub.session, hub.frame("ops")
    op = next(
        name
        for name, rows, cols in zip(
            frame.text("op_name"), frame.columns["op_rows"], frame.columns["op_cols"], strict=True
        )
        if rows * cols > 1
    )
    page = say(hub, type="edit", do="resize", op=op, size=[1, 1])
    hub.edit_controller.wait(60)
    assert not hub.busy and [s.source for s in session.history] == ["page", "page"]
    assert session.history[0].label == "keep the first placement"
    assert session.result.placement.ops[op].size == (1, 1) and not session.stale
    others = {n: p.start for n, p in session.result.placement.ops.items()}
    shown = dict(
        zip(frame.text("op_name"), zip(frame.columns["op_row"], frame.columns["op_col"], strict=True), strict=True)
    )
    assert set(others) == set(shown), "the ops of the first placement, not those of the search"
    assert page.messages
    session.undo()
    session.undo()
    gate.set()
    assert session.compile().options.enable_auto_fusing


def test_keep_this_one(hub: Hub) -> None:
    say(hub, type="keep_first")
    hub.edit_controller.wait(60)
    assert not hub.busy and not hub.session.options.enable_auto_fusing
    assert hub.frame("ops").meta["time"] == hub.session.time().per_input
    again = say(hub, type="keep_first")
    hub.edit_controller.wait(60)
    assert again.messages, "there is no first placement any more: it says so"
