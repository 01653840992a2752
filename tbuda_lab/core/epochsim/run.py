"""A network run for a batch: start and end of every step, what it waited for, and what that says of each op."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.epochsim.event_graph import Deadlock, EventGraph, WaitReason, deadlock_diagnostics, event_graph
from tbuda_lab.core.epochsim.fork_join_stalls import CriticalChain, ForkJoinStall, critical_chain, fork_join_stalls
from tbuda_lab.core.epochsim.network import Network
from tbuda_lab.core.epochsim.pyramid import WaitKind
from tbuda_lab.core.epochsim.solve import SolvedSchedule, Waits, solve, waits
from tbuda_lab.core.errors import Diagnostic


@dataclasses.dataclass(frozen=True)
class NetworkRun:
    """start, end: (ops, batch) of each op and input, cycles from the start; an input starts with its first step.

    chains: for each group of ops, what decided when its last input was done. deadlocks: ops that wait for each other;
    times are given as if the buffers between them held a whole input.
    """

    network: Network
    graph: EventGraph
    schedule: SolvedSchedule
    waits: Waits
    stalls: tuple[ForkJoinStall, ...]
    chains: tuple[CriticalChain, ...]
    diagnostics: tuple[Diagnostic, ...]
    deadlocks: tuple[Deadlock, ...] = ()

    @property
    def start(self) -> np.ndarray:
        start: np.ndarray = self.schedule.start[self.graph.base[:-1]]
        return start

    @property
    def end(self) -> np.ndarray:
        return ends(self.graph, self.schedule)

    def kinds(self) -> np.ndarray:
        """(nodes, batch) uint8 `WaitKind` of the wait before each step; COMPUTE where there is none."""
        kind_of = np.full(len(self.graph.reason) + 1, WaitKind.COMPUTE, dtype=np.uint8)
        reason = self.graph.reason
        ops = self.network.ops
        from_host = np.array([op.from_host for op in ops], dtype=bool)[self.graph.op[self.graph.target]]
        ready = np.flatnonzero(reason == WaitReason.READY)
        kind_of[ready] = np.where(from_host[ready], WaitKind.HOST, WaitKind.DRAM)
        kind_of[:-1][reason == WaitReason.SPACE] = WaitKind.SPACE
        data = np.flatnonzero(reason == WaitReason.DATA)
        queued = np.array([e.capacity is None for e in self.network.edges], dtype=bool)
        if len(data):
            kind_of[data] = np.where(queued[self.graph.edge[data]], WaitKind.DRAM, WaitKind.INPUT)
        between = np.flatnonzero(self.graph.edge >= 0)
        host = np.array([op.is_host for op in ops], dtype=bool)
        kind_of[between[host[self.graph.op[self.graph.source[between]]]]] = WaitKind.HOST
        kinds: np.ndarray = kind_of[self.waits.cause]
        return kinds

    def causes(self) -> np.ndarray:
        """(nodes, batch) int32 number of the op that was waited for, -1 for none (or DRAM)."""
        op_of = np.full(len(self.graph.reason) + 1, -1, dtype=np.int32)
        real = self.graph.edge >= 0
        op_of[:-1][real] = self.graph.op[self.graph.source[real]]
        causes: np.ndarray = op_of[self.waits.cause]
        return causes


def ends(graph: EventGraph, schedule: SolvedSchedule) -> np.ndarray:
    """(ops, batch) when each op is done with each input."""
    last = graph.base[1:] - 1
    end: np.ndarray = schedule.start[last] + graph.duration[last][:, None]
    return end


def run_network(
    network: Network,
    batch: int,
    groups: Sequence[Sequence[int]] | None = None,
    only_critical: bool = False,
    inputs: Sequence[int] | None = None,
) -> NetworkRun:
    """Solve the recurrence for `batch` inputs and explain it. Deadlocks are reported, see `event_graph`.

    groups: ops whose common end matters (those of an epoch); by default all of them together. only_critical: leave out
    the stalls that slow nothing down. inputs: how many of the batch each group takes, by default all.
    """
    graph, deadlocks = event_graph(network)
    schedule = solve(graph, batch)
    waiting = waits(graph, schedule)
    last = graph.base[1:] - 1
    groups = [range(len(network.ops))] if groups is None else groups
    chains: list[CriticalChain] = []
    for group, count in zip(groups, [batch] * len(groups) if inputs is None else inputs, strict=True):
        members = np.asarray(group, dtype=np.int64)
        if len(members):
            done = schedule.start[last[members], count - 1] + graph.duration[last[members]]
            chains.append(critical_chain(graph, waiting, int(members[done.argmax()]), count))
        else:
            chains.append(CriticalChain((), frozenset()))
    full = frozenset(edge for chain in chains for edge in chain.full)
    stalls = tuple(fork_join_stalls(network, graph, waiting, full, only_critical))
    problems = tuple(deadlock_diagnostics(network, deadlocks))
    return NetworkRun(network, graph, schedule, waiting, stalls, tuple(chains), problems, tuple(deadlocks))
