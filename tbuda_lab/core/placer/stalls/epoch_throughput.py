"""How an epoch really flows: its pace with the buffers it has, judged by the simulator of epochs.

An op is held up where a buffer is full: one branch of a fork that has to wait for the other
(placement.md#forks-and-joins), or a reader that takes a block only after it has done with the last one. Then the epoch
takes longer than its slowest op, and the full buffers on the chain of waits say where room would help.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.balancer.types import Epoch, OpPlacement, Placement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.build import Built, build
from tbuda_lab.core.epochsim.eventgraph import event_graph
from tbuda_lab.core.epochsim.fork_join_stalls import CriticalChain, ForkJoinStall
from tbuda_lab.core.epochsim.network import EpochConstants, FlowEdge, FlowOp, Network
from tbuda_lab.core.epochsim.run import NetworkRun, run_network
from tbuda_lab.core.epochsim.solve import solve
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import WRITES
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.problem import Problem, inputs_on_host
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.fork_join import buffer

_TOGETHER = 16
"""Epochs simulated as one network, at most: beyond, little is gained and the arrays grow."""
_ALIKE_TOGETHER = 32
"""The same where no reasons are asked for, and most of the epochs' ops are alike."""
_INPUTS = 24
"""Inputs simulated: by the later half the pipeline is full and every input takes as long as the one before."""

FullEdge = tuple[int, int, int]
"""An edge whose buffer was full: producer, reader (both counted from the first op of the epoch), operand."""

_CONSTANTS = EpochConstants()


@dataclasses.dataclass(frozen=True)
class Throughput:
    """cycles: of a whole batch, without the switch to the epoch; infinite where it deadlocks. period: from one input to
    the next once the pipeline is full. full: edges that held the epoch up, the longest waits first. stuck: edges of
    buffers that ops would wait for for ever (`deadlocks` of them without another); they come first in `full`, and
    `roomy` are the cycles as if they held all that has to wait there."""

    cycles: float
    period: float
    full: tuple[FullEdge, ...]
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
    overrides: tuple[Override, ...]
    loaded_once: bool = False


def throughput(problem: Problem, segment: Segment, overrides: tuple[Override, ...] = ()) -> Throughput:
    """Pace of one epoch with the input buffers that its forks have (see `fork_join`). It is simulated once for all
    epochs of the same structure and candidates."""
    return throughputs([(problem, segment)], overrides)[0]


def throughputs(epochs: Sequence[tuple[Problem, Segment]], overrides: tuple[Override, ...] = ()) -> list[Throughput]:
    """`throughput` of several epochs of problems that share their costs. New ones are simulated side by side."""
    if not epochs:
        return []
    known = cast(dict[tuple[object, ...], Throughput], epochs[0][0].costs.throughputs)
    keys = []
    new: dict[tuple[object, ...], tuple[Problem, Segment]] = {}
    for problem, segment in epochs:
        names = problem.order[segment.first : segment.last]
        multipliers = [o for o in overrides if o.kind == "input_buffer_multiplier" and o.matches(names)]
        key = (problem.structure(segment.first, segment.last), segment.rows, names if multipliers else ())
        keys.append(key)
        if key not in known:
            new[key] = problem, segment
    for inputs in dict.fromkeys(problem.inputs(segment.first) for problem, segment in new.values()):
        waiting = [(key, (p, s)) for key, (p, s) in new.items() if p.inputs(s.first) == inputs]
        for start in range(0, len(waiting), _TOGETHER):
            some = waiting[start : start + _TOGETHER]
            times = _simulated([epoch for _, epoch in some], overrides, inputs)
            known |= zip((key for key, _ in some), times, strict=True)
    return [known[key] for key in keys]


def batch_cycles(problem: Problem, segment: Segment, overrides: tuple[Override, ...] = ()) -> float:
    """Cycles of the whole batch as `epochsim.simulate` counts them, without the switch; a deadlock as if its buffers
    held all. `throughput` simulates no more than the first inputs and goes on with their pace."""
    batch = problem.inputs(segment.first)
    if batch <= _INPUTS:
        return throughput(problem, segment, overrides).roomy
    names = problem.order[segment.first : segment.last]
    multipliers = [o for o in overrides if o.kind == "input_buffer_multiplier" and o.matches(names)]
    key = ("whole batch", problem.structure(segment.first, segment.last), segment.rows, names if multipliers else ())
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, float):
        entry = problem.costs.answers[key] = float(_run([(problem, segment)], overrides, batch)[0][0].done[-1])
    return entry


