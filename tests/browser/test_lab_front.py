"""Two notebooks and three sessions: commands reach the session in front alone; stored pictures without a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, all_ran, command, expect, in_kernel, notebook, run_all

BUILT = (Path(__file__).parents[2] / "tbuda_lab/labextension/package.json").is_file()

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not BUILT, reason="the front end is not built: make front-end"),
]

MAKE = """\
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import BringUp, EpochGrid
from tests.session.models import perceptron

def made(name):
    model, inputs = perceptron()
    session = Session(model, inputs, "e300", name=name)
    session.compile()
    op = next(o for o in session.result.placement.ops if len(session.legal(o).legal) > 1)
    session.attempt(ResizeOp(op, session.legal(op).legal[0]))
    return session
"""
UNDOS = "print(*(len(s.history) for s in ({})))"


@pytest.fixture(scope="module")
def page(watched: Any, lab: Any) -> Iterator[Any]:
    (lab.folder / "one.ipynb").write_text(notebook(MAKE, "a = made('first'); EpochGrid(a)"))
    (lab.folder / "two.ipynb").write_text(
        notebook(MAKE, "b = made('second'); EpochGrid(b)", "c = made('third'); EpochGrid(c)"))
    (lab.folder / "plain.txt").write_text("no view here")
    page = watched.page
    page.set_default_timeout(PATIENCE // 4)
    for name, views in (("one.ipynb", 1), ("two.ipynb", 2)):
        command(page, "docmanager:open", path=name)
        run_all(page)
        all_ran(page)
        page.wait_for_function(
            """n => {
              const { node } = window.jupyterapp.shell.currentWidget;
              return node.querySelectorAll('[data-tb-root][data-tb-session]').length === n;
            }""", arg=views)
    yield page


def label(page: Any, wanted: str) -> None:
    page.wait_for_function("l => window.jupyterapp.commands.label('tbuda:undo').endsWith(l)", arg=wanted)
    page.wait_for_function("window.jupyterapp.commands.isEnabled('tbuda:undo')")


def counts(page: Any, book: str, names: str) -> list[int]:
    return [int(n) for n in in_kernel(page, UNDOS.format(names), book).split()]


def test_a_command_reaches_the_session_in_front_and_names_it(page: Any, shots: Path) -> None:
    # two sessions in front and none touched: a command cannot know which is meant
    page.wait_for_function("!window.jupyterapp.commands.isEnabled('tbuda:undo')")
    command(page, "docmanager:open", path="one.ipynb")
    label(page, ", in first")
    command(page, "docmanager:open", path="two.ipynb")
    page.locator("[data-tb-root=grid]:visible").last.locator("h3").first.click()
    label(page, ", in third")
    command(page, "tbuda:undo")
    page.wait_for_function("!window.jupyterapp.commands.isEnabled('tbuda:undo')")
    assert counts(page, "two.ipynb", "b, c") == [1, 0] and counts(page, "one.ipynb", "a,") == [1]
    command(page, "docmanager:open", path="plain.txt")
    page.wait_for_function("!window.jupyterapp.commands.isEnabled('tbuda:compile')")
    expect(page.locator("[data-tb-status]")).to_be_hidden()
    command(page, "docmanager:open", path="one.ipynb")
    label(page, ", in first")
    page.screenshot(path=shots / "front_light.png")
    command(page, "tbuda:undo")
    page.wait_for_function("!window.jupyterapp.commands.isEnabled('tbuda:undo')")
    assert counts(page, "two.ipynb", "b, c") == [1, 0] and counts(page, "one.ipynb", "a,") == [0]


def test_times_on_the_screen_are_one_number(page: Any) -> None:
    message = in_kernel(page, "print(f'{a.time().per_input:,.0f} {a.time().epochs[0].bound}')", "one.ipynb")
    number, bound = message.split()[0], " ".join(message.split()[1:])
    front = page.locator(".jp-NotebookPanel:visible")
    expect(front.locator("[data-tb-epoch-time]")).to_contain_text(number)
    expect(front.locator("[data-tb-bound]")).to_have_attribute("data-tb-bound", bound)
    expect(page.locator("[data-tb-action=status-session]")).to_have_text(f"first: {number} cycles/input")


def test_a_shipped_notebook_shows_pictures_though_it_is_not_trusted(page: Any, lab: Any, shots: Path) -> None:
    source = Path(__file__).parents[2] / "notebooks/01_bring_up.ipynb"
    stored = json.loads(source.read_text())
    (lab.folder / "shipped.ipynb").write_text(json.dumps(stored))
    for theme in ("light", "dark"):
        command(page, "apputils:change-theme", theme=f"JupyterLab {theme.title()}")
        command(page, "docmanager:open", path="shipped.ipynb")
        page.wait_for_function("""() => {
          const images = [...window.jupyterapp.shell.currentWidget.node.querySelectorAll('.jp-RenderedHTML img')];
          return images.length > 0 && images.some(i => i.complete && i.naturalWidth > 100 && i.alt);
        }""")
        page.screenshot(path=shots / f"shipped_{theme}.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def test_a_stored_view_is_its_last_picture_when_the_kernel_is_gone(page: Any, lab: Any, shots: Path) -> None:
    command(page, "docmanager:open", path="one.ipynb")
    panel = page.locator(".jp-NotebookPanel:visible")
    renewed = ("Number(document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) [data-tb-renewed]')"
               "?.dataset.tbRenewed ?? 0)")
    before = page.evaluate(renewed)
    in_kernel(page, "a.attempt(ResizeOp(op := next(iter(a.result.placement.ops)), a.legal(op).legal[-1])); print(1)",
              "one.ipynb")
    page.wait_for_function(f"n => {renewed} > n", arg=before)
    command(page, "docmanager:save")
    stored = json.loads((lab.folder / "one.ipynb").read_text())
    html = "".join(stored["cells"][1]["outputs"][0]["data"]["text/html"])
    assert html.startswith("<div class='tb-twin'>") and "data:image/svg+xml" in html
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel()")
    expect(panel.locator("[data-tb-lost]")).to_contain_text("Kernel restarted: run the cell again")
    assert panel.locator("[data-tb-root=grid]").first.evaluate("e => e.inert")
    page.screenshot(path=shots / "restarted_light.png")
    (lab.folder / "later.ipynb").write_text(json.dumps(stored))  # opened with a kernel that knows nothing of its views
    command(page, "docmanager:open", path="later.ipynb")
    page.wait_for_function(
        """() => [...document.querySelectorAll('[data-tb-stored] img')]
          .some(i => i.offsetParent && i.naturalWidth > 100)""")
    page.screenshot(path=shots / "stored_light.png")
