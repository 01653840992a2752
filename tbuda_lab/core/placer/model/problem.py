"""Everything a policy asks: ops by number in schedule order, who feeds whom, pins and breaks, cost of a choice."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, NOC, Load, Traffic, demands, dram_divider, traffic
from tbuda_lab.core.balancer.edges import EdgeCache, EdgeCost
from tbuda_lab.core.balancer.orders import read_order, ublock_orders
from tbuda_lab.core.balancer.parameters import preloads, preloads_encoding
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.routes import Routes
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.tile_order_cache import TileOrderCache
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import WRITES, first_of_each, phases
from tbuda_lab.core.lowering.edits import BETWEEN, queued_ports
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.choices import Choices, Frontier


@dataclasses.dataclass(frozen=True)
class Pin:
    """What the user fixed of an op's place."""

    start: tuple[int, int] | None = None
    transpose: bool | None = None
    chip: int | None = None


@dataclasses.dataclass(frozen=True)
class OpFacts:
    """One op of the schedule. `producers[p]`: number of the op that feeds operand p, or -1 for a queue, whose place is
    `queue_place[p]`. `readers`: (number, operand) of the ops that read it. `queued`: operands that come through a DRAM
    queue although their producer may run beside the op; `queued_out`: whether a reader takes it from such a queue."""

    name: str
    producers: tuple[int, ...]
    queue_place: tuple[str, ...]
    readers: tuple[tuple[int, int], ...]
    host_output: bool
    dram_output: bool
    queued: tuple[int, ...] = ()
    queued_out: bool = False
    transports: dict[tuple[int, bool], tuple[tuple[str, ...], str]] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )  # results of `places`, by which producers and whether all readers are in the epoch

    def places(self, first: int, last: int) -> tuple[tuple[str, ...], str]:
        """Over what each operand and the output move when [first, last) is one epoch."""
        readers = self.readers
        inside = not readers or (first <= readers[0][0] and readers[-1][0] < last)  # they are sorted
        near = 0
        for port, producer in enumerate(self.producers):
            if first <= producer < last:
                near |= 1 << port
        entry = self.transports.get((near, inside))
        if entry is None:
            entry = self.transports[near, inside] = self._places(near, inside)
        return entry

    def _places(self, near: int, inside: bool) -> tuple[tuple[str, ...], str]:
        where = tuple(
            place if p < 0 else (NOC if near >> port & 1 and port not in self.queued else DRAM)
            for port, (p, place) in enumerate(zip(self.producers, self.queue_place, strict=True))
        )
        if self.dram_output or self.queued_out or not inside:
            return where, DRAM
        if self.host_output:
            return where, HOST
        return where, NOC if self.readers else ""

    def by_noc(self, port: int, first: int, last: int) -> bool:
        """Whether an operand comes straight from an op when [first, last) is one epoch."""
        return first <= self.producers[port] < last and port not in self.queued


