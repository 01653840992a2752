"""From candidate tables to a placement: schedule, epochs, rectangles, queues, addresses, report."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.types import Bounds, Objective, OpModels, Placement
from tbuda_lab.core.constraints import FREE, Constraints, resolve
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, Diagnostic, OverrideError, PlacementError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import by_phase, phases
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.assemble import Parts, assemble, rectangles
from tbuda_lab.core.placer.model.bounds import bounds
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import constrain_order, outputs_last, schedule
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies import OTHERS, policy
from tbuda_lab.core.placer.policies.layers import LayerEpochs
from tbuda_lab.core.placer.policies.op_runs import forget_searches, objective, policy_cost
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.policies.pipelining import flowing_epochs
from tbuda_lab.core.placer.policies.portfolio import CutoffReached, Policy, never_worse
from tbuda_lab.core.placer.policies.swaps import improve
from tbuda_lab.core.placer.search.chip_stages import chips_of, epoch_cost, overhead, slowest_stage
from tbuda_lab.core.placer.search.infeasible_repair import (
    hops,
    infeasible_notes,
    narrow_crossings,
    repair_infeasible,
)
from tbuda_lab.core.placer.search.large_neighbourhood import Curve, search_on
from tbuda_lab.core.placer.search.merge_epochs import merge_epochs
from tbuda_lab.core.placer.stalls.stall_repair import RepairedPlacement, repair_stalls
from tbuda_lab.core.placer.validate import chip_breaks, refuse_pins

Progress = Callable[[float, str], None]

_HOP_ROUNDS = 4
"""A nop that carries a tensor one chip further may itself be read on two: how often more are added, for every chip."""


def place(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints = FREE,
    cancel: threading.Event | None = None,
    on_progress: Progress | None = None,
) -> Placement:
    """Places a lowered graph.

    models: of `op_models` for the same graph and constraints. cancel: once set, `Cancelled` is raised at the next step.
    on_progress: called with (fraction done, what is going on).

    Raises `OverrideError` for a pin or queue placement that cannot be honoured, `PlacementError` when an op fits no
    epoch, or queues do not fit DRAM; both say what would be legal.
    """
    check = ProgressCheck(cancel, on_progress)
    problem, segments, name, message = choose_placement(graph, models, device, options, constraints, check)
    value = objective(problem, segments) if name == "Optimal" else None
    placement = assemble(problem, segments, name, message, objective=value, check=check)
    check(1.0, "placed")
    return placement


@dataclasses.dataclass(frozen=True)
class Decisions:
    """What the placer decided, of which the rest of a placement follows: its epochs, the name of its policy, what it
    has to say, and the value, the curve of the search and the bounds for the report (None: worked out for it). needed:
    how many of the first edits ops need to fit epochs and chips at all: bounds are of the graph with these."""

    segments: tuple[Segment, ...]
    policy: str
    notes: tuple[Diagnostic, ...] = ()
    objective: Objective | None = None
    curve: Curve = ()
    bounds: Bounds | None = None
    needed: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A placement of `graph`: the graph that was asked for, or one with `edits` (nops and queues) where they paid.
    `problem`: what was asked on the way, `parts`: what its epochs contribute, with everything that edits of the
    placement can use again. `decisions`: the decisions; see `placer.record`."""

    graph: Graph
    placement: Placement
    edits: tuple[Override, ...]
    problem: Problem
    decisions: Decisions
    parts: Parts = dataclasses.field(default_factory=Parts)


