"""Which op of a model an op of a profile is: the cheapest alignment of two sequences.

Both are sequences of (group, kind, shape). A pair costs by how little its ops have in common (`pair_costs`), an op
without a partner by how much it would be missed (`ALONE`): a matmul is rarely added or left out, a reshape often. The
cheapest alignment is found exactly, one antidiagonal at a time. Marks of the user that name a module split the profile
into parts, each of which is aligned with that module alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import quantity
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.measured.devices import COPIES, Devices
from tbuda_lab.core.measured.op_codes import group_of
from tbuda_lab.core.measured.profile import TILE, MeasuredOp, MeasuredProfile
from tbuda_lab.core.measured.steps import PRODUCTS, Step, graph_steps, profile_steps

F32 = npt.NDArray[np.float32]

ALONE = {
    "matmul": 1.0,
    "conv": 1.0,
    "attention": 1.0,
    "softmax": 0.8,
    "norm": 0.8,
    "eltwise": 0.45,
    "reduce": 0.6,
    "collective": 0.2,
    "other": 0.3,
    "move": 0.25,
}
"""What an op of a group costs that has no partner."""
_NO_SHAPE = 0.3
"""What a pair costs of whose shape the profile says nothing."""
_WORST = 0.9  # a pair that costs more, as a share of leaving both alone, is no pair
MOST_CELLS = 64_000_000
"""Cells of an alignment; longer sequences are cut into parts of equal share."""

_UNLIKE = {  # kinds of one group that stand for each other: what it costs
    frozenset(("transpose", "permute")): 0.1,
    frozenset(("reshape", "heads")): 0.3,
    frozenset(("transpose", "heads")): 0.3,
    frozenset(("binary", "unary")): 0.25,
    frozenset(("reshape", "permute")): 0.5,
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """An op of the profile and one of the model; cost 0 where kind and shape agree, up to 1. same_shape: False where
    the profile says another shape of its result; same_weights: of a product with a parameter whether that has the
    profile's size, None where either does not say it."""

    measured: MeasuredOp
    op: str
    cost: float
    same_shape: bool = True
    same_weights: bool | None = None


@dataclasses.dataclass(frozen=True)
class Match:
    """Pairs in the order of the profile; what has no partner on either side. runs: how often the profile runs the
    model; each run is matched, and `times` has the median. cost: of the alignment. notes: products of the model that
    nothing tells apart, so that their times may be each other's."""

    profile: MeasuredProfile
    pairs: tuple[Pair, ...]
    unmatched: tuple[MeasuredOp, ...]
    missing: tuple[str, ...]
    runs: int
    cost: float
    notes: tuple[str, ...] = ()

    def times(self) -> dict[str, float]:
        """ns by op of the model: the median over the runs that measured it; an op that none measured is missing. An op
        that the device runs as several has their sum."""
        by: dict[str, list[float | None]] = {}
        for pair in self.pairs:
            by.setdefault(pair.op, []).append(pair.measured.measurement)
        times = {op: self._time(each) for op, each in by.items()}
        return {op: time for op, time in times.items() if time is not None}

    def _time(self, parts: Sequence[float | None]) -> float | None:
        """The median over runs of the sum of an op's parts; a run that lacks one of them says nothing."""
        length = len(parts) // self.runs
        runs = [parts[at : at + length] for at in range(0, len(parts), length)]
        sums = [sum(known) for run in runs if len(known := [t for t in run if t is not None]) == len(run)]
        return float(np.median(sums)) if sums else None

    @property
    def untimed(self) -> tuple[str, ...]:
        """Ops of the model that have partners, of which none has a time."""
        times = self.times()
        return tuple(op for op in dict.fromkeys(pair.op for pair in self.pairs) if op not in times)

    def share(self, group: str) -> float:
        """The part of the profile's ops of a group that have a partner; 1 where there is none of it."""
        got = sum(p.measured.group == group for p in self.pairs)
        lost = sum(op.group == group for op in self.unmatched)
        return got / (got + lost) if got + lost else 1.0

    def __str__(self) -> str:
        total = len(self.pairs) + len(self.unmatched)
        runs = quantity(self.runs, "run")
        text = f"{len(self.pairs)} of {quantity(total, 'op')} of {self.profile.name} matched in {runs}"
        if without := len(self.missing) + len(self.untimed):
            text += f"; {quantity(without, 'op')} of the model without a time"
        products = [p for p in self.pairs if p.measured.group in PRODUCTS]
        if products and not any(p.same_shape for p in products):
            text += "; no matched product has the model's shape: a run of another batch or length?"
        return text


