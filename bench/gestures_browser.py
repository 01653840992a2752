"""Dragging at 1,000 ops in Chromium: from a pointer move to the ghost drawn, from letting go to the new placement.

    python bench/gestures_browser.py [--layers 40] [--moves 400]

A page with the built bundle and the frames of an encoder of that many layers; a table of legal shapes answers each
drag, as the kernel would. A move is timed from before the event to after the layout that it causes; a frame from one
animation frame to the next while the pointer moves in each. Every message that the page sends is counted.
"""

from __future__ import annotations

import argparse
import base64
import json
import pathlib
import tempfile
from typing import Any

import machine
import numpy as np
from playwright.sync_api import sync_playwright

from tbuda_lab.core.frames import Frame, session_frames
from tbuda_lab.widgets.views.workbench import BUNDLE
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.widgets.synthetic import result

PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0;width:1600px"><div id="view"></div>
<script type="module">
import factory from './widget.js';
const data = await (await fetch('./frames.json')).json();
const heard = [];
window.sent = [];
const values = { view: 'bringup', height: 0, selection: {} };
const model = {
  get: name => values[name], set: (name, value) => { values[name] = value; }, save_changes() {},
  send: message => window.sent.push(message),
  on: (event, f) => { if (event === 'msg:custom') heard.push(f); }, off() {}
};
let rev = 0;
window.unpacked = frame => [{ type: 'frame', key: frame.header.key, rev: ++rev, chunk: [0, 1], header: frame.header },
  [new DataView(Uint8Array.from(atob(frame.data), c => c.charCodeAt(0)).buffer)]];
