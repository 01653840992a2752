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
    return tuple(layers for first, last in itertools.pairwise((*parts, len(ops)))
                 for layers in _stretches(ops[first:last], first))


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


def whole_layers(
    path: Sequence[tuple[int, int]], kinds: Sequence[Hashable], layers: Layers
) -> list[tuple[int, int]]:
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
    ahead, back = _least_before(costs)
    return _way(back, len(costs)), float(ahead[-1])


def repeated_path(
    costs: Costs, stretches: Sequence[Layers], most: float = np.inf
) -> tuple[list[tuple[int, int]], float]:
    """The cheapest way through all ops that takes the same cuts in every layer, or in every pair of layers, of a
    stretch, and what it costs by its runs; empty if there is none. What is before, between and behind is cut freely.

    most: what it may cost; of several stretches those that cost least by repeating repeat, as many as that allows.
    """
    (ahead, _), behind, dense = _least_before(costs), _least_behind(costs), _dense(costs)
    ways = [way for layers in stretches if (way := _repeated(costs, dense, ahead, behind, layers))]
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
        path += [*_between(costs, path[-1][1] if path else 0, runs[0][0]), *runs]
    path += _between(costs, path[-1][1], len(costs))
    whole = all(a[1] == b[0] for a, b in itertools.pairwise([(0, 0), *path, (len(costs), 0)]))
    cost = _cost(costs, path) if whole else np.inf
    return (path, cost) if np.isfinite(cost) else ([], np.inf)


def _repeated(
    costs: Costs, dense: np.ndarray, ahead: np.ndarray, behind: np.ndarray, layers: Layers
) -> tuple[float, list[tuple[int, int]]] | None:
    """What a way through all ops costs that repeats in one stretch and is cheapest elsewhere, and its runs in the
    stretch; None if there is none. ahead, behind: (ops + 1,) least cost before and from each op."""
    best: tuple[float, int, int, list[tuple[int, int]]] | None = None
    for together in range(1, _TOGETHER + 1):
        span = together * layers.period
        starts = np.arange(layers.first, min(layers.first + layers.period, layers.last - span + 1))
        if not len(starts):
            continue
        copies = (layers.last - starts) // span
        least, came = _through(dense, starts, span)
        total = ahead[starts] + copies * least + behind[starts + copies * span]
        at = int(total.argmin())
        if np.isfinite(total[at]) and (best is None or total[at] < best[0]):
            start = int(starts[at])
            cycle = [(start + a, start + b) for a, b in _way(came[at], span)]
            best = float(total[at]), start, int(copies[at]), cycle
    if best is None:
        return None
    _, start, count, cycle = best
    span = cycle[-1][1] - start
    way = [(a + copy * span, b + copy * span) for copy in range(count) for a, b in cycle]
    cost = float(ahead[start]) + _cost(costs, way) + float(behind[way[-1][1]])
    return (cost, way) if np.isfinite(cost) else None


def _between(costs: Costs, first: int, last: int) -> list[tuple[int, int]]:
    """The cheapest runs from one op to before another; empty if there are none."""
    part = [(ends[ends <= last] - first, cycles[ends <= last]) for ends, cycles in costs[first:last]]
    return [(a + first, b + first) for a, b in cheapest_path(part)[0]]


def _cost(costs: Costs, path: Sequence[tuple[int, int]]) -> float:
    """Infinite where a run of the path has no cost: copies need not be legal."""
    cost = 0.0
    for first, last in path:
        lasts, cycles = costs[first]
        found = np.flatnonzero(lasts == last)
        cost += float(cycles[found[0]]) if len(found) else np.inf
    return cost


def _way(back: np.ndarray, end: int) -> list[tuple[int, int]]:
    """Runs up to `end`. back: (ends,) the first op of the run that ends there, -1 where none does."""
    path: list[tuple[int, int]] = []
    at = end
    while at > 0:
        if back[at] < 0:
            return []
        path.append((int(back[at]), at))
        at = int(back[at])
    return path[::-1]


def _least_before(costs: Costs) -> tuple[np.ndarray, np.ndarray]:
    """(ops + 1,) least cost of all ops before each, and the first op of the run that ends there."""
    least, back = np.full(len(costs) + 1, np.inf), np.full(len(costs) + 1, -1)
    least[0] = 0.0
    for first, (lasts, cycles) in enumerate(costs):
        total = least[first] + cycles
        better = total < least[lasts]
        least[lasts[better]] = total[better]
        back[lasts[better]] = first
    return least, back


def _least_behind(costs: Costs) -> np.ndarray:
    """(ops + 1,) least cost of all ops from each on."""
    least = np.full(len(costs) + 1, np.inf)
    least[-1] = 0.0
    for first in range(len(costs) - 1, -1, -1):
        lasts, cycles = costs[first]
        if len(lasts):
            least[first] = (cycles + least[lasts]).min()
    return least


def _dense(costs: Costs) -> np.ndarray:
    """(ops, longest run + 1) costs by first op and length, infinite where there is no run."""
    longest = max((int(lasts[-1]) - first for first, (lasts, _) in enumerate(costs) if len(lasts)), default=0)
    dense = np.full((len(costs), longest + 1), np.inf)
    for first, (lasts, cycles) in enumerate(costs):
        dense[first, lasts - first] = cycles
    return dense


def _through(dense: np.ndarray, starts: np.ndarray, span: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts,) least cost of the `span` ops from each start on; (starts, span + 1) where the run begins that ends
    there, both counted from the start."""
    longest = dense.shape[1] - 1
    least = np.full((len(starts), span + longest + 1), np.inf)
    came = np.full((len(starts), span + longest + 1), -1)
    least[:, 0] = 0.0
    for offset in range(span):
        window = slice(offset, offset + longest + 1)
        total = least[:, offset, None] + dense[starts + offset]
        better = total < least[:, window]
        least[:, window] = np.where(better, total, least[:, window])
        came[:, window] = np.where(better, offset, came[:, window])
    return least[:, span], came[:, : span + 1]
