"""A view that stands in a tab of JupyterLab: the kernel's side of it, on a comm instead of a widget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.state import live_sessions
from tbuda_lab.widgets.handlers.lab.target import Comm
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of, hubs
from tbuda_lab.widgets.protocol.messages import HANDLERS


class CommView:
    """Passes a hub's messages through a comm, and the page's messages to whoever answers them."""

    def __init__(self, comm: Comm, hub: Hub) -> None:
        self.comm, self.hub = comm, hub
        self._seq = 0
        comm.on_msg(self._receive)
        comm.on_close(lambda _: self.hub.detach(self))
        hub.attach(self)
        self.selection_changed(hub.selection)
        comm.send({"type": "ready", "session": hub.id})

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        """One message, numbered, so that the page sees a gap."""
        self._seq += 1
        self.comm.send({**message, "seq": self._seq}, buffers=buffers or None)

    def wants(self, key: str) -> bool:
        return True

    def selection_changed(self, selection: dict[str, Any]) -> None:
        self.comm.send({"type": "set", "name": "selection", "value": selection})

    def _receive(self, message: Mapping[str, Any]) -> None:
        content = message["content"]["data"]
        if not isinstance(content, Mapping):
            return
        what = content.get("type")
        if what == "set" and content.get("name") == "selection":
            value = content.get("value")
            names = value.get("names") if isinstance(value, Mapping) else None
            if value and isinstance(names, list) and all(isinstance(n, str) for n in names):
                self.hub.select(names, str(value.get("source", "page")), str(value.get("kind", "op")))
        elif isinstance(what, str) and what in HANDLERS:
            HANDLERS[what](self.hub, self, content)


def unseen() -> dict[str, Session]:
    """Sessions that no view has shown yet, by the names that pages use for them, oldest first."""
    shown = {id(hub.session) for hub in hubs()}
    return {f"s{n}": s for n, s in live_sessions().items() if isinstance(s, Session) and id(s) not in shown}


def hub_by_id(name: Any) -> Hub:
    """The hub a page means, made at first use; without a name the latest. Raises `InputError` when there is none."""
    existing, others = hubs(), unseen()
    if not existing and not others:
        raise InputError("this kernel has no session: run a cell with BringUp(...) or Session(...)")
    if not name:
        return existing[-1] if existing else hub_of(list(others.values())[-1])
    result = next((hub for hub in existing if hub.id == name), None)
    if result is None and name in others:
        return hub_of(others[name])
    if result is None:
        raise InputError(f"the session {name!r} is gone")
    return result


def open_view(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "view", session}`: a view of a session of this kernel."""
    CommView(comm, hub_by_id(data.get("session")))
