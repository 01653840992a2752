"""Views beside cells that run: the kernel answers a page meanwhile, in a subshell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, Lab, command, expect, lab_page, open_and_run, run_all
from tests.browser.test_own_tab import FIRST, TAB

WAIT = """
import pathlib, time
until = time.monotonic() + 240
while not pathlib.Path('go').exists() and time.monotonic() < until:
    time.sleep(0.05)
"""
"""A cell that runs until the test has seen enough."""
CELL = ".jp-OutputArea [data-tb-root=bringup]"


@pytest.fixture(params=["tab", "cell"])
def place(request: Any, lab: Lab) -> Iterator[str]:
    """Where workbenches open."""
    lab.open_workbenches_in(request.param)
    (lab.folder / "go").unlink(missing_ok=True)
    yield request.param
    (lab.folder / "go").touch()  # a cell that still runs ends
    lab.open_workbenches_in("cell")


def works_while_busy(page: Any, root: str) -> None:
    """A placement is drawn, code of a view first seen comes, and an edit is made, while the second cell runs."""
    page.locator(f"{root} .tb-tile").first.wait_for(timeout=PATIENCE)
    page.locator(f"{root} [data-tb-action=tab-netlist]").click()
    page.locator(f"{root} [data-tb-view=netlist] [data-tb-line]").first.wait_for()
    page.locator(f"{root} [data-tb-view=grid] .tb-tile").first.focus()
    page.keyboard.press("[")
    page.locator(f"{root} [data-tb-view=grid] [data-tb-answer=done]").wait_for()
    assert running(page) == 1, "the second cell ended before"


def running(page: Any) -> int:
    """Cells of the notebook that run now."""
    return int(page.locator(".jp-Notebook .jp-InputPrompt", has_text="[*]").count())


def test_run_all_shows_the_workbench_while_a_later_cell_runs(browser: Any, lab: Lab, place: str, shots: Path) -> None:
    """Also after the kernel was restarted."""
    root = TAB if place == "tab" else CELL
    go = lab.folder / "go"
    with lab_page(browser, lab, (1600, 1100)) as watched:
        page = open_and_run(watched, lab, f"busy_{place}", FIRST, WAIT)
        works_while_busy(page, root)
        page.screenshot(path=shots / f"busy_{place}_light.png")
        go.touch()
        expect(page.locator(".jp-Notebook .jp-InputPrompt", has_text="[*]")).to_have_count(0)
        go.unlink()
        page.evaluate(
            """async () => {
          const panel = [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path?.endsWith('.ipynb'));
          window.jupyterapp.shell.activateById(panel.id);
          await panel.context.sessionContext.restartKernel();
        }"""
        )
        command(page, "notebook:clear-all-cell-outputs")
        run_all(page)
        works_while_busy(page, root)
        go.touch()
