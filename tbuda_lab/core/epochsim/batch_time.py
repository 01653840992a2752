"""How long a batch takes, and what bounds each epoch and op: the one source of every time that a view shows.

The times are those of `simulate`, for the batch that the model was compiled for. Other figures (kernel cycles, limiter
cycles) are estimates of parts of it and have their own names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, NOC
from tbuda_lab.core.epochsim.costs import OpCost
from tbuda_lab.core.epochsim.simulate import EpochTimes, EpochTrace, OpWaits, simulate
from tbuda_lab.core.graph.phases import inputs_of_run

if TYPE_CHECKING:
    from tbuda_lab.core.balancer.types import Epoch, EpochReport, Placement
    from tbuda_lab.core.epochsim.costs import SimulatedCompile


class Bound(StrEnum):
    """What bounds an op or an epoch. FILL: until its pipeline is full, and until it is empty again; STALL: a buffer
    that is full; SWITCH: loading the epoch. The other four: work and transfers of the slowest op."""

    COMPUTE = "compute"
    DRAM = "DRAM"
    NOC = "NoC"
    HOST = "host link"
    STALL = "stall"
    FILL = "fill"
    SWITCH = "switch"

    @property
    def words(self) -> str:
        """As a sentence says it, like the views: "filling the pipeline" for FILL."""
        return _WORDS.get(self, self.value)


_WORDS = {Bound.FILL: "filling the pipeline", Bound.SWITCH: "the epoch switch", Bound.STALL: "full buffers"}


@dataclasses.dataclass(frozen=True)
class OpTime:
    """One op. cycles: per input, of its kernel or its slowest transfer (`limiter` says which), as the placement's
    report counts them; preload: cycles to load parameters into L1 once; kernel: of the kernel alone.
    compute, wait_input, wait_space, wait_dram, wait_host: what it did in the batch, in cycles, the mean over its cores.
    critical: on the chain of work and waits that decides when the epoch ends."""

    cycles: int
    preload: int
    kernel: int
    limiter: str
    bound: Bound
    compute: int
    wait_input: int
    wait_space: int
    wait_dram: int
    wait_host: int
    critical: bool


@dataclasses.dataclass(frozen=True)
class EpochTime:
    """One epoch, in cycles of the batch: `cycles` = switch + fill + steady + stall. steady: inputs x slowest op (one
    input in an epoch of the optimizer).

    bound: the largest of these parts, for `steady` what bounds the slowest op. slowest: the op with the most cycles per
    input; longest: on the critical chain the one with the most work and preloading in the batch; both counted from the
    first of the epoch, -1 without ops. ops: in the order of the epoch. It names no op, so equal epochs may share one.
    """

    cycles: int
    steady: int
    fill: int
    stall: int
    switch: int
    bound: Bound
    slowest: int
    longest: int
    ops: tuple[OpTime, ...]

    @property
    def paced(self) -> bool:
        """Whether most of the time is work at the pace of the slowest op; where it is not, no op limits the epoch."""
        return self.bound not in (Bound.FILL, Bound.STALL, Bound.SWITCH)


@dataclasses.dataclass(frozen=True)
class EpochLimit:
    """What limits an epoch, for every view, page and command. slowest: its op with the most cycles per input, `cycles`
    and `op_bound` what those are; bound: what most of the time of the epoch is.

    limiting: the op that is worth enlarging, `larger` a shape (rows, columns) with which the epoch is faster; "" and
    None where filling, stalls or the switch take most of the time, or where no larger shape of the slowest op helps.
    text: all that as a sentence.
    """

    bound: Bound
    slowest: str
    cycles: int
    op_bound: Bound
    limiting: str
    larger: tuple[int, int] | None
    text: str


def epoch_limits(placement: Placement, times: BatchTime) -> tuple[EpochLimit, ...]:
    """By epoch. times: the batch of this placement, simulated."""
    reports = placement.report.epochs if placement.report is not None else (None,) * len(placement.epochs)
    return tuple(_limit(*each) for each in zip(placement.epochs, times.epochs, reports, strict=True))


def _limit(epoch: Epoch, time: EpochTime, report: EpochReport | None) -> EpochLimit:
    if time.slowest < 0:
        return EpochLimit(time.bound, "", 0, Bound.COMPUTE, "", None, f"Bound by {time.bound.words}: it has no ops.")
    name, op = epoch.ops[time.slowest], time.ops[time.slowest]
    larger = report.larger if report is not None and time.paced else None
    if not time.paced:
        text = f"Bound by {time.bound.words}: no op limits it."
    elif larger is not None:
        text = f"{name} limits it, bound by {op.bound.words}: on {larger[0]}x{larger[1]} cores it is faster."
    else:
        why = f"; {report.no_larger}" if report is not None and report.no_larger else ""
        text = f"{name} sets its pace, bound by {op.bound.words}{why}."
    return EpochLimit(time.bound, name, op.cycles, op.bound, name if larger is not None else "", larger, text)


@dataclasses.dataclass(frozen=True)
class BatchTime:
    """A batch of a placement. cycles: of the whole batch, filling and switches included; of epochs that run side by
    side on several chips the slowest counts. epochs: as `Placement.epochs`."""

    batch: int
    cycles: int
    epochs: tuple[EpochTime, ...]

    @property
    def per_input(self) -> float:
        """Cycles per input: what every view calls the time of the model."""
        return self.cycles / self.batch

    @property
    def parts(self) -> dict[str, float]:
        """Cycles per input by what they are spent on, all epochs added up: "steady", "fill", "stall", "switch"."""
        names = ("steady", "fill", "stall", "switch")
        return {n: sum(getattr(e, n) for e in self.epochs) / self.batch for n in names}


def batch_time(result: SimulatedCompile, batch: int) -> BatchTime:
    """The time of `batch` inputs that each epoch takes in one go. Raises `ValueError` for a batch without inputs."""
    return sum_epochs(result.placement.epochs, batch, epoch_times(simulate(result, batch), result))


def sum_epochs(epochs: tuple[Epoch, ...], batch: int, times: tuple[EpochTime, ...]) -> BatchTime:
    """The times of all epochs as one; epochs of one temporal number run side by side."""
    slowest: dict[int, int] = {}
    for epoch, time in zip(epochs, times, strict=True):
        slowest[epoch.temporal] = max(slowest.get(epoch.temporal, 0), time.cycles)
    return BatchTime(batch, sum(slowest.values()), times)


def epoch_times(
    trace: EpochTrace, result: SimulatedCompile, limiters: Mapping[str, tuple[int, int, str]] | None = None
) -> tuple[EpochTime, ...]:
    """What a simulation says of each epoch. limiters: by op kernel cycles, limiter cycles and what limits it, by
    default those of the placement's report; without either the simulation's own, which count what is loaded once apart.
    """
    stalled = {s.fork for s in trace.stalls if s.critical}
    if limiters is None:
        limiters = result.placement.report.op_limiters if result.placement.report is not None else {}
    epoch_times, first = [], 0
    for epoch, times in zip(result.placement.epochs, trace.epochs, strict=True):
        last = first + len(epoch.ops)
        waits, costs = trace.ops[first:last], trace.costs[first:last]
        inputs = inputs_of_run(epoch.direction, trace.per_run)
        epoch_times.append(_epoch(times, waits, costs, stalled, inputs, limiters))
        first = last
    return tuple(epoch_times)


def _epoch(
    times: EpochTimes,
    waits: tuple[OpWaits, ...],
    costs: tuple[OpCost, ...],
    stalled: set[str],
    inputs: int,
    limiters: Mapping[str, tuple[int, int, str]],
) -> EpochTime:
    critical = set(times.critical)
    ops = tuple(
        _op(w, c, limiters.get(w.op, (c.kernel, c.cycles, c.limiter)), w.op in critical, w.op in stalled)
        for w, c in zip(waits, costs, strict=True)
    )
    steady = inputs * times.slowest
    slowest = longest = -1
    if ops:
        slowest = int(np.argmax([op.cycles for op in ops]))
        cycles = np.array([inputs * c.cycles + c.preload for c in costs])
        chain = np.array([op.critical for op in ops])
        longest = int(np.where(chain, cycles, cycles - cycles.max() - 1).argmax())
    parts = {
        Bound.FILL: times.fill,
        Bound.STALL: times.stall,
        Bound.SWITCH: times.switch,
        _bound_of(ops[slowest].limiter) if ops else Bound.COMPUTE: steady,
    }
    bound = max(parts, key=lambda b: (parts[b], b))
    return EpochTime(times.cycles, steady, times.fill, times.stall, times.switch, bound, slowest, longest, ops)


def _bound_of(limiter: str) -> Bound:
    places = {DRAM: Bound.DRAM, NOC: Bound.NOC, HOST: Bound.HOST}
    return next((b for place, b in places.items() if limiter.endswith(place)), Bound.COMPUTE)


def _op(waits: OpWaits, cost: OpCost, limits: tuple[int, int, str], critical: bool, stalled: bool) -> OpTime:
    kernel, cycles, limiter = limits
    return OpTime(
        cycles,
        cost.preload,
        kernel,
        limiter,
        Bound.STALL if stalled and waits.wait_space > waits.compute else _bound_of(limiter),
        waits.compute,
        waits.wait_input,
        waits.wait_space,
        waits.wait_dram,
        waits.wait_host,
        critical,
    )


def attribute_to_ops(epochs: Sequence[Epoch], times: BatchTime) -> tuple[dict[str, float], float]:
    """The time of a batch shared out among its ops: (cycles per input by op, cycles per input of switches). They add
    up to `times.per_input`. An op has the time that it decides: the slowest of its epoch the steady part, those on the
    critical chain the filling, those that wait for space the stalls; of epochs that run side by side on several chips
    only the slowest counts."""
    spent = {name: 0.0 for epoch in epochs for name in epoch.ops}
    switch = 0.0
    slowest: dict[int, int] = {}
    for at, epoch in enumerate(epochs):
        other = slowest.get(epoch.temporal)
        if other is None or times.epochs[at].cycles > times.epochs[other].cycles:
            slowest[epoch.temporal] = at
    for at in slowest.values():
        names, time = epochs[at].ops, times.epochs[at]
        if not names:
            switch += time.cycles / times.batch
            continue
        switch += time.switch / times.batch
        for name, cycles in zip(names, _shares(time).tolist(), strict=True):
            spent[name] += cycles / times.batch
    return spent, switch


def _shares(time: EpochTime) -> np.ndarray:
    """(ops,) cycles of the batch that each op of an epoch decides; they add up to steady + fill + stall."""
    cycles = np.array([op.cycles for op in time.ops], dtype=np.float64)
    preload = np.array([op.preload for op in time.ops], dtype=np.float64)
    chain = np.array([op.critical for op in time.ops])
    waits = np.array([op.wait_space for op in time.ops], dtype=np.float64)
    worst = np.zeros(len(cycles))
    worst[int(cycles.argmax())] = 1.0
    fill = np.where(chain, cycles + preload, 0.0)
    if not fill.sum():
        fill = worst
    if not waits.sum():
        waits = worst
    shares: np.ndarray = time.steady * worst + time.fill * fill / fill.sum() + time.stall * waits / waits.sum()
    return shares
