"""What a notebook keeps of every view: a picture without a script, small, and next to no widget state."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from urllib.parse import unquote

import pytest

from tbuda_lab import widgets
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets.pictures.grid import epoch_svg
from tbuda_lab.widgets.pictures.svg import distinct_names
from tbuda_lab.widgets.views import workbench
from tests.session.models import encoder

pytestmark = pytest.mark.skipif(not workbench.BUNDLE.is_file(), reason="the front end is not built: make front-end")

VIEWS = (
    "BringUp",
    "ClusterView",
    "DiffView",
    "EpochGrid",
    "GraphView",
    "MemoryView",
    "NetlistView",
    "OpTable",
    "OverridesPanel",
    "PassStepper",
    "PlotsView",
    "ProblemsView",
    "ProfileView",
    "RunTrace",
)


@pytest.fixture(scope="module")
def session() -> Session:
    """Twelve layers on two chips, edited once: a netlist of more than 200 kB."""
    session = Session(*encoder(12), "n300", name="<encoder>")
    session.compile()
    session.apply(ResizeOp(next(iter(session.result.placement.ops)), (1, 1)))
    session.compile()
    return session


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_has_a_small_picture_and_hardly_any_state(session: Session, name: str) -> None:
    kind = getattr(widgets, name)
    view = kind(session) if name != "BringUp" else kind(session, start=False)
    bundle = view._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    html = data["text/html"]
    assert html == view.static()._repr_html_() and 100 < len(html.encode()) <= 200_000
    assert any(mark in html for mark in ("<img", "<table", "<pre", "<li")) and "<script" not in html
    for picture in re.findall(r'src="data:image/svg\+xml,([^"]*)"', html):  # whole pictures, with a text each
        assert ET.fromstring(unquote(picture)).get("aria-label")
    assert "<svg" not in html and html.count("<img ") == html.count("<img alt='") <= html.count("src=")
    assert "<encoder>" not in html
    state = {k: v for k, v in view.get_state().items() if k != "_esm"}
    assert len(json.dumps(state, default=str)) <= 10_000


def test_ops_of_an_epoch_have_names_that_tell_them_apart() -> None:
    """The same as `distinctNames` of the front end gives; see `labextension/test/names.test.ts`."""
    layer = [f"layer.4.{name}" for name in ("intermediate.dense.matmul", "output.dense.matmul", "output.add")]
    assert distinct_names(layer) == ["intermediate.dense.matmul", "output.dense.matmul", "output.add"]
    steps = ["n.layernorm.dc.add.10", "n.layernorm.dc.add.4"]
    assert distinct_names(steps) == ["layernorm.add.10", "layernorm.add.4"]
    keys = [f"layer.{i}.attention.self.key.matmul" for i in (4, 5)]
    assert distinct_names(keys) == ["layer.4…key.matmul", "layer.5…key.matmul"]
    names = ["x", "matmul", "a.b.c.d.e.f", "a.b.x.d.e.f", "q.b.x.d.e.f", "q.b.c.d.e.f", *layer, *keys, *steps]
    assert len(set(distinct_names(names))) == len(names)


def test_tiles_of_a_picture_have_names_that_tell_them_apart(session: Session) -> None:
    frame = session.frames.ops(session.result)
    for epoch in range(3):
        written = re.findall(r"font-weight='600'[^>]*>([^<]+)</text>", epoch_svg(frame, epoch))
        whole = [name for name in written if "…" not in name]
        assert whole and len(set(whole)) == len(whole)


def test_every_view_there_is_was_looked_at() -> None:
    others = {
        "ExploreView",
        "MeasuredView",
        "PlacementsView",
        "NetlistFile",
        "ImageFile",
        "ProgramView",
        "StaticView",
    }  # of files or with tests of their own
    existing = {n for n in widgets.__all__ if n[0].isupper()}
    assert existing == {*VIEWS, *others}


def test_a_long_netlist_says_what_is_left_out(session: Session) -> None:
    html = widgets.NetlistView(session).static().html
    shown = html.split("<pre>")[1].split("</pre>")[0].split("\n")
    left = int(re.search(r"and ([\d,]+) more lines", html).group(1).replace(",", ""))
    lines = netlists.dumps(session.result.netlist).splitlines()
    assert left > 0 and len(shown) + left == len(lines)
    assert unescape(shown[-1]) == lines[len(shown) - 1]
