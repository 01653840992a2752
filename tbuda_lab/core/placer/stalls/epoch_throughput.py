"""How an epoch really flows: its pace with the buffers it has, judged by the simulator of epochs.

An op is held up where a buffer is full: one branch of a fork that has to wait for the other
(placement.md#forks-and-joins), or a reader that takes a block only after it has done with the last one. Then the epoch
takes longer than its slowest op, and the full buffers on the chain of waits say where room would help.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.balancer.profile import input_on_host, output_on_host
from tbuda_lab.core.balancer.types import Epoch, OpPlacement, Placement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.build import BuiltNetwork, build
from tbuda_lab.core.epochsim.event_graph import Deadlock, EventGraph, event_graph
from tbuda_lab.core.epochsim.fork_join_stalls import critical_chain, fork_join_stalls
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.epochsim.solve import SolvedSchedule, solve, waits
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import WRITES
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.fork_join import buffer, row_tiles

_TOGETHER = 16
"""Epochs simulated as one network, at most: beyond, little is gained and the arrays grow."""
_ALIKE_TOGETHER = 32
"""The same where no reasons are asked for, and most of the epochs' ops are alike."""
_INPUTS = 24
"""Inputs simulated: by the later half the pipeline is full and every input takes as long as the one before."""

FullEdge = tuple[int, int, int]
"""An edge whose buffer was full: producer, reader (both counted from the first op of the epoch), operand."""

Key = tuple[object, ...]

_CONSTANTS = EpochConstants()


@dataclasses.dataclass(frozen=True)
class Throughput:
    """cycles: of a whole batch, without the switch to the epoch; infinite where it deadlocks. period: from one input to
    the next once the pipeline is full. stuck: edges of buffers that ops would wait for for ever (`deadlocks` of them
    without another); `roomy` are the cycles as if they held all that has to wait there."""

    cycles: float
    period: float
    roomy: float
    deadlocks: int = 0
    stuck: tuple[FullEdge, ...] = ()

    @property
    def deadlocked(self) -> bool:
        return self.deadlocks > 0


@dataclasses.dataclass(frozen=True)
class Trial:
    """As much of a compile as the simulator reads."""

    lowered: Graph
    placement: Placement
    device: DeviceSpec
    input_factors: Mapping[str, Mapping[int, int]]
    loaded_once: bool = False


def throughput(problem: Problem, segment: Segment) -> Throughput:
    """Pace of one epoch with the input buffers that its forks have (see `fork_join`). It is simulated once for all
    epochs of the same structure and candidates."""
    return throughputs([(problem, segment)])[0]


def throughputs(epochs: Sequence[tuple[Problem, Segment]]) -> list[Throughput]:
    """`throughput` of several epochs of problems that share their costs. New ones are simulated side by side."""
    if not epochs:
        return []
    costs = epochs[0][0].costs
    entries = cast(dict[Key, Throughput], costs.throughputs)
    keys = [_key(problem, segment) for problem, segment in epochs]
    new = {key: epoch for key, epoch in zip(keys, epochs, strict=True) if key not in entries}
    for inputs in dict.fromkeys(problem.inputs(segment.first) for problem, segment in new.values()):
        waiting = [(key, (p, s)) for key, (p, s) in new.items() if p.inputs(s.first) == inputs]
        for start in range(0, len(waiting), _TOGETHER):
            batch = waiting[start : start + _TOGETHER]
            run = _run([epoch for _, epoch in batch], min(_INPUTS, inputs))
            entries |= ((key, _throughput(run, at, inputs)) for at, (key, _) in enumerate(batch))
            costs.recent_runs.append(({key: at for at, (key, _) in enumerate(batch)}, run))
    return [entries[key] for key in keys]


def full_edges(problem: Problem, segment: Segment) -> tuple[FullEdge, ...]:
    """Edges that hold an epoch up: first those that it would hang at, then the longest waits. The simulation of
    `throughput` says so too, but few of those who ask for the pace ask why; of the last few it is still there."""
    key = _key(problem, segment)
    question = ("full edges", *key)
    entry = cast(tuple[FullEdge, ...] | None, problem.costs.answers.get(question))
    if entry is None:
        stuck = throughput(problem, segment).stuck
        for numbers, recent in reversed(problem.costs.recent_runs):
            if key in numbers:
                run, at = cast(_Run, recent), numbers[key]
                break
        else:
            run, at = _run([(problem, segment)], min(_INPUTS, problem.inputs(segment.first))), 0
        entry = (*stuck, *(edge for edge in run.full(at) if edge not in stuck))
        problem.costs.answers[question] = entry
    return entry


