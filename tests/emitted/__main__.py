"""`python -m tests.emitted [--count 200] [--faults 40] [--models NAME ...]`: emits and checks netlists, and plants
faults in some of them. Exits with 1 where a netlist is not clean or a fault is not found."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter

os.environ["TBUDA_CACHE"] = "off"

import torch

from tests.emitted.compiles import formats, jobs
from tests.emitted.sweep import seeded_faults, sweep

BENCH = ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert", "resnet50", "yolov5", "gpt2_small", "bert_large")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emitted", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--models", nargs="*", default=list(BENCH))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clean, bad, noted, bases = 0, 0, Counter[str](), []
    began = time.process_time()
    for checked in sweep([*jobs(tuple(arguments.models)), *formats("mlp"), *formats("unet")]):
        clean, bad = clean + (not checked.errors), bad + bool(checked.errors)
        noted += Counter(set(checked.warnings))
        print(
            f"{clean + bad:4} {checked.job} {'clean' if not checked.errors else 'ERRORS'} "
            f"{dict(checked.warnings) or ''} {time.process_time() - began:.0f} s",
            flush=True,
        )
        for text in checked.errors:
            print("    ", text, flush=True)
        if checked.netlist is not None and not checked.errors and len(bases) < 24 and (clean % 5 == 0):
            bases.append((checked.netlist, checked.device))
        if clean + bad >= arguments.count:
            break
    print(f"netlists clean: {clean} of {clean + bad}; with notes: {dict(noted)}")
    missed = 0
    results = list(seeded_faults(bases, arguments.faults)) if bases else []
    for planted, errors in results:
        missed += not errors
        print(f"{planted.kind:30} {planted.names[0]:40} {errors[0][:150] if errors else 'NOT FOUND'}", flush=True)
    print(f"faults found: {len(results) - missed} of {len(results)}")
    return 1 if bad or missed else 0


if __name__ == "__main__":
    sys.exit(main())
