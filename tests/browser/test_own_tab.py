"""The workbench where it opens by default, in a tab of its own: edit, run, timeline, comparison, export; and commands
beside two notebooks with three sessions. One JupyterLab for all; each test goes on where the one before ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.diff.compare import whole
from tests.browser.conftest import (
    PATIENCE,
    Lab,
    all_ran,
    box_of,
    centre,
    command,
    expect,
    in_kernel,
    lab_page,
    open_and_run,
    until,
)

OP = "first.matmul"
FIRST = """
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp
from tests.session.models import perceptron
session = Session(*perceptron(), "n150", name="mlp")
session.compile()
view = BringUp(session, start=False)
view
"""
TWO = """
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp
from tests.session.models import perceptron
left, right = (Session(*perceptron(), "n150", name=name) for name in ("left", "right"))
for session in (left, right):
    session.gesture("resize first.matmul to 2x2")
    session.compile()
"""
BREAK = "from tbuda_lab.core.session import EpochBreak; session.apply(EpochBreak('second.matmul')); session.compile()"
SAID = "import json; print(json.dumps([(s.name, len(s.overrides), s.rev) for s in ({})]))"
TAB = "[data-tb-tab=bringup] [data-tb-root=bringup]"
ROOTS = "[data-tb-tab=bringup] > [data-tb-root]"


@pytest.fixture(scope="module")
def page(browser: Any, lab_with_tabs: Lab) -> Iterator[Any]:
    """A workbench in its tab, beside the notebook that made its session."""
    with lab_page(browser, lab_with_tabs, (1600, 1100)) as watched:
        page = watched.page
        page.on("dialog", lambda dialog: dialog.accept())
        open_and_run(watched, lab_with_tabs, "one", FIRST)
        page.locator(f"{TAB} .tb-tile").first.wait_for()
        all_ran(page)
        yield page


def said(page: Any) -> Any:
    """(name, overrides, revision) of the sessions of both notebooks."""
    one = in_kernel(page, SAID.format("session,"), "one.ipynb")
    return one, in_kernel(page, SAID.format("left, right"), "two.ipynb")


def size(page: Any) -> list[int]:
    code = f"import json; print(json.dumps(list(session.result.placement.ops['{OP}'].size)))"
    return list(json.loads(in_kernel(page, code, "one.ipynb")))


def at_rest(page: Any) -> None:
    page.wait_for_selector(f"{TAB} [data-tb-view=grid]:not(:has([data-tb-stale]))")


def test_a_drag_in_the_tab_is_an_edit_and_undo_takes_it_back(page: Any, shots: Path) -> None:
    tab = page.locator(TAB)
    before = size(page)
    code = f"t = session.legal('{OP}'); print([s for s in t.legal if s[0] == t.grid[0] and s[1] < t.grid[1]][-1])"
    rows, cols = map(int, in_kernel(page, code, "one.ipynb").strip("() \n").split(","))
    tile = tab.locator(f".tb-tile[data-tb-op='{OP}']")
    body = box_of(tile.locator(".tb-body"))
    page.mouse.move(*centre(tile))
    x, y = centre(tab.locator(f"[data-tb-handles-of='{OP}'] [data-tb-handle=e]"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + (cols - before[1]) * body["width"] / before[1], y, steps=8)
    expect(tab.locator(".tb-tag")).to_contain_text(f"→ {rows}×{cols}")
    expect(tab.locator(".tb-tag")).to_contain_text(re.compile(r"(?<!estimate)\bcycles / input\n?[\d,.]"))
    page.screenshot(path=shots / "own_tab_drag_light.png")
    page.mouse.up()
    until(page, lambda: size(page) == [rows, cols])
    at_rest(page)
    tab.locator("[data-tb-view=grid] [data-tb-action=undo]").click()
    until(page, lambda: size(page) == before)
    at_rest(page)


def test_a_run_leaves_the_view_as_it_was_and_undo_finds_its_verdict_again(page: Any, shots: Path) -> None:
    """Epoch and selection are those from before the run; an edit that is slower is said without a tick; undo back to
    what was verified shows its PCC again."""
    in_kernel(page, BREAK, "one.ipynb")
    tab = page.locator(TAB)
    grid, pcc = tab.locator("[data-tb-view=grid]"), tab.locator("[data-tb-metric=pcc]")
    at_rest(page)
    grid.locator("[data-tb-epoch='1']").click()
    expect(grid).to_have_attribute("data-tb-epoch", "1")
    tile = grid.locator(".tb-tile[data-tb-op='second.matmul']")
    tile.click()
    tab.locator("[data-tb-action=run]").click()
    expect(pcc).to_be_visible(timeout=PATIENCE)
    verdict = pcc.locator("b").inner_text()
    expect(tab.locator("[data-tb-view=stages]")).to_have_attribute("data-tb-state", "idle")
    expect(grid).to_have_attribute("data-tb-epoch", "1")
    expect(tile).to_have_class(re.compile("tb-selected"))
    assert in_kernel(page, "print(view.selected)", "one.ipynb") == "('second.matmul',)"
    before = float(in_kernel(page, "print(session.time().per_input)", "one.ipynb"))
    tile.click()
    page.keyboard.press("Alt+[")  # half of the rows: fewer columns would share a load among fewer cores, and gain
    toast = tab.locator("[data-tb-answer=done]")
    expect(toast).to_contain_text(re.compile(r"\(\+[\d.]+ %\)"))
    expect(toast.locator(".tb-glyph")).to_have_text("▲")
    at_rest(page)
    assert float(in_kernel(page, "print(session.time().per_input)", "one.ipynb")) > before
    expect(pcc).to_have_count(0)
    page.screenshot(path=shots / "own_tab_slower_light.png")
    page.keyboard.press("Control+z")
    expect(pcc.locator("b")).to_have_text(verdict)
    # what follows begins without the break
    tab.locator("[data-tb-view=grid] [data-tb-action=undo]").click()
    until(page, lambda: in_kernel(page, "print(len(session.overrides))", "one.ipynb") == "0")
    at_rest(page)


def test_run_timeline_comparison_and_export_in_the_tab(page: Any, lab_with_tabs: Lab, shots: Path) -> None:
    tab = page.locator(TAB)
    tab.locator("[data-tb-action=run]").click()
    expect(tab.locator("[data-tb-metric=pcc]")).to_be_visible(timeout=PATIENCE)
    expect(tab.locator("[data-tb-view=stages]")).to_have_attribute("data-tb-state", "idle")
    # the status bar and the head say one number
    cycles = float(in_kernel(page, "print(session.time().per_input)", "one.ipynb"))
    status = page.locator("[data-tb-status] [data-tb-action=status-session]")
    expect(status).to_have_text(f"mlp: {whole(cycles)} cycles/input")
    tab.locator("[data-tb-action=tab-trace]").click()
    trace = tab.locator("[data-tb-view=trace]")
    expect(trace).to_have_attribute("data-tb-state", "ready")
    for kind in ("compute", "wait for input", "wait for space", "wait for DRAM", "wait for host"):
        expect(trace.locator(".tb-key", has_text=kind)).to_be_visible()
    names = trace.locator(f"[data-tb-action=trace-op][data-tb-op='{OP}']")
    expect(names).to_have_attribute("title", re.compile(r"compute \d.*wait for DRAM.*wait for host \d"))
    page.screenshot(path=shots / "own_tab_timeline_light.png")
    in_kernel(page, f"session.gesture('resize {OP} to 2x2'); session.compile()", "one.ipynb")
    at_rest(page)
    tab.locator("[data-tb-action=tab-diff]").click()
    row = tab.locator(f"[data-tb-view=diff] .tb-diff-list [data-tb-op='{OP}']").first
    expect(row).to_have_attribute("data-tb-change", re.compile("resized"))
    page.screenshot(path=shots / "own_tab_diff_light.png")
    tab.locator("[data-tb-view=grid] [data-tb-action=export]").first.click()
    dialog = page.locator("[role=dialog]:visible")
    # one word for one thing: the stage is Trace, what is drawn and written is the timeline
    expect(dialog.locator("[data-tb-action=export-trace]")).to_have_text("Timeline")
    dialog.locator("[data-tb-action=export-netlist]").click()
    dialog.locator("[data-tb-action=export-path]").fill("own_tab_netlist.yaml")
    page.screenshot(path=shots / "own_tab_export_light.png")
    dialog.locator("[data-tb-action=export-write]").click()
    until(page, lambda: (lab_with_tabs.folder / "own_tab_netlist.yaml").is_file())
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_no_command_reaches_a_session_that_is_not_in_front(page: Any, lab_with_tabs: Lab) -> None:
    """Two notebooks, three sessions: undo acts on the one in front and on no other, and says which."""
    open_and_run(page.watched, lab_with_tabs, "two", TWO, "BringUp(left, start=False)", "BringUp(right, start=False)")
    all_ran(page)
    page.locator("[data-tb-tab=bringup] [data-tb-session]").nth(2).wait_for(state="attached")
    undo = "[...window.jupyterapp.shell.widgets('main')]"
    for name, which in (("right", 1), ("left", 0), ("mlp", None)):
        page.evaluate(
            f"""name => {{
              const tab = {undo}.find(w => w.id.startsWith('tbuda-tab') && w.wanted.name === name);
              window.jupyterapp.shell.activateById(tab.id);
            }}""",
            name,
        )
        page.wait_for_function(
            """name => {
              const { commands } = window.jupyterapp;
              return commands.isEnabled('tbuda:undo') && commands.label('tbuda:undo').endsWith(`, in ${name}`);
            }""",
            arg=name,
        )
        one, two = said(page)
        command(page, "tbuda:undo")
        after = said(page)
        changed = [a != b for a, b in zip((one, two), after, strict=True)]
        assert changed == [which is None, which is not None], f"undo in {name}: {one, two} became {after}"
        if which is not None:
            pairs = zip(json.loads(two), json.loads(after[1]), strict=True)
            assert [a != b for a, b in pairs] == [which == 0, which == 1]
    # in front is a file that has no session: nothing can be commanded
    (lab_with_tabs.folder / "plain.txt").write_text("nothing of ours\n")
    command(page, "docmanager:open", path="plain.txt")
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.context?.path === 'plain.txt'")
    for name in ("undo", "redo", "run", "compile", "export"):
        assert not page.evaluate("c => window.jupyterapp.commands.isEnabled(c)", f"tbuda:{name}")


SPY = """
from tbuda_lab.widgets.handlers.lab.sessions import COMMANDS
told = []
def spied(name, f):
    def tell(hub, content, answer):
        told.append((name, hub.session.name))
        f(hub, content, answer)
    return tell
