"""Room for the work: panes that resize and remember, what repeats folded, a grid seen closer, a tab of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import (
    Lab,
    box_of,
    centre,
    command,
    expect,
    in_kernel,
    lab_page,
    open_and_run,
    over_the_cores,
    run_all,
    until,
    wait_for_lab,
    wait_for_saved_layout,
)
from tests.session.models import encoder

GRID, GRAPH, TABLE = (f"[data-tb-view={name}]" for name in ("grid", "graph", "table"))
TAB_STOPS = """() => [...document.querySelectorAll('[data-tb-root] *')].filter(
  e => e.tabIndex >= 0 && !e.disabled && e.checkVisibility()).length"""
SMALLEST = """svg => Math.min(...[...svg.querySelectorAll('text')].map(
  t => parseFloat(getComputedStyle(t).fontSize) * svg.getScreenCTM().a))"""
"""Pixels of the smallest letters of a drawing."""
LARGEST = SMALLEST.replace("Math.min", "Math.max")


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


def test_a_narrow_workbench_shows_one_thing_at_a_time(browser: Any, session: Session, shots: Path) -> None:
    """Beside a notebook: the buttons say what is seen, the profile has rows, letters fit the room as it changes."""
    hub_of(session).select([])
    with bare_page(browser, session, (700, 900), "dark", {"height": 700}) as bare:
        page = bare.page
        bare.sees(f"{GRID} .tb-tile")
        expect(page.locator("[data-tb-action=mode-grid]")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("[data-tb-action=mode-split]")).to_be_hidden()
        page.locator("[data-tb-action=tab-profile]").click()
        bare.sees("[data-tb-view=profile] tbody tr")
        table, roof = page.locator(".tb-profile-list"), page.locator(".tb-roof svg")
        expect(roof).to_be_hidden()
        assert box_of(table)["height"] > 5 * box_of(table.locator("tbody tr").first)["height"]
        page.screenshot(path=shots / "narrow_dark.png")
        page.locator("[data-tb-action=profile-roofline]").click()
        expect(roof).to_be_visible()
        expect(table).to_be_hidden()
        drawing, bar = page.locator(f"{GRID} .tb-cores"), page.locator("[data-tb-splitter=upper]")
        letters = drawing.evaluate(LARGEST)
        for key in ("ArrowDown", "ArrowUp"):
            for _ in range(12):
                bar.press(key)
            until(page, lambda: 10.9 <= drawing.evaluate(SMALLEST) <= drawing.evaluate(LARGEST) < 1.3 * letters, 5000)
        page.set_viewport_size({"width": 1300, "height": 900})
        expect(page.locator("[data-tb-action=mode-split]")).to_have_attribute("aria-pressed", "true")
        expect(page.locator(GRAPH)).to_be_visible()
        assert page.errors == []


@pytest.mark.parametrize("size", [(540, 790), (1440, 840), (1920, 1010)], ids=["beside a notebook", "1440", "1920"])
def test_the_grid_takes_the_room_that_is_free(
    browser: Any, session: Session, shots: Path, size: tuple[int, int]
) -> None:
    """By default the cores have 40 % of the height, words of 11 px, and what is drawn is a click away."""
    hub_of(session).select([])
    with bare_page(browser, session, size, "dark", {"height": size[1] - 60}) as bare:
        page = bare.page
        bare.sees(f"{GRID} .tb-tile")
        drawing = page.locator(f"{GRID} .tb-cores")
        until(page, lambda: drawing.evaluate(SMALLEST) >= 10.9)
        assert box_of(drawing)["height"] >= 0.4 * (size[1] - 60)
        expect(over_the_cores(page, "show_pipes")).to_be_visible()
        if size[0] < 860:  # the inspector takes height from the grid: it comes when it is asked for
            inspector = page.locator("[data-tb-view=inspector]")
            expect(inspector).to_be_hidden()
            page.locator("[data-tb-action=dock-inspector]").click()
            expect(inspector).to_be_visible()
            page.locator("[data-tb-action=dock-inspector]").click()
        page.screenshot(path=shots / f"grid_room_{size[0]}_dark.png")
        # with the panel of a search, and all that it found
        page.locator(f"{GRID} [data-tb-action=optimise]").click()
        bare.sees("[data-tb-view=search] [data-tb-action=search-start]")
        until(page, lambda: box_of(drawing)["height"] >= 0.4 * (size[1] - 60))
        changes = [["shape", f"0.down.matmul: 1×{k} → 2×{k}", "0.down.matmul", "", 100.0] for k in range(1, 40)]
        meta = {"rev": 1, "running": False, "seconds": 20, "elapsed": 20.0, "kept": True, "changes": changes}
        columns = {"time": [0.0, 9.0], "cycles": [300.0, 280.0], "step": [0, 9]}
        bare.hub.publish([Frame("search", meta, {k: np.array(v, dtype="<f8") for k, v in columns.items()})])
        bare.sees("[data-tb-view=search] [data-tb-change='38']")
        until(page, lambda: box_of(drawing)["height"] >= 0.4 * (size[1] - 60))
        assert drawing.evaluate(SMALLEST) >= 10.9
        page.screenshot(path=shots / f"grid_room_search_{size[0]}_dark.png")
        assert page.errors == []


def test_beside_a_notebook_the_graph_is_there_before_the_grid(browser: Any, shots: Path) -> None:
    """What is traced is seen while the grid has nothing to show yet; then the grid takes its place."""
    session = Session(*encoder(2), "n150", name="early")
    hub = hub_of(session)
    with bare_page(browser, session, (540, 860), "light", {"height": 800}) as bare:
        page = bare.page
        session.compile(upto="traced")
        hub.publish([session.frames.graph("traced")])
        bare.sees(f"{GRAPH} [data-tb-op]")
        expect(page.locator(GRAPH)).to_be_visible()
        expect(page.locator(GRID)).to_be_hidden()
        page.screenshot(path=shots / "graph_first_narrow.png")
        session.verify()
        bare.sees(f"{GRID} .tb-cores")
        expect(page.locator(GRAPH)).to_be_hidden()
        expect(page.locator(GRID)).to_be_visible()
        assert page.errors == []


def test_why_here_and_memory_over_time_fit_beside_a_notebook(browser: Any, session: Session, shots: Path) -> None:
    """Nothing of the table is beyond the dialog's edge, no words of the picture lie on others."""
    name = next(iter(session.compile().placement.ops))
    hub_of(session).select([])
    with bare_page(browser, session, (540, 860), "light", {"height": 800}) as bare:
        page = bare.page
        bare.sees(f"{GRID} .tb-tile[data-tb-op='{name}']")
        page.locator(f"{GRID} .tb-tile[data-tb-op='{name}']").click()
        page.keyboard.press("w")
        bare.sees(".tb-why-sentence")
        page.screenshot(path=shots / "why_narrow.png")
        dialog = page.locator(".tb-dialog:has(.tb-why-sentence)")
        assert dialog.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
        page.keyboard.press("Escape")
        page.locator("[data-tb-action=tab-memory]").click()
        bare.sees("[data-tb-action=memory-time]")
        page.locator("[data-tb-action=memory-time]").click()
        bare.sees(".tb-time-lines svg")
        page.screenshot(path=shots / "memory_time_narrow.png")
        names = [box_of(e) for e in page.locator(".tb-time-lines .tb-time-name span").all()]
        words = box_of(page.locator(".tb-time-box > p"))
        assert len(names) == 2 and all(box["y"] + box["height"] <= words["y"] + 1 for box in names)
        assert page.errors == []


