"""How an epoch really flows: its pace with the buffers it has, judged by the simulator of epochs.

An op is held up where a buffer is full: one branch of a fork that has to wait for the other
(placement.md#forks-and-joins), or a reader that takes a block only after it has done with the last one. Then the epoch
takes longer than its slowest op, and the full buffers on the chain of waits say where room would help.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.balancer.types import Epoch, OpPlacement, Placement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.build import Built, build
from tbuda_lab.core.epochsim.constants import EpochConstants
from tbuda_lab.core.epochsim.network import Network
from tbuda_lab.core.epochsim.run import NetworkRun, run_network
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.problem import Problem, inputs_on_host
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.fork_join import buffer

_INPUTS = 24
"""Inputs simulated: by the later half the pipeline is full and every input takes as long as the one before."""

Held = tuple[int, int, int]
"""An edge whose buffer was full: producer, reader (both counted from the first op of the epoch), operand."""

_CONSTANTS = EpochConstants()


@dataclasses.dataclass(frozen=True)
class Throughput:
    """cycles: of a whole batch, without the switch to the epoch; infinite where it hangs. period: from one input to the
    next once the pipeline is full. full: edges that held the epoch up, the longest waits first. stuck: edges of buffers
    that ops would wait for for ever (`deadlocks` of them without another); they come first in `full`, and `roomy` are
    the cycles as if they held all that has to wait there."""

    cycles: float
    period: float
    full: tuple[Held, ...]
    roomy: float
    deadlocks: int = 0
    stuck: tuple[Held, ...] = ()

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


def flow(problem: Problem, segment: Segment, overrides: tuple[Override, ...] = ()) -> Throughput:
    """Pace of one epoch with the input buffers that its forks are given (see `forkjoin`). It is simulated once for all
    epochs of the same structure and candidates."""
    names = problem.order[segment.first : segment.last]
    asked = [o for o in overrides if o.kind == "input_buffer_multiplier" and o.matches(names)]
    key = (problem.structure(segment.first, segment.last), segment.rows, names if asked else ())
    entry = problem.costs.throughputs.get(key)
    if not isinstance(entry, Throughput):
        entry = problem.costs.throughputs[key] = _simulated(problem, segment, overrides)
    return entry


def batch_cycles(problem: Problem, segment: Segment, overrides: tuple[Override, ...] = ()) -> float:
    """Cycles of the whole batch as `epochsim.simulate` counts them, without the switch; a deadlock as if its buffers
    held all. `flow` simulates no more than the first inputs and goes on with their pace."""
    batch = problem.options.inputs_counted
    if batch <= _INPUTS:
        return flow(problem, segment, overrides).roomy
    names = problem.order[segment.first : segment.last]
    asked = [o for o in overrides if o.kind == "input_buffer_multiplier" and o.matches(names)]
    key = ("whole batch", problem.structure(segment.first, segment.last), segment.rows, names if asked else ())
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, float):
        entry = problem.costs.answers[key] = float(_done(problem, segment, overrides, batch)[2][-1])
    return entry


def _done(
    problem: Problem, segment: Segment, overrides: tuple[Override, ...], inputs: int
) -> tuple[Built, NetworkRun, np.ndarray]:
    """The epoch, its run, and when every input is done: its last tiles are in their place in DRAM or with the host."""
    built = build(trial(problem, segment, overrides), _CONSTANTS, problem.costs.tile_orders)
    run = run_network(built.network, inputs, [range(len(built.parts))])
    late = np.array([_CONSTANTS.dram_latency if c.output in (DRAM, HOST) else 0 for c in built.costs])
    ends = run.end[: len(built.parts)] + late[[part.op for part in built.parts]][:, None]
    return built, run, ends.max(axis=0)


def _simulated(problem: Problem, segment: Segment, overrides: tuple[Override, ...]) -> Throughput:
    inputs = min(_INPUTS, problem.options.inputs_counted)
    built, run, done = _done(problem, segment, overrides, inputs)
    half = (inputs - 1) // 2
    period = float(done[-1] - done[half]) / (inputs - 1 - half) if inputs > 1 else float(done[-1])
    cycles = float(done[-1]) + (problem.options.inputs_counted - inputs) * period
    number = {name: at for at, name in enumerate(built.names)}  # those of the epoch, in its order
    stuck = set(built.tight)
    for deadlock in run.deadlocks:
        for index in deadlock.edges:
            stuck.add(_held(built.network, index, number))
    count = len(built.tight) + len(run.deadlocks)
    full = tuple(e for e in _full(built, run, number) if e not in stuck)
    ordered = tuple(sorted(stuck, key=lambda e: (e[0] - e[1], e)))  # what waits longest for its reader first
    return Throughput(float("inf") if count else cycles, period, (*ordered, *full), cycles, count, ordered)


def _full(built: Built, run: NetworkRun, number: Mapping[str, int]) -> tuple[Held, ...]:
    """Edges of the chain of waits that decides, and of forks that stall; the most cycles first."""
    network = run.network
    lost: dict[int, float] = {e: 0.0 for chain in run.chains for e in chain.full}
    for stall in run.stalls:
        if stall.critical:
            lost[stall.edge] = lost.get(stall.edge, 0.0) + stall.cycles
    cycles: dict[Held, float] = {}
    for index, spent in lost.items():
        edge = network.edges[index]
        if edge.capacity is None or max(edge.producer, edge.consumer) >= len(built.parts):
            continue
        held = _held(network, index, number)
        cycles[held] = cycles.get(held, 0.0) + spent
    return tuple(sorted(cycles, key=lambda h: (-cycles[h], h)))


def _held(network: Network, index: int, number: Mapping[str, int]) -> Held:
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
    epoch = Epoch(0, 0, 0, tuple(placed))
    for op in span:  # readers in later epochs, so that it is known where outputs go
        for reader, _ in problem.facts[op].readers:
            name = problem.order[reader]
            if name not in placed:
                placed[name] = OpPlacement(name, 1, 0, (0, 0), (1, 1), False, 0)
    placement = Placement(
        placed,
        (epoch,),
        _on_host(problem),
        dict(problem.models),
        problem.order,
        (segment.kernel_cycles,),
        problem.orders,
        input_buffers=buffer(problem, segment, 0).input_tiles,
    )
    return Trial(problem.graph, placement, problem.device, overrides)


def _on_host(problem: Problem) -> dict[str, QueuePlacement]:
    """Queues of inputs and outputs that lie in host memory, as far as the simulator reads them."""
    nodes = []
    if inputs_on_host(problem.device, problem.options):
        nodes += [(n.name, "input") for n in problem.graph.inputs]
    if problem.options.output_queues_on_host:
        nodes += [(n.name, "output") for n in problem.graph.outputs]
    plain = (1, 1)
    return {
        name: QueuePlacement(
            name, kind, name, plain, 1, plain, plain, "r", 1, DataFormat.Float16_b, "queue", "host", 0, (), 0
        )
        for name, kind in nodes
    }
