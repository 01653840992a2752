"""Results that share what is equal in them.

An edit changes a few ops of a thousand. A result that holds objects of its own for all of them costs memory, and with
32 results kept the collector of cyclic garbage takes half a second over them every few edits. Objects that are shared
also tell at once what an edit left alone.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad, cores_at_divider, dram_divider
from tbuda_lab.core.balancer.types import Bounds, Epoch, OpPlacement, Placement, QueuePlacement, total_cycles
from tbuda_lab.core.epochsim import BatchTime
from tbuda_lab.core.netlist.cores.usage import CoreLoad
from tbuda_lab.core.netlist.schema import Execute, Netlist
from tbuda_lab.core.placer.assemble import Before, Parts, assemble, place_queues, plan_queues, rectangles
from tbuda_lab.core.placer.model.chip_stages import temporal_epochs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure
from tbuda_lab.core.placer.state import Outcome

T = TypeVar("T")


def shared(new: Mapping[str, T], old: Mapping[str, T]) -> dict[str, T]:
    """`new`, with the objects of `old` where they are equal; order is that of `new`."""
    shared = {}
    for name, value in new.items():
        before = old.get(name)
        shared[name] = before if before is not None and (before is value or before == value) else value
    return shared


def share_placement(new: Placement, old: Placement) -> Placement:
    """An equal placement that takes from `old` what is the same there."""
    old_epochs = dict(enumerate(old.epochs))
    epochs = (old_epochs[i] if old_epochs.get(i) == epoch else epoch for i, epoch in enumerate(new.epochs))
    return dataclasses.replace(
        new,
        ops=shared(new.ops, old.ops),
        queues=shared(new.queues, old.queues),
        epochs=tuple(epochs),
        ublock_order=old.ublock_order if new.ublock_order == old.ublock_order else new.ublock_order,
    )


def share_netlist(new: Netlist, old: Netlist) -> None:
    """Takes from `old` what is equal there: queues, ops, settings of queues."""
    new.queues = shared(new.queues, old.queues)
    for graph in new.graphs.values():
        before = old.graphs.get(graph.name)
        if before is not None:
            graph.ops = shared(graph.ops, before.ops)
    runs = {(p.name, i.graph): i for p in old.programs for i in p.instructions if isinstance(i, Execute)}
    for program in new.programs:
        for at, instruction in enumerate(program.instructions):
            if isinstance(instruction, Execute):
                entry = runs.get((program.name, instruction.graph))
                if entry is not None and entry == instruction:
                    program.instructions[at] = entry


class EpochFacts:
    """places: over what operands and output of each op move, by op. kernel: (ops,) cycles per input; cores: (ops,);
    taken: (rows, columns) how many ops lie on each core of the grid."""

    def __init__(self, problem: Problem, segment: Segment) -> None:
        self.problem, self.segment = problem, segment
        ops = range(segment.first, segment.last)
        self.rows = dict(zip(ops, segment.rows, strict=True))
        self.places = {op: problem.places(op, segment.first, segment.last) for op in ops}
        self.load = measure(problem, segment.first, segment.last, self.rows)[2]
        data = [problem.tables[op].rows[row] for op, row in self.rows.items()]
        self.kernel = np.array([d["cycles"] for d in data], dtype=np.float64)
        self.cores = np.array([d["cores"] for d in data], dtype=np.float64)
        self.sizes = [(int(d["grid_r"]), int(d["grid_c"])) for d in data]
        self.taken = np.zeros((problem.device.rows, problem.device.cols), dtype=np.int32)
        for op in ops:
            self.taken[self.rectangle(op)] += 1
        self._limits: dict[int, np.ndarray] = {}

    def rectangle(self, op: int) -> tuple[slice, slice]:
        """The cores of an op, as slices of the grid."""
        at = op - self.segment.first
        top, left, turned = self.segment.spots[at]
        height, width = self.sizes[at][::-1] if turned else self.sizes[at]
        return slice(top, top + height), slice(left, left + width)

    def busy_beside(self, op: int) -> np.ndarray:
        """(rows, columns) bool: cores on which another op lies."""
        taken = self.taken.copy()
        taken[self.rectangle(op)] -= 1
        busy: np.ndarray = taken > 0
        return busy

    def now(self) -> np.ndarray:
        """(ops,) limiter cycles as it is."""
        return self.limits(dram_divider(self.problem.device, self.load.dram_cores))

    def limits(self, divider: int) -> np.ndarray:
        """(ops,) limiter cycles if so many shared DRAM that it is divided by that."""
        entry = self._limits.get(divider)
        if entry is None:
            device = self.problem.device
            mine = dram_divider(device, self.load.dram_cores) == divider
            cores = self.load.dram_cores if mine else cores_at_divider(device, divider)
            there = EpochLoad(cores, self.load.host_cores)
            entry = self._limits[divider] = np.array(
                [float(self.problem.row_limits(op, *self.places[op], there)[row]) for op, row in self.rows.items()]
            )
        return entry


class PlacedOps:
    """Rows and spots of all ops, epoch by epoch; `placement()` adds queues, addresses and the report."""

    def __init__(
        self,
        problem: Problem,
        segments: Sequence[Segment],
        chips: Sequence[int],
        policy: str,
        placement: Placement | None = None,
        parts: Parts | None = None,
        limits: Callable[[], Bounds | None] = lambda: None,
        base: PlacedOps | None = None,
    ) -> None:
        """limits: bounds that hold for it, asked for when it is reported. base: a placement of the same graph on the
        same chips, from which what is the same is taken over."""
        self.problem, self.segments, self.chips = problem, tuple(segments), tuple(chips)
        self.policy = policy
        self._placement, self._parts, self._limits, self._base = placement, parts, limits, base
        self._queues: dict[str, QueuePlacement] | None = None
        self._places: tuple[dict[str, OpPlacement], tuple[Epoch, ...]] | None = None
        self._before: Before | None = None
        self.dram_use: tuple[int, int, float] | None = None  # kept for `whatif`, which asks again and again
        self._cores: dict[str, CoreLoad] | None = None
        self.times: dict[int, BatchTime] = {}  # by batch, kept for `batch_times.time_of`
        self._epochs: dict[int, EpochFacts] = {}
        self._firsts = [s.first for s in self.segments]

    @property
    def complete(self) -> bool:
        return self._placement is not None

    @property
    def kernel_cycles(self) -> tuple[int, ...]:
        """Slowest kernel of each epoch, cycles per input."""
        return tuple(s.kernel_cycles for s in self.segments)

    @property
    def limiter_cycles(self) -> tuple[int, ...]:
        """Slowest op of each epoch, its kernel or its traffic, cycles per input."""
        return tuple(s.limiter_cycles for s in self.segments)

    def per_input(self, cycles: Sequence[int]) -> int:
        """Cycles per input of the whole model from those of its epochs; see `total_cycles`."""
        return int(total_cycles(temporal_epochs(self.chips, self.problem.device.arch), cycles))

    def ops(self) -> dict[str, OpPlacement]:
        """Where every op lies."""
        if self._placement is not None:
            return self._placement.ops
        return self._rectangles()[0]

    def _rectangles(self) -> tuple[dict[str, OpPlacement], tuple[Epoch, ...]]:
        if self._places is None:
            before = None if self._base is None else self._base.before()
            self._places = rectangles(self.problem, self.segments, self.chips, before)
        return self._places

    def before(self) -> Before:
        """What other placements may take over from this one. Raises what `placement` raises."""
        if self._before is None:
            placement = self.placement()
            planner = plan_queues(self.problem, placement.ops)
            planner.plan()
            self._before = Before(self.segments, placement.ops, placement.epochs, planner.plan_queues(placement.queues))
        return self._before

    def fullest_cores(self) -> dict[str, CoreLoad]:
        """By op what its fullest core takes, as the check of the netlist counts it; see `QueuePlanner.fullest_cores`.
        Raises what `placement` raises."""
        if self._cores is None:
            placement = self.placement()
            planner = plan_queues(self.problem, placement.ops, self.before().queues, placement.input_buffers)
            planner.plan(())
            self._cores = planner.fullest_cores()
        return self._cores

    def epoch(self, index: int) -> EpochFacts:
        """What questions ask of an epoch."""
        entry = self._epochs.get(index)
        if entry is None:
            entry = self._epochs[index] = EpochFacts(self.problem, self.segments[index])
        return entry

    def epoch_of(self, op: int) -> int:
        """The epoch of an op, by its number."""
        return bisect.bisect_right(self._firsts, op) - 1

    def queues(self) -> Mapping[str, QueuePlacement]:
        """All queues with their addresses. Raises what `placement` raises."""
        if self._placement is not None:
            return self._placement.queues
        if self._queues is None:
            before = None if self._base is None else self._base.before()
            self._queues = place_queues(self.problem, self.segments, self.ops(), before)
        return self._queues

    def placement(self) -> Placement:
        """Raises `PlacementError` when queues do not fit DRAM, `OverrideError` for one that cannot go where asked."""
        if self._placement is None:
            placement = assemble(
                self.problem,
                self.segments,
                self.policy,
                self.problem.constraints.unmatched,
                chips=self.chips,
                parts=self._parts,
                limits=self._limits(),
                queues=self.queues(),
                places=self._rectangles(),
            )
            self._queues = self._places = None
            self._placement = placement if self._base is None else share_placement(placement, self._base.placement())
        return self._placement


def placed_as(outcome: Outcome) -> PlacedOps:
    """What came out of placing a whole model, epoch by epoch."""
    placement, problem = outcome.placement, outcome.problem
    segments = []
    at = 0
    for epoch in placement.epochs:
        spots = [placement.ops[name] for name in epoch.ops]
        rows = {at + i: spot.row for i, spot in enumerate(spots)}
        last = at + len(spots)
        kernel, limiter, _ = measure(problem, at, last, rows)
        places = tuple((s.start[0], s.start[1], s.transposed) for s in spots)
        segments.append(Segment(at, last, tuple(rows.values()), places, kernel, limiter))
        at = last
    policy = placement.report.policy if placement.report is not None else ""
    return PlacedOps(problem, segments, [e.chip for e in placement.epochs], policy, placement)
