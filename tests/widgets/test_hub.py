"""The hub without a page: which messages go out, how many, how large, and what a view may ask."""

from __future__ import annotations

import json
import threading
import time
import zlib
from typing import Any

import pytest

from tbuda_lab.core.errors import Cancelled, Diagnostic, PlacementError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp, protocol
from tbuda_lab.widgets.handlers import session_hub as hubs
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of
from tbuda_lab.widgets.protocol import HANDLERS, StatusBoard
from tests.session.models import encoder, perceptron
from tests.widgets.synthetic import FakeSession, result
from tests.widgets.talk import Page


def attached(session: FakeSession, *keys: str) -> tuple[Hub, Page]:
    hub = Hub(session)  # type: ignore[arg-type]
    page = Page(*keys)
    hub.attach(page)
    return hub, page


def test_a_run_ends_with_every_frame_and_all_stages_done() -> None:
    hub, page = attached(FakeSession())
    hub.start()
    hub.wait(120)
    graphs = {"graph:traced", "graph:passed", "graph:lowered"}
    assert set(page.frames()) == graphs | {"summary", "problems", "ops", "netlist", "edits"}
    last = page.statuses()[-1]
    assert not last["running"] and [s["state"] for s in last["stages"]] == ["done"] * 9
    assert page.frames()["summary"].meta["pcc"] == pytest.approx(0.9991)
    assert page.frames()["problems"].text("where")[0] == "layer.0.intermediate.gelu_0"


def test_a_view_that_hears_the_end_may_ask_at_once() -> None:
    hub = Hub(FakeSession())  # type: ignore[arg-type]
    busy: list[tuple[bool, bool]] = []

    class Eager(Page):
        def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
            if message["type"] == "status":
                busy.append((message["status"]["running"], hub.busy))

    page = Eager()
    hub.attach(page)
    hub.start()
    hub.wait(120)
    assert busy[0] == (True, True) and busy[-1] == (False, False)


def test_the_traced_graph_comes_before_the_rest() -> None:
    session = FakeSession()
    hub, page = attached(session)
    session.on("stage", lambda name, fraction: session.gate.clear() if (name, fraction) == ("passes", 0.0) else None)
    hub.start()
    deadline = time.monotonic() + 60
    while "graph:traced" not in page.frames() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "graph:traced" in page.frames() and "ops" not in page.frames()
    session.gate.set()
    hub.wait(120)
    assert "ops" in page.frames()


def test_progress_is_told_at_most_ten_times_a_second() -> None:
    hub, page = attached(FakeSession())
    start = time.monotonic()
    hub.start()
    hub.wait(120)
    elapsed = time.monotonic() - start
    steps = 2 * 9 + 2  # every stage starts and ends, and so does the work
    assert len(page.statuses()) <= steps + elapsed / hubs.STATUS_INTERVAL + 1


def test_chunks_stay_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CHUNK", 1000)
    session = FakeSession()
    hub, page = attached(session, "netlist")
    session.compile()
    sizes = [len(b[0]) for m, b in page.messages if m["type"] == "frame"]
    assert len(sizes) > 5 and max(sizes) <= 1000
    assert page.frames()["netlist"].pack() == hub.frames["netlist"].pack()


