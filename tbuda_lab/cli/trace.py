"""The modelled schedule of a compile as Chrome trace JSON, for chrome://tracing, Perfetto and others.

One process per chip, one thread per row of lanes; a lane holds ops that do not overlap in time. Times are modelled
kernel cycles of one input at the device's clock, epochs one after the other: what the balancer believes, not a
measurement. Format: "Trace Event Format" (complete events, times in microseconds).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbuda_lab.core.compiler import CompileResult


def trace_events(result: CompileResult) -> list[dict[str, Any]]:
    """Complete ("X") events for epochs and ops, with placement facts as arguments, and names for the processes."""
    placement, clock = result.placement, result.device.clock_hz
    microseconds = 1e6 / clock
    duration: dict[int, int] = {}
    for epoch, cycles in zip(placement.epochs, placement.epoch_cycles, strict=True):
        duration[epoch.temporal] = max(duration.get(epoch.temporal, 0), int(cycles))
    start, now = {}, 0
    for temporal in sorted(duration):
        start[temporal] = now
        now += duration[temporal]

    chips = sorted({epoch.chip for epoch in placement.epochs})
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": chip, "args": {"name": f"{result.device.name} chip {chip}"}}
        for chip in chips
    ]
    for epoch in placement.epochs:
        begin = start[epoch.temporal]
        events.append({
            "ph": "X", "cat": "epoch", "name": f"epoch {epoch.index}", "pid": epoch.chip, "tid": 0,
            "ts": begin * microseconds, "dur": duration[epoch.temporal] * microseconds,
            "args": {"temporal epoch": epoch.temporal, "ops": len(epoch.ops)},
        })
        for lane, name in enumerate(epoch.ops, start=1):
            placed = placement.ops[name]
            cycles = int(placement.candidate(name)["cycles"])
            events.append({
                "ph": "X", "cat": "op", "name": name, "pid": epoch.chip, "tid": lane,
                "ts": begin * microseconds, "dur": cycles * microseconds,
                "args": {"cycles": cycles, "start": list(placed.start), "size": list(placed.size)},
            })
    return events


def write_trace(result: CompileResult, path: Path) -> None:
    """Write the trace to `path` (a name that the caller renames when all is done)."""
    trace = {"displayTimeUnit": "ns", "traceEvents": trace_events(result)}
    path.write_text(json.dumps(trace) + "\n", encoding="utf-8")
