"""Rules R: cores, DRAM and host memory of the device."""

from __future__ import annotations

from typing import NamedTuple

from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.check.special import rectangle
from tbuda_lab.core.netlist.schema import Allocate, Deallocate, NetOp, Queue
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes


@rule("R4", "op", "placement")
def on_grid(c: CheckContext, op: NetOp) -> Issues:
    """Every core of an op is a worker core of the device."""
    box = rectangle(op)
    if box is None:
        return
    row, col, rows, cols = box
    if row < 0 or col < 0 or row + rows > c.facts.device.rows or col + cols > c.facts.device.cols:
        turned = " (transposed)" if op.grid_transpose else ""
        yield (
            "grid_loc",
            f"cores [{row}, {col}] to [{row + rows - 1}, {col + cols - 1}]{turned} leave the grid of "
            f"{c.facts.arch}, {c.facts.device.rows}x{c.facts.device.cols}",
            "move the op or make its grid smaller",
        )


@rule("R3.channel", "queue", "placement")
def channel(c: CheckContext, q: Queue) -> Issues:
    """DRAM channels exist."""
    if q.loc != "dram":
        return
    for number in dict.fromkeys(b.channel for b in q.buffers):
        if not 0 <= number < c.facts.device.dram_channels:
            yield (
                "dram",
                f"DRAM channel {number} does not exist on {c.facts.arch}",
                f"channels are 0 to {c.facts.device.dram_channels - 1}",
            )


@rule("R3.capacity", "queue", "placement")
def capacity(c: CheckContext, q: Queue) -> Issues:
    """Buffers end inside their DRAM channel."""
    if q.loc != "dram":
        return
    size = queue_buffer_bytes(c, q, c.facts.align)
    for b in q.buffers:
        if b.address < 0 or b.address + size > c.facts.device.dram_channel_bytes:
            yield (
                "dram",
                f"a buffer of {size} bytes at {b.address:#x} leaves channel {b.channel}, which ends at "
                f"{c.facts.device.dram_channel_bytes:#x}",
                "lower the address, or take another channel",
            )
            return


@rule("R3.reserved", "queue", "placement", "note")
def reserved(c: CheckContext, q: Queue) -> Issues:
    """Buffers start above the reserved bottom of their DRAM channel."""
    if q.loc != "dram":
        return
    for b in q.buffers:
        if not 0 <= b.channel < c.facts.device.dram_channels:
            continue
        start = c.facts.device.dram_start(b.channel)
        if 0 <= b.address < start:
            yield (
                "dram",
                f"address {b.address:#x} lies in the reserved part of channel {b.channel}",
                f"start at {start:#x}",
            )
            return


@rule("R3.aligned", "queue", "placement", "strict")
def aligned(c: CheckContext, q: Queue) -> Issues:
    """DRAM addresses are aligned as the NoC of the arch wants it."""
    if q.loc != "dram":
        return
    for b in q.buffers:
        if b.address % c.facts.align:
            yield (
                "dram",
                f"address {b.address:#x} is not aligned to {c.facts.align} bytes",
                f"{b.address // c.facts.align * c.facts.align:#x} is",
            )
            return


@rule("R2", "queue", "placement", "strict")
def host_memory(c: CheckContext, q: Queue) -> Issues:
    """Host queues lie in a host channel, below its end."""
    if q.loc != "host":
        return
    for b in q.buffers:
        if not 0 <= b.channel < c.facts.device.sysmem_channels:
            yield (
                "host",
                f"host channel {b.channel} does not exist on {c.facts.arch}",
                f"channels are 0 to {c.facts.device.sysmem_channels - 1}",
            )
        elif not 0 <= b.address < c.facts.device.sysmem_channel_bytes:
            yield (
                "host",
                f"host address {b.address:#x}",
                f"addresses are below {c.facts.device.sysmem_channel_bytes:#x}",
            )


@rule("R1", "op", "placement", "strict")
def local_inputs(c: CheckContext, op: NetOp) -> Issues:
    """On grayskull ops read queues of their own chip only."""
    if not c.facts.grayskull:
        return
    chip = c.graph_of[op.name].target_device
    for i in op.inputs:
        queue = c.n.queues.get(i.source)
        if queue is not None and queue.loc == "dram" and queue.target_device != chip:
            yield (
                "inputs",
                f"queue {queue.name!r} is on chip {queue.target_device}, the op on chip {chip}",
                "grayskull chips have no links: put them on one chip",
            )


_REMOTE_BASE = 0x30000000  # grayskull's ops reach other chips through this window of channel 0


