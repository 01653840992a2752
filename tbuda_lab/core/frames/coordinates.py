"""From order to positions: sizes of what is open, then x within ranks by least squares, y by rank.

The page does the same in `labextension/src/views/graph/layout.ts` when a group is opened or closed; a fixture in
`tests/widgets` holds the two together. Units are CSS pixels; y grows downwards; (x, y) is the top left corner.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.frames.frame import Frame

ITEM_NODE, ITEM_GROUP, ITEM_LANE, ITEM_ENTRY, ITEM_EXIT = range(5)

CHAR = 6.6            # mean advance of a bold 11 px sans-serif letter
LABEL_CHARS = 26
NODE_HEIGHT = 34.0
GROUP_HEIGHT = 40.0
GROUP_EXTRA = 12.0   # room for the mark that opens a closed group
HEADER = 22.0
PADDING = 12.0
GAP_X = 16.0
GAP_Y = 22.0
LANE_WIDTH = 6.0
LANE_WEIGHT = 8.0
PASSES = 6


@dataclasses.dataclass(frozen=True)
class Layout:
    """Absolute boxes (x, y, w, h) per item, for the items of open groups; `visible` masks them."""

    boxes: np.ndarray      # (items, 4) float64
    visible: np.ndarray    # (items,) bool
    size: tuple[float, float]


def label_width(characters: int) -> float:
    """Width of a box whose label has that many characters."""
    return max(64.0, CHAR * min(characters, LABEL_CHARS) + 26.0)


def place(frame: Frame, opened: set[int]) -> Layout:
    """Positions of a graph frame with the groups of `opened` (indices; the root is always open) expanded."""
    scene = _Scene(frame, opened)
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
    return Layout(boxes, visible, (width, height))


class _Scene:
    def __init__(self, frame: Frame, opened: set[int]) -> None:
        columns = frame.columns
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
        for g, s, t in zip(columns["seg_group"].tolist(), columns["seg_source"].tolist(),
                           columns["seg_target"].tolist(), strict=True):
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
        x = self._columns([rows[r] for r in ranks], sizes, self.segments[group])
        left = min((x[i] - sizes[i][0] / 2 for i in members), default=0.0)
        right = max((x[i] + sizes[i][0] / 2 for i in members), default=0.0)
        header = HEADER if group else 0.0
        wide = max(right - left, label_width(self.label_chars[group]) if group else 0.0)
        shift = PADDING - left + (wide - (right - left)) / 2
        y = header + PADDING
        for k, r in enumerate(ranks):
            tall = max(sizes[i][1] for i in rows[r])
            ports = tall == 0.0
            if k and not ports:
                y += GAP_Y
            for i in rows[r]:
                w, h = sizes[i]
                top = y + (tall - h) / 2
                if self.kind[i] == ITEM_ENTRY:
                    top = 0.0 if group else header
                elif self.kind[i] == ITEM_EXIT:
                    top = y + PADDING
                elif self.kind[i] == ITEM_LANE:
                    top, h = y, tall
                self.local[i] = (x[i] - w / 2 + shift, top, w, h)
            y += tall
        return wide + 2 * PADDING, y + PADDING

    def _size(self, i: int) -> tuple[float, float]:
        kind, ref = self.kind[i], self.ref[i]
        if kind == ITEM_NODE:
            return label_width(self.node_chars[ref]), NODE_HEIGHT
        if kind == ITEM_GROUP:
            if ref in self.opened:
                return self.measure(ref)
            return label_width(self.group_chars[ref]) + GROUP_EXTRA, GROUP_HEIGHT
        return LANE_WIDTH, 0.0

    def _columns(self, rows: list[list[int]], sizes: dict[int, tuple[float, float]],
                 segments: list[tuple[int, int]]) -> dict[int, float]:
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
                x[i] = cursor + sizes[i][0] / 2
                cursor += sizes[i][0] + GAP_X
            middle = (cursor - GAP_X) / 2
            for i in row:
                x[i] -= middle
        for turn in range(PASSES):
            near, sequence = (above, rows) if turn % 2 == 0 else (below, rows[::-1])
            for row in sequence:
                wish = [sum(x[n] for n in near[i]) / len(near[i]) if near[i] else x[i] for i in row]
                weight = [LANE_WEIGHT if self.kind[i] >= ITEM_LANE else 1.0 if near[i] else 0.1 for i in row]
                width = [sizes[i][0] for i in row]
                for i, value in zip(row, _separate(wish, weight, width), strict=True):
                    x[i] = value
        return x


def _separate(wish: list[float], weight: list[float], width: list[float]) -> list[float]:
    """Centres nearest to `wish` (weighted squares) that keep the order and do not overlap: pool adjacent violators."""
    offsets = [0.0]
    for k in range(1, len(wish)):
        offsets.append(offsets[-1] + (width[k - 1] + width[k]) / 2 + GAP_X)
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