window.hand = message => heard.forEach(f => f(...message));
window.deliver = frame => window.hand(window.unpacked(frame));
const widget = factory();
widget.initialize({ model });
const began = performance.now();
data.frames.forEach(window.deliver);
widget.render({ model, el: document.getElementById('view') });
document.body.offsetHeight;
window.drawn = performance.now() - began;
window.frames_ = data;
window.ready = true;
</script>"""

DRAG = """async moves => {
  const grid = document.querySelector('[data-tb-view=grid]');
  const plane = grid.querySelector('.tb-plane');
  const tile = grid.querySelector('.tb-tile');
  const fire = (target, type, x, y) => target.dispatchEvent(new PointerEvent(type, {
    bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1, isPrimary: true }));
  plane.setPointerCapture = plane.releasePointerCapture = () => {};
  plane.hasPointerCapture = () => false;
  const box = plane.getBoundingClientRect();
  const own = tile.getBoundingClientRect();
  fire(tile, 'pointerover', own.x + 5, own.y + 5);
  const handle = grid.querySelector('[data-tb-handle=se]').getBoundingClientRect();
  fire(grid.querySelector('[data-tb-handle=se]'), 'pointerdown', handle.x + 5, handle.y + 5);
  const probe = window.sent.at(-1);
  const legal = structuredClone(window.frames_.legal);
  legal.header.meta.seq = probe.seq;
  window.deliver(legal);
  const count = window.sent.length;
  const times = [], frames = [];
  let last = 0;
  for (let k = 0; k < moves; k++) {
    const x = box.x + 60 + (box.width - 100) * Math.abs(Math.sin(k / 17));
    const y = box.y + 40 + (box.height - 80) * Math.abs(Math.cos(k / 23));
    const began = performance.now();
    fire(plane, 'pointermove', x, y);
    plane.getBoundingClientRect();
    document.body.offsetHeight;
    times.push(performance.now() - began);
    const now = await new Promise(requestAnimationFrame);
    if (last) frames.push(now - last);
    last = now;
  }
  const verdict = grid.querySelector('.tb-tag').dataset.tbVerdict;
  window.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
  return { times, frames, sent: window.sent.slice(count).map(m => m.type), verdict };
}"""

REDRAW = """async times => {
  const found = [];
  for (let k = 0; k < times; k++) {
    const keys = ['ops', 'netlist', 'graph:lowered'];
    const ready = window.frames_.frames.filter(f => keys.includes(f.header.key)).map(window.unpacked);
    const began = performance.now();
    ready.forEach(window.hand);
    document.body.offsetHeight;
    await new Promise(requestAnimationFrame);
    found.push(performance.now() - began);
  }
  return found;
}"""


def packed(frame: Frame) -> dict[str, Any]:
    header, buffer = frame.pack()
    return {"header": header, "data": base64.b64encode(buffer).decode("ascii")}


def legal(rows: int, cols: int, op: str, grid: tuple[int, int], start: tuple[int, int]) -> Frame:
    """A table as `legal_frame` packs it: powers of two are legal, everything is free."""
    r, c = np.indices((rows, cols)) + 1
    good = ((r & (r - 1)) == 0) & ((c & (c - 1)) == 0)
    cycles = np.where(good, 40_000 / (r * c), np.nan).astype("<f4").reshape(-1)
    fits = (np.arange(rows)[None, None, :] + r[..., None] <= rows) * (1 << (cols - c + 1))[..., None]
    columns = {
        "verdict": np.where(good, 0, 64).astype("u1").reshape(-1),
        "cycles": cycles,
        "epoch_cycles": cycles,
        "l1_bytes": np.full(rows * cols, 65536, dtype="<u4"),
        "cores": (r * c).astype("<u2").reshape(-1),
        "anchors": np.maximum(fits - 1, 0).astype("<u2").reshape(-1),
    }
    meta = {
        "op": op,
        "rev": 1,
        "seq": 0,
        "rows": rows,
        "cols": cols,
        "grid": list(grid),
        "start": list(start),
        "transposed": False,
        "reasons": {"64": {"name": "DOES_NOT_DIVIDE", "meaning": "does not divide", "fix": ""}},
    }
    return Frame("legal", meta, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--moves", type=int, default=400)
    asked = parser.parse_args()
    compiled = result(asked.layers)
    frames = session_frames(compiled, compiled.device, compiled.diagnostics, "encoder", [])
    ops = next(f for f in frames if f.key == "ops")
    edits = {"stale": False, "busy": False, "undo": "", "redo": "", "overrides": []}
    first = {c: int(ops.columns[f"op_{c}"][0]) for c in ("rows", "cols", "row", "col")}
    table = legal(
        int(ops.meta["rows"]),
        int(ops.meta["cols"]),
        ops.text("op_name")[0],
        (first["rows"], first["cols"]),
        (first["row"], first["col"]),
    )
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "widget.js").write_bytes(BUNDLE.read_bytes())
    (folder / "index.html").write_text(PAGE)
    data = {"frames": [packed(f) for f in [*frames, Frame("edits", edits)]], "legal": packed(table)}
    (folder / "frames.json").write_text(json.dumps(data))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(viewport={"width": 1600, "height": 1200}).new_page()
        page.set_default_timeout(120_000)

        def serve(route: Any) -> None:
            name = route.request.url.rsplit("/", 1)[-1] or "index.html"
            kind = {"js": "text/javascript", "html": "text/html", "json": "application/json"}[name.rsplit(".", 1)[-1]]
            route.fulfill(body=(folder / name).read_bytes(), content_type=kind)

        page.route("http://bench.test/**", serve)
        page.goto("http://bench.test/index.html")
        page.wait_for_function("() => window.ready")
        drawn = page.evaluate("() => window.drawn")
        got = page.evaluate(DRAG, asked.moves)
        redraw = page.evaluate(REDRAW, 30)
        browser.close()
    print(machine.describe() + "\n")
    times, between = np.array(got["times"]), np.array(got["frames"])
    count = len(ops.text("op_name"))
    print(f"{count:,} ops, first draw {drawn:.0f} ms")
    print(
        f"{len(times)} moves: median {np.median(times):.1f} ms, 95 % within {np.percentile(times, 95):.1f} ms, "
        f"largest {times.max():.1f} ms; frames: median {np.median(between):.1f} ms, 95 % within "
        f"{np.percentile(between, 95):.1f} ms; messages sent: {got['sent'] or 'none'}"
    )
    print(
        f"new placement drawn after its frames arrived: median {np.median(redraw):.0f} ms, "
        f"95 % within {np.percentile(redraw, 95):.0f} ms"
    )


if __name__ == "__main__":
    main()
