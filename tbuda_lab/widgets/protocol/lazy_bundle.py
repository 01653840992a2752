"""The part of the front end that a page fetches when one of its views is first seen.

The bundle that every widget carries has what is seen at once. `{type: "need_more"}` brings the rest as one binary
buffer, in the message `more`; the page takes it in as a module and checks that it is of the same build as the bundle.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

MORE = pathlib.Path(__file__).parents[1] / "static" / "more.js"


@answers("need_more")
def _more(_hub: Hub, view: Listener, _content: Mapping[str, Any]) -> None:
    try:
        code = MORE.read_bytes()
    except OSError as error:
        view.post({"type": "more", "ok": False, "text": f"{MORE.name} cannot be read: {error.strerror}"}, [])
    else:
        view.post({"type": "more", "ok": True, "text": ""}, [code])
