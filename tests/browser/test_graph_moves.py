"""The picture of a graph in motion: what is shifted, mended and drawn in slices ends as what is drawn at once."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frames import graph_frame
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwUnary
from tbuda_lab.widgets.views.workbench import BUNDLE
from tests.browser.conftest import box_of, serve

PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0"><div id="view"></div>
<script>
// Frames that the view waits for: while there is one, the picture is not what it will be.
const awaited = new Set();
const [ask, drop] = [window.requestAnimationFrame.bind(window), window.cancelAnimationFrame.bind(window)];
window.requestAnimationFrame = f => {
  const id = ask(now => {
    awaited.delete(id);
    f(now);
  });
  awaited.add(id);
  return id;
};
window.cancelAnimationFrame = id => {
  awaited.delete(id);
  drop(id);
};
</script>
<script type="module">
import factory from './widget.js';
const { header, data } = await (await fetch('./frame.json')).json();
const heard = [];
const values = { view: 'graph', height: 0, selection: {} };
const model = {
  get: name => values[name], set: (name, value) => { values[name] = value; }, save_changes() {}, send() {},
  on: (event, f) => { if (event === 'msg:custom') heard.push(f); }, off() {}
};
const widget = factory();
widget.initialize({ model });
widget.render({ model, el: document.getElementById('view') });
const buffer = Uint8Array.from(atob(data), c => c.charCodeAt(0)).buffer;
heard.forEach(f => f({ type: 'frame', key: header.key, rev: 1, chunk: [0, 1], header }, [new DataView(buffer)]));
const pause = () => new Promise(done => setTimeout(done, 50));
const rest = async () => {
  for (let quiet = 0; quiet < 14; quiet = awaited.size ? 0 : quiet + 1) await pause();
};
const pixels = () => {
  const canvas = document.querySelector('.tb-canvas');
  return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
};
/** Pixels that differ between the picture as it came to rest and the same drawn at once; how many show anything. */
window.compare = async () => {
  await rest();
  const moved = pixels();
  const search = document.querySelector('[data-tb-action=graph-search]');
  for (const text of ['no such node', '']) {
    search.value = text;
    search.dispatchEvent(new Event('input'));
    await rest();
  }
  const whole = pixels();
  let differ = 0, shown = 0;
  for (let i = 0; i < whole.length; i += 4) {
    shown += whole[i + 3] > 0;
    differ += [0, 1, 2, 3].some(k => Math.abs(whole[i + k] - moved[i + k]) > 2);
  }
  return { differ, shown };
};
window.ready = true;
</script>"""


def tangle(nodes: int = 900, seed: int = 3) -> Graph:
    """Ops of one or two operands near by: enough of them that a move does not draw them anew."""
    rng = random.Random(seed)
    graph = Graph("tangle")
    df, shape = DataFormat.Float16_b, (1, 1, 64, 64)
    graph.add(Node("x", NodeKind.INPUT, shape, df=df))
    names = ["x"]
    for k in range(nodes):
        sources = rng.sample(names[-8:], min(len(names), 1 + k % 2))
        op = HwBinary("add") if len(sources) == 2 else HwUnary("gelu")
        graph.add(Node(f"op_{k}", NodeKind.OP, shape, op, tuple(map(Edge, sources)), df))
        names.append(f"op_{k}")
    graph.add(Node("y", NodeKind.OUTPUT, shape, None, (Edge(names[-1]),), df))
    return graph


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    header, buffer = graph_frame(tangle(), "lowered").pack()
    frame = {"header": header, "data": base64.b64encode(buffer).decode()}
    answers = {
        "index.html": ("text/html", PAGE.encode()),
        "widget.js": ("text/javascript", BUNDLE.read_bytes()),
        "frame.json": ("application/json", json.dumps(frame).encode()),
    }
    result = browser.new_page(viewport={"width": 1200, "height": 900})
    result.set_default_timeout(60_000)
    serve(result, "http://graph.test", answers)
    result.goto("http://graph.test/index.html")
    result.wait_for_function("() => window.ready")
    result.locator(".tb-hook").first.wait_for(state="attached")
    for _ in range(2):  # the second time all of it
        result.locator("[data-tb-action=graph-fit]").click()
    box_of(result.locator(".tb-hook").first)
    yield result
    result.close()


def middle(page: Any) -> tuple[float, float]:
    box = box_of(page.locator(".tb-stage"))
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def same(page: Any) -> None:
    result = page.evaluate("() => window.compare()")
    assert result["shown"] > 500
    assert result["differ"] <= 5e-3 * result["shown"], result  # edges between pixels may round otherwise


def drag(page: Any, dx: int, dy: int) -> None:
    x, y = middle(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=12)
    page.mouse.up()
    page.mouse.move(5, 5)


def test_a_pan_ends_as_drawn_at_once(page: Any) -> None:
    drag(page, 130, 75)
    same(page)
    drag(page, -300, -210)
    same(page)


def test_zooms_end_as_drawn_at_once(page: Any) -> None:
    for _ in range(2):
        page.locator("[data-tb-action=graph-fit]").click()
    page.locator(".tb-stage").focus()
    for steps, by in ((4, -120), (3, 120), (2, -120)):
        page.mouse.move(*middle(page))
        for _ in range(steps):
            page.mouse.wheel(0, by)
        page.mouse.move(5, 5)
        same(page)
    drag(page, 40, -130)
    same(page)


def test_the_pointer_leaves_nothing_behind(page: Any) -> None:
    for _ in range(2):
        page.locator("[data-tb-action=graph-fit]").click()
    x, y = middle(page)
    for k in range(12):
        page.mouse.move(x - 60 + 10 * k, y - 40 + 7 * k)
    page.mouse.move(5, 5)
    same(page)
