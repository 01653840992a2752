"""A JupyterLab server with its own folders, and a page of headless Chromium in it.

The tests of this folder need Chromium and the built front end, and are slow.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kernels import Template

playwright_api = pytest.importorskip("playwright.sync_api")
expect = playwright_api.expect  # what a page shows comes a moment later: this asks until it is there
expect.set_options(timeout=60_000)

PATIENCE = int(os.environ.get("TBUDA_PATIENCE", "240000"))  # ms: a busy machine is no failure
ROOT = pathlib.Path(__file__).parents[2]
SHOTS = ROOT / "build" / "screenshots"
PACKAGE = ROOT / "tbuda_lab"
BUILT = (PACKAGE / "labextension/package.json").is_file() and (PACKAGE / "widgets/static/page.js").is_file()
CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, before any are left out by their marks."""
    unbuilt = pytest.mark.skipif(not BUILT, reason="the front end is not built: make front-end")
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            for mark in (pytest.mark.browser, pytest.mark.slow, unbuilt):
                item.add_marker(mark)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium found: install your distribution's package")
    with playwright_api.sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield instance
        instance.close()


class Lab:
    """A running JupyterLab (or the server of another `module`) whose files lie in `folder`. Its kernels are forks."""

    def __init__(self, folder: pathlib.Path, base: pathlib.Path, kernels: Template, module: str = "jupyterlab") -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        settings = base / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text(
            json.dumps({"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True})
        )
        self.own = base / "settings" / "@tbuda-lab" / "labextension" / "plugin.jupyterlab-settings"
        self.own.parent.mkdir(parents=True)
        self.open_workbenches_in("cell")
        env = os.environ | {
            "JUPYTER_CONFIG_DIR": str(base / "config"),
            "JUPYTER_DATA_DIR": str(base / "data"),
            "JUPYTER_RUNTIME_DIR": str(base / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(base / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(base / "workspaces"),
            "IPYTHONDIR": str(base / "ipython"),
            "PYTHONPATH": str(ROOT),
            "JUPYTER_NO_CONFIG": "1",
            "JUPYTER_PATH": os.pathsep.join(filter(None, (str(kernels.path), os.environ.get("JUPYTER_PATH")))),
        }
        self.log = (base / "server.log").open("w")
        arguments = [
            sys.executable,
            "-m",
            module,
            "--no-browser",
            "--ip=127.0.0.1",
            f"--ServerApp.root_dir={folder}",
            f"--IdentityProvider.token={self.token}",
            "--expose-app-in-browser",
            "--ServerApp.port_retries=0",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            arguments.append("--allow-root")
        for _ in range(3):  # a port that is free now may be taken a moment later
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.process = subprocess.Popen(
                [*arguments, f"--port={self.port}"], env=env, stdout=self.log, stderr=subprocess.STDOUT
            )
            if self._answers():
                return
        raise RuntimeError(f"JupyterLab ended at once; see {self.log.name}")

    def url(self, path: str = "lab") -> str:
        return f"http://127.0.0.1:{self.port}/{path}?token={self.token}"

    def _answers(self) -> bool:
        """Once it does; False if it ended instead."""
        until = time.monotonic() + PATIENCE / 1000
        while time.monotonic() < until:
            if self.process.poll() is not None:
                return False
            try:
                with urllib.request.urlopen(self.url("api/status"), timeout=2):
                    return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        self.stop()
        raise RuntimeError(f"JupyterLab did not answer within {PATIENCE / 1000:.0f} s; see {self.log.name}")

    def open_workbenches_in(self, place: str) -> None:
        """Set the extension's `place` for pages that load from now on; most tests want workbenches whole in cells."""
        self.own.write_text(json.dumps({"place": place}))

    def end_kernels(self) -> None:
        """Kernels outlive their pages: the next page would list their sessions beside its own."""
        sessions = []
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url("api/sessions"), timeout=60) as answer:
            sessions = json.load(answer)
        for session in sessions:
            address = self.url(f"api/sessions/{session['id']}")
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=60).close()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, kernels: Template) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("notebooks")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, folder)
    server = Lab(folder, tmp_path_factory.mktemp("jupyter"), kernels)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def lab_with_tabs(lab: Lab) -> Iterator[Lab]:
    """Workbenches open in a tab of their own, as they do for users."""
    lab.open_workbenches_in("tab")
    yield lab
    lab.open_workbenches_in("cell")


class Watched:
    """A page with the errors it met and the addresses it asked for outside the server."""

    def __init__(self, page: Any, home: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.outside: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: self._asked(request.url, home))

    def _said(self, message: Any) -> None:
        # JupyterLab asks for language servers whether or not their extension is there. And every ten seconds for the
        # kernels, of which jupyter_server cannot tell while one of them starts (`last_activity` is not set yet).
        where = message.location["url"]
        starting = "status of 500" in message.text and re.search(r"/api/kernels\?\d+$", where)
        if message.type == "error" and "/lsp/status" not in where and not starting:
            self.errors.append(f"{message.text} ({where})")

    def _asked(self, url: str, home: str) -> None:
        if not url.startswith((home, home.replace("http", "ws", 1), "data:", "blob:", "file:")):
            self.outside.append(url)


def errors_of(page: Any) -> list[str]:
    """What goes wrong in a page from now on: errors that nobody caught, and errors on its console."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    return errors


def wait_for_lab(page: Any) -> None:
    """Wait until JupyterLab has loaded and has opened what the workspace remembers."""
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
    page.evaluate("() => window.jupyterapp.restored.then(() => null)")


def wait_for_saved_layout(page: Any, view: str) -> None:
    """Wait until the workspace has the tab of a view: a layout is saved a moment after it changed. Not by
    `wait_for_function`, which takes a promise for a true value."""
    until(
        page,
        lambda: page.evaluate(
            """async view => {
          const { workspaces } = window.jupyterapp.serviceManager;
          const { data } = await workspaces.fetch(window.location.pathname.split('/workspaces/')[1].split('/')[0]);
          const tab = Object.keys(data).find(key => key.startsWith('tbuda-tabs:') && key.endsWith(`-${view}`));
          return tab !== undefined && JSON.stringify(data['layout-restorer:data'] ?? '').includes(tab);
        }""",
            view,
        ),
    )


@contextlib.contextmanager
def lab_page(browser: Any, lab: Lab, size: tuple[int, int]) -> Iterator[Watched]:
    """A page with JupyterLab loaded and its left side folded away. Its kernels end with it."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)  # JupyterLab itself starts slowly on a busy machine
    watched = Watched(page, f"http://127.0.0.1:{lab.port}/")
    page.goto(lab.url(f"lab/workspaces/{secrets.token_hex(4)}"))  # a new one, with nothing open
    page.wait_for_selector("#jp-main-dock-panel")
    wait_for_lab(page)
    # A new workspace gets its file browser and its launcher a moment later: in front of what was opened meanwhile.
    page.locator("#filebrowser").wait_for()
    page.locator(".jp-Launcher").first.wait_for()
    command(page, "application:toggle-left-area")
    expect(page.locator("#filebrowser")).to_be_hidden()
    yield watched
    context.close()
    lab.end_kernels()


@pytest.fixture(scope="module")
def watched(browser: Any, lab: Lab) -> Iterator[Watched]:
    with lab_page(browser, lab, (1600, 1360)) as watched:
        watched.page.set_default_timeout(60_000)
        yield watched


def notebook(*cells: str) -> str:
    """A notebook of code cells, as a file."""
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    result = [
        {"id": f"c{i}", "cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": cell}
        for i, cell in enumerate(cells)
    ]
    return json.dumps({"cells": result, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5})


def open_and_run(watched: Watched, lab: Lab, name: str, *cells: str) -> Any:
    """Write a notebook `name.ipynb`, open it and run its cells; returns the page at once. It has `watched`."""
    (lab.folder / f"{name}.ipynb").write_text(notebook(*cells))
    page = watched.page
    page.watched = watched
    page.evaluate(
        "path => window.jupyterapp.commands.execute('docmanager:open', { path }).then(() => null)", f"{name}.ipynb"
    )
    run_all(page)
    return page


def run_all(page: Any) -> None:
    """Run all cells of the notebook in front, once its kernel is there; returns at once."""
    page.locator(".jp-Notebook .jp-CodeCell").locator("visible=true").first.wait_for()  # others stand behind it
    page.wait_for_function(
        """() => {
          const session = window.jupyterapp.shell.currentWidget?.context?.sessionContext;
          return session?.session?.kernel?.status === 'idle';
        }"""
    )
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")


def all_ran(page: Any) -> None:
    """Wait until every cell of the notebook in front has run."""
    page.wait_for_function(
        """() => {
          const cells = [...(window.jupyterapp.shell.currentWidget?.content?.model?.cells ?? [])];
          const code = cells.filter(c => c.type === 'code' && c.sharedModel.getSource().trim());
          return code.length && code.every(c => c.executionCount !== null && c.executionState === 'idle');
        }""",
        timeout=PATIENCE,
    )


def command(page: Any, name: str, **arguments: Any) -> None:
    """Run a JupyterLab command to its end. A theme is there once the picture that covers the change is gone."""
    page.evaluate("([c, a]) => window.jupyterapp.commands.execute(c, a).then(() => null)", [name, arguments])
    if name == "apputils:change-theme":
        page.wait_for_function(
            "t => document.body.dataset.jpThemeName === t && !document.querySelector('#jupyterlab-splash')",
            arg=arguments["theme"],
        )


def in_kernel(page: Any, code: str, path: str = "") -> str:
    """Run code beside the cells of the notebook in front, or of an open one at `path`; returns what it printed, without
    blanks around it. An error there is an error here."""
    return str(
        page.evaluate(
            """async ([code, path]) => {
          const { shell } = window.jupyterapp;
          const panel = path ? [...shell.widgets('main')].find(w => w.context?.path === path) : shell.currentWidget;
          let [text, failed] = ['', ''];
          const kernel = panel.context.sessionContext.session.kernel;
          const future = kernel.requestExecute({ code, store_history: false });
          future.onIOPub = m => {
            if (m.header.msg_type === 'stream') text += m.content.text;
            if (m.header.msg_type === 'error') failed = m.content.traceback.join('\\n');
          };
          await future.done;
          if (failed) throw new Error(failed);
          return text.trim();
        }""",
            [code, path],
        )
    )


def serve(page: Any, site: str, answers: dict[str, tuple[str, bytes]]) -> None:
    """Answer what a page asks of `site` by the last part of the address: content type and body."""

    def answer(route: Any) -> None:
        kind, body = answers[route.request.url.rsplit("/", 1)[-1]]
        route.fulfill(body=body, content_type=kind)

    page.route(f"{site}/**", answer)


def until(page: Any, true: Callable[[], bool], patience: int = 60_000) -> None:
    """Wait for what the kernel hears of the page a moment later. patience: ms."""
    for _ in range(patience // 100):
        if true():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it never came true")


REST = """async e => {
  const pause = ms => new Promise(done => setTimeout(done, ms));
  const frame = () => Promise.race([new Promise(requestAnimationFrame), pause(1000)]); // none in a page out of sight
  await frame();
  await frame();
  await pause(e.closest('[data-tb-view=graph]') ? 200 : 50);
}"""
"""What was to be drawn is drawn; buttons over the graph follow 150 ms after its picture."""


AT_REST = """() => {
  if (Number(document.documentElement.dataset.tbRedraws ?? 0)) return false; // views draw twice for a new theme
  const finite = a => a.effect?.getComputedTiming().endTime !== Infinity;
  return !document.getAnimations().some(a => a.playState === 'running' && finite(a));
}"""


def settled(page: Any) -> None:
    """Until views have followed a change of the theme, no transition runs, and what was to be drawn is drawn."""
    page.wait_for_function(AT_REST)
    page.locator("body").evaluate(REST)
    page.wait_for_function(AT_REST)


def box_of(locator: Any) -> dict[str, float]:
    """Where an element is once it is drawn and has stood still: it may be drawn anew at any time."""
    seen: list[Any] = [None]
    for _ in range(300):
        locator.evaluate(REST)
        locator.wait_for()
        seen = [*seen[-2:], locator.bounding_box()]
        if seen[-1] is not None and seen == [seen[-1]] * 3:
            return dict(seen[-1])
    raise AssertionError(f"{locator} does not come to rest")


def centre(locator: Any) -> tuple[float, float]:
    box = box_of(locator)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.fixture(scope="session")
def shots() -> pathlib.Path:
    SHOTS.mkdir(parents=True, exist_ok=True)
    return SHOTS


def over_the_cores(page: Any, action: str) -> Any:
    """The control of what is drawn over the cores; a narrow grid has them behind a button."""
    control = page.locator(f"[data-tb-action={action}]")
    if not control.is_visible():
        page.locator("[data-tb-action=grid-more]").click()
    return control
