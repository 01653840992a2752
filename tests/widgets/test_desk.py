"""Editing without a page: one legal frame for a drag, commits, refusals, undo."""

from __future__ import annotations

import base64
import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.options import Override
from tbuda_lab.core.session import ClearOp, Constrain, EpochBreak, ResizeOp, Session, SetOverride, SetUkt, StreamOp
from tbuda_lab.core.session.exports import overrides_text
from tbuda_lab.core.session.graphedits import InsertNop
from tbuda_lab.core.session.temporal import state_after
from tbuda_lab.widgets import asking, exporting
from tbuda_lab.widgets.edits import commands_of, message_of
from tbuda_lab.widgets.hub import Hub
from tbuda_lab.widgets.messages import HANDLERS
from tbuda_lab.widgets.twins import overrides_html
from tests.session.models import perceptron
from tests.widgets.test_hub import Page

OP = "first.matmul"
ROOMS = (asking, exporting)  # importing them registers who answers


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


def test_an_edit_may_wait_for_a_word_to_compile(hub: Hub) -> None:
    session = hub.session
    before = session.result
    for size in ((2, 4), (2, 2)):
        ok, text = answer(ask(hub, type="edit", do="resize", op=OP, size=list(size), compile="manual"))
        assert ok and "not compiled" in text
    assert session.result is before and session.stale and edits(hub)["stale"] and len(session.history) == 2
    assert not answer(ask(hub, type="edit", do="resize", op=OP, size=[3, 5], compile="manual"))[0]
    assert answer(ask(hub, type="recompile"))[0]
    assert session.result.placement.ops[OP].size == (2, 2) and not edits(hub)["stale"]
    assert not answer(ask(hub, type="recompile"))[0], "nothing to compile"


def said(page: Page, kind: str) -> dict[str, Any]:
    found = [m for m, _ in page.messages if m["type"] == kind]
    assert len(found) == 1
    return found[0]


def tell(hub: Hub, **content: Any) -> Page:
    """Like `ask`, by the way that messages of a page take."""
    page = Page("none")
    hub.attach(page)
    HANDLERS[content["type"]](hub, page, content)
    assert hub.desk is not None
    hub.desk.wait(60)
    return page


def test_an_exact_probe_says_what_whatif_says_and_changes_nothing(hub: Hub) -> None:
    session = hub.session
    edit = {"do": "resize", "op": OP, "size": [2, 4]}
    effect = session.whatif(ResizeOp(OP, (2, 4)))
    got = said(tell(hub, type="probe_exact", ask=3, edit=edit), "exact")
    assert got["ok"] and got["ask"] == 3
    assert (tuple(got["total_cycles"]), tuple(got["epochs"])) == (effect.total_cycles, effect.epochs)
    assert {d[0]: (tuple(d[3:5]), tuple(d[5:7])) for d in got["displaced"]} == {
        d.op: (d.after.start, d.after.size) for d in effect.displaced
    }
    assert not session.stale and session.overrides == ()
    refused = said(tell(hub, type="probe_exact", ask=4, edit={**edit, "size": [3, 5]}), "exact")
    assert not refused["ok"] and OP in refused["text"]


def test_a_newer_probe_silences_an_older_one(hub: Hub) -> None:
    page = Page("none")
    hub.attach(page)
    gate = threading.Event()
    assert hub.desk is not None
    hub.desk.submit(lambda: gate.wait(30) and None)
    for seq, cols in ((1, 2), (2, 4), (3, 8)):
        hub.desk.receive(
            page, {"type": "probe_exact", "ask": seq, "edit": {"do": "resize", "op": OP, "size": [2, cols]}}
        )
    gate.set()
    hub.desk.wait(60)
    assert [m["ask"] for m, _ in page.messages if m["type"] == "exact"] == [3]
    hub.desk.submit(lambda: gate.wait(30) and None)
    gate.clear()
    hub.desk.receive(page, {"type": "probe_exact", "ask": 4, "edit": {"do": "resize", "op": OP, "size": [2, 4]}})
    hub.desk.receive(page, {"type": "probe_end"})
    gate.set()
    hub.desk.wait(60)
    assert [m["ask"] for m, _ in page.messages if m["type"] == "exact"] == [3], "the drag is over"


