"""From epochs that are chosen to a placement: places, queues with addresses, buffers of forks, report.

What an epoch contributes depends on its ops, their rows and nothing outside it, so `Parts` keeps it: after an edit only
the epochs that changed are worked out again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tbuda_lab.core.balancer.l1 import input_tiles
from tbuda_lab.core.balancer.types import Bounds, Epoch, Objective, OpPlacement, Placement, QueuePlacement
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.placer.memory.queues import PlannedQueues, QueuePlanner
from tbuda_lab.core.placer.model.bounds import bounds
from tbuda_lab.core.placer.model.chip_stages import check_reach, chips_of, pipeline_note, temporal_epochs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.report import EpochCost, blocked_reasons, epoch_cost, report
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.fork_join import Buffering, buffer


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """What an epoch contributes wherever it stands in the program."""

    cost: EpochCost
    buffering: Buffering


class Parts:
    """Parts of epochs by what they are made of, for one device and set of options, and copies of one graph that edits
    put nops and queues into."""

    def __init__(self, limit: int = 4096) -> None:
        self._results: dict[tuple[object, ...], EpochResult] = {}
        self._limit = limit

    def of(self, problem: Problem, segment: Segment) -> EpochResult:
        """The costs and input buffers of an epoch, worked out once for equal ones."""
        first, last = segment.first, segment.last
        names = problem.order[first:last]
        about = [(problem.tables[op].signature, problem.places(op, first, last)) for op in range(first, last)]
        key = (names, segment.rows, tuple(about), tuple(map(problem.pins.get, names)))
        entry = self._results.get(key)
        if entry is None:
            if len(self._results) >= self._limit:
                self._results.clear()
            entry = self._results[key] = EpochResult(epoch_cost(problem, segment), buffer(problem, segment, 0))
        return entry


@dataclasses.dataclass(frozen=True)
class Before:
    """A placement whose parts another one of the same graph may take over: its epochs, its places, its queues."""

    segments: tuple[Segment, ...]
    ops: Mapping[str, OpPlacement]
    epochs: tuple[Epoch, ...]
    queues: PlannedQueues


def rectangles(
    problem: Problem, segments: Sequence[Segment], chips: Sequence[int], before: Before | None = None
) -> tuple[dict[str, OpPlacement], tuple[Epoch, ...]]:
    """Where every op lies, and the epochs. before: of the same graph; what is the same there is taken over."""
    ops: dict[str, OpPlacement] = {}
    epochs: list[Epoch] = []
    directions = [problem.direction(segment.first) for segment in segments]
    temporal = temporal_epochs(chips, problem.device.arch, directions)
    index_before = {} if before is None else {id(s): i for i, s in enumerate(before.segments)}
    for index, (segment, chip) in enumerate(zip(segments, chips, strict=True)):
        at = index_before.get(id(segment))
        if before is not None and at is not None:
            epoch = before.epochs[at]
            epoch_now = Epoch(index, temporal[index], chip, epoch.ops, directions[index])
            if epoch_now == epoch:
                ops.update((name, before.ops[name]) for name in epoch.ops)
                epochs.append(epoch)
                continue
            for name in epoch.ops:
                spot = before.ops[name]
                ops[name] = OpPlacement(name, index, chip, spot.start, spot.size, spot.transposed, spot.row)
            epochs.append(epoch_now)
            continue
        names = problem.order[segment.first : segment.last]
        for name, row, (top, left, turned) in zip(names, segment.rows, segment.spots, strict=True):
            candidate = problem.models[name].rows[row]
            size = (int(candidate["grid_r"]), int(candidate["grid_c"]))
            ops[name] = OpPlacement(name, index, chip, (top, left), size[::-1] if turned else size, turned, row)
        epochs.append(Epoch(index, temporal[index], chip, tuple(names), directions[index]))
    return ops, tuple(epochs)


def plan_queues(
    problem: Problem,
    ops: Mapping[str, OpPlacement],
    planned: PlannedQueues | None = None,
    least_inputs: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> QueuePlanner:
    """What places the queues of placed ops. planned: of another placement of the same graph; least_inputs: least tiles
    of input buffers (`input_buffers`), which count where cores may be too full to preload."""
    return QueuePlanner(
        problem.graph,
        problem.models,
        ops,
        problem.orders,
        problem.device,
        problem.options,
        problem.constraints.queues,
        problem.costs.preloaded,
        planned,
        least_inputs,
        problem.costs.core_loads,
        problem.on_one_chip,
    )


def place_queues(
    problem: Problem,
    segments: Sequence[Segment],
    ops: Mapping[str, OpPlacement],
    before: Before | None = None,
) -> dict[str, QueuePlacement]:
    """The queues of placed ops, with addresses. before: another placement of the same graph, with the same candidates
    in the epochs that both have.

    Raises `PlacementError` when they do not fit DRAM, `OverrideError` for one that cannot go where asked."""
    sizes = input_buffers(problem, segments, [buffer(problem, segment, 0) for segment in segments])
    if before is None:
        return plan_queues(problem, ops, None, sizes).run()
    ids_before = {id(s) for s in before.segments}
    touched = [op for s in segments if id(s) not in ids_before for op in problem.order[s.first : s.last]]
    return plan_queues(problem, ops, before.queues, sizes).run(touched)


def assemble(
    problem: Problem,
    segments: Sequence[Segment],
    policy: str,
    diagnostics: Sequence[Diagnostic] = (),
    *,
    chips: Sequence[int] | None = None,
    parts: Parts | None = None,
    limits: Bounds | None = None,
    queues: Mapping[str, QueuePlacement] | None = None,
    places: tuple[dict[str, OpPlacement], tuple[Epoch, ...]] | None = None,
    objective: Objective | None = None,
    check: Callable[[float, str], None] = lambda fraction, what: None,
) -> Placement:
    """The placement of chosen epochs.

    chips: of each epoch, chosen here by default. limits: bounds that hold for the problem, worked out by default.
    queues: of `place_queues`, places: of `rectangles`, if they are known already. objective: for the report. check:
    called with (fraction, what is going on).

    Raises `PlacementError` when queues do not fit DRAM or a link, `OverrideError` for one that cannot go where asked.
    """
    parts = parts if parts is not None else Parts()
    check(0.92, "placing queues")
    chips = chips_of(problem, segments) if chips is None else chips
    notes = [*diagnostics, *pipeline_note(problem, segments, chips)]
    ops, epochs = rectangles(problem, segments, chips) if places is None else places
    check_reach(problem.graph, ops, problem.device)
    placed = place_queues(problem, segments, ops) if queues is None else dict(queues)
    check(0.98, "reporting")
    epoch_parts = [parts.of(problem, segment) for segment in segments]
    for index, part in enumerate(epoch_parts):
        notes += [dataclasses.replace(d, where=f"epoch {index}") for d in part.buffering.diagnostics]
    blocked = blocked_reasons(problem, segments, problem.refusals)
    costs = [part.cost for part in epoch_parts]
    summary = report(problem, costs, policy, blocked, bounds(problem, costs) if limits is None else limits)
    summary = dataclasses.replace(summary, objective=objective)
    return Placement(
        ops,
        epochs,
        placed,
        dict(problem.models),
        problem.order,
        tuple(e.kernel_cycles for e in summary.epochs),
        problem.orders,
        summary,
        tuple(notes),
        input_buffers(problem, segments, [part.buffering for part in epoch_parts]),
    )


def input_buffers(
    problem: Problem, segments: Sequence[Segment], bufferings: Sequence[Buffering]
) -> dict[str, tuple[int, ...]]:
    """Least tiles per core of input buffers, by op and operand (0: the backend chooses): what forks ask for, and what
    the user does with a multiplier. segments: some or all epochs; bufferings: of each (`buffer`)."""
    tiles = {op: sizes for part in bufferings for op, sizes in part.input_tiles.items()}
    rows = {op: row for s in segments for op, row in zip(range(s.first, s.last), s.rows, strict=True)}
    for name, factors in problem.constraints.input_factors.items():
        op = problem.number[name]
        if op not in rows:
            continue
        profile, row = problem.profiles[op], problem.tables[op].rows[rows[op] : rows[op] + 1]
        sizes = list(tiles.get(name, (0,) * len(profile.operands)))
        for port in factors:
            least = int(input_tiles(profile, port, row, factors[port], problem.device.tile_align)[0])
            sizes[port] = max(sizes[port], least)
        tiles[name] = tuple(sizes)
    return tiles
