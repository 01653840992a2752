"""Edits that a page makes: commits, refusals, undo, order, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.errors import InputError, NetlistError, OverrideError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session, SetOverride
from tbuda_lab.core.session.exports import overrides_text
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.pictures.fragments import overrides_html
from tests.widgets.edit_controller.calls import OP, answer, edits, said
from tests.widgets.talk import Page, say


def test_a_resize_is_committed_compiled_and_one_undo_step(hub: Hub) -> None:
    session = hub.session
    before = session.result.placement.ops[OP].size
    page = say(hub, type="edit", do="resize", op=OP, size=[2, 4])
    ok, text = answer(page)
    assert ok and text.startswith(f"resize {OP} to 2x4")
    assert session.result.placement.ops[OP].size == (2, 4)
    ops = page.frames()["ops"]
    at = ops.text("op_name").index(OP)
    assert (ops.columns["op_rows"][at], ops.columns["op_cols"][at]) == (2, 4)
    message = edits(hub)
    assert (message["undo"], message["redo"], message["stale"], message["busy"]) == (
        f"resize {OP} to 2x4",
        "",
        False,
        False,
    )
    assert [(r["target"], r["field"], r["requested"], r["obtained"], r["state"]) for r in message["overrides"]] == [
        (OP, "op_size", "2x4", "2x4", "obtained")
    ]
    assert message["overrides"][0]["python"] == f"pybuda.config.override_op_size({OP!r}, (2, 4))"
    assert answer(say(hub, type="undo"))[0]
    assert session.result.placement.ops[OP].size == before
    assert edits(hub)["overrides"] == [] and edits(hub)["redo"] == f"resize {OP} to 2x4"
    assert answer(say(hub, type="redo"))[0]
    assert session.result.placement.ops[OP].size == (2, 4)


def test_a_refused_edit_changes_nothing_and_says_why(hub: Hub) -> None:
    session = hub.session
    before = session.result
    ok, text = answer(say(hub, type="edit", do="resize", op=OP, size=[3, 5]))
    assert not ok and OP in text
    assert session.result is before and not session.stale and session.overrides == () and session.future == ()
    for nonsense in ({"do": "resize", "op": OP, "size": ["a", 1]}, {"do": "fly", "op": OP}, {"do": "break"}):
        assert not answer(say(hub, type="edit", **nonsense))[0]
    assert not answer(say(hub, type="probe_begin", op="nobody", seq=1))[0]
    assert answer(say(hub, type="undo")) == (False, "Nothing to undo.")


def test_move_break_and_clear(hub: Hub) -> None:
    session = hub.session
    start = next(s for s in reversed(session.legal(OP).starts(*session.legal(OP).grid)) if s != (0, 0))
    assert answer(say(hub, type="edit", do="move", op=OP, start=list(start)))[0]
    assert session.result.placement.ops[OP].start == start
    assert answer(say(hub, type="edit", do="break", op="second.matmul"))[0]
    assert len(session.result.placement.epochs) == 2
    assert answer(say(hub, type="edit", do="clear", op="second.matmul"))[0]
    assert len(session.result.placement.epochs) == 1
    pin = edits(hub)["overrides"]
    assert [r["field"] for r in pin] == ["op_placement"]
    assert pin[0]["requested"] == pin[0]["obtained"] == f"start {start[0]}, {start[1]}"
    steps = len(session.history)
    for without_effect in ({"do": "clear", "op": "second.matmul"}, {"do": "move", "op": OP, "start": list(start)}):
        assert not answer(say(hub, type="edit", **without_effect))[0]
    assert len(session.history) == steps


def test_what_the_static_picture_says(hub: Hub) -> None:
    assert answer(say(hub, type="edit", do="resize", op=OP, size=[2, 4]))[0]
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
        ok, text = answer(say(hub, type="edit", do="resize", op=OP, size=list(size), compile="manual"))
        assert ok and "not compiled" in text
    assert session.result is before and session.stale and edits(hub)["stale"] and len(session.history) == 2
    assert not answer(say(hub, type="edit", do="resize", op=OP, size=[3, 5], compile="manual"))[0]
    assert answer(say(hub, type="recompile"))[0]
    assert session.result.placement.ops[OP].size == (2, 2) and not edits(hub)["stale"]
    assert not answer(say(hub, type="recompile"))[0], "nothing to compile"


def test_a_gesture_of_many_edits_is_one_undo_step(hub: Hub) -> None:
    session = hub.session
    table = session.legal(OP)
    start = next(s for s in reversed(table.starts(*table.grid)) if s != table.start)
    edits_ = [{"do": "move", "op": OP, "start": list(start)}, {"do": "u_kt", "op": OP, "u_kt": 1}]
    steps = len(session.history)
    ok, text = answer(say(hub, type="edit", do="many", edits=edits_, label="move 2 things"))
    assert ok and text.startswith("move 2 things:")
    assert len(session.history) == steps + 1 and edits(hub)["undo"] == "move 2 things"
    assert {o.kind for o in session.overrides} == {"op_placement", "u_kt"}
    assert answer(say(hub, type="undo"))[0]
    assert session.overrides == ()
    for wrong in ([], [{"do": "many", "edits": edits_}], [{"do": "move", "op": OP}], "x", [1]):
        assert not answer(say(hub, type="edit", do="many", edits=wrong))[0]
    assert session.overrides == () and session.future != ()


def test_an_op_goes_to_another_epoch_and_back(hub: Hub) -> None:
    session = hub.session
    order = session.placed().problem.order
    assert answer(say(hub, type="edit", do="break", op=order[-1]))[0]
    assert [len(e.ops) for e in session.result.placement.epochs] == [len(order) - 1, 1]
    assert answer(say(hub, type="edit", do="epoch", op=order[-2], epoch=1))[0]
    assert [len(e.ops) for e in session.result.placement.epochs] == [len(order) - 2, 2]
    assert [o.target for o in session.overrides] == [order[-2]]
    assert answer(say(hub, type="edit", do="epoch", op=order[-2], epoch=0))[0]
    assert [len(e.ops) for e in session.result.placement.epochs] == [len(order) - 1, 1]
    ok, text = answer(say(hub, type="edit", do="epoch", op=OP, epoch=7))
    assert not ok and "epoch 7" in text


def test_a_chip_and_the_edges_of_an_op(graph: tuple[Any, Any]) -> None:
    session = Session(*graph, "n300", name="mlp")
    session.compile()
    hub = Hub(session)
    assert answer(say(hub, type="edit", do="chip", op=OP, chip=1))[0]
    assert session.result.placement.ops[OP].chip == 1
    assert not answer(say(hub, type="edit", do="chip", op=OP, chip=7))[0]
    assert answer(say(hub, type="undo"))[0]
    before = set(session.result.placement.ops)
    assert answer(say(hub, type="edit", do="insert-nop", op=OP, to=["second.matmul"]))[0]
    added = set(session.result.placement.ops) - before
    assert f"buffer_0_{OP}_second.matmul" in added
    assert answer(say(hub, type="undo"))[0]
    assert set(session.result.placement.ops) == before
    assert answer(say(hub, type="edit", do="insert-queue", op=OP, to=["second.matmul"]))[0]
    netlist = session.result.netlist
    sources = {i.source for _, op in netlist.ops() if op.name == "second.matmul" for i in op.inputs}
    (queue,) = [q for q in netlist.queues.values() if q.name in sources and q.input != "HOST"]
    # the reader is on the other chip, where a nop of few cores may write for the op
    assert queue.input in (OP, f"buffer_0_{OP}_second.matmul")
    ops = session.result.placement.ops
    assert ops[OP].epoch <= ops["second.matmul"].epoch, "in one epoch or a later one: the queue holds a batch"
    assert not answer(say(hub, type="edit", do="insert-nop", op=OP, to=["nobody"]))[0]
    assert not answer(say(hub, type="edit", do="insert-queue", op=OP, to=["nobody"]))[0]


def test_where_a_break_could_stand(hub: Hub) -> None:
    session = hub.session
    order = session.placed().problem.order
    assert answer(say(hub, type="edit", do="break", op=order[1]))[0]
    page = say(hub, type="break_stops", op=order[1], ask=5)
    parts = [m for m, _ in page.messages if m["type"] == "break_stops"]
    assert parts[-1]["done"] and all(p["ask"] == 5 for p in parts)
    matches = {s[0]: s[1:] for p in parts for s in p["stops"]}
    assert next(iter(matches)) == order[1] and set(matches) == set(order[1:])
    for name in order[1:]:
        again = Session(session.trace(), session.sample_inputs, session.device, overrides=[])
        again.compile()
        again.apply(EpochBreak(name))
        cycles = again.placed().limiter_cycles
        assert matches[name] == [len(cycles), max(cycles), sum(cycles), ""]
    assert answer(say(hub, type="edit", do="shift-break", op=order[1], to=order[-1]))[0]
    assert session.result.placement.epochs[1].ops == (order[-1],)


def test_an_override_is_switched_off_and_on(hub: Hub) -> None:
    session = hub.session
    before = session.result.placement.ops[OP].size
    assert answer(say(hub, type="edit", do="resize", op=OP, size=[2, 4]))[0]
    assert edits(hub)["overrides"][0]["source"] == "drag" and edits(hub)["overrides"][0]["enabled"]
    assert answer(say(hub, type="edit", do="disable", op=OP, kinds=["op_size"]))[0]
    assert session.overrides == () and session.result.placement.ops[OP].size == before
    off = edits(hub)["overrides"]
    assert [(r["state"], r["requested"], r["enabled"], r["source"]) for r in off] == [("off", "2x4", False, "drag")]
    assert answer(say(hub, type="edit", do="enable", op=OP, kinds=["op_size"]))[0]
    assert session.result.placement.ops[OP].size == (2, 4) and [r["enabled"] for r in edits(hub)["overrides"]] == [True]
    assert answer(say(hub, type="undo"))[0]
    assert [r["state"] for r in edits(hub)["overrides"]] == ["off"]
    assert answer(say(hub, type="edit", do="resize", op=OP, size=[2, 2]))[0]
    assert [r["requested"] for r in edits(hub)["overrides"]] == ["2x2"], "a new one takes the place of the old"
    assert not answer(say(hub, type="edit", do="enable", op=OP, kinds=["op_size"]))[0]


def test_formats_are_offered_set_and_refused(hub: Hub) -> None:
    offer = said(say(hub, type="formats", op=OP), "formats")
    assert offer["ok"] and offer["now"] == ["Float16_b", "HiFi3"] and "Bfp8_b" in offer["formats"]
    assert not said(say(hub, type="formats", op="nobody"), "formats")["ok"]
    assert answer(say(hub, type="edit", do="format", op=OP, data_format="Bfp8_b"))[0]
    assert answer(say(hub, type="edit", do="format", op=OP, fidelity="LoFi"))[0]
    assert said(say(hub, type="formats", op=OP), "formats")["now"] == ["Bfp8_b", "LoFi"]
    assert [o["field"] for o in edits(hub)["overrides"]] == ["data_format", "math_fidelity"]
    assert "output_df=pybuda.DataFormat.Bfp8_b" in edits(hub)["overrides"][0]["python"]
    ok, text = answer(say(hub, type="edit", do="format", op=OP, data_format="Float16"))
    assert not ok and "legal" in text
    assert answer(say(hub, type="edit", do="clear", op=OP, kinds=["data_format"]))[0]
    assert [o["field"] for o in edits(hub)["overrides"]] == ["math_fidelity"]


def test_overrides_are_reordered_where_that_matters(hub: Hub) -> None:
    session = hub.session
    every = Override("math_fidelity", re.compile(".*matmul"), "LoFi")
    session.apply(SetOverride(Override("math_fidelity", OP, "HiFi4")), SetOverride(every), ResizeOp(OP, (1, 1)))
    session.compile()
    assert [(o["at"], o["order"]) for o in edits(hub)["overrides"]] == [(0, True), (1, True), (2, False)]
    assert session.records[0].state == "missed", "the later one holds"
    assert answer(say(hub, type="edit", do="reorder", at=0, to=1))[0]
    assert [r.kind for r in session.records] == ["math_fidelity"] * 2 + ["op_size"]
    assert session.records[1].obtained == {OP: "HiFi4"} and session.records[0].state == "missed"
    for wrong in ({"at": 0, "to": 7}, {"at": "a", "to": 0}, {}):
        assert not answer(say(hub, type="edit", do="reorder", **wrong))[0]
    assert answer(say(hub, type="undo"))[0]
    assert session.overrides[0].value == "HiFi4"


def test_a_file_of_overrides_is_one_step_and_a_bad_one_none(hub: Hub, tmp_path: Path) -> None:
    session = hub.session
    session.apply(ResizeOp(OP, (1, 1)), EpochBreak("second.matmul"))
    text = overrides_text(session, "json")
    session.undo()
    assert session.overrides == ()
    assert answer(say(hub, type="edit", do="load", text=text, file="a.json"))[0]
    assert len(session.history) == 1 and [o.kind for o in session.overrides] == ["op_size", "epoch_break"]
    assert overrides_text(session, "json") == text
    assert answer(say(hub, type="undo"))[0]
    other = '{"format": "x", "overrides": []}'
    for bad in ("{", "[]", other, text.replace("op_size", "op_sise"), text[:-4], "[" * 5000):
        ok, said_why = answer(say(hub, type="edit", do="load", text=bad, file="a.json"))
        assert not ok and "a.json" in said_why and session.overrides == ()
    (tmp_path / "o.json").write_text(text)
    assert len(session.load_overrides(tmp_path / "o.json")) == 2 and session.history[-1].source == "file"
    with pytest.raises(InputError, match="cannot be read"):
        session.load_overrides(tmp_path / "nothing.json")


def test_the_picture_of_an_edit_comes_before_its_netlist_and_once(hub: Hub) -> None:
    page = Page()
    hub.attach(page)
    heard: list[list[str]] = []

    def keys() -> list[str]:
        return [str(m.get("key")) for m, _ in page.messages]

    hub.session.on("stage", lambda name, done: heard.append(keys()) if (name, done) == ("emit", 0.0) else None)
    hub.edit_controller.receive(page, {"type": "edit", "do": "resize", "op": OP, "size": [2, 4]})
    hub.edit_controller.wait(60)
    assert answer(page)[0]
    (before,) = heard
    after = keys()[len(before) :]
    assert "ops" in before and "netlist" not in before and "ops" not in after and "netlist" in after
    assert hub.frame("ops") is hub.session.frames.get("ops")


@pytest.mark.parametrize("inflates", [False, True])
def test_what_is_taken_back_is_seen_first_and_comes_as_it_was_sent_before(hub: Hub, inflates: bool) -> None:
    assert hub.session.looked_up("undo") is None and hub.session.looked_up("redo") is None
    shown_with: list[Any] = []

    class Told(Page):
        def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
            super().post(message, buffers)
            if message.get("key") == "ops":
                shown_with.append(hub.session.result)

    page = Told()
    hub.attach(page)
    hub.inflates(page, inflates)
    before, first = hub.session.result, hub.frames["ops"].pack()
    assert answer(say(hub, type="edit", do="resize", op=OP, size=[2, 4]))[0]
    after, second = hub.session.result, hub.frames["ops"].pack()
    for what, shown, other, frame in (("undo", before, after, first), ("redo", after, before, second)):
        page.messages.clear()
        shown_with.clear()
        assert hub.session.looked_up(what) is shown
        assert answer(say(hub, type=what))[0]
        assert hub.session.result is shown and hub.session.looked_up("redo" if what == "undo" else "undo") is other
        assert page.messages[0][0].get("key") == "ops"
        assert shown_with == [shown], "a page that has it may ask about it at once"
        assert [m.get("key") for m, _ in page.messages].count("ops") == 1
        assert not any(m.get("header", {}).get("meta", {}).get("busy") for m, _ in page.messages)
        assert hub.frames["ops"].pack() == frame


def test_a_netlist_that_is_refused_late_brings_the_old_picture_back(hub: Hub, monkeypatch: Any) -> None:
    session = hub.session
    ops, seen = hub.frame("ops"), []
    page = Page()
    hub.attach(page)

    def refuse(*_: object, **__: object) -> None:
        seen.append(hub.frame("ops"))
        raise NetlistError("not a netlist", [])

    monkeypatch.setattr("tbuda_lab.core.compiler.pipeline.finish", refuse)
    hub.edit_controller.receive(page, {"type": "edit", "do": "resize", "op": OP, "size": [2, 4]})
    hub.edit_controller.wait(60)
    assert answer(page) == (False, "not a netlist")
    assert seen and seen[0] is not ops, "it was shown"
    assert hub.frame("ops") is ops and session.history == () and not edits(hub)["busy"]
    assert [m["key"] for m, _ in page.messages if m.get("key") == "ops"] == ["ops", "ops"]


def test_a_compile_that_fails_in_a_cell_is_shown_until_it_is_undone(hub: Hub) -> None:
    session, page = hub.session, Page()
    hub.attach(page)
    op = next(iter(session.result.placement.ops))
    session.apply(ResizeOp(op, (7, 5)))
    with pytest.raises(OverrideError):
        session.compile()
    assert page.statuses()[-1]["failed"] and not page.statuses()[-1]["running"]
    assert page.frames()["problems"].text("severity") == ["error"]
    session.undo()
    session.compile()
    assert not page.statuses()[-1]["failed"]
    assert "error" not in page.frames()["problems"].text("severity")


def test_an_edit_that_is_refused_leaves_no_problems_behind(hub: Hub) -> None:
    session = hub.session
    with pytest.raises(OverrideError):
        session.attempt(ResizeOp(next(iter(session.result.placement.ops)), (7, 5)))
    assert session.error is None and session.problems == list(session.result.diagnostics)
    page = Page()
    hub.attach(page)
    hub.on_edit()
    hub.bring_up_to_date(page, {})  # what said the same before is not sent again
    assert not page.statuses()[-1]["failed"] and "error" not in page.frames()["problems"].text("severity")
