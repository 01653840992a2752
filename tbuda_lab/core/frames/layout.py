"""Where the nodes of a graph are drawn: ranks, order within each rank and lanes for edges that pass over ranks; then
the sizes of what is open, and places within the ranks by least squares, ranks one by one."""

from __future__ import annotations

import dataclasses
import heapq
from bisect import bisect_right, insort

import numpy as np

from tbuda_lab.core.frames.frame import Frame

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
            if rank[target] <= rank[source]:  # against the order: the container has a cycle
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
    remaining = set(range(children))
    while remaining:
        if not ready:
            heapq.heappush(ready, min(remaining))
        child = heapq.heappop(ready)
        if child not in remaining:
            continue
        remaining.remove(child)
        sequence.append(child)
        rank[child] = 1 + max((rank[b] for b in before[child] if b not in remaining), default=0)
        for target in after[child]:
            waiting[target] -= 1
            if waiting[target] == 0 and target in remaining:
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


ITEM_NODE, ITEM_GROUP, ITEM_LANE, ITEM_ENTRY, ITEM_EXIT = range(5)

CHAR = 6.6  # mean advance of a bold 11 px sans-serif letter
LABEL_CHARS = 26
NODE_HEIGHT = 34.0
GROUP_HEIGHT = 40.0
GROUP_EXTRA = 12.0  # room for the mark that opens a closed group
HEADER = 22.0
PADDING = 12.0
GAP_ACROSS = 16.0
GAP_ALONG = {("TB", False): 22.0, ("TB", True): 34.0, ("LR", False): 44.0, ("LR", True): 128.0}
"""Between ranks, by direction and whether the edges carry words."""
LANE_WIDTH = 6.0
LANE_WEIGHT = 8.0
PASSES = 6


@dataclasses.dataclass(frozen=True)
class GraphLayout:
    """Absolute boxes (x, y, w, h) per item, for the items of open groups; `visible` masks them."""

    boxes: np.ndarray  # (items, 4) float64
    visible: np.ndarray  # (items,) bool
    size: tuple[float, float]


def label_width(characters: int) -> float:
    """Width of a box whose label has that many characters."""
    return max(64.0, CHAR * min(characters, LABEL_CHARS) + 26.0)


DIRECTIONS = ("TB", "LR")


def place(frame: Frame, opened: set[int], direction: str = "TB", words: bool = False) -> GraphLayout:
    """Positions of a graph frame with the groups of `opened` (indices; the root is always open) expanded.

    direction: one of `DIRECTIONS`. words: edges carry some, so ranks stand further apart.
    """
    scene = _Scene(frame, opened, direction, words)
    width, height = scene.measure(0)
    boxes = np.zeros((scene.count, 4))
    visible = np.zeros(scene.count, dtype=bool)
    stack = [(0, 0.0, 0.0)]
    while stack:
        group, left, top = stack.pop()
        for i in scene.members[group]:
            x, y, w, h = scene.local[i]
            boxes[i] = (left + x, top + y, w, h)
            visible[i] = True
            if scene.kind[i] == ITEM_GROUP and scene.ref[i] in scene.opened:
                stack.append((scene.ref[i], left + x, top + y))
    return GraphLayout(boxes, visible, (width, height))


