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

from tbuda_lab.core.balancer.bandwidth import DRAM, Load, cores_at_divider, dram_divider, dram_rate
from tbuda_lab.core.balancer.parameters import preloads
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.types import Bounds
from tbuda_lab.core.epochsim.constants import EpochConstants
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import TILE, NodeKind
from tbuda_lab.core.lowering.hwops import HwReduce, HwSparseMatmul, HwSplice, tile_shape
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.report import EpochCost

_TARGETS = 384
_DIVIDER_STEP = 1.25
_NEVER = 1 << 40

T = TypeVar("T")


def bounds(problem: Problem, epochs: Sequence[EpochCost] = ()) -> Bounds:
    """All bounds over all legal candidates, beside what `epochs` reach."""
    area = critical = theoretical = 0.0
    for op, table in enumerate(problem.tables):
        rows = table.rows[problem.legal[table.signature]]
        profile = problem.profiles[op]
        area += float((rows["cycles"] * rows["cores"]).min())
        critical = max(critical, float(rows["cycles"].min()))
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
    for node in problem.graph:
        if node.kind not in (NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.CONSTANT):
            continue
        readers = [(problem.number[u], p) for u, p in users[node.name] if u in problem.number]
        if node.kind is NodeKind.INPUT:
            streamed = any(problem.facts[op].queue_place[port] == DRAM for op, port in readers)
        else:
            streamed = bool(readers) and not any(
                preloads(
                    problem.profiles[op], port, problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
                ).any()
                for op, port in readers
            )
        if streamed:
            z, rt, ct = tile_shape(node.shape)
            df = node.df or problem.options.data_format
            total += z * rt * ct * tile_bytes(df, align=problem.device.tile_align)
    return total


