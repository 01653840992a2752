"""From module to netlist, stage by stage. Bars: BERT-base <= 20 s, ResNet-18 <= 30 s.

    python bench/compile_stages.py [MODEL ...] [--device NAME] [--repeat N]

Prints a Markdown table; wall clock and CPU seconds of the fastest of N compiles.
"""

from __future__ import annotations

import argparse
import time

from machine import describe, one_thread

BARS = {"bert": 20.0, "resnet18": 30.0}


def measure(name: str, device: str) -> tuple[dict[str, float], float, float, str]:
    """(seconds per stage, wall clock of all, CPU of all, what came out) of one compile."""
    from tbuda_lab.core.session import Session
    from tests.models import make

    module, inputs = make(name)
    wall, cpu = time.perf_counter(), time.process_time()
    session = Session(module, inputs, device=device)
    result = session.compile()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    what = f"{len(result.placement.ops)} ops, {len(result.placement.epochs)} epochs"
    return dict(session.timings), wall, cpu, what


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(BARS))
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    one_thread()
    print(f"## Trace to netlist ({arguments.device})\n\n{describe()}\n")
    print("| model | result | stage | wall s | share |\n|---|---|---|---:|---:|")
    for name in arguments.models:
        stages, wall, cpu, what = min((measure(name, arguments.device) for _ in range(arguments.repeat)),
                                      key=lambda row: row[1])
        for stage, seconds in stages.items():
            print(f"| {name} | {what} | {stage} | {seconds:.2f} | {seconds / wall:.0%} |")
        bar = f" (bar {BARS[name]:.0f} s)" if name in BARS else ""
        print(f"| **{name}** | {what} | **all**{bar} | **{wall:.2f}** ({cpu:.2f} CPU) | |")
    print()


if __name__ == "__main__":
    main()