def batch_times(
    epochs: Sequence[tuple[Problem, Segment]], overrides: tuple[Override, ...] = ()
) -> np.ndarray:
    """(epochs,) `Throughput.cycles` of epochs that take equally many inputs, without what held them up: a third of the
    work. Nothing is kept."""
    times = np.full(len(epochs), np.inf)
    for start in range(0, len(epochs), _ALIKE_TOGETHER):
        some = epochs[start : start + _ALIKE_TOGETHER]
        counted = some[0][0].inputs(some[0][1].first)
        inputs = min(_INPUTS, counted)
        every, network, groups = _together(some, overrides)
        graph, deadlocks = event_graph(network)
        schedule = solve(graph, inputs)
        last = graph.base[1:] - 1
        ends = schedule.start[last] + graph.duration[last][:, None]
        hanging = {edge for deadlock in deadlocks for edge in deadlock.edges}
        for at, (built, group, first_edge) in enumerate(zip(every, groups, _first_edges(every), strict=True)):
            if built.tight or hanging & set(range(first_edge, first_edge + len(built.network.edges))):
                continue
            times[start + at] = _extended(_done(built, ends[group.start : group.stop]), counted)[0]
    return times


@dataclasses.dataclass(frozen=True)
class _EpochRun:
    """One epoch in a run of several. first_op, first_edge: where its ops and edges begin among all. done: (inputs,)
    when all results of an input are in their place in DRAM or with the host."""

    built: Built
    first_op: int
    first_edge: int
    done: np.ndarray


def _run(
    epochs: Sequence[tuple[Problem, Segment]], overrides: tuple[Override, ...], inputs: int
) -> tuple[list[_EpochRun], NetworkRun]:
    """Epochs that have nothing to do with each other, as one network: the recurrence takes its arrays of all of them
    at once, for little more than the longest takes alone."""
    every, network, groups = _together(epochs, overrides)
    run = run_network(network, inputs, groups, only_critical=True)
    ends = run.end
    runs = [
        _EpochRun(built, group.start, first_edge, _done(built, ends[group.start : group.stop]))
        for built, group, first_edge in zip(every, groups, _first_edges(every), strict=True)
    ]
    return runs, run


def _together(
    epochs: Sequence[tuple[Problem, Segment]], overrides: tuple[Override, ...]
) -> tuple[list[Built], Network, list[range]]:
    """Each epoch built, all of them as one network, and where the ops of each stand in it."""
    every = [build(trial(p, s, overrides), _CONSTANTS, p.costs.tile_orders) for p, s in epochs]
    ops: list[FlowOp] = []
    edges: list[FlowEdge] = []
    groups = []
    for built in every:
        at = len(ops)
        groups.append(range(at, at + len(built.parts)))
        ops += built.network.ops
        edges += [edge.shifted(at) for edge in built.network.edges] if at else built.network.edges
    return every, Network(tuple(ops), tuple(edges)), groups


def _first_edges(every: Sequence[Built]) -> list[int]:
    """Where the edges of each begin in the network of all."""
    return [0, *itertools.accumulate(len(built.network.edges) for built in every)][:-1]


def _done(built: Built, ends: np.ndarray) -> np.ndarray:
    """(inputs,) when all results of an input are in their place. ends: (parts, inputs) of its ops."""
    late = np.array([_CONSTANTS.dram_latency if c.output in (DRAM, HOST) else 0 for c in built.costs])
    done: np.ndarray = (ends + late[[part.op for part in built.parts]][:, None]).max(axis=0)
    return done


def _extended(done: np.ndarray, counted: int) -> tuple[float, float]:
    """(cycles of a batch of `counted` inputs, cycles from one to the next) by the first inputs of it."""
    inputs = len(done)
    half = (inputs - 1) // 2
    period = float(done[-1] - done[half]) / (inputs - 1 - half) if inputs > 1 else float(done[-1])
    return float(done[-1]) + (counted - inputs) * period, period


def _simulated(
    epochs: Sequence[tuple[Problem, Segment]], overrides: tuple[Override, ...], counted: int
) -> list[Throughput]:
    """Of epochs that take so many inputs in a run."""
    inputs = min(_INPUTS, counted)
    runs, network_run = _run(epochs, overrides, inputs)
    return [_throughput(run, at, network_run, counted) for at, run in enumerate(runs)]


