"""The executor against torch eager float32 on the same model, per input after the first. Bar: BERT-base <= 4x.

    python bench/executor.py [MODEL ...] [--device NAME] [--rounds N]

Both on one thread, in turns (torch, executor, torch, ...), so that whatever else the machine does hits both alike.
The table gives the median of CPU seconds and the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from machine import describe, one_thread

BARS = {"bert": 4.0}


def cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "gpt2", "resnet18", "mobilenet_v2"])
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    one_thread()

    import torch

    from tbuda_lab.core.session import Session
    from tests.models import make

    print(f"## Executor, Float16_b, golden mode ({arguments.device})\n\n{describe()}\n")
    print("| model | torch eager, CPU s | executor, CPU s | ratio | bar |\n|---|---:|---:|---:|---:|")
    for name in arguments.models:
        module, inputs = make(name)
        session = Session(module, inputs, device=arguments.device)
        session.compile()
        with torch.no_grad():
            module(*inputs)
            session.run([inputs])
            pairs = [(cpu_seconds(lambda: module(*inputs)), cpu_seconds(lambda: session.run([inputs])))  # noqa: B023
                     for _ in range(arguments.rounds)]
        ratio = statistics.median(ours / theirs for theirs, ours in pairs)
        torch_s, ours_s = (statistics.median(column) for column in zip(*pairs, strict=True))
        bar = f"{BARS[name]:.1f}" if name in BARS else ""
        print(f"| {name} | {torch_s:.3f} | {ours_s:.3f} | {ratio:.2f} | {bar} |")
    print()


if __name__ == "__main__":
    main()
