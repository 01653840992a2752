"""`python -m tests.sizes --count N --seed S`: draws cases and lists those that fail; ends with 1 where one does."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sizes.cases import cases, fault


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many CPU seconds")
    arguments = parser.parse_args()
    start, wrong, done = time.process_time(), 0, 0
    for case in cases(arguments.count, arguments.seed):
        if time.process_time() - start > arguments.seconds:
            break
        began = time.process_time()
        found = fault(case)
        done += 1
        seconds = time.process_time() - began
        if found or seconds > 20:
            wrong += bool(found)
            print(f"{case} ({seconds:.1f} s): {found or 'slow'}", flush=True)
    print(f"{done} cases of seed {arguments.seed}, {wrong} wrong, {time.process_time() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
