"""Columnar snapshots of a session for views: graphs with their layered order, placements, netlists, problems."""

from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.graph_frame import graph_frame
from tbuda_lab.core.frames.layout import GraphLayout, place
from tbuda_lab.core.frames.ops_frame import epoch_time, model_time, op_load, ops_frame, total_cycles
from tbuda_lab.core.frames.run_frames import (
    fills_frame,
    flows_frame,
    moment_frame,
    slice_frame,
    static_tiles,
    tile_frame,
    trace_frame,
)
from tbuda_lab.core.frames.snapshot import (
    device_text,
    netlist_frame,
    problems_frame,
    result_frames,
    session_frames,
    summary_frame,
)
from tbuda_lab.core.verification import MIN_PCC

__all__ = [
    "MIN_PCC",
    "Frame",
    "GraphLayout",
    "Strings",
    "device_text",
    "epoch_time",
    "fills_frame",
    "flows_frame",
    "graph_frame",
    "model_time",
    "moment_frame",
    "netlist_frame",
    "op_load",
    "ops_frame",
    "place",
    "problems_frame",
    "result_frames",
    "session_frames",
    "slice_frame",
    "static_tiles",
    "summary_frame",
    "tile_frame",
    "total_cycles",
    "trace_frame",
]