class _Scene:
    def __init__(self, frame: Frame, opened: set[int], direction: str, words: bool) -> None:
        columns = frame.columns
        self.turned = direction == "LR"
        self.gap = GAP_ALONG[direction, words]
        self.opened = opened | {0}
        self.kind = columns["item_kind"].tolist()
        self.ref = columns["item_ref"].tolist()
        self.rank = columns["item_rank"].tolist()
        self.order = columns["item_order"].tolist()
        self.count = len(self.kind)
        self.node_chars = columns["node_chars"].tolist()
        self.group_chars = columns["group_chars"].tolist()
        self.label_chars = [len(t) for t in frame.text("group_label")]
        groups = len(self.group_chars)
        self.members: list[list[int]] = [[] for _ in range(groups)]
        for i, g in enumerate(columns["item_group"].tolist()):
            self.members[g].append(i)
        self.segments: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
        for g, s, t in zip(
            columns["seg_group"].tolist(), columns["seg_source"].tolist(), columns["seg_target"].tolist(), strict=True
        ):
            self.segments[g].append((s, t))
        self.local: list[tuple[float, float, float, float]] = [(0.0, 0.0, 0.0, 0.0)] * self.count

    def measure(self, group: int) -> tuple[float, float]:
        """Lay out an open group (its open members first) and return its size."""
        members = self.members[group]
        sizes = {i: self._size(i) for i in members}
        rows: dict[int, list[int]] = {}
        for i in members:
            rows.setdefault(self.rank[i], []).append(i)
        ranks = sorted(rows)
        for r in ranks:
            rows[r].sort(key=lambda i: self.order[i])
        a, b = (1, 0) if self.turned else (0, 1)  # which side of a box lies across and which along
        at = self._columns([rows[r] for r in ranks], {i: s[a] for i, s in sizes.items()}, self.segments[group])
        low = min((at[i] - sizes[i][a] / 2 for i in members), default=0.0)
        high = max((at[i] + sizes[i][a] / 2 for i in members), default=0.0)
        header, label = (HEADER, label_width(self.label_chars[group])) if group else (0.0, 0.0)
        wide = high - low if self.turned else max(high - low, label)
        shift = PADDING - low + (wide - (high - low)) / 2 + (header if self.turned else 0.0)
        run = PADDING if self.turned else header + PADDING
        for k, r in enumerate(ranks):
            deep = max(sizes[i][b] for i in rows[r])
            ports = deep == 0.0
            if k and not ports:
                run += self.gap
            for i in rows[r]:
                size = sizes[i]
                begin, length = run + (deep - size[b]) / 2, size[b]
                if self.kind[i] == ITEM_ENTRY:
                    begin = 0.0 if group else header
                elif self.kind[i] == ITEM_EXIT:
                    begin = run + PADDING
                elif self.kind[i] == ITEM_LANE:
                    begin, length = run, deep
                across = at[i] - size[a] / 2 + shift
                self.local[i] = (begin, across, length, size[a]) if self.turned else (across, begin, size[a], length)
            run += deep
        if self.turned:
            return max(run + PADDING, label + 2 * PADDING), header + wide + 2 * PADDING
        return wide + 2 * PADDING, run + PADDING

    def _size(self, i: int) -> tuple[float, float]:
        kind, ref = self.kind[i], self.ref[i]
        if kind == ITEM_NODE:
            return label_width(self.node_chars[ref]), NODE_HEIGHT
        if kind == ITEM_GROUP:
            if ref in self.opened:
                return self.measure(ref)
            return label_width(self.group_chars[ref]) + GROUP_EXTRA, GROUP_HEIGHT
        return (0.0, LANE_WIDTH) if self.turned else (LANE_WIDTH, 0.0)

    def _columns(
        self, rows: list[list[int]], sizes: dict[int, float], segments: list[tuple[int, int]]
    ) -> dict[int, float]:
        """Centres: alternate passes pull every item towards its neighbours of the rank before or after."""
        above: dict[int, list[int]] = {i: [] for row in rows for i in row}
        below: dict[int, list[int]] = {i: [] for row in rows for i in row}
        for s, t in segments:
            if self.rank[t] > self.rank[s]:
                above[t].append(s)
                below[s].append(t)
        x: dict[int, float] = {}
        for row in rows:
            cursor = 0.0
            for i in row:
                x[i] = cursor + sizes[i] / 2
                cursor += sizes[i] + GAP_ACROSS
            middle = (cursor - GAP_ACROSS) / 2
            for i in row:
                x[i] -= middle
        for turn in range(PASSES):
            near, sequence = (above, rows) if turn % 2 == 0 else (below, rows[::-1])
            for row in sequence:
                wish = [sum(x[n] for n in near[i]) / len(near[i]) if near[i] else x[i] for i in row]
                weight = [LANE_WEIGHT if self.kind[i] >= ITEM_LANE else 1.0 if near[i] else 0.1 for i in row]
                width = [sizes[i] for i in row]
                for i, value in zip(row, separate(wish, weight, width), strict=True):
                    x[i] = value
        return x


def separate(wish: list[float], weight: list[float], width: list[float]) -> list[float]:
    """Centres nearest to `wish` (weighted squares) that keep the order and do not overlap: pool adjacent violators."""
    offsets = [0.0]
    for k in range(1, len(wish)):
        offsets.append(offsets[-1] + (width[k - 1] + width[k]) / 2 + GAP_ACROSS)
    pools: list[list[float]] = []  # [mean, weight, members]
    for k in range(len(wish)):
        mean, heavy, members = wish[k] - offsets[k], weight[k], 1.0
        while pools and pools[-1][0] > mean:
            other = pools.pop()
            mean = (mean * heavy + other[0] * other[1]) / (heavy + other[1])
            heavy += other[1]
            members += other[2]
        pools.append([mean, heavy, members])
    placed: list[float] = []
    for mean, _, members in pools:
        for _ in range(int(members)):
            placed.append(mean + offsets[len(placed)])
    return placed
