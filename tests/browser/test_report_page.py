"""The report page from a file, offline: it draws, it links, it asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets import report
from tests.browser.conftest import box_of, errors_of, expect, until
from tests.widgets import synthetic


@pytest.fixture(scope="module", params=["light", "dark"])
def opened(request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = synthetic.FakeSession(synthetic.result(12))
    session.compile()
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write_report(session, path, [Comparison("output 0", 0.99931, 0.0213, 4.1)])  # type: ignore[arg-type]
    context = browser.new_context(viewport={"width": 1500, "height": 1200}, color_scheme=request.param, offline=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.errors, page.asked, page.theme = errors_of(page), [], request.param
    page.on("request", lambda r: page.asked.append(r.url))
    page.goto(path.as_uri())
    page.wait_for_selector("[data-tb-ready=true]")
    yield page
    context.close()


def test_every_part_is_there(opened: Any, shots: Path) -> None:
    names = "s => s.map(e => e.dataset.tbSection)"
    expected = ["graph", "summary", "problems", "ops", "all"]
    until(opened, lambda: opened.locator("[data-tb-section]").evaluate_all(names) == expected)
    epochs = len(synthetic.result(12).placement.epochs)
    expect(opened.locator("[data-tb-view=gallery] figure")).to_have_count(epochs)
    expect(opened.locator("[data-tb-action=epoch]")).to_have_count(epochs)
    box_of(opened.locator("[data-tb-section=all]"))
    opened.screenshot(path=shots / f"report_{opened.theme}.png", full_page=True)


def test_selection_is_linked(opened: Any) -> None:
    tile = opened.locator("[data-tb-view=gallery] .tb-tile").nth(40)
    name = tile.get_attribute("data-tb-op")
    tile.click()
    for where in ("grid", "table"):
        opened.wait_for_selector(f"[data-tb-view={where}] .tb-selected[data-tb-op='{name}']", state="attached")
    opened.wait_for_selector(f"[data-tb-view=graph] [data-tb-op='{name}'][aria-pressed=true]", state="attached")


def test_every_stage_has_its_graph(opened: Any) -> None:
    for stage in ("traced", "passed", "lowered"):
        opened.locator(f"[data-tb-action=graph-stage-{stage}]").click()
        opened.wait_for_selector(f"[data-tb-view=graph][data-tb-stage={stage}]")


def test_it_asks_nobody(opened: Any) -> None:
    assert opened.errors == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.asked)
