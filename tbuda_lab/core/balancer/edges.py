"""Legality and cost of one edge for a choice of candidates at both ends (placement.md#edges)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.balancer.layout import BufferRead, BufferReads, Buffers, Walk, read_walk
from tbuda_lab.core.balancer.profile import Candidate, OpProfile
from tbuda_lab.core.balancer.routes import Routes, RouteTable
from tbuda_lab.core.balancer.streaming import edge_tms, stored_shape
from tbuda_lab.core.balancer.types import CANDIDATE, OpModels
from tbuda_lab.core.device import StreamLimits
from tbuda_lab.core.graph import TM, TileShape
from tbuda_lab.core.netlist.routing.rules import RouteRule

LIMITS = StreamLimits()
MAX_FAN_OUT_STREAMS = LIMITS.fan_out_streams
MAX_DRAM_IN_QUEUES = LIMITS.dram_in_queues
MAX_USERS = LIMITS.dram_out_queues
MAX_PHASES = LIMITS.phases
MAX_PREFETCH_STREAMS = LIMITS.prologue_streams


class EdgeReason(Enum):
    """Why two candidates may not be joined by a pipe within one epoch."""

    LEGAL = "legal"
    STREAM_CONSUMER = "the reader's t-streaming does not match the producer's"
    STREAM_DIRECTION = "producer and reader stream along different dimensions"
    STREAM_BROADCAST = "a t-streaming producer cannot be broadcast to its reader"
    STREAM_TRANSPOSE = "a t-streaming producer cannot be transposed on the way"
    STREAM_MATMUL_SIDE = "a matmul that streams rows cannot take streamed columns on its second operand (or the mirror)"
    STREAM_DIVISIBILITY = "stream factors and grid do not divide either way"
    STREAM_CONV_HANG = "a sparse matmul that does not stream cannot feed a matmul that does"
    BUFFERING = "the reader goes back further than the producer's output buffer reaches"
    FAN_OUT = f"a producer core would need more than {MAX_FAN_OUT_STREAMS} output streams"
    PHASES = f"a stream would need more than {MAX_PHASES} phases"
    DRAM_QUEUES = f"a core would read more than {MAX_DRAM_IN_QUEUES} DRAM buffers"
    USERS = f"an op has more than {MAX_USERS} readers"
    STACK_TM_ORDER = RouteRule.STACK_TM_ORDER.text
    STACK_SLICE = RouteRule.STACK_SLICE.text
    STACK_SLICE_OUTER = RouteRule.STACK_SLICE_OUTER.text
    STACK_BUF = RouteRule.STACK_BUF.text
    STACK_BUF_OUTER = RouteRule.STACK_BUF_OUTER.text
    STACK_PAD = RouteRule.STACK_PAD.text
    STACK_GRID = RouteRule.STACK_GRID.text
    STACK_MBLOCK = RouteRule.STACK_MBLOCK.text
    STACK_UBLOCK = RouteRule.STACK_UBLOCK.text
    STACK_IN_UBLOCK = RouteRule.STACK_IN_UBLOCK.text
    STACK_SCAN = RouteRule.STACK_SCAN.text
    STACK_SCAN_ROW = RouteRule.STACK_SCAN_ROW.text
    STACK_SCAN_COL = RouteRule.STACK_SCAN_COL.text
    UNFED_CORE = RouteRule.UNFED_CORE.text


@dataclasses.dataclass(frozen=True)
class EdgeCost:
    """What an edge takes of the limited resources of its end cores (worst core). verdict: `EdgeReason.LEGAL`, why it is
    refused, or what tells why where that is not yet worked out."""

    verdict: EdgeReason | Callable[[], EdgeReason]
    fan_out: int = 0
    fan_in: int = 0
    producer_phases: int = 0
    consumer_phases: int = 0

    @property
    def reason(self) -> EdgeReason:
        """Why the edge is refused, `EdgeReason.LEGAL` where it is not."""
        return self.verdict if isinstance(self.verdict, EdgeReason) else self.verdict()


def refusal(rule: RouteRule, otherwise: EdgeReason = EdgeReason.LEGAL) -> EdgeReason:
    """The reason for a rule of stacks that the router has. otherwise: where none is broken."""
    return EdgeReason[rule.name] if rule else otherwise


def _primary(row: Candidate) -> str:
    return str(row["stream"])[:1]


def stream_verdict(producer: OpProfile, p: Candidate, consumer: OpProfile, port: int, c: Candidate) -> EdgeReason:
    """The t-streaming rules that need no walk over tiles."""
    ps, cs = str(p["stream"]), str(c["stream"])
    if not ps and not cs:
        return EdgeReason.LEGAL
    operand = consumer.operands[port]
    stacked = producer.kind == "sparse_matmul" and producer.out[0] > 1 and any(t.name == "hstack" for t in operand.tms)
    if producer.kind == "sparse_matmul" and not ps and consumer.kind == "matmul":
        return EdgeReason.STREAM_CONV_HANG
    if ps:
        if any(tm.name == "broadcast" for tm in operand.tms):
            return EdgeReason.STREAM_BROADCAST
        if any(tm.name == "transpose" for tm in operand.tms):
            return EdgeReason.STREAM_TRANSPOSE
    if not ps:
        return EdgeReason.STREAM_CONSUMER if stacked else EdgeReason.LEGAL
    if not cs:
        return EdgeReason.STREAM_CONSUMER if ps == "rz" else EdgeReason.LEGAL
    if consumer.kind == "sparse_matmul":
        # the reader walks the whole activations for each of its t
        return EdgeReason.STREAM_CONSUMER if ps == "rz" else EdgeReason.LEGAL
    if _primary(p) != _primary(c):
        return EdgeReason.STREAM_DIRECTION
    if int(p["stream_r"]) != int(c["stream_r"]) or int(p["stream_c"]) != int(c["stream_c"]):
        return EdgeReason.STREAM_CONSUMER
    if stacked and ps != "rz":
        return EdgeReason.STREAM_CONSUMER
    if ps == "rz" and not stacked and producer.out[0] > 1:
        return EdgeReason.STREAM_CONSUMER
    if (operand.role == "in1" and _primary(c) == "r") or (operand.role == "in0" and _primary(c) == "c"):
        return EdgeReason.STREAM_MATMUL_SIDE
    return EdgeReason.LEGAL


def _runs(change: np.ndarray) -> np.ndarray:
    """Number of runs per line, given where neighbours differ."""
    runs: np.ndarray = change.sum(axis=1) + 1
    return runs


def pipe(
    producer: OpProfile,
    p: Candidate,
    p_order: str,
    consumer: OpProfile,
    port: int,
    c: Candidate,
    c_order: str,
    *,
    from_queue: bool = False,
    reads: BufferReads | None = None,
) -> EdgeCost:
    """Streams and phases of the pipe between two candidates, by walking the reader's tiles back to the producer.

    `from_queue`: the producer's stored form lies in a DRAM queue; then tiles may be read in any order, and `fan_in` is
    the number of DRAM buffers one reading core takes from. `reads`: keeps them between calls.
    """
    reads = BufferReads() if reads is None else reads
    stored = stored_shape(producer, p)
    read = reads.of(edge_tms(producer, p, consumer, port, c), stored, _walk(p, consumer, port, c, c_order, from_queue))
    return _pipe_cost(p, reads.buffers(p, p_order, stored), read, _slices(consumer, c), from_queue)


def _walk(p: Candidate, consumer: OpProfile, port: int, c: Candidate, c_order: str, from_queue: bool) -> Walk:
    """As many of the reader's tiles as tell what the pipe takes. Phases repeat from t to t, so one t of the reader is
    enough for them. Order needs all t of a streaming producer, and so does the number of DRAM buffers that a core
    reads."""
    return read_walk(consumer, port, c, c_order, None if from_queue or int(p["t"]) > 1 else 1)


def _slices(consumer: OpProfile, c: Candidate) -> int:
    """In how many slices a reader takes all of its operand; 0 for one that reads all of it for each of its t."""
    return 0 if consumer.kind == "sparse_matmul" else max(1, int(c["t"]) * consumer.z_group)


def _pipe_cost(p: Candidate, buffers: Buffers, read: BufferRead, slices: int, from_queue: bool) -> EdgeCost:
    """What the pipe of these reads takes. buffers: of the producer."""
    core, address = buffers.find(read)
    cores = int(p["cores"])
    readers = len(core)
    link = np.zeros((cores + 1, readers), dtype=bool)
    link[core, np.arange(readers)[:, None]] = True
    link = link[:cores]
    fan_out, fan_in = int(link.sum(axis=1).max()), int(link.sum(axis=0).max())
    if from_queue:
        reason = EdgeReason.DRAM_QUEUES if fan_in > MAX_DRAM_IN_QUEUES else EdgeReason.LEGAL
        return EdgeCost(reason, 1, fan_in)
    if int(p["t"]) > 1:
        slot = address // buffers.slot
        behind = int((np.maximum.accumulate(slot, axis=1) - slot).max())
        if behind + 1 > max(1, int(p["buf_size_mb"])):
            return EdgeCost(EdgeReason.BUFFERING, fan_out, fan_in)
        per_t = core.shape[1] // slices if slices else 0
        if per_t and not behind:  # a walk that goes back to a block is not taken to repeat (placement.md#edges)
            core, address = core[:, :per_t], address[:, :per_t]
    moved = core[:, 1:] != core[:, :-1]
    repeat = min(2, max(1, int(p["buf_size_mb"])))
    consumer_phases = int(_runs(moved).max()) * repeat if core.shape[1] > 1 else repeat
    broken = moved | (address[:, 1:] != address[:, :-1] + 1)
    starts = np.concatenate([np.ones((readers, 1), dtype=bool), broken], axis=1)
    per_core = np.bincount(core[starts & (core >= 0)], minlength=cores)
    producer_phases = int(per_core.max()) * repeat
    reason = EdgeReason.LEGAL
    if fan_out > MAX_FAN_OUT_STREAMS:
        reason = EdgeReason.FAN_OUT
    elif consumer_phases > MAX_PHASES or producer_phases > MAX_PHASES:
        reason = EdgeReason.PHASES
    return EdgeCost(reason, fan_out, fan_in, producer_phases, consumer_phases)


class _Row(NamedTuple):
    """A candidate as Python's numbers; its streaming; and what else of it counts for a pipe that it gives, see
    `_buffer`."""

    fields: Candidate
    streaming: tuple[object, ...]
    buffer: tuple[int, ...]


_STREAMING = ("stream", "stream_r", "stream_c")


def _buffer(row: Candidate) -> tuple[int, ...]:
    """What says where the tiles of a producer lie and when they are gone, the same where that is the same."""
    m, n, u, v = (row[name] for name in ("mblock_m", "mblock_n", "ublock_r", "ublock_c"))
    if n == 1:
        m, u = 1, m * u  # ublocks on top of each other are as one
    elif m == u == 1:
        n, v = 1, n * v
    size = row["buf_size_mb"] if row["t"] > 1 else min(2, row["buf_size_mb"])
    return row["grid_r"], row["grid_c"], row["cores"], row["t"], m, n, u, v, size


class EdgeCache:
    """Edges of all operands that are asked for. What a pipe takes is worked out once for equal ones: other candidates
    may be laid out and read alike. routes: the router's rules."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.reads = BufferReads()
        self.pipes: dict[tuple[object, ...], EdgeCost] = {}
        self._operands: dict[tuple[object, ...], OperandEdges] = {}
        self._rows: dict[tuple[str, int], _Row] = {}
        self._numbers: dict[tuple[tuple[TM, ...], TileShape], int] = {}

    def operand(
        self,
        producer: OpModels,
        p_order: str,
        consumer: OpModels,
        port: int,
        order: str,
        c_order: str,
        *,
        from_queue: bool = False,
    ) -> OperandEdges:
        """The edges of an operand of `consumer` that `producer` gives. p_order, order: in which order the two write
        their ublocks ("r" or "c"); c_order: in which the reader reads them; from_queue: the operand comes through DRAM.
        """
        key = producer.signature, p_order, consumer.signature, port, order, c_order, from_queue
        entry = self._operands.get(key)
        if entry is None:
            routes = self.routes.table(producer, consumer, port, order)
            entry = OperandEdges(self, producer, p_order, consumer, port, c_order, routes, from_queue)
            self._operands[key] = entry
        return entry

    def row(self, table: OpModels, row: int) -> _Row:
        """A candidate of a table."""
        key = table.signature, row
        entry = self._rows.get(key)
        if entry is None:
            fields = dict(zip(CANDIDATE.names or (), table.rows[row].item(), strict=True))
            streaming = tuple([fields[name] for name in _STREAMING])
            entry = self._rows[key] = _Row(fields, streaming, _buffer(fields))
        return entry

    def number(self, tms: tuple[TM, ...], stored: TileShape) -> int:
        """Of TMs and what they are applied to, equal for equal ones."""
        return self._numbers.setdefault((tms, stored), len(self._numbers))


