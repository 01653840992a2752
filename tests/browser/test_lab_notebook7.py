"""Notebook 7 has the same extension: the widget draws, takes edits, and its menu has *Tensix*."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, Lab, Watched, expect, notebook
from tests.browser.test_lab_sessions import CELL, OP
from tests.kernels import Template

pytest.importorskip("notebook")


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory, kernels: Template) -> Iterator[Lab]:
    server = Lab(tmp_path_factory.mktemp("seven"), tmp_path_factory.mktemp("jupyter7"), kernels, module="notebook")
    yield server
    server.stop()


def test_the_widget_in_notebook_7(browser: Any, seven: Lab, shots: Path) -> None:
    lab = seven
    (lab.folder / "seven.ipynb").write_text(notebook(CELL.replace("edits.buda.json", "seven.buda.json")))
    context = browser.new_context(viewport={"width": 1500, "height": 1300})
    page = context.new_page()
    page.set_default_timeout(PATIENCE // 4)
    watched = Watched(page, f"http://127.0.0.1:{lab.port}/")
    page.goto(lab.url("notebooks/seven.ipynb"))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(
        """() => {
          const app = window.jupyterapp ?? window.jupyterlab;
          return app?.shell.currentWidget?.context?.sessionContext?.session?.kernel?.status === 'idle';
        }""",
        timeout=PATIENCE,
    )
    page.evaluate("() => (window.jupyterapp ?? window.jupyterlab).restored.then(() => null)")
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell.jp-mod-active .cm-focused")
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector("[data-tb-root=bringup] [data-tb-metric=pcc]", timeout=PATIENCE)
    page.wait_for_selector("[data-tb-view=stages][data-tb-state=idle]", timeout=PATIENCE)
    tile = page.locator(f"[data-tb-view=grid] .tb-tile[data-tb-op='{OP}']")
    tile.click()
    page.wait_for_selector(f"[data-tb-view=table] .tb-selected[data-tb-op='{OP}']")
    page.keyboard.press("[")
    page.wait_for_selector("[data-tb-answer=done]")
    expect(page.locator("[data-tb-view=grid] [data-tb-stale]")).to_have_count(0)
    page.locator("[data-tb-view=grid] [data-tb-action=undo]").click()
    page.wait_for_selector("[data-tb-view=grid] [data-tb-action=redo]:not([disabled])")
    page.wait_for_function("() => window.jupyterapp.commands.isEnabled('tbuda:redo')")
    expect(page.locator("[data-tb-view=grid] [data-tb-action=undo]")).to_be_disabled()  # there was one edit
    page.locator(".lm-MenuBar-itemLabel", has_text="Tensix").click()
    redo = page.locator(".lm-Menu-item:not(.lm-mod-disabled)", has_text="Redo")
    redo.wait_for()
    page.screenshot(path=shots / "notebook7_light.png")
    redo.click()
    page.wait_for_selector("[data-tb-view=grid] [data-tb-action=undo]:not([disabled])")
    context.close()
    # Notebook 7.6 says this while it loads its own settings, without the extension as well.
    assert [e for e in watched.errors if "reading 'schema'" not in e] == []
    assert watched.outside == []
