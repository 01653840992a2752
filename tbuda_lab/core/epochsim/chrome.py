"""Chrome trace JSON: "Trace Event Format", complete events, times in microseconds at the device's clock.

A process per chip. Its first thread shows the epochs; each further one an op of whatever epoch runs, in the order of
the epoch, so that a trace of many epochs stays as high as its largest. Waits are events of their own, named after what
is waited for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.epochsim.pyramid import KIND_NAMES
from tbuda_lab.core.files import atomic_text

if TYPE_CHECKING:
    from tbuda_lab.core.epochsim.trace import Trace

_COLOURS = ("thread_state_running", "thread_state_runnable", "terrible", "thread_state_iowait", "thread_state_unknown")


def write_chrome_trace(trace: Trace, path: Path) -> None:
    """Write `trace` to `path`. The file appears when it is complete. Raises `OutputError`."""
    with atomic_text(path) as stream:
        stream.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        first = True
        for line in _lines(trace):
            stream.write(line if first else ",\n" + line)
            first = False
        stream.write("\n]}\n")


def _lines(trace: Trace) -> Iterator[str]:
    lanes: dict[tuple[int, int], int] = {}
    lane_of = []
    for op in trace.ops:
        key = (op.chip, op.epoch)
        lanes[key] = lanes.get(key, 0) + 1
        lane_of.append(lanes[key])
    for chip in sorted({e.chip for e in trace.epochs} | {o.chip for o in trace.ops}):
        yield _meta("process_name", chip, 0, {"name": f"chip {chip}"})
        yield _meta("thread_name", chip, 0, {"name": "epochs"})
        for lane in range(1, 1 + max((n for (c, _), n in lanes.items() if c == chip), default=0)):
            yield _meta("thread_name", chip, lane, {"name": f"op {lane} of the epoch"})
            yield _meta("thread_sort_index", chip, lane, {"sort_index": lane})
    scale = 1e6 / trace.clock_hz
    for epoch in trace.epochs:
        yield json.dumps({
            "ph": "X", "cat": "epoch", "name": f"epoch {epoch.epoch}", "pid": epoch.chip, "tid": 0,
            "ts": epoch.start * scale, "dur": (epoch.end - epoch.start) * scale,
            "args": {"run": epoch.run, "cycles": epoch.end - epoch.start},
        })
    heads = []
    for op, lane in zip(trace.ops, lane_of, strict=True):
        row, col, rows, cols = op.cores
        facts = f'"epoch":{op.epoch},"cores":"{rows}x{cols} at {row},{col}"'
        heads.append((json.dumps(op.name), f'"pid":{op.chip},"tid":{lane}', facts))
    names = [json.dumps(op.name) for op in trace.ops]
    columns = (trace.op, trace.input, trace.start, trace.end, trace.kind, trace.cause)
    for op_, input_, start, end, kind, cause in zip(*(c.tolist() for c in columns), strict=True):
        name, place, facts = heads[op_]
        title, category = (name, "op") if kind == 0 else (f'"{KIND_NAMES[kind]}"', "wait")
        blame = f',"for":{names[cause]}' if cause >= 0 else ""
        yield (
            f'{{"ph":"X","cat":"{category}","name":{title},{place},"ts":{start * scale!r},"dur":'
            f'{(end - start) * scale!r},"cname":"{_COLOURS[kind]}","args":{{"op":{name},"input":{input_},'
            f'"cycles":{end - start},{facts}{blame}}}}}'
        )


def _meta(name: str, process: int, thread: int, facts: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": process, "tid": thread, "args": facts})
