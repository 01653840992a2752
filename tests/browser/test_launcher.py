"""The JupyterLab extension: the launcher card makes a notebook that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import expect, run_all, until


def test_launcher_card(watched: Any, lab: Any, shots: Path) -> None:
    page = watched.page
    installed = page.evaluate("() => window.jupyterapp.commands.hasCommand('tbuda:new-session')")
    if not installed:
        pytest.skip("the extension is not linked into this environment: make front-end")
    page.wait_for_selector(".jp-Launcher")
    card = page.locator(".jp-LauncherCard[title^='A notebook that traces']")
    card.wait_for()
    page.screenshot(path=shots / "launcher.png")
    card.click()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.context?.path.startsWith('Untitled')")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.ready")  # read, and not being written any more
    path = page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
    result = json.loads((lab.folder / path).read_text())
    assert "BringUp(model, inputs" in "".join(result["cells"][1]["source"])
    run_all(page)
    page.wait_for_selector("[data-tb-root=bringup] [data-tb-metric=pcc]", timeout=300_000)
    until(page, lambda: float(page.locator("[data-tb-metric=pcc] b").inner_text()) >= 0.99)
    expect(page.locator("[data-tb-view=stages]")).to_have_attribute("data-tb-state", "idle")
    assert watched.errors == []
