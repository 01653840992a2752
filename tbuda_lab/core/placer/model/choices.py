"""What the candidates of an op cost once it is known over what its operands and its output move.

Only how fast DRAM serves a core is still open then. So every row has a number of cycles that hold whatever the load is,
and a number of bytes that share DRAM; all loads are one array expression.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import dram_divider
from tbuda_lab.core.device import DeviceSpec

BIG = 1 << 20
"""More cores than there are, of which those of a thousand ops can still be added up in 32 bits."""

_MOST = (1 << 31) - 1

_TURNS = 2
"""What an op and its reader take together, in cycles of the op, where they take turns."""


@dataclasses.dataclass(frozen=True)
class Frontier:
    """Cheapest rows for every target: price ascending (cores, and what each one on DRAM counts for), cycles descending;
    `dram` cores each of them takes. `cycles` are what the target is for: the limiter, or the kernel over the part of
    the target that it may take; both stand beside."""

    cores: np.ndarray
    cycles: np.ndarray
    limiter: np.ndarray
    kernel: np.ndarray
    dram: np.ndarray
    row: np.ndarray


@dataclasses.dataclass(frozen=True)
class Needs:
    """What the cheapest row that meets a target takes and needs: (2, levels, targets) arrays. use: cores (`BIG` where
    no row meets the target) and cores on DRAM; cycles: of the limiter and of the kernel. at: (levels, targets) which of
    the legal rows it is."""

    use: np.ndarray
    cycles: np.ndarray
    at: np.ndarray

    @functools.cached_property
    def flat_cycles(self) -> np.ndarray:
        """(2, levels x targets) view of `cycles`."""
        flat_cycles: np.ndarray = self.cycles.reshape(2, -1)
        return flat_cycles


class Choices:
    """Legal rows of one op. legal: their numbers; fixed: cycles per input whatever the load; shared: bytes per input
    that move over the shared part of DRAM's bandwidth; dram: cores that use DRAM; single: which of all rows have one
    output buffer for a reader of the same epoch, so that the two take turns. turns: how often the cycles of each row
    count then."""

    def __init__(
        self,
        device: DeviceSpec,
        rows: np.ndarray,
        legal: np.ndarray,
        fixed: np.ndarray,
        shared: np.ndarray,
        dram: np.ndarray,
        single: np.ndarray,
    ) -> None:
        self.device, self.legal = device, legal
        self.fixed, self.shared, self.dram = fixed[legal], shared[legal], dram[legal]
        data = rows[legal]
        self.cores = data["cores"].astype(np.int64)
        self.kernel = data["cycles"].astype(np.int64)
        self.turns = np.where(single, _TURNS, 1)
        self._among_equals = (legal, -data["buf_size_mb"].clip(max=2), data["t"], self.dram)
        self._ordered: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def limiter(self, loads: Sequence[int]) -> np.ndarray:
        """(loads, rows) limiter cycles with so many cores on DRAM."""
        rates = [self.device.dram_bytes_per_cycle / dram_divider(self.device, load) for load in loads]
        slowest: np.ndarray = np.maximum(self.fixed, self.shared / np.array(rates)[:, None])
        whole: np.ndarray = np.ceil(slowest).astype(np.int64)
        return whole

    def frontier(self, load: int, part: float = 1.0, price: int = 0, apart: bool = False) -> Frontier:
        """The cheapest row for every target. Of rows with equal price and cycles the one with fewer cores on DRAM, then
        less streaming, a double buffer, and the first of the table. apart: whether an op that takes turns with its
        reader is to stay within the target together with it."""
        limiter, _, cycles, best, pick = self._best([load], [part], price, apart)
        keep = np.concatenate([[True], best[0, 1:] < best[0, :-1]])
        at = pick[0, keep]
        return Frontier(
            self.cores[at], cycles[0, at], limiter[0, at], self.kernel[at], self.dram[at], self.legal[at]
        )

    def needs(self, loads: Sequence[int], parts: Sequence[float], targets: np.ndarray, price: int = 0) -> Needs:
        """What the frontiers of (load, part) levels say for every target."""
        limiter, of_level, _, best, pick = self._best(loads, parts, price)
        levels = np.arange(len(loads))[:, None]
        at = (best[:, None, :] <= targets[:, None]).argmax(axis=2)  # they descend
        ok = best[:, -1:] <= targets
        row = pick[levels, at]
        use = np.stack([np.where(ok, self.cores[row], BIG), np.where(ok, self.dram[row], 0)])
        cycles = np.where(ok, np.stack([limiter[of_level[:, None], row], self.kernel[row]]), 0)
        return Needs(use.astype(np.int32), np.minimum(cycles, _MOST).astype(np.int32), row.astype(np.int32))

    def _best(
        self, loads: Sequence[int], parts: Sequence[float], price: int, apart: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(limiter of every load and row, which of them each level has, cycles of every level and row); and for every
        level and price, ascending: the least cycles at that price or below, and the row that has them."""
        order, first, rank = self._by_price(price)
        index_of = {load: i for i, load in enumerate(dict.fromkeys(loads))}
        limiter = self.limiter(list(index_of))
        of_level = np.array([index_of[load] for load in loads])
        slow = {part: np.ceil(self.kernel / part).astype(np.int64) for part in dict.fromkeys(parts)}
        cycles = np.empty((len(loads), len(order)), np.int64)
        for level, (at, part) in enumerate(zip(of_level.tolist(), parts, strict=True)):
            np.maximum(limiter[at], slow[part], out=cycles[level])
        if apart:
            cycles *= self.turns[self.legal]
        code = cycles.take(order, axis=1)
        code *= len(order)
        code += rank
        best = np.minimum.accumulate(np.minimum.reduceat(code, first, axis=1), axis=1)
        least, at_rank = np.divmod(best, len(order))
        return limiter, of_level, cycles, least, self._row_of(price)[at_rank]

    def _by_price(self, price: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows by price, where each price begins, rank among rows of equal cycles, in that order)."""
        entry = self._ordered.get(price)
        if entry is None:
            total = self.cores + price * self.dram
            order = np.argsort(total, kind="stable")
            first = np.flatnonzero(np.diff(total[order], prepend=-1))
            rank = np.empty(len(order), dtype=np.int64)
            rank[np.lexsort((*self._among_equals, total))] = np.arange(len(order))
            entry = self._ordered[price] = (order, first, rank[order])
        return entry

    def _row_of(self, price: int) -> np.ndarray:
        order, _, rank = self._by_price(price)
        rows = np.empty(len(order), dtype=np.int64)
        rows[rank] = order
        return rows
