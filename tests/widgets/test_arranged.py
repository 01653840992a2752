"""What Python tells views besides placements: a line of the netlist, which problems, which docks, what is compared; the
pictures of comparisons and clusters that follow."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import traitlets

from tbuda_lab import widgets
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import load_device
from tbuda_lab.core.diff import compare_sides
from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.frames import netlist_frame, problems_frame
from tbuda_lab.core.session import EpochBreak, PlaceOp, ResizeOp, Session
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.views.base import BUNDLE
from tests.diff.hand import op, side
from tests.session.models import encoder

pytestmark = pytest.mark.skipif(not BUNDLE.is_file(), reason="the front end is not built: make front-end")

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Two layers on two chips, the second layer in an epoch of its own; resized once since it was opened."""
    session = Session(*encoder(2), load_device("wormhole_b0", chips=2), name="encoder")
    session.apply(EpochBreak(next(n.name for n in session.graph("lowered").ops if n.name.startswith("1."))))
    session.compile()
    session.checkpoint("wide")
    name = session.compile().placement.epochs[0].ops[0]
    table = session.legal(name)
    session.apply(ResizeOp(name, next(s for s in table.legal if s != table.grid)))
    session.compile()
    yield session


def elements(svg: str, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(SVG + tag))


# -- the netlist ------------------------------------------------------------------------------------------------------
def test_a_line_of_the_netlist_is_marked(session: Session) -> None:
    view = widgets.NetlistView(session)
    assert view.line is None and "<mark>" not in view.static().html
    lines = netlists.dumps(session.compile().netlist).splitlines()
    view.line = len(lines) - 2
    html = view.static().html
    assert unescape(re.findall(r"<mark>(.*?)</mark>", html)[0]) == lines[view.line - 1]
    with pytest.raises(traitlets.TraitError, match=f"no line {len(lines) + 1}; the netlist has {len(lines):,}"):
        view.line = len(lines) + 1
    with pytest.raises(traitlets.TraitError, match="line"):
        view.line = 0
    view.line = None
    assert "<mark>" not in view.static().html


def test_a_line_far_down_a_long_netlist_is_in_its_picture() -> None:
    texts = [f"line <{k}> {'.' * 40}" for k in range(1, 9001)]
    frames = {"netlist": netlist_frame("\n".join(texts))}
    for mark in (1, 5000, 9000):
        html = fragments.netlist_html(frames, mark)
        assert len(html) < fragments.LIMIT and html.startswith("<details open>")
        shown = [
            unescape(re.sub("</?mark>", "", line)) for line in html.split("<pre>")[1].split("</pre>")[0].split("\n")
        ]
        first = texts.index(shown[0])
        assert shown == texts[first : first + len(shown)] and texts[mark - 1] in shown
        assert html.count("<mark>") == 1 and f"<mark>line &lt;{mark}&gt;" in html
        skipped = re.search(r"after ([\d,]+) lines", html)
        assert first == (int(skipped[1].replace(",", "")) if skipped else 0)
        left = re.search(r"and ([\d,]+) more lines", html)
        assert first + len(shown) + (int(left[1].replace(",", "")) if left else 0) == 9000


# -- problems ---------------------------------------------------------------------------------------------------------
def test_problems_are_filtered_as_the_page_does() -> None:
    result = [
        Diagnostic("warning", "a.matmul", "approximate", "gelu <is> approximate", "say so"),
        Diagnostic("note", "b.add", "padded", "32 rows are padding"),
        Diagnostic("error", "c", "l1", "does not fit", "a smaller MATMUL"),
    ]
    frames = {"problems": problems_frame(result)}

    def kept(part: str) -> list[str]:
        return re.findall(r"<li>\w+: ([\w.]+):", fragments.problems_html(frames, part))

    assert kept("") == ["c", "a.matmul", "b.add"]  # errors first
    for part in ("matmul", "MATMUL ", "warning", "padded", "<is>", "32 rows", "nowhere"):
        words = [f"{d.severity} {d.where} {d.rule} {d.message} {d.fix}".lower() for d in result]
        expected = {d.where for d, text in zip(result, words, strict=True) if part.strip().lower() in text}
        assert set(kept(part)) == expected
        message = fragments.problems_html(frames, part)
        assert f"{len(expected)} of 3 with" in message and "<is>" not in message


