"""The report page as text: whole, self-contained, harmless."""

from __future__ import annotations

import base64
import json
import os
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import OutputError
from tbuda_lab.core.frames import Frame, graph_frame, ops_frame
from tbuda_lab.core.frames.analysis_frames import memory_frame
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import PlaceOp, ResizeOp, Session
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets import report
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.pictures.grid import chips_svg, epoch_svg, rows_of
from tbuda_lab.widgets.views.memory import heat_svg
from tests.session.models import perceptron
from tests.widgets import synthetic

built = pytest.mark.skipif(
    not (report.STATIC / "page.js").is_file(), reason="the front end is not built: make front-end"
)


@pytest.fixture(scope="module")
def session() -> Any:
    session = synthetic.FakeSession()
    session.compile()
    return session


class Embedded(HTMLParser):
    """The JSON that a page carries, and the tags it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.inside = False
        self.text = ""
        self.feed(text)
        self.data = json.loads(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag == "script" and ("id", "tb-data") in attrs
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.text += data


@built
def test_the_page_holds_everything(session: Any) -> None:
    text = report.report_html(session, [Comparison("output 0", 0.9991, 0.02, 3.0)])
    page = Embedded(text)
    assert page.links == [] and "link" not in page.tags and "img" not in page.tags
    assert not re.findall(r"(?:https?:)?//(?!www\.w3\.org/)[a-z0-9-]+\.[a-z]{2,}/", text.replace("\\/", "/"))
    frames = {f["header"]["key"]: Frame.unpack(f["header"], base64.b64decode(f["data"])) for f in page.data["frames"]}
    assert set(frames) == {"summary", "problems", "graph:traced", "graph:passed", "graph:lowered", "ops", "netlist"}
    assert frames["ops"].text("op_name") == list(session.result.placement.schedule)
    assert frames["netlist"].columns["text"].tobytes().decode() == synthetic.text(session.result)
    assert frames["summary"].meta["pcc"] == 0.9991
    assert [s["name"] for s in page.data["status"]["stages"]][:2] == ["Trace", "Passes"]


def test_names_cannot_break_out_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "STATIC", tmp_path)
    (tmp_path / "page.js").write_text("const x = '</script>';")
    bad = "</script><script>alert(1)</script>"
    frame = Frame("summary", {"name": bad, "device": bad}, {}, ("", bad))
    text = report.page_html(bad, [frame], {})
    assert text.count("<script") == 2
    assert Embedded(text).data["frames"][0]["header"]["strings"][1] == bad


@pytest.mark.parametrize(("key", "scripts"), [("summary", 1), ("stages", 1), ("memory", 2), ("diff", 2)])
@built
def test_a_page_carries_the_closer_views_only_with_their_frames(key: str, scripts: int) -> None:
    text = report.page_html("page", [Frame(key, {}, {}, ("",))], {})
    assert text.count('<script type="module">') == scripts


@built
def test_a_page_is_written_whole_or_not_at_all(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = report.write_report(session, tmp_path / "report.html")
    assert target.read_text(encoding="utf-8").endswith("</html>\n")
    with pytest.raises(OutputError, match="no-such-folder"):
        report.write_report(session, tmp_path / "no-such-folder" / "report.html")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        report.write_report(session, tmp_path / "second.html")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_without_the_front_end_the_error_says_what_to_do(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "STATIC", tmp_path)
    with pytest.raises(OutputError, match="make front-end"):
        report.report_html(session)


def test_static_pictures_are_well_formed_and_complete(session: Any) -> None:
    result = session.result
    ops = ops_frame(result.lowered, result.placement, result.device)
    drawn = 0
    for epoch in result.placement.epochs:
        root = ET.fromstring(epoch_svg(ops, epoch.index))
        titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
        assert [t.split(": ")[0] for t in titles] == list(epoch.ops)
        drawn += len(titles)
    assert drawn == len(result.placement.ops)
    frame = graph_frame(result.lowered, "lowered")
    everything = range(frame.columns["group_parent"].size)
    root = ET.fromstring(graph_svg(frame, everything))
    titles = {t.text for t in root.iter("{http://www.w3.org/2000/svg}title")}
    assert set(frame.text("node_name")) <= titles


def test_words_of_a_tile_stand_off_harvested_rows() -> None:
    model, inputs = perceptron()
    session = Session(model, inputs, "n300", options=CompileOptions(objective="throughput"))  # on two chips
    session.compile()
    session.apply(ResizeOp("first.matmul", (4, 2)), PlaceOp("first.matmul", (3, 6)))
    session.compile()
    result = session.result
    placed = result.placement.ops["first.matmul"]
    assert (placed.start, placed.size) == ((3, 6), (4, 2))
    frame = ops_frame(result.lowered, result.placement, result.device)
    root = ET.fromstring(epoch_svg(frame, placed.epoch))
    svg = "{http://www.w3.org/2000/svg}"
    strips = [
        (float(r.get("y", 0)), float(r.get("height", 0))) for r in root.iter(f"{svg}rect") if r.get("fill") == "url(#h)"
    ]
    tile = next(g for g in root.iter(f"{svg}g") if (g.findtext(f"{svg}title") or "").startswith("first.matmul:"))
    body = tile.find(f"{svg}rect")
    assert body is not None
    upper, tall = float(body.get("y", 0)), float(body.get("height", 0))
    assert any(upper < y < upper + tall for y, _ in strips), "a harvested row lies across the tile"
    for text in tile.iter(f"{svg}text"):
        base, size = float(text.get("y", 0)), float(text.get("font-size", 0))
        assert all(base <= y or base - size >= y + high for y, high in strips)
        assert upper < base - size < base < upper + tall


def test_every_chip_has_its_own_harvested_rows() -> None:
    model, inputs = perceptron()
    session = Session(model, inputs, "n300")
    session.compile()
    device, placement = session.result.device, session.result.placement
    assert len(set(device.harvested_by_chip)) == 2
    frame = ops_frame(session.result.lowered, placement, device)
    memory, svg = memory_frame(session.result), "{http://www.w3.org/2000/svg}"
    for number, epoch in enumerate(placement.epochs):
        harvested = device.harvested_by_chip[device.chips.index(epoch.chip)]
        message = [t.text or "" for t in ET.fromstring(epoch_svg(frame, number)).iter(f"{svg}text")]
        assert [t for t in message if "harvested" in t] == [f"row {row} harvested" for row in harvested]
        strips = [y for y, _ in rows_of(frame, 34, 10, epoch.chip)[1]]
        working = [r for r in device.worker_rows if r not in harvested]
        assert strips == [34 * sum(r < row for r in working) + 10 * k for k, row in enumerate(harvested)]
        heat = ET.fromstring(heat_svg(frame, memory, number))
        assert [float(r.get("y", 0)) - 1 for r in heat.iter(f"{svg}rect") if r.get("fill") == "url(#h)"] == strips
    chips = ET.fromstring(chips_svg(frame, 0, 2))
    assert len([p for p in chips.iter(f"{svg}path") if (p.get("id") or "").startswith("cores")]) == 2
    before = session.result.placement
    session.apply(ResizeOp("first.matmul", (2, 2)))
    session.compile()
    assert session.result.placement is not before
    grid = diff_frame(session.diff("start")).meta["grid_b"]
    assert [tuple(gone) for _, gone in grid["chip_rows"]] == [tuple(rows) for rows in device.harvested_by_chip]
