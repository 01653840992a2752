"""Legality and cost of one edge for a choice of candidates at both ends (placement.md#edges)."""

from __future__ import annotations

import dataclasses
import operator
from enum import Enum

import numpy as np

from tbuda_lab.core.balancer.layout import BufferReads
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.balancer.streaming import edge_tms, stored_shape
from tbuda_lab.core.balancer.types import CANDIDATE
from tbuda_lab.core.device import StreamLimits
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
    """What an edge takes of the limited resources of its end cores (worst core)."""

    reason: EdgeReason
    fan_out: int = 0
    fan_in: int = 0
    producer_phases: int = 0
    consumer_phases: int = 0


def refusal(rule: RouteRule) -> EdgeReason:
    """The reason for a rule of stacks that the router has."""
    return EdgeReason[rule.name] if rule else EdgeReason.LEGAL


def _primary(row: np.void) -> str:
    return str(row["stream"])[:1]


def stream_verdict(producer: OpProfile, p: np.void, consumer: OpProfile, port: int, c: np.void) -> EdgeReason:
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
    p: np.void,
    p_order: str,
    consumer: OpProfile,
    port: int,
    c: np.void,
    c_order: str,
    *,
    from_queue: bool = False,
    reads: BufferReads | None = None,
) -> EdgeCost:
    """Streams and phases of the pipe between two candidates, by walking the reader's tiles back to the producer.

    `from_queue`: the producer's stored form lies in a DRAM queue; then tiles may be read in any order, and `fan_in` is
    the number of DRAM buffers one reading core takes from. `reads`: keeps them between calls.
    """
    tms = edge_tms(producer, p, consumer, port, c)
    shape = stored_shape(producer, p)
    # phases repeat from t to t, so one t of the reader is enough for them; order needs all t of a streaming producer,
    # and so does the number of DRAM buffers that a core reads
    every = int(p["t"]) > 1 and not from_queue
    t = None if every or from_queue else 1
    reads = BufferReads() if reads is None else reads
    core, address = reads.buffers(p, p_order, shape).find(reads.of(tms, shape, consumer, port, c, c_order, t))
    block = int(p["mblock_m"]) * int(p["mblock_n"]) * int(p["ublock_r"]) * int(p["ublock_c"])
    cores = int(p["cores"])
    readers = len(core)
    link = np.zeros((cores + 1, readers), dtype=bool)
    link[core, np.arange(readers)[:, None]] = True
    link = link[:cores]
    fan_out, fan_in = int(link.sum(axis=1).max()), int(link.sum(axis=0).max())
    if from_queue:
        reason = EdgeReason.DRAM_QUEUES if fan_in > MAX_DRAM_IN_QUEUES else EdgeReason.LEGAL
        return EdgeCost(reason, 1, fan_in)
    if every:
        slot = address // block
        behind = int((np.maximum.accumulate(slot, axis=1) - slot).max())
        if behind + 1 > max(1, int(p["buf_size_mb"])):
            return EdgeCost(EdgeReason.BUFFERING, fan_out, fan_in)
        per_t = core.shape[1] // max(1, int(c["t"]) * consumer.z_group) if consumer.kind != "sparse_matmul" else 0
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


_PRODUCER_FIELDS = (
    "grid_r",
    "grid_c",
    "stream",
    "stream_r",
    "stream_c",
    "mblock_m",
    "mblock_n",
    "ublock_r",
    "ublock_c",
    "buf_size_mb",
)
_CONSUMER_FIELDS = (
    "grid_r",
    "grid_c",
    "stream",
    "stream_r",
    "stream_c",
    "mblock_m",
    "mblock_n",
    "ublock_r",
    "ublock_c",
    "u_kt",
)

_producer_facts = operator.itemgetter(*((CANDIDATE.names or ()).index(f) for f in _PRODUCER_FIELDS))
_consumer_facts = operator.itemgetter(*((CANDIDATE.names or ()).index(f) for f in _CONSUMER_FIELDS))


class EdgeCache:
    """Verdicts by (producer layout, TMs, consumer layout): identical layers ask the same questions. reads: operands
    that were followed back for them."""

    def __init__(self) -> None:
        self._costs_by_key: dict[tuple[object, ...], EdgeCost] = {}
        self.reads = BufferReads()

    def cost(
        self,
        producer: OpProfile,
        p: np.void,
        p_order: str,
        consumer: OpProfile,
        port: int,
        c: np.void,
        c_order: str,
        *,
        from_queue: bool = False,
    ) -> EdgeCost:
        """What an edge takes, once for equal ones. p, c: a candidate of the producer and one of the reader; p_order,
        c_order: in which order they write and read their ublocks ("r" or "c"); from_queue: the operand comes through
        DRAM."""
        key = (
            producer.out,
            producer.kind,
            _producer_facts(p.item()),
            p_order,
            consumer.kind,
            consumer.op,
            consumer.inner,
            consumer.out,
            consumer.operands[port],
            port,
            _consumer_facts(c.item()),
            c_order,
            from_queue,
        )
        cost = self._costs_by_key.get(key)
        if cost is None:
            verdict = EdgeReason.LEGAL if from_queue else stream_verdict(producer, p, consumer, port, c)
            if verdict is EdgeReason.LEGAL:
                cost = pipe(producer, p, p_order, consumer, port, c, c_order, from_queue=from_queue, reads=self.reads)
            else:
                cost = EdgeCost(verdict)
            self._costs_by_key[key] = cost
        return cost
