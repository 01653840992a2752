"""The executor against torch eager float32 on the same model, per input after the first: every test model, or those
named. Bars: `BARS`, for any other model `OTHERS`.

    python bench/executor.py [MODEL ...] [--device NAME] [--rounds N]

Both on one thread, in turns (torch, executor, torch, ...), so that whatever else the machine does hits both alike.
The table gives the medians of CPU milliseconds, the median of the ratios of neighbours, and the ratio of the two least
times, which a busy machine moves less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from machine import describe, one_thread

from tests.models import NAMES, make

BARS = {"bert": 1.0, "gpt2": 1.0, "resnet18": 1.2, "mobilenet_v2": 1.5}
OTHERS = 4.0


def cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(NAMES))
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    one_thread()

    import torch

    from tbuda_lab.core.session import Session

    print(f"## Executor, Float16_b, golden mode ({arguments.device})\n\n{describe()}\n")
    print("| model | torch eager, CPU ms | executor, CPU ms | ratio | of the least | bar |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in arguments.models:
        module, inputs = make(name)
        session = Session(module, inputs, device=arguments.device)
        session.compile()
        with torch.no_grad():
            module(*inputs)
            session.run([inputs])
            pairs = [
                (cpu_seconds(lambda: module(*inputs)), cpu_seconds(lambda: session.run([inputs])))  # noqa: B023
                for _ in range(arguments.rounds)
            ]
        ratio = statistics.median(ours / theirs for theirs, ours in pairs)
        columns = list(zip(*pairs, strict=True))
        theirs, ours = (1e3 * statistics.median(column) for column in columns)
        least = min(columns[1]) / min(columns[0])
        print(
            f"| {name} | {theirs:.2f} | {ours:.2f} | {ratio:.2f} | {least:.2f} | {BARS.get(name, OTHERS):.1f} |",
            flush=True,
        )
    print()


if __name__ == "__main__":
    main()