def _key(problem: Problem, segment: Segment) -> Key:
    """What tells epochs apart that flow in another way."""
    names = problem.order[segment.first : segment.last]
    multiplied = not problem.constraints.input_factors.keys().isdisjoint(names)
    return problem.structure(segment.first, segment.last), segment.rows, names if multiplied else ()


def batch_cycles(problem: Problem, segment: Segment) -> float:
    """Cycles of the whole batch as `epochsim.simulate` counts them, without the switch; a deadlock as if its buffers
    held all. `throughput` simulates no more than the first inputs and goes on with their pace."""
    batch = problem.inputs(segment.first)
    if batch <= _INPUTS:
        return throughput(problem, segment).roomy
    key = ("whole batch", *_key(problem, segment))
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, float):
        entry = problem.costs.answers[key] = float(_run([(problem, segment)], batch).finish_times(0)[-1])
    return entry


def batch_times(epochs: Sequence[tuple[Problem, Segment]]) -> np.ndarray:
    """(epochs,) `Throughput.cycles` of epochs that take equally many inputs. Nothing is kept."""
    times = np.full(len(epochs), np.inf)
    for start in range(0, len(epochs), _ALIKE_TOGETHER):
        some = epochs[start : start + _ALIKE_TOGETHER]
        counted = some[0][0].inputs(some[0][1].first)
        run = _run(some, min(_INPUTS, counted))
        for at, epoch in enumerate(run.epochs):
            if not epoch.network.tight and not run.deadlocks_of(at):
                times[start + at] = _extend(run.finish_times(at), counted)[0]
    return times


@dataclasses.dataclass(frozen=True)
class _EpochRun:
    """One epoch in a run of several: where its ops and edges stand among all."""

    network: BuiltNetwork
    ops: range
    edges: range


@dataclasses.dataclass(frozen=True)
class _Run:
    """Epochs that have nothing to do with each other, run as one network."""

    epochs: tuple[_EpochRun, ...]
    graph: EventGraph
    schedule: SolvedSchedule
    deadlocks: tuple[Deadlock, ...]

    def finish_times(self, at: int) -> np.ndarray:
        """(inputs,) when all results of an input of an epoch are in their place in DRAM or with the host."""
        epoch = self.epochs[at]
        last = self.graph.base[epoch.ops.start + 1 : epoch.ops.start + len(epoch.network.parts) + 1] - 1
        ends = self.schedule.start[last] + self.graph.duration[last][:, None]
        late = np.array([_CONSTANTS.dram_latency if c.output in (DRAM, HOST) else 0 for c in epoch.network.costs])
        done: np.ndarray = (ends + late[[part.op for part in epoch.network.parts]][:, None]).max(axis=0)
        return done

    def deadlocks_of(self, at: int) -> list[list[FullEdge]]:
        """Of each deadlock of an epoch the full buffers."""
        epoch = self.epochs[at]
        mine = [deadlock for deadlock in self.deadlocks if deadlock.edges[0] in epoch.edges]
        return [[_full_edge(epoch.network, index - epoch.edges.start) for index in one.edges] for one in mine]

    def full(self, at: int) -> list[FullEdge]:
        """Edges of the chain of waits that decides when an epoch is done with its last input, and of its forks that
        stall; the most cycles first."""
        epoch = self.epochs[at]
        network = epoch.network.network
        graph = self.graph.part(epoch.ops, epoch.edges.start)
        nodes = slice(self.graph.base[epoch.ops.start], self.graph.base[epoch.ops.stop])
        waiting = waits(graph, SolvedSchedule(self.schedule.start[nodes], self.schedule.solved_inputs))
        last = graph.base[1 : len(epoch.network.parts) + 1] - 1
        ends = self.schedule.start[nodes][last, -1] + graph.duration[last]
        chain = critical_chain(graph, waiting, int(ends.argmax()), self.schedule.start.shape[1])
        lost: dict[int, float] = dict.fromkeys(chain.full, 0.0)
        for stall in fork_join_stalls(network, graph, waiting, chain.full, only_critical=True):
            lost[stall.edge] = lost.get(stall.edge, 0.0) + stall.cycles
        cycles: dict[FullEdge, float] = {}
        for index, spent in lost.items():
            edge = network.edges[index]
            if edge.capacity is None or max(edge.producer, edge.consumer) >= len(epoch.network.parts):
                continue
            full_edge = _full_edge(epoch.network, index)
            cycles[full_edge] = cycles.get(full_edge, 0.0) + spent
        return sorted(cycles, key=lambda edge: (-cycles[edge], edge))


