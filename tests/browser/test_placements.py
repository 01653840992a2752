"""The search for a faster placement and the table of placements, in a page of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.session import ResizeOp, Session
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
