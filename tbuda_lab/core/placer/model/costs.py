"""What candidates cost once it is known over what their operands and outputs move, and one cache of it for all problems
of a device and a set of options."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, NOC, EpochLoad, Traffic, demands, dram_divider, traffic
from tbuda_lab.core.balancer.blocks import group_numbers
from tbuda_lab.core.balancer.edges import EdgeCache
from tbuda_lab.core.balancer.l1 import preloads, preloads_encoding
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.routes import Routes
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.tile_order_cache import TileOrderCache
from tbuda_lab.core.netlist.cores.usage import CoreLoad
from tbuda_lab.core.options import CompileOptions

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
        return Frontier(self.cores[at], cycles[0, at], limiter[0, at], self.kernel[at], self.dram[at], self.legal[at])

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


class CostCache:
    """Costs of candidates. Every key holds the signature of a table and what the cost depends on besides, never the
    number of an op: problems with other orders, pins or graphs share one cache.

    legal: by signature, the legal rows of a table. edges: of pairs of candidates. preloaded: by (signature, row, port),
    whether a candidate preloads an operand. core_loads: streams and bytes of an op's fullest core (`QueuePlanner`).
    tile_orders: of the simulator. throughputs: of epochs (`epoch_throughput`). prices: of epochs after repair
    (`stall_repair`). answers: of any other question about candidates; the first part of its key names the question.
    recent_runs: the last simulations, each with the number of its epochs by their keys (`epoch_throughput`).
    """

    def __init__(self, device: DeviceSpec, options: CompileOptions) -> None:
        self.device, self.options = device, options
        self.legal: dict[str, np.ndarray] = {}
        self.edges = EdgeCache(Routes(options.microbatch))
        self.preloaded: dict[tuple[str, int, int], bool] = {}
        self.core_loads: dict[tuple[object, ...], CoreLoad] = {}
        self.tile_orders = TileOrderCache(self.edges.reads)
        self.throughputs: dict[tuple[object, ...], object] = {}
        self.prices: dict[tuple[object, ...], object] = {}
        self.recent_runs: collections.deque[tuple[dict[tuple[object, ...], int], object]] = collections.deque(maxlen=4)
        self.answers: dict[tuple[object, ...], object] = {}
        self._numbers: dict[object, int] = {}
        self._next = itertools.count()
        self._traffic_of: dict[str, Traffic] = {}
        self._demand_of: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._choices_of: dict[tuple[object, ...], Choices] = {}
        self._limits_of: dict[tuple[object, ...], np.ndarray] = {}
        self._frontier_of: dict[tuple[object, ...], Frontier] = {}
        self._by_cores_of: dict[tuple[object, ...], np.ndarray] = {}
        self._shapes_of: dict[str, np.ndarray] = {}
        self._loads_of: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._streamed_of: dict[tuple[object, ...], np.ndarray] = {}
        self._dram_cores_of: dict[tuple[object, ...], np.ndarray] = {}
        self._host_bytes_of: dict[tuple[object, ...], np.ndarray] = {}

    def add(self, table: OpModels) -> None:
        """Notes the legal rows of a table."""
        if table.signature not in self.legal:
            self.legal[table.signature] = table.legal()

    def number(self, about: object) -> int:
        """A number for something hashable: equal for equal things, of all problems that share the cache."""
        number = self._numbers.get(about)
        if number is None:
            number = self._numbers.setdefault(about, next(self._next))
        return number

    def traffic(self, table: OpModels) -> Traffic:
        """Bytes that every candidate of an op moves, by operand."""
        entry = self._traffic_of.get(table.signature)
        if entry is None:
            entry = traffic(profile_of(table), table.rows, self.device)
            self._traffic_of[table.signature] = entry
        return entry

    def row_limits(self, table: OpModels, where: tuple[str, ...], output: str, load: EpochLoad) -> np.ndarray:
        """Limiter cycles of every row of an op's table."""
        divider = dram_divider(self.device, load.dram_cores)
        key = (table.signature, where, output, divider, load.host_cores)
        entry = self._limits_of.get(key)
        if entry is None:
            fixed, shared = self._demands(table, where, output, load.host_cores)
            entry = self._limits_of[key] = np.maximum(fixed, shared / (self.device.dram_bytes_per_cycle / divider))
        return entry

    def _demands(
        self, table: OpModels, where: tuple[str, ...], output: str, host: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(cycles whatever the load of DRAM, bytes that share DRAM) of every row of an op's table, the largest each."""
        key = (table.signature, where, output, host)
        entry = self._demand_of.get(key)
        if entry is None:
            profile = profile_of(table)
            batch = 1 if profile.once else self.options.inputs_counted
            all_ = demands(profile, table.rows, self.device, where, output, host, batch, self.traffic(table))
            entry = self._demand_of[key] = (all_.cycles.max(axis=0), all_.shared.max(axis=0))
        return entry

    def choices(self, table: OpModels, where: tuple[str, ...], output: str, host: int = 0) -> Choices:
        """The legal rows of an op with their costs for every load of DRAM. host: cores on the host link, if they are
        more than the op's own."""
        host = host if HOST in where or output == HOST else 0
        key = (table.signature, where, output, host)
        entry = self._choices_of.get(key)
        if entry is None:
            entry = self._choices_of[key] = Choices(
                self.device,
                table.rows,
                self.legal[table.signature],
                *self._demands(table, where, output, host),
                self.dram_cores(table, where, output),
                (table.rows["buf_size_mb"] == 1) & (output == NOC),
            )
        return entry

    def loads(self, table: OpModels) -> tuple[np.ndarray, np.ndarray]:
        """What every row of an op's table preloads: bytes of the core that fetches most, and bytes of all cores."""
        entry = self._loads_of.get(table.signature)
        if entry is None:
            move = self.traffic(table)
            most, total = (np.zeros(len(table.rows)) for _ in range(2))
            for port, size in enumerate(move.operand_bytes):
                mine = np.where(preloads(profile_of(table), port, table.rows), size, 0)
                most, total = np.maximum(most, mine), total + mine * move.operand_cores[port]
            if move.picker_bytes is not None:
                mine = np.where(preloads_encoding(table.rows), move.picker_bytes, 0)
                most, total = np.maximum(most, mine), total + mine * table.rows["grid_r"]
            entry = self._loads_of[table.signature] = most, total
        return entry

    def streamed(self, table: OpModels, where: tuple[str, ...]) -> np.ndarray:
        """(rows,) bytes that all cores of an op read from DRAM for every input."""
        key = ("streamed", table.signature, where)
        entry = self._streamed_of.get(key)
        if entry is None:
            move, total = self.traffic(table), np.zeros(len(table.rows))
            for port, place in enumerate(where):
                if place == DRAM:
                    size = move.operand_bytes[port].astype(np.float64) * move.operand_cores[port]
                    total += np.where(preloads(profile_of(table), port, table.rows), 0.0, size)
            if move.picker_bytes is not None:
                size = move.picker_bytes.astype(np.float64) * table.rows["grid_r"]
                total += np.where(preloads_encoding(table.rows), 0.0, size)
            entry = self._streamed_of[key] = total
        return entry

    def dram_cores(self, table: OpModels, where: tuple[str, ...], output: str) -> np.ndarray:
        """Cores that use DRAM, for every row: readers of streamed operands and writers to queues."""
        key = (table.signature, where, output)
        entry = self._dram_cores_of.get(key)
        if entry is None:
            entry = self._dram_cores_of[key] = self._count_dram_cores(table, where, output)
        return entry

    def _count_dram_cores(self, table: OpModels, where: tuple[str, ...], output: str) -> np.ndarray:
        move = self.traffic(table)
        total = np.zeros(len(table.rows), dtype=np.int64)
        for port, place in enumerate(where):
            if place == DRAM:
                cores = move.operand_cores[port]
                total += np.where(preloads(profile_of(table), port, table.rows), 0, cores)
        if output == DRAM:
            total += move.output_cores
        if move.picker_bytes is not None:
            total += np.where(preloads_encoding(table.rows), 0, table.rows["grid_r"].astype(np.int64))
        return total

    def host_cores(self, table: OpModels, where: tuple[str, ...], output: str, row: int) -> int:
        """Cores that use the host link."""
        move = self.traffic(table)
        total = sum(int(move.operand_cores[p][row]) for p, place in enumerate(where) if place == HOST)
        return total + (int(move.output_cores[row]) if output == HOST else 0)

    def host_bytes(self, table: OpModels, where: tuple[str, ...], output: str) -> np.ndarray:
        """(legal rows,) bytes per input of an op over the host link, all cores together."""
        key = (table.signature, where, output)
        entry = self._host_bytes_of.get(key)
        if entry is None:
            move = self.traffic(table)
            total = np.zeros(len(table.rows))
            for port, place in enumerate(where):
                if place == HOST:
                    total += move.operand_bytes[port].astype(np.float64) * move.operand_cores[port]
            if output == HOST:
                total += move.output_bytes.astype(np.float64) * move.output_cores
            entry = self._host_bytes_of[key] = total[self.legal[table.signature]]
        return entry

    def by_cores(self, table: OpModels, where: tuple[str, ...], output: str, dram_load: int) -> np.ndarray:
        """Legal rows of an op, fewest cores first; among equal grids and streams the fastest at that load, then the
        larger ublock (it comes first in the table)."""
        key = (table.signature, where, output, dram_divider(self.device, dram_load))
        entry = self._by_cores_of.get(key)
        if entry is None:
            legal = self.legal[table.signature]
            cycles = self.row_limits(table, where, output, EpochLoad(dram_load, 0))[legal]
            data = table.rows[legal]
            entry = legal[np.lexsort((legal, cycles, data["buf_size_mb"] == 1, data["t"], data["cores"]))]
            self._by_cores_of[key] = entry
        return entry

    def shapes(self, table: OpModels) -> np.ndarray:
        """For every row of an op's table the number of its (grid, stream, buffer): equal numbers differ in blocking."""
        entry = self._shapes_of.get(table.signature)
        if entry is None:
            data = table.rows
            names = ("grid_r", "grid_c", "stream_r", "stream_c", "buf_size_mb")
            entry = group_numbers(*(data[n] for n in names), data["stream"] == "rz")
            self._shapes_of[table.signature] = entry
        return entry

    def frontier(
        self,
        table: OpModels,
        where: tuple[str, ...],
        output: str,
        dram_load: int,
        kernel_part: float = 1.0,
        dram_price: int = 0,
        host: int = 0,
        apart: bool = False,
    ) -> Frontier:
        """Rows that are cheapest for some target, given how many cores use DRAM in the epoch. `kernel_part`: the kernel
        alone may take that part of the target (1: no more is asked of it than of the operands). `dram_price`: how many
        cores one on DRAM counts for beside itself; at 0 it only decides between rows of equal cores and cycles. `host`:
        cores on the host link. `apart`: see `Choices.frontier`."""
        divider = dram_divider(self.device, dram_load)
        host = host if HOST in where or output == HOST else 0
        key = (table.signature, where, output, divider, kernel_part, dram_price, host, apart)
        entry = self._frontier_of.get(key)
        if entry is None:
            entry = self.choices(table, where, output, host).frontier(dram_load, kernel_part, dram_price, apart)
            self._frontier_of[key] = entry
        return entry


def profile_of(table: OpModels) -> OpProfile:
    """The profile that a table was enumerated for."""
    if table.profile is None:
        raise ValueError("a candidate table without its profile")
    return table.profile
