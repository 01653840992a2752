"""The passes, run again when a page wants to look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.passframes import SIDES, pass_frame, passes_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.lazy_frames import makes


@makes("passes")
def _passes(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    """The list, and the graph of the first pass that changed something."""
    trace = session.passes()
    first = next((s.index for s in trace.steps if s.changes), 0)
    frames = [passes_frame(trace, session.rev)]
    return [*frames, pass_frame(trace, first)] if trace.steps else frames


@makes("passgraph")
def _pass(session: Session, question: Mapping[str, Any]) -> list[Frame]:
    trace = session.passes()
    index, side = question.get("index"), str(question.get("side", "after"))
    if type(index) is not int or not 0 <= index < len(trace.steps) or side not in SIDES:
        last = len(trace.steps) - 1
        raise InputError(f"there is no graph {side!r} of a pass {index!r}; passes count from 0 to {last}")
    return [pass_frame(trace, index, side)]
