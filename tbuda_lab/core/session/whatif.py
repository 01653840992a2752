"""Two placements compared: what an edit would do, and what two compiles differ in."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

import numpy as np

from tbuda_lab.core.balancer.types import OpPlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.diff import Diff, OpChange, OpState, compare_sides, same_epochs, side_of_result
from tbuda_lab.core.epochsim import BatchTime
from tbuda_lab.core.placer.interactive.placed import Placed
from tbuda_lab.core.session.batch_times import time_of

__all__ = ["Diff", "OpChange", "OpState", "diff_results"]


def diff_results(
    a: CompileResult,
    b: CompileResult,
    name_a: str = "before",
    name_b: str = "after",
    times: tuple[BatchTime, BatchTime] | None = None,
) -> Diff:
    """Compare two compiles by op name. times: their batches, simulated (`Session.time`)."""
    first, second = times or (None, None)
    return compare_sides(side_of_result(a, name_a, first), side_of_result(b, name_b, second))


@dataclasses.dataclass(frozen=True)
class Displaced:
    """An op that stands elsewhere afterwards."""

    op: str
    before: OpPlacement
    after: OpPlacement


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """Each pair is (before, after), in cycles per input.

    time: of the batch that the model is compiled for, simulated as `Session.time` does; what every view shows.
    epoch_cycles: limiter cycles of the epochs that differ; total_cycles: of the whole model, where chips that run
    together count once; kernel_cycles: the same of the slowest kernels. displaced: ops with another place, size or
    epoch; an op whose epoch is only counted differently is not among them. epochs: how many there are. queues: how many
    there are, dram_bytes: what all of them take of DRAM, dram_full: part of its fullest channel that is taken; None
    where queues were not asked for.
    """

    epoch_cycles: tuple[int, int]
    total_cycles: tuple[int, int]
    kernel_cycles: tuple[int, int]
    displaced: tuple[Displaced, ...]
    epochs: tuple[int, int]
    switch_cycles: float
    time: tuple[float, float]
    queues: tuple[int, int] | None = None
    dram_bytes: tuple[int, int] | None = None
    dram_full: tuple[float, float] | None = None

    @property
    def epochs_delta(self) -> int:
        return self.epochs[1] - self.epochs[0]

    @property
    def gain(self) -> float:
        """Cycles per input saved, simulated: stalls, filling and switches of epochs included."""
        return self.time[0] - self.time[1]


def compare_placed(before: Placed, after: Placed, *, queues: bool = False) -> WhatIf:
    """What changes from one placement to the other. queues: place them as well; raises what placing them raises."""
    use = [_dram(placed) for placed in (before, after)] if queues else []
    selected = {id(s) for s in before.segments} & {id(s) for s in after.segments}
    old, new = _costs(before, selected), _costs(after, selected)
    same = old.keys() & new.keys()
    differ_old = sum(cost for key, cost in old.items() if key not in same)
    differ_new = sum(cost for key, cost in new.items() if key not in same)
    return WhatIf(
        (differ_old, differ_new),
        (before.per_input(before.limiter_cycles), after.per_input(after.limiter_cycles)),
        (before.per_input(before.kernel_cycles), after.per_input(after.kernel_cycles)),
        _displaced(before, after),
        (len(before.segments), len(after.segments)),
        before.problem.options.epoch_switch_cycles / before.problem.options.inputs_counted,
        (time_of(before).per_input, time_of(after).per_input),
        *((pair[0], pair[1]) for pair in zip(*use, strict=True)),
    )


def _dram(placed: Placed) -> tuple[int, int, float]:
    """(queues, bytes of their buffers in DRAM, part of the fullest channel up to its last buffer's end)."""
    if placed.dram_use is not None:
        return placed.dram_use
    device = placed.problem.device
    starts = [device.dram_start(channel) for channel in range(device.dram_channels)]
    ends = list(starts)  # of the last buffer, by channel
    queues = placed.queues().values()
    size = 0
    for queue in queues:
        if queue.location == "dram":
            step = queue.bytes_per_buffer
            size += len(queue.buffers) * step
            for channel, address in queue.buffers:
                if address + step > ends[channel]:
                    ends[channel] = address + step
    full = max(
        ((end - start) / (device.dram_end(c) - start) for c, (start, end) in enumerate(zip(starts, ends, strict=True))),
        default=0.0,
    )
    placed.dram_use = len(queues), size, full
    return placed.dram_use


def _displaced(before: Placed, after: Placed) -> tuple[Displaced, ...]:
    """Ops with another place, size or epoch, in schedule order."""
    was, now = before.ops(), after.ops()
    same = same_epochs({n: p.epoch for n, p in was.items()}, {n: p.epoch for n, p in now.items()})
    displaced: list[Displaced] = []
    for name, spot in now.items():
        old = was.get(name)
        if old is None or (old is spot and same.get(spot.epoch) == spot.epoch):
            continue
        if (old.start, old.size, old.transposed, old.chip, old.epoch) != (
            spot.start, spot.size, spot.transposed, spot.chip, same.get(spot.epoch, -1),
        ):  # fmt: skip
            displaced.append(Displaced(name, old, spot))
    return tuple(displaced)


def _costs(placed: Placed, same: Container[int]) -> dict[tuple[object, ...], int]:
    """Limiter cycles of the epochs whose ids are not in `kept`, by what each is made of."""
    costs: dict[tuple[object, ...], int] = {}
    for segment in placed.segments:
        if id(segment) in same:
            continue
        ops = range(segment.first, segment.last)
        tables = tuple(placed.problem.tables[op].signature for op in ops)
        spots = tuple(tuple(np.asarray(s).tolist()) for s in segment.spots)
        costs[segment.first, segment.last, segment.rows, tables, spots] = segment.limiter_cycles
    return costs
