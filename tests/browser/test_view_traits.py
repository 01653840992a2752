"""What Python and the page tell each other of graph, grid and table: passes, directions, TMs, links, chips, groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.device import load_device
from tbuda_lab.core.session import Session
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import over_the_cores, settled
from tests.session.models import encoder

TRAITS = {
    "pass_name": "",
    "direction": "TB",
    "show_tms": False,
    "viewport": [],
    "query": "",
    "depth": None,
    "collapsed": [],
    "epoch": 0,
    "noc": "none",
    "chip": None,
    "chips_per_row": 0,
    "link_threshold": 0.0,
    "show_pipes": "none",
    "displacement": "free",
}
GRAPH, GRID, TABLE = (f"[data-tb-view={view}]" for view in ("graph", "grid", "table"))


@pytest.fixture
def bare(browser: Any) -> Iterator[Bare]:
    session = Session(*encoder(1), load_device("wormhole_b0", chips=2), name="encoder")
    session.compile()
    with bare_page(browser, session, (1440, 1250), values=TRAITS) as bare:
        yield bare


def shoot(page: Any, shots: Path, name: str) -> None:
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.locator(f".tb-root[data-tb-theme={theme}]").wait_for()
        settled(page)
        page.screenshot(path=shots / f"traits_{name}_{theme}.png")
    page.emulate_media(color_scheme="light")
    page.locator(".tb-root[data-tb-theme=light]").wait_for()
    settled(page)


def press(bare: Bare, action: str) -> None:
    bare.page.locator(f"[data-tb-action={action}]").first.click()


def test_graph_grid_and_table_do_as_they_are_told(bare: Bare, shots: Path) -> None:
    page, session = bare.page, bare.hub.session
    trace = session.passes()
    bare.sees(f"{GRAPH} [data-tb-action=graph-stage-pass]")
    bare.sees(f"{GRID} .tb-tile")

    # any pass: from Python, step by step, and back to the stages
    first = trace.labels[trace.neighbour(None, 1)]
    second = trace.labels[trace.neighbour(first, 1)]
    page.evaluate("name => window.tell('pass_name', name)", first)
    bare.sees(f"{GRAPH}[data-tb-stage=pass]")
    choice = page.locator("[data-tb-action=graph-pass]")
    bare.until(lambda: choice.input_value() == first and choice.locator("option").count() == len(trace.steps))
    press(bare, "graph-pass-next")
    bare.until(lambda: choice.input_value() == second)
    bare.until(lambda: bare.told.get("pass_name") == second)
    step = trace.find(second)
    changes = trace.steps[step].changes
    message = page.locator(".tb-pass-bar .tb-found")
    bare.until(lambda: message.inner_text().startswith(f"{step + 1} of {len(trace.steps)}: "))
    assert f"{len(changes.added)} added" in message.inner_text() or not changes.added
    shoot(page, shots, "pass")
    press(bare, "graph-stage-lowered")
    bare.sees(f"{GRAPH}[data-tb-stage=lowered]")
    bare.until(lambda: bare.told.get("pass_name") == "")

    # left to right, with TMs on the edges
    hook = page.locator(f"{GRAPH} .tb-hook[data-tb-op]").first
    bare.until(hook.is_visible)
    press(bare, "graph-direction")
    press(bare, "graph-tms")
    bare.sees(f"{GRAPH}[data-tb-direction=LR]")
    bare.until(lambda: bare.told.get("direction") == "LR" and bare.told.get("show_tms") is True)
    press(bare, "graph-in")
    bare.until(lambda: len(bare.told.get("viewport") or ()) == 3)
    shoot(page, shots, "left_to_right")

    # the links of the epoch, and who uses them
    over_the_cores(page, "noc").select_option("both")
    epoch = session.compile().placement.epochs[0]
    links = session.links(0)
    bare.sees(f"{GRID} [data-tb-noc-link]")
    lines = page.locator(f"{GRID} [data-tb-noc-link]")
    bare.until(lambda: lines.count() == int((links.bytes > 0).sum()))
    top = links.busiest(1)[0]
    name = f"NoC {top.noc} {top.start[0]},{top.start[1]} → {top.end[0]},{top.end[1]}"
    listed = page.locator("[data-tb-links] [data-tb-noc-link]").first
    bare.until(lambda: listed.is_visible() and listed.get_attribute("data-tb-noc-link") == name)
    drawn = page.locator(f"{GRID} [data-tb-noc-link='{name}']")
    bare.until(lambda: drawn.count() == 1 and drawn.get_attribute("data-tb-load") == f"{top.load:.3f}")
    shoot(page, shots, "links")
    limit = sorted((links.bytes / links.cycles).reshape(-1))[-5]
    page.evaluate("v => window.tell('link_threshold', v)", float(limit))
    bare.until(lambda: lines.count() == int((links.bytes / links.cycles >= limit).sum()))
    page.locator("[data-tb-action=link-user]").first.click()
    bare.until(lambda: set(bare.hub.selection["names"]) == {top.flows[0].producer, top.flows[0].consumer})
    over_the_cores(page, "noc").select_option("none")
    bare.until(lambda: lines.count() == 0 and page.locator("[data-tb-links]").count() == 0)

    # both chips beside each other, then one alone
    press(bare, "chips-all")
    bare.until(lambda: page.locator(f"{GRID} [data-tb-figure]").count() == 2)
    shoot(page, shots, "chips")
    other = next(e for e in session.compile().placement.epochs if e.chip != epoch.chip)
    page.locator(f"[data-tb-figure='{other.chip}'] [data-tb-action=chip-epoch]").click()
    bare.sees(f"{GRID}[data-tb-epoch='{other.index}']")
    press(bare, "chips-one")
    page.locator(f"[data-tb-action=chip][data-tb-chip='{epoch.chip}']").click()
    bare.sees(f"{GRID}[data-tb-epoch='{epoch.index}']")
    shown = page.locator(f"{GRID} .tb-frame:visible")
    bare.until(lambda: shown.count() == sum(e.chip == epoch.chip for e in session.compile().placement.epochs))
    bare.until(lambda: bare.told.get("chip") == epoch.chip)

    # the table by epoch and by core
    table = page.locator(TABLE)
    table.scroll_into_view_if_needed()
    table.locator("[data-tb-action=table-group]").check()
    table.locator("[role=grid]").evaluate("e => { e.scrollTop = 0; }")
    total = table.locator(".tb-total").first
    bare.until(lambda: total.is_visible() and total.get_attribute("data-tb-epoch") == "0")
    bare.until(lambda: f"{len(epoch.ops)} op" in total.inner_text())
    table.locator("[data-tb-action=table-per-core]").check()
    spot = session.compile().placement.ops[epoch.ops[0]]
    row = table.locator("[data-tb-core]").first
    bare.until(lambda: row.is_visible() and row.get_attribute("data-tb-core") == f"{spot.start[0]},{spot.start[1]}")
    shoot(page, shots, "table")
    assert not page.errors, json.dumps(page.errors)
