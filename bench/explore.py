"""What an exploration costs beside the compiles that it is made of, and how soon it answers.

    python bench/explore.py [--model NAME] [--points N] [--cancel WORKERS]

Prints, in CPU seconds of this process: N points compiled one by one, the same points as an exploration in process (bar:
at most 5 % more), and a point opened from its trial's placement (bar: 2 s of wall time on a machine that does nothing
else). With `--cancel`: wall seconds from a cancel until it is idle (bar: 2 s), with so many workers, 0: in process.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from machine import describe, one_thread

AXES = {
    "devices": ["n150", "wormhole_b0+grid=6x8"],
    "batch": [1, 4, 16, 64],
    "format": ["Float16_b", "Bfp8_b"],
    "fidelity": ["LoFi", "HiFi2", "HiFi3", "HiFi4"],
}
"""64 points, in this order."""
IDLE_AFTER = 20.0
"""Seconds of work before the cancel: workers have begun by then."""


def overhead(model: str, points: int, folder: Path) -> None:
    """Compiles alone and as an exploration, in turn, each with tables of its own."""
    import threading

    from bench.models import make
    from tbuda_lab.core.explore import parse_device
    from tbuda_lab.core.explore.trial import Task, TrialRunner, graph_text
    from tbuda_lab.core.files.codec import to_plain
    from tbuda_lab.core.graph import parse_graph
    from tbuda_lab.core.session import Session

    module, inputs = make(model)
    session = Session(module, inputs, name=model, cache=False)
    text = graph_text(session.trace())
    exploration = session.explore(AXES, budget=points, out=folder / "explored", cache=False)
    options = [exploration.plan.space.options(p, exploration.plan.options) for p in exploration.plan.space][:points]
    devices = [to_plain(parse_device(p["device"])) for p in exploration.plan.space][:points]
    start = time.process_time()
    runner = TrialRunner(parse_graph(text))
    for device, chosen in zip(devices, options, strict=True):
        runner.compile(Task(0, device, chosen, cache=False), threading.Event())
    alone = time.process_time() - start
    start = time.process_time()
    exploration.run()
    explored = time.process_time() - start
    exploration.close()
    print(
        f"{points} points of {model}: compiles {alone:.1f} CPU s, exploration {explored:.1f}: "
        f"{100 * (explored / alone - 1):+.1f} %"
    )


def opened(model: str, folder: Path) -> None:
    """A point from the placement that its trial kept."""
    os.environ["TBUDA_CACHE"] = str(folder / "kept")
    from bench.models import make
    from tbuda_lab.core.session import Session

    module, inputs = make(model)
    exploration = Session(module, inputs, name=model).explore({"devices": ["n150"], "batch": [16]})
    exploration.run()
    start, wall = time.process_time(), time.perf_counter()
    exploration.open(0).compile()
    print(f"a point opened: {time.process_time() - start:.2f} CPU s, {time.perf_counter() - wall:.2f} s of wall time")
    exploration.close()


def cancelled(model: str, workers: int, folder: Path) -> None:
    """From a cancel until nothing works."""
    from bench.models import make
    from tbuda_lab.core.errors import Cancelled
    from tbuda_lab.core.session import Session

    module, inputs = make(model)
    session = Session(module, inputs, name=model, cache=False)
    exploration = session.explore(AXES, engine=workers, out=folder / "cancelled", cache=False).start()
    while not exploration.progress.running:
        time.sleep(0.05)
    time.sleep(IDLE_AFTER)
    start = time.perf_counter()
    exploration.cancel()
    try:
        exploration.wait()
    except Cancelled:
        print(f"idle {time.perf_counter() - start:.2f} s after the cancel, {len(exploration.trials)} rows")
    exploration.close()


REDRAWS = 12
REDRAW = """async () => {
  const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  const took = [];
  for (let k = 0; k < REDRAWS; k++) {
    const value = document.querySelectorAll('[data-tx-value]')[k % 3];
    await frame();
    const began = performance.now();
    value.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    document.body.offsetHeight;
    const drawn = performance.now();
    await frame();
    took.push([drawn - began, performance.now() - began]);
  }
  return took;
}""".replace("REDRAWS", str(REDRAWS))
"""Brush, and wait until that is painted; milliseconds of script and layout, and until the frame is there."""


def picture(points: int) -> None:
    """A picture of so many trials, redrawn in Chromium."""
    import json

    from playwright.sync_api import sync_playwright

    from tbuda_lab.core.explore import NUMBERS
    from tbuda_lab.widgets.pictures.explore import explore_script
    from tests.browser.conftest import CHROMIUM, FLAGS

    chance = random.Random(0)
    axes = {
        "device": ["n150", "n300", "grayskull"],
        "microbatch": [1, 4, 16, 64],
        "fidelity": ["LoFi", "HiFi2", "HiFi4"],
    }
    trials = [
        {
            "n": n,
            "point": {name: chance.choice(values) for name, values in axes.items()},
            "state": "done" if n % 10 else "refused",
            "reason": None if n % 10 else {"type": "PlacementError", "text": "ops fit no epoch", "diagnostics": []},
            "numbers": {name: chance.lognormvariate(8, 1) for name in NUMBERS} if n % 10 else {},
            "placement": "",
            "epochs": None,
            "stale": False,
            "version": "1",
            "holds": n % 3 > 0,
            "command": "tbuda compile",
        }
        for n in range(points)
    ]
    data = {
        "title": "many",
        "progress": {"done": points, "total": points, "seconds_left": None},
        "running": False,
        "axes": [{"name": name, "values": values} for name, values in axes.items()],
        "objectives": ["samples/s", "latency_ms"],
        "names": list(NUMBERS),
        "directions": {name: number.better for name, number in NUMBERS.items()},
        "units": {name: number.unit for name, number in NUMBERS.items()},
        "requirements": [],
        "trials": trials,
        "grids": {},
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_content("<main></main>")
        page.evaluate(
            """async ([code, data]) => {
              const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
              (await import(url)).draw(document.querySelector('main'), data);
            }""",
            [explore_script(), json.loads(json.dumps(data))],
        )
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> dict[str, float]:
            return {m["name"]: m["value"] for m in tools.send("Performance.getMetrics")["metrics"]}

        page.evaluate(REDRAW)
        before = spent()
        took = page.evaluate(REDRAW)
        after = spent()
        browser.close()
    parts = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
    print(
        f"{points:,} points redrawn, CPU ms of the page: "
        + ", ".join(
            f"{name.removesuffix('Duration').lower()} {1e3 * (after[name] - before[name]) / REDRAWS:.0f}"
            for name in parts
        )
    )
    work, painted = (sorted(t[k] for t in took) for k in (0, 1))
    half = len(took) // 2
    print(
        f"{points:,} points redrawn: script and layout median {work[half]:.0f} ms, most {work[-1]:.0f} ms; painted "
        f"median {painted[half]:.0f} ms, most {painted[-1]:.0f} ms"
    )


CHAINS = (
    ("wormhole_b0", "n150", "n150+harvest=1", "n150+harvest=2"),
    ("n150", "n150+grid=6x8"),
    ("n150", "n150+l1=1M"),
    ("n150", "n150+dram=x0.5"),
    ("n300", "n300:1"),
    ("grayskull", "grayskull+harvest=2"),
)
"""Devices of which each has less than the one before it."""
SIX = ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert")
ALLOWED = 0.03
"""By what part cycles may fall where a device has less."""


def monotone(model: str, folder: Path) -> list[str]:
    """What falls by more than is allowed, as text; prints every device."""
    from bench.models import make
    from tbuda_lab.core.session import Session

    module, inputs = make(model)
    devices = list(dict.fromkeys(name for chain in CHAINS for name in chain))
    exploration = Session(module, inputs, name=model, cache=False).explore(
        {"devices": devices, "batch": [1, 64]}, out=folder / f"monotone-{model}", cache=False
    )
    rows = {(t.point["device"], t.point["microbatch"]): t for t in exploration.run()}
    exploration.close()
    found = []
    for chain in CHAINS:
        for more, less in itertools.pairwise(chain):
            for batch in (1, 64):
                a, b = rows[more, batch], rows[less, batch]
                at = f"{model} at {batch}: {more} -> {less}"
                if b.state != "done":
                    print(f"{at}: {b.state}: {b.reason['text'][:80]}", flush=True)
                    continue
                if a.state != "done":
                    found.append(f"{at}: {a.state} -> done")
                    continue
                change = b.numbers["cycles/input"] / a.numbers["cycles/input"] - 1
                texts = [f"{t.numbers['cycles/input']:,.0f} ({t.run['cpu_s']:.1f} CPU s)" for t in (a, b)]
                print(f"{at}: {texts[0]} -> {texts[1]}, {100 * change:+.1f} %", flush=True)
                if change < -ALLOWED:
                    found.append(f"{at}: {100 * change:+.1f} %")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--cancel", type=int, metavar="WORKERS")
    parser.add_argument("--monotone", nargs="*", metavar="MODEL")
    arguments = parser.parse_args()
    one_thread()
    print(describe())
    if arguments.monotone is not None:
        with tempfile.TemporaryDirectory() as name:
            found = [line for model in arguments.monotone or SIX for line in monotone(model, Path(name))]
        print(f"{len(found)} fall by more than {100 * ALLOWED:g} %", *found, sep="\n")
        sys.exit(bool(found))
    with tempfile.TemporaryDirectory() as name:
        if arguments.cancel is not None:
            cancelled(arguments.model, arguments.cancel, Path(name))
        else:
            overhead(arguments.model, arguments.points, Path(name))
            opened(arguments.model, Path(name))


if __name__ == "__main__":
    main()
