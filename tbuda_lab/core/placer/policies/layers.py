"""Cuts that repeat: where a schedule consists of equal layers, one layer is cut into epochs and its cuts are taken over
by the others, so that few different epochs have to be made real. A training schedule has several such stretches: layers
forward, layers backward, and the updates of the weights.

Freely chosen cuts drift: epochs of 1.1 layers each differ from one another in every layer, and each has to be placed
and priced anew. A path that repeats costs a little more by its bounds, if at all, and what was found out about one of
its epochs holds for every copy.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Hashable, Sequence

import numpy as np

from tbuda_lab.core.placer.model.segment import Segment

Costs = Sequence[tuple[np.ndarray, np.ndarray]]
"""By the first op of a run: where runs from there end, and what each costs."""

_COPIES = 6
"""Layers there are at least."""
_TOGETHER = 2
"""Layers that are cut as one at most."""


@dataclasses.dataclass(frozen=True)
class Layers:
    """Ops [first, last) repeat every `period` ops."""

    period: int
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class LayerEpochs:
    """Epochs that stand for equal layers in a path: one of each kind, and how many there are of it in so many layers
    together."""

    segments: tuple[Segment, ...]
    times: tuple[int, ...]
    layers: float


def equal_layers(kinds: Sequence[int], parts: Sequence[int] = (0,)) -> tuple[Layers, ...]:
    """The stretches of a schedule that consist of equal layers, in order.

    kinds: by op, a number for what it is; parts: where each part of the schedule begins (forward, backward, optimizer).
    Of a schedule in one part only a stretch counts that is half of it or more; in several each is searched for its
    longest stretch, then what is before and behind it.
    """
    ops = np.asarray(kinds)
    if len(parts) < 2:
        whole = _longest(ops, len(ops) // 2)
        return () if whole is None else (whole,)
    return tuple(
        layers
        for first, last in itertools.pairwise((*parts, len(ops)))
        for layers in _stretches(ops[first:last], first)
    )


def _stretches(ops: np.ndarray, at: int) -> list[Layers]:
    """The stretches of ops that are numbered from `at` on, in order."""
    longest = _longest(ops)
    if longest is None:
        return []
    here = dataclasses.replace(longest, first=longest.first + at, last=longest.last + at)
    return [*_stretches(ops[: longest.first], at), here, *_stretches(ops[longest.last :], here.last)]


def _longest(ops: np.ndarray, least: int = 0) -> Layers | None:
    """The longest stretch of at least `_COPIES` layers, with its shortest period; None where there is none.
    least: ops it has at least."""
    best: Layers | None = None
    for period in range(2, len(ops) // _COPIES + 1):
        differs = np.flatnonzero(np.concatenate(([True], ops[period:] != ops[:-period], [True])))
        longest = int(np.diff(differs).argmax())
        first, last = int(differs[longest]), int(differs[longest + 1]) - 1 + period
        # a multiple of the period reaches as far: another one has to reach a layer further
        reaches = 0 if best is None else best.last - best.first + best.period
        if last - first >= max(_COPIES * period, least) and last - first > reaches:
            best = Layers(period, first, last)
    return best


def whole_layers(path: Sequence[tuple[int, int]], kinds: Sequence[Hashable], layers: Layers) -> list[tuple[int, int]]:
    """The longest part of a path of which every run is there several times and that is as long as some of the layers:
    half of them or more, else nothing. kinds: of each run, equal for runs that are alike."""
    count = collections.Counter(kinds)
    best: list[tuple[int, int]] = []
    for begin, end in _spans(np.array([count[kind] >= _COPIES // _TOGETHER for kind in kinds])):
        lasts = np.array([last for _, last in path[begin:end]]) - path[begin][0]
        whole = np.flatnonzero(lasts % layers.period == 0)
        if len(whole) and whole[-1] >= len(best):
            best = list(path[begin : begin + int(whole[-1]) + 1])
    covered = best[-1][1] - best[0][0] if best else 0
    return best if 2 * covered >= layers.last - layers.first else []


def _spans(mask: np.ndarray) -> list[tuple[int, int]]:
    """Where true values begin and end that follow each other."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def cheapest_path(costs: Costs) -> tuple[list[tuple[int, int]], float]:
    """The cheapest way through all ops and what it costs; empty if there is none."""
    dense = _dense(costs)
    least = _least_before(dense)
    return _way(dense, least, len(costs)), float(least[len(costs)])


