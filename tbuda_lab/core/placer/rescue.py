"""Nops for ops that fit no epoch: between such an op and its producers, where a core would read too many buffers or
the two shapes that are asked for do not go together. The nop then takes a shape that suits both."""

from __future__ import annotations

from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.options import Override


def rescue(graph: Graph, error: PlacementError) -> tuple[Override, ...]:
    """Nops before the ops that an error says fit no epoch; none when it is about something else."""
    edits: list[Override] = []
    for found in error.diagnostics:
        if found.rule != "no-epoch" or found.where not in graph:
            continue
        for source in dict.fromkeys(graph[found.where].sources):
            if graph[source].kind is NodeKind.OP:
                value = {"dest": (found.where,), "hoist_tms": False, "nop_count": 1, "daisy_chain": False}
                edits.append(Override("insert_nop", source, value, "placer"))
    return tuple(edits)


def rescue_notes(edits: tuple[Override, ...], error: PlacementError) -> list[Diagnostic]:
    """What the nops are for, by op."""
    why = {d.where: d.message for d in error.diagnostics}
    notes = []
    for record in edits:
        (reader,) = record.value["dest"]
        text = f"a nop was put between {record.target} and {reader}, which fits no epoch otherwise: {why[reader]}"
        notes.append(Diagnostic("note", reader, "mended", text, "another size of either op may do without it"))
    return notes