for name in ("compile", "run", "cancel", "undo", "redo", "checkpoint", "why", "diff"):
    COMMANDS[name] = spied(name, COMMANDS[name])
"""


def test_every_command_reaches_the_session_in_front_alone(page: Any) -> None:
    """After the test above: three sessions in two notebooks, each with its tab. Compile, undo, redo, run and cancel are
    taken down where they arrive; export opens its dialog in the tab in front."""
    books = ("one.ipynb", "two.ipynb")
    for book in books:
        in_kernel(page, SPY, book)

    def told() -> list[Any]:
        lists = [json.loads(in_kernel(page, "import json; print(json.dumps(told)); told.clear()", b)) for b in books]
        return sorted((name, session) for names in lists for name, session in names)

    def can(name: str) -> None:
        page.wait_for_function("c => window.jupyterapp.commands.isEnabled(c)", arg=f"tbuda:{name}")

    for session in ("left", "mlp", "right"):
        page.evaluate(
            """name => {
              const { shell } = window.jupyterapp;
              const tab = [...shell.widgets('main')].find(w => w.id.startsWith('tbuda-tab') && w.wanted.name === name);
              shell.activateById(tab.id);
            }""",
            session,
        )
        page.wait_for_function(
            "name => window.jupyterapp.commands.label('tbuda:compile') === `Compile in ${name}`", arg=session
        )
        told()
        for name in ("compile", "redo", "undo", "run"):
            can(name)
            command(page, f"tbuda:{name}")
            assert told() == [(name, session)]
        can("compile")  # the run is over
        front = page.locator(f"{ROOTS}:visible")
        front.locator("[data-tb-action=run-more]").click()
        front.locator("[data-tb-action=run-step-op]").click()
        expect(front.locator("[data-tb-view=stages]")).to_have_attribute("data-tb-state", "paused")
        can("cancel")
        command(page, "tbuda:cancel")
        assert told() == [("cancel", session)]
        can("export")
        command(page, "tbuda:export")
        expect(page.locator("[role=dialog]:visible")).to_have_count(1)
        expect(front.locator("[role=dialog]:visible")).to_have_count(1)
        page.keyboard.press("Escape")
        assert told() == []


def test_nothing_went_wrong(page: Any) -> None:
    assert page.watched.outside == []
    assert [e for e in page.watched.errors if "debugger state" not in e] == []
