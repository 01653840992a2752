"""Comparisons on their way to a page: frames, questions, checkpoints, pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.diff import compare_sides
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import ResizeOp
from tbuda_lab.widgets import report
from tbuda_lab.widgets.handlers import frames
from tbuda_lab.widgets.handlers.frames import next_name
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.pictures.diff import diff_fragment
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.report import diff_html
from tests.diff.hand import op, queue, side
from tests.widgets.talk import say

OP = "first.matmul"


def hand_made() -> Any:
    before = side(
        "main",
        {"gone": op(0, (0, 3)), "moves": op(0, (1, 0)), "grows": op(1, (0, 0), (1, 2), 400)},
        {"q": queue((0, 1))},
    )
    after = side(
        "branch",
        {"new": op(0, (0, 2)), "moves": op(0, (1, 3)), "grows": op(1, (0, 0), (2, 2), 200)},
        {"q": queue((0, 2))},
    )
    return compare_sides(before, after)


def test_the_frame_says_what_the_comparison_says() -> None:
    diff = hand_made()
    frame = Frame.unpack(*diff_frame(diff).pack())
    names = frame.text("op_name")
    assert names == ["gone", "moves", "grows", "new"]
    bits = dict(zip(names, frame.columns["op_classes"].tolist(), strict=True))
    assert {n: [c for k, c in enumerate(frame.meta["classes"]) if b >> k & 1] for n, b in bits.items()} == {
        c.op: list(c.classes) for c in diff.changes
    }
    for prefix, states in (("a", diff.before.ops), ("b", diff.after.ops)):
        for at, name in enumerate(names):
            state = states.get(name)
            got = [int(frame.columns[f"op_{prefix}_{k}"][at]) for k in ("epoch", "row", "col", "rows", "cols", "limit")]
            expected = [-1] * 6 if state is None else [state.epoch, *state.start, *state.size, state.limiter_cycles]
            assert got == expected
    assert frame.text("queue_name") == ["q"] and frame.text("queue_what") == ["moved"]
    assert frame.meta["counts"] == {"added": 1, "removed": 1, "resized": 1, "moved": 1, "retimed": 1}
    np.testing.assert_array_equal(frame.columns["pair_a"], [0, 1])


def test_the_picture_is_small_and_escapes_names() -> None:
    before = side("<a>", {f"op<{k}>": op(k // 4, (k // 4 % 2, k % 4)) for k in range(3000)})
    after = side("b", {f"op<{k}>": op(k // 4, (k // 4 % 2, k % 4), cycles=k + 101) for k in range(3000)})
    html = diff_fragment(diff_frame(compare_sides(before, after)))
    assert len(html) < LIMIT and "<svg" in html and "op&lt;2999&gt;" in html
    assert "op<2" not in html and "<a>" not in html
    assert "and 2940 more" in html
    assert "no op differs" in diff_fragment(diff_frame(compare_sides(before, before)))


def test_a_page_asks_and_every_view_gets_the_frame(hub: Hub) -> None:
    assert frames.MAKERS
    hub.session.apply(ResizeOp(OP, (1, 1)))
    frame = say(hub, type="want", key="diff", a="start", b="now").frames()["diff"]
    assert frame.meta["names"] == ["start", "previous", "now"] and frame.meta["counts"]["resized"] == 1
    assert hub.frame("diff") is not None
    page = say(hub, type="want", key="diff", a="no such", b="now")
    assert [m["key"] for m, _ in page.messages if m["type"] == "refused"] == ["diff"]
    assert [m["type"] for m, _ in say(hub, type="want", key="no such").messages] == ["refused"]


def test_checkpoints_from_a_page(hub: Hub) -> None:
    say(hub, type="want", key="diff", a="start", b="now")
    page = say(hub, type="checkpoint")
    assert [m["text"] for m, _ in page.messages if m["type"] == "edited"] == ["checkpoint A"]
    assert page.frames()["diff"].meta["names"] == ["start", "A", "previous", "now"]
    say(hub, type="checkpoint", name="wide")
    assert hub.session.checkpoints == ("A", "wide")
    refused = say(hub, type="checkpoint", name="now")
    assert [m["ok"] for m, _ in refused.messages if m["type"] == "edited"] == [False]
    assert next_name(("A", "C")) == "B" and next_name(tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")) == "A2"


@pytest.mark.skipif(not (report.STATIC / "page.js").is_file(), reason="the front end is not built")
def test_the_page_holds_its_data_and_asks_nobody() -> None:
    html = diff_html(hand_made())
    assert '"key": "diff"' in html and "http://" not in html.split('<script type="module">')[0].replace(
        "http://www.w3.org/2000/svg", ""
    )
