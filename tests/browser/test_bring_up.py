"""The notebook in JupyterLab, driven as a person would: run it, click, hover, type; in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import (
    PATIENCE,
    all_ran,
    box_of,
    centre,
    command,
    expect,
    in_kernel,
    run_all,
    settled,
    until,
)
from tests.widgets.test_notebooks import AGAIN, FOLDER, RUN_IN_LAB, changes, shape, tool

OP = "layer.3.output.add"


def find_in_graph(page: Any, name: str) -> None:
    """Search the graph for a node and go to it."""
    search = page.locator("[data-tb-action=graph-search]").first
    search.fill(f"^{re.escape(name)}$")
    expect(page.locator("[data-tb-view=graph] .tb-found").first).to_have_text("1 found")
    search.press("Enter")
    search.fill("")
    box_of(page.locator(f"[data-tb-view=graph] [data-tb-op='{name}']"))


@pytest.fixture(scope="module")
def page(watched: Any) -> Iterator[Any]:
    """The notebook after all its cells have run."""
    page = watched.page
    command(page, "docmanager:open", path=RUN_IN_LAB)
    run_all(page)
    page.wait_for_selector("[data-tb-root=bringup]", timeout=PATIENCE)
    page.wait_for_selector("[data-tb-metric=pcc]", timeout=PATIENCE)
    page.wait_for_selector("[data-tb-view=stages][data-tb-state=idle]", timeout=PATIENCE)
    page.locator(".jp-OutputArea-output", has_text="bert_encoder.html").wait_for(timeout=PATIENCE)
    all_ran(page)
    page.locator("[data-tb-view=stages]").scroll_into_view_if_needed()
    yield page


def complaints(page: Any) -> list[str]:
    """Errors and what stands on stderr among the outputs of the notebook in front."""
    return list(
        page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells].flatMap(c => c.toJSON().outputs ??
            [])
          .filter(o => o.output_type === 'error' || o.name === 'stderr').map(o => JSON.stringify(o))"""
        )
    )


def test_all_cells_ran_and_the_model_verified(page: Any) -> None:
    assert complaints(page) == []
    assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']").count() == 0
    expect(page.locator("[data-tb-step]")).to_have_count(9)
    expect(page.locator("[data-tb-step]:not([data-tb-state=done])")).to_have_count(0)
    assert float(page.locator("[data-tb-metric=pcc] b").inner_text()) >= 0.99
    nbformat = pytest.importorskip("nbformat")  # here, as in no worker else: it takes five seconds
    contents = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.model.toJSON()")
    stored = nbformat.read(FOLDER / RUN_IN_LAB, as_version=4)
    run = tool().settled(nbformat.from_dict(contents))
    assert shape(run) == shape(stored), AGAIN
    assert changes(stored, run) == [], AGAIN
    expect(page.locator("[data-tb-harvested]")).to_have_count(1)  # an n150 has one harvested row
    epochs = int(in_kernel(page, "print(len(session.result.placement.epochs))"))
    expect(page.locator("[data-tb-view=grid] [data-tb-action=epoch]")).to_have_count(epochs)


def test_a_click_in_the_graph_selects_everywhere(page: Any, shots: Path) -> None:
    find_in_graph(page, "layer.3.output.dense.matmul")
    page.mouse.click(*centre(page.locator(f"[data-tb-view=graph] [data-tb-op='{OP}']")))
    for where in ("grid", "table"):
        page.wait_for_selector(f"[data-tb-view={where}] .tb-selected[data-tb-op='{OP}']")
    expect(page.locator("[data-tb-view=inspector] strong")).to_have_text(OP)
    until(page, lambda: in_kernel(page, "print(bring_up.selected)") == f"('{OP}',)")
    epoch = in_kernel(page, f"print(session.result.placement.ops['{OP}'].epoch)")
    expect(page.locator("[data-tb-view=grid]")).to_have_attribute("data-tb-epoch", epoch)
    page.mouse.move(5, 5)
    settled(page)
    page.screenshot(path=shots / "bring_up_light.png")


def test_a_click_in_the_grid_selects_in_the_graph(page: Any) -> None:
    name = page.locator("[data-tb-view=grid] .tb-tile").nth(3).get_attribute("data-tb-op")
    tile = page.locator(f"[data-tb-view=grid] .tb-tile[data-tb-op='{name}']")
    tile.scroll_into_view_if_needed()
    page.mouse.click(*centre(tile))
    page.wait_for_selector(f"[data-tb-view=graph] [data-tb-op='{name}'][aria-pressed=true]")
    page.wait_for_selector(f"[data-tb-view=table] .tb-selected[data-tb-op='{name}']")


def test_selection_from_python_arrives(page: Any) -> None:
    in_kernel(page, "bring_up.select('layer.5.attention.self.matmul')")
    for where in ("grid", "table"):
        page.wait_for_selector(f"[data-tb-view={where}] .tb-selected[data-tb-op='layer.5.attention.self.matmul']")


def test_the_card_says_what_is_pointed_at_and_covers_nothing(page: Any, shots: Path) -> None:
    grid = page.locator("[data-tb-view=grid]")
    tile = grid.locator(".tb-tile").nth(6)
    name = tile.get_attribute("data-tb-op")
    card = grid.locator("[data-tb-card]")
    page.mouse.move(*centre(tile))
    expect(card).to_have_attribute("data-tb-card", name)
    expect(card.locator("strong")).to_have_text(name)
    plane, stands = box_of(grid.locator(".tb-plane")), box_of(card)
    assert stands["y"] >= plane["y"] + plane["height"], "the card stands below the grid"
    page.mouse.click(*centre(tile))  # the rest of it stands in the inspector
    entry = page.locator("[data-tb-view=inspector] .tb-entry")
    entry.wait_for()
    terms, texts = (entry.locator(t).all_inner_texts() for t in ("dt", "dd"))
    message = dict(zip(terms, texts, strict=True))
    op = f"next(g.ops[{name!r}] for g in session.result.netlist.graphs.values() if {name!r} in g.ops)"
    assert message["type"] == in_kernel(page, f"print({op}.type)")
    assert message["grid_loc"] == in_kernel(page, f"print(list({op}.grid_loc))")
    page.screenshot(path=shots / "card_light.png")
    page.mouse.move(5, 5)


