"""The names of the router's rules and what each demands, in one sentence; routing.md#rules-of-one-op and the sections
after it have the formulas."""

from __future__ import annotations

from enum import IntEnum


class RouteRule(IntEnum):
    """Why the hardware's own tools refuse an edge or an op (0: they take it). The numbers order reports: what the
    parser says first, then the checks of one op, of a stack in phases, of the tile lists, of streams."""

    OK = 0
    SHAPE = 1
    DST = 2
    TRANSPOSE_OP = 3
    KERNEL_BCAST_UBLOCK = 4
    BUF_ODD = 5
    BUF_T = 6
    ORDER = 7
    PAD_THEN = 8
    Z_BROADCAST_T = 9
    STACK_TM_ORDER = 10
    STACK_KERNEL_BCAST = 11
    STACK_SLICE = 12
    STACK_SLICE_OUTER = 13
    STACK_BUF = 14
    STACK_BUF_OUTER = 15
    STACK_PAD = 16
    STACK_GRID = 17
    STACK_MBLOCK = 18
    STACK_UBLOCK = 19
    STACK_IN_UBLOCK = 20
    STACK_SCAN = 21
    STACK_SCAN_ROW = 22
    STACK_SCAN_COL = 23
    KERNEL_BCAST_BUF = 24
    KERNEL_BCAST_PERIODIC = 25
    PAD_ONLY = 26
    QUEUE_MULTI_CORE = 27
    SCATTER_GRANULARITY = 28
    UNFED_CORE = 29
    UNREAD_CORE = 30
    CHUNK_2048 = 31
    FAN_OUT = 32
    FAN_OUT_DRAM = 33
    FAN_IN_DRAM = 34

    @property
    def label(self) -> str:
        """The name as reports and case files spell it."""
        return self.name.lower()

    @property
    def text(self) -> str:
        """What is wrong, in one sentence without a full stop."""
        return _TEXTS[self]

    @property
    def fix(self) -> str:
        """What would be legal."""
        fix = _FIXES.get(self, "")
        return f"{fix}; {_PHASED_FIX}" if self in _PHASED else fix

    @property
    def of_stacks(self) -> bool:
        """Whether it is a rule on stacks that are sent in phases."""
        return self in _PHASED


_TEXTS = {
    RouteRule.OK: "the router accepts the edge",
    RouteRule.SHAPE: "the operand after its TMs does not have the shape that the op reads",
    RouteRule.DST: "a ublock has more tiles than the dest register holds",
    RouteRule.TRANSPOSE_OP: "this input of this op type cannot be transposed",
    RouteRule.KERNEL_BCAST_UBLOCK: "the kernel_broadcast factor is not a multiple of the ublock that is read",
    RouteRule.BUF_ODD: "buf_size_mb is neither 1 nor even",
    RouteRule.BUF_T: "the mblocks of the output buffer and t do not divide either way",
    RouteRule.ORDER: "matmul, depthwise and reduce ops are written with ublock_order r",
    RouteRule.PAD_THEN: "after the TM pad only slices may follow",
    RouteRule.Z_BROADCAST_T: "a broadcast along z needs t 1 before it",
    RouteRule.STACK_TM_ORDER: "a stack that is sent in phases has TMs that are no stack or pad after its first stack",
    RouteRule.STACK_KERNEL_BCAST: "a stack that is sent in phases cannot have kernel_broadcast",
    RouteRule.STACK_SLICE: "the slice factor before a stack and the stack factor do not divide either way",
    RouteRule.STACK_SLICE_OUTER: "what the inner stack leaves of the slice factor and the outer stack factor do not "
    "divide either way",
    RouteRule.STACK_BUF: "the stack factor and the mblocks of the producer's buffer do not divide either way",
    RouteRule.STACK_BUF_OUTER: "the outer stack factor and the mblocks of the producer's buffer do not divide either "
    "way",
    RouteRule.STACK_PAD: "the padding of a stack is not a whole number of its blocks",
    RouteRule.STACK_GRID: "the stack factor and the reader's grid do not divide either way",
    RouteRule.STACK_MBLOCK: "the stacked block and the reader's mblock do not divide either way",
    RouteRule.STACK_UBLOCK: "the stacked block and the reader's ublock do not divide either way",
    RouteRule.STACK_IN_UBLOCK: "several stacked blocks meet in one ublock of the reader in an order that phases cannot "
    "follow",
    RouteRule.STACK_SCAN: "the stack runs across the order in which the reader takes its ublocks",
    RouteRule.STACK_SCAN_ROW: "the reader goes along rows of several stacked blocks that are higher than its ublock",
    RouteRule.STACK_SCAN_COL: "the reader goes along columns of several stacked blocks that are wider than its ublock",
    RouteRule.KERNEL_BCAST_BUF: "kernel_broadcast that is not per t needs a source with one t in its buffer",
    RouteRule.KERNEL_BCAST_PERIODIC: "the tiles beyond the kernel_broadcast factor do not repeat the first ones",
    RouteRule.PAD_ONLY: "a core would read padding only",
    RouteRule.QUEUE_MULTI_CORE: "a buffer of the queue would be filled by several cores of the op",
    RouteRule.SCATTER_GRANULARITY: "the runs of tiles that readers take do not fill the output buffer evenly",
    RouteRule.UNFED_CORE: "a core of the reader gets no tiles",
    RouteRule.UNREAD_CORE: "a core of the producer is read by nobody",
    RouteRule.CHUNK_2048: "a piece of the output buffer has more than 2048 tiles",
    RouteRule.FAN_OUT: "the readers and DRAM inputs of an op take more than the 24 extra streams of a core",
    RouteRule.FAN_OUT_DRAM: "a core of the op would fill more than 8 buffers of queues",
    RouteRule.FAN_IN_DRAM: "an op has more than 8 inputs from DRAM",
}

