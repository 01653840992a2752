"""The state that the parts of a session share, its events, and the list of the sessions of this process.

Events have names and plain listeners: the one way in which stages tell views what happens.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.cache import LruCache
from tbuda_lab.core.compiler.pipeline import Pipeline
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import Journal

if TYPE_CHECKING:
    from tbuda_lab.core.frontend.pybuda import Module
    from tbuda_lab.core.session.session import Session

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

    def heard(self, name: str) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners[name])

    def emit(self, name: str, *args: Any) -> None:
        for listener in tuple(self._listeners[name]):
            listener(*args)


EVENTS = (
    "stage",
    "compiled",
    "run",
    "ran",
    "problem",
    "edited",
    "stale",
    "live",
    "checked",
    "verified",
    "trained",
    "training",
    "detail",
    "cancelled",
    "measured",
)
RESULTS_KEPT = 32


@dataclasses.dataclass
class SessionState:
    """The state of one session.

    history: options and overrides, and the steps to them. pipeline: the compiler with what it keeps. results: of the
    last requests, by their key. journal: the file that edits are written to. traced: the nD graph. runner: that of the
    current result, unless it works. ran: the result that was run last. cancel: set to stop what works now;
    stopped: whether the user did so since the last compile began. crash: what ended the background
    compile that is no error of ours. worker: the
    background compile. names: what overrides by pattern have been matched with. modules: of a session that trains the
    model, its loss and the sample inputs. work_lock: held while stages run. edit_lock: held for moments only.
    """

    history: History
    pipeline: Pipeline
    results: LruCache = dataclasses.field(default_factory=lambda: LruCache(RESULTS_KEPT))
    events: Events = dataclasses.field(default_factory=lambda: Events(*EVENTS))
    journal: Journal | None = None
    traced: Graph | None = None
    runner: Runner | None = None
    ran: CompileResult | None = None
    cancel: threading.Event = dataclasses.field(default_factory=threading.Event)
    stopped: bool = False
    crash: BaseException | None = None
    worker: threading.Thread | None = None
    names: tuple[str, ...] = ()
    modules: tuple[Module, Module, Any] | None = None
    work_lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)
    edit_lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)


_NUMBERS = itertools.count(1)
_SESSIONS: weakref.WeakValueDictionary[int, Session] = weakref.WeakValueDictionary()
_LISTENERS: list[Callable[[Session], None]] = []


def register_session(session: Session) -> None:
    """Lists a new session."""
    _SESSIONS[next(_NUMBERS)] = session
    for listener in tuple(_LISTENERS):
        listener(session)


def live_sessions() -> dict[int, Session]:
    """Living sessions by a number that no other has in this process, oldest first."""
    return dict(sorted(_SESSIONS.items()))


def on_session(listener: Callable[[Session], None]) -> Callable[[], None]:
    """Call `listener(session)` for every session that is made; returns a function that removes it."""
    _LISTENERS.append(listener)
    return lambda: _LISTENERS.remove(listener)
