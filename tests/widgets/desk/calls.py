"""What a page says to the desk, and what it hears."""

from __future__ import annotations

from typing import Any

from tbuda_lab.widgets import asking, exporting
from tbuda_lab.widgets.hub import Hub
from tbuda_lab.widgets.messages import HANDLERS
from tests.widgets.test_hub import Page

OP = "first.matmul"
ROOMS = (asking, exporting)  # importing them registers who answers


def ask(hub: Hub, **content: Any) -> Page:
    """A view that says one thing, and what it was told."""
    page = Page()
    hub.attach(page)
    assert hub.desk is not None
    hub.desk.receive(page, content)
    hub.desk.wait(60)
    return page


def answer(page: Page) -> tuple[bool, str]:
    said = [m for m, _ in page.messages if m["type"] == "edited"]
    assert len(said) == 1
    return said[0]["ok"], said[0]["text"]


def edits(hub: Hub) -> dict[str, Any]:
    frame = hub.frame("edits")
    assert frame is not None
    return frame.meta


def said(page: Page, kind: str) -> dict[str, Any]:
    found = [m for m, _ in page.messages if m["type"] == kind]
    assert len(found) == 1
    return found[0]


def tell(hub: Hub, **content: Any) -> Page:
    """Like `ask`, by the way that messages of a page take."""
    page = Page("none")
    hub.attach(page)
    HANDLERS[content["type"]](hub, page, content)
    assert hub.desk is not None
    hub.desk.wait(60)
    return page
