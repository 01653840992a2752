"""Rules N of several chips: names, prologues, empty graphs and ethernet (routing.md#rules-of-a-netlist).

Rules D: devices, and the order of sections.
"""

from __future__ import annotations

import itertools
from collections import Counter

from tbuda_lab.core.device import CROSSING_STREAMS
from tbuda_lab.core.netlist.check.context import CheckContext, ProgramSetting
from tbuda_lab.core.netlist.check.facts import ARCHS
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.check.routing import input_edge
from tbuda_lab.core.netlist.routing.layout import shape_after, view
from tbuda_lab.core.netlist.schema import NetGraph, NetOp, Queue


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
    if c.facts.grayskull:
        return
    for group in c.merged:
        graphs = [c.n.graphs[name] for name in group]
        present = set().union(*(_devices(g.target_device) for g in graphs))
        missing: dict[int, str] = {}
        for g in graphs:
            for op in g.ops.values():
                for q in _dram_of(c, op):
                    if isinstance(q.target_device, int) and q.target_device not in present:
                        missing.setdefault(q.target_device, f"op {op.name!r} of graph {g.name!r} and queue {q.name!r}")
        for chip, what in sorted(missing.items()):
            yield (
                ("graphs", graphs[0].name),
                f"{what} are in the DRAM of chip {chip}, but no graph of the epoch runs on that chip",
                f"execute an empty graph with target_device {chip} directly before or after it",
            )


def _dram_of(c: CheckContext, op: NetOp) -> list[Queue]:
    """The queues in DRAM that an op reads or writes."""
    queues = [c.n.queues[i.source] for i in op.inputs if i.source in c.n.queues] + list(c.written.get(op.name, ()))
    return [q for q in queues if q.loc == "dram"]


@rule("N11", "netlist", "route", "note")
def ethernet_streams(c: CheckContext) -> Issues:
    """What crosses between two chips in an epoch needs at most 7 streams for each ethernet core that joins them."""
    if c.facts.grayskull:
        return
    for group in c.merged:
        crossing: Counter[tuple[int, int]] = Counter()
        for name in group:
            graph = c.n.graphs[name]
            if isinstance(graph.target_device, int):
                for op in graph.ops.values():
                    crossing.update(_crossing(c, op, graph.target_device))
        for (a, b), count in sorted(crossing.items()):
            joined = c.facts.device.neighbours(a).get(b, 0) or c.facts.device.eth_links
            if count > CROSSING_STREAMS * joined:
                yield (
                    ("graphs", group[0]),
                    f"{count} pipes cross between chips {a} and {b} in one epoch; "
                    f"{joined} ethernet cores have {CROSSING_STREAMS} streams each",
                    "cross with fewer cores, or with fewer tensors",
                )


def _crossing(c: CheckContext, op: NetOp, chip: int) -> Counter[tuple[int, int]]:
    """By pair of chips the pipes of an op's inputs, and of the queues it fills, that cross between them."""
    crossing: Counter[tuple[int, int]] = Counter()
    for port, i in enumerate(op.inputs):
        queue, maker = c.n.queues.get(i.source), c.ops.get(i.source)
        source = queue.target_device if queue is not None and queue.loc == "dram" else None
        if maker is not None:
            source = c.graph_of[maker.name].target_device
        edge = input_edge(c, op, port) if isinstance(source, int) and source != chip else None
        if edge is not None and isinstance(source, int):
            seen = view(edge.reader, shape_after(edge.source.shape, edge.steps, edge.unpad, edge.pad))
            crossing[min(source, chip), max(source, chip)] += int(seen.grid[0]) * int(seen.grid[1])
    for q in c.written.get(op.name, ()):
        if q.loc == "dram" and isinstance(q.target_device, int) and q.target_device != chip:
            crossing[min(q.target_device, chip), max(q.target_device, chip)] += q.grid_size[0] * q.grid_size[1]
    return crossing


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
            yield (first,), f"section {first} stands after {later}", \
                f"the backend reads in file order: put {first} first"
