"""The bars of netlists: python bench/netlist.py [--rounds N] [--inputs N] [--megabytes N] [--format FORMAT]

Rounding of float32 on one core; BERT-base's netlist in golden mode against torch eager float32 on one thread, per
input; device mode over golden mode; load, check and view of a netlist of 1,466 ops on 32 chips. CPU seconds; the runs
that are compared take turns, and the median of the ratios of neighbours counts. Exit code 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from machine import describe, one_thread

Row = tuple[str, float, str, float, bool]  # what, value, unit, bar, whether more is better


def rounding(megabytes: int) -> list[Row]:
    """GB/s of host conversion into memory that exists."""
    import numpy as np
    from rounding import best_rate

    from tbuda_lab.core.formats import DataFormat, quantise

    x = np.random.default_rng(0).standard_normal((megabytes * 256, 1024), dtype=np.float32)
    out = np.empty_like(x)
    bars = {DataFormat.Bfp8_b: 0.8, DataFormat.Float16_b: 3.0}
    return [
        (
            f"rounding float32 to {df.name}",
            best_rate(lambda df=df: quantise(x, df, out=out), x.nbytes),
            "GB/s",
            bar,
            True,
        )
        for df, bar in bars.items()
    ]


def executor(rounds: int, inputs: int, form: str) -> list[Row]:
    """BERT-base in a data format: CPU seconds of golden over torch, and of device over golden; `inputs` microbatches a
    turn."""
    import torch
    from executor import cpu_seconds

    from tbuda_lab.core.formats import parse_format
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.runner import Runner
    from tbuda_lab.core.session import Session
    from tests.models import make

    module, sample = make("bert")
    result = Session(module, sample, options=CompileOptions(default_df_override=parse_format(form))).compile()
    golden_mode, device_mode = Runner(result, "golden"), Runner(result, "device")
    feeds = [sample] * inputs
    turns: list[tuple[float, float, float]] = []
    with torch.no_grad():

        def eager() -> Any:
            return [module(*feed) for feed in feeds]

        eager()
        golden_mode.run(feeds)  # the first run prepares parameters
        device_mode.run(feeds)
        for _ in range(rounds):
            turns.append(
                (
                    cpu_seconds(eager),
                    cpu_seconds(lambda: golden_mode.run(feeds)),
                    cpu_seconds(lambda: device_mode.run(feeds)),
                )
            )
    ops = sum(len(g.ops) for g in result.netlist.graphs.values())
    golden = statistics.median(g / t for t, g, _ in turns)
    device = statistics.median(d / g for _, g, d in turns)
    return [
        (f"BERT-base, {form}, {ops} ops, golden over torch eager", golden, "x", 2.5, False),
        (f"BERT-base, {form}, device over golden", device, "x", 2.0, False),
    ]


def large(ops: int = 1466, chips: int = 32) -> list[Row]:
    """Load, check, frames and page of a synthetic netlist."""
    from bignetlist import big_netlist
    from executor import cpu_seconds

    from tbuda_lab.core import netlist
    from tbuda_lab.widgets import open_netlist

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "netlist.yaml"
        netlist.dump(big_netlist(ops, chips), file)
        size = file.stat().st_size / 1e6
        load = cpu_seconds(lambda: netlist.load(file))
        whole = cpu_seconds(lambda: open_netlist(file).to_html(Path(folder) / "netlist.html"))
    return [
        (f"{ops} ops, {chips} chips, {size:.1f} MB: load", load, "s", 4.0, False),
        (f"{ops} ops, {chips} chips, {size:.1f} MB: load, check and view", whole, "s", 10.0, False),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--inputs", type=int, default=1, help="inputs per turn")
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--format", default="Float16_b", help="of BERT-base's tensors")
    arguments = parser.parse_args()
    one_thread()
    print(f"## Netlists\n\n{describe()}\n\n| what | measured | bar | |\n|---|---:|---:|---|")
    missed = 0
    for what, value, unit, bar, more in (
        *rounding(arguments.megabytes),
        *large(),
        *executor(arguments.rounds, arguments.inputs, arguments.format),
    ):
        good = value >= bar if more else value <= bar
        missed += not good
        sign = "at least" if more else "at most"
        print(f"| {what} | {value:.2f} {unit} | {sign} {bar:g} {unit} | {'met' if good else 'missed'} |", flush=True)
    print()
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
