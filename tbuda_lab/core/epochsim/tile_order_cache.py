"""Candidates cut into steps and the edges between them, worked out once for all networks that they stand in."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.balancer.layout import BufferReads
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.epochsim.costs import RowMoves
from tbuda_lab.core.epochsim.network import EdgeConstraints, EpochConstants
from tbuda_lab.core.epochsim.tile_order import (
    CutOp,
    Steps,
    Stripes,
    TileFlow,
    TileOrder,
    edge_walk,
    op_steps,
    part_flows,
    stripes,
)
from tbuda_lab.core.graph import Graph


class PartEdge(NamedTuple):
    """An edge between two parts of ops that is a network's edge but for the numbers of these: `FlowEdge`."""

    producer: int
    consumer: int
    need: np.ndarray
    frees: np.ndarray
    capacity: int | None
    constraints: EdgeConstraints


class CutEdge:
    """An operand of one cut op that another one makes, and the order in which its tiles go over, one object for all
    networks. within: see `TileOrder`."""

    __slots__ = (
        "_flows",
        "_parts",
        "consumer",
        "length",
        "output_tiles",
        "producer",
        "total",
        "turn",
        "walk",
        "within",
    )

    def __init__(self, producer: CutOp, consumer: CutOp, walk: TileOrder) -> None:
        self.producer, self.consumer, self.walk = producer, consumer, walk
        self.total, self.length, self.within = walk.total, max(1, walk.length), walk.within
        self.output_tiles = producer.output_tiles
        self.turn = max(walk.step, producer.most_at_once) + walk.step
        self._flows: dict[tuple[tuple[int, ...], ...], list[TileFlow]] = {}
        self._parts: dict[tuple[object, ...], list[PartEdge]] = {}

    def capacity(self, input_tiles: int) -> int:
        """Tiles per core of the producer that its output buffer and an input buffer of the reader hold together."""
        return self.output_tiles + input_tiles * self.total // self.length

    def takes_turns(self, capacity: int) -> bool:
        """Whether one step of the reader takes so much that neither the next block nor what the next step takes finds
        room beside it."""
        return self.turn > capacity

    def parts(self, p_stripes: Stripes, c_stripes: Stripes, capacity: int | None) -> list[PartEdge]:
        """The edges between the parts of both. capacity: of the buffers between them, None for a queue in DRAM."""
        cut = p_stripes.rows, p_stripes.cols, c_stripes.rows, c_stripes.cols
        key = cut, capacity
        entry = self._parts.get(key)
        if entry is None:
            flows = self._flows.get(cut)
            if flows is None:
                flows = part_flows(self.walk, self.producer, p_stripes, self.consumer, c_stripes)
                self._flows[cut] = flows
            entry = self._parts[key] = [self._part(flow, capacity) for flow in flows]
        return entry

    def _part(self, flow: TileFlow, capacity: int | None) -> PartEdge:
        if capacity is not None and self.within <= capacity:
            # steps are coarser than what really passes the buffer: room for what one step takes at once
            capacity = max(capacity, flow.coarse)
        need, freed, waits = flow.need, flow.frees, flow.waits
        return PartEdge(flow.producer, flow.consumer, need, freed, capacity, waits.constraints(capacity))


_GRAPHS = 32
"""Whose readers are kept: the trials that are simulated side by side have a graph each."""
_MOST_BYTES = 192 << 20
"""Of tile orders in one cache: they are as long as tensors."""


@dataclasses.dataclass
class TileOrderCache:
    """Steps of ops, ops cut into them, edges, stripes, by all that decides them (never by name): the next network of
    the same ops takes them from here. It belongs to one set of `EpochConstants`. Beyond `_MOST_BYTES` all edges but the
    last are forgotten. reads: operands followed back to what their producer stored. moves: bytes of single candidates,
    of one device (`costs.op_costs`)."""

    reads: BufferReads = dataclasses.field(default_factory=BufferReads)
    steps: dict[tuple[object, ...], Steps] = dataclasses.field(default_factory=dict)
    moves: dict[tuple[str, int], RowMoves] = dataclasses.field(default_factory=dict)
    bytes_used: int = 0
    _ops: dict[tuple[str, int, str, str, int], CutOp] = dataclasses.field(default_factory=dict)
    _edges: dict[tuple[CutOp, CutOp, int], CutEdge] = dataclasses.field(default_factory=dict)
    _stripes: dict[tuple[tuple[CutEdge, Stripes], ...], Stripes] = dataclasses.field(default_factory=dict)
    _users: dict[int, tuple[Graph, dict[str, list[tuple[str, int]]]]] = dataclasses.field(default_factory=dict)

    def op(self, table: OpModels, at: int, order: str, read_order: str, asked: int, constants: EpochConstants) -> CutOp:
        """The candidate in row `at` of a table, cut into `asked` steps or more where it has so many."""
        key = table.signature, at, order, read_order, asked
        entry = self._ops.get(key)
        if entry is None:
            assert table.profile is not None
            row, steps_key = table.rows[at], (table.signature, at, order, asked)
            if steps_key not in self.steps:
                self.steps[steps_key] = op_steps(table.profile, row, order, asked, constants.max_steps)
            most, steps = constants.max_steps, self.steps[steps_key]
            entry = self._ops[key] = CutOp(table.profile, row, order, read_order, asked, most, steps)
        return entry

    def edge(self, producer: CutOp, consumer: CutOp, port: int) -> CutEdge:
        """What goes from one to the other as its operand `port`."""
        key = producer, consumer, port
        entry = self._edges.get(key)
        if entry is None:
            walk = edge_walk(producer, consumer, port, self.reads)
            size = walk.core.nbytes + walk.address.nbytes
            if self.bytes_used + size > _MOST_BYTES:
                self._edges.clear()
                self._stripes.clear()
                self.bytes_used = 0
            self.bytes_used += size
            entry = self._edges[key] = CutEdge(producer, consumer, walk)
        return entry

    def stripes(self, feeds: tuple[tuple[CutEdge, Stripes], ...], constants: EpochConstants) -> Stripes:
        """The groups of cores that do not go in step of an op with these operands, each with the groups of its
        producer."""
        if not feeds:
            return Stripes()
        entry = self._stripes.get(feeds)
        if entry is None:
            walks = [
                (edge.walk, edge.producer.steps, cut.part_of(edge.producer.grid).reshape(-1)) for edge, cut in feeds
            ]
            entry = self._stripes[feeds] = stripes(walks, feeds[0][0].consumer.grid, constants.parts)
        return entry

    def users(self, graph: Graph) -> dict[str, list[tuple[str, int]]]:
        """`Graph.users` of a graph that nobody changes any more; kept for the last few that were asked for."""
        entry = self._users.get(id(graph))
        return self.keep_users(graph, graph.users() if entry is None else entry[1])

    def keep_users(self, graph: Graph, users: dict[str, list[tuple[str, int]]]) -> dict[str, list[tuple[str, int]]]:
        """Notes the readers of a graph."""
        self._users.pop(id(graph), None)
        self._users[id(graph)] = graph, users
        if len(self._users) > _GRAPHS:
            del self._users[next(iter(self._users))]
        return users