@pytest.mark.parametrize("size", [(1024, 700), (512, 640)], ids=["the width of 1024", "half of it"])
def test_the_grid_is_in_sight_on_a_small_screen(
    browser: Any, session: Session, shots: Path, size: tuple[int, int]
) -> None:
    """The cores of an epoch without scrolling, with words that can be read."""
    hub_of(session).select([])
    with bare_page(browser, session, size, "light", {"height": size[1] - 20}) as bare:
        page = bare.page
        bare.sees(f"{GRID} .tb-tile")
        drawing = page.locator(f"{GRID} .tb-cores")
        until(page, lambda: drawing.evaluate(SMALLEST) >= 10.9)
        box = box_of(drawing)
        assert box["height"] >= 150 and box["y"] + box["height"] <= size[1]
        page.screenshot(path=shots / f"small_screen_{size[0]}_light.png")
        assert page.errors == []


def test_the_grid_comes_closer_and_its_words_stay_legible(bare: Bare, shots: Path) -> None:
    page = bare.page
    drawing = page.locator(f"{GRID} .tb-cores")
    assert drawing.evaluate(SMALLEST) >= 10.9
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
    assert drawing.evaluate(SMALLEST) >= 10.9
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
    assert page.locator(f"{GRID} .tb-cores").evaluate(SMALLEST) >= 10.9
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
    stops = page.evaluate(TAB_STOPS)
    assert 10 < stops < 40, "groups of buttons are one tab stop each"
    # one line of head, and the grid in sight on a small screen
    page.set_viewport_size({"width": 1024, "height": 768})
    head, grid = box_of(page.locator(".tb-head")), box_of(page.locator(GRID))
    assert head["height"] < 40 and grid["y"] < 120 and grid["width"] > 300
    page.set_viewport_size({"width": 760, "height": 768})
    expect(graph).to_be_hidden()  # no room for both
    assert box_of(page.locator(GRID))["width"] > 600
    head = box_of(page.locator(".tb-head"))
    assert head["height"] < 72, "two lines: state and numbers, arrangement and buttons"
    for metric in page.locator(".tb-head .tb-metric").all():  # all numbers are seen, the PCC among them
        assert box_of(metric)["y"] < head["y"] + 34
    # what came of an edit covers no op and no control
    page.evaluate("() => window.deliver([[{ type: 'edited', ok: true, text: 'resize: 20 % fewer cycles' }, []]])")
    toast, plane = box_of(page.locator(f"{GRID} .tb-toast")), box_of(page.locator(f"{GRID} .tb-plane"))
    assert toast["y"] >= plane["y"] + plane["height"] - 1
    for control in page.locator(f"{GRID} > :not(.tb-toasts) :is(button, select):visible").all():
        box = box_of(control)
        above, below = box["y"] + box["height"] <= toast["y"], box["y"] >= toast["y"] + toast["height"]
        assert above or below or box["x"] > toast["x"] + toast["width"]
    page.screenshot(path=shots / f"narrow_{page.theme}.png")
    assert page.errors == []


