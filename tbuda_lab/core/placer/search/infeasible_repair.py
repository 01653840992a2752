"""Nops without which there is no placement: for ops that fit no epoch, and for tensors out of reach of a chip.

An op fits no epoch where a core would read too many buffers, or the shapes asked for do not go together: a nop between
it and its producers takes a shape that suits both. Grayskull chips read only their own DRAM, and write to that of
the chips beside them: nops carry a tensor from chip to chip (lowering.md#nops-between-chips). Between chips with
ethernet a nop of few cores passes on what more pipes would carry than there are streams (rule N11).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.types import Epoch, OpPlacement
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
    for result in error.diagnostics:
        if result.rule != "no-epoch" or result.where not in graph:
            continue
        for source in dict.fromkeys(graph[result.where].sources):
            if graph[source].kind is NodeKind.OP:
                value = {"dest": (result.where,), "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
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


def narrow_crossings(
    problem: Problem, placed: Mapping[str, OpPlacement], epochs: Sequence[Epoch]
) -> tuple[tuple[Override, ...], tuple[Override, ...], list[Diagnostic]]:
    """Nops of few cores that write what chips with ethernet links send each other, where the ops themselves would fill
    more buffers of the queues in a temporal epoch than there are streams (`CROSSING_STREAMS` for each ethernet core of
    the link, rule N11); pins that keep them and their readers where they are, and notes. The tensors of a link share
    its streams evenly; those that need fewer leave the rest to the others."""
    device, graph = problem.device, problem.graph
    if device.arch == "grayskull" or len(device.chips) == 1:
        return (), (), []
    crossing: dict[tuple[int, int, int], dict[str, list[str]]] = {}
    for name, later in _later_readers(graph, placed).items():
        home = placed[name].chip
        chips = [placed[reader].chip for reader in later]
        there = max(chips, key=chips.count)  # the queue lies with most of its readers
        if there != home:
            pair = min(home, there), max(home, there)
            readers = [reader for reader in later if placed[reader].chip == there]
            crossing.setdefault((epochs[placed[name].epoch].temporal, *pair), {})[name] = readers
    edits: list[Override] = []
    pins: list[Override] = []
    notes: list[Diagnostic] = []
    for (_, a, b), tensors in sorted(crossing.items()):
        free = CROSSING_STREAMS * (device.neighbours(a).get(b, 0) or device.eth_links)
        pipes = {name: math.prod(placed[name].size) for name in tensors}
        for left, name in zip(range(len(pipes), 0, -1), sorted(pipes, key=lambda n: (pipes[n], n)), strict=True):
            share = max(1, free // left)
            grid = _largest_grid(graph, name, device, share)
            free -= min(pipes[name], share)
            if pipes[name] <= share:
                continue
            readers = tensors[name]
            value = {"dest": tuple(readers), "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
            edits.append(Override("insert_nop", name, value, "placer"))
            nop = f"buffer_0_{name}_{readers[0]}"
            pins.append(Override("op_size", nop, grid, "placer"))
            pins.append(Override("op_placement", (name, nop), {"chip": placed[name].chip}, "placer"))
            pins.append(Override("op_placement", tuple(readers), {"chip": placed[readers[0]].chip}, "placer"))
            text = (
                f"{pipes[name]} cores would send it from chip {placed[name].chip} to chip {placed[readers[0]].chip}; "
                f"a nop on {grid[0]}x{grid[1]} cores does, for {CROSSING_STREAMS} streams of each ethernet core are "
                "shared"
            )
            notes.append(Diagnostic("note", name, "repair", text, f"a size of at most {share} cores needs no nop"))
    return tuple(edits), tuple(pins), notes


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
