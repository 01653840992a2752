"""More of editing with mouse and keys: all edges of a tile, moves in time, formats, order and files of overrides, drags
that are compiled while they rest, suggestions of several kinds, a run that stops at the first op that differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import (
    PATIENCE,
    Lab,
    box_of,
    centre,
    command,
    expect,
    in_kernel,
    over_the_cores,
    until,
)
from tests.browser.editing import GRID, answer, caught_up, hold, nothing_was_asked, opened, over, tile_of

CODE = """
from tbuda_lab.core.session import Session, EpochBreak
from tbuda_lab.widgets import BringUp
from tests.session.test_moves_in_time import Branches
import torch
torch.manual_seed(0)
model = Branches().eval().requires_grad_(False)
session = Session(model, (torch.randn(1, 64, 128),), "n150", name="branches")
session.apply(*(EpochBreak(n) for n in session.placed().problem.order[2::2]))
session.compile()
bring_up = BringUp(session, start=False)
bring_up
"""
OP = "a.0.matmul"


@pytest.fixture(scope="module")
def page(watched: Any, lab: Lab) -> Iterator[Any]:
    page = opened(watched, lab, "edit_more", CODE)
    yield page
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.evaluate("() => document.body.removeAttribute('data-tb-preferences')")
    assert watched.errors == []


def spot(page: Any, op: str) -> dict[str, Any]:
    code = f"import json; o = session.result.placement.ops['{op}']; print(json.dumps([o.epoch, o.start, o.size]))"
    epoch, start, size = json.loads(in_kernel(page, code))
    return {"epoch": epoch, "start": start, "size": size}


def undo(page: Any) -> None:
    page.locator(f"{GRID} [data-tb-action=undo]").click()
    answer(page)


def test_the_left_edge_of_a_pinned_op_is_dragged_and_its_place_goes_along(page: Any, shots: Path) -> None:
    code = f"from tbuda_lab.core.session import PlaceOp\nsession.apply(PlaceOp('{OP}', (4, 3)))\nsession.compile()"
    in_kernel(page, code)
    caught_up(page)
    now = spot(page, OP)
    assert now["start"] == [4, 3]
    page.locator(f"{GRID} .tb-frame[data-tb-epoch='{now['epoch']}']").click()
    rows = now["size"][0]
    place = f"rows 4-{3 + rows}," if rows > 1 else "row 4,"
    page.wait_for_selector(f"{GRID} .tb-tile[data-tb-op='{OP}'][aria-label*='{place}']")
    legal = json.loads(in_kernel(page, f"print([list(s) for s in session.legal('{OP}').legal])"))
    expected = next(s for s in legal if s[0] == rows and 0 < s[1] - now["size"][1] <= 3)
    more = expected[1] - now["size"][1]
    body = box_of(tile_of(page, OP).locator(".tb-body"))
    page.mouse.move(*centre(tile_of(page, OP)))
    handles = page.locator(f"{GRID} [data-tb-handles-of='{OP}'] [data-tb-handle]")
    expect(handles).to_have_count(8)
    names = set(handles.evaluate_all("handles => handles.map(e => e.dataset.tbHandle)"))
    assert names == {"e", "s", "w", "n", "se", "sw", "ne", "nw"}
    x, y = hold(page, OP, "w")
    page.mouse.move(x - more * body["width"] / now["size"][1], y, steps=8)
    page.wait_for_selector(f"{GRID} .tb-tag[data-tb-verdict=LEGAL]")
    expect(page.locator(f"{GRID} .tb-tag")).to_contain_text(f"row 4, column {3 - more}")
    page.screenshot(path=shots / "resize_left_light.png")
    page.mouse.up()
    assert f"from 4,{3 - more}" in answer(page)
    assert spot(page, OP) == now | {"start": [4, 3 - more], "size": expected}
    kinds = in_kernel(page, "print([o.kind for o in session.history[-1].after.overrides])")
    assert "op_size" in kinds and "op_placement" in kinds
    undo(page)
    assert spot(page, OP) == now


def test_an_op_is_dropped_on_an_epoch_that_is_not_the_next(page: Any, shots: Path) -> None:
    code = """
import json
from tbuda_lab.core.session.temporal import epochs_of
p = session.placed()
print(json.dumps(next([n, p.ops()[n].epoch, list(epochs_of(p, n)), len(p.segments)] for n in p.problem.order
                      if max(epochs_of(p, n)) > p.ops()[n].epoch + 1 and len(epochs_of(p, n)) < len(p.segments))))
