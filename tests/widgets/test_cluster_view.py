"""Chips on their way to a page: the frame on request, ops and epochs put on other chips, the picture."""

from __future__ import annotations

import pytest

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import session_frames
from tbuda_lab.core.frames.analysis_frames import cluster_frame
from tbuda_lab.core.session import EpochBreak, Session
from tbuda_lab.widgets.handlers import frames
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.views.cluster import cluster_fragment
from tests.session.models import encoder
from tests.widgets.talk import answers, say


@pytest.fixture(scope="module")
def hub() -> Hub:
    model, inputs = encoder(2)
    session = Session(model, inputs, load_device("wormhole_b0", chips=2), name="two chips")
    second = next(n.name for n in session.graph("lowered").ops if n.name.startswith("1."))
    session.apply(EpochBreak(second))
    session.compile()
    return Hub(session)


def test_the_frame_comes_on_request(hub: Hub) -> None:
    assert frames.MAKERS
    frame = say(hub, type="want", key="cluster").frames()["cluster"]
    assert frame.columns["chip_id"].tolist() == [0, 1] and frame.meta["rev"] == hub.session.rev


def test_an_epoch_goes_to_a_chip_in_one_step(hub: Hub) -> None:
    session = hub.session
    epoch = session.result.placement.epochs[0]
    steps = len(session.history)
    edits = [{"do": "chip", "op": op, "chip": 1 - epoch.chip} for op in epoch.ops]
    page = say(hub, type="edit", do="many", edits=edits, label="epoch 0 away")
    message = answers(page)
    assert message[0]["ok"], message
    assert {session.result.placement.ops[op].chip for op in epoch.ops} == {1 - epoch.chip}
    assert len(session.history) == steps + 1
    say(hub, type="undo")
    assert {session.result.placement.ops[op].chip for op in epoch.ops} == {epoch.chip}


def test_a_chip_that_is_not_there_is_refused(hub: Hub) -> None:
    op = hub.session.result.placement.epochs[0].ops[0]
    message = answers(say(hub, type="edit", do="chip", op=op, chip=7))
    assert not message[0]["ok"] and "7" in message[0]["text"]


def test_the_picture_names_chips_and_what_crosses(hub: Hub) -> None:
    result = hub.session.result
    frames = {f.key: f for f in session_frames(result, hub.session.device, ())}
    html = cluster_fragment(cluster_frame(result), frames["ops"])
    assert "chip 0 · host" in html and "chip 1" in html and "KiB" in html and len(html) < 20_000


def test_the_view_by_hand(hub: Hub) -> None:
    pytest.importorskip("anywidget")
    from tbuda_lab.widgets import report

    if not (report.STATIC / "page.js").is_file():
        pytest.skip("the front end is not built: make front-end")
    from tbuda_lab.widgets import ClusterView

    view = ClusterView(hub.session)
    op = hub.session.result.placement.epochs[0].ops[0]
    other = 1 - hub.session.result.placement.ops[op].chip
    view.chip(op, other)
    assert view.map().chips[other].epochs and hub.session.result.placement.ops[op].chip == other
    hub.session.undo()
    hub.session.compile()
    with pytest.raises(InputError, match="epoch 99"):
        view.chip_of_epoch(99, 0)
    assert "<svg" in view.static().html