class Problem:
    """A lowered graph with its candidate tables, in schedule order, for one device."""

    def __init__(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        device: DeviceSpec,
        options: CompileOptions,
        order: Sequence[str],
        pins: Mapping[str, Pin],
        breaks: frozenset[str],
        chip_breaks: frozenset[str] = frozenset(),
    ) -> None:
        self.graph, self.models, self.device, self.options = graph, models, device, options
        self.order = tuple(order)
        self.phase = phases(graph)
        self.pins, self.breaks, self.chip_breaks = dict(pins), breaks | first_of_each(order, self.phase), chip_breaks
        self.cores = device.rows * device.cols
        self.orders = ublock_orders(graph)
        self.read_orders = {name: read_order(graph, self.orders, name) for name in order}
        self.edges = EdgeCache()
        self.routes = Routes(options.microbatch)
        self.edge_costs: dict[tuple[object, ...], EdgeCost] = {}  # by signatures and rows, in front of `edges`
        self.number = {name: i for i, name in enumerate(self.order)}
        self.facts = self._facts()
        self.tables = [models[name] for name in self.order]
        self.profiles = [_profile(t) for t in self.tables]
        distinct = {t.signature: t for t in self.tables}
        self.legal = {signature: t.legal() for signature, t in distinct.items()}
        self.refusals: dict[tuple[int, int], str] = {}  # (first, last) -> why that run is no epoch
        self.end = None if options.time_budget is None else time.monotonic() + options.time_budget
        self.preloaded: dict[tuple[str, int, int], bool] = {}  # by (signature, row, port), for queues
        self._traffic: dict[str, Traffic] = {}
        self._asked: dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._choices: dict[tuple[object, ...], Choices] = {}
        self._limits: dict[tuple[object, ...], np.ndarray] = {}
        self._frontiers: dict[tuple[object, ...], Frontier] = {}
        self._by_cores: dict[tuple[object, ...], np.ndarray] = {}
        self._shapes: dict[str, np.ndarray] = {}
        self._loads: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._dram_cores: dict[tuple[object, ...], np.ndarray] = {}
        self._host_bytes: dict[tuple[object, ...], np.ndarray] = {}
        self.answers: dict[tuple[object, ...], object] = {}  # what questions about candidates came to
        self._kinds: list[tuple[object, ...]] = []
        self.walked = TileOrderCache()
        self.flows: dict[tuple[object, ...], object] = {}  # see `flow`
        self.prices: dict[tuple[object, ...], object] = {}  # see `price`
        self.overrides: tuple[Override, ...] = ()  # what the user asked for, as far as mends have to know

    @property
    def late(self) -> bool:
        """Whether the time the user gave is over: what is known by then has to do."""
        return self.end is not None and time.monotonic() >= self.end

    def twin(
        self, models: Mapping[str, OpModels], pins: Mapping[str, Pin], breaks: frozenset[str]
    ) -> Problem:
        """The same graph in the same order with other candidates, pins and epoch breaks. All that is kept by signature
        is shared, so what was computed for one serves the other."""
        twin = copy.copy(self)
        twin.models = models
        twin.pins, twin.breaks = dict(pins), breaks | first_of_each(self.order, self.phase)
        twin.tables = [models[name] for name in self.order]
        twin.profiles = [_profile(t) for t in twin.tables]
        for table in twin.tables:
            if table.signature not in twin.legal:
                twin.legal[table.signature] = table.legal()
        twin.refusals = {}
        twin._kinds = []
        return twin

    def regraphed(self, graph: Graph, models: Mapping[str, OpModels], order: Sequence[str]) -> Problem:
        """An edited copy of the graph in this order, with the same pins and breaks. What is kept by signature is shared
        as with `twin`."""
        regraphed = Problem(
            graph, models, self.device, self.options, order, self.pins, self.breaks, self.chip_breaks
        )
        self.legal.update(regraphed.legal)
        own = {"graph", "models", "order", "pins", "breaks", "chip_breaks", "phase", "number", "facts"}
        own |= {"tables", "profiles", "refusals", "_kinds", "orders", "read_orders"}
        regraphed.__dict__.update({name: value for name, value in vars(self).items() if name not in own})
        return regraphed

    def with_table(self, op: int, table: OpModels) -> Problem:
        """The same with other candidates for one op."""
        if table.signature == self.tables[op].signature:
            return self
        return self.twin({**self.models, self.order[op]: table}, self.pins, self.breaks)

    def _facts(self) -> list[OpFacts]:
        users = self.graph.users()
        input_place = HOST if inputs_on_host(self.device, self.options) else DRAM
        output_place = HOST if self.options.output_queues_on_host else DRAM
        facts: list[OpFacts] = []
        for name in self.order:
            node = self.graph[name]
            sources = [self.graph[s] for s in node.sources]
            readers = [(self.number[u], p) for u, p in users[name] if self.graph[u].kind is NodeKind.OP]
            ends = [self.graph[u] for u, _ in users[name] if self.graph[u].kind is NodeKind.OUTPUT]
            writes = any(WRITES in end.attrs for end in ends)
            outputs = any(WRITES not in end.attrs for end in ends)
            facts.append(
                OpFacts(
                    name,
                    tuple(self.number.get(s.name, -1) for s in sources),
                    tuple(input_place if s.kind is NodeKind.INPUT else DRAM for s in sources),
                    tuple(sorted(readers)),
                    outputs and output_place == HOST,
                    writes or (outputs and output_place == DRAM),
                    queued_ports(node),
                    any(p in queued_ports(self.graph[u]) for u, p in users[name]),
                )
            )
        return facts

    # -- where operands and outputs move for ops [first, last) in one epoch -----------------------------------
    def places(self, op: int, first: int, last: int) -> tuple[tuple[str, ...], str]:
        """Over what each operand and the output of `op` moves when [first, last) is one epoch."""
        return self.facts[op].places(first, last)

    def traffic(self, op: int) -> Traffic:
        table = self.tables[op]
        entry = self._traffic.get(table.signature)
        if entry is None:
            entry = traffic(self.profiles[op], table.rows, self.device)
            self._traffic[table.signature] = entry
        return entry

    def row_limits(self, op: int, where: tuple[str, ...], output: str, load: Load) -> np.ndarray:
        """Limiter cycles of every row of an op's table."""
        divider = dram_divider(self.device, load.dram_cores)
        key = (self.tables[op].signature, where, output, divider, load.host_cores)
        entry = self._limits.get(key)
        if entry is None:
            fixed, shared = self._demands(op, where, output, load.host_cores)
            entry = self._limits[key] = np.maximum(fixed, shared / (self.device.dram_bytes_per_cycle / divider))
        return entry

    def _demands(self, op: int, where: tuple[str, ...], output: str, host: int) -> tuple[np.ndarray, np.ndarray]:
        """(cycles whatever the load of DRAM, bytes that share DRAM) of every row of an op's table, the largest each."""
        table = self.tables[op]
        key = (table.signature, where, output, host)
        entry = self._asked.get(key)
        if entry is None:
            batch = self.options.inputs_counted
            all_ = demands(
                self.profiles[op], table.rows, self.device, where, output, host, batch, self.traffic(op)
            )
            entry = self._asked[key] = (all_.cycles.max(axis=0), all_.shared.max(axis=0))
        return entry

    def choices(self, op: int, where: tuple[str, ...], output: str, host: int = 0) -> Choices:
        """The legal rows of an op with their costs for every load of DRAM. host: cores on the host link, if they are
        more than the op's own."""
        table = self.tables[op]
        host = host if HOST in where or output == HOST else 0
        key = (table.signature, where, output, host)
        entry = self._choices.get(key)
        if entry is None:
            entry = self._choices[key] = Choices(
                self.device,
                table.rows,
                self.legal[table.signature],
                *self._demands(op, where, output, host),
                self.dram_cores(op, where, output),
            )
        return entry

    def loads(self, op: int) -> tuple[np.ndarray, np.ndarray]:
        """What every row of an op's table preloads: bytes of the core that fetches most, and bytes of all cores."""
        table = self.tables[op]
        entry = self._loads.get(table.signature)
        if entry is None:
            move = self.traffic(op)
            most, total = (np.zeros(len(table.rows)) for _ in range(2))
            for port, size in enumerate(move.operand_bytes):
                mine = np.where(preloads(self.profiles[op], port, table.rows), size, 0)
                most, total = np.maximum(most, mine), total + mine * move.operand_cores[port]
            if move.picker_bytes is not None:
                mine = np.where(preloads_encoding(table.rows), move.picker_bytes, 0)
                most, total = np.maximum(most, mine), total + mine * table.rows["grid_r"]
            entry = self._loads[table.signature] = most, total
        return entry

    def dram_cores(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        """Cores that use DRAM, for every row: readers of streamed operands and writers to queues."""
        key = (self.tables[op].signature, where, output)
        entry = self._dram_cores.get(key)
        if entry is None:
            entry = self._dram_cores[key] = self._count_dram_cores(op, where, output)
        return entry

    def _count_dram_cores(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        move, table = self.traffic(op), self.tables[op]
        total = np.zeros(len(table.rows), dtype=np.int64)
        for port, place in enumerate(where):
            if place == DRAM:
                cores = move.operand_cores[port]
                total += np.where(preloads(self.profiles[op], port, table.rows), 0, cores)
        if output == DRAM:
            total += move.output_cores
        if move.picker_bytes is not None:
            total += np.where(preloads_encoding(table.rows), 0, table.rows["grid_r"].astype(np.int64))
        return total

    def host_cores(self, op: int, where: tuple[str, ...], output: str, row: int) -> int:
        """Cores that use the host link."""
        move = self.traffic(op)
        total = sum(int(move.operand_cores[p][row]) for p, place in enumerate(where) if place == HOST)
        return total + (int(move.output_cores[row]) if output == HOST else 0)

    def host_bytes(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        """(legal rows,) bytes per input of an op over the host link, all cores together."""
        table = self.tables[op]
        key = (table.signature, where, output)
        entry = self._host_bytes.get(key)
        if entry is None:
            move = self.traffic(op)
            total = np.zeros(len(table.rows))
            for port, place in enumerate(where):
                if place == HOST:
                    total += move.operand_bytes[port].astype(np.float64) * move.operand_cores[port]
            if output == HOST:
                total += move.output_bytes.astype(np.float64) * move.output_cores
            entry = self._host_bytes[key] = total[self.legal[table.signature]]
        return entry

    def by_cores(self, op: int, where: tuple[str, ...], output: str, dram_load: int) -> np.ndarray:
        """Legal rows of an op, fewest cores first; among equal grids and streams the fastest at that load, then the
        larger ublock (it comes first in the table)."""
        table = self.tables[op]
        key = (table.signature, where, output, dram_divider(self.device, dram_load))
        entry = self._by_cores.get(key)
        if entry is None:
            legal = self.legal[table.signature]
            cycles = self.row_limits(op, where, output, Load(dram_load, 0))[legal]
            data = table.rows[legal]
            entry = legal[np.lexsort((legal, cycles, data["buf_size_mb"] == 1, data["t"], data["cores"]))]
            self._by_cores[key] = entry
        return entry

    def shapes(self, op: int) -> np.ndarray:
        """For every row of an op's table the number of its (grid, stream, buffer): equal numbers differ in blocking."""
        table = self.tables[op]
        entry = self._shapes.get(table.signature)
        if entry is None:
            data = table.rows
            names = ("grid_r", "grid_c", "stream_r", "stream_c", "buf_size_mb")
            columns = np.stack([*(data[n] for n in names), data["stream"] == "rz"]).astype(np.int64)
            entry = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
            self._shapes[table.signature] = entry
        return entry

    def structure(self, first: int, last: int) -> tuple[object, ...]:
        """All that decides which rows and spots ops [first, last) can take as one epoch, by numbers relative to
        `first`, as long as the rows of earlier epochs are left open: equal for runs of equal layers."""
        if not self._kinds:
            self._kinds = [
                (
                    self.tables[i].signature,
                    self.orders[name],
                    self.read_orders[name],
                    self.pins.get(name),
                    fact.queue_place,
                    len(fact.readers),
                    fact.host_output,
                    fact.dram_output,
                    fact.queued,
                    BETWEEN in self.graph[name].attrs,
                )
                for i, (name, fact) in enumerate(zip(self.order, self.facts, strict=True))
            ]
        return tuple(
            (
                self._kinds[op],
                tuple(p - first if first <= p < last else (-1 if p < 0 else -2) for p in self.facts[op].producers),
                tuple((r - first, port) for r, port in self.facts[op].readers if first <= r < last),
            )
            for op in range(first, last)
        )

    def frontier(
        self,
        op: int,
        where: tuple[str, ...],
        output: str,
        dram_load: int,
        kernel_part: float = 1.0,
        dram_price: int = 0,
        host: int = 0,
    ) -> Frontier:
        """Rows that are cheapest for some target, given how many cores use DRAM in the epoch. `kernel_part`: the kernel
        alone may take that part of the target (1: no more is asked of it than of the operands). `dram_price`: how many
        cores one on DRAM counts for beside itself; at 0 it only decides between rows of equal cores and cycles. `host`:
        cores on the host link."""
        divider = dram_divider(self.device, dram_load)
        host = host if HOST in where or output == HOST else 0
        key = (self.tables[op].signature, where, output, divider, kernel_part, dram_price, host)
        entry = self._frontiers.get(key)
        if entry is None:
            entry = self.choices(op, where, output, host).frontier(dram_load, kernel_part, dram_price)
            self._frontiers[key] = entry
        return entry


def _profile(table: OpModels) -> OpProfile:
    if table.profile is None:
        raise ValueError("a candidate table without its profile")
    return table.profile


def inputs_on_host(device: DeviceSpec, options: CompileOptions) -> bool:
    """Input queues lie in host memory where the device can read it: one chip, not grayskull."""
    return options.input_queues_on_host and device.arch != "grayskull" and len(device.chips) == 1