def test_a_gesture_of_many_edits_is_one_undo_step(hub: Hub) -> None:
    session = hub.session
    table = session.legal(OP)
    start = next(s for s in reversed(table.starts(*table.grid)) if s != table.start)
    edits_ = [{"do": "move", "op": OP, "start": list(start)}, {"do": "u_kt", "op": OP, "value": 1}]
    steps = len(session.history)
    ok, text = answer(ask(hub, type="edit", do="many", edits=edits_, label="move 2 things"))
    assert ok and text.startswith("move 2 things:")
    assert len(session.history) == steps + 1 and edits(hub)["undo"] == "move 2 things"
    assert {o.kind for o in session.overrides} == {"op_placement", "u_kt"}
    assert answer(ask(hub, type="undo"))[0]
    assert session.overrides == ()
    for wrong in ([], [{"do": "many", "edits": edits_}], [{"do": "move", "op": OP}], "x", [1]):
        assert not answer(ask(hub, type="edit", do="many", edits=wrong))[0]
    assert session.overrides == () and session.future != ()


def test_an_op_goes_to_another_epoch_and_back(hub: Hub) -> None:
    session = hub.session
    order = session.placed().problem.order
    assert answer(ask(hub, type="edit", do="break", op=order[-1]))[0]
    assert [len(e.ops) for e in session.result.placement.epochs] == [len(order) - 1, 1]
    assert answer(ask(hub, type="edit", do="epoch", op=order[-2], epoch=1))[0]
    assert [len(e.ops) for e in session.result.placement.epochs] == [len(order) - 2, 2]
    assert [o.target for o in session.overrides] == [order[-2]]
    assert answer(ask(hub, type="edit", do="epoch", op=order[-2], epoch=0))[0]
    assert [len(e.ops) for e in session.result.placement.epochs] == [len(order) - 1, 1]
    ok, text = answer(ask(hub, type="edit", do="epoch", op=OP, epoch=7))
    assert not ok and "epoch 7" in text


def test_a_chip_and_the_edges_of_an_op(graph: tuple[Any, Any]) -> None:
    session = Session(*graph, "n300", name="mlp")
    session.compile()
    hub = Hub(session)
    assert answer(ask(hub, type="edit", do="chip", op=OP, chip=1))[0]
    assert session.result.placement.ops[OP].chip == 1
    assert not answer(ask(hub, type="edit", do="chip", op=OP, chip=7))[0]
    assert answer(ask(hub, type="undo"))[0]
    before = set(session.result.placement.ops)
    assert answer(ask(hub, type="edit", do="nop", op=OP, to="second.matmul"))[0]
    assert before < set(session.result.placement.ops)
    assert answer(ask(hub, type="undo"))[0]
    assert set(session.result.placement.ops) == before
    assert answer(ask(hub, type="edit", do="queue", op=OP, to="second.matmul"))[0]
    ops = session.result.placement.ops
    assert ops[OP].epoch < ops["second.matmul"].epoch, "a queue is read in a later epoch"
    assert not answer(ask(hub, type="edit", do="nop", op=OP, to="nobody"))[0]
    assert not answer(ask(hub, type="edit", do="queue", op=OP))[0]


def test_where_a_break_could_stand(hub: Hub) -> None:
    session = hub.session
    order = session.placed().problem.order
    assert answer(ask(hub, type="edit", do="break", op=order[1]))[0]
    page = tell(hub, type="break_stops", op=order[1], ask=5)
    parts = [m for m, _ in page.messages if m["type"] == "break_stops"]
    assert parts[-1]["done"] and all(p["ask"] == 5 for p in parts)
    found = {s[0]: s[1:] for p in parts for s in p["stops"]}
    assert next(iter(found)) == order[1] and set(found) == set(order[1:])
    for name in order[1:]:
        twin = Session(session.trace(), session.sample_inputs, session.device, overrides=[])
        twin.compile()
        twin.apply(EpochBreak(name))
        cycles = twin.placed().limiter_cycles
        assert found[name] == [len(cycles), max(cycles), sum(cycles), ""]
    assert answer(ask(hub, type="edit", do="shift_break", op=order[1], to=order[-1]))[0]
    assert session.result.placement.epochs[1].ops == (order[-1],)


