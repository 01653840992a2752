"""The page to send: how large, and how soon its first picture stands, from a file in Chromium in both themes.

    python bench/share_browser.py [MODEL.py:FUNCTION] [--edits 50] [--seconds 30] [--rounds 3] [--page share.html]

Without a model BERT-base. Needs the built front end and Chromium. A picture stands when graph and grid are drawn and
two more frames were painted; beside it what the page's own tasks took.
Bars: 3 MB, 2 s, no request.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
from playwright.sync_api import sync_playwright

from tbuda_lab.cli import main as tbuda
from tests.browser.conftest import CHROMIUM, FLAGS

BERT = "from bench.models import make\n\n\ndef bert():\n    return make('bert')\n"
PICTURE = """() => new Promise(done => {
  const next = requestAnimationFrame;
  const is = selector => document.querySelector(selector) !== null;
  const end = () => next(() => next(() => done(performance.now())));
  const ask = () => (is('[data-tb-view=grid] .tb-tile') && is('[data-tb-view=graph] [data-tb-op]') ? end() : next(ask));
  ask();
})"""


def opened(browser: Any, page_file: Path, theme: str) -> tuple[float, float, list[str]]:
    """Seconds from the navigation to the picture, those of the page's tasks, and what was asked for."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000}, color_scheme=theme, offline=True)
    page, asked = context.new_page(), list[str]()
    page.set_default_timeout(120_000)
    page.on("request", lambda request: asked.append(request.url))
    meter = context.new_cdp_session(page)
    meter.send("Performance.enable")
    page.goto(page_file.as_uri(), wait_until="commit")
    shown = page.evaluate(PICTURE) / 1000
    metrics = {m["name"]: m["value"] for m in meter.send("Performance.getMetrics")["metrics"]}
    context.close()
    return shown, metrics["TaskDuration"], [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--edits", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", type=Path, help="where the page is kept; one that is there is not made anew")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "bert.py").write_text(BERT)
        page_file = (asked.page or folder / "share.html").resolve()
        begin = time.process_time()
        if not page_file.exists():
            model = asked.model or f"{folder / 'bert.py'}:bert"
            search = ["--edits", str(asked.edits), "--seconds", str(asked.seconds)]
            tbuda(["share", model, "--device", "n150", "--out", str(page_file), *search])
        print(f"{machine.describe()}; load {os.getloadavg()[0]:.1f}\n")
        print(f"{page_file.stat().st_size / 1e6:.2f} MB, made in {time.process_time() - begin:.0f} CPU s")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for theme in ("light", "dark"):
            rounds = [opened(browser, page_file, theme) for _ in range(asked.rounds)]
            shown, tasks = ([r[k] for r in rounds] for k in (0, 1))
            print(
                f"{theme:5} first picture {min(shown):.2f} to {max(shown):.2f} s, of that tasks {min(tasks):.2f} to "
                f"{max(tasks):.2f}; requests: {sum(len(r[2]) for r in rounds)}"
            )
        browser.close()


if __name__ == "__main__":
    main()
