"""Edits at 1,000 ops in JupyterLab and Chromium: from letting go of the mouse to the new placement painted, and undo.

    nice -n -15 python bench/edits_browser.py [--layers 36] [--width 1024] [--drags 40] [--pace quick|rest|both]

36 encoder layers of BERT-large, 1,045 ops, in a notebook with the workbench. Ops spread over early and late epochs are
dragged by the mouse to a legal shape, let go, seen, and undone with Ctrl+Z. "quick" lets go at once; "rest" waits for
the exact answer, as somebody does who reads the tag. Times are of the page's clock: from the press or release, as the
browser dates it, to the end of the frame in which the grid shows the other shape (the animation frame that finds it
drawn, and the one after that). The parts: out (event to the websocket), way (to the kernel's desk), kernel (to the
frame "ops" being posted), back (to its message in the page), decode (to the grid's elements), paint (to the end of the
frame). "rest of it" is from there until nothing is under way any more: the other frames, tables, graph.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import tempfile
from typing import Any

import machine
import numpy as np
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS, Lab, box_of, in_kernel, notebook, run_all

GRID = "[data-tb-view=grid]"
PARTS = ("out", "way", "kernel", "back", "decode", "paint", "all", "rest of it")

CELL = """
import json, sys, time
sys.path.insert(0, {bench!r})
from session import bert_large
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp
from tbuda_lab.widgets.handlers.edit_controller import EditController
from tbuda_lab.widgets.views.workbench import View
model, inputs = bert_large({layers}, width={width})
session = Session(model, inputs, "wormhole_b0", name="encoder")
session.compile()
marks = []
def marked(of, name, label):
    plain = getattr(of, name)
    def f(self, first, second):
        marks.append([label(first, second), time.time() * 1000])
        return plain(self, first, second)
    setattr(of, name, f)