def test_an_override_is_switched_off_and_on(hub: Hub) -> None:
    session = hub.session
    before = session.result.placement.ops[OP].size
    assert answer(ask(hub, type="edit", do="resize", op=OP, size=[2, 4]))[0]
    assert edits(hub)["overrides"][0]["source"] == "drag" and edits(hub)["overrides"][0]["enabled"]
    assert answer(ask(hub, type="edit", do="switch", op=OP, kinds=["op_size"], on=False))[0]
    assert session.overrides == () and session.result.placement.ops[OP].size == before
    off = edits(hub)["overrides"]
    assert [(r["state"], r["requested"], r["enabled"], r["source"]) for r in off] == [("off", "2x4", False, "drag")]
    assert answer(ask(hub, type="edit", do="switch", op=OP, kinds=["op_size"], on=True))[0]
    assert session.result.placement.ops[OP].size == (2, 4) and [r["enabled"] for r in edits(hub)["overrides"]] == [True]
    assert answer(ask(hub, type="undo"))[0]
    assert [r["state"] for r in edits(hub)["overrides"]] == ["off"]
    assert answer(ask(hub, type="edit", do="resize", op=OP, size=[2, 2]))[0]
    assert [r["requested"] for r in edits(hub)["overrides"]] == ["2x2"], "a new one takes the place of the old"
    assert not answer(ask(hub, type="edit", do="switch", op=OP, kinds=["op_size"], on=True))[0]


def test_gains_choices_why_and_suggestions_are_those_of_the_session(hub: Hub) -> None:
    session = hub.session
    why = said(tell(hub, type="why", op=OP), "why")
    reasons = session.why(OP)
    assert why["ok"] and (why["grid"], why["cycles"], why["text"]) == (list(reasons.grid), reasons.cycles, reasons.text)
    assert [a["grid"] for a in why["next_best"]] == [list(a.grid) for a in reasons.next_best]
    assert why["next_best"][0]["edit"]["do"] == "resize" and "with the whole model" in why["picked"]
    assert not said(tell(hub, type="why", op="nobody"), "why")["ok"]
    choices = said(tell(hub, type="choices", op=OP), "choices")
    assert choices["ok"] and choices["now"]["u_kt"] in [v for v, _ in choices["u_kt"]]
    for value, cycles in choices["u_kt"]:
        row = (
            session.placed(state_after(session, SetUkt(OP, value), ResizeOp(OP, reasons.grid)))
            .placement()
            .candidate(OP)
        )
        assert (int(row["u_kt"]), int(row["cycles"])) == (value, cycles)
    assert answer(ask(hub, type="edit", do="resize", op=OP, size=[1, 1]))[0]
    assert "one you asked for" in said(tell(hub, type="why", op=OP), "why")["picked"]
    gains = said(tell(hub, type="gains"), "gains")["gains"]
    assert gains == [["op_size", OP, -session.whatif(ClearOp(OP, ("op_size",))).gain]] and gains[0][2] < 0
    hints = said(tell(hub, type="suggest", n=3), "suggest")["list"]
    wanted = session.suggest(3)
    assert [h["gain"] for h in hints] == [s.gain for s in wanted] and hints[0]["gain"] > 0
    assert {h["kind"] for h in hints} == {"free", "resize"}, "the override that slows it down may also go"
    hint = next(h for h in hints if h["kind"] == "resize")
    total = hint["total_cycles"]
    assert answer(ask(hub, type="edit", do="many", edits=hint["edits"], label=hint["label"]))[0]
    assert sum(session.placed().limiter_cycles) == total[1]
    code = said(tell(hub, type="code"), "code")
    assert session.to_python() in code["python"] and json.loads(code["json"])["overrides"]