@dataclasses.dataclass(frozen=True)
class StartedPlacement:
    """A placement without overrides whose epochs are chosen and priced as far as they are asked for, so that it can be
    held against another one; all that may make it better still, and complete, is left to `place_and_repair`.

    policy: its full name; choose: gives all epochs, or raises `CutoffReached` once they are thought to cost the policy
    more than so much; choose_layer: see `Optimal.layer`.
    """

    problem: Problem
    policy: str
    choose: Callable[[float], Sequence[Segment]]
    choose_layer: Callable[[], LayerEpochs | None] = lambda: None

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """All epochs, in order. Raises `PlacementError` where an op fits none."""
        return tuple(self.choose(np.inf))

    def within(self, most: float) -> bool:
        """Whether the epochs are not thought to cost the policy more; if so they are there. Raises as `segments` does.
        """
        if "segments" not in self.__dict__:
            try:
                self.__dict__["segments"] = tuple(self.choose(most))  # as the cached property would
            except CutoffReached:
                return False
        return True

    @property
    def cost(self) -> float:
        """What the epochs cost the policy: the time that they take, and the weighed cycles of their kernels."""
        problem = self.problem
        return sum(problem.share(s.first) * policy_cost(s) + overhead(problem, s.first, s.last) for s in self.segments)

    @functools.cached_property
    def layer(self) -> LayerEpochs | None:
        """Epochs of equal layers, None where there are none that stand for the rest. Raises as `segments` does."""
        return self.choose_layer()


