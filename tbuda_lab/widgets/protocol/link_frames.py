"""What the links of the NoCs carry, for a view that shows it: worked out when asked, for what is placed now."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.analysis.noc import link_map
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.clusterframe import links_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener


def shown_links(session: Session, epoch: int, noc: str) -> Frame:
    """The links of an epoch of the current result; nothing is compiled. Raises `InputError`."""
    if session.result is None:
        raise InputError("nothing is placed yet")
    return links_frame(link_map(session.result, epoch, noc), session.device)


@answers("need_links")
def _need_links(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """`epoch`, `noc`; answered by a frame `links:EPOCH:NOC` with the question's number in its meta."""
    epoch, noc, ask = content.get("epoch"), str(content.get("noc")), content.get("ask")

    def work() -> None:
        try:
            frame = shown_links(hub.session, epoch if type(epoch) is int else -1, noc)
        except InputError as error:
            view.post({"type": "refused", "key": "links", "text": str(error), "ask": ask}, [])
        else:
            hub.send_frame(view, dataclasses.replace(frame, meta={**frame.meta, "ask": ask}))

    if hub.edit_controller is None:
        view.post({"type": "refused", "key": "links", "text": "a file has no link data", "ask": ask}, [])
    else:
        hub.edit_controller.submit(work)
