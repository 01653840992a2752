"""The forms of a record that follow from its kind: its checks before there is a graph, Python text, JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from tbuda_lab.core.errors import Diagnostic, InputError, OverrideError, quantity
from tbuda_lab.core.literals import python_comment, shown_value
from tbuda_lab.core.overrides.candidates import (
    DramParameters,
    InnerStep,
    InputBuffers,
    OpSize,
    OutputBuffer,
    Prologue,
    StreamDirection,
    StreamShape,
)
from tbuda_lab.core.overrides.graphs import Fidelity, NopOnEdge, OutputFormat, QueueOnEdge
from tbuda_lab.core.overrides.kind import Fault, Kind, MalformedValue
from tbuda_lab.core.overrides.places import ChipStart, EpochStart, OpPin, QueuePin, ScheduleConstraint
from tbuda_lab.core.overrides.record import FIRST, Each, Override, frozen, target_text

KINDS: dict[str, type[Kind]] = {
    k.kind: k
    for k in (
        OpSize,
        StreamDirection,
        StreamShape,
        InnerStep,
        InputBuffers,
        OutputBuffer,
        DramParameters,
        Prologue,
        OpPin,
        EpochStart,
        ChipStart,
        QueuePin,
        NopOnEdge,
        QueueOnEdge,
        ScheduleConstraint,
        OutputFormat,
        Fidelity,
    )
}
"""Every kind of override, by its name in records and files."""

OVERRIDE_KINDS = tuple(KINDS)

EDIT_KINDS = tuple(sorted((n for n, k in KINDS.items() if k.turn), key=lambda n: KINDS[n].turn))
"""Kinds that change the graph, in the order in which they do: formats, then nops, then queues."""


def parse(record: Override) -> Kind:
    """The typed value of a record. Raises `MalformedValue`."""
    kind = KINDS.get(record.kind)
    if kind is None:
        raise MalformedValue(f"unknown override {record.kind!r}", f"known: {', '.join(KINDS)}")
    return kind.parse(record.value)


# -- checks before there is a graph ------------------------------------------------------------------------------------
def form_fault(record: Override) -> Fault | None:
    """What is wrong with the form of an override that no model could take, or None.

    Values that depend on the op (a grid, a format) are left to the compile, which knows what is legal there.
    """
    target, value, kind_name = record.target, record.value, record.kind
    if isinstance(target, tuple):
        if not all(isinstance(name, str) for name in target):
            return f"a list of targets holds names, not {target!r}", "names of ops or queues"
    elif not (isinstance(target, str | Each | re.Pattern) or callable(target)):
        fix = "a name, names, a compiled pattern, or a predicate on names"
        return f"a target cannot be a {type(target).__name__}", fix
    try:
        hash(frozen((target, value)))
    except (TypeError, RecursionError):
        fix = "values are numbers, texts, and lists or mappings of them"
        return f"{kind_name} cannot take {shown_value(value)}", fix
    kind = KINDS.get(kind_name)
    if kind is None or not kind.early:
        return None
    try:
        kind.parse(value)
    except MalformedValue as error:
        return error.fault
    return None


def refuse_malformed(overrides: Sequence[Override]) -> None:
    """Raises `OverrideError` with a diagnostic for every override of a form that no model could take."""
    diagnostics: list[Diagnostic] = []
    for record in overrides:
        fault = form_fault(record)
        if fault is not None:
            where = record.target if isinstance(record.target, str) else record.kind
            diagnostics.append(Diagnostic("error", where, f"override-{record.kind}", *fault))
    if diagnostics:
        raise OverrideError(f"{quantity(len(diagnostics), 'override')} cannot be met", diagnostics)


# -- Python ------------------------------------------------------------------------------------------------------------
def override_python(override: Override) -> str:
    """An override as calls of PyBuda's `config` module, a comment where no call has it. Several names give one call
    each, unless the call takes a list."""
    comment = python_comment(f"{override.kind} of {target_text(override.target)}: {shown_value(override.value)}")
    try:
        return _calls(override) or comment
    except (MalformedValue, InputError):  # a value that is none, or that has no literal
        return comment


def _calls(override: Override) -> str:
    """The calls of an override; empty where PyBuda has none."""
    target, value = override.target, parse(override)
    if isinstance(target, tuple) and value.in_one_call:
        return value.python(list(target))
    names = target.names if isinstance(target, Each) and override.value != FIRST else target
    if isinstance(names, tuple):
        return "\n".join(override_python(dataclasses.replace(override, target=name)) for name in names)
    return value.python(target) if isinstance(target, str) and not isinstance(value, ScheduleConstraint) else ""


def named_python(override: Override, names: Sequence[str]) -> str:
    """The calls for a pattern or predicate once it is known which of `names` it matches."""
    if isinstance(override.target, str | tuple):
        return override_python(override)
    targets = override.matches(names)
    if override.value == FIRST:
        targets = targets[:1]
    calls = [override_python(dataclasses.replace(override, target=name)) for name in targets]
    head = f"{override.kind} of {target_text(override.target)}, which matches {len(targets)}:"
    return "\n".join([python_comment(head), *calls])


def value_text(kind: str, value: Any) -> str:
    """A requested or obtained value as a person reads it."""
    return KINDS.get(kind, Kind).text(value)


# -- JSON --------------------------------------------------------------------------------------------------------------
Resolve = Callable[[Override], tuple[str, ...]]
"""The names an override addresses, for patterns and predicates: a file holds those (see `Each`), for a pattern in it
could take any time and a predicate is code."""


def to_json(override: Override, resolve: Resolve) -> dict[str, Any]:
    """An override as plain data, as `from_json` reads it."""
    target: Any = override.target
    each = {} if isinstance(target, str | tuple) else {"each": True}
    if not isinstance(target, str):
        target = list(
            target if isinstance(target, tuple) else target.names if isinstance(target, Each) else resolve(override)
        )
    value = KINDS.get(override.kind, Kind).to_json(override.value)
    return {**each, "kind": override.kind, "target": target, "value": value}


def from_json(record: Any) -> Override:
    """An override from plain data. Raises `InputError` for what does not fit."""
    if not isinstance(record, dict) or set(record) - {"each"} != {"kind", "target", "value"}:
        raise InputError("an override has kind, target and value, and may have each")
    kind, target = record["kind"], record["target"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"unknown override {kind!r}; known: {', '.join(KINDS)}")
    names = [target] if isinstance(target, str) else target
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise InputError("a target is a name or a list of names")
    if record.get("each", True) is not True:
        raise InputError("each is true where a list of names stands for what a pattern matched")
    override = Override(
        kind, Each(tuple(names)) if "each" in record else target, KINDS[kind].from_json(record["value"]), "file"
    )
    fault = form_fault(override)
    if fault is not None:
        raise InputError(f"{kind}: {fault[0]}; {fault[1]}")
    return override
