"""Speed of the host's rounding: python bench/rounding.py [--megabytes N]

Prints GB/s of float32 input per data format on one core, best of several runs of user CPU time, into memory that
already exists. Bars: Bfp8_b 0.8, Float16_b 3.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import machine
import numpy as np

from tbuda_lab.core.formats import DataFormat, quantise, round_to, tf32

BARS = {"Bfp8_b": 0.8, "Float16_b": 3.0}


def best_rate(call: Callable[[], object], size: int, repeats: int = 7) -> float:
    """GB/s of the quickest run, by CPU time of this process."""
    call()
    quickest = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        quickest = min(quickest, time.process_time() - start)
    return size / quickest / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=32)
    args = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((args.megabytes * 2**18 // 1024, 1024), dtype=np.float32)
    out = np.empty_like(x)
    formats = [df for df in DataFormat if df.is_float or df.is_integer]
    print(f"## Rounding float32\n\n{machine.describe()}\n")
    print(f"{'format':12} {'host GB/s':>10} {'packer GB/s':>12} {'bar':>5}")
    failed = 0
    for df in formats:
        if df is DataFormat.Float32:
            continue
        host = best_rate(lambda df=df: quantise(x, df, out=out), x.nbytes)
        packer = best_rate(lambda df=df: round_to(x, df, out=out), x.nbytes)
        bar = BARS.get(df.name)
        failed += bar is not None and host < bar
        print(f"{df.name:12} {host:10.2f} {packer:12.2f} {bar if bar is not None else '':>5}")
    print(f"{'tf32':12} {best_rate(lambda: tf32(x, out=out), x.nbytes):10.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