@rule("R1.output", "queue", "placement", "strict")
def remote_output(c: CheckContext, q: Queue) -> Issues:
    """On grayskull an op writes queues of another chip only in channel 0 from 0x30000000 on."""
    graph = c.graph_of.get(q.input)
    if not c.facts.grayskull or graph is None or q.loc != "dram" or q.target_device == graph.target_device:
        return
    for b in q.buffers:
        if b.channel != 0 or b.address < _REMOTE_BASE:
            yield (
                "dram",
                f"buffer [{b.channel}, {b.address:#x}] on chip {q.target_device} is written by op "
                f"{q.input!r} of chip {graph.target_device}",
                f"use channel 0, from {_REMOTE_BASE:#x} on",
            )
            return


_MOST_AT_ONCE = 64  # buffers compared with each one; only netlists that overlap everywhere have more


class _Span(NamedTuple):
    memory: tuple[str, int, int]  # location, chip, channel
    start: int
    end: int
    queue: str


def _spans(c: CheckContext) -> list[_Span]:
    out = []
    for q in c.n.queues.values():
        size = queue_buffer_bytes(c, q, c.facts.align)
        chip = q.target_device if isinstance(q.target_device, int) else min(q.target_device, default=-1)
        if q.entries > 0 and q.loc in ("dram", "host"):
            out += [_Span((q.loc, chip, b.channel), b.address, b.address + size, q.name) for b in q.buffers]
    return sorted(out)


def _overlap(spans: list[_Span]) -> bool:
    """Whether any two spans, sorted, share bytes."""
    memory, end = None, 0
    for span in spans:
        if span.memory != memory:
            memory, end = span.memory, span.end
        elif span.start < end:
            return True
        else:
            end = max(end, span.end)
    return False


def _together(c: CheckContext) -> dict[str, list[tuple[int, int]]]:
    """The life spans of dynamic queues, counted in instructions over all programs."""
    lives: dict[str, list[tuple[int, int]]] = {}
    born: dict[str, int] = {}
    now = 0
    for program in c.n.programs:
        for item in program.instructions:
            now += 1
            if isinstance(item, Allocate):
                born.update((name, now) for name in item.queues)
            elif isinstance(item, Deallocate):
                for name in item.queues:
                    if name in born:
                        lives.setdefault(name, []).append((born.pop(name), now))
    for name, start in born.items():
        lives.setdefault(name, []).append((start, now + 1))
    return lives


def _same_bytes(a: Queue, b: Queue) -> bool:
    """Two views of one ram, written as such."""
    return a.name == b.alias or b.name == a.alias or bool(a.alias and a.alias == b.alias)


@rule("R5", "netlist", "placement")
def dram_overlap(c: CheckContext) -> Issues:
    """No two queues share bytes of DRAM or host memory at the same time, but for the views of one ram."""
    spans = _spans(c)
    if not _overlap(spans):
        return
    lives = _together(c)
    rank = {name: k for k, name in enumerate(c.n.queues)}
    seen: set[tuple[str, str]] = set()
    open_spans: list[_Span] = []
    for span in spans:
        open_spans = [o for o in open_spans if o.memory == span.memory and o.end > span.start][-_MOST_AT_ONCE:]
        if (span.queue, span.queue) in seen:  # of a queue that overlaps itself, what reaches furthest is enough
            open_spans = [o for o in open_spans if o.queue != span.queue or o.end > span.end]
        for other in open_spans:
            first, second = sorted((other.queue, span.queue), key=rank.__getitem__)
            if (first, second) in seen:
                continue
            seen.add((first, second))
            a, b = c.n.queues[first], c.n.queues[second]
            if first != second and (_same_bytes(a, b) or not _meet(lives, first, second)):
                continue
            loc, chip, number = span.memory
            message = (
                f"queue {second!r} overlaps queue {first!r}"
                if first != second
                else f"two buffers of queue {first!r} overlap"
            )
            yield (
                ("queues", second, loc),
                f"{message} in {loc} channel {number} of chip {chip}: "
                f"[{span.start:#x}, {span.end:#x}) and [{other.start:#x}, {other.end:#x})",
                f"the next free byte after {other.queue!r} is {other.end:#x}",
            )
        open_spans.append(span)


def _meet(lives: dict[str, list[tuple[int, int]]], a: str, b: str) -> bool:
    """Whether two queues are ever alive at once; a queue that is never allocated lives always."""
    if a not in lives or b not in lives:
        return True
    return any(s < f and t < e for s, e in lives[a] for t, f in lives[b])