class _NoPacking:
    """Least cycles of every run of ops, for bands of DRAM dividers: within a band cycles are those of its lowest
    divider, and as many cores may use DRAM as its highest allows."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.bands = _bands(problem)
        self.caps = np.array([cores_at_divider(problem.device, high) for _, high in self.bands])[:, None]
        self._cycles: dict[tuple[object, ...], np.ndarray] = {}
        self._tables: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = {}
        self.targets = self._targets()

    def _limits(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        """(bands, legal rows) limiter cycles."""
        problem = self.problem
        signature = problem.tables[op].signature
        key = (signature, where, output)
        entry = self._cycles.get(key)
        if entry is None:
            loads = [Load(cores_at_divider(problem.device, low), 0) for low, _ in self.bands]
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

    def needs(self, op: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """(bands, targets) fewest cores, and fewest cores on DRAM, of a legal candidate within each target."""
        where, output = self.problem.places(op, first, last)
        table = self.problem.tables[op]
        key = (table.signature, where, output)
        entry = self._tables.get(key)
        if entry is None:
            legal = self.problem.legal[table.signature]
            cores = table.rows["cores"][legal].astype(np.int64)
            dram = self.problem.dram_cores(op, where, output)[legal]
            shape = (len(self.bands), len(self.targets))
            least, fewest = np.full(shape, _NEVER), np.zeros(shape, np.int64)
            for band, cycles in enumerate(self._limits(op, where, output)):
                by = np.argsort(cycles, kind="stable")
                count = np.searchsorted(cycles[by], self.targets, side="right")
                ok = count > 0
                least[band, ok] = np.minimum.accumulate(cores[by])[count[ok] - 1]
                fewest[band, ok] = np.minimum.accumulate(dram[by])[count[ok] - 1]
            entry = (least, fewest)
            self._tables[key] = entry
        return entry

    def sweep(self, first: int) -> tuple[dict[int, float], int]:
        """(by the end of a run that starts at `first` the cycles that it takes at least, how many ops were looked at).
        """
        problem = self.problem
        n = len(problem.order)
        cores, dram = (np.zeros((len(self.bands), len(self.targets)), np.int64) for _ in range(2))
        waiting: dict[int, int] = {}
        current: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        sweep: dict[int, float] = {}
        last = first
        for last in range(first + 1, n + 1):
            op = last - 1
            if op > first and problem.order[op] in problem.breaks:
                break
            current[op] = self.needs(op, first, last)
            cores += current[op][0]
            dram += current[op][1]
            waiting[op] = len({r for r, _ in problem.facts[op].readers})
            for producer in {p for p in problem.facts[op].producers if p >= first}:
                waiting[producer] -= 1
                old, new = current[producer], self.needs(producer, first, last)
                if waiting[producer] == 0 and new is not old:
                    cores += new[0] - old[0]
                    dram += new[1] - old[1]
                    current[producer] = new
            enough = cores <= problem.cores
            fits = enough & (dram <= self.caps)
            at = int(fits.any(axis=0).argmax())
            if fits[:, at].any():
                sweep[last] = 1.0 + self.targets[at - 1] if at else float(self.targets[0])
            elif not enough.any():
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
        self._of: dict[int, dict[int, dict[tuple[object, ...], T]]] = {}  # by the kind of the first op, and the length

    def find(self, problem: Problem, first: int) -> T | None:
        """What is known of the runs from `first` on, None where nothing is."""
        for length, known in self._of.get(problem.structure(first, first + 1)[0], {}).items():
            if first + length <= len(problem.order):
                entry = known.get(_looked_at(problem, first, length))
                if entry is not None:
                    return entry
        return None

    def add(self, problem: Problem, first: int, length: int, value: T) -> T:
        """Notes what was found out from `length` ops from `first` on, and gives it back. Where the schedule ended the
        runs, it holds there alone: whoever goes on is not to find it."""
        if first + length < len(problem.order):
            head = self._of.setdefault(problem.structure(first, first + 1)[0], {})
            head.setdefault(length, {})[_looked_at(problem, first, length)] = value
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
class _Kept:
    """What is known of a problem. times: see `least_times_from`; edited: runs of the problem that this one is an edited
    copy of, and the ops that differ."""

    times: np.ndarray | None = None
    runs: _BoundRuns | None = None
    edited: tuple[_BoundRuns, frozenset[int]] | None = None


_kept: weakref.WeakKeyDictionary[Problem, _Kept] = weakref.WeakKeyDictionary()


def _kept_of(problem: Problem) -> _Kept:
    return _kept.setdefault(problem, _Kept())


def carry_runs(problem: Problem, old: Problem, changed: frozenset[int]) -> None:
    """Bounds of an edited copy of a problem with the same breaks may take over the runs in which none of the `changed`
    ops (whose candidates, operands or readers differ, and the new ones) stands."""
    runs = _kept_of(old).runs
    if runs is not None:
        _kept_of(problem).edited = runs, changed


def _carried(problem: Problem, targets: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By first op, the runs that are those of the problem this one is an edited copy of."""
    kept_bounds = _kept_of(problem)
    if kept_bounds.edited is None:
        return {}
    (existing, changed), kept_bounds.edited = kept_bounds.edited, None
    if not np.array_equal(existing.targets, targets):
        return {}
    at = {name: i for i, name in enumerate(existing.order)}
    count = np.zeros(len(problem.order) + 1, dtype=np.int64)
    count[[op + 1 for op in changed]] = 1
    count = count.cumsum()
    carried = {}
    for first, name in enumerate(problem.order):
        last, old = min(len(problem.order), first + problem.cores + 1), at.get(name)
        if old is None or count[last] > count[first]:
            continue
        if problem.order[first:last] == existing.order[old : old + problem.cores + 1]:
            carried[first] = existing.runs[old]
    return carried


def _least_runs(problem: Problem) -> _BoundRuns:
    """The cycles that every run of ops takes at least. Worked out once per problem, and once for equal layers."""
    kept_bounds = _kept_of(problem)
    if kept_bounds.runs is None:
        relaxed = _NoPacking(problem)
        equal = EqualRuns[tuple[np.ndarray, np.ndarray]]()
        result = _BoundRuns([], problem.order, relaxed.targets)
        carried = _carried(problem, relaxed.targets)
        for first in range(len(problem.order)):
            if first in carried:
                result.runs.append(carried[first])
                continue
            entry = equal.find(problem, first)
            if entry is None:
                ends, count = relaxed.sweep(first)
                lengths = np.array(list(ends), dtype=np.int64) - first
                entry = equal.add(problem, first, count, (lengths, np.array(list(ends.values()))))
            result.runs.append(entry)
        kept_bounds.runs = result
    return kept_bounds.runs


