"""A compile's placement as networks: one for all epochs, which do not influence each other within a batch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, NOC
from tbuda_lab.core.balancer.blocks import read_order, ublock_orders
from tbuda_lab.core.epochsim.costs import OpCost, op_costs
from tbuda_lab.core.epochsim.network import EpochConstants, FlowEdge, FlowOp, Network
from tbuda_lab.core.epochsim.tile_order import (
    Steps,
    Stripes,
    TileOrder,
    TileOrderCache,
    edge_walk,
    input_tiles,
    op_steps,
    part_flows,
    stripes,
)
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.lowering.edits import queued_ports

if TYPE_CHECKING:
    from tbuda_lab.core.balancer.types import OpModels
    from tbuda_lab.core.epochsim.costs import SimulatedCompile


@dataclasses.dataclass(frozen=True)
class CoreBlock:
    """A rectangle of an op's cores that go in step: the op's index in `Built.names`, and (row, column, rows, columns)
    on the chip's grid."""

    op: int
    cores: tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class Built:
    """The network. Its first ops are `parts`, op by op in the order of the epochs (`names`); the rest are the host's
    ends of queues. costs: of `names`. diagnostics: buffers too small for their one edge; tight: those edges, producer
    and reader by their index in `names`, and the operand."""

    network: Network
    names: tuple[str, ...]
    parts: tuple[CoreBlock, ...]
    costs: tuple[OpCost, ...]
    diagnostics: tuple[Diagnostic, ...]
    tight: tuple[tuple[int, int, int], ...] = ()