def match_profile(profile: MeasuredProfile, graph: Graph) -> Match:
    """Match the ops of a profile to those of a traced graph, in order, those of our own traces by their names. Devices
    that run the same ops one behind the other are parts of the model where that fits it better."""
    ops = profile.sequence()
    steps = graph_steps(graph)
    if profile.source == "trace" and any(traced_name(graph, op.name) for op in ops):
        return _match_names(profile, ops, graph, steps)
    readings = [(profile, ops)]
    if Devices(profile.ops).copies_behind():
        told = tuple(f for f in profile.findings if f.rule != COPIES)
        parts = dataclasses.replace(profile, parts=True, findings=told)
        readings.append((parts, parts.sequence()))
    found = (_match_runs(*reading, steps, length) for reading in readings for length in run_lengths(reading[1]))
    best = min(found, key=lambda match: match.cost)
    if not best.profile.parts:
        return best
    note = "its devices run parts of the model, one behind the other: all of them count"
    return dataclasses.replace(best, notes=(note, *best.notes))


def _match_names(profile: MeasuredProfile, ops: Sequence[MeasuredOp], graph: Graph, steps: Sequence[Step]) -> Match:
    names = [traced_name(graph, op.name) for op in ops]
    pairs = tuple(Pair(op, name, 0.0) for op, name in zip(ops, names, strict=True) if name is not None)
    alone = tuple(op for op, name in zip(ops, names, strict=True) if name is None)
    known = {pair.op for pair in pairs}
    return Match(profile, pairs, alone, tuple(s.name for s in steps if s.name not in known), 1, 0.0)