def least_rest(problem: Problem, per_epoch: float = 0.0) -> np.ndarray:
    """(ops + 1,) cycles that all ops from each on take at least, with so many for every epoch on top."""
    least = _least_runs(problem)
    if per_epoch not in least.rest:
        rest = np.full(len(least.runs) + 1, np.inf)
        rest[-1] = 0.0
        for first in range(len(least.runs) - 1, -1, -1):
            lengths, cycles = least.runs[first]
            rest[first] = (cycles + rest[first + lengths]).min(initial=np.inf) + per_epoch
        least.rest[per_epoch] = np.where(np.isfinite(rest), rest, 0.0)
    return least.rest[per_epoch]


def no_packing(problem: Problem) -> int:
    """Least sum of limiter cycles over all ways to cut the schedule into epochs, by area and DRAM alone."""
    return int(least_rest(problem)[0])


# -- the time of a batch ---------------------------------------------------------------------------------------

_PRICES = np.concatenate([[0.0], np.geomspace(1.0, 1e5, 16)])
"""Cycles that a core may cost in the bound of the first input's way; each gives a bound, the largest counts."""
_HOP, _READY = EpochConstants().noc_latency, EpochConstants().dram_latency


@dataclasses.dataclass(frozen=True)
class _OpLeast:
    """Of one op, over all its legal rows. (prices,) each: cores: what its cores cost at least; first, whole: cycles
    until its first tiles leave and of all its work, with what cores cost on top of the least. dram: cycles in which all
    of DRAM brings its parameters for a batch."""

    cores: np.ndarray
    first: np.ndarray
    whole: np.ndarray
    dram: float


def time_bound(problem: Problem) -> float:
    """Cycles per input below which no placement of this schedule stays, switches of epochs included.

    An epoch of a batch of B takes at least the longest of three things. B times its slowest op. What all of DRAM needs
    for its parameters, those that may be preloaded once in a batch, the others with every input. The way of the first
    input: an op begins with the first tiles of those that it reads, and the last one does all of its work. There a core
    has a price (a Lagrange multiplier): all ops together have the cores of the device, and the longest way is no
    shorter than the sum of what its ops take, each with the row that is best at that price. The dynamic programme over
    cuts adds the epochs up. Rows that edges refuse together, and buffers, are left out.
    """
    times = least_times_from(problem)
    return float(times[0]) if np.isfinite(times[0]) else 0.0


def least_times_from(problem: Problem) -> np.ndarray:
    """(ops + 1,) cycles per input that all ops from each on take at least, see `time_bound`. Worked out once."""
    kept_bounds = _kept_of(problem)
    if kept_bounds.times is None:
        kept_bounds.times = _least_times_from(problem)
    return kept_bounds.times


def _least_times_from(problem: Problem) -> np.ndarray:
    options = problem.options
    switch = options.epoch_switch_cycles / options.inputs_counted
    if not options.counts_fill:
        return least_rest(problem, switch)
    runs, rest = _least_runs(problem).runs, np.full(len(problem.order) + 1, np.inf)
    rest[-1] = 0.0
    fills: dict[tuple[object, ...], np.ndarray] = {}
    for first in range(len(problem.order) - 1, -1, -1):
        lengths, cycles = runs[first]
        length = int(lengths.max(initial=0))
        key = problem.structure(first, first + length)
        if key not in fills:
            fills[key] = _least_times(problem, first, length)
        takes = np.maximum(cycles, fills[key][lengths - 1] / options.inputs_counted)
        rest[first] = (takes + switch + rest[first + lengths]).min(initial=np.inf)
    return rest


