"""The steps of all ops as nodes, and what each must wait for as constraints between them.

Node v of input k starts at x[v, k] = max over its constraints (u, lag, weight) of x[u, k - lag] + weight: a max-plus
linear recurrence. Three kinds of constraint: an op's own previous step; the step that emits the tiles it needs (data);
the step of a reader that frees the space its tiles go to (space), which may lie `lag` inputs back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tbuda_lab.core.epochsim.network import EdgeWaits, Network
from tbuda_lab.core.errors import Diagnostic


class WaitReason(IntEnum):
    """What a constraint stands for."""

    OWN = 0
    READY = 1
    DATA = 2
    SPACE = 3


FEW_CONSTRAINTS = 1 << 14
"""Constraints up to which levels are counted in a loop: a level of an epoch has two or three of them, too few for
arrays (1.6 thousand constraints on 374 levels: 0.9 ms, with arrays 8.4)."""


@dataclasses.dataclass(frozen=True)
class EventGraph:
    """Constraints sorted by target node; every node has at least one. Node `nodes` is the epoch's start (time 0).

    base: (ops + 1,) first node of each op; duration: (nodes,); source, target, lag, weight, reason: (constraints,);
    edge: (constraints,) index of the network's edge, -1 for OWN and READY. component: (nodes,) which of the parts that
    have no edges between them a node belongs to.
    """

    base: np.ndarray
    op: np.ndarray
    duration: np.ndarray
    source: np.ndarray
    target: np.ndarray
    lag: np.ndarray
    weight: np.ndarray
    reason: np.ndarray
    edge: np.ndarray
    component: np.ndarray

    @property
    def nodes(self) -> int:
        return len(self.duration)

    @functools.cached_property
    def reduction(self) -> ReducedGraph:
        """See `ReducedGraph`. Raises `ValueError` where constraints without lag are a cycle."""
        return _reduce(self)

    def part(self, ops: range, first_edge: int) -> EventGraph:
        """That of some neighbouring ops alone, which no others influence; edges are counted from `first_edge`."""
        low, high = self.base[ops.start], self.base[ops.stop]
        mine = slice(*np.searchsorted(self.target, (low, high)))
        source, edge = self.source[mine], self.edge[mine]
        return EventGraph(
            self.base[ops.start : ops.stop + 1] - low,
            self.op[low:high] - ops.start,
            self.duration[low:high],
            np.where(source < self.nodes, source - low, high - low),
            self.target[mine] - low,
            self.lag[mine],
            self.weight[mine],
            self.reason[mine],
            np.where(edge < 0, edge, edge - first_edge),
            self.component[low:high],
        )


@dataclasses.dataclass(frozen=True)
class ReducedGraph:
    """A graph without the nodes that have one constraint, by the step before: they start a fixed time after it.

    node: (kept,) those that are left; follows: (nodes,) of every node its place in `node`, or that of the last one
    before it; after: (nodes,) cycles between the two. source, target, lag, weight: (constraints,) of what is left,
    counted in `node`; source `kept` is the epoch's start. component, level: (kept,) see `EventGraph`, `levels`.
    """

    node: np.ndarray
    follows: np.ndarray
    after: np.ndarray
    source: np.ndarray
    target: np.ndarray
    lag: np.ndarray
    weight: np.ndarray
    component: np.ndarray
    level: np.ndarray


def _reduce(graph: EventGraph) -> ReducedGraph:
    nodes = graph.nodes
    stays = np.bincount(graph.target, minlength=nodes) > 1  # an op's first step does: it waits for `ready` too
    node = np.flatnonzero(stays)
    follows = np.cumsum(stays) - 1
    done = np.cumsum(graph.duration) - graph.duration  # if no step waited
    after = done - done[node[follows]]
    mine = stays[graph.target]
    source, target, weight = graph.source[mine], follows[graph.target[mine]], graph.weight[mine]
    source, weight = np.append(follows, len(node))[source], weight + np.append(after, 0)[source]
    lag = graph.lag[mine]
    level = levels(len(node), source, target, lag)
    return ReducedGraph(node, follows, after, source, target, lag, weight, graph.component[node], level)


@dataclasses.dataclass(frozen=True)
class Deadlock:
    """Ops that wait for each other within one input, and the edges whose buffers are too small for it."""

    ops: tuple[int, ...]
    edges: tuple[int, ...]


def event_graph(*networks: Network) -> tuple[EventGraph, list[Deadlock]]:
    """The constraints of networks that have nothing to do with each other, whose ops and edges are counted on from one
    to the next. Buffers on a deadlocked cycle are taken as if they held one whole input, so that times can be given for
    the rest; the deadlocks say which."""
    roomy: set[int] = set()
    deadlocks: list[Deadlock] = []
    while True:
        graph = _constraints(networks, roomy)
        with contextlib.suppress(ValueError):
            graph.reduction  # noqa: B018 - the solver reads it next
            return graph, deadlocks
        stuck = _deadlocks(graph)
        if not stuck or any(not set(deadlock.edges) - roomy for deadlock in stuck):
            raise ValueError("the ops feed each other in a circle")
        deadlocks += stuck
        roomy.update(e for deadlock in stuck for e in deadlock.edges)


def _constraints(networks: Sequence[Network], roomy: set[int]) -> EventGraph:
    """The graph of some networks; edges in `roomy` hold one whole input at least."""
    ops = [op for network in networks for op in network.ops]
    count = len(ops)
    steps = np.array([len(op.emit) for op in ops], dtype=np.int64)
    base = np.concatenate([[0], np.cumsum(steps)])
    nodes = int(base[-1])
    every = np.arange(nodes, dtype=np.int64)
    duration = np.concatenate([op.durations() for op in ops]) if ops else np.zeros(0, np.int64)
    first = np.zeros(nodes, dtype=bool)
    first[base[:-1]] = True
    previous = every - 1
    previous[base[:-1]] = base[1:] - 1
    ends, links = _edges_of(networks, roomy)
    columns: list[tuple[np.ndarray | int, ...]] = [  # source, target, lag, weight, reason, edge
        (previous, every, first, duration[previous], WaitReason.OWN, -1),
        (nodes, base[:-1], 0, np.array([op.ready for op in ops]), WaitReason.READY, -1),
    ]
    if links:
        between = np.concatenate(links, axis=1)
        # twice as many groups as edges: of each edge those of data, then those of space
        group = np.repeat(np.arange(2 * len(ends)), ends[:, 3:].reshape(-1))
        edge, space = group >> 1, group & 1
        source = base[ends[:, :2].reshape(-1)][group] + between[0]
        target = base[ends[:, 1::-1].reshape(-1)][group] + between[1]
        weight = duration[source] + ends[edge, 2]
        columns.append((source, target, between[2], weight, WaitReason.DATA + space, edge))
    table = np.empty((6, sum(np.size(c[1]) for c in columns)), dtype=np.int64)
    start = 0
    for column in columns:
        end = start + np.size(column[1])
        for values, value in zip(table, column, strict=True):
            values[start:end] = value
        start = end
    by = sorted_order(table[1] * len(WaitReason) + table[4], nodes * len(WaitReason))
    source, target, lag, weight, reason, edge = table.take(by, axis=1)
    op = np.repeat(np.arange(count, dtype=np.int64), steps)
    component = _components(count, ends[:, :2].tolist())[op]
    return EventGraph(base, op, duration, source, target, lag, weight, reason, edge, component)


def _edges_of(networks: Sequence[Network], roomy: set[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """(edges, 5) producer and consumer among the ops of all, latency, how many constraints are for data and for space;
    and those of each edge, as `EdgeConstraints.table` has them."""
    ends: list[tuple[int, int, int, int, int]] = []
    links: list[np.ndarray] = []
    at = 0
    for network in networks:
        ops = network.ops
        for edge in network.edges:
            between = edge.constraints
            roomier = len(ends) in roomy and edge.capacity is not None
            if between is None or roomier:
                producer = ops[edge.producer]
                waits = EdgeWaits(producer.emit, edge.need, edge.frees)
                between = waits.constraints(max(edge.capacity or 0, producer.total) if roomier else edge.capacity)
            table, data, space = between
            ends.append((at + edge.producer, at + edge.consumer, edge.latency, data, space))
            links.append(table)
        at += len(ops)
    return np.array(ends, dtype=np.int64).reshape(-1, 5), links


def _components(count: int, links: list[tuple[int, int]]) -> np.ndarray:
    """(count,) number of the part that each op belongs to, of those that no links lead out of; a loop, for a few dozens
    of ops are too few for a sparse matrix."""
    root = list(range(count))

    def root_of(op: int) -> int:
        while root[op] != op:
            root[op] = op = root[root[op]]
        return op

    for a, b in links:
        low, high = sorted((root_of(a), root_of(b)))
        root[high] = low
    number: dict[int, int] = {}
    return np.array([number.setdefault(root_of(op), len(number)) for op in range(count)], dtype=np.int64)


def sorted_order(keys: np.ndarray, end: int) -> np.ndarray:
    """Indices that sort whole numbers in [0, end), equal ones in their order. Those of 16 bits are sorted by their
    digits, in a fifth of the time."""
    return np.argsort(keys.astype(np.uint16) if end <= 1 << 16 else keys, kind="stable")


def group_starts(groups: np.ndarray, count: int) -> np.ndarray:
    """(count + 1,) where each of `count` groups begins in an array that is sorted by them, and where the last ends.
    groups: the group of each element, in any order."""
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=starts[1:])
    return starts


def levels(nodes: int, source: np.ndarray, target: np.ndarray, lag: np.ndarray) -> np.ndarray:
    """(nodes,) longest path of constraints without lag that ends at each node; `nodes` is the epoch's start. Raises
    `ValueError` where some are a cycle."""
    same = (lag == 0) & (source < nodes)
    source, target = source[same], target[same]
    target = target[sorted_order(source, nodes)]
    starts = group_starts(source, nodes)
    waiting = np.bincount(target, minlength=nodes)
    if len(target) <= FEW_CONSTRAINTS:
        return _levels_of_few(target.tolist(), starts.tolist(), waiting.tolist())
    level = np.zeros(nodes, dtype=np.int64)
    front = np.flatnonzero(waiting == 0)
    now, done = 0, 0
    while len(front):
        level[front] = now
        done += len(front)
        counts = starts[front + 1] - starts[front]
        reached = np.repeat(starts[front] - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        reached = target[reached]
        np.subtract.at(waiting, reached, 1)
        front = np.unique(reached[waiting[reached] == 0])
        now += 1
    if done != nodes:
        raise ValueError("the constraints have a cycle without lag")
    return level


def _levels_of_few(target: list[int], starts: list[int], waiting: list[int]) -> np.ndarray:
    """The same, one constraint after the other. target: grouped by source, whose groups begin at `starts`; waiting: by
    node, constraints that end there."""
    level = [0] * len(waiting)
    front = [node for node, count in enumerate(waiting) if not count]
    now, done = 0, 0
    while front:
        reached = []
        for node in front:
            level[node] = now
            for other in target[starts[node] : starts[node + 1]]:
                waiting[other] -= 1
                if not waiting[other]:
                    reached.append(other)
        done += len(front)
        front = reached
        now += 1
    if done != len(level):
        raise ValueError("the constraints have a cycle without lag")
    return np.array(level, dtype=np.int64)


def _deadlocks(graph: EventGraph) -> list[Deadlock]:
    """Cycles of constraints without lag: each op on one waits for itself."""
    same = (graph.lag == 0) & (graph.source < graph.nodes)
    source, target = graph.source[same], graph.target[same]
    links = coo_array((np.ones(len(source), bool), (source, target)), shape=(graph.nodes, graph.nodes))
    count, label = connected_components(links, directed=True, connection="strong")
    if count == graph.nodes:
        return []
    inside = same & (graph.edge >= 0)
    inside[inside] = label[graph.source[inside]] == label[graph.target[inside]]
    deadlocks = []
    for part in np.flatnonzero(np.bincount(label) > 1):
        mine = inside & (graph.reason == WaitReason.SPACE)
        mine[mine] = label[graph.target[mine]] == part
        ops = np.unique(graph.op[np.flatnonzero(label == part)])
        deadlocks.append(Deadlock(tuple(ops.tolist()), tuple(np.unique(graph.edge[mine]).tolist())))
    return deadlocks


def deadlock_diagnostics(network: Network, deadlocks: list[Deadlock]) -> list[Diagnostic]:
    """One error per deadlock; the ops by name, and for each buffer on the cycle what it holds and what would do."""
    texts = []
    for deadlock in deadlocks:
        names = list(dict.fromkeys(network.ops[op].name for op in deadlock.ops))
        buffers: dict[str, None] = {}
        for index in deadlock.edges:
            edge = network.edges[index]
            producer, consumer = network.ops[edge.producer], network.ops[edge.consumer]
            text = f"{producer.name} -> {consumer.name} holds {edge.capacity} of {producer.total} tiles per core"
            buffers[text] = None
        texts.append(
            Diagnostic(
                "error",
                network.ops[network.edges[deadlock.edges[0]].producer].name if deadlock.edges else names[0],
                "epoch-deadlock",
                f"the ops {', '.join(names)} wait for each other and never finish an input: {'; '.join(buffers)}",
                "a buffering nop or a DRAM queue on one of these edges, a larger output buffer, or an epoch break "
                "between the ops; times are given as if the buffers held a whole input",
            )
        )
    return texts
