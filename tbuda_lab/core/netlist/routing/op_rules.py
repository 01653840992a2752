"""Rules on one op, and on one input of it, that need no list of tiles."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.netlist.op_spec import BINARY, SFPU, UNARY
from tbuda_lab.core.netlist.routing.layout import EdgeReader, Source, Step
from tbuda_lab.core.netlist.routing.rules import RouteRule
from tbuda_lab.core.netlist.routing.stacks import either

MOST_IN_PIECE = 2048
BY_ROWS = frozenset({"matmul", "depthwise", "reduce"})
"""Types of ops that must be written with ublock_order r."""


def order_rule(source: Source, reader: EdgeReader) -> RouteRule:
    """Matmul, depthwise and reduce ops have order r, as producers and as readers."""
    kind = "matmul" if reader.type == "sparse_matmul" else reader.type
    wrong = (source.op_type in BY_ROWS and source.order != "r") or (kind in BY_ROWS and reader.order != "r")
    return RouteRule.ORDER if wrong else RouteRule.OK


def buffer_rule(source: Source, input_count: int) -> RouteRule:
    """The output buffer is 1 or even, and divides t or is a multiple of it."""
    if source.queue:
        return RouteRule.OK
    size = int(source.buf_size_mb)
    if size == 0:
        return RouteRule.UNFED_CORE  # nothing is within reach
    if size != 1 and (size < 2 or size % 2):
        return RouteRule.BUF_ODD
    good = either(source.single, source.t) & either(source.slots(input_count), source.t)
    return RouteRule.OK if bool(good) or source.op_type == "buffer" else RouteRule.BUF_T


def transposable(op_type: str, port: int, arch: str) -> bool:
    """Whether an input of an op type may be transposed on its way."""
    if op_type == "matmul":
        return port == 1
    if op_type in UNARY or op_type in SFPU:
        return True
    return op_type in BINARY and port == 0 and arch != "grayskull"


def parser_rule(source: Source, reader: EdgeReader, steps: Sequence[Step], arch: str, dst: int) -> RouteRule:
    """What the parser refuses of an edge."""
    if any(step[0] == "transpose" for step in steps) and not transposable(reader.op_type, reader.port, arch):
        return RouteRule.TRANSPOSE_OP
    for end, op in ((source.ublock, not source.queue), (reader.ublock, reader.type != "queue")):
        if op and int(end[0]) * int(end[1]) > dst:
            return RouteRule.DST
    return kernel_broadcast_ublock(reader, arch)


def kernel_broadcast_ublock(reader: EdgeReader, arch: str) -> RouteRule:
    """On wormhole a kernel_broadcast factor of a matmul or depthwise is whole ublocks."""
    factor = reader.kernel_broadcast
    if factor <= 1 or arch == "grayskull" or reader.type not in ("matmul", "depthwise", "sparse_matmul"):
        return RouteRule.OK
    u, v = reader.ublock
    if reader.port == 0 and v < u and factor % (u * reader.u_kt):
        return RouteRule.KERNEL_BCAST_UBLOCK
    if reader.port == 1 and v >= u and factor % v:
        return RouteRule.KERNEL_BCAST_UBLOCK
    return RouteRule.OK


def piece_rule(reader: EdgeReader) -> RouteRule:
    """What an op hands on in plain order, to a queue of its own layout, leaves in pieces of its whole buffer."""
    if reader.type == "queue" or (reader.type == "fused" and reader.use != "eltwise"):
        return RouteRule.OK
    (m, n), (u, v) = reader.mblock, reader.ublock
    return RouteRule.CHUNK_2048 if int(reader.buf_size_mb * m * n * u * v) > MOST_IN_PIECE else RouteRule.OK
