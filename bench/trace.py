"""The timeline at a million events: simulate, open (what a page is sent first), zoom (tiles), moments, in the kernel.
Bars: BERT-base with 64 inputs 700 ms, the pyramid of a million events 1,000 ms, a zoom of them 200 ms.

    python bench/trace.py [--events 1000000] [--ops 1000]

Prints a Markdown table. `trace_browser.py` measures the same up to the drawn picture.
"""

from __future__ import annotations

import argparse
import time

import machine
import numpy as np

from tbuda_lab.core.epochsim import Trace, TraceEpoch, TraceOp, simulate
from tbuda_lab.core.frames.run_frames import blocks, moment_frame, tile_frame
from tbuda_lab.core.session import Session
from tests.models import make
from tests.session.models import encoder


def synthetic(events: int, ops: int, epochs: int = 60) -> Trace:
    """Epoch after epoch; every op of one computes and waits without a gap, spans of 20 to 400 cycles."""
    rng = np.random.default_rng(0)
    op = np.sort(rng.integers(0, ops, events)).astype(np.int32)
    length = rng.integers(20, 400, events)
    ends = np.cumsum(length)
    first = np.searchsorted(op, np.arange(ops))
    base = np.concatenate([[0], ends])[first][op]
    epoch_of = np.arange(ops) * epochs // ops
    start, end = ends - length - base, ends - base
    longest = np.zeros(epochs, dtype=np.int64)
    np.maximum.at(longest, epoch_of[op], end)
    begin = np.concatenate([[0], np.cumsum(longest + 20_000)[:-1]]) + 20_000
    shift = begin[epoch_of[op]]
    lanes = tuple(TraceOp(f"layer.{i // 40}.op_{i}", int(epoch_of[i]), 0, (i % 8, i % 7, 1, 1)) for i in range(ops))
    rounds = tuple(TraceEpoch(e, 0, 0, int(begin[e]), int(begin[e] + longest[e])) for e in range(epochs))
    return Trace(
        lanes,
        rounds,
        1e9,
        op,
        rng.integers(0, 64, events).astype(np.int32),
        start + shift,
        end + shift,
        rng.integers(0, 4, events).astype(np.uint8),
        np.full(events, -1, np.int32),
    )


def timed(work: object) -> float:
    began = time.process_time()
    work()  # type: ignore[operator]
    return 1000 * (time.process_time() - began)


def bert() -> float:
    """Milliseconds for 64 inputs, the fastest of three runs."""
    result = Session(*make("bert"), "wormhole_b0").compile()
    return min(timed(lambda: simulate(result, 64)) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--ops", type=int, default=1000)
    asked = parser.parse_args()
    machine.one_thread()
    print(machine.describe() + "\n")
    print("| what | ms of processor time | bar |\n|---|---:|---:|")
    print(f"| simulate BERT-base, 64 inputs | {bert():,.0f} | 700 |")
    session = Session(*encoder(2), "n150")
    session.compile()
    inputs = max(1, asked.events // max(1, len(session.timeline(8).trace) // 8))
    print(f"| simulate two encoder layers, {inputs:,} inputs | {timed(lambda: session.timeline(inputs)):,.0f} | |")
    print(
        f"| its pyramid, {len(session.timeline(inputs).trace):,} events | "
        f"{timed(lambda: session.timeline(inputs).trace.pyramid):,.0f} | |"
    )

    trace = synthetic(asked.events, asked.ops)
    print(f"| pyramid of {len(trace):,} events, {asked.ops:,} ops | {timed(lambda: trace.pyramid):,.0f} | 1,000 |")
    rng = np.random.default_rng(1)
    ends = [
        (0, trace.cycles),
        *(
            (a, a + 2**w)
            for a, w in zip(rng.integers(0, trace.cycles, 40).tolist(), rng.integers(3, 24, 40).tolist(), strict=True)
        ),
    ]
    zooms = [timed(lambda a=a, b=b: trace.zoom(a, b)) for a, b in ends]
    print(f"| a zoom: median / largest | {np.median(zooms):.1f} / {max(zooms):.1f} | 200 |")
    cuts, sizes, times = len(blocks(trace)), [], []
    for level in range(16):
        for _ in range(12):
            where = (level, int(rng.integers(0, 1 << level)), int(rng.integers(0, cuts)))
            began = time.process_time()
            _, buffer = tile_frame(trace, *where).pack()
            times.append(1000 * (time.process_time() - began))
            sizes.append(len(buffer))
    print(f"| a tile, any level: median / largest | {np.median(times):.1f} / {max(times):.1f} | |")
    moments = [timed(lambda c=c: moment_frame(trace, c).pack()) for c in rng.integers(0, trace.cycles, 50).tolist()]
    print(f"| a moment: median / largest | {np.median(moments):.1f} / {max(moments):.1f} | |")
    print(
        f"\nLargest tile: {max(sizes) / 1024:.0f} KiB. A zoom asks for at most three tiles per block of 32 lanes in "
        "sight, two blocks as a rule."
    )


if __name__ == "__main__":
    main()