# -- in JupyterLab ----------------------------------------------------------------------------------------------------
CELL = """import torch
from tbuda_lab.widgets import BringUp
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
view = BringUp(model, (torch.randn(1, 32, 64),), device='n150', name='mlp')
view"""


def test_the_workbench_opens_in_a_tab_and_the_cell_is_compact(browser: Any, lab_with_tabs: Lab, shots: Path) -> None:
    with lab_page(browser, lab_with_tabs, (1900, 1000)) as watched:
        page = watched.page
        open_and_run(watched, lab_with_tabs, "room", CELL)
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
            "() => [...window.jupyterapp.shell.widgets('main')].find(w => w.id.startsWith('tbuda-tab')).close()"
        )
        expect(tab).to_have_count(0)
        cell.locator("[data-tb-action=open-workbench]").click()
        tab.locator(f"{GRID} .tb-tile").first.wait_for()
        bar = tab.locator("[data-tb-splitter=upper]")
        expect(bar).to_have_attribute("aria-valuenow", str(round(100 * share)))
        # the whole of it in the cell, for who wants that
        cell.locator("[data-tb-action=show-here]").click()
        expect(cell.locator(TABLE)).to_be_visible()
        # without the notebook the tab goes on over a connection of its own, and moves back when the notebook is opened
        assert watched.errors == []
        views, closed = followed_sockets(page)
        page.evaluate("""() => {
          const book = [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === 'room.ipynb');
          book.context.model.dirty = false; // it asks nothing
          book.close();
        }""")
        expect(page.locator(".jp-NotebookPanel")).to_have_count(0)
        tab.locator(f"{GRID} .tb-tile").first.click()
        tab.locator(f"{TABLE} .tb-selected").wait_for()
        tab.locator("[data-tb-action=suggest]").first.click()
        expect(tab.locator("[data-tb-view=suggestions] [role=status]")).to_contain_text("No single edit")
        tab.locator("[data-tb-action=suggest]").first.click()
        command(page, "docmanager:open", path="room.ipynb")
        until(page, lambda: bool(closed))
        page.evaluate("""() => {
          const { shell } = window.jupyterapp;
          shell.activateById([...shell.widgets('main')].find(w => w.id.startsWith('tbuda-tab')).id);
        }""")
        tile = tab.locator(f"{GRID} .tb-tile").first
        box_of(tile)
        tile.click()
        op = tile.get_attribute("data-tb-op")
        until(page, lambda: in_kernel(page, "print(view.selected)", "room.ipynb") == f"('{op}',)")
        in_kernel(page, "view.select()", "room.ipynb")
        expect(tab.locator(f"{TABLE} .tb-selected")).to_have_count(0)
        assert views == [], "nothing is mounted anew when the notebook goes or comes"