def _run(epochs: Sequence[tuple[Problem, Segment]], inputs: int) -> _Run:
    """The recurrence takes the arrays of several epochs at once, for little more than the longest takes alone."""
    every = [build(trial(p, s), _CONSTANTS, p.costs.tile_orders) for p, s in epochs]
    graph, deadlocks = event_graph(*(built.network for built in every))
    runs, op, edge = [], 0, 0
    for built in every:
        next_op, next_edge = op + len(built.network.ops), edge + len(built.network.edges)
        runs.append(_EpochRun(built, range(op, next_op), range(edge, next_edge)))
        op, edge = next_op, next_edge
    return _Run(tuple(runs), graph, solve(graph, inputs), tuple(deadlocks))


def _extend(done: np.ndarray, counted: int) -> tuple[float, float]:
    """(cycles of a batch of `counted` inputs, cycles from one to the next) by the first inputs of it."""
    inputs = len(done)
    half = (inputs - 1) // 2
    period = float(done[-1] - done[half]) / (inputs - 1 - half) if inputs > 1 else float(done[-1])
    return float(done[-1]) + (counted - inputs) * period, period


def _throughput(run: _Run, at: int, counted: int) -> Throughput:
    """What a run says of one of its epochs. counted: inputs of the batch."""
    built = run.epochs[at].network
    cycles, period = _extend(run.finish_times(at), counted)
    deadlocks = run.deadlocks_of(at)
    stuck = {*built.tight, *itertools.chain(*deadlocks)}
    count = len(built.tight) + len(deadlocks)
    ordered = tuple(sorted(stuck, key=lambda e: (e[0] - e[1], e)))  # what waits longest for its reader first
    return Throughput(float("inf") if count else cycles, period, cycles, count, ordered)


def _full_edge(built: BuiltNetwork, index: int) -> FullEdge:
    """An edge of an epoch's network by the epoch's ops."""
    edge, names = built.network.edges[index], built.names
    ops = built.network.ops
    return names.index(ops[edge.producer].name), names.index(ops[edge.consumer].name), edge.port


def trial(problem: Problem, segment: Segment) -> Trial:
    """One epoch as the simulator reads it, with the input buffers that its forks are given."""
    span = range(segment.first, segment.last)
    placed: dict[str, OpPlacement] = {}
    for op, row, (top, left, turned) in zip(span, segment.rows, segment.spots, strict=True):
        rows, cols = row_tiles(problem, op, row).grid
        name = problem.order[op]
        placed[name] = _op_placement(name, 0, top, left, *((cols, rows) if turned else (rows, cols)), turned, row)
    epoch = Epoch(0, 0, 0, tuple(placed), problem.direction(segment.first))
    for op in span:  # readers in later epochs, so that it is known where outputs go
        for reader, _ in problem.facts[op].readers:
            name = problem.order[reader]
            if name not in placed:
                placed[name] = _op_placement(name, 1, 0, 0, 1, 1, False, 0)
    placement = Placement(
        placed,
        (epoch,),
        _on_host(problem, placed),
        dict(problem.models),
        problem.order,
        (segment.kernel_cycles,),
        problem.orders,
        input_buffers=buffer(problem, segment, 0).input_tiles,
    )
    factors = problem.constraints.input_factors
    return Trial(problem.graph, placement, problem.device, factors, problem.options.loaded_once)


@functools.lru_cache(1 << 14)
def _op_placement(
    name: str, epoch: int, top: int, left: int, rows: int, cols: int, turned: bool, row: int
) -> OpPlacement:
    """The trials of an epoch have most of their ops in common."""
    return OpPlacement(name, epoch, 0, (top, left), (rows, cols), turned, row)


def _on_host(problem: Problem, names: Iterable[str]) -> dict[str, QueuePlacement]:
    """Queues of inputs and outputs of some ops that lie in host memory, as far as the simulator reads them."""
    graph, users = problem.graph, problem.costs.tile_orders.users(problem.graph)
    nodes: list[tuple[str, str]] = []
    known = problem.device, problem.options, problem.on_one_chip
    for source in dict.fromkeys(source for name in names for source in graph[name].sources):
        if graph[source].kind is NodeKind.INPUT and input_on_host(graph[source], *known):
            nodes.append((source, "input"))
    for reader in (graph[reader] for name in names for reader, _ in users[name]):
        if reader.kind is NodeKind.OUTPUT and WRITES not in reader.attrs and output_on_host(reader, problem.options):
            nodes.append((reader.name, "output"))
    plain = (1, 1)
    return {
        name: QueuePlacement(
            name, kind, name, plain, 1, plain, plain, "r", 1, DataFormat.Float16_b, "queue", "host", 0, (), 0
        )
        for name, kind in nodes
    }
