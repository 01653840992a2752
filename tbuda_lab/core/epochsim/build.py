"""A compile's placement as networks: one for all epochs, which do not influence each other within a batch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST
from tbuda_lab.core.balancer.blocks import read_order, ublock_orders
from tbuda_lab.core.epochsim.costs import OpCost, op_costs
from tbuda_lab.core.epochsim.network import EpochConstants, FlowEdge, FlowOp, Network
from tbuda_lab.core.epochsim.tile_order import CutOp, Stripes
from tbuda_lab.core.epochsim.tile_order_cache import CutEdge, TileOrderCache
from tbuda_lab.core.errors import Diagnostic

if TYPE_CHECKING:
    from tbuda_lab.core.epochsim.costs import SimulatedCompile


class CoreBlock(NamedTuple):
    """A rectangle of an op's cores that go in step: the op's index in `Built.names`, and (row, column, rows, columns)
    on the chip's grid."""

    op: int
    cores: tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class BuiltNetwork:
    """The network. Its first ops are `parts`, op by op in the order of the epochs (`names`); the rest are the host's
    ends of queues. costs: of `names`. diagnostics: buffers too small for their one edge; tight: those edges, producer
    and reader by their index in `names`, and the operand."""

    network: Network
    names: tuple[str, ...]
    parts: tuple[CoreBlock, ...]
    costs: tuple[OpCost, ...]
    diagnostics: tuple[Diagnostic, ...]
    tight: tuple[tuple[int, int, int], ...] = ()


def build(
    result: SimulatedCompile, constants: EpochConstants, tile_orders: TileOrderCache | None = None
) -> BuiltNetwork:
    """Ops with their steps, edges with what they need, free and may hold. tile_orders: of networks of the
    same ops with the same constants; those of this one are added.

    An edge within an epoch holds the producer's output buffer and the reader's input buffer. An edge between chips that
    work at the same time goes through a DRAM queue that holds the whole batch. What an earlier epoch left is there.
    """
    return NetworkBuilder(result, constants, TileOrderCache() if tile_orders is None else tile_orders).run()


