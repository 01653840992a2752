"""The graph as Python tells it: what is open, searched and painted by values of one's own."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tbuda_lab.widgets.views.graph import overlay_frame
from tbuda_lab.widgets.views.workbench import BUNDLE
from tests.browser.conftest import box_of, serve, settled, until

FIXTURE = Path(__file__).parents[1] / "widgets" / "fixture.json"

PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0"><div id="view"></div>
<script type="module">
import factory from './widget.js';
const heard = {};
const values = { view: 'graph', height: 0, selection: {}, query: '', depth: null, collapsed: [] };
const model = {
  get: name => values[name], set: (name, value) => { values[name] = value; }, save_changes() {}, send() {},
  on: (event, f) => (heard[event] ??= []).push(f), off() {}
};
const widget = factory();
widget.initialize({ model });
widget.render({ model, el: document.getElementById('view') });
window.values = values;
window.tell = (name, value) => { values[name] = value; (heard[`change:${name}`] ?? []).forEach(f => f()); };
let rev = 0;
window.bring = ({ header, data }) => {
  const buffer = Uint8Array.from(atob(data), c => c.charCodeAt(0)).buffer;
  heard['msg:custom'].forEach(f =>
    f({ type: 'frame', key: header.key, rev: ++rev, chunk: [0, 1], header }, [new DataView(buffer)]));
};
for (const frame of await (await fetch('./frames.json')).json()) window.bring(frame);
window.ready = true;
</script>"""

HOTTEST = """() => {
  const canvas = document.querySelector('.tb-canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let hot = 0;
  for (let i = 0; i < data.length; i += 4)
    hot += Math.abs(data[i] - 203) + Math.abs(data[i + 1] - 66) + Math.abs(data[i + 2] - 18) < 12 && data[i + 3] > 250;
  return hot;
}"""
"""Counts pixels of the hottest colour of the light scale."""


def test_the_graph_opens_searches_and_paints_as_told(browser: Any, shots: Path) -> None:
    frames = [f for f in json.loads(FIXTURE.read_text())["frames"] if f["header"]["key"] in ("graph:lowered", "ops")]
    answers = {
        "index.html": ("text/html", PAGE.encode()),
        "widget.js": ("text/javascript", BUNDLE.read_bytes()),
        "frames.json": ("application/json", json.dumps(frames).encode()),
    }
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_default_timeout(60_000)
    serve(page, "http://told.test", answers)

    def hooks() -> list[str]:
        return list(page.locator(".tb-hook[data-tb-op]").evaluate_all("hooks => hooks.map(e => e.dataset.tbOp)"))

    def hot() -> int:
        return int(page.evaluate(HOTTEST))

    page.goto("http://told.test/index.html")
    page.wait_for_function("() => window.ready")
    page.evaluate("() => window.tell('depth', 0)")
    box_of(page.locator("[data-tb-group]").first)
    few = hooks()
    page.evaluate("() => window.tell('depth', 9)")
    until(page, lambda: len(hooks()) > len(few))
    box_of(page.locator(".tb-hook[data-tb-op]").first)
    many = hooks()
    search = page.locator("[data-tb-action=graph-search]")
    page.evaluate("() => window.tell('query', 'matmul')")
    until(page, lambda: search.input_value() == "matmul")
    search.fill("gelu")
    until(page, lambda: page.evaluate("() => window.values.query") == "gelu")
    search.fill("")
    box_of(page.locator(".tb-hook[data-tb-op]").first)
    plain = hot()  # of ops that limit their epoch
    header, buffer = overlay_frame({name: float(k % 5) for k, name in enumerate(many) if k % 6}, "watts", None).pack()
    page.evaluate("f => window.bring(f)", {"header": header, "data": base64.b64encode(buffer).decode()})
    page.wait_for_selector("[data-tb-overlay=watts]")
    until(page, lambda: hot() != plain)
    page.locator(".tb-stage").focus()
    for _ in range(6):
        page.locator("[data-tb-action=graph-in]").click()
    until(page, lambda: hot() > 100)
    page.screenshot(path=shots / "graph_told_light.png")
    page.emulate_media(color_scheme="dark")
    page.locator(".tb-root[data-tb-theme=dark]").wait_for()
    settled(page)
    page.screenshot(path=shots / "graph_told_dark.png")
    header, buffer = overlay_frame({}, "", None).pack()
    page.evaluate("f => window.bring(f)", {"header": header, "data": base64.b64encode(buffer).decode()})
    page.wait_for_selector("[data-tb-overlay]", state="detached")
    page.close()
