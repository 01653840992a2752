"""Nops without which there is no placement: for ops that fit no epoch, and for tensors read on several grayskull chips.

An op fits no epoch where a core would read too many buffers, or the shapes asked for do not go together: a nop between
it and its producers takes a shape that suits both. Grayskull chips read only their own DRAM, and write to each
other's: a nop beside the producer carries a tensor to each further chip (lowering.md#nops-between-chips).
"""

from __future__ import annotations

from collections.abc import Mapping

from tbuda_lab.core.balancer.types import OpPlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.legalise import MAX_READERS
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.search.chip_stages import torn


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
    """(nops that carry tensors to further chips, pins that keep them and their readers where they are, notes)."""
    edits: list[Override] = []
    pins: list[Override] = []
    notes: list[Diagnostic] = []
    for name, readers in torn(graph, placed, device).items():
        home = placed[name].chip if name in placed else placed[_first(placed, readers)].chip
        pins += [Override("op_placement", name, {"chip": home}, "placer")] if name in placed else []
        for chip, names in readers.items():
            if chip == home:
                continue
            for at in range(0, len(names), MAX_READERS // 2):
                some = tuple(names[at : at + MAX_READERS // 2])
                value = {"dest": some, "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
                edits.append(Override("insert_nop", name, value, "placer"))
                pins.append(Override("op_placement", f"buffer_0_{name}_{some[0]}", {"chip": home}, "placer"))
                pins.append(Override("op_placement", some, {"chip": chip}, "placer"))
                text = f"read on chip {home} and on chip {chip}: a nop on chip {home} writes it to the other one"
                notes.append(Diagnostic("note", name, "repair", text, "pin its readers to one chip to avoid it"))
    return tuple(edits), tuple(pins), notes


def _first(placed: Mapping[str, OpPlacement], readers: Mapping[int, list[str]]) -> str:
    """The reader that runs first."""
    return min((n for names in readers.values() for n in names), key=lambda n: (placed[n].epoch, n))