def repeated_path(
    costs: Costs, stretches: Sequence[Layers], most: float = np.inf
) -> tuple[list[tuple[int, int]], float]:
    """The cheapest way through all ops that takes the same cuts in every layer, or in every pair of layers, of a
    stretch, and what it costs by its runs; empty if there is none. What is before, between and behind is cut freely.

    most: what it may cost; of several stretches those that cost least by repeating repeat, as many as that allows.
    """
    dense, count = _dense(costs), len(costs)
    ahead, behind = _least_before(dense)[: count + 1], _least_behind(dense)
    ways = [way for layers in stretches if (way := _repeat_layer(dense, ahead, behind, layers))]
    total = free = float(ahead[-1])
    chosen: list[list[tuple[int, int]]] = []
    for cost, runs in sorted(ways):
        if total + cost - free <= most:
            total += cost - free
            chosen.append(runs)
    if not chosen:
        return [], np.inf
    path: list[tuple[int, int]] = []
    for runs in sorted(chosen):
        path += [*_between(dense, path[-1][1] if path else 0, runs[0][0]), *runs]
    path += _between(dense, path[-1][1], count)
    whole = all(a[1] == b[0] for a, b in itertools.pairwise([(0, 0), *path, (count, 0)]))
    cost = _cost(dense, path) if whole else np.inf
    return (path, cost) if np.isfinite(cost) else ([], np.inf)


def _repeat_layer(
    dense: np.ndarray, ahead: np.ndarray, behind: np.ndarray, layers: Layers
) -> tuple[float, list[tuple[int, int]]] | None:
    """What a way through all ops costs that repeats in one stretch and is cheapest elsewhere, and its runs in the
    stretch; None if there is none. ahead, behind: (ops + 1,) least cost before and from each op."""
    best: tuple[float, int, int, int] | None = None
    for together in range(1, _TOGETHER + 1):
        span = together * layers.period
        starts = np.arange(layers.first, min(layers.first + layers.period, layers.last - span + 1))
        if not len(starts):
            continue
        copies = (layers.last - starts) // span
        total = ahead[starts] + copies * _through(dense, starts, span) + behind[starts + copies * span]
        at = int(total.argmin())
        if np.isfinite(total[at]) and (best is None or total[at] < best[0]):
            best = float(total[at]), int(starts[at]), int(copies[at]), span
    if best is None:
        return None
    _, start, count, span = best
    cycle = _between(dense, start, start + span)
    way = [(a + copy * span, b + copy * span) for copy in range(count) for a, b in cycle]
    cost = float(ahead[start]) + _cost(dense, way) + float(behind[way[-1][1]])
    return (cost, way) if np.isfinite(cost) else None


def _between(dense: np.ndarray, first: int, last: int) -> list[tuple[int, int]]:
    """The cheapest runs from one op to before another; empty if there are none."""
    part = dense[first:last]
    return [(a + first, b + first) for a, b in _way(part, _least_before(part), last - first)]


def _cost(dense: np.ndarray, path: Sequence[tuple[int, int]]) -> float:
    """Infinite where a run of the path has no cost: copies need not be legal."""
    runs = np.array(path, dtype=np.int64).reshape(-1, 2)
    return float(sum(dense[runs[:, 0], runs[:, 1] - runs[:, 0]].tolist()))


def _way(dense: np.ndarray, least: np.ndarray, end: int) -> list[tuple[int, int]]:
    """Runs up to `end`, of several that cost the same the longest; empty if there is no way. least: see
    `_least_before`."""
    path: list[tuple[int, int]] = []
    at = end
    while at > 0:
        firsts = np.arange(max(0, at - dense.shape[1] + 1), at)
        before = firsts[least[firsts] + dense[firsts, at - firsts] == least[at]]
        if not np.isfinite(least[at]) or not len(before):
            return []
        path.append((int(before[0]), at))
        at = int(before[0])
    return path[::-1]


def _dense(costs: Costs) -> np.ndarray:
    """(ops, longest run + 1) costs by first op and length, infinite where there is no run."""
    firsts = np.repeat(np.arange(len(costs)), [len(lasts) for lasts, _ in costs])
    lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(lasts for lasts, _ in costs)]) - firsts
    dense = np.full((len(costs), int(lengths.max(initial=0)) + 1), np.inf)
    dense[firsts, lengths] = np.concatenate([np.zeros(0), *(cycles for _, cycles in costs)])
    return dense


def _least_before(dense: np.ndarray) -> np.ndarray:
    """(ops + longest run + 1,) least cost of all ops before each; what is beyond the last op means nothing."""
    count, width = dense.shape
    least = np.full(count + width, np.inf)
    least[0] = 0.0
    for first, cycles in enumerate(dense):
        window = least[first : first + width]
        np.minimum(window, cycles + window[0], out=window)
    return least


def _least_behind(dense: np.ndarray) -> np.ndarray:
    """(ops + 1,) least cost of all ops from each on."""
    count, width = dense.shape
    least = np.full(count + width, np.inf)
    least[count] = 0.0
    for first in range(count - 1, -1, -1):
        least[first] = (dense[first] + least[first : first + width]).min()
    return least[: count + 1]


def _through(dense: np.ndarray, starts: np.ndarray, span: int) -> np.ndarray:
    """(starts,) least cost of the `span` ops from each start on."""
    width = dense.shape[1]
    least = np.full((len(starts), span + width), np.inf)
    least[:, 0] = 0.0
    for offset in range(span):
        window = least[:, offset : offset + width]
        np.minimum(window, window[:, :1] + dense[starts + offset], out=window)
    return least[:, span]