_PHASED = frozenset(r for r in RouteRule if RouteRule.STACK_TM_ORDER <= r <= RouteRule.STACK_SCAN_COL)
_PHASED_FIX = "with a producer's buffer of twice its t, or a queue between, any layout is legal"
_FIXES = {
    RouteRule.STACK_TM_ORDER: "after the first stack only one stack of the other kind and a pad may follow: slice, "
    "broadcast and transpose before it, or with a nop between",
    RouteRule.STACK_KERNEL_BCAST: "leave kernel_broadcast out, or give the producer a buffer of twice its t",
    RouteRule.STACK_SLICE: "slice by a divisor or a multiple of what is stacked, or with a nop between",
    RouteRule.STACK_SLICE_OUTER: "slice by a divisor or a multiple of both stacks together, or with a nop between",
    RouteRule.STACK_BUF: "take a producer whose buffer holds a divisor or a multiple of the stack factor, in mblocks",
    RouteRule.STACK_BUF_OUTER: "take a producer whose buffer holds a divisor or a multiple of the outer stack factor, "
    "in mblocks",
    RouteRule.STACK_PAD: "pad by whole blocks, or with a nop behind the stack",
    RouteRule.STACK_GRID: "take a reader whose rows (of a vstack) or columns (of an hstack) of cores divide the stack "
    "factor or are a multiple of it",
    RouteRule.STACK_MBLOCK: "take a reader whose mblock divides the stacked block or is a multiple of it",
    RouteRule.STACK_UBLOCK: "take a reader whose ublock divides the stacked block or is a multiple of it",
    RouteRule.STACK_IN_UBLOCK: "take a reader whose ublock is not larger than a stacked block",
    RouteRule.STACK_SCAN: "take a reader that holds the whole stack in one core along its order, or the other ublock "
    "order",
    RouteRule.STACK_SCAN_ROW: "take a reader whose ublock is as high as a stacked block",
    RouteRule.STACK_SCAN_COL: "take a reader whose ublock is as wide as a stacked block",
    RouteRule.DST: "take smaller ublocks",
    RouteRule.TRANSPOSE_OP: "transpose the second operand of a matmul, a unary op, or the first operand of a binary op "
    "(not on grayskull); a nop before the op does it",
    RouteRule.KERNEL_BCAST_UBLOCK: "take a multiple of the ublock, or leave kernel_broadcast out",
    RouteRule.BUF_ODD: "take 1 or an even number",
    RouteRule.BUF_T: "half of buf_size_mb divides t or is a multiple of it",
    RouteRule.ORDER: "write ublock_order: r",
    RouteRule.PAD_THEN: "pad last",
    RouteRule.Z_BROADCAST_T: "broadcast along z first",
    RouteRule.KERNEL_BCAST_BUF: "use kernel_broadcast_per_t, or leave it out",
    RouteRule.KERNEL_BCAST_PERIODIC: "take the period of the broadcast, or leave kernel_broadcast out",
    RouteRule.PAD_ONLY: "take fewer cores or less padding",
    RouteRule.QUEUE_MULTI_CORE: "give the queue the op's grid, or a multiple of it",
    RouteRule.SCATTER_GRANULARITY: "keep buf_size_mb at most twice input_count x t",
    RouteRule.UNFED_CORE: "take a buf_size_mb that is twice a multiple of the stack factors, or smaller grids",
    RouteRule.UNREAD_CORE: "drop fewer tiles, or take a smaller grid",
    RouteRule.CHUNK_2048: "take smaller mblocks, more cores or a smaller buf_size_mb",
    RouteRule.FAN_OUT: "take fewer cores, or a nop between",
    RouteRule.FAN_OUT_DRAM: "take a queue of fewer buffers, or the op on more cores",
    RouteRule.FAN_IN_DRAM: "feed some of them through another op",
}