@dataclasses.dataclass(frozen=True)
class _Streaming:
    """What the streaming of both ends says of their edge. number: of the TMs and what the producer stores."""

    verdict: EdgeReason
    tms: tuple[TM, ...]
    tile_shape: TileShape
    number: int


class OperandEdges:
    """The edges of one operand between all candidates of its producer and of its reader, each worked out when it is
    first asked for; see `EdgeCache.operand`."""

    def __init__(
        self,
        cache: EdgeCache,
        producer: OpModels,
        p_order: str,
        consumer: OpModels,
        port: int,
        c_order: str,
        routes: RouteTable,
        from_queue: bool,
    ) -> None:
        assert producer.profile is not None and consumer.profile is not None
        self._cache, self._producer, self._consumer = cache, producer, consumer
        self._profiles = producer.profile, consumer.profile
        self._orders = p_order, c_order
        self._port, self._routes, self._from_queue = port, routes, from_queue
        self._costs: dict[tuple[int, int], EdgeCost] = {}
        self._reads: dict[tuple[int, bool], tuple[Walk, int]] = {}
        self._streamings: dict[tuple[object, ...], _Streaming] = {}

    def cost(self, p_row: int, c_row: int) -> EdgeCost:
        """What the edge between a candidate of the producer and one of the reader takes, or why they do not go
        together."""
        key = p_row, c_row
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = self._work_out(p_row, c_row)
        return cost

    def _work_out(self, p_row: int, c_row: int) -> EdgeCost:
        p, c = self._cache.row(self._producer, p_row), self._cache.row(self._consumer, c_row)
        streaming = self._streamings.get((p.streaming, c.streaming))
        if streaming is None:
            streaming = self._streamings[p.streaming, c.streaming] = self._streaming(p.fields, c.fields)
        if not self._from_queue:
            if streaming.verdict is not EdgeReason.LEGAL:  # the rules of stacks come first, but take longer
                return EdgeCost(lambda: refusal(self._routes.rule(p_row, c_row), streaming.verdict))
            rule = self._routes.rule(p_row, c_row)
            if rule:
                return EdgeCost(refusal(rule))
        reader = c_row, p.fields["t"] > 1
        reads = self._reads.get(reader)
        if reads is None:
            consumer, c_order = self._profiles[1], self._orders[1]
            walk = _walk(p.fields, consumer, self._port, c.fields, c_order, self._from_queue)
            reads = self._reads[reader] = walk, _slices(consumer, c.fields)
        p_order = self._orders[0]
        key = streaming.number, *reads, p_order, self._from_queue, p.buffer
        cost = self._cache.pipes.get(key)
        if cost is None:
            read = self._cache.reads.of(streaming.tms, streaming.tile_shape, reads[0])
            buffers = self._cache.reads.buffers(p.fields, p_order, streaming.tile_shape)
            cost = self._cache.pipes[key] = _pipe_cost(p.fields, buffers, read, reads[1], self._from_queue)
        return cost

    def _streaming(self, p: Candidate, c: Candidate) -> _Streaming:
        producer, consumer = self._profiles
        tms, stored = edge_tms(producer, p, consumer, self._port, c), stored_shape(producer, p)
        verdict = stream_verdict(producer, p, consumer, self._port, c)
        return _Streaming(verdict, tms, stored, self._cache.number(tms, stored))
