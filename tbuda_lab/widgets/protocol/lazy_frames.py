"""What a page fetches when it is wanted, frames and code: what is seldom looked at costs nothing until then.

A page says `{type: "want", key, ...}` and gets the frames of that key, kept for all views of the session, or
`{type: "refused", key, text}`. They are made in the edit controller's thread, after what was asked before.

`{type: "need_more"}` brings the code of the views left out as one binary buffer, in the message `more`; the page takes
it in as a module and checks that it is of the same build.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

Maker = Callable[[Session, Mapping[str, Any]], list[Frame]]

MAKERS: dict[str, Maker] = {}

MORE = pathlib.Path(__file__).parents[1] / "static" / "more.js"
"""The views that the bundle of every widget leaves out: a page fetches them when one of them is first seen."""


def makes(key: str) -> Callable[[Maker], Maker]:
    """Register a function `(session, question)` that makes the frames of a key. It may raise `TbudaError`."""

    def register(maker: Maker) -> Maker:
        if key in MAKERS:
            raise ValueError(f"frame {key!r} is made already")
        MAKERS[key] = maker
        return maker

    return register


def frames_of(session: Session, key: str, **question: Any) -> list[Frame]:
    """The frames of a key now. Raises `KeyError` for a key that nobody makes, and what the maker raises."""
    return MAKERS[key](session, question)


@answers("want")
def _want(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    key = str(content.get("key"))
    if hub.edit_controller is None and (frames := hub.frames_on_demand(key)):
        hub.publish(frames)
    elif hub.edit_controller is None or key not in MAKERS:
        view.post({"type": "refused", "key": key, "text": f"there is no {key}"}, [])
    else:
        hub.edit_controller.submit(lambda: _make(hub, view, key, content))


def _make(hub: Hub, view: Listener, key: str, content: Mapping[str, Any]) -> None:
    shown = hub.frame(key)  # what is on the screen says what a question leaves out
    sides: dict[str, Any] = {k: shown.meta[k] for k in ("a", "b") if k in shown.meta} if shown is not None else {}
    try:
        frames = MAKERS[key](hub.session, {**sides, **content})
    except TbudaError as error:
        view.post({"type": "refused", "key": key, "text": str(error).splitlines()[0]}, [])
    else:
        hub.publish(frames)


@answers("need_more")
def _more(_hub: Hub, view: Listener, _content: Mapping[str, Any]) -> None:
    try:
        code = MORE.read_bytes()
    except OSError as error:
        view.post({"type": "more", "ok": False, "text": f"{MORE.name} cannot be read: {error.strerror}"}, [])
    else:
        view.post({"type": "more", "ok": True, "text": ""}, [code])