def traced_name(traced: Graph, name: str) -> str | None:
    """The op of the traced graph that a later stage's op was made of, by its name: `softmax.dc.exp.2.lc1` is of
    `softmax`. None for what the compiler added."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        candidate = ".".join(words[:length])
        if candidate in traced.nodes:
            return candidate if traced[candidate].op is not None else None
    return None


def run_lengths(ops: Sequence[MeasuredOp]) -> list[int]:
    """How many ops a run may have: all of them, the fewest after which they repeat exactly, the last run perhaps cut,
    and every multiple of that in which they fall.

    Of a sequence all periods up to its half are multiples of the shortest (Fine and Wilf), which is what is left
    beside its longest border (Knuth, Morris and Pratt): each op is looked at twice, however many there are.
    """
    ids = {s: k for k, s in enumerate(dict.fromkeys(op.signature for op in ops))}
    codes = [ids[op.signature] for op in ops]
    borders, border = [0], 0
    for code in codes[1:]:
        while border and code != codes[border]:
            border = borders[border - 1]
        border += code == codes[border]
        borders.append(border)
    n = len(codes)
    shortest = n - border
    repeats = range(n // 2 // shortest * shortest, 0, -shortest)
    return [n, *(m for m in repeats if n % m == 0 or m == shortest)]


def _match_runs(profile: MeasuredProfile, ops: Sequence[MeasuredOp], steps: list[Step], length: int) -> Match:
    """All runs are of the same ops: one is aligned, the others follow it. A last one that is cut is left over."""
    runs = len(ops) // length
    measured = profile_steps(ops[:length])
    aligned, cost = align(measured, steps)
    aligned, notes = told_apart(measured, steps, aligned)
    if cut := len(ops) - runs * length:
        notes = (f"the last run is cut: {quantity(cut, 'op')} of {length}, left out", *notes)
    if not any(step.shape for step in measured):
        notes = ("the profile has no shapes: matched by kind and order alone", *notes)
    partner = {i: (j, c) for i, j, c in aligned}
    pairs, alone = [], []
    devices = len(profile.devices)
    for at, op in enumerate(ops):
        if at % length in partner and at < runs * length:
            j, c = partner[at % length]
            step = measured[at % length]
            weights = _same_weights(step.weights, steps[j].weights, devices)
            pairs.append(Pair(op, steps[j].name, c, not step.shape or step.shape == steps[j].shape, weights))
        else:
            alone.append(op)
    used = {j for j, _ in partner.values()}
    missing = tuple(s.name for j, s in enumerate(steps) if j not in used)
    # runs that the model does not repeat cost what they leave over; runs that it does cost nothing more
    return Match(profile, tuple(pairs), tuple(alone), missing, runs, cost, notes)


def _same_weights(measured: tuple[int, ...], model: tuple[int, ...], devices: int) -> bool | None:
    """Whether sizes agree, those of the profile perhaps padded to tiles, or of a part of several devices."""
    if not measured or not model:
        return None
    return all(
        not a or not b or any(a * parts in (b, -(-b // TILE) * TILE) for parts in range(1, devices + 1))
        for a, b in zip(measured, model, strict=True)
    )


def align(left: Sequence[Step], right: Sequence[Step]) -> tuple[list[tuple[int, int, float]], float]:
    """(place left, place right, cost) of the pairs of the cheapest alignment, and its cost."""
    parts = _anchored(left, right)
    pairs: list[tuple[int, int, float]] = []
    cost = 0.0
    for (a, b), (c, d) in parts:
        found, part_cost = _align_part(left[a:b], right[c:d])
        pairs += [(a + i, c + j, value) for i, j, value in found]
        cost += part_cost
    return _swapped(left, right, pairs), cost


_FIXED = ("matmul", "conv", "attention", "softmax", "norm", "collective")
"""Groups whose pairs stand for where in the model it is; between two of them others may come in another order."""


def _swapped(
    left: Sequence[Step], right: Sequence[Step], pairs: list[tuple[int, int, float]]
) -> list[tuple[int, int, float]]:
    """With the pairs that an order cannot hold: ops without a partner on either side, equal in kind and shape, between
    the same two fixed pairs (three reshapes and then three transposes, or one after the other)."""
    fixed = [(-1, -1), *((i, j) for i, j, _ in pairs if left[i].group in _FIXED), (len(left), len(right))]
    used_left, used_right = {i for i, _, _ in pairs}, {j for _, j, _ in pairs}
    more = []
    for (i0, j0), (i1, j1) in itertools.pairwise(fixed):
        free: dict[tuple[str, tuple[int, ...], int], list[int]] = {}
        for j in range(j0 + 1, j1):
            if j not in used_right:
                free.setdefault((right[j].kind, right[j].shape, right[j].inner), []).append(j)
        for i in range(i0 + 1, i1) if free else ():
            waiting = free.get((left[i].kind, left[i].shape, left[i].inner)) if i not in used_left else None
            if waiting:
                more.append((i, waiting.pop(0), 0.0))
    return sorted([*pairs, *more])


MOST_TRIES = 500
"""Products without a partner that are tried with one another; what is left has none."""
Pairs = list[tuple[int, int, float]]


def told_apart(left: Sequence[Step], right: Sequence[Step], pairs: Pairs) -> tuple[Pairs, tuple[str, ...]]:
    """Pairs with the products that an order cannot hold, and notes of those that nothing tells apart.

    A product may run anywhere behind those that it needs and before those that need it: queries, keys and values in any
    order, values as late as after the softmax. Those without a partner on either side, equal in shape, are paired where
    that holds; of equal ones that need the same the first of the profile is the first of the model, if that holds.
    """
    if any(step.needs is None for step in right):
        return pairs, ()
    products = [j for j, step in enumerate(right) if step.group in PRODUCTS]
    numbers = {j: n for n, j in enumerate(products)}
    place = {j: i for i, j, _ in pairs if j in numbers}
    used = {i for i, _, _ in pairs}
    lost = [j for j in products if j not in place]
    tries = 0
    for i, step in enumerate(left):
        if i in used or step.group not in PRODUCTS or not lost:
            continue
        for j in [j for j in lost if _key(right[j]) == _key(step)]:
            tries += 1
            if tries > MOST_TRIES:
                break
            if found := _partner(i, j, right, numbers, place):
                place |= found
                lost.remove(j)
                break
    costs = {j: cost for _, j, cost in pairs}
    notes = []
    for group in _equal(left, right, place):
        bounds = {j: _bounds(right, numbers, place, j, group) for j in group}
        places = sorted(place[j] for j in group)
        for order in (group, sorted(group, key=lambda j: bounds[j][1])):  # the model's; who is needed first is first
            if all(_fits(i, *bounds[j]) for i, j in zip(places, order, strict=True)):
                place.update(zip(order, places, strict=True))
                break
        alike = [
            j
            for j in group
            if any(j != k and _fits(place[k], *bounds[j]) and _fits(place[j], *bounds[k]) for k in group)
        ]
        if alike:
            notes.append(_alike_text([right[j] for j in alike]))
    others = [pair for pair in pairs if pair[1] not in numbers]
    return sorted([*others, *((i, j, costs.get(j, 0.0)) for j, i in place.items())]), tuple(notes)


def _partner(i: int, j: int, right: Sequence[Step], numbers: dict[int, int], place: dict[int, int]) -> dict[int, int]:
    """The places with which product j has one, place i taken: of itself, or of one that is equal and makes room."""
    if _fits(i, *_bounds(right, numbers, place, j, ())):
        return {j: i}
    for k, at in place.items():
        if _key(right[k]) == _key(right[j]) and right[k].needs == right[j].needs:
            free = (j, k)
            if _fits(i, *_bounds(right, numbers, place, k, free)) and _fits(
                at, *_bounds(right, numbers, place, j, free)
            ):
                return {j: at, k: i}
    return {}


def _key(step: Step) -> tuple[object, ...]:
    return step.kind, step.shape, step.inner


def _fits(place: int, after: int, before: float) -> bool:
    return after < place < before


def _bounds(
    right: Sequence[Step], numbers: dict[int, int], place: dict[int, int], j: int, free: Sequence[int]
) -> tuple[int, float]:
    """Behind which place of the profile and before which a product stands, by the products around it but `free`."""
    needs, bit = right[j].needs or 0, 1 << numbers[j]
    known = [(k, i) for k, i in place.items() if k != j and k not in free]
    after = max((i for k, i in known if needs >> numbers[k] & 1), default=-1)
    return after, min((i for k, i in known if (right[k].needs or 0) & bit), default=math.inf)


def _equal(left: Sequence[Step], right: Sequence[Step], place: dict[int, int]) -> list[list[int]]:
    """Products with partners, two or more of one shape, that need the same and that no mark of a module parts."""
    words = [step.section.split(".") for step in right]
    modules = {".".join(w[:n]) for w in {tuple(w) for w in words} for n in range(1, len(w) + 1)}
    groups: dict[tuple[object, ...], list[int]] = {}
    for j in sorted(place):
        mark = left[place[j]].section
        key = (_key(right[j]), _key(left[place[j]]), right[j].needs, mark if mark in modules else "")
        groups.setdefault(key, []).append(j)
    return [group for group in groups.values() if len(group) > 1]


def _alike_text(steps: Sequence[Step]) -> str:
    paths = [step.section or step.name for step in steps]
    above, last = {p.rpartition(".")[0] for p in paths}, [p.rpartition(".")[2] for p in paths]
    if len(above) > 1 or len(set(last)) < len(last):
        above, last = {""}, [step.name for step in steps]
    of = f" of {path}" if (path := above.pop()) else ""
    shown = ", ".join(last[:6]) + (f" and {len(last) - 6} more" if len(last) > 6 else "")
    return f"{shown}{of}: {len(last)} products of the same shape; matched in the order of the model"


def _anchored(left: Sequence[Step], right: Sequence[Step]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges that belong together: runs of the left whose mark is a module's path, in the order of the modules; all
    of both where marks say nothing."""
    whole = [((0, len(left)), (0, len(right)))]
    modules: dict[str, tuple[int, int]] = {}
    for at, step in enumerate(right):
        parts = step.section.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            first, _ = modules.get(path, (at, at))
            modules[path] = (first, at + 1)
    anchors: list[tuple[tuple[int, int], tuple[int, int]]] = []
    begin = 0
    for at in range(1, len(left) + 1):
        if at == len(left) or left[at].section != left[begin].section:
            place = modules.get(left[begin].section) if left[begin].section else None
            if place is not None and (not anchors or place[0] >= anchors[-1][1][1]):
                anchors.append(((begin, at), place))
            begin = at
    if not anchors:
        return whole
    ranges: list[tuple[tuple[int, int], tuple[int, int]]] = []
    a, c = 0, 0
    for (x, y), (u, v) in anchors:
        ranges += [((a, x), (c, u)), ((x, y), (u, v))]
        a, c = y, v
    return [*ranges, ((a, len(left)), (c, len(right)))]


