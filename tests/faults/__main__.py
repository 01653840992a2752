"""`python -m tests.faults [--count 200] [--clean 40]`: plants faults and prints how many are found.

A fault counts where it changes what leaves the device: the run that has it, against the module run eagerly. One that
changes nothing (a transposed operand that is symmetric) is drawn again.
"""

from __future__ import annotations

import argparse
import collections
import random
import time
import warnings

from tests.faults.judge import clean_alarms, try_fault
from tests.faults.models import MODELS
from tests.faults.plant import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--clean", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    random_ = random.Random(arguments.seed)
    results, begin = [], time.monotonic()
    while len(results) < arguments.count and time.monotonic() - begin < arguments.seconds:
        model = list(MODELS)[len(results) % len(MODELS)]
        kind = KINDS[len(results) // len(MODELS) % len(KINDS)]
        outcome = try_fault(model, kind, random_)
        if outcome is None:
            kind = random_.choice(KINDS)
            outcome = try_fault(model, kind, random_)
        if outcome is None:
            continue
        results.append(outcome)
        planted = outcome.fault
        print(len(results), model, planted.kind, planted.stage, outcome.right, f"{outcome.ratio:.1f}", flush=True)
        if not outcome.right:
            print(
                f"{model}: {outcome.fault.kind} at {outcome.fault.stage} {outcome.fault.op}: found {outcome.report}",
                flush=True,
            )
    by = collections.Counter((r.fault.kind, r.fault.stage) for r in results)
    good = collections.Counter((r.fault.kind, r.fault.stage) for r in results if r.right)
    for key, count in sorted(by.items()):
        print(f"{key[0]:18} {key[1]:8} {good[key]:3} of {count}")
    right = sum(r.right for r in results)
    times = sorted(r.ratio for r in results)
    print(
        f"op and stage right: {right} of {len(results)} ({right / max(1, len(results)):.1%}); "
        f"time over that of a run: median {times[len(times) // 2]:.1f}, largest {times[-1]:.1f}"
    )
    alarms = clean_alarms(arguments.clean)
    print(f"alarms on {arguments.clean} clean models: {len(alarms)}")
    for alarm in alarms:
        print("  ", alarm)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
