"""What no placement can beat: lower bounds on the limiter cycles per input, summed over epochs.

Formulas: placement.md#lower-bounds.

The strongest is usually `no_packing`: the best way to cut this schedule into epochs if rectangles were liquid. For a
run of ops and a target T every op takes the fewest cores of any legal candidate that meets T, and, apart from that, the
fewest cores on DRAM; the run needs a T at which the device has the cores and DRAM serves that many of them. What edges
and rectangles ask for on top is left out, so no placement in this order of ops is faster.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, EpochLoad, cores_at_divider, dram_divider, dram_rate
from tbuda_lab.core.balancer.l1 import preloads
from tbuda_lab.core.balancer.types import Bounds
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.lowering.hw_ops import tile_shape
from tbuda_lab.core.placer.model.costs import BIG
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.report import EpochCost

_TARGETS = 384
_DIVIDER_STEP = 1.25
_NEVER = 1 << 40
_FINER = 4
"""Into how many targets the step from one to the next is cut for runs that matter."""
_WEIGHTS = ((1, 0), (0, 1), (1, 1))
"""Times the cores, times the cores on DRAM: what a run takes of every such sum has to be there."""

T = TypeVar("T")


def bounds(problem: Problem, epochs: Sequence[EpochCost] = ()) -> Bounds:
    """All bounds over all legal candidates, beside what `epochs` reach."""
    area = critical = theoretical = 0.0
    least: dict[str, tuple[float, float]] = {}  # core-cycles and cycles, by signature
    for op, table in enumerate(problem.tables):
        profile = problem.profiles[op]
        entry = least.get(table.signature)
        if entry is None:
            rows = table.rows[problem.legal[table.signature]]
            product = float((rows["cycles"] * rows["cores"]).min())
            entry = least[table.signature] = product, float(rows["cycles"].min())
        area += entry[0]
        critical = max(critical, entry[1])
        if profile.kind == "matmul":
            z, rt, ct = profile.out
            per_tile = 32 if problem.device.arch == "grayskull" else 16
            theoretical += z * profile.z_group * rt * ct * profile.inner * profile.fidelity.value * per_tile
    return Bounds(
        area=int(area / problem.cores),
        theoretical_matmul=int(theoretical / problem.cores),
        dram=int(_must_cross_dram(problem) / dram_rate(problem.device)),
        critical_op=int(critical),
        no_packing=no_packing(problem),
        achieved_kernel=sum(e.kernel_cycles for e in epochs),
        achieved_limiter=sum(e.limiter_cycles for e in epochs),
    )


def _must_cross_dram(problem: Problem) -> int:
    """Bytes per input that every placement moves through DRAM: inputs that lie there, and parameters that no reader has
    a legal candidate to preload (a preload is not shared with other traffic, see `limits`)."""
    users = problem.graph.users()
    total = 0
    may_preload: dict[tuple[str, int], bool] = {}

    def can_preload(op: int, port: int) -> bool:
        """Whether an op has a legal candidate that preloads an operand."""
        table = problem.tables[op]
        key = table.signature, port
        if key not in may_preload:
            rows = table.rows[problem.legal[table.signature]]
            may_preload[key] = bool(preloads(problem.profiles[op], port, rows).any())
        return may_preload[key]

    for node in problem.graph:
        if node.kind not in (NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.CONSTANT):
            continue
        readers = [(problem.number[u], p) for u, p in users[node.name] if u in problem.number]
        if node.kind is NodeKind.INPUT:
            streamed = any(problem.facts[op].queue_place[port] == DRAM for op, port in readers)
        else:
            streamed = bool(readers) and not any(can_preload(op, port) for op, port in readers)
        if streamed:
            z, rt, ct = tile_shape(node.shape)
            df = node.df or problem.options.data_format
            total += z * rt * ct * tile_bytes(df, align=problem.device.tile_align)
    return total


class NoPacking:
    """Least cycles of every run of ops, for bands of DRAM dividers: within a band cycles are those of its lowest
    divider, and as many cores may use DRAM as its highest allows."""

    def __init__(self, problem: Problem) -> None:
        self._problem = weakref.ref(problem)  # it is kept for as long as the problem is there
        self.bands = _bands(problem)
        self.caps = np.array([cores_at_divider(problem.device, high) for _, high in self.bands])[:, None]
        self._cycles: dict[tuple[object, ...], np.ndarray] = {}
        self.targets = self._targets()
        self._tables = _known_needs(problem, self.targets)
        self._joint: dict[tuple[object, ...], np.ndarray] = {}
        self._between = np.geomspace(self.targets[0], self.targets[-1], _FINER * len(self.targets))

    @property
    def problem(self) -> Problem:
        problem = self._problem()
        assert problem is not None
        return problem

    def _limits(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        """(bands, legal rows) limiter cycles."""
        problem = self.problem
        signature = problem.tables[op].signature
        key = (signature, where, output)
        entry = self._cycles.get(key)
        if entry is None:
            loads = [EpochLoad(cores_at_divider(problem.device, low), 0) for low, _ in self.bands]
            legal = problem.legal[signature]
            entry = np.ceil(np.stack([problem.row_limits(op, where, output, load)[legal] for load in loads]))
            self._cycles[key] = entry
        return entry

    def _targets(self) -> np.ndarray:
        """Targets between the fastest op and the slowest; what lies between two counts as the lower one."""
        problem = self.problem
        low = min(float(t.rows["cycles"][problem.legal[t.signature]].min()) for t in problem.tables)
        alone = [self._limits(op, *problem.places(op, op, op + 1)) for op in range(len(problem.order))]
        high = max(float(c.max(axis=1).min()) for c in alone)
        return np.unique(np.floor(np.geomspace(max(1.0, low), max(high, low + 1.0), _TARGETS)))

    def needs(self, op: int, first: int, last: int) -> np.ndarray:
        """(2, bands, targets) fewest cores, and fewest cores on DRAM, of a legal candidate within each target."""
        where, output = self.problem.places(op, first, last)
        key = (self.problem.tables[op].signature, where, output)
        entry = self._tables.get(key)
        if entry is None:
            least = self._least_of(op, where, output, ((1, 0), (0, 1)), self.targets)
            entry = self._tables[key] = np.minimum(least, BIG).astype(np.int32)
        return entry

    def _least_of(
        self, op: int, where: tuple[str, ...], output: str, weights: Sequence[tuple[int, int]], targets: np.ndarray
    ) -> np.ndarray:
        """(weights, bands, targets) the least of so many times the cores and so many times the cores on DRAM that a
        legal candidate within each target takes."""
        table = self.problem.tables[op]
        legal = self.problem.legal[table.signature]
        cores = table.rows["cores"][legal].astype(np.int64)
        dram = self.problem.dram_cores(op, where, output)[legal]
        result = np.full((len(weights), len(self.bands), len(targets)), _NEVER)
        result[[i for i, (by_cores, _) in enumerate(weights) if not by_cores]] = 0
        for band, cycles in enumerate(self._limits(op, where, output)):
            by = np.argsort(cycles, kind="stable")
            count = np.searchsorted(cycles[by], targets, side="right")
            ok = count > 0
            for i, (by_cores, by_dram) in enumerate(weights):
                least = np.minimum.accumulate((by_cores * cores + by_dram * dram)[by])
                result[i, band, ok] = least[count[ok] - 1]
        return result

    def slowest(self, op: int, first: int, last: int) -> float:
        """Cycles that no legal candidate of an op takes more of, infinite where the host link shares them out."""
        where, output = self.problem.places(op, first, last)
        return float("inf") if HOST in where or output == HOST else float(self._limits(op, where, output).max())

    def least(self, first: int, last: int, least: float) -> float:
        """The cycles that the slowest op of a run takes at least, which are `least` by cores and DRAM apart: here a
        candidate with few of the one may have many of the other (both in sums with several weights), and targets are
        nearer to each other."""
        problem = self.problem
        total: np.ndarray = np.zeros(1)
        for op in range(first, last):
            where, output = problem.places(op, first, last)
            key = (problem.tables[op].signature, where, output)
            entry = self._joint.get(key)
            if entry is None:
                entry = self._joint[key] = self._least_of(op, where, output, _WEIGHTS, self._between)
            total = total + entry
        most = np.stack([by_cores * problem.cores + by_dram * self.caps for by_cores, by_dram in _WEIGHTS])
        fits: np.ndarray = np.any(np.all(total <= most, axis=0), axis=0)
        at = int(fits.argmax()) if fits.any() else len(self._between)
        return max(least, float(np.floor(self._between[at - 1])) + 1.0) if at else least

    def sweep(self, first: int) -> tuple[dict[int, float], int]:
        """(by the end of a run that starts at `first` the cycles that it takes at least, how many ops were looked
        at)."""
        problem = self.problem
        n = len(problem.order)
        use = np.zeros((2, len(self.bands), len(self.targets)), np.int32)
        most = np.array([np.full_like(self.caps, problem.cores), self.caps], np.int32)
        waiting: dict[int, int] = {}
        current: dict[int, np.ndarray] = {}
        sweep: dict[int, float] = {}
        last = first
        for last in range(first + 1, n + 1):
            op = last - 1
            if op > first and problem.order[op] in problem.breaks:
                break
            current[op] = self.needs(op, first, last)
            use += current[op]
            waiting[op] = len({r for r, _ in problem.facts[op].readers})
            for producer in {p for p in problem.facts[op].producers if p >= first}:
                waiting[producer] -= 1
                old, new = current[producer], self.needs(producer, first, last)
                if waiting[producer] == 0 and new is not old:
                    use += new - old
                    current[producer] = new
            within = use <= most
            fits = np.logical_or.reduce(within[0] & within[1], axis=0)
            at = int(fits.argmax())
            if fits[at]:
                sweep[last] = 1.0 + self.targets[at - 1] if at else float(self.targets[0])
            elif not within[0].any():
                break
        return sweep, last - first


def _bands(problem: Problem) -> list[tuple[int, int]]:
    """(lowest, highest) divider of DRAM bandwidth, from an idle DRAM to all cores on it, each three times."""
    top = dram_divider(problem.device, 3 * problem.cores)
    bands: list[tuple[int, int]] = []
    low = 2
    while low <= top:
        high = max(low, int(low * _DIVIDER_STEP))
        bands.append((low, min(high, top)))
        low = high + 1
    return bands


class EqualRuns(Generic[T]):
    """What is known of the runs that begin with an op, by all that was looked at to find it out: it holds wherever ops
    of the same structure follow each other, so layers pay once."""

    def __init__(self) -> None:
        # by the kind of the first op, the length, and the kinds of all ops: what most runs differ by, and quick to see
        self._of: dict[int, dict[int, dict[tuple[int, ...], dict[tuple[object, ...], T]]]] = {}
        self._last: dict[tuple[object, ...], T] = {}  # of runs that the end of a schedule ended

    def find(self, problem: Problem, first: int) -> T | None:
        """What is known of the runs from `first` on, None where nothing is."""
        left, kinds = len(problem.order) - first, problem.kinds
        for length, by_kinds in self._of.get(kinds[first], {}).items():
            entries = by_kinds.get(tuple(kinds[first : first + length])) if length <= left else None
            if entries is not None:
                entry = entries.get(_looked_at(problem, first, length))
                if entry is not None:
                    return entry
        if self._last and left <= problem.cores:  # an epoch has no more ops
            return self._last.get(_looked_at(problem, first, left))
        return None

    def add(self, problem: Problem, first: int, length: int, value: T) -> T:
        """Notes what was found out from `length` ops from `first` on, and gives it back. Where the schedule ended the
        runs, it holds where another one ends alike: whoever goes on is not to find it."""
        key = _looked_at(problem, first, length)
        if first + length < len(problem.order):
            kinds = tuple(problem.kinds[first : first + length])
            by_length = self._of.setdefault(kinds[0], {})
            by_length.setdefault(length, {}).setdefault(kinds, {})[key] = value
        else:
            self._last[key] = value
        return value


def _looked_at(problem: Problem, first: int, length: int) -> tuple[object, ...]:
    breaks = tuple(name in problem.breaks for name in problem.order[first + 1 : first + length])
    return problem.structure(first, first + length), breaks


@dataclasses.dataclass(frozen=True)
class _BoundRuns:
    """By first op: (lengths, least cycles) of the runs from there; and what was worked out from them. order: the ops;
    targets: those that cycles were held against."""

    runs: list[tuple[np.ndarray, np.ndarray]]
    order: tuple[str, ...]
    targets: np.ndarray
    rest: dict[float, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _ProblemBounds:
    """What is known of a problem. original_runs: runs of the problem that this one is an edited copy of, and the ops
    that differ."""

    runs: _BoundRuns | None = None
    no_packing: NoPacking | None = None
    original_runs: tuple[_BoundRuns, frozenset[int]] | None = None


_BOUNDS: weakref.WeakKeyDictionary[Problem, _ProblemBounds] = weakref.WeakKeyDictionary()


def _bounds_of(problem: Problem) -> _ProblemBounds:
    return _BOUNDS.setdefault(problem, _ProblemBounds())


def carry_runs(problem: Problem, old: Problem, changed: frozenset[int]) -> None:
    """Bounds of an edited copy of a problem with the same breaks may take over the runs in which none of the `changed`
    ops (whose candidates, operands or readers differ, and the new ones) stands."""
    runs = _bounds_of(old).runs
    if runs is not None:
        _bounds_of(problem).original_runs = runs, changed


def _original_runs(problem: Problem, targets: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By first op, the runs that are those of the problem this one is an edited copy of."""
    bounds = _bounds_of(problem)
    if bounds.original_runs is None:
        return {}
    (original, changed), bounds.original_runs = bounds.original_runs, None
    if not np.array_equal(original.targets, targets):
        return {}
    at = {name: i for i, name in enumerate(original.order)}
    count = np.zeros(len(problem.order) + 1, dtype=np.int64)
    count[[op + 1 for op in changed]] = 1
    count = count.cumsum()
    carried = {}
    for first, name in enumerate(problem.order):
        last, old = min(len(problem.order), first + problem.cores + 1), at.get(name)
        if old is None or count[last] > count[first]:
            continue
        if problem.order[first:last] == original.order[old : old + problem.cores + 1]:
            carried[first] = original.runs[old]
    return carried