def _align_part(left: Sequence[Step], right: Sequence[Step]) -> tuple[list[tuple[int, int, float]], float]:
    n, m = len(left), len(right)
    if n * m > MOST_CELLS and min(n, m) > 1:
        half, other = n // 2, round(m * (n // 2) / n)
        first, cost = _align_part(left[:half], right[:other])
        second, more = _align_part(left[half:], right[other:])
        return [*first, *((half + i, other + j, c) for i, j, c in second)], cost + more
    alone_left = np.array([ALONE.get(s.group, 0.3) for s in left], np.float32)
    alone_right = np.array([ALONE.get(s.group, 0.3) for s in right], np.float32)
    costs = pair_costs(left, right)
    choice, total = _tabulate(costs, alone_left, alone_right)
    pairs = []
    i, j = n, m
    while i and j:
        step = choice[i, j]
        if step == 0:
            i, j = i - 1, j - 1
            pairs.append((i, j, float(costs[i, j])))
        elif step == 1:
            i -= 1
        else:
            j -= 1
    return pairs[::-1], total


def _tabulate(costs: F32, alone_left: F32, alone_right: F32) -> tuple[npt.NDArray[np.uint8], float]:
    """By cell which step leads to it: 0 a pair, 1 the left one alone, 2 the right one alone; and the cost of all.

    One antidiagonal at a time: its cells depend on the two before it only.
    """
    n, m = costs.shape
    choice = np.zeros((n + 1, m + 1), np.uint8)
    choice[1:, 0], choice[0, 1:] = 1, 2
    edge_left = np.concatenate([[0.0], np.cumsum(alone_left, dtype=np.float64)])
    edge_right = np.concatenate([[0.0], np.cumsum(alone_right, dtype=np.float64)])
    before = np.zeros(n + 1)  # the antidiagonal i + j = d - 2, by i
    last = np.zeros(n + 1)
    last[0] = 0.0
    for d in range(1, n + m + 1):
        now = np.full(n + 1, np.inf)
        if d <= m:
            now[0] = edge_right[d]
        if d <= n:
            now[d] = edge_left[d]
        low, high = max(1, d - m), min(n, d - 1)
        if low <= high:
            i = np.arange(low, high + 1)
            j = d - i
            options = np.stack(
                [
                    before[i - 1] + costs[i - 1, j - 1],
                    last[i - 1] + alone_left[i - 1],
                    last[i] + alone_right[j - 1],
                ]
            )
            best = options.argmin(axis=0)
            now[i] = options[best, np.arange(len(i))]
            choice[i, j] = best
        before, last = last, now
    return choice, float(last[n])


