"""The base of the widgets: thin Python sides of the views. All views of one session share its hub, so selection is
linked."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import anywidget
import traitlets

from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers import explore, exports, frames, placements, queries, runs
from tbuda_lab.widgets.handlers.lab.kernel_comm import hear_beside_cells
from tbuda_lab.widgets.handlers.session_hub import Hub, cell_number, hub_of
from tbuda_lab.widgets.pictures import fragments, plots
from tbuda_lab.widgets.protocol import dispatch

HANDLER_MODULES = (queries, exports, frames, placements, explore, runs, plots)
"""Imported for the messages that they answer."""
BUNDLE = pathlib.Path(__file__).parents[1] / "static" / "widget.js"


CLOSE_WAIT = 5.0
"""Seconds that closing a view waits at most for the safe point at which its work ends."""


class StaticView:
    """A view as plain HTML: the same picture without a script, for converted notebooks. html: with inline SVG; what a
    notebook stores has images instead, see `fragments.stored_html`."""

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return fragments.stored_html(self.html)

    def __repr__(self) -> str:
        return self.text


def keep_in_step(*views: View) -> Callable[[], None]:
    """What is selected in one of these views is selected in the others, which may be of other sessions: two models side
    by side. Names that a model lacks are left out; where it has none of them its selection stays. Returns what ends
    this."""
    hubs = list(dict.fromkeys(view.hub for view in views))
    passing = threading.local()  # a selection that was handed on is not handed back

    def hear(hub: Hub) -> Callable[[], None]:
        def hand_on(names: tuple[str, ...]) -> None:
            if getattr(passing, "on", False):
                return
            passing.on = True
            try:
                for other in hubs:
                    there = list(filter(other.names.__contains__, names))
                    if other is not hub and (there or not names):
                        other.select(there)
            finally:
                passing.on = False

        return hub.on_selected(hand_on)

    ends = [hear(hub) for hub in hubs]

    def end() -> None:
        for stop in ends:
            stop()

    return end


def _bundle() -> str:
    try:
        return BUNDLE.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None


class View(anywidget.AnyWidget):
    """Base of the views of a session.

    Synced traits are small: which view it is, its height in CSS pixels, and the selection. Frames and status are sent
    as custom messages (see `hub`).
    """

    kind: ClassVar[str] = ""
    frames_shown: ClassVar[tuple[str, ...]] = ()

    view = traitlets.Unicode(read_only=True).tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)
    selection = traitlets.Dict().tag(sync=True, echo_update=False)

    def __init__(self, session: Session, *, height: int = 0) -> None:
        self._open(hub_of(session), height)

    def _open(self, hub: Hub, height: int) -> None:
        self._esm = _bundle()
        self.hub = hub
        self._seq = 0
        self._stored_html: str | None = None  # the picture of a time that is over
        self._cell = 0  # the cell that shows the view
        self.set_trait("view", self.kind)
        super().__init__(height=height, selection=self.hub.selection)
        hear_beside_cells(self.comm)
        self.on_msg(self.receive)
        self.observe(self._on_selected, "selection")
        self.hub.attach(self)

    @property
    def session(self) -> Session:
        """The session shown. Raises `InputError` for a view of a file."""
        if not hasattr(self.hub, "session"):
            raise InputError(f"{self!r} shows a file, which has no session")
        return self.hub.session

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the selected ops."""
        return tuple(self.hub.selection["names"])

    def select(self, *names: str) -> None:
        """Select ops by name, here and in every other view of the session."""
        self.hub.select(names)

    def static(self) -> StaticView:
        """The static picture; display it where the notebook will be converted or read without a kernel."""
        return StaticView(self._fragment(self.hub.frames), repr(self))

    def close(self) -> None:
        """End the view. With the last view of a session ends the work that views began, at its next safe point."""
        super().close()
        if hasattr(self, "hub"):  # it has none where its making failed
            self.hub.leave(self, CLOSE_WAIT)

    def __del__(self) -> None:
        """Nothing is waited for here: this may run in any thread, that of the work as well."""
        if hasattr(self, "hub"):
            self.hub.leave(self)
        super().close()

    # -- the hub's side ----------------------------------------------------------------------------------------
    def post(self, message: dict[str, Any], buffers: Sequence[bytes]) -> None:
        """Send one custom message, numbered, so that the page sees a gap."""
        self._seq += 1
        self.send({**message, "seq": self._seq}, list(buffers) or None)

    def wants(self, key: str) -> bool:
        return not self.frames_shown or key.split(":")[0] in self.frames_shown

    def selection_changed(self, selection: dict[str, Any]) -> None:
        self.selection = selection

    def receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        dispatch(self.hub, self, content)

    def _on_selected(self, change: Mapping[str, Any]) -> None:
        new = change["new"]
        names = new.get("names") if isinstance(new, Mapping) else None
        if isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names):
            self.hub.select(names, str(new.get("source", "page")), str(new.get("kind", "op")))

    # -- what a notebook stores --------------------------------------------------------------------------------
    def edited_by_code(self, cell: int) -> None:
        """Code of a cell is about to change the session. What a later cell does is not in this view's picture: it keeps
        the state that there was when the cells up to its own had run."""
        if self._stored_html is None and 0 < self._cell < cell and "ops" in self.hub.frames:
            self._stored_html = fragments.stored_html(self._fragment(self.hub.frames))

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        raise NotImplementedError

    def stored_html(self) -> str:
        """What a notebook keeps beside the live view: the picture of now, or of the time before code of a later cell
        changed the session."""
        return self._stored_html or fragments.stored_html(self._fragment(self.hub.frames))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hub.session.name!r} on {self.hub.session.device.name})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        self._stored_html, self._cell = None, cell_number()
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"] = repr(self)
            html = self.stored_html()
            if len(html) < fragments.LIMIT:
                data["text/html"] = html
        return bundle
