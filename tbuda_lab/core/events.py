"""Named events with plain listeners; the one way stages tell views what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[..., None]


class Events:
    """Listeners by event name, called in the order they were added, in the thread that emits."""

    def __init__(self, *names: str) -> None:
        self._listeners: dict[str, list[Listener]] = {name: [] for name in names}

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns a function that removes it. Raises `KeyError` naming the known events."""
        if name not in self._listeners:
            raise KeyError(f"no event {name!r}; known: {', '.join(self._listeners)}")
        self._listeners[name].append(listener)
        return lambda: self._listeners[name].remove(listener)

    def emit(self, name: str, *args: Any) -> None:
        for listener in tuple(self._listeners[name]):
            listener(*args)
