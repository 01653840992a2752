"""What an edit would do: how long a batch takes by the simulator of epochs, and two placements compared.

Each kind of epoch is simulated once: what an edit leaves alone is not simulated again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import cast

import numpy as np

from tbuda_lab.core.balancer.types import OpPlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.diff import Diff, compare_sides, same_epochs, side_of_result
from tbuda_lab.core.epochsim import BatchTime, EpochTime, EpochTrace, epoch_times, simulate
from tbuda_lab.core.epochsim.batch_time import sum_epochs
from tbuda_lab.core.overrides import frozen
from tbuda_lab.core.placer.assemble import Parts, input_buffers
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.placer.model.report import epoch_cost
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.epoch_throughput import Trial, trial

_MANY = 2
"""Kinds of epochs from which it is cheaper to simulate the placement as a whole."""


@dataclasses.dataclass(frozen=True)
class EpochStall:
    """A stall that slows its epoch down, by ops counted from the first of the epoch. reader: the first op on the short
    branch, or the join; cycles: of the whole batch."""

    fork: int
    reader: int
    cycles: int


@dataclasses.dataclass(frozen=True)
class EpochCycles:
    """cycles: of the whole batch, with the switch to the epoch; time: what they are spent on."""

    cycles: int
    stalls: tuple[EpochStall, ...]
    time: EpochTime


def time_of(placed: PlacedOps, batch: int | None = None) -> BatchTime:
    """What `epochsim.batch_time` says of a placement, by default for the batch that it is compiled for. Epochs that are
    known (of an earlier placement, or equal to another) are not simulated again."""
    size = placed.problem.options.microbatch if batch is None else batch
    entry = placed.times.get(size)
    if entry is None:
        entry = placed.times[size] = _time(placed, size)
    return entry


def _time(placed: PlacedOps, batch: int) -> BatchTime:
    if len(set(placed.chips)) > 1:  # epochs of one time may feed each other
        epochs, whole = placed.placement().epochs, _whole(placed)
        return sum_epochs(epochs, batch, epoch_times(simulate(whole, batch), whole, _limiters(placed)))
    times = tuple(epoch.time for epoch in epoch_cycles_of(placed, batch))
    return BatchTime(batch, sum(time.cycles for time in times), times)


def _limiters(placed: PlacedOps) -> dict[str, tuple[int, int, str]]:
    """By op, as the report of the placement has them."""
    costs = (epoch_cost(placed.problem, segment) for segment in placed.segments)
    return {op: limits for cost in costs for op, limits in cost.ops.items()}


def _whole(placed: PlacedOps) -> Trial:
    """The whole placement as the simulator reads it."""
    problem = placed.problem
    factors = problem.constraints.input_factors
    return Trial(problem.graph, placed.placement(), problem.device, factors, problem.options.loaded_once)


def epoch_cycles_of(placed: PlacedOps, batch: int) -> list[EpochCycles]:
    """By epoch, for a placement on one chip (where no epoch runs beside another) and a batch that each takes in one go.
    What `epochsim.simulate` says of the whole placement is the sum; equal epochs are simulated once."""
    problem = placed.problem
    multiplied = problem.constraints.input_factors
    keys = []
    for segment in placed.segments:
        names = problem.order[segment.first : segment.last]
        factors = tuple((i, frozen(multiplied[n])) for i, n in enumerate(names) if n in multiplied)
        keys.append(("epoch cycles", batch, problem.structure(segment.first, segment.last), segment.rows, factors))
    answers = problem.costs.answers
    if sum(key not in answers for key in set(keys)) > _MANY and placed.complete:
        whole = _whole(placed)
        trace = simulate(whole, batch)
        times = epoch_times(trace, whole, _limiters(placed))
        for index, (key, segment) in enumerate(zip(keys, placed.segments, strict=True)):
            answers[key] = _cycles_of(placed, segment, trace, index, times[index])
    for key, segment in zip(keys, placed.segments, strict=True):
        if key not in answers:
            answers[key] = _simulate(placed, segment, batch)
    return [cast(EpochCycles, answers[key]) for key in keys]


def _simulate(placed: PlacedOps, segment: Segment, batch: int) -> EpochCycles:
    problem = placed.problem
    one = trial(problem, segment)
    sizes = input_buffers(problem, [segment], [Parts().of(problem, segment).buffering])
    result = dataclasses.replace(one, placement=dataclasses.replace(one.placement, input_buffers=sizes))
    trace = simulate(result, batch)
    return _cycles_of(placed, segment, trace, 0, epoch_times(trace, result, epoch_cost(problem, segment).ops)[0])


def _cycles_of(placed: PlacedOps, segment: Segment, trace: EpochTrace, index: int, time: EpochTime) -> EpochCycles:
    at = {name: i for i, name in enumerate(placed.problem.order[segment.first : segment.last])}
    stalls = tuple(
        EpochStall(at[s.fork], at[s.short[0] if s.short else s.join], s.cycles)
        for s in trace.stalls
        if s.critical and s.epoch == index
    )
    return EpochCycles(trace.epochs[index].cycles, stalls, time)


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
class DisplacedOp:
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
    displaced: tuple[DisplacedOp, ...]
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


def compare_placed(before: PlacedOps, after: PlacedOps, *, queues: bool = False) -> WhatIf:
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
        _displaced_ops(before, after),
        (len(before.segments), len(after.segments)),
        before.problem.options.epoch_switch_cycles / before.problem.options.inputs_counted,
        (time_of(before).per_input, time_of(after).per_input),
        *((pair[0], pair[1]) for pair in zip(*use, strict=True)),
    )


def _dram(placed: PlacedOps) -> tuple[int, int, float]:
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


def _displaced_ops(before: PlacedOps, after: PlacedOps) -> tuple[DisplacedOp, ...]:
    """Ops with another place, size or epoch, in schedule order."""
    first, new = before.ops(), after.ops()
    same = same_epochs({n: p.epoch for n, p in first.items()}, {n: p.epoch for n, p in new.items()})
    displaced: list[DisplacedOp] = []
    for name, spot in new.items():
        old = first.get(name)
        if old is None or (old is spot and same.get(spot.epoch) == spot.epoch):
            continue
        if (old.start, old.size, old.transposed, old.chip, old.epoch) != (
            spot.start,
            spot.size,
            spot.transposed,
            spot.chip,
            same.get(spot.epoch, -1),
        ):
            displaced.append(DisplacedOp(name, old, spot))
    return tuple(displaced)


def _costs(placed: PlacedOps, same: Container[int]) -> dict[tuple[object, ...], int]:
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