def _least_runs(problem: Problem) -> _BoundRuns:
    """The cycles that every run of ops takes at least. Worked out once per problem, and once for equal layers."""
    bounds = _bounds_of(problem)
    if bounds.runs is None:
        relaxed = bounds.no_packing = NoPacking(problem)
        equal = _equal_runs(problem, relaxed.targets)
        runs = _BoundRuns([], problem.order, relaxed.targets)
        carried = _original_runs(problem, relaxed.targets)
        for first in range(len(problem.order)):
            if first in carried:
                runs.runs.append(carried[first])
                continue
            entry = equal.find(problem, first)
            if entry is None:
                ends, count = relaxed.sweep(first)
                lengths = np.array(list(ends), dtype=np.int64) - first
                entry = equal.add(problem, first, count, (lengths, np.array(list(ends.values()))))
            runs.runs.append(entry)
        bounds.runs = runs
    return bounds.runs


def _equal_runs(problem: Problem, targets: np.ndarray) -> EqualRuns[tuple[np.ndarray, np.ndarray]]:
    """What is known of runs from all problems that share the costs, with the same targets."""
    key = ("least runs", targets.tobytes())
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, EqualRuns):
        entry = problem.costs.answers[key] = EqualRuns[tuple[np.ndarray, np.ndarray]]()
    return entry


