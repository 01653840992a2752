"""A page's side of a conversation with a hub."""

from __future__ import annotations

from typing import Any

from tbuda_lab.widgets.hub import Hub
from tbuda_lab.widgets.messages import HANDLERS
from tests.widgets.test_hub import Page


def say(hub: Hub, *, patience: float = 120, **content: Any) -> Page:
    """What a new page hears after one message of its own, once the desk is done with it."""
    page = Page()
    hub.attach(page)
    HANDLERS[content["type"]](hub, page, content)
    if hub.desk is not None:
        hub.desk.wait(patience)
    return page


def answers(page: Page, kind: str = "edited") -> list[dict[str, Any]]:
    """Messages of a type that the page got."""
    return [message for message, _ in page.messages if message["type"] == kind]
