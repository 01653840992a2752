"""The state that the parts of a session share, and its events.

Events have names and plain listeners: the one way in which stages tell views what happens.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.compiler import CompileResult, Request
from tbuda_lab.core.compiler.cache import LruCache
from tbuda_lab.core.compiler.pipeline import Pipeline
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, TbudaError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.run_control import RunControl
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import Header, Journal

if TYPE_CHECKING:
    from tbuda_lab.core.frontend.pybuda import Module
    from tbuda_lab.core.tti import ModuleFacts

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
    "explores",
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

    model, sample_inputs, device, name: what it was opened with; source: words of a command line that open the same
    session, if there is one; image_modules: of a session on an image, what the graph was traced from. result: the
    last good compile, rev: how many there were; stale: whether edits came after it; timings: seconds of its stages;
    problems, error: what the last compile said. control: pauses and steps runs. history: options and overrides, and
    the steps to them. pipeline: the compiler with what it keeps. results: of the last requests, by their key.
    journal: the file that edits are written to. traced: the nD graph; traced_contents: what its model answered by then
    (`frontend.contents_of`). runner: that of the current result, unless it
    works. ran: the result that was run last. cancel: set to stop what works now; stopped: whether the user did so
    since the last compile began. crash: what ended the background compile that is no error of ours. worker: the
    background compile. names: what overrides by pattern have been matched with. modules: of a session that trains
    the model, its loss and the sample inputs. work_lock: held while stages run. edit_lock: held for moments only.
    """

    model: Any
    sample_inputs: Any
    device: DeviceSpec
    name: str
    history: History
    pipeline: Pipeline
    source: tuple[str, ...] = ()
    image_modules: tuple[ModuleFacts, ...] = ()
    rev: int = 0
    result: CompileResult | None = None
    stale: bool = True
    timings: dict[str, float] = dataclasses.field(default_factory=dict)
    problems: list[Diagnostic] = dataclasses.field(default_factory=list)
    error: TbudaError | None = None
    control: RunControl = dataclasses.field(default_factory=RunControl)
    results: LruCache = dataclasses.field(default_factory=lambda: LruCache(RESULTS_KEPT))
    events: Events = dataclasses.field(default_factory=lambda: Events(*EVENTS))
    journal: Journal | None = None
    traced: Graph | None = None
    traced_contents: Any = None
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

    def forget_trace(self) -> None:
        """The next compile traces the model anew; options, overrides and the last result stay."""
        with self.edit_lock:
            self.traced, self.runner, self.stale = None, None, True
            self.pipeline, self.results = self.pipeline.anew(), LruCache(RESULTS_KEPT)

    @property
    def request(self) -> Request:
        """What the next compile is asked for."""
        return self.history.state

    def matches(self, override: Override, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the names that an override addresses, and of the queues that the result has."""
        queues: tuple[str, ...] = ()  # those between epochs are known once something is placed
        if override.kind == "queue_channel" and self.result is not None:
            queues = tuple(self.result.placement.queues)
        return tuple(override.matches(dict.fromkeys((*names, *queues))))

    def write_journal(self) -> None:
        """Writes the edits to the journal, if there is one and no transaction is open. Call it with the edit lock."""
        if self.journal is not None and not self.history.open:
            self.journal.write(self.history, lambda override: self.matches(override, self.names))

    def header(self) -> Header:
        """The head of the journal of this session: what its edits start from."""
        first = self.history.first
        rows = tuple(sorted(self.device.harvested_rows))
        return Header(self.name, self.device.name, rows, first.options, first.overrides)
