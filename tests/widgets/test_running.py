"""A run as a page sees it: how many messages, how large, pause and steps by message, checks of every op."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.compiler import Clock
from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.protocol import dispatch
from tests.session.models import encoder, perceptron
from tests.session.test_running import TickingClock, until
from tests.widgets.talk import Page


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(1), "n150", name="encoder")
    session.compile()
    return session


def watched(session: Session) -> tuple[Hub, Page]:
    hub, page = Hub(session), Page()
    hub.attach(page)
    return hub, page


def say(hub: Hub, page: Page, **content: Any) -> None:
    dispatch(hub, page, content)


def live(page: Page) -> dict[str, Any]:
    frame = page.frames().get("live")
    return {} if frame is None else frame.meta


def test_a_run_sends_less_than_ten_messages_a_second(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, page = watched(session)
    session.run()
    hub.wait()
    clock = TickingClock()
    monkeypatch.setattr("tbuda_lab.core.session.runs.time", clock)
    monkeypatch.setattr("tbuda_lab.widgets.handlers.session_hub.time", clock)
    page.messages.clear()
    began = clock.now
    session.run([session.sample_inputs] * 150)
    seconds = clock.now - began
    assert seconds > 2.5  # long enough to tell
    assert len(page.messages) <= 10 * seconds
    assert sum(m.get("key") == "live" for m, _ in page.messages) > seconds  # and it is followed
    assert max(sum(map(len, b)) + len(json.dumps(m)) for m, b in page.messages) < 64 * 1024
    assert {m["key"] for m, _ in page.messages if m["type"] == "frame"} == {"live"}
    hub.wait()


def test_a_page_steps_pauses_and_goes_on(session: Session) -> None:
    hub, page = watched(session)
    say(hub, page, type="pause")
    assert not session.control.paused  # nothing runs
    say(hub, page, type="step", of="epoch")
    until(lambda: live(page).get("paused") is True or not hub.busy)
    epochs = len(session.result.placement.epochs)
    if epochs > 1:
        assert live(page)["paused"] and page.frames()["live"].columns["done"].any()
    say(hub, page, type="step", of="nothing")
    say(hub, page, type="resume")
    hub.wait(120)
    frame = page.frames()["live"]
    assert not frame.meta["running"] and frame.columns["done"].tolist() == [1] * len(session.result.placement.ops)
    assert len(page.frames()["queues"].columns["queue_entries"]) == len(frame.columns["level"])


def test_a_run_of_a_cell_that_is_stopped_leaves_the_page_idle(session: Session) -> None:
    hub, page = watched(session)
    session.control.pause()
    runs = threading.Thread(target=_run, args=(session,), daemon=True)
    runs.start()
    until(lambda: session.control.waiting)
    assert page.statuses()[-1]["running"]
    session.cancel()
    runs.join(120)
    last = page.statuses()[-1]
    assert not last["running"]
    assert next(s["state"] for s in last["stages"] if s["name"] == "Run") == "cancelled"
    assert not live(page)["running"]
    hub.wait()


def _run(session: Session) -> None:
    with contextlib.suppress(Cancelled):
        session.run()


def test_a_run_knows_where_on_the_timeline_it_is(session: Session) -> None:
    hub, page = watched(session)
    session.timeline(1)  # kept: what the desk asks for is there at once
    deadline = time.monotonic() + 60
    while live(page).get("cycle") is None and time.monotonic() < deadline:
        session.run([session.sample_inputs] * 3)
    result = session.timeline(1)
    at = result.levels.names.index(live(page)["op"])
    assert live(page)["cycle"] == result.end[at, 0]
    assert live(page)["stalled"] == [s.fork for s in result.stalls if s.critical and s.epoch == live(page)["epoch"]]
    hub.wait()


def test_a_check_tells_every_op_and_a_tensor_tile_by_tile(session: Session) -> None:
    hub, page = watched(session)
    say(hub, page, type="need_tensor", op="x")
    assert "tensor" not in page.frames()
    say(hub, page, type="check_ops")
    hub.wait(120)
    frame = page.frames()["checks"]
    assert set(frame.text("check_op")) == set(session.result.placement.ops)
    assert frame.meta["first"] == "" and frame.columns["check_pcc"].min() > 0.99
    assert set(frame.text("stage_stage")) == {"passed", "lowered"}
    assert set(frame.meta["stages"]) == {"passed", "lowered"} and min(frame.meta["stages"].values()) > 0.9999
    op = frame.text("check_op")[0]
    say(hub, page, type="need_tensor", op=op)
    tensor = page.frames()["tensor"]
    assert np.prod(tensor.meta["tiles"]) == len(tensor.columns["tile"])
    assert tensor.columns["tile"].max() == pytest.approx(frame.columns["check_max_abs"][0], rel=1e-6)


def test_the_first_failure_is_named() -> None:
    session = Session(*perceptron(), "n150")
    result = session.compile()
    hub, page = watched(session)
    runner = Runner(result)
    broken = next(n for n in result.lowered["first.matmul"].sources if n in result.parameters and "weight" in n)
    runner.executor.write(broken, -result.parameters[broken])
    session.verify_ops(runner=runner)
    frame = page.frames()["checks"]
    assert frame.meta["first"] == "first.matmul" and frame.meta["failed"] >= 1
    at = frame.text("check_op").index("first.matmul")
    assert frame.columns["check_pcc"][at] < 0 and frame.columns["check_tile_z"][at] >= 0
    hub.wait()


def test_a_long_stage_says_what_it_does_and_for_how_long() -> None:
    """Every word of the balancer goes to the page; the count ends at the number of ops."""
    session = Session(*perceptron(), "n150", name="mlp")
    told: list[tuple[str, str]] = []
    session.on("detail", lambda stage, text: told.append((stage, text)))
    hub = Hub(session)
    page = Page()
    hub.attach(page)
    session.compile()
    forms = r"call \d+ of a module(, .+)?|pass \d+ of \d+, \w+|op \d+ of \d+|.+, \d+ %"
    assert told[0][0] == "trace" and all(re.fullmatch(forms, text) for _, text in told), told
    running = [s for status in page.statuses() for s in status["stages"] if s["state"] == "running"]
    assert running and all(s["elapsed"] >= 0 for s in running)
    assert not any("elapsed" in s for s in hub.status()["status"]["stages"])


def test_a_stage_stops_between_ops() -> None:
    stop = threading.Event()
    words: list[tuple[str, str]] = []
    clock = Clock(None, stop, lambda *told: words.append(told))
    clock.stop_or_tell("balance", "op 1 of 2")
    stop.set()
    with pytest.raises(Cancelled, match="op 2 of 2"):
        clock.stop_or_tell("balance", "op 2 of 2")
    assert words == [("balance", "op 1 of 2")]
