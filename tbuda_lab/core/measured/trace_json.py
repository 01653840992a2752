"""Reads traces in Chrome's JSON form (chrome://tracing, Perfetto, torch's profiler, and our own `tbuda export trace`).

Complete events ("X") and pairs of "B" and "E" become ops, in the order of their begin. Where spans of a thread lie in
each other, each moment counts once: the innermost span that computes does, with what it moves within, and not those
around it. A file may be cut anywhere: what stands before is read. Of our own traces only the computation counts, not
the waiting, and an op has the median of its inputs.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.files import bounded_bytes, parse_json, unique_names
from tbuda_lab.core.measured.devices import MOST_DEVICES, Devices
from tbuda_lab.core.measured.op_codes import group_of, kind_of
from tbuda_lab.core.measured.profile import INCOMPLETE, OUTLIER_NS, MeasuredOp, MeasuredProfile

LARGEST = 256 << 20
MOST_EVENTS = 2_000_000
_NOP = re.compile(r"_nop_\d+$")
"""Ends the name of a copy that the compiler adds to an op."""
_MOVES = ("move", "other")
"""Groups of ops that are part of another op where they lie in one."""
_SLACK = 1e-3  # us: begins and durations are rounded
_BETWEEN = re.compile(r"[\s,]*")
_ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
_MOST_DIMS = 16
_MOST_US = 1e15
"""Beyond this a number is no time: 30 years."""
_ASYNCHRONOUS = ("b", "e", "S", "F")
"""Phases of spans that are paired by their id and may lie across each other: not read."""
_NOT_OPS = ("epoch", "wait", "__metadata", "user_annotation")


def read_trace(path: Path) -> MeasuredProfile:
    """The ops of a trace. Raises `InputError` for a file that is no trace or holds no op."""
    text = _text(path)
    findings: list[Diagnostic] = []
    other: object = None
    try:
        data = parse_json(text, path.name)
        other = data.get("otherData") if isinstance(data, dict) else None
    except InputError as error:
        damaged = isinstance(error.__cause__, json.JSONDecodeError)
        data = _readable(text, path.name, findings) if damaged else None
        other = _other_data(text) if damaged else None
        if not data:
            raise
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise InputError(f'{path.name}: a trace has a list of events, in "traceEvents" or at the top')
    if len(events) > MOST_EVENTS:
        more = f"only the first {MOST_EVENTS:,} of {len(events):,} events are read"
        findings.append(Diagnostic("warning", path.name, "profile-rows", more, "trace fewer runs"))
    profile = trace_profile(events[:MOST_EVENTS], path.name, findings)
    return dataclasses.replace(profile, parameters=_shapes(other, "parameters"), model_inputs=_shapes(other, "inputs"))


def _other_data(text: str) -> object:
    """What stands before the events of a file that is cut behind it."""
    begin = re.match(r'\s*\{"displayTimeUnit":"ns","otherData":', text)
    try:
        return json.JSONDecoder().raw_decode(text, begin.end())[0] if begin else None
    except (ValueError, RecursionError):
        return None


def _shapes(other: object, word: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the model's parameters or inputs by name, as our own traces have them."""
    given = other.get(word) if isinstance(other, dict) else None
    if not isinstance(given, dict):
        return {}
    return {
        name: tuple(shape)
        for name, shape in given.items()
        if isinstance(shape, list) and len(shape) <= _MOST_DIMS and all(type(n) is int and n >= 0 for n in shape)
    }


