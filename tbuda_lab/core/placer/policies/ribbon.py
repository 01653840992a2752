"""`Ribbon` (upstream's second version): every epoch has one height of grids, chosen by trying all
(placement.md#policies).

Epoch by epoch: for each ribbon size the schedule is walked with the candidate that the preference order likes best for
it, until an op does not fit; each result is improved conservatively; the one with the best score stays.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.balancer.l1 import preloads
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure
from tbuda_lab.core.placer.policies.candidates import candidates, one_per_shape
from tbuda_lab.core.placer.policies.epoch import OpenEpoch, no_epoch
from tbuda_lab.core.placer.policies.narrow_grids import Narrow
from tbuda_lab.core.placer.policies.portfolio import count_epoch, uncount_epoch

TARGET_CYCLES = 95_000
"""What the preference order aims at where `options.target_cycles` is None."""

_ITERATIONS = 10
_BAD_ITERATIONS = 3
_FULL = 0.98
_PENALTY = {"matmul": 1, "depthwise": 1, "sparse_matmul": 128}
_OTHER_PENALTY = 8


@dataclasses.dataclass(frozen=True)
class CandidateFacts:
    """What the preference order compares of one row."""

    row: int
    cols: int
    cycles: float
    proximity: int  # bucket of cycles / target: < 2, < 5, < 10, < 20, more
    deep: bool  # u_kt of at least 4
    roomy: bool  # no streaming, or at least 8 tiles per output block
    closeness: int  # within 20 % below the target, further below, up to 20 % above, over
    volume: int  # macro blocks
    bound_by_kernel: float  # kernel / limiter cycles


def prefers(a: CandidateFacts, b: CandidateFacts, target: float) -> int:
    """Negative if `a` comes before `b`; both have the same number of grid rows."""
    if a.cycles <= target and b.cycles <= target and a.cols != b.cols:
        return -1 if a.cols < b.cols else 1
    if a.proximity != b.proximity:
        return -1 if a.proximity < b.proximity else 1
    if a.deep != b.deep:
        return -1 if a.deep else 1
    if a.roomy != b.roomy:
        return -1 if a.roomy else 1
    if a.closeness != b.closeness:
        return -1 if a.closeness < b.closeness else 1
    if a.closeness == 3 and a.cycles != b.cycles:
        return -1 if a.cycles < b.cycles else 1
    if a.volume != b.volume:
        return -1 if a.volume > b.volume else 1
    if a.bound_by_kernel != b.bound_by_kernel:
        return -1 if a.bound_by_kernel > b.bound_by_kernel else 1
    return a.row - b.row


class Ribbon:
    """One run of the policy over a problem."""

    def __init__(self, problem: Problem, check: Callable[[float], None]) -> None:
        self.problem, self.check = problem, check
        target = problem.options.target_cycles
        self.target = TARGET_CYCLES if target is None else target
        self.candidates = candidates(problem)
        self.pairs = self.candidates.pair_of
        self.pruned = self._prune()
        self._ordered: dict[tuple[object, ...], np.ndarray] = {}

    # -- candidates --------------------------------------------------------------------------------------------
    def _prune(self) -> list[np.ndarray]:
        """The three prunings of upstream: sparse matmuls on one column, paired with equal rows; weights preloaded
        where any candidate does; no small u_kt where a better one exists. None may leave an op without candidates."""
        prune: list[np.ndarray] = []
        for op, profile in enumerate(self.problem.profiles):
            rows = self.candidates.rows(op)
            if op in self.pairs:
                rows = self._where(op, rows, lambda data: data["grid_c"] == 1)
            if profile.kind == "matmul":
                if self.candidates.needs_prologue(op):
                    rows = self._where(op, rows, functools.partial(preloads, profile, 1))
                if profile.inner >= 8:
                    rows = self._where(op, rows, lambda data: data["u_kt"] >= min(int(data["u_kt"].max()), 4))
            prune.append(rows)
        for sparse, dense in self.pairs.items():
            heights = [self.candidates.data(op, prune[op])["grid_r"] for op in (sparse, dense)]
            prune[sparse] = self._where(sparse, prune[sparse], functools.partial(_of_heights, heights[1]))
            prune[dense] = self._where(dense, prune[dense], functools.partial(_of_heights, heights[0]))
        return prune

    def _where(self, op: int, rows: np.ndarray, keep: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        selected_rows: np.ndarray = rows[keep(self.candidates.data(op, rows))]
        return selected_rows if len(selected_rows) else rows

    def preference(self, op: int, ribbon: int, first: int, height: int | None) -> Iterator[int]:
        """Rows by distance from the ribbon, then fewer grid rows, then `prefers`; of `height` grid rows if given."""
        rows = self.pruned[op]
        data = self.candidates.data(op, rows)
        tall = data["grid_r"].astype(np.int64)
        heights = sorted(set(tall.tolist()), key=lambda r: (abs(r - ribbon), r))
        for r in heights if height is None else [h for h in heights if h == height]:
            ordered = self._order(op, first, rows[tall == r])
            yield from one_per_shape(self.problem.shapes(op), ordered)

    def _order(self, op: int, first: int, rows: np.ndarray) -> np.ndarray:
        problem = self.problem
        where, output = problem.places(op, first, len(problem.order))
        key = (problem.tables[op].signature, where, output, rows.tobytes())
        entry = self._ordered.get(key)
        if entry is None:
            facts = self._facts(op, first, rows)
            facts.sort(key=functools.cmp_to_key(functools.partial(prefers, target=self.target)))
            entry = np.array([f.row for f in facts], dtype=np.int64)
            self._ordered[key] = entry
        return entry

    def _facts(self, op: int, first: int, rows: np.ndarray) -> list[CandidateFacts]:
        data = self.candidates.data(op, rows)
        cycles = self.candidates.limiter_cycles(op, first)[rows]
        share = cycles / self.target
        proximity = np.searchsorted([2.0, 5.0, 10.0, 20.0], share, side="right")
        closeness = np.select([(share >= 0.8) & (share < 1), share < 0.8, share < 1.2], [0, 1, 2], 3)
        volume = data["mblock_m"].astype(np.int64) * data["mblock_n"]
        tiles = volume * data["ublock_r"] * data["ublock_c"]
        deep = data["u_kt"] >= 4
        roomy = (data["t"] == 1) | (tiles >= 8)
        columns = (rows, data["grid_c"], cycles, proximity, deep, roomy, closeness, volume, data["cycles"] / cycles)
        return [CandidateFacts(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]

    # -- one epoch ---------------------------------------------------------------------------------------------
    def fill_epoch(self, first: int, ribbon: int, upstream_rows: dict[int, int]) -> OpenEpoch:
        """The schedule from `first` as far as it fits, every op near the ribbon; sparse matmuls go with their pair."""
        problem = self.problem
        n = len(problem.order)
        matched = {dense: sparse for sparse, dense in self.pairs.items()}
        epoch: OpenEpoch

        def preference(op: int) -> Iterable[int]:
            sparse = matched.get(op)
            height = None
            if sparse is not None and sparse in epoch.rows:
                height = int(problem.tables[sparse].rows["grid_r"][epoch.rows[sparse]])
            return self.preference(op, ribbon, first, height)

        def turn(op: int, row: int) -> bool:
            record = problem.tables[op].rows[row]
            tall = record["grid_c"] == ribbon and record["grid_r"] != ribbon
            return bool(tall) and problem.profiles[op].kind != "sparse_matmul"

        epoch = OpenEpoch(problem, first, upstream_rows, preference, turn)
        while epoch.last < n:
            op = epoch.last
            if not epoch.add(op):
                apart = problem.order[op] in problem.breaks
                if matched.get(op) == op - 1 and op - 1 > first and not apart:
                    epoch.drop(op - 1)
                    epoch.refusal = f"{problem.order[op - 1]} goes with {problem.order[op]}; {epoch.refusal}"
                break
        return epoch

    def improve(self, epoch: OpenEpoch, ribbon: int) -> Segment:
        """Conservative optimisation: the slow ops get faster candidates of the ribbon's height out of the free cores,
        as long as every op of the epoch still has a place and the epoch becomes faster."""
        problem, candidates = self.problem, self.candidates
        best = epoch.segment()
        refused: set[tuple[int, int]] = set()
        bad = 0
        for _ in range(_ITERATIONS):
            rows = dict(epoch.rows)
            used = sum(int(problem.tables[op].rows["cores"][row]) for op, row in rows.items())
            if used >= _FULL * problem.cores or bad >= _BAD_ITERATIONS:
                break
            _, limiter, load = measure(problem, best.first, best.last, rows)
            free = problem.cores - used
            changed: set[tuple[int, int]] = set()
            for op, row in rows.items():
                where, output = problem.places(op, best.first, best.last)
                cycles = problem.row_limits(op, where, output, EpochLoad(load.dram_cores, load.host_cores))
                if cycles[row] <= 0.9 * limiter:
                    continue
                options = self.pruned[op]
                data = candidates.data(op, options)
                extra = data["cores"] - int(problem.tables[op].rows["cores"][row])
                fits = (data["grid_r"] == ribbon) & (extra <= free) & (cycles[options] < cycles[row])
                for at in np.lexsort((options, data["cores"], cycles[options])):
                    choice = int(options[at])
                    if fits[at] and (op, choice) not in refused:
                        rows[op] = choice
                        free -= int(extra[at])
                        changed.add((op, choice))
                        break
            if not changed:
                break
            settled = self._settle(epoch, rows, {op for op, _ in changed})
            if settled is not None and epoch.assign(settled):
                segment = epoch.segment()
                if segment.limiter_cycles < best.limiter_cycles:
                    best, bad = segment, 0
                    continue
                epoch.assign(dict(zip(range(best.first, best.last), best.rows, strict=True)))
            refused |= changed
            bad += 1
        return best

    def _settle(self, epoch: OpenEpoch, rows: dict[int, int], changed: set[int]) -> dict[int, int] | None:
        """The rows with the unchanged ops moved to the nearest candidate where their own is no longer legal: the same
        height, no slower, closest in cycles."""
        problem = self.problem
        book = EdgeCompatibility(problem, epoch.first, epoch.last, epoch.book.upstream_rows)
        for op, row in rows.items():
            if book.check(op, row):
                book.rows[op] = row
                continue
            if op in changed:
                return None
            table = problem.tables[op].rows
            options = self.pruned[op]
            data = table[options]
            similar = (data["grid_r"] == table["grid_r"][row]) & (data["cycles"] <= table["cycles"][row])
            options, data = options[similar], data[similar]
            by = np.lexsort((options, -data["cycles"]))
            for other in one_per_shape(problem.shapes(op), options[by]):
                if book.check(op, other):
                    book.rows[op] = other
                    break
            else:
                return None
        return book.rows

    def score(self, segment: Segment) -> float:
        """Useful work per cycle: theoretical matmul cycles times cores, other ops counted for a fraction of theirs."""
        total = 0.0
        per_tile = 32 if self.problem.device.arch == "grayskull" else 16
        for op, row in zip(range(segment.first, segment.last), segment.rows, strict=True):
            profile, record = self.problem.profiles[op], self.problem.tables[op].rows[row]
            work = float(record["cycles"])
            if profile.kind in ("matmul", "depthwise"):
                block = int(record["mblock_m"]) * int(record["mblock_n"]) * int(record["ublock_r"])
                inner = int(record["m_k"]) * int(record["u_kt"]) * profile.z_group
                work = float(record["t"]) * block * int(record["ublock_c"]) * inner * profile.fidelity.value * per_tile
            total += work * int(record["cores"]) / _PENALTY.get(profile.kind, _OTHER_PENALTY)
        return total / max(1, segment.limiter_cycles)

    def run(self) -> list[Segment]:
        """Epochs in order. Raises `PlacementError` naming an op that not even an epoch of its own can hold."""
        problem = self.problem
        n = len(problem.order)
        result: list[Segment] = []
        upstream_rows: dict[int, int] = {}
        narrow = Narrow(problem)
        while (first := result[-1].last if result else 0) < n:
            best: tuple[float, Segment, str] | None = None
            why: EdgeReason | None = None
            seen: set[tuple[int, ...]] = set()
            for ribbon in range(1, problem.device.rows + 1):
                epoch = self.fill_epoch(first, ribbon, upstream_rows)
                chosen = tuple(epoch.rows[op] for op in range(first, epoch.last))
                why = epoch.book.reason() or why
                if not chosen or chosen in seen:
                    continue
                seen.add(chosen)
                segment = self.improve(epoch, ribbon)
                score = self.score(segment)
                if best is None or score > best[0]:
                    best = score, segment, epoch.refusal
                self.check(first / n)
            if best is None:
                writer = narrow.writer(first, why, upstream_rows)
                if writer is None:
                    raise no_epoch(problem, first, why)
                while result and result[-1].last > writer:
                    uncount_epoch(self.check, gone := result.pop())
                    upstream_rows = {op: row for op, row in upstream_rows.items() if op < gone.first}
                self.pruned[writer] = np.array(
                    list(narrow.rows(writer, self.candidates.rows(writer).tolist())), np.int64
                )
                self._ordered.clear()
                continue
            result.append(best[1])
            if best[2]:
                problem.refusals[first, best[1].last + 1] = best[2]
            upstream_rows.update(zip(range(first, best[1].last), best[1].rows, strict=True))
            count_epoch(self.check, best[1])
            self.check(best[1].last / n)
        return result


def _of_heights(heights: np.ndarray, data: np.ndarray) -> np.ndarray:
    """(rows,) whether the grid of each has one of these numbers of rows."""
    same: np.ndarray = np.isin(data["grid_r"], heights)
    return same


def ribbon(problem: Problem, check: Callable[[float], None]) -> list[Segment]:
    """Epochs by the ribbon policy; `check(fraction)` reports progress and may raise to cancel."""
    return Ribbon(problem, check).run()
