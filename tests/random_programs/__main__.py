"""`python -m tests.random_programs --count N --seed S`: N random programs against torch, a table, and what differs."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time

os.environ["TBUDA_CACHE"] = "off"

import torch

from tests.random_programs.generate import generate
from tests.random_programs.judge import Verdict, judge


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--show", action="store_true", help="print the program beside its verdict")
    parser.add_argument("--all", action="store_true", help="also what was refused")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    found: list[Verdict] = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        program = generate(seed)
        began = time.process_time()
        verdict = judge(program)
        counts[verdict.mode, verdict.what] += 1
        took = time.process_time() - began
        if verdict.what in ("differs", "raw") or (arguments.all and verdict.what != "same"):
            found.append(verdict)
            print(f"--- {seed} {verdict.mode} {verdict.what} ({took:.1f} s): {verdict.text}", flush=True)
            if arguments.show:
                print(f"inputs {program.inputs}\n{program.text}", flush=True)
    for (mode, what), count in sorted(counts.items()):
        print(f"{mode:10} {what:8} {count:6}")
    return 1 if any(v.what in ("differs", "raw") for v in found) else 0


if __name__ == "__main__":
    sys.exit(main())
