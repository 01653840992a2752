"""From module to netlist, stage by stage. Bars: `BARS` in seconds at batch 1; the second compile of a model, which
takes what was decided from the cache on disk, <= 1 CPU second.

    python bench/compile_stages.py [MODEL ...] [--device NAME] [--batch N] [--second]

Prints a Markdown table. Each model is compiled once, in a process of its own, with the cache off; with --second it is
compiled in two processes that share a new folder, and the table is that of the second one. The imports and the making
of the model are not counted; what a compile imports later is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from machine import describe, one_thread

BARS = {"bert": 5.0, "resnet50": 5.0, "gpt2_small": 6.0, "bert_large": 10.0, "unet": 6.0, "resnet18": 30.0}
SECOND_BAR = 1.0


def child(name: str, device: str, batch: int) -> None:
    """Compile one model; print seconds per stage, wall clock and CPU seconds of all, and what came out, as JSON."""
    one_thread()

    from bench.models import make
    from tbuda_lab.core.netlist import dumps
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    module, inputs = make(name)
    wall, cpu = time.perf_counter(), time.process_time()
    session = Session(module, inputs, device=device, options=CompileOptions(microbatch=batch))
    result = session.compile()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    what = f"{len(result.placement.ops)} ops, {len(result.placement.epochs)} epochs"
    digest = hashlib.sha256(dumps(result.netlist).encode()).hexdigest()
    print(json.dumps({"stages": session.timings, "wall": wall, "cpu": cpu, "what": what, "netlist": digest}))


def compiled(name: str, device: str, batch: int, cache: str) -> dict[str, Any]:
    """What `child` prints of one model, in a new process with this cache."""
    command = [sys.executable, __file__, name, "--device", device, "--batch", str(batch), "--child"]
    environment = os.environ | {"TBUDA_CACHE": cache}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    row: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return row


def second(name: str, device: str, batch: int) -> dict[str, Any]:
    """The second of two compiles with one cache. Its netlist has to be the first one's."""
    with tempfile.TemporaryDirectory() as folder:
        before, row = (compiled(name, device, batch, folder) for _ in range(2))
    if row["netlist"] != before["netlist"]:
        raise SystemExit(f"{name}: the second compile comes to another netlist")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "gpt2", "resnet18", "mobilenet_v2"])
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--second", action="store_true", help="measure the second compile, from the cache on disk")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device, batch = arguments.device, arguments.batch
    if arguments.child:
        child(arguments.models[0], device, batch)
        return
    rows = {}
    for name in arguments.models:
        rows[name] = second(name, device, batch) if arguments.second else compiled(name, device, batch, "off")
    stages = list(next(iter(rows.values()))["stages"])
    which = "Second compile, trace to netlist" if arguments.second else "Trace to netlist"
    print(f"## {which}, seconds ({device}, batch {batch})\n\n{describe()}\n")
    print(f"| model | result | {' | '.join(stages)} | all | CPU | bar |")
    print("|---|---|" + "---:|" * (len(stages) + 3))
    for name, row in rows.items():
        columns = " | ".join(f"{row['stages'][stage]:.2f}" for stage in stages)
        limit = SECOND_BAR if arguments.second else BARS.get(name)
        bar = f"{limit:.0f}" if limit is not None else ""
        print(f"| {name} | {row['what']} | {columns} | **{row['wall']:.2f}** | {row['cpu']:.2f} | {bar} |")
    print()


if __name__ == "__main__":
    main()
