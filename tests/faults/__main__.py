"""`python -m tests.faults [--count 200] [--clean 40] [--seed 0]`: plants faults of six kinds in six models and asks
`Session.find_error` for them, then asks it of clean models. Exits with 1 where fewer than 95 % are found with op and
stage, one in twenty takes more than three runs' time, or a clean model raises an alarm."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import warnings
from collections import Counter

os.environ["TBUDA_CACHE"] = "off"

import numpy as np
import torch

from tests.faults.judge import clean_alarms, try_fault
from tests.faults.models import MODELS
from tests.faults.plant import KINDS

RUNS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--clean", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    source, ratios, right = random.Random(arguments.seed), [], 0
    found: Counter[tuple[str, str]] = Counter()
    barren: set[tuple[str, str]] = set()
    pairs = itertools.cycle(itertools.product(MODELS, KINDS))
    while len(ratios) < arguments.count:
        model, kind = next(pairs)
        if (model, kind) in barren:
            continue
        outcome = try_fault(model, kind, source)
        if outcome is None:
            barren.add((model, kind))
            continue
        ratios.append(outcome.ratio)
        right += outcome.right
        found[kind, outcome.fault.stage] += 1
        print(f"{len(ratios):4} {model:10} {kind:16} {outcome}", flush=True)
    alarms = clean_alarms(arguments.clean)
    print("\n".join(alarms))
    print(f"alarms of {arguments.clean} clean models: {len(alarms)}")
    if not ratios:
        return 1 if alarms else 0
    print(f"planted: {dict(found)}")
    print(
        f"right op and stage: {right} of {len(ratios)}; in runs of the model, median {np.median(ratios):.2f}, "
        f"95th percentile {np.quantile(ratios, 0.95):.2f}, most {max(ratios):.2f}, within {RUNS:g} runs "
        f"{sum(ratio <= RUNS for ratio in ratios)}"
    )
    return 1 if right < 0.95 * len(ratios) or np.quantile(ratios, 0.95) > RUNS or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
