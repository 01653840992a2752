"""The profile on its way to a page, and what a notebook keeps of it."""

from __future__ import annotations

import re

import pytest

from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import ProfileView
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.views.files import FileHub
from tests.session.models import perceptron
from tests.widgets.talk import answers, say


def test_the_page_gets_the_profile_and_then_the_edits(hub: Hub) -> None:
    hub.session.apply(ResizeOp("first.matmul", (1, 1)))
    hub.session.compile()
    plain = say(hub, type="profile").frames()["profile"]
    assert plain.meta["search"] == 1 and not plain.meta["edits"]
    frame = say(hub, type="profile", edits=True).frames()["profile"]
    assert frame.meta["search"] == 1 and frame.meta["edits"][0]["gain"] > 0
    assert frame.columns["op_edit"][0] == 0 and frame.meta["edits"][0]["edits"][0]["op"] == "first.matmul"
    assert frame.columns["op_share"].sum() + frame.meta["switch"] / frame.meta["total"] == pytest.approx(1)
    assert answers(say(FileHub([]), type="profile"), "refused")[0]["key"] == "profile"


def test_the_picture_adds_up_to_all_of_the_time() -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    view = ProfileView(session)
    assert view.static().html == "<p>no placement yet</p>"
    session.compile()
    for by in ("op", "module"):
        view.by = by
        shares = [float(x) for x in re.findall(r"<td>([\d.]+) %</td>", view.static().html)]
        switch = 0 if by == "op" else 100 * session.profile().switch / session.profile().total
        assert sum(shares) + switch == pytest.approx(100, abs=0.5)
    assert "first.matmul" not in view.static().html and "DRAM" in view.static().html
