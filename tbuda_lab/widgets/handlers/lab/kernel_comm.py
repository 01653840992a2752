"""The comm of a kernel, as its openers take it: a file that loads nothing, for it is read when widgets are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Comm(Protocol):
    """The part of a kernel's comm that is used here."""

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None: ...
    def on_msg(self, callback: Callable[[Any], None] | None) -> None: ...
    def on_close(self, callback: Callable[[Any], None] | None) -> None: ...


def hear_beside_cells(comm: Any) -> None:
    """Have the messages of a page handled in the subshell that the page names, so that they need not wait for cells.

    ipykernel 7.4 hands them to the shell that was the last to send on the comm: that of the cell that shows a view.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, subshell: subshell
