"""Epochs that do not flow are repaired: room where a buffer is full, as far as it pays for the batch; and what an epoch
costs when it is repaired, which the choice of epochs asks for.

For an edge that holds its epoch up (see `throughput`) four things are tried, and the cheapest kept if it beats the
epoch as it is: a double output buffer for the producer, a DRAM queue on the edge, a nop on it where cores are free, and
a new epoch before the reader. Each is priced by the simulator with all it costs: DRAM traffic, cores, the switch.
Larger input buffers come before all of this (`fork_join`) and cost nothing but L1. Where several forks hang, a repair
counts that leaves fewer full buffers among them. What is found for an epoch is kept with the problem, so an epoch that
was priced when it was chosen is repaired in just that way. An epoch that hangs after all of this becomes as many as do
not: what has to wait lies in the queues between them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.epoch_throughput import (
    Throughput,
    batch_cycles,
    throughput,
    throughputs,
)
from tbuda_lab.core.placer.stalls.repairs import Repair, RepairedEpoch, Repairs

_SLACK = 1.03
"""An epoch whose period is within this of its slowest op is held up by nothing that a repair would gain back."""
_HELD_UP = 1.05
"""From this period over its slowest op on an epoch counts as held up after all repairs: another one may be better."""
_WORTH = 0.99
"""Part of the cycles that a repair has to stay below."""
_HANGS = 1e15
"""Stall cycles of an epoch that deadlocks: more than any other takes."""
_GOOD = 1.01
"""A repair this near to an epoch that nothing holds up is taken at once."""
_ROUNDS = 4
"""Repairs of an epoch at most, beside one for each deadlock."""


@dataclasses.dataclass(frozen=True)
class RepairedPlacement:
    """problem: with the graph as repaired. edits: what was inserted, in order. notes: what each repair was for and
    cost."""

    problem: Problem
    segments: tuple[Segment, ...]
    edits: tuple[Override, ...] = ()
    notes: tuple[Diagnostic, ...] = ()


@dataclasses.dataclass(frozen=True)
class Price:
    """What an epoch takes when it is repaired. plan: the repairs. before: how it flows without them. cycles: of a batch
    over the epochs it then is, `parts`, without the switches to them; period: from one input to the next in all of them
    together, limiter: of their slowest ops together."""

    plan: tuple[Repair, ...]
    before: Throughput
    cycles: float
    period: float
    limiter: int
    parts: int


def repair_stalls(
    problem: Problem,
    segments: Sequence[Segment],
    check: Callable[[float], None] = lambda fraction: None,
) -> RepairedPlacement:
    """Repairs every epoch that takes longer for a batch than its slowest op accounts for.

    With a microbatch of one an epoch is filled and drained but never flows: then only those are repaired that would
    hang. The result depends on the epochs alone: which ways are tried is counted, not timed.
    """
    return _StallRepair(problem, check).run(segments)


def price(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> Price:
    """What an epoch costs as `repair_stalls` leaves it. upstream_rows: rows of the ops of earlier epochs, where they
    are known."""
    return _StallRepair(problem, lambda fraction: None).price(segment, upstream_rows)


def with_stall_cycles(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> Segment:
    """The epoch with its stall cycles: what it costs per input, as `repair_stalls` leaves it, beyond its slowest op and
    the switch to it. A full buffer that nothing can repair costs the pace it leaves, a repair what it takes (see
    `price`), an epoch that would hang more than any other. Filling counts as the options say. There are none where
    nothing is repaired (`enable_fork_join_buffering`)."""
    if not problem.options.enable_fork_join_buffering:
        return segment
    result = price(problem, segment, upstream_rows)
    return _charge(problem, segment, result.cycles, result.period, result.limiter, result.parts)


def with_least_stall_cycles(problem: Problem, segment: Segment) -> Segment:
    """The epoch with the stall cycles that it would have if no full buffer held it up: the repairs of
    `with_stall_cycles` leave no fewer, and this takes one simulation where that takes many."""
    if not problem.options.enable_fork_join_buffering:
        return segment
    now, inputs = throughput(problem, segment), problem.inputs(segment.first)
    held = max(0.0, now.period - segment.limiter_cycles) if inputs > 1 else 0.0
    limiter = segment.limiter_cycles
    return _charge(problem, segment, now.roomy - inputs * held, limiter, limiter)


def hangs(segment: Segment) -> bool:
    """Whether an epoch with its stall cycles would wait for ever, however it is repaired."""
    return segment.stall_cycles >= _HANGS


def hanging(problem: Problem, segments: Sequence[Segment]) -> list[Diagnostic]:
    """Of every epoch that would wait for ever, the full buffers, and what the user may do."""
    errors = []
    for index, segment in enumerate(segments):
        now = throughput(problem, segment)
        names = problem.order[segment.first : segment.last]
        for producer, reader, port in now.stuck if now.deadlocked else ():
            text = f"operand {port} of {names[reader]} would wait for ever: the buffer behind {names[producer]} is full"
            fix = f"insert_queue from {names[producer]} to {names[reader]}, or an epoch break before {names[reader]}"
            errors.append(Diagnostic("error", f"epoch {index}", "deadlock", text, fix))
    return errors


def is_held_up(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> bool:
    """Whether an epoch takes longer from one input to the next than its slowest op, however it is repaired."""
    if not problem.options.enable_fork_join_buffering or problem.inputs(segment.first) < 2:
        return False
    result = price(problem, segment, upstream_rows)
    return not np.isfinite(result.cycles) or result.period > _HELD_UP * segment.limiter_cycles


def _charge(problem: Problem, segment: Segment, cycles: float, period: float, limiter: int, parts: int = 1) -> Segment:
    """The epoch with the stall cycles of one that takes so long (see `Price`). A single input is filled and drained:
    there is no pace then that a buffer could hold up."""
    if not np.isfinite(cycles):
        return dataclasses.replace(segment, stall_cycles=_HANGS)
    options, inputs = problem.options, problem.inputs(segment.first)
    takes: float = period if options.epoch_fill_cycles is not None else cycles / inputs
    if inputs < 2 and not options.counts_fill:
        takes = limiter
    more = (parts - 1) * options.epoch_switch_cycles / inputs
    return dataclasses.replace(segment, stall_cycles=max(0.0, takes - segment.limiter_cycles) + more)


class _StallRepair:
    def __init__(self, problem: Problem, check: Callable[[float], None]) -> None:
        self.problem, self.check = problem, check
        self.repairs = Repairs()

    def price(self, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> Price:
        """The repairs of an epoch and what it takes with them: worked out once for equal epochs."""
        problem = self.problem
        names = problem.order[segment.first : segment.last] if problem.constraints.tells_equal_ops_apart else ()
        key = (problem.structure(segment.first, segment.last), segment.rows, segment.spots, names)
        entry = problem.costs.prices.get(key)
        if not isinstance(entry, Price):
            before = self._throughput(problem, segment)
            entry = self._plan(RepairedEpoch(problem, (segment,)), upstream_rows or {}, before)
            problem.costs.prices[key] = entry
        return entry

    def run(self, segments: Sequence[Segment]) -> RepairedPlacement:
        result: list[Segment] = []
        edits: list[Override] = []
        notes: list[Diagnostic] = []
        # from the back, so that a nop moves only the numbers of ops that are done with
        for index in range(len(segments) - 1, -1, -1):
            self.check(1 - (index + 1) / len(segments))
            segment = segments[index]
            upstream_rows = {
                op: row for s in segments[:index] for op, row in zip(range(s.first, s.last), s.rows, strict=True)
            }
            state = RepairedEpoch(self.problem, (segment,))
            price = self.price(segment, upstream_rows)
            for repair in price.plan:
                repaired_epoch = self.repairs.apply(state, repair, segment.first, upstream_rows)
                if repaired_epoch is not None:
                    state = repaired_epoch
            planned = {part.first for part in state.parts}
            state = self._cut_where_it_hangs(state, upstream_rows)
            forced = [state.problem.order[part.first] for part in state.parts if part.first not in planned]
            if state.parts != (segment,) or state.edits:
                notes.append(self._note(index, price, segment, state, forced))
            grown = state.parts[-1].last - segment.last
            result = [*state.parts, *(_shift(s, grown) for s in result)]
            edits = [*state.edits, *edits]
            self.problem = state.problem
        now_throughputs = throughputs([(self.problem, s) for s in result])
        result = [
            _charge(self.problem, s, self._whole(s, now), now.period, s.limiter_cycles)
            for s, now in zip(result, now_throughputs, strict=True)
        ]
        return RepairedPlacement(self.problem, tuple(result), tuple(edits), tuple(reversed(notes)))

    def _cut_where_it_hangs(self, state: RepairedEpoch, upstream_rows: Mapping[int, int]) -> RepairedEpoch:
        """The epochs, each that hangs in two as often as that takes. One op alone never hangs; a part that no cut
        leaves legal stays, and `hanging` tells of it."""
        parts, waiting = list[Segment](), list(state.parts)
        rows_so_far = dict(upstream_rows)
        while waiting:
            segment = waiting.pop(0)
            now = self._throughput(state.problem, segment)
            halves = self._cut(state.problem, segment, now, rows_so_far) if now.deadlocked else ()
            if halves:
                waiting[:0] = halves
                continue
            parts.append(segment)
            rows_so_far.update(zip(range(segment.first, segment.last), segment.rows, strict=True))
        return dataclasses.replace(state, parts=tuple(parts))

    def _cut(
        self, problem: Problem, segment: Segment, now: Throughput, upstream_rows: Mapping[int, int]
    ) -> tuple[Segment, ...]:
        """The two epochs of a legal cut: before the reader of a full buffer, as near to the middle as can be, else
        anywhere; nothing where there is none."""
        count = segment.last - segment.first
        stuck = {reader for _, reader, _ in now.stuck}
        for at in sorted(range(1, count), key=lambda at: (at not in stuck, abs(2 * at - count), at)):
            halves = self.repairs.apply(
                RepairedEpoch(problem, (segment,)), Repair("cut", 0, at, 0), segment.first, upstream_rows
            )
            if halves is not None:
                return halves.parts
        return ()

    # -- the search ------------------------------------------------------------------------------------------
    def _plan(self, state: RepairedEpoch, upstream_rows: Mapping[int, int], before: Throughput) -> Price:
        """The repairs of an epoch. Of a batch a new epoch is one of them only where nothing else ends a deadlock: of 56
        placements of ten models at batches 8 and 64 none had one that paid, and trying them took a tenth of a compile.
        Of one input it is the cheaper of two plans: with a new epoch where it pays most, which ends the search, and
        without one."""
        if state.problem.inputs(state.parts[0].first) > 1:
            whole = self._cheapest(state, upstream_rows, before, cuts=False)
            if np.isfinite(whole.cycles):
                return whole
        plan = self._cheapest(state, upstream_rows, before, cuts=True)
        if plan.parts == 1:
            return plan
        whole = self._cheapest(state, upstream_rows, before, cuts=False)
        switch = float(self.problem.options.epoch_switch_cycles)
        return whole if whole.cycles <= plan.cycles + switch * (plan.parts - 1) else plan

    def _cheapest(
        self, state: RepairedEpoch, upstream_rows: Mapping[int, int], before: Throughput, cuts: bool
    ) -> Price:
        """Repairs one after the other, as long as each pays. cuts: whether a new epoch may be one of them."""
        first = state.parts[0].first
        plan: tuple[Repair, ...] = ()
        # an epoch that deadlocks may do so at several forks at once: fewer full buffers in it are progress, too
        now, cost = before, (before.deadlocks, len(before.stuck), self._time(state.parts, [before]))
        inputs = state.problem.inputs(first)
        single = inputs < 2
        for _ in range(_ROUNDS + before.deadlocks):
            fast = single or now.period <= _SLACK * state.parts[0].limiter_cycles
            if len(state.parts) > 1 or (not now.deadlocked and fast):
                break
            # what is left of the cycles when nothing holds the epoch up any more: a repair that comes near it will do
            whole = inputs * (now.period - state.parts[0].limiter_cycles)
            floor = _GOOD * (self._time(state.parts, [now]) - (0.0 if single else max(0.0, whole)))
            best = self._best_repair(state, now, cost, floor, cuts, upstream_rows)
            if best is None or not best[0] < (*cost[:2], _WORTH * cost[2]):
                break
            cost, repair, state = best
            plan = (*plan, repair)
            now = self._throughput(state.problem, state.parts[0])
        ends = [self._throughput(state.problem, part) for part in state.parts]
        limiter = sum(part.limiter_cycles for part in state.parts)
        return Price(plan, before, sum(e.cycles for e in ends), sum(e.period for e in ends), limiter, len(ends))

    def _best_repair(
        self,
        state: RepairedEpoch,
        now: Throughput,
        cost: tuple[int, int, float],
        floor: float,
        cuts: bool,
        upstream_rows: Mapping[int, int],
    ) -> tuple[tuple[int, int, float], Repair, RepairedEpoch] | None:
        """The cheapest repair of an epoch, or the first that comes near the `floor`, with what the epoch is then: its
        deadlocks, full buffers at them, cycles. cost: the same without it."""
        best: tuple[tuple[int, int, float], Repair, RepairedEpoch] | None = None
        # a trial that cannot pay is not simulated; where the epoch deadlocks, any that ends that does
        most = _WORTH * cost[2] if cost[:2] == (0, 0) else float("inf")
        for trials in self._trials(state, now, most, cuts, upstream_rows):
            throughputs([(r.problem, r.parts[0]) for _, r in trials if len(r.parts) == 1])
            for repair, result in trials:
                if best is not None and best[0][:2] == (0, 0) and self._least(result.parts) >= best[0][2]:
                    continue
                ends = throughputs([(result.problem, part) for part in result.parts])
                hanging = sum(end.deadlocks for end in ends), sum(len(end.stuck) for end in ends)
                total = (*hanging, self._time(result.parts, ends))
                if best is None or total < best[0]:
                    best = total, repair, result
                    if (not hanging[0] or hanging < cost[:2]) and total[2] <= floor:
                        return best
        return best

    def _trials(
        self, state: RepairedEpoch, now: Throughput, most: float, cuts: bool, upstream_rows: Mapping[int, int]
    ) -> Iterator[list[tuple[Repair, RepairedEpoch]]]:
        """Legal repairs that may take less than `most` cycles, to be simulated side by side: those of the first edge
        that need no nop, for mostly one of them will do and nops take longest to look for, then all others."""
        trials = []
        first = True
        for repair in self.repairs.possible(state, now):
            if repair.kind == "cut" and not cuts:
                continue
            result = self.repairs.apply(state, repair, state.parts[0].first, upstream_rows)
            if result is not None and self._least(result.parts) < most:
                trials.append((repair, result))
            if first and repair.kind == "queue":
                yield trials
                trials, first = [], False
        yield trials

    def _time(self, parts: Sequence[Segment], ends: Sequence[Throughput]) -> float:
        """Cycles of a batch over epochs with the switches between them, as if nothing hung; of a batch of one the
        slowest ops alone, as in the choice of epochs."""
        options = self.problem.options
        single = self.problem.inputs(parts[0].first) < 2 and not options.counts_fill
        cycles = sum(s.limiter_cycles if single else f.roomy for s, f in zip(parts, ends, strict=True))
        return cycles + options.epoch_switch_cycles * (len(parts) - 1)

    def _least(self, parts: Sequence[Segment]) -> float:
        """A lower bound of `_time`: every input takes the slowest op of each epoch as long as it works on it."""
        slowest = sum(part.limiter_cycles for part in parts)
        switches = self.problem.options.epoch_switch_cycles * (len(parts) - 1)
        return self.problem.inputs(parts[0].first) * slowest + switches

    def _throughput(self, problem: Problem, segment: Segment) -> Throughput:
        return throughput(problem, segment)

    def _whole(self, segment: Segment, now: Throughput) -> float:
        """Cycles of the whole batch, infinite where the epoch deadlocks."""
        return now.cycles if now.deadlocked else batch_cycles(self.problem, segment)

    def _note(self, index: int, price: Price, old: Segment, state: RepairedEpoch, forced: Sequence[str]) -> Diagnostic:
        """What was done to an epoch and what that is worth. forced: ops before which it was cut for it hung."""
        was = price.before
        now = sum(self._throughput(state.problem, part).cycles for part in state.parts)
        what = {
            "buffer": "a double output buffer for {0}",
            "queue": "a DRAM queue between {0} and {1}",
            "nop": "a nop between {0} and {1}",
            "cut": "a new epoch before {1}",
        }
        shifted = list(self.problem.order[old.first : old.last])
        done = []
        for repair in price.plan:
            done.append(what[repair.kind].format(shifted[repair.producer], shifted[repair.reader]))
            if repair.kind == "nop":
                shifted.insert(repair.reader, "nop")
        if forced:
            done.append(f"a new epoch before {', '.join(forced)}, for nothing less ends a deadlock")
        slowest = max(part.limiter_cycles for part in state.parts)
        gain = "it would deadlock" if was.deadlocked else f"{int(was.cycles)} cycles a batch without"
        took = f"{int(now)} cycles a batch" if np.isfinite(now) else "it hangs all the same"
        text = (
            f"{'; '.join(done)}: {took}, {gain}; the slowest op takes {slowest} an input, it took {old.limiter_cycles}"
        )
        return Diagnostic(
            "note", f"epoch {index}", "repair", text, "enable_fork_join_buffering=False leaves epochs as they are"
        )


def _shift(segment: Segment, by: int) -> Segment:
    return dataclasses.replace(segment, first=segment.first + by, last=segment.last + by) if by else segment
