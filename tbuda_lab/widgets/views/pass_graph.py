"""The graph after one pass, for a view of graphs: laid out when somebody wants to see it, sent to that view alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.passframes import pass_frame, passes_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

KEY = "graph:pass"


def after_pass(session: Session, name: str | int) -> Frame:
    """The graph after a pass as a frame of its own, with what the pass changed. Raises `KeyError`."""
    trace = session.passes()
    return dataclasses.replace(pass_frame(trace, trace.find(name)), key=KEY)


@answers("need_pass")
def _need_pass(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """`pass`: a label, "" for the first that changed something; answered by the frames `passlist` and `graph:pass`."""
    ask = content.get("ask")

    def work() -> None:
        try:
            trace = hub.session.passes()
            listed = dataclasses.replace(passes_frame(trace, hub.session.rev), key="passlist")
            name = str(content.get("pass") or "")
            frames = [listed]
            if trace.steps:
                result = trace.find(name) if name else next((s.index for s in trace.steps if s.changes), 0)
                shown = after_pass(hub.session, result)
                frames.append(dataclasses.replace(shown, meta={**shown.meta, "ask": ask}))
        except (TbudaError, KeyError) as error:
            text = str(error.args[0]) if isinstance(error, KeyError) else str(error).splitlines()[0]
            view.post({"type": "refused", "key": KEY, "text": text, "ask": ask}, [])
        else:
            hub.send_frames(view, frames)

    if hub.edit_controller is None:
        view.post({"type": "refused", "key": KEY, "text": "A file has no model and no passes.", "ask": ask}, [])
    else:
        hub.edit_controller.submit(work)
