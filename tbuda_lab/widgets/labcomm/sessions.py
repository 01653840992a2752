"""The sessions of this kernel as a list that keeps itself up to date, and the commands it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.widgets.hub import Hub, hubs, on_hub
from tbuda_lab.widgets.labcomm.commands import COMMANDS
from tbuda_lab.widgets.labcomm.target import Comm
from tbuda_lab.widgets.labcomm.view import hub_by_id

INTERVAL = 0.2  # s between two lists


def open_sessions(comm: Comm, _data: Mapping[str, Any]) -> None:
    """`{open: "sessions"}`: the list, again after every change; takes `{type: "command", name, session, seq}`."""
    SessionsFeed(comm)


class SessionsFeed:
    """One page's list. Lists are sent at most five a second, the last one always."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self._lock = threading.Lock()
        self._sent = 0.0
        self._timer: threading.Timer | None = None
        self._closed = False
        self._watches = {hub.id: _Watch(self, hub) for hub in hubs()}
        self._forget = on_hub(self._made)
        comm.on_msg(self._receive)
        comm.on_close(lambda _: self.close())
        self._send()

    def close(self) -> None:
        """Nobody listens any more. A second call changes nothing."""
        if self._closed:
            return
        self._closed = True
        self._forget()
        self._watches.clear()

    def changed(self) -> None:
        """Something in the list may be different now."""
        with self._lock:
            if self._closed or self._timer is not None:
                return
            wait = self._sent + INTERVAL - time.monotonic()
            if wait > 0:
                self._timer = threading.Timer(wait, self._send)
                self._timer.daemon = True
                self._timer.start()
                return
        self._send()

    def _made(self, hub: Hub) -> None:
        self._watches[hub.id] = _Watch(self, hub)
        self.changed()

    def _send(self) -> None:
        with self._lock:
            self._timer = None
            self._sent = time.monotonic()
        if not self._closed:
            self.comm.send({"type": "sessions", "sessions": [describe(hub) for hub in hubs()]})

    def _receive(self, message: Mapping[str, Any]) -> None:
        content = message["content"]["data"]
        if not isinstance(content, Mapping) or content.get("type") != "command":
            return
        seq = content.get("seq")

        def answer(ok: bool, text: str, **more: Any) -> None:
            self.comm.send({"type": "answer", "seq": seq, "ok": ok, "text": text, **more})
            self.changed()

        command = COMMANDS.get(str(content.get("name")))
        if command is None:
            answer(False, f"unknown command {content.get('name')!r}")
            return
        try:
            command(hub_by_id(content.get("session")), content, answer)
        except TbudaError as error:
            answer(False, str(error))


class _Watch:
    """Listens to one hub for a feed; everything small it hears means: look again."""

    def __init__(self, feed: SessionsFeed, hub: Hub) -> None:
        self.feed = feed
        hub.attach(self)

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.feed.changed()

    def selection_changed(self, selection: dict[str, Any]) -> None:
        """The list does not show it."""

    def wants(self, key: str) -> bool:
        return key in ("edits", "problems", "summary")


def describe(hub: Hub) -> dict[str, Any]:
    """A session in a few words and numbers, as JSON. `cycles`: over all epochs, per input; 0 before a placement."""
    session = hub.session
    status = hub.board.message()
    running = next((s["name"] for s in status["stages"] if s["state"] == "running"), "")
    done = [s["name"] for s in status["stages"] if s["state"] == "done"]
    edits = hub.frame("edits")
    ops = hub.frame("ops")
    journal = getattr(session, "_journal", None)
    severities = [p.severity for p in session.problems]
    return {
        "id": hub.id, "name": session.name, "device": session.device.name,
        "phase": running or (done[-1] if done else ""), "running": status["running"], "failed": status["failed"],
        "done": status["done"], "total": status["total"], "message": status["message"],
        "stale": bool(session.stale) and session.result is not None,
        "busy": bool(edits.meta["busy"]) if edits is not None else False,
        "undo": edits.meta["undo"] if edits is not None else "",
        "redo": edits.meta["redo"] if edits is not None else "",
        "overrides": len(session.overrides), "checkpoints": list(session.checkpoints),
        "errors": severities.count("error"), "warnings": severities.count("warning"),
        "epochs": int(ops.columns["epoch_ops"].size) if ops is not None else 0,
        "cycles": float(ops.meta["total_cycles"]) if ops is not None else 0.0,
        "selected": list(hub.selection["names"])[:1],
        "journal": str(journal.path.resolve()) if journal is not None else "",
    }  # fmt: skip
