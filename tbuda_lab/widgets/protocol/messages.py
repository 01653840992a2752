"""Who answers which message of a page: each room of widgets registers its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

Handler = Callable[["Hub", "Listener", Mapping[str, Any]], None]

HANDLERS: dict[str, Handler] = {}


def answers(*types: str) -> Callable[[Handler], Handler]:
    """Register a function `(hub, view, content)` for messages of these types. A second one for a type is an error."""

    def register(handler: Handler) -> Handler:
        for name in types:
            if name in HANDLERS:
                raise ValueError(f"message {name!r} is answered already")
            HANDLERS[name] = handler
        return handler

    return register
