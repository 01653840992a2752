"""The form of an override: what can be said of its target and value before there is a graph.

Whether a model can have what is asked is looked at where candidates, schedules and queues are known; what no model
could have, a misspelled key among them, is refused here, so that nothing is ignored in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tbuda_lab.core.errors import Diagnostic, OverrideError, counted
from tbuda_lab.core.options import FIRST, Each, Override

_FIELDS: dict[str, tuple[str, ...]] = {
    "op_placement": ("start", "transpose", "chip"),
    "queue_channel": ("chip", "channel"),
    "insert_nop": ("dest", "hoist_tms", "nop_count", "daisy_chain"),
    "insert_queue": ("dest", "port"),
}
"""Kinds whose value says several things by name, and the names."""

_EDGES = ("insert_nop", "insert_queue")

Fault = tuple[str, str]
"""What is wrong, and what would work."""


def misshapen(record: Override) -> Fault | None:
    """What is wrong with the form of an override, or None."""
    target, kind, value = record.target, record.kind, record.value
    if isinstance(target, tuple):
        if not all(isinstance(name, str) for name in target):
            return f"a list of targets holds names, not {target!r}", "names of ops or queues"
    elif not (isinstance(target, str | Each | re.Pattern) or callable(target)):
        return f"a target is no {type(target).__name__}", "a name, names, a compiled pattern, or a predicate on names"
    if kind in _FIELDS:
        return _fields(kind, value)
    if kind == "dram_parameters" and value not in (True, False):
        return f"dram_parameters is true or false, not {value!r}", "True keeps the parameters of the op in DRAM"
    if kind in ("epoch_break", "chip_break") and value not in (True, False, FIRST):
        return f"a break is there or not, it is no {value!r}", f"True, or {FIRST!r} before the first of several ops"
    return None


def _fields(kind: str, value: object) -> Fault | None:
    known = f"{kind} takes a mapping with {', '.join(map(repr, _FIELDS[kind]))}"
    if kind in _EDGES and value is True:
        return None  # all readers
    if not isinstance(value, Mapping):
        return f"{value!r} is no mapping", known
    strange = [name for name in value if name not in _FIELDS[kind]]
    if strange:
        return f"there is no {strange[0]!r} in it", known
    if kind not in _EDGES:
        given = [name for name in _FIELDS[kind] if value.get(name) is not None]
        return None if given else ("it asks for nothing", known)
    dest = value.get("dest")
    names = (dest,) if isinstance(dest, str) else dest
    if dest is not None and not (
        isinstance(names, tuple | list) and names and all(isinstance(name, str) for name in names)
    ):
        return f"readers are names, not {dest!r}", "a name, several, or none for all readers"
    for name in ("hoist_tms", "daisy_chain"):
        if not isinstance(value.get(name, True), bool):
            return f"{name} is true or false, not {value[name]!r}", "leave it out for the usual"
    return None


def refuse_misshapen(overrides: Sequence[Override]) -> None:
    """Raises `OverrideError` with a diagnostic for every override of a form that no model could take."""
    found: list[Diagnostic] = []
    for record in overrides:
        fault = misshapen(record)
        if fault is not None:
            where = record.target if isinstance(record.target, str) else record.kind
            found.append(Diagnostic("error", where, f"override-{record.kind}", *fault))
    if found:
        raise OverrideError(f"{counted(len(found), 'override')} cannot be honoured", found)