def build(result: SimulatedCompile, constants: EpochConstants, tile_orders: TileOrderCache | None = None) -> Built:
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
        self.tables = {name: self._row_of(name) for name in self.names}
        self.feeds = {name: self._feeds(name) for name in self.names}
        self.factors = self._input_factors()
        self.target_steps = dict.fromkeys(self.names, constants.steps)
        self._read_orders: dict[str, str] = {}
        self._keys: dict[tuple[str, str, int], tuple[object, ...]] = {}
        self._steps: dict[str, Steps] = {}
        self._capacities: dict[tuple[str, str, int], int] = {}
        self.stripes: dict[str, Stripes] = {}
        self.first: dict[str, int] = {}  # number of an op's first part
        self.diagnostics: list[Diagnostic] = []
        self.tight: list[tuple[int, int, int]] = []

    def run(self) -> Built:
        """The network of all epochs: ops cut into parts that work alike, and the edges between these."""
        costs = op_costs(self.result, self.tile_orders.moves, self.tile_orders.users(self.graph))
        self._refine()
        ops: list[FlowOp] = []
        parts: list[CoreBlock] = []
        for index, name in enumerate(self.names):
            grid = self._grid(name)
            self.stripes[name] = self._stripes(name, grid)
            self.first[name] = len(ops)
            ops += [self._op(name, costs[name])] * self.stripes[name].count
            parts += [CoreBlock(index, self._on_chip(name, r)) for r in self.stripes[name].rectangles(grid)]
        edges: list[FlowEdge] = []
        for name in self.names:
            for source, port in self.feeds[name]:
                edges += self._edges(source, name, port)
        self._host(ops, edges, costs)
        return Built(
            Network(tuple(ops), tuple(edges)),
            self.names,
            tuple(parts),
            tuple(costs[n] for n in self.names),
            tuple(self.diagnostics),
            tuple(self.tight),
        )

    def _refine(self) -> None:
        """More steps for readers of which one step takes so much of a buffer that neither the next block nor what the
        next step takes would find room: they would take turns with their producer where really they work side by
        side."""
        names: tuple[str, ...] = self.names
        while names:
            coarse = []
            for name in names:
                steps = self._steps_of(name)
                if steps.count >= min(self.constants.max_steps, steps.blocks * steps.parts):
                    continue
                for source, port in self.feeds[name]:
                    if self._queued(source, name, port):
                        continue
                    walk, producer = self._walk(source, name, port), self._steps_of(source)
                    largest = int(np.diff(producer.emit, prepend=0).max())
                    if max(walk.step, largest) + walk.step > self.capacity_of(source, name, port):
                        self.target_steps[name] = 2 * steps.count
                        for known in (self._keys, self._steps, self._capacities):
                            known.clear()
                        coarse.append(name)
                        break
            names = tuple(n for n in coarse if self._steps_of(n).count >= self.target_steps[n])

    def _feeds(self, name: str) -> list[tuple[str, int]]:
        """(producer, operand) of the operands that are made while the op runs."""
        return [
            (source, port)
            for port, source in enumerate(self.graph[name].sources)
            if source in self.number and self.temporal[source] == self.temporal[name]
        ]

    def _queued(self, source: str, name: str, port: int) -> bool:
        """Whether an operand comes through a DRAM queue, which holds the whole batch."""
        apart = self.placement.ops[source].epoch != self.placement.ops[name].epoch
        return apart or port in queued_ports(self.graph[name])

    def _grid(self, name: str) -> tuple[int, int]:
        row = self.tables[name][2]
        return int(row["grid_r"]), int(row["grid_c"])

    def _on_chip(self, name: str, part: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        row, col, rows, cols = part
        placed = self.placement.ops[name]
        if placed.transposed:
            row, col, rows, cols = col, row, cols, rows
        return placed.start[0] + row, placed.start[1] + col, rows, cols

    def _input_factors(self) -> dict[tuple[str, int], int]:
        """Multipliers of input buffers that the user asked for, by op and operand."""
        factors: dict[tuple[str, int], int] = {}
        for record in self.result.overrides:
            if record.kind == "input_buffer_multiplier" and isinstance(record.value, dict):
                for name in record.matches(self.names):
                    factors |= {(name, int(port)): int(factor) for port, factor in record.value.items()}
        return factors

    def _row_of(self, name: str) -> tuple[OpModels, int, np.void]:
        table, at = self.placement.models[name], self.placement.ops[name].row
        return table, at, table.rows[at]

    def _steps_of(self, name: str) -> Steps:
        entry = self._steps.get(name)
        if entry is None:
            entry = self._steps[name] = self._made_steps(name)
        return entry

    def _made_steps(self, name: str) -> Steps:
        table, at, row = self.tables[name]
        key = (table.signature, at, self.orders[name], self.target_steps[name])
        if key not in self.tile_orders.steps:
            assert table.profile is not None
            self.tile_orders.steps[key] = op_steps(
                table.profile, row, self.orders[name], self.target_steps[name], self.constants.max_steps
            )
        return self.tile_orders.steps[key]

    def _stripes(self, name: str, grid: tuple[int, int]) -> Stripes:
        """The groups of an op's cores that do not go in step."""
        feeds = self.feeds[name]
        key = (grid, *(self._key(source, name, port) for source, port in feeds))
        entry = self.tile_orders.stripes.get(key)
        if entry is None:
            walks = [(self._walk(source, name, port), self._steps_of(source)) for source, port in feeds]
            entry = self.tile_orders.stripes[key] = stripes(walks, grid, self.constants.parts)
        return entry

    def _op(self, name: str, cost: OpCost) -> FlowOp:
        streamed = any(place != NOC for place in cost.where)
        ready = max(cost.preload, self.constants.dram_latency if streamed else 0)
        from_host = HOST in cost.where and cost.preload < ready
        return FlowOp(name, cost.cycles, self._steps_of(name).emit, ready, cost.kernel, from_host)

    def _key(self, source: str, name: str, port: int) -> tuple[object, ...]:
        """All that decides how tiles go over an edge."""
        entry = self._keys.get((source, name, port))
        if entry is None:
            entry = self._keys[source, name, port] = self._made_key(source, name, port)
        return entry

    def _made_key(self, source: str, name: str, port: int) -> tuple[object, ...]:
        p_table, p_at, _ = self.tables[source]
        c_table, c_at, _ = self.tables[name]
        return (
            p_table.signature,
            p_at,
            self.orders[source],
            self.target_steps[source],
            c_table.signature,
            c_at,
            port,
            self.orders[name],
            self._read_order(name),
            self.target_steps[name],
        )

    def _read_order(self, name: str) -> str:
        entry = self._read_orders.get(name)
        if entry is None:
            entry = self._read_orders[name] = read_order(self.graph, self.orders, name)
        return entry

    def _walk(self, source: str, name: str, port: int) -> TileOrder:
        key = self._key(source, name, port)
        entry = self.tile_orders.walks.get(key)
        if entry is None:
            p_table, _, p = self.tables[source]
            c_table, _, c = self.tables[name]
            assert p_table.profile is not None and c_table.profile is not None
            walk = edge_walk(
                p_table.profile,
                p,
                self.orders[source],
                self._steps_of(source),
                c_table.profile,
                port,
                c,
                self._read_order(name),
                self._steps_of(name),
            )
            entry = self.tile_orders.keep(key, walk)
        return entry

    def capacity_of(self, source: str, name: str, port: int) -> int:
        """Tiles per core of the producer that its output buffer and the reader's input buffer hold together."""
        entry = self._capacities.get((source, name, port))
        if entry is None:
            entry = self._capacities[source, name, port] = self._made_capacity(source, name, port)
        return entry

    def _made_capacity(self, source: str, name: str, port: int) -> int:
        table, at, row = self.tables[name]
        walk, factor = self._walk(source, name, port), self.factors.get((name, port), 2)
        key = table.signature, at, port, factor
        taken = self.tile_orders.buffers.get(key)
        if taken is None:
            assert table.profile is not None
            taken = self.tile_orders.buffers[key] = input_tiles(table.profile, port, row, factor)
        if name in self.placement.input_buffers:
            taken = max(taken, self.placement.input_buffers[name][port])
        out = int(self.tables[source][2]["buf_size_mb"]) * self._steps_of(source).tiles
        return out + taken * walk.total // max(1, walk.length)

    def _edges(self, source: str, name: str, port: int) -> list[FlowEdge]:
        walk, steps = self._walk(source, name, port), self._steps_of(source)
        p_stripes, c_stripes = self.stripes[source], self.stripes[name]
        key = (*self._key(source, name, port), p_stripes, c_stripes)
        parts = self.tile_orders.flows.get(key)
        if parts is None:
            grids = self._grid(source), self._grid(name)
            parts = self.tile_orders.flows[key] = part_flows(walk, steps, grids[0], p_stripes, grids[1], c_stripes)
        queued = self._queued(source, name, port)
        capacity_tiles = self.capacity_of(source, name, port)
        if not queued and walk.within > capacity_tiles:
            self._too_small(source, name, walk.within, capacity_tiles)
            self.tight.append((self.number[source], self.number[name], port))
        edges: list[FlowEdge] = []
        for flow in parts:
            first, second = self.first[source] + flow.producer, self.first[name] + flow.consumer
            if queued:
                latency, capacity = 2 * self.constants.dram_latency, None
            else:
                latency = self.constants.noc_latency
                # steps are coarser than what really passes the buffer: room for what one step takes at once
                capacity = capacity_tiles if walk.within > capacity_tiles else max(capacity_tiles, flow.coarse)
            edges.append(FlowEdge(first, second, port, flow.need, flow.freed, capacity, latency, flow.waits))
        return edges

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
                steps = self._steps_of(reader).count
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
            edges.append(
                FlowEdge(self.first[source] + part, len(ops) - 1, 0, everything, everything, entries * whole)
            )
