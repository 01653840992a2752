"""The page to send: how large, and how soon its first picture stands, from a file in Chromium in both themes.

    python bench/share_browser.py [MODEL.py:FUNCTION] [--edits 50] [--seconds 30] [--rounds 3] [--page share.html]
                                  [--policy Ribbon] [--shots FOLDER]

Without a model BERT-base, placed by a policy that leaves edits which gain (of the default one's placement none does).
Needs the built front end and Chromium. A picture stands when graph and grid are drawn and two more frames were painted;
beside it what the page's own tasks took. Then the corner of the largest op is dragged inwards by mouse until the page
says that the shape below it is legal: the op's tile has to be of another shape.
Bars: 3 MB, 2 s, no request.
"""

from __future__ import annotations

import argparse
import json
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


TILES = """() => [...document.querySelectorAll('[data-tb-view=grid] .tb-tile')].map(e => {
  const box = e.getBoundingClientRect();
  return [e.dataset.tbOp, box.width * box.height];
}).sort((a, b) => b[1] - a[1]).map(pair => pair[0])"""
STEPS = 6


def dragged(browser: Any, page_file: Path, theme: str, shots: Path | None) -> tuple[str, list[str]]:
    """What a drag of the largest op gave, and what the page asked for. Exits where no drag gave another shape."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000}, color_scheme=theme, offline=True)
    page, asked = context.new_page(), list[str]()
    page.set_default_timeout(120_000)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_selector("[data-tb-ready=true]")
    page.wait_for_selector("[data-tb-view=grid] .tb-tile")
    if shots is not None:
        page.screenshot(path=shots / f"share_{theme}.png")
    for op in page.evaluate(TILES)[:10]:
        said = _dragged(page, op)
        if said:
            if shots is not None:
                page.screenshot(path=shots / f"share_{theme}_dragged.png")
            context.close()
            return said, outside(asked)
    raise SystemExit(f"{theme}: no drag of ten ops gave another shape")


def _dragged(page: Any, op: str) -> str:
    """Of one op, by mouse: shape before and after, and what the page says of it; "" where no step inwards is legal."""
    tile = page.locator(f"[data-tb-view=grid] .tb-tile[data-tb-op={json.dumps(op)}]").first
    tile.scroll_into_view_if_needed()
    before, box = tile.get_attribute("aria-label"), tile.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    handle = page.locator(f"[data-tb-handles-of={json.dumps(op)}] [data-tb-handle=se]").bounding_box()
    x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, STEPS):
        part = step / STEPS
        page.mouse.move(x - box["width"] * part, y - box["height"] * part, steps=4)
        page.wait_for_timeout(200)
        tag = page.locator("[data-tb-view=grid] .tb-tag:not([hidden])[data-tb-verdict=LEGAL] b")
        if tag.count() == 0 or "→" not in tag.first.inner_text():
            continue  # not legal, or the shape that it has
        page.mouse.up()
        page.wait_for_selector("[data-tb-view=grid] [data-tb-answer=done]")
        after = tile.get_attribute("aria-label")
        return f"{before!r} to {after!r}" if after != before else ""
    page.keyboard.press("Escape")
    page.mouse.up()
    return ""


def outside(urls: list[str]) -> list[str]:
    """Of what a page asked for, what is not in it."""
    return [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]


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
    return shown, metrics["TaskDuration"], outside(asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--edits", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--policy", default="Ribbon", help="how it is placed: Ribbon (default), Optimal, ...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", type=Path, help="where the page is kept; one that is there is not made anew")
    parser.add_argument("--shots", type=Path, help="where pictures of the page before and after the drag are kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "bert.py").write_text(BERT)
        page_file = (asked.page or folder / "share.html").resolve()
        begin = time.process_time()
        if not page_file.exists():
            model = asked.model or f"{folder / 'bert.py'}:bert"
            search = ["--edits", str(asked.edits), "--seconds", str(asked.seconds)]
            tbuda(["share", model, "--device", "n150", "--policy", asked.policy, "--out", str(page_file), *search])
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
            said, urls = dragged(browser, page_file, theme, asked.shots)
            print(f"{theme:5} drag: {said}; requests: {len(urls)}")
        browser.close()


if __name__ == "__main__":
    main()
