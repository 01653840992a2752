"""All frames of a session at once, or those that one event makes new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import BatchTime
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.frames.frame import Frame
from tbuda_lab.core.frames.graphframe import graph_frame
from tbuda_lab.core.frames.opsframe import ops_frame
from tbuda_lab.core.frames.textframes import netlist_frame, problems_frame
from tbuda_lab.core.verification import MIN_PCC, Comparison


def result_frames(result: CompileResult, times: BatchTime | None = None) -> list[Frame]:
    """The frames of a finished compile: three graphs, the placement, the netlist. times: of the placement."""
    return [
        graph_frame(result.graph, "traced"),
        graph_frame(result.passed, "passed"),
        graph_frame(result.lowered, "lowered"),
        ops_frame(result.lowered, result.placement, result.device, None, times),
        netlist_frame(netlists.dumps(result.netlist)),
    ]


def device_text(device: DeviceSpec) -> str:
    """One line: name, rows x columns, chips, harvested rows."""
    text = f"{device.name}: {device.rows} rows × {device.cols} columns"
    if len(device.chips) > 1:
        text += f", {len(device.chips)} chips"
    if device.harvested_rows:
        count = len(device.harvested_rows)
        text += f", {count} row{'s' if count > 1 else ''} harvested"
    return text


def summary_frame(
    device: DeviceSpec,
    name: str = "",
    comparisons: Sequence[Comparison] = (),
    facts: Mapping[str, Any] | None = None,
) -> Frame:
    """Device, and how the outputs compare with torch (the worst PCC counts)."""
    meta: dict[str, Any] = {"name": name, "device": device_text(device), **(facts or {})}
    if comparisons:
        meta["pcc"] = min(c.pcc for c in comparisons)
        meta["pcc_wanted"] = MIN_PCC
        meta["outputs"] = [{"name": c.name, "pcc": c.pcc, "max_abs": c.max_abs} for c in comparisons]
    return Frame("summary", meta)


def session_frames(
    result: CompileResult | None,
    device: DeviceSpec,
    problems: Iterable[Diagnostic],
    name: str = "",
    comparisons: Sequence[Comparison] = (),
    times: BatchTime | None = None,
) -> list[Frame]:
    """Everything a page needs; `result` is None where the compile has not finished. times: see `ops_frame`."""
    frames = [summary_frame(device, name, comparisons), problems_frame(problems)]
    return frames + (result_frames(result, times) if result is not None else [])