def pair_costs(left: Sequence[Step], right: Sequence[Step]) -> F32:
    """(left, right) what a pair costs: 0 for one kind, shape and inner length; a quarter for the same volume in another
    shape; more the further the volumes are apart; infinite where the kinds have nothing in common."""
    kinds = sorted({s.kind for s in (*left, *right)})
    number = {k: n for n, k in enumerate(kinds)}
    table = np.array([[_kind_cost(a, b) for b in kinds] for a in kinds], np.float32).reshape(len(kinds), len(kinds))
    a = np.array([number[s.kind] for s in left], np.int64)
    b = np.array([number[s.kind] for s in right], np.int64)
    alone = np.array([ALONE.get(group_of(k), 0.3) for k in kinds], np.float32)
    shapes = {s: n for n, s in enumerate(dict.fromkeys(step.shape for step in (*left, *right)))}
    same = np.array([shapes[s.shape] for s in left])[:, None] == np.array([shapes[s.shape] for s in right])[None]
    volume = [np.log2(np.array([max(1, s.volume) for s in steps], np.float32)) for steps in (left, right)]
    inner = [np.log2(np.array([max(1, s.inner) for s in steps], np.float32)) for steps in (left, right)]
    apart = np.abs(volume[0][:, None] - volume[1][None]) + np.abs(inner[0][:, None] - inner[1][None])
    shape_cost = np.where(same & (apart == 0), 0.0, np.minimum(0.15 + 0.2 * apart, 2.0)).astype(np.float32)
    unknown = np.array([not s.shape and not s.inner for s in left], bool)  # a profile without columns of operands
    shape_cost[unknown] = np.minimum(shape_cost[unknown], _NO_SHAPE)
    cost = (table[a[:, None], b[None]] + shape_cost) * (alone[a][:, None] + alone[b][None])
    return np.where(cost <= _WORST * (alone[a][:, None] + alone[b][None]), cost, np.inf).astype(np.float32)


def _kind_cost(a: str, b: str) -> float:
    if a == b:
        return 0.0
    unlike = _UNLIKE.get(frozenset((a, b)))
    if unlike is not None:
        return unlike
    return 0.7 if group_of(a) == group_of(b) and group_of(a) in ("eltwise", "norm") else math.inf
