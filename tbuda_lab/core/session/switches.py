"""Overrides that are switched off for now: not in force, but remembered by the history, and so by the journal."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.options import Override
from tbuda_lab.core.session.commands import ClearOp, Disable
from tbuda_lab.core.session.history import Step


def disabled(history: Sequence[Step]) -> tuple[Override, ...]:
    """The overrides that `Disable` took away and nothing has set or cleared since, in the order they were switched off.

    To switch one on again, apply it: `session.apply(override)`.
    """
    found: dict[tuple[str, str], Override] = {}
    for step in history:
        state = step.before
        for command in step.commands:
            after = command.apply(state)
            if isinstance(command, Disable):
                gone = [o for o in state.overrides if o not in after.overrides and isinstance(o.target, str)]
                found |= {(o.kind, str(o.target)): o for o in gone}
            elif isinstance(command, ClearOp):
                found = {
                    k: o
                    for k, o in found.items()
                    if k[1] != command.op or (command.kinds and k[0] not in command.kinds)
                }
            for override in after.overrides:
                if isinstance(override.target, str):
                    found.pop((override.kind, override.target), None)
            state = after
    return tuple(found.values())


def sources(history: Sequence[Step]) -> dict[tuple[str, str], str]:
    """Who set each override made for one name: the source of the last step that did, by (kind, name)."""
    found: dict[tuple[str, str], str] = {}
    for step in history:
        before = {(o.kind, o.target): o.value for o in step.before.overrides if isinstance(o.target, str)}
        for override in step.after.overrides:
            if isinstance(override.target, str):
                key = (override.kind, override.target)
                if key not in before or before[key] != override.value:
                    found[key] = step.source
    return found
