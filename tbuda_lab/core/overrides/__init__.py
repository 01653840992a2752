"""Overrides: what the user asks of ops and queues. One class per kind; every other form follows from it."""

from tbuda_lab.core.overrides.forms import (
    EDIT_KINDS,
    KINDS,
    OVERRIDE_KINDS,
    Resolve,
    from_json,
    malformed,
    named_python,
    override_python,
    parsed,
    refuse_malformed,
    to_json,
    value_text,
)
from tbuda_lab.core.overrides.kind import CompileFacts, Fault, Kind, Malformed, OpLimits
from tbuda_lab.core.overrides.record import FIRST, Each, Override, Target, broken, frozen, target_text

__all__ = [
    "EDIT_KINDS", "FIRST", "KINDS", "OVERRIDE_KINDS", "CompileFacts", "Each", "Fault", "Kind", "Malformed", "OpLimits",
    "Override", "Resolve", "Target", "broken", "from_json", "frozen", "malformed", "named_python", "override_python",
    "parsed", "refuse_malformed", "target_text", "to_json", "value_text",
]
