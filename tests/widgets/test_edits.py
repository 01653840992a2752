"""Edits that a page asks for, as commands."""

from __future__ import annotations

from typing import Any

import pytest

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.edit_messages import commands_of
from tests.session.models import perceptron
from tools import edit_messages


def test_the_types_of_edits_in_typescript_are_those_of_python() -> None:
    assert edit_messages.FILE.read_text(encoding="utf-8") == edit_messages.typescript()
    sources = edit_messages.FILE.parent.parent.rglob("*.ts")
    assert [p.name for p in sources if "type: 'edit'" in p.read_text(encoding="utf-8")] == ["store.ts"]


def test_an_edit_of_an_edge_names_its_readers() -> None:
    session = Session(*perceptron(), "e300")
    for name in ("insert-nop", "insert-queue"):
        (command,) = commands_of({"type": "edit", "do": name, "op": "a", "to": ["b"], "compile": "manual"}, session)
        assert (command.name, command.op, command.to) == (name, "a", ("b",))  # type: ignore[attr-defined]
        with pytest.raises(TbudaError, match=r"to\[0\] is text, not 1"):
            commands_of({"do": name, "op": "a", "to": [1]}, session)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"do": "fly", "op": "a"}, "unknown edit"),
        ({"do": "options", "set": {}}, "unknown edit"),
        ({"do": "move", "op": "a"}, "lacks start"),
        ({"do": "move", "op": "a", "start": [1, True]}, r"move\.start\[1\] is a whole number, not True"),
        ({"do": "epoch", "op": "", "epoch": 0}, "epoch.op is a name, not an empty text"),
        ({"do": "pin", "op": "a", "at": 1}, "no field 'at'"),
        ({"do": "buffer", "op": "a", "operand": 0, "factor": "2"}, "buffer.factor is a whole number or null, not '2'"),
        ({"do": "many", "edits": [{"do": "many", "edits": []}]}, "single edits"),
    ],
)
def test_a_message_that_makes_no_sense_says_what_its_fields_are(message: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        commands_of(message, Session(*perceptron(), "e300"))


def test_an_op_goes_to_a_chip_that_the_device_has() -> None:
    session = Session(*perceptron(), "n300")
    chips = len(session.device.chips)
    assert chips > 1
    (command,) = commands_of({"do": "chip", "op": "a", "chip": chips - 1}, session)
    assert command.python() == f"pybuda.config.override_op_placement('a', chip_id={chips - 1})"
    for wrong in (chips, -1, "1", None, True):
        with pytest.raises(InputError):
            commands_of({"do": "chip", "op": "a", "chip": wrong}, session)


def test_settings_of_an_op_come_and_go() -> None:
    session = Session(*perceptron(), "e300")
    (first,) = commands_of({"do": "buffer", "op": "a", "operand": 1, "factor": 2}, session)
    session.apply(first)
    (both,) = commands_of({"do": "buffer", "op": "a", "operand": 0, "factor": 3}, session)
    session.apply(both)
    assert session.overrides[0].value == {0: 3, 1: 2}
    for operand in (0, 1):
        (less,) = commands_of({"do": "buffer", "op": "a", "operand": operand, "factor": None}, session)
        session.apply(less)
    assert session.overrides == ()
    (stream,) = commands_of({"do": "stream", "op": "a", "direction": "r", "shape": [2, 1]}, session)
    session.apply(stream)
    assert {o.kind for o in session.overrides} == {"t_stream_dir", "t_stream_shape"}
    (clear,) = commands_of({"do": "clear", "op": "a", "kinds": ["t_stream_dir", "t_stream_shape"]}, session)
    session.apply(clear)
    assert session.overrides == ()