def test_the_filter_of_problems_is_a_trait(session: Session) -> None:
    view = widgets.ProblemsView(session)
    view.filter = "no such thing"
    assert view.get_state("filter") == {"filter": "no such thing"}
    assert view.problems == list(session.problems)
    if session.problems:
        assert f"0 of {len(session.problems)} with no such thing" in view.static().html


# -- the workbench ----------------------------------------------------------------------------------------------------
def test_docks_keep_what_is_not_said(session: Session) -> None:
    view = widgets.BringUp(session, start=False)
    assert view.docks == {"tab": "ops", "inspector": True, "tall": False}
    view.docks = {"inspector": False}
    view.docks = {"tab": "memory"}
    assert view.docks == {"tab": "memory", "inspector": False, "tall": False}
    view.show("trace")
    assert view.docks == {"tab": "trace", "inspector": False, "tall": False}
    assert view.get_state("docks") == {"docks": view.docks}
    view.layout.width = "50%"  # what every widget has under that name stays
    assert view.layout.width == "50%"


@pytest.mark.parametrize(
    "docks, message",
    [
        ({"tab": "kitchen"}, "no tab 'kitchen'; there are ops"),
        ({"left": 1}, "no dock 'left'"),
        ({"inspector": 1}, "'inspector' is True or False"),
        ({"tall": "yes"}, "'tall' is True or False"),
        (["tab"], "docks"),
    ],
)
def test_docks_refuse_what_is_none(session: Session, docks: object, message: str) -> None:
    view = widgets.BringUp(session, start=False)
    with pytest.raises(traitlets.TraitError, match=message):
        view.docks = docks
    assert view.docks == {"tab": "ops", "inspector": True, "tall": False}


# -- comparisons ------------------------------------------------------------------------------------------------------
def test_what_is_compared_is_a_trait(session: Session) -> None:
    view, other = widgets.DiffView(session), widgets.DiffView(session, "wide")
    assert (other.a, other.b) == ("wide", "now") and (view.a, view.b) == ("wide", "now")  # one comparison for all views
    view.compare("start", "wide")
    assert (view.a, view.b, other.a, other.b) == ("start", "wide") * 2
    view.a, view.b = "wide", "now"
    changed = {c.op for c in session.diff("wide").changes}
    assert changed and {c.op for c in view.diff.changes} == changed
    assert "wide → now" in view.static().html
    view.b = "wide"
    assert not view.diff.changes and "no op differs" in view.static().html
    for name in ("a", "b"):
        with pytest.raises(traitlets.TraitError, match="no checkpoint 'x'; there are: start, wide, previous, now"):
            setattr(view, name, "x")
    with pytest.raises(InputError, match="no checkpoint 'x'"):
        widgets.DiffView(session, "x")


def test_a_comparison_of_files_stays_what_it_is() -> None:
    view = widgets.DiffView(hand_made())
    assert (view.a, view.b) == ("main", "branch")
    view.a = "main"
    with pytest.raises(traitlets.TraitError, match="compares 'main' with 'branch' and no others"):
        view.b = "now"


def hand_made() -> Any:
    before = side(
        "main",
        {
            "gone": op(0, (0, 3)),
            "moves": op(0, (1, 0)),
            "stays": op(0, (0, 0)),
            "grows": op(1, (0, 0), (1, 2), 400),
            "slow": op(1, (1, 0), (1, 2), 100),
        },
    )
    after = side(
        "branch",
        {
            "new": op(0, (0, 2)),
            "moves": op(0, (1, 3)),
            "stays": op(0, (0, 0)),
            "grows": op(1, (0, 0), (2, 2), 200),
            "slow": op(1, (0, 2), (1, 2), 150),
        },
    )
    return compare_sides(before, after)


def drawn(svg: str) -> tuple[list[str], list[str]]:
    """Names of the tiles, and of the outlines of what was before."""
    titles = [e.text or "" for e in elements(svg, "title")]
    return ([t.split(":")[0] for t in titles if ":" in t], [t.removesuffix(" before") for t in titles if ":" not in t])


