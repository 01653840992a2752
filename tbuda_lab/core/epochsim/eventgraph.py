"""The steps of all ops as nodes, and what each must wait for as constraints between them.

Node v of input k starts at x[v, k] = max over its constraints (u, lag, weight) of x[u, k - lag] + weight: a max-plus
linear recurrence. Three kinds of constraint: an op's own previous step; the step that emits the tiles it needs (data);
the step of a reader that frees the space its tiles go to (space), which may lie `lag` inputs back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
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
    def reduced(self) -> ReducedGraph:
        """See `ReducedGraph`. Raises `ValueError` where constraints without lag are a cycle."""
        return _reduced(self)

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

    node: (kept,) those that are left; follows, after: (nodes,) of every node the one that is left and starts last before
    it or is the same, counted in `node`, and the cycles between the two. source, target, lag, weight: (constraints,) of
    what is left; source `kept` is the epoch's start. component, level: (kept,) see `EventGraph`, `levels`.
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


def _reduced(graph: EventGraph) -> ReducedGraph:
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


def event_graph(network: Network) -> tuple[EventGraph, list[Deadlock]]:
    """The constraints of a network. Buffers on a deadlocked cycle are taken as if they held one whole input, so that
    times can be given for the rest; the deadlocks say which."""
    roomy: set[int] = set()
    event_graph: list[Deadlock] = []
    while True:
        graph = _constraints(network, roomy)
        with contextlib.suppress(ValueError):
            graph.reduced  # noqa: B018 - the solver reads it next
            return graph, event_graph
        stuck = _deadlocks(graph)
        if not stuck or any(not set(deadlock.edges) - roomy for deadlock in stuck):
            raise ValueError("the ops feed each other in a circle")
        event_graph += stuck
        roomy.update(e for deadlock in stuck for e in deadlock.edges)


def _constraints(network: Network, roomy: set[int]) -> EventGraph:
    steps = np.array([op.steps for op in network.ops], dtype=np.int64)
    base = np.concatenate([[0], np.cumsum(steps)])
    nodes = int(base[-1])
    every = np.arange(nodes, dtype=np.int64)
    of_equal = {id(op): op.durations() for op in {id(op): op for op in network.ops}.values()}  # parts share their op
    durations = [of_equal[id(op)] for op in network.ops]
    duration = np.concatenate(durations) if durations else np.zeros(0, np.int64)
    first = np.zeros(nodes, dtype=bool)
    first[base[:-1]] = True
    previous = every - 1
    previous[base[:-1]] = base[1:] - 1
    count = len(network.ops)
    data: list[tuple[np.ndarray, np.ndarray]] = []
    space: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    bounded: list[int] = []
    for index, edge in enumerate(network.edges):
        producer = network.ops[edge.producer]
        known = edge.known or EdgeWaits(producer.emit, edge.need, edge.freed)
        data.append(known.data)
        if edge.capacity is not None:
            capacity = max(edge.capacity, producer.total) if index in roomy else edge.capacity
            space.append(known.space(capacity))
            bounded.append(index)
    ends = np.array([(e.producer, e.consumer, e.latency) for e in network.edges], dtype=np.int64).reshape(-1, 3)

    def between(waiting: list[np.ndarray], steps: list[np.ndarray], edges: np.ndarray, by: int) -> list[np.ndarray]:
        """(source, target, weight, edge) of constraints over edges. waiting, steps: by edge; by: the column of `ends`
        that tells whose steps are waited for."""
        which = np.repeat(edges, [len(w) for w in waiting])
        source = base[ends[which, by]] + np.concatenate(steps)
        target = base[ends[which, 1 - by]] + np.concatenate(waiting)
        return [source, target, duration[source] + ends[which, 2], which]

    columns: list[tuple[np.ndarray | int, ...]] = [  # source, target, lag, weight, reason, edge
        (previous, every, first.astype(np.int64), duration[previous], WaitReason.OWN, -1),
        (np.full(count, nodes), base[:-1], 0, np.array([op.ready for op in network.ops]), WaitReason.READY, -1),
    ]
    if data:
        source, target, weight, which = between([w for w, _ in data], [s for _, s in data], np.arange(len(data)), 0)
        columns.append((source, target, 0, weight, WaitReason.DATA, which))
    if space:
        source, target, weight, which = between(
            [w for w, _, _ in space], [s for _, s, _ in space], np.array(bounded), 1
        )
        columns.append((source, target, np.concatenate([lag for *_, lag in space]), weight, WaitReason.SPACE, which))
    lengths = [np.size(c[0]) for c in columns]
    table = np.empty((6, sum(lengths)), dtype=np.int64)
    start = 0
    for column, length in zip(columns, lengths, strict=True):
        for values, value in zip(table, column, strict=True):
            values[start : start + length] = value
        start += length
    source, target, lag, weight, reason, edges = table
    by = np.argsort(target, kind="stable")
    links = coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(count, count))
    component = connected_components(links, directed=False)[1].astype(np.int64) if count else np.zeros(0, np.int64)
    op = np.repeat(np.arange(count, dtype=np.int64), steps)
    return EventGraph(
        base, op, duration, source[by], target[by], lag[by], weight[by], reason[by], edges[by], component[op]
    )


def levels(nodes: int, source: np.ndarray, target: np.ndarray, lag: np.ndarray) -> np.ndarray:
    """(nodes,) longest path of constraints without lag that ends at each node; `nodes` is the epoch's start. Raises
    `ValueError` where some are a cycle."""
    same = (lag == 0) & (source < nodes)
    source, target = source[same], target[same]
    by = np.argsort(source, kind="stable")
    target = target[by]
    starts = np.searchsorted(source[by], np.arange(nodes + 1))
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
