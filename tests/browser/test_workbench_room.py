"""Room for the work: panes that resize and remember, what repeats folded, a grid seen closer, a tab of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.session import Session
from tbuda_lab.widgets import report
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import PATIENCE, Lab, Watched, box_of, centre, expect, in_kernel, open_and_run, until
from tests.session.models import encoder

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not report.PAGE.is_file(), reason="the front end is not built: make front-end"),
]

GRID, GRAPH, TABLE = (f"[data-tb-view={name}]" for name in ("grid", "graph", "table"))
SMALLEST = """svg => Math.min(...[...svg.querySelectorAll('text')].map(
  t => parseFloat(getComputedStyle(t).fontSize) * svg.getScreenCTM().a))"""
"""Pixels of the smallest letters of a drawing."""


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(5), "n150", name="encoder")
    session.compile()
    return session


@pytest.fixture(params=["light", "dark"])
def bare(request: pytest.FixtureRequest, browser: Any, session: Session) -> Iterator[Bare]:
    hub_of(session).select([])
    with bare_page(browser, session, (1600, 1100), request.param, {"fold_layers": True}) as bare:
        bare.sees(f"{GRID} .tb-tile")
        bare.sees(f"{GRAPH} [data-tb-group]")
        yield bare


def test_what_repeats_is_shown_once(bare: Bare, shots: Path) -> None:
    page = bare.page
    frame = bare.hub.frames["graph:lowered"]
    (path,) = (p for p, n in zip(frame.text("group_path"), frame.columns["group_repeats"], strict=True) if n)
    fold = page.locator(f"{GRAPH} [data-tb-group='{path}']")
    page.locator("[data-tb-action=graph-collapse]").click()
    expect(fold).to_have_attribute("aria-expanded", "false")
    # all groups open, the layers that repeat stay folded
    page.locator("[data-tb-action=graph-expand]").click()
    page.locator("[data-tb-action=graph-fit]").click()
    expect(page.locator(f"{GRAPH} [aria-expanded=true]").first).to_be_visible()
    # a box of 34 units holds letters of 9 px; it grows to its size
    page.wait_for_function(
        "path => document.querySelector(path)?.getBoundingClientRect().height >= 27", arg=f"{GRAPH} button[data-tb-op]"
    )
    expect(page.locator(f"{GRAPH} .tb-minimap")).to_be_visible()
    page.locator("[data-tb-action=graph-fit]").click()  # again: all of it
    expect(page.locator(f"{GRAPH} .tb-minimap")).to_be_hidden()
    expect(fold).to_have_attribute("aria-expanded", "false")
    page.locator("[data-tb-action=graph-expand]").click()  # again: what is folded as well
    page.locator("[data-tb-action=graph-fit]").click()
    page.locator("[data-tb-action=graph-fit]").click()
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.locator("[data-tb-action=graph-collapse]").click()
    # the table has a row for the ops of all five layers
    rows = page.locator(f"{TABLE} [data-tb-alike]")
    expect(rows.first).to_contain_text("× 5")
    row = page.locator(f"{TABLE} .tb-rows .tb-row").first
    first = row.get_attribute("data-tb-op")
    assert first.startswith("0.")
    other = first.replace("0.", "3.", 1)
    bare.hub.select([other])
    page.evaluate("s => window.tell('selection', s)", bare.hub.selection)
    expect(page.locator(f"{TABLE} .tb-selected[data-tb-op='{other}']")).to_be_visible()  # the row stands for it now
    rows.first.click()
    expect(page.locator(f"{TABLE} [data-tb-alike][aria-expanded=true]")).to_have_count(1)
    page.screenshot(path=shots / f"folded_{page.theme}.png")
    assert page.errors == []


def test_the_grid_comes_closer_and_its_words_stay_legible(bare: Bare, shots: Path) -> None:
    page = bare.page
    drawing = page.locator(f"{GRID} .tb-cores")
    assert drawing.evaluate(SMALLEST) >= 8.9
    tile = page.locator(f"{GRID} .tb-tile").first
    before = box_of(tile)
    page.mouse.move(before["x"] + 4, before["y"] + 4)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -90)
    page.keyboard.up("Control")
    until(page, lambda: float(page.locator(f"{GRID} .tb-plane").get_attribute("data-tb-zoom")) > 2)
    after = box_of(tile)
    assert after["width"] > 2 * before["width"]
    assert abs(after["x"] - before["x"]) < 12 and abs(after["y"] - before["y"]) < 12, "what is pointed at stays there"
    assert drawing.evaluate(SMALLEST) >= 8.9
    page.screenshot(path=shots / f"grid_closer_{page.theme}.png")
    page.locator(f"{GRID} .tb-plane").focus()
    page.keyboard.press("0")
    until(page, lambda: page.locator(f"{GRID} .tb-plane").get_attribute("data-tb-zoom") == "1.00")
    # the chain that decides when the epoch ends
    page.locator("[data-tb-action=critical-path]").click()
    lit = page.locator(f"{GRID} .tb-critical").evaluate_all("tiles => tiles.map(t => t.dataset.tbOp)")
    epoch = bare.hub.session.time().epochs[0]
    names = [name for name, op in zip(epoch_ops(bare.hub.session), epoch.ops, strict=True) if op.critical]
    assert sorted(lit) == sorted(names) and lit
    page.screenshot(path=shots / f"critical_path_{page.theme}.png")
    # a low grid writes less, not smaller
    page.set_viewport_size({"width": 1100, "height": 700})
    bare.page.wait_for_function("() => innerWidth === 1100")
    box_of(tile)
    assert page.locator(f"{GRID} .tb-cores").evaluate(SMALLEST) >= 8.9
    assert page.errors == []


def epoch_ops(session: Session) -> list[str]:
    """Ops of the first epoch, in the order of the placement."""
    return [name for name, op in session.result.placement.ops.items() if op.epoch == 0]


def test_panes_resize_and_the_tabs_take_all_the_room(bare: Bare, shots: Path) -> None:
    page = bare.page
    graph, table = page.locator(GRAPH), page.locator(TABLE)
    wide, high = box_of(graph)["width"], box_of(table)["height"]
    x, y = centre(page.locator("[data-tb-splitter=graph]"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 200, y, steps=4)
    page.mouse.up()
    assert abs(box_of(graph)["width"] - (wide - 200)) < 12
    page.locator("[data-tb-splitter=upper]").focus()
    for _ in range(4):
        page.keyboard.press("ArrowUp")
    assert box_of(table)["height"] > high + 60
    page.locator("[data-tb-action=dock-tall]").click()
    expect(graph).to_be_hidden()
    assert box_of(table)["height"] > 900
    page.screenshot(path=shots / f"tall_{page.theme}.png")
    page.locator("[data-tb-action=dock-tall]").click()
    expect(graph).to_be_visible()
    # one line of head, and the grid in sight on a small screen
    page.set_viewport_size({"width": 1024, "height": 768})
    head, grid = box_of(page.locator(".tb-head")), box_of(page.locator(GRID))
    assert head["height"] < 40 and grid["y"] < 120 and grid["width"] > 300
    page.set_viewport_size({"width": 760, "height": 768})
    expect(graph).to_be_hidden()  # no room for both
    assert box_of(page.locator(GRID))["width"] > 600
    assert box_of(page.locator(".tb-head"))["height"] < 40, "still one line"
    page.screenshot(path=shots / f"narrow_{page.theme}.png")
    assert page.errors == []


# -- in JupyterLab ----------------------------------------------------------------------------------------------------
@pytest.fixture
def lab_with_tabs(tmp_path: Path) -> Iterator[Lab]:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    server = Lab(folder, tmp_path / "jupyter", place="tab")
    yield server
    server.end_kernels()
    server.stop()


CELL = """import torch
from tbuda_lab.widgets import BringUp
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
view = BringUp(model, (torch.randn(1, 32, 64),), device='n150', name='mlp')
view"""


def test_the_workbench_opens_in_a_tab_and_the_cell_is_compact(browser: Any, lab_with_tabs: Lab, shots: Path) -> None:
    lab = lab_with_tabs
    context = browser.new_context(viewport={"width": 1900, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    watched = Watched(page, f"http://127.0.0.1:{lab.port}/")
    page.goto(lab.url("lab"))
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
    page.evaluate("() => window.jupyterapp.restored.then(() => null)")
    page.locator(".jp-Launcher").first.wait_for()
    open_and_run(watched, lab, "room", CELL)
    cell = page.locator(".jp-OutputArea [data-tb-root=bringup]")
    tab = page.locator("[data-tb-tab=bringup] [data-tb-root=bringup]")
    cell.locator(f"{GRID} .tb-tile").first.wait_for()
    tab.locator(f"{GRID} .tb-tile").first.wait_for()
    expect(cell).to_have_attribute("data-tb-form", "compact")
    expect(cell.locator(GRAPH)).to_be_hidden()
    expect(cell.locator(TABLE)).to_be_hidden()
    assert box_of(cell)["height"] < 560
    expect(tab.locator(TABLE)).to_be_visible()
    expect(page.locator("[data-mime-type$=stderr]")).to_have_count(0)  # no comm is told anything before it is open
    whole, room = box_of(tab), box_of(page.locator("[data-tb-tab=bringup]"))
    assert abs(whole["height"] - room["height"]) < 2, "the workbench takes all of its tab"
    page.screenshot(path=shots / "own_tab_light.png")
    # panes stay as they were left, in a tab that is opened anew as well
    x, y = centre(tab.locator("[data-tb-splitter=upper]"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 120, steps=4)
    page.mouse.up()
    share = json.loads(page.evaluate("() => localStorage.getItem('tbuda-lab:panes')"))["upper"]
    page.evaluate(
        "() => [...window.jupyterapp.shell.widgets('main')].find(w => w.id.startsWith('tbuda-tab')).close()")
    expect(tab).to_have_count(0)
    cell.locator("[data-tb-action=open-workbench]").click()
    tab.locator(f"{GRID} .tb-tile").first.wait_for()
    bar = tab.locator("[data-tb-splitter=upper]")
    expect(bar).to_have_attribute("aria-valuenow", str(round(100 * share)))
    # the whole of it in the cell, for who wants that
    cell.locator("[data-tb-action=show-here]").click()
    expect(cell.locator(TABLE)).to_be_visible()
    assert watched.errors == []
    context.close()


def test_a_reload_before_the_first_save_finds_its_session_again(browser: Any, lab_with_tabs: Lab, shots: Path) -> None:
    """What a cell showed was never saved; the tab of the workbench shows the session that the kernel still holds."""
    lab = lab_with_tabs
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("dialog", lambda dialog: dialog.accept())
    watched = Watched(page, f"http://127.0.0.1:{lab.port}/")
    page.goto(lab.url("lab"))
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
    page.evaluate("() => window.jupyterapp.restored.then(() => null)")
    page.locator(".jp-Launcher").first.wait_for()
    open_and_run(watched, lab, "unsaved", CELL)
    tab = page.locator("[data-tb-tab=bringup] [data-tb-root=bringup]")
    tab.locator(f"{GRID} .tb-tile").first.wait_for()
    tab.locator("[data-tb-metric=pcc]").wait_for()
    assert "BringUp(model" in (lab.folder / "unsaved.ipynb").read_text()
    assert '"outputs": []' in (lab.folder / "unsaved.ipynb").read_text(), "nothing was saved"
    ran = in_kernel(page, "print(view.session.rev)", "unsaved.ipynb")
    page.reload()
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
    page.evaluate("() => window.jupyterapp.restored.then(() => null)")
    tab.locator(f"{GRID} .tb-tile").first.wait_for()
    expect(tab.locator("[data-tb-metric=pcc]")).to_be_visible()
    assert in_kernel(page, "print(view.session.rev)", "unsaved.ipynb") == ran
    expect(tab.locator("[data-tb-action=run]")).to_be_enabled()
    box_of(tab.locator(f"{GRID} .tb-tile").first)  # the tab may be mounted anew while the kernel's connections settle
    page.screenshot(path=shots / "reloaded_light.png")
    expect(tab.locator("[data-tb-metric=pcc]")).to_be_visible()
    context.close()