def test_a_comparison_draws_what_its_mode_says() -> None:
    view = widgets.DiffView(hand_made())
    tiles, outlines = drawn(view.svg(0))
    assert sorted(tiles) == sorted(["gone", "moves", "stays", "new", "moves", "stays"]) and not outlines
    assert elements(view.svg(0), "text")[0].text == "main: epoch 0"
    view.mode = "blink"
    tiles, outlines = drawn(view.svg(0))
    assert sorted(tiles) == ["moves", "new", "stays"] and sorted(outlines) == ["gone", "moves"]
    assert "hsl(" not in view.svg(0) and "stroke-dasharray" in view.static().html
    view.mode = "delta"
    svg = view.svg(1)
    groups = [g for g in elements(svg, "g") if len(g) and g[0].tag == SVG + "title"]
    fills = {(g[0].text or "").split(":")[0]: g[1].get("fill", "") for g in groups}
    assert fills["grows"].startswith("hsl(212 ") and fills["slow"].startswith("hsl(28 ")  # faster, slower
    message = [t.text for t in elements(svg, "text")]
    assert "-50.0 %" in message and "+50.0 %" in message
    assert sorted(drawn(svg)[1]) == ["grows", "slow"]
    assert "hsl(212 " in view.static().html and view.static().html.count("<svg") == 2
    view.mode = "split"
    assert view.static().html.count("<svg") == 4
    assert drawn(view.svg()) == drawn(view.svg(0))  # three ops differ there, two in the other
    with pytest.raises(InputError, match="branch has no epoch 7; there are 0, 1"):
        view.svg(7)


def test_an_epoch_that_is_gone_is_drawn_from_the_side_that_has_it() -> None:
    before = side("main", {"x": op(0, (0, 0)), "y": op(1, (0, 0))})
    view = widgets.DiffView(compare_sides(before, side("branch", {"x": op(0, (0, 0))})))
    for mode in ("split", "blink", "delta"):
        view.mode = mode
        assert drawn(view.svg())[0] == ["y"] and "main: epoch 1" in view.svg()


def test_a_session_s_comparison_is_a_picture(session: Session) -> None:
    view = widgets.DiffView(session, "wide")
    changed = [c.op for c in session.diff("wide").changes]
    for mode in ("split", "blink", "delta"):
        view.mode = mode
        assert set(drawn(view.svg())[0]) & set(changed)


# -- chips ------------------------------------------------------------------------------------------------------------
def test_the_cluster_draws_the_time_of_its_epoch(session: Session) -> None:
    view = widgets.ClusterView(session)
    placement = session.compile().placement
    for epoch in placement.epochs:
        view.epoch = epoch.index
        now = [e for e in placement.epochs if e.temporal == epoch.temporal]
        svg = view.svg()
        busy = [t.text for t in elements(svg, "text") if (t.text or "").startswith("epoch ")]
        assert [w.split(":")[0] for w in busy] == [f"epoch {e.index}" for e in sorted(now, key=lambda e: e.chip)]
        boxes = sum(p.get("d", "").count("M") for p in elements(svg, "path") if p.get("stroke-width") == ".5")
        assert boxes == sum(len(e.ops) for e in now)
        for e, message in zip(sorted(now, key=lambda e: e.chip), busy, strict=True):
            cores = sum(placement.ops[o].size[0] * placement.ops[o].size[1] for o in e.ops)
            size = session.device.rows * session.device.cols
            assert message.endswith(f": {100 * cores / size:.0f} % of cores")
        assert svg in view.static().html and f"Temporal epoch {epoch.temporal} of" in view.static().html
        assert view.svg(epoch.index) == svg
    with pytest.raises(InputError, match="no epoch 99"):
        view.svg(99)
    view.epoch = 99
    assert view.static().html.startswith(f"<p>Temporal epoch {placement.epochs[-1].temporal} of")


def test_an_idle_chip_says_so(session: Session) -> None:
    view = widgets.ClusterView(Session(*encoder(1), load_device("wormhole_b0", chips=2), name="one"))
    ops = [n.name for n in view.session.graph("lowered").ops]
    view.session.apply(*(PlaceOp(name, chip=0) for name in ops))
    texts = [t.text for t in elements(view.svg(), "text")]
    assert texts.count("idle") == 1 and texts.count("no epochs") == 1
