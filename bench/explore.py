"""What an exploration costs beside the compiles that it is made of, and whether it keeps what it promises.

    python bench/explore.py [BAR ...] [--model NAME] [--points N] [--models NAME ...]

Prints the bars of `docs/explore.md` that can be measured here, all of them where none is named:

    overhead   CPU of N points in process over the same compiles one by one (at most 5 %)
    workers    the same on two workers (at most 20 % beyond 5 CPU s a worker), and how much sooner it is over (1.6 x)
    files      rows without times on 0, 1, 2 and 4 workers (equal)
    cancel     wall seconds until it is idle, in process and on two workers (2 s), and whether a row was torn
    payload    bytes of a task, and those of weights among them (at most 1 MB for BERT-base; 0)
    opened     a point from the placement that its trial kept (2 s)
    picture    a redraw of 2,000 points in Chromium (100 ms)
    imports    what `import tbuda_lab` and the command load of Dask and Optuna (nothing)
    islands    four islands of 100 steps against one search of 400 (not worse on 8 of 10 models)
    monotone   cycles where a device has less (never 3 % fewer), for six models on six chains of devices

Exit code 1 where a bar is missed that does not depend on the machine. `python -m tests.explore_kills` kills.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import describe, one_thread

AXES = {
    "devices": ["n150", "wormhole_b0+grid=6x8"],
    "batch": [1, 4, 16, 64],
    "format": ["Float16_b", "Bfp8_b"],
    "fidelity": ["LoFi", "HiFi2", "HiFi3", "HiFi4"],
}
"""64 points, in this order."""
IDLE_AFTER = 10.0
"""Seconds of work before the cancel: workers have begun by then."""
MISSED: list[str] = []
"""Bars that were missed whatever the machine."""


def holds(bar: str, is_so: bool) -> str:
    """The word for it; a bar that is missed is remembered."""
    if not is_so:
        MISSED.append(bar)
    return "kept" if is_so else "MISSED"


def session_of(model: str, batch: int = 1) -> Any:
    """A session of a model of `bench.models`, without a cache."""
    from bench.models import make
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    module, inputs = make(model)
    return Session(module, inputs, options=CompileOptions(microbatch=batch), name=model, cache=False)


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def overhead(model: str, points: int, folder: Path) -> None:
    """Compiles alone and as an exploration, in turn, each with tables of its own."""
    import threading

    from tbuda_lab.core.explore import parse_device
    from tbuda_lab.core.explore.trial import Task, TrialRunner, graph_text
    from tbuda_lab.core.files.codec import to_plain
    from tbuda_lab.core.graph import parse_graph

    session = session_of(model)
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
        f"overhead: {points} points of {model}: compiles {alone:.1f} CPU s, exploration {explored:.1f}: "
        f"{100 * (explored / alone - 1):+.1f} % (bar 5 %)"
    )


def workers(model: str, points: int, folder: Path) -> None:
    """An exploration in process and on two workers: CPU of all processes, and wall time."""
    session = session_of(model)
    took = []
    for count in (0, 2):
        exploration = session.explore(AXES, budget=points, engine=count, out=folder / f"on{count}", cache=False)
        cpu, wall = cpu_seconds(), time.perf_counter()
        exploration.run()
        took.append((cpu_seconds() - cpu, time.perf_counter() - wall))
        exploration.close()
    (here, wall_here), (there, wall_there) = took
    print(
        f"workers: {points} points of {model}: {here:.1f} CPU s in process, {there:.1f} on two workers: "
        f"{100 * ((there - 10) / here - 1):+.1f} % beyond 5 CPU s each (bar 20 %); {wall_here / wall_there:.2f} x in "
        "wall time (bar 1.6 on a quiet machine)"
    )


def files(model: str, points: int, folder: Path) -> None:
    """Rows without times on so many workers."""
    from tbuda_lab.core.explore import without_times

    rows = []
    for count in (0, 1, 2, 4):
        exploration = session_of(model).explore(
            AXES, budget=points, engine=count, out=folder / f"w{count}", cache=False
        )
        exploration.run()
        exploration.close()
        rows.append(list(without_times(folder / f"w{count}")))
    equal = sum(other == rows[0] for other in rows)
    print(f"files: {equal} of 4 equal, {len(rows[0]) - 1} rows each: {holds('files', equal == 4)}")


def cancel(model: str, points: int, folder: Path) -> None:
    """From a cancel until nothing works."""
    from tbuda_lab.core.errors import Cancelled
    from tbuda_lab.core.explore import read

    for count in (0, 2):
        out = folder / f"cancelled{count}"
        exploration = session_of(model).explore(AXES, budget=points, engine=count, out=out, cache=False).start()
        while not exploration.progress.running and exploration.running:
            time.sleep(0.05)
        time.sleep(IDLE_AFTER)
        start = time.perf_counter()
        exploration.cancel()
        try:
            exploration.wait()
            print("cancel: it was over before the cancel: take more points")
        except Cancelled:
            took, rows = time.perf_counter() - start, len(exploration.trials)
            whole = (out / "explore.jsonl").read_bytes().endswith(b"\n")
            kept = holds("cancel", whole and len(read(out).trials) == rows)
            print(f"cancel: {count} workers idle after {took:.2f} s (bar 2 s), {rows} rows, whole: {kept}")
        exploration.close()


def payload(folder: Path) -> None:
    """What travels for a trial of BERT-base, and whether its weights change that."""
    import torch

    from tbuda_lab.core.explore.trial import Task, graph_text
    from tbuda_lab.core.options import CompileOptions, options_to_json

    session = session_of("bert")
    text = graph_text(session.trace())
    task = Task(0, {}, options_to_json(CompileOptions())).text()
    with torch.no_grad():
        for parameter in session.model.parameters():
            parameter.normal_()
    again = graph_text(type(session)(session.model, session.sample_inputs, name="bert", cache=False).trace())
    weights = 0 if again == text else len(text)
    kept = holds("payload", weights == 0 and len(text) + len(task) <= 1_000_000)
    print(f"payload: {len(text) + len(task):,} bytes for BERT-base, {weights} of them of weights: {kept}")


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
    cpu = time.process_time() - start
    print(f"opened: a point of {model}: {cpu:.2f} CPU s, {time.perf_counter() - wall:.2f} s of wall time (bar 2 s)")
    exploration.close()


def imports() -> None:
    """What is loaded of the extras."""
    code = (
        "import sys, tbuda_lab, tbuda_lab.core.session, tbuda_lab.cli\n"
        "print(*[m for m in ('dask', 'distributed', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    print(f"imports: {', '.join(loaded) or 'none'} of dask, distributed, optuna loaded: {holds('imports', not loaded)}")


def islands(models: list[str]) -> None:
    """Four islands of ten rounds of ten steps against one search of 400, from one placement."""
    from tbuda_lab.core.session import Islands

    worse = []
    for model in models:
        ends = []
        for several in (True, False):
            session = session_of(model, 16)
            start, *_, end = (
                session.optimise(steps=10, islands=Islands(4, 10)) if several else session.optimise(steps=400)
            )
            ends.append(end[1])
            if end[1] > start[1]:
                MISSED.append(f"islands: {model} ends slower than it began")
        worse += [model] * (ends[0] > ends[1])
        print(f"islands: {model}: {ends[0]:,.0f} with four islands, {ends[1]:,.0f} with one search", flush=True)
    print(f"islands: worse on {len(worse)} of {len(models)}: {holds('islands', len(worse) <= 0.2 * len(models))}")


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
            "point": {name: values[chance.randrange(len(values))] for name, values in axes.items()},
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
CHAINS_OF_CHIPS = (("n300", "n300:1"),)
"""Once more with inputs in DRAM: one chip alone may read them from host memory, which several chips cannot, and so it
has more in that."""
SIX = ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert")
ALLOWED = 0.03
"""By what part cycles may fall where a device has less."""


def monotone(model: str, folder: Path) -> list[str]:
    """What falls by more than is allowed, as text; prints every device."""
    found = []
    for chains, on_host in ((CHAINS, True), (CHAINS_OF_CHIPS, False)):
        devices = list(dict.fromkeys(name for chain in chains for name in chain))
        exploration = session_of(model).explore(
            {"devices": devices, "batch": [1, 64], "input_queues_on_host": [on_host]},
            out=folder / f"monotone-{model}-{on_host}",
            cache=False,
        )
        rows = {(t.point["device"], t.point["microbatch"]): t for t in exploration.run()}
        exploration.close()
        print("inputs in host memory" if on_host else "inputs in DRAM", flush=True)
        found += _falls(model, chains, rows)
    return found


def _falls(model: str, chains: Sequence[tuple[str, ...]], rows: Mapping[tuple[str, int], Any]) -> list[str]:
    """Prints each step of the chains. rows: trials by device and batch."""
    found = []
    for chain in chains:
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


BARS = ("overhead", "workers", "files", "cancel", "payload", "opened", "picture", "imports", "islands", "monotone")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bars", nargs="*", metavar="BAR", help="by default all")
    parser.add_argument("--model", default="resnet18", help="of overhead to opened")
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--models", nargs="+", default=list(SIX), help="of monotone and islands")
    arguments = parser.parse_args()
    unknown = set(arguments.bars) - set(BARS)
    if unknown:
        parser.error(f"there is no bar {min(unknown)}; there are {', '.join(BARS)}")
    one_thread()
    print(describe(), flush=True)
    of_points = {"overhead": overhead, "workers": workers, "files": files, "cancel": cancel}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for bar in arguments.bars or BARS:
            if bar in of_points:
                of_points[bar](arguments.model, arguments.points, folder)
            elif bar == "payload":
                payload(folder)
            elif bar == "opened":
                opened(arguments.model, folder)
            elif bar == "picture":
                picture(2000)
            elif bar == "imports":
                imports()
            elif bar == "islands":
                islands(arguments.models)
            else:
                found = [line for model in arguments.models for line in monotone(model, folder)]
                print(
                    f"monotone: {len(found)} fall by more than {100 * ALLOWED:g} %: {holds('monotone', not found)}",
                    *found,
                    sep="\n",
                )
            sys.stdout.flush()
    print(*MISSED, sep="\n")
    return int(bool(MISSED))


if __name__ == "__main__":
    sys.exit(main())
