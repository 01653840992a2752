"""Memory, comparison, passes and cluster in JupyterLab, over a perceptron on two chips."""

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
    open_and_run,
    settled,
    until,
)
from tests.browser.editing import PERCEPTRON

CODE = PERCEPTRON.format(device="n300")
OP = "first.matmul"
MEMORY, DIFF, PASSES, CLUSTER = (f"[data-tb-view={name}]" for name in ("memory", "diff", "passes", "cluster"))


@pytest.fixture(scope="module")
def page(watched: Any, lab: Lab) -> Iterator[Any]:
    """A workbench over a compiled perceptron."""
    page = open_and_run(watched, lab, "looks", CODE)
    page.wait_for_selector(f"[data-tb-view=grid] .tb-tile[data-tb-op='{OP}']", timeout=PATIENCE)
    page.locator("[data-tb-action=tab-ops]").scroll_into_view_if_needed()
    yield page


def tab(page: Any, name: str) -> None:
    page.locator(f"[data-tb-action=tab-{name}]").click()


def shoot(page: Any, shots: Path, name: str) -> None:
    """A picture of the workbench in both themes."""
    for theme, word in (("JupyterLab Light", "light"), ("JupyterLab Dark", "dark")):
        command(page, "apputils:change-theme", theme=theme)
        page.wait_for_selector(f"[data-tb-root=bringup][data-tb-theme={word}]")
        settled(page)
        page.screenshot(path=shots / f"{name}_{word}.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_selector("[data-tb-root=bringup][data-tb-theme=light]")
    settled(page)


def test_the_buffers_of_a_core_add_up(page: Any, shots: Path) -> None:
    tab(page, "memory")
    page.wait_for_selector(f"{MEMORY} .tb-heat [data-tb-op='{OP}']")
    page.locator(f"{MEMORY} .tb-heat [data-tb-op='{OP}']").click()
    page.wait_for_selector(f"{MEMORY} .tb-heat .tb-selected[data-tb-op='{OP}']")
    page.wait_for_selector(f"{MEMORY} [data-tb-core-of='{OP}']")
    sizes = page.locator(f"{MEMORY} .tb-core tbody tr").evaluate_all(
        "rows => rows.map(r => [r.dataset.tbPart, Number(r.dataset.tbBytes)])"
    )
    row = json.loads(in_kernel(page, f"print(session.l1('{OP}').used)"))
    assert sum(size for kind, size in sizes if kind not in ("reserved", "free")) == row
    page.wait_for_selector(f"[data-tb-view=grid] .tb-tile.tb-selected[data-tb-op='{OP}']")
    shoot(page, shots, "memory_l1")


def test_a_queue_is_dragged_to_another_channel(page: Any, shots: Path) -> None:
    tab(page, "memory")
    page.locator("[data-tb-action=memory-dram]").click()
    name = "first.weight"
    chip = in_kernel(page, f"print(session.result.placement.queues['{name}'].chip)")
    page.wait_for_selector(f"{MEMORY}[data-tb-mode=dram] [data-tb-lane]")
    if page.locator("[data-tb-action=memory-chip]").count():
        page.locator("[data-tb-action=memory-chip]").select_option(chip)
    block = page.locator(f"{MEMORY} [data-tb-queue='{name}']").first
    block.scroll_into_view_if_needed()
    target = 4  # its buffers lie in all channels, the first one in channel 0
    lane = page.locator(f"{MEMORY} [data-tb-location=dram][data-tb-channel='{target}']")
    page.mouse.move(*centre(block))
    page.mouse.down()
    page.mouse.move(*centre(lane), steps=8)
    page.wait_for_selector(f"{MEMORY} .tb-queue-tag[data-tb-verdict=LEGAL]")
    page.screenshot(path=shots / "memory_drag_light.png")
    page.mouse.up()
    page.wait_for_selector(f"{MEMORY} [data-tb-channel='{target}'] [data-tb-queue='{name}']")
    lies = f"print({{c for c, _ in session.dram().queues['{name}'].queue.buffers}})"
    until(page, lambda: in_kernel(page, lies) == f"{{{target}}}")  # one of its buffers lay there before
    text = f"override_dram_queue_placement('{name}', channel={target})"
    until(page, lambda: text in in_kernel(page, "print(session.to_python())"))
    page.locator("[data-tb-view=grid] [data-tb-answer=done]").filter(has_text=name).wait_for(state="attached")
    expect(page.locator("[data-tb-view=grid] [data-tb-stale]")).to_have_count(0)
    others = page.locator(f"{MEMORY} [data-tb-channel]:not([data-tb-channel='{target}']) [data-tb-queue='{name}']")
    expect(others).to_have_count(0)  # the picture of what was compiled: it is drawn anew until then
    block = page.locator(f"{MEMORY} [data-tb-channel='{target}'] [data-tb-queue='{name}']").first
    box_of(block)
    block.click()
    page.wait_for_selector(f"{MEMORY} [data-tb-queue-card='{name}']")
    shoot(page, shots, "memory_dram")


def test_what_the_edits_changed(page: Any, shots: Path) -> None:
    in_kernel(
        page,
        f"from tbuda_lab.core.session import ResizeOp\nt = session.legal('{OP}')\n"
        f"session.apply(ResizeOp('{OP}', next(s for s in t.legal if s != t.grid)))\nsession.compile()",
    )
    tab(page, "diff")
    page.wait_for_selector(f"{DIFF} tbody [data-tb-op='{OP}'][data-tb-change*=resized]")
    page.wait_for_selector(f"{DIFF} [data-tb-queue='first.weight']")
    expect(page.locator(f"{DIFF} figure svg [data-tb-op='{OP}']")).to_have_count(2)
    totals = json.loads(in_kernel(page, "import json; print(json.dumps(session.diff('start').time))"))
    expect(page.locator(f"{DIFF} [data-tb-metric=verdict]")).to_contain_text(f"→ {totals[1]:,.0f} per input")
    shoot(page, shots, "diff_split")
    page.locator("[data-tb-action=diff-mode-delta]").click()
    page.wait_for_selector(f"{DIFF} .tb-diff-ghost", state="attached")
    page.locator("[data-tb-action=checkpoint]").click()
    page.wait_for_selector(f"{DIFF} [data-tb-action=diff-a] option[value=A]", state="attached")
    assert in_kernel(page, "print(session.checkpoints)") == "('A',)"
    page.locator("[data-tb-action=diff-a]").select_option("A")
    page.wait_for_selector(f"{DIFF} .tb-diff-same")
    expect(page.locator(f"{DIFF} [data-tb-metric=verdict]")).to_contain_text("As fast as before")


def test_passes_step_by_step(page: Any, shots: Path) -> None:
    tab(page, "passes")
    page.wait_for_selector(f"{PASSES} [data-tb-action=pass]")
    listed = page.locator(f"{PASSES} [data-tb-action=pass]")
    expected = json.loads(in_kernel(page, "print([s.index for s in session.passes().steps if s.changes])"))
    until(page, lambda: listed.evaluate_all("b => b.map(x => Number(x.dataset.tbStep))") == expected)
    page.wait_for_selector(f"{PASSES}[data-tb-pass='{expected[0]}'] [data-tb-change]")  # then the one after it
    page.locator("[data-tb-action=pass-next]").click()
    page.wait_for_selector(f"{PASSES}[data-tb-pass='{expected[1]}'] [data-tb-change]")
    shoot(page, shots, "passes")


def test_two_chips(page: Any, shots: Path) -> None:
    tab(page, "cluster")
    page.wait_for_selector(f"{CLUSTER} [data-tb-chip='1']")
    op, chip = in_kernel(page, f"print('{OP}', session.result.placement.ops['{OP}'].chip)").split()
    tile = page.locator(f"{CLUSTER} [data-tb-chip='{chip}'] [data-tb-op='{op}']")
    other = page.locator(f"{CLUSTER} [data-tb-chip='{1 - int(chip)}']")
    other.scroll_into_view_if_needed()
    page.mouse.move(*centre(tile))
    page.mouse.down()
    page.mouse.move(*centre(other), steps=8)
    page.wait_for_selector(f"{CLUSTER} .tb-tag[data-tb-verdict=LEGAL]")
    page.mouse.up()
    line = page.locator("[data-tb-view=grid] [data-tb-answer]").filter(has_text=OP)  # not what an earlier test was told
    line.wait_for(state="visible")
    answer, words = line.evaluate("e => [e.dataset.tbAnswer, e.innerText]")  # it goes after some seconds
    moved = in_kernel(page, f"print(session.result.placement.ops['{OP}'].chip)") != chip
    assert moved == (answer == "done"), words
    expect(page.locator("[data-tb-view=grid] [data-tb-stale]")).to_have_count(0)
    shoot(page, shots, "cluster")
    assert page.watched.errors == [] and page.watched.outside == []
