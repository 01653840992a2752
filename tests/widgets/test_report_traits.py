"""What the report says beyond the compile."""

from __future__ import annotations

import json
import re

import pytest

from tbuda_lab.core.device import load_device
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import report
from tests.session.models import perceptron
from tests.widgets import synthetic

OP = "first.matmul"


@pytest.fixture(scope="module")
def traced():
    model, inputs = perceptron()
    return Session(model, inputs, "e300").trace(), inputs


def grids(session: Session) -> dict[str, tuple[int, int]]:
    """(rows, columns) of the cores of both matmuls, as the placement has them."""
    assert session.result is not None and session.result.placement is not None
    rows = {name: session.result.placement.candidate(name) for name in (OP, "second.matmul")}
    return {name: (int(row["grid_r"]), int(row["grid_c"])) for name, row in rows.items()}


def test_what_there_is_to_say(traced) -> None:
    session = Session(*traced, "e300")
    assert report.look_frames(session) == []  # nothing is compiled
    session.compile()
    before = grids(session)
    assert [f.key for f in report.look_frames(session)] == ["memory"]
    session.apply(ResizeOp(OP, (1, 1)))
    assert report.look_frames(session) == []  # the picture is older than the edits
    session.compile()
    frames = {f.key: f for f in report.look_frames(session)}
    assert set(frames) == {"memory", "diff"} and frames["diff"].meta["a"] == "start"
    after = grids(session)
    assert after[OP] == (1, 1) != before[OP]
    resized = [name for name in before if after[name] != before[name]]  # others may follow the op that was resized
    assert frames["diff"].meta["counts"]["resized"] == len(resized)
    pair = Session(*traced, load_device("wormhole_b0", chips=2))
    pair.compile()
    assert [f.key for f in report.look_frames(pair)] == ["memory", "cluster"]
    assert report.look_frames(synthetic.FakeSession()) == []


@pytest.mark.skipif(not (report.STATIC / "page.js").is_file(), reason="the front end is not built")
def test_the_report_holds_them(traced) -> None:
    session = Session(*traced, "e300", name="mlp")
    session.compile()
    session.apply(ResizeOp(OP, (1, 1)))
    session.compile()
    page = report.report_html(session)
    match = re.search(r'<script type="application/json" id="tb-data">(.*?)</script>', page, re.S)
    assert match is not None
    keys = {f["header"]["key"] for f in json.loads(match[1])["frames"]}
    assert {"memory", "diff", "ops", "netlist"} <= keys
