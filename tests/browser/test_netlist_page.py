"""The page of a netlist file that does not pass the check: offline, every part there, findings lead to their line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tbuda_lab.core import netlist
from tbuda_lab.widgets import open_netlist
from tests.browser.conftest import errors_of, expect
from tests.netlist import builders as b


def test_a_broken_netlist(browser: Any, tmp_path: Path, shots: Path) -> None:
    n = b.build(
        [
            b.op("first", "nop", ["x"], grid=(2, 2)),
            b.op("second", "exp", ["first"], loc=(1, 1)),
            b.op("third", "exp", ["second"], loc=(11, 3)),
        ],
        {"x": (1, 2, 2)},
    )
    file = tmp_path / "netlist.yaml"
    netlist.dump(n, file)
    path = open_netlist(file).to_html(tmp_path / "netlist.html")
    page = browser.new_page(viewport={"width": 1500, "height": 1300})
    errors = errors_of(page)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-tb-ready=true]")
    expect(page.locator("[data-tb-overlap]")).to_have_count(1)
    overlap = page.locator("[data-tb-overlap='1,1']")
    expect(overlap).to_have_attribute("aria-label", re.compile("claimed by first, second$"))
    expect(page.locator(".tb-absent")).to_have_count(1)
    result = len(netlist.check(netlist.load(file)))
    assert result > 0
    expect(page.locator("[data-tb-view=findings]")).to_have_attribute("data-tb-findings", str(result))
    link = page.locator("[data-tb-action=goto-line]").first
    line = int(link.get_attribute("data-tb-line"))
    link.click()
    page.locator(f".tb-line[data-tb-line='{line}'][aria-current=true]").wait_for()
    expect(page.locator(".tb-line[aria-current=true]")).to_have_count(1)
    expect(page.locator(".tb-line.tb-marked"), "the entry of the op that it is about").not_to_have_count(0)
    page.locator("[data-tb-action=tab-queues]").click()
    page.locator("[data-tb-queue=x]").click()
    expect(page.locator("[data-tb-view=inspector] .tb-entry")).to_contain_text("HOST")
    page.locator("[data-tb-action=tab-programs]").click()
    expect(page.locator("[data-tb-view=programs]")).to_contain_text("execute")
    page.screenshot(path=shots / "netlist_file.png", full_page=True)
    page.close()
    assert not errors
