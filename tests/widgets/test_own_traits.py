"""States of timeline, memory, comparison and texts as Python tells them: refused where wrong, kept in the picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
import traitlets

from tbuda_lab import widgets
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import EpochBreak, Session
from tbuda_lab.widgets.views.base import BUNDLE
from tbuda_lab.widgets.views.workbench import MODES, TABS
from tests.session.models import encoder

pytestmark = pytest.mark.skipif(not BUNDLE.is_file(), reason="the front end is not built: make front-end")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(*encoder(1), "n150", name="encoder")
    ops = [node.name for node in session.graph("lowered").ops]
    session.apply(EpochBreak(ops[len(ops) // 2]))
    assert len(session.compile().placement.epochs) > 1
    yield session


def titles(svg: str) -> list[str]:
    root = ET.fromstring(svg.replace("&nbsp;", " "))
    return [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]


# -- the timeline -----------------------------------------------------------------------------------------------------
def test_the_timeline_draws_the_stretch_and_the_ops_asked_for(session: Session) -> None:
    view = widgets.RunTrace(session, batch=2)
    runs = view.trace.trace.epochs
    names = {run.epoch: list(session.compile().placement.epochs[run.epoch].ops) for run in runs}
    last = runs[-1]
    view.window(last.start, last.end)
    assert (view.t0, view.t1) == (last.start, last.end)
    assert set(titles(view.svg())) <= set(names[last.epoch]) and titles(view.svg())
    view.window()
    assert (view.t0, view.t1) == (0, None)
    first = runs[0]
    pair = [names[first.epoch][0], names[last.epoch][0]]
    view.lanes = pair
    assert list(dict.fromkeys(titles(view.svg()))) == pair and "2 ops" in view.static().html
    view.level = "epochs"
    assert titles(view.svg()) == [] and "all epochs." in view.static().html
    view.level, view.lanes = "", []
    view.window(10 * view.trace.cycles)
    with pytest.raises(InputError, match="nothing runs from cycle"):
        view.svg()
    assert "nothing runs from cycle" in view.static().html and "<svg" in view.static().html


def test_bars_of_a_stretch_stay_within_the_picture(session: Session) -> None:
    view = widgets.RunTrace(session, batch=2)
    cycles = view.trace.cycles
    view.window(cycles * 0.2, cycles * 0.3)
    bars = re.findall(r"M([\d.-]+) \d+h([\d.]+)v13", view.svg())
    assert bars and all(float(x) >= 190 and float(x) + float(w) <= 900 for x, w in bars)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("t0", -1.0, "t0 is a cycle, 0 or later"),
        ("t1", float("nan"), "t1 is a cycle"),
        ("t0", 60.0, r"cycle 60 \(t0\) is not before 50"),
        ("level", "rows", "level"),
        ("lanes", ["nonsense"], "'nonsense' is not an op of this placement"),
        ("cursors", [1, 2, 3], "length"),
        ("cursors", [-1.0], "cursors stand on cycles"),
        ("play", "yes", "play"),
    ],
)
def test_the_timeline_refuses_what_is_no_state_of_it(session: Session, name: str, value: object, message: str) -> None:
    view = widgets.RunTrace(session)
    view.window(0, 50)
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(view, name, value)
    with pytest.raises(InputError, match="not from 5 to 5"):
        view.window(5, 5)
    view.window(50, 60)  # at once, past the end that was
    assert (view.t0, view.t1) == (50, 60)


# -- memory -----------------------------------------------------------------------------------------------------------
def test_memory_draws_the_cores_or_the_channels(session: Session) -> None:
    view = widgets.MemoryView(session)
    ops = session.compile().placement.epochs[1].ops
    view.epoch, view.core = 1, (0, 1)
    drawn = titles(view.svg())
    assert {t.rsplit(":", 1)[0] for t in drawn} == set(ops) and view.svg().count("stroke-dasharray") == 1
    harvested = view.hub.frames["ops"].meta["harvested"]
    assert harvested and view.svg().count("url(#h)") == len(harvested)
    used, room = session.l1(ops[0]), re.compile(r": (\d+) % of what buffers may use")
    share = used.used / (used.size - used.reserved)
    assert room.search(next(t for t in drawn if t.startswith(ops[0] + ":"))).group(1) == f"{100 * share:.0f}"  # type: ignore[union-attr]
    assert "L1 of epoch 1" in view.static().html
    view.mode, view.channel = "dram", 1
    assert "DRAM channels of chip 0" in view.svg() and view.svg().count("stroke='#1f63d6'") == 1
    assert "L1 of epoch" not in view.static().html
    with pytest.raises(InputError, match="no chip 7; there are 0"):
        view.svg(chip=7)
    view.mode, view.epoch = "l1", 99
    with pytest.raises(InputError, match="no epoch 99"):
        view.svg()
    assert "L1 of epoch" in view.static().html


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("mode", "l2", "l2"),
        ("core", (99, 0), r"a core is \(row, column\), or \(\), not \(99, 0\); there are 9 rows"),
        ("core", (1,), r"not \(1,\)"),
        ("channel", 99, "no DRAM channel 99; there are 0, 1"),
        ("channel", -1, "-1"),
    ],
)
def test_memory_refuses_what_is_no_state_of_it(session: Session, name: str, value: object, message: str) -> None:
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(widgets.MemoryView(session), name, value)


# -- comparisons ------------------------------------------------------------------------------------------------------
def test_a_comparison_has_three_modes(session: Session) -> None:
    view = widgets.DiffView(session)
    view.mode = "blink"
    assert view.get_state("mode") == {"mode": "blink"}
    with pytest.raises(traitlets.TraitError, match="delta"):
        view.mode = "both"


def test_the_cluster_has_an_epoch(session: Session) -> None:
    view = widgets.ClusterView(session)
    view.epoch = 1
    assert view.get_state("epoch") == {"epoch": 1}
    with pytest.raises(traitlets.TraitError, match="epoch"):
        view.epoch = -1


# -- the workbench ----------------------------------------------------------------------------------------------------
def test_every_tab_and_mode_of_the_page_is_one_that_python_takes() -> None:
    views = Path(__file__).parents[2] / "labextension" / "src" / "views"
    tabs = re.findall(r"\['(\w+)', '[A-Z]\w+', (?:new LazyView|\w+)", (views / "bringup.ts").read_text())
    modes = re.findall(r"\['(\w+)', '[A-Z][\w ]*', 'Show", (views / "docks.ts").read_text())
    assert (sorted(tabs), sorted(modes)) == (sorted(TABS), sorted(MODES))