def _least_times(problem: Problem, first: int, length: int) -> np.ndarray:
    """(length,) cycles of a batch that runs of 1, 2, ... ops from `first` on take at least, by DRAM and by the way of
    the first input."""
    least: np.ndarray = np.zeros(length)
    depth: dict[int, np.ndarray] = {}
    end, cores = np.zeros(len(_PRICES)), -_PRICES * problem.cores
    dram = 0.0
    for op in range(first, first + length):
        here, op_type = _op_least(problem, op), problem.profiles[op].op
        producers = problem.facts[op].producers
        inside = [depth[p] + _HOP for p in producers if p >= first]
        start = np.full(len(_PRICES), float(_READY))
        if isinstance(op_type, HwSplice):  # it may begin with any of its operands
            if len(inside) == len(producers):
                start = np.min(inside, axis=0)
        elif inside and _reads_at_once(op_type):
            start = np.max(inside, axis=0)
        depth[op] = start + here.first
        end = np.maximum(end, start + here.whole)
        cores = cores + here.cores
        dram += here.dram
        least[op - first] = max(dram, float((end + cores).max()))
    return least


def _reads_at_once(op: object) -> bool:
    """Whether an op reads of its operand before it gives its first tiles: a picker may begin with a block of zeros."""
    if not isinstance(op, HwSparseMatmul):
        return True
    block, row = op.picker.array[:, 0], op.picker.array[:, 1]
    return bool(((block == 0) & (row < TILE)).any())


def _op_least(problem: Problem, op: int) -> _OpLeast:
    """Worked out once for equal ops. Kernel cycles alone count: they hold wherever operands come from."""
    table, batch = problem.tables[op], problem.options.inputs_counted
    key = ("least of an op", table.signature)
    entry = problem.costs.answers.get(key)
    if isinstance(entry, _OpLeast):
        return entry
    profile = problem.profiles[op]
    legal = problem.legal[table.signature]
    rows = table.rows[legal]
    cycles = rows["cycles"].astype(np.float64)
    price = rows["cores"] * _PRICES[:, None]
    fewest = price.min(axis=1)
    begun = np.maximum(0.0, np.floor(cycles * _first_part(profile, rows)) - 1.0)  # steps are whole cycles
    # T >= once and T >= batch x always, so T >= any weighted mean of both
    bytes_ = problem.loads(op)[1][legal] + _streamed_bytes(problem, op)[legal]
    entry = _OpLeast(
        fewest,
        (begun + price).min(axis=1) - fewest,
        (cycles + price).min(axis=1) - fewest,
        float(bytes_.min()) / dram_rate(problem.device) * batch / (1 + batch),
    )
    problem.costs.answers[key] = entry
    return entry


def _first_part(profile: OpProfile, rows: np.ndarray) -> np.ndarray:
    """Part of an op's cycles before its first tiles leave, at least (placement.md#firings), in either order of
    ublocks."""
    m, n = rows["mblock_m"].astype(np.int64), rows["mblock_n"].astype(np.int64)
    op = profile.op
    parts = m * n
    if isinstance(op, HwSparseMatmul) or profile.kind == "depthwise":
        parts = np.ones(len(rows), dtype=np.int64)
    elif profile.matmul_like:
        parts = np.where(profile.z_group * np.maximum(rows["m_k"], 1) == 1, m, 1)
    elif isinstance(op, HwReduce):
        parts = {"r": n, "c": m}.get(op.dim, np.ones(len(rows), dtype=np.int64))
    elif isinstance(op, HwSplice):
        parts = np.maximum(m, n)
    part: np.ndarray = 1.0 / (rows["t"].astype(np.int64) * parts)
    return part


def _streamed_bytes(problem: Problem, op: int) -> np.ndarray:
    """(rows,) bytes of parameters that all cores of an op stream for one input."""
    move, rows = problem.traffic(op), problem.tables[op].rows
    total: np.ndarray = np.zeros(len(rows))
    for port, operand in enumerate(problem.profiles[op].operands):
        if operand.feed == "parameter":
            size = move.operand_bytes[port].astype(np.float64) * move.operand_cores[port]
            total += np.where(preloads(problem.profiles[op], port, rows), 0.0, size)
    return total
