"""From candidate tables to a placement: epochs by the `steps`, then rectangles, queues, addresses, report."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.constraints import FREE, Constraints, resolve
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.assemble import Parts, assemble
from tbuda_lab.core.placer.model.bounds import bounds
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies import policy
from tbuda_lab.core.placer.policies.layers import LayerEpochs
from tbuda_lab.core.placer.policies.op_runs import forget_searches, objective
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.state import (
    Decisions,
    Outcome,
    PlaceContext,
    PlacementState,
    Progress,
    ProgressCheck,
    SearchWatch,
    StartedPlacement,
)
from tbuda_lab.core.placer.steps import STEPS, Step, choose_feasible, make_problem


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
    costs = CostCache(device, options) if costs is None else costs
    name, run = policy(options.balancer_policy)

    def progress(fraction: float) -> None:
        check(0.05 + 0.8 * fraction)

    with stage():
        problem = make_problem(PlaceContext(graph, models, device, options, FREE, costs, check))
        search = Optimal(problem, progress) if name == "Optimal" else None

    def choose(most: float) -> list[Segment]:
        with stage():
            return run(problem, progress) if search is None else search.run(most)

    def choose_layer() -> LayerEpochs | None:
        with stage():
            return None if search is None else search.layer()

    return StartedPlacement(problem, name, choose, choose_layer)


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
    steps: Sequence[Step] = STEPS,
    watch: SearchWatch | None = None,
) -> Outcome:
    """Places a lowered graph: chooses epochs, then does the steps (see `placer.steps`), which insert nops and queues
    where they pay. Each is told by a note of the placement.

    models: of `op_models` for the same graph and constraints. cancel: once set, `Cancelled` is raised at the next step.
    on_progress: called with (fraction done, what is going on). costs: of other problems of this device with these
    options. begun: of `begin` for this graph, where nothing is asked. watch: follows the search, if there is one.

    Raises `OverrideError` for a pin or queue placement that cannot be honoured, `PlacementError` when an op fits no
    epoch, or queues do not fit DRAM; both say what would be legal.
    """
    check = ProgressCheck(cancel, on_progress)
    costs = CostCache(device, options) if costs is None else costs
    context = PlaceContext(graph, models, device, options, constraints, costs, check, begun)
    if watch is not None:
        context = dataclasses.replace(context, gained=_gained(watch), enough=watch.enough.is_set)
    state = choose_feasible(context)
    for step in steps:
        state = step(state)
    forget_searches(costs)
    outcome = _outcome(state)
    check(1.0, "placed")
    return outcome


def _gained(watch: SearchWatch) -> Callable[[int, float, PlacementState], None]:
    def gained(steps: int, cycles: float, state: PlacementState) -> None:
        watch.found(steps, cycles, lambda: _outcome(state))

    return gained


def outcome_of(started: StartedPlacement) -> Outcome:
    """The placement of epochs that were chosen to be held against others, without the steps that make it better. Raises
    what `assemble` raises."""
    return assemble_placement(started.problem, Decisions(started.segments, started.policy), ())


def _outcome(state: PlacementState) -> Outcome:
    """The placement of epochs that are decided, with their value and the bounds that hold for it."""
    problem, options, constraints = state.problem, state.context.options, state.context.constraints
    plain = _in_order(state.plain, problem.order)
    value = limits = None
    if state.policy == "Optimal" or options.enable_fork_join_buffering:
        value = objective(problem, state.segments, plain)
    if plain is not problem:  # what was inserted takes no time away: what bounds the model without it bounds it with it
        limits = bounds(plain)
    if state.edits and problem.constraints:  # inserted nops and their queues may be addressed as well
        records, profiles = problem.constraints.records, problem.profiles_by_name
        constraints = resolve(records, problem.graph, problem.device, options, profiles)
        problem = dataclasses.replace(problem, constraints=constraints)
    notes = (*constraints.unmatched, *state.notes)
    chosen = Decisions(state.segments, state.policy, notes, value, state.curve, limits, state.needed)
    return assemble_placement(problem, chosen, state.edits, state.context.check)


def assemble_placement(
    problem: Problem,
    chosen: Decisions,
    edits: tuple[Override, ...],
    check: Progress = lambda fraction, what: None,
) -> Outcome:
    """The placement that follows from decisions. Raises what `assemble` raises."""
    parts = Parts()
    placement = assemble(
        problem,
        chosen.segments,
        chosen.policy,
        chosen.notes,
        parts=parts,
        objective=chosen.objective,
        limits=chosen.bounds,
        check=check,
    )
    if placement.report is not None:
        chosen = dataclasses.replace(chosen, bounds=placement.report.bounds)
        if chosen.curve:
            report = dataclasses.replace(placement.report, curve=chosen.curve)
            placement = dataclasses.replace(placement, report=report)
    return Outcome(problem.graph, placement, edits, problem, chosen, parts)


def _in_order(plain: Problem, order: Sequence[str]) -> Problem:
    """The problem before ops were inserted, with its ops in the order that they have now."""
    names = tuple(name for name in order if name in plain.number)
    return plain if names == plain.order else plain.regraph(plain.graph, plain.models, names)
