"""What may be done to an epoch that a full buffer holds up, and the epoch with it.

For an edge whose buffer is full there are four repairs: a double output buffer for the producer, a DRAM queue on the
edge, a nop on it where cores are free, and a new epoch before the reader. Which of them pays is for `stall_repair`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from tbuda_lab.core.balancer.enumerate import Choice
from tbuda_lab.core.balancer.models import signature_of, table_of
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.edits import edit, queued_ports
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.grid import CoreGrid, Spot
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure
from tbuda_lab.core.placer.stalls.epoch_throughput import Throughput, full_edges

_EDGES, _EDGES_OF_DEADLOCK = 2, 4
"""Full buffers that are looked at in one round. Only an epoch of a single input that deadlocks needs the second: of a
batch two do as well."""
_NOPS, _NOPS_OF_BATCH = 2, 1
"""Candidates of a nop that are tried on an edge, of a single input and of a batch."""


@dataclasses.dataclass(frozen=True)
class Repair:
    """One way to repair an edge, its ops counted from the first of the epoch. kind: "buffer", "queue", "nop" or "cut".
    row: of the producer's table for a buffer, of the nop's for a nop; spot: of the nop."""

    kind: str
    producer: int
    reader: int
    port: int
    row: int = -1
    spot: Spot = (0, 0, False)


@dataclasses.dataclass(frozen=True)
class RepairedEpoch:
    """An epoch with some repairs; `parts` are two after a cut. problem: with the edits, in which nops have numbers of
    their own; edits: what the repairs insert."""

    problem: Problem
    parts: tuple[Segment, ...]
    edits: tuple[Override, ...] = ()


class Repairs:
    """The repairs of epochs. Problems with a nop are kept for further trials."""

    def __init__(self) -> None:
        self._with_nops: dict[tuple[int, int, int], tuple[Problem, Problem]] = {}

    def possible(self, state: RepairedEpoch, now: Throughput) -> Iterator[Repair]:
        """What could make room on the edges that held the epoch up."""
        problem, segment = state.problem, state.parts[0]
        full = full_edges(problem, segment)
        most = max(_EDGES, min(len(now.stuck), _EDGES_OF_DEADLOCK)) if problem.inputs(segment.first) < 2 else _EDGES
        for producer, reader, port in full[:most]:
            for row in self._double_buffers(problem, segment, producer):
                yield Repair("buffer", producer, reader, port, row)
            yield Repair("queue", producer, reader, port)
            for row, spot in self._nop_spots(state, producer, reader):
                yield Repair("nop", producer, reader, port, row, spot)
            if reader > 0:
                yield Repair("cut", producer, reader, port)

    def _double_buffers(self, problem: Problem, segment: Segment, op: int) -> list[int]:
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

    def _nop_spots(self, state: RepairedEpoch, producer: int, reader: int) -> list[tuple[int, Spot]]:
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
            repair = Repair("nop", producer, reader, 0, row, (*at, turned))
            if self.apply(state, repair, segment.first, {}) is not None:
                nops.append((row, repair.spot))
                if len(nops) == most:
                    break
        return nops

    def apply(
        self, state: RepairedEpoch, repair: Repair, first: int, upstream_rows: Mapping[int, int]
    ) -> RepairedEpoch | None:
        """The epoch with one repair more, or None where it is not legal. first: op of the epoch; upstream_rows: rows of
        the ops of earlier epochs."""
        problem, segment = state.problem, state.parts[0]
        if len(state.parts) > 1:
            return None
        rows, spots = list(segment.rows), list(segment.spots)
        last = segment.last
        edits: tuple[Override, ...] = ()
        source, name = (problem.order[first + op] for op in (repair.producer, repair.reader))
        if repair.kind == "buffer":
            rows[repair.producer] = repair.row
        elif repair.kind == "queue":
            if repair.port in problem.facts[first + repair.reader].queued_in:
                return None
            value = {"dest": (name,), "port": repair.port}
            edits = (Override("insert_queue", source, value, "placer"),)
            try:
                graph = with_edits(problem, edits)
            except OverrideError:  # no queue can stand there
                return None
            orders = problem.costs.tile_orders
            orders.keep_users(graph, orders.users(problem.graph))  # the queue changes an attribute of the reader
            problem = with_queues(problem, graph)
        elif repair.kind == "nop":
            edits = (_nop(source, name),)
            problem = self._with_nop(problem, segment, repair.producer, repair.reader)
            at = _same_row(problem, state.problem, source, rows[repair.producer])
            if at is None:
                return None
            rows[repair.producer] = at
            rows.insert(repair.reader, repair.row)
            spots.insert(repair.reader, repair.spot)
            last += 1
        cuts = (first, first + repair.reader, last) if repair.kind == "cut" else (first, last)
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
        return RepairedEpoch(problem, tuple(parts), (*state.edits, *edits))

    def _with_nop(self, problem: Problem, segment: Segment, producer: int, reader: int) -> Problem:
        """The problem with a nop before an op of the epoch."""
        key = id(problem), segment.first + producer, segment.first + reader
        entry = self._with_nops.get(key)
        if entry is None or entry[0] is not problem:
            entry = self._with_nops[key] = problem, self._insert_nop(problem, segment, producer, reader)
        return entry[1]

    def _insert_nop(self, problem: Problem, segment: Segment, producer: int, reader: int) -> Problem:
        source, name = (problem.order[segment.first + op] for op in (producer, reader))
        graph = with_edits(problem, (_nop(source, name),))
        (nop,) = graph.nodes.keys() - problem.graph.nodes.keys()
        schedule = problem.schedule.with_nop(graph, nop, source, name)
        tile_orders, phase = problem.costs.tile_orders, schedule.phase
        before = tile_orders.users(problem.graph)
        moved = [(name, port) for port, producer in enumerate(graph[name].sources) if producer == nop]
        others = [use for use in before[source] if use not in moved]
        users = tile_orders.keep_users(graph, {**before, source: [*others, (nop, 0)], nop: moved})
        models, constraints = dict(problem.models), problem.constraints
        for op in (nop, source, name):
            profile = profile_of(graph, graph[op], problem.options, users, phase)
            old = problem.models.get(op)
            if old is None:
                constraints = constraints.with_op(op, profile, problem.device)
            if old is None or old.profile is None or old.profile.signature != profile.signature:
                models[op] = _table(problem, profile, constraints.choices.get(op, Choice()))
        return dataclasses.replace(
            problem, graph=graph, models=models, schedule=schedule, constraints=constraints, refusals={}
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


def with_edits(problem: Problem, edits: tuple[Override, ...]) -> Graph:
    """The graph of a problem with these nops and queues inserted."""
    return edit(problem.graph, problem.device, problem.options, edits).graph


def with_queues(problem: Problem, graph: Graph) -> Problem:
    """The problem of a graph of the same ops, some operands of which come through queues now."""
    facts = list(problem.facts)
    for at, name in enumerate(problem.order):
        ports = queued_ports(graph[name])
        if ports != facts[at].queued_in:
            facts[at] = dataclasses.replace(facts[at], queued_in=ports, transports={})
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
