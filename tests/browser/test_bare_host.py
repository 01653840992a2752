"""The bundle in a page that knows nothing of Jupyter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.session import Session
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import box_of, expect
from tests.session.models import perceptron

OP = "first.matmul"


@pytest.fixture(params=["light", "dark"])
def bare(request: pytest.FixtureRequest, browser: Any) -> Iterator[Bare]:
    session = Session(*perceptron(), "n150", name="mlp")
    session.compile()
    with bare_page(browser, session, (1300, 1300), request.param) as bare:
        yield bare


def test_the_workbench_lives_without_jupyter(bare: Bare, shots: Path) -> None:
    page, session = bare.page, bare.hub.session
    tile = f"[data-tb-view=grid] .tb-tile[data-tb-op='{OP}']"
    bare.sees(tile)
    expect(page.locator("[data-tb-root]")).to_have_attribute("data-tb-theme", page.theme)
    box_of(page.locator(tile))
    page.locator(tile).click()
    bare.until(lambda: bare.hub.selection["names"] == [OP])
    # an edit by keys, taken back
    before = session.result.placement.ops[OP].size
    page.keyboard.press("[")
    bare.until(lambda: session.history and not session.stale and session.result.placement.ops[OP].size != before)
    bare.until(lambda: page.locator("[data-tb-action=undo]:not([disabled])").count())
    page.locator("[data-tb-view=grid] [data-tb-action=undo]").click()
    bare.until(lambda: not session.history and session.result.placement.ops[OP].size == before)
    # views whose code comes later, by the same messages
    for tab, seen in (
        ("memory", f".tb-heat [data-tb-op='{OP}']"),
        ("diff", ".tb-diff-summary b"),
        ("passes", "[data-tb-action=pass]"),
        ("trace", ".tb-trace-name"),
    ):
        page.locator(f"[data-tb-action=tab-{tab}]").click()
        bare.sees(f"[data-tb-view={tab}] {seen}")
    page.locator("[data-tb-action=tab-plots]").click()
    bare.sees("[data-tb-view=plots][data-tb-state=ready]")
    frame = page.frame_locator("[data-tb-view=plots] iframe")
    bare.until(lambda: frame.locator(".bk-Figure").count() == 5)
    assert not page.locator("[data-tb-action=open-tab]").is_visible(), "there is no JupyterLab to have tabs"
    page.locator("[data-tb-action=tab-plots]").scroll_into_view_if_needed()
    page.screenshot(path=shots / f"bare_{page.theme}.png", full_page=True)
    assert page.errors == []
