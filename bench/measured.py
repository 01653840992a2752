"""Measured runs: reading one of many ops, laying it out, and showing it in Chromium.

    python bench/measured.py [--ops 5000] [--rounds 5] [--theme dark]

Needs the built front end and Chromium. A run of `--ops` products is written, read, made a frame; then a page is given
that frame, and the time is from there until its rows and its roofline are painted (two frames of the browser later).
The bar: from the file to the screen in 1 s for 5,000 ops.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np
from playwright.sync_api import sync_playwright

from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.measured import read_profile
from tbuda_lab.widgets.views.files import FileHub
from tests.browser.bare import Bare
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.measured.files import op, table

WATCH = """() => { window.painted = new Promise(done => {
  const is = selector => document.querySelector(selector) !== null;
  const next = requestAnimationFrame;
  const end = () => next(() => next(() => done(performance.now())));
  const ask = () => (is('[data-tb-view=measured] tbody tr') && is('.tb-roof svg') ? end() : next(ask));
  const deliver = window.deliver;
  window.deliver = messages => { window.begin ??= performance.now(); ask(); deliver(messages); };
}) }"""


def painted(browser: Any, path: Path, theme: str) -> tuple[float, float, float]:
    """Seconds of reading, of the frame, and of the page until it is painted."""
    begin = time.perf_counter()
    profile = read_profile(path)
    read = time.perf_counter()
    frame = measured_frame(profile)
    made = time.perf_counter()
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=theme, offline=True)
    page = context.new_page()
    bare = Bare(page, FileHub([frame]), "measured", {"height": 860})
    page.evaluate(WATCH)
    bare.sees("[data-tb-view=measured] tbody tr")
    shown = page.evaluate("() => window.painted.then(at => at - window.begin)") / 1000
    context.close()
    return read - begin, made - read, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    sizes = 32 * rng.integers(1, 64, (asked.ops, 3))
    rows = [op("Matmul", 2000 + int(m * k * n / 4000), [(m, k), (k, n)], (m, n)) for m, k, n in sizes.tolist()]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "ops_perf_results.csv"
        path.write_text(table(rows))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        times = [painted(browser, path, asked.theme) for _ in range(asked.rounds)]
        browser.close()
    print(f"{machine.describe()}; load {os.getloadavg()[0]:.1f}\n")
    for name, seconds in zip(("read", "frame", "painted"), zip(*times, strict=True), strict=True):
        print(f"{name:8} {min(seconds):.3f} to {max(seconds):.3f} s, median {np.median(seconds):.3f}")
    totals = [sum(t) for t in times]
    print(f"{asked.ops:,} ops from the file to the screen: {min(totals):.2f} to {max(totals):.2f} s")


if __name__ == "__main__":
    main()
