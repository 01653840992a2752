"""`make fuzz`: all files of every kind, or those named; prints a table, and every file at fault with its seed.

Files are read in forked processes, some at a time, so that one that ends its process is seen, and none is charged with
the memory of those before it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.attack import Outcome, attack
from tests.fuzz.subjects import SUBJECTS, Subject

AT_ONCE = 25
HANGS = 60
"""CPU seconds of one file after which its process is ended: well beyond what is a fault."""


def some(subject: Subject, seeds: range, out: Connection) -> None:
    for seed in seeds:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + HANGS, resource.RLIM_INFINITY))
        out.send(attack(subject, seed))
    out.close()


def outcomes(subject: Subject, seeds: range) -> list[Outcome]:
    """What became of some files; one whose process ended has that as its fault."""
    context = multiprocessing.get_context("fork")
    outcomes: list[Outcome] = []
    while len(outcomes) < len(seeds):
        source, sink = context.Pipe(duplex=False)
        left = seeds[len(outcomes) : len(outcomes) + AT_ONCE]
        process = context.Process(target=some, args=(subject, left, sink))
        process.start()
        sink.close()
        count = len(outcomes)
        try:
            while len(outcomes) < count + len(left):
                outcomes.append(source.recv())
        except EOFError:
            process.join()
            seed = seeds[len(outcomes)]
            outcomes.append(Outcome(subject.name, seed, False, 0.0, 0, f"the process ended with {process.exitcode}"))
        process.join()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="KIND", help=f"of {', '.join(SUBJECTS)}; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="share of the full number of files, e.g. 0.1")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    wrong = 0
    print(f"{'files':20} {'read':>7} {'refused':>8} {'faults':>7} {'CPU s':>8} {'slowest':>8} {'MiB':>6}")
    for name in arguments.subjects or SUBJECTS:
        subject = SUBJECTS[name]
        with tempfile.TemporaryDirectory() as folder:  # what all files are made of is made once, before any fork
            subject.read(subject.make(random.Random(0), Path(folder), 0))
        began = time.monotonic()
        count = max(1, int(subject.count * arguments.share))
        result = outcomes(subject, range(arguments.first, arguments.first + count))
        faults = [o for o in result if o.fault]
        wrong += len(faults)
        refused = sum(o.refused for o in result)
        print(
            f"{name:20} {len(result) - refused - len(faults):7} {refused:8} {len(faults):7} "
            f"{sum(o.seconds for o in result):8.1f} {max(o.seconds for o in result):8.2f} "
            f"{max(o.bytes for o in result) >> 20:6}   {time.monotonic() - began:.0f} s",
            flush=True,
        )
        seen: set[str] = set()
        for outcome in faults:
            if outcome.fault not in seen:
                seen.add(outcome.fault)
                print(f"    seed {outcome.seed}: {outcome.fault}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