def followed_sockets(page: Any) -> tuple[list[bytes], list[Any]]:
    """What opens a view on the kernel's side, and those connections that end, of sockets opened from now on."""
    views: list[bytes] = []
    closed: list[Any] = []

    def sent(data: bytes | str) -> None:
        frame = data.encode() if isinstance(data, str) else data
        if re.search(rb'"open": ?"view"', frame):
            views.append(frame)

    def opened(socket: Any) -> None:
        socket.on("framesent", lambda data: sent(data))
        socket.on("close", lambda ended: closed.append(ended))

    page.on("websocket", opened)
    return views, closed


def test_a_reload_before_the_first_save_finds_its_session_again(browser: Any, lab_with_tabs: Lab, shots: Path) -> None:
    """What a cell showed was never saved; the tab of the workbench shows the session that the kernel still holds."""
    with lab_page(browser, lab_with_tabs, (1600, 1000)) as watched:
        page = watched.page
        page.on("dialog", lambda dialog: dialog.accept())
        open_and_run(watched, lab_with_tabs, "unsaved", CELL)
        tab = page.locator("[data-tb-tab=bringup] [data-tb-root=bringup]")
        tab.locator(f"{GRID} .tb-tile").first.wait_for()
        tab.locator("[data-tb-metric=pcc]").wait_for()
        assert "BringUp(model" in (lab_with_tabs.folder / "unsaved.ipynb").read_text()
        assert '"outputs": []' in (lab_with_tabs.folder / "unsaved.ipynb").read_text(), "nothing was saved"
        ran = in_kernel(page, "print(view.session.rev)", "unsaved.ipynb")
        views, _ = followed_sockets(page)
        wait_for_saved_layout(page, "bringup")
        page.reload()
        wait_for_lab(page)
        tab.locator(f"{GRID} .tb-tile").first.wait_for()
        expect(tab.locator("[data-tb-metric=pcc]")).to_be_visible()
        assert in_kernel(page, "print(view.session.rev)", "unsaved.ipynb") == ran
        expect(tab.locator("[data-tb-action=run]")).to_be_enabled()
        assert len(views) == 1, "the tab is mounted once, whoever connects first"
        box_of(tab.locator(f"{GRID} .tb-tile").first)
        page.screenshot(path=shots / "reloaded_light.png")
        expect(tab.locator("[data-tb-metric=pcc]")).to_be_visible()


RESTART = """async () => {
  const book = [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === 'restarted.ipynb');
  await book.context.sessionContext.session.kernel.restart();
}"""


def test_a_restart_leaves_the_picture_and_the_edits(browser: Any, lab_with_tabs: Lab, shots: Path) -> None:
    """The tab shows how the session last stood, greyed, and offers its edits to the session that takes its place."""
    with lab_page(browser, lab_with_tabs, (1600, 1000)) as watched:
        page = watched.page
        open_and_run(watched, lab_with_tabs, "restarted", CELL)
        tab = page.locator("[data-tb-tab=bringup] [data-tb-root=bringup]")
        tab.locator(f"{GRID} .tb-tile").first.wait_for()
        tab.locator("[data-tb-metric=pcc]").wait_for()
        op = tab.locator(f"{GRID} .tb-tile").first.get_attribute("data-tb-op")
        resize = f"from tbuda_lab.core.session import ResizeOp; view.session.apply(ResizeOp('{op}', (1, 2)))"
        in_kernel(page, f"{resize}; view.session.compile()", "restarted.ipynb")
        expect(tab.locator("[data-tb-action=tab-overrides] .tb-badge")).to_have_text("1")
        page.evaluate(RESTART)
        gone = page.locator("[data-tb-tab=bringup] [data-tb-gone]")
        expect(gone.locator(f"{GRID} .tb-tile[data-tb-op='{op}']")).to_be_visible()
        expect(page.locator("[data-tb-tab=bringup] .tb-lab-note")).to_contain_text("Its one edit will be offered to it")
        page.screenshot(path=shots / "tab_gone_light.png")
        command(page, "docmanager:open", path="restarted.ipynb")
        run_all(page)
        tab.locator("[data-tb-metric=pcc]").wait_for()
        expect(gone).to_have_count(0)
        offer = page.locator("[data-tb-lost-edits='1']")
        page.screenshot(path=shots / "edits_offered_light.png")
        offer.locator("[data-tb-action=restore-edits]").click()
        expect(offer).to_have_count(0)
        size = f"print(view.session.result.placement.ops['{op}'].size)"
        until(page, lambda: in_kernel(page, size, "restarted.ipynb") == "(1, 2)")
