"""Accessibility: axe finds nothing serious in the workbench and around it, in both themes.

axe-core (MPL-2.0) is read from node_modules, a development dependency; nothing of it is shipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, command, expect, notebook, run_all, settled, until
from tests.browser.test_lab_sessions import CELL, OP, idle

ROOT = Path(__file__).parents[2]
AXE = ROOT / "labextension/node_modules/axe-core/axe.min.js"

pytestmark = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make front-end")

CELL = CELL.replace("edits.buda.json", "axe.buda.json").replace("lab_mlp", "axe_mlp")
TABS = {  # and what stands in each once it is all there
    "ops": f"[data-tb-view=table] [data-tb-op='{OP}']",
    "trace": "[data-tb-view=trace][data-tb-state=ready]:not([data-tb-waiting]) .tb-trace-name",
    "netlist": "[data-tb-view=netlist] [data-tb-line]",
    "overrides": "[data-tb-view=overrides] [data-tb-override]",
    "memory": f"[data-tb-view=memory] .tb-heat [data-tb-op='{OP}']",
    "diff": f"[data-tb-view=diff] .tb-diff-list [data-tb-op='{OP}']",
    "passes": "[data-tb-view=passes] [data-tb-change]",
    "problems": "[data-tb-view=problems] :is(li, .tb-empty)",
}


@pytest.fixture(scope="module")
def page(watched: Any, lab: Any) -> Iterator[Any]:
    (lab.folder / "axe.ipynb").write_text(notebook(CELL))
    page = watched.page
    page.set_default_timeout(PATIENCE // 4)
    command(page, "docmanager:open", path="axe.ipynb")
    run_all(page)
    idle(page, "axe_mlp")
    page.evaluate("() => { window.jupyterapp.shell.activateById('tbuda-sidebar') }")
    page.locator("[data-tb-session-row=axe_mlp]").wait_for()
    page.locator(f"[data-tb-view=grid] .tb-tile[data-tb-op='{OP}']").click()
    page.wait_for_selector(f"[data-tb-view=table] .tb-selected[data-tb-op='{OP}']")
    page.keyboard.press("[")
    page.wait_for_selector("[data-tb-answer=done]")
    expect(page.locator("[data-tb-view=grid] [data-tb-stale]")).to_have_count(0)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    yield page
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def violations(page: Any, place: str) -> list[str]:
    """What axe says is serious or critical below an element that has come to rest: rule, element, and why."""
    page.wait_for_function(
        """place => !document.querySelector(place).getAnimations({ subtree: true }).some(
          a => a.playState === 'running' && a.effect.getComputedTiming().endTime !== Infinity)""",
        arg=place,
    )
    result = page.evaluate(
        """async place => {
          const { violations } = await window.axe.run(place, { resultTypes: ['violations'] });
          return violations.filter(v => ['serious', 'critical'].includes(v.impact)).flatMap(v =>
            v.nodes.slice(0, 5).map(n =>
              `${v.id}: ${n.html.slice(0, 160)} (${(n.any[0] ?? n.all[0] ?? n.none[0])?.message ?? ''})`));
        }""",
        place,
    )
    return list(result)


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_nothing_serious(page: Any, theme: str) -> None:
    command(page, "apputils:change-theme", theme=f"JupyterLab {theme}")
    page.wait_for_selector(f"[data-tb-root=bringup][data-tb-theme={theme.lower()}]")
    settled(page)
    matches: dict[str, list[str]] = {}
    for tab, there in TABS.items():
        page.locator(f"[data-tb-root=bringup] [data-tb-action=tab-{tab}]").first.click()
        page.locator(f"[data-tb-root=bringup] {there}").first.wait_for()
        settled(page)
        matches |= {f"{tab}: {v}": [] for v in violations(page, "[data-tb-root=bringup]")}
    matches |= {f"sidebar: {v}": [] for v in violations(page, "#tbuda-sidebar")}
    matches |= {f"status: {v}": [] for v in violations(page, "[data-tb-status]")}
    assert list(matches) == []


def test_axe_would_find_something(page: Any) -> None:
    def found() -> bool:  # a list of sessions that comes meanwhile takes the button away
        page.evaluate("""() => document.querySelector('#nameless') ?? document.querySelector('#tbuda-sidebar')
          .insertAdjacentHTML('beforeend', '<button id="nameless" style="color:#777;background:#888"></button>')""")
        return any(v.startswith("button-name") for v in violations(page, "#tbuda-sidebar"))

    try:
        until(page, found)
    finally:
        page.evaluate("() => document.querySelector('#nameless')?.remove()")
