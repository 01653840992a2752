"""What an exploration costs beside the compiles that it is made of, and how soon it answers.

    python bench/explore.py [--model NAME] [--points N] [--cancel WORKERS]

Prints, in CPU seconds of this process: N points compiled one by one, the same points as an exploration in process (bar:
at most 5 % more), and a point opened from its trial's placement (bar: 2 s of wall time on a machine that does nothing
else). With `--cancel`: wall seconds from a cancel until it is idle (bar: 2 s), with so many workers, 0: in process.
"""

from __future__ import annotations

import argparse
import os
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--cancel", type=int, metavar="WORKERS")
    arguments = parser.parse_args()
    one_thread()
    print(describe())
    with tempfile.TemporaryDirectory() as name:
        if arguments.cancel is not None:
            cancelled(arguments.model, arguments.cancel, Path(name))
        else:
            overhead(arguments.model, arguments.points, Path(name))
            opened(arguments.model, Path(name))


if __name__ == "__main__":
    main()
