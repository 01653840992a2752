"""The search for a faster placement and the table of placements, in a page of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.compiler.pipeline import Pipeline
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.core.session import compiles as session_compiles
from tests.browser.bare import bare_page
from tests.session.models import encoder

GRID = "[data-tb-view=grid]"
ROW = "[data-tb-view=placements] tr[data-tb-placement]"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_search_keep_a_part_compare_and_go_back(browser: Any, shots: Path, tmp_path: Path, theme: str) -> None:
    session = Session(*encoder(), "n150", name="encoder")
    session.compile()
    op = next(o for o, p in session.result.placement.ops.items() if p.size[0] > 1)
    session.apply(ResizeOp(op, (1, 1)), source="page")  # there is something to find
    session.compile()
    before = session.time().per_input
    session.export_netlist(tmp_path / "other.yaml")
    with bare_page(browser, session, (1440, 900), theme) as bare:
        page = bare.page
        bare.sees(f"{GRID} .tb-tile")
        page.locator(f"{GRID} [data-tb-action=optimise]").click()
        bare.sees("[data-tb-view=search] [data-tb-action=search-start]")
        page.locator("[data-tb-action=search-seconds]").fill("30")
        page.locator("[data-tb-action=search-start]").click()
        bare.sees("[data-tb-view=search][data-tb-state=running] .tb-curve")
        bare.until(lambda: (best := bare.hub.frame("search").columns["cycles"])[-1] < best[0])
        page.locator("[data-tb-action=search-enough]").click()
        bare.sees("[data-tb-view=search][data-tb-state=ended]")
        bare.until(lambda: not bare.hub.busy and len(session.history) == 2)
        assert session.time().per_input < before
        bare.sees(".tb-change-row input:checked")
        page.screenshot(path=shots / f"search_{theme}.png")
        rows = page.locator(".tb-change-row")
        if rows.count() > 1:
            page.locator("[data-tb-action=search-none]").click()
            rows.nth(0).locator("input").check()
            page.locator("[data-tb-action=search-take]").click()
            bare.until(lambda: session.history[-1].label.startswith("1 of ") and not session.stale)
            assert session.history[-1].before == session.history[0].after, "the search itself is taken back"
        page.locator("[data-tb-action=tab-placements]").click()
        bare.until(lambda: page.locator(ROW).count() == len(session.placements) >= 3)
        page.locator("[data-tb-action=placement-path]").fill(str(tmp_path / "other.yaml"))
        page.locator("[data-tb-action=placement-open]").click()
        bare.sees(f"{ROW}[data-tb-kind=file]")
        page.locator("[data-tb-action=placement-sort-cycles]").click()
        shown = page.locator(f"{ROW} td:nth-child(5)").all_inner_texts()
        cycles = [int(t.replace(",", "")) for t in shown if t != "–"]
        assert cycles == sorted(cycles) and shown[-1] == "–"
        page.locator(f"{ROW}[data-tb-placement=start] [data-tb-action=placement-back]").click()
        bare.until(lambda: session.unedited and not session.stale)
        bare.sees(f"{ROW}[data-tb-placement=start][aria-current=true]")
        page.screenshot(path=shots / f"placements_{theme}.png")
        for name in ("start", "other.yaml"):
            page.locator(f"{ROW}[data-tb-placement='{name}'] input").check()
        page.locator("[data-tb-action=placement-diff]").click()
        bare.sees("[data-tb-view=diff] .tb-diff-summary b")
        assert bare.hub.frame("diff").meta["b"] == "other.yaml"
        page.screenshot(path=shots / f"placements_diff_{theme}.png")
        assert page.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_first_placement_is_dragged_while_a_better_one_is_searched(
    browser: Any, shots: Path, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    compile_ = Pipeline.compile

    def searching(self: Pipeline, graph: Any, request: Any, clock: Any) -> Any:
        while request.options.enable_auto_fusing:  # until it is cancelled
            clock.stop_or_tell("place", "choosing epochs, 40 %")
            time.sleep(0.05)
        return compile_(self, graph, request, clock)

    monkeypatch.setattr(Pipeline, "compile", searching)
    monkeypatch.setattr(session_compiles, "FIRST_NODES", 10)
    session = Session(*encoder(), "n150", name="encoder", cache=False)
    with bare_page(browser, session, (1440, 900), theme) as bare:
        page = bare.page
        bare.hub.start(verify=False, run=False)
        bare.sees(f"{GRID} .tb-tile")
        bare.sees("[data-tb-action=keep-first]")
        page.screenshot(path=shots / f"first_placement_{theme}.png")
        tile = page.locator(f"{GRID} .tb-tile").first
        op = tile.get_attribute("data-tb-op")
        before = dict(zip(bare.hub.frame("ops").text("op_name"), bare.hub.frame("ops").columns["op_cols"], strict=True))
        tile.click()
        page.keyboard.press("]")
        bare.until(lambda: len(session.history) == 2 and not session.stale)
        assert session.history[0].label == "keep the first placement" and not bare.hub.busy
        assert session.result.placement.ops[op].size != (1, int(before[op])) or before[op] != 1
        bare.until(lambda: not page.locator("[data-tb-action=keep-first]").count())
        assert page.errors == []
