"""All frames of a session at once, or those that one event makes new; the frames made of text: summary, netlist,
problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import l1_by_kind
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import BatchTime
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.graph_frame import graph_frame
from tbuda_lab.core.frames.ops_frame import ops_frame
from tbuda_lab.core.verification import MIN_PCC, Comparison

_SECTION = re.compile(r"^(?P<name>[A-Za-z_][\w.-]*):")


def netlist_frame(text: str) -> Frame:
    """The netlist as UTF-8 bytes (`text`), and where each queue and op stands (`entry_*`: name, first line, lines).

    Lines count from 0. The text is ours, in the canonical layout: sections at column 0, entries indented below them.
    """
    strings = Strings()
    lines = text.splitlines()
    names: list[str] = []
    first: list[int] = []
    count: list[int] = []
    section = ""
    depth_of_op = {"graphs": 4, "queues": 2}
    for number, line in enumerate(lines):
        head = _SECTION.match(line)
        if head:
            section = head["name"]
            continue
        indent = len(line) - len(line.lstrip(" "))
        if line[indent : indent + 1] in ("", "#"):
            continue
        if section in depth_of_op and indent == depth_of_op[section] and ":" in line:
            name = line.strip().split(":", 1)[0]
            if name not in ("target_device", "input_count"):
                names.append(name)
                first.append(number)
                count.append(1)
        elif names and section in depth_of_op and indent > depth_of_op[section]:
            count[-1] += 1
    columns = {
        "text": np.frombuffer(text.encode(), dtype="u1"),
        "entry_name": strings.column(names),
        "entry_line": np.array(first, dtype="<u4"),
        "entry_lines": np.array(count, dtype="<u4"),
    }
    return Frame("netlist", {"lines": len(lines)}, columns, strings.table)


SEVERITIES = ("error", "warning", "note")


def problems_frame(diagnostics: Iterable[Diagnostic]) -> Frame:
    """One row per diagnostic, errors first, otherwise in the order they were made."""
    strings = Strings()
    rows = sorted(diagnostics, key=lambda d: SEVERITIES.index(d.severity) if d.severity in SEVERITIES else 3)
    columns = {
        "severity": strings.column(d.severity for d in rows),
        "where": strings.column(d.where for d in rows),
        "rule": strings.column(d.rule for d in rows),
        "message": strings.column(d.message for d in rows),
        "fix": strings.column(d.fix for d in rows),
    }
    return Frame("problems", {"count": len(rows)}, columns, strings.table)


def result_frames(result: CompileResult, times: BatchTime | None = None) -> list[Frame]:
    """The frames of a finished compile: three graphs, the placement, the netlist. times: of the placement."""
    return [
        graph_frame(result.graph, "traced"),
        graph_frame(result.passed, "passed"),
        graph_frame(result.lowered, "lowered"),
        ops_frame(result.lowered, result.placement, result.device, None, times, l1_by_kind(result)),
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
