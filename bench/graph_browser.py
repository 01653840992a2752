"""Graphs in Chromium: frames while panning and zooming, the first draw, and what a widget sends and saves.

    python bench/graph_browser.py [--frames 240] [--moves]

A page with the built bundle gets the frames of a graph and nothing else, as a widget does. A frame while the view moves
is from one animation frame to the next; its work is the time of the page's thread from the start of the frame to after
its painting; its CPU is the processor time of that thread, which says most where the machine is busy with other work.
The first draw is from the first message with data to after the frame with the picture. Graphs: encoders with every
group open (pan, zoom) or as they open at first, and one without modules, 2,500 nodes and 4,000 edges at random.
"""

from __future__ import annotations

import argparse
import base64
import json
import pathlib
import random
import tempfile
import time
from typing import Any

import machine
import numpy as np
from playwright.sync_api import sync_playwright

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frames import Frame, graph_frame, session_frames
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwUnary
from tbuda_lab.widgets import BringUp, EpochGrid, GraphView, OpTable
from tbuda_lab.widgets.protocol import FramePacket
from tbuda_lab.widgets.views.workbench import BUNDLE, View
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.widgets.synthetic import FakeSession, encoder_graph, result

PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0;width:1600px"><div id="view"></div>
<script type="module">
import factory from './widget.js';
const { view, frames } = await (await fetch('./frames.json')).json();
const heard = [];
const values = { view, height: 0, selection: {} };
const model = {
  get: name => values[name], set: (name, value) => { values[name] = value; }, save_changes() {}, send() {},
  on: (event, f) => { if (event === 'msg:custom') heard.push(f); }, off() {}
};
const data = frames.map(f => [f.header, Uint8Array.from(atob(f.data), c => c.charCodeAt(0)).buffer]);
const widget = factory();
widget.initialize({ model });
widget.render({ model, el: document.getElementById('view') });
const later = f => { const { port1, port2 } = new MessageChannel(); port1.onmessage = f; port2.postMessage(0); };
const frame = () => new Promise(done => requestAnimationFrame(began => {
  const start = performance.now();
  later(() => done({ began, work: performance.now() - start }));
}));
window.frame = frame;
for (let k = 0; k < 5; k++) await frame();
const began = performance.now();
let rev = 0;
for (const [header, buffer] of data) {
  heard.forEach(f => f({ type: 'frame', key: header.key, rev: ++rev, chunk: [0, 1], header }, [new DataView(buffer)]));
}
window.script = performance.now() - began;
await frame();
window.drawn = performance.now() - began;
window.ready = true;
</script>"""

MOVE = """async ([first, count, total, how]) => {
  const stage = document.querySelector('.tb-stage');
  stage.focus();
  stage.setPointerCapture = () => {};
  const box = stage.getBoundingClientRect();
  const [cx, cy] = [box.x + box.width / 2, box.y + box.height / 2];
  const fire = (type, x, y) => stage.dispatchEvent(new PointerEvent(type, {
    bubbles: true, clientX: x, clientY: y, button: 0, buttons: 1, pointerId: 1, isPrimary: true }));
  if (how === 'pan' && !first) fire('pointerdown', cx, cy);
  const found = [];
  for (let k = first; k < first + count; k++) {
    if (how === 'rest') { /* nothing moves: what the measuring itself costs */ }
    else if (how === 'pan') fire('pointermove', cx + 90 * Math.sin(k / 11), cy + 4 * Math.min(k, total - k));
    else stage.dispatchEvent(new WheelEvent('wheel', {
      bubbles: true, cancelable: true, clientX: cx, clientY: cy, deltaY: Math.sin(k / 19) > 0 ? -60 : 60 }));
    found.push(await window.frame());
  }
  if (how === 'pan' && first + count === total) fire('pointerup', cx, cy);
  return found;
}"""


def flat(nodes: int = 2500, edges: int = 4000, seed: int = 7) -> Graph:
    """A graph without modules: ops of one or two operands, most of them near by, some far back."""
    rng = random.Random(seed)
    graph = Graph("flat")
    df, shape = DataFormat.Float16_b, (1, 1, 128, 768)
    graph.add(Node("x", NodeKind.INPUT, shape, df=df))
    names, pairs = ["x"], edges - (nodes - 2) - 1
    binary = set(rng.sample(range(1, nodes - 1), pairs))
    for k in range(1, nodes - 1):
        count = min(2 if k in binary else 1, len(names))
        sources = rng.sample(names[-12:] if rng.random() < 0.97 else names[-200:], count)
        what = HwBinary("add") if count == 2 else HwUnary("gelu")
        graph.add(Node(f"op_{k}", NodeKind.OP, shape, what, tuple(map(Edge, sources)), df))
        names.append(f"op_{k}")
    graph.add(Node("y", NodeKind.OUTPUT, shape, None, (Edge(names[-1]),), df))
    return graph


def packed(frame: Frame) -> dict[str, Any]:
    header, buffer = frame.pack()
    return {"header": header, "data": base64.b64encode(buffer).decode("ascii")}


def size(frame: Frame) -> int:
    header, buffer = frame.pack()
    return len(json.dumps(header)) + len(buffer)


def sent(frame: Frame) -> int:
    """Bytes on the way to a page that inflates."""
    pieces = FramePacket(frame, 1).messages(inflates=True)
    return sum(len(json.dumps(message)) + sum(map(len, buffers)) for message, buffers in pieces)


class Bench:
    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.folder = pathlib.Path(tempfile.mkdtemp())
        (self.folder / "widget.js").write_bytes(BUNDLE.read_bytes())
        (self.folder / "index.html").write_text(PAGE)

    def page(self, view: str, frames: list[Frame]) -> Any:
        (self.folder / "frames.json").write_text(json.dumps({"view": view, "frames": [packed(f) for f in frames]}))
        page = self.browser.new_context(viewport={"width": 1600, "height": 1200}).new_page()
        page.set_default_timeout(120_000)

        def serve(route: Any) -> None:
            name = route.request.url.rsplit("/", 1)[-1] or "index.html"
            kind = {"js": "text/javascript", "html": "text/html", "json": "application/json"}[name.rsplit(".", 1)[-1]]
            route.fulfill(body=(self.folder / name).read_bytes(), content_type=kind)

        page.route("http://bench.test/**", serve)
        page.goto("http://bench.test/index.html")
        page.wait_for_function("() => window.ready")
        return page

    def first(self, label: str, view: str, frames: list[Frame], times: int = 5) -> None:
        drawn, script = [], []
        for _ in range(times):
            page = self.page(view, frames)
            drawn.append(page.evaluate("() => window.drawn"))
            script.append(page.evaluate("() => window.script"))
            page.context.close()
        print(
            f"first draw, {label}: median {np.median(drawn):.0f} ms, largest {max(drawn):.0f} ms "
            f"(messages alone {np.median(script):.0f} ms)"
        )

    def used(self, page: Any, count: int, how: str) -> list[float]:
        """CPU ms of the page's thread per frame, frame by frame; the way of the question to the page is part of it."""
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable", {"timeDomain": "threadTicks"})

        def ticks() -> float:
            metrics = client.send("Performance.getMetrics")["metrics"]
            return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")

        used = []
        for k in range(count):
            before = ticks()
            page.evaluate(MOVE, [k, 1, count, how])
            used.append(1000 * (ticks() - before))
        return used

    def moves(self, label: str, frame: Frame, count: int) -> None:
        page = self.page("graph", [frame])
        page.locator("[data-tb-action=graph-expand]").click()
        for where, zooms in (("whole graph", 0), ("readable", 1)):
            if zooms:
                page.evaluate("""() => { const s = document.querySelector('.tb-stage'); s.focus();
                    const r = s.getBoundingClientRect();
                    for (let k = 0; k < 400 && (new DOMMatrix(s.querySelector('.tb-hooks').style.transform)).a < 9; k++)
                      s.dispatchEvent(new WheelEvent('wheel', { cancelable: true, clientX: r.x + r.width / 2,
                        clientY: r.y + r.height / 2, deltaY: k < 60 ? -60 : 0 })); }""")
            rest = np.median(self.used(page, count // 4, "rest"))
            print(f"{label}, {where}: nothing moves, CPU median {rest:.1f} ms")
            for how in ("pan", "zoom"):
                page.evaluate("() => window.frame()")
                got = page.evaluate(MOVE, [0, count, count, how])
                used = self.used(page, count // 2, how)
                work = np.array([f["work"] for f in got])
                between = np.diff([f["began"] for f in got])
                print(
                    f"{how}, {label}, {where}: CPU median {np.median(used):.1f} / 95 % within "
                    f"{np.percentile(used, 95):.1f} ms; frames median {np.median(between):.1f} / 95 % within "
                    f"{np.percentile(between, 95):.1f} ms; work median {np.median(work):.1f} / 95 % within "
                    f"{np.percentile(work, 95):.1f} / largest {work.max():.1f} ms"
                )
        page.context.close()


def counted(frame: Frame, graph: Graph) -> str:
    shown = set(frame.text("node_name"))
    edges = sum(s in shown for n in shown for s in graph[n].sources)
    return f"{len(shown):,} nodes, {edges:,} edges"


def saved(layers: int) -> None:
    """Sizes of what a notebook keeps of each view, and of the frames it is sent."""
    compiled = result(layers)
    session = FakeSession(compiled)
    session.compile()
    for kind in (BringUp, GraphView, EpochGrid, OpTable):
        view = kind.__new__(kind)
        View.__init__(view, session)  # as with a session that is compiled
        state = {k: v for k, v in view.get_state().items() if k not in ("_esm", "_css")}
        html = view._repr_mimebundle_()
        bundle = html[0] if isinstance(html, tuple) else html
        print(
            f"{kind.__name__}: saved state {len(json.dumps(state)) / 1024:.1f} KB, static fallback "
            f"{len(bundle.get('text/html', '').encode()) / 1024:.0f} KB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=240)
    parser.add_argument("--moves", action="store_true", help="panning and zooming only")
    asked = parser.parse_args()
    print(machine.describe() + "\n")
    loose, wide = flat(), encoder_graph(91)
    moving = [(graph_frame(g, "lowered"), g) for g in (wide, loose)]
    if asked.moves:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for frame, of in moving:
                Bench(browser).moves(counted(frame, of), frame, asked.frames)
            browser.close()
        return
    began = time.process_time()
    big = encoder_graph(625)
    huge = graph_frame(big, "lowered")
    print(
        f"{counted(huge, big)}: frame {size(huge) / 1024:.0f} KB, sent {sent(huge) / 1024:.0f} KB, "
        f"made in {time.process_time() - began:.1f} s of CPU"
    )
    compiled = result(32)
    bert = session_frames(compiled, compiled.device, compiled.diagnostics, "encoder", [])
    for frame in bert:
        print(f"1,000 ops, frame {frame.key}: {size(frame) / 1024:.0f} KB, sent {sent(frame) / 1024:.0f} KB")
    print(f"1,000 ops, all frames: sent {sum(map(sent, bert)) / 1024:.0f} KB")
    saved(32)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        bench = Bench(browser)
        ops = len(next(f for f in bert if f.key == "ops").text("op_name"))
        graph = [f for f in bert if f.key.startswith("graph") or f.key == "ops"]
        bench.first(f"{ops:,} ops, graph", "graph", graph)
        bench.first(f"{ops:,} ops, workbench", "bringup", bert)
        bench.first("20,000 nodes collapsed", "graph", [huge])
        for frame, of in moving:
            bench.moves(counted(frame, of), frame, asked.frames)
        browser.close()


if __name__ == "__main__":
    main()
