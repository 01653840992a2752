"""Overrides: what the user asks of ops and queues. One class per kind; every other form follows from it."""

from tbuda_lab.core.overrides.forms import (
    EDIT_KINDS,
    KINDS,
    OVERRIDE_KINDS,
    Resolve,
    form_fault,
    from_json,
    named_python,
    override_python,
    parse,
    refuse_malformed,
    to_json,
    value_text,
)
from tbuda_lab.core.overrides.kind import CompileFacts, Fault, Kind, MalformedValue, OpLimits
from tbuda_lab.core.overrides.record import FIRST, Each, Override, Target, frozen, names_meant, parts_of, target_text

__all__ = [
    "EDIT_KINDS",
    "FIRST",
    "KINDS",
    "OVERRIDE_KINDS",
    "CompileFacts",
    "Each",
    "Fault",
    "Kind",
    "MalformedValue",
    "OpLimits",
    "Override",
    "Resolve",
    "Target",
    "form_fault",
    "from_json",
    "frozen",
    "named_python",
    "names_meant",
    "override_python",
    "parse",
    "parts_of",
    "refuse_malformed",
    "target_text",
    "to_json",
    "value_text",
]
