"""Frames made of text: the netlist with the lines of every op, and the problems."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.frames.frame import Frame, Strings

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
