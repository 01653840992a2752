"""Rules N: what the router and the pipe generator refuse, and what several chips demand: names, prologues, empty graphs
and ethernet (routing.md#rules-of-a-netlist)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from tbuda_lab.core.device import CROSSING_STREAMS
from tbuda_lab.core.netlist.check.context import CheckContext, ProgramSetting
from tbuda_lab.core.netlist.check.registry import ARCHS, Issues, rule
from tbuda_lab.core.netlist.chips import missing_between, routes_of, sure_links
from tbuda_lab.core.netlist.routing import EdgeReader, EdgeVerdict, RoutedEdge, RouteRule
from tbuda_lab.core.netlist.routing.cases import edge_of_input, edge_to_queue, reader_of, source_of, verdict_of
from tbuda_lab.core.netlist.routing.edge import MOST_DRAM_INPUTS, streams_of
from tbuda_lab.core.netlist.routing.edge import shared_rule as shared
from tbuda_lab.core.netlist.routing.layout import shape_after, view
from tbuda_lab.core.netlist.routing.op_rules import BY_ROWS, buffer_rule
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
    fault = buffer_rule(source_of(op), max(1, c.input_count(op)))
    if fault:
        yield "buf_size_mb", f"{fault.text}: buf_size_mb {op.buf_size_mb}, t {op.blocking.t}", fault.fix


@rule("N3", "op", "route")
def edges(c: CheckContext, op: NetOp) -> Issues:
    """Each input can be routed: producer, TMs and op agree in order, stacks, slices, buffers and cores."""
    for port, i in enumerate(op.inputs):
        edge = input_edge(c, op, port)
        fault = _verdict(edge).rule if edge is not None else RouteRule.OK
        if fault and fault not in _OF_OPS | {RouteRule.DST}:
            place = f"input_{port}_tms" if i.tms else "inputs"
            step = breaking_step(fault, edge.steps) if edge is not None else None
            through = "" if step is None else f" through {step_text(step)}"
            yield place, f"input {port} ({i.source!r}{through}): {fault.text} ({fault.label})", fault.fix
        elif fault is RouteRule.UNFED_CORE and edge is not None and int(edge.source.buf_size_mb):
            yield "inputs", f"input {port} ({i.source!r}): {fault.text} ({fault.label})", fault.fix


@rule("N4", "queue", "route")
def into_queue(c: CheckContext, q: Queue) -> Issues:
    """A queue that an op fills can be routed: each of its buffers from one core."""
    op = c.ops.get(q.input)
    if op is None:
        return
    if op.untilize_output and q.input_tms:
        yield "input_tms", f"op {op.name!r} untilizes, and TMs move tiles", "untilize without TMs into this queue"
    if op.gradient_op and (op.grid_size, *_blocks(op)) != (q.grid_size, *_blocks(q)):
        yield (
            "grid_size",
            f"gradient op {op.name!r} adds to what it holds, in another layout",
            "give it the op's grid, t, mblock and ublock",
        )
    if op.untilize_output or not (_sound(op) and _buffered(op) and _sound(q)):
        return
    refusal = _verdict(edge_to_queue(op, q, max(1, c.input_count(op)), c.facts.arch, _ANY)).rule
    if refusal and refusal not in _OF_OPS:
        yield "grid_size", f"op {op.name!r} fills it: {refusal.text} ({refusal.label})", refusal.fix


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
        for q in c.queues_by_writer.get(op.name, ()):
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
        fault = shared(source_of(op), readers, max(1, graph.input_count), (_streams_in(c, op),))
        if fault and (whole or fault in (RouteRule.FAN_OUT, RouteRule.FAN_OUT_DRAM)):
            yield ("graphs", graph.name, op.name), f"{fault.text} ({fault.label})", fault.fix


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
        yield (
            "inputs",
            f"{count} of {len(op.inputs)} inputs are queues: {RouteRule.FAN_IN_DRAM.text}",
            RouteRule.FAN_IN_DRAM.fix,
        )


@rule("N14", "graph", "route")
def has_readers(c: CheckContext, g: NetGraph) -> Issues:
    """What an op makes is read by an op or held by a queue."""
    for op in g.ops.values():
        if op.type != "drainer" and not c.readers.get(op.name) and not c.queues_by_writer.get(op.name):
            yield op.name, f"nothing reads op {op.name!r}", "give it a queue, or drop it"


@rule("N15", "netlist", "route")
def queue_buffers(c: CheckContext) -> Issues:
    """Of a queue that graphs of an epoch read they read every buffer, and each by at most 255 pipes."""
    for group in c.merged_graphs:
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
                yield (
                    ("queues", name),
                    f"graph {group[0]!r} leaves a buffer of the queue unread (unread_core)",
                    "drop fewer tiles, or give the queue a smaller grid",
                )
            if pipes > MOST_BUFFER_READERS:
                yield (
                    ("queues", name),
                    f"{pipes} pipes of graph {group[0]!r} read one buffer of the queue, at most "
                    f"{MOST_BUFFER_READERS} can",
                    "give the queue a larger grid, or its readers a smaller one",
                )


@rule("N16", "op", "route")
def multicast_inputs(c: CheckContext, op: NetOp) -> Issues:
    """A fused op takes at most two inputs by multicast: operands of its matmuls on several rows or columns of cores."""
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    rows, columns = op.grid_size
    readers = [] if fused is None else [reader_of(op, port, fused) for port in range(len(op.inputs))]
    operands = [r.operand for r in readers if r is not None and r.use == "matmul"]
    count = operands.count(0) * (columns > 1) + operands.count(1) * (rows > 1)
    if count > MOST_MULTICASTS:
        yield (
            "inputs",
            f"{count} operands of matmuls are multicast, at most {MOST_MULTICASTS} can be",
            "fuse fewer matmuls, or take a grid of one row or column",
        )


def _devices(target: int | list[int]) -> set[int]:
    """The chips of a `target_device`."""
    return set(target) if isinstance(target, list) else {target}


@rule("N7", "graph", "route")
def names_of_chips(c: CheckContext, g: NetGraph) -> Issues:
    """Where a graph reads several chips, no queue has the name that the parser makes of another: `<queue>.<chip>`."""
    read = {i.source for op in g.ops.values() for i in op.inputs if i.source in c.n.queues}
    chips = set().union(*(_devices(c.n.queues[name].target_device) for name in read)) if read else set()
    if len(chips) < 2:
        return
    for name in sorted(read):
        for chip in sorted(chips):
            other = f"{name}.{chip}"
            if other in c.n.queues:
                yield (
                    "",
                    f"its queues lie on chips {', '.join(map(str, sorted(chips)))}, so the setting of queue "
                    f"{name!r} goes to queue {other!r}",
                    "give the second another name, with an underscore",
                )


@rule("N8", "setting", "route")
def prologue_on_its_chip(c: CheckContext, s: ProgramSetting) -> Issues:
    """A queue with prologue lies on the chip of every graph that reads it so; an embedding or tilizer reads none."""
    queue, graph = c.n.queues.get(s.queue), c.n.graphs.get(s.graph)
    if queue is None or graph is None or s.setting.fields.get("prologue") is not True:
        return
    readers = [r.op for r in c.readers.get(s.queue, ()) if r.graph is graph]
    for op in readers:
        if op.type in ("embedding", "tilizer"):
            yield "prologue", f"queue {s.queue!r} is preloaded for {op.type} {op.name!r}", "write `prologue: false`"
    if readers and not _devices(graph.target_device) <= _devices(queue.target_device):
        yield (
            "prologue",
            f"queue {s.queue!r} of chip {queue.target_device} is preloaded on chip {graph.target_device}",
            "write `prologue: false`, or give that chip a queue of its own",
        )


@rule("N9", "op", "route")
def ethernet_channels(c: CheckContext, op: NetOp) -> Issues:
    """An ethernet_datacopy has one ingress and one egress channel for each core of its grid, all of which exist."""
    if op.type != "ethernet_datacopy":
        return
    cores, links = op.grid_size[0] * op.grid_size[1], c.facts.device.eth_links
    if c.facts.grayskull:
        yield "type", "grayskull has no ethernet", "copy with a datacopy op on worker cores"
        return
    for name in ("ingress_channels", "egress_channels"):
        channels = op.attributes.get(name)
        if not isinstance(channels, (list, tuple)) or not channels:
            continue  # not written, or refused by O8
        if len(channels) != cores:
            yield (
                ("attributes", name),
                f"{len(channels)} channels for a grid of {cores} cores",
                "list one channel for each core",
            )
        wrong = [k for k in channels if not isinstance(k, int) or not 0 <= k < links]
        if wrong:
            yield ("attributes", name), f"no ethernet channel {wrong[0]}", f"channels are 0 to {links - 1}"


@rule("N10", "netlist", "route")
def empty_graphs(c: CheckContext) -> Issues:
    """Where ops of an epoch read or write DRAM of a chip, the epoch has a graph on that chip, if an empty one."""
    for group, present in _epochs_of_chips(c):
        missing: dict[int, str] = {}
        for a, b, what, _ in _routes(c, group):
            for chip in {a, b} - present:
                missing.setdefault(chip, what)
        for chip, what in sorted(missing.items()):
            yield (
                ("graphs", group[0]),
                f"{what} are in the DRAM of chip {chip}, but no graph of the epoch runs on that chip",
                f"execute an empty graph with target_device {chip} directly before or after it",
            )


@rule("N18", "netlist", "route")
def chips_passed_through(c: CheckContext) -> Issues:
    """Where data of an epoch passes through chips, the epoch has a graph on each of a shortest route."""
    for group, present in _epochs_of_chips(c):
        routes = {(a, b): what for a, b, what, _ in reversed(_routes(c, group))}
        for (a, b), what in sorted(routes.items()):
            missing = ", ".join(map(str, missing_between(c.facts.device, a, b, present)))
            if missing:
                yield (
                    ("graphs", group[0]),
                    f"{what} are on chips {a} and {b}; data passes through chip {missing}, where no graph of the epoch "
                    "runs",
                    f"execute an empty graph with target_device {missing} directly before or after it",
                )


def _epochs_of_chips(c: CheckContext) -> Iterator[tuple[tuple[str, ...], set[int]]]:
    """The graphs of each temporal epoch and their chips, where chips are joined by ethernet."""
    for group in () if c.facts.grayskull else c.merged_graphs:
        yield group, set().union(*(_devices(c.n.graphs[name].target_device) for name in group))


def _routes(c: CheckContext, group: tuple[str, ...]) -> list[tuple[int, int, str, int]]:
    """(from chip, to chip, what, pipes) of all that ops of graphs that run together read from and write to other
    chips. Pipes: a reader's lists, or the buffers of a queue that is filled."""
    home = {name: g.target_device for name, g in c.graph_of.items() if isinstance(g.target_device, int)}
    routes: list[tuple[int, int, str, int]] = []
    for op in (op for name in group for op in c.n.graphs[name].ops.values() if op.name in home):
        filled = [q for q in c.queues_by_writer.get(op.name, ()) if q.loc == "dram"]
        for a, b, port, queue in routes_of(op, home, c.n.queues, filled):
            if a == b:
                continue
            kind = "queue" if queue in c.n.queues else "op"
            edge = input_edge(c, op, port) if port >= 0 else None
            pipes = math.prod(c.n.queues[queue].grid_size) if port < 0 else 0
            if edge is not None:
                seen = view(edge.reader, shape_after(edge.source.shape, edge.steps, edge.unpad, edge.pad))
                pipes = int(seen.grid[0]) * int(seen.grid[1])
            routes.append((a, b, f"op {op.name!r} of graph {c.graph_of[op.name].name!r} and {kind} {queue!r}", pipes))
    return routes