marked(EditController, "receive", lambda view, content: "got " + str(content.get("type")))
marked(View, "post", lambda message, buffers: str(message.get("type")) + " " + str(message.get("key", "")))
bring_up = BringUp(session, start=False)
bring_up
"""

PLAN = """
def plan(count, seed):
    import random
    rng, found = random.Random(seed), []
    epochs = len(session.result.placement.epochs)
    ops = list(session.result.placement.ops.items())
    while len(found) < count:
        low = (len(found) % 8) * epochs // 8  # early, ..., late, early, ...
        name, place = rng.choice([(n, p) for n, p in ops if low <= p.epoch < max(low + 1, low + epochs // 8)])
        table = session.legal(name)
        rows, cols = table.grid
        top, left = place.start
        room = session.device.rows - top, session.device.cols - left
        sizes = [s for s in table.legal if s != table.grid and (s[0] == rows or s[1] == cols)]
        sizes = [s for s in sizes if s[0] <= room[0] and s[1] <= room[1]]
        if sizes and not place.transposed:
            found.append([name, place.epoch, [rows, cols], list(rng.choice(sizes))])
    return found
print(json.dumps(plan({count}, {seed})))
"""

WATCH = """
(() => {
  const log = (window.tbLog = []);
  const note = (what, at = performance.now(), data = null) => log.push({ what, at: performance.timeOrigin + at, data });
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    note('sent', performance.now(), data);
    return send.call(this, data);
  };
  const Plain = WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...a) {
      super(...a);
      this.addEventListener('message', event => note('came', performance.now(), event.data));
    }
  };
  for (const type of ['pointerup', 'keydown']) {
    window.addEventListener(type, event => note(type, event.timeStamp), true);
  }
  /* the size of an op as the grid shows it: rows and columns of its label */
  window.tbShown = op => {
    const tile = document.querySelector(`[data-tb-view=grid] .tb-tile[data-tb-op='${op}']`);
    return tile ? tile.getAttribute('aria-label') : '';
  };
  window.tbUntil = (op, before) => new Promise(done => {
    let drawn = 0;
    const grid = document.querySelector('[data-tb-view=grid] .tb-plane');
    const other = () => { const now = window.tbShown(op); return now && now !== before; };
    const observer = new MutationObserver(() => {
      if (!drawn && other()) { drawn = performance.now(); observer.disconnect(); }
    });
    observer.observe(grid, { childList: true });
    const lines = () => [...document.querySelectorAll('[data-tb-view=grid] [data-tb-answer=refused]')];
    const refused = () => lines().some(e => e.offsetParent);
    const step = () => {
      if (!drawn && refused()) return done(null);
      if (!drawn) return requestAnimationFrame(step);
      const { timeOrigin } = performance;
      requestAnimationFrame(() => done({ drawn: timeOrigin + drawn, painted: timeOrigin + performance.now() }));
    };
    requestAnimationFrame(step);
  });
  const text = data => typeof data === 'string' ? data : new TextDecoder('latin1').decode(new Uint8Array(data));
  const holds = (data, parts) => data !== null && parts.every(p => text(data).includes(p));
  window.tbFound = (what, parts) => log.filter(e => e.what === what && holds(e.data, parts)).map(e => e.at);
  window.tbLast = what => log.filter(e => e.what === what).at(-1)?.at ?? 0;
  window.tbClear = () => { log.length = 0; };
})();
"""


class Bench:
    def __init__(self, page: Any, lab: Lab) -> None:
        self.page, self.lab = page, lab
        self.samples: dict[str, list[dict[str, float]]] = {}

    def kernel(self, code: str) -> str:
        return in_kernel(self.page, code)

    def open(self, cell: str) -> None:
        page = self.page
        page.add_init_script(WATCH)
        (self.lab.folder / "bench.ipynb").write_text(notebook(cell))
        page.goto(self.lab.url("lab/workspaces/bench"))
        page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored")
        page.evaluate("() => window.jupyterapp.restored")
        page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area').then(() => null)")
        page.evaluate(
            "() => window.jupyterapp.commands.execute('docmanager:open', { path: 'bench.ipynb' }).then(() => null)"
        )
        run_all(page)
        page.wait_for_selector(f"{GRID} .tb-tile, .jp-OutputArea-output[data-mime-type*=error]", timeout=400_000)
        page.locator("[data-tb-view=metrics]").scroll_into_view_if_needed()

    def settled(self) -> float:
        """Wait until the kernel is done and 300 ms went by without a message; returns when the last came."""
        self.page.wait_for_function('() => !document.querySelector("[data-tb-view=grid] [data-tb-stale=working]")')
        self.page.wait_for_function(
            "() => performance.timeOrigin + performance.now() - window.tbLast('came') > 300", polling=100
        )
        return float(self.page.evaluate("() => window.tbLast('came')"))

    def drag(self, op: str, now: list[int], to: list[int], rest: bool) -> bool:
        """Hover, press the handle of the side that changes, go to the size. False where the tag says something else:
        then all is as before."""
        page = self.page
        tile = page.locator(f"{GRID} .tb-tile[data-tb-op='{op}']")
        body = box_of(tile.locator(".tb-body"))
        page.mouse.move(body["x"] + body["width"] / 2, body["y"] + body["height"] / 2)
        side = "e" if to[0] == now[0] else "s"
        handle = box_of(page.locator(f"{GRID} [data-tb-handles-of='{op}'] [data-tb-handle={side}]"))
        x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.wait_for_selector(f"{GRID} .tb-tag:not([data-tb-verdict=WAITING])")
        dx, dy = (to[1] - now[1]) * body["width"] / now[1], (to[0] - now[0]) * body["height"] / now[0]
        page.mouse.move(x + dx, y + dy, steps=8)
        tag = page.locator(f"{GRID} .tb-tag")
        try:
            tag.filter(has_text=f"→ {to[0]}×{to[1]}").wait_for(timeout=5000)
            if rest:
                tag.filter(has_text="cycles / input").wait_for(timeout=20_000)
        except PlaywrightTimeoutError:
            print(f"passed over: {op} from {now} to {to}: {tag.inner_text()!r}", flush=True)
            page.keyboard.press("Escape")
            page.mouse.up()
            return False
        return True

    def timed(self, label: str, op: str, event: str, message: str, act: Any) -> bool:
        """Do something that changes an op, and take the times of it. False: it was refused."""
        page = self.page
        self.kernel("marks.clear()")
        before = page.evaluate("op => window.tbShown(op)", op)
        page.evaluate(
            "([op, before]) => { window.tbClear(); window.tbWait = window.tbUntil(op, before); }", [op, before]
        )
        act()
        got = page.evaluate("() => window.tbWait")
        last = self.settled()
        if got is None:
            return False
        began = page.evaluate("event => window.tbLast(event)", event)
        sent = page.evaluate("what => window.tbFound('sent', [what])", f'"type":"{message}"')[0]
        came = page.evaluate("() => window.tbFound('came', ['\"key\": \"ops\"'])") or page.evaluate(
            "() => window.tbFound('came', ['\"key\":\"ops\"'])"
        )
        marks = json.loads(self.kernel("print(json.dumps(marks))"))
        desk = next(at for what, at in marks if what == f"got {message}")
        posted = next(at for what, at in marks if what == "frame ops")
        arrived = next(at for at in came if at >= posted - 5)
        times = [began, sent, desk, posted, arrived, got["drawn"], got["painted"]]
        parts = [*np.diff(times), times[-1] - began, max(0.0, last - got["painted"])]
        self.samples.setdefault(label, []).append(dict(zip(PARTS, parts, strict=True)))
        print(label, op, {p: round(float(v)) for p, v in zip(PARTS, parts, strict=True)}, flush=True)
        return True

    def answer(self) -> str:
        line = self.page.locator(f"{GRID} [data-tb-answer]:visible")
        line.wait_for()
        text = str(line.inner_text())
        line.locator("[data-tb-action=dismiss]").click()
        return text

    def one(self, op: str, epoch: int, now: list[int], to: list[int], rest: bool) -> None:
        page = self.page
        # evaluated: the film strip hides the epochs of folded layers
        page.locator(f"{GRID} .tb-frame[data-tb-epoch='{epoch}']").evaluate("e => e.click()")
        if not self.drag(op, now, to, rest):
            return
        how = "with a rest" if rest else "at once"
        result = self.timed(f"drag, let go {how}", op, "pointerup", "edit", page.mouse.up)
        text = self.answer()
        if not result:
            print(f"refused: {op} from {now} to {to}: {text}")
            return
        self.timed("undo", op, "keydown", "undo", lambda: page.keyboard.press("Control+z"))
        self.answer()

    def table(self) -> str:
        rows = [f"| ms, p50 / p95 | n | {' | '.join(PARTS)} |", "|---|---:|" + "---:|" * len(PARTS)]
        for label, samples in self.samples.items():
            cells = [np.percentile([s[part] for s in samples], [50, 95]) for part in PARTS]
            rows.append(f"| {label} | {len(samples)} | " + " | ".join(f"{a:.0f} / {b:.0f}" for a, b in cells) + " |")
        return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument(
        "--width", type=int, default=1024, help="of the layers; with 512 the kernel takes 2 instead of 4 GB"
    )
    parser.add_argument("--drags", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", choices=("quick", "rest", "both"), default="both")
    parser.add_argument("--shot", type=pathlib.Path, help="a picture of the page at the end")
    asked = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp())
    (base / "notebooks").mkdir()
    lab = Lab(base / "notebooks", base)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_context(viewport={"width": 1600, "height": 1360}).new_page()
            page.set_default_timeout(90_000)
            bench = Bench(page, lab)
            bench.open(CELL.format(bench=str(pathlib.Path(__file__).parent), layers=asked.layers, width=asked.width))
            facts = "len(session.result.placement.ops), len(session.result.placement.epochs)"
            ops, epochs = json.loads(bench.kernel(f"print(json.dumps([{facts}]))"))
            paces = {"quick": [False], "rest": [True], "both": [False, True]}[asked.pace]
            plan = json.loads(
                bench.kernel(PLAN.replace("{count}", str(asked.drags)).replace("{seed}", str(asked.seed)))
            )
            rng = random.Random(asked.seed)
            for k, (op, epoch, now, to) in enumerate(plan):
                bench.one(op, epoch, now, to, paces[k % len(paces)] if len(paces) < 3 else rng.choice(paces))
            if asked.shot:
                page.screenshot(path=asked.shot)
            browser.close()
    finally:
        lab.stop()
    print(f"{machine.describe()}\n\n{ops:,} ops, {epochs} epochs\n\n{bench.table()}")


if __name__ == "__main__":
    main()
