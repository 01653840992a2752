"""Edits on edges, asked for by a page."""

from __future__ import annotations

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.edit_messages import commands_of
from tests.session.models import perceptron


def test_an_edit_of_an_edge_names_both_ends() -> None:
    session = Session(*perceptron(), "e300")
    for do, name in (("nop", "insert-nop"), ("queue", "insert-queue")):
        edit = {"do": do, "op": "a", "to": "b"}
        (command,) = commands_of(edit, session)
        assert (command.name, command.op, command.to) == (name, "a", ("b",))  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="end"):
            commands_of({"do": do, "op": "a"}, session)


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
    (clear,) = commands_of({"do": "stream", "op": "a"}, session)
    session.apply(clear)
    assert session.overrides == ()
