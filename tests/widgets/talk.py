"""A page's side of a conversation with a hub."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.protocol import dispatch


class Page:
    """A view's end of the line."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []
        self.selection: dict[str, Any] = {}

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.messages.append((message, buffers))

    def selection_changed(self, selection: dict[str, Any]) -> None:
        self.selection = selection

    def wants(self, key: str) -> bool:
        return not self.keys or key in self.keys

    def frames(self) -> dict[str, Frame]:
        """Frames put together again from their chunks, the newest of each key."""
        parts: dict[tuple[str, int], list[bytes]] = {}
        headers: dict[tuple[str, int], dict[str, Any]] = {}
        for message, buffers in self.messages:
            if message["type"] in ("frame", "frames"):
                for one, buffer in zip(message.get("frames", [message]), buffers, strict=True):
                    key = (one["key"], one["rev"])
                    parts.setdefault(key, []).append(buffer)
                    headers.setdefault(key, one.get("header", {}))
                    assert one["chunk"][0] == len(parts[key]) - 1
        newest = {key: max(r for k, r in parts if k == key) for key, _ in parts}
        return {k: Frame.unpack(headers[k, r], b"".join(parts[k, r])) for k, r in newest.items()}

    def statuses(self) -> list[dict[str, Any]]:
        return [m["status"] for m, _ in self.messages if m["type"] == "status"]


def say(hub: Hub, *, patience: float = 120, **content: Any) -> Page:
    """What a new page hears after one message of its own, once the desk is done with it."""
    page = Page()
    hub.attach(page)
    dispatch(hub, page, content)
    if hub.edit_controller is not None:
        hub.edit_controller.wait(patience)
    return page


def answers(page: Page, kind: str = "edited") -> list[dict[str, Any]]:
    """Messages of a type that the page got."""
    return [message for message, _ in page.messages if message["type"] == kind]