def _dram_of(c: CheckContext, op: NetOp) -> list[Queue]:
    """The queues in DRAM that an op reads or writes."""
    queues = [c.n.queues[i.source] for i in op.inputs if i.source in c.n.queues] + list(
        c.queues_by_writer.get(op.name, ())
    )
    return [q for q in queues if q.loc == "dram"]


@rule("N11", "netlist", "route")
def ethernet_streams(c: CheckContext) -> Issues:
    """What crosses a link between chips in an epoch, both ways together, takes at most 7 pipes for each ethernet core
    of the link."""
    device = c.facts.device
    for group, present in _epochs_of_chips(c):
        crossing: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for a, b, what, pipes in _routes(c, group):
            for link in sure_links(device, a, b, present) or {(min(a, b), max(a, b))}:
                crossing.setdefault(link, []).append((pipes, what))
        for (a, b), tensors in sorted(crossing.items()):
            joined = device.neighbours(a).get(b, 0) or device.eth_links
            count, most = sum(pipes for pipes, _ in tensors), CROSSING_STREAMS * joined
            if count > most:
                largest, what = max(tensors, key=lambda t: t[0])
                rest = most - (count - largest)
                fix = (
                    f"cross with {rest} pipes there, such as through a nop of {rest} cores"
                    if rest > 0
                    else f"cross with fewer of the {len(tensors)} tensors in this epoch, or with fewer cores"
                )
                yield (
                    ("graphs", group[0]),
                    f"{count} pipes cross between chips {a} and {b} in one epoch, both ways together; {joined} "
                    f"ethernet cores take {CROSSING_STREAMS} each, {most} in all. Most of them, {largest}: {what}",
                    fix,
                )


