"""What is asked while something is dragged: one legal frame, exact answers, what is shown before it is made."""

from __future__ import annotations

import threading

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import ResizeOp
from tbuda_lab.widgets.handlers.session_hub import Hub
from tests.widgets.edit_controller.calls import OP, answer, edits, said
from tests.widgets.talk import Page, say


def test_a_probe_is_answered_by_one_small_frame_that_says_what_legal_says(hub: Hub) -> None:
    page = say(hub, type="probe_begin", op=OP, seq=7)
    assert [m["type"] for m, _ in page.messages] == ["frame"]
    message, buffers = page.messages[0]
    assert len(buffers[0]) + len(str(message)) <= 7 * 1024
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


def test_an_exact_probe_says_what_whatif_says_and_changes_nothing(hub: Hub) -> None:
    session = hub.session
    edit = {"do": "resize", "op": OP, "size": [2, 4]}
    effect = session.whatif(ResizeOp(OP, (2, 4)))
    got = said(say(hub, type="probe_exact", ask=3, edit=edit), "exact")
    assert got["ok"] and got["ask"] == 3
    assert (tuple(got["total_cycles"]), tuple(got["epochs"])) == (effect.total_cycles, effect.epochs)
    assert {d[0]: (tuple(d[3:5]), tuple(d[5:7])) for d in got["displaced"]} == {
        d.op: (d.after.start, d.after.size) for d in effect.displaced
    }
    assert not session.stale and session.overrides == ()
    refused = said(say(hub, type="probe_exact", ask=4, edit={**edit, "size": [3, 5]}), "exact")
    assert not refused["ok"] and OP in refused["text"]


def test_a_newer_probe_silences_an_older_one(hub: Hub) -> None:
    page = Page("none")
    hub.attach(page)
    gate = threading.Event()
    assert hub.edit_controller is not None
    hub.edit_controller.submit(lambda: gate.wait(120) and None)
    for seq, cols in ((1, 2), (2, 4), (3, 8)):
        hub.edit_controller.receive(
            page, {"type": "probe_exact", "ask": seq, "edit": {"do": "resize", "op": OP, "size": [2, cols]}}
        )
    gate.set()
    hub.edit_controller.wait(60)
    assert [m["ask"] for m, _ in page.messages if m["type"] == "exact"] == [3]
    gate.clear()
    hub.edit_controller.submit(lambda: gate.wait(120) and None)
    resize = {"do": "resize", "op": OP, "size": [2, 4]}
    hub.edit_controller.receive(page, {"type": "probe_exact", "ask": 4, "edit": resize})
    hub.edit_controller.receive(page, {"type": "probe_end"})
    gate.set()
    hub.edit_controller.wait(60)
    assert [m["ask"] for m, _ in page.messages if m["type"] == "exact"] == [3], "the drag is over"


def test_a_live_drag_shows_the_placement_before_it_is_made(hub: Hub) -> None:
    session = hub.session
    before, ops = session.result, hub.frame("ops")
    page, other = Page(), Page()
    hub.attach(page)
    hub.attach(other)
    edit = {"do": "resize", "op": OP, "size": [1, 1]}
    hub.edit_controller.receive(page, {"type": "probe_exact", "ask": 1, "edit": edit, "live": True})
    hub.edit_controller.wait(60)
    assert said(page, "exact")["ok"] and edits(hub)["shown"] == f"resize {OP} to 1x1"
    shown = hub.frame("ops")
    assert shown is not ops and session.result is before and not session.overrides and session.history == ()
    assert any(m.get("key") == "ops" for m, _ in other.messages), "every view shows it"
    hub.edit_controller.receive(page, {"type": "probe_end"})
    hub.edit_controller.wait(60)
    assert hub.frame("ops") is ops and "shown" not in edits(hub)
    hub.edit_controller.receive(page, {"type": "probe_exact", "ask": 2, "edit": edit, "live": True})
    hub.edit_controller.wait(60)
    assert answer(say(hub, type="edit", **edit))[0]
    assert hub.frame("ops") is shown and "shown" not in edits(hub), "what was shown is what was made: nothing is sent"
    assert session.result.placement.ops[OP].size == (1, 1) and len(session.history) == 1


def test_without_live_nothing_is_compiled_while_dragging(hub: Hub) -> None:
    runs = hub.session.work
    ops = hub.frame("ops")
    cut = {"do": "break", "op": "second.matmul"}
    hub.edit_controller.receive(page := Page(), {"type": "probe_exact", "ask": 1, "edit": cut})
    hub.edit_controller.wait(60)
    assert said(page, "exact")["ok"] and hub.frame("ops") is ops and "shown" not in edits(hub)
    assert hub.session.work["passes"] == runs["passes"]
