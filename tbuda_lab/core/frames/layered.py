"""Layered order of one container: ranks, order within each rank, and lanes for edges that pass over ranks.

The combinatorial half of a layered drawing (K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of
hierarchical system structures", 1981). It doesn't depend on sizes, so collapsing and expanding groups needs no new
order: `coordinates.py` and the page turn the same order into positions for whatever is open.
"""

from __future__ import annotations

import dataclasses
import heapq
from bisect import bisect_right, insort

SWEEPS = 6

NODE, LANE, ENTRY, EXIT = 0, 2, 3, 4
"""Item kinds. A group is 1 in the frame; here children are all NODE."""


@dataclasses.dataclass(frozen=True)
class Net:
    """One value inside a container: where it comes from and who takes it.

    source: child index, or -1 when it enters from outside. targets: child indices. leaves: it goes on outside.
    """

    source: int
    targets: tuple[int, ...]
    leaves: bool


@dataclasses.dataclass(frozen=True)
class Order:
    """Items 0..children-1 are the children; then come lanes and ports.

    kind, net (-1 for children), rank and order per item; segments as (source item, target item, net).
    """

    kind: tuple[int, ...]
    net: tuple[int, ...]
    rank: tuple[int, ...]
    order: tuple[int, ...]
    segments: tuple[tuple[int, int, int], ...]


def arrange(children: int, nets: tuple[Net, ...]) -> Order:
    """Order a container of `children` items, given in topological order of the graph, joined by `nets`."""
    ranks = _ranks(children, nets)
    last = max(ranks, default=0) + 1
    kind = [NODE] * children
    net_of = [-1] * children
    rank = list(ranks)
    segments: list[tuple[int, int, int]] = []

    def item(what: int, net: int, at: int) -> int:
        kind.append(what)
        net_of.append(net)
        rank.append(at)
        return len(kind) - 1

    for number, net in enumerate(nets):
        source = net.source if net.source >= 0 else item(ENTRY, number, 0)
        targets = list(net.targets)
        if net.leaves:
            targets.append(item(EXIT, number, last))
        chain, at = source, rank[source]
        for target in sorted(targets, key=lambda t: (rank[t], t)):
            if rank[target] <= rank[source]:      # against the order: the container has a cycle
                segments.append((source, target, number))
                continue
            while at < rank[target] - 1:
                at += 1
                lane = item(LANE, number, at)
                segments.append((chain, lane, number))
                chain = lane
            segments.append((chain, target, number))
    order = _sweep(rank, segments)
    return Order(tuple(kind), tuple(net_of), tuple(rank), tuple(order), tuple(segments))


def _ranks(children: int, nets: tuple[Net, ...]) -> list[int]:
    """Longest-path ranks from 1; a cycle is cut at its first child in graph order; sources sink to their readers."""
    after: list[set[int]] = [set() for _ in range(children)]
    before: list[set[int]] = [set() for _ in range(children)]
    for net in nets:
        if net.source >= 0:
            for target in net.targets:
                after[net.source].add(target)
                before[target].add(net.source)
    waiting = [len(b) for b in before]
    ready = [c for c in range(children) if not waiting[c]]
    rank = [0] * children
    sequence: list[int] = []
    left = set(range(children))
    while left:
        if not ready:
            heapq.heappush(ready, min(left))
        child = heapq.heappop(ready)
        if child not in left:
            continue
        left.remove(child)
        sequence.append(child)
        rank[child] = 1 + max((rank[b] for b in before[child] if b not in left), default=0)
        for target in after[child]:
            waiting[target] -= 1
            if waiting[target] == 0 and target in left:
                heapq.heappush(ready, target)
    entered = {t for net in nets if net.source < 0 for t in net.targets}
    for child in reversed(sequence):
        later = [rank[t] for t in after[child] if rank[t] > rank[child]]
        if later and not before[child] and child not in entered:
            rank[child] = max(rank[child], min(later) - 1)
    return rank


def _sweep(rank: list[int], segments: list[tuple[int, int, int]]) -> list[int]:
    """Order within ranks by barycentre sweeps; the order with the fewest crossings wins, the earliest on a tie."""
    rows: list[list[int]] = [[] for _ in range(max(rank, default=0) + 1)]
    for i, r in enumerate(rank):
        rows[r].append(i)
    order = [0] * len(rank)
    for row in rows:
        for k, i in enumerate(row):
            order[i] = k
    if all(len(row) <= 1 for row in rows):
        return order
    up: list[list[int]] = [[] for _ in rank]
    down: list[list[int]] = [[] for _ in rank]
    for source, target, _ in segments:
        if rank[target] == rank[source] + 1:
            down[source].append(target)
            up[target].append(source)
    best, fewest = list(order), _crossings(rows, order, down)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        forward = sweep % 2 == 0
        near = up if forward else down
        for row in rows[1:] if forward else rows[-2::-1]:
            centre = {i: sum(order[n] for n in near[i]) / len(near[i]) if near[i] else float(order[i]) for i in row}
            row.sort(key=lambda i, centre=centre: (centre[i], order[i]))  # type: ignore[misc]
            for k, i in enumerate(row):
                order[i] = k
        crossings = _crossings(rows, order, down)
        if crossings < fewest:
            best, fewest = list(order), crossings
    return best


def _crossings(rows: list[list[int]], order: list[int], down: list[list[int]]) -> int:
    """Pairs of segments between neighbouring ranks that cross: inversions of the target order."""
    total = 0
    for row in rows:
        seen: list[int] = []
        for i in sorted(row, key=order.__getitem__):
            targets = sorted(order[t] for t in down[i])
            total += sum(len(seen) - bisect_right(seen, t) for t in targets)
            for t in targets:
                insort(seen, t)
    return total