def test_a_page_that_inflates_gets_the_same_frames_smaller() -> None:
    session = FakeSession()
    hub, page = attached(session, "netlist")
    HANDLERS["hello"](hub, page, {"type": "hello", "have": {}, "inflates": True})
    session.compile()
    ((message, (data,)),) = [m for m in page.messages if m[0]["type"] == "frame"]
    assert message["deflated"] is True and "header" not in message
    whole = zlib.decompress(data)
    length = int.from_bytes(whole[:4], "little")
    header = json.loads(whole[4 : 4 + length])
    got = Frame.unpack(header, whole[-(-(4 + length) // 8) * 8 :])
    header, buffer = hub.frames["netlist"].pack()
    assert got.pack() == (header, buffer)
    assert len(data) < len(buffer) / 5
    page.messages.clear()
    HANDLERS["hello"](hub, page, {"type": "hello", "have": {}, "inflates": False})
    assert page.frames()["netlist"].pack() == (header, buffer)


def test_a_view_gets_what_it_shows_and_only_what_is_newer() -> None:
    session = FakeSession()
    hub, page = attached(session, "ops")
    session.compile()
    assert set(page.frames()) == {"ops"}
    rev = next(m["rev"] for m, _ in page.messages if m["type"] == "frame")
    page.messages.clear()
    hub.bring_up_to_date(page, {"ops": rev})
    assert [m["type"] for m, _ in page.messages] == ["status"]
    hub.bring_up_to_date(page, {})
    assert "ops" in page.frames()


def test_cancel_keeps_what_was_shown() -> None:
    session = FakeSession()
    hub, page = attached(session)
    session.gate.clear()
    hub.start()
    assert hub.busy
    hub.cancel()
    with pytest.raises(Cancelled):
        hub.wait(120)
    last = page.statuses()[-1]
    assert last["message"] == "Cancelled" and not last["failed"]
    assert [s["state"] for s in last["stages"]].count("cancelled") == 1


class _Between(FakeSession):
    """Its views ask for an end just when the compile is over; like a session, a run forgets what was asked before."""

    def __init__(self) -> None:
        super().__init__()
        self.hub: Hub | None = None
        self.steps = 0

    def compile(self) -> Any:
        compiled = super().compile()
        assert self.hub is not None
        self.hub.cancel()
        return compiled

    def run(self, steps: int = 500) -> list[Any]:
        self.cancelled.clear()
        self.events.emit("stage", "run", 0.0)
        for self.steps in range(steps):
            if self.cancelled.is_set():
                raise Cancelled("cancelled in the run")
        return []


@pytest.mark.parametrize("own", [False, True])
def test_a_cancel_between_compile_and_run_ends_the_work(own: bool) -> None:
    session = _Between()
    hub, page = attached(session)
    session.hub = hub
    hub.own_run = session.run if own else None
    hub.start()
    with pytest.raises(Cancelled):
        hub.wait(120)
    assert session.steps == 0 and hub.comparisons == []
    told = next(s for s in page.statuses() if s["running"] and not s["cancellable"])
    assert told["message"].startswith("Cancelling")
    last = page.statuses()[-1]
    assert last["message"] == "Cancelled" and not last["failed"] and not last["cancellable"]


def test_a_cancel_before_a_step_has_begun_reaches_it() -> None:
    """A step that takes an older request for one that was meant for other work is told again."""
    session = FakeSession()
    hub, _ = attached(session)

    def late() -> list[Any]:
        hub.cancel()
        session.cancelled.clear()  # as a run does with what was asked before it
        session.events.emit("stage", "run", 0.0)
        if session.cancelled.is_set():
            raise Cancelled("cancelled in the run")
        return []

    hub.own_run = late
    hub.start()
    with pytest.raises(Cancelled):
        hub.wait(120)


def test_a_compile_in_the_background_that_is_cancelled_is_seen_to_end() -> None:
    """A cell began it, so nobody but the session knows of its end."""
    session = Session(*encoder(2), "n150", name="encoder")
    hub = hub_of(session)
    page = Page()
    hub.attach(page)
    seen = threading.Event()
    session.on("stage", lambda *_: (seen.set(), hub.cancel()))
    session.compile_async().join(120)
    assert seen.is_set()
    last = page.statuses()[-1]
    assert not last["running"] and last["message"] == "Cancelled"
    with pytest.raises(Cancelled):
        session.wait(1)


def test_a_failure_is_shown_and_raised() -> None:
    finding = Diagnostic("error", "softmax", "l1", "needs 3 MB", "use a larger grid")
    why = PlacementError("softmax does not fit", [finding])
    hub, page = attached(FakeSession(fail=why))
    hub.start()
    with pytest.raises(PlacementError):
        hub.wait(120)
    last = page.statuses()[-1]
    assert last["failed"] and last["message"] == "softmax does not fit"
    assert {s["name"]: s["state"] for s in last["stages"]}["Place"] == "failed"
    assert page.frames()["problems"].text("fix") == ["use a larger grid"]


def test_work_done_in_a_cell_is_shown_too() -> None:
    session = FakeSession()
    hub, page = attached(session)
    session.compile()
    assert not page.statuses()[-1]["running"]
    session.run()
    states = {s["name"]: s["state"] for s in page.statuses()[-1]["stages"]}
    assert states["Check"] == "done" and states["Run"] == "done" and states["Verify"] == "pending"
    assert page.statuses()[-1]["message"] == "", "the count of inputs belongs to a run that goes"
    verified = session.verify()
    states = {s["name"]: s["state"] for s in page.statuses()[-1]["stages"]}
    assert states["Verify"] == "done" and hub.comparisons == verified
    assert page.frames()["summary"].meta["pcc"] == pytest.approx(0.9991)


def test_all_stages_of_a_session_that_is_compiled_are_done_whenever_that_was() -> None:
    """Passes and lowering that somebody's question began have no time in the compile."""
    session = FakeSession()
    session.compile()
    del session.timings["passes"], session.timings["lower"]
    stages = Hub(session).status()["status"]["stages"]  # type: ignore[arg-type]
    assert [s["state"] for s in stages] == ["done"] * 7 + ["pending"] * 2
    assert [s["seconds"] for s in stages[:4]] == [0.01, None, None, 0.01]


def test_stages_say_verified_of_the_placement_that_was() -> None:
    """A placement that comes from before, as by undo in a cell, brings its own stages along."""
    session = FakeSession()
    hub, page = attached(session)
    hub.start()
    hub.wait(120)
    first, other = session.result, FakeSession(result(1)).compile()

    def shown(compiled: Any) -> tuple[str, str, bool]:
        session.result = compiled
        session.events.emit("compiled", compiled)
        states = {s["name"]: s["state"] for s in page.statuses()[-1]["stages"]}
        return states["Check"], states["Verify"], "pcc" in page.frames()["summary"].meta

    assert shown(other) == ("done", "pending", False)
    assert shown(first) == ("done", "done", True)
    hub.on_edit()  # by a gesture that changed nothing in the end
    assert {s["name"]: s["state"] for s in page.statuses()[-1]["stages"]}["Verify"] == "done"


def test_selection_reaches_every_view_once() -> None:
    hub, first = attached(FakeSession())
    second = Page()
    hub.attach(second)
    heard: list[tuple[str, ...]] = []
    hub.on_selected(heard.append)
    hub.select(["a"], "graph")
    hub.select(["a"], "echo")
    assert first.selection == second.selection == {"kind": "op", "names": ["a"], "source": "graph"}
    assert heard == [("a",)]


def test_one_hub_per_session() -> None:
    session = FakeSession()
    assert hub_of(session) is hub_of(session)  # type: ignore[arg-type]
    assert hub_of(FakeSession()) is not hub_of(session)  # type: ignore[arg-type]


def test_stage_times_are_those_of_the_first_end() -> None:
    board = StatusBoard(("place",))
    board.begin()
    for fraction, clock in ((0.0, 1.0), (0.0, 1.5), (0.5, 2.0), (1.0, 4.0), (1.0, 9.0)):
        board.step("place", fraction, clock)
    assert board.message()["stages"][0]["seconds"] == 3.0


def test_a_stage_that_is_made_twice_by_one_work_has_the_time_of_both() -> None:
    """A model is placed once for every way of fusing that is tried."""
    board = StatusBoard(("place", "check"))
    board.done("place", 100.0)
    board.begin()
    for fraction, clock in ((0.0, 1.0), (1.0, 4.0), (0.0, 5.0), (1.0, 7.0), (0.0, 7.0), (1.0, 7.0)):
        board.step("place", fraction, clock)
    assert board.message()["stages"][0]["seconds"] == 5.0
    board.begin("place")
    board.step("place", 0.0, 10.0)
    board.step("place", 1.0, 11.0)
    assert board.message()["stages"][0]["seconds"] == 1.0


def test_progress_never_runs_backwards_within_a_work() -> None:
    """A model is placed more than once to decide on fusing: what was reached stays reached."""
    board = StatusBoard(("balance", "place", "run"))
    board.begin()
    steps = [
        ("balance", 0.5),
        ("balance", 1.0),
        ("place", 0.0),
        ("place", 0.8),
        ("place", 1.0),
        ("balance", 0.0),
        ("balance", 1.0),
        ("place", 0.0),
        ("place", 0.5),
        ("place", 1.0),
        ("run", 0.0),
        ("run", 1.0),
    ]
    shown = []
    for name, fraction in steps:
        board.step(name, fraction)
        shown.append(board.message()["done"])
    assert shown == sorted(shown) and shown[-1] == 3.0
    board.begin()
    assert board.message()["done"] == 0.0


def test_numbers_of_placing_never_go_down_within_a_compile() -> None:
    """A model is begun to be placed once for every way of fusing that is tried: only what is made once has a number."""
    session = Session(*encoder(3), "n150", cache=False)
    told: list[str] = []
    session.on("detail", lambda stage, text: told.append(text) if stage == "place" else None)
    session.compile()
    shares = [int(text.split()[-2]) for text in told if text.endswith("%")]
    assert any("choosing epochs" in text for text in told)
    assert shares and shares == sorted(shares), told


def test_what_fails_between_two_stages_has_a_red_stage() -> None:
    """An override that is refused before candidates are made."""
    board = StatusBoard(("trace", "passes", "balance"))
    board.begin()
    board.step("trace", 0.0)
    board.step("trace", 1.0)
    board.end("no grid of 9x9")
    message = board.message()
    assert [s["state"] for s in message["stages"]] == ["done", "failed", "pending"]
    assert message["failed"] and message["stages"][1]["detail"] == "no grid of 9x9"


@pytest.mark.parametrize("others", [(), ("list",), ("page",), ("page", "list")])
def test_with_the_last_view_the_work_ends(others: tuple[str, ...]) -> None:
    """A list of sessions shows nothing of one; another page does."""
    session = FakeSession()
    hub, page = attached(session)
    rest = [Page() for _ in others]
    for other, what in zip(rest, others, strict=True):
        other.lists_only = what == "list"  # type: ignore[attr-defined]
        hub.attach(other)
    reached = threading.Event()

    def stop_there(name: str, fraction: float) -> None:
        if (name, fraction) == ("passes", 0.0):
            session.gate.clear()
            reached.set()

    session.on("stage", stop_there)
    hub.start()
    assert reached.wait(60)
    asked: list[str] = []
    hub.edit_controller.submit(lambda: (session.gate.wait(60), asked.append("first"))[0])  # type: ignore[union-attr]
    hub.edit_controller.submit(lambda: asked.append("second"))  # type: ignore[union-attr]
    hub.leave(page)
    session.gate.set()
    hub.edit_controller.wait(60)  # type: ignore[union-attr]
    if "page" in others:
        hub.wait(60)
        assert asked == ["first", "second"]
        return
    with pytest.raises(Cancelled):
        hub.wait(60)
    assert "second" not in asked and not hub.busy


def test_closed_workbenches_leave_no_work_behind() -> None:
    before = threading.active_count()
    for _ in range(3):
        view = BringUp(*perceptron(), device="n150")
        hub = view.hub
        view.close()
        view.close()
        assert not hub.busy and not hub.views
        with pytest.raises(Cancelled):
            hub.wait(60)
    assert threading.active_count() <= before
