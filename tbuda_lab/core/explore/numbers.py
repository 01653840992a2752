"""The numbers of a trial: what a compile takes and what it needs, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.analysis.memory import l1_maps
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.epochsim import cycles_of_batches
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.runner import Runner, fill_microbatch, refuse_without_weights
from tbuda_lab.core.verification import measure_error


@dataclasses.dataclass(frozen=True)
class Number:
    """What a number means, its unit, and whether "min" or "max" of it is usually wanted. measured: it takes a run, or
    is a time of this machine, so it is not among what every trial has."""

    meaning: str
    unit: str
    better: str
    measured: bool = False


NUMBERS: dict[str, Number] = {
    "cycles/input": Number("simulated cycles of a batch, per input", "cycles", "min"),
    "samples/s": Number("inputs per second at the device's clock", "1/s", "max"),
    "latency_ms": Number("time of one input alone, from end to end", "ms", "min"),
    "chips": Number("chips of the device", "", "min"),
    "cores": Number("cores that the fullest epoch uses", "", "min"),
    "epochs": Number("epochs", "", "min"),
    "l1_bytes": Number("buffers in L1 of the fullest core, as the check of the netlist counts them", "bytes", "min"),
    "dram_bytes": Number("queues in DRAM", "bytes", "min"),
    "host_bytes": Number("queues in host memory", "bytes", "min"),
    "pcc": Number("lowest correlation of an output with torch", "", "max", True),
    "compile_s": Number("CPU time of the compile", "s", "min", True),
}
"""Numbers by name; objectives and requirements name them."""


def numbers_of(result: CompileResult) -> dict[str, float]:
    """All that need no run. Bytes, cycles, seconds as `NUMBERS` says."""
    batch, device, placement = result.options.microbatch, result.device, result.placement
    whole, alone = cycles_of_batches(result, (batch, 1))
    cycles = whole / batch
    cores = [sum(int(np.prod(placement.ops[op].size)) for op in epoch.ops) for epoch in placement.epochs]
    where = {"dram": 0, "host": 0}
    for queue in placement.queues.values():
        where[queue.location] = where.get(queue.location, 0) + queue.bytes_per_buffer * len(queue.buffers)
    return {
        "cycles/input": float(cycles),
        "samples/s": device.clock_hz / max(1.0, cycles),
        "latency_ms": 1e3 * alone / device.clock_hz,
        "chips": float(len(device.chips)),
        "cores": float(max(cores, default=0)),
        "epochs": float(len(placement.epochs)),
        "l1_bytes": float(max((m.used for m in l1_maps(result)), default=0)),
        "dram_bytes": float(where["dram"]),
        "host_bytes": float(where["host"]),
    }


def references(graph: Graph, sample: Any) -> list[torch.Tensor]:
    """The outputs of a traced graph for a sample, evaluated in torch. Raises `InputError` for a graph without
    weights."""
    refuse_without_weights(graph)
    feeds = frontend.feeds(graph, sample)
    parts = [list(evaluate(graph, feed).values()) for feed in elements(graph, feeds)]
    return [torch.cat(column) if len(parts) > 1 else column[0] for column in zip(*parts, strict=True)]


def correlation(result: CompileResult, sample: Any, expected: Sequence[torch.Tensor]) -> float:
    """The lowest correlation of an output with what is expected (see `references`) for a sample, as the device
    rounds."""
    got = Runner(result, "golden").run(fill_microbatch(result, [sample]))[0]
    errors = [measure_error(str(k), w.numpy(), g.numpy()) for k, (w, g) in enumerate(zip(expected, got, strict=True))]
    return min((float(e.pcc) for e in errors), default=1.0)


def thumbnail(result: CompileResult) -> list[list[Any]]:
    """Of each epoch its chip and the (row, column, rows, columns) of its ops: enough to draw it small."""
    placement = result.placement
    return [
        [epoch.chip, [[*map(int, placement.ops[op].start), *map(int, placement.ops[op].size)] for op in epoch.ops]]
        for epoch in placement.epochs
    ]
