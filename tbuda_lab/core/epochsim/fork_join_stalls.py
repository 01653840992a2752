"""Fork-join stalls: an op that cannot hand on because one branch is full while the join waits for the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.epochsim.event_graph import EventGraph, WaitReason
from tbuda_lab.core.epochsim.network import FlowEdge, Network
from tbuda_lab.core.epochsim.solve import Waits
from tbuda_lab.core.errors import Diagnostic

_MOST_STEPS = 100_000
_CHAIN_INPUTS = 16


@dataclasses.dataclass(frozen=True)
class ForkJoinStall:
    """`fork` waited `cycles` for space towards `short`, whose tiles `join` leaves where they are until those of `long`
    arrive. short, long: the ops strictly between fork and join, in the order of the data; numbers of the network's ops.

    edge: the full buffer, index of the network's edge. cycles: of all inputs together. critical: whether it slows the
    epoch down, for that chain of waits decides when the last inputs are done; else the fork would only wait elsewhere.
    """

    fork: int
    join: int
    short: tuple[int, ...]
    long: tuple[int, ...]
    edge: int
    cycles: int
    critical: bool


def fork_join_stalls(
    network: Network,
    graph: EventGraph,
    waiting: Waits,
    critical: frozenset[int] = frozenset(),
    only_critical: bool = False,
) -> list[ForkJoinStall]:
    """Critical ones and then the worst first. `critical`: edges whose full buffers decide, see `critical_chain`;
    only_critical: look at no others.

    Found by following, from the longest wait for space of each op that feeds several, what each step waited for: over
    full buffers forward to the join, then over missing inputs back to the op itself.
    """
    readers: dict[int, set[str]] = {}
    for edge in network.edges:
        readers.setdefault(edge.producer, set()).add(network.ops[edge.consumer].name)
    cause = waiting.cause
    full = (cause >= 0) & (graph.reason[cause] == WaitReason.SPACE)
    lost: dict[int, int] = {}
    edges, cycles = graph.edge[cause[full]], waiting.cycles[full]
    for index, total in enumerate(np.bincount(edges, cycles, len(network.edges)) if len(edges) else ()):
        if only_critical and index not in critical:
            continue
        if total and len(readers[network.edges[index].producer]) > 1:
            lost[index] = int(total)
    if not lost:
        return []
    stalls = []
    nodes, inputs = np.nonzero(full)
    # in the later half the pipeline is full; before, waits tell more of how it filled
    by = np.lexsort((inputs, cycles, 2 * inputs >= cause.shape[1]))
    worst = {int(e): i for i, e in zip(by.tolist(), graph.edge[cause[full]][by].tolist(), strict=True)}
    own = _previous(graph)
    for index, total in sorted(lost.items(), key=lambda item: (-item[1], item[0])):
        at = worst[index]
        stall = _follow(network, graph, cause, own, int(nodes[at]), int(inputs[at]))
        if stall is not None:
            stalls.append(ForkJoinStall(*stall, index, total, index in critical))
    return sorted(stalls, key=lambda stall: not stall.critical)


@dataclasses.dataclass(frozen=True)
class CriticalChain:
    """What decided when a step of the last input ended, as far back as some inputs: the ops that worked or handed on
    without a pause, last first, each once; and the edges whose full buffers stood in the way again and again."""

    ops: tuple[int, ...]
    full: frozenset[int]


def critical_chain(graph: EventGraph, waiting: Waits, op: int, inputs: int) -> CriticalChain:
    """The chain of causes back from the end of the last of so many inputs of `op`, over the last inputs (the same again
    and again once the pipeline is full)."""
    own = _previous(graph)
    turn = inputs - 1
    oldest = max(0, turn - _CHAIN_INPUTS)
    node = int(graph.base[op + 1]) - 1
    ops = {op: None}
    full: dict[int, int] = {}
    causes = waiting.cause.T[turn]
    lag, source, reason, edges, ops_of_nodes = graph.lag, graph.source, graph.reason, graph.edge, graph.op
    while True:
        constraint = causes.item(node)
        if constraint < 0:
            constraint = own.item(node)
        elif reason.item(constraint) == WaitReason.SPACE:
            edge = edges.item(constraint)
            full[edge] = full.get(edge, 0) + 1
        earlier = lag.item(constraint)
        turn -= earlier
        node = source.item(constraint)
        if turn < oldest or node == graph.nodes:
            return CriticalChain(tuple(ops), frozenset(edge for edge, times in full.items() if times > 1))
        if earlier:
            causes = waiting.cause.T[turn]
        ops[ops_of_nodes.item(node)] = None


def _previous(graph: EventGraph) -> np.ndarray:
    """(nodes,) index of the constraint by the op's own previous step."""
    own = np.empty(graph.nodes, dtype=np.int64)
    mine = np.flatnonzero(graph.reason == WaitReason.OWN)
    own[graph.target[mine]] = mine
    return own


