"""Rules N: what the router and the pipe generator refuse (routing.md#rules-of-a-netlist)."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.routing import EdgeReader, EdgeVerdict, RoutedEdge, RouteRule
from tbuda_lab.core.netlist.routing.edge import MOST_DRAM_INPUTS, streams_of
from tbuda_lab.core.netlist.routing.edge import shared_rule as shared
from tbuda_lab.core.netlist.routing.fromnetlist import edge_of_input, edge_to_queue, reader_of, source_of, verdict_of
from tbuda_lab.core.netlist.routing.oprules import BY_ROWS, buffer_rule
from tbuda_lab.core.netlist.routing.stacks import breaking_step, step_text
from tbuda_lab.core.netlist.schema import NetGraph, NetOp, Queue
from tbuda_lab.core.netlist.tables import FULL_TILE

_ANY = 1 << 30
MOST_INPUTS = 24
"""Inputs of a kernel."""
MOST_BUFFER_READERS = 255
"""Pipes that read one buffer of a queue."""
MOST_MULTICASTS = 2
"""Inputs that a fused op takes by multicast."""
_OF_OPS = frozenset((RouteRule.SHAPE, RouteRule.ORDER, RouteRule.BUF_ODD, RouteRule.BUF_T, RouteRule.UNFED_CORE))
"""Refusals that rules on the op, or on shapes, report already: of an edge they are said again only where those are
silent."""


def _sound(item: NetOp | Queue) -> bool:
    """Whether the fields that a layout is made of are written and positive."""
    b = item.blocking
    return min(*item.grid_size, b.t, *b.mblock, *b.ublock) > 0 and (item.tile_dim or FULL_TILE) == FULL_TILE


def _blocks(item: NetOp | Queue) -> tuple[object, ...]:
    return item.blocking.t, item.blocking.mblock, item.blocking.ublock


def _buffered(op: NetOp) -> bool:
    return op.buf_size_mb is not None and op.buf_size_mb >= 0


def input_edge(c: CheckContext, op: NetOp, port: int) -> RoutedEdge | None:
    """The edge of an input of an op; None where its fields are not sound or nothing is known of such a reader."""
    i = op.inputs[port]
    entry = c.n.queues.get(i.source) or c.ops.get(i.source)
    if entry is None or not (_sound(entry) and _sound(op) and _buffered(op)):
        return None
    if isinstance(entry, NetOp) and not _buffered(entry):
        return None
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    try:
        return edge_of_input(entry, op, port, fused, max(1, c.input_count(op)), c.facts.arch, _ANY)
    except (TypeError, ValueError, ZeroDivisionError):
        return None  # a TM or a pad that other rules refuse


def _verdict(edge: RoutedEdge) -> EdgeVerdict:
    try:
        return verdict_of(edge)
    except (TypeError, ValueError, ZeroDivisionError):
        return EdgeVerdict(RouteRule.SHAPE)


@rule("N1", "op", "route")
def by_rows(c: CheckContext, op: NetOp) -> Issues:
    """Reduce and depthwise ops have ublock_order r, as matmuls have."""
    if op.type in BY_ROWS and op.type != "matmul" and op.blocking.order == "c":
        yield "ublock_order", f"ublock_order c on a {op.type}", RouteRule.ORDER.fix


@rule("N2", "op", "route")
def output_buffer(c: CheckContext, op: NetOp) -> Issues:
    """buf_size_mb is 1 or even; half of it and t divide one another."""
    if not (_sound(op) and _buffered(op)):
        return
    result = buffer_rule(source_of(op), max(1, c.input_count(op)))
    if result:
        yield "buf_size_mb", f"{result.text}: buf_size_mb {op.buf_size_mb}, t {op.blocking.t}", result.fix


@rule("N3", "op", "route")
def edges(c: CheckContext, op: NetOp) -> Issues:
    """Each input can be routed: producer, TMs and op agree in order, stacks, slices, buffers and cores."""
    for port, i in enumerate(op.inputs):
        edge = input_edge(c, op, port)
        result = _verdict(edge).rule if edge is not None else RouteRule.OK
        if result and result not in _OF_OPS | {RouteRule.DST}:
            place = f"input_{port}_tms" if i.tms else "inputs"
            step = breaking_step(result, edge.steps) if edge is not None else None
            through = "" if step is None else f" through {step_text(step)}"
            yield place, f"input {port} ({i.source!r}{through}): {result.text} ({result.label})", result.fix
        elif result is RouteRule.UNFED_CORE and edge is not None and int(edge.source.buf_size_mb):
            yield "inputs", f"input {port} ({i.source!r}): {result.text} ({result.label})", result.fix


@rule("N4", "queue", "route")
def into_queue(c: CheckContext, q: Queue) -> Issues:
    """A queue that an op fills can be routed: each of its buffers from one core."""
    op = c.ops.get(q.input)
    if op is None:
        return
    if op.untilize_output and q.input_tms:
        yield "input_tms", f"op {op.name!r} untilizes, and TMs move tiles", "untilize without TMs into this queue"
    if op.gradient_op and (op.grid_size, *_blocks(op)) != (q.grid_size, *_blocks(q)):
        yield "grid_size", f"gradient op {op.name!r} adds to what it holds, in another layout", \
            "give it the op's grid, t, mblock and ublock"
    if op.untilize_output or not (_sound(op) and _buffered(op) and _sound(q)):
        return
    result = _verdict(edge_to_queue(op, q, max(1, c.input_count(op)), c.facts.arch, _ANY)).rule
    if result and result not in _OF_OPS:
        yield "grid_size", f"op {op.name!r} fills it: {result.text} ({result.label})", result.fix


@rule("N5", "netlist", "route")
def shared_outputs(c: CheckContext) -> Issues:
    """All readers of an op together leave no core unread, no piece of its buffer too large and streams enough."""
    for graph, op in c.n.ops():
        if not (_sound(op) and _buffered(op)):
            continue
        readers: list[tuple[EdgeReader, EdgeVerdict]] = []
        whole = True  # whether all readers are known
        for r in c.readers.get(op.name, ()):
            edge = input_edge(c, r.op, r.index)
            verdict = _verdict(edge) if edge is not None else None
            if edge is None or verdict is None or verdict.rule or verdict.huge:
                whole = False
            else:
                readers.append((edge.reader, verdict))
        for q in c.written.get(op.name, ()):
            if op.untilize_output or not _sound(q):
                whole = False
                continue
            edge = edge_to_queue(op, q, max(1, c.input_count(op)), c.facts.arch, _ANY)
            verdict = _verdict(edge)
            if verdict.rule or verdict.huge:
                whole = False
            else:
                readers.append((edge.reader, verdict))
        if not readers:
            continue
        result = shared(source_of(op), readers, max(1, graph.input_count), _streams_in(c, op))
        if result and (whole or result in (RouteRule.FAN_OUT, RouteRule.FAN_OUT_DRAM)):
            yield ("graphs", graph.name, op.name), f"{result.text} ({result.label})", result.fix


def _streams_in(c: CheckContext, op: NetOp) -> int:
    """Extra streams that the inputs of an op take on the fullest of its cores, at least: reads from DRAM and gathers.
    Which core of a row or column carries a multicast is not known; on one core it is that one."""
    dram, gathers = 0, []
    spread = op.type in ("matmul", "depthwise") and op.grid_size != (1, 1)
    for port, i in enumerate(op.inputs):
        if spread and port < 2:
            continue
        if i.source in c.n.queues:
            dram += 1
            continue
        edge = input_edge(c, op, port)
        if edge is not None:
            gathers.append(_verdict(edge).fan_in)
    return dram + streams_of(gathers, c.facts.arch)


@rule("N6", "op", "route")
def kernel_inputs(c: CheckContext, op: NetOp) -> Issues:
    """An op has at most 24 inputs, of them at most 8 from DRAM."""
    if len(op.inputs) > MOST_INPUTS:
        yield "inputs", f"{len(op.inputs)} inputs, a kernel has at most {MOST_INPUTS}", "join some in another op"
    count = sum(i.source in c.n.queues for i in op.inputs)
    if count > MOST_DRAM_INPUTS:
        yield "inputs", f"{count} of {len(op.inputs)} inputs are queues: {RouteRule.FAN_IN_DRAM.text}", \
            RouteRule.FAN_IN_DRAM.fix


@rule("N14", "graph", "route")
def has_readers(c: CheckContext, g: NetGraph) -> Issues:
    """What an op makes is read by an op or held by a queue."""
    for op in g.ops.values():
        if op.type != "drainer" and not c.readers.get(op.name) and not c.written.get(op.name):
            yield op.name, f"nothing reads op {op.name!r}", "give it a queue, or drop it"


@rule("N15", "netlist", "route")
def queue_buffers(c: CheckContext) -> Issues:
    """Of a queue that graphs of an epoch read they read every buffer, and each by at most 255 pipes."""
    for group in c.merged:
        by_queue: dict[str, list[EdgeVerdict]] = {}
        unknown: set[str] = set()
        for op in (op for name in group for op in c.n.graphs[name].ops.values()):
            for port, i in enumerate(op.inputs):
                if i.source not in c.n.queues:
                    continue
                edge = input_edge(c, op, port)
                verdict = _verdict(edge) if edge is not None else None
                if verdict is None or verdict.rule or not verdict.read:
                    unknown.add(i.source)
                else:
                    by_queue.setdefault(i.source, []).append(verdict)
        for name, verdicts in by_queue.items():
            pipes = sum(v.fan_out for v in verdicts)
            if name not in unknown and not np.array([v.read for v in verdicts], dtype=bool).any(axis=0).all():
                yield ("queues", name), f"graph {group[0]!r} leaves a buffer of the queue unread (unread_core)", \
                    "drop fewer tiles, or give the queue a smaller grid"
            if pipes > MOST_BUFFER_READERS:
                yield ("queues", name), f"{pipes} pipes of graph {group[0]!r} read one buffer of the queue, at most " \
                    f"{MOST_BUFFER_READERS} can", "give the queue a larger grid, or its readers a smaller one"


@rule("N16", "op", "route")
def multicast_inputs(c: CheckContext, op: NetOp) -> Issues:
    """A fused op takes at most two inputs by multicast: operands of its matmuls on several rows or columns of cores."""
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    rows, columns = op.grid_size
    readers = [] if fused is None else [reader_of(op, port, fused) for port in range(len(op.inputs))]
    operands = [r.operand for r in readers if r is not None and r.use == "matmul"]
    count = operands.count(0) * (columns > 1) + operands.count(1) * (rows > 1)
    if count > MOST_MULTICASTS:
        yield "inputs", f"{count} operands of matmuls are multicast, at most {MOST_MULTICASTS} can be", \
            "fuse fewer matmuls, or take a grid of one row or column"
