"""Edits on edges, asked for by a page."""

from __future__ import annotations

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import COMMANDS, Session
from tbuda_lab.widgets.edits import MISSING, commands_of, offered
from tests.session.models import perceptron


def test_an_edit_of_an_edge_names_both_ends() -> None:
    session = Session(*perceptron(), "e300")
    for do, name in (("nop", "insert-nop"), ("queue", "insert-queue")):
        edit = {"do": do, "op": "a", "to": "b"}
        if name in COMMANDS:
            (command,) = commands_of(edit, session)
            assert (command.name, command.op, command.to) == (name, "a", ("b",))  # type: ignore[attr-defined]
            assert offered()[do] == ""
        else:
            assert offered()[do] == MISSING
        with pytest.raises(InputError, match="end|no such edit"):
            commands_of({"do": do, "op": "a"}, session)
