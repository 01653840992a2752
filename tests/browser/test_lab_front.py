"""Two notebooks and three sessions: commands reach the session in front alone; stored pictures without a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, all_ran, command, expect, in_kernel, notebook, run_all, until

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
        notebook(MAKE, "b = made('second'); EpochGrid(b)", "c = made('third'); EpochGrid(c)")
    )
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
            }""",
            arg=views,
        )
    yield page


def label(page: Any, expected: str) -> None:
    page.wait_for_function("l => window.jupyterapp.commands.label('tbuda:undo').endsWith(l)", arg=expected)
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


SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
PICTURES = """() => {
  const { content, node } = window.jupyterapp.shell.currentWidget;
  const seen = e => e.complete && e.naturalWidth > 100 && e.alt;
  const outputs = [...node.querySelectorAll('.jp-RenderedHTML .tb-twin')];
  return {
    trusted: [...content.model.cells].some(c => c.type === 'code' && c.trusted),
    kernel: window.jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel?.status ?? '',
    broken: [...node.querySelectorAll('.jp-OutputArea-output')].filter(
      e => /model not found|Loading widget|Error displaying/.test(e.textContent)).length,
    outputs: outputs.map(o => [[...o.querySelectorAll('img')].filter(seen).length, o.querySelectorAll('tr').length,
                               o.closest('.jp-OutputArea-output').getBoundingClientRect().height > 20]),
  };
}"""


def twins_of(path: Path) -> list[tuple[int, int]]:
    """Pictures and rows of tables of every view that a notebook keeps, as its file has them."""
    outputs = (o for c in json.loads(path.read_text())["cells"] for o in c.get("outputs", []))
    texts = ("".join(o.get("data", {}).get("text/html", "")) for o in outputs)
    views = (text for text in texts if text.startswith("<div class='tb-twin'>"))
    return [(text.count("<img "), text.count("<tr>") + text.count("<tr ")) for text in views]


def close_front(page: Any) -> None:
    """Close the notebook in front without saving it, and wait until it is gone."""
    path = page.evaluate("""() => {
      const book = window.jupyterapp.shell.currentWidget;
      book.context.model.dirty = false; // it asks nothing
      book.close();
      return book.context.path;
    }""")
    page.wait_for_function(
        "p => ![...window.jupyterapp.shell.widgets('main')].some(w => w.context?.path === p)", arg=path
    )


def shows_all(page: Any, expected: list[tuple[int, int]]) -> dict[str, Any]:
    """Until every view of the notebook in front is its picture, and nothing else."""
    shown: dict[str, Any] = {}

    def all_there() -> bool:
        shown.update(page.evaluate(PICTURES))
        return [(images, rows) for images, rows, _ in shown["outputs"]] == expected

    try:
        until(page, all_there)
    except AssertionError:
        raise AssertionError(f"{shown} instead of {expected}") from None
    assert all(drawn for *_, drawn in shown["outputs"]) and shown["broken"] == 0
    return shown


KERNEL_NAMED = (
    "() => 'version' in (window.jupyterapp.shell.currentWidget.context.model.getMetadata('language_info') ?? {})"
)
DIRTY = "() => new Promise(done => setTimeout(() => done(window.jupyterapp.shell.currentWidget.context.model.dirty)))"


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_notebook_shows_pictures_without_being_run(page: Any, lab: Any, shots: Path, name: str) -> None:
    """In a new profile, where it is not trusted; after it was saved and opened again; and without a kernel."""
    path = lab.folder / f"shipped_{name}.ipynb"
    path.write_text((Path(__file__).parents[2] / f"notebooks/{name}.ipynb").read_text())
    expected = twins_of(path)
    assert expected and all(sum(one) for one in expected), "every view that is shipped has a picture"
    command(page, "docmanager:open", path=path.name)
    in_front = "p => window.jupyterapp.shell.currentWidget?.context?.path === p"
    page.wait_for_function(in_front, arg=path.name)
    assert not shows_all(page, expected)["trusted"]
    page.wait_for_function(KERNEL_NAMED)
    assert not page.evaluate(DIRTY), "opening a tutorial does not change it"
    page.screenshot(path=shots / f"shipped_{name}.png")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.model.setMetadata('note', 'mine')")
    assert page.evaluate(DIRTY), "a change of hers is one"
    command(page, "docmanager:save")
    close_front(page)
    assert twins_of(path) == expected
    command(page, "docmanager:open", path=path.name)
    page.wait_for_function(in_front, arg=path.name)
    shows_all(page, expected)
    page.evaluate(
        """async () => {
          const { sessionContext } = window.jupyterapp.shell.currentWidget.context;
          await sessionContext.ready; // what has not begun cannot be ended
          await sessionContext.shutdown();
        }"""
    )
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel")
    assert shows_all(page, expected)["kernel"] == ""
    if name == SHIPPED[0]:
        command(page, "apputils:change-theme", theme="JupyterLab Dark")
        shows_all(page, expected)
        page.screenshot(path=shots / f"shipped_{name}_dark.png")
        command(page, "apputils:change-theme", theme="JupyterLab Light")
    close_front(page)


def test_a_stored_view_is_its_last_picture_when_the_kernel_is_gone(page: Any, lab: Any, shots: Path) -> None:
    command(page, "docmanager:open", path="one.ipynb")
    panel = page.locator(".jp-NotebookPanel:visible")
    renewed = (
        "Number(document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) [data-tb-renewed]')"
        "?.dataset.tbRenewed ?? 0)"
    )
    before = page.evaluate(renewed)
    in_kernel(
        page,
        "a.attempt(ResizeOp(op := next(iter(a.result.placement.ops)), a.legal(op).legal[-1])); print(1)",
        "one.ipynb",
    )
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
          .some(i => i.offsetParent && i.naturalWidth > 100)"""
    )
    page.screenshot(path=shots / "stored_light.png")