def test_exports_are_planned_written_and_not_written_over(hub: Hub, tmp_path: Path) -> None:
    kinds = said(tell(hub, type="exports"), "exports")["kinds"]
    assert {"netlist", "overrides", "table", "trace", "report", "image"} <= {k["name"] for k in kinds}
    path = tmp_path / "a.py"
    asked = {"kind": "overrides", "path": str(path), "settings": {}}
    plan = said(tell(hub, type="export_plan", ask=1, **asked), "export_plan")
    assert plan["ok"] and "tbuda export overrides" in plan["cli"] and repr(str(path)) in plan["python"]
    assert not path.exists()
    assert said(tell(hub, type="export", **asked), "exported")["ok"]
    first = path.read_text()
    again = said(tell(hub, type="export", **asked), "exported")
    assert not again["ok"] and again["exists"] and path.read_text() == first
    assert said(tell(hub, type="export", replace=True, **asked), "exported")["ok"]
    for wrong in (
        {"kind": "rocket"},
        {"kind": "overrides", "settings": {"form": "xml"}},
        {"kind": "table", "path": " "},
    ):
        assert not said(tell(hub, type="export_plan", **wrong), "export_plan")["ok"]
    nowhere = {"kind": "overrides", "path": str(tmp_path / "no" / "a.py"), "settings": {}}
    assert not said(tell(hub, type="export", **nowhere), "exported")["ok"]


def test_a_picture_of_the_page_is_put_together_and_checked(hub: Hub, tmp_path: Path) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3
    path = tmp_path / "a.png"
    page = Page("none")
    hub.attach(page)

    def send(content: bytes, to: Path) -> None:
        halves = [content[:300], content[300:]]
        for i, half in enumerate(halves):
            text = base64.b64encode(half).decode()
            HANDLERS["export_picture"](
                hub, page, {"type": "export_picture", "path": str(to), "part": [i, 2], "data": text}
            )

    send(data, path)
    assert page.messages[-1][0]["ok"] and path.read_bytes() == data
    send(data, path)
    assert page.messages[-1][0]["exists"]
    send(b"GIF89a" + data, tmp_path / "b.png")
    assert not page.messages[-1][0]["ok"] and not (tmp_path / "b.png").exists()
    for part, text in (([0, 0], "AA=="), ([5, 2], "AA=="), ("x", "AA=="), ([0, 1], "%%")):
        HANDLERS["export_picture"](hub, page, {"type": "export_picture", "path": str(path), "part": part, "data": text})
        assert not page.messages[-1][0]["ok"]
    assert list(tmp_path.iterdir()) == [path]


# -- what is shown before it is made ----------------------------------------------------------------------------------
def test_a_live_drag_shows_the_placement_before_it_is_made(hub: Hub) -> None:
    session = hub.session
    before, ops = session.result, hub.frame("ops")
    page, other = Page(), Page()
    hub.attach(page)
    hub.attach(other)
    edit = {"do": "resize", "op": OP, "size": [1, 1]}
    hub.desk.receive(page, {"type": "probe_exact", "ask": 1, "edit": edit, "live": True})
    hub.desk.wait(60)
    assert said(page, "exact")["ok"] and edits(hub)["shown"] == f"resize {OP} to 1x1"
    shown = hub.frame("ops")
    assert shown is not ops and session.result is before and not session.overrides and session.history == ()
    assert any(m.get("key") == "ops" for m, _ in other.messages), "every view shows it"
    hub.desk.receive(page, {"type": "probe_end"})
    hub.desk.wait(60)
    assert hub.frame("ops") is ops and "shown" not in edits(hub)
    hub.desk.receive(page, {"type": "probe_exact", "ask": 2, "edit": edit, "live": True})
    hub.desk.wait(60)
    assert answer(ask(hub, type="edit", **edit))[0]
    assert hub.frame("ops") is shown and "shown" not in edits(hub), "what was shown is what was made: nothing is sent"
    assert session.result.placement.ops[OP].size == (1, 1) and len(session.history) == 1


def test_without_live_nothing_is_compiled_while_dragging(hub: Hub) -> None:
    runs = dict(hub.session._stages.runs)
    ops = hub.frame("ops")
    hub.desk.receive(page := Page(), {"type": "probe_exact", "ask": 1, "edit": {"do": "break", "op": "second.matmul"}})
    hub.desk.wait(60)
    assert said(page, "exact")["ok"] and hub.frame("ops") is ops and "shown" not in edits(hub)
    assert hub.session._stages.runs["passes"] == runs["passes"]


