"""The timeline, a run that is followed and stepped, and ops compared with torch, in JupyterLab."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, Lab, box_of, command, expect, in_kernel, open_and_run, settled, until

CODE = """
from tbuda_lab.core.session import EpochBreak, Session
from tbuda_lab.widgets import BringUp
from tests.session.models import encoder
session = Session(*encoder(2), "n150", name="encoder")
ops = [node.name for node in session.graph("lowered").ops]
session.apply(EpochBreak(ops[len(ops) // 3]), EpochBreak(ops[2 * len(ops) // 3]))
session.compile()
bring_up = BringUp(session, start=False)
bring_up
"""
TRACE, GRID, STAGES = "[data-tb-view=trace]", "[data-tb-view=grid]", "[data-tb-view=stages]"


@pytest.fixture(scope="module")
def page(watched: Any, lab: Lab) -> Iterator[Any]:
    """A workbench over three epochs, with the timeline in front."""
    page = open_and_run(watched, lab, "trace", CODE)
    page.wait_for_selector(f"{GRID} .tb-tile", timeout=PATIENCE)
    page.locator(STAGES).scroll_into_view_if_needed()
    page.locator("[data-tb-action=tab-trace]").click()
    page.wait_for_selector(f"{TRACE}[data-tb-state=ready]", timeout=PATIENCE)
    yield page
    assert watched.errors == []


def placed(page: Any, epoch: int) -> list[str]:
    """Ops of an epoch in schedule order."""
    return json.loads(
        in_kernel(page, f"import json; print(json.dumps(list(session.result.placement.epochs[{epoch}].ops)))")
    )


def shown(page: Any) -> tuple[int, int]:
    start, end = page.locator(TRACE).get_attribute("data-tb-window").split("-")
    return int(start), int(end)


def fitted(page: Any) -> int:
    """Show all of the trace; returns its cycles."""
    page.locator(f"{TRACE} [data-tb-action=trace-fit]").click()
    whole = int(in_kernel(page, "print(session.timeline(8).trace.cycles)"))
    until(page, lambda: shown(page) == (0, whole))
    page.wait_for_selector(f"{TRACE}:not([data-tb-waiting])")
    return whole


def wait_for_levels(page: Any) -> None:
    """Until the levels of the buffers around the selected op are there: the rows are drawn anew for them."""
    page.wait_for_selector(f"{TRACE} .tb-trace-fill", state="attached", timeout=PATIENCE)
    page.wait_for_selector(f"{TRACE}:not([data-tb-waiting])")


def canvas(page: Any) -> dict[str, float]:
    return box_of(page.locator(f"{TRACE} canvas"))


def test_the_selection_follows_into_the_timeline_and_out_of_it(page: Any, shots: Path) -> None:
    op = placed(page, 2)[4]
    in_kernel(page, f"bring_up.select('{op}')")
    name = page.locator(f"{TRACE} [data-tb-op='{op}'][aria-pressed=true]")
    name.wait_for()
    wait_for_levels(page)
    box_of(name)
    expected = page.locator(f"{TRACE} .tb-trace-name:not([aria-pressed=true])").first.get_attribute("data-tb-op")
    page.locator(f"{TRACE} .tb-trace-name[data-tb-op='{expected}']").click()
    page.wait_for_selector(f"{GRID} .tb-tile.tb-selected[data-tb-op='{expected}']")
    page.wait_for_selector(f"[data-tb-view=graph] [data-tb-op='{expected}'][aria-pressed=true]")
    page.wait_for_selector(f"{TRACE} .tb-trace-fill", timeout=PATIENCE)  # levels of the buffers around it
    page.screenshot(path=shots / "trace_light.png")


def test_zoom_by_key_wheel_and_button(page: Any) -> None:
    whole = fitted(page)
    box = canvas(page)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
    page.keyboard.press("+")
    page.wait_for_function(f"() => document.querySelector('{TRACE}').dataset.tbWindow !== '0-{whole}'")
    first = shown(page)
    assert first[1] - first[0] < 0.7 * whole
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 90)
    page.mouse.wheel(0, -300)
    until(page, lambda: shown(page)[1] - shown(page)[0] < first[1] - first[0])
    page.keyboard.press("0")
    until(page, lambda: shown(page) == (0, whole))


def test_two_cursors_say_how_far_they_are_apart(page: Any) -> None:
    whole, box = fitted(page), canvas(page)
    page.keyboard.down("Alt")
    for share in (0.25, 0.75):
        page.mouse.click(box["x"] + share * box["width"], box["y"] + 100)
    page.keyboard.up("Alt")
    expect(page.locator("[data-tb-cursor]")).to_have_count(2)
    apart = int(page.locator("[data-tb-difference]").get_attribute("data-tb-difference"))
    assert apart == pytest.approx(whole / 2, rel=0.01)
    page.locator(".tb-trace-stage").focus()
    page.keyboard.press("x")
    until(page, lambda: page.locator("[data-tb-cursor]").count() == 0)


def test_the_playhead_drives_the_grid(page: Any, shots: Path) -> None:
    result = json.loads(
        in_kernel(
            page,
            """
import json
trace = session.timeline(8).trace
epoch = trace.epochs[1]
cycle = (epoch.start + epoch.end) // 2
at = trace.at(cycle)
print(json.dumps([cycle, {trace.ops[o].name: int(k) for o, k in zip(at.op.tolist(), at.kind.tolist())}]))
""",
        )
    )
    cycle, doing = result
    whole, box = fitted(page), canvas(page)
    page.mouse.click(box["x"] + box["width"] * cycle / whole, box["y"] + 28)  # on the ruler
    page.wait_for_selector(f"{GRID}[data-tb-epoch='1'] .tb-at-moment")
    page.wait_for_selector(f"{GRID} [data-tb-doing]")

    def playhead() -> int:
        return int(page.locator(TRACE).get_attribute("data-tb-cycle"))

    until(page, lambda: abs(playhead() - cycle) <= whole / box["width"] + 1)  # an earlier click put it elsewhere
    there = playhead()
    now = json.loads(
        in_kernel(
            page,
            f"""
at = trace.at({there})
print(json.dumps(sorted({{trace.ops[o].name for o in at.op.tolist()}})))
""",
        )
    )
    tiles = page.locator(f"{GRID} [data-tb-doing]")
    until(page, lambda: sorted(tiles.evaluate_all("t => t.map(e => e.dataset.tbOp)")) == now)
    assert len(doing) > 3
    page.screenshot(path=shots / "playhead_light.png")
    play = page.locator(f"{TRACE} [data-tb-action=trace-play]")
    play.click()
    page.wait_for_function(f"() => Number(document.querySelector('{TRACE}').dataset.tbCycle) > {there + whole // 200}")
    page.evaluate(
        "button => document.querySelector(`${button}[aria-pressed=true]`)?.click()",  # it stops at the end
        f"{TRACE} [data-tb-action=trace-play]",
    )
    expect(play).to_have_attribute("aria-pressed", "false")


def test_d_leaves_what_feeds_and_drains_the_selection(page: Any) -> None:
    op = placed(page, 1)[1]  # what feeds and drains it is in its epoch: few rows, all in sight
    near = json.loads(
        in_kernel(
            page,
            f"""
graph, ops = session.result.lowered, session.result.placement.ops
around = {{s for s in graph['{op}'].sources if s in ops}} | {{u for u, _ in graph.users()['{op}'] if u in ops}}
print(json.dumps(sorted(around | {{'{op}'}})))
""",
        )
    )
    in_kernel(page, f"bring_up.select('{op}')")
    name = page.locator(f"{TRACE} [data-tb-op='{op}'][aria-pressed=true]")
    name.wait_for()
    wait_for_levels(page)
    box_of(name)
    name.click()
    page.wait_for_selector(f"{TRACE} .tb-trace-stage:focus")
    page.keyboard.press("q")
    page.wait_for_function(f"n => document.querySelectorAll('{TRACE} .tb-trace-name').length === n", arg=len(near))
    names = page.locator(f"{TRACE} .tb-trace-name")
    until(page, lambda: sorted(names.evaluate_all("t => t.map(e => e.dataset.tbOp)")) == near)
    page.keyboard.press("q")
    page.wait_for_function(f"n => document.querySelectorAll('{TRACE} .tb-trace-name').length > n", arg=len(near))
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{GRID} .tb-at-moment", state="detached")
    until(page, lambda: in_kernel(page, "print(bring_up.selected)") == "()")


def test_another_batch_is_simulated(page: Any) -> None:
    def simulated(batch: int) -> None:
        page.locator(f"{TRACE} [data-tb-action=trace-batch-{batch}]").click()
        cycles = in_kernel(page, f"print(f'{{session.timeline({batch}).cycles / 1000:.0f}}')")
        facts = f"document.querySelector('{TRACE} [data-tb-metric=trace]')"
        page.wait_for_function(f"() => {facts}.textContent.startsWith('{cycles}')")

    simulated(1)
    simulated(8)


def test_a_run_is_stepped_and_its_progress_seen(page: Any, shots: Path) -> None:
    page.wait_for_selector(f"{STAGES}[data-tb-state=idle]")
    page.locator("[data-tb-action=run-more]").click()
    page.locator("[data-tb-action=run-step-epoch]").click()
    page.wait_for_selector(f"{STAGES}[data-tb-state=paused]", timeout=PATIENCE)
    first, second = placed(page, 0), placed(page, 1)
    page.wait_for_selector(f"{GRID}[data-tb-epoch='0'] .tb-tile[data-tb-op='{first[0]}'][data-tb-done='100']")
    done = page.locator(f"{GRID} [data-tb-done]")
    until(page, lambda: done.evaluate_all("t => t.map(e => e.dataset.tbDone)") == ["100"] * len(first))
    page.screenshot(path=shots / "paused_light.png")
    page.locator("[data-tb-action=run-step-epoch]").click()
    page.wait_for_selector(f"{GRID}[data-tb-epoch='1'] .tb-tile[data-tb-op='{second[-1]}'][data-tb-done='100']")
    page.wait_for_selector(f"{STAGES}[data-tb-state=paused]")  # while it goes, the button below pauses it
    page.locator("[data-tb-action=run-pause]").click()  # go on
    page.wait_for_selector(f"{STAGES}[data-tb-state=idle]", timeout=PATIENCE)
    expect(page.locator(f"{GRID} .tb-done-share")).to_have_count(0)


def test_a_long_run_shows_progress_pauses_and_is_cancelled(page: Any) -> None:
    in_kernel(
        page,
        """
import threading
from tbuda_lab.core.errors import Cancelled
def long():
    try:
        session.run([session.sample_inputs] * 5000)
    except Cancelled:
        print('cancelled')
runner = threading.Thread(target=long); runner.start()
""",
    )
    page.wait_for_selector(f"{GRID} .tb-now", timeout=PATIENCE)
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{GRID} [data-tb-done]')].some(e => Number(e.dataset.tbDone) > 0)",
        timeout=PATIENCE,
    )
    in_kernel(page, "session.control.pause()")
    page.wait_for_selector(f"{STAGES} .tb-message:has-text('Paused')")
    in_kernel(page, "session.cancel(); runner.join(30); assert not runner.is_alive()")
    page.wait_for_selector(f"{STAGES}[data-tb-state=idle]")


def test_the_first_op_that_fails_is_red_everywhere(page: Any, shots: Path) -> None:
    bad = in_kernel(
        page,
        """
from tbuda_lab.core.runner import Runner
result = session.result
broken = Runner(result)
queue = next(n for n in result.parameters if 'up' in n and 'weight' in n)
broken.executor.write(queue, -result.parameters[queue])
checks = session.verify_ops(runner=broken)
print(checks.first_failure.op)
""",
    )
    page.locator(f"{GRID} [data-tb-action=epoch]").first.click()
    page.wait_for_selector(f"{GRID} .tb-check-good")
    in_kernel(page, f"bring_up.select('{bad}')")
    page.wait_for_selector(f"{GRID} .tb-check-first")
    card = page.locator(f"[data-tb-view=inspector] [data-tb-compare='{bad}'][data-tb-verdict=fail]")
    expect(card).to_contain_text("first op that fails")
    page.wait_for_selector(".tb-tensor")
    page.locator("[data-tb-action=tab-ops]").click()
    page.wait_for_selector(f"[data-tb-view=table] [data-tb-op='{bad}'] .tb-fail")
    settled(page)
    page.screenshot(path=shots / "first_failure_light.png")
    page.locator("[data-tb-action=run-more]").click()
    page.locator("[data-tb-action=check-ops]").click()
    page.wait_for_selector(f"{GRID} .tb-check-first", state="detached", timeout=PATIENCE)
    page.wait_for_selector(f"{STAGES}[data-tb-state=idle]", timeout=PATIENCE)


def test_dark(page: Any, shots: Path) -> None:
    page.locator("[data-tb-action=tab-trace]").click()
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root][data-tb-theme=dark]")
    box = canvas(page)
    page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + 100)
    settled(page)
    page.wait_for_selector("[data-tb-view=trace]:not([data-tb-waiting])")
    page.screenshot(path=shots / "trace_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