class NetworkBuilder:
    """Builds the networks of all epochs of one placement; see `build`."""

    def __init__(self, result: SimulatedCompile, constants: EpochConstants, tile_orders: TileOrderCache) -> None:
        self.result, self.constants, self.tile_orders = result, constants, tile_orders
        self.graph, self.placement = result.lowered, result.placement
        self.orders = dict(self.placement.ublock_order) or ublock_orders(self.graph)
        self.names = tuple(name for epoch in self.placement.epochs for name in epoch.ops)
        self.number = {name: i for i, name in enumerate(self.names)}
        self.temporal = {name: epoch.temporal for epoch in self.placement.epochs for name in epoch.ops}
        self.costs = op_costs(result, tile_orders.moves, tile_orders.users(self.graph))
        self.feeds = {name: self._feeds(name) for name in self.names}
        self.factors = result.input_factors
        self.cut = {name: self._cut(name, constants.steps) for name in self.names}
        self.stripes: dict[str, Stripes] = {}
        self.first: dict[str, int] = {}  # number of an op's first part
        self.diagnostics: list[Diagnostic] = []
        self.tight: list[tuple[int, int, int]] = []

    def run(self) -> BuiltNetwork:
        """The network of all epochs: ops cut into parts that work alike, and the edges between these."""
        costs = self.costs
        self._refine()
        ops: list[FlowOp] = []
        parts: list[CoreBlock] = []
        feeding: list[tuple[str, str, int, bool, CutEdge]] = []
        for index, name in enumerate(self.names):
            into = [
                (source, name, port, queued, self._edge(source, name, port))
                for source, port, queued in self.feeds[name]
            ]
            of_producers = tuple((edge, self.stripes.get(source, Stripes())) for source, *_, edge in into)
            cut = self.tile_orders.stripes(of_producers, self.constants)
            self.stripes[name], self.first[name] = cut, len(ops)
            feeding += into
            ops += [self._op(name, costs[name])] * cut.count
            parts += [CoreBlock(index, self._on_chip(name, r)) for r in self.cut[name].rectangles(cut)]
        edges: list[FlowEdge] = []
        for feed in feeding:
            self._add_edges(edges, *feed)
        self._host(ops, edges, costs)
        return BuiltNetwork(
            Network(tuple(ops), tuple(edges)),
            self.names,
            tuple(parts),
            tuple(costs[n] for n in self.names),
            tuple(self.diagnostics),
            tuple(self.tight),
        )

    def _refine(self) -> None:
        """More steps for readers of which one step takes so much of a buffer that they would take turns with their
        producer where really they work side by side."""
        names = self.names
        while names:
            coarse = []
            for name in names:
                if self.cut[name].finest:
                    continue
                for source, port, queued in self.feeds[name]:
                    if queued:
                        continue
                    edge = self._edge(source, name, port)
                    if edge.takes_turns(self.capacity_of(source, name, port)):
                        self.cut[name] = self._cut(name, 2 * len(self.cut[name].emit))
                        coarse.append(name)
                        break
            names = tuple(n for n in coarse if len(self.cut[n].emit) >= self.cut[n].asked)

    def _feeds(self, name: str) -> list[tuple[str, int, bool]]:
        """(producer, operand, queued) of the operands that are made while the op runs; queued: they come through a DRAM
        queue, which holds the whole batch."""
        temporal, where = self.temporal[name], self.costs[name].where
        return [
            (source, port, where[port] == DRAM)
            for port, source in enumerate(self.graph[name].sources)
            if self.temporal.get(source) == temporal
        ]

    def _on_chip(self, name: str, part: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        row, col, rows, cols = part
        placed = self.placement.ops[name]
        if placed.transposed:
            row, col, rows, cols = col, row, cols, rows
        return placed.start[0] + row, placed.start[1] + col, rows, cols

    def _cut(self, name: str, steps: int) -> CutOp:
        table, order = self.placement.models[name], self.orders[name]
        reads = read_order(self.graph, self.orders, name)
        return self.tile_orders.op(table, self.placement.ops[name].row, order, reads, steps, self.constants)

    def _edge(self, source: str, name: str, port: int) -> CutEdge:
        return self.tile_orders.edge(self.cut[source], self.cut[name], port)

    def _op(self, name: str, cost: OpCost) -> FlowOp:
        ready = cost.preload
        if ready < self.constants.dram_latency and (DRAM in cost.where or HOST in cost.where):
            ready = self.constants.dram_latency
        from_host = HOST in cost.where and cost.preload < ready
        return FlowOp(name, cost.cycles, self.cut[name].emit, ready, cost.kernel, from_host)

    def capacity_of(self, source: str, name: str, port: int) -> int:
        """Tiles per core of the producer that its output buffer and the reader's input buffer hold together."""
        taken = self.cut[name].input_tiles(port, self.factors.get(name, {}).get(port, 2))
        if name in self.placement.input_buffers:
            taken = max(taken, self.placement.input_buffers[name][port])
        return self._edge(source, name, port).capacity(taken)

    def _add_edges(
        self, edges: list[FlowEdge], source: str, name: str, port: int, queued: bool, between: CutEdge
    ) -> None:
        """The edges between the parts of two ops."""
        first, second, within = self.first[source], self.first[name], between.within
        capacity: int | None = None
        latency = 2 * self.constants.dram_latency
        if not queued:
            latency = self.constants.noc_latency
            capacity = self.capacity_of(source, name, port)
            if within > capacity:
                self._too_small(source, name, within, capacity)
                self.tight.append((self.number[source], self.number[name], port))
        for p, c, need, freed, room, constraints in between.parts(self.stripes[source], self.stripes[name], capacity):
            edges.append(FlowEdge(first + p, second + c, port, need, freed, room, latency, constraints))

    def _too_small(self, source: str, name: str, needed: int, capacity: int) -> None:
        self.diagnostics.append(
            Diagnostic(
                "error",
                name,
                "epoch-deadlock",
                f"{name} goes back {needed} tiles in what {source} packs, but only {capacity} tiles per core fit "
                "between them",
                f"an output buffer of {source} that holds them, a DRAM queue between the two, or an epoch break",
            )
        )

    def _host(self, ops: list[FlowOp], edges: list[FlowEdge], costs: dict[str, OpCost]) -> None:
        """The host as producer of input queues and reader of output queues, where it takes time."""
        if self.constants.host_input:
            for node in self.graph.inputs:
                self._pushes(node.name, ops, edges)
        if self.constants.host_output:
            for queue in self.placement.queues.values():
                if queue.kind == "output":
                    source = self.graph[queue.source].sources[0]
                    if costs[source].output in (HOST, DRAM):
                        self._pops(queue.name, source, queue.entries, ops, edges)

    def _pushes(self, name: str, ops: list[FlowOp], edges: list[FlowEdge]) -> None:
        """The host pushes one input after the other, ahead of the device by as many as the queue holds."""
        readers = [(n, port) for n in self.names for port, source in enumerate(self.graph[n].sources) if source == name]
        if not readers:
            return
        first = min(self.temporal[n] for n, _ in readers)
        entries = [q.entries for q in self.placement.queues.values() if q.source == name and q.kind == "input"]
        ops.append(FlowOp(f"host:{name}", self.constants.host_input, np.ones(1, dtype=np.int64), is_host=True))
        for reader, port in readers:
            if self.temporal[reader] == first:
                steps = len(self.cut[reader].emit)
                freed = np.zeros(steps, dtype=np.int64)
                freed[-1] = 1
                need = np.ones(steps, dtype=np.int64)
                for part in range(self.stripes[reader].count):
                    edges.append(
                        FlowEdge(len(ops) - 1, self.first[reader] + part, port, need, freed, max([1, *entries]))
                    )

    def _pops(self, queue: str, source: str, entries: int, ops: list[FlowOp], edges: list[FlowEdge]) -> None:
        """The host pops one result after the other."""
        whole = ops[self.first[source]].total
        everything = np.full(1, whole, dtype=np.int64)
        ops.append(FlowOp(f"host:{queue}", self.constants.host_output, np.ones(1, dtype=np.int64), is_host=True))
        for part in range(self.stripes[source].count):
            edges.append(FlowEdge(self.first[source] + part, len(ops) - 1, 0, everything, everything, entries * whole))
