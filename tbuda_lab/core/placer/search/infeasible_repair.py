"""Nops without which there is no placement: for ops that fit no epoch, and for tensors out of reach of a chip.

An op fits no epoch where a core would read too many buffers, or the shapes asked for do not go together: a nop between
it and its producers takes a shape that suits both. Grayskull chips read only their own DRAM, and write to that of
the chips beside them: nops carry a tensor from chip to chip (lowering.md#nops-between-chips). Between chips with
ethernet a nop of few cores passes on what more pipes would carry than there are streams (rule N11).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.types import Epoch, OpPlacement, QueuePlacement
from tbuda_lab.core.device import CROSSING_STREAMS, DeviceSpec
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import writes_by_parameter
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hw_ops import tile_shape
from tbuda_lab.core.lowering.legalise import MAX_READERS
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.chip_stages import out_of_reach
from tbuda_lab.core.placer.model.problem import Problem


def repair_infeasible(graph: Graph, error: PlacementError) -> tuple[Override, ...]:
    """Nops before the ops that an error says fit no epoch; none when it is about something else."""
    edits: list[Override] = []
    for fault in error.diagnostics:
        if fault.rule != "no-epoch" or fault.where not in graph:
            continue
        for source in dict.fromkeys(graph[fault.where].sources):
            if graph[source].kind is NodeKind.OP:
                value = {"dest": (fault.where,), "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
                edits.append(Override("insert_nop", source, value, "placer"))
    return tuple(edits)


def infeasible_notes(edits: tuple[Override, ...], error: PlacementError) -> list[Diagnostic]:
    """What the nops are for, by op."""
    why = {d.where: d.message for d in error.diagnostics}
    notes = []
    for record in edits:
        (reader,) = record.value["dest"]
        text = f"nop inserted between {record.target} and {reader}, which fits no epoch otherwise: {why[reader]}"
        notes.append(Diagnostic("note", reader, "repair", text, "another size of either op may avoid it"))
    return notes


def hops(
    graph: Graph, placed: Mapping[str, OpPlacement], device: DeviceSpec
) -> tuple[tuple[Override, ...], tuple[Override, ...], list[Diagnostic]]:
    """(nops that carry tensors one chip further, pins that keep them and their readers where they are, notes). What is
    further away yet needs another round, with the nops placed. What writes a ram (a weight that is trained) further
    than one chip away is pinned to the chip of those who read it."""
    edits: list[Override] = []
    pins: list[Override] = []
    notes: list[Diagnostic] = []
    for name, readers in out_of_reach(graph, placed, device).items():
        home = placed[name].chip if name in placed else placed[_first(placed, readers)].chip
        pins += [Override("op_placement", name, {"chip": home}, "placer")] if name in placed else []
        for chip, names in readers.items():
            far = name in placed and abs(chip - home) > 1
            if chip == home or (len(readers) == 1 and not far):
                continue
            over = home + (1 if chip > home else -1) if far else home
            for at in range(0, len(names), MAX_READERS // 2):
                some = tuple(names[at : at + MAX_READERS // 2])
                value = {"dest": some, "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
                edits.append(Override("insert_nop", name, value, "placer"))
                nop = f"buffer_0_{name}_{some[0]}"
                pins.append(Override("op_placement", nop, {"chip": over}, "placer"))
                if far and (first := _first_on(placed, over, some)) is not None:
                    pins.append(Override("schedule_constraint", (first, nop), source="placer"))
                pins.append(Override("op_placement", some, {"chip": chip}, "placer"))
                text = f"made on chip {home}, read on chip {chip}: a nop on chip {over} passes it on"
                notes.append(Diagnostic("note", name, "repair", text, "pin its readers to one chip to avoid it"))
    if not edits and device.arch == "grayskull" and len(device.chips) > 1:
        users = graph.users()
        for name, write in writes_by_parameter(graph).items():
            (writer,) = write.sources
            chips = [placed[user].chip for user, _ in users.get(name, ()) if user in placed]
            if chips and writer in placed and abs(chips[0] - placed[writer].chip) > 1:
                pins.append(Override("op_placement", writer, {"chip": chips[0]}, "placer"))
                text = f"read on chip {chips[0]}: {writer}, which writes it, leaves chip {placed[writer].chip} for that"
                notes.append(Diagnostic("note", name, "repair", text, "fewer chips avoid it"))
    return tuple(edits), tuple(pins), notes


def _first_on(placed: Mapping[str, OpPlacement], chip: int, readers: Sequence[str]) -> str | None:
    """The op that a chip runs first, if it runs before the readers: a nop there follows it, for a nop that came first
    would have an epoch of its own where the chip begins with a break. placed: in the order of the schedule."""
    for name, spot in placed.items():
        if name in readers:
            return None
        if spot.chip == chip:
            return name
    return None


@dataclasses.dataclass(frozen=True)
class Crossing:
    """What takes `pipes` pipes over a link, (lower chip, higher chip), in a temporal epoch: the value of a node, for
    readers on one chip; no readers where an op writes an output or a ram elsewhere."""

    temporal: int
    link: tuple[int, int]
    source: str
    readers: tuple[str, ...]
    pipes: int


def crossings(
    problem: Problem, placed: Mapping[str, OpPlacement], epochs: Sequence[Epoch], queues: Sequence[QueuePlacement]
) -> list[Crossing]:
    """All that crosses between chips (rule N11): buffers of queues that ops of other chips fill, and the lists of
    readers of other chips. Between chips that are no neighbours it counts on every link of every shortest route."""
    device, graph = problem.device, problem.graph
    reads: dict[tuple[str, int, int, int], dict[str, int]] = {}  # by source, chips and temporal epoch: pipes by reader
    result: list[Crossing] = []
    later = _later_readers(graph, placed)
    by_source: dict[str, list[QueuePlacement]] = {}
    for q in queues:
        by_source.setdefault(q.source, []).append(q)
        writer = q.writer or (q.source if q.kind == "e2e" else "")
        if q.location == "dram" and writer in placed and placed[writer].chip != q.chip:
            readers = tuple(u for u in later.get(q.source, ()) if placed[u].chip == q.chip)
            temporal = epochs[placed[writer].epoch].temporal
            result += [
                Crossing(temporal, link, q.source, () if q.writer else readers, math.prod(q.grid))
                for link in _links(device, placed[writer].chip, q.chip)
            ]
    for name, spot in placed.items():
        for port, edge in enumerate(graph[name].inputs):
            maker = placed.get(edge.source)
            if maker is not None and maker.epoch == spot.epoch and port not in queued_ports(graph[name]):
                continue
            chips = [
                q.chip
                for q in by_source.get(edge.source, ())
                if q.location == "dram" and (q.kind != "e2e" or q.direction == epochs[spot.epoch].direction)
            ]
            if chips and spot.chip not in chips:
                key = edge.source, chips[0], spot.chip, epochs[spot.epoch].temporal
                pipes = reads.setdefault(key, {})
                pipes[name] = pipes.get(name, 0) + _lists(problem, name, spot, port)
    for (source, a, b, temporal), pipes in reads.items():
        result += [Crossing(temporal, link, source, tuple(pipes), sum(pipes.values())) for link in _links(device, a, b)]
    return result


def overfull(device: DeviceSpec, crossing: Sequence[Crossing]) -> dict[tuple[int, tuple[int, int]], list[Crossing]]:
    """By temporal epoch and link what crosses, where it takes more pipes than the link has streams."""
    by_link: dict[tuple[int, tuple[int, int]], list[Crossing]] = {}
    for c in crossing:
        by_link.setdefault((c.temporal, c.link), []).append(c)
    return {key: some for key, some in sorted(by_link.items()) if sum(c.pipes for c in some) > _streams(device, key[1])}


def _streams(device: DeviceSpec, link: tuple[int, int]) -> int:
    return CROSSING_STREAMS * (device.neighbours(link[0]).get(link[1], 0) or device.eth_links)


def _links(device: DeviceSpec, a: int, b: int) -> list[tuple[int, int]]:
    """The links of all shortest routes between two chips; themselves where none joins them."""
    if b in device.neighbours(a) or device.hops(a, b) is None:
        return [(min(a, b), max(a, b))]
    length = device.hops(a, b)
    return [
        (x, y)
        for x, y, _ in device.links
        if any((device.hops(a, p) or 0) + 1 + (device.hops(q, b) or 0) == length for p, q in ((x, y), (y, x)))
    ]


def _lists(problem: Problem, name: str, spot: OpPlacement, port: int) -> int:
    """Lists by which an op takes an operand: one for each row, column or core."""
    table = problem.models[name]
    row = table.rows[spot.row]
    role = table.profile.operands[port].role if table.profile is not None else "elt"
    rows, cols = int(row["grid_r"]), int(row["grid_c"])
    return {"in0": rows, "in1": cols}.get(role, rows * cols)


def narrow_crossings(
    problem: Problem, placed: Mapping[str, OpPlacement], epochs: Sequence[Epoch], queues: Sequence[QueuePlacement]
) -> tuple[tuple[Override, ...], tuple[Override, ...], list[Diagnostic]]:
    """Nops of few cores that write what chips with ethernet links send each other, where more pipes would cross in a
    temporal epoch than there are streams (`CROSSING_STREAMS` for each ethernet core of the link, rule N11); pins that
    keep them and their readers where they are, and notes. What crosses a link shares its streams evenly; what needs
    fewer leaves the rest to the others. What no op makes (inputs, weights that are trained) no nop narrows."""
    device, graph = problem.device, problem.graph
    if device.arch == "grayskull" or len(device.chips) == 1:
        return (), (), []
    edits: dict[tuple[str, tuple[str, ...]], Override] = {}
    pins: list[Override] = []
    notes: list[Diagnostic] = []
    for (_, link), some in overfull(device, crossings(problem, placed, epochs, queues)).items():
        free = _streams(device, link)
        for left, c in zip(range(len(some), 0, -1), sorted(some, key=lambda c: (c.pipes, c.source)), strict=True):
            share = max(1, free // left)
            free -= min(c.pipes, share)
            name, home = c.source, placed.get(c.source)
            if c.pipes <= share or home is None or not c.readers or (name, c.readers) in edits:
                continue
            if _is_narrow_nop(graph, name, share, placed):
                continue
            grid, there = _largest_grid(graph, name, device, share), placed[c.readers[0]].chip
            value = {"dest": c.readers, "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
            edits[name, c.readers] = Override("insert_nop", name, value, "placer")
            pins.append(Override("op_size", f"buffer_0_{name}_{c.readers[0]}", grid, "placer"))
            pair = (name, f"buffer_0_{name}_{c.readers[0]}")
            pins.append(Override("op_placement", pair, {"chip": home.chip}, "placer"))
            pins.append(Override("op_placement", c.readers, {"chip": there}, "placer"))
            text = (
                f"{c.pipes} cores would send it from chip {home.chip} to chip {there}; "
                f"a nop on {grid[0]}x{grid[1]} cores does, for {CROSSING_STREAMS} streams of each ethernet core are "
                "shared"
            )
            notes.append(Diagnostic("note", name, "repair", text, f"a size of at most {share} cores needs no nop"))
    return tuple(edits.values()), tuple(pins), notes


def _is_narrow_nop(graph: Graph, name: str, share: int, placed: Mapping[str, OpPlacement]) -> bool:
    """Whether an op is such a nop already, as narrow as it is to be."""
    return name.startswith("buffer_") and math.prod(placed[name].size) <= share


def _later_readers(graph: Graph, placed: Mapping[str, OpPlacement]) -> dict[str, list[str]]:
    """By op the readers that take its output from a queue: those of other epochs."""
    users = graph.users()
    later: dict[str, list[str]] = {}
    for name, spot in placed.items():
        for user, port in users[name]:
            if user in placed and (placed[user].epoch != spot.epoch or port in queued_ports(graph[user])):
                later.setdefault(name, []).append(user)
    return {name: list(dict.fromkeys(readers)) for name, readers in later.items()}


def _largest_grid(graph: Graph, name: str, device: DeviceSpec, cores: int) -> tuple[int, int]:
    """The grid of the most cores, at most `cores`, whose rows and columns divide those of a tensor in tiles."""
    _, rt, ct = tile_shape(graph[name].shape)
    rows, cols = divisors(rt), divisors(ct)
    sizes = [(r, c) for r in rows if r <= device.rows for c in cols if c <= device.cols and r * c <= cores]
    return max(sizes, key=lambda size: (size[0] * size[1], size[0]))


def _first(placed: Mapping[str, OpPlacement], readers: Mapping[int, list[str]]) -> str:
    """The reader that runs first."""
    return min((n for names in readers.values() for n in names), key=lambda n: (placed[n].epoch, n))
