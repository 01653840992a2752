"""Comparisons that a page asks for, and checkpoints to compare with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.diff import Diff
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.lazy_frames import makes
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener


def session_diff_frame(session: Session, diff: Diff) -> Frame:
    """The frame of a comparison, with the names that the session knows in meta `names`."""
    frame = diff_frame(diff)
    return dataclasses.replace(frame, meta={**frame.meta, "names": states_of(session)})


def states_of(session: Session) -> list[str]:
    """Names of the states of a session that can be compared: checkpoints, and those that there always are."""
    own = [n for n in session.checkpoints if n not in ("start", "previous", "now")]
    return ["start", *own, "previous", "now"]


@makes("diff")
def _compare(session: Session, question: Mapping[str, Any]) -> list[Frame]:
    a, b = str(question.get("a", "start")), str(question.get("b", "now"))
    return [session_diff_frame(session, session.diff(a, b))]


@answers("checkpoint")
def _checkpoint(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """Mark the current state; without a name it gets the first letter that is free."""
    session = hub.session
    name = content.get("name")
    if not isinstance(name, str) or not name.strip():
        name = next_name(session.checkpoints)
    try:
        session.checkpoint(name.strip())
    except TbudaError as error:
        view.post({"type": "edited", "ok": False, "text": str(error)}, [])
        return
    view.post({"type": "edited", "ok": True, "text": f"checkpoint {name.strip()}"}, [])
    shown = hub.frame("diff")
    if shown is not None and hub.edit_controller is not None:
        names = [*shown.meta.get("names", ())]
        at = names.index("previous") if "previous" in names else len(names)
        if name.strip() not in names:
            names.insert(at, name.strip())
        hub.publish([dataclasses.replace(shown, meta={**shown.meta, "names": names})])


def next_name(taken: tuple[str, ...]) -> str:
    """A, B, ..., Z, A2, B2, ...: the first that is free."""
    turn = 1
    while True:
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            name = letter if turn == 1 else f"{letter}{turn}"
            if name not in taken:
                return name
        turn += 1