def _follow(
    network: Network, graph: EventGraph, cause: np.ndarray, own: np.ndarray, node: int, turn: int
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    """(fork, join, short, long) if the chain of causes comes back to the op by way of missing inputs."""
    fork = int(graph.op[node])
    short: list[int] = []
    long: list[int] = []
    for _ in range(_MOST_STEPS):
        constraint = int(cause[node, turn])
        if constraint < 0:
            constraint = int(own[node])
        reason = int(graph.reason[constraint])
        turn -= int(graph.lag[constraint])
        node = int(graph.source[constraint])
        if turn < 0 or node == graph.nodes:
            return None
        op = int(graph.op[node])
        if reason == WaitReason.SPACE and not long:
            short.append(op)
        elif reason == WaitReason.DATA:
            if not short:
                return None
            long.append(op)
            if op == fork:
                break
    else:
        return None
    # a full buffer on the long branch turns the chain forward again for a while: each op once, in the order of the data
    join, between, around = short[-1], tuple(short[:-1]), tuple(dict.fromkeys(reversed(long[:-1])))
    if join in around:
        return None
    if [network.ops[i].name for i in between] == [network.ops[i].name for i in around]:
        return None
    return fork, join, between, around


def stall_diagnostics(
    network: Network,
    graph: EventGraph,
    waiting: Waits,
    stalls: Sequence[ForkJoinStall],
    chains: Sequence[CriticalChain],
) -> list[Diagnostic]:
    """A warning for each fork-join stall that slows its epoch down, with its branches; a note for each other buffer
    that does: an op and its reader take turns because it does not hold enough for both to work."""
    batch = max(1, waiting.cause.shape[1])
    stall_diagnostics = []
    explained = set()
    for stall in stalls:
        if not stall.critical:
            continue
        explained.add(stall.edge)
        edge = network.edges[stall.edge]
        join, reader = network.ops[stall.join].name, network.ops[edge.consumer].name
        because = (
            f", because {join} joins its {_branch(network, stall.short)} with the slower {_branch(network, stall.long)}"
        )
        lost = stall.cycles // batch
        stall_diagnostics.append(_diagnostic(network, edge, "warning", "fork-join-stall", lost, because, reader))
    full = sorted(frozenset[int]().union(*(chain.full for chain in chains)) - explained)
    if full:
        blamed = (waiting.cause >= 0) & (graph.reason[waiting.cause] == WaitReason.SPACE)
        cycles = np.bincount(graph.edge[waiting.cause[blamed]], waiting.cycles[blamed], len(network.edges))
        for index in full:
            edge = network.edges[index]
            lost = int(cycles[index]) // batch
            reader = network.ops[edge.consumer].name
            stall_diagnostics.append(_diagnostic(network, edge, "note", "buffer-stall", lost, "", reader))
    return list(dict.fromkeys(stall_diagnostics))


def _diagnostic(
    network: Network, edge: FlowEdge, severity: str, rule: str, cycles: int, because: str, reader: str
) -> Diagnostic:
    producer = network.ops[edge.producer]
    return Diagnostic(
        severity,
        producer.name,
        rule,
        f"waits {cycles} cycles per input for space towards {reader}{because}",
        f"a larger output buffer of {producer.name} (with the reader's it holds {edge.capacity} tiles per core, an "
        f"input has {producer.total}) or a buffering nop in between",
    )


def _branch(network: Network, ops: tuple[int, ...]) -> str:
    """A branch in words: all its ops, or the ends of a long one."""
    names = list(dict.fromkeys(network.ops[i].name for i in ops))
    if not names:
        return "direct operand"
    if len(names) > 4:
        names = [*names[:2], f"({len(names) - 4} more)", *names[-2:]]
    return "branch " + " -> ".join(names)
