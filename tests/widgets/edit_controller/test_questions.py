"""What a page asks of the session, and exports."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import (
    ClearOp,
    Constrain,
    EpochBreak,
    Preload,
    ResizeOp,
    Session,
    SetOverride,
    SetUkt,
    StreamOp,
)
from tbuda_lab.core.session import exports as session_exports
from tbuda_lab.core.session.commands import InsertNop
from tbuda_lab.widgets.handlers.edit_messages import commands_of, message_of
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.protocol import HANDLERS
from tests.session.models import perceptron
from tests.widgets.edit_controller.calls import OP, answer, said
from tests.widgets.talk import Page, answers, say


def test_gains_choices_why_and_suggestions_are_those_of_the_session(hub: Hub) -> None:
    session = hub.session
    why = said(say(hub, type="why", op=OP), "why")
    reasons = session.why(OP)
    assert why["ok"] and (why["grid"], why["cycles"], why["text"]) == (list(reasons.grid), reasons.cycles, reasons.text)
    assert [a["grid"] for a in why["next_best"]] == [list(a.grid) for a in reasons.next_best]
    assert why["next_best"][0]["edit"]["do"] == "resize" and "for the whole model" in why["picked"]
    assert why["next_best"][0]["python"] == reasons.next_best[0].command.python()
    assert not said(say(hub, type="why", op="nobody"), "why")["ok"]
    choices = said(say(hub, type="choices", op=OP), "choices")
    assert choices["ok"] and choices["now"]["u_kt"] in [v for v, _ in choices["u_kt"]]
    for value, cycles in choices["u_kt"]:
        row = session.compiles.placed_after(SetUkt(OP, value), ResizeOp(OP, reasons.grid)).placement().candidate(OP)
        assert (int(row["u_kt"]), int(row["cycles"])) == (value, cycles)
    assert answer(say(hub, type="edit", do="resize", op=OP, size=[1, 1]))[0]
    assert "set by an override" in said(say(hub, type="why", op=OP), "why")["picked"]
    gains = said(say(hub, type="gains"), "gains")["gains"]
    cleared = session.whatif(ClearOp(OP, ("op_size",)))
    assert cleared.time[0] == session.time().per_input
    share = (cleared.time[1] - cleared.time[0]) / cleared.time[1]
    assert gains == [["op_size", OP, -cleared.gain, pytest.approx(share), 0]] and gains[0][2] < 0
    hints = answers(say(hub, type="suggest", n=3), "suggest")[-1]["list"]  # parts may come before
    expected = session.suggest(3)
    assert [h["gain"] for h in hints] == [s.gain for s in expected] and hints[0]["gain"] > 0
    assert {h["kind"] for h in hints} == {"free", "resize"}, "the override that slows it down may also go"
    hint = next(h for h in hints if h["kind"] == "resize")
    after = hint["time"][1]
    assert answer(say(hub, type="edit", do="many", edits=hint["edits"], label=hint["label"]))[0]
    assert session.time().per_input == after
    code = said(say(hub, type="code"), "code")
    assert session.to_python() in code["python"] and json.loads(code["json"])["overrides"]


def test_exports_are_planned_written_and_not_written_over(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = said(say(hub, type="exports"), "exports")["kinds"]
    assert {"netlist", "overrides", "table", "trace", "report", "image"} <= {k["name"] for k in kinds}
    path = Path("a.py")
    request = {"kind": "overrides", "path": str(path), "settings": {}}
    plan = said(say(hub, type="export_plan", ask=1, **request), "export_plan")
    assert plan["ok"] and "tbuda export overrides" in plan["cli"] and repr(str(path)) in plan["python"]
    assert not path.exists()
    assert said(say(hub, type="export", **request), "exported")["ok"]
    first = path.read_text()
    again = said(say(hub, type="export", **request), "exported")
    assert not again["ok"] and again["exists"] and path.read_text() == first
    assert said(say(hub, type="export", replace=True, **request), "exported")["ok"]
    for wrong in (
        {"kind": "rocket"},
        {"kind": "overrides", "settings": {"form": "xml"}},
        {"kind": "table", "path": " "},
        {"kind": "table", "settings": {"session": 1}},
        {"kind": "table", "settings": {"path": "a.csv"}},
    ):
        assert not said(say(hub, type="export_plan", **wrong), "export_plan")["ok"]
    nowhere = {"kind": "overrides", "path": str(Path("no") / "a.py"), "settings": {}}
    assert not said(say(hub, type="export", **nowhere), "exported")["ok"]


ENDINGS = {
    "netlist": "yaml",
    "overrides": "py",
    "table": "csv",
    "trace": "json",
    "report": "html",
    "image": "svg",
    "plots": "html",
    "tti": "tti",
}


@pytest.mark.parametrize("kind", session_exports.EXPORTS)
def test_exports_of_a_page_stay_in_its_folder_and_keep_their_ending(
    kind: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page writes elsewhere, nor a file that another program would take for its own, such as `.bashrc`."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "out").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "here")
    ending = ENDINGS[kind]
    other = next(e for e in ENDINGS.values() if e not in (ending, "csv", "json", "py"))
    good = f"x.{ending}"
    attacks = [
        f"../{good}",
        f"/tmp/{good}",
        f"{tmp_path}/{good}",
        f"out/{good}",
        f"..\\{good}",
        f"{good}/..",
        "x",
        f"x.{other}",
        f".{ending}",
        f".{good}",
        "x.sh",
        f"{good}.sh",
        f"{good} ",
    ]
    for attack in attacks:
        answered = said(say(hub, type="export", kind=kind, path=attack, settings={}), "exported")
        assert not answered["ok"] and "exists" not in answered, attack
        assert not said(say(hub, type="export_plan", kind=kind, path=attack, settings={}), "export_plan")["ok"], attack
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here", "out"]
    default = said(say(hub, type="export_plan", kind=kind, settings={}), "export_plan")
    assert default["ok"] and Path(default["path"]).suffix == f".{ending}"


@pytest.mark.parametrize(
    ("kind", "settings", "path", "beside"),
    [
        ("netlist", {}, "a.yaml", "a.cycles.csv"),
        ("overrides", {"form": "both"}, "a.py", "a.json"),
        ("overrides", {"form": "both"}, "a.json", "a.py"),
    ],
)
def test_what_is_written_beside_an_export_is_not_written_over_either(
    kind: str,
    settings: dict[str, Any],
    path: str,
    beside: str,
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(beside).write_text("mine")
    request = {"type": "export", "kind": kind, "path": path, "settings": settings}
    answered = said(say(hub, **request), "exported")
    assert not answered["ok"] and answered["exists"] and beside in answered["text"]
    assert Path(beside).read_text() == "mine" and not Path(path).exists()
    assert said(say(hub, replace=True, **request), "exported")["ok"] and Path(beside).read_text() != "mine"


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "C:\\models\\net", ".hidden", "", "\0", "a" * 400, "n\n"])
def test_a_session_of_any_name_has_a_plain_name_for_its_files(name: str) -> None:
    session = Session(*perceptron(), "n150", name=name)
    for kind, ending in ENDINGS.items():
        path = session_exports.plan(session, kind).path
        assert path.parent == Path() and path.suffix == f".{ending}" and not path.name.startswith(".")
        assert len(path.name) < 255 and "\0" not in path.name and "\n" not in path.name


def test_a_picture_of_the_page_is_put_together_and_checked(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3
    monkeypatch.chdir(tmp_path)
    path = Path("a.png")
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
    send(b"GIF89a" + data, Path("b.png"))
    assert not page.messages[-1][0]["ok"] and not (tmp_path / "b.png").exists()
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    (folder / "link.png").symlink_to(tmp_path / "c.png")
    monkeypatch.chdir(folder)
    for outside in (tmp_path / "c.png", Path("../c.png"), Path("out/c.png"), Path("link.png")):
        send(data, outside)
        assert not page.messages[-1][0]["ok"] and "leaves the folder" in page.messages[-1][0]["text"]
    monkeypatch.chdir(tmp_path)
    assert not (tmp_path / "c.png").exists()
    for part, text in (([0, 0], "AA=="), ([5, 2], "AA=="), ("x", "AA=="), ([0, 1], "%%")):
        HANDLERS["export_picture"](hub, page, {"type": "export_picture", "path": str(path), "part": part, "data": text})
        assert not page.messages[-1][0]["ok"]
    assert {p.name for p in tmp_path.iterdir()} == {"a.png", "work"}


def test_every_kind_of_suggestion_can_be_asked_for_by_a_message(hub: Hub) -> None:
    session = hub.session
    for command in (
        ResizeOp(OP, (1, 1)),
        EpochBreak("second.matmul"),
        EpochBreak("second.matmul", on=False),
        SetUkt(OP, 1),
        StreamOp(OP, "r", (4, 1)),
        InsertNop(OP, ("second.matmul",)),
        ClearOp(OP, ("op_size",)),
        Constrain((OP, "second.matmul")),
        Constrain((OP, "second.matmul"), on=False),
        Preload(OP, 1, False),
    ):
        assert commands_of(message_of(command), session) == (command,)
    with pytest.raises(InputError):
        message_of(SetOverride(Override("op_size", re.compile("x"), (1, 1))))
