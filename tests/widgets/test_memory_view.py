"""Memory on its way to a page, and queues put into other channels."""

from __future__ import annotations

from tbuda_lab.core.frames.analysis_frames import memory_frame
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers import frames
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.pictures.svg import size_text
from tbuda_lab.widgets.views.memory import memory_fragment
from tests.session.models import encoder
from tests.widgets.talk import answers, say


def test_a_queue_is_put_into_a_channel_by_message(hub: Hub) -> None:
    assert frames.MAKERS
    name = next(n for n, u in hub.session.dram().queues.items() if u.queue.kind == "parameter")
    page = say(hub, type="edit", do="queue", queue=name, channel=4)
    message = answers(page)
    assert message[0]["ok"] and f"queue {name} to channel 4" in message[0]["text"]
    assert {c for c, _ in hub.session.dram().queues[name].queue.buffers} == {4}
    frame = say(hub, type="want", key="memory").frames()["memory"]
    at = frame.text("queue_name").index(name)
    assert set(frame.columns["block_channel"][frame.columns["block_queue"] == at].tolist()) == {4}
    for channel in (99, -1, "three", None):
        message = answers(say(hub, type="edit", do="queue", queue=name, channel=channel))
        assert not message[0]["ok"], channel
    assert {c for c, _ in hub.session.dram().queues[name].queue.buffers} == {4}, "a refused edit leaves no trace"
    assert len(hub.session.history) == 1


def test_a_name_that_is_no_queue_is_refused(hub: Hub) -> None:
    message = answers(say(hub, type="edit", do="queue", queue="no such queue", channel=1))
    assert not message[0]["ok"] and not hub.session.history


def test_the_picture_is_small() -> None:
    options = CompileOptions(balancer_policy="SingleOpPerEpoch", enable_auto_fusing=False)  # the most queues
    session = Session(*encoder(4), "n150", options, name="<encoder>")
    html = memory_fragment(memory_frame(session.compile()))
    assert len(html) < LIMIT and html.count("<svg") == 1 and "ch 5" in html and "largest" not in html
    assert all(unit in html for unit in ("KiB", "%"))
    assert [size_text(v) for v in (12, 2048, 3 << 20, 5 << 30)] == ["12 B", "2.00 KiB", "3.00 MiB", "5.00 GiB"]