"""
    op, here, legal, count = json.loads(in_kernel(page, code))
    page.locator(f"{GRID} .tb-frame[data-tb-epoch='{here}']").click()
    page.wait_for_selector(f"{GRID} .tb-tile[data-tb-op='{op}']")
    never = next(e for e in range(count - 1, -1, -1) if e not in legal and abs(e - here) > 1)

    def drag(epoch: int) -> None:
        x, y = centre(tile_of(page, op))
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 12, y + 8, steps=3)
        page.wait_for_selector(f"{GRID} .tb-tag:not([hidden]):not([data-tb-verdict=WAITING])")
        page.mouse.move(*centre(page.locator(f"{GRID} .tb-frame[data-tb-epoch='{epoch}']")), steps=6)

    drag(never)
    page.wait_for_selector(f"{GRID} .tb-tag[data-tb-verdict=SCHEDULE]")
    page.screenshot(path=shots / "epoch_refused_light.png")
    page.mouse.up()
    text = answer(page, "refused")
    assert "legal for it alone" in text and all(str(e) in text for e in legal if e != here)
    drag(max(legal))
    page.wait_for_selector(f"{GRID} .tb-tag[data-tb-verdict=LEGAL]")
    page.mouse.up()
    answer(page)
    assert spot(page, op)["epoch"] == max(legal)
    assert "add_schedule_constraint" in in_kernel(page, "print(session.to_python())")
    undo(page)
    assert spot(page, op)["epoch"] == here


def test_a_format_from_the_menu_is_an_override_that_can_be_undone(page: Any, shots: Path) -> None:
    page.locator("[data-tb-action=graph-search]").fill(OP)
    page.keyboard.press("Enter")
    node = page.locator(f"[data-tb-view=graph] [data-tb-op='{OP}']")
    page.mouse.click(*centre(node), button="right")
    page.locator("[data-tb-action=data-format]").click()
    page.wait_for_selector("[data-tb-action=format-Bfp8_b]")
    page.screenshot(path=shots / "formats_light.png")
    page.locator("[data-tb-action=format-Bfp8_b]").click()
    assert f"format of {OP} = Bfp8_b" in answer(page)
    assert in_kernel(page, f"print(session.result.lowered['{OP}'].df)") == "Bfp8_b"
    page.locator("[data-tb-action=tab-overrides]").click()
    row = page.locator(f"[data-tb-override='{OP}'][data-tb-state=obtained]", has_text="data_format")
    expect(row).to_contain_text("output_df=pybuda.DataFormat.Bfp8_b")
    undo(page)
    assert in_kernel(page, f"print(session.result.lowered['{OP}'].df)") == "Float16_b"


def test_overrides_are_dragged_into_another_order_and_imported(page: Any, lab: Lab, tmp_path: Path) -> None:
    code = f"""
import re
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import SetOverride
session.apply(Override('math_fidelity', '{OP}', 'HiFi4'), Override('math_fidelity', re.compile('.*matmul'), 'LoFi'))
session.compile()
"""
    in_kernel(page, code)
    caught_up(page)
    page.locator("[data-tb-action=tab-overrides]").click()
    grips = page.locator("[data-tb-action=order-override]")
    grips.nth(1).wait_for()
    grips.nth(1).scroll_into_view_if_needed()
    first, second = centre(grips.nth(0)), centre(grips.nth(1))
    page.mouse.move(*first)
    page.mouse.down()
    page.mouse.move(*second, steps=5)
    page.mouse.up()
    assert "to place" in answer(page)
    fidelity = f"print(session.result.lowered['{OP}'].attrs['fidelity'])"
    assert in_kernel(page, fidelity) == "HiFi4"
    code = "from tbuda_lab.core.session.exports import overrides_text\nprint(overrides_text(session, 'json'))"
    text = in_kernel(page, code)
    steps = int(in_kernel(page, "print(len(session.history))"))
    undo(page)
    undo(page)
    file = tmp_path / "mine.json"
    file.write_text(text)
    page.locator("[data-tb-action=overrides-file]").set_input_files(file)
    answer(page)
    assert in_kernel(page, fidelity) == "HiFi4"
    assert int(in_kernel(page, "print(len(session.history))")) == steps - 1
    file.write_text("{}")
    page.locator("[data-tb-action=overrides-file]").set_input_files(file)
    assert "mine.json" in answer(page, "refused")
    undo(page)


def test_a_live_drag_shows_itself_in_every_view(page: Any, shots: Path) -> None:
    page.evaluate("() => document.body.dataset.tbPreferences = JSON.stringify({compile: 'live'})")
    page.locator("[data-tb-action=tab-ops]").click()
    here = spot(page, OP)
    page.locator(f"{GRID} .tb-frame[data-tb-epoch='{here['epoch']}']").click()
    body = box_of(tile_of(page, OP).locator(".tb-body"))
    legal = json.loads(in_kernel(page, f"print([list(s) for s in session.legal('{OP}').legal])"))
    expected = next(s for s in legal if s[0] == here["size"][0] and s[1] > here["size"][1])
    row = page.locator(f"[data-tb-view=table] [data-tb-op='{OP}']")
    x, y = hold(page, OP, "e")
    page.mouse.move(x + (expected[1] - here["size"][1]) * body["width"] / here["size"][1], y, steps=8)
    page.wait_for_selector(f"{GRID} [data-tb-stale=preview]")
    shape = f"{expected[0]}×{expected[1]}"
    row.filter(has_text=shape).wait_for()
    page.screenshot(path=shots / "live_light.png")
    expect(page.locator(f"{GRID} .tb-ghosts")).to_have_count(1)  # the drag goes on
    assert spot(page, OP) == here
    page.keyboard.press("Escape")
    page.mouse.up()
    over(page)
    row.filter(has_not_text=shape).wait_for()
    nothing_was_asked(page, OP)
    assert spot(page, OP) == here
    page.evaluate("() => document.body.removeAttribute('data-tb-preferences')")


def test_suggestions_are_of_several_kinds(page: Any, shots: Path) -> None:
    page.locator(f"{GRID} [data-tb-action=suggest]").click()
    page.wait_for_selector("[data-tb-suggestion]", timeout=PATIENCE)
    expect(page.locator("[data-tb-view=suggestions] [role=status]")).to_have_text("", timeout=PATIENCE)  # all are there
    kinds = page.locator("[data-tb-suggestion]").evaluate_all("rows => rows.map(e => e.dataset.tbKind)")
    assert "merge" in kinds
    page.locator("[data-tb-suggestion][data-tb-kind=merge]").first.click()
    page.wait_for_selector("[data-tb-suggestion][data-tb-kind=merge][aria-selected=true]")
    page.wait_for_selector(f"{GRID} .tb-hint-on")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=dark]")
    page.screenshot(path=shots / "suggestions_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=light]")
    before = int(in_kernel(page, "print(len(session.result.placement.epochs))"))
    page.locator("[data-tb-view=suggestions] [role=listbox]").press("Enter")  # a change of theme may take the focus
    answer(page)
    assert int(in_kernel(page, "print(len(session.result.placement.epochs))")) == before - 1
    page.keyboard.press("Escape")
    undo(page)


def test_pipes_and_what_is_in_the_way_are_chosen_below_the_grid(page: Any, shots: Path) -> None:
    code = """
