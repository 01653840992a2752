"""An Ir in the workbench: its program as views open it, and a record of its graphs, ops, segments and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frontend.provenance import short_path
from tbuda_lab.dialects.program import GraphProgram, netlist_digest
from tbuda_lab.popxl.drawing import drawn_graph
from tbuda_lab.popxl.executable import Executable
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.lowering.report import entries_by_op
from tbuda_lab.popxl.streams import Stream


def _short(location: str) -> str:
    """ "file.py:12" as a reader knows the file."""
    path, _, line = location.rpartition(":")
    return f"{short_path(path)}:{line}" if path else location


def program_of(executable: Executable) -> GraphProgram:
    """The program of an Ir: the segments on the grid as one graph with a part for each, and the steps around them.
    Raises `InputError` for an Ir of which nothing runs on the grid."""
    result = executable.result
    if result is None:
        raise InputError("nothing of the Ir runs on the grid: there is no placement to look at")
    return GraphProgram(
        "popxl",
        "segments",
        result.graph,
        executable.settings.device,
        result.options,
        (),
        executable.programs["main"],
        netlist_digest(result),
        {node.name: torch.zeros(node.shape) for node in result.graph.inputs},
        executable.ir.replication_factor,
        record=record_of(executable),
        drawn=drawn_graph(executable.ir, facts_of(executable)),
    )


def facts_of(executable: Executable) -> Callable[[Op], dict[str, Any]]:
    """What became of an op, as plain data."""
    entries = entries_by_op(executable.blocks, executable.folded)
    segments: dict[Op, list[int]] = {}
    for part in executable.parts:
        for op in dict.fromkeys(i.op for i in part.instrs if i.op is not None):
            segments.setdefault(op, []).append(part.number)

    def told(op: Op) -> dict[str, Any]:
        entry = entries.get(op)
        name = op.outputs[0].name if op.outputs else op.kind
        runs, why = ("called", "its ops stand below") if op.calls else ("left out", "nothing reads what it gives")
        if entry is not None:
            runs, why = entry.kind, entry.reason
        return {
            "op": name,
            "type": op.kind,
            "runs": runs,
            "why": why,
            "line": _short(op.location),
            "calls": [g.id for g in op.calls],
            "segments": segments.get(op, []),
        }

    return told


def record_of(executable: Executable) -> dict[str, Any]:
    """Plain data: "graphs" with their ops and what became of each, "segments" with what cut them, "streams", "buffers",
    "variables" and "replicas"."""
    ir, told = executable.ir, facts_of(executable)

    def graph(g: Graph) -> dict[str, Any]:
        ends = {"inputs": [t.name for t in g.inputs], "outputs": [t.name for t in g.outputs]}
        return {"id": g.id or "main graph", **ends, "ops": [told(op) for op in g._ops]}

    streams: list[tuple[str, Stream]] = [("from the host", s) for s in ir.get_all_h2d_streams()]
    streams += [("to the host", s) for s in ir.get_all_d2h_streams()]
    return {
        "graphs": [graph(g) for g in ir._graphs.values()],
        "segments": [
            {"number": p.number, "ops": len({i.op for i in p.instrs}), "cut": p.why} for p in executable.parts
        ],
        "streams": sorted(
            [{"name": s.tensor_id, "way": way, "shape": list(s.shape), "type": s.dtype.name} for way, s in streams],
            key=lambda one: str(one["name"]),
        ),
        "buffers": [
            {"id": b.remote_buffer_id, "entries": b.entries, "shape": list(b.tensor_shape), "type": b.tensor_dtype.name}
            for b in ir._buffers
        ],
        "variables": [
            {"name": v.id, "shape": list(v.shape), "type": v.dtype.name, "groups": v._grouping.num_groups}
            for v in ir.main_graph.variables
        ],
        "replicas": ir.replication_factor,
    }
