"""Editing a small placement in JupyterLab with the mouse and the keys, and what the kernel has afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.widgets import report
from tests.browser.conftest import Lab, run_all
from tests.browser.test_bring_up import PATIENCE, centre, command, in_kernel

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not report.PAGE.is_file(), reason="the front end is not built: make front-end"),
]

CODE = """
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp
from tests.session.models import perceptron
model, inputs = perceptron()
session = Session(model, inputs, "n150", name="mlp")
session.compile()
bring_up = BringUp(session, start=False)
bring_up
"""
OP = "first.matmul"
GRID = "[data-tb-view=grid]"


@pytest.fixture(scope="module")
def page(watched: Any, lab: Lab) -> Iterator[Any]:
    """A workbench over a compiled perceptron."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": CODE}
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {"cells": [cell], "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    (lab.folder / "edit.ipynb").write_text(json.dumps(book))
    page = watched.page
    command(page, "docmanager:open", path="edit.ipynb")
    run_all(page)
    page.wait_for_selector(f"{GRID} .tb-tile[data-tb-op='{OP}']", timeout=PATIENCE)
    page.locator("[data-tb-view=metrics]").scroll_into_view_if_needed()
    page.wait_for_selector(f"{GRID} [data-tb-action=undo]")
    yield page


def size(page: Any) -> str:
    return in_kernel(page, f"print(session.result.placement.ops['{OP}'].size)").strip()


def answer(page: Any, what: str = "done") -> str:
    """The line that says what came of an edit, taken away again."""
    line = page.locator(f"{GRID} [data-tb-answer={what}]")
    line.wait_for(state="visible")
    text = str(line.inner_text())
    line.locator("[data-tb-action=dismiss]").click()
    return text


def grab(page: Any, handle: str) -> tuple[float, float, float, float]:
    """Hover the op and press one of its handles; returns where that is and the size of one core, in pixels."""
    tile = page.locator(f"{GRID} .tb-tile[data-tb-op='{OP}']")
    rows, cols = json.loads(in_kernel(page, f"print(list(session.result.placement.ops['{OP}'].size))"))
    box = tile.locator(".tb-body").bounding_box()
    page.mouse.move(*centre(tile))
    x, y = centre(page.locator(f"{GRID} [data-tb-handles-of='{OP}'] [data-tb-handle={handle}]"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.wait_for_selector(f"{GRID} .tb-tag:not([data-tb-verdict=WAITING])")
    return x, y, box["width"] / cols, box["height"] / rows


def wanted(page: Any) -> tuple[int, int]:
    """A legal shape with fewer columns and as many rows as the op has."""
    code = f"t = session.legal('{OP}'); print([s for s in t.legal if s[0] == t.grid[0] and s[1] < t.grid[1]][-1])"
    rows, cols = in_kernel(page, code).strip("() \n").split(",")
    return int(rows), int(cols)


def test_a_drag_to_a_legal_shape_is_an_override_in_the_kernel(page: Any, shots: Path) -> None:
    before = size(page)
    rows, cols = wanted(page)
    now = json.loads(in_kernel(page, f"print(list(session.result.placement.ops['{OP}'].size))"))
    x, y, w, _ = grab(page, "e")
    page.mouse.move(x + (cols - now[1]) * w, y, steps=12)
    page.wait_for_selector(f"{GRID} .tb-tag[data-tb-verdict=LEGAL]")
    assert f"{now[0]}×{now[1]} → {rows}×{cols}" in page.locator(f"{GRID} .tb-tag").inner_text()
    page.screenshot(path=shots / "resize_light.png")
    began = time.perf_counter()
    page.mouse.up()
    page.wait_for_selector(f"{GRID} .tb-tile[data-tb-op='{OP}'][aria-label*='columns 0-{cols - 1},']")
    print(f"let go to drawn: {1000 * (time.perf_counter() - began):.0f} ms")
    assert f"resize {OP} to {rows}x{cols}" in answer(page)
    assert size(page) == f"({rows}, {cols})"
    assert in_kernel(page, "print(session.to_python())").strip() == (
        f"pybuda.config.override_op_size('{OP}', ({rows}, {cols}))"
    )
    page.locator("[data-tb-action=tab-overrides]").click()
    row = page.locator(f"[data-tb-override='{OP}']")
    assert row.get_attribute("data-tb-state") == "obtained"
    page.screenshot(path=shots / "overrides_light.png")
    page.locator(f"{GRID} [data-tb-action=undo]").click()
    answer(page)
    assert size(page) == before and page.locator("[data-tb-override]").count() == 0


def test_an_illegal_shape_says_why_with_alt_and_escape_leaves_no_trace(page: Any, shots: Path) -> None:
    before = size(page)
    x, y, w, h = grab(page, "se")
    page.keyboard.down("Alt")
    page.mouse.move(x - w, y - h, steps=6)
    tag = page.locator(f"{GRID} .tb-tag")
    assert tag.get_attribute("data-tb-verdict") not in ("LEGAL", "WAITING")
    assert "divide" in tag.inner_text()
    page.screenshot(path=shots / "illegal_light.png")
    page.mouse.up()
    page.keyboard.up("Alt")
    assert "divide" in answer(page, "refused")
    x, y, w, h = grab(page, "se")
    page.mouse.move(x - 2 * w, y - 2 * h, steps=4)
    page.keyboard.press("Escape")
    page.mouse.up()
    assert page.locator(f"{GRID} .tb-ghosts").count() == 0
    assert size(page) == before and in_kernel(page, "print(len(session.overrides))").strip() == "0"


def test_keys_resize_break_clear_and_undo(page: Any) -> None:
    before = size(page)
    page.locator(f"{GRID} .tb-tile[data-tb-op='{OP}']").click()
    page.keyboard.press("[")
    answer(page)
    assert size(page) != before
    page.keyboard.press("Control+z")
    answer(page)
    assert size(page) == before
    page.keyboard.press("Control+Shift+Z")
    answer(page)
    assert size(page) != before
    page.keyboard.press("u")
    answer(page)
    assert size(page) == before


def test_an_op_is_moved_and_an_epoch_broken_from_the_graph(page: Any, shots: Path) -> None:
    tile = page.locator(f"{GRID} .tb-tile[data-tb-op='second.matmul']")
    box = tile.locator(".tb-body").bounding_box()
    start = json.loads(in_kernel(page, "print(list(session.result.placement.ops['second.matmul'].start))"))
    page.mouse.move(*centre(tile))
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 30, box["y"] + box["height"] / 2 + 200, steps=8)
    page.wait_for_selector(f"{GRID} .tb-tag:not([data-tb-verdict=WAITING])")
    page.screenshot(path=shots / "move_light.png")
    page.mouse.up()
    answer(page)
    moved = json.loads(in_kernel(page, "print(list(session.result.placement.ops['second.matmul'].start))"))
    assert moved != start
    epochs = int(in_kernel(page, "print(len(session.result.placement.epochs))"))
    page.locator("[data-tb-action=graph-expand]").click()
    page.locator("[data-tb-action=graph-fit]").click()
    page.wait_for_timeout(300)
    node = page.locator("[data-tb-view=graph] [data-tb-op='second.matmul']")
    page.mouse.click(*centre(node), button="right")
    page.locator("[data-tb-action=epoch-break]").wait_for()
    page.screenshot(path=shots / "menu_light.png")
    page.locator("[data-tb-action=epoch-break]").click()
    answer(page)
    assert int(in_kernel(page, "print(len(session.result.placement.epochs))")) == epochs + 1
    for _ in range(2):
        page.locator(f"{GRID} [data-tb-action=undo]").click()
        answer(page)
    assert in_kernel(page, "print(len(session.overrides))").strip() == "0"


def test_the_dark_theme(page: Any, shots: Path) -> None:
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=dark]")
    page.wait_for_timeout(1200)
    page.locator("[data-tb-view=metrics]").scroll_into_view_if_needed()
    x, y, w, h = grab(page, "se")
    page.mouse.move(x - w, y - h, steps=6)
    page.wait_for_timeout(100)
    page.screenshot(path=shots / "resize_dark.png")
    page.keyboard.press("Escape")
    page.mouse.up()
    in_kernel(page, f"from tbuda_lab.core.session import ResizeOp; session.apply(ResizeOp('{OP}', (1, 1)))")
    page.wait_for_selector(f"{GRID} [data-tb-stale=stale]")
    page.screenshot(path=shots / "stale_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def test_nothing_went_wrong(watched: Any) -> None:
    assert watched.errors == []
    assert watched.outside == []