def _known_needs(problem: Problem, targets: np.ndarray) -> dict[tuple[object, ...], np.ndarray]:
    """What `NoPacking.needs` said of ops of all problems that share the costs, with the same targets."""
    key = ("needs of least runs", targets.tobytes())
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, dict):
        entry = problem.costs.answers[key] = {}
    return entry


def least_runs(problem: Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    """By first op: (lengths, cycles per input that the slowest op takes at least) of the runs from there."""
    return _least_runs(problem).runs


def relaxed_runs(problem: Problem) -> NoPacking:
    """What `least_runs` rests on."""
    _least_runs(problem)
    relaxed = _bounds_of(problem).no_packing
    assert relaxed is not None
    return relaxed


def least_rest(problem: Problem, per_epoch: float = 0.0) -> np.ndarray:
    """(ops + 1,) cycles per input of the batch that all ops from each on take at least, with so many for every epoch on
    top."""
    least = _least_runs(problem)
    if per_epoch not in least.rest:
        shares = [problem.share(op) for op in range(len(problem.order))]
        least.rest[per_epoch] = _least_from(least.runs, shares, per_epoch)
    return least.rest[per_epoch]


def _least_from(runs: Sequence[tuple[np.ndarray, np.ndarray]], shares: Sequence[float], per_epoch: float) -> np.ndarray:
    """(ops + 1,) the cheapest cut of all ops from each on. shares: by first op, what the cycles of a run count for."""
    rest = np.full(len(runs) + 1, np.inf)
    rest[-1] = 0.0
    for first in range(len(runs) - 1, -1, -1):
        lengths, cycles = runs[first]
        rest[first] = (shares[first] * cycles + rest[first + lengths]).min(initial=np.inf) + per_epoch
    return np.where(np.isfinite(rest), rest, 0.0)


def no_packing(problem: Problem) -> int:
    """Least sum of limiter cycles over all ways to cut the schedule into epochs, by area and DRAM alone."""
    runs = least_runs(problem)
    return int(_least_from(runs, [1.0] * len(runs), 0.0)[0])