def test_epochs_by_key_and_by_film_strip(page: Any) -> None:
    grid = page.locator("[data-tb-view=grid]")
    grid.locator("[data-tb-epoch='0']").click()
    until(page, lambda: grid.get_attribute("data-tb-epoch") == "0")
    grid.locator(".tb-plane").focus()
    page.keyboard.press("n")
    until(page, lambda: grid.get_attribute("data-tb-epoch") == "1")
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, lambda: grid.locator(".tb-tile.tb-selected").count() == 1)


def test_groups_open_and_close(page: Any) -> None:
    graph = page.locator("[data-tb-view=graph]")
    opened = graph.locator("[data-tb-group][aria-expanded=true]")
    graph.locator("[data-tb-action=graph-collapse]").click()
    until(page, lambda: opened.count() == 0)
    group = graph.locator("[data-tb-group]").first
    box = box_of(group)
    page.mouse.click(box["x"] + 8, box["y"] + box["height"] / 2)
    until(page, lambda: opened.count() == 1)
    graph.locator("[data-tb-action=graph-stage-traced]").click()
    page.wait_for_selector("[data-tb-view=graph][data-tb-stage=traced]")
    graph.locator("[data-tb-action=graph-stage-lowered]").click()
    page.wait_for_selector("[data-tb-view=graph][data-tb-stage=lowered]")


def test_the_table_sorts_and_the_netlist_follows(page: Any) -> None:
    table = page.locator("[data-tb-view=table]")
    table.locator("[data-tb-action=sort-cycles]").click()
    top = table.locator(".tb-rows .tb-row").first
    slowest = in_kernel(
        page, "p = session.result.placement\nprint(max(int(p.candidate(op)['cycles']) for op in p.ops))"
    )
    until(page, lambda: top.locator("span").nth(3).inner_text().replace(",", "") == slowest)
    table.locator("[data-tb-action=sort-cycles]").click()
    table.locator("[data-tb-action=sort-cycles]").click()
    page.locator("[data-tb-action=tab-netlist]").click()
    in_kernel(page, f"bring_up.select('{OP}')")
    marked = page.locator("[data-tb-view=netlist] .tb-marked").first
    until(page, lambda: marked.inner_text().split()[1] == f"{OP}:")  # what was selected before is marked until then
    page.locator("[data-tb-action=tab-ops]").click()


def test_the_wheel_scrolls_the_notebook_until_the_graph_has_the_focus(page: Any) -> None:
    stage = page.locator("[data-tb-view=graph] .tb-stage")
    page.locator("[data-tb-view=stages]").scroll_into_view_if_needed()
    transform = "e => getComputedStyle(e.querySelector('.tb-hooks')).transform"
    page.evaluate("() => document.activeElement.blur()")
    page.mouse.move(*centre(stage))
    before, top = stage.evaluate(transform), box_of(stage)["y"]
    page.mouse.wheel(0, 40)
    until(page, lambda: box_of(stage)["y"] < top)
    assert stage.evaluate(transform) == before
    page.mouse.wheel(0, -40)
    until(page, lambda: box_of(stage)["y"] >= top - 1)
    stage.focus()
    page.mouse.move(*centre(stage))
    page.mouse.wheel(0, -240)
    until(page, lambda: stage.evaluate(transform) != before)


def test_the_dark_theme(page: Any, shots: Path) -> None:
    find_in_graph(page, OP)
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=dark]")
    settled(page)
    page.locator("[data-tb-view=stages]").scroll_into_view_if_needed()
    page.screenshot(path=shots / "bring_up_dark.png")
    ground = page.locator("[data-tb-view=grid]").evaluate("e => getComputedStyle(e).backgroundColor")
    assert sum(int(c) for c in re.findall(r"\d+", ground)[:3]) < 200, ground
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=light]")


def test_another_workbench_of_the_session_is_drawn(page: Any) -> None:
    """A new workbench of the compiled 12-layer session: from the run of its cell to a drawn graph and grid."""
    command(page, "notebook:move-cursor-down")
    cell = "window.jupyterapp.shell.currentWidget.content.activeCell"
    last = page.evaluate(f"() => {cell}.model.id")
    command(page, "notebook:insert-cell-below")
    # Without an editor nothing is typed.
    page.wait_for_function(f"last => {cell}.model.id !== last && {cell}.editor", arg=last)
    command(page, "notebook:replace-selection", text="BringUp(session)")
    page.wait_for_function(f"() => {cell}.model.sharedModel.getSource() === 'BringUp(session)'")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell') }")
    page.wait_for_function(
        f"""() => {{
          const root = {cell}.node.querySelector('[data-tb-root=bringup]');
          return root?.dataset.tbDrawMs && root.querySelector('.tb-tile') && root.querySelector('.tb-hook[data-tb-op]');
        }}""",
        polling=10,
    )


def test_nothing_went_wrong_and_nothing_was_asked_outside(page: Any, watched: Any) -> None:
    assert watched.errors == []
    assert watched.outside == []
