"""What crosses between kernel and page: who answers which message, who makes which frame, packed frames, and the state
of the stage bar."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

Handler = Callable[["Hub", "Listener", Mapping[str, Any]], None]

HANDLERS: dict[str, Handler] = {}


def answers(*types: str) -> Callable[[Handler], Handler]:
    """Register a function `(hub, view, content)` for messages of these types. A second one for a type is an error."""

    def register(handler: Handler) -> Handler:
        for name in types:
            if name in HANDLERS:
                raise ValueError(f"message {name!r} has a handler already")
            HANDLERS[name] = handler
        return handler

    return register


def dispatch(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """Have a message answered. What this hub cannot do is refused in words, in one place for all messages; messages of
    a type that nobody knows may come from a newer page and are left."""
    what = content.get("type")
    if not isinstance(what, str) or what not in HANDLERS:
        return
    reason = hub.off.get(what)
    if reason is None:
        HANDLERS[what](hub, view, content)
    else:
        repeated = {k: content[k] for k in ("op", "ask", "kind") if k in content}
        view.post({"type": "refused", "key": what, "text": reason, "ok": False, **repeated}, [])
        view.post({"type": "edited", "ok": False, "text": reason}, [])


Maker = Callable[[Session, Mapping[str, Any]], list[Frame]]

MAKERS: dict[str, Maker] = {}


def makes(key: str) -> Callable[[Maker], Maker]:
    """Register a function `(session, question)` that makes the frames of a key. It may raise `TbudaError`."""

    def register(maker: Maker) -> Maker:
        if key in MAKERS:
            raise ValueError(f"frame {key!r} has a maker already")
        MAKERS[key] = maker
        return maker

    return register


CHUNK = 512 * 1024
"""Bytes of one message at most."""
WORTH = 16 * 1024
"""Bytes from which a frame is compressed."""
LEVEL = 1  # the higher ones take four times as long for a fifth less


class _Content:
    """What is sent of a frame, made once: undo comes back to placements whose frames were sent before."""

    def __init__(self, frame: Frame) -> None:
        self.header, self.buffer = frame.pack()
        self._deflated: bytes | None = None

    @property
    def deflate(self) -> bytes:
        if self._deflated is None:
            header = json.dumps(self.header, ensure_ascii=False, separators=(",", ":")).encode()
            head = struct.pack("<I", len(header)) + header
            self._deflated = zlib.compress(b"".join((head, b" " * (-len(head) % 8), self.buffer)), LEVEL)
        return self._deflated


_CONTENTS: dict[int, _Content] = {}
"""By id of the frame, as long as there is the frame."""


def _content(frame: Frame) -> _Content:
    entry = _CONTENTS.get(id(frame))
    if entry is None:
        weakref.finalize(frame, _CONTENTS.pop, id(frame), None).atexit = False
        entry = _CONTENTS[id(frame)] = _Content(frame)
    return entry


def same(a: Frame, b: Frame) -> bool:
    """Whether two frames would be sent as the same bytes."""
    one, other = _content(a), _content(b)
    return one.header == other.header and one.buffer == other.buffer


class FramePacket:
    """A frame as it is sent, with its revision."""

    def __init__(self, frame: Frame, rev: int) -> None:
        self.key, self.rev = frame.key, rev
        self._content = _content(frame)

    def messages(self, inflates: bool) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """(message, buffers), piece by piece; compressed where it is worth it and the page inflates."""
        content = self._content
        if not inflates or len(content.buffer) < WORTH:
            yield from self._pieces(content.buffer, {"header": content.header}, {})
        else:
            yield from self._pieces(content.deflate, {}, {"deflated": True})

    def _pieces(
        self, data: bytes, first: dict[str, Any], all_: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        count = max(1, -(-len(data) // CHUNK))
        for index in range(count):
            message = {"type": "frame", "key": self.key, "rev": self.rev, "chunk": [index, count], **all_}
            yield message | (first if index == 0 else {}), [data[index * CHUNK : (index + 1) * CHUNK]]


LABELS = {
    "trace": "Trace",
    "passes": "Passes",
    "lower": "Lower",
    "balance": "Balance",
    "place": "Place",
    "emit": "Netlist",
    "check": "Check",
    "run": "Run",
    "verify": "Verify",
}


@dataclasses.dataclass
class Stage:
    name: str
    state: str = "pending"  # pending, running, done, failed, cancelled
    seconds: float | None = None
    detail: str = ""
    started: float = 0.0
    spent: float = 0.0  # by this work: a model may be placed more than once to decide on fusing
    fraction: float = 0.0


class StatusBoard:
    """Follows the events of a session; `message()` is what the page is told."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.stages = {name: Stage(name) for name in names}
        self.running = False
        self.failed = False
        self.cancelling = False  # the work was told to stop, and goes on to its next safe point
        self._farthest = 0.0  # of the work: a stage that is made once more takes nothing back
        self.text = ""

    def begin(self, first: str = "") -> None:
        """New work: all stages wait again, or those from `first` on."""
        names = list(self.stages)
        for name in names[names.index(first) if first in names else 0 :]:
            stage = self.stages[name]
            stage.state, stage.seconds, stage.detail, stage.fraction = "pending", None, "", 0.0
            stage.spent = 0.0
        self._farthest = 0.0
        self.running, self.failed, self.cancelling, self.text = True, False, False, ""

    def done(self, name: str, seconds: float | None) -> None:
        """A stage whose result is there already; how long it took, if that is known."""
        stage = self.stages[name]
        stage.state, stage.seconds, stage.fraction = "done", seconds, 1.0

    def step(self, name: str, fraction: float, clock: float | None = None) -> None:
        """A stage reports its fraction done: 0.0 when it starts, 1.0 when it ends."""
        stage = self.stages.setdefault(name, Stage(name))
        now = time.perf_counter() if clock is None else clock
        if fraction >= 1.0 and stage.state == "done":
            return
        if stage.state != "running":
            stage.state, stage.started = "running", now
            self.text = ""
        stage.fraction = fraction
        if fraction >= 1.0:
            stage.spent += now - stage.started
            stage.state, stage.seconds = "done", stage.spent

    def found_wrong(self, name: str, text: str) -> None:
        """A stage that was made and is wrong: its light is red, and no work failed."""
        stage = self.stages[name]
        stage.state, stage.detail = "failed", text

    def end(self, problem: str = "", cancelled: bool = False) -> None:
        """The work is over; `problem` says why when it failed. Between two stages it is the next that failed."""
        stages = [stage for stage in self.stages.values() if stage.state == "running"]
        if problem and not stages:
            stages = [stage for stage in self.stages.values() if stage.state == "pending"][:1]
        for stage in stages:
            stage.state = "cancelled" if cancelled else "failed" if problem else "done"
            stage.detail = problem
        self.running, self.failed, self.cancelling = False, bool(problem) and not cancelled, False
        self.text = "Cancelled" if cancelled else problem.splitlines()[0] if problem else ""

    def message(self) -> dict[str, Any]:
        """JSON for the page; times in seconds. elapsed: of the stage that runs, so far."""
        stages = list(self.stages.values())
        now = time.perf_counter()
        share = sum(1.0 if s.state == "done" else s.fraction if s.state == "running" else 0.0 for s in stages)
        self._farthest = share = max(share, self._farthest)
        return {
            "running": self.running,
            "failed": self.failed,
            "message": "Cancelling at the next safe point …" if self.cancelling else self.text,
            "done": round(share, 3),
            "total": len(stages),
            "cancellable": self.running and not self.cancelling,
            "stages": [
                {
                    "name": LABELS.get(s.name, s.name),
                    "state": s.state,
                    "seconds": s.seconds,
                    "detail": s.detail,
                    **({"elapsed": round(s.spent + now - s.started, 3)} if s.state == "running" else {}),
                }
                for s in stages
            ],
        }
