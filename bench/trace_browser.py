"""The timeline at a million events in Chromium: from the tab to the drawn picture, and each zoom.

    python bench/trace_browser.py [--inputs 4000]

Needs the built front end and Chromium, as the browser tests do. Times are from the request to the last tile drawn.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import secrets
import tempfile
from typing import Any

import machine
import numpy as np
from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS, Lab, run_all

CODE = """
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import RunTrace
from tests.session.models import encoder
session = Session(*encoder(2), "n150", name="encoder")
session.compile()
trace = session.timeline({inputs}).trace
trace.pyramid
view = RunTrace(session, batch={inputs}, height=700)
view
"""


def notebook(folder: pathlib.Path, code: str) -> None:
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": code}
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {"cells": [cell], "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "bench.ipynb").write_text(json.dumps(book))


def shown(page: Any, before: str) -> float:
    """Waits for the next `data-tb-shown-ms`; returns it."""
    page.wait_for_function(
        "before => { const d = document.querySelector('[data-tb-view=trace]').dataset; "
        "return d.tbShownMs && d.tbWindow !== before && d.tbWaiting === undefined; }",
        arg=before,
    )
    return float(page.locator("[data-tb-view=trace]").get_attribute("data-tb-shown-ms"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=4000)
    asked = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp())
    (base / "nb").mkdir()
    (base / "jupyter").mkdir()
    notebook(base / "nb", CODE.format(inputs=asked.inputs))
    lab = Lab(base / "nb", base / "jupyter")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_context(viewport={"width": 1600, "height": 1200}).new_page()
            page.set_default_timeout(240_000)
            page.goto(lab.url(f"lab/workspaces/{secrets.token_hex(4)}"))
            page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
            opening = "execute('docmanager:open', {path: 'bench.ipynb'})"
            page.evaluate(f"() => window.jupyterapp.commands.{opening}.then(() => 0)")
            run_all(page)
            page.wait_for_selector("[data-tb-view=trace][data-tb-state=ready]")
            view = page.locator("[data-tb-view=trace]")
            opened = shown(page, "")
            events = int(view.get_attribute("data-tb-events"))
            zooms = []
            stage = page.locator(".tb-trace-stage")
            stage.focus()
            for key in ["+"] * 18 + ["ArrowRight"] * 6 + ["-"] * 12:
                before = view.get_attribute("data-tb-window")
                page.keyboard.press(key)
                zooms.append(shown(page, before))
            browser.close()
    finally:
        lab.stop()
    print(machine.describe() + "\n")
    print(
        f"{events:,} events: open {opened:.0f} ms; {len(zooms)} zooms and pans, median {np.median(zooms):.0f} ms, "
        f"95 % within {np.percentile(zooms, 95):.0f} ms, largest {max(zooms):.0f} ms"
    )


if __name__ == "__main__":
    main()
