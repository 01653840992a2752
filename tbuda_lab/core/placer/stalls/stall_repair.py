"""Epochs that do not flow are repaired: room where a buffer is full, as far as it pays for the batch; and what an epoch
costs when it is repaired, which the choice of epochs asks for.

For an edge that holds its epoch up (see `throughput`) four things are tried, and the cheapest kept if it beats the
epoch as it is: a double output buffer for the producer, a DRAM queue on the edge, a nop on it where cores are free, and
a new epoch before the reader. Each is priced by the simulator with all it costs: DRAM traffic, cores, the switch.
Larger input buffers come before all of this (`fork_join`) and cost nothing but L1. Where several forks hang, a repair
counts that leaves fewer full buffers among them. What is found for an epoch is kept with the problem, so an epoch that
was priced when it was chosen is repaired in just that way.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.enumerate import Choice
from tbuda_lab.core.balancer.models import choices, signature_of, table_of
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.errors import Diagnostic, OverrideError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.edits import edit, queued_ports
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.grid import CoreGrid, Spot
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure
from tbuda_lab.core.placer.stalls.epoch_throughput import (
    Throughput,
    batch_cycles,
    full_edges,
    throughput,
    throughputs,
)

_SLACK = 1.03  # an epoch whose pace is that near its slowest op flows
_HELD_UP = 1.05
_WORTH = 0.99  # part of the cycles that a repair has to stay below
_HANGS = 1e15
_GOOD = 1.01
_ROUNDS = 4
_EDGES = 2
_STUCK = 4  # edges that are looked at where an epoch of a single input would hang; of a batch two do as well
_NOPS, _NOPS_OF_BATCH = 2, 1


@dataclasses.dataclass(frozen=True)
class RepairedPlacement:
    """problem: with the graph as repaired. edits: what was inserted, in order. notes: what each repair was for and
    cost."""

    problem: Problem
    segments: tuple[Segment, ...]
    edits: tuple[Override, ...] = ()
    notes: tuple[Diagnostic, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Action:
    """One way to repair, by ops counted from the first of the epoch. kind: "buffer", "queue", "nop" or "cut"."""

    kind: str
    producer: int
    reader: int
    port: int
    row: int = -1
    spot: Spot = (0, 0, False)


@dataclasses.dataclass(frozen=True)
class Price:
    """What an epoch takes when it is repaired. plan: the repairs. before: how it flows without them. cycles: of a batch
    over the epochs it then is, `parts`, without the switches to them; period: from one input to the next in all of them
    together, limiter: of their slowest ops together."""

    plan: tuple[_Action, ...]
    before: Throughput
    cycles: float
    period: float
    limiter: int
    parts: int


@dataclasses.dataclass(frozen=True)
class _State:
    """An epoch in the making (two after a cut)."""

    problem: Problem
    parts: tuple[Segment, ...]
    edits: tuple[Override, ...] = ()


def repair_stalls(
    problem: Problem,
    segments: Sequence[Segment],
    overrides: tuple[Override, ...] = (),
    check: Callable[[float], None] = lambda fraction: None,
) -> RepairedPlacement:
    """Repairs every epoch that takes longer for a batch than its slowest op accounts for.

    With a microbatch of one an epoch is filled and drained but never flows: then only those are repaired that would
    hang. The result depends on the epochs alone: which ways are tried is counted, not timed.
    """
    return _StallRepair(problem, overrides, check).run(segments)


def price(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> Price:
    """What an epoch costs as `repair_stalls` leaves it. upstream_rows: rows of the ops of earlier epochs, where they
    are known."""
    return _StallRepair(problem, problem.overrides, lambda fraction: None).price(segment, upstream_rows)


def priced(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> Segment:
    """The epoch with its stall cycles: what it costs per input, as `repair_stalls` leaves it, beyond its slowest op and
    the switch to it. A full buffer that nothing can repair costs the pace it leaves, a repair what it takes (see
    `price`), an epoch that would hang more than any other. Filling counts as the options say. There are none where
    nothing is repaired (`enable_fork_join_buffering`)."""
    if not problem.options.enable_fork_join_buffering:
        return segment
    result = price(problem, segment, upstream_rows)
    return _with_stall_cycles(problem, segment, result.cycles, result.period, result.limiter, result.parts)


def at_best(problem: Problem, segment: Segment) -> Segment:
    """The epoch with the stall cycles that it would have if no full buffer held it up: the repairs of `priced` leave no
    fewer, and this takes one simulation where that takes many."""
    if not problem.options.enable_fork_join_buffering:
        return segment
    now, inputs = throughput(problem, segment, problem.overrides), problem.inputs(segment.first)
    held = max(0.0, now.period - segment.limiter_cycles) if inputs > 1 else 0.0
    limiter = segment.limiter_cycles
    return _with_stall_cycles(problem, segment, now.roomy - inputs * held, limiter, limiter)


def held_up(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> bool:
    """Whether an epoch takes longer from one input to the next than its slowest op, however it is repaired."""
    if not problem.options.enable_fork_join_buffering or problem.inputs(segment.first) < 2:
        return False
    result = price(problem, segment, upstream_rows)
    return not np.isfinite(result.cycles) or result.period > _HELD_UP * segment.limiter_cycles


def _with_stall_cycles(
    problem: Problem, segment: Segment, cycles: float, period: float, limiter: int, parts: int = 1
) -> Segment:
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
    def __init__(self, problem: Problem, overrides: tuple[Override, ...], check: Callable[[float], None]) -> None:
        self.problem, self.overrides, self.check = problem, overrides, check
        # overrides that may address a nop which is to be inserted, or a buffer: then equal epochs are not alike
        self._by_name = any(
            o.kind == "input_buffer_multiplier" or not isinstance(o.target, (str, tuple)) or "buffer_" in str(o.target)
            for o in overrides
        )
        self._nopped: dict[tuple[int, int, int], tuple[Problem, Problem]] = {}

    def price(self, segment: Segment, upstream_rows: Mapping[int, int] | None = None) -> Price:
        """The repairs of an epoch and what it takes with them: worked out once for equal epochs."""
        problem = self.problem
        names = problem.order[segment.first : segment.last] if self._by_name else ()
        key = (problem.structure(segment.first, segment.last), segment.rows, segment.spots, names)
        entry = problem.costs.prices.get(key)
        if not isinstance(entry, Price):
            before = self._throughput(problem, segment)
            entry = self._plan(_State(problem, (segment,)), upstream_rows or {}, before)
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
            state = _State(self.problem, (segment,))
            price = self.price(segment, upstream_rows)
            for action in price.plan:
                output = self._apply(state, action, segment.first, upstream_rows)
                if output is not None:
                    state = output
            if state.parts != (segment,) or state.edits:
                notes.append(self._note(index, price, segment, state))
            grown = state.parts[-1].last - segment.last
            result = [*state.parts, *(_shifted(s, grown) for s in result)]
            edits = [*state.edits, *edits]
            self.problem = state.problem
        now_throughputs = throughputs([(self.problem, s) for s in result], self.overrides)
        charged = tuple(
            _with_stall_cycles(self.problem, s, self._whole(s, now), now.period, s.limiter_cycles)
            for s, now in zip(result, now_throughputs, strict=True)
        )
        return RepairedPlacement(self.problem, charged, tuple(edits), tuple(reversed(notes)))

    # -- the search ------------------------------------------------------------------------------------------
    def _plan(self, state: _State, upstream_rows: Mapping[int, int], before: Throughput) -> Price:
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

    def _cheapest(self, state: _State, upstream_rows: Mapping[int, int], before: Throughput, cuts: bool) -> Price:
        """Repairs one after the other, as long as each pays. cuts: whether a new epoch may be one of them."""
        first = state.parts[0].first
        plan: tuple[_Action, ...] = ()
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
            best: tuple[tuple[int, int, float], _Action, _State] | None = None
            # a trial that cannot pay is not simulated; where the epoch deadlocks, any that ends that does
            most = _WORTH * cost[2] if cost[:2] == (0, 0) else float("inf")
            trials = []
            for action in self._actions(state, now):
                if action.kind == "cut" and not cuts:
                    continue
                result = self._apply(state, action, first, upstream_rows)
                if result is not None and self._least(result.parts) < most:
                    trials.append((action, result))
            throughputs([(r.problem, r.parts[0]) for _, r in trials if len(r.parts) == 1], self.overrides)
            for action, result in trials:
                if best is not None and best[0][:2] == (0, 0) and self._least(result.parts) >= best[0][2]:
                    continue
                ends = throughputs([(result.problem, part) for part in result.parts], self.overrides)
                hanging = sum(end.deadlocks for end in ends), sum(len(end.stuck) for end in ends)
                total = (*hanging, self._time(result.parts, ends))
                if best is None or total < best[0]:
                    best = total, action, result
                    if (not hanging[0] or hanging < cost[:2]) and total[2] <= floor:
                        break
            if best is None or not best[0] < (*cost[:2], _WORTH * cost[2]):
                break
            cost, action, state = best
            plan = (*plan, action)
            now = self._throughput(state.problem, state.parts[0])
        ends = [self._throughput(state.problem, part) for part in state.parts]
        limiter = sum(part.limiter_cycles for part in state.parts)
        return Price(plan, before, sum(e.cycles for e in ends), sum(e.period for e in ends), limiter, len(ends))

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
        return throughput(problem, segment, self.overrides)

    def _whole(self, segment: Segment, now: Throughput) -> float:
        """Cycles of the whole batch, infinite where the epoch deadlocks."""
        return now.cycles if now.deadlocked else batch_cycles(self.problem, segment, self.overrides)

    def _actions(self, state: _State, now: Throughput) -> Iterator[_Action]:
        """What could make room on the edges that held the epoch up."""
        problem, segment = state.problem, state.parts[0]
        full = full_edges(problem, segment, self.overrides)
        most = max(_EDGES, min(len(now.stuck), _STUCK)) if problem.inputs(segment.first) < 2 else _EDGES
        for producer, reader, port in full[:most]:
            for row in self._doubled(problem, segment, producer):
                yield _Action("buffer", producer, reader, port, row)
            yield _Action("queue", producer, reader, port)
            for row, spot in self._nops(state, producer, reader):
                yield _Action("nop", producer, reader, port, row, spot)
            if reader > 0:
                yield _Action("cut", producer, reader, port)

    def _doubled(self, problem: Problem, segment: Segment, op: int) -> list[int]:
        """The fastest candidate of the same layout with a double output buffer, for an op that has a single one."""
        table, at = problem.tables[segment.first + op], segment.rows[op]
        row = table.rows[at]
        if row["buf_size_mb"] > 1:
            return []
        legal = problem.legal[table.signature]
        data = table.rows[legal]
        same = data["buf_size_mb"] > 1
        for field in ("grid_r", "grid_c", "stream", "stream_r", "stream_c", "mblock_m", "mblock_n", "ublock_r"):
            same &= data[field] == row[field]
        same &= data["ublock_c"] == row["ublock_c"]
        result = legal[same]
        return [int(result[np.argmin(table.rows["cycles"][result])])] if len(result) else []

    def _nops(self, state: _State, producer: int, reader: int) -> list[tuple[int, Spot]]:
        """Candidates of a nop that keep up with the epoch, fewest cores first, and where they find room."""
        segment = state.parts[0]
        grid = CoreGrid(state.problem.device.rows, state.problem.device.cols)
        for op, row, (top, left, turned) in zip(
            range(segment.first, segment.last), segment.rows, segment.spots, strict=True
        ):
            grid.take(top, left, *_size(state.problem, op, row, turned))
        if not grid.free:
            return []
        try:
            problem = self._with_nop(state.problem, segment, producer, reader)
        except OverrideError:  # no nop can stand there
            return []
        nop = segment.first + reader
        table = problem.tables[nop]
        legal = problem.legal[table.signature]
        data = table.rows[legal]
        quick = legal[(data["cycles"] <= segment.limiter_cycles) & (data["t"] == data["t"].min())]
        rows = quick[np.lexsort((quick, -table.rows["buf_size_mb"][quick], table.rows["cores"][quick]))]
        nops: list[tuple[int, Spot]] = []
        most = _NOPS if problem.inputs(segment.first) < 2 else _NOPS_OF_BATCH
        for row in rows[:12].tolist():
            height, width = _size(problem, nop, row, False)
            at = grid.first_fit(height, width)
            turned = at is None
            at = grid.first_fit(width, height) if at is None else at
            if at is None:
                continue
            action = _Action("nop", producer, reader, 0, row, (*at, turned))
            if self._apply(state, action, segment.first, {}) is not None:
                nops.append((row, action.spot))
                if len(nops) == most:
                    break
        return nops

    # -- doing it --------------------------------------------------------------------------------------------
    def _apply(self, state: _State, action: _Action, first: int, upstream_rows: Mapping[int, int]) -> _State | None:
        """The epoch with one repair, or None where it is not legal."""
        problem, segment = state.problem, state.parts[0]
        if len(state.parts) > 1:
            return None
        rows, spots = list(segment.rows), list(segment.spots)
        last = segment.last
        edits: tuple[Override, ...] = ()
        source, name = (problem.order[first + op] for op in (action.producer, action.reader))
        if action.kind == "buffer":
            rows[action.producer] = action.row
        elif action.kind == "queue":
            if action.port in problem.facts[first + action.reader].queued:
                return None
            value = {"dest": (name,), "port": action.port}
            edits = (Override("insert_queue", source, value, "placer"),)
            try:
                graph = edited(problem, edits)
            except OverrideError:  # no queue can stand there
                return None
            orders = problem.costs.tile_orders
            orders.keep_users(graph, orders.users(problem.graph))  # the queue changes an attribute of the reader
            problem = regraphed(problem, graph)
        elif action.kind == "nop":
            edits = (_nop(source, name),)
            problem = self._with_nop(problem, segment, action.producer, action.reader)
            at = _same_row(problem, state.problem, source, rows[action.producer])
            if at is None:
                return None
            rows[action.producer] = at
            rows.insert(action.reader, action.row)
            spots.insert(action.reader, action.spot)
            last += 1
        cuts = (first, first + action.reader, last) if action.kind == "cut" else (first, last)
        parts: list[Segment] = []
        rows_so_far = dict(upstream_rows)
        for a, b in itertools.pairwise(cuts):
            targets = {op: rows[op - first] for op in range(a, b)}
            chosen, _ = choose_rows(problem, a, b, targets, 0, 0.0, rows_so_far)
            if chosen != targets:
                return None
            kernel, limiter, _ = measure(problem, a, b, targets)
            parts.append(Segment(a, b, tuple(targets.values()), tuple(spots[a - first : b - first]), kernel, limiter))
            rows_so_far.update(targets)
        return _State(problem, tuple(parts), (*state.edits, *edits))

    def _with_nop(self, problem: Problem, segment: Segment, producer: int, reader: int) -> Problem:
        """The problem with a nop before an op of the epoch."""
        key = id(problem), segment.first + producer, segment.first + reader
        entry = self._nopped.get(key)
        if entry is None or entry[0] is not problem:
            entry = self._nopped[key] = problem, self._nop_inserted(problem, segment, producer, reader)
        return entry[1]

    def _nop_inserted(self, problem: Problem, segment: Segment, producer: int, reader: int) -> Problem:
        source, name = (problem.order[segment.first + op] for op in (producer, reader))
        graph = edited(problem, (_nop(source, name),))
        (nop,) = graph.nodes.keys() - problem.graph.nodes.keys()
        schedule = problem.schedule.with_nop(graph, nop, source, name)
        tile_orders, phase = problem.costs.tile_orders, schedule.phase
        before = tile_orders.users(problem.graph)
        moved = [(name, port) for port, producer in enumerate(graph[name].sources) if producer == nop]
        kept = [use for use in before[source] if use not in moved]
        users = tile_orders.keep_users(graph, {**before, source: [*kept, (nop, 0)], nop: moved})
        models = dict(problem.models)
        for op in (nop, source, name):
            profile = profile_of(graph, graph[op], problem.options, users, phase)
            old = problem.models.get(op)
            if old is None or old.profile is None or old.profile.signature != profile.signature:
                choice = choices({op: profile}, problem.device, self.overrides).get(op, Choice())
                models[op] = _table(problem, profile, choice)
        return dataclasses.replace(problem, graph=graph, models=models, schedule=schedule, overrides=(), refusals={})

    def _note(self, index: int, price: Price, old: Segment, state: _State) -> Diagnostic:
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
        for action in price.plan:
            done.append(what[action.kind].format(shifted[action.producer], shifted[action.reader]))
            if action.kind == "nop":
                shifted.insert(action.reader, "nop")
        slowest = max(part.limiter_cycles for part in state.parts)
        gain = "it would deadlock" if was.deadlocked else f"{int(was.cycles)} cycles a batch without"
        text = (
            f"{'; '.join(done)}: {int(now)} cycles a batch, {gain}; the slowest op takes {slowest} an input, it took "
            f"{old.limiter_cycles}"
        )
        return Diagnostic(
            "note", f"epoch {index}", "repair", text, "enable_fork_join_buffering=False leaves epochs as they are"
        )


def _table(problem: Problem, profile: OpProfile, choice: Choice) -> OpModels:
    """The candidates of an op with these things fixed, enumerated once for ops alike."""
    key = ("table of a nop or its neighbour", signature_of(profile, choice))
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, OpModels):
        entry = problem.costs.answers[key] = table_of(profile, choice, problem.device, problem.options)
    return entry


def _nop(source: str, name: str) -> Override:
    value = {"dest": (name,), "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
    return Override("insert_nop", source, value, "placer")


def edited(problem: Problem, edits: tuple[Override, ...]) -> Graph:
    """The graph of a problem with these nops and queues inserted."""
    return edit(problem.graph, problem.device, problem.options, edits).graph


def regraphed(problem: Problem, graph: Graph) -> Problem:
    """The same ops, some operands now through queues."""
    facts = list(problem.facts)
    for at, name in enumerate(problem.order):
        ports = queued_ports(graph[name])
        if ports != facts[at].queued:
            facts[at] = dataclasses.replace(facts[at], queued=ports, transports={})
            for source in (facts[at].producers[port] for port in ports):
                if source >= 0:
                    facts[source] = dataclasses.replace(facts[source], queued_out=True, transports={})
    schedule = dataclasses.replace(problem.schedule, facts=tuple(facts))
    return dataclasses.replace(problem, graph=graph, schedule=schedule, refusals=dict(problem.refusals))


def _same_row(new: Problem, old: Problem, name: str, row: int) -> int | None:
    """The row of an op's table in `new` that is `row` of its table in `old`."""
    a, b = new.models[name], old.models[name]
    if a.signature == b.signature:
        return row
    same = a.legal()
    for field in a.rows.dtype.names or ():
        same = same[a.rows[field][same] == b.rows[field][row]]
    return int(same[0]) if len(same) else None


def _size(problem: Problem, op: int, row: int, turned: bool) -> tuple[int, int]:
    record = problem.tables[op].rows[row]
    size = (int(record["grid_r"]), int(record["grid_c"]))
    return size[::-1] if turned else size


def _shifted(segment: Segment, by: int) -> Segment:
    return dataclasses.replace(segment, first=segment.first + by, last=segment.last + by) if by else segment