@rule("N12", "netlist", "route", "note")
def grayskull_chip_numbers(c: CheckContext) -> Issues:
    """On grayskull chips are numbered from 0 without gaps."""
    if not c.facts.grayskull:
        return
    graphs = [g for g in c.n.graphs.values() if isinstance(g.target_device, int)]
    chips = sorted({g.target_device for g in graphs if isinstance(g.target_device, int)})
    for a, b in itertools.pairwise((-1, *chips)):
        if b != a + 1:
            yield (
                ("graphs", next(g.name for g in graphs if g.target_device == b), "target_device"),
                f"chip {b} is used and chip {a + 1} is not",
                "number the chips without gaps",
            )
            break


@rule("N13", "op", "route")
def grayskull_neighbours(c: CheckContext, op: NetOp) -> Issues:
    """On grayskull an op uses DRAM of its own chip and of the chips beside it alone."""
    chip = c.graph_of[op.name].target_device if c.facts.grayskull else None
    for q in _dram_of(c, op) if isinstance(chip, int) else ():
        if isinstance(q.target_device, int) and isinstance(chip, int) and abs(q.target_device - chip) > 1:
            yield (
                "",
                f"queue {q.name!r} lies on chip {q.target_device}, the op on chip {chip}",
                "pass the data on from chip to chip",
            )


@rule("D2", "netlist", "parse")
def arch_known(c: CheckContext) -> Issues:
    """The netlist names an arch, and a known one."""
    if not c.n.arch:
        yield ("devices", "arch"), "no arch", f"write `devices: {{arch: ...}}` with one of {', '.join(ARCHS)}"
    for arch in c.n.arch:
        if arch.lower() not in ARCHS:
            yield ("devices", "arch"), f"unknown arch {arch!r}", f"known: {', '.join(ARCHS)}"


@rule("D4", "netlist", "parse", "note")
def section_order(c: CheckContext) -> Issues:
    """Sections stand in the order in which the backend needs them: devices, queues, graphs, programs."""
    place = {name: i for i, name in enumerate(c.n.order)}
    for first, later in (("devices", "queues"), ("queues", "graphs"), ("queues", "programs")):
        if first in place and later in place and place[first] > place[later]:
            yield (
                (first,),
                f"section {first} stands after {later}",
                f"the backend reads in file order: put {first} first",
            )
