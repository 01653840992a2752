"""How long a batch takes by the simulator of epochs, each kind of epoch simulated once: what an edit leaves alone is
not simulated again."""

from __future__ import annotations

import dataclasses
from typing import cast

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import BatchTime, EpochTime, EpochTrace, epoch_times, simulate
from tbuda_lab.core.epochsim.batchtime import summed
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.overrides import Override, frozen
from tbuda_lab.core.placer.assemble import Parts, input_buffers
from tbuda_lab.core.placer.interactive.placed import Placed
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.epoch_throughput import trial

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


def time_of(placed: Placed, batch: int | None = None) -> BatchTime:
    """What `epochsim.batch_time` says of a placement, by default for the batch that it is compiled for. Epochs that are
    known (of an earlier placement, or equal to another) are not simulated again."""
    size = placed.problem.options.microbatch if batch is None else batch
    entry = placed.times.get(size)
    if entry is None:
        entry = placed.times[size] = _time(placed, size)
    return entry


def _time(placed: Placed, batch: int) -> BatchTime:
    if len(set(placed.chips)) > 1:  # epochs of one time may feed each other
        epochs, whole = placed.placement().epochs, _whole(placed)
        return summed(epochs, batch, epoch_times(simulate(whole, batch), whole))
    times = tuple(epoch.time for epoch in epoch_cycles_of(placed, batch))
    return BatchTime(batch, sum(time.cycles for time in times), times)


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A placement as the simulator reads it."""

    lowered: Graph
    placement: Placement
    device: DeviceSpec
    overrides: tuple[Override, ...]
    loaded_once: bool


def _whole(placed: Placed) -> _Whole:
    problem = placed.problem
    return _Whole(problem.graph, placed.placement(), problem.device, placed.overrides, problem.options.loaded_once)


def epoch_cycles_of(placed: Placed, batch: int) -> list[EpochCycles]:
    """By epoch, for a placement on one chip (where no epoch runs beside another) and a batch that each takes in one go.
    What `epochsim.simulate` says of the whole placement is the sum; equal epochs are simulated once."""
    problem = placed.problem
    multipliers = [o for o in placed.overrides if o.kind == "input_buffer_multiplier"]
    keys = []
    for segment in placed.segments:
        names = problem.order[segment.first : segment.last]
        factors = tuple((names.index(n), frozen(o.value)) for o in multipliers for n in o.matches(names))
        keys.append(("epoch cycles", batch, problem.structure(segment.first, segment.last), segment.rows, factors))
    answers = problem.costs.answers
    if sum(key not in answers for key in set(keys)) > _MANY and placed.complete:
        whole = _whole(placed)
        trace = simulate(whole, batch)
        times = epoch_times(trace, whole)
        for index, (key, segment) in enumerate(zip(keys, placed.segments, strict=True)):
            answers[key] = _cycles_of(placed, segment, trace, index, times[index])
    for key, segment in zip(keys, placed.segments, strict=True):
        if key not in answers:
            answers[key] = _simulated(placed, segment, batch)
    return [cast(EpochCycles, answers[key]) for key in keys]


def _simulated(placed: Placed, segment: Segment, batch: int) -> EpochCycles:
    problem = placed.problem
    one = trial(problem, segment, placed.overrides)
    sizes = input_buffers(problem, [segment], placed.overrides, [Parts().of(problem, segment)])
    result = dataclasses.replace(one, placement=dataclasses.replace(one.placement, input_buffers=sizes))
    trace = simulate(result, batch)
    return _cycles_of(placed, segment, trace, 0, epoch_times(trace, result)[0])


def _cycles_of(placed: Placed, segment: Segment, trace: EpochTrace, index: int, time: EpochTime) -> EpochCycles:
    at = {name: i for i, name in enumerate(placed.problem.order[segment.first : segment.last])}
    stalls = tuple(
        EpochStall(at[s.fork], at[s.short[0] if s.short else s.join], s.cycles)
        for s in trace.stalls
        if s.critical and s.epoch == index
    )
    return EpochCycles(trace.epochs[index].cycles, stalls, time)
