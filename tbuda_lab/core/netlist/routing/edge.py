"""One edge of a netlist: everything that the router says of it, first rule first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.netlist.routing import tile_lists
from tbuda_lab.core.netlist.routing.layout import EdgeReader, OperandView, Source, Step, shape_after, view
from tbuda_lab.core.netlist.routing.op_rules import MOST_IN_PIECE, buffer_rule, order_rule, parser_rule, piece_rule
from tbuda_lab.core.netlist.routing.rules import RouteRule
from tbuda_lab.core.netlist.routing.stacks import chain_of, phases, sent_in_phases

MOST_DRAM_OUTPUTS = 8
MOST_DRAM_INPUTS = 8
EXTRA_STREAMS = 24
MOST_TILES = 1 << 22
"""Lists of edges with more tiles are not written down; the rules that need none are looked at all the same."""


@dataclasses.dataclass(frozen=True)
class RoutedEdge:
    """A producer, the TMs on one input of a reader, and the reader. unpad, pad: (rows, columns) in tiles cut off
    before the TMs and added after them. arch: "grayskull" or another. dst: tiles that the dest register holds."""

    source: Source
    steps: tuple[Step, ...]
    reader: EdgeReader
    input_count: int = 1
    unpad: tuple[int, int] = (0, 0)
    pad: tuple[int, int] = (0, 0)
    arch: str = "wormhole_b0"
    dst: int = 8


@dataclasses.dataclass(frozen=True)
class EdgeVerdict:
    """The first rule that an edge breaks, and what it takes: pipes out of the fullest producer core (`fan_out`) and of
    each core (`pipes`), producer cores that the widest pipe reads (`fan_in`), and what the edge asks of the producer's
    output buffer (`granule` and `cut`, see `tile_lists`). read: which producer cores it reads; this and `pipes` are
    empty where no lists were looked at, for an earlier refusal or because they are too long (`huge`)."""

    rule: RouteRule
    fan_out: int = 0
    fan_in: int = 0
    granule: int = 0
    cut: bool = False
    read: tuple[bool, ...] = ()
    huge: bool = False
    pipes: tuple[int, ...] = ()


def divides(edge: RoutedEdge) -> RouteRule:
    """Whether every TM divides what it gets."""
    shape = edge.source.shape
    t, rows, columns = shape[0], shape[1] - edge.unpad[0], shape[2] - edge.unpad[1]
    if rows < 1 or columns < 1:
        return RouteRule.SHAPE
    for step in edge.steps:
        name, n = step[0], (step[1] if len(step) == 2 else 1)
        whole = {"hslice": columns, "vslice": rows, "hstack": t, "vstack": t}.get(name, 0)
        if whole % n:
            return RouteRule.SHAPE
        if name == "z" and t > 1 and n > 1:
            return RouteRule.Z_BROADCAST_T
        t, rows, columns = shape_after((t, rows, columns), (step,))
    return RouteRule.OK


def pad_order(steps: Sequence[Step]) -> RouteRule:
    """After the TM pad only slices follow."""
    names = [step[0] for step in steps]
    if "pad" in names and any(name not in ("hslice", "vslice") for name in names[names.index("pad") + 1 :]):
        return RouteRule.PAD_THEN
    return RouteRule.OK


def judge(edge: RoutedEdge) -> EdgeVerdict:
    """The verdict of parser, router and pipe generator on an edge whose ends are otherwise sound."""
    source, reader = edge.source, edge.reader
    for rule in (
        parser_rule(source, reader, edge.steps, edge.arch, edge.dst),
        order_rule(source, reader),
        buffer_rule(source, edge.input_count),
        pad_order(edge.steps),
        divides(edge),
    ):
        if rule:
            return EdgeVerdict(rule)
    after = shape_after(source.shape, edge.steps, edge.unpad, edge.pad)
    seen = view(reader, after)
    rows, columns = seen.rows, seen.columns
    if (rows, columns) != (after[1], after[2]) or (seen.t is not None and seen.t != after[0]):
        return EdgeVerdict(RouteRule.SHAPE)
    return _judge_lists(edge, seen, after)


def _judge_lists(edge: RoutedEdge, seen: OperandView, after: tuple[int, int, int]) -> EdgeVerdict:
    source, reader = edge.source, edge.reader
    slots = int(source.slots(edge.input_count))
    chain = chain_of(edge.steps)
    in_phases = bool(sent_in_phases(chain, source.t, slots))
    steps = (1, 1)
    times = max(1, slots // int(source.t))
    whole = source.shape[0] * source.shape[1] * source.shape[2]
    small = max(after[0] * after[1] * after[2] * times, whole) <= MOST_TILES
    pipes = None
    if reader.kernel_broadcast and small:
        pipes = tile_lists.pipes_of(source, reader, seen, edge.steps, edge.unpad, edge.pad, edge.input_count)
        rule = tile_lists.kernel_broadcast_rule(pipes, source, reader, slots)
        if rule:
            return EdgeVerdict(rule)
    if in_phases:
        padding = [step for step in edge.steps if step[0] == "pad"]
        pad = (edge.pad[0] + sum(p[1] for p in padding), edge.pad[1] + sum(p[2] for p in padding))
        stack = phases(chain, slots, (after[1], after[2]), pad, seen, reader.kernel_broadcast)
        if int(stack.rule):
            return EdgeVerdict(RouteRule(int(stack.rule)))
        steps = int(stack.rows), int(stack.columns)
    if not small:
        return EdgeVerdict(RouteRule.OK, huge=True)
    if pipes is None:
        pipes = tile_lists.pipes_of(source, reader, seen, edge.steps, edge.unpad, edge.pad, edge.input_count)
    cores = int(source.grid[0] * source.grid[1])
    link = tile_lists.readers_of(pipes, cores)
    rule = tile_lists.padding_rule(pipes)
    if rule:
        return EdgeVerdict(rule)
    if reader.type == "queue" and (in_phases or int(link.sum(axis=0).max(initial=0)) > 1):
        return EdgeVerdict(RouteRule.QUEUE_MULTI_CORE)
    granule = tile_lists.granularity(pipes)
    fan_out = int(link.sum(axis=1).max(initial=0))
    several = steps[0] * steps[1] > 1
    cut = tile_lists.cut_in_pieces(pipes, source, granule, cores, several)
    fan_in = int(link.sum(axis=0).max(initial=0))
    read = tuple(bool(x) for x in np.atleast_1d(link.any(axis=1)))
    each = tuple(int(n) for n in np.atleast_1d(link.sum(axis=1)))
    verdict = EdgeVerdict(RouteRule.OK, fan_out, fan_in, granule, cut, read, pipes=each)
    if not source.queue and (pipes.block * int(source.single)) % granule:
        return dataclasses.replace(verdict, rule=RouteRule.SCATTER_GRANULARITY)
    rule = tile_lists.unfed_rule(pipes, (int(seen.grid[0]), int(seen.grid[1])), steps, chain.by_rows)
    return dataclasses.replace(verdict, rule=rule)


def judge_alone(edge: RoutedEdge, dram_inputs: Sequence[int] = (1,)) -> EdgeVerdict:
    """As `judge`, of a producer that has this reader only: what readers share (unread cores, pieces of the output
    buffer, streams) is looked at too. dram_inputs: reads from DRAM that each core of the producer carries, or one
    number for all."""
    verdict = judge(edge)
    if verdict.rule:
        return verdict
    rule = RouteRule.OK
    if verdict.read:
        rule = shared_rule(edge.source, [(edge.reader, verdict)], edge.input_count, dram_inputs)
    return dataclasses.replace(verdict, rule=rule or piece_rule(edge.reader))


def shared_rule(
    source: Source, readers: Sequence[tuple[EdgeReader, EdgeVerdict]], input_count: int, dram_inputs: Sequence[int]
) -> RouteRule:
    """What the readers of one producer must observe together; `readers`: each with its verdict, which is OK.
    dram_inputs: as for `judge_alone`. Pipes and reads add up core by core."""
    read = np.array([v.read for _, v in readers if v.read], dtype=bool)
    if read.size and not read.any(axis=0).all():
        return RouteRule.UNREAD_CORE
    if source.queue:
        return RouteRule.OK
    granule = int(np.gcd.reduce([v.granule for _, v in readers if v.granule]))
    cut = any(v.cut for _, v in readers) or len(readers) > 1
    if granule and tile_lists.piece_tiles(source, granule, cut, input_count) > MOST_IN_PIECE:
        return RouteRule.CHUNK_2048
    each = np.array([v.pipes for _, v in readers if v.pipes], dtype=np.int64)
    pipes = each.sum(axis=0) if each.size else np.array([sum(v.fan_out for _, v in readers)])
    if ((pipes - 1 + np.asarray(dram_inputs))[pipes > 0] > EXTRA_STREAMS).any():
        return RouteRule.FAN_OUT
    into_queues = [v.pipes or (v.fan_out,) for r, v in readers if r.type == "queue"]
    written = int(np.array(into_queues, dtype=np.int64).sum(axis=0).max()) if into_queues else 0
    return RouteRule.FAN_OUT_DRAM if written > MOST_DRAM_OUTPUTS else RouteRule.OK


def streams_of(gathers: Sequence[int], arch: str) -> int:
    """Extra streams of a core for the pipes that end on it, each given by the producer cores that it reads: up to three
    for each of the first gathers of a core, one for each of the others; none for a pipe from a single core."""
    several = sorted((n for n in gathers if n > 1), reverse=True)
    full = 3 if arch == "grayskull" else 4
    return sum(min(3, n) for n in several[:full]) + len(several[full:])
