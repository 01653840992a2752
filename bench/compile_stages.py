"""From module to netlist, stage by stage. Bars: BERT-base <= 20 s (its passes <= 5 s), ResNet-18 <= 30 s.

    python bench/compile_stages.py [MODEL ...] [--device NAME]

Prints a Markdown table. Each model is compiled once, in a process of its own, so nothing is cached; the imports and the
making of the model are not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from machine import describe, one_thread

BARS = {"bert": 20.0, "resnet18": 30.0}


def child(name: str, device: str) -> None:
    """Compile one model; print seconds per stage, wall clock and CPU seconds of all, and what came out, as JSON."""
    one_thread()

    from tbuda_lab.core.session import Session
    from tests.models import make

    module, inputs = make(name)
    wall, cpu = time.perf_counter(), time.process_time()
    session = Session(module, inputs, device=device)
    result = session.compile()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    what = f"{len(result.placement.ops)} ops, {len(result.placement.epochs)} epochs"
    print(json.dumps({"stages": session.timings, "wall": wall, "cpu": cpu, "what": what}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "gpt2", "resnet18", "mobilenet_v2"])
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.models[0], arguments.device)
        return
    rows = {}
    for name in arguments.models:
        command = [sys.executable, __file__, name, "--device", arguments.device, "--child"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        rows[name] = json.loads(answer.stdout.splitlines()[-1])
    stages = list(next(iter(rows.values()))["stages"])
    print(f"## Trace to netlist, seconds ({arguments.device})\n\n{describe()}\n")
    print(f"| model | result | {' | '.join(stages)} | all | CPU | bar |")
    print("|---|---|" + "---:|" * (len(stages) + 3))
    for name, row in rows.items():
        columns = " | ".join(f"{row['stages'][stage]:.2f}" for stage in stages)
        bar = f"{BARS[name]:.0f}" if name in BARS else ""
        print(f"| {name} | {row['what']} | {columns} | **{row['wall']:.2f}** | {row['cpu']:.2f} | {bar} |")
    print()


if __name__ == "__main__":
    main()