def begin(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    cancel: threading.Event | None = None,
    on_progress: Progress | None = None,
    costs: CostCache | None = None,
    stage: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> StartedPlacement:
    """The epochs of a lowered graph, as far as that tells what they cost. costs: as of `place_and_repair`, which goes
    on from there. stage: entered whenever epochs are chosen."""
    check = ProgressCheck(cancel, on_progress)
    name, run = policy(options.balancer_policy)

    def progress(fraction: float) -> None:
        check(0.05 + 0.8 * fraction)

    with stage():
        problem = make_problem(graph, models, device, options, FREE, costs)
        search = Optimal(problem, progress) if name == "Optimal" else None

    def choose(most: float) -> list[Segment]:
        with stage():
            return run(problem, progress) if search is None else search.run(most)

    def choose_layer() -> LayerEpochs | None:
        with stage():
            return None if search is None else search.layer()

    return StartedPlacement(problem, name, choose, choose_layer)


def _feasible(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints,
    check: ProgressCheck,
    costs: CostCache,
    begun: StartedPlacement | None,
) -> tuple[Graph, tuple[Override, ...], list[Diagnostic], tuple[Problem, list[Segment], str, list[Diagnostic]]]:
    """What `choose_placement` says of a graph, if need be with nops where an op fits no epoch: (that graph, what was
    inserted, notes of it, the choice). Raises the first `PlacementError` where that does not help."""
    try:
        chosen = choose_placement(graph, models, device, options, constraints, check, costs, begun)
        return graph, (), [], chosen
    except PlacementError as error:
        edits = repair_infeasible(graph, error)
        if not edits:
            raise
        try:
            longer = edit(graph, device, options, edits).graph
            constraints = resolve(constraints.records, longer, device, options).checked()
            tables = op_models(longer, device, options, constraints.choices)
            chosen = choose_placement(longer, tables, device, options, constraints, check, costs)
        except PlacementError:
            raise error from None
        return longer, edits, infeasible_notes(edits, error), chosen


def place_and_repair(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints = FREE,
    cancel: threading.Event | None = None,
    on_progress: Progress | None = None,
    costs: CostCache | None = None,
    begun: StartedPlacement | None = None,
) -> Outcome:
    """`place`, with nops and queues inserted where an op would fit no epoch, where a refused edge keeps epochs apart
    (see `merge_epochs`), and where an epoch would not flow (see `repair_stalls`); `enable_fork_join_buffering` False
    leaves the last two out. Each is told by a note of the placement. costs: of other problems of this device with these
    options. begun: of `begin` for this graph, where there are no overrides.

    Raises what `place` raises.
    """
    check = ProgressCheck(cancel, on_progress)
    costs = CostCache(device, options) if costs is None else costs
    graph, edits, message, (problem, segments, name, result) = _feasible(
        graph, models, device, options, constraints, check, costs, begun
    )
    pinned = constraints.records
    for _ in range(_HOP_ROUNDS * len(device.chips)):
        spots, epochs = rectangles(problem, segments, chips_of(problem, segments))
        added, pins, notes = hops(problem.graph, spots, device)
        narrows = not pins
        if narrows:
            added, pins, notes = narrow_crossings(problem, spots, epochs)
        if not pins:
            break
        longer = edit(graph, device, options, added).graph
        asked = resolve((*pinned, *pins), longer, device, options)
        models = op_models(longer, device, options, asked.checked().choices)
        try:
            problem, segments, name, result = choose_placement(longer, models, device, options, asked, check, costs)
        except (OverrideError, PlacementError):
            if narrows:  # rule N11 warns
                break
            raise
        graph, pinned, edits, message = longer, asked.records, (*edits, *added), [*message, *notes]
    plain, needed = problem, len(edits)
    if options.enable_fork_join_buffering:
        if name != "SingleOpPerEpoch":
            merged = merge_epochs(problem, segments, lambda fraction: check(0.88, "merging epochs"))
            problem, segments = merged.problem, list(merged.segments)
            edits, message = (*edits, *merged.edits), [*message, *merged.notes]
        repaired = repair_stalls(problem, segments, lambda fraction: check(0.9, "repairing epochs"))
        problem, segments = repaired.problem, list(repaired.segments)
        edits, message = (*edits, *repaired.edits), [*message, *repaired.notes]
        if name == "Optimal":
            problem, segments, added, more = _flowing(problem, segments)
            edits, message = (*edits, *added), [*message, *more]
    curve: Curve = ()
    if options.optimise_steps or options.optimise_seconds:
        limit = options.optimise_steps, options.optimise_seconds  # those of a problem that was begun may be others
        problem, segments, added, more, curve = _faster(problem, segments, *limit, check)
        edits, message = (*edits, *added), [*message, *more]
    forget_searches(costs)
    value = limits = None
    plain = _in_order(plain, problem.order)
    if name == "Optimal" or options.enable_fork_join_buffering:
        value = objective(problem, segments, plain)
    if plain is not problem:  # what was inserted takes no time away: what bounds the model without it bounds it with it
        limits = bounds(plain)
    if edits and problem.constraints:  # inserted nops and their queues may be addressed as well
        constraints = resolve(problem.constraints.records, problem.graph, device, options, problem.profiles_by_name)
        problem, result = dataclasses.replace(problem, constraints=constraints), list(constraints.unmatched)
    chosen = Decisions(tuple(segments), name, (*result, *message), value, curve, limits, needed)
    outcome = assemble_placement(problem, chosen, edits, check)
    check(1.0, "placed")
    return outcome


def _faster(
    problem: Problem, segments: list[Segment], steps: int, seconds: float | None, check: Progress
) -> tuple[Problem, list[Segment], tuple[Override, ...], tuple[Diagnostic, ...], Curve]:
    """The epochs after a search (see `search_on`), repaired, with what that inserted, its notes and the curve of the
    search; the epochs as they are where it finds none that are faster."""
    options = problem.options
    constraints = problem.constraints
    went = search_on(
        problem, segments, steps, seconds, constraints.pairs(problem.order), constraints.at_breaks,
        lambda fraction: check(0.9 + 0.02 * fraction, "searching for a faster placement"),
        len(set(phases(problem.graph).values())) < 2,
    )  # fmt: skip
    trial = RepairedPlacement(went.problem, went.segments)
    if options.enable_fork_join_buffering:
        trial = repair_stalls(went.problem, went.segments)
    edits: tuple[Override, ...] = ()
    notes: tuple[Diagnostic, ...] = ()
    if _time(trial.problem, trial.segments) < _time(problem, segments):
        problem, segments, edits, notes = trial.problem, list(trial.segments), trial.edits, trial.notes
    # the search counts on the pace of the first inputs; what it comes to is the time of the whole batch
    final = _time(problem, segments)
    curve = (*(point for point in went.curve[:-1] if point[1] >= final), (went.steps, final))
    return problem, segments, edits, notes, curve


def assemble_placement(
    problem: Problem,
    chosen: Decisions,
    edits: tuple[Override, ...],
    check: Progress = lambda fraction, what: None,
) -> Outcome:
    """The placement that follows from decisions. Raises what `assemble` raises."""
    parts = Parts()
    placement = assemble(
        problem, chosen.segments, chosen.policy, chosen.notes, parts=parts, objective=chosen.objective,
        limits=chosen.bounds, check=check,
    )  # fmt: skip
    if placement.report is not None:
        chosen = dataclasses.replace(chosen, bounds=placement.report.bounds)
        if chosen.curve:
            report = dataclasses.replace(placement.report, curve=chosen.curve)
            placement = dataclasses.replace(placement, report=report)
    return Outcome(problem.graph, placement, edits, problem, chosen, parts)


def _flowing(
    problem: Problem, segments: list[Segment]
) -> tuple[Problem, list[Segment], tuple[Override, ...], tuple[Diagnostic, ...]]:
    """Repaired epochs with other candidates where full buffers hold them up all the same, if that is faster: (problem,
    epochs, what was inserted for it, notes)."""
    tried: list[tuple[Segment, ...]] = [tuple(segments)]
    for streams in (True, False):
        flowing = flowing_epochs(problem, segments, streams)
        if flowing in tried:
            continue
        tried.append(flowing)
        again = repair_stalls(problem, flowing)
        if _time(again.problem, again.segments) < _time(problem, segments):
            return again.problem, list(again.segments), again.edits, again.notes
    return problem, segments, (), ()


def _in_order(plain: Problem, order: Sequence[str]) -> Problem:
    """The problem before ops were inserted, with its ops in the order that they have now."""
    names = tuple(name for name in order if name in plain.number)
    return plain if names == plain.order else plain.regraph(plain.graph, plain.models, names)


def _time(problem: Problem, segments: Sequence[Segment]) -> float:
    if len(problem.device.chips) > 1:
        return slowest_stage(problem, segments)
    return float(sum(epoch_cost(problem, s) for s in segments))


class ProgressCheck:
    """Reports progress, and stops when asked to."""

    def __init__(self, cancel: threading.Event | None, on_progress: Progress | None) -> None:
        self.cancel, self.on_progress = cancel, on_progress

    def __call__(self, fraction: float, what: str = "choosing epochs") -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled("placing was cancelled")
        if self.on_progress is not None:
            self.on_progress(min(1.0, fraction), what)


def choose_placement(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints,
    check: ProgressCheck,
    costs: CostCache | None = None,
    begun: StartedPlacement | None = None,
) -> tuple[Problem, list[Segment], str, list[Diagnostic]]:
    """(problem, epochs, name of the policy, what there is to say)."""
    name, run = policy(options.balancer_policy)
    check(0.0, "scheduling")
    if begun is None:
        problem = make_problem(graph, models, device, options, constraints, costs)
    else:
        problem, run = begun.problem, _continue_from(begun)
    segments = run(problem, lambda fraction: check(0.05 + 0.8 * fraction))
    if name == "Optimal" and options.schedule_swaps and len(set(problem.phase.values())) < 2:
        better = improve(
            problem, segments, options.schedule_swaps, constraints.pairs(problem.order),
            lambda f: check(0.85 + 0.05 * f, "swapping"), constraints.at_breaks,
        )  # fmt: skip
        problem, segments = better.problem, list(better.segments)
    return problem, segments, name, list(constraints.unmatched)


def _continue_from(begun: StartedPlacement) -> Policy:
    """The policy that goes on from there."""

    def choose(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
        return list(begun.segments)

    return never_worse(choose, OTHERS) if begun.policy == "Optimal" else choose


def make_problem(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints,
    costs: CostCache | None = None,
) -> Problem:
    """The problem that a policy is asked: the ops in the order in which they run, with pins and breaks. Raises
    `OverrideError`."""
    order = schedule(graph, options.scheduler_policy)
    if len(device.chips) > 1 and device.arch != "grayskull":
        order = outputs_last(graph, order)
    order = by_phase(constrain_order(graph, order, constraints.checked()), phases(graph))
    refuse_pins(models, device, constraints)
    chip_breaks(order, device, constraints)
    return Problem.of(graph, models, device, options, order, constraints, costs)


def balance_and_place(
    graph: Graph, device: DeviceSpec, options: CompileOptions, constraints: Constraints = FREE
) -> Placement:
    """`op_models` and `place` in one call."""
    return place(graph, op_models(graph, device, options, constraints.choices), device, options, constraints)
