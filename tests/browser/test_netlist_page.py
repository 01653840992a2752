"""The page of a netlist file that does not pass the check: offline, every part there, findings lead to their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.widgets import open_netlist, report
from tests.browser.conftest import errors_of
from tests.netlist import builders as b

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not report.PAGE.is_file(), reason="the front end is not built: make front-end"),
]


def test_a_broken_netlist(browser: Any, tmp_path: Path, shots: Path) -> None:
    n = b.build([b.op("first", "nop", ["x"], grid=(2, 2)), b.op("second", "exp", ["first"], loc=(1, 1)),
                 b.op("third", "exp", ["second"], loc=(11, 3))], {"x": (1, 2, 2)})
    file = tmp_path / "netlist.yaml"
    netlist.dump(n, file)
    path = open_netlist(file).to_html(tmp_path / "netlist.html")
    page = browser.new_page(viewport={"width": 1500, "height": 1300})
    errors = errors_of(page)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-tb-ready=true]")
    assert page.locator("[data-tb-overlap]").count() == 1
    assert page.locator("[data-tb-overlap='1,1']").get_attribute("aria-label").endswith("claimed by first, second")
    assert page.locator(".tb-absent").count() == 1
    assert int(page.locator("[data-tb-view=findings]").get_attribute("data-tb-findings")) == len(
        netlist.check(netlist.load(file))) > 0
    link = page.locator("[data-tb-action=goto-line]").first
    line = int(link.get_attribute("data-tb-line"))
    link.click()
    page.locator(f".tb-line[data-tb-line='{line}'][aria-current=true]").wait_for()
    assert page.locator(".tb-line[aria-current=true]").count() == 1
    assert page.locator(".tb-line.tb-marked").count() > 0, "the entry of the op that it is about"
    page.locator("[data-tb-action=tab-queues]").click()
    page.locator("[data-tb-queue=x]").click()
    page.wait_for_selector("[data-tb-view=inspector] .tb-entry")
    assert "HOST" in page.locator("[data-tb-view=inspector] .tb-entry").inner_text()
    page.locator("[data-tb-action=tab-programs]").click()
    assert "execute" in page.locator("[data-tb-view=programs]").inner_text()
    page.screenshot(path=shots / "netlist_file.png", full_page=True)
    page.close()
    assert not errors
