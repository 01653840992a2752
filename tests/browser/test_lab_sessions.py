"""The extension around a small session: menu, status bar, sidebar, tabs, settings; reload, restart of the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import conftest
from tests.browser.conftest import (
    PATIENCE,
    box_of,
    command,
    expect,
    notebook,
    run_all,
    settled,
    until,
    wait_for_saved_layout,
)

OP = "first.matmul"
CELL = """\
from pathlib import Path
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp
from tests.session.models import perceptron

journal = Path("edits.buda.json")
model, inputs = perceptron()
if journal.exists():
    session = Session.open(journal, model, inputs)
else:
    session = Session(model, inputs, "e300", name="lab_mlp", journal=journal)
bring_up = BringUp(session)
bring_up"""


def in_kernel(page: Any, code: str) -> str:
    return conftest.in_kernel(page, code, "lab_sessions.ipynb")


def close(page: Any, view: str) -> None:
    """Close the tab of a view."""
    page.evaluate(
        """view => [...window.jupyterapp.shell.widgets('main')]
      .find(w => w.node.querySelector(`[data-tb-tab=${view}]`)).close()""",
        view,
    )
    page.wait_for_selector(f"[data-tb-tab={view}]", state="detached")


def idle(page: Any, session: str = "lab_mlp") -> None:
    """Until a session has run, in its view and in the list of sessions: that comes a moment later."""
    page.wait_for_selector("[data-tb-root=bringup] [data-tb-metric=pcc]", timeout=PATIENCE)
    page.wait_for_selector("[data-tb-view=stages][data-tb-state=idle]", state="attached", timeout=PATIENCE)
    message = page.locator("[data-tb-status][data-tb-state=idle] [data-tb-action=status-session]")
    expect(message).to_have_text(re.compile(rf"^{session}: [\d,]+ cycles/input$"), timeout=PATIENCE)


def can(page: Any, command: str, label: str) -> None:
    """Until a command is offered under its whole label."""
    page.wait_for_function(
        """([command, label]) => {
          const { commands } = window.jupyterapp;
          return commands.isEnabled(command) && commands.label(command).startsWith(label);
        }""",
        arg=[command, label],
    )


def cannot(page: Any, command: str) -> None:
    page.wait_for_function("command => !window.jupyterapp.commands.isEnabled(command)", arg=command)


@pytest.fixture(scope="module")
def page(watched: Any, lab: Any) -> Iterator[Any]:
    (lab.folder / "lab_sessions.ipynb").write_text(notebook(CELL))
    page = watched.page
    page.set_default_timeout(PATIENCE // 4)
    command(page, "docmanager:open", path="lab_sessions.ipynb")
    run_all(page)
    idle(page)
    yield page
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def test_the_menu_acts_on_the_session(page: Any, shots: Path) -> None:
    in_kernel(page, f"bring_up.select({OP!r})")
    page.locator(".lm-MenuBar-itemLabel", has_text="Tensix").click()
    menu = page.locator(".lm-Menu")
    menu.wait_for()
    labels = menu.locator(".lm-Menu-itemLabel").all_inner_texts()
    verbs = [
        "Compile",
        "Run and Verify",
        "Cancel",
        "Undo",
        "Redo",
        "Set Checkpoint…",
        "Compare with Checkpoint…",
        "Open Core Grid",
        "Next Epoch",
        "Previous Epoch",
        "Why Here?",
        "Export…",
    ]
    expected = [f"{verb} in lab_mlp" for verb in verbs]
    assert [label for label in expected if label not in labels] == []
    greys = menu.locator(".lm-Menu-item.lm-mod-disabled .lm-Menu-itemLabel").all_inner_texts()
    assert {f"{verb} in lab_mlp" for verb in ("Cancel", "Undo", "Redo", "Compare with Checkpoint…")} <= set(greys)
    page.screenshot(path=shots / "lab_menu_light.png")
    menu.locator(".lm-Menu-item", has_text="Checkpoint…").first.click()
    box = page.locator(".jp-Dialog input")
    box.fill("before")
    page.keyboard.press("Enter")
    page.wait_for_function("() => !document.querySelector('.jp-Dialog')")
    until(page, lambda: in_kernel(page, "print(session.checkpoints)") == "('before',)")
    in_kernel(page, f"session.gesture('resize {OP} to 2x2'); session.compile()")
    can(page, "tbuda:undo", "Undo: resize")
    assert in_kernel(page, "print(session.checkpoints)") == "('before',)"


def test_compare_undo_and_redo_from_the_palette(page: Any, shots: Path) -> None:
    page.evaluate("() => { window.jupyterapp.commands.execute('tbuda:diff') }")
    choice = page.locator(".jp-Dialog select")
    expect(choice.locator("option")).to_have_text(["before", "start", "previous"])
    choice.select_option("before")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    view = page.locator("[data-tb-tab=diff]")
    row = view.locator(f".tb-diff-list [data-tb-op='{OP}']").first
    row.wait_for()
    expect(view.locator("[data-tb-action=diff-a]")).to_have_value("before")
    expect(row).to_have_attribute("data-tb-change", re.compile("resized"))
    page.screenshot(path=shots / "lab_compare_light.png")
    close(page, "diff")
    command(page, "tbuda:undo")
    assert in_kernel(page, "print(session.overrides)") == "()"
    can(page, "tbuda:redo", "Redo: resize")
    command(page, "tbuda:redo")
    assert "op_size" in in_kernel(page, "print(session.to_python(), session.overrides)")


def test_a_key_binding_of_the_settings(page: Any) -> None:
    page.locator(".jp-NotebookPanel-toolbar").first.click()
    page.keyboard.press("Escape")
    before = in_kernel(page, "print(len(session.overrides))")
    cannot(page, "tbuda:redo")  # the redo of the last test has come to the list of sessions
    can(page, "tbuda:undo", "Undo: resize")
    page.keyboard.press("Alt+t")
    page.keyboard.press("z")
    can(page, "tbuda:redo", "Redo: resize")
    assert (before, in_kernel(page, "print(len(session.overrides))")) == ("1", "0")
    command(page, "tbuda:redo")
    cannot(page, "tbuda:redo")


def test_the_status_bar_and_the_sidebar_say_what_is(page: Any, shots: Path) -> None:
    cycles = in_kernel(page, 'print(f\'{bring_up.hub.frames["ops"].meta["time"]:,.0f}\')')
    page.wait_for_function(
        "said => document.querySelector('[data-tb-action=status-session]').textContent === said",
        arg=f"lab_mlp: {cycles} cycles/input",
    )
    page.locator("[data-tb-action=status-session]").click()
    row = page.locator("[data-tb-session-row=lab_mlp]")
    row.wait_for(state="visible")
    expect(row).to_contain_text(cycles)
    expect(row).to_contain_text("e300")
    expect(row.locator("[data-tb-checkpoint=before]")).to_have_count(1)
    in_kernel(page, f"session.gesture('resize {OP} to 1x1')")
    page.wait_for_selector("[data-tb-status] [data-tb-stale]")
    row.locator("[data-tb-stale]").wait_for()
    page.screenshot(path=shots / "lab_sidebar_light.png")
    can(page, "tbuda:undo", "Undo: resize")
    command(page, "tbuda:undo")
    page.wait_for_selector("[data-tb-status] [data-tb-stale]", state="detached")


def test_a_tab_is_a_view_that_edits(page: Any, shots: Path) -> None:
    row = page.locator(f"[data-tb-root=bringup] [data-tb-view=table] .tb-selected[data-tb-op='{OP}']")
    in_kernel(page, "bring_up.select()")  # an earlier test selected it
    expect(row).to_have_count(0)
    page.locator("[data-tb-session-row=lab_mlp] [data-tb-action=open-grid]").click()
    tab = page.locator("[data-tb-tab=grid]")
    tile = tab.locator(f".tb-tile[data-tb-op='{OP}']")
    tile.wait_for()
    box_of(tile)  # the new tab takes its place, and the grid its size
    tile.click()
    row.wait_for()
    until(page, lambda: in_kernel(page, "print(bring_up.selected)") == f"('{OP}',)")
    page.mouse.move(3, 3)
    settled(page)
    page.screenshot(path=shots / "lab_tab_light.png")


def test_any_view_opens_in_a_tab(page: Any) -> None:
    command(page, "docmanager:open", path="lab_sessions.ipynb")
    root = page.locator(".jp-Notebook [data-tb-root=bringup]")
    root.locator("[data-tb-action=tab-memory]").click()
    root.locator("[data-tb-action=open-tab]").click()
    page.locator(f"[data-tb-tab=memory] .tb-heat [data-tb-op='{OP}']").first.wait_for()
    close(page, "memory")
    page.evaluate("() => { window.jupyterapp.commands.execute('tbuda:open-view') }")
    choice = page.locator(".jp-Dialog select")
    choice.wait_for()
    choice.select_option("Passes")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.locator("[data-tb-tab=passes] [data-tb-action=pass]").first.wait_for()
    close(page, "passes")


def test_a_session_without_a_view_is_listed(page: Any) -> None:
    in_kernel(page, "quiet = Session(*perceptron(), 'n150', name='quiet'); quiet.compile()")
    row = page.locator("[data-tb-session-row=quiet]")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("n150")
    expect(row).to_contain_text("cycles/input")  # it is listed from its first moment, the cycles follow
    in_kernel(page, "del quiet; import gc; gc.collect()")
    until(page, lambda: int(page.locator("[data-tb-memory]").get_attribute("data-tb-memory")) > 1 << 20)


def test_the_settings_change_the_theme_and_the_device(page: Any, shots: Path) -> None:
    page.locator("[data-tb-action=default-device]").select_option("n150")
    until(
        page,
        lambda: page.evaluate(  # the server has it: that is when the page takes what is set
            """async () => {
          const { raw } = await window.jupyterapp.serviceManager.settings.fetch('@tbuda-lab/labextension:plugin');
          return /"device": *"n150"/.test(raw);
        }"""
        ),
    )
    command(page, "settingeditor:open", query="Tensix") if page.evaluate(
        "() => window.jupyterapp.commands.hasCommand('settingeditor:open')"
    ) else None
    settled(page)
    page.screenshot(path=shots / "lab_settings_light.png")
    command(page, "tbuda:new-session")
    page.wait_for_function(  # other notebooks may be called Untitled too
        """() => [...window.jupyterapp.shell.widgets('main')].some(w => w.context?.path.startsWith('Untitled')
          && JSON.stringify(w.context.model.toJSON().cells ?? '').includes('device=\\\\"n150'))"""
    )


def test_the_dark_theme(page: Any, shots: Path) -> None:
    command(page, "docmanager:open", path="lab_sessions.ipynb")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-tab=grid] [data-tb-root=grid][data-tb-theme=dark]", state="attached")
    settled(page)
    page.screenshot(path=shots / "lab_sidebar_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def test_a_reload_keeps_session_and_tabs(page: Any) -> None:
    command(page, "docmanager:save")
    before = in_kernel(page, "print(session.rev, session.to_python())")
    wait_for_saved_layout(page, "grid")
    page.reload(timeout=PATIENCE)
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored", timeout=PATIENCE)
    page.evaluate("() => window.jupyterapp.restored")
    page.wait_for_selector("[data-tb-status][data-tb-state=idle]", timeout=PATIENCE)
    page.wait_for_selector(f"[data-tb-tab=grid] .tb-tile[data-tb-op='{OP}']", state="attached", timeout=PATIENCE)
    command(page, "docmanager:open", path="lab_sessions.ipynb")
    page.wait_for_selector("[data-tb-root=bringup] .tb-tile", timeout=PATIENCE)
    assert in_kernel(page, "print(session.rev, session.to_python())") == before


def test_a_restart_replays_the_edits(page: Any) -> None:
    before = in_kernel(page, "print(session.to_python(), session.checkpoints)")
    assert "override_op_size" in before
    page.evaluate(
        """async () => {
          const main = [...window.jupyterapp.shell.widgets('main')];
          const panel = main.find(w => w.context?.path === 'lab_sessions.ipynb');
          await panel.context.sessionContext.session.kernel.restart();
        }"""
    )
    page.wait_for_function(  # a session of another test's kernel may come in its place
        "() => !(document.querySelector('[data-tb-status]:not([hidden])')?.textContent ?? '').includes('lab_mlp')"
    )
    page.locator("[data-tb-tab=grid] .tb-lab-note").wait_for(state="attached")
    command(page, "docmanager:open", path="lab_sessions.ipynb")
    run_all(page)
    # what was drawn before the restart still stands until the cell runs
    until(page, lambda: in_kernel(page, "print('bring_up' in globals())") == "True", PATIENCE)
    idle(page)
    assert in_kernel(page, "print(session.to_python(), session.checkpoints)") == before
    page.wait_for_selector(f"[data-tb-tab=grid] .tb-tile[data-tb-op='{OP}']", state="attached", timeout=PATIENCE)


def test_nothing_went_wrong(watched: Any) -> None:
    # JupyterLab's debugger says this when a kernel is restarted while it asks.
    assert [e for e in watched.errors if "debugger state" not in e] == []
    assert watched.outside == []
