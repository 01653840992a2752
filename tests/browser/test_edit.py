"""Editing a small placement in JupyterLab with the mouse and the keys, and what the kernel has afterwards."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.netlist.image import read_image
from tests.browser.conftest import (
    ROOT,
    Lab,
    box_of,
    centre,
    command,
    expect,
    in_kernel,
    settled,
    until,
)
from tests.browser.editing import (
    GRID,
    PERCEPTRON,
    answer,
    caught_up,
    hold,
    nothing_was_asked,
    opened,
    placed,
    tile_of,
    undo_all,
)

CODE = PERCEPTRON.format(device="n150")
OP = "first.matmul"
BREAK = """
from tbuda_lab.core.session import EpochBreak
session.apply(EpochBreak('second.matmul'))
session.compile()
"""


@pytest.fixture(scope="module")
def page(watched: Any, lab: Lab) -> Iterator[Any]:
    """A workbench over a compiled perceptron."""
    yield opened(watched, lab, "edit", CODE, OP)


def size(page: Any) -> str:
    return in_kernel(page, f"print(session.result.placement.ops['{OP}'].size)")


def grab(page: Any, handle: str) -> tuple[float, float, float, float]:
    """Hover the op and press one of its handles; returns where that is and the size of one core, in pixels."""
    rows, cols = placed(page, OP)
    box = box_of(tile_of(page, OP).locator(".tb-body"))
    return *hold(page, OP, handle), box["width"] / cols, box["height"] / rows


def tag(page: Any) -> Any:
    """What is said beside the pointer."""
    return page.locator(f"{GRID} .tb-tag")


def overrides(page: Any) -> int:
    return int(in_kernel(page, "print(len(session.overrides))"))


def snapped_size(page: Any) -> tuple[int, int]:
    """A legal shape with fewer columns and as many rows as the op has."""
    code = f"t = session.legal('{OP}'); print([s for s in t.legal if s[0] == t.grid[0] and s[1] < t.grid[1]][-1])"
    rows, cols = in_kernel(page, code).strip("() \n").split(",")
    return int(rows), int(cols)


def test_a_drag_to_a_legal_shape_is_an_override_in_the_kernel(page: Any, shots: Path) -> None:
    before = size(page)
    rows, cols = snapped_size(page)
    now = placed(page, OP)
    x, y, w, _ = grab(page, "e")
    page.mouse.move(x + (cols - now[1]) * w, y, steps=12)
    page.wait_for_selector(f"{GRID} .tb-tag[data-tb-verdict=LEGAL]")
    expect(tag(page)).to_contain_text(f"{now[0]}×{now[1]} → {rows}×{cols}")
    page.screenshot(path=shots / "resize_light.png")
    began = time.perf_counter()
    page.mouse.up()
    page.wait_for_selector(f"{GRID} .tb-tile[data-tb-op='{OP}'][aria-label*='columns 0-{cols - 1},']")
    print(f"let go to drawn: {1000 * (time.perf_counter() - began):.0f} ms")
    assert f"resize {OP} to {rows}x{cols}" in answer(page)
    assert size(page) == f"({rows}, {cols})"
    assert in_kernel(page, "print(session.to_python())") == (
        f"pybuda.config.override_op_size('{OP}', ({rows}, {cols}))"
    )
    page.locator("[data-tb-action=tab-overrides]").click()
    row = page.locator(f"[data-tb-override='{OP}']")
    expect(row).to_have_attribute("data-tb-state", "obtained")
    page.screenshot(path=shots / "overrides_light.png")
    page.locator(f"{GRID} [data-tb-action=undo]").click()
    answer(page)
    assert size(page) == before
    expect(page.locator("[data-tb-override]")).to_have_count(0)


def test_an_illegal_shape_says_why_with_alt_and_escape_leaves_no_trace(page: Any, shots: Path) -> None:
    before = size(page)
    x, y, w, h = grab(page, "se")
    page.keyboard.down("Alt")
    page.mouse.move(x - w, y - h, steps=6)
    until(page, lambda: tag(page).get_attribute("data-tb-verdict") not in ("LEGAL", "WAITING"))
    expect(tag(page)).to_contain_text("divide")
    page.screenshot(path=shots / "illegal_light.png")
    page.mouse.up()
    page.keyboard.up("Alt")
    assert "divide" in answer(page, "refused")
    x, y, w, h = grab(page, "se")
    page.mouse.move(x - 2 * w, y - 2 * h, steps=4)
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator(f"{GRID} .tb-ghosts")).to_have_count(0)
    nothing_was_asked(page, OP)
    assert size(page) == before and overrides(page) == 0


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
    tile = tile_of(page, "second.matmul")
    box = box_of(tile.locator(".tb-body"))
    start = placed(page, "second.matmul", "start")
    page.mouse.move(*centre(tile))
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 30, box["y"] + box["height"] / 2 + 200, steps=8)
    page.wait_for_selector(f"{GRID} .tb-tag:not([hidden]):not([data-tb-verdict=WAITING])")
    page.screenshot(path=shots / "move_light.png")
    page.mouse.up()
    answer(page)
    assert placed(page, "second.matmul", "start") != start
    before = epochs(page)
    page.locator("[data-tb-action=graph-expand]").first.click()
    page.locator("[data-tb-action=graph-fit]").first.click()
    node = page.locator("[data-tb-view=graph] [data-tb-op='second.matmul']").first
    page.mouse.click(*centre(node), button="right")
    page.locator("[data-tb-action=epoch-break]").wait_for()
    page.screenshot(path=shots / "menu_light.png")
    page.locator("[data-tb-action=epoch-break]").click()
    answer(page)
    assert epochs(page) == before + 1
    for _ in range(2):
        page.locator(f"{GRID} [data-tb-action=undo]").click()
        answer(page)
    assert overrides(page) == 0


def epochs(page: Any) -> int:
    return int(in_kernel(page, "print(len(session.result.placement.epochs))"))


def drop(page: Any, op: str, x: float, y: float) -> None:
    """Press the middle of an op, and go to a point."""
    page.mouse.move(*centre(page.locator(f"{GRID} .tb-tile[data-tb-op='{op}']")))
    page.mouse.down()
    page.mouse.move(x, y, steps=10)
    page.wait_for_selector(f"{GRID} .tb-tag:not([hidden]):not([data-tb-verdict=WAITING])")


def test_a_drag_at_rest_says_exactly_what_would_come_of_it(page: Any, shots: Path) -> None:
    rows, cols = snapped_size(page)
    now = placed(page, OP)
    edit = f"ResizeOp('{OP}', ({rows}, {cols}))"
    after = int(
        in_kernel(
            page,
            (
                "from tbuda_lab.core.session import ResizeOp; "
                "from tbuda_lab.core.epochsim import batch_time; "
                f"r = session.preview(session.compiles.state_after({edit})); print(round(batch_time(r, 1).per_input))"
            ),
        )
    )
    x, y, w, _ = grab(page, "e")
    page.mouse.move(x + (cols - now[1]) * w, y, steps=6)
    line = page.locator(f"{GRID} .tb-tag span").filter(has_text="cycles / input").filter(has_not_text="estimate")
    line.wait_for(state="visible")
    message = line.inner_text().removeprefix("cycles / input").split("→")[-1].split("(")[0].split(",")[0].strip()
    assert message == (
        f"{after / 1000:.1f}k" if 1000 <= after < 100_000 else f"{after / 1000:.0f}k" if after >= 1000 else str(after)
    )
    page.screenshot(path=shots / "exact_light.png")
    page.keyboard.press("Escape")
    page.mouse.up()
    nothing_was_asked(page, OP)
    assert overrides(page) == 0


def test_an_op_dropped_on_another_epoch_goes_there(page: Any, shots: Path) -> None:
    undo_all(page)
    order = in_kernel(page, "print(' '.join(session.placed().problem.order))").split()
    in_kernel(page, BREAK.replace("second.matmul", order[-1]))
    caught_up(page)
    page.locator(f"{GRID} .tb-frame[data-tb-epoch='0']").click()
    drop(page, order[-2], *centre(page.locator(f"{GRID} .tb-frame[data-tb-epoch='1']")))
    expect(tag(page)).to_contain_text("to epoch 1")
    page.locator(f"{GRID} .tb-tag span", has_text="cycles / input").wait_for(state="visible")
    page.screenshot(path=shots / "drop_light.png")
    page.mouse.up()
    answer(page)
    assert in_kernel(page, "print(*session.result.placement.epochs[1].ops)").split() == order[-2:]
    assert epochs(page) == 2
    page.locator(f"{GRID} .tb-frame[data-tb-epoch='1']").click()
    page.locator(f"{GRID} .tb-tile[data-tb-op='{order[-2]}']").click()
    page.keyboard.press("Alt+ArrowLeft")
    answer(page)
    assert in_kernel(page, "print(*session.result.placement.epochs[1].ops)").split() == order[-1:]
    undo_all(page)


def test_a_break_is_dragged_along_the_schedule(page: Any, shots: Path) -> None:
    in_kernel(page, BREAK)
    caught_up(page)
    page.locator("[data-tb-action=graph-expand]").first.click()
    page.locator("[data-tb-action=graph-fit]").first.click()
    bar = page.locator("[data-tb-break='second.matmul']").first
    order = in_kernel(page, "print(' '.join(session.placed().problem.order))").split()
    to = order[2]
    x, y = centre(bar)
    page.mouse.move(x, y)
    page.mouse.down()
    box = box_of(page.locator(f"[data-tb-view=graph] .tb-hook[data-tb-op='{to}']").first)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 3, steps=10)
    page.wait_for_selector(f"[data-tb-break][data-tb-stop='{to}'][data-tb-verdict=LEGAL]")
    expect(bar).to_contain_text(re.compile("epochs.*cycles"))
    page.screenshot(path=shots / "break_light.png")
    page.mouse.up()
    answer(page)
    assert serious(page, ".tb-breaks") == []
    assert in_kernel(page, "print([o.target for o in session.overrides])") == f"['{to}']"
    bar = page.locator(f"[data-tb-break='{to}']").first
    bar.focus()
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Enter")
    answer(page)
    assert in_kernel(page, "print([o.target for o in session.overrides])") == f"['{order[1]}']"
    page.locator(f"[data-tb-break='{order[1]}']").first.focus()
    page.keyboard.press("Delete")
    answer(page)
    assert overrides(page) == 0
    undo_all(page)


def test_a_suggestion_is_accepted_with_enter(page: Any, shots: Path) -> None:
    code = f"from tbuda_lab.core.session import ResizeOp; session.apply(ResizeOp('{OP}', (1, 1))); session.compile()"
    in_kernel(page, code)
    caught_up(page)
    before = int(in_kernel(page, "print(sum(session.placed().limiter_cycles))"))
    page.locator(f"{GRID} [data-tb-action=suggest]").click()
    page.wait_for_selector(f"{GRID} [data-tb-suggestion='0']")
    expect(page.locator(f"{GRID} [data-tb-hint]").first).to_be_visible()
    page.screenshot(path=shots / "suggest_light.png")
    assert serious(page, "[data-tb-view=suggestions]") == []
    page.keyboard.press("Enter")
    answer(page)
    assert int(in_kernel(page, "print(sum(session.placed().limiter_cycles))")) < before
    page.keyboard.press("Escape")
    expect(page.locator(f"{GRID} [data-tb-hint]")).to_have_count(0)
    undo_all(page)


def test_an_op_is_moved_by_keys_alone(page: Any, shots: Path) -> None:
    start = in_kernel(page, "print(session.result.placement.ops['second.matmul'].start)")
    page.locator(f"{GRID} .tb-tile[data-tb-op='second.matmul']").click()
    page.keyboard.press("m")
    page.wait_for_selector(f"{GRID} .tb-tag:not([hidden])")
    was = box_of(page.locator(f"{GRID} .tb-ghost"))
    page.keyboard.press("ArrowDown")
    until(page, lambda: box_of(page.locator(f"{GRID} .tb-ghost")) != was)
    page.screenshot(path=shots / "keymove_light.png")
    page.keyboard.press("Enter")
    answer(page)
    assert in_kernel(page, "print(session.result.placement.ops['second.matmul'].start)") != start
    page.keyboard.press("Control+z")
    answer(page)
    assert in_kernel(page, "print(session.result.placement.ops['second.matmul'].start)") == start


def test_several_ops_are_moved_together_as_one_step(page: Any, shots: Path) -> None:
    undo_all(page)
    plane = box_of(page.locator(f"{GRID} svg.tb-cores"))
    page.mouse.move(plane["x"] + plane["width"] - 8, plane["y"] + plane["height"] - 8)
    page.mouse.down()
    page.mouse.move(plane["x"] + 34, plane["y"] + 24, steps=8)
    page.wait_for_selector(f"{GRID} [data-tb-band]")
    page.screenshot(path=shots / "band_light.png")
    page.mouse.up()
    expect(page.locator(f"{GRID} .tb-tile[aria-selected=true]").first).to_be_visible()
    expect(page.locator(f"{GRID} .tb-tile:not([aria-selected=true])")).to_have_count(0)
    places = "import json; print(json.dumps({n: o.start for n, o in session.result.placement.ops.items()}))"
    before = json.loads(in_kernel(page, places))
    x, y = centre(page.locator(f"{GRID} .tb-tile[data-tb-op='{OP}']"))
    page.keyboard.down("Alt")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 60, steps=6)
    page.wait_for_selector(f"{GRID} .tb-tag:not([hidden])")
    page.screenshot(path=shots / "group_light.png")
    page.mouse.up()
    page.keyboard.up("Alt")
    answer(page)
    after = json.loads(in_kernel(page, places))
    shifts = {(after[n][0] - r, after[n][1] - c) for n, (r, c) in before.items()}
    assert len(shifts) == 1 and (0, 0) not in shifts
    assert in_kernel(page, "print(len(session.history))") == "1"
    undo_all(page)


def serious(page: Any, place: str) -> list[str]:
    """What axe says is serious or critical below an element."""
    axe = ROOT / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        return []
    page.evaluate(axe.read_text(encoding="utf-8"))
    result = page.evaluate(
        """async place => {
          const { violations } = await window.axe.run(place, { resultTypes: ['violations'] });
          return violations.filter(v => v.impact === 'serious' || v.impact === 'critical')
            .flatMap(v => v.nodes.map(n => `${v.id}: ${n.html.slice(0, 200)}`));
        }""",
        place,
    )
    return [str(f) for f in result]


def test_the_panels(page: Any, lab: Lab, shots: Path) -> None:
    page.locator(f"{GRID} .tb-tile[data-tb-op='{OP}']").click()
    page.keyboard.press("w")
    page.wait_for_selector("[data-tb-view=why] [data-tb-action=apply-alternative]")
    page.screenshot(path=shots / "why_light.png")
    assert serious(page, "[data-tb-view=why]") == []
    page.keyboard.press("Escape")
    page.keyboard.press("h")
    page.wait_for_selector("[data-tb-view=keys]:not([hidden])")
    page.screenshot(path=shots / "keys_light.png")
    assert serious(page, "[data-tb-view=keys]") == []
    page.keyboard.press("Escape")
    page.locator(f"{GRID} [data-tb-action=export]").click()
    page.locator("[data-tb-action=export-overrides]").click()
    page.wait_for_selector("[data-tb-view=export] [data-tb-action=copy-cli]")
    page.locator("[data-tb-action=export-path]").fill("edits.py")
    page.wait_for_function(
        "() => document.querySelector('[data-tb-view=export]').textContent.includes('--out edits.py')"
    )
    page.screenshot(path=shots / "export_light.png")
    assert serious(page, "[data-tb-view=export]") == []
    page.locator("[data-tb-action=export-write]").click()
    page.wait_for_selector("[data-tb-view=export] [data-tb-answer=done]:has-text('written')")
    assert "import tbuda_lab as pybuda" in (lab.folder / "edits.py").read_text()
    page.locator("[data-tb-action=export-tti]").click()
    page.locator("[data-tb-action=export-set-weights]").wait_for()  # of this kind
    page.locator("[data-tb-action=export-path]").fill("model.tti")
    page.locator("[data-tb-export=preview]", has_text="about").wait_for()
    page.locator("[data-tb-action=export-set-weights]").click()
    page.locator("[data-tb-export=preview]", has_text="without weights").wait_for()
    page.locator("[data-tb-view=export] code", has_text="--no-weights").wait_for()
    page.screenshot(path=shots / "export_tti_light.png")
    assert serious(page, "[data-tb-view=export]") == []
    page.locator("[data-tb-action=export-write]").click()
    page.wait_for_selector("[data-tb-view=export] [data-tb-answer=done]:has-text('model.tti')")
    assert not read_image(lab.folder / "model.tti").pickles

    page.locator("[data-tb-action=export-image]").click()
    page.locator("[data-tb-action=export-path]").fill("grid.svg")
    page.locator("[data-tb-action=export-png]").click()
    page.wait_for_selector("[data-tb-view=export] [data-tb-answer=done]:has-text('grid.png')")
    assert (lab.folder / "grid.png").read_bytes().startswith(b"\x89PNG")
    page.locator("[data-tb-action=close-export]").click()
    page.locator("[data-tb-action=op-controls]").click()
    page.wait_for_selector("[data-tb-action=set-u_kt]")
    page.locator("[data-tb-view=inspector]").screenshot(path=shots / "knobs_light.png")
    assert serious(page, "[data-tb-view=inspector]") == []


def test_the_dark_theme(page: Any, shots: Path) -> None:
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=dark]")
    settled(page)
    page.locator("[data-tb-view=metrics]").scroll_into_view_if_needed()
    caught_up(page)
    x, y, w, h = grab(page, "se")
    page.mouse.move(x - w, y - h, steps=6)
    settled(page)
    page.screenshot(path=shots / "resize_dark.png")
    page.keyboard.press("Escape")
    page.mouse.up()
    in_kernel(page, f"from tbuda_lab.core.session import ResizeOp; session.apply(ResizeOp('{OP}', (1, 2)))")
    page.wait_for_selector(f"{GRID} [data-tb-stale=stale]")
    page.screenshot(path=shots / "stale_dark.png")
    page.locator(f"{GRID} .tb-plane").focus()
    page.keyboard.press("r")
    answer(page)
    assert size(page) == "(1, 2)"
    page.locator(f"{GRID} [data-tb-action=suggest]").click()
    page.wait_for_selector(f"{GRID} [data-tb-suggestion='0']")
    page.screenshot(path=shots / "suggest_dark.png")
    page.keyboard.press("Escape")
    page.locator(f"{GRID} .tb-tile[data-tb-op='{OP}']").click()
    page.keyboard.press("w")
    page.wait_for_selector("[data-tb-view=why] [data-tb-action=apply-alternative]")
    page.screenshot(path=shots / "why_dark.png")
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    page.wait_for_selector("[data-tb-view=export] [data-tb-action=copy-cli]")
    page.locator("[data-tb-action=export-tti]").click()
    page.locator("[data-tb-export=preview]", has_text="cores").wait_for()
    page.screenshot(path=shots / "export_dark.png")
    assert serious(page, "[data-tb-view=export]") == []
    page.keyboard.press("Escape")
    page.keyboard.press("h")
    page.wait_for_selector("[data-tb-view=keys]:not([hidden])")
    page.screenshot(path=shots / "keys_dark.png")
    assert serious(page, "[data-tb-view=keys]") == []
    page.keyboard.press("Escape")
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def test_nothing_went_wrong(watched: Any) -> None:
    assert watched.errors == []
    assert watched.outside == []
