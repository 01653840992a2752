"""Reads traces in Chrome's JSON form (chrome://tracing, Perfetto, torch's profiler, and our own `tbuda export trace`).

Complete events ("X") and pairs of "B" and "E" become ops, in the order of their begin. Of our own traces only the
computation counts, not the waiting, and an op has the median of its inputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.files import bounded_text, parse_json
from tbuda_lab.core.measured.op_codes import kind_of
from tbuda_lab.core.measured.profile import OUTLIER_NS, MeasuredOp, MeasuredProfile

LARGEST = 256 << 20
MOST_EVENTS = 2_000_000
_NOP = re.compile(r"_nop_\d+$")
"""Ends the name of a copy that the compiler adds to an op."""
_NOT_OPS = ("epoch", "wait", "__metadata", "user_annotation")


def read_trace(path: Path) -> MeasuredProfile:
    """The ops of a trace. Raises `InputError` for a file that is no trace or holds no op."""
    data = parse_json(bounded_text(path, LARGEST, "is no trace"), path.name)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise InputError(f'{path.name}: a trace has a list of events, in "traceEvents" or at the top')
    return trace_profile(events[:MOST_EVENTS], path.name)


def trace_profile(events: list[Any], name: str) -> MeasuredProfile:
    """As `read_trace`, of events that are read already."""
    findings: list[Diagnostic] = []
    spans = sorted(_spans(events, name, findings), key=lambda s: (s[0], s[2]))
    ours = any(isinstance(s[4].get("cycles"), int) and "op" in s[4] for s in spans)
    ops = _own_ops(spans) if ours else _foreign_ops(spans)
    if not ops:
        raise InputError(f"{name}: none of its {len(events)} events is a computation with a time", findings[:20])
    return MeasuredProfile(name, "trace" if ours else "chrome", tuple(ops), tuple(findings[:200]), rows=len(events))


Span = tuple[float, float, str, int, dict[str, Any]]
"""Begin and duration in us, name, process, arguments."""


def _spans(events: Iterable[Any], name: str, findings: list[Diagnostic]) -> Iterable[Span]:
    open_: dict[tuple[Any, Any], list[tuple[float, str, dict[str, Any]]]] = {}
    for at, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") not in ("X", "B", "E"):
            continue
        begin, duration = _number(event.get("ts")), _number(event.get("dur"))
        found = event.get("args")
        args: dict[str, Any] = found if isinstance(found, dict) else {}
        title = str(event.get("name", ""))[:200]
        lane = (str(event.get("pid")), str(event.get("tid")))
        process = event["pid"] if isinstance(event.get("pid"), int) else 0
        if begin is None or (event["ph"] == "X" and (duration is None or duration < 0)):
            findings.append(
                Diagnostic(
                    "warning",
                    f"{name}, event {at + 1}",
                    "profile-event",
                    "it has no time that is a number; it is left out",
                )
            )
        elif str(event.get("cat", "")) in _NOT_OPS:
            continue
        elif event["ph"] == "X":
            assert duration is not None
            yield begin, duration, title, process, args
        elif event["ph"] == "B":
            open_.setdefault(lane, []).append((begin, title, args))
        elif open_.get(lane):
            start, started, own = open_[lane].pop()
            yield start, max(0.0, begin - start), started, process, own


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def _own_ops(spans: list[Span]) -> list[MeasuredOp]:
    """By op the median over inputs of what its kernel took, in the order in which ops begin."""
    times: dict[tuple[str, int], dict[Any, float]] = {}
    for _, duration, title, process, args in spans:
        op = str(args.get("op", title))[:200]
        by_input = times.setdefault((op, process), {})
        by_input[args.get("input")] = by_input.get(args.get("input"), 0.0) + duration * 1e3
    return [
        MeasuredOp(
            op,
            op,
            "copy" if _NOP.search(op) else kind_of(op),
            at + 1,
            float(np.median(list(each.values()))),
            device,
            repeats=len(each),
        )
        for at, ((op, device), each) in enumerate(times.items())
    ]


def _foreign_ops(spans: list[Span]) -> list[MeasuredOp]:
    counts: dict[str, int] = {}
    ops = []
    for at, (_, duration, title, process, _args) in enumerate(spans):
        if not title:
            continue
        counts[title] = counts.get(title, 0) + 1
        time = duration * 1e3
        ops.append(
            MeasuredOp(
                f"{title}_{counts[title]}", title, kind_of(title), at + 1, time, process, outlier=time > OUTLIER_NS
            )
        )
    return ops