# -- formats, order, files --------------------------------------------------------------------------------------------
def test_formats_are_offered_set_and_refused(hub: Hub) -> None:
    offer = said(tell(hub, type="formats", op=OP), "formats")
    assert offer["ok"] and offer["now"] == ["Float16_b", "HiFi3"] and "Bfp8_b" in offer["formats"]
    assert not said(tell(hub, type="formats", op="nobody"), "formats")["ok"]
    assert answer(ask(hub, type="edit", do="format", op=OP, value="Bfp8_b"))[0]
    assert answer(ask(hub, type="edit", do="format", op=OP, of="fidelity", value="LoFi"))[0]
    assert said(tell(hub, type="formats", op=OP), "formats")["now"] == ["Bfp8_b", "LoFi"]
    assert [o["field"] for o in edits(hub)["overrides"]] == ["data_format", "math_fidelity"]
    assert "output_df=pybuda.DataFormat.Bfp8_b" in edits(hub)["overrides"][0]["python"]
    ok, text = answer(ask(hub, type="edit", do="format", op=OP, value="Float16"))
    assert not ok and "legal" in text
    assert answer(ask(hub, type="edit", do="format", op=OP, value=None))[0]
    assert [o["field"] for o in edits(hub)["overrides"]] == ["math_fidelity"]


def test_overrides_are_reordered_where_that_matters(hub: Hub) -> None:
    session = hub.session
    every = Override("math_fidelity", re.compile(".*matmul"), "LoFi")
    session.apply(SetOverride(Override("math_fidelity", OP, "HiFi4")), SetOverride(every), ResizeOp(OP, (1, 1)))
    session.compile()
    assert [(o["at"], o["order"]) for o in edits(hub)["overrides"]] == [(0, True), (1, True), (2, False)]
    assert session.records[0].state == "missed", "the later one holds"
    assert answer(ask(hub, type="edit", do="reorder", at=0, to=1))[0]
    assert [r.kind for r in session.records] == ["math_fidelity"] * 2 + ["op_size"]
    assert session.records[1].obtained == {OP: "HiFi4"} and session.records[0].state == "missed"
    for wrong in ({"at": 0, "to": 7}, {"at": "a", "to": 0}, {}):
        assert not answer(ask(hub, type="edit", do="reorder", **wrong))[0]
    assert answer(ask(hub, type="undo"))[0]
    assert session.overrides[0].value == "HiFi4"


def test_a_file_of_overrides_is_one_step_and_a_bad_one_none(hub: Hub, tmp_path: Path) -> None:
    session = hub.session
    session.apply(ResizeOp(OP, (1, 1)), EpochBreak("second.matmul"))
    text = overrides_text(session, "json")
    session.undo()
    assert session.overrides == ()
    assert answer(ask(hub, type="edit", do="load", text=text, name="a.json"))[0]
    assert len(session.history) == 1 and [o.kind for o in session.overrides] == ["op_size", "epoch_break"]
    assert overrides_text(session, "json") == text
    assert answer(ask(hub, type="undo"))[0]
    other = '{"format": "x", "overrides": []}'
    for bad in ("{", "[]", other, text.replace("op_size", "op_sise"), text[:-4], "[" * 5000):
        ok, said_why = answer(ask(hub, type="edit", do="load", text=bad, name="a.json"))
        assert not ok and "a.json" in said_why and session.overrides == ()
    (tmp_path / "o.json").write_text(text)
    assert len(session.load_overrides(tmp_path / "o.json")) == 2 and session.history[-1].source == "file"
    with pytest.raises(InputError, match="cannot read"):
        session.load_overrides(tmp_path / "nothing.json")


def test_every_kind_of_suggestion_can_be_asked_for_by_a_message(hub: Hub) -> None:
    session = hub.session
    for command in (
        ResizeOp(OP, (1, 1)), EpochBreak("second.matmul"), EpochBreak("second.matmul", on=False), SetUkt(OP, 1),
        StreamOp(OP, "r", (4, 1)), InsertNop(OP, ("second.matmul",)), ClearOp(OP, ("op_size",)),
        Constrain((OP, "second.matmul")), Constrain((OP, "second.matmul"), on=False),
    ):  # fmt: skip
        assert commands_of(message_of(command), session) == (command,)
    with pytest.raises(InputError):
        message_of(SetOverride(Override("op_size", re.compile("x"), (1, 1))))
