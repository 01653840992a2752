"""Editing without a page: one legal frame for a drag, commits, refusals, undo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets.hub import Hub
from tbuda_lab.widgets.twins import overrides_html
from tests.session.models import perceptron
from tests.widgets.test_hub import Page

OP = "first.matmul"


@pytest.fixture(scope="module")
def graph() -> tuple[Any, Any]:
    model, inputs = perceptron()
    return Session(model, inputs, "e300").trace(), inputs


@pytest.fixture
def hub(graph: tuple[Any, Any]) -> Hub:
    session = Session(*graph, "e300", name="mlp")
    session.compile()
    return Hub(session)


def ask(hub: Hub, **content: Any) -> Page:
    """A view that says one thing, and what it was told."""
    page = Page()
    hub.attach(page)
    assert hub.desk is not None
    hub.desk.receive(page, content)
    hub.desk.wait(60)
    return page


def answer(page: Page) -> tuple[bool, str]:
    said = [m for m, _ in page.messages if m["type"] == "edited"]
    assert len(said) == 1
    return said[0]["ok"], said[0]["text"]


def edits(hub: Hub) -> dict[str, Any]:
    frame = hub.frame("edits")
    assert frame is not None
    return frame.meta


def test_a_probe_is_answered_by_one_small_frame_that_says_what_legal_says(hub: Hub) -> None:
    page = ask(hub, type="probe_begin", op=OP, seq=7)
    assert [m["type"] for m, _ in page.messages] == ["frame"]
    message, buffers = page.messages[0]
    assert len(buffers[0]) + len(str(message)) <= 6 * 1024
    frame = Frame.unpack(message["header"], buffers[0])
    table = hub.session.legal(OP)
    assert (frame.meta["op"], frame.meta["seq"], frame.meta["grid"]) == (OP, 7, list(table.grid))
    shape = table.shapes.shape
    for name in ("verdict", "cycles", "epoch_cycles", "l1_bytes", "cores"):
        np.testing.assert_array_equal(frame.columns[name].reshape(shape), table.shapes[name])
    masks = frame.columns["anchors"].reshape(table.anchors.shape)
    assert [(y, x) for y in range(shape[0]) for x in range(shape[1]) if masks[1, 3, y] >> x & 1] == table.starts(2, 4)
    assert set(np.unique(frame.columns["verdict"])) - {0} == {int(k) for k in frame.meta["reasons"]}
    assert hub.frame("legal") is None, "an answer is not kept"


def test_a_resize_is_committed_compiled_and_one_undo_step(hub: Hub) -> None:
    session = hub.session
    before = session.result.placement.ops[OP].size
    page = ask(hub, type="edit", do="resize", op=OP, size=[2, 4])
    ok, text = answer(page)
    assert ok and text.startswith(f"resize {OP} to 2x4")
    assert session.result.placement.ops[OP].size == (2, 4)
    ops = page.frames()["ops"]
    at = ops.text("op_name").index(OP)
    assert (ops.columns["op_rows"][at], ops.columns["op_cols"][at]) == (2, 4)
    said = edits(hub)
    assert (said["undo"], said["redo"], said["stale"], said["busy"]) == (f"resize {OP} to 2x4", "", False, False)
    assert [(r["target"], r["field"], r["requested"], r["obtained"], r["state"]) for r in said["overrides"]] == [
        (OP, "op_size", "2x4", "2x4", "obtained")
    ]
    assert said["overrides"][0]["python"] == f"pybuda.config.override_op_size({OP!r}, (2, 4))"
    assert answer(ask(hub, type="undo"))[0]
    assert session.result.placement.ops[OP].size == before
    assert edits(hub)["overrides"] == [] and edits(hub)["redo"] == f"resize {OP} to 2x4"
    assert answer(ask(hub, type="redo"))[0]
    assert session.result.placement.ops[OP].size == (2, 4)


def test_a_refused_edit_changes_nothing_and_says_why(hub: Hub) -> None:
    session = hub.session
    before = session.result
    ok, text = answer(ask(hub, type="edit", do="resize", op=OP, size=[3, 5]))
    assert not ok and OP in text
    assert session.result is before and not session.stale and session.overrides == () and session.future == ()
    for nonsense in ({"do": "resize", "op": OP, "size": ["a", 1]}, {"do": "fly", "op": OP}, {"do": "break"}):
        assert not answer(ask(hub, type="edit", **nonsense))[0]
    assert not answer(ask(hub, type="probe_begin", op="nobody", seq=1))[0]
    assert answer(ask(hub, type="undo")) == (False, "There is nothing to undo.")


def test_move_break_and_clear(hub: Hub) -> None:
    session = hub.session
    start = next(s for s in reversed(session.legal(OP).starts(*session.legal(OP).grid)) if s != (0, 0))
    assert answer(ask(hub, type="edit", do="move", op=OP, start=list(start)))[0]
    assert session.result.placement.ops[OP].start == start
    assert answer(ask(hub, type="edit", do="break", op="second.matmul"))[0]
    assert len(session.result.placement.epochs) == 2
    assert answer(ask(hub, type="edit", do="clear", op="second.matmul"))[0]
    assert len(session.result.placement.epochs) == 1
    pin = edits(hub)["overrides"]
    assert [r["field"] for r in pin] == ["op_placement"]
    assert pin[0]["requested"] == pin[0]["obtained"] == f"start {start[0]}, {start[1]}"
    steps = len(session.history)
    for needless in ({"do": "clear", "op": "second.matmul"}, {"do": "move", "op": OP, "start": list(start)}):
        assert not answer(ask(hub, type="edit", **needless))[0]
    assert len(session.history) == steps


def test_what_the_static_twin_says(hub: Hub) -> None:
    assert answer(ask(hub, type="edit", do="resize", op=OP, size=[2, 4]))[0]
    html = overrides_html(hub.frames)
    assert "<td>2x4</td><td>2x4</td><td>obtained</td>" in html and overrides_html({}) == "<p>no overrides</p>"


def test_an_edit_in_a_cell_is_seen_at_once(hub: Hub) -> None:
    page = Page("edits")
    hub.attach(page)
    hub.session.apply(ResizeOp(OP, (2, 2)))
    assert edits(hub)["stale"] and edits(hub)["overrides"][0]["state"] == "pending"
    hub.session.compile()
    assert not edits(hub)["stale"] and edits(hub)["overrides"][0]["state"] == "obtained"
    assert 2 <= sum(m["type"] == "frame" for m, _ in page.messages) <= 3
