"""Everything a policy asks: ops by number in schedule order, who feeds whom, pins and breaks, cost of a choice."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, NOC, EpochLoad, Traffic
from tbuda_lab.core.balancer.blocks import order_for, read_order, ublock_orders
from tbuda_lab.core.balancer.edges import OperandEdges
from tbuda_lab.core.balancer.profile import OpProfile, input_on_host, output_on_host
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.constraints import FREE, Constraints
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES, direction_of, first_of_each, phases
from tbuda_lab.core.graph.text import DIGEST
from tbuda_lab.core.lowering.edits import BETWEEN, queued_ports
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides.places import OpPin
from tbuda_lab.core.placer.model.costs import Choices, CostCache, profile_of

LONG, ALIKE = 800, 8
"""Ops of a long model, and how many of them are of one kind at most, on average, for it to be one: BERT-large has 676
and 30 kinds, MaxViT-pico 1,167 and hundreds."""


@dataclasses.dataclass(frozen=True)
class OpFacts:
    """One op of the schedule. `producers[p]`: number of the op that feeds operand p, or -1 for a queue, whose place is
    `queue_place[p]`. `readers`: (number, operand) of the ops that read it. `queued_in`: operands that come through a
    DRAM queue although their producer may run beside the op; `queued_out`: whether a reader takes it from such a
    queue."""

    name: str
    producers: tuple[int, ...]
    queue_place: tuple[str, ...]
    readers: tuple[tuple[int, int], ...]
    host_output: bool
    dram_output: bool
    queued_in: tuple[int, ...] = ()
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
            place if p < 0 else (NOC if near >> port & 1 and port not in self.queued_in else DRAM)
            for port, (p, place) in enumerate(zip(self.producers, self.queue_place, strict=True))
        )
        if self.dram_output or self.queued_out or not inside:
            return where, DRAM
        if self.host_output:
            return where, HOST
        return where, NOC if self.readers else ""

    def after_insertion(self, at: int) -> OpFacts:
        """The same where an op is inserted at a place of the schedule."""
        if max(self.producers, default=-1) < at and (not self.readers or self.readers[-1][0] < at):
            return self
        producers = tuple([p + (p >= at) for p in self.producers])
        readers = tuple([(reader + (reader >= at), port) for reader, port in self.readers])
        return OpFacts(
            self.name,
            producers,
            self.queue_place,
            readers,
            self.host_output,
            self.dram_output,
            self.queued_in,
            self.queued_out,
        )

    def by_noc(self, port: int, first: int, last: int) -> bool:
        """Whether an operand comes straight from an op when [first, last) is one epoch."""
        return first <= self.producers[port] < last and port not in self.queued_in


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What the order of a graph's ops says, whatever their candidates and overrides are.

    order: names of the ops. number: where each stands. facts: of each, in that order. phase: the part of the graph of
    each op, see `phases`. orders: of ublocks, see `ublock_orders`; read_orders: those in which ops read, by name.
    """

    order: tuple[str, ...]
    number: Mapping[str, int]
    facts: tuple[OpFacts, ...]
    phase: dict[str, str]
    orders: dict[str, str]
    read_orders: Mapping[str, str]

    @classmethod
    def of(
        cls, graph: Graph, order: Sequence[str], device: DeviceSpec, options: CompileOptions, on_one_chip: bool = False
    ) -> Schedule:
        number = {name: i for i, name in enumerate(order)}
        orders = ublock_orders(graph)
        return cls(
            tuple(order),
            number,
            op_facts(graph, number, device, options, on_one_chip),
            phases(graph),
            orders,
            {name: read_order(graph, orders, name) for name in order},
        )

    def with_nop(self, graph: Graph, nop: str, source: str, reader: str) -> Schedule:
        """That of the graph with a nop between two ops of an epoch, right before the reader: what `of` says of it, but
        only what the nop changes is worked out."""
        at, before = self.number[reader], self.number[source]
        order = (*self.order[:at], nop, *self.order[at:])
        facts = [fact.after_insertion(at) for fact in self.facts]
        ports = tuple(port for port, p in enumerate(facts[at].producers) if p == before)
        read = tuple((at + 1, port) for port in ports)
        others = tuple(use for use in facts[before].readers if use not in read)
        takes = facts[at]
        producers = tuple(at if port in ports else p for port, p in enumerate(takes.producers))
        facts[at] = dataclasses.replace(takes, producers=producers, transports={})
        facts.insert(
            at, OpFacts(nop, (before,), (DRAM,), read, False, False, (), bool(set(ports) & set(takes.queued_in)))
        )
        queued_out = any(port in facts[use].queued_in for use, port in others)
        facts[before] = dataclasses.replace(
            facts[before], readers=tuple(sorted((*others, (at, 0)))), queued_out=queued_out, transports={}
        )
        own = order_for(graph, [(reader, port) for port in ports], self.orders)
        phase = {**self.phase, nop: self.phase[reader]} if self.phase else {}
        return Schedule(
            order,
            {name: i for i, name in enumerate(order)},
            tuple(facts),
            phase,
            {**self.orders, nop: own},
            {**self.read_orders, nop: own},
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A lowered graph with its candidate tables, in schedule order, for one device.

    Frozen: a problem that differs is another one, made by `with_candidates`, `regraph` or `dataclasses.replace`, and
    shares the costs. constraints: what is asked, of which pins and breaks of this order follow. deadline: when a search
    has to end (seconds of `time.monotonic`), None without. refusals: (first, last) -> why that run of ops is no epoch;
    policies add to it. on_one_chip: whether one of several chips takes all epochs.
    """

    graph: Graph
    models: Mapping[str, OpModels]
    device: DeviceSpec
    options: CompileOptions
    schedule: Schedule
    pins: Mapping[str, OpPin]
    breaks: frozenset[str]
    chip_breaks: frozenset[str]
    costs: CostCache
    constraints: Constraints = FREE
    deadline: float | None = None
    refusals: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    on_one_chip: bool = False

    @classmethod
    def of(
        cls,
        graph: Graph,
        models: Mapping[str, OpModels],
        device: DeviceSpec,
        options: CompileOptions,
        order: Sequence[str],
        constraints: Constraints = FREE,
        costs: CostCache | None = None,
        on_one_chip: bool = False,
    ) -> Problem:
        """The problem of placing the ops of `order`, with what constraints ask of them. costs: of another problem for
        the same device and options; None: a new cache."""
        schedule = Schedule.of(graph, order, device, options, on_one_chip)
        deadline = None if options.time_budget is None else time.monotonic() + options.time_budget
        return cls(
            graph,
            models,
            device,
            options,
            schedule,
            constraints.pins,
            constraints.epoch_starts(order) | first_of_each(order, schedule.phase),
            constraints.chip_starts(order),
            CostCache(device, options) if costs is None else costs,
            constraints,
            deadline,
            on_one_chip=on_one_chip,
        )

    def __post_init__(self) -> None:
        for table in self.tables:
            self.costs.add(table)

    # -- what follows from the fields -----------------------------------------------------------------------------
    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        return self.schedule.order

    @functools.cached_property
    def number(self) -> Mapping[str, int]:
        return self.schedule.number

    @functools.cached_property
    def facts(self) -> tuple[OpFacts, ...]:
        return self.schedule.facts

    @functools.cached_property
    def phase(self) -> dict[str, str]:
        return self.schedule.phase

    @functools.cached_property
    def orders(self) -> dict[str, str]:
        return self.schedule.orders

    @functools.cached_property
    def read_orders(self) -> Mapping[str, str]:
        return self.schedule.read_orders

    @functools.cached_property
    def cores(self) -> int:
        return self.device.rows * self.device.cols

    @functools.cached_property
    def has_stages(self) -> bool:
        """Whether several chips share the epochs."""
        return len(self.device.chips) > 1 and not self.on_one_chip

    @functools.cached_property
    def tables(self) -> list[OpModels]:
        """By number of the op."""
        return [self.models[name] for name in self.order]

    @functools.cached_property
    def profiles(self) -> list[OpProfile]:
        """By number of the op."""
        return [profile_of(table) for table in self.tables]

    @property
    def profiles_by_name(self) -> dict[str, OpProfile]:
        return dict(zip(self.order, self.profiles, strict=True))

    @functools.cached_property
    def legal(self) -> Mapping[str, np.ndarray]:
        """By signature of a table, its legal rows."""
        return self.costs.legal

    @functools.cached_property
    def is_long(self) -> bool:
        """Whether the model has too many ops, of too many kinds, for every epoch that may be taken to be priced as it
        will be repaired. At one input alone: of a batch the bounds leave fewer to price."""
        count = len(self.order)
        alike = len(set(self.kinds)) * ALIKE < count
        return count >= LONG and not alike and not self.phase and self.options.inputs_counted < 2

    @property
    def late(self) -> bool:
        """Whether the time the user gave is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    # -- other problems -------------------------------------------------------------------------------------------
    def with_candidates(self, models: Mapping[str, OpModels], constraints: Constraints) -> Problem:
        """The same graph in the same order with other candidates, pins and epoch breaks. Chips stay as they are."""
        breaks = constraints.epoch_starts(self.order) | first_of_each(self.order, self.phase)
        return dataclasses.replace(
            self, models=models, pins=constraints.pins, breaks=breaks, constraints=constraints, refusals={}
        )

    def regraph(self, graph: Graph, models: Mapping[str, OpModels], order: Sequence[str]) -> Problem:
        """An edited copy of the graph in this order, with the same pins and breaks."""
        schedule = Schedule.of(graph, order, self.device, self.options, self.on_one_chip)
        breaks = self.breaks | first_of_each(order, schedule.phase)
        return dataclasses.replace(self, graph=graph, models=models, schedule=schedule, breaks=breaks, refusals={})

    def alone(self) -> Problem:
        """The same ops in the same order, all on one of several chips."""
        return dataclasses.replace(self, on_one_chip=True).regraph(self.graph, self.models, self.order)

    def with_table(self, op: int, table: OpModels) -> Problem:
        """The same with other candidates for one op."""
        if table.signature == self.tables[op].signature:
            return self
        return dataclasses.replace(self, models={**self.models, self.order[op]: table}, refusals={})

    def direction(self, op: int) -> str:
        """Of the part of the graph that an op is in: "fwd", "fwd_<subgraph>", "bwd" or "opt"."""
        return direction_of(self.phase[self.order[op]]) if self.phase else "fwd"

    # -- the batch --------------------------------------------------------------------------------------------------
    def inputs(self, op: int) -> int:
        """Inputs that one run of the op's epoch takes: those of the batch, or 1 where it runs once for it."""
        return 1 if self.profiles[op].once else self.options.inputs_counted

    def share(self, op: int) -> float:
        """Runs of the op for every input of the batch: what its cycles count beside those of other parts."""
        return self.inputs(op) / self.options.inputs_counted

    # -- where operands and outputs move, and what that costs --------------------------------------------------------
    def places(self, op: int, first: int, last: int) -> tuple[tuple[str, ...], str]:
        """Over what each operand and the output of `op` moves when [first, last) is one epoch."""
        return self.facts[op].places(first, last)

    def traffic(self, op: int) -> Traffic:
        return self.costs.traffic(self.tables[op])

    def row_limits(self, op: int, where: tuple[str, ...], output: str, load: EpochLoad) -> np.ndarray:
        return self.costs.row_limits(self.tables[op], where, output, load)

    def choices(self, op: int, where: tuple[str, ...], output: str, host: int = 0) -> Choices:
        return self.costs.choices(self.tables[op], where, output, host)

    def loads(self, op: int) -> tuple[np.ndarray, np.ndarray]:
        return self.costs.loads(self.tables[op])

    def streamed(self, op: int, where: tuple[str, ...]) -> np.ndarray:
        return self.costs.streamed(self.tables[op], where)

    def dram_cores(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        return self.costs.dram_cores(self.tables[op], where, output)

    def host_cores(self, op: int, where: tuple[str, ...], output: str, row: int) -> int:
        return self.costs.host_cores(self.tables[op], where, output, row)

    def host_bytes(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        return self.costs.host_bytes(self.tables[op], where, output)

    def by_cores(self, op: int, where: tuple[str, ...], output: str, dram_load: int) -> np.ndarray:
        return self.costs.by_cores(self.tables[op], where, output, dram_load)

    def shapes(self, op: int) -> np.ndarray:
        return self.costs.shapes(self.tables[op])

    @functools.cached_property
    def _edges(self) -> dict[tuple[int, int, bool], OperandEdges]:
        """Of the operands that were asked for."""
        return {}

    def edges(self, op: int, port: int, from_queue: bool = False) -> OperandEdges:
        """The edges of an operand that another op gives. from_queue: it comes through DRAM."""
        entry = self._edges.get((op, port, from_queue))
        if entry is None:
            producer, names, tables = self.facts[op].producers[port], self.order, self.tables
            entry = self._edges[op, port, from_queue] = self.costs.edges.operand(
                tables[producer],
                self.orders[names[producer]],
                tables[op],
                port,
                self.orders[names[op]],
                self.read_orders[names[op]],
                from_queue=from_queue,
            )
        return entry

    # -- equal runs -----------------------------------------------------------------------------------------------
    @functools.cached_property
    def kinds(self) -> list[int]:
        """By number of the op, a number of the cost cache for what it is, whoever it reads and feeds."""
        return [self._kind(op) for op in range(len(self.order))]

    @functools.cached_property
    def _kinds(self) -> dict[int, int]:
        """Of the ops that were asked for: a problem may live for the trial of one epoch."""
        return {}

    def _kind(self, op: int) -> int:
        if (entry := self._kinds.get(op)) is not None:
            return entry
        name, fact = self.order[op], self.facts[op]
        entry = self._kinds[op] = self.costs.number(
            (
                self.models[name].signature,
                self.orders[name],
                self.read_orders[name],
                self.pins.get(name),
                fact.queue_place,
                len(fact.readers),
                fact.host_output,
                fact.dram_output,
                fact.queued_in,
                BETWEEN in self.graph[name].attrs,
            )
        )
        return entry

    @functools.cached_property
    def _inside(self) -> dict[int, tuple[int, int, int]]:
        """Of the ops that were asked for, see `_inside_of`."""
        return {}

    def _inside_of(self, op: int) -> tuple[int, int, int]:
        """An op's number in `structure` where all that it reads and feeds is inside, its first producer and its last
        reader (itself without any)."""
        entry = self._inside.get(op)
        if entry is None:
            fact = self.facts[op]
            first = min((p for p in fact.producers if p >= 0), default=op)
            last = max((reader for reader, _ in fact.readers), default=op)
            entry = self._inside[op] = self._number_in(op, 0, len(self.order)), first, last
        return entry

    def _number_in(self, op: int, first: int, last: int) -> int:
        fact = self.facts[op]
        producers = tuple([p - op if first <= p < last else (1 if p < 0 else 2) for p in fact.producers])
        readers = tuple([(r - op, port) for r, port in fact.readers if first <= r < last])
        return self.costs.number((self._kind(op), producers, readers))

    def structure(self, first: int, last: int) -> tuple[int, ...]:
        """All that decides which rows and spots ops [first, last) can take as one epoch, as numbers of the cost cache:
        equal for runs of equal layers, as long as the rows of earlier epochs are left open."""
        numbers = []
        for op in range(first, last):
            number, producer, reader = self._inside_of(op)
            numbers.append(number if first <= producer and reader < last else self._number_in(op, first, last))
        return tuple(numbers)


def op_facts(
    graph: Graph, number: Mapping[str, int], device: DeviceSpec, options: CompileOptions, on_one_chip: bool = False
) -> tuple[OpFacts, ...]:
    """The facts of every op of `number`, in its order. on_one_chip: whether one of several chips has them all."""
    nodes, users = graph.nodes, graph.users()
    cut = {(node.name, port) for node in graph for port in queued_ports(node)}

    def place_of(node: Node) -> str:
        return HOST if node.kind is NodeKind.INPUT and input_on_host(node, device, options, on_one_chip) else DRAM

    facts: list[OpFacts] = []
    for name in number:
        node = graph[name]
        sources = [edge.source for edge in node.inputs]
        readers: list[tuple[int, int]] = []
        writes = to_host = False
        for user, port in users[name]:
            reader = nodes[user]
            if reader.kind is NodeKind.OP:
                readers.append((number[user], port))
            elif reader.kind is NodeKind.OUTPUT:
                hosted = WRITES not in reader.attrs and output_on_host(reader, options)
                to_host |= hosted
                writes |= not hosted
        facts.append(
            OpFacts(
                name,
                tuple([number.get(s, -1) for s in sources]),
                tuple([place_of(nodes[s]) for s in sources]),
                tuple(sorted(readers)),
                to_host,
                writes,
                queued_ports(node),
                bool(cut) and any(use in cut for use in users[name]),
            )
        )
    return tuple(facts)


def structure_digest(graph: Graph) -> str:
    """64 hex digits of all of a lowered graph that a placement depends on: nodes, ops, edges, shapes, formats and
    attributes. The numbers in parameters and constants are left out: no placement depends on them."""
    digest = hashlib.sha256(graph.name.encode())
    for node in graph:
        about = (node.name, node.kind.value, tuple(node.shape), type(node.op).__name__, node.op, node.inputs, node.df)
        attrs = sorted((item for item in node.attrs.items() if item[0] != DIGEST), key=lambda item: item[0])
        digest.update(repr((*about, attrs, node.origin)).encode())
    return digest.hexdigest()
