"""The comm of a kernel, as its openers take it: a file that loads nothing, for it is read when widgets are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Comm(Protocol):
    """The part of a kernel's comm that is used here."""

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None: ...
    def on_msg(self, callback: Callable[[Any], None] | None) -> None: ...
    def on_close(self, callback: Callable[[Any], None] | None) -> None: ...