def _text(path: Path) -> str:
    """A character that is cut at the end is left out."""
    data = bounded_bytes(path, LARGEST, "is no trace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data[: error.start].decode("utf-8-sig")
        raise InputError(f"{path.name} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from error


def _readable(text: str, name: str, findings: list[Diagnostic]) -> list[Any]:
    """The events of a file that is no whole JSON, up to where it is none. A list at the top may lack its end."""
    top = re.match(r"\s*\[", text)
    begin = top or re.search(r'"traceEvents"\s*:\s*\[', text)
    events: list[Any] = []
    if begin is None:
        return events
    decoder, at = json.JSONDecoder(object_pairs_hook=unique_names), begin.end()
    while True:
        if between := _BETWEEN.match(text, at):
            at = between.end()
        if at == len(text) or text[at] == "]":
            break
        try:
            event, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        events.append(event)
    if at == len(text) and top:
        lost = Diagnostic(
            "note", name, "profile-open", "its list of events has no end", "it may be cut between two events"
        )
    else:
        where = f"{name}, event {len(events) + 1}"
        lost = Diagnostic(
            "warning", where, "profile-event", "the file is cut here, or no JSON; what follows is left out"
        )
    findings.append(lost)
    return events


def trace_profile(events: list[Any], name: str, findings: Sequence[Diagnostic] = ()) -> MeasuredProfile:
    """As `read_trace`, of events that are read already. findings: of the reading."""
    found = list(findings)
    spans = sorted(_spans(events, name, found), key=lambda s: (s.begin, s.name))
    ours = any(isinstance(s.args.get("cycles"), int) and "op" in s.args for s in spans)
    ops = _own_ops(spans) if ours else _foreign_ops(_once(spans, name, found))
    found += [
        Diagnostic("warning", f"{name}, event {op.row}", "profile-outlier", f"{op.name[:60]} takes more than a second")
        for op in ops
        if op.outlier and ours
    ]
    if not ops:
        raise InputError(f"{name}: none of its {len(events)} events is a computation with a time", found[:20])
    if not ours:
        found += Devices(ops).findings(name)
    found.sort(key=lambda f: f.rule not in INCOMPLETE)  # many odd events hide none that is lost
    return MeasuredProfile(name, "trace" if ours else "chrome", tuple(ops), tuple(found[:200]), rows=len(events))


class _Span(NamedTuple):
    """begin and duration: us; event: its number in the file; lane: process and thread; on_card: of a graphics card."""

    begin: float
    duration: float
    name: str
    process: int
    args: dict[str, Any]
    event: int
    lane: tuple[str, str]
    on_card: bool = False


def _once(spans: list[_Span], name: str, findings: list[Diagnostic]) -> list[_Span]:
    """Of spans of which some lie in others those that count each moment once; where a graphics card ran, its own."""
    card = [s for s in spans if s.on_card]
    if card and len(card) < len(spans):
        text = f"{quantity(len(spans) - len(card), 'span')} of the host around the card's"
        findings.append(Diagnostic("note", name, "profile-host", text, "left out of sums"))
    lanes: dict[tuple[str, str], list[_Span]] = {}
    for span in card or spans:
        lanes.setdefault(span.lane, []).append(span)
    kept = {span.event for lane in lanes.values() for span in _innermost(lane)}
    if nested := len(card or spans) - len(kept):
        text = f"{quantity(nested, 'span')} around others or within an op: each moment counts once"
        findings.append(Diagnostic("note", name, "profile-nested", text, "left out"))
    return [s for s in spans if s.event in kept]


def _innermost(lane: list[_Span]) -> list[_Span]:
    """Of one thread's spans the ops: what computes and holds nothing that does, and what else lies in none of these and
    holds nothing."""
    spans = sorted(lane, key=lambda s: (s.begin, -s.duration))
    computes = [group_of(kind_of(s.name)) not in _MOVES for s in spans]
    parents: list[int] = []
    around: list[int] = []
    for at, span in enumerate(spans):
        while around and span.begin + span.duration > spans[around[-1]].begin + spans[around[-1]].duration + _SLACK:
            around.pop()
        parents.append(around[-1] if around else -1)
        around.append(at)
    holds, deeper = [False] * len(spans), [False] * len(spans)
    for at in reversed(range(len(spans))):
        if parents[at] >= 0:
            holds[parents[at]] = True
            deeper[parents[at]] |= computes[at] or deeper[at]
    covered = [False] * len(spans)
    for at, parent in enumerate(parents):
        whole = computes[at] and not deeper[at]
        covered[at] = whole or (parent >= 0 and covered[parent])
    return [
        span
        for at, span in enumerate(spans)
        if not (parents[at] >= 0 and covered[parents[at]]) and (covered[at] or not holds[at])
    ]


def _spans(events: Sequence[Any], name: str, findings: list[Diagnostic]) -> Iterable[_Span]:
    """Complete events, and pairs of begin and end by their times, for a file need not be in the order of these."""

    def lost(event: int, text: str) -> None:
        findings.append(Diagnostic("warning", f"{name}, event {event}", "profile-event", f"{text}; it is left out"))

    timed: list[tuple[float, int, dict[str, Any]]] = []
    pairs_by_id: list[int] = []
    for number, event in enumerate(events, 1):
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase in _ASYNCHRONOUS:
            pairs_by_id.append(number)
        if phase not in ("X", "B", "E"):
            continue
        begin, duration = _number(event.get("ts")), _number(event.get("dur"))
        if begin is None or (phase == "X" and (duration is None or duration < 0)):
            lost(number, "it has no time that is a number")
        else:
            timed.append((begin, number, event))
    if pairs_by_id:
        text = f"{quantity(len(pairs_by_id), 'event')} of asynchronous spans ({', '.join(_ASYNCHRONOUS)}) from here on"
        lost(pairs_by_id[0], text)
    open_: dict[tuple[str, str], list[tuple[_Span, bool]]] = {}
    processes: dict[str, int] = {}  # a process may be a name
    for begin, number, event in sorted(timed, key=lambda one: one[:2]):
        lane = (str(event.get("pid")), str(event.get("tid")))
        if lane[0] not in processes and len(processes) >= MOST_DEVICES:
            lost(number, f"it is of one process more than {MOST_DEVICES:,}")
            continue
        process = processes.setdefault(lane[0], event["pid"] if type(event.get("pid")) is int else len(processes))
        title = _plain(event["name"]) if isinstance(event.get("name"), str) else ""
        category = str(event.get("cat", ""))
        found = event.get("args")
        args: dict[str, Any] = found if isinstance(found, dict) else {}
        span = _Span(begin, 0.0, title, process, args, number, lane, category.lower() in _ON_CARD)
        if event["ph"] == "B":
            open_.setdefault(lane, []).append((span, category not in _NOT_OPS))
            continue
        is_op = category not in _NOT_OPS
        if event["ph"] == "X":
            span = span._replace(duration=float(event["dur"]))
        else:
            begun = open_.get(lane, [])
            named = [k for k, (s, _) in enumerate(begun) if not title or s.name == title]
            if not named:
                lost(number, f"it ends {title[:60] or 'a span'}, which has not begun")
                continue
            for inner, _ in begun[named[-1] + 1 :]:
                lost(inner.event, f"{inner.name[:60] or 'a span'} goes on when {title[:60]} around it ends")
            span, is_op = begun[named[-1]]
            span = span._replace(duration=begin - span.begin)
            del begun[named[-1] :]
        if is_op and not span.name:
            lost(span.event, "it has no name")
        elif is_op:
            yield span
    for span, _ in (one for begun in open_.values() for one in begun):
        lost(span.event, f"{span.name[:60] or 'a span'} has no end")


def _plain(name: Any) -> str:
    """A name that can be written: half of a pair of characters, which JSON may hold, is none."""
    return str(name)[:200].encode("utf-8", "replace").decode("utf-8")


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_MOST_US < value < _MOST_US:
        return None
    return float(value)


def _own_ops(spans: list[_Span]) -> list[MeasuredOp]:
    """By op the median over inputs of what its kernel took, in the order in which ops begin."""
    times: dict[tuple[str, int], dict[Any, float]] = {}
    for span in spans:
        op, given = _plain(span.args.get("op", span.name)), str(span.args.get("input"))
        by_input = times.setdefault((op, span.process), {})
        by_input[given] = by_input.get(given, 0.0) + span.duration * 1e3
    return [
        MeasuredOp(
            op,
            op,
            "copy" if _NOP.search(op) else kind_of(op),
            at + 1,
            float(np.median(list(each.values()))),
            device,
            repeats=len(each),
            outlier=float(np.median(list(each.values()))) > OUTLIER_NS,
        )
        for at, ((op, device), each) in enumerate(times.items())
    ]


def _foreign_ops(spans: list[_Span]) -> list[MeasuredOp]:
    counts: dict[str, int] = {}
    ops = []
    for span in spans:
        title, time = span.name, span.duration * 1e3
        if not title:
            continue
        counts[title] = count = counts.get(title, 0) + 1
        outlier = time > OUTLIER_NS
        ops.append(
            MeasuredOp(f"{title}_{count}", title, kind_of(title), span.event, time, span.process, outlier=outlier)
        )
    return ops
