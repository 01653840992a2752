"""Which step gave an op its shape and place: the policy, the remaking of its epoch after an edit, or an override."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.overrides import Override, target_text

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session


def picked_by(session: Session, op: str) -> str:
    """A sentence or two. Raises `InputError` for a name that is not placed."""
    placed = session.placed()
    if op not in placed.problem.number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    state = session._state.history.state
    now = placed.ops()[op]
    held = [o for o in session.overrides if o.matches([op])]
    fixed = {o.kind: o for o in held}
    sentences: list[str] = []
    if "op_size" in fixed:
        sentences.append(f"Its shape is the one you asked for{_source(fixed['op_size'])}.")
    if "op_placement" in fixed:
        sentences.append(f"Its place is pinned{_source(fixed['op_placement'])}.")
    others = sorted(fixed.keys() - {"op_size", "op_placement"})
    if others:
        sentences.append(f"Also fixed: {', '.join(others)}.")
    policy = placed.policy or session.options.balancer_policy
    base = session.placed(dataclasses.replace(state, overrides=state.base)).ops().get(op)
    if base is not None and (base.size, base.start, base.transposed) == (now.size, now.start, now.transposed):
        sentences.append(f"The policy {policy} chose it with the whole model; edits since then left it as it was.")
    elif "op_size" in fixed or "op_placement" in fixed:
        sentences.append("Its epoch was made again around it, moving as little else as possible.")
    else:
        sentences.append(
            f"The policy {policy} had given it another shape or place; its epoch was made again after an edit, and it "
            "made room."
        )
    return " ".join(sentences)


def _source(override: Override) -> str:
    """For how it was asked, unless simply by name."""
    return "" if isinstance(override.target, str) else f", by {target_text(override.target)}"