g, ops = session.result.lowered, session.result.placement.ops
print(next(ops[n.name].epoch for n in g.ops for s in n.sources if s in ops and ops[s].epoch == ops[n.name].epoch))
"""
    page.locator(f"{GRID} .tb-frame[data-tb-epoch='{in_kernel(page, code)}']").click()
    over_the_cores(page, "show_pipes").select_option("all")
    page.wait_for_selector(f"{GRID} [data-tb-pipe]")
    until(page, lambda: in_kernel(page, "print(bring_up.show_pipes)") == "all")
    page.screenshot(path=shots / "pipes_light.png")
    in_kernel(page, "bring_up.show_pipes = 'none'; bring_up.displacement = 'push'")
    page.wait_for_selector(f"{GRID}:not(:has([data-tb-pipe]))")
    page.wait_for_function("() => document.querySelector('[data-tb-action=displacement]').value === 'push'")
    in_kernel(page, "bring_up.displacement = 'free'")
    page.wait_for_function("() => document.querySelector('[data-tb-action=displacement]').value === 'free'")


def test_a_run_stops_behind_the_op_that_differs(page: Any, shots: Path) -> None:
    code = f"from tbuda_lab.core.session import FormatOp\nsession.apply(FormatOp('{OP}', 'Bfp2_b'))\nsession.compile()"
    in_kernel(page, code)
    caught_up(page)
    page.locator("[data-tb-action=run-more]").click()
    page.locator("[data-tb-action=run-break]").click()
    page.wait_for_selector("[data-tb-action=run-break][aria-pressed=true]")
    page.locator("[data-tb-action=run]").click()
    link = page.locator("[data-tb-view=stages] [data-tb-action=first-failure]")
    link.wait_for(timeout=PATIENCE)
    page.wait_for_selector("[data-tb-view=stages][data-tb-state=paused]")
    expect(link).to_contain_text("PCC")
    page.wait_for_selector(f"{GRID} .tb-tile.tb-failed[data-tb-op='{OP}']")
    link.click()
    card = page.locator(f"[data-tb-compare='{OP}'][data-tb-verdict=fail]")
    expect(card).to_contain_text("first differing tile")
    page.screenshot(path=shots / "first_failure_light.png")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=dark]")
    page.screenshot(path=shots / "first_failure_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=light]")
    done = page.locator(f"{GRID} .tb-tile[data-tb-done='100']").count()
    page.locator("[data-tb-action=run-step-op]").click()
    page.wait_for_function(
        "n => document.querySelectorAll('[data-tb-view=grid] .tb-tile[data-tb-done=\"100\"]').length > n", arg=done
    )
    page.wait_for_selector("[data-tb-view=stages][data-tb-state=paused]")
    page.locator("[data-tb-action=run-pause]").click()
    page.wait_for_selector("[data-tb-view=stages][data-tb-state=idle]", timeout=PATIENCE)
    page.locator("[data-tb-action=run-more]").click()
    page.locator("[data-tb-action=run-break]").click()
    page.wait_for_selector("[data-tb-action=run-break][aria-pressed=false]")
    in_kernel(page, "session.undo()\nsession.compile()")
