"""Accessibility: axe finds nothing serious in the workbench and around it, in both themes.

axe-core (MPL-2.0) is read from node_modules, a development dependency; nothing of it is shipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, command, notebook, run_all
from tests.browser.test_lab_sessions import CELL, OP

ROOT = Path(__file__).parents[2]
AXE = ROOT / "labextension/node_modules/axe-core/axe.min.js"
BUILT = (ROOT / "tbuda_lab/labextension/package.json").is_file()

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not (BUILT and AXE.is_file()), reason="the front end is not built: make front-end"),
]

TABS = ("ops", "trace", "netlist", "overrides", "memory", "diff", "passes", "problems")


@pytest.fixture(scope="module")
def page(watched: Any, lab: Any) -> Iterator[Any]:
    (lab.folder / "axe.ipynb").write_text(notebook(CELL.replace("edits.buda.json", "axe.buda.json")))
    page = watched.page
    page.set_default_timeout(PATIENCE // 4)
    command(page, "docmanager:open", path="axe.ipynb")
    run_all(page)
    page.wait_for_selector("[data-tb-root=bringup] [data-tb-metric=pcc]", timeout=PATIENCE)
    page.wait_for_selector("[data-tb-status][data-tb-state=idle]", timeout=PATIENCE)
    page.evaluate("() => { window.jupyterapp.shell.activateById('tbuda-sidebar') }")
    page.locator(f"[data-tb-view=grid] .tb-tile[data-tb-op='{OP}']").click()
    page.keyboard.press("[")
    page.wait_for_selector("[data-tb-answer=done]")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    yield page
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def violations(page: Any, place: str) -> list[str]:
    """What axe says is serious or critical below an element: rule, element, and why."""
    found = page.evaluate(
        """async place => {
          const { violations } = await window.axe.run(place, { resultTypes: ['violations'] });
          return violations.filter(v => ['serious', 'critical'].includes(v.impact)).flatMap(v =>
            v.nodes.slice(0, 5).map(n =>
              `${v.id}: ${n.html.slice(0, 160)} (${(n.any[0] ?? n.all[0] ?? n.none[0])?.message ?? ''})`));
        }""", place)
    return list(found)


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_nothing_serious(page: Any, theme: str) -> None:
    command(page, "apputils:change-theme", theme=f"JupyterLab {theme}")
    page.wait_for_selector(f"[data-tb-root=bringup][data-tb-theme={theme.lower()}]")
    page.wait_for_timeout(1500)
    found: dict[str, list[str]] = {}
    for tab in TABS:
        button = page.locator(f"[data-tb-root=bringup] [data-tb-action=tab-{tab}]").first
        if button.count():
            button.click()
            page.wait_for_timeout(400)
            found |= {f"{tab}: {v}": [] for v in violations(page, "[data-tb-root=bringup]")}
    found |= {f"sidebar: {v}": [] for v in violations(page, "#tbuda-sidebar")}
    found |= {f"status: {v}": [] for v in violations(page, "[data-tb-status]")}
    assert list(found) == []


def test_axe_would_find_something(page: Any) -> None:
    page.evaluate("""() => document.querySelector('#tbuda-sidebar').insertAdjacentHTML(
      'beforeend', '<button id="nameless" style="color:#777;background:#888"></button>')""")
    try:
        assert any(v.startswith("button-name") for v in violations(page, "#tbuda-sidebar"))
    finally:
        page.evaluate("() => document.querySelector('#nameless').remove()")