def _throughput(epoch: _EpochRun, at: int, run: NetworkRun, counted: int) -> Throughput:
    """What a run says of the epoch that stands at `at` in it. counted: inputs of the batch."""
    built = epoch.built
    cycles, period = _extended(epoch.done, counted)
    number = {name: at for at, name in enumerate(built.names)}  # those of the epoch, in its order
    mine = range(epoch.first_edge, epoch.first_edge + len(built.network.edges))
    deadlocks = [deadlock for deadlock in run.deadlocks if deadlock.edges[0] in mine]
    stuck = set(built.tight)
    for deadlock in deadlocks:
        for index in deadlock.edges:
            stuck.add(_full_edge(run.network, index, number))
    count = len(built.tight) + len(deadlocks)
    stalls = [stall for stall in run.stalls if stall.edge in mine]  # the critical ones
    full = tuple(e for e in _full(epoch, run.network, run.chains[at], stalls, number) if e not in stuck)
    ordered = tuple(sorted(stuck, key=lambda e: (e[0] - e[1], e)))  # what waits longest for its reader first
    return Throughput(float("inf") if count else cycles, period, (*ordered, *full), cycles, count, ordered)


def _full(
    epoch: _EpochRun,
    network: Network,
    chain: CriticalChain,
    stalls: Sequence[ForkJoinStall],
    number: Mapping[str, int],
) -> tuple[FullEdge, ...]:
    """Edges of the chain of waits that decides, and of forks that stall; the most cycles first."""
    lost: dict[int, float] = dict.fromkeys(chain.full, 0.0)
    for stall in stalls:
        lost[stall.edge] = lost.get(stall.edge, 0.0) + stall.cycles
    cycles: dict[FullEdge, float] = {}
    for index, spent in lost.items():
        edge = network.edges[index]
        if edge.capacity is None or max(edge.producer, edge.consumer) >= epoch.first_op + len(epoch.built.parts):
            continue
        full_edge = _full_edge(network, index, number)
        cycles[full_edge] = cycles.get(full_edge, 0.0) + spent
    return tuple(sorted(cycles, key=lambda h: (-cycles[h], h)))


def _full_edge(network: Network, index: int, number: Mapping[str, int]) -> FullEdge:
    edge = network.edges[index]
    return number[network.ops[edge.producer].name], number[network.ops[edge.consumer].name], edge.port


def trial(problem: Problem, segment: Segment, overrides: tuple[Override, ...]) -> Trial:
    """One epoch as the simulator reads it, with the input buffers that its forks are given."""
    span = range(segment.first, segment.last)
    placed: dict[str, OpPlacement] = {}
    for op, row, (top, left, turned) in zip(span, segment.rows, segment.spots, strict=True):
        record = problem.tables[op].rows[row]
        size = (int(record["grid_r"]), int(record["grid_c"]))
        name = problem.order[op]
        placed[name] = OpPlacement(name, 0, 0, (top, left), size[::-1] if turned else size, turned, row)
    epoch = Epoch(0, 0, 0, tuple(placed), problem.direction(segment.first))
    for op in span:  # readers in later epochs, so that it is known where outputs go
        for reader, _ in problem.facts[op].readers:
            name = problem.order[reader]
            if name not in placed:
                placed[name] = OpPlacement(name, 1, 0, (0, 0), (1, 1), False, 0)
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
    return Trial(problem.graph, placement, problem.device, overrides, problem.options.loaded_once)


def _on_host(problem: Problem, names: Iterable[str]) -> dict[str, QueuePlacement]:
    """Queues of inputs and outputs of some ops that lie in host memory, as far as the simulator reads them."""
    graph, users = problem.graph, problem.costs.tile_orders.users(problem.graph)
    nodes = []
    if inputs_on_host(problem.device, problem.options):
        sources = dict.fromkeys(source for name in names for source in graph[name].sources)
        nodes += [(source, "input") for source in sources if graph[source].kind is NodeKind.INPUT]
    if problem.options.output_queues_on_host:
        readers = (graph[reader] for name in names for reader, _ in users[name])
        nodes += [(n.name, "output") for n in readers if n.kind is NodeKind.OUTPUT and WRITES not in n.attrs]
    plain = (1, 1)
    return {
        name: QueuePlacement(
            name, kind, name, plain, 1, plain, plain, "r", 1, DataFormat.Float16_b, "queue", "host", 0, (), 0
        )
        for name, kind in nodes
    }
