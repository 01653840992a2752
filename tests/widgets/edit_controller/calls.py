"""What a page hears of its edits and questions."""

from __future__ import annotations

from typing import Any

from tbuda_lab.widgets.handlers import exports, queries
from tbuda_lab.widgets.handlers.session_hub import Hub
from tests.widgets.talk import Page, answers

OP = "first.matmul"
HANDLER_MODULES = (queries, exports)  # importing them registers who answers


def said(page: Page, kind: str) -> dict[str, Any]:
    """The one message of a type that the page got."""
    (answer,) = answers(page, kind)
    return answer


def answer(page: Page) -> tuple[bool, str]:
    """Whether its edit was made, and what it was told."""
    message = said(page, "edited")
    return message["ok"], message["text"]


def edits(hub: Hub) -> dict[str, Any]:
    frame = hub.frame("edits")
    assert frame is not None
    return frame.meta
