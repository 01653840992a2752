"""Text tables of a compile for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.errors import counted

if TYPE_CHECKING:
    from tbuda_lab.core.compiler import CompileResult


def epoch_table(result: CompileResult) -> str:
    """One line per epoch: when it runs, chip, ops, cores used, slowest op and its modelled cycles per input."""
    placement, device = result.placement, result.device
    total = device.rows * device.cols
    header = f"{'epoch':>5s} {'runs':>5s} {'chip':>4s} {'ops':>4s} {'cores':>9s} {'cycles':>10s}  slowest op"
    lines = [header, "-" * len(header)]
    for epoch in placement.epochs:
        cores = sum(int(np.prod(placement.ops[op].size)) for op in epoch.ops)
        slowest = max(epoch.ops, key=lambda op: int(placement.candidate(op)["cycles"]))
        lines.append(
            f"{epoch.index:5d} {epoch.temporal:5d} {epoch.chip:4d} {len(epoch.ops):4d} {cores:4d}/{total:<4d} "
            f"{placement.epoch_cycles[epoch.index]:10,d}  {slowest}"
        )
    return "\n".join(lines)


def modelled_cycles(result: CompileResult) -> int:
    """Kernel cycles per input: the slowest op of each epoch, epochs of one temporal number side by side on chips."""
    from tbuda_lab.core.frames.opsframe import total_cycles

    placement = result.placement
    return int(total_cycles([epoch.temporal for epoch in placement.epochs], placement.epoch_cycles))


def summary(result: CompileResult) -> str:
    """What was compiled for what, and the modelled speed: first what a batch takes in the simulator of epochs."""
    device = result.device
    cycles = modelled_cycles(result)
    value = result.placement.report.objective if result.placement.report is not None else None
    took = []
    if value is not None:
        several = len(device.chips) > 1
        time, together = (value.slowest_chip, "all chips together: ") if several else (value.time, "")
        took = [
            f"modelled: {time:,.0f} cycles per input in a batch of {value.inputs}, "
            f"{device.clock_hz / max(1.0, time):,.1f} inputs/s at {device.clock_hz / 1e9:.2f} GHz "
            f"({together}slowest ops {value.limiter:,.0f}, filling and waiting {value.waiting:,.0f}, "
            f"switches of epochs {value.switch:,.0f}; lower bound {value.bound:,.0f})"
        ]
    chips = "" if len(device.chips) == 1 else f", {len(device.chips)} chips"
    epochs = len(result.placement.epochs)
    lines = [
        f"{counted(len(result.placement.ops), 'op')} on {device.name} ({device.arch}, {device.rows}x{device.cols} "
        f"cores{chips}) in {counted(epochs, 'epoch')}",
        *took,
        f"kernels alone: {cycles:,} cycles per input, {device.clock_hz / max(1, cycles):,.1f} inputs/s",
    ]
    lines += [str(diagnostic) for diagnostic in result.diagnostics]
    return "\n".join(lines)
