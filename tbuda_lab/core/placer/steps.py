"""What placing a model does, one step after the other: epochs are chosen, then made to reach, to flow and to be fast.

A step is given the placement as far as it is decided and gives it back, better or as it was. What it inserts into the
graph it adds to the edits, and says so in a note.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tbuda_lab.core.balancer.types import OpPlacement, QueuePlacement
from tbuda_lab.core.epochsim import simulated_cycles
from tbuda_lab.core.errors import Diagnostic, OverrideError, PlacementError
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.graph.phases import by_phase, phases
from tbuda_lab.core.overrides import Override, frozen
from tbuda_lab.core.placer.assemble import assemble, input_buffers, plan_queues, rectangles
from tbuda_lab.core.placer.model.batch_bound import least_times_from
from tbuda_lab.core.placer.model.chip_stages import chips_of, epoch_cost, slowest_stage, tensor_bytes
from tbuda_lab.core.placer.model.problem import Problem, structure_digest
from tbuda_lab.core.placer.model.schedule import constrain_order, outputs_last, schedule
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies import OTHERS, policy
from tbuda_lab.core.placer.policies.pipelining import flowing_epochs
from tbuda_lab.core.placer.policies.portfolio import Policy, never_worse
from tbuda_lab.core.placer.policies.preloading import drop_preloads
from tbuda_lab.core.placer.policies.swaps import improve
from tbuda_lab.core.placer.search.infeasible_repair import (
    crossings,
    hops,
    infeasible_notes,
    narrow_crossings,
    overfull,
    repair_infeasible,
)
from tbuda_lab.core.placer.search.large_neighbourhood import Curve, search_on
from tbuda_lab.core.placer.search.merge_epochs import merge_epochs
from tbuda_lab.core.placer.stalls.epoch_throughput import Trial
from tbuda_lab.core.placer.stalls.fork_join import buffer
from tbuda_lab.core.placer.stalls.stall_repair import RepairedPlacement, hanging, repair_stalls
from tbuda_lab.core.placer.state import PlaceContext, PlacementState, ProgressCheck, StartedPlacement
from tbuda_lab.core.placer.validate import chip_breaks, refuse_pins

_HOP_ROUNDS = 4
"""A nop that carries a tensor one chip further may itself be read on two: how often more are added, for every chip."""

Step = Callable[[PlacementState], PlacementState]


# -- the first: epochs are chosen --------------------------------------------------------------------------------------
def choose_feasible(context: PlaceContext) -> PlacementState:
    """`choose_epochs`, if need be with nops where an op fits no epoch. Raises the first `PlacementError` where that
    does not help."""
    try:
        return choose_epochs(context)
    except PlacementError as error:
        edits = repair_infeasible(context.graph, error)
        if not edits:
            raise
        try:
            state = choose_epochs(context.edited(edits))
        except PlacementError:
            raise error from None
        return dataclasses.replace(state, edits=edits, needed=len(edits), notes=tuple(infeasible_notes(edits, error)))


def choose_epochs(context: PlaceContext) -> PlacementState:
    """The epochs that the policy chooses, with ops swapped in the schedule where that pays. Raises `OverrideError` for
    a pin that cannot be honoured, `PlacementError` when an op fits no epoch; both say what would be legal."""
    options, check, begun, constraints = context.options, context.check, context.begun, context.constraints
    name, run = policy(options.balancer_policy)
    check(0.0, "scheduling")
    if begun is None:
        problem = make_problem(context)
    else:
        problem, run = begun.problem, _continue_from(begun)
    segments = run(problem, lambda fraction: check(0.05 + 0.8 * fraction))
    if name == "Optimal" and options.schedule_swaps and len(set(problem.phase.values())) < 2:
        better = improve(
            problem,
            segments,
            options.schedule_swaps,
            constraints.pairs(problem.order),
            lambda fraction: check(0.85 + 0.05 * fraction, "swapping"),
            constraints.at_breaks,
        )
        problem, segments = better.problem, list(better.segments)
    return PlacementState(context, problem, 0, problem, tuple(segments), name)


def make_problem(context: PlaceContext) -> Problem:
    """The problem that a policy is asked: the ops in the order in which they run, with pins and breaks. Raises
    `OverrideError`."""
    graph, device, constraints = context.graph, context.device, context.constraints.checked()
    order = schedule(graph, context.options.scheduler_policy)
    if len(device.chips) > 1 and device.arch != "grayskull" and not context.on_one_chip:
        order = outputs_last(graph, order)
    order = by_phase(constrain_order(graph, order, constraints), phases(graph))
    refuse_pins(context.models, device, constraints)
    chip_breaks(order, device, constraints)
    return Problem.of(
        graph, context.models, device, context.options, order, constraints, context.costs, context.on_one_chip
    )


def _continue_from(begun: StartedPlacement) -> Policy:
    """The policy that goes on from there."""

    def choose(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
        return list(begun.segments)

    return never_worse(choose, OTHERS) if begun.policy == "Optimal" else choose


# -- the others --------------------------------------------------------------------------------------------------------
def reach_neighbours(state: PlacementState) -> PlacementState:
    """Nops carry tensors from chip to chip where no link reaches, and narrow what crosses one. Raises as
    `choose_epochs` does where a tensor cannot be carried."""
    begun = state
    for _ in range(_HOP_ROUNDS * len(state.context.device.chips)):
        problem, segments = state.problem, state.segments
        spots, epochs = rectangles(problem, segments, chips_of(problem, segments))
        added, pins, notes = hops(problem.graph, spots, problem.device)
        narrows = not pins
        if narrows:
            added, pins, notes = narrow_crossings(problem, spots, epochs, _queues(problem, spots))
        if not pins:
            break
        longer = state.context.edited(added, pins)
        try:
            chosen = choose_epochs(longer)
        except (OverrideError, PlacementError):
            if narrows:  # `keep_links` finds another way
                break
            raise
        edits = (*state.edits, *added)
        state = dataclasses.replace(chosen, edits=edits, needed=len(edits), notes=(*state.notes, *notes))
    return _on_one_chip(state, begun, ())


def merge_refused(state: PlacementState) -> PlacementState:
    """One epoch of two that only a refused edge keeps apart; see `merge_epochs`."""
    if not state.context.options.enable_fork_join_buffering or state.policy == "SingleOpPerEpoch":
        return state
    merged = merge_epochs(state.problem, state.segments, lambda fraction: state.context.check(0.88, "merging epochs"))
    return state.with_epochs(merged.problem, merged.segments, merged.edits, merged.notes)


def repair_full_buffers(state: PlacementState) -> PlacementState:
    """Buffers, queues, nops and cuts where a full buffer holds an epoch up; see `repair_stalls`."""
    if not state.context.options.enable_fork_join_buffering:
        return state
    repaired = repair_stalls(
        state.problem, state.segments, lambda fraction: state.context.check(0.9, "repairing epochs")
    )
    return state.with_epochs(repaired.problem, repaired.segments, repaired.edits, repaired.notes)


def let_flow(state: PlacementState) -> PlacementState:
    """Other candidates in epochs that full buffers hold up all the same, if that is faster. Not in a long model, of
    which each trial prices every epoch anew."""
    if not state.context.options.enable_fork_join_buffering or state.policy != "Optimal" or state.problem.is_long:
        return state
    tried: list[tuple[Segment, ...]] = [state.segments]
    for streams in (True, False):
        flowing = flowing_epochs(state.problem, state.segments, streams)
        if flowing in tried:
            continue
        tried.append(flowing)
        again = repair_stalls(state.problem, flowing)
        if _time(again.problem, again.segments) < _time(state.problem, state.segments):
            return state.with_epochs(again.problem, again.segments, again.edits, again.notes)
    return state


def shorten_first_input(state: PlacementState) -> PlacementState:
    """Other candidates in the epochs of a run of one input, whose time is that of its way through them: a short search
    over the rows of every epoch that differs from the others, taken where it gains enough."""
    problem, segments, options = state.problem, state.segments, state.context.options
    alone = bool(segments) and all(problem.inputs(s.first) == 1 for s in segments)
    alone = alone and len(set(problem.phase.values())) < 2
    repairs = options.enable_fork_join_buffering and options.counts_fill
    if not alone or state.policy != "Optimal" or not repairs:
        return state
    different = {(problem.structure(s.first, s.last), s.rows) for s in segments}
    went = search_on(
        problem,
        segments,
        _STEPS_OF_AN_EPOCH * len(different),
        check=lambda fraction: state.context.check(0.9, "shortening the way of the first input"),
        moves=False,
        name="first input",
        kinds=("sooner", "preload", "joint", "rows", "stream"),
    )
    trial = repair_stalls(went.problem, went.segments)
    if _time(trial.problem, trial.segments) > _WORTH_SHORTENING * _time(problem, segments):
        return state
    return state.with_epochs(trial.problem, trial.segments, trial.edits, trial.notes)


def take_one_chip(state: PlacementState) -> PlacementState:
    """All on one chip where that takes a batch clearly less time, as the simulator of epochs has it, than the stages of
    several chips: these are chosen by what the slowest of them takes, which is the time of a batch only where others
    follow it. A note says both."""
    problem, context = state.problem, state.context.unedited or state.context
    if not _may_take_one_chip(state, context):
        return state
    several = _batch_cycles(state)
    if several is None:
        return state
    least = least_times_from(problem.alone())[0] * problem.options.inputs_counted
    if least > _WORTH_ONE_CHIP * several:
        return state
    try:
        alone = choose_feasible(dataclasses.replace(context, begun=None, on_one_chip=True))
        for step in _SOONER:
            alone = step(alone)
    except (OverrideError, PlacementError):
        return state
    one = _batch_cycles(alone)
    if one is None or one > _WORTH_ONE_CHIP * several:
        return state
    return dataclasses.replace(alone, notes=(*alone.notes, _one_chip_note(state, alone, several, one)))


def _may_take_one_chip(state: PlacementState, context: PlaceContext) -> bool:
    """Not where batches are to follow each other (objective "throughput"), where chips are asked for, for a policy that
    is not `Optimal`, or where one chip does not hold the weights. context: without edits."""
    problem, options = state.problem, state.problem.options
    if state.policy != "Optimal" or not problem.has_stages or problem.is_long or options.objective == "throughput":
        return False
    if problem.chip_breaks or any(pin.chip is not None for pin in context.constraints.pins.values()):
        return False
    if not options.counts_fill or not options.enable_fork_join_buffering:
        return False
    stored = problem.graph.of_kind(NodeKind.PARAMETER, NodeKind.CONSTANT)
    weights = sum(tensor_bytes(problem.graph, node.name, options, problem.device) for node in stored)
    if weights > problem.device.dram_channels * problem.device.dram_channel_bytes:
        return False
    return len(set(chips_of(problem, state.segments))) > 1


def _one_chip_note(state: PlacementState, alone: PlacementState, several: int, one: int) -> Diagnostic:
    """Why one chip has all ops. several, one: cycles of the batch."""
    inputs, count = state.problem.options.inputs_counted, len(set(chips_of(state.problem, state.segments)))
    pace, home = slowest_stage(state.problem, state.segments), chips_of(alone.problem, alone.segments)[0]
    text = (
        f"all ops are on chip {home}: a batch takes {one / inputs:,.0f} cycles an input there, {several / inputs:,.0f} "
        f"on {count} chips, which take {pace:,.0f} where batches follow each other without a gap"
    )
    fix = 'the objective "throughput", a chip break or a chip pin puts ops on several chips'
    return Diagnostic("note", "pipeline", "stages", text, fix)


def _batch_cycles(state: PlacementState) -> int | None:
    """Simulated cycles of the batch that the objective counts; None where the placement has no room in DRAM, or would
    hang."""
    problem, options = state.problem, state.problem.options
    try:
        placement = assemble(problem, state.segments, state.policy)
    except (OverrideError, PlacementError):
        return None
    trial = Trial(problem.graph, placement, problem.device, problem.constraints.input_factors, options.loaded_once)
    return simulated_cycles(trial, options.inputs_counted)


def search_further(state: PlacementState) -> PlacementState:
    """The epochs after a search (see `search_on`), repaired, where that finds faster ones; with `optimise_rounds` after
    one search for each, from where the one before ended. Its limits are those of the context: a problem that was begun
    may have others."""
    options = state.context.options
    if not options.optimise_steps and not options.optimise_seconds:
        return state
    if not options.optimise_rounds:
        return _search_round(state, "")
    first, answers = state, state.context.costs.answers
    curve: Curve = ((0, _time(state.problem, state.segments)),)
    for number, name in enumerate(options.optimise_rounds, 1):
        key = _round_key(first, options.optimise_rounds[:number])
        found = answers.get(key)
        if not isinstance(found, PlacementState):
            found = _search_round(state, name)
            _keep_round(answers, key, found)
        state = dataclasses.replace(
            state, problem=found.problem, segments=found.segments, edits=found.edits, notes=found.notes
        )
        done = curve[-1][0]
        curve = (*curve, *((done + steps, cycles) for steps, cycles in found.curve if steps))
    return dataclasses.replace(state, curve=curve)


def _search_round(state: PlacementState, name: str) -> PlacementState:
    """One search from a placement. Its curve counts from there."""
    begun, options, check, problem = state, state.context.options, state.context.check, state.problem
    constraints = problem.constraints
    went = search_on(
        problem,
        state.segments,
        options.optimise_steps,
        options.optimise_seconds,
        constraints.pairs(problem.order),
        constraints.at_breaks,
        lambda fraction: check(0.9 + 0.02 * fraction, "searching for a faster placement"),
        len(set(phases(problem.graph).values())) < 2,
        lambda steps, cycles, found, segments: begun.context.gained(steps, cycles, begun.with_epochs(found, segments)),
        begun.context.enough,
        name,
    )
    trial = RepairedPlacement(went.problem, went.segments)
    if options.enable_fork_join_buffering:
        trial = repair_stalls(went.problem, went.segments)
    if _time(trial.problem, trial.segments) < _time(problem, state.segments):
        state = state.with_epochs(trial.problem, trial.segments, trial.edits, trial.notes)
    # the search counts on the pace of the first inputs; what it comes to is the time of the whole batch
    final = _time(state.problem, state.segments)
    curve = (*(point for point in went.curve[:-1] if point[1] >= final), (went.steps, final))
    return dataclasses.replace(state, curve=curve)


_STEPS_OF_AN_EPOCH = 8
"""Steps of the search at one input for each epoch that no other one is equal to."""
_WORTH_ONE_CHIP = 0.97
"""Of the time of a batch on several chips, what it has to take on one: where both are near, the chips stay."""
_WORTH_SHORTENING = 0.99
"""Of the time before, what the search at one input has to come to."""
_KEPT_ROUNDS = 8
"""Searches whose end is kept, for one that goes on from there under other options of the search."""


def _round_key(first: PlacementState, names: Sequence[str]) -> tuple[object, ...]:
    """What a round follows from: the placement before the first one, its names and the steps of each."""
    problem, steps = first.problem, first.context.options.optimise_steps
    epochs = tuple((s.first, s.last, s.rows) for s in first.segments)
    asked = frozen(tuple(problem.constraints.records)), frozen(first.edits)
    return "round", structure_digest(problem.graph), problem.order, epochs, asked, steps, tuple(names)


def _keep_round(known: dict[tuple[object, ...], object], key: tuple[object, ...], found: PlacementState) -> None:
    rounds = [k for k in known if k[0] == "round"]
    for old in rounds[: max(0, len(rounds) + 1 - _KEPT_ROUNDS)]:
        del known[old]
    known[key] = dataclasses.replace(found, context=dataclasses.replace(found.context, check=ProgressCheck()))


def drop_refused_preloads(state: PlacementState) -> PlacementState:
    """Candidates that stream what cores have no streams or L1 to preload, so that the placement costs what it takes."""
    problem, segments = state.problem, state.segments
    spots, _ = rectangles(problem, segments, chips_of(problem, segments))
    sizes = input_buffers(problem, segments, [buffer(problem, segment, 0) for segment in segments])
    planner = plan_queues(problem, spots, None, sizes)
    planner.plan()
    refused: dict[int, int] = {}
    for op, port, _ in planner.refused_preloads():
        refused[problem.number[op]] = refused.get(problem.number[op], 0) | 1 << port
    if not refused:
        return state
    fewer = tuple(
        drop_preloads(problem, s, {op: bits for op, bits in refused.items() if s.first <= op < s.last})
        for s in segments
    )
    return dataclasses.replace(state, segments=fewer)


def keep_links(state: PlacementState) -> PlacementState:
    """All on one chip where the placement as it has become sends more over a link than it has streams for."""
    return _on_one_chip(state, state, _FASTER)


def refuse_hanging(state: PlacementState) -> PlacementState:
    """Raises `PlacementError` for an epoch that would wait for ever, however it was repaired and cut."""
    if state.context.options.enable_fork_join_buffering:
        errors = hanging(state.problem, state.segments)
        if errors:
            raise PlacementError("epochs that would hang, and that no queue, nop or cut lets run", errors)
    return state


def _on_one_chip(state: PlacementState, begun: PlacementState, steps: Sequence[Step]) -> PlacementState:
    """The state; where more would cross a link between chips than it has streams for (rule N11) and no nop narrows it,
    such as weights that parts of a training on several chips share, all that `begun` has on one chip, after `steps`.
    Where chips are asked for, or one does not hold it all, the state stays, and the check of the netlist says what
    crosses."""
    device, problem = state.problem.device, state.problem
    if device.arch == "grayskull" or len(device.chips) == 1:
        return state
    spots, epochs = rectangles(problem, state.segments, chips_of(problem, state.segments))
    over = overfull(device, crossings(problem, spots, epochs, _queues(problem, spots)))
    if not over:
        return state
    some = max(over.values(), key=lambda some: sum(c.pipes for c in some))
    most, home = max(some, key=lambda c: c.pipes), device.mmio_chips[0]
    pins = [Override("op_placement", op.name, {"chip": home}, "placer") for op in begun.context.graph.ops]
    try:
        alone = choose_feasible(begun.context.edited((), pins))
        for step in steps:
            alone = step(alone)
    except (OverrideError, PlacementError):
        return state
    text = (
        f"all ops are on chip {home}: on several, {sum(c.pipes for c in some)} pipes would cross a link between chips "
        f"at a time, {most.pipes} of them for {most.source}"
    )
    fix = "compile for one chip, or pin ops to chips so that less crosses"
    needed = begun.edits[: begun.needed]
    return dataclasses.replace(
        alone,
        edits=(*needed, *alone.edits),
        needed=len(needed) + alone.needed,
        notes=(*alone.notes, Diagnostic("note", most.source, "repair", text, fix)),
    )


def _queues(problem: Problem, spots: Mapping[str, OpPlacement]) -> list[QueuePlacement]:
    """The queues of placed ops, without addresses."""
    planner = plan_queues(problem, spots)
    planner.plan()
    return [q for plans in planner.plans.values() for q in plans]


def _time(problem: Problem, segments: Sequence[Segment]) -> float:
    if problem.has_stages:
        return slowest_stage(problem, segments)
    return float(sum(epoch_cost(problem, s) for s in segments))


_SOONER: tuple[Step, ...] = (merge_refused, repair_full_buffers, let_flow, shorten_first_input)
_FASTER: tuple[Step, ...] = (*_SOONER, search_further)

STEPS: tuple[Step, ...] = (
    reach_neighbours,
    *_SOONER,
    take_one_chip,
    search_further,
    keep_links,
    drop_refused_preloads,
    refuse_hanging,
)
"""What follows on `choose_feasible`, in this order: first what the chips demand, then what makes epochs faster."""
